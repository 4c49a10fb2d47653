//! Bodies: gathered if they do not lie whole in the input, checked, and decompressed.

use std::borrow::Cow;
use std::ops::Range;

use super::send::RequestRefusal;
use super::{FramedServerConnection, InputStep, NS_PER_MS};
use crate::framed::checksum;
use crate::framed::codes;
use crate::framed::unpack::{FramedCompression, FramedUnpacking};
use crate::grpc::InflateError;
use crate::http2::guard::GlitchCharge;
use crate::http2::{CancelCause, Event, StreamKey};
use crate::limits;

/// What of a frame is still to come.
#[derive(Debug)]
pub(super) enum IncomingRequest {
    /// A header.
    Between,
    /// A body, of a call that began.
    Body(RequestBody),
    /// Nothing: the body is there, and decompressed in steps.
    Packed(Box<Packed>),
    /// A body that nobody wants.
    Discarded {
        left_bytes: usize,
        /// How much was left when it was last found to go on.
        progress_left_bytes: usize,
    },
}

impl IncomingRequest {
    /// Returns the bytes of memory that are held or expected.
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        match self {
            IncomingRequest::Between | IncomingRequest::Discarded { .. } => 0,
            IncomingRequest::Body(body) => match body.state {
                // What was set aside for the rest is untouched, and no memory yet.
                BodyState::Unproven | BodyState::AwaitsTurn => body.gathered.len(),
                BodyState::HasTurn => body.granted_bytes,
            },
            IncomingRequest::Packed(packed) => packed.bytes(),
        }
    }
}

/// A body that comes.
#[derive(Debug)]
pub(super) struct RequestBody {
    pub(super) stream: StreamKey,
    /// Of message and attachment.
    pub(super) bytes: usize,
    pub(super) attachment_bytes: usize,
    pub(super) compression: Option<FramedCompression>,
    /// The checksum, as it travels, and of how many bytes it is.
    pub(super) checksum: Option<([u8; 4], usize)>,
    pub(super) state: BodyState,
    gathered: Vec<u8>,
    /// Of what was gathered.
    crc: u32,
    /// How much was gathered when it was last found to go on.
    progress_bytes: usize,
    /// Up to where its turn lets it be gathered.
    granted_bytes: usize,
    /// How much was gathered when it was last found to go on within its turn, and when that lapses
    /// unless more comes, in nanoseconds.
    turn_progress_bytes: usize,
    lapses_at_ns: u64,
}

/// How far a body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyState {
    /// So little lies in the input of what is left that its sender has not shown that it goes on.
    Unproven,
    /// It is large, and there is no memory for it yet.
    AwaitsTurn,
    /// It is gathered.
    HasTurn,
}

impl RequestBody {
    pub(super) fn new(bytes: usize) -> RequestBody {
        RequestBody {
            stream: StreamKey { slot: 0, id: 0 },
            bytes,
            attachment_bytes: 0,
            compression: None,
            checksum: None,
            state: BodyState::Unproven,
            gathered: Vec::new(),
            crc: 0,
            progress_bytes: 0,
            granted_bytes: 0,
            turn_progress_bytes: 0,
            lapses_at_ns: 0,
        }
    }

    /// Returns whether it is a message as it is, and nothing more.
    pub(super) fn is_plain(&self) -> bool {
        self.attachment_bytes == 0 && self.compression.is_none() && self.checksum.is_none()
    }

    /// Returns the bytes that are still to be gathered.
    #[inline]
    fn left_bytes(&self) -> usize {
        self.bytes - self.gathered.len()
    }

    /// Returns what its next turn lets in: not all of a large one at once, so that those who send
    /// nothing keep little from others.
    fn step_bytes(&self) -> usize {
        self.left_bytes().min(limits::FRAMED_TURN_BYTES)
    }

    fn begin_turn(&mut self, bytes: usize, now_ns: u64) {
        self.state = BodyState::HasTurn;
        self.granted_bytes = self.gathered.len() + bytes;
        self.gathered.reserve_exact(self.left_bytes());
        self.go_on_with_turn(now_ns);
    }

    fn go_on_with_turn(&mut self, now_ns: u64) {
        self.turn_progress_bytes = self.gathered.len();
        self.lapses_at_ns = now_ns + limits::TURN_LAPSE_MS * NS_PER_MS;
    }

