//! Sets in a Stream of Tkrzw-RPC: one stream on each connection, a thread for each, as blocking
//! clients have it. Several messages may be on their way; responses come in the order sent.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::closed_loop::Meter;
use crate::connection::Failure;
use crate::frames::*;
use crate::head::{HeadWriter, Variation};
use crate::workload::Workload;

const PATH: &str = "/tkrzw_rpc.DBMService/Stream";
const STREAM: u32 = 1;

/// Of messages that want no response, one in so many wants one, so that it is known how far the
/// server has come.
const MESSAGES_PER_RESPONSE: u64 = 1_000;

/// How many of these are waited for at a time.
const RESPONSES_AHEAD: u64 = 4;

/// The receive windows are topped up when this much has come.
const CREDIT_AFTER_BYTES: u32 = 1 << 20;

/// The socket is written to when so much waits.
const WRITE_BYTES: usize = 64 << 10;

/// A server that is silent for so long has failed.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// What to run.
pub struct StreamPlan {
    /// `host:port` of the server.
    pub address: String,
    /// Messages without their response on each, if they have one.
    pub in_flight: u64,
    /// Whether messages want no response.
    pub omits_responses: bool,
    /// Run so long before measuring.
    pub warm_up: Duration,
    /// Measure so long.
    pub duration: Duration,
    /// Stop after so many messages, whatever the time; 0: do not count.
    pub calls: u64,
    /// Whose CPU time to count.
    pub server_pid: Option<u32>,
}

/// What came out.
pub struct StreamOutcome {
    /// Measured messages that the server is known to have carried out.
    pub messages: u64,
    /// How long was measured.
    pub elapsed_ns: u64,
    /// CPU time of the server and of this process meanwhile.
    pub server_ns: Option<u64>,
    /// See `server_ns`.
    pub own_ns: u64,
}

/// Runs the plan to its end, with a workload for each connection.
pub fn run(plan: &StreamPlan, workloads: Vec<Workload>) -> Result<StreamOutcome, Failure> {
    let (done, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let clock = Instant::now();
    let meter = || Meter::read(plan.server_pid, clock.elapsed().as_nanos() as u64);
    thread::scope(|scope| {
        let (done, is_over) = (&done, &is_over);
        let started: io::Result<Vec<_>> = workloads
            .into_iter()
            .map(|workload| {
                thread::Builder::new().spawn_scoped(scope, move || {
                    let mut stream = Stream::open(plan, workload)?;
                    let ended = stream.run(plan, done, is_over);
                    // The others need not go on.
                    is_over.store(
                        ended.is_err() || is_over.load(Ordering::Relaxed),
                        Ordering::Relaxed,
                    );
                    ended
                })
            })
            .collect();
        let threads = started.map_err(|error| {
            // Those that run must not be waited for.
            is_over.store(true, Ordering::Relaxed);
            format!("the system gives no thread: {error}")
        })?;
        let sleep = |length: Duration, until: u64| {
            let begin = Instant::now();
            while begin.elapsed() < length
                && !is_over.load(Ordering::Relaxed)
                && (until == 0 || done.load(Ordering::Relaxed) < until)
            {
                thread::sleep(Duration::from_millis(1));
            }
        };
        if plan.calls == 0 {
            sleep(plan.warm_up, 0);
        }
        let (begin, before) = (meter()?, done.load(Ordering::Relaxed));
        match plan.calls {
            0 => sleep(plan.duration, 0),
            calls => sleep(Duration::from_secs(3600), calls),
        }
        let (end, after) = (meter()?, done.load(Ordering::Relaxed));
        is_over.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().map_err(|_| "a thread has failed")??;
        }
        Ok(StreamOutcome {
            messages: after - before,
            elapsed_ns: end.at_ns - begin.at_ns,
            server_ns: (end.server_ns.zip(begin.server_ns)).map(|(end, begin)| end - begin),
            own_ns: end.own_ns - begin.own_ns,
        })
    })
}

/// One connection with its stream.
struct Stream {
    socket: TcpStream,
    workload: Workload,
    out: Vec<u8>,
    message: Vec<u8>,
    input: Vec<u8>,
    /// DATA that is no whole message yet.
    data: Vec<u8>,
    connection_window_bytes: i64,
    stream_window_bytes: i64,
    uncredited_bytes: u32,
    /// How many messages each response that is waited for stands for.
    waiting: VecDeque<u64>,
    /// Those that have come and are not counted yet.
    responses: usize,
}

impl Stream {
    fn open(plan: &StreamPlan, workload: Workload) -> Result<Stream, Failure> {
        let explain = |error: std::io::Error| format!("connecting to {}: {error}", plan.address);
        let socket = TcpStream::connect(&plan.address).map_err(explain)?;
        socket.set_nodelay(true).map_err(explain)?;
        socket
            .set_read_timeout(Some(SILENCE_MAX))
            .map_err(explain)?;
        let mut out = Vec::new();
        write_greeting(&mut out);
        let mut block = Vec::new();
        HeadWriter::new(PATH, &plan.address, Variation::None, 1).write(&mut block);
        FrameHeader {
            length: block.len(),
            kind: frame_type::HEADERS,
            flags: flag::END_HEADERS,
            stream: STREAM,
        }
        .write(&mut out);
        out.extend_from_slice(&block);
        Ok(Stream {
            socket,
            workload,
            out,
            message: Vec::new(),
            input: Vec::new(),
            data: Vec::new(),
            connection_window_bytes: WINDOW_BYTES_DEFAULT,
            stream_window_bytes: WINDOW_BYTES_DEFAULT,
            uncredited_bytes: 0,
            waiting: VecDeque::new(),
            responses: 0,
        })
    }

