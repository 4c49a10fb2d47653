//! What waits on a stream to be sent.

use std::collections::VecDeque;
use std::ops::{Deref, Range};

use super::pool::BufferPool;
use bytes::Bytes;

/// How a stream ends once all that waits has been sent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum OutboundEnd {
    /// Not yet.
    #[default]
    Open,
    /// END_STREAM on the last DATA frame.
    Bare,
    /// The constant trailers of an OK status.
    OkTrailers,
    /// This header block, without the size updates that may have to stand before it.
    Trailers(Vec<u8>),
}

/// What keeps a body charged as long as a connection holds it: dropped when the last byte has been
/// sent, or never will be.
pub trait BodyCharge: std::fmt::Debug + Send {}

/// Bytes that others hold, too: all of a piece, or some of it.
#[derive(Debug)]
pub struct SharedBytes {
    /// Goes before the piece does: as long as it is there, nothing else can lie where the piece
    /// lies.
    charge: Option<Box<dyn BodyCharge>>,
    piece: Bytes,
    range: Range<usize>,
}

impl SharedBytes {
    /// Those in `range`, which must lie within the piece.
    pub fn part(piece: Bytes, range: Range<usize>) -> SharedBytes {
        assert!(range.start <= range.end && range.end <= piece.len());
        SharedBytes {
            piece,
            range,
            charge: None,
        }
    }
}

impl From<Bytes> for SharedBytes {
    fn from(piece: Bytes) -> SharedBytes {
        let range = 0..piece.len();
        SharedBytes::part(piece, range)
    }
}

impl Deref for SharedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.piece[self.range.clone()]
    }
}

#[derive(Debug)]
enum OutboundPiece {
    Owned { bytes: Vec<u8>, sent: usize },
    Shared { bytes: SharedBytes, sent: usize },
}

/// Body bytes in the order in which they go out.
#[derive(Debug, Default)]
pub(crate) struct Outbound {
    pieces: VecDeque<OutboundPiece>,
    bytes: usize,
    end: OutboundEnd,
}

/// A piece that is shorter is appended to rather than followed by another.
const APPEND_BELOW_BYTES: usize = 16 << 10;

/// Copying less costs less than a piece of its own.
const SHARE_FROM_BYTES: usize = 2 << 10;

/// Memory beyond what waits in a piece that is not worth giving back.
const SPARE_BYTES: usize = 64 << 10;

