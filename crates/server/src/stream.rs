//! One stream of a connection, as calls use it.

use bytes::Bytes;
use service::Status;
use wire::{BodyCharge, ErrorCode, Pause, SentPart, SharedBytes, StreamKey};

use crate::limits;
use crate::rpc_connection::RpcConnection;

/// A stream of a connection, with the output into which its connection writes.
pub(crate) struct StreamHandle<'a> {
    connection: &'a mut RpcConnection,
    key: StreamKey,
    output: &'a mut Vec<u8>,
}

impl<'a> StreamHandle<'a> {
    #[inline]
    pub fn new(
        connection: &'a mut RpcConnection,
        key: StreamKey,
        output: &'a mut Vec<u8>,
    ) -> StreamHandle<'a> {
        StreamHandle {
            connection,
            key,
            output,
        }
    }

    // --- gRPC

    /// Sends the only message and status OK.
    #[inline]
    pub fn respond(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        self.connection.respond(self.key, self.output, encode);
    }

    /// Sends one message.
    #[inline]
    pub fn send_message(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        self.connection.send_message(self.key, self.output, encode);
    }

    /// Sends one message that ends with bytes that others hold too.
    #[inline]
    pub fn send_shared(&mut self, head: impl FnOnce(&mut Vec<u8>), body: SharedBytes) {
        (self.connection).send_shared(self.key, self.output, head, body);
    }

    /// Sends one message of several parts.
    #[inline]
    pub fn send_parts<'p>(&mut self, parts: impl Iterator<Item = SentPart<'p>> + Clone) {
        self.connection.send_parts(self.key, self.output, parts);
    }

    /// Ends the call with a status. With UNAVAILABLE goes when to try again (gRPC proposal A6,
    /// "Pushback"), and with nothing else: so a client can tell it from the UNAVAILABLE that its
    /// own library makes of a broken connection.
    pub fn finish(&mut self, status: Status) {
        if status.code() == service::Code::Unavailable {
            self.add_pushback();
        }
        self.connection.finish(self.key, self.output, &status);
    }

    #[cold]
    fn add_pushback(&mut self) {
        let pushback_ms = limits::RETRY_PUSHBACK_MS.to_string();
        (self.connection).add_trailer(self.key, wire::PUSHBACK_TRAILER, pushback_ms.as_bytes());
    }

    // --- plain HTTP

    /// Sends 100 (Continue).
    pub fn send_continue(&mut self) {
        self.connection.send_continue(self.key, self.output);
    }

    /// Sends a whole answer.
    pub fn send_plain(&mut self, status: u16, headers: &[(&str, &str)], body: &[u8]) {
        (self.connection).send_plain(self.key, self.output, status, headers, body);
    }

    /// Sends a whole answer whose body is held as long as the program runs.
    pub fn send_plain_shared(&mut self, status: u16, headers: &[(&str, &str)], body: Bytes) {
        (self.connection).send_plain_shared(self.key, self.output, status, headers, body);
    }

    /// Sends the header of an answer whose body follows.
    pub fn send_plain_headers(&mut self, status: u16, headers: &[(&str, &str)]) {
        (self.connection).send_plain_headers(self.key, self.output, status, headers, false);
    }

    /// Sends some of the body.
    pub fn send_body(&mut self, part: SharedBytes) {
        self.connection.send_body(self.key, self.output, part);
    }

    /// Ends the body.
    pub fn end_body(&mut self) {
        self.connection.end_body(self.key, self.output, &[]);
    }

    // --- either

    /// Returns the number that stands for the stream's call, or for its answer; 0 if there is none.
    pub fn token(&self) -> u32 {
        self.connection.token(self.key)
    }

    /// Sets that number.
    pub fn set_token(&mut self, token: u32) {
        self.connection.set_token(self.key, token);
    }

    /// Ends the stream at once.
    pub fn reset(&mut self, code: ErrorCode) {
        self.connection.reset(self.key, self.output, code);
    }

    /// Bounds what the receive window of the stream may grow to.
    pub fn limit_window(&mut self, bytes: u32) {
        self.connection.limit_window(self.key, bytes, self.output);
    }

    /// Lets the peer send on.
    #[inline]
    pub fn release(&mut self) {
        self.connection.release(self.key, self.output);
    }

    // --- what may be sent, and what is held

    /// Returns whether a further message may be sent now.
    pub fn can_send(&mut self) -> bool {
        self.connection.can_send(self.key)
    }

    /// The same for a call that holds nothing yet and will when it has sent something.
    pub fn can_begin(&mut self) -> bool {
        self.connection.can_begin(self.key)
    }

    /// The same for a message that may be large.
    pub fn can_send_large(&mut self) -> bool {
        self.connection.can_send_large(self.key)
    }

    /// Returns whether large messages may be produced for the peer.
    pub fn has_large_capacity(&self) -> bool {
        self.connection.has_large_capacity()
    }

    /// Lets no large message be produced for the peer until memory is looked for again.
    pub fn pause_large_messages(&mut self) {
        self.connection.set_pause(Pause::Large);
    }

    /// Returns how many bytes the peer's windows let out at once.
    pub fn send_room(&mut self) -> usize {
        self.connection.send_room(self.key)
    }

    /// Returns how many bytes the peer's windows let out behind what waits.
    pub fn window_room(&self) -> usize {
        self.connection.window_room(self.key)
    }

    /// Keeps so many bytes of the connection's window for what is sent next.
    pub fn promise_room(&mut self, bytes: usize) {
        self.connection.promise_room(self.key, bytes);
    }

    /// Counts so many bytes as held for what is sent next.
    pub fn hold_ready(&mut self, bytes: usize) {
        self.connection.hold_ready(self.key, bytes);
    }

    /// Counts so many bytes as held of the request.
    pub fn hold_request(&mut self, bytes: usize) {
        self.connection.hold_request(self.key, bytes);
    }

    /// Sets so many bytes aside for what is sent next.
    pub fn reserve_send(&mut self, bytes: usize) {
        self.connection.reserve_send(self.key, bytes);
    }

    /// Has a body that was just sent charged, if some of it still waits.
    pub fn charge_shared(&mut self, charge: impl FnOnce() -> Box<dyn BodyCharge>) {
        self.connection.charge_shared(self.key, charge);
    }

    /// Returns whether the peer has taken something, or opened its window, since the last call.
    pub fn take_progress(&mut self) -> bool {
        self.connection.take_progress(self.key)
    }

    // --- what comes in

    /// Takes no further message of the peer until [`StreamHandle::resume`].
    pub fn hold(&mut self) {
        self.connection.hold(self.key, true);
    }

    /// Takes messages again.
    pub fn resume(&mut self) {
        self.connection.hold(self.key, false);
    }

    /// Has messages come in parts.
    pub fn take_parts(&mut self) {
        self.connection.take_parts(self.key);
    }

    /// Has the attachment of the request go with the response.
    pub fn echo_attachment(&mut self) {
        if let Some(framed) = self.connection.as_framed() {
            framed.echo_attachment(self.key);
        }
    }

    /// Returns whether the message that came last was compressed.
    pub fn message_was_compressed(&self) -> bool {
        self.connection.message_was_compressed()
    }

    // --- metadata

    /// Adds a header to those before the first message.
    pub fn add_header(&mut self, name: &[u8], value: &[u8]) {
        self.connection.add_header(self.key, name, value);
    }

    /// Adds a trailer.
    pub fn add_trailer(&mut self, name: &[u8], value: &[u8]) {
        self.connection.add_trailer(self.key, name, value);
    }

    /// Sets whether the messages that follow are compressed.
    pub fn set_compress(&mut self, wanted: bool) {
        self.connection.set_compress(self.key, wanted);
    }
}
