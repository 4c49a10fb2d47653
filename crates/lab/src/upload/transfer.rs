//! One upload.

use std::time::{Duration, Instant};

use api::gupload::{Chunk, UPLOAD, UploadStatus, UploadStatusCode};
use client::{CallError, CallOptions, Channel, HttpPost, StreamStep, Streaming};
use thiserror::Error;

use crate::limits::LONGEST_WAIT;

/// Where plain requests go.
const HTTP_PATH: &str = "/upload";

/// Bytes of content after which it is looked whether the upload is to go on.
const BLOCK_BYTES: usize = 64 << 10;

/// How an upload goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UploadWay {
    /// A message of gRPC for each chunk.
    Grpc,
    /// The same, compressed with gzip.
    GrpcGzip,
    /// The body of a POST over HTTP/2, a DATA frame for each chunk that fits into one.
    Http2,
}

impl UploadWay {
    /// Its name, for programs.
    pub fn name(self) -> &'static str {
        match self {
            UploadWay::Grpc => "grpc",
            UploadWay::GrpcGzip => "grpc-gzip",
            UploadWay::Http2 => "http2",
        }
    }

    /// The same for people.
    pub fn words(self) -> &'static str {
        match self {
            UploadWay::Grpc => "gRPC",
            UploadWay::GrpcGzip => "gRPC with gzip",
            UploadWay::Http2 => "plain HTTP/2",
        }
    }
}

/// How long an upload took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UploadTimes {
    /// Until the last chunk was given away.
    pub sent_ns: u64,
    /// Until the answer.
    pub answered_ns: u64,
}

/// Why an upload has failed.
#[derive(Clone, Debug, Error)]
pub enum UploadFailure {
    /// The call or the request has failed.
    #[error("{0}")]
    Call(#[from] CallError),
    /// The answer to a plain request is no success.
    #[error("the server answered with HTTP {status}: {text}")]
    HttpStatus {
        /// The status.
        status: u16,
        /// What it said.
        text: String,
    },
    /// The answer says that it failed, or cannot be read.
    #[error("the server's answer does not say that the upload succeeded: {0}")]
    NoSuccess(String),
    /// The server has answered before it had everything.
    #[error("the server answered before the last chunk was sent")]
    AnsweredEarly,
    /// It was interrupted.
    #[error("it was interrupted")]
    Interrupted,
}

/// Characters of an answer that are shown.
const SHOWN_CHARACTERS: usize = 300;

/// Something that takes chunks.
trait UploadBody {
    fn can_send(&self) -> bool;
    fn send(&mut self, chunk: &[u8]);
    fn close(&mut self);
    /// Returns whether the answer is complete.
    fn poll(&mut self) -> Result<bool, UploadFailure>;
    /// Returns why a complete answer is no success.
    fn check(&self) -> Result<(), UploadFailure>;
}

/// A call of gRPC.
struct GrpcBody<'a> {
    call: Streaming<'a>,
    /// What the message of the server says.
    answer: Option<Result<(), UploadFailure>>,
}

impl UploadBody for GrpcBody<'_> {
    #[inline]
    fn can_send(&self) -> bool {
        self.call.can_send()
    }

    #[inline]
    fn send(&mut self, chunk: &[u8]) {
        let chunk = Chunk { content: chunk };
        self.call.send_with_others(|out| chunk.encode(out));
    }

    fn close(&mut self) {
        self.call.close_send();
    }

    fn poll(&mut self) -> Result<bool, UploadFailure> {
        match self.call.poll_with(LONGEST_WAIT, read_status)? {
            StreamStep::Message(answer) => self.answer = Some(answer),
            StreamStep::Nothing => {}
            StreamStep::Ended => return Ok(true),
        }
        Ok(false)
    }

    fn check(&self) -> Result<(), UploadFailure> {
        let nothing = || Err(UploadFailure::NoSuccess("there is no message".into()));
        self.answer.clone().unwrap_or_else(nothing)
    }
}

fn read_status(bytes: &[u8]) -> Result<(), UploadFailure> {
    match UploadStatus::decode(bytes) {
        Ok(status) if status.code == UploadStatusCode::Ok.number() => Ok(()),
        Ok(status) => Err(UploadFailure::NoSuccess(shown(status.message))),
        Err(error) => Err(UploadFailure::NoSuccess(error.to_string())),
    }
}

fn shown(text: &str) -> String {
    text.chars().take(SHOWN_CHARACTERS).collect()
}

impl UploadBody for HttpPost<'_> {
    #[inline]
    fn can_send(&self) -> bool {
        HttpPost::can_send(self)
    }

    #[inline]
    fn send(&mut self, chunk: &[u8]) {
        self.send_with_others(chunk);
    }

    fn close(&mut self) {
        self.close_send();
    }

    fn poll(&mut self) -> Result<bool, UploadFailure> {
        Ok(HttpPost::poll(self, LONGEST_WAIT)?)
    }

    fn check(&self) -> Result<(), UploadFailure> {
        let answer = self.answer();
        match answer.status {
            200..=299 => Ok(()),
            status => Err(UploadFailure::HttpStatus {
                status,
                text: shown(&String::from_utf8_lossy(&answer.body)),
            }),
        }
    }
}

