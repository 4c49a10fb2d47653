//! A client: one call with one message, and the messages that come back.
use std::io::{Error, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use wire::{Config, Connection, Event, RequestHead, grpc::Status};

fn main() -> std::io::Result<()> {
    let socket = TcpStream::connect("127.0.0.1:8080")?;
    let (response, status) = call(socket, "/example.Echo/Echo", b"hello")?;
    println!("{status}: {}", String::from_utf8_lossy(&response));
    Ok(())
}

/// Calls a method, and returns what came back.
pub fn call(mut socket: TcpStream, path: &str, request: &[u8]) -> Result<(Vec<u8>, Status), Error> {
    let begun = Instant::now();
    let now_ns = || begun.elapsed().as_nanos() as u64;
    let mut connection = Connection::new(&Config::client(), now_ns());
    let (mut input, mut output, mut buffer) = (Vec::new(), Vec::new(), [0; 16 << 10]);
    connection.start(&mut output);
    let head = RequestHead::call("localhost", path);
    let stream = (connection.open(&mut output, &head)).map_err(Error::other)?;
    connection.send_last_message(stream, &mut output, |out| out.extend_from_slice(request));
    let mut response = Vec::new();
    loop {
        connection.transmit(&mut output, now_ns());
        socket.write_all(&output)?;
        output.clear();
        if connection.wants_transmit() {
            continue;
        }
        let due_ns = connection.next_deadline_ns().unwrap_or(u64::MAX);
        let wait_ns = due_ns.saturating_sub(now_ns()).max(1_000_000);
        socket.set_read_timeout(Some(Duration::from_nanos(wait_ns)))?;
        match socket.read(&mut buffer) {
            Ok(0) => connection.peer_closed(),
            Ok(length) => input.extend_from_slice(&buffer[..length]),
            Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
            Err(_) => connection.deadline_passed(&mut output, now_ns()),
        }
        let mut consumed = 0;
        while let Some(event) = connection.poll_event(&input, &mut consumed, &mut output, now_ns())
        {
            match event {
                Event::Message { stream, .. } => {
                    response.extend_from_slice(connection.message(&input));
                    connection.release(stream, &mut output);
                }
                Event::Finished { .. } => return Ok((response, connection.status().clone())),
                Event::Cancelled { cause, .. } => return Err(Error::other(format!("{cause:?}"))),
                _ => {}
            }
        }
        input.drain(..consumed);
    }
}
