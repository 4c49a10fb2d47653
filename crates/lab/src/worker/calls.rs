//! The calls of a worker that have begun and not ended.

use crate::verdict::Verdict;

/// A call.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallInFlight {
    /// When it was to begin.
    pub(super) intended_ns: u64,
    /// When it did.
    pub(super) sent_ns: u64,
    pub(super) kind: usize,
    /// What the workload calls it.
    pub(super) ticket: u32,
    pub(super) line: usize,
    /// What its answer says, if one has come.
    pub(super) verdict: Option<Verdict>,
}

/// Calls by tag. Tags are small numbers, used again.
#[derive(Debug, Default)]
pub(super) struct Calls {
    places: Vec<Option<CallInFlight>>,
    free: Vec<u32>,
    last_sent_ns: u64,
}

impl Calls {
    #[inline]
    pub(super) fn insert(&mut self, call: CallInFlight) -> u64 {
        self.last_sent_ns = call.sent_ns;
        match self.free.pop() {
            Some(place) => {
                self.places[place as usize] = Some(call);
                u64::from(place)
            }
            None => {
                self.places.push(Some(call));
                self.places.len() as u64 - 1
            }
        }
    }

    #[inline]
    pub(super) fn get_mut(&mut self, tag: u64) -> Option<&mut CallInFlight> {
        self.places.get_mut(tag as usize)?.as_mut()
    }

    #[inline]
    pub(super) fn remove(&mut self, tag: u64) -> Option<CallInFlight> {
        let call = self.places.get_mut(tag as usize)?.take()?;
        self.free.push(tag as u32);
        Some(call)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// When the last one began.
    pub(super) fn last_sent_ns(&self) -> u64 {
        self.last_sent_ns
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &CallInFlight> {
        self.places.iter().flatten()
    }
}
