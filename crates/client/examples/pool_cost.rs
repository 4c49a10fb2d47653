//! What a call through a pool costs beside one through `Local`, in one run against the same server:
//!
//!     cargo run --release -p pelton-client --example pool_cost -- 127.0.0.1:1978
//!
//! For each number in flight: calls a second, and CPU of this thread per call, the median of
//! several rounds in which both take turns.

use std::error::Error;
use std::time::Duration;

use client::{
    Address, CallStart, ChannelKey, Happened, Local, LocalOptions, LocalPool, LocalPoolOptions,
    PoolCall, PoolEvent, PoolOptions, PoolSize,
};

const PATH: &str = "/pelton.v1.Echo/Unary";
const ROUNDS: usize = 7;
const ROUND: Duration = Duration::from_millis(300);
const TIMEOUT_NS: Option<u64> = Some(20_000_000_000);

/// `EchoRequest` with a payload of 8 bytes.
const REQUEST: &[u8] = b"\x0a\x0812345678";

/// What a round took.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
struct Cost {
    cpu_ns: f64,
    per_second: f64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let address: Address = std::env::args().nth(1).ok_or("an address")?.parse()?;
    println!("in flight    Local: ns CPU, calls/s    LocalPool: ns CPU, calls/s    CPU ratio");
    for in_flight in (0..13).map(|power| 1_u64 << power).chain([100]) {
        let (mut local, channel) = connect(&address)?;
        let mut pool = pool(&address)?;
        let (mut plain, mut pooled) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            plain.push(measured(|until_ns| {
                by_local(&mut local, channel, in_flight, until_ns)
            })?);
            pooled.push(measured(|until_ns| {
                by_pool(&mut pool, in_flight, until_ns)
            })?);
        }
        let (plain, pooled) = (median(plain), median(pooled));
        println!(
            "{in_flight:9} {:13.0} {:12.0} {:15.0} {:14.0} {:14.2}",
            plain.cpu_ns,
            plain.per_second,
            pooled.cpu_ns,
            pooled.per_second,
            pooled.cpu_ns / plain.cpu_ns
        );
    }
    Ok(())
}

fn median(mut costs: Vec<Cost>) -> Cost {
    costs.sort_by(|one, other| one.cpu_ns.total_cmp(&other.cpu_ns));
    costs[costs.len() / 2]
}

fn measured(run: impl FnOnce(u64) -> Result<u64, Box<dyn Error>>) -> Result<Cost, Box<dyn Error>> {
    let (cpu_ns, begin_ns) = (cpu_ns()?, net::monotonic_ns());
    let calls = run(begin_ns + ROUND.as_nanos() as u64)?;
    let took_ns = net::monotonic_ns() - begin_ns;
    Ok(Cost {
        cpu_ns: (self::cpu_ns()? - cpu_ns) as f64 / calls as f64,
        per_second: calls as f64 * 1e9 / took_ns as f64,
    })
}

/// How long this thread has run (proc(5), `/proc/PID/schedstat`).
fn cpu_ns() -> Result<u64, Box<dyn Error>> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let first = text.split(' ').next().ok_or("schedstat is empty")?;
    Ok(first.parse()?)
}

fn connect(address: &Address) -> Result<(Local, ChannelKey), Box<dyn Error>> {
    let mut local = Local::new(address, LocalOptions::default())?;
    let channel = local.open_channel(net::monotonic_ns())?;
    while local.room(channel) == 0 {
        local.flush(net::monotonic_ns());
        local.wait(Some(100_000_000), net::monotonic_ns())?;
        local.receive(net::monotonic_ns(), &mut |_| {});
    }
    Ok((local, channel))
}

fn by_local(
    local: &mut Local,
    channel: ChannelKey,
    in_flight: u64,
    until_ns: u64,
) -> Result<u64, Box<dyn Error>> {
    let start = CallStart {
        path: PATH,
        timeout_ns: TIMEOUT_NS,
        metadata: None,
    };
    let (mut free, mut ended, mut now_ns) = (in_flight, 0, net::monotonic_ns());
    while now_ns < until_ns || free < in_flight {
        if now_ns < until_ns {
            for tag in 0..std::mem::take(&mut free) {
                let request = |out: &mut Vec<u8>| out.extend_from_slice(REQUEST);
                local.begin(channel, tag, &start, now_ns, request)?;
            }
        }
        local.flush(now_ns);
        local.wait(None, now_ns)?;
        now_ns = net::monotonic_ns();
        local.receive(now_ns, &mut |happened| {
            if let Happened::Ended { .. } = happened {
                free += 1;
                ended += 1;
            }
        });
    }
    Ok(ended)
}

fn pool(address: &Address) -> Result<LocalPool, Box<dyn Error>> {
    let options = LocalPoolOptions {
        pool: PoolOptions {
            size: PoolSize::Fixed(1),
            ..PoolOptions::default()
        },
        ..LocalPoolOptions::default()
    };
    let now_ns = net::monotonic_ns();
    Ok(LocalPool::new(
        std::slice::from_ref(address),
        options,
        1,
        now_ns,
    )?)
}

fn by_pool(pool: &mut LocalPool, in_flight: u64, until_ns: u64) -> Result<u64, Box<dyn Error>> {
    let call = PoolCall {
        path: PATH,
        timeout_ns: TIMEOUT_NS,
        ..PoolCall::default()
    };
    let (mut free, mut ended, mut failed) = (in_flight, 0, None);
    let mut now_ns = net::monotonic_ns();
    while now_ns < until_ns || free < in_flight {
        if now_ns < until_ns {
            for tag in 0..std::mem::take(&mut free) {
                let request = |out: &mut Vec<u8>| out.extend_from_slice(REQUEST);
                pool.engine().begin(tag, &call, now_ns, request)?;
            }
        }
        pool.flush(now_ns);
        pool.wait(None, now_ns)?;
        now_ns = net::monotonic_ns();
        pool.receive(now_ns, &mut |event| {
            if let PoolEvent::Ended { result, .. } = event {
                free += 1;
                ended += 1;
                failed = result.err().or(failed.take());
            }
        });
    }
    failed.map_or(Ok(ended), |error| Err(error.into()))
}
