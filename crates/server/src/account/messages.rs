//! What large messages may take: it is accounted for before they come.

use std::sync::atomic::Ordering;

use super::Account;
use crate::limits;

impl Account {
    /// Returns what large messages may still take before they come, in bytes.
    pub fn left_for_messages(&self) -> usize {
        self.most_for_messages()
            .saturating_sub(self.charged_bytes())
    }

    /// Returns what large messages may take together if nothing else is charged, in bytes.
    pub fn most_for_messages(&self) -> usize {
        self.limit_bytes - self.limit_bytes / limits::SMALL_CALLS_SHARE
    }

    /// Returns what messages may still take before they come that are no larger than
    /// [`Account::short_message_bytes`], in bytes: those that are larger leave them some.
    pub fn left_for_short_messages(&self) -> usize {
        let left = self.limit_bytes - self.limit_bytes / limits::SMALL_CALLS_SHARE / 2;
        left.saturating_sub(self.charged_bytes())
            .min(self.short_message_bytes())
    }

    /// Returns up to how many bytes a large message finds memory that larger ones do not.
    pub fn short_message_bytes(&self) -> usize {
        self.limit_bytes / limits::SHORT_MESSAGE_SHARE
    }

    /// Lets one connection of the server receive one message beyond the limit, so that something
    /// always moves, unless those before it have left too much. To be followed by
    /// [`Account::end_overdraft`] if it returns true.
    pub fn try_overdraft(&self, is_compressed: bool) -> bool {
        self.may_overdraw(is_compressed) && !self.is_overdrawn.swap(true, Ordering::Relaxed)
    }

    /// Whether nobody receives a message beyond the limit, and another may.
    pub fn may_overdraw(&self, is_compressed: bool) -> bool {
        self.may_hold_more(is_compressed) && !self.is_overdrawn.load(Ordering::Relaxed)
    }

    /// Whether so little is held beyond the limit that a message may come beyond it.
    pub fn may_hold_more(&self, is_compressed: bool) -> bool {
        let bound_bytes = match is_compressed {
            // A few bytes become much.
            true => 0,
            false => limits::OVERDRAWN_BYTES,
        };
        self.beyond_reserve() <= bound_bytes
    }

    /// The message has come, or stands still.
    pub fn end_overdraft(&self) {
        self.is_overdrawn.store(false, Ordering::Relaxed);
    }
}
