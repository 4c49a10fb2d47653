//! The head of a request that a client sends, and why it cannot be sent.

use crate::grpc::Metadata;
use crate::hpack::{KnownName, is_valid_value};

/// The head of a request.
#[derive(Debug, Clone, Copy)]
pub struct RequestHead<'a> {
    /// `POST` for gRPC.
    pub method: &'a str,
    /// `http` or `https`.
    pub scheme: &'a str,
    /// The authority of the request, usually `host:port`; user information before an `@` is not
    /// sent.
    pub authority: &'a str,
    /// For gRPC `/package.Service/Method`.
    pub path: &'a str,
    /// Whether it is a gRPC call; if not, the answer's body comes in Body events.
    pub is_grpc: bool,
    /// The value of `user-agent`; empty: none.
    pub user_agent: &'a str,
    /// The time that the server has.
    pub timeout_ns: Option<u64>,
    /// Whether messages may be sent compressed; see [`super::Connection::set_compress`].
    pub gzip: bool,
    /// Whether messages of the response may come compressed.
    pub accepts_gzip: bool,
    /// What goes with the request.
    pub metadata: Option<&'a Metadata>,
}

impl<'a> RequestHead<'a> {
    /// A gRPC call.
    pub fn call(authority: &'a str, path: &'a str) -> RequestHead<'a> {
        RequestHead {
            method: "POST",
            scheme: "http",
            authority,
            path,
            is_grpc: true,
            user_agent: "",
            timeout_ns: None,
            gzip: false,
            accepts_gzip: true,
            metadata: None,
        }
    }

    /// A plain GET.
    pub fn get(authority: &'a str, path: &'a str) -> RequestHead<'a> {
        RequestHead {
            method: "GET",
            is_grpc: false,
            ..RequestHead::call(authority, path)
        }
    }

    /// A plain POST.
    pub fn post(authority: &'a str, path: &'a str) -> RequestHead<'a> {
        RequestHead {
            is_grpc: false,
            ..RequestHead::call(authority, path)
        }
    }

    /// Checks what a caller chooses, before any of it is sent: a value with a line break could
    /// become further fields behind a proxy that speaks HTTP/1.1 (RFC 9113 section 10.3).
    pub(crate) fn check(&self) -> Result<(), StreamOpenError> {
        if !is_valid_path(self.path.as_bytes()) {
            return Err(StreamOpenError::BadPath);
        }
        if !is_valid_value(self.authority.as_bytes()) {
            return Err(StreamOpenError::BadAuthority);
        }
        let metadata = self.metadata.into_iter().flat_map(Metadata::iter);
        for (name, _) in metadata {
            if self.is_set_by_protocol(KnownName::of(name.as_bytes())) {
                return Err(StreamOpenError::BadMetadata);
            }
        }
        Ok(())
    }

    /// Returns whether a field is set by the protocol itself, or must not be there at all (RFC 9113
    /// section 8.2.2). A plain request may say what its body is.
    fn is_set_by_protocol(&self, name: KnownName) -> bool {
        match name {
            KnownName::ConnectionSpecific
            | KnownName::Te
            | KnownName::Host
            | KnownName::GrpcTimeout
            | KnownName::GrpcEncoding
            | KnownName::GrpcAcceptEncoding => true,
            KnownName::ContentType | KnownName::ContentLength => self.is_grpc,
            _ => false,
        }
    }

    /// Returns more than its fields have by the count of SETTINGS_MAX_HEADER_LIST_SIZE.
    pub(crate) fn list_bytes(&self) -> usize {
        let usual = 14 * 48
            + self.scheme.len()
            + self.authority.len()
            + self.path.len()
            + self.user_agent.len();
        let metadata = self.metadata.into_iter().flat_map(Metadata::iter);
        usual
            + metadata
                .map(|(name, value)| name.len() + value.len() * 4 / 3 + 36)
                .sum::<usize>()
    }
}

/// Returns whether the bytes are a path: one that begins with a slash, of printable ASCII without
/// space (RFC 3986 section 3.3, as far as characters go).
fn is_valid_path(path: &[u8]) -> bool {
    let is_printable = |valid, byte: &u8| valid & byte.is_ascii_graphic();
    path.first() == Some(&b'/') && path.iter().fold(true, is_printable)
}

/// Why a stream cannot be opened. Nothing has been sent, so that another connection may be tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StreamOpenError {
    /// As many streams are open as the server allows; to be tried again when one has ended.
    #[error("as many streams are open as the server allows")]
    TooManyStreams,
    /// The server or we have said GOAWAY, or the connection is closed.
    #[error("the connection is going away")]
    GoingAway,
    /// All stream identifiers have been used.
    #[error("the connection has used all stream identifiers")]
    IdsExhausted,
    /// The head has more bytes than fit into one frame, or than the server accepts.
    #[error("the metadata are larger than the server accepts")]
    HeadTooLarge,
    /// The path is none.
    #[error(
        "its path must begin with a slash, as in /package.Service/Method, and have only printable \
         ASCII characters without space"
    )]
    BadPath,
    /// The authority has bytes that no field value may have.
    #[error("the authority has a line break, a zero byte, or space at one of its ends")]
    BadAuthority,
    /// The metadata have a name that belongs to HTTP/2 or gRPC.
    #[error(
        "its metadata have a name that HTTP/2 or gRPC set themselves, or forbid, such as te, \
         content-type or connection; leave it out"
    )]
    BadMetadata,
}
