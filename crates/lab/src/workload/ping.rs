//! Calls of `Ydb.Debug.V1.DebugService`.

use api::ydb_ping::{PING_PLAIN_GRPC, PING_STREAM, PlainGrpcResponse};

use super::Workload;
use crate::verdict::Verdict;

/// Pings: empty requests, as single calls or as messages of streams.
#[derive(Clone, Copy, Debug)]
pub struct Ping {
    /// Each ping in flight has a stream of its own, on which it is sent again when it was answered.
    pub streaming: bool,
}

impl Workload for Ping {
    fn paths(&self) -> Vec<String> {
        let method = match self.streaming {
            true => PING_STREAM,
            false => PING_PLAIN_GRPC,
        };
        vec![format!("/{}", method.path)]
    }

    fn is_pipe(&self) -> bool {
        self.streaming
    }

    fn has_pipe_for_each(&self) -> bool {
        self.streaming
    }

    fn choose(&mut self) -> usize {
        0
    }

    fn encode(&mut self, _out: &mut Vec<u8>) {}

    /// A stream must say the server's time; a single call may, as that of a YDB server does.
    fn judge(&self, _kind: usize, _ticket: u32, answer: &[u8]) -> Verdict {
        match PlainGrpcResponse::decode(answer) {
            Ok(answer) if answer.call_back_ts > 0 || !self.streaming => Verdict::Good,
            _ => Verdict::Unreadable,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_judged() {
        let (unary, stream) = (Ping { streaming: false }, Ping { streaming: true });
        assert_eq!(unary.judge(0, 0, b""), Verdict::Good);
        assert_eq!(unary.judge(0, 0, &[0x08, 7]), Verdict::Good);
        assert_eq!(unary.judge(0, 0, &[0x0a, 7]), Verdict::Unreadable);
        assert_eq!(stream.judge(0, 0, &[0x08, 7]), Verdict::Good);
        assert_eq!(stream.judge(0, 0, b""), Verdict::Unreadable);
        assert!(!unary.is_pipe() && stream.has_pipe_for_each());
    }
}
