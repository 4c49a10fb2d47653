//! A server for whole runs: `wire`'s server role over blocking sockets, a thread for each
//! connection. A script decides what becomes of each call, so that a test can bring about what real
//! servers do rarely: refuse, cut, answer twice, answer when the test says so.

#![allow(dead_code, reason = "each test file uses its part")]

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use client::{Address, Code, Status};
use lab::tap::{Conditions, Tap, TapPlan, TapSummary, TapTarget};
use lab::{Length, LoadPlan};
use wire::{Connection, ErrorCode, Event, StreamKey};

/// Far longer than anything here takes: only a test that fails waits for so long.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// What becomes of a message of a call.
pub enum Reply {
    /// The call is answered, and has ended.
    Answer(Vec<u8>),
    /// It ends with OK after these messages.
    Messages(Vec<Vec<u8>>),
    /// One message; the call goes on.
    Message(Vec<u8>),
    /// It ends with this status.
    Status(Code, &'static str),
    /// The server says that it has not begun with it.
    Refuse,
    /// It is answered, and the connection takes no further calls.
    Drain(Vec<u8>),
    /// The connection is cut.
    Cut,
    /// Nothing comes back.
    Nothing,
}

/// A message of a call.
pub struct Asked<'a> {
    /// The number of its connection, in the order in which they were accepted.
    pub connection: u64,
    /// How many messages came before it on all connections.
    pub number: u64,
    pub path: &'a str,
    pub metadata: &'a [(String, String)],
    pub message: &'a [u8],
}

/// What a server does.
pub struct Script {
    pub answer: Box<dyn Fn(&Asked<'_>) -> Reply + Send + Sync>,
    /// Called before a connection is greeted; false closes it.
    pub greet: Box<dyn Fn(u64) -> bool + Send + Sync>,
    pub config: wire::Config,
}

/// What a server has seen.
#[derive(Default)]
pub struct Seen {
    pub connections: AtomicU64,
    pub messages: AtomicU64,
    pub bytes_out: AtomicU64,
}

/// A server that ends when it is dropped, after its clients have gone.
pub struct Server {
    pub address: Address,
    pub seen: Arc<Seen>,
    stop: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
}

impl Server {
    pub fn new(answer: impl Fn(&Asked<'_>) -> Reply + Send + Sync + 'static) -> Server {
        Server::with(Script {
            answer: Box::new(answer),
            greet: Box::new(|_| true),
            config: wire::Config::server(),
        })
    }

    pub fn with(script: Script) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound").to_string();
        let (seen, stop) = (Arc::new(Seen::default()), Arc::new(AtomicBool::new(false)));
        let accepting = {
            let (seen, stop, script) = (Arc::clone(&seen), Arc::clone(&stop), Arc::new(script));
            thread::spawn(move || accept_all(&listener, &script, &seen, &stop))
        };
        Server {
            address: address.parse().expect("an address of the system is valid"),
            seen,
            stop,
            accepting: Some(accepting),
        }
    }

    /// One with a single method, which answers with what it was sent.
    pub fn echo() -> Server {
        Server::new(|asked| match asked.path {
            "/t.T/Echo" => Reply::Answer(asked.message.to_vec()),
            _ => Reply::Status(Code::Unimplemented, "there is only /t.T/Echo"),
        })
    }

    pub fn messages(&self) -> u64 {
        self.seen.messages.load(SeqCst)
    }

    pub fn connections(&self) -> u64 {
        self.seen.connections.load(SeqCst)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, SeqCst);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address.to_string());
        // A test that failed may have left a gate shut.
        if !thread::panicking() {
            let ended = self.accepting.take().map(JoinHandle::join);
            ended.expect("it is joined once").expect("no script panics");
        }
    }
}

fn accept_all(listener: &TcpListener, script: &Arc<Script>, seen: &Arc<Seen>, stop: &AtomicBool) {
    let mut threads = Vec::new();
    loop {
        let (socket, _) = listener.accept().expect("it listens");
        if stop.load(SeqCst) {
            break;
        }
        let (script, seen) = (Arc::clone(script), Arc::clone(seen));
        let number = seen.connections.fetch_add(1, SeqCst);
        threads.push(thread::spawn(move || {
            if (script.greet)(number) {
                serve(socket, number, &script, &seen);
            }
        }));
    }
    for thread in threads {
        thread.join().expect("no script panics");
    }
}

/// A call that is under way.
struct Open {
    stream: StreamKey,
    path: String,
    metadata: Vec<(String, String)>,
}

