//! CreateToken, ListTokens, RevokeToken and RotateToken: what is decided, and the responses.

use std::sync::Arc;

use super::identity_change::{DecidedChange, MadeIdentity, check_bytes};
use super::last_admin::{administrated_until_ms, last_admin, loses_admin};
use super::token_request::{NewProof, TokenCreation, TokenRequest, TokenRotation};
use crate::actions::{CallClock, Responses};
use crate::call::Shared;
use crate::identities::record::{IdentityRecord, StoredIdentities};
use crate::identities::{Binding, FIRST_ADMIN, Identity, IssuedToken, NEVER_MS, Proof};
use crate::limits::IDENTITIES_MAX;
use crate::rights::Grant;
use crate::status::{Code, Status, quoted};
use api::admin::{
    CreateTokenResponse, ListTokensResponse, RevokeTokenResponse, RotateTokenResponse,
    TokenDescription,
};
use protobuf::{Secret, writer};

/// Characters of a binding that stand in a message.
const BOUND_TO_CHARACTERS: usize = 200;

// --- decisions

/// Decides on a change of a token, or of an identity that is bound, for a caller whom `own` proves.
pub(super) fn decide(
    request: &TokenRequest,
    stored: &StoredIdentities,
    shared: &Shared,
    (now_ms, own): (u64, Option<&Proof>),
) -> Result<DecidedChange, Status> {
    let (name, made) = match request {
        TokenRequest::List => return Err(Status::internal("a list changes nothing")),
        TokenRequest::Create(creation) => {
            let made = created(creation, stored, shared, now_ms)?;
            check_bytes(stored.text_bytes() + made.identity.text_bytes())?;
            (&creation.name, Some(made))
        }
        TokenRequest::Revoke { name, is_confirmed } => {
            find(stored, name)?;
            if !is_confirmed {
                check_admin(name, None, stored, shared, now_ms)?;
            }
            (name, None)
        }
        TokenRequest::Rotate(rotation) => {
            let made = rotated(rotation, stored, shared, (now_ms, own))?;
            if !rotation.is_confirmed {
                check_admin(&rotation.name, Some(&made), stored, shared, now_ms)?;
            }
            (&rotation.name, Some(made))
        }
    };
    Ok(DecidedChange {
        key: name.as_bytes().to_vec(),
        value: made.as_ref().map(IdentityRecord::encode),
        revoked: revoked(name, stored),
        made: made.map_or(MadeIdentity::Nothing, MadeIdentity::Identity),
    })
}

/// Returns the entry of the tokens that no start makes anew, if those of this name are to be among
/// them: it is [`FIRST_ADMIN`], and has some that are revoked or rotated away.
fn revoked(name: &str, stored: &StoredIdentities) -> Option<Vec<u8>> {
    let before = stored.find(name).filter(|_| name == FIRST_ADMIN)?;
    let tokens = before.identity.tokens();
    (!tokens.is_empty()).then(|| stored.revoked.with(tokens).encode())
}

fn created(
    request: &TokenCreation,
    stored: &StoredIdentities,
    shared: &Shared,
    now_ms: u64,
) -> Result<IdentityRecord, Status> {
    let TokenCreation {
        name,
        rights,
        expires_after_ms,
        proof,
    } = request;
    if stored.find(name).is_some() {
        return Err(already_exists(name));
    }
    if let Some(role) = rights.roles().find(|role| stored.find_role(role).is_none()) {
        return Err(Status::invalid_argument(format!(
            "field rights: there is no role {}",
            quoted(role)
        )));
    }
    if stored.records.len() >= IDENTITIES_MAX {
        let records = stored.records.iter();
        let unusable = records.filter(|record| !record.identity.is_usable(now_ms));
        return Err(Status::resource_exhausted(format!(
            "there are {IDENTITIES_MAX} tokens, and there can be no more: revoke one first; {} \
             of them have expired",
            unusable.count()
        )));
    }
    let expires_ms = expiry(*expires_after_ms, NEVER_MS, now_ms);
    let identity = match proof {
        NewProof::Token(token) => {
            let issued = IssuedToken {
                hash: shared.identities.key().hash(token),
                expires_ms: NEVER_MS,
            };
            Identity::new(name, rights.clone(), expires_ms, vec![issued])
        }
        NewProof::Binding(binding) => {
            check_unbound(binding, stored)?;
            Identity::bound(name, rights.clone(), expires_ms, binding.clone())
        }
    };
    let mut identity = identity.map_err(|error| Status::invalid_argument(error.to_string()))?;
    stored.apply_roles_to(&mut identity);
    Ok(IdentityRecord {
        identity: Arc::new(identity),
        created_ms: now_ms,
    })
}

