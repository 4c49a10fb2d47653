//! Clients and a server over a simulated network, in one thread, from one seed.
//!
//! Each round is a world of its own: a server, some nodes with clients that ask for everything at
//! once, a network that splits, delays, stalls and cuts. In most of them the server has a log on a
//! simulated disk, and dies again and again, with and without what it had not synced. Every
//! response is compared with a model. A failure prints the command that repeats its round. How to
//! run more, and what is covered: docs/internals/simulation.md.

mod blobs;
mod call;
mod catalogue;
mod check;
mod choose;
mod client;
mod counts;
mod databases;
mod durable;
mod expiry;
mod facts;
mod fate;
mod framed_socket;
mod history;
mod keys;
mod lies;
mod lives;
mod machine;
mod messages;
mod reading_pause;
mod round;
mod socket;
mod states;
mod time;
mod timelines;
mod tokens;
mod values;
mod world;

use std::thread;

use net::sim::FaultCounts;
use wal::disk::DiskFaultCounts;

use counts::Counts;
use round::{Plan, Report, run};
use world::Manners;

/// Rounds of a usual run in which the server never dies.
const STEADY_ROUNDS: u64 = 20;

/// Calls of one of them: what the checks keep of them fits into memory easily.
const STEADY_CALLS: u64 = 34_000;

/// Rounds of a usual run in which it dies: together a million operations, and a thousand of
/// each fault.
const DYING_ROUNDS: u64 = 152;

/// Calls of one of them: more would only make the log longer that each start reads.
const DYING_CALLS: u64 = 4_000;

fn from_environment(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(
        value
            .parse()
            .unwrap_or_else(|_| panic!("{name} is {value}, which is no number")),
    )
}

/// Says how to repeat a round that panics.
struct SayOnPanic(u64, &'static str);

impl Drop for SayOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let SayOnPanic(seed, test) = self;
            eprintln!(
                "to repeat this round: PELTON_SEED={seed} PELTON_SIM_ROUNDS=1 \
                 cargo test -p pelton-server --test simulation {test}"
            );
        }
    }
}

/// Odd seeds are cut, even ones only disturbed.
fn plan(seed: u64, calls: u64, dies: bool) -> Plan {
    let manners = if seed.is_multiple_of(2) {
        Manners::Polite
    } else {
        Manners::Rude
    };
    Plan {
        seed,
        manners,
        calls,
        dies,
    }
}

/// All that happened in some rounds.
#[derive(Debug, Default)]
struct Sum {
    counts: Counts,
    network: FaultCounts,
    disk: DiskFaultCounts,
    lives: u64,
    full: u64,
    not_ready: u64,
    room_again: u64,
    snapshots: u64,
    snapshots_cut: u64,
}

impl Sum {
    fn add(&mut self, report: &Report) {
        self.add_sum(&Sum {
            counts: report.counts,
            network: report.faults,
            disk: report.disk,
            lives: report.lives,
            full: report.full,
            not_ready: report.not_ready,
            room_again: report.room_again,
            snapshots: report.snapshots,
            snapshots_cut: report.snapshots_cut,
        });
    }

    fn add_sum(&mut self, other: &Sum) {
        self.counts.add(&other.counts);
        self.network.add(&other.network);
        self.disk.add(&other.disk);
        self.lives += other.lives;
        self.full += other.full;
        self.not_ready += other.not_ready;
        self.room_again += other.room_again;
        self.snapshots += other.snapshots;
        self.snapshots_cut += other.snapshots_cut;
    }

    /// Enough operations, and a thousand of each fault that the network has.
    fn assert_network(&self) {
        let Sum {
            counts, network, ..
        } = self;
        let each = [
            network.splits,
            network.short_writes,
            network.short_reads,
            network.reorderings,
            network.stalls,
            network.cuts,
            network.resets,
            network.pauses,
            network.full_buffers,
            counts.deadlines,
            counts.cancelled,
            counts.lost,
            counts.framed,
            counts.connections,
            counts.pauses,
        ];
        assert!(each.iter().all(|count| *count >= 1_000), "{self:?}");
        assert!(
            counts.large_values >= 100 && counts.refused >= 100,
            "{self:?}"
        );
    }

