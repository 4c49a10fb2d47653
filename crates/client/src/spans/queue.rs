//! Spans that wait to be exported, and what is counted of them.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::limits;
use super::span::SpanRecord;

/// Where spans go that are to be exported: any number of threads put them in, and one takes them
/// out.
#[derive(Clone, Debug, Default)]
pub struct SpanQueue {
    shared: Arc<SharedQueue>,
}

#[derive(Debug, Default)]
struct SharedQueue {
    state: Mutex<QueueState>,
    /// Something has changed that the exporter waits for, or who waits for its end.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    spans: VecDeque<SpanRecord>,
    bytes: usize,
    /// Spans that were taken out and are under way.
    under_way: usize,
    counts: SpanCounts,
    /// When everything must have ended; `None`: nobody wants that.
    stop_by: Option<Instant>,
    has_ended: bool,
    /// Why the last export failed; `None`: it did not.
    failure: Option<String>,
}

/// How a queue stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QueueStop {
    /// Spans that were still waiting or under way.
    pub left: usize,
    /// Whether it had to stop before the exporter had ended, and why.
    pub broken_off: Option<BrokenOff>,
    /// Why the last export failed; `None`: it did not.
    pub failure: Option<String>,
}

/// Why a stop did not wait for the exporter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BrokenOff {
    /// The time was over.
    Late,
    /// Whoever stops it would not wait any more.
    Cut,
}

/// What became of spans, since the queue was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpanCounts {
    /// A collector has taken them.
    pub sent: u64,
    /// The queue was full.
    pub queue_full: u64,
    /// They could not be exported.
    pub export_failed: u64,
    /// A collector took the export, and refused them.
    pub rejected: u64,
}

/// Spans that are exported together.
pub(crate) type SpanBatch = Vec<SpanRecord>;

