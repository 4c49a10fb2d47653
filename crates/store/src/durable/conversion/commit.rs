//! The committer's part of conversions: the commit that puts a copy in the place of its database.

use super::copying::{ReadyContent, ReadyCopy};
use super::error::ConvertError;
use super::freeze::{Freeze, Frozen};
use super::record::Converted;
use crate::database_id::DatabaseId;
use crate::durable::trees::TreeWriters;
use crate::index::Index;
use crate::log::{ORIGIN, Record, RecordKind};
use crate::outcome::Refusal;
use crate::store::Store;
use crate::tree::TreeIndex;

/// The conversions of a committer, one at a time.
#[derive(Debug, Default)]
pub(in crate::durable) struct Conversions {
    /// The database that is being converted.
    frozen: Option<Frozen>,
    pending: Option<PendingConversion>,
}

/// A conversion on its way through the committer.
#[derive(Debug)]
enum PendingConversion {
    /// It waits for a group.
    Ready(ReadyCopy),
    /// It is in the group that is under way.
    Logged { copy: ReadyCopy, sequence: u64 },
}

/// What is left of a conversion.
#[derive(Debug)]
pub(in crate::durable) enum Leftover {
    /// What the database was in until this commit.
    Older { index: Index, sequence: u64 },
    /// A copy that was made for nothing: the log has nothing of it, and never will.
    Unused(Index),
    /// A tree that the next start needs, to find out whether the log knows of it.
    Unknown(TreeIndex),
}

impl Conversions {
    /// Keeps writes from a database until the freeze is dropped.
    pub(in crate::durable) fn freeze(&mut self, id: DatabaseId) -> Freeze {
        debug_assert!(!self.is_converting(), "one is converted at a time");
        let freeze = Freeze::default();
        self.frozen = Some(freeze.of(id));
        freeze
    }

    /// Returns the database to which nothing is written.
    pub(in crate::durable) fn frozen(&self) -> Option<DatabaseId> {
        self.frozen.as_ref().and_then(Frozen::id)
    }

    /// Whether a database is being converted.
    pub(in crate::durable) fn is_converting(&self) -> bool {
        self.frozen().is_some()
    }

    /// Whether a copy waits for its group, or for the end of it.
    pub(in crate::durable) fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// Takes over a copy that is complete: the next group puts it in the place of its database.
    pub(in crate::durable) fn set_ready(&mut self, copy: ReadyCopy) {
        self.pending = Some(PendingConversion::Ready(copy));
    }

