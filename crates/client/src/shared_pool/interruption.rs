//! A caller that waits, and looks from time to time whether it is to go on waiting.

use crate::limits;

/// What such a caller looks at, and what it does once.
pub(super) struct Interruption<'a> {
    is_interrupted: &'a mut dyn FnMut() -> bool,
    give_up: &'a dyn Fn(),
    look_ns: u64,
    has_given_up: bool,
}

impl<'a> Interruption<'a> {
    pub(super) fn new(
        is_interrupted: &'a mut dyn FnMut() -> bool,
        give_up: &'a dyn Fn(),
    ) -> Interruption<'a> {
        Interruption {
            is_interrupted,
            give_up,
            look_ns: 0,
            has_given_up: false,
        }
    }

    /// Returns when the caller is to look next.
    pub(super) fn begin_period(&mut self, now_ns: u64) -> u64 {
        if self.look_ns == 0 {
            self.look_ns = now_ns + limits::SHARED_INTERRUPT_PERIOD.as_nanos() as u64;
        }
        self.look_ns
    }

    /// Looks, if it is time, and gives up what the caller waits for, which then ends.
    pub(super) fn look(&mut self, now_ns: u64) {
        if now_ns < self.look_ns {
            return;
        }
        self.look_ns = 0;
        if !self.has_given_up && (self.is_interrupted)() {
            self.has_given_up = true;
            (self.give_up)();
        }
    }
}