fn rotated(
    request: &TokenRotation,
    stored: &StoredIdentities,
    shared: &Shared,
    (now_ms, own): (u64, Option<&Proof>),
) -> Result<IdentityRecord, Status> {
    let TokenRotation {
        name,
        keep,
        expires_after_ms,
        token,
        ..
    } = request;
    let IdentityRecord {
        identity: before,
        created_ms,
    } = find(stored, name)?;
    if let Some(binding) = before.binding() {
        return Err(has_no_token(name, binding));
    }
    let expires_ms = expiry(*expires_after_ms, before.expires_ms(), now_ms);
    if expires_ms <= now_ms {
        return Err(Status::invalid_argument(format!(
            "field expires_after_ms is 0, and the token {} has expired: say when the new one \
             is to expire",
            quoted(name)
        )));
    }
    if let Some(until_ms) = keep.broken_promise_ms(before, own, now_ms) {
        return Err(keeps_another(name, until_ms - now_ms));
    }
    let mut tokens = vec![IssuedToken {
        hash: shared.identities.key().hash(token),
        expires_ms: NEVER_MS,
    }];
    tokens.extend(keep.token(before, own, now_ms));
    let mut identity = Identity::new(name, before.granted().clone(), expires_ms, tokens)
        .map_err(|error| Status::invalid_argument(error.to_string()))?;
    stored.apply_roles_to(&mut identity);
    Ok(IdentityRecord {
        identity: Arc::new(identity),
        created_ms: *created_ms,
    })
}

fn find<'a>(stored: &'a StoredIdentities, name: &str) -> Result<&'a IdentityRecord, Status> {
    stored
        .find(name)
        .ok_or_else(|| Status::not_found(format!("field name: there is no token {}", quoted(name))))
}

#[cold]
fn already_exists(name: &str) -> Status {
    Status::new(
        Code::AlreadyExists,
        format!(
            "field name: there is a token {} already; rotate it for another one with the same \
             rights, also where its token has reached nobody, or revoke it first",
            quoted(name)
        ),
    )
}

/// Refuses a change of a token, or its end, after which nobody could administrate tokens.
fn check_admin(
    name: &str,
    made: Option<&IdentityRecord>,
    stored: &StoredIdentities,
    shared: &Shared,
    now_ms: u64,
) -> Result<(), Status> {
    let records = stored.records.iter();
    let others = (records.clone()).filter(|record| record.identity.name() != name);
    let before_ms = administrated_until_ms(records, shared, now_ms);
    let after_ms = administrated_until_ms(others.chain(made), shared, now_ms);
    match loses_admin(before_ms, after_ms, shared) {
        true => {
            let is_useless = |record: &&IdentityRecord| {
                record.identity.is_admin(now_ms) && !shared.identities.is_provable(&record.identity)
            };
            let unprovable = stored.records.iter().find(is_useless);
            Err(last_admin((name, unprovable), before_ms, after_ms))
        }
        false => Ok(()),
    }
}

fn expiry(expires_after_ms: u64, otherwise_ms: u64, now_ms: u64) -> u64 {
    match expires_after_ms {
        0 => otherwise_ms,
        after_ms => now_ms.saturating_add(after_ms),
    }
}

/// Refuses a binding that proves somebody already.
fn check_unbound(binding: &Binding, stored: &StoredIdentities) -> Result<(), Status> {
    let mut identities = stored.records.iter().map(|record| &*record.identity);
    match identities.find(|identity| identity.binding() == Some(binding)) {
        None => Ok(()),
        Some(other) => Err(Status::new(
            Code::AlreadyExists,
            format!(
                "field binding: {} is bound to it already; revoke that first",
                quoted(other.name())
            ),
        )),
    }
}