    /// Adds what came next to the checksum. `from` is where it stands in the body.
    fn sum(&mut self, from: usize, bytes: &[u8]) {
        if let Some((_, summed_bytes)) = self.checksum {
            let rest = summed_bytes.saturating_sub(from).min(bytes.len());
            self.crc = crc32c::crc32c_append(self.crc, &bytes[..rest]);
        }
    }

    fn is_sound(&self) -> bool {
        (self.checksum).is_none_or(|(value, _)| checksum::masked(self.crc) == value)
    }
}

/// A compressed message that waits for memory, or is decompressed.
#[derive(Debug)]
pub(super) struct Packed {
    stream: StreamKey,
    /// The message as it came, and its attachment.
    bytes: Vec<u8>,
    attachment_bytes: usize,
    unpacking: FramedUnpacking,
    is_granted: bool,
}

impl Packed {
    fn bytes(&self) -> usize {
        let granted = if self.is_granted {
            self.unpacking.memory_bytes()
        } else {
            0
        };
        self.bytes.capacity() + granted
    }

    fn message(&self) -> &[u8] {
        &self.bytes[..self.bytes.len() - self.attachment_bytes]
    }
}

impl FramedServerConnection {
    /// Goes on with a body.
    #[inline]
    pub(super) fn continue_body(
        &mut self,
        input: &[u8],
        consumed: &mut usize,
        out: &mut Vec<u8>,
    ) -> InputStep {
        let IncomingRequest::Body(body) = &mut self.incoming else {
            return InputStep::Again;
        };
        let is_wanted = self.streams.running_mut(body.stream).is_some();
        let left_bytes = body.left_bytes();
        if !is_wanted {
            self.discard(left_bytes);
            return InputStep::Again;
        }
        let rest = &input[*consumed..];
        match body.state {
            BodyState::Unproven if body.gathered.is_empty() && rest.len() >= body.bytes => {
                let range = *consumed..*consumed + body.bytes;
                *consumed = range.end;
                body.sum(0, &input[range.clone()]);
                self.body_in_input(range, input, out)
            }
            BodyState::Unproven if rest.len() < left_bytes.min(limits::PROBE_BYTES as usize) => {
                let come_bytes = body.gathered.len() + rest.len();
                let may_be_slow = body.bytes > limits::PROBE_BYTES as usize;
                self.expect_progress(come_bytes, may_be_slow)
            }
            BodyState::Unproven => {
                body.state = BodyState::AwaitsTurn;
                InputStep::Again
            }
            BodyState::AwaitsTurn => self.grant_turn(),
            BodyState::HasTurn => self.gather(rest, consumed, out),
        }
    }

    /// Gathers what came of a large body.
    fn gather(&mut self, rest: &[u8], consumed: &mut usize, out: &mut Vec<u8>) -> InputStep {
        let IncomingRequest::Body(body) = &mut self.incoming else {
            return InputStep::Again;
        };
        let before = body.gathered.len();
        let part = &rest[..rest.len().min(body.granted_bytes - before)];
        *consumed += part.len();
        body.sum(before, part);
        body.gathered.extend_from_slice(part);
        if body.gathered.len() == body.bytes {
            return self.body_gathered(out);
        }
        let in_turn = body.gathered.len() - body.turn_progress_bytes;
        if in_turn >= limits::TURN_PROGRESS_BYTES as usize {
            body.go_on_with_turn(self.now_ns);
        }
        let come_bytes = body.gathered.len();
        let is_over = come_bytes == body.granted_bytes;
        if is_over {
            body.state = BodyState::Unproven;
        }
        let step = self.expect_progress(come_bytes, true);
        if is_over { InputStep::Again } else { step }
    }

    /// So much of a body has come. Its sender has time for the rest, and anew with each part of it
    /// if it may be slow.
    fn expect_progress(&mut self, come_bytes: usize, may_be_slow: bool) -> InputStep {
        let IncomingRequest::Body(body) = &mut self.incoming else {
            return InputStep::Again;
        };
        let progress = come_bytes - body.progress_bytes;
        let goes_on = may_be_slow && is_progress(progress, body.bytes - come_bytes);
        if goes_on || self.rest_due_ns.is_none() {
            body.progress_bytes = come_bytes;
            self.expect_rest(limits::NO_PROGRESS_TIMEOUT_MS);
        }
        InputStep::Wait
    }

