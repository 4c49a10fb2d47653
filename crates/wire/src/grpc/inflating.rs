//! What was deflated (RFC 1951), made again in pieces whose work is bounded.

use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::{DecompressorOxide, decompress, inflate_flags};

use crate::limits;

/// Each block is told, and all output lies in one buffer.
const FLAGS: u32 = inflate_flags::TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF
    | inflate_flags::TINFL_FLAG_STOP_ON_BLOCK_BOUNDARY;

/// A deflate stream that is decompressed. All of it is there from the beginning.
pub(super) struct Inflating {
    state: Box<DecompressorOxide>,
    used_bytes: usize,
    made_bytes: usize,
    blocks: usize,
}

/// Why [`Inflating::advance`] stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InflatingPause {
    /// The stream is at its end.
    Ended,
    /// The output has no more room.
    OutputFull,
    /// As much was done as was allowed.
    WorkDone,
}

/// What was deflated is damaged, or ends too early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Damaged;

impl std::fmt::Debug for Inflating {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inflating")
            .field("used_bytes", &self.used_bytes)
            .field("made_bytes", &self.made_bytes)
            .field("blocks", &self.blocks)
            .finish_non_exhaustive()
    }
}

impl Inflating {
    /// The memory that it takes.
    pub(super) const MEMORY_BYTES: usize = size_of::<DecompressorOxide>();

    /// Returns one that is at the beginning of a stream.
    pub(super) fn new() -> Inflating {
        Inflating {
            state: Box::default(),
            used_bytes: 0,
            made_bytes: 0,
            blocks: 0,
        }
    }

    /// Begins with another stream.
    pub(super) fn begin(&mut self) {
        self.state.init();
        (self.used_bytes, self.made_bytes, self.blocks) = (0, 0, 0);
    }

    /// Returns how much of the input was used, in bytes.
    pub(super) fn used_bytes(&self) -> usize {
        self.used_bytes
    }

    /// Returns how much was made, in bytes.
    pub(super) fn made_bytes(&self) -> usize {
        self.made_bytes
    }

    /// Returns the work that was done: see [`limits::DEFLATE_BLOCK_WORK_BYTES`].
    pub(super) fn work_bytes(&self) -> usize {
        self.made_bytes + self.blocks * limits::DEFLATE_BLOCK_WORK_BYTES
    }

    /// Goes on until `out` is full or as much was done as is allowed, up to the end of a block.
    /// `deflated` is the same each time, and `out` holds all that was made, and room behind it.
    pub(super) fn advance(
        &mut self,
        deflated: &[u8],
        out: &mut [u8],
        most_work_bytes: usize,
    ) -> Result<InflatingPause, Damaged> {
        let most = self.work_bytes().saturating_add(most_work_bytes);
        while self.work_bytes() < most {
            let input = &deflated[self.used_bytes..];
            let (status, used, made) =
                decompress(&mut self.state, input, out, self.made_bytes, FLAGS);
            self.used_bytes += used;
            self.made_bytes += made;
            match status {
                TINFLStatus::BlockBoundary => self.blocks += 1,
                TINFLStatus::Done => return Ok(InflatingPause::Ended),
                TINFLStatus::HasMoreOutput => return Ok(InflatingPause::OutputFull),
                _ => return Err(Damaged),
            }
        }
        Ok(InflatingPause::WorkDone)
    }
}
