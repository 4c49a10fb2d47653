//! Converts a database: what the committer does for it, and the thread that converts.

use std::ops::ControlFlow;
use std::sync::mpsc::sync_channel;

use super::commit_loop::CommitLoop;
use super::committer::DurableCommitter;
use super::committer_access::{BetweenRounds, CommitterAccess};
use super::conversion::{
    BegunConversion, ConversionContent, ConvertError, ConvertReport, ConvertWatch, make_tree,
};
use super::thread::Durable;
use crate::clock::Clock;
use crate::database::Kind;
use crate::database_id::DatabaseId;
use crate::outcome::Refusal;

impl DurableCommitter {
    /// Begins a conversion, between two groups. From now on writes to the database are refused.
    fn begin_conversion(
        &mut self,
        id: DatabaseId,
        kind: Kind,
    ) -> Result<BegunConversion, ConvertError> {
        let store = self.store().clone();
        let older = store.config(id).ok_or(ConvertError::Unknown)?;
        if older.kind == kind {
            return Err(ConvertError::IsOfKind);
        }
        let config = older.of_kind(kind);
        config
            .check(true, store.trees().is_some())
            .map_err(ConvertError::NotPossible)?;
        if self.is_converting() {
            return Err(ConvertError::Busy);
        }
        if self.has_failed() {
            return Err(ConvertError::LogFailed);
        }
        let sequence = store.next_sequence();
        let sequence = sequence.ok_or(ConvertError::Refused(Refusal::LogBehind))?;
        // So that the log has this sequence, and what is copied is durable: what is on disk must
        // never have what the log can lose.
        self.ask_for_mark();
        let freeze = self.conversions().freeze(id);
        Ok(BegunConversion::new(store, id, config, sequence, freeze))
    }

    /// What a database on disk becomes in memory, once the log is durable.
    fn begin_in_memory(&mut self, id: DatabaseId) -> Result<ConversionContent, ConvertError> {
        let hasher = self.store().hasher().clone();
        let durable_sequence = self.log().durable().sequence;
        let writer = self.trees().get_mut(id).ok_or(ConvertError::Unknown)?;
        writer.seal(durable_sequence);
        let from = writer.index().clone();
        Ok(ConversionContent::in_memory(&hasher, from))
    }
}

/// Makes a database one of another kind. `unanswered` is the error if the commit that does it is
/// never decided.
fn convert(
    access: &mut impl CommitterAccess,
    id: DatabaseId,
    kind: Kind,
    watch: ConvertWatch<'_>,
    unanswered: ConvertError,
) -> Result<ConvertReport, ConvertError> {
    let holds = access.holds().clone();
    let begun = access.between_groups(move |committer, _| {
        // A backup has the trees as they were when it began, and the log behind.
        if holds.is_held() {
            return Err(ConvertError::Busy);
        }
        committer.begin_conversion(id, kind)
    });
    let begun = begun.ok_or(ConvertError::Stopping)??;
    begun.check_durable(access.sync())?;
    make_tree(begun.store(), id)?;
    let content = match kind {
        Kind::Disk => begun.begin_on_disk()?,
        // Of another kind it cannot have become: that was looked at as the conversion began.
        Kind::Memory | Kind::Remote(_) => {
            let begun = access.between_groups(move |committer, _| committer.begin_in_memory(id));
            begun.ok_or(ConvertError::Stopping)??
        }
    };
    let mut converting = begun.with(content);
    converting.run(watch)?;
    let (answer, answered) = sync_channel(1);
    let copy = converting.complete(answer)?;
    access
        .between_groups(move |committer, _| committer.conversions().set_ready(copy))
        .ok_or(ConvertError::Stopping)?;
    access.wait_for(&answered).unwrap_or(Err(unanswered))
}

impl CommitLoop {
    /// Makes a database one of another kind, on this thread, between two rounds.
    pub fn convert(
        &mut self,
        id: DatabaseId,
        kind: Kind,
        clock: &mut dyn Clock,
    ) -> Result<ConvertReport, ConvertError> {
        let watch: ConvertWatch<'_> = &mut |_| ControlFlow::Continue(());
        let unanswered = ConvertError::Refused(Refusal::LogBehind);
        convert(
            &mut BetweenRounds::new(self, clock),
            id,
            kind,
            watch,
            unanswered,
        )
    }
}

impl Durable {
    /// Makes a database one of another kind, while everything goes on but writes to it, which are
    /// refused with [`Refusal::Converting`]. All or nothing, also if the process dies. Takes as
    /// long as it takes, on the thread that calls.
    pub fn convert(
        &self,
        id: DatabaseId,
        kind: Kind,
        watch: ConvertWatch<'_>,
    ) -> Result<ConvertReport, ConvertError> {
        convert(&mut self.access(), id, kind, watch, ConvertError::Stopping)
    }
}