    /// Lets a large body come if there is memory for it.
    #[cold]
    fn grant_turn(&mut self) -> InputStep {
        self.rest_due_ns = None;
        let IncomingRequest::Body(body) = &mut self.incoming else {
            return InputStep::Again;
        };
        let bytes = body.step_bytes();
        if self.are_windows_shut || bytes > self.turn_allowance {
            return InputStep::Wait;
        }
        self.turn_allowance -= bytes;
        body.begin_turn(bytes, self.now_ns);
        InputStep::Again
    }

    /// Returns when the turn of a body lapses that has one, in nanoseconds.
    pub(super) fn lapses_at_ns(&self) -> Option<u64> {
        match &self.incoming {
            IncomingRequest::Body(body) if body.state == BodyState::HasTurn => {
                Some(body.lapses_at_ns)
            }
            _ => None,
        }
    }

    /// Ends the turn of a body that stands still, so that others get theirs. It has another one
    /// when it goes on.
    pub(super) fn lapse_turn(&mut self) {
        let is_over = (self.lapses_at_ns()).is_some_and(|at_ns| at_ns <= self.now_ns);
        if let IncomingRequest::Body(body) = &mut self.incoming
            && is_over
        {
            body.state = BodyState::Unproven;
        }
    }

    /// A body lies whole in the input.
    #[inline]
    fn body_in_input(&mut self, range: Range<usize>, input: &[u8], out: &mut Vec<u8>) -> InputStep {
        let incoming = std::mem::replace(&mut self.incoming, IncomingRequest::Between);
        self.end_frame();
        let IncomingRequest::Body(body) = incoming else {
            return InputStep::Again;
        };
        if !body.is_sound() {
            return self.stop_damaged(body.stream, out);
        }
        if let Some(compression) = body.compression {
            return self.unpack(&body, compression, Cow::Borrowed(&input[range]), out);
        }
        let end = range.end - body.attachment_bytes;
        self.keep_attachment(body.stream, &input[end..range.end]);
        self.message.set_range(range.start..end);
        self.deliver(body.stream)
    }

    /// A body was gathered.
    #[cold]
    fn body_gathered(&mut self, out: &mut Vec<u8>) -> InputStep {
        let incoming = std::mem::replace(&mut self.incoming, IncomingRequest::Between);
        self.end_frame();
        let IncomingRequest::Body(mut body) = incoming else {
            return InputStep::Again;
        };
        if !body.is_sound() {
            return self.stop_damaged(body.stream, out);
        }
        let mut bytes = std::mem::take(&mut body.gathered);
        if let Some(compression) = body.compression {
            return self.unpack(&body, compression, Cow::Owned(bytes), out);
        }
        let end = bytes.len() - body.attachment_bytes;
        self.keep_attachment(body.stream, &bytes[end..]);
        bytes.truncate(end);
        self.message.set(bytes);
        self.deliver(body.stream)
    }

    #[inline]
    fn deliver(&mut self, stream: StreamKey) -> InputStep {
        if let Some(found) = self.streams.running_mut(stream) {
            found.is_receiving = false;
        }
        InputStep::Event(Event::Message { stream, last: true })
    }

    /// Decompresses a message if it is small, and keeps it else.
    #[cold]
    fn unpack(
        &mut self,
        body: &RequestBody,
        compression: FramedCompression,
        bytes: Cow<'_, [u8]>,
        out: &mut Vec<u8>,
    ) -> InputStep {
        let (packed, attachment) = bytes.split_at(bytes.len() - body.attachment_bytes);
        let mut unpacking = match FramedUnpacking::new(compression, packed) {
            Ok(unpacking) => unpacking,
            Err(_) => return self.stop_packed(body.stream, InflateError::Damaged, out),
        };
        let announced = unpacking.announced_bytes();
        let max_bytes = self.config.max_message_bytes;
        if announced > max_bytes {
            let error = InflateError::TooLarge { max_bytes };
            return self.stop_packed(body.stream, error, out);
        }
        // As with messages over HTTP/2: before it is made.
        let excess = announced.saturating_sub(packed.len() * limits::USUAL_INFLATE_RATIO);
        let charge = GlitchCharge::Inflated(u32::try_from(excess).unwrap_or(u32::MAX));
        if let Err(error) = self.guard.charge(charge, self.now_ns) {
            self.fail(error.code, error.why);
            return InputStep::Again;
        }
        match unpacking.all(packed, limits::UNPACKED_AT_ONCE_BYTES) {
            Ok(Some((message, work_bytes))) => {
                self.keep_attachment(body.stream, attachment);
                self.message.set(message);
                self.message.was_compressed = true;
                self.message.unpacked_bytes = work_bytes;
                self.deliver(body.stream)
            }
            Ok(None) => {
                self.incoming = IncomingRequest::Packed(Box::new(Packed {
                    stream: body.stream,
                    bytes: bytes.into_owned(),
                    attachment_bytes: body.attachment_bytes,
                    unpacking,
                    is_granted: false,
                }));
                InputStep::Again
            }
            Err(_) => self.stop_packed(body.stream, InflateError::Damaged, out),
        }
    }

