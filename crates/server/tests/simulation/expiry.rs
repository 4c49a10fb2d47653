//! When a version of a key is gone by itself, as far as is known.

use super::history::Window;

/// Its time to live ends at some moment between two, both possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expires {
    earliest_ms: u64,
    latest_ms: u64,
}

impl Expires {
    /// It lives until somebody changes it.
    pub const NEVER: Expires = Expires {
        earliest_ms: u64::MAX,
        latest_ms: u64::MAX,
    };
    /// Nothing is known.
    pub const ANY: Expires = Expires {
        earliest_ms: 0,
        latest_ms: u64::MAX,
    };

    /// Written at some moment of a window, to live so long.
    pub fn after(time_to_live_ms: u64, written: Window) -> Expires {
        Expires {
            earliest_ms: written.from_ms + time_to_live_ms,
            latest_ms: written.to_ms.saturating_add(time_to_live_ms),
        }
    }

    /// As an answer says it: 0 is never.
    fn exactly(expires_ms: u64) -> Expires {
        let at_ms = if expires_ms == 0 {
            u64::MAX
        } else {
            expires_ms
        };
        Expires {
            earliest_ms: at_ms,
            latest_ms: at_ms,
        }
    }

    /// What is left of it when an answer has said it; `None`: that cannot be.
    pub fn seen(self, expires_ms: u64) -> Option<Expires> {
        let exactly = Expires::exactly(expires_ms);
        let is_possible = (self.earliest_ms..=self.latest_ms).contains(&exactly.earliest_ms);
        is_possible.then_some(exactly)
    }

    /// What a version has that keeps the time to live of this one, and was written at some moment
    /// of a window: none if this one was gone.
    pub fn kept(self, written: Window) -> Expires {
        if self.surely_over(written) {
            return Expires::NEVER;
        }
        Expires {
            earliest_ms: self.earliest_ms,
            latest_ms: if self.may_be_over(written) {
                u64::MAX
            } else {
                self.latest_ms
            },
        }
    }

    /// Whether it may be gone at some moment of a window. At its last moment an entry is gone.
    pub fn may_be_over(self, window: Window) -> bool {
        self.earliest_ms <= window.to_ms && self != Expires::NEVER
    }

    /// Whether it is gone during all of a window.
    pub fn surely_over(self, window: Window) -> bool {
        self.latest_ms <= window.from_ms && self != Expires::NEVER
    }
}
