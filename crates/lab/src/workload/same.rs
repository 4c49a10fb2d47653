//! The same request again and again.

use bytes::Bytes;
use client::SharedBytes;

use super::Workload;
use crate::limits;
use crate::verdict::Verdict;

/// One unary method and one request.
#[derive(Clone, Debug)]
pub struct SameRequest {
    path: String,
    request: Bytes,
    /// What each answer has to be; `None`: any message.
    answer: Option<Bytes>,
}

impl SameRequest {
    /// `path` has its leading slash.
    pub fn new(path: String, request: Vec<u8>) -> SameRequest {
        SameRequest {
            path,
            request: request.into(),
            answer: None,
        }
    }

    /// The same where each answer has to be this message.
    pub fn answered_by(self, answer: Vec<u8>) -> SameRequest {
        SameRequest {
            answer: Some(answer.into()),
            ..self
        }
    }
}

impl Workload for SameRequest {
    fn paths(&self) -> Vec<String> {
        vec![self.path.clone()]
    }

    fn choose(&mut self) -> usize {
        0
    }

    fn encode(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.request);
    }

    fn is_large(&self) -> bool {
        self.request.len() >= limits::SHARED_FROM_BYTES
    }

    fn encode_shared(&mut self, _out: &mut Vec<u8>) -> Option<SharedBytes> {
        Some(self.request.clone().into())
    }

    fn judge(&self, _kind: usize, _ticket: u32, answer: &[u8]) -> Verdict {
        match self.answer.as_ref().is_none_or(|wanted| wanted == answer) {
            true => Verdict::Good,
            false => Verdict::Wrong,
        }
    }
}
