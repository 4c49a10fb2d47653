//! An identity: a name, what it may do, and the tokens that prove it.

use super::token::TokenHash;
use crate::limits::{GRANTS_MAX, IDENTITY_NAME_BYTES_MAX};
use crate::rights::Rights;

/// The time of what never expires.
pub const NEVER_MS: u64 = u64::MAX;

/// Tokens of one identity: two only while one takes the place of the other.
pub const TOKENS_PER_IDENTITY_MAX: usize = 2;

/// Who calls, and what it may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    name: Box<str>,
    rights: Rights,
    expires_ms: u64,
    /// One, or two while one takes the place of the other; none of a listener's.
    tokens: Vec<IssuedToken>,
}

/// A token, as far as a server knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IssuedToken {
    /// Its keyed hash.
    pub hash: TokenHash,
    /// When this token expires, if that is before its identity does, in milliseconds since 1970;
    /// [`NEVER_MS`]: with its identity.
    pub expires_ms: u64,
}

/// Why there can be no such identity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// The name has other characters, none, or too many.
    #[error("a name has 1 to {IDENTITY_NAME_BYTES_MAX} letters, digits, '-', '_', '.', '@' or '/'")]
    Name,
    /// There are too many rights.
    #[error("there are {0} rights, at most {GRANTS_MAX} are allowed")]
    TooManyGrants(usize),
    /// There are too many tokens, or none.
    #[error("there are {0} tokens, 1 to {TOKENS_PER_IDENTITY_MAX} are allowed")]
    Tokens(usize),
}

impl Identity {
    /// Makes an identity, which its tokens prove. It expires at `expires_ms`, in milliseconds since
    /// 1970, or never with [`NEVER_MS`].
    ///
    /// # Errors
    /// If there is too much of something, or the name has other characters.
    pub fn new(
        name: &str,
        rights: Rights,
        expires_ms: u64,
        tokens: Vec<IssuedToken>,
    ) -> Result<Identity, IdentityError> {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@/".contains(&byte);
        if !(1..=IDENTITY_NAME_BYTES_MAX).contains(&name.len()) || !name.bytes().all(is_allowed) {
            return Err(IdentityError::Name);
        }
        if rights.grants().len() > GRANTS_MAX {
            return Err(IdentityError::TooManyGrants(rights.grants().len()));
        }
        if !(1..=TOKENS_PER_IDENTITY_MAX).contains(&tokens.len()) {
            return Err(IdentityError::Tokens(tokens.len()));
        }
        Ok(Identity {
            name: name.into(),
            rights,
            expires_ms,
            tokens,
        })
    }

    /// Those who call through a listener without a token.
    pub(super) fn anonymous(rights: Rights) -> Identity {
        Identity {
            name: Box::default(),
            rights,
            expires_ms: NEVER_MS,
            tokens: Vec::new(),
        }
    }

    /// Returns the name; empty for those without a token.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns what it may do.
    #[inline]
    pub fn rights(&self) -> &Rights {
        &self.rights
    }

    /// Returns when it expires, in milliseconds since 1970; [`NEVER_MS`] if never.
    pub fn expires_ms(&self) -> u64 {
        self.expires_ms
    }

    /// Returns its tokens.
    pub fn tokens(&self) -> &[IssuedToken] {
        &self.tokens
    }

    /// Returns whether this is what callers without a token are.
    pub fn is_anonymous(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Returns whether one of its tokens has not expired.
    pub(super) fn is_good(&self, hash: &TokenHash, now_ms: u64) -> bool {
        let is_good = |token: &IssuedToken| token.hash == *hash && token.expires_ms > now_ms;
        self.expires_ms > now_ms && self.tokens.iter().any(is_good)
    }

    /// Returns whether who was the one is the other, and may do the same.
    pub(super) fn is_like(&self, other: &Identity) -> bool {
        self.name == other.name && self.rights == other.rights
    }
}
