//! Spans of calls, as their client sees them.

use std::sync::{Arc, Mutex, PoisonError};

use api::otlp::SpanKind;
use net::Address;
use wire::grpc::{
    Code, Metadata, TRACEPARENT, TRACESTATE, TraceContext, TraceIdSource, TraceState,
};

use super::queue::SpanQueue;
use super::span::{AttributeText, SpanRecord};

/// How calls are traced.
#[derive(Clone, Debug)]
pub struct TracerOptions {
    /// Where spans go; `None`: there are none, and the parent is passed on to servers.
    pub spans: Option<SpanQueue>,
    /// The span of which calls are parts that have no other parent; `None`: each is a trace.
    pub parent: Option<TraceContext>,
    /// What came with it in `tracestate`.
    pub parent_state: Option<TraceState>,
    /// From which ids are made: drawn at random.
    pub seed: u64,
    /// Returns the time, in nanoseconds since 1970.
    pub unix_ns: fn() -> u64,
}

/// Makes spans of calls.
#[derive(Clone, Debug)]
pub struct Tracer {
    shared: Arc<SharedTracer>,
}

#[derive(Debug)]
struct SharedTracer {
    spans: Option<SpanQueue>,
    parent: Option<TraceContext>,
    parent_state: Option<TraceState>,
    ids: Mutex<TraceIdSource>,
    unix_ns: fn() -> u64,
}

impl Tracer {
    /// Returns a tracer.
    pub fn new(options: TracerOptions) -> Tracer {
        Tracer {
            shared: Arc::new(SharedTracer {
                spans: options.spans,
                parent: options.parent,
                parent_state: options.parent_state,
                ids: Mutex::new(TraceIdSource::new(options.seed)),
                unix_ns: options.unix_ns,
            }),
        }
    }

    /// Begins the span of a call of `path`, such as `/package.Service/Method`, to a server.
    /// `parent` takes the place of that of the tracer. If the parent is not sampled, there is no
    /// span, and the parent is passed on.
    pub fn begin(&self, path: &str, server: &Address, parent: Option<TraceContext>) -> ClientSpan {
        self.begin_with(path, server, (parent, None))
    }

    /// The same; the parent, and what tracing systems say of its trace, are those that the metadata
    /// of the call name, if they name one.
    pub fn begin_call(&self, path: &str, server: &Address, given: Option<&Metadata>) -> ClientSpan {
        let parent = given.and_then(|metadata| metadata.get(TRACEPARENT));
        let parent = parent.and_then(TraceContext::parse);
        let fields = given.into_iter().flat_map(Metadata::iter);
        let states = fields.filter(|(key, _)| *key == TRACESTATE);
        let state = TraceState::read(states.map(|(_, value)| value));
        self.begin_with(path, server, (parent, state))
    }

    fn begin_with(
        &self,
        path: &str,
        server: &Address,
        (parent, state): (Option<TraceContext>, Option<TraceState>),
    ) -> ClientSpan {
        let shared = &*self.shared;
        let trace_state = match parent {
            Some(_) => state,
            None => shared.parent.and(shared.parent_state.clone()),
        };
        let parent = parent.or(shared.parent);
        let is_recorded = parent.is_none_or(|parent| parent.is_sampled());
        let Some(spans) = shared.spans.as_ref().filter(|_| is_recorded) else {
            return ClientSpan {
                context: parent,
                trace_state,
                recorded: None,
            };
        };
        let context = {
            let mut ids = shared.ids.lock().unwrap_or_else(PoisonError::into_inner);
            let trace = parent.map_or_else(|| ids.next_trace(), |parent| parent.trace);
            TraceContext::sampled(trace, ids.next_span())
        };
        let name = path.strip_prefix('/').unwrap_or(path).to_owned();
        let record = SpanRecord {
            context,
            trace_state: trace_state.clone(),
            parent: parent.map(|parent| parent.span),
            has_remote_parent: false,
            kind: SpanKind::Client,
            name: name.into(),
            start_unix_ns: (shared.unix_ns)(),
            end_unix_ns: 0,
            attributes: server_attributes(server),
            is_error: false,
        };
        ClientSpan {
            context: Some(context),
            trace_state,
            recorded: Some(Box::new(RecordedSpan {
                record,
                spans: spans.clone(),
                unix_ns: shared.unix_ns,
                code: Code::Cancelled,
            })),
        }
    }
}

