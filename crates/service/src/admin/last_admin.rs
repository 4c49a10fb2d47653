//! Changes after which nobody could administrate tokens.

use crate::call::Shared;
use crate::identities::record::IdentityRecord;
use crate::identities::{Binding, Identity, NEVER_MS};
use crate::rights::Right;
use crate::status::{Code, Status, quoted};

/// Returns until when somebody may administrate tokens, in milliseconds since 1970; 0: nobody may.
/// A binding that nobody can show where the server listens is no administrator's, as at a start.
pub(super) fn administrated_until_ms<'a>(
    records: impl Iterator<Item = &'a IdentityRecord>,
    shared: &Shared,
    now_ms: u64,
) -> u64 {
    let identities = records.map(|record| &*record.identity);
    let provable = identities.filter(|identity| shared.identities.is_provable(identity));
    let admins = provable.filter(|identity| identity.is_admin(now_ms));
    admins.map(Identity::expires_ms).max().unwrap_or(0)
}

/// Returns whether a change takes the last administrator away, or the last one that does not
/// expire, from how long there was one before and is after it. Where callers without a token have
/// the right it takes nothing.
pub(super) fn loses_admin(before_ms: u64, after_ms: u64, shared: &Shared) -> bool {
    let is_lost = match before_ms {
        NEVER_MS => after_ms < NEVER_MS,
        before_ms => before_ms > 0 && after_ms == 0,
    };
    is_lost && !shared.identities.is_open_for(Right::Admin)
}

/// The refusal of such a change of a token.
#[cold]
pub(super) fn last_admin(
    (name, unprovable): (&str, Option<&IdentityRecord>),
    before_ms: u64,
    after_ms: u64,
) -> Status {
    let which = match (before_ms, after_ms) {
        (NEVER_MS, 1..) => " that does not expire",
        _ => "",
    };
    let elsewhere = unprovable.map_or_else(String::new, |other| {
        let noun = other.identity.binding().map_or("token", Binding::noun);
        let other = quoted(other.identity.name());
        format!(", as nobody can show the {noun} of {other} where the server listens")
    });
    Status::new(
        Code::FailedPrecondition,
        format!(
            "{} is the last token with the right admin{which}, and callers without a token do not \
             have it: nobody could make or revoke tokens any more{elsewhere}. Make another one \
             first, or give the name again in field confirm_name",
            quoted(name)
        ),
    )
}
