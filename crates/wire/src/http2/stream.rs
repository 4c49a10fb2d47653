//! What a connection knows of one stream.

use super::claims::SendClaims;
use super::extra_fields::ExtraFields;
use super::flow::{ReceiveWindow, SendWindow};
use super::headers::{BodyKind, HeadInfo};
use super::inbound::Inbound;
use super::outbound::Outbound;
use super::turn::MessageTurn;
use crate::grpc::{Encoding, Status};

/// Who ended a stream before its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dead {
    No,
    ByPeer,
    ByUs,
}

/// Client: the status of a call, come while messages are still to be taken.
#[derive(Debug, Default)]
pub(crate) enum LateStatus {
    #[default]
    NotCome,
    /// OK and nothing beside it, as nearly always: kept without an allocation.
    Ok,
    Other(Box<Status>),
}

/// One stream. A free slot has identifier 0 and keeps its buffers for the next.
///
/// Its parts keep their own fields to themselves; the stream itself knows how far both sides of it
/// have come.
#[derive(Debug)]
pub(crate) struct Stream {
    id: u32,
    token: u32,
    kind: BodyKind,
    dead: Dead,
    /// END_STREAM has been received.
    receive_closed: bool,
    /// END_STREAM has been sent.
    send_closed: bool,
    /// The layer above has made its last call for this stream.
    work_done: bool,
    /// Our HEADERS have been sent.
    head_sent: bool,
    /// Client: the final response head has been received.
    head_received: bool,
    /// Client: a head has come that is not the end of the response, be it an interim one.
    response_begun: bool,
    /// Messages stay in the backlog until the layer above resumes the stream.
    held: bool,
    /// Messages stay in the backlog until the one before them is decompressed.
    is_decompressing: bool,
    /// Stands in the list of streams that have something to send and a window for it.
    in_ready: bool,
    /// `can_send` has become false; a Writable event is owed.
    owes_writable: bool,
    /// The peer has taken something, or opened the stream's window, since the call last asked.
    has_progress: bool,
    /// Whether messages that we send are compressed.
    compress: bool,
    /// Our HEADERS named gzip as the encoding.
    head_names_gzip: bool,
    peer_takes_gzip: bool,
    /// The answer to a HEAD request has no body.
    is_head_request: bool,
    /// How the peer compresses its messages; `None`: in a way that we do not know.
    encoding: Option<Encoding>,
    /// What its receive window may grow to at most.
    window_limit: u32,
    /// Bytes handed up and not yet released.
    unreleased: u32,
    /// What content-length still promises.
    content_left: Option<u64>,
    /// Fields for our head and our trailers.
    extra: Option<Box<ExtraFields>>,
    /// Client: the status that came while messages were still to be taken.
    late_status: LateStatus,

    pub(crate) send_window: SendWindow,
    pub(crate) receive_window: ReceiveWindow,
    /// The turn of the message that it is sending.
    pub(crate) turn: MessageTurn,
    pub(crate) inbound: Inbound,
    pub(crate) outbound: Outbound,
    pub(crate) claims: SendClaims,
}

impl Stream {
    /// Returns a free slot.
    pub(crate) fn new() -> Stream {
        Stream {
            id: 0,
            token: 0,
            kind: BodyKind::Grpc,
            dead: Dead::No,
            receive_closed: false,
            send_closed: false,
            work_done: false,
            head_sent: false,
            head_received: false,
            response_begun: false,
            held: false,
            is_decompressing: false,
            in_ready: false,
            owes_writable: false,
            has_progress: false,
            compress: false,
            head_names_gzip: false,
            peer_takes_gzip: false,
            is_head_request: false,
            encoding: Some(Encoding::Identity),
            window_limit: u32::MAX,
            unreleased: 0,
            content_left: None,
            extra: None,
            late_status: LateStatus::NotCome,
            send_window: SendWindow::new(0),
            receive_window: ReceiveWindow::new(0),
            turn: MessageTurn::default(),
            inbound: Inbound::default(),
            outbound: Outbound::default(),
            claims: SendClaims::default(),
        }
    }

    /// Begins a stream in a free slot.
    pub(crate) fn begin(&mut self, id: u32, kind: BodyKind, send_window: u32, receive_window: u32) {
        debug_assert!(self.outbound.is_empty() && !self.in_ready);
        debug_assert_eq!(self.turn, MessageTurn::default());
        self.inbound.begin();
        self.claims.begin();
        self.id = id;
        self.token = 0;
        self.kind = kind;
        self.dead = Dead::No;
        self.receive_closed = false;
        self.send_closed = false;
        self.work_done = false;
        self.head_sent = false;
        self.head_received = false;
        self.response_begun = false;
        self.held = false;
        self.is_decompressing = false;
        self.owes_writable = false;
        self.has_progress = false;
        self.compress = false;
        self.head_names_gzip = false;
        self.peer_takes_gzip = false;
        self.is_head_request = false;
        self.encoding = Some(Encoding::Identity);
        self.window_limit = u32::MAX;
        self.unreleased = 0;
        self.content_left = None;
        self.extra = None;
        self.late_status = LateStatus::NotCome;
        self.send_window = SendWindow::new(send_window);
        self.receive_window = ReceiveWindow::new(receive_window);
    }

