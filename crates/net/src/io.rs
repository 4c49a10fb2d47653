//! One connection's bytes, as a handler sees them.

use crate::limits;

/// Bytes that came from the peer and were not consumed yet.
///
/// The bytes lie in a buffer lent by the driver; an idle connection has none.
#[derive(Default)]
pub struct Input {
    /// Always initialised to its full length, so that reading into it needs no growth.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Input {
    /// All unconsumed bytes, in the order received.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Drops the first `count` bytes.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn consume(&mut self, count: usize) {
        assert!(count <= self.len(), "consumed more than there is");
        self.start += count;
    }

    /// How many bytes are unconsumed.
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    /// Whether all is consumed.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Appends bytes as if they had been received. For tests of handlers without a driver.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.truncate(self.end);
        self.buffer.extend_from_slice(bytes);
        self.end = self.buffer.len();
    }

    /// All unconsumed bytes, to be changed in place.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[self.start..self.end]
    }

    /// Makes room for so many more bytes, with a larger buffer of its own if need be.
    pub(crate) fn reserve(&mut self, count: usize) {
        if self.buffer.len() - self.end >= count {
            return;
        }
        self.compact();
        let needed = self.end + count;
        if self.buffer.len() < needed {
            self.buffer.resize(needed, 0);
        }
    }

    /// Whether a buffer is lent to this connection.
    pub(crate) fn holds_buffer(&self) -> bool {
        !self.buffer.is_empty()
    }

    /// How much the lent buffer can hold.
    pub(crate) fn capacity(&self) -> usize {
        self.buffer.len()
    }

    /// Moves the unconsumed bytes into `buffer` and answers with the one held before.
    pub(crate) fn replace_buffer(&mut self, mut buffer: Vec<u8>) -> Vec<u8> {
        let length = self.len();
        buffer[..length].copy_from_slice(self.bytes());
        self.start = 0;
        self.end = length;
        std::mem::replace(&mut self.buffer, buffer)
    }

    /// Moves the unconsumed bytes to the front, so that the rest of the buffer is room.
    pub(crate) fn compact(&mut self) {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
    }

    /// Where the next bytes go.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        &mut self.buffer[self.end..]
    }

    /// Puts bytes behind those that are there. Room was made before.
    pub(crate) fn append(&mut self, bytes: &[u8]) {
        self.room()[..bytes.len()].copy_from_slice(bytes);
        self.filled(bytes.len());
    }

    /// `count` bytes were put into [`room`](Self::room).
    pub(crate) fn filled(&mut self, count: usize) {
        debug_assert!(self.end + count <= self.buffer.len());
        self.end += count;
    }
}

/// One connection's input and output, and what the handler asks for.
///
/// A request takes effect when the handler's call, or the tick, ends.
#[derive(Default)]
pub struct Io {
    /// What the peer sent.
    pub input: Input,
    /// What goes to the peer: append only. Its length is what waits, also from earlier ticks.
    pub output: Vec<u8>,
    /// So much of the output's front is written already. Removed before a handler looks.
    written: usize,
    end_of_input: bool,
    unfinished: bool,
    /// What the handler's turn has cost, in [`limits::TICK_INPUT_BYTES`].
    turn_cost_bytes: usize,
    reading_paused: bool,
    closing: Closing,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Closing {
    #[default]
    No,
    WhenWritten,
    Now,
}

impl Io {
    /// A connection without a driver, for tests of handlers.
    pub fn new() -> Io {
        Io::default()
    }

    /// Close the connection when all output is given to the kernel. Nothing is read any more.
    pub fn close_when_written(&mut self) {
        if self.closing == Closing::No {
            self.closing = Closing::WhenWritten;
        }
    }

    /// Close the connection at the end of this call or tick; the output is thrown away.
    pub fn close_now(&mut self) {
        self.closing = Closing::Now;
    }

    /// Whether [`close_when_written`](Self::close_when_written) or
    /// [`close_now`](Self::close_now) was called.
    pub fn is_closing(&self) -> bool {
        self.closing != Closing::No
    }

    /// Do not read from the peer until this is called with `false`: the kernel's buffers fill and
    /// the peer has to wait.
    pub fn pause_reading(&mut self, paused: bool) {
        self.reading_paused = paused;
    }

    /// Whether the handler paused reading.
    pub fn is_reading_paused(&self) -> bool {
        self.reading_paused
    }

    /// The handler left input that it could go on with, because the connection had its turn:
    /// `received` is called again in the next tick, after the other ready connections, without
    /// reading more. The request is cleared before each `received`.
    pub fn set_unfinished(&mut self, unfinished: bool) {
        self.unfinished = unfinished;
    }

    /// Whether the connection waits for another turn.
    pub fn is_unfinished(&self) -> bool {
        self.unfinished
    }