fn server_attributes(server: &Address) -> Vec<(&'static str, AttributeText)> {
    match server {
        Address::Tcp { host, port } => vec![
            ("server.address", AttributeText::Text(host.clone().into())),
            ("server.port", AttributeText::Number((*port).into())),
        ],
        Address::Unix(path) => {
            let path = path.display().to_string();
            vec![
                ("server.address", AttributeText::Text(path.into())),
                ("network.transport", AttributeText::Text("unix".into())),
            ]
        }
    }
}

/// The span of a call that runs. Dropped before it has ended, it ends as cancelled.
#[derive(Debug)]
#[must_use = "the span ends when this is dropped"]
pub struct ClientSpan {
    context: Option<TraceContext>,
    trace_state: Option<TraceState>,
    recorded: Option<Box<RecordedSpan>>,
}

#[derive(Debug)]
struct RecordedSpan {
    record: SpanRecord,
    spans: SpanQueue,
    unix_ns: fn() -> u64,
    code: Code,
}

impl ClientSpan {
    /// Returns what the server is told: the span, or the parent if there is none; `None`: nothing.
    pub fn context(&self) -> Option<TraceContext> {
        self.context
    }

    /// Returns the metadata of the call: `given`, with `traceparent`, and `tracestate` if there is
    /// one, if the server is told something.
    pub fn metadata(&self, given: Option<&Metadata>) -> Option<Metadata> {
        let value = self.context?.value();
        let mut metadata = given.cloned().unwrap_or_default();
        let is_set = set(&mut metadata, TRACEPARENT, &value);
        // That of several fields stands there in as many.
        let states = metadata.iter().filter(|(key, _)| *key == TRACESTATE);
        if let Some(state) = self.trace_state.as_ref().filter(|_| states.count() < 2) {
            set(&mut metadata, TRACESTATE, state.as_str());
        }
        is_set.then_some(metadata)
    }

    /// The call has ended with this code.
    pub fn end(mut self, code: Code) {
        if let Some(recorded) = &mut self.recorded {
            recorded.code = code;
        }
    }
}

/// Puts a value into the place of the first of its key, or behind all. Returns whether it may stand
/// there.
fn set(metadata: &mut Metadata, key: &'static str, value: &str) -> bool {
    let there = metadata.iter().position(|(one, _)| one == key);
    let set = match there {
        Some(index) => metadata.set_text(index, value.as_bytes()),
        None => metadata.push_ascii(key, value),
    };
    set.is_ok()
}

