//! The protocols over which calls come, behind one interface, so that calls, limits, rights and the
//! account need not know which of them a connection carries.

use bytes::Bytes;
use wire::framed::{FramedProtocol, FramedServerConnection};
use wire::{
    BodyCharge, CloseReason, Config, Connection, ErrorCode, Event, Head, Pause, SentPart,
    SharedBytes, StreamKey, TakenMessage,
};

use service::Status;

/// A connection that carries calls.
#[expect(
    clippy::large_enum_variant,
    reason = "it lies in a box, and most connections are the large one"
)]
pub(crate) enum RpcConnection {
    /// gRPC over HTTP/2.
    Http2(Connection),
    /// baidu_std or SRPC.
    Framed(FramedServerConnection),
}

/// What a connection holds.
pub(crate) struct HeldMemory {
    /// Streams that are open.
    pub running: usize,
    /// With what is shared, and without what is only set aside.
    pub held_bytes: usize,
    /// Without what is shared.
    pub buffered_bytes: usize,
    /// What messages lack whose turn it is.
    pub expected_bytes: usize,
    /// What waits or is set aside.
    pub unsent_bytes: usize,
    /// What has waited and gone out.
    pub sent_bytes: u64,
}

/// The same call of whatever it is.
macro_rules! either {
    ($connection:expr, $one:ident => $call:expr) => {
        match $connection {
            RpcConnection::Http2($one) => $call,
            RpcConnection::Framed($one) => $call,
        }
    };
}