impl Outbound {
    /// Body bytes that wait.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns whether more may follow.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.end == OutboundEnd::Open
    }

    /// Returns whether END_STREAM goes with the last bytes.
    #[inline]
    pub(crate) fn ends_bare(&self) -> bool {
        self.end == OutboundEnd::Bare
    }

    /// Sets what follows behind what waits.
    pub(crate) fn end_with(&mut self, end: OutboundEnd) {
        self.end = end;
    }

    /// Takes what follows behind what waited.
    pub(crate) fn take_end(&mut self) -> OutboundEnd {
        std::mem::take(&mut self.end)
    }

    /// Whether nothing waits, not even the end.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0 && self.end == OutboundEnd::Open
    }

    /// Lets `write` append to what waits, and returns how many bytes it appended.
    pub(crate) fn write(
        &mut self,
        pool: &mut BufferPool,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> usize {
        let appendable = matches!(
            self.pieces.back(),
            Some(OutboundPiece::Owned { bytes, .. }) if bytes.len() < APPEND_BELOW_BYTES
        );
        if !appendable {
            self.push(OutboundPiece::Owned {
                bytes: pool.take(),
                sent: 0,
            });
        }
        let Some(OutboundPiece::Owned { bytes, .. }) = self.pieces.back_mut() else {
            unreachable!("an owned piece is last: it was there, or was pushed")
        };
        let before = bytes.len();
        write(bytes);
        let added = bytes.len() - before;
        if added > SPARE_BYTES && bytes.capacity() - bytes.len() > SPARE_BYTES {
            bytes.shrink_to_fit();
        }
        self.bytes += added;
        added
    }

    /// Appends all of a buffer but its first `sent` bytes, which have gone out. Returns how many it
    /// appended.
    pub(crate) fn own(&mut self, bytes: Vec<u8>, sent: usize) -> usize {
        let added = bytes.len() - sent;
        self.bytes += added;
        self.push(OutboundPiece::Owned { bytes, sent });
        added
    }

    /// Returns the bytes that have gone out and take memory all the same, as what follows them in
    /// their piece has not.
    #[inline]
    pub(crate) fn sent_bytes(&self) -> usize {
        match self.pieces.front() {
            Some(OutboundPiece::Owned { sent, .. }) => *sent,
            _ => 0,
        }
    }

    /// Appends a body. It is not copied before it fits, unless it is short. Returns the bytes that
    /// stay shared.
    pub(crate) fn share(&mut self, pool: &mut BufferPool, bytes: SharedBytes) -> usize {
        if bytes.len() < SHARE_FROM_BYTES {
            self.write(pool, |out| out.extend_from_slice(&bytes));
            return 0;
        }
        self.share_whole(bytes)
    }

    /// The same for a body that is held as long as the program runs: however short it is, it is not
    /// copied before it fits.
    pub(crate) fn share_whole(&mut self, bytes: SharedBytes) -> usize {
        let shared = bytes.len();
        self.bytes += shared;
        self.push(OutboundPiece::Shared { bytes, sent: 0 });
        shared
    }

    /// Most streams that wait have one piece: no memory is taken for more of them before they come.
    fn push(&mut self, piece: OutboundPiece) {
        if self.pieces.capacity() == 0 {
            self.pieces.reserve_exact(1);
        }
        self.pieces.push_back(piece);
    }

    /// Charges the body that was shared last, if it is the last piece, some of it waits, and nobody
    /// has yet.
    pub(crate) fn charge_last(&mut self, charge: impl FnOnce() -> Box<dyn BodyCharge>) {
        if let Some(OutboundPiece::Shared { bytes, .. }) = self.pieces.back_mut() {
            bytes.charge.get_or_insert_with(charge);
        }
    }

    /// Moves the first `count` bytes to `out`. Returns how many of them were shared.
    pub(crate) fn take(&mut self, count: usize, out: &mut Vec<u8>, pool: &mut BufferPool) -> usize {
        debug_assert!(count <= self.bytes);
        self.bytes -= count;
        let (mut left, mut shared) = (count, 0);
        while left > 0 {
            let piece = self
                .pieces
                .front_mut()
                .expect("the pieces have as many bytes as are counted");
            let (bytes, sent, is_shared) = match piece {
                OutboundPiece::Owned { bytes, sent } => (&bytes[..], sent, false),
                OutboundPiece::Shared { bytes, sent } => (&bytes[..], sent, true),
            };
            let part = left.min(bytes.len() - *sent);
            shared += if is_shared { part } else { 0 };
            out.extend_from_slice(&bytes[*sent..*sent + part]);
            *sent += part;
            left -= part;
            if *sent == bytes.len() {
                self.drop_front(pool);
            }
        }
        shared
    }

    /// Forgets everything, and keeps the memory where it is worth keeping. Returns how many shared
    /// bytes there were.
    pub(crate) fn clear(&mut self, pool: &mut BufferPool) -> usize {
        let left = |piece: &OutboundPiece| match piece {
            OutboundPiece::Owned { .. } => 0,
            OutboundPiece::Shared { bytes, sent } => bytes.len() - sent,
        };
        let shared = self.pieces.iter().map(left).sum();
        while !self.pieces.is_empty() {
            self.drop_front(pool);
        }
        self.bytes = 0;
        self.end = OutboundEnd::Open;
        shared
    }

    fn drop_front(&mut self, pool: &mut BufferPool) {
        if let Some(OutboundPiece::Owned { bytes, .. }) = self.pieces.pop_front() {
            pool.give(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_that_is_shared_whole_takes_no_memory_but_for_its_piece() {
        static TEXT: [u8; 600] = [7; 600];
        let mut pool = BufferPool::default();
        let mut outbound = Outbound::default();
        let allocated = allocation_counter::measure(|| {
            let shared = outbound.share_whole(Bytes::from_static(&TEXT).into());
            assert_eq!(shared, TEXT.len());
        });
        assert_eq!(allocated.bytes_current, size_of::<OutboundPiece>() as i64);
        for _ in 0..2 {
            let mut out = Vec::new();
            while outbound.bytes() > 0 {
                let count = outbound.bytes().min(250);
                assert_eq!(outbound.take(count, &mut out, &mut pool), count);
            }
            assert_eq!(out, TEXT);
            outbound.share_whole(Bytes::from_static(&TEXT).into());
        }
    }

    #[test]
    fn a_buffer_that_is_taken_whole_is_held_until_all_of_it_is_out() {
        let (mut outbound, mut pool) = (Outbound::default(), BufferPool::default());
        for _ in 0..2 {
            assert_eq!(outbound.own(b"xxabcdef".to_vec(), 2), 6);
            let mut out = Vec::new();
            for (left, sent) in [(5, 3), (4, 4), (1, 7), (0, 0)] {
                outbound.take(outbound.bytes() - left, &mut out, &mut pool);
                assert_eq!((outbound.bytes(), outbound.sent_bytes()), (left, sent));
            }
            assert_eq!(out, b"abcdef");
        }
        // A message that was made with much more memory than it needs keeps none of that.
        let written = outbound.write(&mut pool, |bytes| {
            bytes.reserve(4 * SPARE_BYTES);
            bytes.resize(2 * SPARE_BYTES, 7);
        });
        let Some(OutboundPiece::Owned { bytes, .. }) = outbound.pieces.back() else {
            panic!("it is not there");
        };
        assert!(written == bytes.len() && bytes.capacity() <= written + SPARE_BYTES);
    }

    #[test]
    fn pieces_come_out_in_order_at_any_cut() {
        for cut in 1..20 {
            let (mut outbound, mut pool) = (Outbound::default(), BufferPool::default());
            outbound.write(&mut pool, |bytes| bytes.extend_from_slice(b"abc"));
            let long: Bytes = (0..SHARE_FROM_BYTES + 2).map(|at| at as u8).collect();
            let short: Bytes = Bytes::from_static(b"_defghij_");
            outbound.share(&mut pool, SharedBytes::part(short.clone(), 1..4));
            outbound.share(&mut pool, SharedBytes::part(short.clone(), 4..8));
            outbound.share(&mut pool, SharedBytes::part(short, 9..9));
            outbound.share(
                &mut pool,
                SharedBytes::part(long.clone(), 1..long.len() - 1),
            );
            assert_eq!(
                outbound.write(&mut pool, |bytes| bytes.extend_from_slice(b"kl")),
                2
            );
            outbound.write(&mut pool, |bytes| bytes.extend_from_slice(b"m"));
            assert_eq!(outbound.bytes(), 13 + SHARE_FROM_BYTES);
            let mut out = Vec::new();
            while outbound.bytes() > 0 {
                outbound.take(cut.min(outbound.bytes()), &mut out, &mut pool);
            }
            assert_eq!(
                out,
                [b"abcdefghij", &long[1..long.len() - 1], b"klm"].concat()
            );
            assert!(outbound.is_empty());
        }
    }
}
