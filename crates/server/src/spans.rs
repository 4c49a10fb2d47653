//! Spans of calls: which calls have one, and what it says when they have ended.
//!
//! A call has a span if its caller says in `traceparent` that it records the trace, or if it
//! belongs to the share of the others that is sampled. What it waits for is measured as for the
//! slow-call log, also where there is none.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use net::PeerAddress;
use service::method::Access;
use service::{Code, Method};
use wire::Head;
use wire::grpc::{SpanId, TRACEPARENT, TRACESTATE, TraceContext, TraceIdSource, TraceState};

use crate::limits;
use crate::pace::{OwnerPace, Rate};
use crate::slow_call_record::PhaseTimes;

/// A call that has ended, as one part of a trace.
#[derive(Debug)]
pub struct CallSpan<'a> {
    /// The trace, and the span itself.
    pub context: TraceContext,
    /// The span of the caller; `None`: the trace begins here.
    pub parent: Option<SpanId>,
    /// What tracing systems say of the trace to each other, as it came.
    pub trace_state: Option<&'a TraceState>,
    /// The method.
    pub method: SpanMethod<'a>,
    /// The name of its database as the caller wrote it, empty for the default one; `None`: it names
    /// none.
    pub database: Option<&'a str>,
    /// From where it came.
    pub peer: &'a PeerAddress,
    /// How it ended.
    pub code: Code,
    /// When its head was read, in nanoseconds since 1970.
    pub start_unix_ns: u64,
    /// When its answer was handed to the socket, or it was given up, in nanoseconds since 1970.
    pub end_unix_ns: u64,
    /// What of that it waited for.
    pub phases: PhaseTimes,
}

/// What was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanMethod<'a> {
    /// A method that the server knows.
    Known(Method),
    /// The path of one that there is not, shortened and without tokens.
    Unknown(&'a str),
}

/// Where spans go. Event loops call it: it must not wait.
pub trait SpanSink: Send + Sync {
    /// Takes the span of a call that has ended.
    fn record(&self, span: &CallSpan<'_>);
}

/// Of how many calls without a trace one begins, as a number of 2^32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampledShare(pub u32);

/// Which calls have spans, and where these go.
#[derive(Clone)]
pub struct SpanRule {
    /// Where they go.
    pub sink: Arc<dyn SpanSink>,
    /// Of which calls without `traceparent` a trace begins.
    pub share: SampledShare,
    /// From which ids are made: drawn at random.
    pub seed: u64,
}

impl fmt::Debug for SpanRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpanRule")
            .field("share", &self.share)
            .finish_non_exhaustive()
    }
}

/// The rule, for all loops.
#[derive(Debug)]
pub(crate) struct Spans {
    rule: SpanRule,
    /// Loops that there were, each of which makes ids from a seed of its own.
    loops: AtomicU64,
}

impl Spans {
    pub fn new(rule: SpanRule) -> Spans {
        let loops = AtomicU64::new(0);
        Spans { rule, loops }
    }

    pub fn sink(&self) -> &dyn SpanSink {
        &*self.rule.sink
    }

    /// Returns what chooses the calls of one more loop.
    pub fn sampler(&self) -> SpanSampler {
        let number = self.loops.fetch_add(1, Ordering::Relaxed);
        // Seeds in a row would give ids that come again: each is a number of another generator.
        let seed = TraceIdSource::new(self.rule.seed.wrapping_sub(number)).next_number();
        SpanSampler {
            ids: TraceIdSource::new(seed ^ number.rotate_left(32)),
            share: self.rule.share,
            refused: OwnerPace::default(),
        }
    }
}

/// Chooses calls of one loop.
#[derive(Debug)]
pub(crate) struct SpanSampler {
    ids: TraceIdSource,
    share: SampledShare,
    /// Calls that were refused before they began, and have spans.
    refused: OwnerPace,
}

/// The span of a call that runs.
#[derive(Clone, Debug)]
pub(crate) struct RunningSpan {
    pub context: TraceContext,
    pub trace_state: Option<TraceState>,
    pub parent: Option<SpanId>,
    /// When the head of the call was read.
    pub began_ns: u64,
}

/// What the head of a call says of its trace.
#[derive(Debug, Default)]
pub(crate) struct CallerTrace {
    context: Option<TraceContext>,
    state: Option<TraceState>,
}

