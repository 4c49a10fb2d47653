//! A client of tonic in a closed loop, on one thread: see peers/README.md for its flags and its
//! line of JSON.
//!
//! A task for each call in flight, and generated clients: the way of tonic's documentation. No call
//! has a deadline.

mod options;

use std::cell::{Cell, RefCell};
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Instant;
use std::{fs, io};

use rustix::time::{ClockId, clock_gettime};
use tokio::task::{JoinSet, LocalSet};
use tonic::transport::{Channel, Endpoint};

use options::{Method, Options};
use pelton::GetRequest;
use pelton::key_value_client::KeyValueClient;
use ydb::PlainGrpcRequest;
use ydb::debug_service_client::DebugServiceClient;

#[allow(
    missing_docs,
    dead_code,
    clippy::enum_variant_names,
    reason = "generated for all messages of the file, of which one method needs a few"
)]
mod pelton {
    tonic::include_proto!("pelton.v1");
}

#[allow(missing_docs, reason = "generated")]
mod ydb {
    tonic::include_proto!("ydb.debug.v1");
}

type AnyError = Box<dyn std::error::Error>;

async fn connect(options: &Options) -> Result<Vec<Channel>, AnyError> {
    let endpoint = Endpoint::from_shared(format!("http://{}", options.address))?;
    let mut channels = Vec::new();
    for _ in 0..options.channels {
        channels.push(endpoint.connect().await?);
    }
    Ok(channels)
}

/// The key of a number, as `pelton load` names its keys.
fn key(mut number: u64) -> Vec<u8> {
    for factor in [0xbf58_476d_1ce4_e5b9_u64, 0x94d0_49bb_1331_11eb] {
        number = (number ^ (number >> 32)).wrapping_mul(factor);
    }
    number ^= number >> 32;
    format!("{number:016x}").into_bytes()
}

/// Random numbers by xorshift64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// A channel with the client of what is called.
enum Caller {
    Get(KeyValueClient<Channel>, u64),
    Ping(DebugServiceClient<Channel>),
}

impl Caller {
    fn new(channel: Channel, options: &Options) -> Caller {
        match options.method {
            Method::Get => Caller::Get(KeyValueClient::new(channel), options.keys),
            Method::Ping => Caller::Ping(DebugServiceClient::new(channel)),
        }
    }

