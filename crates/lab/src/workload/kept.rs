//! The same calls, of whose answers some are kept.

use std::sync::{Mutex, PoisonError};

use client::SharedBytes;

use super::Workload;
use crate::failure::FailureKind;
use crate::limits::{KEPT_ANSWERS, KEPT_ANSWERS_BYTES};
use crate::stream_plan::StreamPlan;
use crate::verdict::Verdict;

/// The first answers of a run, and how many bytes all of them had, as messages.
#[derive(Debug, Default)]
pub(crate) struct KeptAnswers {
    answers: u64,
    bytes: u64,
    samples: Vec<Vec<u8>>,
    sample_bytes: usize,
}

impl KeptAnswers {
    fn note(&mut self, answer: &[u8]) {
        self.answers += 1;
        self.bytes += answer.len() as u64;
        let has_room = self.samples.len() < KEPT_ANSWERS
            && answer.len() <= KEPT_ANSWERS_BYTES - self.sample_bytes;
        if has_room {
            self.sample_bytes += answer.len();
            self.samples.push(answer.to_vec());
        }
    }

    /// Bytes of an answer on average; 0 if there was none.
    pub(crate) fn mean_bytes(&self) -> f64 {
        self.bytes as f64 / self.answers.max(1) as f64
    }

    /// Those that were kept.
    pub(crate) fn samples(&self) -> &[Vec<u8>] {
        &self.samples
    }
}

/// A workload whose answers are looked at beside.
#[derive(Clone, Debug)]
pub(crate) struct AnswerKeeper<'a, W> {
    inner: W,
    kept: &'a Mutex<KeptAnswers>,
}

impl<'a, W> AnswerKeeper<'a, W> {
    /// The same calls; their answers are noted in `kept`.
    pub(crate) fn new(inner: W, kept: &'a Mutex<KeptAnswers>) -> AnswerKeeper<'a, W> {
        AnswerKeeper { inner, kept }
    }
}

impl<W: Workload> Workload for AnswerKeeper<'_, W> {
    fn paths(&self) -> Vec<String> {
        self.inner.paths()
    }

    fn is_pipe(&self) -> bool {
        self.inner.is_pipe()
    }

    fn has_pipe_for_each(&self) -> bool {
        self.inner.has_pipe_for_each()
    }

    fn streaming(&self) -> Option<StreamPlan> {
        self.inner.streaming()
    }

    fn choose(&mut self) -> usize {
        self.inner.choose()
    }

    fn encode(&mut self, out: &mut Vec<u8>) {
        self.inner.encode(out);
    }

    fn is_large(&self) -> bool {
        self.inner.is_large()
    }

    fn encode_shared(&mut self, out: &mut Vec<u8>) -> Option<SharedBytes> {
        self.inner.encode_shared(out)
    }

    fn ticket(&self) -> u32 {
        self.inner.ticket()
    }

    fn judge(&self, kind: usize, ticket: u32, answer: &[u8]) -> Verdict {
        (self.kept.lock().unwrap_or_else(PoisonError::into_inner)).note(answer);
        self.inner.judge(kind, ticket, answer)
    }

    fn ended(
        &mut self,
        kind: usize,
        ticket: u32,
        outcome: Result<bool, FailureKind>,
    ) -> Result<bool, FailureKind> {
        self.inner.ended(kind, ticket, outcome)
    }

    fn records_per_call(&self) -> u64 {
        self.inner.records_per_call()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::SameRequest;

    #[test]
    fn the_first_answers_are_kept_and_the_bytes_of_all_are_counted() {
        let mut kept = KeptAnswers::default();
        assert_eq!(kept.mean_bytes(), 0.0);
        let almost_all = vec![7; KEPT_ANSWERS_BYTES - 3];
        // There is no room for the second, and there is for the third.
        for answer in [&almost_all[..], b"four", b"abc", b"x"] {
            kept.note(answer);
        }
        assert_eq!(kept.samples(), [almost_all, b"abc".to_vec()]);
        let bytes = (KEPT_ANSWERS_BYTES - 3 + 8) as f64;
        assert_eq!(kept.mean_bytes(), bytes / 4.0);

        let mut small = KeptAnswers::default();
        (0..KEPT_ANSWERS + 5).for_each(|_| small.note(b"a"));
        assert_eq!(small.samples().len(), KEPT_ANSWERS);
        assert_eq!(small.mean_bytes(), 1.0);
    }

    #[test]
    fn what_the_calls_are_stays() {
        let kept = Mutex::default();
        let same = SameRequest::new("/a.B/C".into(), b"request".to_vec());
        let mut keeper = AnswerKeeper::new(same, &kept);
        let mut request = Vec::new();
        let kind = keeper.choose();
        keeper.encode(&mut request);
        assert_eq!(
            (keeper.paths(), request),
            (vec!["/a.B/C".into()], b"request".to_vec())
        );
        assert_eq!(keeper.judge(kind, 0, b"answer"), Verdict::Good);
        assert_eq!(kept.into_inner().expect("no panic").samples(), [b"answer"]);
    }
}
