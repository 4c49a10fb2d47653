//! Requests: one frame each.

use std::hash::{DefaultHasher, Hasher};

use protobuf::writer;

use super::calls::{self, CALLS_MAX};
use super::{BeginError, FramedClientConnection};
use crate::framed::baidu_std::{self, compress};
use crate::framed::{FramedHeader, FramedProtocol, srpc};
use crate::grpc::{Metadata, compression, metadata};
use crate::http2::StreamKey;
use crate::limits;

/// What a call begins with, beside its message.
#[derive(Clone, Copy, Debug, Default)]
pub struct FramedCallHead<'a> {
    /// The service, with its package or without.
    pub service: &'a str,
    /// The method.
    pub method: &'a str,
    /// How long the caller waits, in nanoseconds. Sent in milliseconds, at least one; SRPC has no
    /// field for it.
    pub timeout_ns: Option<u64>,
    /// What goes with the call. `authorization` proves who calls: baidu_std has a field for it, in
    /// which it goes with the first call of a connection, without the name of its scheme if that is
    /// `Bearer`. It goes again when it is another one; a call without one is taken for one of the
    /// caller before it.
    pub metadata: Option<&'a Metadata>,
    /// Whether the message is compressed by gzip.
    pub gzip: bool,
    /// What follows behind the message. SRPC has none.
    pub attachment: &'a [u8],
}

/// The name of the scheme before a token.
const SCHEME: &[u8] = b"Bearer ";

/// Returns the token that a call brings.
fn token_of<'a>(head: &FramedCallHead<'a>) -> Option<&'a [u8]> {
    let found = fields(head).find(|(name, _)| name.as_bytes() == AUTHORIZATION);
    found.map(|(_, value)| value.strip_prefix(SCHEME).unwrap_or(value))
}

/// Returns a number that tells tokens from each other, which are random themselves.
fn hash(token: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(token);
    hasher.finish()
}

impl FramedClientConnection {
    /// Begins a call: appends its frame to `out`. `encode` appends the message.
    ///
    /// # Errors
    /// If the call cannot begin; nothing was appended then.
    pub fn begin(
        &mut self,
        out: &mut Vec<u8>,
        head: &FramedCallHead<'_>,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> Result<StreamKey, BeginError> {
        if !self.takes_calls() {
            return Err(BeginError::Closing);
        }
        if self.calls.len() >= self.max_calls {
            return Err(BeginError::TooManyCalls);
        }
        if self.protocol == FramedProtocol::Srpc && !head.attachment.is_empty() {
            return Err(BeginError::NoAttachments);
        }
        if fields(head).any(|(name, _)| metadata::is_binary_key(name.as_bytes())) {
            return Err(BeginError::BinaryMetadata);
        }
        let token = token_of(head);
        let token_hash = token.map(hash).or(self.sent_token);
        let new_token = token.filter(|_| token_hash != self.sent_token);
        let call = self.calls.insert();
        let start = out.len();
        if let Err(error) = self.write(call, out, (head, new_token), encode) {
            out.truncate(start);
            self.calls.remove(call);
            return Err(error);
        }
        self.sent_token = token_hash;
        Ok(call)
    }

