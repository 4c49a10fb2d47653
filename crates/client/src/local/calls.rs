//! The calls in flight of a `Local`.

use super::happened::{CallKey, ChannelKey};
use crate::deadlines::Deadlines;

/// A call in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct LocalCall {
    pub(super) tag: u64,
    pub(super) call: CallKey,
    pub(super) deadline_ns: Option<u64>,
    /// Messages of the answer so far.
    pub(super) messages: u64,
}

/// Calls by token: one more than the number of its place, since 0 stands for a call that is over. A
/// place is used again, the last freed first.
#[derive(Debug, Default)]
pub(super) struct LocalCalls {
    places: Vec<CallPlace>,
    free: Vec<u32>,
    deadlines: Deadlines<PlaceUse>,
}

#[derive(Debug, Default)]
struct CallPlace {
    running: Option<LocalCall>,
    /// How many calls have been in it.
    uses: u32,
}

/// A call by its place, and which use of that it is: that of a call that is over is no other's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PlaceUse {
    place: u32,
    uses: u32,
}

impl LocalCalls {
    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    pub(super) fn insert(&mut self, running: LocalCall) -> u32 {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(CallPlace::default());
            // Bounded by the connections and the calls on each.
            self.places.len() as u32 - 1
        });
        let found = &mut self.places[place as usize];
        found.running = Some(running);
        found.uses = found.uses.wrapping_add(1);
        let uses = found.uses;
        if let Some(deadline_ns) = running.deadline_ns {
            let (calls, places) = (self.len(), &self.places);
            let key = PlaceUse { place, uses };
            self.deadlines
                .push(deadline_ns, key, calls, |key| is_running(places, key));
        }
        place + 1
    }

    pub(super) fn get_mut(&mut self, token: u32) -> Option<&mut LocalCall> {
        self.places.get_mut(place_of(token)?)?.running.as_mut()
    }

    pub(super) fn remove(&mut self, token: u32) -> Option<LocalCall> {
        let running = self.places.get_mut(place_of(token)?)?.running.take()?;
        self.free.push(token - 1);
        Some(running)
    }

    /// Removes the call that has this token, if it is the one that is meant; whether it was.
    pub(super) fn remove_call(&mut self, token: u32, call: CallKey) -> bool {
        let is_it = self.get_mut(token).is_some_and(|found| found.call == call);
        is_it && self.remove(token).is_some()
    }

    /// Removes all calls of a connection.
    pub(super) fn forget_channel(&mut self, channel: ChannelKey) {
        for place in 0..self.places.len() {
            let running = self.places[place].running;
            if running.is_some_and(|running| running.call.channel == channel) {
                self.remove(place as u32 + 1);
            }
        }
    }

    /// When [`LocalCalls::take_expired`] may find something.
    pub(super) fn next_deadline_ns(&self) -> Option<u64> {
        self.deadlines.next_ns()
    }

    /// Removes the calls whose deadline has passed, and adds them to a list.
    pub(super) fn take_expired(&mut self, now_ns: u64, expired: &mut Vec<LocalCall>) {
        if self.next_deadline_ns().is_none_or(|at_ns| at_ns > now_ns) {
            return;
        }
        loop {
            let places = &self.places;
            let next = self.deadlines.pop(now_ns, |key| is_running(places, key));
            let Some(key) = next else {
                return;
            };
            expired.extend(self.remove(key.place + 1));
        }
    }
}

fn is_running(places: &[CallPlace], key: PlaceUse) -> bool {
    let found = places.get(key.place as usize);
    found.is_some_and(|place| place.uses == key.uses && place.running.is_some())
}

/// The number of the place that a token names; `None`: it names none.
fn place_of(token: u32) -> Option<usize> {
    token.checked_sub(1).map(|place| place as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::StreamKey;

    /// What is still told of a call that was cancelled has no token any more: it is about nobody.
    #[test]
    fn the_token_of_a_call_that_is_over_names_none() {
        let mut calls = LocalCalls::default();
        for _ in 0..2 {
            let token = calls.insert(running(7, None));
            assert!(token > 0 && calls.get_mut(0).is_none() && calls.remove(0).is_none());
            assert_eq!(calls.remove(token).map(|running| running.tag), Some(7));
            assert_eq!(calls.len(), 0);
        }
    }

    fn running(tag: u64, deadline_ns: Option<u64>) -> LocalCall {
        let channel = ChannelKey {
            slot: (tag % 2) as u32,
            generation: 0,
        };
        let stream = StreamKey {
            slot: tag as u32,
            id: 1,
        };
        LocalCall {
            tag,
            call: CallKey { channel, stream },
            deadline_ns,
            messages: 0,
        }
    }

    fn expired(calls: &mut LocalCalls, now_ns: u64) -> Vec<u64> {
        let mut expired = Vec::new();
        calls.take_expired(now_ns, &mut expired);
        expired.iter().map(|running| running.tag).collect()
    }

    #[test]
    fn deadlines_pass_once_each_and_not_before() {
        let mut calls = LocalCalls::default();
        for tag in 0..10 {
            calls.insert(running(tag, (tag != 3).then_some(100 + tag * 10)));
        }
        assert_eq!(calls.next_deadline_ns(), Some(100));
        assert!(expired(&mut calls, 99).is_empty());
        assert_eq!(expired(&mut calls, 125), [0, 1, 2]);
        assert!(expired(&mut calls, 125).is_empty());
        assert_eq!(calls.next_deadline_ns(), Some(140), "3 has none");
        assert_eq!(calls.len(), 7);
        calls.forget_channel(running(4, None).call.channel);
        assert_eq!(calls.len(), 4, "3, 5, 7 and 9");
        let token = calls.insert(running(20, Some(1)));
        assert_eq!(calls.get_mut(token).map(|running| running.tag), Some(20));
        assert_eq!(expired(&mut calls, 1), [20]);
    }

    #[test]
    fn a_call_is_removed_by_its_name_only() {
        let mut calls = LocalCalls::default();
        let token = calls.insert(running(5, None));
        let other = calls.insert(running(7, None));
        assert!(!calls.remove_call(token, running(7, None).call));
        assert!(calls.remove_call(token, running(5, None).call));
        assert!(!calls.remove_call(token, running(5, None).call));
        assert_eq!(calls.insert(running(9, None)), token, "its place");
        assert!(!calls.remove_call(token, running(5, None).call));
        assert!(!calls.remove_call(99, running(5, None).call));
        assert!(calls.remove_call(other, running(7, None).call));
        assert_eq!(calls.len(), 1);
    }
}