    /// A thousand of each fault that a disk and a machine have.
    fn assert_disk(&self) {
        let Sum { counts, disk, .. } = self;
        let each = [
            disk.power_losses,
            disk.kills,
            disk.lost_writes,
            disk.torn_writes,
            disk.failed_writes,
            disk.failed_syncs,
            disk.full_writes,
            self.full,
            counts.pipes,
            counts.acknowledged,
            counts.transacts,
            counts.refused_full,
            counts.refused_failed,
        ];
        assert!(each.iter().all(|count| *count >= 1_000), "{self:?}");
        let each = [
            counts.created,
            counts.dropped,
            counts.no_database,
            self.room_again,
            self.snapshots,
            self.snapshots_cut,
        ];
        assert!(each.iter().all(|count| *count >= 100), "{self:?}");
        let each = [
            self.not_ready,
            disk.failed_opens,
            disk.failed_reads,
            disk.short_reads,
            disk.failed_lists,
            disk.failed_creates,
            disk.failed_renames,
            disk.failed_removes,
            disk.failed_folder_syncs,
            disk.no_descriptors,
        ];
        assert!(each.iter().all(|count| *count >= 30), "{self:?}");
    }
}

/// Runs rounds, as many as the environment says, or the usual number; returns whether these were at
/// least as many. Each is one thread's; two go on at a time.
fn run_rounds(usual: u64, calls: u64, dies: bool, test: &'static str) -> (Sum, bool) {
    let first_seed = from_environment("PELTON_SEED").unwrap_or(1);
    let rounds = from_environment("PELTON_SIM_ROUNDS").unwrap_or(usual);
    let half = |which: usize| {
        let mut sum = Sum::default();
        for seed in (first_seed..first_seed + rounds).skip(which).step_by(2) {
            let _say = SayOnPanic(seed, test);
            sum.add(&run(&plan(seed, calls, dies)));
        }
        sum
    };
    let sum = thread::scope(|scope| {
        let other = scope.spawn(|| half(1));
        let mut sum = half(0);
        sum.add_sum(&other.join().expect("it says what went wrong"));
        sum
    });
    println!(
        "seeds {first_seed} to {}: {sum:#?}",
        first_seed + rounds - 1
    );
    (sum, rounds >= usual)
}

#[test]
fn every_answer_is_right_whatever_the_network_does() {
    let test = "every_answer_is_right_whatever_the_network_does";
    let (sum, is_whole) = run_rounds(STEADY_ROUNDS, STEADY_CALLS, false, test);
    if is_whole {
        assert!(sum.counts.operations >= 500_000, "{sum:?}");
        sum.assert_network();
        assert!(sum.counts.long_scans >= 100, "{sum:?}");
        assert!(sum.counts.told_commits >= 1_000, "{sum:?}");
    }
}

#[test]
fn every_answer_stays_right_however_the_server_dies() {
    let test = "every_answer_stays_right_however_the_server_dies";
    let (sum, is_whole) = run_rounds(DYING_ROUNDS, DYING_CALLS, true, test);
    if is_whole {
        assert!(sum.counts.operations >= 1_000_000, "{sum:?}");
        sum.assert_network();
        assert!(sum.counts.told_commits >= 1_000, "{sum:?}");
        assert!(sum.counts.resumed >= 100, "{sum:?}");
        sum.assert_disk();
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for (seed, dies) in [(2, false), (3, false), (2, true), (3, true)] {
        let _say = SayOnPanic(seed, "the_same_seed_gives_the_same_run");
        let [one, other]: [Report; 2] = std::array::from_fn(|_| run(&plan(seed, 2_000, dies)));
        assert_eq!(one, other);
        assert_ne!(one.trace, run(&plan(seed + 2, 2_000, dies)).trace);
    }
}