    /// `new_token`: one that the server does not have from an earlier call.
    fn write(
        &self,
        call: StreamKey,
        out: &mut Vec<u8>,
        (head, new_token): (&FramedCallHead<'_>, Option<&[u8]>),
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), BeginError> {
        let start = out.len();
        let header_bytes = self.protocol.header_bytes();
        out.extend_from_slice(&[0; srpc::HEADER_BYTES][..header_bytes]);
        match self.protocol {
            FramedProtocol::BaiduStd => write_baidu_std_meta(call, head, new_token, out),
            FramedProtocol::Srpc => write_srpc_meta(head, out),
        }
        let body_start = out.len();
        let meta_bytes = body_start - start - header_bytes;
        if meta_bytes > limits::FRAMED_META_BYTES {
            return Err(BeginError::MetadataTooLarge);
        }
        encode(out);
        if head.gzip {
            let message = out.split_off(body_start);
            compression::gzip(&message, out);
        }
        out.extend_from_slice(head.attachment);
        let body_bytes = out.len() - body_start;
        if body_bytes > limits::FRAMED_REQUEST_BYTES {
            return Err(BeginError::MessageTooLarge);
        }
        let header = FramedHeader {
            meta_bytes,
            body_bytes,
        };
        (self.protocol).fill_header(header, &mut out[start..start + header_bytes]);
        Ok(())
    }

    /// Returns how many further calls may begin now. As long as
    /// [`FramedClientConnection::takes_calls`] does not hold, that is one: it then says so.
    #[inline]
    pub fn calls_left(&self) -> usize {
        match self.takes_calls() {
            true => self.max_calls - self.calls.len().min(self.max_calls),
            false => 1,
        }
    }

    /// Returns whether calls may still begin, now or when others have ended. A connection takes no
    /// more of them if it has ended, or if each further one would wait for the response to one
    /// that was given up.
    #[inline]
    pub fn takes_calls(&self) -> bool {
        self.closed.is_none() && !self.is_ending && self.calls.abandoned() < self.max_calls
    }

    /// Returns the calls that a connection may have at once.
    pub(super) fn bounded_calls(protocol: FramedProtocol, max_calls: usize) -> usize {
        match protocol {
            FramedProtocol::BaiduStd => max_calls.clamp(1, CALLS_MAX),
            FramedProtocol::Srpc => 1,
        }
    }
}

/// As brpc's own client writes them, whatever stands for nothing included. The fields of the user
/// are written one by one: their values need not be text.
fn write_baidu_std_meta(
    call: StreamKey,
    head: &FramedCallHead<'_>,
    new_token: Option<&[u8]>,
    out: &mut Vec<u8>,
) {
    let compress_type = match head.gzip {
        true => compress::GZIP,
        false => compress::NONE,
    };
    // It is shorter than a frame, of which the bound is checked.
    let attachment_size = i32::try_from(head.attachment.len()).unwrap_or(i32::MAX);
    let meta = baidu_std::RpcMeta {
        request: Some(baidu_std::RpcRequestMeta {
            service_name: head.service,
            method_name: head.method,
            log_id: Some(0),
            timeout_ms: head.timeout_ns.map(timeout_ms),
            ..baidu_std::RpcRequestMeta::default()
        }),
        compress_type: Some(compress_type),
        correlation_id: Some(calls::correlation_id(call)),
        attachment_size: (attachment_size > 0).then_some(attachment_size),
        authentication_data: new_token,
        ..baidu_std::RpcMeta::default()
    };
    meta.encode(out);
    let others = fields(head).filter(|(name, _)| name.as_bytes() != AUTHORIZATION);
    for (name, value) in others {
        let numbers = baidu_std::UserField::NUMBERS;
        writer::message(out, baidu_std::RpcMeta::NUMBERS.user_fields, |out| {
            writer::bytes_always(out, numbers.key, name.as_bytes());
            writer::bytes_always(out, numbers.value, value);
        });
    }
    // content_type: 0, checksum_type: 0, and an empty checksum_value.
    out.extend_from_slice(b"\x50\x00\x58\x00\x62\x00");
}

const AUTHORIZATION: &[u8] = metadata::AUTHORIZATION.as_bytes();

fn fields<'a>(head: &FramedCallHead<'a>) -> impl Iterator<Item = (&'a str, &'a [u8])> + use<'a> {
    head.metadata.into_iter().flat_map(Metadata::iter)
}

/// Returns whole milliseconds, none of which is lost.
fn timeout_ms(timeout_ns: u64) -> i32 {
    let timeout_ms = timeout_ns.div_ceil(1_000_000).max(1);
    i32::try_from(timeout_ms).unwrap_or(i32::MAX)
}

/// As SRPC's own client writes them, the metadata one by one.
fn write_srpc_meta(head: &FramedCallHead<'_>, out: &mut Vec<u8>) {
    let meta = srpc::RpcMeta {
        request: Some(srpc::RpcRequestMeta {
            service_name: head.service,
            method_name: head.method,
            ..srpc::RpcRequestMeta::default()
        }),
        compress_type: head.gzip.then_some(compress::GZIP),
        data_type: Some(srpc::DATA_PROTOBUF),
        ..srpc::RpcMeta::default()
    };
    meta.encode(out);
    for (name, value) in fields(head) {
        let numbers = srpc::TransInfo::NUMBERS;
        writer::message(out, srpc::RpcMeta::NUMBERS.trans_info, |out| {
            writer::bytes_always(out, numbers.key, name.as_bytes());
            writer::bytes_always(out, numbers.str_value, value);
        });
    }
}
