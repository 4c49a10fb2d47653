//! The head of a request that a client sends, and why it cannot be sent.

use crate::grpc::Metadata;

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

/// Why a stream cannot be opened. Nothing has been sent, so that another connection may be tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
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
}
