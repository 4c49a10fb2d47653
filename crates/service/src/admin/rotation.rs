//! Which token stays good beside the one that takes its place.

use crate::identities::{Identity, IssuedToken, Proof};
use crate::limits::TOKEN_KEEP_OWN_MS;

/// For how long a token is to be kept.
#[derive(Clone, Copy)]
pub(super) struct Keep {
    pub(super) for_ms: u64,
    /// Also the one by which the caller has called is not kept any longer than that.
    pub(super) revoke_own: bool,
    /// What an earlier rotation keeps ends now.
    pub(super) revoke_kept: bool,
}

impl Keep {
    /// Returns until when a token was promised to be good that this rotation would revoke, in
    /// milliseconds since 1970; `None`: there is none, or it is to be revoked.
    pub(super) fn broken_promise_ms(
        self,
        before: &Identity,
        own: Option<&Proof>,
        now_ms: u64,
    ) -> Option<u64> {
        let [_, kept] = before.tokens() else {
            return None;
        };
        let ends_ms = kept.expires_ms.min(before.expires_ms());
        let is_own = own == Some(&Proof::Token(kept.hash));
        // Whoever wants even the own one revoked at once wants nothing kept.
        let is_wanted = self.revoke_kept || self.revoke_own && self.for_ms == 0;
        (ends_ms > now_ms && !is_own && !is_wanted).then_some(ends_ms)
    }

    /// Returns the token of an identity that stays good, if `own` has proved who calls.
    pub(super) fn token(
        self,
        before: &Identity,
        own: Option<&Proof>,
        now_ms: u64,
    ) -> Option<IssuedToken> {
        let mut tokens = before.tokens().iter();
        let own = tokens.find(|token| own == Some(&Proof::Token(token.hash)));
        let for_ms = match own {
            Some(_) if self.for_ms == 0 && !self.revoke_own => TOKEN_KEEP_OWN_MS,
            _ => self.for_ms,
        };
        // What the caller has may be the older one: the newer one may never have reached it.
        let kept = own.or(before.tokens().first())?;
        // One that had expired is not good again for a while, since its name gets a later expiry.
        let expires_ms = (now_ms.saturating_add(for_ms))
            .min(before.expires_ms())
            .min(kept.expires_ms);
        (expires_ms > now_ms).then_some(IssuedToken {
            expires_ms,
            ..*kept
        })
    }
}
