//! `pelton status`

use std::thread;
use std::time::{Duration, Instant};

use api::admin::{
    AcknowledgedStatistics, ReplicaStatistics, StatisticsRequest, StatisticsResponse,
};
use api::health::{HealthCheckRequest, ServingStatus};
use api::rpc::admin::Statistics;
use api::rpc::health::Check;
use client::typed::Reply;
use client::{CallError, Code};
use serde_json::{Map, Value};

use super::database::is_remote;
use super::{Caller, echo};
use crate::arguments::{ConnectionArguments, StatusArguments};
use crate::encoding::{encode_hex, escape};
use crate::exit::{Exit, Failure};
use crate::interrupt;
use crate::output::{Output, counted, object};
use crate::size::Size;

/// Calls from which the round trip is taken: the fastest, as the others say more about this
/// machine's scheduler.
const ROUND_TRIPS: usize = 5;

/// Asks a server whether it is ready, what it is, and, if the caller has a right, how far away, and
/// what it holds.
pub fn status(arguments: &StatusArguments) -> Result<Exit, Failure> {
    if let Some(wait) = arguments.wait {
        return wait_until_ready(&arguments.connection, Duration::from_millis(wait.ms));
    }
    let mut caller = Caller::connect(&arguments.connection)?;
    let serving = health(&mut caller)?;
    let server = greeting(&mut caller)?;
    let round_trip = told((0..ROUND_TRIPS).try_fold(Duration::MAX, |least, _| {
        echo::round_trip(&mut caller, b"").map(|time| least.min(time))
    }))?;
    let figures = figures(&mut caller)?;
    let figures = figures.as_ref().map(Reply::message);

    let word = word(serving);
    let mut output = Output::new(arguments.connection.output);
    if output.is_json() {
        let mut fields = object([
            ("address", caller.address.as_str().into()),
            ("status", word.into()),
            ("server", server.as_str().into()),
            (
                "round_trip_us",
                round_trip.map_or(Value::Null, |time| (time.as_nanos() as f64 / 1e3).into()),
            ),
        ]);
        if let Some(figures) = &figures {
            insert_figures(&mut fields, figures);
        }
        output.object(fields)?;
    } else {
        output.line(&format!("{} is {word}", caller.address))?;
        output.line(&format!("server: {server}"))?;
        output.line(&match round_trip {
            Some(time) => format!("round trip: {time:.1?}"),
            None => {
                "what it holds and the round trip are for callers with a right: --token-file FILE"
                    .to_owned()
            }
        })?;
        for line in figures.iter().flat_map(lines) {
            output.line(&line)?;
        }
    }
    output.end()?;
    Ok(if serving { Exit::Done } else { Exit::Miss })
}

/// How often a server that is waited for is asked.
const ASK_EVERY: Duration = Duration::from_millis(50);

/// Waits until a server is ready, and prints whether it is.
fn wait_until_ready(connection: &ConnectionArguments, wait: Duration) -> Result<Exit, Failure> {
    let begin = Instant::now();
    let address = connection.address.to_string();
    interrupt::say_at_signal(move || {
        let waited = begin.elapsed().as_secs_f64();
        format!("interrupted; waited for {waited:.1} s, and {address} was not ready")
    });
    let asked = loop {
        let left = wait.saturating_sub(begin.elapsed());
        let asked = ask_once(connection, left.max(ASK_EVERY));
        let is_settled = match &asked {
            Ok(serving) => *serving,
            Err(failure) => !failure.may_pass(),
        };
        if is_settled || begin.elapsed() >= wait {
            break asked;
        }
        thread::sleep(ASK_EVERY.min(wait.saturating_sub(begin.elapsed())));
    };
    let serving = asked.map_err(|failure| match failure.may_pass() {
        true => failure.with(&format!("waited for {:.1} s", wait.as_secs_f64())),
        false => failure,
    })?;
    let (address, word) = (connection.address.to_string(), word(serving));
    let mut output = Output::new(connection.output);
    output.either(&format!("{address} is {word}"), || {
        object([
            ("address", address.as_str().into()),
            ("status", word.into()),
        ])
    })?;
    output.end()?;
    Ok(if serving { Exit::Done } else { Exit::Miss })
}

