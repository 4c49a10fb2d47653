//! The calls of a shared pool that are in its engine.

use std::sync::Arc;

use super::call::SharedCall;
use super::stream::SharedStream;

/// A call of either kind.
#[derive(Debug)]
pub(super) enum CallTableEntry {
    Unary(Arc<SharedCall>),
    Stream(Arc<SharedStream>),
}

/// Calls by tag. As many as the engine has: its limits bound it.
#[derive(Debug, Default)]
pub(super) struct SharedCallTable {
    calls: Vec<Option<CallTableEntry>>,
    free: Vec<u32>,
}

impl SharedCallTable {
    pub(super) fn insert(&mut self, call: CallTableEntry) -> u32 {
        match self.free.pop() {
            Some(tag) => {
                self.calls[tag as usize] = Some(call);
                tag
            }
            None => {
                self.calls.push(Some(call));
                (self.calls.len() - 1) as u32
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        self.calls.len() - self.free.len()
    }

    pub(super) fn get(&self, tag: u64) -> Option<&CallTableEntry> {
        self.calls.get(tag as usize)?.as_ref()
    }

    pub(super) fn remove(&mut self, tag: u64) -> Option<CallTableEntry> {
        let call = self.calls.get_mut(tag as usize)?.take()?;
        self.free.push(tag as u32);
        Some(call)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call() -> CallTableEntry {
        CallTableEntry::Unary(Arc::new(SharedCall::new()))
    }

    #[test]
    fn tags_are_used_again_and_never_by_two_calls() {
        let mut table = SharedCallTable::default();
        for _ in 0..2 {
            let mut tags: Vec<u32> = (0..5).map(|_| table.insert(call())).collect();
            assert!(table.remove(2).is_some() && table.remove(4).is_some());
            assert!(table.remove(2).is_none() && table.get(2).is_none());
            tags.retain(|&tag| tag != 2 && tag != 4);
            tags.extend([table.insert(call()), table.insert(call())]);
            tags.sort_unstable();
            assert_eq!(tags, [0, 1, 2, 3, 4]);
            for tag in tags {
                assert!(table.remove(u64::from(tag)).is_some());
            }
        }
        assert!(table.remove(9).is_none() && table.get(9).is_none());
    }
}
