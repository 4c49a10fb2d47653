//! Plain HTTP/2 requests: a word about this server, and a clear no to everything else.

use bytes::Bytes;
use service::{Code, Status};
use wire::ErrorCode;

use crate::rpc_connection::RpcConnection;
use crate::stream::StreamHandle;

const TEXT: [(&str, &str); 1] = [("content-type", "text/plain; charset=utf-8")];

/// What a response with status 401 must say: how to prove who one is (RFC 9110 section 11.6.1, RFC
/// 6750 section 3).
const CHALLENGE: (&str, &str) = ("www-authenticate", "Bearer realm=\"pelton\"");

/// Tokens from here on say how a plain request will be answered; those below name calls.
const TOKENS: u32 = u32::MAX - 3;

/// What a plain request gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FixedResponse {
    About,
    NotFound,
    NotGrpc,
    NotAllowed,
}

impl FixedResponse {
    const ALL: [FixedResponse; 4] = [
        FixedResponse::About,
        FixedResponse::NotFound,
        FixedResponse::NotGrpc,
        FixedResponse::NotAllowed,
    ];

    /// The answer to the request whose head came last.
    pub fn to(connection: &RpcConnection) -> FixedResponse {
        let head = connection.head();
        match (head.method(), head.path()) {
            (b"GET" | b"HEAD", b"/") => FixedResponse::About,
            (b"POST", path) if service::route(path).is_some() => FixedResponse::NotGrpc,
            (_, path) if service::http::is_resource(path) => FixedResponse::NotAllowed,
            _ => FixedResponse::NotFound,
        }
    }

    /// The token of a stream that waits for its answer.
    pub fn token(self) -> u32 {
        TOKENS + self as u32
    }

    pub fn from_token(token: u32) -> Option<FixedResponse> {
        (Self::ALL.into_iter()).find(|answer| answer.token() == token)
    }

    /// Answers. The request is complete: its body, which nobody asked for, has come and was thrown
    /// away. An answer before that would leave what is wrong with the rest of the request unsaid.
    /// The text is not copied for those who do not take it.
    pub fn send(self, stream: &mut StreamHandle<'_>, about: &Bytes) {
        let (status, text) = match self {
            FixedResponse::About => (200, None),
            FixedResponse::NotFound => (
                404,
                Some(
                    "there is nothing here: this port serves gRPC, and GET / says which services\n",
                ),
            ),
            FixedResponse::NotGrpc => (
                415,
                Some("this is a gRPC method: the content-type must be application/grpc\n"),
            ),
            FixedResponse::NotAllowed => (405, Some(service::http::NOT_ALLOWED)),
        };
        let allow = ("allow", service::http::ALLOWED_METHODS);
        let headers = [TEXT[0], allow];
        let headers = &headers[..1 + usize::from(self == FixedResponse::NotAllowed)];
        stream.set_token(0);
        let body = text.map_or_else(|| about.clone(), |text| text.into());
        stream.send_plain_shared(status, headers, body);
    }
}

/// Refuses a plain request for want of memory: with nothing that waits for the peer's windows.
#[cold]
pub(crate) fn shed(stream: &mut StreamHandle<'_>) {
    stream.set_token(0);
    stream.send_plain(503, &[("retry-after", "1")], b"");
}

/// Ends a plain request that failed: with the status of HTTP that fits, or, if its answer has
/// begun, by cutting it off.
pub(crate) fn fail(stream: &mut StreamHandle<'_>, status: &Status, has_begun: bool) {
    if has_begun {
        return stream.reset(ErrorCode::InternalError);
    }
    let body = format!("{}\n", status.message());
    let http = http_status(status.code());
    let headers = [TEXT[0], CHALLENGE];
    let headers = &headers[..1 + usize::from(http == 401)];
    stream.send_plain(http, headers, body.as_bytes());
}

/// The status of HTTP that fits a code.
fn http_status(code: Code) -> u16 {
    match code {
        Code::InvalidArgument => 400,
        Code::Unauthenticated => 401,
        Code::PermissionDenied => 403,
        Code::NotFound => 404,
        Code::Aborted | Code::FailedPrecondition => 409,
        Code::OutOfRange => 416,
        Code::ResourceExhausted => 507,
        Code::Unavailable => 503,
        Code::DeadlineExceeded => 504,
        _ => 500,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 4xx is for what the caller can change, 5xx for the rest: clients repeat a request by that.
    #[test]
    fn the_status_of_http_says_whose_turn_it_is() {
        for (code, http) in [
            (Code::InvalidArgument, 400),
            (Code::Unauthenticated, 401),
            (Code::PermissionDenied, 403),
            (Code::NotFound, 404),
            (Code::Aborted, 409),
            (Code::FailedPrecondition, 409),
            (Code::OutOfRange, 416),
            (Code::Internal, 500),
            (Code::Unknown, 500),
            (Code::DataLoss, 500),
            (Code::Unavailable, 503),
            (Code::DeadlineExceeded, 504),
            (Code::ResourceExhausted, 507),
        ] {
            assert_eq!(http_status(code), http, "{code:?}");
        }
    }
}