    /// Reports that this turn has taken as long as the handling of so many input bytes usually
    /// does: counted in [`limits::TICK_INPUT_BYTES`] if it is more than what was consumed. For
    /// input that is small and makes much work.
    pub fn set_turn_cost(&mut self, bytes: usize) {
        self.turn_cost_bytes = bytes;
    }

    /// Returns what [`Io::set_turn_cost`] has reported since the driver last asked, and forgets it.
    pub fn take_turn_cost(&mut self) -> usize {
        std::mem::take(&mut self.turn_cost_bytes)
    }

    /// The peer ended its side: after the bytes in `input` nothing follows.
    pub fn end_of_input(&self) -> bool {
        self.end_of_input
    }

    /// Whether so much output waits that nothing more is read from this peer. A handler with
    /// input left should stop here too, with [`set_unfinished`](Self::set_unfinished).
    pub fn output_is_full(&self) -> bool {
        self.unwritten() >= limits::OUTPUT_HIGH_WATER_BYTES
    }

    /// The driver's, or a test's, word that the peer ended its side.
    pub fn set_end_of_input(&mut self) {
        self.end_of_input = true;
    }

    /// How much output waits.
    pub(crate) fn unwritten(&self) -> usize {
        self.output.len() - self.written
    }

    /// The output that waits.
    pub(crate) fn unwritten_bytes(&self) -> &[u8] {
        &self.output[self.written..]
    }

    /// The first `count` waiting bytes are on their way.
    pub(crate) fn advance_written(&mut self, count: usize) {
        debug_assert!(count <= self.unwritten());
        self.written += count;
        if self.written == self.output.len() {
            self.output.clear();
            self.written = 0;
        }
    }

    /// Drops what is written, so that a handler sees exactly what waits.
    pub(crate) fn compact_output(&mut self) {
        if self.written > 0 {
            self.output.drain(..self.written);
            self.written = 0;
        }
    }

    /// Throws the waiting output away.
    pub(crate) fn clear_output(&mut self) {
        self.output.clear();
        self.written = 0;
    }

    pub(crate) fn closing(&self) -> Closing {
        self.closing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_keeps_its_bytes_wherever_they_move() {
        let mut input = Input::default();
        assert!(input.is_empty() && !input.holds_buffer());
        for _ in 0..2 {
            input.reserve(10);
            assert!(input.holds_buffer() && input.room().len() >= 10);
            input.append(b"0123456789");
            input.consume(4);
            assert_eq!((input.bytes(), input.len()), (&b"456789"[..], 6));
            // What was consumed makes room first.
            let room_bytes = input.capacity() - input.len();
            input.reserve(room_bytes);
            assert_eq!(input.room().len(), room_bytes);
            assert_eq!(input.capacity(), room_bytes + 6);
            input.reserve(room_bytes + 1);
            assert_eq!(input.capacity(), room_bytes + 7);
            assert_eq!(input.bytes(), b"456789");
            input.bytes_mut()[0] = b'x';
            input.push(b"more");
            assert_eq!(input.bytes(), b"x56789more");
            input.consume(1);
            input.compact();
            assert_eq!(input.bytes(), b"56789more");
            let before = input.replace_buffer(vec![0; 20]);
            assert!(!before.is_empty());
            assert_eq!(input.bytes(), b"56789more");
            assert_eq!(input.room().len(), 11);
            input.consume(9);
            assert!(input.is_empty());
            assert_eq!(input.replace_buffer(Vec::new()).len(), 20);
            assert!(!input.holds_buffer());
        }
    }

    #[test]
    fn output_that_is_written_is_not_seen_again() {
        let mut io = Io::new();
        for _ in 0..2 {
            io.output.extend_from_slice(b"0123456789");
            io.advance_written(4);
            assert_eq!((io.unwritten(), io.unwritten_bytes()), (6, &b"456789"[..]));
            assert_eq!(io.output.len(), 10, "it is moved when a handler looks");
            io.compact_output();
            assert_eq!((io.output.as_slice(), io.unwritten()), (&b"456789"[..], 6));
            io.advance_written(0);
            assert_eq!(io.unwritten(), 6);
            io.advance_written(6);
            assert!(io.output.is_empty() && io.unwritten_bytes().is_empty());
            io.output.push(1);
            io.advance_written(1);
            io.output.push(2);
            assert_eq!(io.unwritten_bytes(), [2]);
            io.clear_output();
            assert_eq!(io.unwritten(), 0);
        }
    }

    #[test]
    fn a_connection_that_is_to_close_at_once_does_not_wait_for_its_output() {
        let mut io = Io::new();
        assert!(!io.is_closing());
        io.close_when_written();
        io.close_when_written();
        assert_eq!(
            (io.closing(), io.is_closing()),
            (Closing::WhenWritten, true)
        );
        io.close_now();
        io.close_when_written();
        assert_eq!((io.closing(), io.is_closing()), (Closing::Now, true));
    }
}
