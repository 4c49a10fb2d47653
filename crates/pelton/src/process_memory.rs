//! Tells the store when the process takes more memory than it may.
//!
//! The store counts what entries take, and the account what connections hold. Neither sees what the
//! allocator cannot give back: when entries of one size were removed, here and there one of them
//! keeps a page that entries of another size do not fit into. Whoever writes entries of one size
//! after the other could make that many times the limit.

use std::sync::Arc;
use std::time::Duration;
use std::{io, thread};

use server::Server;
use service::Shared;
use store::Kind;

use crate::limits::{
    ACTIVITY_PERIOD_MS, PROCESS_BYTES_BESIDE_DATA, PROCESS_BYTES_PER_CONNECTION, PROCESS_LOOK_MS,
    PROCESS_SHARE_BESIDE_DATA, PROCESS_SHARE_OF_DISK_BYTES,
};
use crate::metrics::process::anonymous_bytes;

/// From now on the store refuses what grows while the process takes too much. `cache_bytes` are
/// those of databases on disk. The thread ends with the process.
pub fn watch(server: &Server, cache_bytes: u64) -> io::Result<()> {
    let shared = Arc::clone(server.shared());
    let thread = thread::Builder::new().name("pelton-memory".into());
    thread.spawn(move || {
        loop {
            let memory = ProcessMemory {
                process_bytes: anonymous_bytes().unwrap_or(0),
                allowed_bytes: allowed_bytes(&shared, cache_bytes),
            };
            shared.store.note_process_bytes(memory.excessive_bytes());
            thread::sleep(memory.next_period());
        }
    })?;
    Ok(())
}

/// What the process takes, and what it may, at one moment.
struct ProcessMemory {
    process_bytes: u64,
    allowed_bytes: u64,
}

impl ProcessMemory {
    fn excessive_bytes(&self) -> Option<u64> {
        (self.process_bytes > self.allowed_bytes).then_some(self.process_bytes)
    }

    /// When to look again.
    fn next_period(&self) -> Duration {
        Duration::from_millis(match self.process_bytes > self.allowed_bytes / 2 {
            true => PROCESS_LOOK_MS,
            false => ACTIVITY_PERIOD_MS,
        })
    }
}

fn allowed_bytes(shared: &Shared, cache_bytes: u64) -> u64 {
    let limit_bytes = shared.store.memory_limit_bytes();
    let beside_bytes = PROCESS_BYTES_BESIDE_DATA.max(limit_bytes / PROCESS_SHARE_BESIDE_DATA);
    let connections = shared.figures.totals().open_connections;
    [
        beside_bytes,
        bytes_for_disk(shared, cache_bytes),
        connections.saturating_mul(PROCESS_BYTES_PER_CONNECTION),
    ]
    .into_iter()
    .fold(limit_bytes, u64::saturating_add)
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
                allowed_bytes: 1_000,
            };
            assert_eq!(memory.excessive_bytes(), excessive_bytes);
            assert_eq!(memory.next_period(), Duration::from_millis(next_ms));
        }
    }
}