impl Drop for ClientSpan {
    fn drop(&mut self) {
        if let Some(recorded) = self.recorded.take() {
            let mut record = recorded.record;
            record.add_call(recorded.code);
            record.end_unix_ns = (recorded.unix_ns)().max(record.start_unix_ns);
            recorded.spans.push(record);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const CALLER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn parent(value: &str) -> Option<TraceContext> {
        Some(TraceContext::parse(value.as_bytes()).expect("it is one"))
    }

    fn tracer(spans: Option<&SpanQueue>, parent: Option<TraceContext>) -> Tracer {
        Tracer::new(TracerOptions {
            spans: spans.cloned(),
            parent,
            parent_state: state("of=tracer"),
            seed: 7,
            unix_ns: || 1_000,
        })
    }

    fn state(list: &str) -> Option<TraceState> {
        TraceState::read([list.as_bytes()].into_iter())
    }

    #[test]
    fn what_tracing_systems_say_is_that_of_the_parent() {
        let queue = SpanQueue::default();
        let own = tracer(Some(&queue), parent(CALLER));
        let mut given = Metadata::new();
        given.push_ascii(TRACEPARENT, CALLER).expect("valid");
        let without = given.clone();
        given.push_ascii(TRACESTATE, "of=call").expect("valid");
        for (tracer, given, expected) in [
            (&own, None, Some("of=tracer")),
            (&own, Some(&given), Some("of=call")),
            (&own, Some(&without), None),
            (&tracer(Some(&queue), None), None, None),
            (&tracer(None, parent(CALLER)), None, Some("of=tracer")),
        ] {
            let span = tracer.begin_call("/a.B/C", &server(), given);
            let told = span.metadata(given).expect("something is said");
            let value = told
                .get(TRACESTATE)
                .map(|value| str::from_utf8(value).expect("ASCII"));
            assert_eq!(value, expected);
            let is_recorded = span.recorded.is_some();
            drop(span);
            if is_recorded {
                let [record] = &taken(&queue)[..] else {
                    panic!("one span")
                };
                assert_eq!(record.trace_state, expected.and_then(state));
            }
        }
    }

    fn server() -> Address {
        "db.example:1978".parse().expect("an address")
    }

    fn taken(queue: &SpanQueue) -> Vec<SpanRecord> {
        queue.next_batch(Duration::ZERO).expect("spans wait")
    }

    #[test]
    fn a_span_is_part_of_its_parent_and_the_server_is_told_of_it() {
        let queue = SpanQueue::default();
        let tracer = tracer(Some(&queue), parent(CALLER));
        for own in [None, parent(&CALLER.replace("b7-01", "b8-01"))] {
            let span = tracer.begin("/a.B/C", &server(), own);
            let told = span.metadata(None).expect("something is said");
            let told = TraceContext::parse(told.get(TRACEPARENT).expect("it is there"));
            assert_eq!(told, span.context());
            span.end(Code::NotFound);
            let records = taken(&queue);
            let [record] = &records[..] else {
                panic!("one span")
            };
            let parent = own.or(parent(CALLER)).expect("there is one");
            assert_eq!(Some(record.context), told);
            assert_eq!(record.context.trace, parent.trace);
            assert_eq!(record.parent, Some(parent.span));
            assert_eq!((&*record.name, record.is_error), ("a.B/C", true));
            let names: Vec<_> = record.attributes.iter().map(|(name, _)| *name).collect();
            assert_eq!(names[..2], ["server.address", "server.port"]);
        }
    }

    #[test]
    fn without_a_parent_each_call_is_a_trace() {
        let queue = SpanQueue::default();
        let tracer = tracer(Some(&queue), None);
        let traces: Vec<_> = (0..2)
            .map(|_| {
                let span = tracer.begin("/a.B/C", &server(), None);
                span.context().expect("there is one").trace
            })
            .collect();
        assert_ne!(traces[0], traces[1]);
        let records = taken(&queue);
        assert_eq!(records.len(), 2, "dropped: cancelled");
        assert!(
            records
                .iter()
                .all(|record| record.parent.is_none() && record.is_error)
        );
    }

    #[test]
    fn what_is_not_recorded_is_passed_on() {
        let queue = SpanQueue::default();
        let unsampled = parent(&CALLER.replace("-01", "-00"));
        for (tracer, told) in [
            (tracer(Some(&queue), unsampled), unsampled),
            (tracer(None, parent(CALLER)), parent(CALLER)),
            (tracer(None, None), None),
        ] {
            let span = tracer.begin("/a.B/C", &server(), None);
            assert_eq!(span.context(), told);
            let metadata = span.metadata(None);
            let value = metadata.as_ref().and_then(|all| all.get(TRACEPARENT));
            assert_eq!(value.and_then(TraceContext::parse), told);
        }
        assert_eq!(queue.unsent(), 0);
    }

    #[test]
    fn metadata_that_were_given_stay() {
        let queue = SpanQueue::default();
        let span = tracer(Some(&queue), None).begin("/a.B/C", &server(), parent(CALLER));
        let mut given = Metadata::new();
        given.push_ascii("x-a", "b").expect("valid");
        given.push_ascii(TRACEPARENT, CALLER).expect("valid");
        let told = span.metadata(Some(&given)).expect("something is said");
        assert_eq!((told.len(), told.get("x-a")), (2, Some(&b"b"[..])));
        assert_ne!(told.get(TRACEPARENT), given.get(TRACEPARENT));
    }
}
