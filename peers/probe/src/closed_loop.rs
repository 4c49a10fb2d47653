//! The run: so many connections, so many calls in flight on each, a new call for each that ends.

use std::time::{Duration, Instant, SystemTime};

use hdrhistogram::Histogram;
use rustix::event::epoll;

use crate::connection::{Connection, Done, Failure};
use crate::head::Variation;
use crate::processor;
use crate::workload::Workload;

/// A run in which nothing comes for so long has failed.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// Events taken from the kernel at once.
const EVENTS_MAX: usize = 1024;

/// Latencies are kept to three digits, up to a minute.
pub const LATENCY_MAX_NS: u64 = 60_000_000_000;

/// What to run.
pub struct Plan {
    /// `host:port` of the server.
    pub address: String,
    /// Connections, opened before the measuring begins.
    pub connections: usize,
    /// Calls in flight on each.
    pub in_flight: usize,
    /// How header blocks differ.
    pub variation: Variation,
    /// Run so long before measuring.
    pub warm_up: Duration,
    /// Measure so long.
    pub duration: Duration,
    /// Stop after so many calls, whatever the time; 0 = do not count.
    pub calls: u64,
    /// Whose CPU time to count, if it runs on this machine.
    pub server_pid: Option<u32>,
    /// Begins the random numbers.
    pub seed: u64,
}

/// What came out.
pub struct Outcome {
    /// Measured calls that succeeded.
    pub calls: u64,
    /// Measured calls that failed.
    pub failures: u64,
    /// Of the successful ones, those whose answer was not empty.
    pub hits: u64,
    /// How long was measured.
    pub elapsed_ns: u64,
    /// When the measuring began, in milliseconds since 1970.
    pub from_wall_ms: u64,
    /// When it ended.
    pub to_wall_ms: u64,
    /// From sending a call to its end.
    pub latency_ns: Histogram<u64>,
    /// CPU time meanwhile: of the server, of this process, of the whole machine.
    pub server_ns: Option<u64>,
    /// See `server_ns`.
    pub own_ns: u64,
    /// See `server_ns`.
    pub machine_ns: u64,
}

/// CPU times at one moment.
pub struct Meter {
    /// On the clock of the run.
    pub at_ns: u64,
    wall_ms: u64,
    /// See [`Outcome`].
    pub server_ns: Option<u64>,
    /// See [`Outcome`].
    pub own_ns: u64,
    machine_ns: u64,
}

impl Meter {
    /// Reads them.
    pub fn read(server_pid: Option<u32>, at_ns: u64) -> Result<Meter, Failure> {
        Ok(Meter {
            at_ns,
            wall_ms: wall_ms(),
            server_ns: server_pid.map(processor::process_ns).transpose()?,
            own_ns: processor::process_ns(std::process::id())?,
            machine_ns: processor::machine_ns()?,
        })
    }
}

fn wall_ms() -> u64 {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since_1970.map_or(0, |elapsed| elapsed.as_millis() as u64)
}

/// What has been counted so far.
struct Tally {
    measuring: bool,
    ended: u64,
    calls: u64,
    failures: u64,
    hits: u64,
    latency_ns: Histogram<u64>,
}

impl Tally {
    fn new() -> Tally {
        let latency_ns =
            Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3).expect("the bounds are in order");
        Tally {
            measuring: false,
            ended: 0,
            calls: 0,
            failures: 0,
            hits: 0,
            latency_ns,
        }
    }

    fn add(&mut self, done: &Done, now_ns: u64) {
        self.ended += 1;
        if !self.measuring {
            // A call that fails before the measuring begins would fail in it as well; keep it for
            // the report.
            self.failures += u64::from(done.answer_bytes.is_none());
            return;
        }
        match done.answer_bytes {
            None => self.failures += 1,
            Some(bytes) => {
                self.calls += 1;
                self.hits += u64::from(bytes > 0);
                self.latency_ns.saturating_record(now_ns - done.sent_ns);
            }
        }
    }
}

