//! What a read may take, and why it ends without an answer.

use store::remote::{RemoteRead, RoomShare};
use tokio::time::Instant;

use crate::engine::Engine;
use crate::entry::EntryError;
use crate::failure::EngineFailure;

/// Why rows could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RowsError {
    /// The engine has not answered, or refused.
    #[error(transparent)]
    Engine(#[from] EngineFailure),
    /// A row is not one that this program has written.
    #[error("damaged: {0}")]
    Damaged(#[from] EntryError),
    /// What has come has no room.
    #[error("there is no room for what was read")]
    NoRoom,
    /// Nobody waits for it any more.
    #[error("its call has ended")]
    Abandoned,
}

/// What a read may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadScope<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) deadline: Instant,
    /// For whom it is: whose room is charged, and who may have left. `None`: it is one of the
    /// gateway's own.
    pub(crate) caller: Option<&'a RemoteRead>,
}

impl ReadScope<'_> {
    /// Charges bytes of the answer that have come.
    ///
    /// # Errors
    ///
    /// If there is no room for them, or nobody waits any more.
    pub(crate) fn grow(&self, bytes: usize) -> Result<(), RowsError> {
        self.check()?;
        match self.caller.is_none_or(|caller| caller.grow(bytes)) {
            true => Ok(()),
            false => Err(RowsError::NoRoom),
        }
    }

    /// Charges bytes that are no part of the answer for as long as the share is kept.
    ///
    /// # Errors
    ///
    /// If there is no room for them, or nobody waits any more.
    pub(crate) fn hold(&self, bytes: usize) -> Result<Option<RoomShare>, RowsError> {
        self.check()?;
        let Some(caller) = self.caller else {
            return Ok(None);
        };
        let share = caller.hold(bytes).ok_or(RowsError::NoRoom)?;
        Ok(Some(share))
    }

    /// Fails if nobody waits for the answer any more.
    pub(crate) fn check(&self) -> Result<(), RowsError> {
        match self.caller.is_some_and(RemoteRead::is_abandoned) {
            true => Err(RowsError::Abandoned),
            false => Ok(()),
        }
    }
}
