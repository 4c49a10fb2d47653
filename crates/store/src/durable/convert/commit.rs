//! The commit that puts a copy in the place of its database.

use super::record::Converted;
use super::{ConvertError, Ready, ReadyContent};
use crate::durable::committer::DurableCommitter;
use crate::index::Index;
use crate::memory::MemoryIndex;
use crate::outcome::Refusal;

impl DurableCommitter {
    /// Takes over a copy that is complete: the next group puts it in the place of its database.
    pub(super) fn set_ready(&mut self, ready: Ready) {
        *self.conversion() = Some(Conversion::Ready(ready));
    }

    /// Adds a conversion that waits to the group, which is complete with it.
    pub(in crate::durable) fn decide_conversion(&mut self) {
        let Some(Conversion::Ready(ready)) = self.conversion().take() else {
            return;
        };
        match self.begin_commit(&ready) {
            Ok(sequence) => *self.conversion() = Some(Conversion::Logged { ready, sequence }),
            Err(error) => {
                let unused = ready.answer(Err(error));
                self.discard_unused(unused);
            }
        }
    }

    fn begin_commit(&mut self, ready: &Ready) -> Result<u64, ConvertError> {
        let database = self.store().find(ready.id).ok_or(ConvertError::Unknown)?;
        if self.has_failed() {
            return Err(ConvertError::LogFailed);
        }
        let sequence = self.store().next_sequence();
        let sequence = sequence.ok_or(ConvertError::Refused(Refusal::LogBehind))?;
        let converted = Converted {
            config: ready.config,
            tree_sequence: ready.content.tree_sequence(),
        };
        self.add_conversion(ready.id, &database.name, &converted.encode(), sequence);
        Ok(sequence)
    }

    /// Lets go what was copied for nothing: the log has nothing of it, and never will.
    fn discard_unused(&mut self, unused: ReadyContent) {
        match unused {
            ReadyContent::Memory { index, .. } => self.discard_index(Index::Memory(*index)),
            ReadyContent::Tree(writer) => self.discard_index(Index::Tree(writer.index().clone())),
        }
    }

    /// The group is durable: what was converted takes its place.
    pub(in crate::durable) fn publish_conversion(&mut self) {
        let Some(Conversion::Logged {
            mut ready,
            sequence,
        }) = self.conversion().take()
        else {
            return;
        };
        let store = self.store().clone();
        let id = ready.id;
        let empty = ReadyContent::Memory {
            index: Box::new(MemoryIndex::new(store.hasher().clone())),
            bytes: 0,
        };
        let older = match std::mem::replace(&mut ready.content, empty) {
            ReadyContent::Tree(mut writer) => {
                // Views show that it is as of the record.
                writer.end_commit(sequence);
                let index = Index::Tree(writer.index().clone());
                self.trees().insert(id, *writer);
                store.convert_database(id, ready.config, index, 0, sequence)
            }
            ReadyContent::Memory { index, bytes } => {
                self.trees().remove(id);
                let index = Index::Memory(*index);
                store.convert_database(id, ready.config, index, bytes, sequence)
            }
        };
        self.retire_index(older, sequence);
        // Nothing is left in it.
        drop(ready.answer(Ok(sequence)));
    }

    /// The group with the conversion is refused.
    pub(in crate::durable) fn refuse_conversion(&mut self, refusal: Refusal) {
        let Some(conversion) = self.conversion().take() else {
            return;
        };
        match conversion {
            Conversion::Ready(ready) => *self.conversion() = Some(Conversion::Ready(ready)),
            Conversion::Logged { ready, .. } => {
                let unused = ready.answer(Err(ConvertError::Refused(refusal)));
                match unused {
                    // The next start finds out whether the log knows of it.
                    ReadyContent::Tree(writer) if refusal == Refusal::OutcomeUnknown => {
                        self.close_tree(writer.index().clone());
                    }
                    unused => self.discard_unused(unused),
                }
            }
        }
    }
}

/// A conversion on its way through the committer.
#[derive(Debug)]
pub(in crate::durable) enum Conversion {
    /// It waits for a group.
    Ready(Ready),
    /// It is in the group that is under way.
    Logged { ready: Ready, sequence: u64 },
}