fn ask_once(connection: &ConnectionArguments, left: Duration) -> Result<bool, Failure> {
    let mut connection = connection.clone();
    let left_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
    connection.timeout.ms = connection.timeout.ms.min(left_ms);
    // Health needs no token, and one that is not good says nothing of the server.
    health(&mut Caller::connect_as(&connection, None)?)
}

fn word(serving: bool) -> &'static str {
    if serving { "SERVING" } else { "NOT_SERVING" }
}

/// Whether the server as a whole is ready.
fn health(caller: &mut Caller) -> Result<bool, Failure> {
    let reply = caller.call::<Check>(&HealthCheckRequest::default())?;
    Ok(reply.message().status == ServingStatus::Serving.number())
}

/// What a call brought; `None` if callers like this one have no right to it.
fn told<T>(called: Result<T, Failure>) -> Result<Option<T>, Failure> {
    match called {
        Err(Failure::Call(call)) if call.status.is_some_and(is_without_right) => Ok(None),
        called => called.map(Some),
    }
}

/// Statuses of a server that does not tell callers like this one.
fn is_without_right(code: Code) -> bool {
    matches!(code, Code::PermissionDenied | Code::Unauthenticated)
}

/// What the server holds and has done; `None` if callers like this one have no right to know.
fn figures(caller: &mut Caller) -> Result<Option<Reply<Statistics>>, Failure> {
    match caller.try_call::<Statistics>(&StatisticsRequest {}) {
        Ok(reply) => Ok(Some(reply)),
        Err(CallError::Status(status)) if is_without_right(status.code()) => Ok(None),
        Err(error) => Err(caller.failure::<Statistics>(&error)),
    }
}

/// What is where: databases in this server have their entries in its memory, and sequences of its
/// history; those on a storage engine have neither.
fn database_lines(figures: &StatisticsResponse<'_>) -> Vec<String> {
    let databases = || figures.databases.iter().flatten();
    let count = figures.databases.len();
    let buffers = format!(
        "buffers: {} of {}",
        Size::rounded(figures.buffered_bytes),
        Size::rounded(figures.buffered_limit_bytes)
    );
    if databases().any(|one| one.database.as_ref().is_some_and(is_remote)) {
        return vec![format!(
            "databases: {count}, on a storage engine; {buffers}"
        )];
    }
    let entries: u64 = databases().map(|one| one.entries).sum();
    vec![
        format!(
            "databases: {count}; entries: {entries}; memory: {} of {}; {buffers}",
            Size::rounded(figures.memory_bytes),
            Size::rounded(figures.memory_limit_bytes),
        ),
        format!("history: {:016x}", api::history_id(figures.history_id)),
    ]
}

fn lines(figures: &StatisticsResponse<'_>) -> Vec<String> {
    let mut lines = vec![format!(
        "running: {:.1?}; open connections: {}",
        Duration::from_millis(figures.uptime_ms),
        figures.open_connections
    )];
    lines.extend(database_lines(figures));
    lines.extend(blobs(figures));
    if let Some(replica) = &figures.replica {
        lines.push(replica_line(replica));
    }
    lines.extend(epoch_line(figures));
    if figures.followers > 0 {
        let followers = counted(figures.followers, "server follows", "servers follow");
        lines.push(format!("{followers} this one"));
    }
    lines.extend(figures.acknowledged.iter().flat_map(acknowledged_lines));
    if let Some(log) = &figures.log {
        lines.push(format!(
            "log: {} in {}; durable up to sequence {}; since the start {} in {}, {}",
            Size::rounded(log.segment_bytes),
            counted(log.segments, "segment", "segments"),
            log.durable_sequence,
            counted(log.records, "record", "records"),
            counted(log.groups, "group", "groups"),
            counted(log.syncs, "sync", "syncs")
        ));
        if log.full {
            lines.push(
                "no space or no inodes are left on the disk: writes that grow are refused until \
                 there is room for the next file of the log, --log-segment bytes"
                    .into(),
            );
        }
        if log.failed {
            lines.push("the log has failed: writes are refused until a restart".into());
        }
    }
    lines
}

