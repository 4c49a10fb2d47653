//! The memory and the number of requests to an engine that are under way, bounded for all loops
//! together, and charged before a request is handed over; and how requests have failed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::outcome::{Decision, Outcomes, Refusal};
use crate::remote_kind::{RemoteError, limits};

/// There is no room for a request.
pub(super) const BUSY: RemoteError = RemoteError::Busy {
    retry_ms: limits::RETRY_MS,
};

/// What all requests under way may hold.
#[derive(Debug)]
pub struct RemoteRoom {
    limit_bytes: usize,
    limit_requests: usize,
    bytes: AtomicUsize,
    requests: AtomicUsize,
    /// Requests that have failed, by [`RemoteError::index`].
    failed: [AtomicU64; RemoteError::LABELS.len()],
}

/// What one request holds of it. Given back when it is dropped.
#[derive(Debug)]
pub struct RoomShare {
    room: Arc<RemoteRoom>,
    bytes: AtomicUsize,
    requests: usize,
}

impl RemoteRoom {
    /// A room for a store with a memory limit.
    pub fn new(memory_limit_bytes: u64) -> Arc<RemoteRoom> {
        let share = memory_limit_bytes / limits::ROOM_SHARE;
        let share = usize::try_from(share).unwrap_or(usize::MAX);
        let limit_bytes = share.clamp(limits::LEAST_ROOM_BYTES, limits::MOST_ROOM_BYTES);
        RemoteRoom::with_limits(limit_bytes, limits::REQUESTS)
    }

    /// A room for so many bytes and requests.
    pub fn with_limits(limit_bytes: usize, limit_requests: usize) -> Arc<RemoteRoom> {
        Arc::new(RemoteRoom {
            limit_bytes,
            limit_requests,
            bytes: AtomicUsize::new(0),
            requests: AtomicUsize::new(0),
            failed: Default::default(),
        })
    }

    /// Takes room for a request that holds so many bytes beside
    /// [`REQUEST_BYTES`](limits::REQUEST_BYTES). `None`: there is none.
    pub fn take(self: &Arc<RemoteRoom>, bytes: usize) -> Option<RoomShare> {
        let bytes = bytes.saturating_add(limits::REQUEST_BYTES);
        if !add(&self.requests, 1, self.limit_requests) {
            return None;
        }
        let share = RoomShare {
            room: Arc::clone(self),
            bytes: AtomicUsize::new(0),
            requests: 1,
        };
        share.grow(bytes).then_some(share)
    }

    /// Takes room for bytes that belong to a request which has its place already.
    pub(super) fn take_bytes(self: &Arc<RemoteRoom>, bytes: usize) -> Option<RoomShare> {
        let share = RoomShare {
            room: Arc::clone(self),
            bytes: AtomicUsize::new(0),
            requests: 0,
        };
        share.grow(bytes).then_some(share)
    }

    /// Counts a read that has failed.
    pub(super) fn count_failed(&self, error: RemoteError) {
        if let Some(count) = self.failed.get(error.index()) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts those of some commits that have failed.
    pub(super) fn count_outcomes(&self, outcomes: &Outcomes) {
        for outcome in outcomes.iter() {
            match outcome.decision {
                Decision::Refused(Refusal::Remote(error)) => self.count_failed(error),
                Decision::Refused(Refusal::UnknownDatabase) => {
                    self.count_failed(RemoteError::UnknownDatabase);
                }
                _ => {}
            }
        }
    }

    /// Returns how many reads and commits have failed since the start, each with the label of its
    /// [`RemoteError`].
    pub fn failed(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self
            .failed
            .iter()
            .map(|count| count.load(Ordering::Relaxed));
        RemoteError::LABELS.into_iter().zip(counts)
    }

    /// Returns how many bytes requests may hold.
    pub fn limit_bytes(&self) -> usize {
        self.limit_bytes
    }

    /// Returns how many requests may be under way.
    pub fn limit_requests(&self) -> usize {
        self.limit_requests
    }

    /// Returns the bytes that requests hold.
    pub fn held_bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns how many requests are under way.
    pub fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }
}

impl RoomShare {
    /// Holds so many bytes more; returns whether there is room.
    pub fn grow(&self, bytes: usize) -> bool {
        let is_there = add(&self.room.bytes, bytes, self.room.limit_bytes);
        if is_there {
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        is_there
    }

    /// Returns the room of which this is a share.
    pub(super) fn room(&self) -> &RemoteRoom {
        &self.room
    }

    /// Takes a share of the same room for bytes that are held for a part of the request only.
    pub(super) fn take_beside(&self, bytes: usize) -> Option<RoomShare> {
        self.room.take_bytes(bytes)
    }

    /// The request is answered: what it holds still counts, and it is not under way any more.
    pub(crate) fn end_request(&mut self) {
        let requests = std::mem::take(&mut self.requests);
        self.room.requests.fetch_sub(requests, Ordering::Relaxed);
    }
}

impl Drop for RoomShare {
    fn drop(&mut self) {
        self.end_request();
        let bytes = std::mem::take(self.bytes.get_mut());
        self.room.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Adds to a counter unless it would exceed a limit.
fn add(counter: &AtomicUsize, more: usize, limit: usize) -> bool {
    let fits = |held: usize| held.checked_add(more).filter(|&sum| sum <= limit);
    (counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_under_way_is_bounded_and_given_back() {
        let room = RemoteRoom::with_limits(10 * limits::REQUEST_BYTES, 3);
        for _ in 0..2 {
            let mut one = room.take(0).expect("there is room");
            let two = room.take(6 * limits::REQUEST_BYTES);
            let two = two.expect("there is room");
            assert!(room.take(2 * limits::REQUEST_BYTES).is_none());
            assert_eq!(room.requests(), 2, "what has no room takes none");
            assert!(!one.grow(limits::REQUEST_BYTES * 3) && one.grow(limits::REQUEST_BYTES));
            let three = room.take(0).expect("there is room");
            drop(two);
            let four = room.take(0).expect("there is room");
            assert!(room.take(0).is_none(), "these are three");
            one.end_request();
            assert!(room.take(0).is_some());
            drop((one, three, four));
            assert_eq!((room.held_bytes(), room.requests()), (0, 0));
        }
    }

    #[test]
    fn failures_are_counted_by_their_kinds() {
        let room = RemoteRoom::with_limits(0, 0);
        let errors = [
            RemoteError::Busy { retry_ms: 1 },
            RemoteError::NoQuorum,
            RemoteError::TimedOut,
            RemoteError::Contended,
            RemoteError::OutcomeUnknown,
            RemoteError::UnknownDatabase,
            RemoteError::Refused,
            RemoteError::Damaged,
        ];
        for (index, error) in errors.into_iter().enumerate() {
            assert_eq!(error.index(), index, "each has a place of its own");
            (0..=index).for_each(|_| room.count_failed(error));
        }
        let counts: Vec<u64> = room.failed().map(|(_, count)| count).collect();
        assert_eq!(counts, [1, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn the_room_is_a_share_of_the_memory() {
        let limit = |bytes| RemoteRoom::new(bytes).limit_bytes;
        assert_eq!(limit(0), limits::LEAST_ROOM_BYTES);
        assert_eq!(limit(1 << 30), 128 << 20);
        assert_eq!(limit(u64::MAX), limits::MOST_ROOM_BYTES);
    }
}
