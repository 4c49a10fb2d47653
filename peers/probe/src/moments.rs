//! What is measured once instead of in a loop: memory of idle connections, the time from start to
//! the first answer, the CPU time of a server while another program loads it.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::connection::Connection;
use crate::head::Variation;
use crate::processor;
use crate::workload::Workload;

/// A server that has not answered for so long does not work.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// What servers print once they take connections, before the address.
const READY: &str = "listening on ";

/// Connections whose first calls are on their way at the same time: less than a listener's queue.
const OPENED_AT_ONCE: usize = 100;

/// Sends one call on each connection, then waits for all answers.
fn call_on_each(connections: &mut [Connection], workload: &mut Workload) -> Result<(), String> {
    for connection in connections.iter_mut() {
        connection.send_calls(1, workload, 0)?;
        connection.flush()?;
    }
    let begin = Instant::now();
    for connection in connections {
        while connection.in_flight > 0 {
            let mut failed = false;
            connection.receive(workload, &mut |done| failed |= done.answer_bytes.is_none())?;
            connection.flush()?;
            if failed {
                return Err("a call failed".into());
            }
            if begin.elapsed() > ANSWER_WITHIN {
                return Err("the server does not answer".into());
            }
            std::thread::yield_now();
        }
    }
    Ok(())
}

/// Bytes of memory that the server holds for each of `connections` that have made one call each and
/// then stayed idle for `settle`.
pub fn idle_bytes(
    address: &str,
    connections: usize,
    settle: Duration,
    server_pid: u32,
    workload: &mut Workload,
) -> Result<u64, String> {
    let path = workload.path();
    let open = |seed| Connection::open(address, path, Variation::None, 1, seed);
    // The first call of all pays for what is set up once.
    call_on_each(&mut [open(0)?], workload)?;
    std::thread::sleep(settle);
    let before = processor::anonymous_bytes(server_pid)?;
    let mut opened = Vec::with_capacity(connections);
    while opened.len() < connections {
        let group = opened.len();
        for _ in 0..OPENED_AT_ONCE.min(connections - group) {
            opened.push(open(opened.len() as u64)?);
        }
        call_on_each(&mut opened[group..], workload)?;
    }
    std::thread::sleep(settle);
    let after = processor::anonymous_bytes(server_pid)?;
    // They all still work.
    call_on_each(&mut opened, workload)?;
    for connection in &opened {
        // Closed by a reset: ten thousand ports that wait for late packets would slow down what is
        // measured next.
        rustix::net::sockopt::set_socket_linger(connection.socket(), Some(Duration::ZERO))
            .map_err(|error| format!("closing: {error}"))?;
    }
    Ok(after.saturating_sub(before) / connections as u64)
}

/// Starts a server and measures until it has answered a call.
pub fn start_to_answer(command: &[String], workload: &mut Workload) -> Result<Duration, String> {
    let [program, arguments @ ..] = command else {
        return Err("which server? Name its command after --".into());
    };
    let begin = Instant::now();
    let mut server = Command::new(program)
        .args(arguments)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("starting {program}: {error}"))?;
    let result = first_answer(&mut server, workload).map(|()| begin.elapsed());
    // It holds nothing that would be lost.
    let stopped = server.kill().and_then(|()| server.wait());
    stopped.map_err(|error| format!("stopping {program}: {error}"))?;
    result
}

fn first_answer(server: &mut Child, workload: &mut Workload) -> Result<(), String> {
    let output = server.stdout.take().expect("it was piped");
    for line in BufReader::new(output).lines() {
        let line = line.map_err(|error| format!("reading what the server prints: {error}"))?;
        if let Some((_, rest)) = line.split_once(READY) {
            let address = rest.split_whitespace().next().unwrap_or(rest);
            let connection = Connection::open(address, workload.path(), Variation::None, 1, 0)?;
            return call_on_each(&mut [connection], workload);
        }
    }
    Err(format!(
        "the server ended without printing {READY:?} and an address"
    ))
}

/// Runs a program to its end and says how much CPU time the server used meanwhile, in
/// nanoseconds. The program's output goes to standard error.
pub fn metered(command: &[String], server_pid: u32) -> Result<(u64, Duration), String> {
    let [program, arguments @ ..] = command else {
        return Err("which program? Name its command after --".into());
    };
    let before_ns = processor::process_ns(server_pid)?;
    let begin = Instant::now();
    let status = Command::new(program)
        .args(arguments)
        .stdout(std::io::stderr())
        .status()
        .map_err(|error| format!("starting {program}: {error}"))?;
    let elapsed = begin.elapsed();
    let used_ns = processor::process_ns(server_pid)? - before_ns;
    if status.success() {
        Ok((used_ns, elapsed))
    } else {
        Err(format!("{program}: {status}"))
    }
}
