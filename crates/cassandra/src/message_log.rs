//! Messages for the operator's log, bounded in number and length.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::failure::{EngineFailure, FailureCause};
use crate::limits;

/// Where messages go.
pub type MessageSink = Arc<dyn Fn(&str) + Send + Sync>;

/// Writes messages, and leaves out what comes too often.
#[derive(Clone)]
pub(crate) struct MessageLog {
    sink: MessageSink,
    minute: Arc<Mutex<Minute>>,
}

/// What was written since `begin`, by kind.
struct Minute {
    begin: Instant,
    counts: [u32; KINDS],
}

/// Each cause of failures, and damage.
const KINDS: usize = FailureCause::ALL.len() + 1;

/// What comes often enough to be left out at times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MessageKind {
    Failure(FailureCause),
    Damage,
}

impl MessageKind {
    fn place(self) -> usize {
        match self {
            MessageKind::Damage => KINDS - 1,
            MessageKind::Failure(cause) => FailureCause::ALL
                .iter()
                .position(|one| *one == cause)
                .unwrap_or(0),
        }
    }
}

impl MessageLog {
    pub(crate) fn new(sink: MessageSink) -> MessageLog {
        let minute = Minute {
            begin: Instant::now(),
            counts: [0; KINDS],
        };
        MessageLog {
            sink,
            minute: Arc::new(Mutex::new(minute)),
        }
    }

    /// Writes a message that comes seldom.
    pub(crate) fn note(&self, message: &str) {
        (self.sink)(shortened(message));
    }

    /// Writes that a row is not an entry, unless that was written often in this minute.
    pub(crate) fn note_damage(&self, message: &str) {
        if self.admits(MessageKind::Damage) {
            self.note(message);
        }
    }

    fn admits(&self, kind: MessageKind) -> bool {
        self.minute.lock().admits(kind, Instant::now())
    }

    /// Writes why a request failed, unless this cause was written often in this minute.
    pub(crate) fn note_failure(&self, failure: &EngineFailure) {
        if self.admits(MessageKind::Failure(failure.cause)) {
            self.note(&format!(
                "a request to the storage engine failed: {failure}"
            ));
        }
    }
}

impl Minute {
    fn admits(&mut self, kind: MessageKind, now: Instant) -> bool {
        if now.duration_since(self.begin) >= Duration::from_secs(60) {
            self.begin = now;
            self.counts = [0; KINDS];
        }
        let Some(count) = self.counts.get_mut(kind.place()) else {
            return true;
        };
        *count = count.saturating_add(1);
        *count <= limits::MESSAGES_PER_MINUTE
    }
}

/// Returns a message up to [`limits::MESSAGE_BYTES`].
pub(crate) fn shortened(message: &str) -> &str {
    let longest = limits::MESSAGE_BYTES.min(message.len());
    let end = (0..=longest)
        .rev()
        .find(|&end| message.is_char_boundary(end));
    end.and_then(|end| message.get(..end)).unwrap_or(message)
}

impl fmt::Debug for MessageLog {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("MessageLog")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_that_comes_often_is_written_some_times_a_minute() {
        let begin = Instant::now();
        let mut minute = Minute {
            begin,
            counts: [0; KINDS],
        };
        for round in 0..2 {
            let now = begin + Duration::from_secs(60 * round);
            let admitted = (0..100)
                .filter(|_| minute.admits(MessageKind::Damage, now))
                .count();
            assert_eq!(admitted, limits::MESSAGES_PER_MINUTE as usize);
            for cause in FailureCause::ALL {
                assert!(minute.admits(MessageKind::Failure(cause), now));
            }
        }
    }

    #[test]
    fn long_messages_are_cut_between_characters() {
        assert_eq!(shortened("short"), "short");
        let long = "ä".repeat(limits::MESSAGE_BYTES);
        assert_eq!(shortened(&long).len(), limits::MESSAGE_BYTES);
        let odd = format!("a{long}");
        assert_eq!(shortened(&odd).len(), limits::MESSAGE_BYTES - 1);
    }
}
