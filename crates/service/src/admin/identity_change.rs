//! What changes of tokens and of roles have in common: they look at all identities, and are
//! committed on the condition that nobody has changed one since.

use store::{CommitOutcome, Condition, DatabaseId, Decision, Mode, Operation};

use crate::actions::{DatabaseAccess, Permissions};
use crate::call::Shared;
use crate::identities::Unauthenticated;
use crate::identities::record::{CHANGES_KEY, IdentityRecord, StoredIdentities, put_entry};
use crate::identities::revoked::REVOKED_KEY;
use crate::keyvalue::refusal;
use crate::limits::{IDENTITIES_BYTES_MAX, TOKEN_CHANGE_TRIES};
use crate::status::{Code, Status};

/// A change that was decided: of the entry of an identity or a role.
pub(super) struct DecidedChange {
    pub(super) key: Vec<u8>,
    /// `None`: the entry is removed.
    pub(super) value: Option<Vec<u8>>,
    /// What the entry of [`REVOKED_KEY`] is to have, if that changes too.
    pub(super) revoked: Option<Vec<u8>>,
    pub(super) made: MadeIdentity,
}

/// What a change makes, as its response tells.
pub(super) enum MadeIdentity {
    /// It removes something.
    Nothing,
    Identity(IdentityRecord),
    Role {
        /// There was none of its name.
        is_new: bool,
    },
}

/// What came of a change.
pub(super) enum Committed {
    Done,
    /// Somebody else was quicker: it is to be decided anew.
    Again,
}

/// Returns what came of a change, which was tried so many times.
pub(super) fn committed(outcome: &CommitOutcome<'_>, tries: u32) -> Result<Committed, Status> {
    match outcome.decision {
        Decision::Refused(why) => Err(refusal(why)),
        Decision::Failed { .. } if tries >= TOKEN_CHANGE_TRIES => Err(Status::new(
            Code::Aborted,
            "others have changed tokens at the same moment, again and again; nothing was done, \
             try again",
        )),
        Decision::Failed { .. } => Ok(Committed::Again),
        Decision::Applied => Ok(Committed::Done),
    }
}

/// Refuses those who may not make changes any more, as these identities are: the change that is
/// decided on by them is committed only while they are as they are, so that none follows the
/// revocation of its caller. What a listener gives, no change takes away.
///
/// # Errors
/// If what proves the caller is gone or has expired, or its right was taken away.
pub(super) fn check_caller(
    stored: &StoredIdentities,
    now_ms: u64,
    actions: &impl Permissions,
) -> Result<(), Status> {
    let Some(identity) = actions.identity() else {
        return Err(Unauthenticated::Ended.status());
    };
    let Some(proof) = actions.proof() else {
        return Ok(());
    };
    let record = stored.find(identity.name());
    let identity = record.map(|record| &*record.identity);
    match identity.filter(|identity| identity.is_good(proof, now_ms)) {
        Some(identity) if identity.is_admin(now_ms) => Ok(()),
        Some(_) => Err(Unauthenticated::RightsChanged.status()),
        None => Err(Unauthenticated::Ended.status()),
    }
}

/// Has a change written, unless one was made since `changes_version`.
pub(super) fn commit_change(
    change: &DecidedChange,
    (changes_version, shared): (u64, &Shared),
    actions: &mut impl DatabaseAccess,
) {
    let key_check = shared.identities.key().check_value();
    let key = &change.key;
    let operation = match &change.value {
        Some(value) => put_entry(key, value, Condition::None),
        None => Operation::Delete {
            key,
            condition: Condition::None,
            want_previous: false,
        },
    };
    let mut commit = actions.write(DatabaseId::IDENTITIES, Mode::Atomic);
    let is_as_seen = Condition::VersionIs(changes_version);
    let changes = put_entry(CHANGES_KEY, &key_check, is_as_seen);
    let revoked = change.revoked.as_deref();
    let revoked = revoked.map(|value| put_entry(REVOKED_KEY, value, Condition::None));
    for operation in [changes, operation].iter().chain(&revoked) {
        let pushed = commit.push(operation);
        debug_assert_eq!(pushed, Ok(()), "a name and some rights fit");
    }
    commit.submit();
}

/// Refuses more bytes of the rights of all identities together than may be.
pub(super) fn check_bytes(bytes: usize) -> Result<(), Status> {
    match bytes <= IDENTITIES_BYTES_MAX {
        true => Ok(()),
        false => Err(Status::resource_exhausted(format!(
            "the rights of all tokens, with those of their roles, would have {bytes} bytes, and at \
             most {IDENTITIES_BYTES_MAX} are allowed: revoke some, or make roles smaller"
        ))),
    }
}
