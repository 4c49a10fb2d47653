//! The thread that exports spans.

use std::time::{Duration, Instant};
use std::{fmt, io, thread};

use super::encode::{self, ResourceAttribute, SpanSource};
use super::export::{Collector, ExportError, OtlpTarget, TakeExport, TakenExport};
use super::fault::ExportFault;
use super::retry::RetryPauses;
use crate::spans::{BrokenOff, SpanBatch, SpanQueue, limits};

/// How spans are exported.
#[derive(Clone, Debug)]
pub struct ExporterOptions {
    /// To whom.
    pub target: OtlpTarget,
    /// The name of the service that they come from.
    pub service_name: String,
    /// Name and version of the program.
    pub scope: (&'static str, &'static str),
    /// What else is known of the process that they come from.
    pub attributes: Vec<ResourceAttribute>,
    /// By which pauses vary: drawn at random.
    pub seed: u64,
}

/// What happens to exports, for the log: once for as long as it stays so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportEvent<'a> {
    /// They fail from now on.
    Failing {
        /// Why.
        why: &'a str,
        /// What is wrong, as far as somebody can do something about it.
        fault: ExportFault,
    },
    /// They go well again.
    Recovered {
        /// Spans that were dropped meanwhile.
        dropped: u64,
    },
    /// The collector takes them, and refuses spans from now on.
    Rejecting {
        /// How many of the first export of which it did.
        spans: u64,
        /// Why, in its words.
        why: &'a str,
    },
}

/// What is called with what happens to exports.
type Observe = Box<dyn Fn(ExportEvent<'_>) + Send>;

/// A thread that exports the spans of a queue. Dropped, it goes on; [`SpanExporter::stop`] ends it.
pub struct SpanExporter {
    queue: SpanQueue,
}

impl fmt::Debug for SpanExporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpanExporter").finish_non_exhaustive()
    }
}

impl SpanExporter {
    /// Starts the thread. It connects when there are spans, and reports to `observe`.
    ///
    /// # Errors
    /// If the system has no thread to give.
    pub fn start(
        options: ExporterOptions,
        observe: impl Fn(ExportEvent<'_>) + Send + 'static,
    ) -> io::Result<SpanExporter> {
        let queue = SpanQueue::default();
        let exporting = ExportLoop {
            queue: queue.clone(),
            collector: Collector::new(options.target),
            source: SpanSource {
                service_name: options.service_name,
                scope: options.scope,
                attributes: options.attributes,
            },
            pauses: RetryPauses::new(limits::SPAN_FIRST_PAUSE, options.seed),
            interval: limits::SPAN_EXPORT_INTERVAL,
            observe: Box::new(observe),
            fails: None,
            rejects: false,
        };
        let thread = thread::Builder::new().name("pelton-spans".into());
        thread.spawn(move || exporting.run())?;
        Ok(SpanExporter { queue })
    }

    /// Returns where spans go.
    pub fn queue(&self) -> SpanQueue {
        self.queue.clone()
    }

    /// Exports what is queued and ends, within that time, or as soon as `is_cut`.
    ///
    /// # Errors
    /// If spans were not exported.
    pub fn stop(&self, time: Duration, is_cut: impl Fn() -> bool) -> Result<(), UnexportedSpans> {
        let before = self.queue.counts().export_failed;
        let stopped = self.queue.stop(time, &is_cut);
        let failed = self.queue.counts().export_failed - before;
        let count = stopped.left as u64 + failed;
        if count == 0 {
            return Ok(());
        }
        let why = match (stopped.broken_off, stopped.failure) {
            (Some(BrokenOff::Cut), _) => UnexportedReason::Cut,
            (None, Some(failure)) => UnexportedReason::Failed(failure),
            (Some(BrokenOff::Late), _) | (None, None) => UnexportedReason::Late(time),
        };
        Err(UnexportedSpans { count, why })
    }
}

/// Spans that were left when the export ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnexportedSpans {
    /// How many.
    pub count: u64,
    /// Why they were not exported.
    pub why: UnexportedReason,
}

/// Why spans were not exported at the end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnexportedReason {
    /// The collector has not taken them so soon.
    #[error("the collector did not take them within {} s", .0.as_secs_f64())]
    Late(Duration),
    /// The last export failed, for this reason.
    #[error("{0}")]
    Failed(String),
    /// Whoever ended the process would not wait any more.
    #[error("a further signal asked to end at once")]
    Cut,
}

/// What the thread has.
struct ExportLoop<C> {
    queue: SpanQueue,
    collector: C,
    source: SpanSource,
    pauses: RetryPauses,
    interval: Duration,
    observe: Observe,
    /// Exports fail: how many spans had been dropped when that began.
    fails: Option<u64>,
    /// The collector refuses spans.
    rejects: bool,
}

impl<C: TakeExport> ExportLoop<C> {
    fn run(mut self) {
        while let Some(batch) = self.queue.next_batch(self.interval) {
            self.export_and_count(&batch);
        }
        self.queue.end();
    }