/// What there is of blobs, where there is something.
fn blobs(figures: &StatisticsResponse<'_>) -> Option<String> {
    let used = BlobTotals::of(figures);
    let quota = match figures.blob_quota_bytes {
        0 => String::new(),
        bytes => format!("; quota of each database: {}", Size::rounded(bytes)),
    };
    let is_shown = figures.blob_quota_bytes > 0 || used.blobs + used.bytes + used.unfinished > 0;
    is_shown.then(|| {
        format!(
            "blobs: {} with {}; unfinished uploads: {}{quota}",
            used.blobs,
            Size::rounded(used.bytes),
            used.unfinished
        )
    })
}

/// Of all databases together.
#[derive(Default)]
struct BlobTotals {
    blobs: u64,
    bytes: u64,
    unfinished: u64,
}

impl BlobTotals {
    fn of(figures: &StatisticsResponse<'_>) -> BlobTotals {
        let mut totals = BlobTotals::default();
        for database in figures.databases.iter().flatten() {
            totals.blobs += database.blobs;
            totals.bytes += database.blob_bytes;
            totals.unfinished += database.unfinished_uploads;
        }
        totals
    }
}

fn insert_figures(fields: &mut Map<String, Value>, figures: &StatisticsResponse<'_>) {
    fields.extend(object([
        ("uptime_ms", figures.uptime_ms.into()),
        ("open_connections", figures.open_connections.into()),
        ("running_calls", figures.running_calls.into()),
        ("databases", figures.databases.len().into()),
        ("memory_bytes", figures.memory_bytes.into()),
        ("memory_limit_bytes", figures.memory_limit_bytes.into()),
        ("buffered_bytes", figures.buffered_bytes.into()),
        ("buffered_limit_bytes", figures.buffered_limit_bytes.into()),
        (
            "history_id",
            format!("{:016x}", api::history_id(figures.history_id)).into(),
        ),
    ]));
    let used = BlobTotals::of(figures);
    fields.extend(object([
        ("blobs", used.blobs.into()),
        ("blob_bytes", used.bytes.into()),
        ("unfinished_uploads", used.unfinished.into()),
        ("blob_quota_bytes", figures.blob_quota_bytes.into()),
    ]));
    let log = figures.log.map(|log| {
        Value::Object(object([
            ("segment_bytes", log.segment_bytes.into()),
            ("segments", log.segments.into()),
            ("written_sequence", log.written_sequence.into()),
            ("durable_sequence", log.durable_sequence.into()),
            ("groups", log.groups.into()),
            ("records", log.records.into()),
            ("syncs", log.syncs.into()),
            ("full", log.full.into()),
            ("failed", log.failed.into()),
        ]))
    });
    fields.insert("log".into(), log.unwrap_or_default());
    let replica = figures.replica.map(|replica| {
        Value::Object(object([
            ("leader", replica.leader.into()),
            ("connected", replica.connected.into()),
            ("sequence", replica.sequence.into()),
            ("leader_sequence", replica.leader_sequence.into()),
            ("lag_ms", replica.lag_ms.into()),
            ("problem", replica.problem.into()),
            ("blocked", replica.blocked.into()),
        ]))
    });
    fields.insert("replica".into(), replica.unwrap_or_default());
    fields.extend(epoch_fields(figures));
    fields.insert("followers".into(), figures.followers.into());
    let acknowledged = figures.acknowledged.as_ref().map(|acknowledged| {
        let followers = acknowledged.followers.iter().flatten().map(|follower| {
            Value::Object(object([
                ("replica_id", encode_hex(follower.replica_id).into()),
                ("sequence", follower.sequence.into()),
            ]))
        });
        let absent = acknowledged.absent.iter().map_while(Result::ok);
        let absent = absent.map(|id| Value::from(encode_hex(id)));
        Value::Object(object([
            ("required", acknowledged.required.into()),
            ("sequence", acknowledged.sequence.into()),
            ("late", acknowledged.late.into()),
            ("followers", Value::Array(followers.collect())),
            ("absent", Value::Array(absent.collect())),
        ]))
    });
    fields.insert("acknowledged".into(), acknowledged.unwrap_or_default());
}

