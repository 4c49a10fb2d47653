//! Clients and a server over a simulated network, in one thread, from one seed.
//!
//! Each round is a world of its own: a server, some nodes with clients that ask for everything at once, a network that
//! splits, delays, stalls and cuts. Every answer is held against a model. A failure prints the seed of its round;
//! `PELTON_SEED=<seed> PELTON_SIM_ROUNDS=1 cargo test -p pelton-server --test simulation` brings it back.
//! `PELTON_SIM_ROUNDS` makes the run longer or shorter.

mod check;
mod client;
mod history;
mod keys;
mod lies;
mod messages;
mod round;
mod timelines;
mod world;

use drive::sim::FaultCounts;
use round::{Plan, Report, run};
use world::{Counts, Manners};

/// Rounds of a usual run: together a million operations, and a thousand of each fault.
const ROUNDS: u64 = 20;

/// Calls of one round: what the checks keep of them fits into memory easily.
const CALLS: u64 = 34_000;

fn from_environment(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(
        value
            .parse()
            .unwrap_or_else(|_| panic!("{name} is {value}, which is no number")),
    )
}

/// Says which seed to take when a round panics.
struct SayOnPanic(u64);

impl Drop for SayOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "to repeat this round: PELTON_SEED={} PELTON_SIM_ROUNDS=1",
                self.0
            );
        }
    }
}

/// Odd seeds are cut, even ones only disturbed.
fn plan(seed: u64, calls: u64) -> Plan {
    let manners = if seed.is_multiple_of(2) {
        Manners::Polite
    } else {
        Manners::Rude
    };
    Plan {
        seed,
        manners,
        calls,
    }
}

#[test]
fn every_answer_is_right_whatever_the_network_does() {
    let first_seed = from_environment("PELTON_SEED").unwrap_or(1);
    let rounds = from_environment("PELTON_SIM_ROUNDS").unwrap_or(ROUNDS);
    let (mut counts, mut faults) = (Counts::default(), FaultCounts::default());
    for seed in first_seed..first_seed + rounds {
        let _say = SayOnPanic(seed);
        let report = run(&plan(seed, CALLS));
        counts.add(&report.counts);
        add_faults(&mut faults, &report.faults);
    }
    println!(
        "seeds {first_seed} to {}: {counts:?}, {faults:?}",
        first_seed + rounds - 1
    );
    if rounds >= ROUNDS {
        assert!(counts.operations >= 1_000_000, "{counts:?}");
        let each = [
            faults.splits,
            faults.short_writes,
            faults.short_reads,
            faults.reorderings,
            faults.stalls,
            faults.cuts,
            faults.resets,
            faults.pauses,
            faults.full_buffers,
        ];
        assert!(each.iter().all(|count| *count >= 1_000), "{faults:?}");
        let each = [
            counts.deadlines,
            counts.cancelled,
            counts.lost,
            counts.connections,
            counts.pauses,
        ];
        assert!(each.iter().all(|count| *count >= 1_000), "{counts:?}");
        assert!(
            counts.large_values >= 100 && counts.long_scans >= 100 && counts.refused >= 100,
            "{counts:?}"
        );
    }
}

fn add_faults(sum: &mut FaultCounts, other: &FaultCounts) {
    sum.splits += other.splits;
    sum.short_writes += other.short_writes;
    sum.short_reads += other.short_reads;
    sum.reorderings += other.reorderings;
    sum.stalls += other.stalls;
    sum.cuts += other.cuts;
    sum.resets += other.resets;
    sum.pauses += other.pauses;
    sum.full_buffers += other.full_buffers;
    sum.bytes += other.bytes;
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in [2, 3] {
        let _say = SayOnPanic(seed);
        let [one, other]: [Report; 2] = std::array::from_fn(|_| run(&plan(seed, 2_000)));
        assert_eq!(one, other);
        assert_ne!(one.trace, run(&plan(seed + 2, 2_000)).trace);
    }
}
