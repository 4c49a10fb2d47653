//! What a loss of power, or an error, at any step leaves.

use std::collections::BTreeMap;

use store::{Condition, DatabaseId};
use testkit::Random;
use wal::disk::{Fault, Step as DiskStep};

use super::{Bench, DATABASE, begin, chunk, config, content, end_of, text};

/// What a user of blobs does.
#[derive(Clone, Debug)]
enum Step {
    Put {
        name: usize,
        seed: u64,
        bytes: usize,
    },
    Delete {
        name: usize,
    },
    /// A part of an upload that is gone on with.
    Part {
        bytes: usize,
    },
    /// The end of it.
    Complete,
}

fn steps(seed: u64, count: usize) -> Vec<Step> {
    let mut random = Random::new(seed);
    let mut step = || match random.below(6) {
        0 => Step::Delete {
            name: random.below(3),
        },
        1 | 2 => Step::Part {
            bytes: random.below(150_000),
        },
        3 => Step::Complete,
        _ => Step::Put {
            name: random.below(3),
            seed: random.number(),
            bytes: random.pick(&[0, 1, 4_000, 65_536, 140_000]),
        },
    };
    (0..count).map(|_| step()).collect()
}

/// What must be visible under each name, and what may be if the last step was not answered.
#[derive(Clone, Debug, Default)]
struct Expected {
    blobs: BTreeMap<String, Vec<u8>>,
    /// What the unfinished upload has sent, and how much of it a stream has left durable.
    sent: Vec<u8>,
    safe_bytes: usize,
}

/// All that the resumed upload sends, if it came so far.
fn resumed_content() -> Vec<u8> {
    content(77, 2_000_000)
}

/// Does steps until one fails. Returns what was before that one, and would have been after it.
fn run(bench: &mut Bench, steps: &[Step]) -> (Expected, Expected, bool) {
    let whole = resumed_content();
    let mut before = Expected::default();
    for step in steps {
        let mut after = before.clone();
        let done = match step {
            Step::Put { name, seed, bytes } => {
                let (name, data) = (format!("n{name}"), content(*seed, *bytes));
                after.blobs.insert(name.clone(), data.clone());
                bench.upload(&name, &data, 30_000).map(drop)
            }
            Step::Delete { name } => {
                after.blobs.remove(&format!("n{name}"));
                bench.delete(&format!("n{name}")).map(drop)
            }
            Step::Part { bytes } => {
                let offset = after.sent.len();
                let part = &whole[offset..(offset + bytes).min(whole.len())];
                after.sent.extend_from_slice(part);
                after.safe_bytes = after.sent.len();
                send_part(bench, offset as u64, part)
            }
            Step::Complete => {
                let data = std::mem::take(&mut after.sent);
                after.safe_bytes = 0;
                after.blobs.insert("resumed".into(), data.clone());
                complete(bench, &data)
            }
        };
        if done.is_err() {
            return (before, after, false);
        }
        before = after;
    }
    (before.clone(), before, true)
}

fn send_part(bench: &mut Bench, offset: u64, part: &[u8]) -> Result<(), String> {
    let upload = bench.start(&begin("resumed", "id", offset)).map_err(text)?;
    for data in part.chunks(20_000) {
        upload.write(data, &[chunk(data)], 1_000).map_err(text)?;
    }
    drop(upload);
    // The stream's end makes it durable; if that failed, it is gone.
    match bench.blobs().stored_bytes(DATABASE, "resumed", b"id") {
        Some(stored) if stored == offset + part.len() as u64 => Ok(()),
        Some(_) => Err("there was no room to mark it".into()),
        None => Err("it was thrown away".into()),
    }
}

fn complete(bench: &mut Bench, data: &[u8]) -> Result<(), String> {
    let upload = bench
        .start(&begin("resumed", "id", data.len() as u64))
        .map_err(text)?;
    let sealed = upload.finish(&end_of(data), 2_000).map_err(text)?;
    bench.describe("resumed", sealed, Condition::None).map(drop)
}

