//! CreateToken, ListTokens, RevokeToken and RotateToken.
//!
//! A change looks at all identities, decides, and commits what it has decided on the condition that
//! nobody has changed one since. If somebody has, it looks again.

use std::time::Duration;

use store::{CommitOutcome, Condition, DatabaseId, Decision, Expiry, Mode, Operation, ReadView};

use super::invalid;
use crate::actions::{CallClock, DatabaseAccess, Responses, SendRoom};
use crate::call::Shared;
use crate::identities::record::{CHANGES_KEY, IdentityRecord, StoredIdentities};
use crate::identities::{Identity, IssuedToken, NEVER_MS, Token};
use crate::keyvalue::refusal;
use crate::limits::{
    GRANTS_MAX, IDENTITIES_MAX, IDENTITY_NAME_BYTES_MAX, QUOTED_CHARACTERS, TOKEN_CHANGE_TRIES,
    TOKEN_EXPIRY_MS_MAX, TOKEN_KEEP_MS_MAX, TOKEN_RIGHTS_BYTES_MAX,
};
use crate::method::Method;
use crate::rights::{Grant, Right, Rights};
use crate::status::{Code, Status};
use api::admin::{
    CreateTokenRequest, CreateTokenResponse, ListTokensRequest, ListTokensResponse,
    RevokeTokenRequest, RevokeTokenResponse, RotateTokenRequest, RotateTokenResponse,
    TokenDescription,
};
use protobuf::{DecodeError, Secret, writer};

/// A call about tokens, from its request to its response.
pub(super) struct TokenCall {
    wanted: TokenRequest,
    /// How often a change was decided.
    tries: u32,
    /// The identity, as the commit under way makes it.
    made: Option<IdentityRecord>,
    /// A list that waits until it can be sent.
    waits: bool,
}

/// What is asked for.
enum TokenRequest {
    List,
    Create {
        name: Box<str>,
        rights: Rights,
        expires_after_ms: u64,
        token: Token,
    },
    Revoke {
        name: Box<str>,
        is_confirmed: bool,
    },
    Rotate {
        name: Box<str>,
        keep_for_ms: u64,
        expires_after_ms: u64,
        token: Token,
    },
}

impl TokenCall {
    /// Takes the request up, and asks for all identities.
    pub(super) fn begin(
        method: Method,
        bytes: &[u8],
        shared: &Shared,
        actions: &mut impl DatabaseAccess,
    ) -> Result<Box<TokenCall>, Status> {
        let malformed = |error: DecodeError| invalid(method, error);
        let wanted = match method {
            Method::AdminCreateToken => create(
                &CreateTokenRequest::decode(bytes).map_err(malformed)?,
                shared,
            )?,
            Method::AdminRevokeToken => {
                revoke(&RevokeTokenRequest::decode(bytes).map_err(malformed)?)?
            }
            Method::AdminRotateToken => rotate(
                &RotateTokenRequest::decode(bytes).map_err(malformed)?,
                shared,
            )?,
            _ => {
                ListTokensRequest::decode(bytes).map_err(malformed)?;
                TokenRequest::List
            }
        };
        actions.read_long(DatabaseId::IDENTITIES);
        Ok(Box::new(TokenCall {
            wanted,
            tries: 0,
            made: None,
            waits: false,
        }))
    }

    /// Decides, with all identities at hand.
    pub(super) fn read(
        &mut self,
        shown: &ReadView<'_>,
        shared: &Shared,
        actions: &mut (impl DatabaseAccess + Responses + SendRoom + CallClock),
    ) -> Result<(), Status> {
        let stored = StoredIdentities::read(shown);
        let now_ms = actions.now_ms();
        match &self.wanted {
            TokenRequest::List => {
                self.waits = !actions.can_send();
                if !self.waits {
                    list(&stored, now_ms, actions);
                }
                return Ok(());
            }
            TokenRequest::Create { .. } => self.made = Some(self.created(&stored, shared, now_ms)?),
            TokenRequest::Revoke { name, is_confirmed } => {
                let record = find(&stored, name)?;
                if !is_confirmed && is_last_admin(record, &stored, shared, now_ms) {
                    return Err(last_admin(name));
                }
            }
            TokenRequest::Rotate { .. } => self.made = Some(self.rotated(&stored, shared, now_ms)?),
        }
        self.tries += 1;
        self.commit(stored.changes_version, actions);
        Ok(())
    }

