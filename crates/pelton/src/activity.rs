//! Looks at the running server every second: whether memory is full, and, at level debug, what it
//! did.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use server::Server;
use service::{RefusedFor, Shared};

use crate::limits::{ACTIVITY_PERIOD_MS, MEMORY_FREE_AGAIN_PERCENT, MEMORY_FULL_LOOKS};
use crate::output::counted;
use crate::size::Size;

/// From now on the log says when memory is full and when it is free again. The thread ends with the
/// process.
pub fn watch(server: &Server) -> std::io::Result<()> {
    let shared = Arc::clone(server.shared());
    // Before any call: what is done while the thread begins counts too.
    let mut before = Activity::of(&shared);
    let thread = thread::Builder::new().name("pelton-activity".into());
    thread.spawn(move || {
        let (mut data, mut buffers) = (Fullness::default(), Fullness::default());
        loop {
            thread::sleep(Duration::from_millis(ACTIVITY_PERIOD_MS));
            log_data(data.look(&data_memory(&shared)), &shared);
            log_buffers(buffers.look(&buffer_memory(&shared)), &shared);
            if tracing::enabled!(tracing::Level::DEBUG) {
                let now = Activity::of(&shared);
                if let Some(line) = now.since(&before) {
                    tracing::debug!("{line}");
                }
                before = now;
            }
        }
    })?;
    Ok(())
}

/// Memory at one moment.
#[derive(Clone, Copy, Debug)]
struct Memory {
    used_bytes: u64,
    limit_bytes: u64,
    /// What was refused for want of it so far.
    refusals: u64,
}

fn data_memory(shared: &Shared) -> Memory {
    Memory {
        used_bytes: shared.store.memory_bytes(),
        limit_bytes: shared.store.memory_limit_bytes(),
        refusals: shared.store.memory_refusals(),
    }
}

fn buffer_memory(shared: &Shared) -> Memory {
    let totals = shared.figures.totals();
    let of_buffers = (totals.refused.iter())
        .filter(|(_, reason)| *reason == RefusedFor::Buffers)
        .map(|(calls, _)| calls);
    Memory {
        used_bytes: totals.buffered_bytes,
        limit_bytes: totals.buffered_limit_bytes,
        refusals: of_buffers.sum(),
    }
}

/// Whether some memory is full, by what is refused for want of it.
#[derive(Debug, Default)]
struct Fullness {
    is_full: bool,
    refusals: u64,
    /// Looks since the last refusal.
    looks: u32,
}

/// What changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ActivityChange {
    Full,
    FreeAgain,
}

impl Fullness {
    fn look(&mut self, memory: &Memory) -> Option<ActivityChange> {
        let has_refused = memory.refusals != self.refusals;
        self.refusals = memory.refusals;
        if has_refused {
            self.looks = 0;
            return (!std::mem::replace(&mut self.is_full, true)).then_some(ActivityChange::Full);
        }
        self.looks = self.looks.saturating_add(1);
        let low_bytes = memory.limit_bytes / 100 * MEMORY_FREE_AGAIN_PERCENT;
        if !self.is_full || memory.used_bytes >= low_bytes || self.looks < MEMORY_FULL_LOOKS {
            return None;
        }
        self.is_full = false;
        Some(ActivityChange::FreeAgain)
    }
}

fn log_data(change: Option<ActivityChange>, shared: &Shared) {
    let used = Size::rounded(shared.store.memory_bytes());
    let limit = Size::rounded(shared.store.memory_limit_bytes());
    match change {
        Some(ActivityChange::Full) => tracing::warn!(
            "memory for data is full: {used} of {limit} are used, and writes that grow are refused \
             with RESOURCE_EXHAUSTED; reads and deletes go on. Delete something, raise \
             --memory-limit, or keep large databases on disk (pelton database convert)"
        ),
        Some(ActivityChange::FreeAgain) => {
            tracing::info!("memory for data is free again: {used} of {limit} are used");
        }
        None => {}
    }
}

fn log_buffers(change: Option<ActivityChange>, shared: &Shared) {
    let totals = shared.figures.totals();
    let used = Size::rounded(totals.buffered_bytes);
    let limit = Size::rounded(totals.buffered_limit_bytes);
    match change {
        Some(ActivityChange::Full) => tracing::warn!(
            "memory for requests and unsent answers is full: {used} of {limit} are used, and calls \
             are refused with UNAVAILABLE until clients take what waits for them; raise \
             --memory-limit if this happens often"
        ),
        Some(ActivityChange::FreeAgain) => tracing::info!(
            "memory for requests and unsent answers is free again: {used} of {limit} are used"
        ),
        None => {}
    }
}

