//! What callers ask for who change tokens, checked as far as that needs no look at those that are.

use std::time::Duration;

use super::invalid;
use super::rotation::Keep;
use crate::actions::Administration;
use crate::call::Shared;
use crate::identities::{Binding, BindingError, Token};
use crate::limits::{
    GRANTS_MAX, IDENTITY_NAME_BYTES_MAX, TOKEN_EXPIRY_MS_MAX, TOKEN_KEEP_MS_MAX,
    TOKEN_RIGHTS_BYTES_MAX,
};
use crate::method::Method;
use crate::redact::contains_token;
use crate::rights::{Grant, Rights, is_identity_name, shown_right};
use crate::status::{Code, Status, quoted};
use api::admin::{CreateTokenRequest, ListTokensRequest, RevokeTokenRequest, RotateTokenRequest};
use protobuf::DecodeError;

/// What is asked for.
pub(super) enum TokenRequest {
    List,
    Create(TokenCreation),
    Revoke { name: Box<str>, is_confirmed: bool },
    Rotate(TokenRotation),
}

/// An identity that is to be made.
pub(super) struct TokenCreation {
    pub(super) name: Box<str>,
    pub(super) rights: Rights,
    pub(super) expires_after_ms: u64,
    pub(super) proof: NewProof,
}

/// A token that is to take the place of another.
pub(super) struct TokenRotation {
    pub(super) name: Box<str>,
    pub(super) keep: Keep,
    pub(super) expires_after_ms: u64,
    pub(super) is_confirmed: bool,
    pub(super) token: Token,
}

/// What is to prove a new identity.
pub(super) enum NewProof {
    Token(Token),
    Binding(Binding),
}

impl TokenRequest {
    /// Reads the request of a call.
    pub(super) fn read(
        method: Method,
        bytes: &[u8],
        shared: &Shared,
        actions: &mut impl Administration,
    ) -> Result<TokenRequest, Status> {
        let malformed = |error: DecodeError| invalid(method, error);
        match method {
            Method::AdminCreateToken => {
                let request = CreateTokenRequest::decode(bytes).map_err(malformed)?;
                let rights = request.rights.iter();
                actions.set_audited(request.name, &audited_rights(rights, request.binding));
                create(&request, shared)
            }
            Method::AdminRevokeToken => {
                let request = RevokeTokenRequest::decode(bytes).map_err(malformed)?;
                actions.set_audited(request.name, "");
                revoke(&request)
            }
            Method::AdminRotateToken => {
                let request = RotateTokenRequest::decode(bytes).map_err(malformed)?;
                actions.set_audited(request.name, "");
                rotate(&request, shared)
            }
            _ => {
                ListTokensRequest::decode(bytes).map_err(malformed)?;
                Ok(TokenRequest::List)
            }
        }
    }
}

/// What the audit trail says of who is to get these rights. Empty if they are no text.
pub(super) fn audited_rights<'a>(
    rights: impl Iterator<Item = Result<&'a str, DecodeError>>,
    binding: &str,
) -> String {
    let rights: Result<Vec<_>, _> = rights.map(|right| right.map(shown_right)).collect();
    let rights = rights.unwrap_or_default().join(",");
    match binding {
        "" => rights,
        _ => format!("{rights} for {}", shown_right(binding)),
    }
}

fn create(request: &CreateTokenRequest<'_>, shared: &Shared) -> Result<TokenRequest, Status> {
    check_name(request.name)?;
    check_expiry(request.expires_after_ms)?;
    let (rights, bytes) = read_rights(
        Method::AdminCreateToken,
        (request.rights.len(), request.rights.iter()),
    )?;
    check_bytes(bytes + request.binding.len())?;
    Ok(TokenRequest::Create(TokenCreation {
        name: request.name.into(),
        rights,
        expires_after_ms: request.expires_after_ms,
        proof: match request.binding {
            "" => NewProof::Token(draw(shared)?),
            text => NewProof::Binding(binding(text)?),
        },
    }))
}

/// Reads rights, and returns how many bytes they have in text.
pub(super) fn read_rights<'a>(
    method: Method,
    (count, texts): (usize, impl Iterator<Item = Result<&'a str, DecodeError>>),
) -> Result<(Rights, usize), Status> {
    if !(1..=GRANTS_MAX).contains(&count) {
        return Err(Status::invalid_argument(format!(
            "field rights has {count} rights; give 1 to {GRANTS_MAX}"
        )));
    }
    let (mut grants, mut bytes) = (Vec::with_capacity(count), 0);
    for text in texts {
        let text = text.map_err(|error| invalid(method, error))?;
        bytes += text.len();
        let grant = Grant::new(text);
        grants.push(
            grant.map_err(|error| Status::invalid_argument(format!("field rights: {error}")))?,
        );
    }
    check_bytes(bytes)?;
    Ok((Rights::new(grants), bytes))
}

fn check_bytes(bytes: usize) -> Result<(), Status> {
    match bytes <= TOKEN_RIGHTS_BYTES_MAX {
        true => Ok(()),
        false => Err(Status::invalid_argument(format!(
            "field rights: the rights have {bytes} bytes together, with the binding, at most \
             {TOKEN_RIGHTS_BYTES_MAX} are allowed"
        ))),
    }
}

fn revoke(request: &RevokeTokenRequest<'_>) -> Result<TokenRequest, Status> {
    Ok(TokenRequest::Revoke {
        name: request.name.into(),
        is_confirmed: is_confirmed(request.name, request.confirm_name)?,
    })
}

fn is_confirmed(name: &str, confirm_name: &str) -> Result<bool, Status> {
    match confirm_name {
        "" => Ok(false),
        confirmed if confirmed == name => Ok(true),
        _ => Err(Status::invalid_argument(
            "field confirm_name is another name than field name",
        )),
    }
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
    Ok(TokenRequest::Rotate(TokenRotation {
        name: request.name.into(),
        keep: Keep {
            for_ms: request.keep_for_ms,
            revoke_own: request.revoke_own,
            revoke_kept: request.revoke_kept,
        },
        expires_after_ms: request.expires_after_ms,
        is_confirmed: is_confirmed(request.name, request.confirm_name)?,
        token: draw(shared)?,
    }))
}

fn binding(text: &str) -> Result<Binding, Status> {
    let binding = text.parse();
    binding
        .map_err(|error: BindingError| Status::invalid_argument(format!("field binding: {error}")))
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

/// Refuses a token as the name of a token or of a role.
pub(super) fn check_no_token(name: &str) -> Result<(), Status> {
    match contains_token(name) {
        true => Err(Status::invalid_argument(
            "field name is a token, and names are shown in lists and logs: choose another name, \
             and rotate the token if others may have seen it",
        )),
        false => Ok(()),
    }
}

fn check_name(name: &str) -> Result<(), Status> {
    check_no_token(name)?;
    if is_identity_name(name) {
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
