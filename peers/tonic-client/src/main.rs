//! A client of tonic in a closed loop, on one thread: see peers/README.md for its flags and its
//! line of JSON.
//!
//! A task for each call in flight, and generated clients: the way of tonic's documentation. No call
//! has a deadline.

use std::process::ExitCode;
use std::rc::Rc;
use std::time::Instant;

use closed_loop::{Measurement, Method, Options, Phase, Random, Recorder, key};
use tokio::task::{JoinSet, LocalSet};
use tonic::transport::{Channel, Endpoint};

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

/// Keeps one call in flight.
async fn place(measurement: Rc<Measurement>, mut caller: Caller, mut random: Random) -> Recorder {
    let mut recorder = Recorder::default();
    while measurement.phase() != Phase::Drain {
        let begun = Instant::now();
        let outcome = caller.call(&mut random).await;
        recorder.record(measurement.phase(), begun, outcome);
    }
    recorder
}

async fn run(options: Options) -> Result<bool, AnyError> {
    let channels = connect(&options).await?;
    let measurement = Rc::new(Measurement::default());
    let mut places = JoinSet::new();
    for number in 0..options.in_flight {
        let caller = Caller::new(channels[number % channels.len()].clone(), &options);
        let random = Random::new(number as u64 + 1);
        places.spawn_local(place(Rc::clone(&measurement), caller, random));
    }
    tokio::time::sleep(options.warm_up).await;
    let begin = measurement.begin(&options)?;
    tokio::time::sleep(options.duration).await;
    let period = measurement.end(&options, &begin)?;
    let mut recorder = Recorder::default();
    while let Some(ended) = places.join_next().await {
        recorder.add(ended?);
    }
    let client = concat!("tonic ", env!("TONIC_VERSION"));
    Ok(recorder.print(client, &options, &period))
}

fn main() -> ExitCode {
    let outcome = closed_loop::parse()
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