impl CallerTrace {
    /// Reads it. A malformed `traceparent` counts as none (W3C Trace Context, section 4.3), and so
    /// do several; without one that is sampled `tracestate` is not looked for.
    pub fn of(head: &Head<'_>) -> CallerTrace {
        let value = head.get_single(TRACEPARENT.as_bytes());
        let context = value.and_then(TraceContext::parse);
        let state = match &context {
            Some(context) if context.is_sampled() => trace_state(head),
            _ => None,
        };
        CallerTrace { context, state }
    }

    fn sampled(&self) -> Option<TraceContext> {
        self.context.filter(TraceContext::is_sampled)
    }

    /// Returns the span of the caller in the place of one of the call, of which none is made.
    pub fn into_span(self, began_ns: u64) -> Option<RunningSpan> {
        Some(RunningSpan {
            context: self.sampled()?,
            trace_state: None,
            parent: None,
            began_ns,
        })
    }
}

fn trace_state(head: &Head<'_>) -> Option<TraceState> {
    let is_state = |(key, _): &(&[u8], &[u8])| *key == TRACESTATE.as_bytes();
    TraceState::read(head.fields().filter(is_state).map(|(_, value)| value))
}

impl SpanSampler {
    /// Returns the span of a call of a method, of which the head was read at `began_ns`; `None`: it
    /// has none. No trace begins of calls that only look whether the server is there.
    pub fn sample(
        &mut self,
        caller: CallerTrace,
        method: Method,
        began_ns: u64,
    ) -> Option<RunningSpan> {
        let (trace, parent) = match caller.context {
            Some(context) if context.is_sampled() => (context.trace, Some(context.span)),
            Some(_) => return None,
            None if !is_open(method) && self.is_drawn() => (self.ids.next_trace(), None),
            None => return None,
        };
        Some(RunningSpan {
            context: TraceContext::sampled(trace, self.ids.next_span()),
            trace_state: caller.state,
            parent,
            began_ns,
        })
    }

    /// Returns the span of a call that is refused before it begins, if its caller traces it, and
    /// not too many others were refused before.
    pub fn refused(
        &mut self,
        caller: CallerTrace,
        began_ns: u64,
        now_ns: u64,
    ) -> Option<RunningSpan> {
        let context = caller.sampled()?;
        if !self.refused.may(SpanSampler::REFUSED, now_ns) {
            return None;
        }
        self.refused.push(SpanSampler::REFUSED, now_ns);
        Some(RunningSpan {
            context: TraceContext::sampled(context.trace, self.ids.next_span()),
            trace_state: caller.state,
            parent: Some(context.span),
            began_ns,
        })
    }

    const REFUSED: Rate = Rate {
        burst: limits::REFUSED_SPANS_BURST,
        interval_ms: limits::REFUSED_SPAN_INTERVAL_MS,
    };

    fn is_drawn(&mut self) -> bool {
        let SampledShare(share) = self.share;
        share > 0 && (self.ids.next_number() >> 32) <= u64::from(share)
    }
}