/// What a server has done until one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Activity {
    calls: u64,
    failed: u64,
    refused: u64,
    groups: u64,
    records: u64,
    log_bytes: u64,
    syncs: u64,
    segments: u64,
    sequence: u64,
    snapshots: u64,
    connections: u64,
    running: u64,
}

impl Activity {
    fn of(shared: &Shared) -> Activity {
        let totals = shared.figures.totals();
        let log = shared.store.log_statistics().unwrap_or_default();
        let failed = (totals.ended.iter()).filter(|(_, code, _)| *code != service::Code::Ok);
        Activity {
            calls: totals.ended.iter().map(|(.., calls)| calls).sum(),
            failed: failed.map(|(.., calls)| calls).sum(),
            refused: totals.refused.iter().map(|(calls, _)| calls).sum(),
            groups: log.groups,
            records: log.records,
            log_bytes: log.group_bytes,
            syncs: log.syncs,
            segments: log.segments,
            sequence: log.durable_sequence,
            snapshots: log.snapshots_made,
            connections: totals.open_connections,
            running: totals.running_calls,
        }
    }

    /// Returns a line about what was done since; `None`: nothing.
    fn since(&self, before: &Activity) -> Option<String> {
        if self == before {
            return None;
        }
        let of = |field: fn(&Activity) -> u64| field(self).saturating_sub(field(before));
        let mut line = format!(
            "since the last such line: {} calls ended, {} of them not OK, {} refused; {} \
             connections are open, {} calls run",
            of(|one| one.calls),
            of(|one| one.failed),
            of(|one| one.refused),
            self.connections,
            self.running
        );
        if self.groups != before.groups || self.segments != before.segments {
            line.push_str(&format!(
                "; {} committed in {}, {} of the log, {}, up to sequence {}; the log has {}",
                counted(of(|one| one.records), "record", "records"),
                counted(of(|one| one.groups), "group", "groups"),
                Size::rounded(of(|one| one.log_bytes)),
                counted(of(|one| one.syncs), "sync", "syncs"),
                self.sequence,
                counted(self.segments, "segment", "segments")
            ));
        }
        if self.snapshots != before.snapshots {
            line.push_str(&format!("; snapshots made: {}", of(|one| one.snapshots)));
        }
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(used_bytes: u64, refusals: u64) -> Memory {
        Memory {
            used_bytes,
            limit_bytes: 1_000,
            refusals,
        }
    }

    #[test]
    fn full_memory_is_reported_once_and_once_when_it_is_free_again() {
        let mut fullness = Fullness::default();
        assert_eq!(fullness.look(&memory(999, 0)), None, "nobody was refused");
        let mut refusals = 0;
        for _ in 0..2 {
            refusals += 5;
            assert_eq!(
                fullness.look(&memory(990, refusals)),
                Some(ActivityChange::Full)
            );
            for _ in 0..3 {
                refusals += 1;
                assert_eq!(fullness.look(&memory(990, refusals)), None);
            }
            for _ in 0..2 * MEMORY_FULL_LOOKS {
                assert_eq!(fullness.look(&memory(990, refusals)), None, "still full");
            }
            refusals += 1;
            assert_eq!(
                fullness.look(&memory(100, refusals)),
                None,
                "refused just now"
            );
            for _ in 1..MEMORY_FULL_LOOKS {
                assert_eq!(fullness.look(&memory(100, refusals)), None);
            }
            assert_eq!(
                fullness.look(&memory(100, refusals)),
                Some(ActivityChange::FreeAgain)
            );
            assert_eq!(fullness.look(&memory(100, refusals)), None);
        }
    }

    #[test]
    fn a_line_tells_what_was_done_since_the_last_one() {
        let before = Activity {
            calls: 10,
            failed: 1,
            ..Activity::default()
        };
        assert_eq!(before.since(&before), None);
        let calls = Activity {
            calls: 15,
            failed: 3,
            ..before
        };
        let line = calls.since(&before).expect("something was done");
        assert!(line.contains("5 calls ended, 2 of them not OK"), "{line}");
        assert!(!line.contains("sequence"), "{line}");
        let writes = Activity {
            groups: 2,
            records: 9,
            sequence: 77,
            segments: 1,
            ..calls
        };
        let line = writes.since(&calls).expect("something was done");
        assert!(
            line.contains("9 records committed in 2 groups") && line.contains("sequence 77"),
            "{line}"
        );
    }
}
