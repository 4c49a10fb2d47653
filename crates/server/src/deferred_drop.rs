//! Frees what was cleared and dropped, away from the loops: freeing millions of entries takes a
//! second.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread;

use store::Garbage;
use store::background::Background;

use crate::limits;
use crate::settings::Log;

/// Where garbage goes.
#[derive(Clone)]
pub(crate) enum DeferredDrop {
    /// A thread of its own.
    Thread(SyncSender<Garbage>),
    /// Freed at once, as in a simulation, which has one thread.
    Inline,
}

impl DeferredDrop {
    /// Starts the thread. It ends when the last loop has.
    pub fn start(log: Arc<dyn Log>) -> std::io::Result<DeferredDrop> {
        let (sender, receiver) = sync_channel::<Garbage>(limits::GARBAGE_QUEUE);
        thread::Builder::new()
            .name("pelton-drop".into())
            .spawn(move || {
                if let Err(error) = Background::Bulk.enter() {
                    log.storage(&error.to_string());
                }
                receiver.iter().for_each(drop);
            })?;
        Ok(DeferredDrop::Thread(sender))
    }

    pub fn take(&self, garbage: Garbage) {
        if garbage.is_empty() {
            return;
        }
        match self {
            // With the queue full the loop frees it itself: slow, but bounded.
            DeferredDrop::Thread(sender) => match sender.try_send(garbage) {
                Ok(()) => {}
                Err(TrySendError::Full(garbage) | TrySendError::Disconnected(garbage)) => {
                    drop(garbage)
                }
            },
            DeferredDrop::Inline => drop(garbage),
        }
    }
}

#[cfg(test)]
mod tests {
    use store::{DatabaseConfig, DatabaseId, Mode, Outcomes, Store, StoreConfig};
    use testkit::suite::{StandingClock, put};

    use super::*;

    /// What a database leaves that is dropped.
    fn garbage(store: &Store) -> Garbage {
        let mut clock = StandingClock { now_ms: 1_000_000 };
        let (mut committer, mut outcomes) = (store.committer(), Outcomes::new());
        let mut batch = store.write_batch();
        batch.create_database(1, "dropped", &DatabaseConfig::default());
        let none = committer.run(&mut batch, &mut clock, &mut outcomes);
        assert!(none.is_empty());
        let id = store.database("dropped").expect("it was made");
        let mut commit = batch.begin(2, id, Mode::Atomic);
        commit.push(&put(b"key", b"value")).expect("it fits");
        commit.submit();
        assert_ne!(id, DatabaseId::DEFAULT);
        let garbage = committer.run(&mut batch, &mut clock, &mut outcomes);
        assert!(garbage.is_empty());
        batch.drop_database(3, id);
        committer.run(&mut batch, &mut clock, &mut outcomes)
    }

    /// A loop that freed it would stand still for so long.
    #[test]
    fn garbage_goes_to_the_thread_as_long_as_it_has_room_for_it() {
        let store = Store::in_memory(StoreConfig::new(1)).expect("the limits make sense");
        let (sender, receiver) = sync_channel(1);
        let deferred_drop = DeferredDrop::Thread(sender);
        for _ in 0..2 {
            deferred_drop.take(Garbage::default());
            assert!(receiver.try_recv().is_err(), "there is nothing to free");
            deferred_drop.take(garbage(&store));
            // No room: this one is freed here, and nobody waits.
            deferred_drop.take(garbage(&store));
            let first = receiver.try_recv().expect("it has come");
            assert!(!first.is_empty());
            assert!(receiver.try_recv().is_err());
        }
    }
}
