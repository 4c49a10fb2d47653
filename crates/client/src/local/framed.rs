//! A connection that carries baidu_std or SRPC, without its socket.

use std::collections::VecDeque;

use wire::StreamKey;
use wire::framed::{
    BeginError, FramedCallEnd, FramedCallHead, FramedClientConnection, FramedProtocol,
};

use crate::core::{CallRequest, describe};
use crate::error::{CallError, NotBegun};
use crate::limits;

/// One connection, as [`Core`](crate::Core) is one of HTTP/2.
#[derive(Debug)]
pub(super) struct FramedCore {
    connection: FramedClientConnection,
    input: Vec<u8>,
    /// How much of the input the connection has taken since `poll` last returned `None`.
    consumed: usize,
    output: Vec<u8>,
    /// Requests that wait for room in the output, whose front is cut off with each write.
    waiting: VecDeque<u8>,
    /// A request on its way there.
    scratch: Vec<u8>,
}

/// A call has ended.
pub(super) struct FramedEnd {
    /// What [`FramedCore::set_token`] named it.
    pub(super) token: u32,
    pub(super) end: FramedCallEnd,
}

impl FramedCore {
    /// Returns a connection on which nothing has been sent.
    pub(super) fn new(protocol: FramedProtocol, config: &wire::Config) -> FramedCore {
        FramedCore {
            connection: FramedClientConnection::new(protocol, config),
            input: Vec::new(),
            consumed: 0,
            output: Vec::new(),
            waiting: VecDeque::new(),
            scratch: Vec::new(),
        }
    }

    pub(super) fn protocol(&self) -> FramedProtocol {
        self.connection.protocol()
    }

    /// Begins a call with its whole request.
    ///
    /// # Errors
    /// If it cannot begin; nothing has been sent then.
    pub(super) fn begin(
        &mut self,
        request: &CallRequest<'_>,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> Result<StreamKey, CallError> {
        let names = request.path.strip_prefix('/').unwrap_or(request.path);
        let (service, method) = names.split_once('/').unwrap_or((names, ""));
        let head = FramedCallHead {
            service,
            method,
            timeout_ns: request.timeout_ns,
            metadata: request.metadata,
            gzip: request.gzip,
            attachment: b"",
        };
        let begun = if self.waiting.is_empty() {
            let begun = self.connection.begin(&mut self.output, &head, encode);
            let bound = self.output.len().min(limits::LOCAL_KEPT_OUTPUT_BYTES);
            self.waiting.extend(&self.output[bound..]);
            self.output.truncate(bound);
            begun
        } else {
            let begun = self.connection.begin(&mut self.scratch, &head, encode);
            self.waiting.extend(&self.scratch[..]);
            self.scratch.clear();
            self.scratch.shrink_to(limits::LOCAL_KEPT_OUTPUT_BYTES);
            begun
        };
        begun.map_err(|error| match error {
            BeginError::TooManyCalls => CallError::NotBegun(NotBegun::TooManyCalls),
            BeginError::Closing => {
                let reason = self.close_reason().unwrap_or_else(|| error.to_string());
                CallError::NotBegun(NotBegun::Closing { reason })
            }
            BeginError::MetadataTooLarge
            | BeginError::MessageTooLarge
            | BeginError::BinaryMetadata
            | BeginError::NoAttachments => CallError::BadRequest {
                reason: error.to_string(),
            },
        })
    }

    /// Returns how many further calls may begin now: none while the socket takes too little.
    #[inline]
    pub(super) fn calls_left(&self) -> usize {
        let unsent_bytes = self.output.len() + self.waiting.len();
        match unsent_bytes < limits::LOCAL_FRAMED_UNSENT_BYTES {
            true => self.connection.calls_left(),
            false => 0,
        }
    }

    #[inline]
    pub(super) fn set_token(&mut self, call: StreamKey, token: u32) {
        self.connection.set_token(call, token);
    }

    pub(super) fn token(&self, call: StreamKey) -> u32 {
        self.connection.token(call)
    }

    pub(super) fn cancel(&mut self, call: StreamKey) {
        self.connection.cancel(call);
    }

    /// Takes bytes from the server.
    #[inline]
    pub(super) fn received(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
    }

    /// The server has closed its side, or the socket is broken.
    pub(super) fn disconnected(&mut self) {
        self.connection.peer_closed();
    }

    /// Returns the next call that has ended.
    #[inline]
    pub(super) fn poll(&mut self) -> Option<FramedEnd> {
        let event = self.connection.poll_event(&self.input, &mut self.consumed);
        let Some(event) = event else {
            self.input.drain(..self.consumed);
            self.consumed = 0;
            if self.input.is_empty() {
                self.input.shrink_to(limits::LOCAL_KEPT_OUTPUT_BYTES);
            }
            return None;
        };
        Some(FramedEnd {
            token: event.token,
            end: event.end,
        })
    }

    /// Returns the message of the last response, until the next `poll`.
    #[inline]
    pub(super) fn message(&self) -> &[u8] {
        self.connection.message(&self.input)
    }