/// Runs the plan to its end.
pub fn run(plan: &Plan, workload: &mut Workload) -> Result<Outcome, Failure> {
    let clock = Instant::now();
    let now_ns = || clock.elapsed().as_nanos() as u64;
    let mut connections = open_all(plan, workload)?;
    let poll = watch(&connections)?;

    let measure_from_ns = now_ns() + plan.warm_up.as_nanos() as u64;
    let measure_until_ns = measure_from_ns + plan.duration.as_nanos() as u64;
    let mut tally = Tally::new();
    let mut begin = Meter::read(plan.server_pid, now_ns())?;
    if plan.warm_up.is_zero() {
        tally.measuring = true;
    }
    let mut events = Vec::with_capacity(EVENTS_MAX);
    for (index, connection) in connections.iter_mut().enumerate() {
        connection.send_calls(plan.in_flight, workload, now_ns())?;
        flush(&poll, connection, index)?;
    }
    loop {
        wait(&poll, &mut events)?;
        // One reading of the clock for all that came together: it is the moment at which we could
        // have looked.
        let now = now_ns();
        for event in &events {
            let index = event.data.u64() as usize;
            let connection = &mut connections[index];
            connection.receive(workload, &mut |done| tally.add(&done, now))?;
            connection.send_calls(plan.in_flight, workload, now)?;
            flush(&poll, connection, index)?;
        }
        if !tally.measuring && now >= measure_from_ns {
            tally.measuring = true;
            begin = Meter::read(plan.server_pid, now_ns())?;
        }
        if now >= measure_until_ns || (plan.calls != 0 && tally.ended >= plan.calls) {
            let end = Meter::read(plan.server_pid, now_ns())?;
            return Ok(outcome(tally, &begin, &end));
        }
    }
}

fn outcome(tally: Tally, begin: &Meter, end: &Meter) -> Outcome {
    Outcome {
        calls: tally.calls,
        failures: tally.failures,
        hits: tally.hits,
        elapsed_ns: end.at_ns - begin.at_ns,
        from_wall_ms: begin.wall_ms,
        to_wall_ms: end.wall_ms,
        latency_ns: tally.latency_ns,
        server_ns: end
            .server_ns
            .zip(begin.server_ns)
            .map(|(end, begin)| end - begin),
        own_ns: end.own_ns - begin.own_ns,
        machine_ns: end.machine_ns - begin.machine_ns,
    }
}

/// Opens all connections and waits for the server's SETTINGS on each, which say how many streams it
/// allows.
fn open_all(plan: &Plan, workload: &Workload) -> Result<Vec<Connection>, Failure> {
    let mut connections = Vec::with_capacity(plan.connections);
    for index in 0..plan.connections {
        let seed = plan.seed.wrapping_mul(1_000_003).wrapping_add(index as u64);
        let mut connection = Connection::open(
            &plan.address,
            workload.path(),
            plan.variation,
            plan.in_flight,
            seed,
        )?;
        connection.flush()?;
        connections.push(connection);
    }
    let deadline = Instant::now() + SILENCE_MAX;
    for connection in &mut connections {
        while !connection.settled {
            connection.receive(workload, &mut |_| {})?;
            if Instant::now() > deadline {
                return Err("the server sent no SETTINGS".into());
            }
            std::thread::yield_now();
        }
        if connection.streams_max() < plan.in_flight {
            return Err(format!(
                "the server allows {} calls at once on a connection, fewer than {}",
                connection.streams_max(),
                plan.in_flight
            ));
        }
    }
    Ok(connections)
}

fn watch(connections: &[Connection]) -> Result<std::os::fd::OwnedFd, Failure> {
    let poll =
        epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|error| format!("epoll: {error}"))?;
    for (index, connection) in connections.iter().enumerate() {
        epoll::add(
            &poll,
            connection.socket(),
            epoll::EventData::new_u64(index as u64),
            epoll::EventFlags::IN,
        )
        .map_err(|error| format!("epoll: {error}"))?;
    }
    Ok(poll)
}

fn wait(poll: &std::os::fd::OwnedFd, events: &mut Vec<epoll::Event>) -> Result<(), Failure> {
    events.clear();
    let timeout = rustix::event::Timespec {
        tv_sec: SILENCE_MAX.as_secs() as i64,
        tv_nsec: 0,
    };
    match epoll::wait(poll, rustix::buffer::spare_capacity(events), Some(&timeout)) {
        Ok(0) => Err(format!(
            "the server has been silent for {} s",
            SILENCE_MAX.as_secs()
        )),
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(format!("epoll: {error}")),
    }
}

/// Writes; while the socket is full, also waits for room in it.
fn flush(
    poll: &std::os::fd::OwnedFd,
    connection: &mut Connection,
    index: usize,
) -> Result<(), Failure> {
    let was_blocked = connection.blocked;
    connection.blocked = connection.flush()?;
    if was_blocked != connection.blocked {
        let flags = if connection.blocked {
            epoll::EventFlags::IN | epoll::EventFlags::OUT
        } else {
            epoll::EventFlags::IN
        };
        epoll::modify(
            poll,
            connection.socket(),
            epoll::EventData::new_u64(index as u64),
            flags,
        )
        .map_err(|error| format!("epoll: {error}"))?;
    }
    Ok(())
}