    /// Makes the slot free. The caller has emptied its queues.
    pub(crate) fn free(&mut self) {
        debug_assert!(self.id != 0 && !self.in_ready);
        debug_assert!(self.inbound.is_empty() && self.outbound.is_empty());
        self.id = 0;
    }

    /// Returns the HTTP/2 stream identifier; 0: the slot is free.
    #[inline]
    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// Returns how the layer above names its call.
    #[inline]
    pub(crate) fn token(&self) -> u32 {
        self.token
    }

    /// Sets how the layer above names its call.
    #[inline]
    pub(crate) fn set_token(&mut self, token: u32) {
        self.token = token;
    }

    /// Returns whether its body is gRPC messages.
    #[inline]
    pub(crate) fn is_grpc(&self) -> bool {
        self.kind == BodyKind::Grpc
    }

    /// Server: the head of the request has come.
    #[inline]
    pub(crate) fn set_request(&mut self, info: &HeadInfo, end: bool) {
        self.receive_closed = end;
        self.encoding = info.encoding;
        self.peer_takes_gzip = info.takes_gzip;
        self.is_head_request = info.is_head_request;
        self.content_left = info.content_length;
    }

    /// Client: the head of the request has been sent.
    pub(crate) fn set_request_sent(&mut self, gzip: bool, is_head_request: bool) {
        self.head_sent = true;
        self.head_names_gzip = gzip;
        self.peer_takes_gzip = gzip;
        self.is_head_request = is_head_request;
    }

    /// Client: the final head of the response has come.
    pub(crate) fn set_response(&mut self, info: &HeadInfo, end: bool) {
        self.head_received = true;
        // A head that is all of the answer: if the request has been sent too, there is nothing left
        // to reset.
        self.receive_closed |= end;
        self.encoding = info.encoding;
        self.content_left = match self.is_head_request {
            true => None,
            false => info.content_length,
        };
    }

    /// Client: returns whether the final head of the response has come.
    pub(crate) fn is_head_received(&self) -> bool {
        self.head_received
    }

    /// Client: a head of the response has come, and is not the end of it.
    pub(crate) fn set_response_begun(&mut self) {
        self.response_begun = true;
    }

    /// Client: returns whether a head of the response has come that was not the end of it.
    pub(crate) fn is_response_begun(&self) -> bool {
        self.response_begun
    }

    /// Returns whether the answer has no body, as to a HEAD request.
    pub(crate) fn is_head_request(&self) -> bool {
        self.is_head_request
    }

    /// Returns who ended it before its time.
    pub(crate) fn dead(&self) -> Dead {
        self.dead
    }

    /// Returns whether somebody ended it before its time.
    #[inline]
    pub(crate) fn is_dead(&self) -> bool {
        self.dead != Dead::No
    }

    /// Nothing is received or sent on it any more.
    pub(crate) fn kill(&mut self, dead: Dead) {
        self.dead = dead;
        self.receive_closed = true;
        self.send_closed = true;
        self.owes_writable = false;
        self.claims.stop_awaiting_room();
    }

    /// Returns whether END_STREAM has been received.
    #[inline]
    pub(crate) fn is_receive_closed(&self) -> bool {
        self.receive_closed
    }

    /// END_STREAM has been received.
    #[inline]
    pub(crate) fn close_receive(&mut self) {
        self.receive_closed = true;
    }

    /// Returns whether END_STREAM has been sent.
    #[inline]
    pub(crate) fn is_send_closed(&self) -> bool {
        self.send_closed
    }

    /// END_STREAM has been sent.
    #[inline]
    pub(crate) fn close_send(&mut self) {
        self.send_closed = true;
    }

    /// Returns whether the layer above has made its last call for it.
    #[inline]
    pub(crate) fn is_work_done(&self) -> bool {
        self.work_done
    }

    /// The layer above has made its last call for it.
    #[inline]
    pub(crate) fn end_work(&mut self) {
        self.work_done = true;
    }

    /// Returns whether the layer above takes what is received on it.
    #[inline]
    pub(crate) fn is_wanted(&self) -> bool {
        !self.is_dead() && !self.work_done
    }

    /// Returns whether our HEADERS have been sent.
    #[inline]
    pub(crate) fn is_head_sent(&self) -> bool {
        self.head_sent
    }