    async fn call(&mut self, random: &mut Random) -> Result<(), String> {
        match self {
            Caller::Get(client, keys) => {
                let request = GetRequest {
                    key: key(random.below(*keys)).into(),
                    ..GetRequest::default()
                };
                let response = client.get(request).await.map_err(|it| it.to_string())?;
                let found = response.into_inner().found;
                found.then_some(()).ok_or("the key was not found".into())
            }
            Caller::Ping(client) => {
                let pinged = client.ping_plain_grpc(PlainGrpcRequest {}).await;
                pinged.map(drop).map_err(|it| it.to_string())
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Phase {
    WarmUp,
    Measure,
    Drain,
}

/// What all places share.
struct Loop {
    phase: Cell<Phase>,
    latencies_ns: RefCell<Vec<u64>>,
    failures: Cell<u64>,
    first_failure: RefCell<Option<String>>,
}

impl Loop {
    /// Keeps one call in flight.
    async fn place(self: Rc<Loop>, mut caller: Caller, mut random: Random) {
        while self.phase.get() != Phase::Drain {
            let begun = Instant::now();
            match caller.call(&mut random).await {
                Err(failure) => {
                    self.failures.set(self.failures.get() + 1);
                    self.first_failure.borrow_mut().get_or_insert(failure);
                }
                Ok(()) if self.phase.get() == Phase::Measure => {
                    let latency = begun.elapsed().as_nanos() as u64;
                    self.latencies_ns.borrow_mut().push(latency);
                }
                Ok(()) => {}
            }
        }
    }
}

/// A moment of the measurement.
struct Mark {
    time: Instant,
    own_ns: u64,
    server_ns: u64,
}

impl Mark {
    fn now(options: &Options) -> io::Result<Mark> {
        let own = clock_gettime(ClockId::ProcessCPUTime);
        Ok(Mark {
            time: Instant::now(),
            own_ns: own.tv_sec as u64 * 1_000_000_000 + own.tv_nsec as u64,
            server_ns: options.server_pid.map_or(Ok(0), process_ns)?,
        })
    }
}

/// CPU time of all threads of a process, in nanoseconds.
fn process_ns(pid: u32) -> io::Result<u64> {
    let mut total_ns = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = fs::read_to_string(task?.path().join("schedstat"))?;
        let first = text.split_whitespace().next();
        total_ns += first.and_then(|word| word.parse().ok()).unwrap_or(0);
    }
    Ok(total_ns)
}

async fn run(options: Options) -> Result<bool, AnyError> {
    let channels = connect(&options).await?;
    let shared = Rc::new(Loop {
        phase: Cell::new(Phase::WarmUp),
        latencies_ns: RefCell::default(),
        failures: Cell::default(),
        first_failure: RefCell::default(),
    });
    let mut places = JoinSet::new();
    for number in 0..options.in_flight {
        let caller = Caller::new(channels[number % channels.len()].clone(), &options);
        places.spawn_local(Rc::clone(&shared).place(caller, Random(number as u64 + 1)));
    }
    tokio::time::sleep(options.warm_up).await;
    let begin = Mark::now(&options)?;
    shared.phase.set(Phase::Measure);
    tokio::time::sleep(options.duration).await;
    shared.phase.set(Phase::Drain);
    let end = Mark::now(&options)?;
    while let Some(ended) = places.join_next().await {
        ended?;
    }
    print(&options, &shared, &begin, &end);
    Ok(shared.failures.get() == 0)
}

fn print(options: &Options, shared: &Loop, begin: &Mark, end: &Mark) {
    let mut sorted = shared.latencies_ns.borrow_mut();
    sorted.sort_unstable();
    let percentile_us = |share: f64| {
        let at = (share * sorted.len() as f64) as usize;
        let last = sorted.len().saturating_sub(1);
        sorted.get(at.min(last)).map_or(0.0, |ns| *ns as f64 / 1e3)
    };
    let calls = sorted.len();
    let elapsed_s = (end.time - begin.time).as_secs_f64();
    let us_per_call = |from: u64, to: u64| (to - from) as f64 / 1e3 / calls.max(1) as f64;
    let server = options.server_pid.map_or(String::new(), |_| {
        let server_us = us_per_call(begin.server_ns, end.server_ns);
        format!(",\"server_us\":{server_us:.4}")
    });
    let first_failure = shared.first_failure.borrow();
    println!(
        "{{\"client\":\"tonic {}\",\"method\":\"{}\",\"in_flight\":{},\"channels\":{},\
         \"channel_args\":\"{}\",\"calls\":{calls},\"failures\":{},\"first_failure\":{},\
         \"elapsed_s\":{elapsed_s:.6},\"calls_per_s\":{:.1},\"p50_us\":{:.1},\"p99_us\":{:.1},\
         \"max_us\":{:.1},\"own_us\":{:.4}{server}}}",
        env!("TONIC_VERSION"),
        options.method.name(),
        options.in_flight,
        options.channels,
        options.channel_args,
        shared.failures.get(),
        quoted(first_failure.as_deref().unwrap_or_default()),
        calls as f64 / elapsed_s,
        percentile_us(0.5),
        percentile_us(0.99),
        percentile_us(1.0),
        us_per_call(begin.own_ns, end.own_ns),
    );
}

/// A text as JSON has it, without what cannot be printed.
fn quoted(text: &str) -> String {
    let plain = text.replace(|letter: char| letter.is_control(), " ");
    format!("\"{}\"", plain.replace('\\', "\\\\").replace('"', "\\\""))
}

fn main() -> ExitCode {
    let outcome = options::parse()
        .map_err(AnyError::from)
        .and_then(|options| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            LocalSet::new().block_on(&runtime, run(options))
        });
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("tonic-client: {error}");
            ExitCode::from(2)
        }
    }
}