    /// Goes on with a list that has waited.
    pub(super) fn writable(&mut self, actions: &mut (impl DatabaseAccess + SendRoom)) {
        if self.waits && actions.can_send() {
            self.waits = false;
            actions.read_long(DatabaseId::IDENTITIES);
        }
    }

    fn name(&self) -> &str {
        match &self.wanted {
            TokenRequest::List => "",
            TokenRequest::Create { name, .. }
            | TokenRequest::Revoke { name, .. }
            | TokenRequest::Rotate { name, .. } => name,
        }
    }

    fn created(
        &self,
        stored: &StoredIdentities,
        shared: &Shared,
        now_ms: u64,
    ) -> Result<IdentityRecord, Status> {
        let TokenRequest::Create {
            name,
            rights,
            expires_after_ms,
            token,
        } = &self.wanted
        else {
            return Err(Status::internal("this call makes no token"));
        };
        if stored.find(name).is_some() {
            return Err(already_exists(name));
        }
        if stored.records.len() >= IDENTITIES_MAX {
            return Err(Status::resource_exhausted(format!(
                "there are {IDENTITIES_MAX} tokens, and there can be no more: revoke one first"
            )));
        }
        let issued = IssuedToken {
            hash: shared.identities.key().hash(token),
            expires_ms: NEVER_MS,
        };
        let expires_ms = expiry(*expires_after_ms, NEVER_MS, now_ms);
        Ok(IdentityRecord {
            identity: identity(name, rights, expires_ms, vec![issued])?,
            created_ms: now_ms,
        })
    }

    fn rotated(
        &self,
        stored: &StoredIdentities,
        shared: &Shared,
        now_ms: u64,
    ) -> Result<IdentityRecord, Status> {
        let TokenRequest::Rotate {
            name,
            keep_for_ms,
            expires_after_ms,
            token,
        } = &self.wanted
        else {
            return Err(Status::internal("this call rotates no token"));
        };
        let IdentityRecord {
            identity: before,
            created_ms,
        } = find(stored, name)?;
        let expires_ms = expiry(*expires_after_ms, before.expires_ms(), now_ms);
        if expires_ms <= now_ms {
            return Err(Status::invalid_argument(format!(
                "field expires_after_ms is 0, and the token {} has expired: say when the new one \
                 is to expire",
                quoted(name)
            )));
        }
        let mut tokens = vec![IssuedToken {
            hash: shared.identities.key().hash(token),
            expires_ms: NEVER_MS,
        }];
        // One that had expired is not good again for a while, since its name gets a later expiry.
        let kept_until_ms = now_ms.saturating_add(*keep_for_ms).min(before.expires_ms());
        if kept_until_ms > now_ms {
            let newest = before.tokens().first();
            tokens.extend(newest.map(|token| IssuedToken {
                expires_ms: kept_until_ms,
                ..*token
            }));
        }
        Ok(IdentityRecord {
            identity: identity(name, before.rights(), expires_ms, tokens)?,
            created_ms: *created_ms,
        })
    }

    /// Has the identity written or removed, unless one was changed since `changes_version`.
    fn commit(&self, changes_version: u64, actions: &mut impl DatabaseAccess) {
        let value = self.made.as_ref().map(IdentityRecord::encode);
        let operation = match &value {
            Some(value) => put(self.name().as_bytes(), value, Condition::None),
            None => Operation::Delete {
                key: self.name().as_bytes(),
                condition: Condition::None,
                want_previous: false,
            },
        };
        let mut commit = actions.write(DatabaseId::IDENTITIES, Mode::Atomic);
        let is_as_seen = Condition::VersionIs(changes_version);
        for operation in [&put(CHANGES_KEY, b"", is_as_seen), &operation] {
            let pushed = commit.push(operation);
            debug_assert_eq!(pushed, Ok(()), "a name and some rights fit");
        }
        commit.submit();
    }