    /// Our HEADERS have been sent.
    #[inline]
    pub(crate) fn set_head_sent(&mut self) {
        self.head_sent = true;
    }

    /// Counts body bytes against content-length. False: they are too many, or too few at the end.
    #[inline]
    pub(crate) fn takes_content(&mut self, bytes: u64, end: bool) -> bool {
        match &mut self.content_left {
            None => true,
            Some(left) if bytes > *left => false,
            Some(left) => {
                *left -= bytes;
                !end || *left == 0
            }
        }
    }

    /// Returns whether content-length promises more than has come.
    pub(crate) fn lacks_content(&self) -> bool {
        self.content_left.is_some_and(|left| left > 0)
    }

    /// Returns whether the peer compresses its messages with gzip.
    pub(crate) fn receives_gzip(&self) -> bool {
        self.encoding == Some(Encoding::Gzip)
    }

    /// Whether its messages stay in the backlog.
    #[inline]
    pub(crate) fn is_held(&self) -> bool {
        self.held || self.is_decompressing
    }

    /// Returns whether the layer above keeps its messages in the backlog.
    pub(crate) fn is_held_above(&self) -> bool {
        self.held
    }

    /// Lets the layer above keep its messages in the backlog, or not any more.
    pub(crate) fn set_held_above(&mut self, held: bool) {
        self.held = held;
    }

    /// Returns whether a message of it is decompressed, or waits for that.
    #[inline]
    pub(crate) fn is_decompressing(&self) -> bool {
        self.is_decompressing
    }

    /// Notes whether a message of it is decompressed, or waits for that.
    pub(crate) fn set_decompressing(&mut self, is_decompressing: bool) {
        self.is_decompressing = is_decompressing;
    }

    /// Whether the layer above bounds its receive window ([`super::Connection::limit_window`]), and
    /// so what it gathers.
    #[inline]
    pub(crate) fn is_bulk(&self) -> bool {
        self.window_limit != u32::MAX
    }

    /// Returns what its receive window may grow to at most.
    #[inline]
    pub(crate) fn window_limit(&self) -> u32 {
        self.window_limit
    }

    /// Bounds what its receive window may grow to.
    pub(crate) fn limit_window(&mut self, bytes: u32) {
        self.window_limit = bytes.min(u32::MAX - 1);
    }

    /// Counts bytes that were handed up.
    #[inline]
    pub(crate) fn add_unreleased(&mut self, bytes: usize) {
        self.unreleased += bytes as u32;
    }

    /// Returns the bytes that were handed up since this was last called.
    #[inline]
    pub(crate) fn take_unreleased(&mut self) -> u32 {
        std::mem::take(&mut self.unreleased)
    }

    /// Enters the list of streams that have something to send. Returns whether it did not stand
    /// there before.
    #[inline]
    pub(crate) fn enter_ready(&mut self) -> bool {
        !std::mem::replace(&mut self.in_ready, true)
    }

    /// Leaves that list. Returns whether it stood there.
    #[inline]
    pub(crate) fn leave_ready(&mut self) -> bool {
        std::mem::take(&mut self.in_ready)
    }

    /// Returns whether less than its share waits to be sent on it.
    pub(crate) fn is_writable(&self, share_bytes: usize) -> bool {
        !self.is_dead() && !self.owes_writable && self.outbound.bytes() < share_bytes
    }

    /// Owes a Writable event if its share waits to be sent on it.
    pub(crate) fn owe_writable(&mut self, share_bytes: usize) {
        self.owes_writable |= self.outbound.bytes() >= share_bytes;
    }

    /// Returns whether the Writable event is due that it owes; then it owes none.
    pub(crate) fn take_writable(&mut self, share_bytes: usize) -> bool {
        let is_due =
            self.owes_writable && !self.work_done && self.outbound.bytes() <= share_bytes / 2;
        if is_due {
            self.owes_writable = false;
            self.has_progress = true;
        }
        is_due
    }

    /// The peer has opened its window.
    pub(crate) fn set_progress(&mut self) {
        self.has_progress = true;
    }

    /// Returns whether the peer has taken something, or opened the window, since this was last
    /// called.
    pub(crate) fn take_progress(&mut self) -> bool {
        std::mem::take(&mut self.has_progress)
    }

    /// Compresses messages from here on, or not, if the peer reads it. The head has to name the
    /// encoding.
    pub(crate) fn set_compress(&mut self, compress: bool) {
        if self.peer_takes_gzip {
            self.compress = compress;
            self.head_names_gzip |= compress && !self.head_sent;
        }
    }

    /// Returns whether messages are to be compressed, whatever the head says.
    #[inline]
    pub(crate) fn is_compress_set(&self) -> bool {
        self.compress
    }

