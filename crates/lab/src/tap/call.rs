//! One call as the tap sees it.

use client::Code;

use super::direction::TapDirection;

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallEnd {
    /// With this status of gRPC.
    Grpc(Code),
    /// Without one, with this status of HTTP.
    Http(u16),
    /// With this error code of baidu_std, 0 being success.
    BaiduStd(i32),
    /// Whoever sends in this direction reset the stream, with this code of HTTP/2.
    Reset(TapDirection, u32),
    /// Its connection ended before.
    ConnectionLost,
}

impl CallEnd {
    /// Whether it is a success.
    pub fn is_success(self) -> bool {
        matches!(
            self,
            CallEnd::Grpc(Code::Ok) | CallEnd::BaiduStd(0) | CallEnd::Http(200..=299)
        )
    }

    /// What a report says of it.
    pub fn words(self) -> String {
        match self {
            CallEnd::Grpc(code) => code.name().to_owned(),
            CallEnd::Http(status) => format!("HTTP {status}"),
            CallEnd::BaiduStd(code) => format!("error {code}"),
            CallEnd::Reset(TapDirection::ToServer, code) => format!("reset by the client ({code})"),
            CallEnd::Reset(TapDirection::ToClient, code) => format!("reset by the server ({code})"),
            CallEnd::ConnectionLost => "the connection ended".to_owned(),
        }
    }
}

/// A call that has ended, as the timeline keeps it. Times are those of the tap's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TappedCall {
    /// Which connection, counted from 0.
    pub connection: usize,
    /// Index into the methods of the summary.
    pub method: usize,
    /// First byte of the request.
    pub begin_ns: u64,
    /// Last byte of the request; the moment of the response's end if that came before.
    pub request_end_ns: u64,
    /// First byte of the response.
    pub response_begin_ns: u64,
    /// Last byte of the response.
    pub end_ns: u64,
    /// Bytes of the request's messages.
    pub request_bytes: u64,
    /// Bytes of the response's messages.
    pub response_bytes: u64,
    /// How it ended.
    pub end: CallEnd,
}
