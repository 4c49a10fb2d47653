//! The memory and the number of requests to an engine that are under way, bounded for all loops
//! together, and charged before a request is handed over.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::remote_kind::limits;

/// What all requests under way may hold.
#[derive(Debug)]
pub struct RemoteRoom {
    limit_bytes: usize,
    limit_requests: usize,
    bytes: AtomicUsize,
    requests: AtomicUsize,
}

/// What one request holds of it. Given back when it is dropped.
#[derive(Debug)]
pub struct RoomShare {
    room: Arc<RemoteRoom>,
    bytes: usize,
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
        })
    }

    /// Takes room for a request that holds so many bytes beside
    /// [`REQUEST_BYTES`](limits::REQUEST_BYTES). `None`: there is none.
    pub fn take(self: &Arc<RemoteRoom>, bytes: usize) -> Option<RoomShare> {
        let bytes = bytes.saturating_add(limits::REQUEST_BYTES);
        if !add(&self.requests, 1, self.limit_requests) {
            return None;
        }
        let mut share = RoomShare {
            room: Arc::clone(self),
            bytes: 0,
            requests: 1,
        };
        share.grow(bytes).then_some(share)
    }

    /// Takes room for bytes that belong to a request which has its place already.
    pub(super) fn take_bytes(self: &Arc<RemoteRoom>, bytes: usize) -> Option<RoomShare> {
        let mut share = RoomShare {
            room: Arc::clone(self),
            bytes: 0,
            requests: 0,
        };
        share.grow(bytes).then_some(share)
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
    pub fn grow(&mut self, bytes: usize) -> bool {
        let is_there = add(&self.room.bytes, bytes, self.room.limit_bytes);
        if is_there {
            self.bytes += bytes;
        }
        is_there
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
        self.room.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
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
    fn the_room_is_a_share_of_the_memory() {
        let limit = |bytes| RemoteRoom::new(bytes).limit_bytes;
        assert_eq!(limit(0), limits::LEAST_ROOM_BYTES);
        assert_eq!(limit(1 << 30), 128 << 20);
        assert_eq!(limit(u64::MAX), limits::MOST_ROOM_BYTES);
    }
}
