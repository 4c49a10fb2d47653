//! Why nobody knows who calls.

use crate::status::{Code, Status};

/// Why a call has no identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unauthenticated {
    /// It came without a token, and its listener lets nobody do anything without one.
    Missing,
    /// What it has in the header `authorization` is no token of this kind.
    NoToken,
    /// There is no such token: any more, or here.
    Unknown,
    /// It has expired.
    Expired,
    /// It was revoked, or has expired, while the call ran.
    Ended,
}

impl Unauthenticated {
    /// Returns whether a token came with the call that is not good.
    pub fn is_wrong_token(self) -> bool {
        match self {
            Unauthenticated::NoToken | Unauthenticated::Unknown | Unauthenticated::Expired => true,
            Unauthenticated::Missing | Unauthenticated::Ended => false,
        }
    }

    /// Returns what the caller is told. One who has a token that was revoked or has expired is told
    /// the same as one who has made it up.
    #[cold]
    pub fn status(self) -> Status {
        Status::new(
            Code::Unauthenticated,
            match self {
                Unauthenticated::Missing => {
                    "this call needs a token: send the header `authorization: Bearer pelton_…` \
                     (PELTON_TOKEN or --token-file of pelton)"
                }
                Unauthenticated::NoToken => {
                    "the header authorization is not `Bearer pelton_…`, a token of this server: \
                     send one, or call without the header"
                }
                // Whoever has found a token learns nothing about whether it ever was one.
                Unauthenticated::Unknown | Unauthenticated::Expired => {
                    "the token is not good here: it was revoked, has expired, or is one of another \
                     server"
                }
                Unauthenticated::Ended => {
                    "the token of this call was revoked or has expired while the call ran"
                }
            },
        )
    }
}
