//! The memory for what is read before commits are decided: bounded for all loops together, charged
//! before a value is kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::limits;
use crate::tree::limits::LARGE_BLOCK_BYTES;

/// What all batches together may hold of the values that their commits must know.
#[derive(Debug)]
pub(crate) struct ReadRoom {
    limit_bytes: usize,
    held_bytes: AtomicUsize,
    /// One batch may hold more than there is room, for one of its commits, so that one that needs
    /// much has its turn.
    is_overdrawn: AtomicBool,
    /// What it holds for that commit: it is not in the way of others.
    overdrawn_bytes: AtomicUsize,
}

impl ReadRoom {
    pub(crate) fn new(memory_limit_bytes: u64) -> Arc<ReadRoom> {
        let share = memory_limit_bytes / limits::READ_BEFORE_SHARE;
        let share = usize::try_from(share).unwrap_or(usize::MAX);
        Arc::new(ReadRoom {
            limit_bytes: share.clamp(
                limits::READ_BEFORE_LEAST_BYTES,
                limits::READ_BEFORE_ALL_BYTES,
            ),
            held_bytes: AtomicUsize::new(0),
            is_overdrawn: AtomicBool::new(false),
            overdrawn_bytes: AtomicUsize::new(0),
        })
    }

    /// What is held, in bytes.
    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes.load(Ordering::Relaxed) + self.overdrawn_bytes.load(Ordering::Relaxed)
    }

    /// How much may be held when a read of so many bytes begins.
    fn bound_bytes(&self, read_bytes: usize) -> usize {
        match read_bytes {
            0..LARGE_BLOCK_BYTES => {
                self.limit_bytes + self.limit_bytes / limits::READ_BEFORE_RESERVE_SHARE
            }
            _ => self.limit_bytes,
        }
    }

    fn take(&self, bytes: usize) -> bool {
        let bound_bytes = self.bound_bytes(bytes);
        let fits = |held: usize| {
            let sum = held.checked_add(bytes)?;
            (sum <= bound_bytes).then_some(sum)
        };
        (self.held_bytes)
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits)
            .is_ok()
    }
}

/// What one batch holds of it. Given back when it is dropped.
#[derive(Debug, Default)]
pub(crate) struct HeldReadRoom {
    room: Option<Arc<ReadRoom>>,
    bytes: usize,
    /// Beside these, as the one that holds more than there is room.
    overdrawn_bytes: usize,
    /// It is the one that holds more than there is room.
    overdraws: bool,
    /// That was for an earlier commit.
    is_spent: bool,
}

impl HeldReadRoom {
    /// What is taken from now on is for another commit.
    pub(crate) fn end_commit(&mut self) {
        self.is_spent = self.overdraws;
    }

    /// Takes room for a value; returns whether there is some.
    pub(crate) fn take(&mut self, room: &Arc<ReadRoom>, bytes: usize) -> bool {
        if !room.take(bytes) {
            if self.is_spent || !self.try_overdraw(room) {
                return false;
            }
            room.overdrawn_bytes.fetch_add(bytes, Ordering::Relaxed);
            self.overdrawn_bytes += bytes;
            return true;
        }
        self.room.get_or_insert_with(|| Arc::clone(room));
        self.bytes += bytes;
        true
    }

    /// Holds so many bytes instead of so many; returns whether there is room. If not, none of them
    /// is held any more.
    pub(crate) fn exchange(&mut self, room: &Arc<ReadRoom>, before: usize, after: usize) -> bool {
        let is_there = after <= before || self.take(room, after - before);
        if !is_there {
            self.give_back(before);
        } else if after < before {
            self.give_back(before - after);
        }
        is_there
    }

    /// Becomes the one that may exceed the room, if nobody is; returns whether it is.
    pub(crate) fn try_overdraw(&mut self, room: &Arc<ReadRoom>) -> bool {
        if !self.overdraws && !room.is_overdrawn.swap(true, Ordering::Relaxed) {
            self.room.get_or_insert_with(|| Arc::clone(room));
            self.overdraws = true;
        }
        self.overdraws
    }

    /// Whether it is worth while to begin a read that takes so many bytes, which asks for room: the
    /// first large one of a batch when half of it is free, so that it is seldom read in vain.
    pub(crate) fn may_take(&self, room: &ReadRoom, read_bytes: usize) -> bool {
        let is_first = self.bytes == 0 && read_bytes >= LARGE_BLOCK_BYTES;
        let enough_bytes = match is_first {
            true => room.limit_bytes / 2,
            false => room.bound_bytes(read_bytes),
        };
        let may_overdraw = self.overdraws || !room.is_overdrawn.load(Ordering::Relaxed);
        room.held_bytes.load(Ordering::Relaxed) < enough_bytes || (may_overdraw && !self.is_spent)
    }

    /// Holds so many bytes less: first of those that it holds beyond the room.
    pub(crate) fn give_back(&mut self, bytes: usize) {
        let Some(room) = &self.room else {
            return;
        };
        let overdrawn_bytes = bytes.min(self.overdrawn_bytes);
        let held_bytes = bytes - overdrawn_bytes;
        (room.overdrawn_bytes).fetch_sub(overdrawn_bytes, Ordering::Relaxed);
        room.held_bytes.fetch_sub(held_bytes, Ordering::Relaxed);
        self.overdrawn_bytes -= overdrawn_bytes;
        self.bytes -= held_bytes;
    }