fn serve(mut socket: TcpStream, number: u64, script: &Script, seen: &Seen) {
    let origin = Instant::now();
    let now_ns = || origin.elapsed().as_nanos() as u64;
    socket.set_nodelay(true).expect("connected");
    let mut connection = Connection::new(&script.config, now_ns());
    let (mut input, mut output, mut buffer) = (Vec::new(), Vec::new(), [0; 16 << 10]);
    let mut calls: Vec<Open> = Vec::new();
    connection.start(&mut output);
    loop {
        let mut consumed = 0;
        while let Some(event) = connection.poll_event(&input, &mut consumed, &mut output, now_ns())
        {
            match event {
                Event::Request { stream, .. } => calls.push(open(&connection, stream)),
                Event::Message { stream, .. } => {
                    let message = connection.message(&input).to_vec();
                    connection.release(stream, &mut output);
                    let call = calls.iter().find(|call| call.stream == stream);
                    let call = call.expect("a request came before");
                    let reply = (script.answer)(&Asked {
                        connection: number,
                        number: seen.messages.fetch_add(1, SeqCst),
                        path: &call.path,
                        metadata: &call.metadata,
                        message: &message,
                    });
                    if matches!(reply, Reply::Cut) {
                        let _ = socket.shutdown(Shutdown::Both);
                        return;
                    }
                    if !matches!(reply, Reply::Message(_) | Reply::Nothing) {
                        calls.retain(|call| call.stream != stream);
                    }
                    send(reply, &mut connection, stream, &mut output, now_ns());
                }
                Event::HalfClosed { stream } => {
                    connection.finish(stream, &mut output, &Status::OK);
                }
                Event::Cancelled { stream, .. } => connection.forget(stream),
                _ => {}
            }
        }
        input.drain(..consumed);
        loop {
            connection.transmit(&mut output, now_ns());
            if output.is_empty() {
                break;
            }
            seen.bytes_out.fetch_add(output.len() as u64, SeqCst);
            if socket.write_all(&output).is_err() {
                return;
            }
            output.clear();
        }
        if connection.close_reason().is_some() {
            return;
        }
        match socket.read(&mut buffer) {
            Ok(0) | Err(_) => return,
            Ok(count) => input.extend_from_slice(&buffer[..count]),
        }
    }
}

fn open(connection: &Connection, stream: StreamKey) -> Open {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let head = connection.head();
    Open {
        stream,
        path: text(head.path()),
        metadata: head
            .metadata()
            .map(|(name, value)| (text(name), text(value)))
            .collect(),
    }
}

fn send(
    reply: Reply,
    connection: &mut Connection,
    stream: StreamKey,
    out: &mut Vec<u8>,
    now_ns: u64,
) {
    match reply {
        Reply::Answer(bytes) => {
            connection.respond(stream, out, |out| out.extend_from_slice(&bytes));
        }
        Reply::Messages(messages) => {
            for bytes in messages {
                connection.send_message(stream, out, |out| out.extend_from_slice(&bytes));
            }
            connection.finish(stream, out, &Status::OK);
        }
        Reply::Message(bytes) => {
            connection.send_message(stream, out, |out| out.extend_from_slice(&bytes));
        }
        Reply::Status(code, text) => connection.finish(stream, out, &Status::new(code, text)),
        Reply::Refuse => connection.reset(stream, out, ErrorCode::RefusedStream),
        Reply::Drain(bytes) => {
            connection.respond(stream, out, |out| out.extend_from_slice(&bytes));
            connection.drain(out, now_ns);
        }
        Reply::Cut | Reply::Nothing => {}
    }
}

/// A tap on a thread of its own.
pub struct RunningTap {
    pub address: Address,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<TapSummary>,
}

impl RunningTap {
    /// Before a server, with these conditions.
    pub fn before(target: &Address, conditions: Conditions) -> RunningTap {
        let tap = Tap::bind(TapPlan {
            listen: "127.0.0.1:0".parse().expect("an address"),
            listen_tls: None,
            target: TapTarget {
                address: target.clone(),
                tls: None,
            },
            conditions,
        });
        let tap = tap.expect("the server is there and a port is free");
        let stop = Arc::new(AtomicBool::new(false));
        let (address, is_over) = (tap.address().clone(), Arc::clone(&stop));
        let thread = thread::spawn(move || {
            let summary = tap.run(&mut |_| is_over.load(SeqCst));
            summary.expect("the kernel has events")
        });
        RunningTap {
            address,
            stop,
            thread,
        }
    }

    /// Ends it, and returns what it has seen.
    pub fn end(self) -> TapSummary {
        self.stop.store(true, SeqCst);
        self.thread.join().expect("it does not panic")
    }
}

/// Something that the test does and the server waits for, or the other way round.
#[derive(Clone, Default)]
pub struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    pub fn open(&self) {
        *self.0.0.lock().expect("nobody panics with it") = true;
        self.0.1.notify_all();
    }

    /// Waits until it is open.
    pub fn pass(&self) {
        let until = Instant::now() + TIMEOUT;
        let mut is_open = self.0.0.lock().expect("nobody panics with it");
        while !*is_open {
            assert!(Instant::now() < until, "nobody opens the gate");
            let waited = self.0.1.wait_timeout(is_open, TIMEOUT);
            is_open = waited.expect("nobody panics with it").0;
        }
    }
}

/// One connection with one call at a time, in a closed loop.
pub fn plan(server: &Server, length: Length) -> LoadPlan {
    LoadPlan::to(server.address.clone(), TIMEOUT, length)
}
