//! Why nobody knows who calls.

use super::binding::Binding;
use crate::status::{Code, Status, quoted};

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
    /// What it may do was made less while the call ran.
    RightsChanged,
    /// The certificate of the connection proves several identities.
    Ambiguous,
    /// The certificate or the user of the connection is bound to an identity that has expired.
    BindingExpired,
    /// The certificate of the connection was valid when that began, and is not any more.
    CertificateExpired,
    /// The authority of the connection's certificate was trusted when that began, and is not any
    /// more.
    CertificateNotTrusted,
}

/// Returns what a caller without a token is told whose certificate or user is bound to no name,
/// where nobody may do anything without either.
#[cold]
pub fn unbound(shown: &Binding) -> Status {
    let which = match shown {
        Binding::User(user) => format!("user {user}, whose process calls, is bound to no name"),
        // Its names and its fingerprint are for the audit trail.
        _ => "the certificate of this connection was seen, and is bound to no name".into(),
    };
    Status::new(
        Code::Unauthenticated,
        format!(
            "this call needs a token (--token-file or PELTON_TOKEN of pelton), or a name: {which}"
        ),
    )
}

/// Returns what a caller is told whose certificate stands for all of these.
#[cold]
pub fn ambiguous(names: &[&str]) -> Status {
    let names: Vec<String> = names.iter().map(|name| quoted(name)).collect();
    Status::new(
        Code::Unauthenticated,
        format!(
            "the certificate of this connection stands for more than one identity, {}: bind only \
             one of its names, or its fingerprint",
            names.join(", ")
        ),
    )
}

impl Unauthenticated {
    /// Returns whether a token came with the call that is not good.
    pub fn is_wrong_token(self) -> bool {
        match self {
            Unauthenticated::NoToken | Unauthenticated::Unknown | Unauthenticated::Expired => true,
            Unauthenticated::Missing
            | Unauthenticated::Ended
            | Unauthenticated::RightsChanged
            | Unauthenticated::Ambiguous
            | Unauthenticated::BindingExpired
            | Unauthenticated::CertificateExpired
            | Unauthenticated::CertificateNotTrusted => false,
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
                     (--token-file or PELTON_TOKEN of pelton; over baidu_std it is the \
                     authentication data)"
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
                    "the token or the identity of this call was revoked or has expired while the \
                     call ran"
                }
                Unauthenticated::RightsChanged => {
                    "the rights of this call's token or identity were changed while the call ran: \
                     call again for what they allow now"
                }
                Unauthenticated::Ambiguous => {
                    "the certificate of this connection stands for more than one identity: bind \
                     only one of its names, or its fingerprint"
                }
                Unauthenticated::BindingExpired => {
                    "the identity of this connection's certificate or user has expired: it needs \
                     a new one in its place"
                }
                Unauthenticated::CertificateExpired => {
                    "the certificate of this connection has expired since it was opened: connect \
                     again with a new one"
                }
                Unauthenticated::CertificateNotTrusted => {
                    "the server does not trust the certificate of this connection any more, since \
                     the authority that signed it was taken away: connect again with another one"
                }
            },
        )
    }
}
