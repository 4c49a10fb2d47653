//! `--max-lag`: a replica that is too far behind is not ready.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use server::{Server, TimeSource};

use crate::limits::LAG_LOOK_MS;
use crate::time_source::SystemTimeSource;

/// Whether a replica is too far behind.
#[derive(Debug)]
struct LagWatch {
    max_ms: u64,
    is_too_far: bool,
}

impl LagWatch {
    /// Looks how far behind it is now; returns whether it is too far, if that has changed. It comes
    /// back at half of what it may be, so that health does not go back and forth.
    fn look(&mut self, lag_ms: u64) -> Option<bool> {
        let is_too_far = match self.is_too_far {
            true => lag_ms > self.max_ms / 2,
            false => lag_ms > self.max_ms,
        };
        let has_changed = std::mem::replace(&mut self.is_too_far, is_too_far) != is_too_far;
        has_changed.then_some(is_too_far)
    }
}

/// Starts a thread that turns health to NOT_SERVING while the replica is too far behind.
pub fn watch(server: &Server, max_ms: u64) -> io::Result<()> {
    let shared = Arc::clone(server.shared());
    let Some(following) = shared.following.clone() else {
        return Ok(());
    };
    let pulse = server.pulse();
    let run = move || {
        let mut watch = LagWatch {
            max_ms,
            is_too_far: false,
        };
        loop {
            thread::sleep(Duration::from_millis(LAG_LOOK_MS));
            let lag_ms = following.state().lag_ms(SystemTimeSource.monotonic_ns());
            let Some(is_too_far) = watch.look(lag_ms) else {
                continue;
            };
            following.note_too_far_behind(is_too_far);
            shared.health.set_all(!is_too_far);
            // Those who watch health are told by their loops.
            let _ = pulse.ask();
            match is_too_far {
                true => tracing::warn!(
                    "this replica is {lag_ms} ms behind its leader, more than --max-lag says: \
                     health is NOT_SERVING, and whoever calls all the same is served"
                ),
                false => tracing::info!(
                    "this replica is {lag_ms} ms behind its leader: health is SERVING again"
                ),
            }
        }
    };
    let thread = thread::Builder::new().name("pelton-lag".into());
    thread.spawn(run).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_is_too_far_behind_above_the_limit_and_comes_back_at_half_of_it() {
        let mut watch = LagWatch {
            max_ms: 1_000,
            is_too_far: false,
        };
        for _ in 0..2 {
            assert_eq!(watch.look(1_000), None);
            assert_eq!(watch.look(1_001), Some(true));
            assert_eq!(watch.look(501), None);
            assert_eq!(watch.look(500), Some(false));
            assert_eq!(watch.look(999), None);
        }
    }
}
