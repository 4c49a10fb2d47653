//! An identity: a name, what it may do, and the tokens or the binding that prove it.

use std::ptr;
use std::sync::Arc;

use super::binding::{Binding, UsableBindings};
use super::token::TokenHash;
use crate::limits::{GRANTS_MAX, IDENTITY_NAME_BYTES_MAX};
use crate::rights::{Grant, Right, Rights, is_identity_name};

/// The time of what never expires.
pub const NEVER_MS: u64 = u64::MAX;

/// Tokens of one identity: two only while one takes the place of the other.
pub const TOKENS_PER_IDENTITY_MAX: usize = 2;

/// Who calls, and what it may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    name: Box<str>,
    /// What was given to it, with the names of roles.
    granted: Rights,
    /// The same, with what these roles grant in the place of their names.
    rights: Rights,
    expires_ms: u64,
    /// One, or two while one takes the place of the other; none of a listener's, and none where
    /// there is a binding.
    tokens: Vec<IssuedToken>,
    binding: Option<Arc<Binding>>,
}

/// What proves an identity.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Proof {
    /// A token, by its hash.
    Token(TokenHash),
    /// What the peer's side of the connection shows.
    Binding(Arc<Binding>),
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
    #[error(
        "a name has 1 to {IDENTITY_NAME_BYTES_MAX} letters, digits, `-`, `_` and `.`, and does not \
         begin with `.`"
    )]
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
        if !(1..=TOKENS_PER_IDENTITY_MAX).contains(&tokens.len()) {
            return Err(IdentityError::Tokens(tokens.len()));
        }
        Identity::with(name, rights, expires_ms, (tokens, None))
    }

    /// The same, of an identity that a certificate or a user proves.
    ///
    /// # Errors
    /// If there is too much of something, or the name has other characters.
    pub fn bound(
        name: &str,
        rights: Rights,
        expires_ms: u64,
        binding: Binding,
    ) -> Result<Identity, IdentityError> {
        Identity::with(name, rights, expires_ms, (Vec::new(), Some(binding)))
    }

    fn with(
        name: &str,
        rights: Rights,
        expires_ms: u64,
        (tokens, binding): (Vec<IssuedToken>, Option<Binding>),
    ) -> Result<Identity, IdentityError> {
        if !is_identity_name(name) {
            return Err(IdentityError::Name);
        }
        if rights.grants().len() > GRANTS_MAX {
            return Err(IdentityError::TooManyGrants(rights.grants().len()));
        }
        Ok(Identity {
            name: name.into(),
            granted: rights.clone(),
            rights,
            expires_ms,
            tokens,
            binding: binding.map(Arc::new),
        })
    }

    /// Those who call through a listener without a token.
    pub(super) fn anonymous(rights: Rights) -> Identity {
        Identity {
            name: Box::default(),
            granted: Rights::default(),
            rights,
            expires_ms: NEVER_MS,
            tokens: Vec::new(),
            binding: None,
        }
    }

    /// Returns the name; empty for those without a token.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Puts what roles grant, by their names, into the place of these.
    pub(super) fn apply_roles<'a>(&mut self, roles: impl Fn(&str) -> Option<&'a Rights>) {
        if self.granted.roles().next().is_none() {
            return;
        }
        if let [Grant::Role(name)] = self.granted.grants() {
            // Without a copy: there may be a thousand who have what one role grants.
            self.rights = roles(name).cloned().unwrap_or_default();
            return;
        }
        let mut grants = Vec::new();
        for grant in self.granted.grants() {
            match grant {
                Grant::Role(name) => {
                    let found = roles(name).map_or(&[][..], Rights::grants);
                    grants.extend_from_slice(found);
                }
                grant => grants.push(grant.clone()),
            }
        }
        self.rights = Rights::new(grants);
    }

    /// Returns what was given to it, with the names of roles.
    pub fn granted(&self) -> &Rights {
        &self.granted
    }

    /// Returns how many bytes its rights have in text, those of its roles included, with its name.
    pub(crate) fn text_bytes(&self) -> usize {
        self.name.len() + self.granted.text_bytes() + self.rights.text_bytes()
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

    /// Returns what proves it in place of tokens.
    pub fn binding(&self) -> Option<&Binding> {
        self.binding.as_deref()
    }

    /// Returns whether this is what callers are that prove nothing.
    pub fn is_anonymous(&self) -> bool {
        self.name.is_empty()
    }

    /// Returns all that proves it, each with the time when it expires.
    pub(super) fn proofs(&self) -> impl Iterator<Item = (Proof, u64)> + '_ {
        let tokens = self.tokens.iter();
        let tokens = tokens.map(|token| (Proof::Token(token.hash), token.expires_ms));
        let binding = self.binding.clone().map(Proof::Binding);
        let binding = binding.map(|proof| (proof, NEVER_MS));
        let expires_ms = self.expires_ms;
        (tokens.chain(binding)).map(move |(proof, at_ms)| (proof, at_ms.min(expires_ms)))
    }

    /// Returns whether anything proves it at this time.
    pub fn is_usable(&self, now_ms: u64) -> bool {
        (self.proofs()).any(|(_, expires_ms)| expires_ms > now_ms)
    }

    /// Returns whether callers can prove it, where they can prove these bindings.
    pub(super) fn is_provable(&self, bindings: UsableBindings) -> bool {
        match self.binding() {
            None => true,
            Some(Binding::User(_)) => bindings.users,
            Some(_) => bindings.certificates,
        }
    }

    /// Returns whether somebody can call with it and administrate tokens.
    pub(crate) fn is_admin(&self, now_ms: u64) -> bool {
        self.rights.on_server(Right::Admin) && self.is_usable(now_ms)
    }

    /// Returns the same identity without a token that is good, until it is rotated; `None`: it has
    /// no tokens.
    pub(super) fn invalidated(&self) -> Option<Identity> {
        let ended = |token: &IssuedToken| IssuedToken {
            expires_ms: 0,
            ..*token
        };
        let tokens: Vec<IssuedToken> = self.tokens.iter().map(ended).collect();
        (!tokens.is_empty()).then(|| Identity {
            tokens,
            ..self.clone()
        })
    }

    /// Returns whether one of its proofs has not expired.
    pub(crate) fn is_good(&self, proof: &Proof, now_ms: u64) -> bool {
        (self.proofs()).any(|(other, expires_ms)| other == *proof && expires_ms > now_ms)
    }

    /// Returns whether this is who the other one was, and may do all that it might.
    pub(super) fn goes_on_for(&self, other: &Identity) -> bool {
        ptr::eq(self, other) || (self.has_name_of(other) && self.rights.include(&other.rights))
    }

    /// Returns whether this is who the other one was, whatever it may do.
    pub(super) fn has_name_of(&self, other: &Identity) -> bool {
        self.name == other.name
    }
}
