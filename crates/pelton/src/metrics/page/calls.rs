//! Calls, by method and status.

use api::CallKind;
use service::figures::Totals;
use service::{Code, Method, RefusedFor};

use crate::metrics::exposition::FamilyKind::{Counter, Gauge, Histogram};
use crate::metrics::exposition::{MetricLabel, MetricsPage};

/// The labels that the gRPC metrics of other servers have, so that dashboards for those fit.
fn method_labels(method: Method) -> [MetricLabel<'static>; 3] {
    let (service, name) = method
        .label()
        .rsplit_once('/')
        .unwrap_or(("", method.label()));
    let shape = match method.kind() {
        Some(CallKind::Unary) => "unary",
        Some(CallKind::ServerStreaming) => "server_stream",
        Some(CallKind::ClientStreaming) => "client_stream",
        Some(CallKind::Bidirectional) => "bidi_stream",
        None => "plain",
    };
    [
        ("grpc_type", shape),
        ("grpc_service", service),
        ("grpc_method", name),
    ]
}

/// Writes what calls were begun, have ended and were refused.
pub(super) fn write(page: &mut MetricsPage, totals: &Totals, interop: bool) {
    page.family(
        "grpc_server_started_total",
        Counter,
        "Calls that were begun, by method. Those that run now are not in \
         grpc_server_handled_total.",
    );
    for &(method, calls) in &totals.started {
        page.sample(&method_labels(method), calls);
    }
    page.family(
        "grpc_server_handled_total",
        Counter,
        "Calls that have ended, by method and status; with status OK for each method that is \
         served, be it 0.",
    );
    let is_served = |method: &&Method| method.is_served(interop);
    for &method in Method::ALL.iter().filter(is_served) {
        let [shape, service, name] = method_labels(method);
        let mut sample = |code: Code, calls: u64| {
            let code = code.name();
            page.sample(&[shape, service, name, ("grpc_code", code)], calls);
        };
        let of_method = || totals.ended.iter().filter(|(one, ..)| *one == method);
        if of_method().all(|(_, code, _)| *code != Code::Ok) {
            sample(Code::Ok, 0);
        }
        for (_, code, calls) in of_method() {
            sample(*code, *calls);
        }
    }
    page.family(
        "grpc_server_handling_seconds",
        Histogram,
        "How long the calls took that have ended, from the turn of the loop in which they were \
         read to the end of that in which their last answer was made; for streams, as long as they \
         were open.",
    );
    for (method, durations) in &totals.took {
        page.histogram(&method_labels(*method), durations);
    }
    page.single(
        "pelton_running_calls",
        Gauge,
        "Calls that run now.",
        totals.running_calls,
    );
    page.family(
        "pelton_refused_calls_total",
        Counter,
        "Calls that were refused, by reason: before they began, and then they are not in \
         grpc_server_handled_total; those of permission_denied also after that, where the right \
         depends on what is asked for.",
    );
    for (calls, reason) in totals.refused {
        page.sample(&[("reason", reason_label(reason))], calls);
    }
}

fn reason_label(reason: RefusedFor) -> &'static str {
    match reason {
        RefusedFor::Stopping => "stopping",
        RefusedFor::Connections => "connections",
        RefusedFor::AddressConnections => "address_connections",
        RefusedFor::RunningCalls => "running_calls",
        RefusedFor::Buffers => "buffers",
        RefusedFor::UnknownMethod => "unknown_method",
        RefusedFor::NoCall => "no_call",
        RefusedFor::TokenMissing => "token_missing",
        RefusedFor::TokenWrong => "token_wrong",
        RefusedFor::TokenExpired => "token_expired",
        RefusedFor::PeerIdentity => "peer_identity",
        RefusedFor::PermissionDenied => "permission_denied",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_label_of_each_reason_is_its_name() {
        for reason in RefusedFor::ALL {
            let mut name = String::new();
            for (place, letter) in format!("{reason:?}").char_indices() {
                if letter.is_uppercase() && place > 0 {
                    name.push('_');
                }
                name.extend(letter.to_lowercase());
            }
            assert_eq!(reason_label(reason), name);
        }
    }
}