    pub(super) fn output(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    /// Returns whether something waits for room in the output.
    #[inline]
    pub(super) fn wants_transmit(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Adds to the output what waited for room in it.
    pub(super) fn transmit(&mut self) {
        let room = limits::LOCAL_KEPT_OUTPUT_BYTES.saturating_sub(self.output.len());
        let part = room.min(self.waiting.len());
        let (front, back) = self.waiting.as_slices();
        let front = &front[..part.min(front.len())];
        self.output.extend_from_slice(front);
        self.output.extend_from_slice(&back[..part - front.len()]);
        self.waiting.drain(..part);
        if self.waiting.is_empty() {
            self.waiting.shrink_to(limits::LOCAL_KEPT_OUTPUT_BYTES);
        }
    }

    /// Returns why the connection has ended, once it has.
    pub(super) fn close_reason(&self) -> Option<String> {
        self.connection.close_reason().map(describe)
    }
}

/// Returns what the first bytes of a server say if it does not speak this protocol.
pub(super) fn foreign_greeting(protocol: FramedProtocol, bytes: &[u8]) -> Option<&'static str> {
    let begun = bytes.len().min(protocol.magic().len());
    if bytes[..begun] == protocol.magic()[..begun] {
        return None;
    }
    Some(match bytes {
        [b'H', b'T', b'T', b'P', ..] => {
            "the server speaks HTTP/1.1, and neither baidu_std nor SRPC; is the port right?"
        }
        [b'P', b'R', b'P', b'C', ..] => "the server speaks baidu_std and not SRPC",
        [b'S', b'R', b'P', b'C', ..] => "the server speaks SRPC and not baidu_std",
        // The record of an alert or a handshake: RFC 8446 section 5.1.
        [0x15 | 0x16, 0x03, ..] => crate::channel::SERVER_SPEAKS_TLS,
        // A SETTINGS frame: RFC 9113 section 3.4.
        [0, _, _, 4, _, 0, 0, 0, 0, ..] => {
            "the server speaks HTTP/2 (gRPC), and neither baidu_std nor SRPC; is the port right?"
        }
        _ => match protocol {
            FramedProtocol::BaiduStd => "the server does not speak baidu_std; is the port right?",
            FramedProtocol::Srpc => "the server does not speak SRPC; is the port right?",
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_protocol_of_another_server_is_named() {
        let says = |protocol, bytes: &[u8]| foreign_greeting(protocol, bytes).unwrap_or_default();
        for bytes in [&b"P"[..], b"PRPC", b"PRPC\0\0"] {
            assert_eq!(foreign_greeting(FramedProtocol::BaiduStd, bytes), None);
        }
        let cases: [(&[u8], &str); 6] = [
            (b"HTTP/1.1 400 Bad Request", "speaks HTTP/1.1"),
            (b"SRPC\0", "speaks SRPC and not baidu_std"),
            (b"\0\0\x12\x04\0\0\0\0\0", "speaks HTTP/2"),
            (b"\x15\x03\x03", "speaks TLS"),
            (b"-ERR unknown", "does not speak baidu_std"),
            (b"X", "does not speak baidu_std"),
        ];
        for (bytes, part) in cases {
            let text = says(FramedProtocol::BaiduStd, bytes);
            assert!(text.contains(part), "{text}");
        }
        let text = says(FramedProtocol::Srpc, b"PRPC");
        assert!(text.contains("speaks baidu_std and not SRPC"), "{text}");
    }

    /// Writing takes bytes from the front of the output: were all of it there, each write would
    /// move the rest.
    #[test]
    fn large_requests_wait_beside_the_output_and_go_out_in_order() {
        const SIZES: [usize; 6] = [700_000, 5, 2_000_000, 300_000, 1, 500_000];
        let request = CallRequest {
            path: "/t.T/Echo",
            authority: "",
            timeout_ns: None,
            metadata: None,
            gzip: false,
            accepts_gzip: true,
        };
        let mut core = FramedCore::new(FramedProtocol::Srpc, &wire::Config::client());
        assert!(core.begin(&request, |out| out.push(1)).is_ok());
        assert!(!core.wants_transmit() && core.calls_left() == 0);
        let mut core = FramedCore::new(FramedProtocol::BaiduStd, &wire::Config::client());
        let mut sent = Vec::new();
        for round in 0..2 {
            for (number, bytes) in (0..).zip(SIZES) {
                let fill = |out: &mut Vec<u8>| out.resize(out.len() + bytes, number);
                assert!(core.begin(&request, fill).is_ok());
                assert!(core.output().len() <= limits::LOCAL_KEPT_OUTPUT_BYTES);
            }
            assert!(core.wants_transmit(), "{round}");
            while core.wants_transmit() || !core.output().is_empty() {
                core.transmit();
                let output = core.output();
                assert!(output.len() <= limits::LOCAL_KEPT_OUTPUT_BYTES);
                let part = output.len().min(100_000);
                sent.extend(output.drain(..part));
            }
        }
        let mut rest = &sent[..];
        for (number, bytes) in (0..).zip(SIZES).chain((0..).zip(SIZES)) {
            let header = FramedProtocol::BaiduStd
                .read_header(rest)
                .expect("a header");
            let start = FramedProtocol::BaiduStd.header_bytes() + header.meta_bytes;
            let (body, after) = rest[start..].split_at(header.body_bytes);
            assert!(body.len() == bytes && body.iter().all(|byte| *byte == number));
            rest = after;
        }
        assert!(rest.is_empty());
    }
}
