//! A tour of Pelton's API from Rust. docs/rust.md explains it, and says how to run it.

use std::env;
use std::error::Error;
use std::thread;
use std::time::{Duration, Instant};

use client::api::echo::EchoRequest;
use client::api::rpc::echo::Unary;
use client::typed::operation::{exists, get, increment, put, value_is};
use client::typed::{Admin, DurabilityMode, Futures, KeyValue, OperationOutcome};
use client::{CallError, CallOptions, LocalPoolOptions, PoolCall, PoolOptions, SharedPool};

/// Nothing, or what went wrong.
type Done = Result<(), Box<dyn Error>>;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn values(kv: &mut KeyValue<'_, SharedPool>) -> Done {
    kv.put(b"greeting", b"hello").send()?;
    if let Some(stored) = kv.get(b"greeting").send()? {
        println!("greeting is {}", text(&stored.value));
    }
    if kv.get(b"nobody").send()?.is_none() {
        println!("nobody is not there");
    }
    Ok(())
}

fn conditions(kv: &mut KeyValue<'_, SharedPool>) -> Done {
    // Only if there is no such key.
    let claim = kv.put(b"leader", b"alice").if_absent().send()?;
    if claim.applied {
        println!("alice leads");
    }
    // Only if nobody has written since.
    for name in ["bob", "eve"] {
        let write = kv.put(b"leader", name.as_bytes()).if_version(claim.version);
        if !write.send()?.applied {
            println!("{name} is too late");
        }
    }
    Ok(())
}

fn numbers(kv: &mut KeyValue<'_, SharedPool>) -> Done {
    let mut visits = 0;
    for _ in 0..3 {
        visits = kv.increment(b"visits", 1).send()?.value;
    }
    println!("visits: {visits}");
    if let Some(refusal) = kv.increment(b"greeting", 1).send()?.refusal {
        println!("greeting: {refusal:?}");
    }
    Ok(())
}

fn batch(kv: &mut KeyValue<'_, SharedPool>) -> Done {
    let cities = [
        put(b"city/oslo", b"709000").into(),
        put(b"city/paris", b"2100000").into(),
        put(b"city/rome", b"2800000").into(),
    ];
    println!("{} cities stored", kv.batch(&cities).send()?.results.len());

    // All or nothing: the second operation fails, so the first one is not done either.
    let more = [
        put(b"city/bonn", b"336000").into(),
        put(b"city/rome", b"0").if_absent().into(),
    ];
    if let Some(failed) = kv.batch(&more).send()?.failed {
        println!("nothing was done, because of operation {}", failed.index);
    }
    Ok(())
}

fn transact(kv: &mut KeyValue<'_, SharedPool>) -> Done {
    let comparisons = [value_is(b"leader", b"bob"), exists(b"election", false)];
    let when_met = [
        put(b"leader", b"carol").into(),
        increment(b"term", 1).into(),
    ];
    let when_unmet = [get(b"leader").into()];
    for _ in 0..2 {
        let transaction = kv.transact(&comparisons, &when_met).otherwise(&when_unmet);
        let outcome = transaction.send()?;
        match (outcome.unmet_comparison, outcome.batch.results.last()) {
            (None, Some(OperationOutcome::Increment(term))) => {
                println!("carol leads in term {}", term.value);
            }
            (Some(unmet), Some(OperationOutcome::Get(Some(leader)))) => {
                println!(
                    "comparison {unmet} was not met: {} leads",
                    text(&leader.value)
                );
            }
            other => println!("what is this? {other:?}"),
        }
    }
    Ok(())
}

fn ranges(kv: &mut KeyValue<'_, SharedPool>) -> Done {
    for entry in kv.scan().prefix(b"city/").send()?.entries() {
        let entry = entry?;
        println!("{} {}", text(&entry.key), text(&entry.stored.value));
    }
    // The last key below `city/paris`, without its value.
    let below = kv
        .scan()
        .range(b"city/", b"city/paris")
        .backward()
        .limit(1)
        .keys_only();
    for entry in below.send()?.entries() {
        println!("before paris: {}", text(&entry?.key));
    }
    println!("{} cities", kv.count().prefix(b"city/").send()?.count);
    Ok(())
}

fn watch(pool: &mut SharedPool) -> Done {
    let mut writer = pool.clone();
    let mut changes = KeyValue::new(pool).watch().prefix(b"city/").send()?;
    // The first response comes at once: what is written from now on is seen.
    changes.next_response()?;
    KeyValue::new(&mut writer).delete(b"city/oslo").send()?;
    while let Some(response) = changes.next_response()? {
        for change in response.commits.iter().flat_map(|commit| &commit.changes) {
            println!("watched: {:?} {}", change.kind, text(&change.entry.key));
            // Who drops the stream ends the call.
            return Ok(());
        }
    }
    Ok(())
}