    /// Returns whether messages are compressed.
    #[inline]
    pub(crate) fn compresses(&self) -> bool {
        self.compress && self.head_names_gzip
    }

    /// Returns whether our head names gzip as the encoding.
    pub(crate) fn names_gzip(&self) -> bool {
        self.head_names_gzip
    }

    /// Returns the fields that the layer above has added to the response.
    #[inline]
    pub(crate) fn extra(&self) -> Option<&ExtraFields> {
        self.extra.as_deref()
    }

    /// Returns them to be added to.
    pub(crate) fn extra_mut(&mut self) -> &mut ExtraFields {
        self.extra.get_or_insert_default()
    }

    /// Takes them out.
    pub(crate) fn take_extra(&mut self) -> Option<Box<ExtraFields>> {
        self.extra.take()
    }

    /// Client: keeps the status of the call until its messages have been taken.
    pub(crate) fn set_late_status(&mut self, status: LateStatus) {
        self.late_status = status;
    }

    /// Client: returns whether the status of the call has come, and is an error.
    pub(crate) fn has_late_error(&self) -> bool {
        matches!(&self.late_status, LateStatus::Other(status) if !status.is_ok())
    }

    /// Client: takes the status of the call.
    pub(crate) fn take_late_status(&mut self) -> LateStatus {
        std::mem::take(&mut self.late_status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http2::pool::BufferPool;

    fn stream() -> Stream {
        let mut stream = Stream::new();
        stream.begin(1, BodyKind::Grpc, 10, 10);
        stream
    }

    #[test]
    fn a_slot_that_is_used_again_knows_nothing_of_the_stream_before() {
        let mut used = stream();
        used.set_token(7);
        used.kill(Dead::ByPeer);
        used.end_work();
        used.set_request_sent(true, true);
        used.set_compress(true);
        used.set_response(&HeadInfo::EMPTY, true);
        used.set_held_above(true);
        used.limit_window(5);
        used.add_unreleased(3);
        used.set_progress();
        used.extra_mut().add_to_head(b"a", b"b");
        used.set_late_status(LateStatus::Ok);
        used.claims.set_delivered();
        used.inbound.take_parts();
        used.free();
        assert_eq!(used.id(), 0);
        used.begin(1, BodyKind::Grpc, 10, 10);
        assert_eq!(format!("{used:?}"), format!("{:?}", stream()));
    }

    #[test]
    fn the_content_is_as_long_as_was_promised() {
        for (length, pieces, is_right) in [
            (None, &[5, 0][..], true),
            (Some(5), &[2, 3], true),
            (Some(5), &[2, 2], false),
            (Some(5), &[2, 4], false),
        ] {
            let mut stream = stream();
            let mut info = HeadInfo::EMPTY;
            info.content_length = length;
            stream.set_request(&info, false);
            assert_eq!(stream.lacks_content(), length.is_some());
            let end = pieces.len() - 1;
            let mut counted = pieces.iter().enumerate();
            let taken = counted.all(|(at, &bytes)| stream.takes_content(bytes, at == end));
            assert_eq!(taken, is_right, "{length:?}, {pieces:?}");
        }
    }

    #[test]
    fn messages_are_compressed_only_if_the_head_says_so_and_the_peer_reads_it() {
        for (takes_gzip, is_before_head) in
            [(true, true), (true, false), (false, true), (false, false)]
        {
            let mut stream = stream();
            let mut info = HeadInfo::EMPTY;
            info.takes_gzip = takes_gzip;
            stream.set_request(&info, false);
            if is_before_head {
                stream.set_compress(true);
            }
            stream.set_head_sent();
            stream.set_compress(true);
            assert_eq!(stream.compresses(), takes_gzip && is_before_head);
            stream.set_compress(false);
            assert!(!stream.compresses());
            assert_eq!(stream.names_gzip(), takes_gzip && is_before_head);
        }
    }

    #[test]
    fn a_writable_event_is_owed_until_half_of_the_share_has_gone() {
        let (mut stream, mut pool) = (stream(), BufferPool::default());
        for _ in 0..2 {
            assert!(stream.is_writable(100) && !stream.take_writable(100));
            let write = |out: &mut Vec<u8>| out.resize(out.len() + 100, 7);
            stream.outbound.write(&mut pool, write);
            stream.owe_writable(100);
            stream.outbound.take(49, &mut Vec::new(), &mut pool);
            assert!(!stream.is_writable(100) && !stream.take_writable(100));
            stream.outbound.take(1, &mut Vec::new(), &mut pool);
            assert!(stream.take_writable(100) && !stream.take_writable(100));
            assert!(stream.take_progress() && !stream.take_progress());
            stream.outbound.take(50, &mut Vec::new(), &mut pool);
        }
    }
}