    fn export_and_count(&mut self, batch: &SpanBatch) {
        match self.export(batch) {
            Some(taken) => self.note_taken(batch, &taken),
            None => {
                let failed = batch.len() as u64;
                self.queue.settle(|counts| counts.export_failed += failed);
            }
        }
    }

    /// Exports spans. Returns what the collector says of them; `None`: they are given up.
    fn export(&mut self, batch: &SpanBatch) -> Option<TakenExport> {
        let request = encode::request(&self.source, batch);
        let (mut attempts, mut is_last) = (0, false);
        loop {
            let time = self.time_left()?;
            let error = match self.collector.take_export(&request, time) {
                Ok(taken) => return Some(taken),
                Err(error) => error,
            };
            self.note_failure(&error);
            attempts += 1;
            let pause = self.pauses.after(attempts, error.retry)?;
            // Whoever waits for the end of the process gets one attempt more, and at once.
            if !self.queue.pause(pause) && std::mem::replace(&mut is_last, true) {
                return None;
            }
        }
    }

    /// How long an attempt may take; `None`: everything must have ended.
    fn time_left(&self) -> Option<Duration> {
        let longest = limits::SPAN_EXPORT_TIMEOUT;
        let left = self.queue.stop_by().map_or(longest, |by| {
            by.saturating_duration_since(Instant::now()).min(longest)
        });
        (!left.is_zero()).then_some(left)
    }

    fn note_failure(&mut self, error: &ExportError) {
        self.queue.note_failure(Some(&error.why));
        if self.fails.is_none() {
            self.fails = Some(self.dropped());
            let (why, fault) = (&*error.why, error.fault);
            (self.observe)(ExportEvent::Failing { why, fault });
        }
    }

    fn note_taken(&mut self, batch: &SpanBatch, taken: &TakenExport) {
        let rejected = taken.rejected.min(batch.len() as u64);
        self.queue.settle(|counts| {
            counts.sent += batch.len() as u64 - rejected;
            counts.rejected += rejected;
        });
        if let Some(before) = self.fails.take() {
            self.queue.note_failure(None);
            let dropped = self.dropped().saturating_sub(before);
            (self.observe)(ExportEvent::Recovered { dropped });
        }
        if rejected > 0 && !self.rejects {
            (self.observe)(ExportEvent::Rejecting {
                spans: rejected,
                why: &taken.message,
            });
        }
        self.rejects = rejected > 0;
    }