/// What is there after a start must be one of both; returns whether the unanswered step happened.
fn check(bench: &mut Bench, before: &Expected, after: &Expected, may_be_gone: bool, what: &str) {
    for name in ["n0", "n1", "n2", "resumed"] {
        let found = bench.read(name);
        let allowed = [before.blobs.get(name), after.blobs.get(name)];
        assert!(
            allowed.contains(&found.as_ref()),
            "{what}: {name} has {:?} bytes",
            found.map(|found| found.len())
        );
    }
    // What was sent and stored goes on, and comes to what was sent.
    let whole = resumed_content();
    if let Some(stored) = bench.blobs().stored_bytes(DATABASE, "resumed", b"id") {
        let stored = stored as usize;
        assert!(
            (may_be_gone || stored >= before.safe_bytes.min(after.safe_bytes))
                && stored <= after.sent.len().max(before.sent.len()),
            "{what}: {stored} bytes are stored of {} safe ones",
            before.safe_bytes
        );
        let end = (stored + 70_000).min(whole.len());
        send_part(bench, stored as u64, &whole[stored..end]).expect("nothing fails now");
        complete(bench, &whole[..end]).expect("nothing fails now");
        assert_eq!(
            bench.read("resumed").as_deref(),
            Some(&whole[..end]),
            "{what}"
        );
    } else {
        let is_completing = after.sent.is_empty();
        let may_be_gone = may_be_gone
            || is_completing
            || before.sent.is_empty()
            || after.sent.is_empty()
            || before.safe_bytes == 0;
        assert!(may_be_gone, "{what}: an upload is lost");
    }
}

fn at_every_step(fault: Fault, seed: u64, count: usize, stride: usize) {
    let steps = steps(seed, count);
    let clean = testkit::simulated_disk(seed);
    let mut bench = Bench::open(config(), &clean).expect("it is empty");
    let first = clean.step_count();
    assert!(run(&mut bench, &steps).2, "nothing fails without faults");
    let last = clean.step_count();
    drop(bench);
    let mut failed = 0;
    for at in (first..last).step_by(stride) {
        let what = format!("seed {seed}, {fault:?} at step {at}");
        // A failed sync takes an upload, and so does a failed write, unless there was only no room
        // for it.
        let may_be_gone = match fault {
            Fault::Full => clean.steps()[at] != DiskStep::Write,
            _ => fault == Fault::Error,
        };
        let disk = testkit::simulated_disk(seed ^ (at as u64) << 20);
        let mut bench = Bench::open(config(), &disk).expect("it is empty");
        disk.plan(at, fault);
        let (before, after, _) = run(&mut bench, &steps);
        failed += 1;
        disk.lose_power();
        drop(bench);
        disk.forget_plans();
        let mut bench =
            Bench::open(config(), &disk).unwrap_or_else(|error| panic!("{what}: {error}"));
        check(&mut bench, &before, &after, may_be_gone, &what);
        // Every file has a description, or can be gone on with.
        let used = bench.blobs().statistics().used;
        let described = bench.files(&disk).len() as u64 - used.unfinished;
        let view = bench
            .durable
            .store
            .view(DatabaseId::BLOBS)
            .expect("it is always there");
        assert_eq!(view.statistics().entries, described, "{what}");
        assert_eq!(used.blobs, described, "{what}");
    }
    assert!(failed > 0);
}

#[test]
fn a_loss_of_power_at_any_step_takes_no_blob_and_completes_none() {
    for seed in 0..4 {
        at_every_step(Fault::PowerLoss, seed, 14, 1);
    }
}

#[test]
fn a_failed_step_takes_no_blob_that_was_answered() {
    at_every_step(Fault::Error, 11, 14, 1);
}

#[test]
fn a_full_disk_at_any_step_takes_no_blob_and_nothing_that_was_stored() {
    for seed in 0..4 {
        at_every_step(Fault::Full, seed, 14, 1);
    }
}
