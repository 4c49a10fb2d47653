//! One thread turns a `LocalPool`: all calls that can begin do, then one write for each connection.

use std::time::Instant;

use client::api::keyvalue::{GetRequest, GetResponse};
use client::{Address, CallError, LocalPool, PoolCall, PoolEvent, Status, monotonic_ns};
use closed_loop::{Measurement, Method, Options, Phase, Random, Recorder, key};

use crate::{AnyError, PING_PATH, pool_options};

const GET_PATH: &str = "/pelton.v1.KeyValue/Get";

/// The call in flight that has this place as its tag.
#[derive(Clone, Copy)]
struct Place {
    begun: Instant,
    is_right: bool,
}

/// Calls until no more are to begin and all have ended.
pub fn run(
    address: Address,
    options: &Options,
    measurement: &Measurement,
) -> Result<Recorder, AnyError> {
    let mut now_ns = monotonic_ns();
    let mut pool = LocalPool::new(&[address], pool_options(options), 1, now_ns)?;
    let place = Place {
        begun: Instant::now(),
        is_right: false,
    };
    let mut places = vec![place; options.in_flight];
    let mut free: Vec<u64> = (0..options.in_flight as u64).collect();
    let (mut recorder, mut random) = (Recorder::default(), Random::new(1));
    loop {
        if measurement.phase() != Phase::Drain {
            for tag in free.drain(..) {
                places[tag as usize] = begin(&mut pool, tag, options, &mut random, now_ns)?;
            }
        } else if free.len() == places.len() {
            return Ok(recorder);
        }
        pool.flush(now_ns);
        pool.wait(None, now_ns)?;
        now_ns = monotonic_ns();
        pool.receive(now_ns, &mut |event| match event {
            PoolEvent::Message { tag, bytes, .. } => {
                places[tag as usize].is_right = is_right(options.method, bytes);
            }
            PoolEvent::Ended { tag, result, .. } => {
                let place = places[tag as usize];
                recorder.record(measurement.phase(), place.begun, outcome(place, result));
                free.push(tag);
            }
            PoolEvent::Head { .. } | PoolEvent::Writable { .. } => {}
        });
    }
}

fn begin(
    pool: &mut LocalPool,
    tag: u64,
    options: &Options,
    random: &mut Random,
    now_ns: u64,
) -> Result<Place, AnyError> {
    let begun = Instant::now();
    let call = PoolCall {
        path: match options.method {
            Method::Get => GET_PATH,
            Method::Ping => PING_PATH,
        },
        ..PoolCall::default()
    };
    pool.engine().begin(tag, &call, now_ns, |out| {
        if options.method == Method::Get {
            let key = key(random.below(options.keys));
            let request = GetRequest {
                key: &key,
                ..GetRequest::default()
            };
            request.encode(out);
        }
    })?;
    Ok(Place {
        begun,
        is_right: false,
    })
}

fn is_right(method: Method, bytes: &[u8]) -> bool {
    match method {
        Method::Get => GetResponse::decode(bytes).is_ok_and(|response| response.found),
        Method::Ping => true,
    }
}

fn outcome(place: Place, result: Result<&Status, CallError>) -> Result<(), String> {
    result.map_err(|error| error.to_string())?;
    let right = place.is_right.then_some(());
    right.ok_or("the key was not found".into())
}