impl SpanQueue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        // Whole spans come and go: sound whoever panicked.
        (self.shared.state.lock()).unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a span to be exported. Never waits for an export: if the queue is full, the span is
    /// dropped and counted.
    pub fn push(&self, span: SpanRecord) {
        let bytes = span.memory_bytes();
        let mut state = self.lock();
        let is_full = state.spans.len() >= limits::SPANS_QUEUED
            || state.bytes.saturating_add(bytes) > limits::SPAN_QUEUE_BYTES;
        if is_full || state.has_ended {
            state.counts.queue_full += 1;
            return;
        }
        state.bytes += bytes;
        state.spans.push_back(span);
        let waiting = state.spans.len();
        drop(state);
        if waiting == 1 || waiting == limits::SPANS_PER_EXPORT {
            self.shared.changed.notify_all();
        }
    }

    /// Returns what became of spans.
    pub fn counts(&self) -> SpanCounts {
        self.lock().counts
    }

    /// Returns how many spans wait, or are under way.
    pub fn unsent(&self) -> usize {
        let state = self.lock();
        state.spans.len() + state.under_way
    }

    /// Waits for spans, and then up to `interval` for so many that an export is full. Returns them;
    /// `None`: the queue is empty and has to end.
    pub(crate) fn next_batch(&self, interval: Duration) -> Option<SpanBatch> {
        let mut state = self.lock();
        while state.spans.is_empty() {
            if state.stop_by.is_some() {
                return None;
            }
            state = self.wait(state, None);
        }
        let full_by = Instant::now() + interval;
        while state.spans.len() < limits::SPANS_PER_EXPORT && state.stop_by.is_none() {
            let left = full_by.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.wait(state, Some(left));
        }
        let count = state.spans.len().min(limits::SPANS_PER_EXPORT);
        let batch: SpanBatch = state.spans.drain(..count).collect();
        let bytes: usize = batch.iter().map(SpanRecord::memory_bytes).sum();
        state.bytes = state.bytes.saturating_sub(bytes);
        state.under_way = batch.len();
        Some(batch)
    }

    fn wait<'a>(
        &self,
        state: MutexGuard<'a, QueueState>,
        time: Option<Duration>,
    ) -> MutexGuard<'a, QueueState> {
        let changed = &self.shared.changed;
        match time {
            None => changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            Some(time) => {
                let waited = changed.wait_timeout(state, time);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        }
    }

    /// Waits so long, unless the queue has to end. Returns whether it has not.
    pub(crate) fn pause(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        let mut state = self.lock();
        while state.stop_by.is_none() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            state = self.wait(state, Some(left));
        }
        false
    }

    /// Returns when everything must have ended, if somebody wants that.
    pub(crate) fn stop_by(&self) -> Option<Instant> {
        self.lock().stop_by
    }

    /// What was taken out last is under way no more; `count` adds what became of it.
    pub(crate) fn settle(&self, count: impl FnOnce(&mut SpanCounts)) {
        let mut state = self.lock();
        state.under_way = 0;
        count(&mut state.counts);
    }

    /// The exporter has ended: what waits, and what still comes, is dropped.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        state.has_ended = true;
        state.counts.export_failed += state.spans.len() as u64;
        state.spans.clear();
        state.bytes = 0;
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Notes why an export has failed; `None`: it has gone well.
    pub(crate) fn note_failure(&self, failure: Option<&str>) {
        self.lock().failure = failure.map(str::to_owned);
    }

    /// Has the exporter end, and waits for that up to `timeout`, or until `is_cut`.
    pub(crate) fn stop(&self, timeout: Duration, is_cut: &dyn Fn() -> bool) -> QueueStop {
        let until = Instant::now() + timeout;
        let mut state = self.lock();
        state.stop_by = Some(until);
        self.shared.changed.notify_all();
        let broken_off = loop {
            let left = until.saturating_duration_since(Instant::now());
            // Also if the exporter has ended: an attempt that hangs gets all the time that is left.
            if left.is_zero() {
                break Some(BrokenOff::Late);
            }
            if state.has_ended {
                break None;
            }
            if is_cut() {
                state.stop_by = Some(Instant::now());
                break Some(BrokenOff::Cut);
            }
            state = self.wait(state, Some(left.min(limits::SPAN_STOP_LOOK)));
        };
        QueueStop {
            left: state.spans.len() + state.under_way,
            broken_off,
            failure: state.failure.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::super::span::AttributeText;
    use super::super::span::tests::span;
    use super::*;

    const SHORT: Duration = Duration::from_millis(1);
    const LONG: Duration = Duration::from_secs(600);

    #[test]
    fn spans_come_out_in_order_and_in_batches() {
        let queue = SpanQueue::default();
        for round in 0..2 {
            let count = limits::SPANS_PER_EXPORT as u64 + 3;
            (0..count).for_each(|number| queue.push(span(number)));
            // Full: it is not waited for more.
            let batch = queue.next_batch(LONG).expect("spans wait");
            assert_eq!(batch.len(), limits::SPANS_PER_EXPORT, "{round}");
            assert_eq!(batch[5], span(5));
            assert_eq!(queue.unsent() as u64, count);
            queue.settle(|counts| counts.sent += 512);
            let batch = queue.next_batch(SHORT).expect("spans wait");
            assert_eq!(batch, [span(512), span(513), span(514)]);
            queue.settle(|counts| counts.sent += 3);
            assert_eq!((queue.unsent(), queue.lock().bytes), (0, 0));
        }
        assert_eq!(queue.counts().sent, 2 * 515);
    }

    #[test]
    fn beyond_its_bounds_new_spans_are_dropped_and_counted() {
        let queue = SpanQueue::default();
        for number in 0..limits::SPANS_QUEUED as u64 + 7 {
            queue.push(span(number));
        }
        assert_eq!(queue.counts().queue_full, 7);
        assert_eq!(queue.unsent(), limits::SPANS_QUEUED);
        let batch = queue.next_batch(SHORT).expect("spans wait");
        assert_eq!(batch[0], span(0), "the oldest ones stay");
        queue.push(span(9));
        assert_eq!(queue.counts().queue_full, 7, "there is room again");
    }

    #[test]
    fn large_spans_are_bounded_by_their_bytes() {
        let queue = SpanQueue::default();
        let large = || {
            let mut span = span(1);
            let text = "d".repeat(limits::SPAN_QUEUE_BYTES / 4);
            (span.attributes).push(("pelton.database", AttributeText::Text(text.into())));
            span
        };
        (0..6).for_each(|_| queue.push(large()));
        assert_eq!((queue.unsent(), queue.counts().queue_full), (3, 3));
        queue.push(span(2));
        assert_eq!(queue.unsent(), 4, "a small one has room");
    }

    #[test]
    fn a_stop_ends_every_wait() {
        let never = || false;
        for spans in [0, 1] {
            let queue = SpanQueue::default();
            (0..spans).for_each(|number| queue.push(span(number)));
            let of_exporter = queue.clone();
            let exporter = thread::spawn(move || {
                while let Some(batch) = of_exporter.next_batch(LONG) {
                    assert!(!of_exporter.pause(LONG), "it has to end");
                    of_exporter.settle(|counts| counts.sent += batch.len() as u64);
                }
                of_exporter.end();
            });
            let stopped = queue.stop(LONG, &never);
            assert_eq!((stopped.left, stopped.broken_off), (0, None));
            exporter.join().expect("it has ended");
            assert_eq!(queue.counts().sent, spans);
            queue.push(span(3));
            assert_eq!(queue.unsent(), 0, "nobody would export it");
        }
    }

    #[test]
    fn a_stop_waits_no_longer_than_it_may() {
        let queue = SpanQueue::default();
        queue.push(span(1));
        queue.push(span(2));
        let batch = queue.next_batch(SHORT);
        assert_eq!(batch.map(|batch| batch.len()), Some(2));
        queue.push(span(3));
        queue.note_failure(Some("away"));
        let expected = QueueStop {
            left: 3,
            broken_off: Some(BrokenOff::Late),
            failure: Some("away".into()),
        };
        assert_eq!(queue.stop(SHORT, &|| false), expected, "the exporter hangs");
        let by = queue.stop_by();
        let expected = QueueStop {
            broken_off: Some(BrokenOff::Cut),
            failure: None,
            ..expected
        };
        queue.note_failure(None);
        assert_eq!(queue.stop(LONG, &|| true), expected);
        assert!(queue.stop_by() < by.map(|by| by + LONG), "it is now");
        queue.end();
        assert_eq!(queue.counts().export_failed, 1);
    }
}
