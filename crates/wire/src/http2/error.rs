//! Error codes, and the ways in which streams and connections end.

use crate::grpc::Code;

/// Why a stream or connection ends, as the protocol numbers it. RFC 9113 section 7.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum ErrorCode {
    /// The end of something that is not an error.
    NoError = 0x0,
    /// A rule was broken for which there is no other code.
    ProtocolError = 0x1,
    /// The sender failed.
    InternalError = 0x2,
    /// More was sent than the window allowed, or a window became too large.
    FlowControlError = 0x3,
    /// SETTINGS were not acknowledged in time.
    SettingsTimeout = 0x4,
    /// A frame came on a stream that its sender had ended.
    StreamClosed = 0x5,
    /// A frame had a length that its type does not allow.
    FrameSizeError = 0x6,
    /// The stream was refused before anything was done for it.
    RefusedStream = 0x7,
    /// The stream is no longer needed.
    Cancel = 0x8,
    /// A header block could not be decoded.
    CompressionError = 0x9,
    /// The connection that CONNECT asked for was reset or closed.
    ConnectError = 0xa,
    /// The peer causes too much work.
    EnhanceYourCalm = 0xb,
    /// The transport is not as secure as is required.
    InadequateSecurity = 0xc,
    /// HTTP/1.1 must be used for the request.
    Http11Required = 0xd,
}

impl ErrorCode {
    /// Reads a code. Unknown codes "MAY be treated by an implementation as being equivalent to
    /// INTERNAL_ERROR" (RFC 9113 section 7).
    pub fn from_wire(code: u32) -> ErrorCode {
        const ALL: [ErrorCode; 14] = [
            ErrorCode::NoError,
            ErrorCode::ProtocolError,
            ErrorCode::InternalError,
            ErrorCode::FlowControlError,
            ErrorCode::SettingsTimeout,
            ErrorCode::StreamClosed,
            ErrorCode::FrameSizeError,
            ErrorCode::RefusedStream,
            ErrorCode::Cancel,
            ErrorCode::CompressionError,
            ErrorCode::ConnectError,
            ErrorCode::EnhanceYourCalm,
            ErrorCode::InadequateSecurity,
            ErrorCode::Http11Required,
        ];
        ALL.get(code as usize)
            .copied()
            .unwrap_or(ErrorCode::InternalError)
    }
}

/// Why a stream is dead, in [`super::Event::Cancelled`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelCause {
    /// The peer sent RST_STREAM.
    Reset(ErrorCode),
    /// The peer broke a rule on this stream, and was sent RST_STREAM with this code.
    Violation(ErrorCode),
    /// The server did not begin with this request, so that it can be sent again elsewhere:
    /// REFUSED_STREAM, or a stream above the last one that its GOAWAY names. Client only.
    Refused,
    /// The server refused this request in the same ways, but after its response had begun: it has
    /// worked on it. Client only.
    RefusedLate,
    /// A message was larger than the limit; the peer was told RESOURCE_EXHAUSTED.
    MessageTooLarge,
    /// A message becomes so much more than was sent when it is decompressed that it looks like an
    /// attack; the peer was told RESOURCE_EXHAUSTED. Client only: a server ends the connection.
    MessageTooDense,
    /// Too many bytes of unfinished messages wait on this connection; the peer was told
    /// RESOURCE_EXHAUSTED.
    TooMuchUnfinished,
    /// There is no memory for what the call sends ([`super::Connection::set_gather_bound`]); the
    /// peer was told UNAVAILABLE.
    NoMemory,
    /// A message was compressed in a way that we do not know; the peer was told UNIMPLEMENTED.
    UnknownEncoding,
    /// The bytes of the body are not gRPC messages, or not valid gzip; the peer was told INTERNAL.
    BadMessage,
    /// The message of a request of baidu_std or SRPC is not what its checksum says, or cannot be
    /// decompressed; the peer was told EREQUEST, which is INVALID_ARGUMENT.
    DamagedRequest,
    /// The connection has ended.
    ConnectionClosed,
}

impl CancelCause {
    /// The status that the peer was told, if it was told one.
    pub fn told(self) -> Option<Code> {
        match self {
            CancelCause::MessageTooLarge
            | CancelCause::MessageTooDense
            | CancelCause::TooMuchUnfinished => Some(Code::ResourceExhausted),
            CancelCause::NoMemory => Some(Code::Unavailable),
            CancelCause::UnknownEncoding => Some(Code::Unimplemented),
            CancelCause::BadMessage => Some(Code::Internal),
            CancelCause::DamagedRequest => Some(Code::InvalidArgument),
            CancelCause::Reset(_)
            | CancelCause::Violation(_)
            | CancelCause::Refused
            | CancelCause::RefusedLate
            | CancelCause::ConnectionClosed => None,
        }
    }
}

/// Why a connection has ended. Once there is one, the output is to be written and the socket
/// closed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CloseReason {
    /// All streams have ended after [`super::Connection::drain`], or after the peer's GOAWAY.
    #[error("drained")]
    Drained,
    /// The peer closed its side, or the transport broke.
    #[error("the peer closed the connection")]
    PeerGone,
    /// The server ended it with a GOAWAY that names an error. Client only.
    #[error("the server ended it{} ({code:?})", said(.text))]
    Refused {
        /// The error.
        code: ErrorCode,
        /// What the server says about it, in printable ASCII; may be empty.
        text: Box<str>,
    },
    /// The peer did something that ends the connection; it was told by GOAWAY.
    #[error("{why} ({code:?})")]
    Error {
        /// What the GOAWAY says.
        code: ErrorCode,
        /// What happened, for the log.
        why: &'static str,
    },
}

fn said(text: &str) -> String {
    match text {
        "" => String::new(),
        text => format!(": {text}"),
    }
}

/// A rule was broken in a way that ends the connection. RFC 9113 section 5.4.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ConnectionError {
    pub(crate) code: ErrorCode,
    pub(crate) why: &'static str,
}

impl ConnectionError {
    pub(crate) fn protocol(why: &'static str) -> ConnectionError {
        ConnectionError {
            code: ErrorCode::ProtocolError,
            why,
        }
    }

    pub(crate) fn frame_size(why: &'static str) -> ConnectionError {
        ConnectionError {
            code: ErrorCode::FrameSizeError,
            why,
        }
    }

    pub(crate) fn flow_control(why: &'static str) -> ConnectionError {
        ConnectionError {
            code: ErrorCode::FlowControlError,
            why,
        }
    }

    pub(crate) fn stream_closed(why: &'static str) -> ConnectionError {
        ConnectionError {
            code: ErrorCode::StreamClosed,
            why,
        }
    }

    /// The peer exceeded one of our limits.
    pub(crate) fn calm(why: &'static str) -> ConnectionError {
        ConnectionError {
            code: ErrorCode::EnhanceYourCalm,
            why,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_read_as_they_are_numbered() {
        for code in 0..14 {
            assert_eq!(ErrorCode::from_wire(code) as u32, code);
        }
        assert_eq!(ErrorCode::from_wire(14), ErrorCode::InternalError);
        assert_eq!(ErrorCode::from_wire(u32::MAX), ErrorCode::InternalError);
    }
}