/// The first line of what the server says of itself over plain HTTP/2.
fn greeting(caller: &mut Caller) -> Result<String, Failure> {
    let options = caller.options();
    let answer = caller
        .channel
        .http_get("/", &options)
        .map_err(|error| super::late_failure(&caller.address, caller.timeout, "GET /", &error))?;
    let line = answer
        .body
        .split(|&byte| byte == b'\n')
        .next()
        .unwrap_or_default();
    Ok(escape(line))
}

fn epoch_fields(figures: &StatisticsResponse<'_>) -> Map<String, Value> {
    object([
        ("role", role(figures).into()),
        ("epoch", figures.epoch.into()),
        ("higher_epoch", figures.higher_epoch.into()),
        ("new_leader", figures.new_leader.into()),
    ])
}

/// What a server is among those that have the same data.
fn role(figures: &StatisticsResponse<'_>) -> &'static str {
    match (&figures.replica, figures.higher_epoch) {
        (Some(_), _) => "replica",
        (None, 0) => "leader",
        (None, _) => "superseded",
    }
}

/// Says in which epoch a server is, where somebody was promoted.
fn epoch_line(figures: &StatisticsResponse<'_>) -> Option<String> {
    let StatisticsResponse {
        epoch,
        higher_epoch,
        new_leader,
        ..
    } = *figures;
    if higher_epoch > 0 {
        let place = match new_leader {
            "" => String::new(),
            address => format!(" ({address})"),
        };
        return Some(format!(
            "SUPERSEDED: a replica was promoted in epoch {higher_epoch}{place}, and this server, \
             which is in epoch {epoch}, takes no writes"
        ));
    }
    (epoch > 1).then(|| format!("epoch {epoch}, as {}", role(figures)))
}

/// Says what followers hold.
fn acknowledged_lines(acknowledged: &AcknowledgedStatistics<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    if acknowledged.required > 0 {
        let words = match (acknowledged.late, acknowledged.sequence) {
            (true, _) => "too few have what was written, and writes are refused".into(),
            (false, 0) => "too few are here, and writes wait".into(),
            (false, sequence) => format!("so many have everything up to sequence {sequence}"),
        };
        lines.push(format!(
            "replicas that must have a write: {}; {words}",
            acknowledged.required
        ));
    }
    lines.extend((acknowledged.followers.iter().flatten()).map(|follower| {
        let id = encode_hex(follower.replica_id);
        format!(
            "replica {id} has everything up to sequence {}",
            follower.sequence
        )
    }));
    lines.extend(
        (acknowledged.absent.iter().map_while(Result::ok)).map(|id| {
            format!(
                "replica {} counts and is not connected; if it is lost for good: pelton \
             forget-replicas",
                encode_hex(id)
            )
        }),
    );
    lines
}

/// Says whom a replica follows, and how far behind it is.
fn replica_line(replica: &ReplicaStatistics<'_>) -> String {
    let ReplicaStatistics {
        leader,
        sequence,
        leader_sequence,
        lag_ms,
        problem,
        ..
    } = *replica;
    let behind = leader_sequence.saturating_sub(sequence);
    match (replica.connected, behind) {
        (true, 0) => format!("replica of {leader}: has everything up to sequence {sequence}"),
        (true, behind) => format!(
            "replica of {leader}: has everything up to sequence {sequence}, {behind} sequences and \
             {lag_ms} ms behind"
        ),
        (false, _) => {
            let state = match replica.blocked {
                true => "BLOCKED by its own log, disk or memory",
                false => "NOT CONNECTED",
            };
            format!(
                "replica of {leader}: {state}, has everything up to sequence {sequence}: {problem}"
            )
        }
    }
}