/// Returns whether everybody may call a method: those that look again and again whether a server is
/// there.
fn is_open(method: Method) -> bool {
    method.entry().access == Access::Open
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use wire::grpc::TRACEPARENT;

    use crate::pair::Pair;

    const MS: u64 = 1_000_000;
    const SAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    const UNSAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
    const ECHO: &str = "/pelton.v1.Echo/Unary";

    /// What is kept of a span.
    #[derive(Clone, Debug)]
    struct KeptSpan {
        context: TraceContext,
        parent: Option<SpanId>,
        trace_state: Option<String>,
        text: String,
        took_ns: u64,
        phases: PhaseTimes,
    }

    #[derive(Default)]
    struct KeepSpans(Mutex<Vec<KeptSpan>>);

    impl SpanSink for KeepSpans {
        fn record(&self, span: &CallSpan<'_>) {
            self.0.lock().expect("one thread").push(KeptSpan {
                context: span.context,
                parent: span.parent,
                text: {
                    let method = match span.method {
                        SpanMethod::Known(method) => format!("{method:?}"),
                        SpanMethod::Unknown(path) => path.to_owned(),
                    };
                    format!("{method} of {:?}: {:?}", span.database, span.code)
                },
                trace_state: span.trace_state.map(ToString::to_string),
                took_ns: span.end_unix_ns - span.start_unix_ns,
                phases: span.phases,
            });
        }
    }

    impl KeepSpans {
        fn take(&self) -> Vec<KeptSpan> {
            std::mem::take(&mut *self.0.lock().expect("one thread"))
        }

        fn texts(&self) -> Vec<String> {
            self.take().into_iter().map(|span| span.text).collect()
        }
    }

    fn rule(share: u32) -> (Arc<KeepSpans>, SpanRule) {
        let keep = Arc::new(KeepSpans::default());
        let rule = SpanRule {
            sink: Arc::clone(&keep) as _,
            share: SampledShare(share),
            seed: 7,
        };
        (keep, rule)
    }

    fn pair(share: u32) -> (Arc<KeepSpans>, Pair) {
        let (keep, rule) = rule(share);
        (keep, Pair::with_spans(rule))
    }

    #[test]
    fn a_call_that_its_caller_records_has_a_span_with_the_callers_as_its_parent() {
        let (keep, mut pair) = pair(0);
        let caller = TraceContext::parse(SAMPLED.as_bytes()).expect("it is one");
        let mut ids = Vec::new();
        for _ in 0..2 {
            for value in [Some(SAMPLED), Some(UNSAMPLED), Some("nonsense"), None] {
                pair.call_traced(ECHO, b"", value);
                pair.turn();
            }
            let spans = keep.take();
            let [span] = &spans[..] else {
                panic!("one call was sampled: {spans:?}")
            };
            assert_eq!(span.context.trace, caller.trace);
            assert_eq!(span.parent, Some(caller.span));
            assert!(span.context.is_sampled() && span.context.span != caller.span);
            assert_eq!(span.text, "EchoUnary of None: Ok");
            ids.push(span.context.span);
        }
        assert_ne!(ids[0], ids[1]);
    }

    #[test]
    fn several_parents_are_none() {
        let (keep, mut pair) = pair(0);
        for parents in [
            [SAMPLED, SAMPLED],
            [SAMPLED, UNSAMPLED],
            [UNSAMPLED, SAMPLED],
        ] {
            let fields = parents.map(|value| (TRACEPARENT, value));
            pair.call_with_fields(ECHO, &fields, b"", true);
            pair.turn();
        }
        assert_eq!(keep.texts(), [""; 0]);
        pair.call_with_fields(ECHO, &[("x", "a"), (TRACEPARENT, SAMPLED)], b"", true);
        pair.turn();
        assert_eq!(keep.texts(), ["EchoUnary of None: Ok"]);
    }

    #[test]
    fn what_tracing_systems_say_is_kept_unless_it_is_malformed() {
        let (keep, mut pair) = pair(0);
        for (fields, expected) in [
            (
                &[("tracestate", "a=1"), ("tracestate", "b=2")][..],
                Some("a=1,b=2"),
            ),
            (&[("tracestate", "nonsense")], None),
            (&[], None),
        ] {
            let parent = [(TRACEPARENT, SAMPLED)];
            let fields: Vec<_> = parent.iter().chain(fields).copied().collect();
            pair.call_with_fields(ECHO, &fields, b"", true);
            pair.turn();
            let spans = keep.take();
            assert_eq!(spans.len(), 1);
            assert_eq!(spans[0].trace_state.as_deref(), expected);
        }
    }

    #[test]
    fn no_trace_begins_of_calls_that_look_whether_the_server_is_there() {
        let (keep, mut pair) = pair(u32::MAX);
        let health = "/grpc.health.v1.Health/Check";
        for value in [None, Some(SAMPLED), None] {
            pair.call_traced(health, b"", value);
            pair.turn();
        }
        let spans = keep.take();
        assert_eq!(spans.len(), 1);
        assert!(spans[0].parent.is_some(), "its caller traces it");
    }

    #[test]
    fn a_call_that_is_refused_has_a_span_if_its_caller_traces_it() {
        let (keep, mut pair) = pair(u32::MAX);
        for _ in 0..2 {
            for value in [Some(SAMPLED), Some(UNSAMPLED), None] {
                pair.call_traced("/a.B/C", b"", value);
                pair.turn();
            }
            let spans = keep.take();
            assert_eq!(spans.len(), 1, "{spans:?}");
            assert_eq!(spans[0].text, "/a.B/C of None: Unimplemented");
            let caller = TraceContext::parse(SAMPLED.as_bytes()).expect("it is one");
            assert_eq!(spans[0].parent, Some(caller.span));
            assert_eq!(spans[0].context.trace, caller.trace);
        }
    }

    #[test]
    fn spans_of_calls_that_are_refused_are_bounded_and_leave_others_alone() {
        let (keep, mut pair) = pair(0);
        let most = usize::try_from(limits::REFUSED_SPANS_BURST).expect("few");
        for _ in 0..2 {
            for _ in 0..most + 5 {
                pair.call_traced("/a.B/C", b"", Some(SAMPLED));
                pair.turn();
            }
            assert_eq!(keep.take().len(), most);
            pair.call_traced(ECHO, b"", Some(SAMPLED));
            pair.turn();
            assert_eq!(keep.texts(), ["EchoUnary of None: Ok"]);
            pair.now_ns += limits::REFUSED_SPAN_INTERVAL_MS * limits::REFUSED_SPANS_BURST * MS;
            pair.turn();
        }
    }

    #[test]
    fn of_a_share_of_the_others_a_trace_begins() {
        let (keep, mut pair) = pair(u32::MAX);
        for value in [None, Some("00-nonsense"), Some(UNSAMPLED)] {
            pair.call_traced(ECHO, b"", value);
            pair.turn();
        }
        let spans = keep.take();
        assert_eq!(
            spans.len(),
            2,
            "its caller does not want the third: {spans:?}"
        );
        assert!(spans.iter().all(|span| span.parent.is_none()));
        assert_ne!(spans[0].context.trace, spans[1].context.trace);

        let (_, rule) = rule(u32::MAX / 4);
        let mut sampler = Spans::new(rule).sampler();
        let drawn = (0..4_000).filter(|_| {
            let caller = CallerTrace::default();
            sampler.sample(caller, Method::Get, 0).is_some()
        });
        assert!((900..1_100).contains(&drawn.count()));
    }

    #[test]
    fn loops_make_ids_of_their_own() {
        let (_, rule) = rule(0);
        let spans = Spans::new(rule);
        let mut ids = Vec::new();
        for _ in 0..8 {
            let mut sampler = spans.sampler();
            for _ in 0..50 {
                let caller = CallerTrace {
                    context: TraceContext::parse(SAMPLED.as_bytes()),
                    state: None,
                };
                let span = sampler.sample(caller, Method::Get, 0);
                ids.push(span.expect("it is sampled").context.span);
            }
        }
        let different: std::collections::HashSet<_> = ids.iter().collect();
        assert_eq!(different.len(), ids.len());
    }

    #[test]
    fn a_span_lasts_from_the_head_to_the_answer_and_has_the_waits() {
        let (keep, mut pair) = pair(0);
        for _ in 0..2 {
            pair.call_traced(ECHO, &[0x18, 10], Some(SAMPLED));
            pair.turn();
            assert!(keep.take().is_empty(), "it runs");
            pair.now_ns += 10 * MS;
            pair.turn();
            let spans = keep.take();
            assert_eq!(spans.len(), 1);
            assert_eq!(spans[0].took_ns, 10 * MS);
            assert_eq!(spans[0].phases, PhaseTimes::default());
        }
    }

    #[test]
    fn a_span_names_the_database_and_says_how_the_call_ended() {
        let (keep, mut pair) = pair(0);
        pair.call_traced(
            "/pelton.v1.KeyValue/Get",
            b"\x0a\x02no\x12\x01k",
            Some(SAMPLED),
        );
        pair.turn();
        assert_eq!(keep.texts(), ["Get of Some(\"no\"): NotFound"]);
    }

    #[test]
    fn streams_that_their_callers_end_have_spans() {
        let (keep, mut pair) = pair(0);
        pair.call_traced("/pelton.v1.KeyValue/Watch", b"", Some(SAMPLED));
        pair.call_traced("/grpc.health.v1.Health/Watch", b"", Some(SAMPLED));
        pair.turn();
        assert_eq!(keep.texts(), [""; 0]);
        pair.close();
        pair.turn();
        let mut texts = keep.texts();
        texts.sort();
        let expected = [
            "HealthWatch of None: Cancelled",
            "Watch of Some(\"\"): Cancelled",
        ];
        assert_eq!(texts, expected);
    }
}