/// A time as people say it, rounded up.
fn shown_time(ms: u64) -> String {
    match ms.div_ceil(1_000) {
        seconds @ ..120 => format!("{seconds} s"),
        seconds @ ..7_200 => format!("{} min", seconds.div_ceil(60)),
        seconds => format!("{} h", seconds.div_ceil(3_600)),
    }
}

/// The refusal of a rotation that would revoke what another one keeps.
#[cold]
fn keeps_another(name: &str, left_ms: u64) -> Status {
    Status::new(
        Code::FailedPrecondition,
        format!(
            "the token {} was rotated before, and the one before that is kept for another {}: \
             there can be two at a time, and this rotation would revoke it. Wait until then, or \
             set field revoke_kept",
            quoted(name),
            shown_time(left_ms)
        ),
    )
}

#[cold]
fn has_no_token(name: &str, binding: &Binding) -> Status {
    let bound: String = binding
        .to_string()
        .chars()
        .take(BOUND_TO_CHARACTERS)
        .collect();
    Status::new(
        Code::FailedPrecondition,
        format!(
            "{} has no token that could be rotated: it is bound to {bound}. Create another one \
             with another binding, and revoke this one",
            quoted(name)
        ),
    )
}

// --- responses

/// Responds to a change that was made.
pub(super) fn respond(
    request: &TokenRequest,
    made: &MadeIdentity,
    shared: &Shared,
    actions: &mut (impl Responses + CallClock),
) {
    let now_ms = actions.now_ms();
    let MadeIdentity::Identity(made) = made else {
        return actions.respond(|out| RevokeTokenResponse {}.encode(out));
    };
    let token = match request {
        TokenRequest::Create(TokenCreation {
            proof: NewProof::Token(token),
            ..
        })
        | TokenRequest::Rotate(TokenRotation { token, .. }) => Some(token.text()),
        _ => None,
    };
    let is_new = matches!(request, TokenRequest::Create(_));
    let words = IdentityWords::of(made);
    let rights = words.rights();
    let token = Secret::new(token.as_ref().map_or("", |text| text.as_str()));
    let description = Some(describe(made, (&words, &rights), shared, now_ms));
    actions.respond(|out| match is_new {
        true => CreateTokenResponse { token, description }.encode(out),
        false => RotateTokenResponse { token, description }.encode(out),
    });
}

/// Responds with all identities.
pub(super) fn list(
    stored: &StoredIdentities,
    shared: &Shared,
    now_ms: u64,
    actions: &mut impl Responses,
) {
    actions.respond(|out| {
        for record in &stored.records {
            let words = IdentityWords::of(record);
            let rights = words.rights();
            let description = describe(record, (&words, &rights), shared, now_ms);
            let number = ListTokensResponse::NUMBERS.tokens;
            writer::message(out, number, |out| description.encode(out));
        }
    });
}

/// What an identity may do, and what it is bound to, in the words of the API.
struct IdentityWords {
    rights: Vec<String>,
    binding: String,
}

impl IdentityWords {
    fn of(record: &IdentityRecord) -> IdentityWords {
        let identity = &record.identity;
        let grants = identity.granted().grants().iter();
        IdentityWords {
            rights: grants.map(Grant::to_string).collect(),
            binding: identity
                .binding()
                .map_or_else(String::new, Binding::to_string),
        }
    }

    fn rights(&self) -> Vec<&str> {
        self.rights.iter().map(String::as_str).collect()
    }
}

/// Describes an identity in the words of the API.
fn describe<'a>(
    record: &'a IdentityRecord,
    (words, rights): (&'a IdentityWords, &'a [&'a str]),
    shared: &Shared,
    now_ms: u64,
) -> TokenDescription<'a> {
    let identity = &record.identity;
    let previous = identity.tokens().get(1);
    let previous = previous.filter(|token| token.expires_ms > now_ms);
    TokenDescription {
        name: identity.name(),
        rights: rights.into(),
        created_at_ms: record.created_ms,
        expires_at_ms: match identity.expires_ms() {
            NEVER_MS => 0,
            expires_ms => expires_ms,
        },
        expired: !identity.is_usable(now_ms),
        previous_expires_at_ms: previous.map_or(0, |token| token.expires_ms),
        binding: &words.binding,
        unprovable: !shared.identities.is_provable(identity),
    }
}
