//! A server for the tests of the client: `wire`'s server role over one blocking socket, which
//! answers by path.

#![allow(dead_code, reason = "each test file uses its part")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use client::{Address, Channel, ChannelOptions, Code, Status};
use wire::{Connection, ErrorCode, Event, StreamKey};

/// What the server does about a request, with the message it came with.
pub type Answer = fn(&mut Connection, StreamKey, &mut Vec<u8>, path: &str, message: &[u8]);

/// Where the body of a plain request is taken to its end; the answer has its length and its sum.
pub const BODY_PATH: &str = "/body";

/// Calls that end when the client has ended its side.
const ENDS_WITH_REQUESTS: [&str; 2] = ["/t.T/Chat", "/pelton.v1.Blob/Upload"];

/// The bytes, added up, each times its place.
pub fn sum(bytes: &[u8]) -> u64 {
    let bytes = bytes.iter().zip(1_u64..);
    bytes.map(|(byte, place)| u64::from(*byte) * place).sum()
}

/// Serves one connection in a thread of its own, until the client goes.
pub fn serve(answer: Answer) -> (Channel, JoinHandle<()>) {
    let (address, listener) = listen();
    let server = thread::spawn(move || {
        let (socket, _) = listener.accept().expect("the client connects");
        run(socket, answer);
    });
    let channel =
        Channel::connect(&address, &ChannelOptions::default()).expect("the server listens");
    (channel, server)
}

/// Serves so many connections, each in a thread of its own, until the clients go.
pub fn serve_all(answer: Answer, connections: usize) -> (Address, JoinHandle<()>) {
    let (address, listener) = listen();
    (address, serve_on(listener, answer, connections))
}

/// The same on a listener.
pub fn serve_on(listener: TcpListener, answer: Answer, connections: usize) -> JoinHandle<()> {
    thread::spawn(move || {
        let threads: Vec<_> = (0..connections)
            .map(|_| {
                let (socket, _) = listener.accept().expect("the client connects");
                thread::spawn(move || run(socket, answer))
            })
            .collect();
        for thread in threads {
            thread.join().expect("the server does not panic");
        }
    })
}

/// A listener on a free port.
pub fn listen() -> (Address, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound").to_string();
    (
        address.parse().expect("an address of the system is valid"),
        listener,
    )
}

/// Says what a server says first.
pub fn greet(mut socket: &TcpStream) {
    let mut connection = Connection::new(&wire::Config::server(), 0);
    let mut output = Vec::new();
    connection.start(&mut output);
    socket.write_all(&output).expect("the client is there");
}

fn run(mut socket: TcpStream, answer: Answer) {
    let origin = Instant::now();
    let now_ns = || origin.elapsed().as_nanos() as u64;
    let mut connection = Connection::new(&wire::Config::server(), now_ns());
    let (mut input, mut output, mut buffer) = (Vec::new(), Vec::new(), [0; 4096]);
    let mut paths: Vec<(StreamKey, String)> = Vec::new();
    let mut body = Vec::new();
    connection.start(&mut output);
    loop {
        let mut consumed = 0;
        while let Some(event) = connection.poll_event(&input, &mut consumed, &mut output, now_ns())
        {
            match event {
                Event::Request { stream, end } => {
                    let head = connection.head();
                    let path = String::from_utf8_lossy(head.path()).into_owned();
                    if end || !(head.is_grpc() || path == BODY_PATH) {
                        answer(&mut connection, stream, &mut output, &path, b"");
                    } else {
                        paths.push((stream, path));
                    }
                }
                Event::Message { stream, last } => {
                    let message = connection.message(&input).to_vec();
                    connection.release(stream, &mut output);
                    let path = paths
                        .iter()
                        .find(|(key, _)| *key == stream)
                        .map(|(_, path)| path.clone());
                    let path = path.expect("a request came before");
                    answer(&mut connection, stream, &mut output, &path, &message);
                    if last && ENDS_WITH_REQUESTS.contains(&&path[..]) {
                        connection.finish(stream, &mut output, &Status::OK);
                    }
                    if path == "/t.T/Drain" {
                        connection.drain(&mut output, now_ns());
                    }
                }
                Event::Body { stream, last } => {
                    body.extend_from_slice(connection.message(&input));
                    take_body(&mut connection, (stream, last), &mut output, &mut body);
                }
                Event::HalfClosed { stream } => {
                    half_closed(&mut connection, stream, &mut output, &mut body);
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

/// A piece of the body of a plain request was kept: lets the client send on.
fn take_body(
    connection: &mut Connection,
    (stream, last): (StreamKey, bool),
    out: &mut Vec<u8>,
    body: &mut Vec<u8>,
) {
    connection.release(stream, out);
    if last {
        half_closed(connection, stream, out, body);
    }
}

/// The client has ended its side: of a plain request with a body, says what that was.
fn half_closed(
    connection: &mut Connection,
    stream: StreamKey,
    out: &mut Vec<u8>,
    body: &mut Vec<u8>,
) {
    if body.is_empty() {
        return connection.finish(stream, out, &Status::OK);
    }
    let text = format!("{} bytes, sum {}", body.len(), sum(body));
    connection.send_plain(stream, out, 200, &[], text.as_bytes());
    body.clear();
}

/// Answers as the path says.
pub fn by_path(
    connection: &mut Connection,
    stream: StreamKey,
    out: &mut Vec<u8>,
    path: &str,
    message: &[u8],
) {
    match path {
        "/t.T/Echo" => connection.respond(stream, out, |out| out.extend_from_slice(message)),
        "/t.T/Chat" => {
            connection.send_message(stream, out, |out| out.extend_from_slice(message));
        }
        // One message of 1000 bytes for each byte of the request, numbered.
        "/t.T/Stream" => {
            for number in 0..message.len() {
                connection.send_message(stream, out, |out| {
                    out.extend_from_slice(&[number as u8; 1000])
                });
            }
            connection.finish(stream, out, &Status::OK);
        }
        // Two messages, and no end.
        "/t.T/Twice" => {
            connection.send_message(stream, out, |out| out.push(1));
            connection.send_message(stream, out, |out| out.push(2));
        }
        "/t.T/None" => connection.finish(stream, out, &Status::OK),
        "/t.T/Fail" => connection.finish(
            stream,
            out,
            &Status::new(Code::ResourceExhausted, "größer als 5"),
        ),
        "/t.T/Silent" => {}
        "/t.T/Reset" => connection.reset(stream, out, ErrorCode::InternalError),
        "/t.T/Refuse" => connection.reset(stream, out, ErrorCode::RefusedStream),
        "/t.T/Drain" => {
            connection.respond(stream, out, |out| out.extend_from_slice(b"last"));
        }
        "/" => connection.send_plain(
            stream,
            out,
            200,
            &[("content-type", "text/plain")],
            b"hello\n",
        ),
        _ => connection.send_plain(stream, out, 404, &[], b""),
    }
}