    /// Spans that were dropped because exports were too slow, or failed.
    fn dropped(&self) -> u64 {
        let counts = self.queue.counts();
        counts.queue_full + counts.export_failed
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use api::otlp::ExportTraceServiceRequest;

    use super::super::retry::Retry;
    use super::*;
    use crate::spans::{SpanCounts, example_span as span};

    /// What a collector does with its exports, one after the other, and then takes all.
    #[derive(Clone, Default)]
    struct Scripted {
        fates: Arc<Mutex<Vec<Result<u64, Retry>>>>,
        /// The spans of each attempt.
        attempts: Arc<Mutex<Vec<usize>>>,
    }

    impl TakeExport for Scripted {
        fn take_export(&mut self, request: &[u8], _: Duration) -> Result<TakenExport, ExportError> {
            let request = ExportTraceServiceRequest::decode(request).expect("it is one");
            let resource = request.resource_spans.iter().next().expect("one");
            let scopes = resource.expect("it is one").scope_spans;
            let spans = scopes.iter().next().expect("one").expect("it is one").spans;
            self.attempts.lock().expect("sound").push(spans.len());
            let mut fates = self.fates.lock().expect("sound");
            let fate = match fates.is_empty() {
                true => Ok(0),
                false => fates.remove(0),
            };
            match fate {
                Ok(rejected) => Ok(TakenExport {
                    rejected,
                    message: "no".into(),
                }),
                Err(retry) => Err(ExportError {
                    why: "away".into(),
                    fault: ExportFault::NobodyListens,
                    retry,
                }),
            }
        }
    }

    fn export_loop(
        queue: &SpanQueue,
        collector: &Scripted,
        first_pause: Duration,
    ) -> ExportLoop<Scripted> {
        ExportLoop {
            queue: queue.clone(),
            collector: collector.clone(),
            source: SpanSource {
                service_name: "s".into(),
                scope: ("a", "1"),
                attributes: Vec::new(),
            },
            pauses: RetryPauses::new(first_pause, 7),
            interval: Duration::ZERO,
            observe: Box::new(|_| {}),
            fails: None,
            rejects: false,
        }
    }

    /// Exports batches of two spans to such a collector. Returns the spans of each attempt, what
    /// was counted, and what was reported.
    fn exported(
        batches: usize,
        fates: &[Result<u64, Retry>],
    ) -> (Vec<usize>, SpanCounts, Vec<String>) {
        let collector = Scripted::default();
        *collector.fates.lock().expect("sound") = fates.to_vec();
        let events = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&events);
        let queue = SpanQueue::default();
        let mut exporting = ExportLoop {
            observe: Box::new(move |event: ExportEvent<'_>| {
                told.lock().expect("sound").push(format!("{event:?}"));
            }),
            ..export_loop(&queue, &collector, Duration::from_micros(10))
        };
        for _ in 0..batches {
            queue.push(span(1));
            queue.push(span(2));
            let batch = queue.next_batch(Duration::ZERO).expect("spans wait");
            exporting.export_and_count(&batch);
        }
        let attempts = collector.attempts.lock().expect("sound").clone();
        let events = events.lock().expect("sound").clone();
        (attempts, queue.counts(), events)
    }

    #[test]
    fn spans_that_are_taken_are_counted_as_sent() {
        let (attempts, counts, events) = exported(2, &[]);
        assert_eq!((attempts, events), (vec![2, 2], vec![]));
        let expected = SpanCounts {
            sent: 4,
            ..SpanCounts::default()
        };
        assert_eq!(counts, expected);
    }

    #[test]
    fn an_export_is_retried_and_an_outage_reported_once() {
        let fails = Err(Retry::Later);
        let fates = [fails, fails, Ok(0), Ok(0), fails, Ok(0)];
        let (attempts, counts, events) = exported(3, &fates);
        assert_eq!(attempts, [2; 6]);
        assert_eq!((counts.sent, counts.export_failed), (6, 0));
        let failing = "Failing { why: \"away\", fault: NobodyListens }";
        let recovered = "Recovered { dropped: 0 }";
        assert_eq!(events, [failing, recovered, failing, recovered]);
    }

    #[test]
    fn an_export_is_given_up_after_its_attempts_or_at_once() {
        let most = limits::SPAN_EXPORT_ATTEMPTS as usize;
        for (retry, attempts) in [(Retry::Later, most), (Retry::Never, 1)] {
            let mut fates = vec![Err(retry); 2 * attempts];
            fates.push(Ok(0));
            let (tried, counts, events) = exported(3, &fates);
            assert_eq!(tried.len(), 2 * attempts + 1);
            assert_eq!((counts.sent, counts.export_failed), (2, 4));
            let recovered = "Recovered { dropped: 4 }";
            let failing = "Failing { why: \"away\", fault: NobodyListens }";
            assert_eq!(events, [failing, recovered]);
        }
    }

    /// Runs the thread of an export of so many spans, with pauses that only a stop ends, and stops
    /// it after the first attempt. Returns the spans of each attempt, and what was counted.
    fn stopped(spans: u64, fates: &[Result<u64, Retry>]) -> (Vec<usize>, SpanCounts) {
        let collector = Scripted::default();
        *collector.fates.lock().expect("sound") = fates.to_vec();
        let queue = SpanQueue::default();
        (0..spans).for_each(|number| queue.push(span(number)));
        let exporting = export_loop(&queue, &collector, limits::SPAN_LONGEST_PAUSE);
        let thread = thread::spawn(move || exporting.run());
        while collector.attempts.lock().expect("sound").is_empty() {
            thread::yield_now();
        }
        queue.stop(Duration::from_secs(600), &|| false);
        thread.join().expect("it has ended");
        let attempts = collector.attempts.lock().expect("sound").clone();
        (attempts, queue.counts())
    }

    #[test]
    fn a_stop_gives_an_export_that_fails_one_attempt_more() {
        let fails = Err(Retry::Later);
        let (attempts, counts) = stopped(3, &[fails]);
        assert_eq!((attempts, counts.sent), (vec![3, 3], 3));
        let (attempts, counts) = stopped(3, &[fails, fails, fails]);
        assert_eq!(attempts, [3, 3]);
        assert_eq!((counts.sent, counts.export_failed), (0, 3));
    }

    #[test]
    fn each_span_of_an_export_that_is_given_up_is_counted() {
        let most = limits::SPANS_PER_EXPORT;
        let (attempts, counts) = stopped(most as u64 + 3, &[Err(Retry::Never), Ok(0)]);
        assert_eq!(attempts, [most, 3]);
        assert_eq!((counts.sent, counts.export_failed), (3, most as u64));
    }

    #[test]
    fn a_stop_reports_what_is_lost_then_and_not_what_was_lost_before() {
        let queue = SpanQueue::default();
        queue.settle(|counts| counts.export_failed += 5);
        queue.end();
        let exporter = SpanExporter { queue };
        for _ in 0..2 {
            assert_eq!(exporter.stop(Duration::from_secs(600), || false), Ok(()));
        }
    }

    #[test]
    fn spans_that_are_refused_are_not_sent_again_and_reported_once() {
        let (attempts, counts, events) = exported(4, &[Ok(1), Ok(9), Ok(0), Ok(1)]);
        assert_eq!(attempts, [2; 4]);
        assert_eq!((counts.sent, counts.rejected), (4, 4));
        let rejecting = |spans| format!("Rejecting {{ spans: {spans}, why: \"no\" }}");
        assert_eq!(events, [rejecting(1), rejecting(1)]);
    }
}
