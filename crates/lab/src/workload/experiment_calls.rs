//! The same calls with what an experiment changes of them, or keeps.

use std::sync::{Mutex, PoisonError};

use client::SharedBytes;
use protobuf::FIELD_NUMBER_MAX;

use super::{KeptAnswers, Workload};
use crate::failure::FailureKind;
use crate::stream_plan::StreamPlan;
use crate::verdict::Verdict;

/// A workload whose requests have a further field that no server knows, and that says nothing:
/// readers of protobuf pass over it. Its answers may be noted beside.
#[derive(Clone, Debug)]
pub(crate) struct ExperimentCalls<'a, W> {
    inner: W,
    field: Vec<u8>,
    kept: Option<&'a Mutex<KeptAnswers>>,
}

impl<'a, W> ExperimentCalls<'a, W> {
    /// The same calls, each with so many bytes more and a few; with 0 nothing is added. Answers are
    /// noted in `kept`.
    pub(crate) fn new(
        inner: W,
        padding_bytes: usize,
        kept: Option<&'a Mutex<KeptAnswers>>,
    ) -> ExperimentCalls<'a, W> {
        let mut field = Vec::new();
        if padding_bytes > 0 {
            let padding = vec![0; padding_bytes];
            // No message is known that has a field of the highest number.
            protobuf::writer::bytes(&mut field, FIELD_NUMBER_MAX, &padding);
        }
        ExperimentCalls { inner, field, kept }
    }
}

impl<W: Workload> Workload for ExperimentCalls<'_, W> {
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
        out.extend_from_slice(&self.field);
        self.inner.encode(out);
    }

    fn is_large(&self) -> bool {
        self.inner.is_large()
    }

    fn encode_shared(&mut self, out: &mut Vec<u8>) -> Option<SharedBytes> {
        out.extend_from_slice(&self.field);
        self.inner.encode_shared(out)
    }

    fn ticket(&self) -> u32 {
        self.inner.ticket()
    }

    fn judge(&self, kind: usize, ticket: u32, answer: &[u8]) -> Verdict {
        if let Some(kept) = self.kept {
            (kept.lock().unwrap_or_else(PoisonError::into_inner)).note(answer);
        }
        self.inner.judge(kind, ticket, answer)
    }

    fn refusal(&self, kind: usize, answer: &[u8]) -> Option<String> {
        self.inner.refusal(kind, answer)
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
    use api::echo::EchoRequest;

    use super::*;
    use crate::workload::SameRequest;

    #[test]
    fn a_larger_request_is_the_same_message_to_its_reader() {
        let request = EchoRequest {
            payload: b"hello",
            answer_bytes: 7,
            delay_ms: 0,
        };
        let mut bytes = Vec::new();
        request.encode(&mut bytes);
        let same = SameRequest::new("/t.T/Echo".into(), bytes.clone());
        for (padding_bytes, more) in [(0, 0), (100, 106), (5_000, 5_007)] {
            let mut larger = ExperimentCalls::new(same.clone(), padding_bytes, None);
            let mut out = Vec::new();
            larger.encode(&mut out);
            assert_eq!(out.len(), bytes.len() + more);
            assert_eq!(EchoRequest::decode(&out), Ok(request));
            let mut out = Vec::new();
            let shared = larger.encode_shared(&mut out).is_some();
            assert_eq!((out.len(), shared), (more, true));
        }
    }

    #[test]
    fn answers_are_noted_and_what_the_calls_are_stays() {
        let kept: Mutex<KeptAnswers> = Mutex::default();
        let same = SameRequest::new("/a.B/C".into(), b"request".to_vec());
        let mut keeper = ExperimentCalls::new(same, 0, Some(&kept));
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