    /// Adds a conversion that waits to the group, which is complete with it: `add` takes its
    /// record. Returns what is left of one that cannot be.
    pub(in crate::durable) fn decide(
        &mut self,
        store: &Store,
        has_failed: bool,
        add: &mut dyn FnMut(&Record<'_>),
    ) -> Option<Leftover> {
        let copy = match self.pending.take()? {
            PendingConversion::Ready(copy) => copy,
            logged => {
                self.pending = Some(logged);
                return None;
            }
        };
        match begin_commit(&copy, store, has_failed, add) {
            Ok(sequence) => {
                self.pending = Some(PendingConversion::Logged { copy, sequence });
                None
            }
            Err(error) => Some(unused(copy.answer(Err(error)))),
        }
    }

    /// The group is durable: what was converted takes its place. Returns what it was in.
    pub(in crate::durable) fn publish(
        &mut self,
        store: &Store,
        trees: &mut TreeWriters,
    ) -> Option<Leftover> {
        let (mut copy, sequence) = match self.pending.take()? {
            PendingConversion::Logged { copy, sequence } => (copy, sequence),
            ready => {
                self.pending = Some(ready);
                return None;
            }
        };
        let (id, config) = (copy.id(), copy.config());
        let older = match copy.take_content(store.hasher()) {
            ReadyContent::Tree(mut writer) => {
                // Views show that it is as of the record.
                writer.end_commit(sequence);
                let index = Index::Tree(writer.index().clone());
                trees.insert(id, *writer);
                store.convert_database(id, config, index, 0, sequence)
            }
            ReadyContent::Memory { index, bytes } => {
                trees.remove(id);
                store.convert_database(id, config, Index::Memory(*index), bytes, sequence)
            }
        };
        // Nothing is left in it.
        drop(copy.answer(Ok(sequence)));
        Some(Leftover::Older {
            index: older,
            sequence,
        })
    }

    /// The group is refused, with the conversion if it is in it.
    pub(in crate::durable) fn refuse(&mut self, refusal: Refusal) -> Option<Leftover> {
        let copy = match self.pending.take()? {
            PendingConversion::Logged { copy, .. } => copy,
            ready => {
                self.pending = Some(ready);
                return None;
            }
        };
        Some(match copy.answer(Err(ConvertError::Refused(refusal))) {
            ReadyContent::Tree(writer) if refusal == Refusal::OutcomeUnknown => {
                Leftover::Unknown(writer.index().clone())
            }
            content => unused(content),
        })
    }
}

/// Draws the sequence of the commit, and adds its record to the group.
fn begin_commit(
    copy: &ReadyCopy,
    store: &Store,
    has_failed: bool,
    add: &mut dyn FnMut(&Record<'_>),
) -> Result<u64, ConvertError> {
    let database = store.find(copy.id()).ok_or(ConvertError::Unknown)?;
    if has_failed {
        return Err(ConvertError::LogFailed);
    }
    let sequence = store.next_sequence();
    let sequence = sequence.ok_or(ConvertError::Refused(Refusal::LogBehind))?;
    let converted = Converted {
        config: copy.config(),
        tree_sequence: copy.tree_sequence(),
    };
    let (kind, name) = (RecordKind::DatabaseConverted, database.name.as_bytes());
    add(&Record {
        value: &converted.encode(),
        ..Record::of_key(kind, sequence, copy.id(), ORIGIN, name)
    });
    Ok(sequence)
}

fn unused(content: ReadyContent) -> Leftover {
    Leftover::Unused(match content {
        ReadyContent::Memory { index, .. } => Index::Memory(*index),
        ReadyContent::Tree(writer) => Index::Tree(writer.index().clone()),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, sync_channel};

    use super::super::ConvertReport;
    use super::*;
    use crate::store::StoreConfig;

    type Answered = Receiver<Result<ConvertReport, ConvertError>>;

    fn store() -> Store {
        Store::new(StoreConfig::new(1), true, None).expect("the defaults are well")
    }

    /// A copy of the default database with one entry, and where its end is reported.
    fn copy(store: &Store, freeze: Freeze) -> (ReadyCopy, Answered) {
        let (answer, answered) = sync_channel(1);
        (ReadyCopy::with_one_entry(store, answer, freeze), answered)
    }

    fn decide(conversions: &mut Conversions, store: &Store) -> (Option<Leftover>, usize) {
        let mut records = 0;
        let leftover = conversions.decide(store, false, &mut |record| {
            assert_eq!(record.kind, RecordKind::DatabaseConverted);
            records += 1;
        });
        (leftover, records)
    }

    #[test]
    fn a_copy_takes_the_place_of_its_database_when_its_group_is_published() {
        let (store, mut conversions) = (store(), Conversions::default());
        let mut trees = TreeWriters::new(&store);
        for _ in 0..2 {
            let freeze = conversions.freeze(DatabaseId::DEFAULT);
            assert_eq!(conversions.frozen(), Some(DatabaseId::DEFAULT));
            let (copy, answered) = copy(&store, freeze);
            conversions.set_ready(copy);
            assert!(conversions.publish(&store, &mut trees).is_none());
            let (leftover, records) = decide(&mut conversions, &store);
            assert!(leftover.is_none() && records == 1 && conversions.is_pending());
            assert!(conversions.is_converting() && answered.try_recv().is_err());
            let sequence = store.last_sequence();
            match conversions.publish(&store, &mut trees) {
                Some(Leftover::Older { sequence: at, .. }) => assert_eq!(at, sequence),
                other => panic!("{other:?}"),
            }
            let report = answered.try_recv().expect("it has ended").expect("well");
            assert_eq!((report.sequence, report.entries), (sequence, 1));
            assert!(!conversions.is_pending() && !conversions.is_converting());
            let view = store.view(DatabaseId::DEFAULT).expect("it is in memory");
            assert_eq!(view.statistics().entries, 1);
        }
    }

    #[test]
    fn a_refused_copy_is_given_back_and_one_that_waits_stays() {
        let (store, mut conversions) = (store(), Conversions::default());
        for refusal in [Refusal::LogFull, Refusal::OutcomeUnknown] {
            let freeze = conversions.freeze(DatabaseId::DEFAULT);
            let (copy, answered) = copy(&store, freeze);
            conversions.set_ready(copy);
            assert!(conversions.refuse(refusal).is_none() && conversions.is_pending());
            assert_eq!(decide(&mut conversions, &store).1, 1);
            let leftover = conversions.refuse(refusal);
            assert!(
                matches!(leftover, Some(Leftover::Unused(Index::Memory(index))) if index.len() == 1)
            );
            let answer = answered.try_recv().expect("it has ended");
            assert!(matches!(answer, Err(ConvertError::Refused(why)) if why == refusal));
            assert!(!conversions.is_pending() && !conversions.is_converting());
        }
    }

    #[test]
    fn a_copy_for_a_log_that_has_failed_is_not_logged() {
        let (store, mut conversions) = (store(), Conversions::default());
        let freeze = conversions.freeze(DatabaseId::DEFAULT);
        let (copy, answered) = copy(&store, freeze);
        conversions.set_ready(copy);
        let leftover = conversions.decide(&store, true, &mut |_| panic!("nothing is logged"));
        assert!(matches!(leftover, Some(Leftover::Unused(_))));
        let answer = answered.try_recv().expect("it has ended");
        assert!(matches!(answer, Err(ConvertError::LogFailed)));
        assert_eq!(store.last_sequence(), 0);
    }
}