    fn run(
        &mut self,
        plan: &StreamPlan,
        done: &AtomicU64,
        is_over: &AtomicBool,
    ) -> Result<(), Failure> {
        let (ahead, each) = match plan.omits_responses {
            true => (RESPONSES_AHEAD, MESSAGES_PER_RESPONSE),
            false => (plan.in_flight, 1),
        };
        while !is_over.load(Ordering::Relaxed) {
            while (self.waiting.len() as u64) < ahead {
                for left in (0..each).rev() {
                    self.push(left > 0)?;
                }
                self.waiting.push_back(each);
            }
            self.flush()?;
            self.receive()?;
            let responses = std::mem::take(&mut self.responses).min(self.waiting.len());
            let messages: u64 = self.waiting.drain(..responses).sum();
            done.fetch_add(messages, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Adds the next message, when the windows have room for it.
    fn push(&mut self, omits_response: bool) -> Result<(), Failure> {
        self.message.clear();
        self.message.extend_from_slice(&[0; 5]);
        self.workload
            .write_streamed(&mut self.message, omits_response);
        let length = self.message.len() as i64;
        let of_message = (length as u32 - 5).to_be_bytes();
        self.message[1..5].copy_from_slice(&of_message);
        while self.connection_window_bytes.min(self.stream_window_bytes) < length {
            self.flush()?;
            self.receive()?;
        }
        FrameHeader {
            length: self.message.len(),
            kind: frame_type::DATA,
            flags: 0,
            stream: STREAM,
        }
        .write(&mut self.out);
        self.out.extend_from_slice(&self.message);
        self.connection_window_bytes -= length;
        self.stream_window_bytes -= length;
        if self.out.len() >= WRITE_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Failure> {
        let written = self.socket.write_all(&self.out);
        self.out.clear();
        written.map_err(|error| format!("writing: {error}"))
    }

    /// Reads once, and handles what has come.
    fn receive(&mut self) -> Result<(), Failure> {
        let mut piece = [0; 64 << 10];
        match self.socket.read(&mut piece) {
            Ok(0) => return Err("the server closed the connection".into()),
            Ok(count) => self.input.extend_from_slice(&piece[..count]),
            Err(error) => return Err(format!("reading: {error}")),
        }
        let input = std::mem::take(&mut self.input);
        let mut at = 0;
        while input.len() - at >= FRAME_HEADER_BYTES {
            let header = FrameHeader::read(&input[at..]);
            let end = at + FRAME_HEADER_BYTES + header.length;
            if end > input.len() {
                break;
            }
            self.take_frame(header, &input[at + FRAME_HEADER_BYTES..end])?;
            at = end;
        }
        self.input = input;
        self.input.drain(..at);
        Ok(())
    }

    fn take_frame(&mut self, header: FrameHeader, payload: &[u8]) -> Result<(), Failure> {
        match header.kind {
            frame_type::DATA => {
                self.data.extend_from_slice(payload);
                self.credit(header.length as u32);
                self.take_responses();
            }
            frame_type::HEADERS if header.flags & flag::END_STREAM == 0 => {}
            frame_type::HEADERS | frame_type::RST_STREAM | frame_type::GOAWAY => {
                return Err(format!("the server ended the stream: {payload:?}"));
            }
            frame_type::SETTINGS if header.flags & flag::ACK == 0 => self.take_settings(payload),
            frame_type::PING if header.flags & flag::ACK == 0 => {
                FrameHeader {
                    flags: flag::ACK,
                    ..header
                }
                .write(&mut self.out);
                self.out.extend_from_slice(payload);
            }
            frame_type::WINDOW_UPDATE => {
                if let Ok(increment) = payload.try_into().map(u32::from_be_bytes) {
                    match header.stream {
                        0 => self.connection_window_bytes += i64::from(increment),
                        _ => self.stream_window_bytes += i64::from(increment),
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Takes whole messages out of the DATA.
    fn take_responses(&mut self) {
        let mut at = 0;
        while let Some(head) = self.data.get(at + 1..at + 5) {
            let length = u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize;
            if self.data.len() < at + 5 + length {
                break;
            }
            at += 5 + length;
            self.responses += 1;
        }
        self.data.drain(..at);
    }

    fn take_settings(&mut self, payload: &[u8]) {
        for entry in payload.chunks_exact(6) {
            let value = u32::from_be_bytes([entry[2], entry[3], entry[4], entry[5]]);
            if u16::from_be_bytes([entry[0], entry[1]]) == setting::INITIAL_WINDOW_SIZE {
                self.stream_window_bytes += i64::from(value) - WINDOW_BYTES_DEFAULT;
            }
        }
        FrameHeader {
            length: 0,
            kind: frame_type::SETTINGS,
            flags: flag::ACK,
            stream: 0,
        }
        .write(&mut self.out);
    }

    /// Only the connection's window is topped up: that of the stream has room for two gigabytes of
    /// responses of a few bytes.
    fn credit(&mut self, bytes: u32) {
        self.uncredited_bytes += bytes;
        if self.uncredited_bytes >= CREDIT_AFTER_BYTES {
            write_window_update(&mut self.out, self.uncredited_bytes);
            self.uncredited_bytes = 0;
        }
    }
}