fn pipe(kv: &mut KeyValue<'_, SharedPool>) -> Done {
    let (mut sender, mut receiver) = kv.pipe().independent().failures_only().send();
    let mut done = 0;
    thread::scope(|scope| {
        // Sends on its own, while the outcomes are taken below.
        scope.spawn(move || {
            for batch in 0..10 {
                let keys: Vec<_> = (0..1000)
                    .map(|row| format!("row/{batch}{row:03}"))
                    .collect();
                let puts = keys.iter().map(|key| put(key.as_bytes(), b"...").into());
                if sender.send(&puts.collect::<Vec<_>>()).is_err() {
                    return; // why, the receiver says
                }
            }
            sender.finish();
        });
        while let Some(outcome) = receiver.next_outcome()? {
            done = outcome.done;
            if let Some(number) = outcome.batch_number {
                println!("batch {number} failed: {:?}", outcome.refused);
            }
        }
        Ok::<(), CallError>(())
    })?;
    println!("{done} batches are done");
    Ok(())
}

fn futures(pool: &SharedPool) -> Done {
    let mut futures = Futures::new(pool);
    let mut kv = KeyValue::new(&mut futures);
    // Both are under way before one is waited for.
    let (paris, rome) = (kv.get(b"city/paris").send(), kv.get(b"city/rome").send());
    pollster::block_on(async {
        let both = [paris.await?, rome.await?];
        println!("{} cities at once", both.iter().flatten().count());
        Ok(())
    })
}

fn time_to_live(kv: &mut KeyValue<'_, SharedPool>) -> Done {
    let session = kv
        .put(b"session", b"...")
        .time_to_live(Duration::from_millis(200));
    session.send()?;
    if let Some(stored) = kv.get(b"session").send()?
        && stored.expires_at_ms.is_some()
    {
        println!("the session expires");
    }
    while kv.get(b"session").send()?.is_some() {
        thread::sleep(Duration::from_millis(50));
    }
    println!("the session is gone");
    Ok(())
}

fn databases(pool: &mut SharedPool) -> Done {
    let mut admin = Admin::new(pool);
    let orders = admin
        .create_database("orders")
        .durability(DurabilityMode::Volatile);
    orders.quota_bytes(1 << 20).send()?;
    KeyValue::of(pool, "orders").put(b"1", b"...").send()?;
    let list = Admin::new(pool).list_databases().send()?;
    for found in list.message().databases.iter() {
        let found = found?;
        if found
            .database
            .is_some_and(|database| database.name == "orders")
        {
            println!("orders: {} entry", found.entries);
        }
    }
    // It is confirmed, because there is something in it.
    Admin::new(pool).drop_database("orders").confirm().send()?;
    Ok(())
}

fn deadlines(pool: &SharedPool) -> Done {
    // A method that has no function of its own is called with its messages.
    let request = EchoRequest {
        delay_ms: 10_000,
        ..EchoRequest::default()
    };
    let deadline = Some(Instant::now() + Duration::from_millis(100));
    let options = CallOptions {
        deadline,
        ..CallOptions::default()
    };
    if let Err(error) = pool.call::<Unary>(&request, &options) {
        println!("no answer in 100 ms: {error}");
    }
    Ok(())
}

/// Whether the server may have done what was asked for.
fn outcome(error: &CallError) -> &'static str {
    match error.may_have_happened() {
        true => "perhaps it was done",
        false => "nothing was done",
    }
}

fn failures(pool: &mut SharedPool) -> Done {
    let wrong = [
        KeyValue::of(pool, "nowhere").put(b"a", b"1").send(),
        KeyValue::new(pool).put(&[b'a'; 70_000], b"1").send(),
        KeyValue::new(pool)
            .put(b"a", b"1")
            .timeout(Duration::ZERO)
            .send(),
    ];
    for error in wrong.into_iter().filter_map(Result::err) {
        match &error {
            CallError::Status(status) => println!("{:?}: {}", status.code(), outcome(&error)),
            other => println!("{other}: {}", outcome(other)),
        }
    }
    Ok(())
}

/// Calls a service of which this crate has no messages: a path, and bytes both ways.
fn health(pool: &SharedPool) -> Done {
    let check = PoolCall {
        path: "/grpc.health.v1.Health/Check",
        ..PoolCall::default()
    };
    // SERVING, as the message of that service says it.
    println!("serves: {}", pool.unary(&check, b"")? == [8, 1]);
    Ok(())
}

fn main() -> Done {
    let address = env::var("PELTON_ADDRESS").unwrap_or_else(|_| "127.0.0.1:1978".into());
    let options = LocalPoolOptions {
        pool: PoolOptions {
            // No call waits longer than this, whatever happens.
            default_timeout: Some(Duration::from_secs(20)),
            ..PoolOptions::default()
        },
        ..LocalPoolOptions::default()
    };
    // The number is for the jitter of pauses: another one for each process.
    let seed = std::process::id().into();
    let mut pool = SharedPool::new(&[address.parse()?], options, seed)?;

    let mut clone = pool.clone();
    let mut kv = KeyValue::new(&mut clone);
    for step in [
        values,
        conditions,
        numbers,
        batch,
        transact,
        ranges,
        pipe,
        time_to_live,
    ] {
        step(&mut kv)?;
    }
    watch(&mut pool)?;
    futures(&pool)?;
    databases(&mut pool)?;
    deadlines(&pool)?;
    failures(&mut pool)?;
    health(&pool)?;
    let statistics = pool.statistics();
    println!("{} calls are in flight", statistics.in_flight);
    Ok(())
}
