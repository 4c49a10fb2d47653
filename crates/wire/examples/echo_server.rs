//! An echo server: a thread for each connection; each message of a call comes back.
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};
use wire::{Config, Connection, Event, grpc::Status};

fn main() -> std::io::Result<()> {
    for socket in TcpListener::bind("127.0.0.1:8080")?.incoming().flatten() {
        std::thread::spawn(move || serve(socket));
    }
    Ok(())
}

/// Serves one connection until it ends.
pub fn serve(mut socket: TcpStream) -> std::io::Result<()> {
    let begun = Instant::now();
    let now_ns = || begun.elapsed().as_nanos() as u64;
    let mut connection = Connection::new(&Config::server(), now_ns());
    let (mut input, mut output, mut buffer) = (Vec::new(), Vec::new(), [0; 16 << 10]);
    connection.start(&mut output);
    while let (None, Some(due_ns)) = (connection.close_reason(), connection.next_deadline_ns()) {
        let wait_ns = due_ns.saturating_sub(now_ns()).max(1_000_000);
        socket.set_read_timeout(Some(Duration::from_nanos(wait_ns)))?;
        match socket.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => input.extend_from_slice(&buffer[..length]),
            Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
            Err(_) => connection.deadline_passed(&mut output, now_ns()),
        }
        let mut consumed = 0;
        loop {
            let out = &mut output;
            while let Some(event) = connection.poll_event(&input, &mut consumed, out, now_ns()) {
                match event {
                    Event::Message { stream, last } => {
                        let bytes = connection.message(&input).to_vec();
                        connection.send_message(stream, out, |out| out.extend_from_slice(&bytes));
                        connection.release(stream, out);
                        if last {
                            connection.finish(stream, out, &Status::OK);
                        }
                    }
                    Event::HalfClosed { stream } | Event::Request { stream, end: true } => {
                        connection.finish(stream, out, &Status::OK);
                    }
                    Event::Cancelled { stream, .. } => connection.forget(stream),
                    _ => {}
                }
            }
            connection.transmit(out, now_ns());
            socket.write_all(out)?;
            out.clear();
            if !connection.wants_transmit() && !connection.has_events() {
                break;
            }
        }
        input.drain(..consumed);
    }
    Ok(())
}