    /// The change was made, or has to be decided anew.
    pub(super) fn committed(
        &mut self,
        outcome: &CommitOutcome<'_>,
        actions: &mut (impl DatabaseAccess + Responses + CallClock),
    ) -> Result<(), Status> {
        match outcome.decision {
            Decision::Refused(why) => Err(refusal(why)),
            Decision::Failed { .. } if self.tries >= TOKEN_CHANGE_TRIES => Err(Status::new(
                Code::Aborted,
                "others have changed tokens at the same moment, again and again; nothing was \
                 done, try again",
            )),
            Decision::Failed { .. } => {
                actions.read_long(DatabaseId::IDENTITIES);
                Ok(())
            }
            Decision::Applied => {
                self.respond(actions);
                Ok(())
            }
        }
    }

    fn respond(&self, actions: &mut (impl Responses + CallClock)) {
        let now_ms = actions.now_ms();
        let (TokenRequest::Create { token, .. } | TokenRequest::Rotate { token, .. }, Some(made)) =
            (&self.wanted, &self.made)
        else {
            return actions.respond(|out| RevokeTokenResponse {}.encode(out));
        };
        let text = token.text();
        let is_new = matches!(self.wanted, TokenRequest::Create { .. });
        let rights = rights_of(made);
        let rights: Vec<&str> = rights.iter().map(String::as_str).collect();
        let token = Secret::new(&text);
        let description = Some(describe(made, &rights, now_ms));
        actions.respond(|out| match is_new {
            true => CreateTokenResponse { token, description }.encode(out),
            false => RotateTokenResponse { token, description }.encode(out),
        });
    }
}

fn put<'a>(key: &'a [u8], value: &'a [u8], condition: Condition<'a>) -> Operation<'a> {
    Operation::Put {
        key,
        value,
        condition,
        expiry: Expiry::None,
        want_previous: false,
    }
}

// --- requests

fn create(request: &CreateTokenRequest<'_>, shared: &Shared) -> Result<TokenRequest, Status> {
    check_name(request.name)?;
    check_expiry(request.expires_after_ms)?;
    let count = request.rights.len();
    if !(1..=GRANTS_MAX).contains(&count) {
        return Err(Status::invalid_argument(format!(
            "field rights has {count} rights; give 1 to {GRANTS_MAX}"
        )));
    }
    let (mut grants, mut bytes) = (Vec::with_capacity(count), 0);
    for text in request.rights.iter() {
        let text = text.map_err(|error| invalid(Method::AdminCreateToken, error))?;
        bytes += text.len();
        let grant: Result<Grant, _> = text.parse();
        grants.push(
            grant.map_err(|error| Status::invalid_argument(format!("field rights: {error}")))?,
        );
    }
    if bytes > TOKEN_RIGHTS_BYTES_MAX {
        return Err(Status::invalid_argument(format!(
            "field rights: the rights have {bytes} bytes together, at most \
             {TOKEN_RIGHTS_BYTES_MAX} are allowed"
        )));
    }
    Ok(TokenRequest::Create {
        name: request.name.into(),
        rights: Rights::new(grants),
        expires_after_ms: request.expires_after_ms,
        token: draw(shared)?,
    })
}

fn revoke(request: &RevokeTokenRequest<'_>) -> Result<TokenRequest, Status> {
    if !request.confirm_name.is_empty() && request.confirm_name != request.name {
        return Err(Status::invalid_argument(
            "field confirm_name is another name than field name",
        ));
    }
    Ok(TokenRequest::Revoke {
        name: request.name.into(),
        is_confirmed: !request.confirm_name.is_empty(),
    })
}

fn rotate(request: &RotateTokenRequest<'_>, shared: &Shared) -> Result<TokenRequest, Status> {
    check_expiry(request.expires_after_ms)?;
    if request.keep_for_ms > TOKEN_KEEP_MS_MAX {
        return Err(Status::invalid_argument(format!(
            "field keep_for_ms is {}, at most {TOKEN_KEEP_MS_MAX} ({} days) are allowed",
            request.keep_for_ms,
            days(TOKEN_KEEP_MS_MAX)
        )));
    }
    Ok(TokenRequest::Rotate {
        name: request.name.into(),
        keep_for_ms: request.keep_for_ms,
        expires_after_ms: request.expires_after_ms,
        token: draw(shared)?,
    })
}