/// Methods that both have, with the same arguments.
macro_rules! both {
    ($(
        $(#[$attribute:meta])*
        &mut $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;
    )*) => { $(
        $(#[$attribute])*
        #[inline(always)]
        pub fn $name(&mut self, $($argument: $type),*) $(-> $result)? {
            either!(self, one => one.$name($($argument),*))
        }
    )* };
    ($(
        $(#[$attribute:meta])*
        & $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;
    )*) => { $(
        $(#[$attribute])*
        #[inline(always)]
        pub fn $name(&self, $($argument: $type),*) $(-> $result)? {
            either!(self, one => one.$name($($argument),*))
        }
    )* };
}

/// What only HTTP/2 has is nothing for the others.
macro_rules! http2 {
    ($connection:expr, $one:ident => $call:expr, else $other:expr) => {
        match $connection {
            RpcConnection::Http2($one) => $call,
            RpcConnection::Framed(_) => $other,
        }
    };
}

/// A connection, by its events.
impl RpcConnection {
    /// Begins with HTTP/2.
    pub fn http2(config: &Config, out: &mut Vec<u8>, now_ns: u64) -> RpcConnection {
        let mut connection = Connection::new(config, now_ns);
        connection.start(out);
        RpcConnection::Http2(connection)
    }

    /// Begins with baidu_std or SRPC.
    pub fn framed(protocol: FramedProtocol, config: &Config, now_ns: u64) -> RpcConnection {
        RpcConnection::Framed(FramedServerConnection::new(protocol, config, now_ns))
    }

    /// Returns the connection if it carries unary calls in frames of their own.
    #[inline(always)]
    pub fn as_framed(&mut self) -> Option<&mut FramedServerConnection> {
        match self {
            RpcConnection::Http2(_) => None,
            RpcConnection::Framed(framed) => Some(framed),
        }
    }

    /// Returns whether it carries unary calls in frames of their own.
    #[inline(always)]
    pub fn is_framed(&self) -> bool {
        matches!(self, RpcConnection::Framed(_))
    }

    /// Returns the next event of the input, if there is one.
    #[inline(always)]
    pub fn poll_event(
        &mut self,
        input: &[u8],
        consumed: &mut usize,
        out: &mut Vec<u8>,
        now_ns: u64,
    ) -> Option<Event> {
        either!(self, one => one.poll_event(input, consumed, out, now_ns))
    }

    /// Returns the memory that it holds, at a look.
    #[inline(always)]
    pub fn memory(&self) -> HeldMemory {
        either!(self, one => HeldMemory {
            running: one.running(),
            held_bytes: one.held_bytes(),
            buffered_bytes: one.buffered_bytes(),
            expected_bytes: one.expected_bytes(),
            unsent_bytes: one.unsent_bytes(),
            sent_bytes: one.sent_bytes(),
        })
    }

    /// The stream of a call that has ended names none any more. Returns whether its response waits.
    #[inline(always)]
    pub fn end_call(&mut self, stream: StreamKey) -> bool {
        either!(self, one => {
            one.set_token(stream, 0);
            one.has_unsent(stream)
        })
    }

    both! {
        /// Takes the last message out.
        &mut take_message() -> TakenMessage;
        /// Takes its buffer back.
        &mut give_back(message: TakenMessage);
        /// Notes where the last head leads.
        &mut set_head_route(route: u64);
        /// Names the call of a stream.
        &mut set_token(stream: StreamKey, token: u32);
        /// The layer above has done with a stream that was cancelled.
        &mut forget(stream: StreamKey);
        /// The transport has ended.
        &mut peer_closed();
        /// Holds back what is produced.
        &mut set_pause(pause: Pause);
        /// Bounds what messages may lack whose turn comes.
        &mut set_turn_allowance(bytes: usize);
        /// Bounds what may be made of large compressed messages.
        &mut set_unpack_allowance(bytes: usize);
        /// Moves what waits to the output.
        &mut transmit(out: &mut Vec<u8>, now_ns: u64);
        /// Drops what waits of a call that runs.
        &mut drop_unsent(stream: StreamKey);
        /// Returns whether a message may be sent.
        &mut can_send(stream: StreamKey) -> bool;
        /// Returns whether a large message may be sent.
        &mut can_send_large(stream: StreamKey) -> bool;
        /// Sets aside bytes for what is sent next.
        &mut reserve_send(stream: StreamKey, bytes: usize);
        /// Sets aside more bytes.
        &mut reserve_more(stream: StreamKey, bytes: usize);
        /// Counts bytes as held ready.
        &mut hold_ready(stream: StreamKey, bytes: usize);
        /// Counts bytes as held of the request.
        &mut hold_request(stream: StreamKey, bytes: usize);
        /// Charges a shared body.
        &mut charge_shared(stream: StreamKey, charge: impl FnOnce() -> Box<dyn BodyCharge>);
        /// Ends a call with a status.
        &mut finish(stream: StreamKey, out: &mut Vec<u8>, status: &Status);
    }

    both! {
        /// Returns the head of the last request.
        &head() -> Head<'_>;
        /// Returns what was noted for such a head.
        &head_route() -> Option<u64>;
        /// Returns whether the last message was compressed.
        &message_was_compressed() -> bool;
        /// Returns what it became when it was found.
        &unpacked_bytes() -> usize;
        /// Returns the name of the call of a stream.
        &token(stream: StreamKey) -> u32;
        /// Returns why the connection has ended.
        &close_reason() -> Option<&CloseReason>;
        /// Returns whether there are events without input.
        &has_events() -> bool;
        /// Returns how many streams are open.
        &running() -> usize;
        /// Returns whether something waits for the output.
        &wants_transmit() -> bool;
        /// Returns when something is due.
        &next_deadline_ns() -> Option<u64>;
        /// Returns whether calls may produce something.
        &has_capacity() -> bool;
        /// Returns whether they may produce what is large.
        &has_large_capacity() -> bool;
        /// Returns what waits or is set aside, in bytes.
        &unsent_bytes() -> usize;
        /// Returns what waits, in bytes.
        &queued_bytes() -> usize;
        /// Returns what is held, in bytes.
        #[cfg(test)]
        &held_bytes() -> usize;
        /// Returns what has waited and gone out, in bytes.
        #[cfg(test)]
        &sent_bytes() -> u64;
        /// Returns what has gone out and takes memory all the same, in bytes.
        #[cfg(test)]
        &out_bytes() -> usize;
        /// Returns the memory that is charged, in bytes.
        #[cfg(test)]
        &buffered_bytes() -> usize;
        /// Returns what messages lack whose turn it is, in bytes.
        #[cfg(test)]
        &expected_bytes() -> usize;
        /// Returns whether a response waits.
        &has_unsent(stream: StreamKey) -> bool;
        /// Returns whether a message was put back.
        &has_put_back() -> bool;
        /// Returns whether more of a request is to come.
        &awaits_request(stream: StreamKey) -> bool;
        /// Returns whether a call waits for the peer to take something.
        &awaits_taking(stream: StreamKey) -> bool;
        /// Returns whether a message waits for its turn.
        &waits_for_turn() -> bool;
        /// Returns what the next one lacks, in bytes.
        &next_turn_bytes() -> usize;
        /// Returns whether a message has its turn.
        &has_turn() -> bool;
        /// Returns whether the next one is there, compressed.
        &is_next_compressed() -> bool;
        /// Returns what is left to be made of compressed messages, in bytes.
        &unpack_allowance() -> usize;
        /// Returns whether a compressed message goes on when it may.
        &waits_to_unpack() -> bool;
        /// Returns whether windows are shut.
        &windows_are_shut() -> bool;
    }
}

/// What differs in its arguments, or is one protocol's alone.
impl RpcConnection {
    pub fn put_back(
        &mut self,
        stream: StreamKey,
        message: TakenMessage,
        input: &[u8],
        last: bool,
        out: &mut Vec<u8>,
    ) {
        match self {
            RpcConnection::Http2(http2) => http2.put_back(stream, message, input, last, out),
            RpcConnection::Framed(framed) => framed.put_back(stream, message, input),
        }
    }

    pub fn gather_message(
        &mut self,
        stream: StreamKey,
        part: TakenMessage,
        input: &[u8],
        out: &mut Vec<u8>,
    ) {
        match self {
            RpcConnection::Http2(http2) => http2.gather_message(stream, part, input, out),
            RpcConnection::Framed(framed) => framed.give_back(part),
        }
    }

    pub fn drain(&mut self, out: &mut Vec<u8>, now_ns: u64) {
        match self {
            RpcConnection::Http2(http2) => http2.drain(out, now_ns),
            RpcConnection::Framed(framed) => framed.drain(now_ns),
        }
    }

    pub fn abort(&mut self, why: &'static str, out: &mut Vec<u8>) {
        match self {
            RpcConnection::Http2(http2) => http2.abort(why, out),
            RpcConnection::Framed(framed) => framed.abort(why),
        }
    }

    pub fn deadline_passed(&mut self, out: &mut Vec<u8>, now_ns: u64) {
        match self {
            RpcConnection::Http2(http2) => http2.deadline_passed(out, now_ns),
            RpcConnection::Framed(framed) => framed.deadline_passed(now_ns),
        }
    }

    pub fn cut_off(&mut self, stream: StreamKey, out: &mut Vec<u8>, status: &Status) {
        match self {
            RpcConnection::Http2(http2) => http2.cut_off(stream, out, status),
            RpcConnection::Framed(framed) => framed.cut_off(stream, status),
        }
    }

    pub fn reset(&mut self, stream: StreamKey, out: &mut Vec<u8>, code: ErrorCode) {
        match self {
            RpcConnection::Http2(http2) => http2.reset(stream, out, code),
            RpcConnection::Framed(framed) => framed.reset(stream, out),
        }
    }

    #[inline(always)]
    pub fn respond(
        &mut self,
        stream: StreamKey,
        out: &mut Vec<u8>,
        encode: impl FnOnce(&mut Vec<u8>),
    ) {
        either!(self, one => one.respond(stream, out, encode));
    }

    #[inline(always)]
    pub fn send_message(
        &mut self,
        stream: StreamKey,
        out: &mut Vec<u8>,
        encode: impl FnOnce(&mut Vec<u8>),
    ) {
        match self {
            RpcConnection::Http2(http2) => http2.send_message(stream, out, encode),
            RpcConnection::Framed(framed) => framed.send_message(stream, encode),
        }
    }

    #[inline(always)]
    pub fn send_shared(
        &mut self,
        stream: StreamKey,
        out: &mut Vec<u8>,
        head: impl FnOnce(&mut Vec<u8>),
        body: SharedBytes,
    ) {
        match self {
            RpcConnection::Http2(http2) => http2.send_shared(stream, out, head, body),
            RpcConnection::Framed(framed) => framed.send_shared(stream, head, body),
        }
    }

    #[inline(always)]
    pub fn send_parts<'a>(
        &mut self,
        stream: StreamKey,
        out: &mut Vec<u8>,
        parts: impl Iterator<Item = SentPart<'a>> + Clone,
    ) {
        match self {
            RpcConnection::Http2(http2) => http2.send_parts(stream, out, parts),
            RpcConnection::Framed(framed) => framed.send_parts(stream, parts),
        }
    }

    pub fn can_begin(&mut self, stream: StreamKey) -> bool {
        match self {
            RpcConnection::Http2(http2) => http2.can_begin(stream),
            RpcConnection::Framed(framed) => framed.can_send(stream),
        }
    }

    pub fn send_room(&mut self, stream: StreamKey) -> usize {
        match self {
            RpcConnection::Http2(http2) => http2.send_room(stream),
            RpcConnection::Framed(framed) => framed.send_room(),
        }
    }

    pub fn window_room(&self, stream: StreamKey) -> usize {
        match self {
            RpcConnection::Http2(http2) => http2.window_room(stream),
            RpcConnection::Framed(framed) => framed.send_room(),
        }
    }

    #[inline(always)]
    pub fn set_windows_shut(&mut self, shut: bool, out: &mut Vec<u8>) {
        match self {
            RpcConnection::Http2(http2) => http2.set_windows_shut(shut, out),
            RpcConnection::Framed(framed) => framed.set_windows_shut(shut),
        }
    }

    pub fn force_turn(&mut self, out: &mut Vec<u8>) {
        match self {
            RpcConnection::Http2(http2) => http2.force_turn(out),
            RpcConnection::Framed(framed) => framed.force_turn(),
        }
    }

    /// A sender without windows has sent what it could: its message waits, proven or not.
    #[inline(always)]
    pub fn probe_turn(&mut self, out: &mut Vec<u8>) {
        http2!(self, one => one.probe_turn(out), else {});
    }

    #[inline(always)]
    pub fn has_proven_waiting(&self) -> bool {
        match self {
            RpcConnection::Http2(http2) => http2.has_proven_waiting(),
            RpcConnection::Framed(framed) => framed.waits_for_turn(),
        }
    }

    /// Each message whose size is more than a little has its turn, so that there is no bound.
    #[inline(always)]
    pub fn set_gather_bound(&mut self, bytes: usize) {
        http2!(self, one => one.set_gather_bound(bytes), else {});
    }

    /// The request of a unary call lies whole in its message.
    #[inline(always)]
    pub fn release(&mut self, stream: StreamKey, out: &mut Vec<u8>) {
        http2!(self, one => one.release(stream, out), else {});
    }

    pub fn hold(&mut self, stream: StreamKey, hold: bool) {
        http2!(self, one => one.hold(stream, hold), else {});
    }

    pub fn take_parts(&mut self, stream: StreamKey) {
        http2!(self, one => one.take_parts(stream), else {});
    }

    pub fn limit_window(&mut self, stream: StreamKey, bytes: u32, out: &mut Vec<u8>) {
        http2!(self, one => one.limit_window(stream, bytes, out), else {});
    }

    pub fn promise_room(&mut self, stream: StreamKey, bytes: usize) {
        http2!(self, one => one.promise_room(stream, bytes), else {});
    }

    pub fn take_progress(&mut self, stream: StreamKey) -> bool {
        http2!(self, one => one.take_progress(stream), else false)
    }

    /// Responses of the other protocols have neither headers nor trailers.
    pub fn add_header(&mut self, stream: StreamKey, name: &[u8], value: &[u8]) {
        http2!(self, one => one.add_header(stream, name, value), else {});
    }

    pub fn add_trailer(&mut self, stream: StreamKey, name: &[u8], value: &[u8]) {
        http2!(self, one => one.add_trailer(stream, name, value), else {});
    }

    /// They are not compressed either, as those of a brpc server are not.
    pub fn set_compress(&mut self, stream: StreamKey, compress: bool) {
        http2!(self, one => one.set_compress(stream, compress), else {});
    }
}

/// Plain requests, which only HTTP/2 has.
impl RpcConnection {
    pub fn send_continue(&mut self, stream: StreamKey, out: &mut Vec<u8>) {
        http2!(self, one => one.send_continue(stream, out), else {});
    }

    pub fn send_plain(
        &mut self,
        stream: StreamKey,
        out: &mut Vec<u8>,
        status: u16,
        headers: &[(&str, &str)],
        body: &[u8],
    ) {
        http2!(self, one => one.send_plain(stream, out, status, headers, body), else {});
    }

    pub fn send_plain_shared(
        &mut self,
        stream: StreamKey,
        out: &mut Vec<u8>,
        status: u16,
        headers: &[(&str, &str)],
        body: Bytes,
    ) {
        http2!(self, one => one.send_plain_shared(stream, out, status, headers, body), else {});
    }

    pub fn send_plain_headers(
        &mut self,
        stream: StreamKey,
        out: &mut Vec<u8>,
        status: u16,
        headers: &[(&str, &str)],
        end: bool,
    ) {
        http2!(self, one => one.send_plain_headers(stream, out, status, headers, end), else {});
    }

    pub fn send_body(&mut self, stream: StreamKey, out: &mut Vec<u8>, part: SharedBytes) {
        http2!(self, one => one.send_body(stream, out, part), else {});
    }

    pub fn end_body(&mut self, stream: StreamKey, out: &mut Vec<u8>, body: &[u8]) {
        http2!(self, one => one.end_body(stream, out, body), else {});
    }
}
