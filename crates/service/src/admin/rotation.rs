//! Which token stays good beside the one that takes its place.

use crate::identities::{Identity, IssuedToken, Proof};
use crate::limits::TOKEN_KEEP_OWN_MS;

/// For how long a token is to be kept.
#[derive(Clone, Copy)]
pub(super) struct Keep {
    pub(super) for_ms: u64,
    /// Also the one by which the caller has called is not kept any longer than that.
    pub(super) revoke_own: bool,
}

impl Keep {
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
