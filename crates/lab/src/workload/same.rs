//! The same request again and again.

use super::{Verdict, Workload};

/// One unary method and one request.
#[derive(Clone, Debug)]
pub struct SameRequest {
    path: String,
    request: Vec<u8>,
}

impl SameRequest {
    /// `path` has its leading slash.
    pub fn new(path: String, request: Vec<u8>) -> SameRequest {
        SameRequest { path, request }
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

    fn judge(&self, _kind: usize, _ticket: u32, _answer: &[u8]) -> Verdict {
        Verdict::Good
    }
}
