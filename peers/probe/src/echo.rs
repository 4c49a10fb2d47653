//! The floor: messages of a fixed length to a server that sends back what it gets, one at a time.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rustix::event::epoll;

use crate::closed_loop::LATENCY_MAX_NS;
use crate::processor;

/// What came out of an echo run.
pub struct EchoOutcome {
    /// Messages that came back.
    pub messages: u64,
    /// How long was measured.
    pub elapsed_ns: u64,
    /// From writing a message to reading the last byte of its echo.
    pub latency_ns: Histogram<u64>,
    /// CPU time of the server and of this process meanwhile.
    pub server_ns: Option<u64>,
    /// See `server_ns`.
    pub own_ns: u64,
}

/// Sends `bytes` at a time for `warm_up` and then `duration`, waiting for them by epoll as the gRPC
/// run does.
pub fn run(
    address: &str,
    bytes: usize,
    warm_up: Duration,
    duration: Duration,
    server_pid: Option<u32>,
) -> Result<EchoOutcome, String> {
    let explain = |error: std::io::Error| format!("echo at {address}: {error}");
    let mut socket = TcpStream::connect(address).map_err(explain)?;
    socket.set_nodelay(true).map_err(explain)?;
    socket.set_nonblocking(true).map_err(explain)?;
    let poll =
        epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|error| format!("epoll: {error}"))?;
    epoll::add(
        &poll,
        &socket,
        epoll::EventData::new_u64(0),
        epoll::EventFlags::IN,
    )
    .map_err(|error| format!("epoll: {error}"))?;

    let message = vec![0x5a; bytes];
    let mut input = vec![0; bytes];
    let mut events = Vec::with_capacity(1);
    let mut round_trip = || -> Result<(), String> {
        socket.write_all(&message).map_err(explain)?;
        let mut received = 0;
        while received < bytes {
            events.clear();
            epoll::wait(&poll, rustix::buffer::spare_capacity(&mut events), None)
                .map_err(|error| format!("epoll: {error}"))?;
            match socket.read(&mut input) {
                Ok(0) => return Err(format!("echo at {address}: closed")),
                Ok(count) => received += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(explain(error)),
            }
        }
        Ok(())
    };

    let warm = Instant::now();
    while warm.elapsed() < warm_up {
        round_trip()?;
    }
    let cpu = || -> Result<_, String> {
        Ok((
            server_pid.map(processor::process_ns).transpose()?,
            processor::process_ns(std::process::id())?,
        ))
    };
    let mut latency_ns =
        Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3).expect("the bounds are in order");
    let (server_before, own_before) = cpu()?;
    let begin = Instant::now();
    let mut sent_ns = 0;
    while sent_ns < duration.as_nanos() as u64 {
        round_trip()?;
        let now_ns = begin.elapsed().as_nanos() as u64;
        latency_ns.saturating_record(now_ns - sent_ns);
        sent_ns = now_ns;
    }
    let (server_after, own_after) = cpu()?;
    Ok(EchoOutcome {
        messages: latency_ns.len(),
        elapsed_ns: sent_ns,
        latency_ns,
        server_ns: server_after
            .zip(server_before)
            .map(|(after, before)| after - before),
        own_ns: own_after - own_before,
    })
}
