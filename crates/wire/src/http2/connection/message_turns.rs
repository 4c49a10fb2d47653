//! Whose turn it is among large messages, and among those that are decompressed.

use super::Connection;
use crate::http2::stream_key::StreamKey;
use crate::http2::turns::WindowAfter;

impl Connection {
    /// Bounds what messages that get their turn from now on may lack together, in bytes: what the
    /// layer above can still account for. Unbounded at first. Turns are given by the next
    /// [`Connection::poll_event`] that returns `None`.
    #[inline]
    pub fn set_turn_allowance(&mut self, bytes: usize) {
        self.turns.set_allowance(bytes);
    }

    /// Whether messages wait for their turn, or for memory to be decompressed, and none has it
    /// since the layer above allows too little.
    #[inline]
    pub fn waits_for_turn(&self) -> bool {
        !self.has_turn()
            && (self.unpacks.awaits_memory()
                || (self.turns).first_fits(&self.streams, self.unfinished.bytes()))
    }

    /// Returns what the message lacks that gets the next turn, in bytes; 0 if none waits.
    pub fn next_turn_bytes(&self) -> usize {
        match self.unpacks.awaits_memory() {
            true => self.unpacks.next_bytes(),
            false => self.turns.next_bytes(&self.streams),
        }
    }

    /// Whether it is the turn of a message, or one is decompressed in steps.
    #[inline]
    pub fn has_turn(&self) -> bool {
        self.turns.has_active() || self.unpacks.is_granted()
    }

    /// Returns whether the sender of the message that gets the next turn has shown that it goes on:
    /// it has brought what [`Connection::probe_turn`] let through. One to be decompressed is there.
    pub fn is_next_proven(&self) -> bool {
        self.unpacks.awaits_memory() || self.turns.is_first_proven(&self.streams)
    }

    /// Returns whether the message that gets the next turn is there, and waits to be decompressed.
    pub fn is_next_compressed(&self) -> bool {
        self.unpacks.awaits_memory()
    }

    /// Returns whether a message waits for its turn, or for memory to be decompressed, whose sender
    /// has shown that it goes on.
    pub fn has_proven_waiting(&self) -> bool {
        !self.has_turn() && self.is_next_proven()
    }

    /// Returns the bytes that messages whose turn it is, or that are probed, are expected to bring.
    #[inline]
    pub fn expected_bytes(&self) -> usize {
        self.turns.active_bytes()
    }

    /// Lets the sender of the first message that waits for its turn show that it goes on, whatever
    /// the layer above allows: opens its window for
    /// [`PROBE_BYTES`](crate::limits::PROBE_BYTES). One that brings them is the first to get its
    /// turn; one that does not makes way for the next.
    pub fn probe_turn(&mut self, out: &mut Vec<u8>) {
        if !self.waits_for_turn() || self.is_next_proven() {
            return;
        }
        let held_bytes = self.unfinished.bytes();
        let now_ns = self.now_ns;
        if let Some(key) = self.turns.probe_next(&mut self.streams, held_bytes, now_ns) {
            let stream = &mut self.streams[key.slot];
            self.windows.open_for_turn(stream, out);
        }
    }

    /// Gives the first message that waits its turn, whatever the layer above allows, if none has it
    /// and the connection's own bound lets it.
    pub fn force_turn(&mut self, out: &mut Vec<u8>) {
        if !self.waits_for_turn() {
            return;
        }
        if self.unpacks.awaits_memory() {
            return self.unpacks.grant();
        }
        let unfinished_bytes = self.unfinished.bytes();
        let next = self.turns.force_next(&mut self.streams, unfinished_bytes);
        if let Some(key) = next {
            self.begin_turn(key, out);
        }
    }

    /// The bytes of an unfinished message that have just come are out of the window. Gives them
    /// back if the message needs no turn or has it, and else lets it wait for its turn.
    pub(super) fn go_on_with_message(&mut self, slot: u32, taken: u32, out: &mut Vec<u8>) {
        let stream = &mut self.streams[slot];
        let Some(missing) = stream.inbound.missing_gathered() else {
            return self.windows.give_back(stream, taken, out);
        };
        match self.turns.count(slot, stream, taken, missing) {
            WindowAfter::GivenBack => self.windows.give_back(stream, taken, out),
            WindowAfter::Opened => {
                stream.receive_window.give(taken);
                self.windows.open_for_turn(stream, out);
            }
            WindowAfter::Shut => stream.receive_window.give(taken),
        }
    }

    /// Gives the messages that wait their turns, as far as the way and the memory are free.
    #[inline]
    pub(super) fn grant_turns(&mut self, out: &mut Vec<u8>) {
        if self.unpacks.awaits_memory() {
            self.grant_unpacking();
        }
        if self.turns.has_waiting() {
            self.grant_some_turns(out);
        }
    }

    fn grant_some_turns(&mut self, out: &mut Vec<u8>) {
        // The list becomes shorter each time.
        loop {
            let path_bytes = match self.windows.are_shut() {
                true => 0,
                false => self.windows.connection_bytes(),
            };
            let unfinished_bytes = self.unfinished.bytes();
            let turns = &mut self.turns;
            let Some(key) = turns.take_next(&mut self.streams, path_bytes, unfinished_bytes) else {
                return;
            };
            self.begin_turn(key, out);
        }
    }

    fn begin_turn(&mut self, key: StreamKey, out: &mut Vec<u8>) {
        let stream = &mut self.streams[key.slot];
        self.turns.begin(key, stream, self.now_ns);
        self.windows.measure(out);
        self.windows.open_for_turn(stream, out);
    }

    /// Lets the next compressed message be unpacked, if there is memory for what it becomes.
    #[cold]
    fn grant_unpacking(&mut self) {
        let bytes = self.unpacks.next_bytes();
        if !self.windows.are_shut() && self.turns.take_allowance(bytes) {
            self.unpacks.grant();
        }
    }

    /// The message of a stream is whole, or comes no more.
    #[inline]
    pub(super) fn end_turn(&mut self, slot: u32) {
        self.turns.end(&mut self.streams[slot]);
    }

    /// Ends the turns of messages that stand still, so that others get theirs.
    #[cold]
    pub(super) fn lapse_turns(&mut self, out: &mut Vec<u8>) {
        self.turns.lapse(&mut self.streams, self.now_ns);
        self.grant_turns(out);
    }
}
