//! A signal for those who wait for something else than a change of a database.

use std::sync::Arc;

use super::{ChangeNews, Feed, Feeds};

/// Wakes who has its [`ChangeNews`], wherever they wait, as a change of a watched database does.
#[derive(Debug)]
pub struct ChangeSignal(Arc<Feed>);

impl ChangeSignal {
    pub(crate) fn new(feeds: &Arc<Feeds>) -> ChangeSignal {
        ChangeSignal(Feed::new(feeds))
    }

    /// Returns what shows somebody else whether it was raised.
    pub fn news(&self) -> ChangeNews {
        ChangeNews(super::NewsSource::Feed(Arc::clone(&self.0)))
    }

    /// Wakes those who wait.
    pub fn raise(&self) {
        self.0.note_change();
        self.0.feeds.announce();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use crate::store::{Store, StoreConfig};

    #[test]
    fn a_signal_wakes_those_who_wait_and_shows_how_often() {
        let store = Store::in_memory(StoreConfig::new(1)).expect("the limits make sense");
        let (one, other) = (store.signal(), store.signal());
        let news = one.news();
        let woken = std::sync::Arc::new(AtomicUsize::new(0));
        for round in 1..3 {
            let counted = std::sync::Arc::clone(&woken);
            let waker = store.wake_at_changes(std::sync::Arc::new(move || {
                counted.fetch_add(1, Ordering::Relaxed);
            }));
            let version = store.changes_version();
            one.raise();
            other.raise();
            assert_ne!(store.changes_version(), version);
            assert_eq!(news.changes(), round);
            assert_eq!(woken.load(Ordering::Relaxed), 2 * round as usize);
            drop(waker);
        }
        one.raise();
        assert_eq!((news.changes(), woken.load(Ordering::Relaxed)), (3, 4));
    }
}
