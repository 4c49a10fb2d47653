//! A server without an event loop: one blocking thread for each connection. It shows how a
//! `Connection` is driven, and is enough for a conformance suite: plain requests get a text, gRPC
//! calls get each message back.
//!
//! `cargo run -p pelton-wire --example hello -- 127.0.0.1:8080`

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

use wire::grpc::Status;
use wire::{Config, Connection, Event, StreamKey};

fn main() -> std::io::Result<()> {
    let address = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let listener = TcpListener::bind(&address)?;
    println!("listening on {address}");
    for stream in listener.incoming() {
        let stream = stream?;
        std::thread::spawn(move || serve(stream));
    }
    Ok(())
}

fn serve(mut socket: TcpStream) -> std::io::Result<()> {
    socket.set_nodelay(true)?;
    let origin = Instant::now();
    let now_ns = || origin.elapsed().as_nanos() as u64;
    let mut connection = Connection::new(&Config::server(), now_ns());
    let (mut input, mut output) = (Vec::new(), Vec::new());
    connection.start(&mut output);
    let mut buffer = vec![0; 64 << 10];
    loop {
        socket.write_all(&output)?;
        output.clear();
        connection.transmit(&mut output, now_ns());
        if !output.is_empty() {
            continue;
        }
        if connection.close_reason().is_some() {
            return Ok(());
        }
        let timeout = connection
            .next_deadline_ns()
            .map(|deadline_ns| deadline_ns.saturating_sub(now_ns()).max(1_000_000));
        socket.set_read_timeout(timeout.map(std::time::Duration::from_nanos))?;
        match socket.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(length) => input.extend_from_slice(&buffer[..length]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                connection.deadline_passed(&mut output, now_ns());
            }
            Err(error) => return Err(error),
        }
        let mut consumed = 0;
        while let Some(event) = connection.poll_event(&input, &mut consumed, &mut output, now_ns())
        {
            handle(&mut connection, event, &input, &mut output);
        }
        input.drain(..consumed);
    }
}

fn handle(connection: &mut Connection, event: Event, input: &[u8], output: &mut Vec<u8>) {
    match event {
        Event::Request { stream, end } if !connection.head().is_grpc() => {
            if end {
                greet(connection, stream, output);
            }
        }
        Event::Request { stream, end: true } | Event::HalfClosed { stream }
            if connection.token(stream) == 0 =>
        {
            greet(connection, stream, output);
        }
        Event::Request { stream, .. } => connection.set_token(stream, 1),
        Event::Body { stream, last } => {
            connection.release(stream, output);
            if last {
                greet(connection, stream, output);
            }
        }
        Event::Message { stream, last } => {
            let message = connection.take_message();
            connection.send_message(stream, output, |out| {
                out.extend_from_slice(message.bytes(input))
            });
            connection.give_back(message);
            connection.release(stream, output);
            if last {
                connection.finish(stream, output, &Status::OK);
            }
        }
        Event::HalfClosed { stream } => connection.finish(stream, output, &Status::OK),
        Event::Cancelled { stream, .. } => connection.forget(stream),
        // No stream takes parts, and the rest is for clients.
        Event::Part { .. }
        | Event::Writable { .. }
        | Event::Response { .. }
        | Event::Finished { .. }
        | Event::Refused => {}
    }
}

fn greet(connection: &mut Connection, stream: StreamKey, output: &mut Vec<u8>) {
    connection.send_plain(
        stream,
        output,
        200,
        &[("content-type", "text/plain")],
        b"hello, this is HTTP/2\n",
    );
}