    /// Takes over what another batch holds.
    pub(crate) fn append(&mut self, other: &mut HeldReadRoom) {
        self.bytes += std::mem::take(&mut other.bytes);
        self.overdrawn_bytes += std::mem::take(&mut other.overdrawn_bytes);
        self.overdraws |= std::mem::take(&mut other.overdraws);
        self.room = self.room.take().or_else(|| other.room.take());
    }
}

impl Drop for HeldReadRoom {
    fn drop(&mut self) {
        self.give_back(self.bytes + self.overdrawn_bytes);
        if let (true, Some(room)) = (self.overdraws, &self.room) {
            room.is_overdrawn.store(false, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: usize = limits::READ_BEFORE_LEAST_BYTES;
    /// What has no reserve.
    const MUCH: usize = LARGE_BLOCK_BYTES;

    /// Beside what fits, one commit at a time may exceed it, by all that it needs; all comes back,
    /// each time.
    #[test]
    fn one_commit_may_exceed_the_room() {
        let room = ReadRoom::new(0);
        for _ in 0..2 {
            let (mut one, mut two, mut three) =
                <(HeldReadRoom, HeldReadRoom, HeldReadRoom)>::default();
            assert!(one.take(&room, LIMIT - 10) && two.take(&room, 10));
            assert!(two.may_take(&room, MUCH) && two.take(&room, LIMIT) && two.take(&room, MUCH));
            assert!(!one.may_take(&room, MUCH) && !one.take(&room, MUCH));
            assert!(!three.may_take(&room, MUCH) && !three.take(&room, MUCH));
            assert!(two.may_take(&room, MUCH));
            assert_eq!(room.held_bytes(), 2 * LIMIT + MUCH);
            two.end_commit();
            assert!(!two.may_take(&room, MUCH) && !two.take(&room, MUCH));
            two.give_back(LIMIT);
            // What is joined with another stays what it is.
            three.append(&mut two);
            drop(two);
            assert_eq!(room.held_bytes(), LIMIT + MUCH);
            assert!(!one.take(&room, MUCH));
            drop(three);
            one.end_commit();
            assert!(one.take(&room, 10) && one.take(&room, MUCH));
            drop(one);
            assert_eq!(room.held_bytes(), 0);
            assert!(!room.is_overdrawn.load(Ordering::Relaxed));
        }
    }

    /// Who has the right to exceed it before anything is taken has it for the first commit.
    #[test]
    fn the_right_to_exceed_the_room_lasts_for_a_commit() {
        let room = ReadRoom::new(0);
        for _ in 0..2 {
            let (mut one, mut two) = <(HeldReadRoom, HeldReadRoom)>::default();
            assert!(one.try_overdraw(&room) && one.try_overdraw(&room) && !two.try_overdraw(&room));
            assert!(two.take(&room, LIMIT) && one.may_take(&room, MUCH) && one.take(&room, LIMIT));
            one.end_commit();
            assert!(!one.take(&room, MUCH) && !two.take(&room, MUCH));
            drop(one);
            assert!(two.take(&room, MUCH));
        }
        assert_eq!(room.held_bytes(), 0);
    }

    #[test]
    fn what_a_read_took_is_exchanged_for_its_value() {
        let room = ReadRoom::new(0);
        for _ in 0..2 {
            let (mut one, mut two) = (HeldReadRoom::default(), HeldReadRoom::default());
            assert!(one.take(&room, LIMIT - MUCH) && one.exchange(&room, LIMIT - MUCH, 100));
            assert_eq!(room.held_bytes(), 100);
            assert!(one.exchange(&room, 0, LIMIT - 100));
            assert!(two.try_overdraw(&room));
            assert!(two.take(&room, MUCH) && two.exchange(&room, MUCH, 2 * MUCH));
            two.end_commit();
            assert!(!two.exchange(&room, 2 * MUCH, 3 * MUCH));
            assert_eq!(room.held_bytes(), LIMIT);
            assert!(!one.exchange(&room, MUCH, 2 * MUCH));
            assert_eq!(room.held_bytes(), LIMIT - MUCH);
        }
        assert_eq!(room.held_bytes(), 0);
    }

    /// Large values hold all the room and one of them more, and small reads go on, up to a bound of
    /// their own.
    #[test]
    fn small_reads_have_a_reserve() {
        let room = ReadRoom::new(0);
        let reserve_bytes = LIMIT / limits::READ_BEFORE_RESERVE_SHARE;
        for _ in 0..2 {
            let (mut large, mut more, mut small) =
                <(HeldReadRoom, HeldReadRoom, HeldReadRoom)>::default();
            assert!(large.take(&room, LIMIT) && more.take(&room, 3 * LIMIT));
            for _ in 0..reserve_bytes / 1_024 {
                assert!(small.may_take(&room, 0) && small.take(&room, 1_024));
            }
            assert!(!small.may_take(&room, 0) && !small.take(&room, 1_024));
            assert!(!small.may_take(&room, MUCH) && !small.take(&room, MUCH));
            drop(small);
            assert_eq!(room.held_bytes(), 4 * LIMIT);
        }
        assert_eq!(room.held_bytes(), 0);
    }

    #[test]
    fn the_room_is_a_share_of_the_memory() {
        let limit = |bytes| ReadRoom::new(bytes).limit_bytes;
        assert_eq!(limit(0), limits::READ_BEFORE_LEAST_BYTES);
        assert_eq!(limit(128 << 20), 8 << 20);
        assert_eq!(limit(u64::MAX), limits::READ_BEFORE_ALL_BYTES);
    }
}