    /// Goes on with a message that is decompressed in steps.
    #[cold]
    pub(super) fn continue_unpacking(&mut self, out: &mut Vec<u8>) -> InputStep {
        let IncomingRequest::Packed(packed) = &mut self.incoming else {
            return InputStep::Again;
        };
        let stream = packed.stream;
        if self.streams.running_mut(stream).is_none() {
            self.incoming = IncomingRequest::Between;
            return InputStep::Again;
        }
        if !packed.is_granted {
            let bytes = packed.unpacking.memory_bytes();
            if self.are_windows_shut || bytes > self.turn_allowance {
                return InputStep::Wait;
            }
            self.turn_allowance -= bytes;
            packed.is_granted = true;
        }
        if self.unpack_allowance == 0 {
            return InputStep::Wait;
        }
        let step_bytes = limits::UNPACK_STEP_BYTES.min(self.unpack_allowance);
        self.unpack_allowance -= step_bytes;
        let Packed {
            bytes,
            attachment_bytes,
            unpacking,
            ..
        } = &mut **packed;
        let message = &bytes[..bytes.len() - *attachment_bytes];
        match unpacking.step(message, step_bytes) {
            Ok(false) => InputStep::Again,
            Ok(true) => self.end_unpacking(),
            Err(_) => {
                self.incoming = IncomingRequest::Between;
                self.stop_packed(stream, InflateError::Damaged, out)
            }
        }
    }

    fn end_unpacking(&mut self) -> InputStep {
        let incoming = std::mem::replace(&mut self.incoming, IncomingRequest::Between);
        let IncomingRequest::Packed(packed) = incoming else {
            return InputStep::Again;
        };
        let stream = packed.stream;
        self.keep_attachment(stream, &packed.bytes[packed.message().len()..]);
        self.message.set(packed.unpacking.into_bytes());
        self.message.was_compressed = true;
        self.deliver(stream)
    }

    #[cold]
    fn stop_damaged(&mut self, stream: StreamKey, out: &mut Vec<u8>) -> InputStep {
        let refusal = RequestRefusal::new(
            codes::EREQUEST,
            "the message is not what its checksum says: it was damaged on its way",
        );
        self.stop(stream, CancelCause::DamagedRequest, &refusal, out)
    }

    #[cold]
    fn stop_packed(
        &mut self,
        stream: StreamKey,
        error: InflateError,
        out: &mut Vec<u8>,
    ) -> InputStep {
        let (cause, refusal) = match error {
            InflateError::Damaged => {
                let status = codes::srpc::REQUEST_DECOMPRESS_ERROR;
                let text = "the message cannot be decompressed by its compress_type";
                let refusal = RequestRefusal::of_srpc(codes::EREQUEST, status, text);
                (CancelCause::DamagedRequest, refusal)
            }
            InflateError::TooLarge { .. } | InflateError::TooDense => {
                let text = error.status().message().to_owned();
                (
                    CancelCause::MessageTooLarge,
                    RequestRefusal::new(codes::ELIMIT, text),
                )
            }
        };
        self.stop(stream, cause, &refusal, out)
    }

    /// Ends a call because of what the peer sent: the peer is told, and the layer above.
    fn stop(
        &mut self,
        stream: StreamKey,
        cause: CancelCause,
        refusal: &RequestRefusal,
        out: &mut Vec<u8>,
    ) -> InputStep {
        if let Some(found) = self.streams.running_mut(stream) {
            let reply = found.reply;
            found.is_dead = true;
            self.send_refusal(Some(stream), reply, refusal, out);
        }
        // What is only more than a limit costs nothing, as over HTTP/2.
        if cause == CancelCause::DamagedRequest
            && let Err(error) = self.guard.charge(GlitchCharge::Reset, self.now_ns)
        {
            self.fail(error.code, error.why);
        }
        InputStep::Event(Event::Cancelled { stream, cause })
    }