/// Uploads the content once, in chunks of so many bytes; `go_on` ends it with `false`.
pub(super) fn upload(
    channel: &mut Channel,
    way: UploadWay,
    (content, chunk_bytes): (&[u8], usize),
    deadline: Duration,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<UploadTimes, UploadFailure> {
    let begin = Instant::now();
    let options = CallOptions {
        deadline: Some(begin + deadline),
        compress: way == UploadWay::GrpcGzip,
        ..CallOptions::default()
    };
    let clock = || u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let chunks = (content, chunk_bytes.max(1));
    match way {
        UploadWay::Grpc | UploadWay::GrpcGzip => {
            let path = format!("/{}", UPLOAD.path);
            let call = channel.streaming(&path, &options)?;
            transfer(&mut GrpcBody { call, answer: None }, chunks, &clock, go_on)
        }
        UploadWay::Http2 => {
            let mut post = channel.http_post(HTTP_PATH, &options)?;
            transfer(&mut post, chunks, &clock, go_on)
        }
    }
}

fn transfer(
    body: &mut impl UploadBody,
    (content, chunk_bytes): (&[u8], usize),
    clock: &dyn Fn() -> u64,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<UploadTimes, UploadFailure> {
    let block_bytes = (BLOCK_BYTES / chunk_bytes).max(1) * chunk_bytes;
    for block in content.chunks(block_bytes) {
        if !go_on() {
            return Err(UploadFailure::Interrupted);
        }
        for chunk in block.chunks(chunk_bytes) {
            while !body.can_send() {
                if body.poll()? {
                    // A refusal says more than that it came early.
                    return Err(body.check().err().unwrap_or(UploadFailure::AnsweredEarly));
                }
                if !go_on() {
                    return Err(UploadFailure::Interrupted);
                }
            }
            body.send(chunk);
        }
    }
    body.close();
    let sent_ns = clock();
    while !body.poll()? {
        if !go_on() {
            return Err(UploadFailure::Interrupted);
        }
    }
    let answered_ns = clock();
    body.check()?;
    Ok(UploadTimes {
        sent_ns,
        answered_ns,
    })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// A server that takes so many chunks between two looks, and answers after as many.
    #[derive(Default)]
    struct FakeBody {
        room: usize,
        room_each_poll: usize,
        chunks: Vec<Vec<u8>>,
        is_closed: bool,
        polls: usize,
        ends_after_polls: Option<usize>,
        failure: Option<UploadFailure>,
    }

    impl UploadBody for FakeBody {
        fn can_send(&self) -> bool {
            self.room > 0
        }

        fn send(&mut self, chunk: &[u8]) {
            assert!(!self.is_closed && self.room > 0);
            self.room -= 1;
            self.chunks.push(chunk.to_vec());
        }

        fn close(&mut self) {
            self.is_closed = true;
        }

        fn poll(&mut self) -> Result<bool, UploadFailure> {
            self.polls += 1;
            self.room = self.room_each_poll;
            Ok(match self.ends_after_polls {
                Some(polls) => self.polls > polls,
                None => self.is_closed,
            })
        }

        fn check(&self) -> Result<(), UploadFailure> {
            self.failure.clone().map_or(Ok(()), Err)
        }
    }

    fn run(body: &mut FakeBody, content: &[u8], chunk_bytes: usize) -> Result<UploadTimes, String> {
        let time = Cell::new(0);
        let clock = || {
            time.set(time.get() + 5);
            time.get()
        };
        let chunks = (content, chunk_bytes);
        transfer(body, chunks, &clock, &mut || true).map_err(|failure| failure.to_string())
    }

    #[test]
    fn chunks_go_in_order_as_there_is_room_and_both_times_are_taken() {
        let content: Vec<u8> = (0..200_000_u32).map(|at| (at / 3) as u8).collect();
        for (chunk_bytes, last_bytes) in [
            (16, 16),
            (7_000, 4_000),
            (65_536, 3_392),
            (300_000, 200_000),
        ] {
            let mut body = FakeBody {
                room_each_poll: 3,
                ..FakeBody::default()
            };
            let times = run(&mut body, &content, chunk_bytes).expect("it succeeds");
            assert_eq!((times.sent_ns, times.answered_ns), (5, 10));
            assert!(body.chunks.concat() == content);
            let (last, others) = body.chunks.split_last().expect("chunks");
            assert_eq!(last.len(), last_bytes);
            assert!(others.iter().all(|chunk| chunk.len() == chunk_bytes));
        }
    }

    #[test]
    fn an_early_answer_is_a_failure_with_the_reason_of_the_server() {
        let content = [0; 1_000];
        for (failure, expected) in [
            (None, "before the last chunk"),
            (
                Some(UploadFailure::HttpStatus {
                    status: 507,
                    text: "full".into(),
                }),
                "HTTP 507: full",
            ),
        ] {
            let mut body = FakeBody {
                room_each_poll: 1,
                ends_after_polls: Some(3),
                failure,
                ..FakeBody::default()
            };
            let error = run(&mut body, &content, 100).expect_err(expected);
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn an_interruption_ends_it_wherever_it_is() {
        for looks in 0..6 {
            let mut body = FakeBody {
                room_each_poll: 1,
                ends_after_polls: Some(usize::MAX),
                ..FakeBody::default()
            };
            let mut left = looks;
            let mut go_on = || {
                left -= 1;
                left > 0
            };
            let failed = transfer(&mut body, (&[0; 200_000], 100_000), &|| 0, &mut go_on);
            assert!(matches!(failed, Err(UploadFailure::Interrupted)), "{looks}");
        }
    }

    #[test]
    fn an_answer_of_gupload_has_to_say_ok() {
        let encoded = |code: i32| {
            let mut bytes = Vec::new();
            UploadStatus {
                message: "the disk",
                code,
            }
            .encode(&mut bytes);
            bytes
        };
        assert!(read_status(&encoded(UploadStatusCode::Ok.number())).is_ok());
        for code in [UploadStatusCode::Unknown, UploadStatusCode::Failed] {
            let error = read_status(&encoded(code.number())).expect_err("no success");
            assert!(error.to_string().ends_with("the disk"), "{error}");
        }
        assert!(read_status(&[0xff]).is_err());
    }
}
