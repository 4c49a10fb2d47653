//! The calls of a connection that have no response yet.

use crate::http2::StreamKey;

/// Bits of a correlation id that name the place of the call; the rest counts the calls.
const PLACE_BITS: u32 = 16;

/// Calls that a connection can tell apart at once.
pub(super) const CALLS_MAX: usize = 1 << PLACE_BITS;

/// A call whose response has not come whole.
#[derive(Clone, Copy, Debug)]
pub(super) struct AwaitedCall {
    id: u32,
    pub(super) token: u32,
    /// The caller has given it up. Its response may come all the same.
    pub(super) is_abandoned: bool,
}

/// Calls in a slab.
#[derive(Debug, Default)]
pub(super) struct AwaitedCalls {
    places: Vec<Option<AwaitedCall>>,
    free: Vec<u32>,
    last_id: u32,
    abandoned: usize,
}

impl AwaitedCalls {
    /// Returns how many there are, with those that were given up.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Returns how many were given up.
    #[inline]
    pub(super) fn abandoned(&self) -> usize {
        self.abandoned
    }

    /// Adds a call, of which there are fewer than [`CALLS_MAX`].
    #[inline]
    pub(super) fn insert(&mut self) -> StreamKey {
        // No call has the correlation id 0, which stands for none.
        self.last_id = self.last_id.wrapping_add(1).max(1);
        let id = self.last_id;
        let call = Some(AwaitedCall {
            id,
            token: 0,
            is_abandoned: false,
        });
        let slot = match self.free.pop() {
            Some(slot) => {
                self.places[slot as usize] = call;
                slot
            }
            None => {
                self.places.push(call);
                (self.places.len() - 1) as u32
            }
        };
        StreamKey { slot, id }
    }

    #[inline]
    pub(super) fn get(&self, key: StreamKey) -> Option<&AwaitedCall> {
        let call = self.places.get(key.slot as usize)?.as_ref()?;
        (call.id == key.id).then_some(call)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, key: StreamKey) -> Option<&mut AwaitedCall> {
        let call = self.places.get_mut(key.slot as usize)?.as_mut()?;
        (call.id == key.id).then_some(call)
    }

    /// Takes a call out.
    #[inline]
    pub(super) fn remove(&mut self, key: StreamKey) -> Option<AwaitedCall> {
        let call = *self.get(key)?;
        self.places[key.slot as usize] = None;
        self.free.push(key.slot);
        self.abandoned -= usize::from(call.is_abandoned);
        Some(call)
    }

    /// Marks a call as given up. Returns whether it was not.
    pub(super) fn abandon(&mut self, key: StreamKey) -> bool {
        let Some(call) = self.get_mut(key).filter(|call| !call.is_abandoned) else {
            return false;
        };
        call.is_abandoned = true;
        self.abandoned += 1;
        true
    }

    /// Returns the call in the slab of a protocol that has one at a time; of several, the one in
    /// the lowest place.
    pub(super) fn only(&self) -> Option<StreamKey> {
        self.keys().next()
    }

    /// Returns the names of all.
    pub(super) fn keys(&self) -> impl Iterator<Item = StreamKey> + '_ {
        let places = self.places.iter().enumerate();
        places.filter_map(|(slot, place)| {
            let id = place.as_ref()?.id;
            Some(StreamKey {
                slot: slot as u32,
                id,
            })
        })
    }

    /// Returns the bytes of memory that the slab holds.
    pub(super) fn memory_bytes(&self) -> usize {
        self.places.capacity() * size_of::<Option<AwaitedCall>>()
            + self.free.capacity() * size_of::<u32>()
    }
}

/// Returns the correlation id of a call.
#[inline]
pub(super) fn correlation_id(key: StreamKey) -> i64 {
    i64::from(key.id) << PLACE_BITS | i64::from(key.slot)
}

/// Returns the call that a correlation id can be of.
#[inline]
pub(super) fn key_of(correlation_id: i64) -> Option<StreamKey> {
    let id = u32::try_from(correlation_id >> PLACE_BITS).ok()?;
    let slot = (correlation_id & (CALLS_MAX as i64 - 1)) as u32;
    Some(StreamKey { slot, id })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_correlation_id_names_its_call_and_is_never_0() {
        let mut calls = AwaitedCalls::default();
        for _ in 0..3 {
            let key = calls.insert();
            let id = correlation_id(key);
            assert!(id > 0);
            assert_eq!(key_of(id), Some(key));
        }
        let last = StreamKey {
            slot: CALLS_MAX as u32 - 1,
            id: u32::MAX,
        };
        assert_eq!(key_of(correlation_id(last)), Some(last));
        assert_eq!(key_of(-1), None);
        assert_eq!(key_of(i64::MAX), None);
        let none = key_of(0).expect("a number of a place");
        assert!(calls.get(none).is_none());
    }

    #[test]
    fn ids_begin_anew_at_1() {
        let mut calls = AwaitedCalls {
            last_id: u32::MAX - 1,
            ..AwaitedCalls::default()
        };
        assert_eq!(calls.insert().id, u32::MAX);
        assert_eq!(calls.insert().id, 1);
    }

    #[test]
    fn a_place_that_is_used_again_has_another_id() {
        let mut calls = AwaitedCalls::default();
        let first = calls.insert();
        assert!(calls.abandon(first) && !calls.abandon(first));
        assert_eq!((calls.len(), calls.abandoned()), (1, 1));
        assert!(calls.remove(first).is_some_and(|call| call.is_abandoned));
        let second = calls.insert();
        assert_eq!((calls.len(), calls.abandoned()), (1, 0));
        assert_eq!(second.slot, first.slot);
        assert!(calls.get(first).is_none() && calls.remove(first).is_none());
        assert!(!calls.abandon(first));
        assert_eq!(calls.only(), Some(second));
    }
}
