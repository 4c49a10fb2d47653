//! Tells the store when the process takes more memory than it may, and has entries moved together.
//!
//! The store counts what entries take, and the account what connections hold. Neither sees what the
//! allocator cannot give back: when entries of one size were removed, here and there one of them
//! keeps a page that entries of another size do not fit into. Whoever writes entries of one size
//! after the other could make that many times the limit. So when the process takes far more than
//! it is known to need, all entries are allocated anew, which gives such pages back
//! ([`Store::defragment`](store::Store::defragment)).

mod schedule;

use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{io, thread};

use server::Server;
use service::Shared;
use store::{Defragmentation, Kind};

use crate::arguments::DriverChoice;
use crate::limits::{
    ACTIVITY_PERIOD_MS, DEFRAGMENT_PAUSE_MS, PROCESS_BYTES_BESIDE_DATA,
    PROCESS_BYTES_PER_CONNECTION, PROCESS_BYTES_PER_CONNECTION_THREAD, PROCESS_LOOK_MS,
    PROCESS_SHARE_BESIDE_DATA, PROCESS_SHARE_OF_DISK_BYTES,
};
use crate::metrics::process::anonymous_bytes;
use crate::size::Size;
use schedule::{DefragmentSchedule, DefragmentTurn, Stray};

/// From now on the store refuses what grows while the process takes too much, and moves entries
/// together when it takes far more than they need. `cache_bytes` are those of databases on disk.
/// The thread ends with the process.
pub fn watch(server: &Server, driver: DriverChoice, cache_bytes: u64) -> io::Result<()> {
    let mut watch = MemoryWatch {
        shared: Arc::clone(server.shared()),
        cache_bytes,
        connection_bytes: match driver {
            DriverChoice::EventLoop => PROCESS_BYTES_PER_CONNECTION,
            DriverChoice::Blocking => PROCESS_BYTES_PER_CONNECTION_THREAD,
        },
        start: Instant::now(),
        schedule: DefragmentSchedule::default(),
        pass: Defragmentation::default(),
    };
    let thread = thread::Builder::new().name("pelton-memory".into());
    thread.spawn(move || {
        loop {
            watch.look();
        }
    })?;
    Ok(())
}

/// The thread that watches.
struct MemoryWatch {
    shared: Arc<Shared>,
    cache_bytes: u64,
    /// What each connection may take.
    connection_bytes: u64,
    start: Instant,
    schedule: DefragmentSchedule,
    pass: Defragmentation,
}

impl MemoryWatch {
    /// Looks at what the process takes, and waits for the next time, or moves entries till then.
    fn look(&mut self) {
        let memory = ProcessMemory::of(&self.shared, self.cache_bytes, self.connection_bytes);
        (self.shared.store).note_process_bytes(memory.excessive_bytes());
        match self.schedule.look(self.now_ms(), memory.stray()) {
            DefragmentTurn::Rest => {
                // What the moves have freed; nothing else of weight is this thread's.
                allocator::give_back();
                thread::sleep(memory.next_period());
            }
            DefragmentTurn::Move => self.defragment(),
            DefragmentTurn::Judged(bytes) => tracing::debug!(
                "the entries of databases in memory were moved together, which gave back {}; the \
                 process takes {}, and {} are its data",
                Size::rounded(bytes.max(0).unsigned_abs()),
                Size::rounded(memory.process_bytes),
                Size::rounded(memory.data_bytes)
            ),
        }
    }