fn draw(shared: &Shared) -> Result<Token, Status> {
    if shared.store.secret().is_none() {
        return Err(Status::new(
            Code::FailedPrecondition,
            "the data folder has no secret yet, under which tokens are hashed: there was no room \
             on the disk for it when the server started; make room and start it again",
        ));
    }
    let token = (shared.draw_token)();
    token.ok_or_else(|| Status::internal("the operating system gives no random bytes"))
}

/// Names are those that databases may have, and shorter: people type them.
fn check_name(name: &str) -> Result<(), Status> {
    if name.len() <= IDENTITY_NAME_BYTES_MAX && store::is_database_name(name) {
        return Ok(());
    }
    Err(Status::invalid_argument(format!(
        "field name is {}; a token's name has 1 to {IDENTITY_NAME_BYTES_MAX} letters, digits, \
         `-`, `_` and `.`, and does not begin with `.`",
        quoted(name)
    )))
}

fn check_expiry(expires_after_ms: u64) -> Result<(), Status> {
    match expires_after_ms <= TOKEN_EXPIRY_MS_MAX {
        true => Ok(()),
        false => Err(Status::invalid_argument(format!(
            "field expires_after_ms is {expires_after_ms}, at most {TOKEN_EXPIRY_MS_MAX} ({} \
             days) are allowed; 0 is never",
            days(TOKEN_EXPIRY_MS_MAX)
        ))),
    }
}

fn days(ms: u64) -> u64 {
    Duration::from_millis(ms).as_secs() / (24 * 60 * 60)
}

fn quoted(name: &str) -> String {
    let short: String = name.chars().take(QUOTED_CHARACTERS).collect();
    format!("{short:?}")
}

// --- decisions

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
            "field name: there is a token {} already; revoke it first, or rotate it for another \
             one with the same rights",
            quoted(name)
        ),
    )
}

#[cold]
fn last_admin(name: &str) -> Status {
    Status::new(
        Code::FailedPrecondition,
        format!(
            "{} is the last token with the right admin, and callers without a token do not have \
             it: nobody could make or revoke tokens any more. Make another one first, or give the \
             name again in field confirm_name",
            quoted(name)
        ),
    )
}

/// Returns whether nobody else may administrate tokens.
fn is_last_admin(
    record: &IdentityRecord,
    stored: &StoredIdentities,
    shared: &Shared,
    now_ms: u64,
) -> bool {
    let is_admin = |record: &&IdentityRecord| {
        let identity = &record.identity;
        identity.rights().on_server(Right::Admin) && identity.expires_ms() > now_ms
    };
    let others = stored.records.iter().filter(|other| *other != record);
    is_admin(&record)
        && others.filter(is_admin).count() == 0
        && !shared.identities.is_open_for(Right::Admin)
}

fn expiry(expires_after_ms: u64, otherwise_ms: u64, now_ms: u64) -> u64 {
    match expires_after_ms {
        0 => otherwise_ms,
        after_ms => now_ms.saturating_add(after_ms),
    }
}

fn identity(
    name: &str,
    rights: &Rights,
    expires_ms: u64,
    tokens: Vec<IssuedToken>,
) -> Result<Identity, Status> {
    let identity = Identity::new(name, rights.clone(), expires_ms, tokens);
    identity.map_err(|error| Status::invalid_argument(error.to_string()))
}

// --- responses

fn list(stored: &StoredIdentities, now_ms: u64, actions: &mut impl Responses) {
    actions.respond(|out| {
        for record in &stored.records {
            let rights = rights_of(record);
            let rights: Vec<&str> = rights.iter().map(String::as_str).collect();
            let description = describe(record, &rights, now_ms);
            let number = ListTokensResponse::NUMBERS.tokens;
            writer::message(out, number, |out| description.encode(out));
        }
    });
}

/// What an identity may do, in the words of the API.
fn rights_of(record: &IdentityRecord) -> Vec<String> {
    let grants = record.identity.rights().grants().iter();
    grants.map(Grant::to_string).collect()
}

/// Describes an identity in the words of the API.
fn describe<'a>(
    record: &'a IdentityRecord,
    rights: &'a [&'a str],
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
        expired: identity.expires_ms() <= now_ms,
        previous_expires_at_ms: previous.map_or(0, |token| token.expires_ms),
    }
}
