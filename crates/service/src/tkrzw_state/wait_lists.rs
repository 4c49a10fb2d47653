//! The calls that wait for a record, in the order in which they came.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use store::{ChangeSignal, DatabaseId};

/// What a call waits for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum WaitTopic {
    /// A change of this record that is told.
    Record(DatabaseId, Box<[u8]>),
    /// A record that is pushed and told.
    Queue(DatabaseId),
}

/// Who waits for what.
#[derive(Clone, Debug, Default)]
pub(crate) struct WaitLists(Arc<Mutex<WaitTable>>);

#[derive(Debug, Default)]
struct WaitTable {
    lists: HashMap<WaitTopic, BTreeMap<u64, Arc<ChangeSignal>>>,
    next_number: u64,
}

/// The place of a call that waits.
#[derive(Debug)]
pub(crate) struct WaitTicket {
    lists: WaitLists,
    topic: WaitTopic,
    signal: Arc<ChangeSignal>,
    number: u64,
}

impl WaitLists {
    /// Returns a place for a call that the signal wakes. It is in the list.
    pub(crate) fn enter(&self, topic: WaitTopic, signal: ChangeSignal) -> WaitTicket {
        let mut table = self.lock();
        table.next_number += 1;
        let ticket = WaitTicket {
            lists: self.clone(),
            topic,
            signal: Arc::new(signal),
            number: table.next_number,
        };
        drop(table);
        ticket.listen();
        ticket
    }

    /// Wakes the first that waits.
    pub(crate) fn wake_first(&self, topic: &WaitTopic) {
        let first = self.lock().take_first(topic);
        if let Some(signal) = first {
            signal.raise();
        }
    }

    /// Wakes all that wait: each for a state of its own of the same record.
    pub(crate) fn wake_all(&self, topic: &WaitTopic) {
        let all = self.lock().lists.remove(topic);
        all.iter()
            .flat_map(BTreeMap::values)
            .for_each(|signal| signal.raise());
    }

    fn lock(&self) -> MutexGuard<'_, WaitTable> {
        // Nothing under this lock can panic half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how many calls are in the lists.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.lock().lists.values().map(BTreeMap::len).sum()
    }
}

impl WaitTable {
    fn take_first(&mut self, topic: &WaitTopic) -> Option<Arc<ChangeSignal>> {
        let list = self.lists.get_mut(topic)?;
        let (_, signal) = list.pop_first()?;
        if list.is_empty() {
            self.lists.remove(topic);
        }
        Some(signal)
    }

    /// Returns whether it was still there.
    fn remove(&mut self, topic: &WaitTopic, number: u64) -> bool {
        let Some(list) = self.lists.get_mut(topic) else {
            return false;
        };
        let was_there = list.remove(&number).is_some();
        if list.is_empty() {
            self.lists.remove(topic);
        }
        was_there
    }
}

impl WaitTicket {
    /// Has the call woken from now on by what it waits for: to be called before it looks. It keeps
    /// its place in the order.
    pub(crate) fn listen(&self) {
        let mut table = self.lists.lock();
        let list = table.lists.entry(self.topic.clone()).or_default();
        list.insert(self.number, Arc::clone(&self.signal));
    }
}

impl WaitTicket {
    /// Returns whether the call has not been told since it last began to listen.
    pub(crate) fn is_listed(&self) -> bool {
        let table = self.lists.lock();
        let list = table.lists.get(&self.topic);
        list.is_some_and(|list| list.contains_key(&self.number))
    }
}

impl Drop for WaitTicket {
    fn drop(&mut self) {
        let is_listed = self.lists.lock().remove(&self.topic, self.number);
        // It was told of a record that it has not taken, so the next one is.
        if !is_listed && matches!(self.topic, WaitTopic::Queue(_)) {
            self.lists.wake_first(&self.topic);
        }
    }
}

#[cfg(test)]
mod tests {
    use store::{Store, StoreConfig};

    use super::*;

    #[test]
    fn whoever_is_told_is_listed_no_more_until_it_listens_again() {
        let store = Store::in_memory(StoreConfig::new(1)).expect("the limits make sense");
        let lists = WaitLists::default();
        let record = WaitTopic::Record(DatabaseId::DEFAULT, b"k".as_slice().into());
        let queue = WaitTopic::Queue(DatabaseId::DEFAULT);
        let enter = |topic: &WaitTopic| lists.enter(topic.clone(), store.signal());
        let of_record = [enter(&record), enter(&record)];
        let of_queue = [enter(&queue), enter(&queue)];
        for round in 1..3 {
            assert_eq!(lists.len(), 4);
            lists.wake_all(&record);
            for ticket in &of_record {
                assert!(!ticket.is_listed());
                assert_eq!(ticket.signal.news().changes(), round);
                ticket.listen();
            }
            lists.wake_first(&queue);
            let [first, second] = &of_queue;
            assert_eq!((first.is_listed(), second.is_listed()), (false, true));
            assert_eq!(second.signal.news().changes(), 0);
            // It keeps its place.
            first.listen();
        }
        drop((of_record, of_queue));
        assert!(lists.lock().lists.is_empty());
    }

    #[test]
    fn what_one_was_told_of_and_has_not_taken_is_told_to_the_next() {
        let store = Store::in_memory(StoreConfig::new(1)).expect("the limits make sense");
        let lists = WaitLists::default();
        let queue = WaitTopic::Queue(DatabaseId::DEFAULT);
        let enter = || lists.enter(queue.clone(), store.signal());
        let (first, second) = (enter(), enter());
        lists.wake_first(&queue);
        drop(first);
        assert_eq!(second.signal.news().changes(), 1);
        let third = enter();
        // It was told as well, and leaves; who leaves untold tells nobody.
        drop(second);
        assert_eq!(third.signal.news().changes(), 1);
        third.listen();
        let fourth = enter();
        drop(fourth);
        assert_eq!(third.signal.news().changes(), 1);
    }
}