    /// Moves entries until it is time to look again.
    fn defragment(&mut self) {
        let until_ms = self.now_ms() + PROCESS_LOOK_MS;
        while self.now_ms() < until_ms {
            let mut clock = PassClock(self.start);
            if !(self.shared.store).defragment(&mut self.pass, &mut clock) {
                self.schedule.complete(self.now_ms());
                return;
            }
            thread::sleep(Duration::from_millis(DEFRAGMENT_PAUSE_MS));
        }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// The time since the watch began.
struct PassClock(Instant);

impl store::Clock for PassClock {
    fn now_ns(&mut self) -> u64 {
        u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn now_ms(&mut self) -> u64 {
        self.now_ns() / 1_000_000
    }
}

/// What the process takes, and what it may, at one moment.
struct ProcessMemory {
    process_bytes: u64,
    /// What entries take, by estimate, and the limit for that.
    data_bytes: u64,
    limit_bytes: u64,
    /// What the process may take beside its data.
    beside_bytes: u64,
    /// What connections and databases on disk may take, beside that.
    others_bytes: u64,
}

impl ProcessMemory {
    fn of(shared: &Shared, cache_bytes: u64, connection_bytes: u64) -> ProcessMemory {
        let limit_bytes = shared.store.memory_limit_bytes();
        let connections = shared.figures.totals().open_connections;
        let connections_bytes = connections.saturating_mul(connection_bytes);
        ProcessMemory {
            process_bytes: anonymous_bytes().unwrap_or(0),
            data_bytes: shared.store.memory_bytes(),
            limit_bytes,
            beside_bytes: PROCESS_BYTES_BESIDE_DATA.max(limit_bytes / PROCESS_SHARE_BESIDE_DATA),
            others_bytes: connections_bytes.saturating_add(bytes_for_disk(shared, cache_bytes)),
        }
    }

    fn allowed_bytes(&self) -> u64 {
        (self.limit_bytes.saturating_add(self.beside_bytes)).saturating_add(self.others_bytes)
    }

    fn excessive_bytes(&self) -> Option<u64> {
        (self.process_bytes > self.allowed_bytes()).then_some(self.process_bytes)
    }

    /// What it takes beyond what it is known to need.
    fn stray(&self) -> Stray {
        let known_bytes = self.data_bytes.saturating_add(self.others_bytes);
        Stray {
            bytes: self.process_bytes.saturating_sub(known_bytes),
            data_bytes: self.data_bytes,
            beside_bytes: self.beside_bytes,
        }
    }

    /// When to look again.
    fn next_period(&self) -> Duration {
        Duration::from_millis(match self.process_bytes > self.allowed_bytes() / 2 {
            true => PROCESS_LOOK_MS,
            false => ACTIVITY_PERIOD_MS,
        })
    }
}

/// What databases on disk may take; nothing, if there are none.
fn bytes_for_disk(shared: &Shared, cache_bytes: u64) -> u64 {
    let databases = shared.store.databases();
    let on_disk = (databases.iter()).filter(|info| info.config.kind == Kind::Disk);
    let statistics = on_disk.filter_map(|info| shared.store.statistics(info.id));
    let table_bytes = statistics.map(|figures| figures.disk_bytes);
    let all_bytes = table_bytes.reduce(u64::saturating_add);
    all_bytes.map_or(0, |bytes| {
        cache_bytes.saturating_add(bytes / PROCESS_SHARE_OF_DISK_BYTES)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beyond_the_bound_is_told_and_the_bound_itself_is_not() {
        for (process_bytes, excessive_bytes, next_ms) in [
            (0, None, ACTIVITY_PERIOD_MS),
            (500, None, ACTIVITY_PERIOD_MS),
            (501, None, PROCESS_LOOK_MS),
            (1_000, None, PROCESS_LOOK_MS),
            (1_001, Some(1_001), PROCESS_LOOK_MS),
        ] {
            let memory = ProcessMemory {
                process_bytes,
                data_bytes: 200,
                limit_bytes: 500,
                beside_bytes: 300,
                others_bytes: 200,
            };
            assert_eq!(memory.excessive_bytes(), excessive_bytes);
            assert_eq!(memory.next_period(), Duration::from_millis(next_ms));
            let stray = memory.stray();
            let stray_bytes = u64::saturating_sub(process_bytes, 400);
            assert_eq!((stray.bytes, stray.beside_bytes), (stray_bytes, 300));
        }
    }
}