    // --- turns

    /// Bounds what a message may bring whose turn comes from now on, in bytes.
    #[inline]
    pub fn set_turn_allowance(&mut self, bytes: usize) {
        self.turn_allowance = bytes;
    }

    /// Returns whether a large message waits for its turn, or for memory to be decompressed.
    #[inline]
    pub fn waits_for_turn(&self) -> bool {
        match &self.incoming {
            IncomingRequest::Body(body) => body.state == BodyState::AwaitsTurn,
            IncomingRequest::Packed(packed) => !packed.is_granted,
            IncomingRequest::Between | IncomingRequest::Discarded { .. } => false,
        }
    }

    /// Returns the memory that it lacks, in bytes; 0 if none waits.
    pub fn next_turn_bytes(&self) -> usize {
        match &self.incoming {
            _ if !self.waits_for_turn() => 0,
            IncomingRequest::Body(body) => body.step_bytes(),
            IncomingRequest::Packed(packed) => packed.unpacking.memory_bytes(),
            IncomingRequest::Between | IncomingRequest::Discarded { .. } => 0,
        }
    }

    /// Returns whether it is the turn of a message, or one is decompressed in steps.
    #[inline]
    pub fn has_turn(&self) -> bool {
        match &self.incoming {
            IncomingRequest::Body(body) => body.state == BodyState::HasTurn,
            IncomingRequest::Packed(packed) => packed.is_granted,
            IncomingRequest::Between | IncomingRequest::Discarded { .. } => false,
        }
    }

    /// Returns whether the message that waits is there, to be decompressed.
    pub fn is_next_compressed(&self) -> bool {
        matches!(&self.incoming, IncomingRequest::Packed(packed) if !packed.is_granted)
    }

    /// Gives the message that waits its turn, whatever the layer above allows. One of which some
    /// was gathered has it to its end: otherwise many that have begun could keep each other from
    /// theirs.
    pub fn force_turn(&mut self) {
        match &mut self.incoming {
            IncomingRequest::Body(body) if body.state == BodyState::AwaitsTurn => {
                let bytes = match body.gathered.len() >= limits::FRAMED_TURN_BYTES {
                    true => body.left_bytes(),
                    false => body.step_bytes(),
                };
                body.begin_turn(bytes, self.now_ns);
                self.has_forced_turn = true;
            }
            IncomingRequest::Packed(packed) => packed.is_granted = true,
            _ => {}
        }
    }

    /// Returns the bytes that a message whose turn it is still lacks.
    #[inline]
    pub fn expected_bytes(&self) -> usize {
        match &self.incoming {
            IncomingRequest::Body(body) if body.state == BodyState::HasTurn => {
                body.granted_bytes - body.gathered.len()
            }
            _ => 0,
        }
    }

    /// Bounds what may be made of large compressed messages from now on, in bytes.
    #[inline]
    pub fn set_unpack_allowance(&mut self, bytes: usize) {
        self.unpack_allowance = bytes;
    }

    /// Returns what is left of it, in bytes.
    #[inline]
    pub fn unpack_allowance(&self) -> usize {
        self.unpack_allowance
    }

    /// Returns whether a compressed message has its memory, and goes on when it is allowed.
    #[inline]
    pub fn waits_to_unpack(&self) -> bool {
        matches!(&self.incoming, IncomingRequest::Packed(packed) if packed.is_granted)
    }

    /// Lets no further large message come until memory is looked for again, or lets it come.
    #[inline]
    pub fn set_windows_shut(&mut self, shut: bool) {
        self.are_windows_shut = shut;
    }

    /// Returns whether [`FramedServerConnection::set_windows_shut`] has shut them.
    pub fn windows_are_shut(&self) -> bool {
        self.are_windows_shut
    }
}

/// Returns whether so many bytes, of a body that lacks others, show that it goes on.
pub(super) fn is_progress(bytes: usize, left_bytes: usize) -> bool {
    bytes >= left_bytes.div_ceil(limits::PROGRESS_SHARE)
}
