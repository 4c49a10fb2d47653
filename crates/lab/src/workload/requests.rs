//! Requests of one method that differ from call to call.

use std::sync::Arc;

use client::SharedBytes;

use super::Workload;
use crate::limits;
use crate::request::{RequestDraws, RequestTemplate};
use crate::stream_plan::StreamPlan;
use crate::verdict::Verdict;

/// Which of several requests is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOrder {
    /// One after the other, and again from the first; each thread takes those of its number.
    Sequential,
    /// Any of them.
    Random,
}

/// The requests of one method, for one thread.
#[derive(Clone, Debug)]
pub struct MethodRequests {
    path: String,
    requests: Arc<[RequestTemplate]>,
    order: RequestOrder,
    streaming: Option<StreamPlan>,
    draws: RequestDraws,
    /// How many threads there are.
    threads: usize,
    /// The place of the request that was chosen last.
    chosen: usize,
    /// The place of the next one of a sequential order.
    next: usize,
    is_first: bool,
    is_large: bool,
}

impl MethodRequests {
    /// `path` has its leading slash. `requests` is not empty. `thread`: its number, and how many
    /// there are.
    pub fn new(
        path: String,
        requests: Arc<[RequestTemplate]>,
        order: RequestOrder,
        thread: (usize, usize),
        seed: u64,
    ) -> MethodRequests {
        let largest = requests.iter().map(RequestTemplate::most_bytes).max();
        MethodRequests {
            path,
            order,
            streaming: None,
            draws: RequestDraws::new(thread, seed),
            threads: thread.1,
            chosen: 0,
            next: thread.0 % requests.len().max(1),
            is_first: true,
            is_large: largest.is_some_and(|bytes| bytes >= limits::SHARED_FROM_BYTES),
            requests,
        }
    }

    /// The same as messages of streaming calls.
    pub fn streamed(self, plan: StreamPlan) -> MethodRequests {
        MethodRequests {
            streaming: Some(plan),
            ..self
        }
    }
}

impl Workload for MethodRequests {
    fn paths(&self) -> Vec<String> {
        vec![self.path.clone()]
    }

    fn streaming(&self) -> Option<StreamPlan> {
        self.streaming
    }

    fn choose(&mut self) -> usize {
        if !std::mem::replace(&mut self.is_first, false) {
            self.draws.advance();
        }
        let count = self.requests.len();
        self.chosen = match self.order {
            RequestOrder::Sequential => {
                let next = (self.next + self.threads) % count.max(1);
                std::mem::replace(&mut self.next, next)
            }
            RequestOrder::Random => self.draws.below(count),
        };
        0
    }

    fn encode(&mut self, out: &mut Vec<u8>) {
        if let Some(request) = self.requests.get(self.chosen) {
            request.encode(&mut self.draws, out);
        }
    }

    fn is_large(&self) -> bool {
        self.is_large
    }

    fn encode_shared(&mut self, out: &mut Vec<u8>) -> Option<SharedBytes> {
        let request = self.requests.get(self.chosen)?;
        match request.bytes() {
            Some(bytes) => Some(bytes.clone().into()),
            None => {
                request.encode(&mut self.draws, out);
                None
            }
        }
    }

    fn judge(&self, _kind: usize, _ticket: u32, _answer: &[u8]) -> Verdict {
        Verdict::Good
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixed(count: u8) -> Arc<[RequestTemplate]> {
        (0..count)
            .map(|number| RequestTemplate::fixed(vec![number]))
            .collect()
    }

    fn taken(workload: &mut MethodRequests, count: usize) -> Vec<u8> {
        let mut out = Vec::new();
        for _ in 0..count {
            assert_eq!(workload.choose(), 0);
            workload.encode(&mut out);
        }
        out
    }

    fn requests(count: u8, order: RequestOrder, thread: (usize, usize)) -> MethodRequests {
        MethodRequests::new("/a.B/C".into(), fixed(count), order, thread, 5)
    }

    #[test]
    fn requests_are_taken_in_order_and_again() {
        let mut one = requests(3, RequestOrder::Sequential, (0, 1));
        assert_eq!(taken(&mut one, 7), [0, 1, 2, 0, 1, 2, 0]);
        // Two threads together take each as often.
        let mut first = requests(4, RequestOrder::Sequential, (0, 2));
        let mut second = requests(4, RequestOrder::Sequential, (1, 2));
        assert_eq!(taken(&mut first, 3), [0, 2, 0]);
        assert_eq!(taken(&mut second, 3), [1, 3, 1]);
        // More threads than requests.
        let mut last = requests(2, RequestOrder::Sequential, (2, 3));
        assert_eq!(taken(&mut last, 3), [0, 1, 0]);
    }

    #[test]
    fn requests_at_random_are_all_taken() {
        let mut random = requests(3, RequestOrder::Random, (0, 1));
        let taken = taken(&mut random, 300);
        for number in 0..3 {
            let times = taken.iter().filter(|&&it| it == number).count();
            assert!(times > 60, "{times} of {number}");
        }
        let mut again = requests(3, RequestOrder::Random, (0, 1));
        assert_eq!(self::taken(&mut again, 300), taken, "the seed repeats it");
    }

    #[test]
    fn large_requests_are_shared_and_not_copied() {
        let bytes = vec![7; limits::SHARED_FROM_BYTES];
        let all: Arc<[RequestTemplate]> = [RequestTemplate::fixed(bytes.clone())].into();
        let mut workload =
            MethodRequests::new("/a.B/C".into(), all, RequestOrder::Sequential, (0, 1), 1);
        assert!(workload.is_large());
        workload.choose();
        let mut out = Vec::new();
        let shared = workload.encode_shared(&mut out);
        assert_eq!(shared.as_deref(), Some(&bytes[..]));
        assert!(out.is_empty());
        assert!(!requests(1, RequestOrder::Sequential, (0, 1)).is_large());
    }
}
