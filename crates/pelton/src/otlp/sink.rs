//! Spans of a server's calls, as they are exported.

use client::spans::{AttributeText, SpanAttribute, SpanKind, SpanQueue, SpanRecord};
use net::PeerAddress;
use server::{CallSpan, PhaseTimes, SpanMethod, SpanSink};

/// Hands spans over to an exporter.
pub struct SpanForwarder(pub SpanQueue);

/// Attributes that a span has at most.
const ATTRIBUTES: usize = 12;

/// The name of a method that there is not (semantic conventions for RPC: a name that a caller
/// chose would make names without number).
const UNKNOWN_METHOD: &str = "_OTHER";

impl SpanSink for SpanForwarder {
    fn record(&self, span: &CallSpan<'_>) {
        let mut record = SpanRecord {
            context: span.context,
            trace_state: span.trace_state.cloned(),
            parent: span.parent,
            has_remote_parent: true,
            kind: SpanKind::Server,
            name: match span.method {
                SpanMethod::Known(method) => method.label().into(),
                SpanMethod::Unknown(_) => UNKNOWN_METHOD.into(),
            },
            start_unix_ns: span.start_unix_ns,
            end_unix_ns: span.end_unix_ns,
            attributes: Vec::with_capacity(ATTRIBUTES),
            is_error: false,
        };
        match span.method {
            SpanMethod::Known(method) if method.is_plain() => record.set_code(span.code),
            SpanMethod::Known(_) => record.add_call(span.code),
            SpanMethod::Unknown(path) => {
                record.add_call(span.code);
                let path = path.strip_prefix('/').unwrap_or(path);
                let path = AttributeText::Text(path.to_owned().into());
                record.attributes.push(("rpc.method_original", path));
            }
        }
        add_peer(&mut record.attributes, span.peer);
        if let Some(database) = span.database {
            let name = AttributeText::Text(database.to_owned().into());
            record.attributes.push(("pelton.database", name));
        }
        record.attributes.extend(phases(&span.phases));
        self.0.push(record);
    }
}

fn add_peer(attributes: &mut Vec<SpanAttribute>, peer: &PeerAddress) {
    match peer {
        PeerAddress::Tcp(address) => {
            let ip = AttributeText::Text(address.ip().to_canonical().to_string().into());
            let port = AttributeText::Number(address.port().into());
            attributes.extend([("network.peer.address", ip), ("network.peer.port", port)]);
        }
        PeerAddress::Unix | PeerAddress::Simulated(_) => {
            attributes.push(("network.transport", AttributeText::Text("unix".into())));
        }
    }
}

/// What a call waited for, in microseconds, under the names of the slow-call log.
fn phases(phases: &PhaseTimes) -> [SpanAttribute; 5] {
    let us = |ns: u64| AttributeText::Number(i64::try_from(ns / 1_000).unwrap_or(i64::MAX));
    [
        ("pelton.queue_us", us(phases.queue_ns)),
        ("pelton.read_us", us(phases.read_ns)),
        ("pelton.commit_us", us(phases.commit_ns)),
        ("pelton.sync_us", us(phases.sync_ns)),
        ("pelton.send_us", us(phases.send_ns)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_phase_has_an_attribute_of_its_own_in_whole_microseconds() {
        let found = phases(&PhaseTimes {
            queue_ns: 1_999,
            read_ns: 2_000,
            commit_ns: 3_000,
            sync_ns: 4_000,
            send_ns: u64::MAX,
        });
        let expected = [
            ("pelton.queue_us", 1),
            ("pelton.read_us", 2),
            ("pelton.commit_us", 3),
            ("pelton.sync_us", 4),
            ("pelton.send_us", (u64::MAX / 1_000) as i64),
        ];
        let expected = expected.map(|(name, us)| (name, AttributeText::Number(us)));
        assert_eq!(found, expected);
    }
}
