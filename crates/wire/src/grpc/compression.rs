//! Compression of messages: gzip (RFC 1952) and none.
//!
//! The gzip frame is our own, around the raw deflate of a library: so its state is reused from
//! message to message, and the output is bounded while it is made, not afterwards.

use std::cell::RefCell;

use flate2::{Compress, Compression, Crc, FlushCompress, Status as Flow};

use super::inflating::{Inflating, InflatingPause};
use super::status::{Code, Status};
use crate::limits;

/// How messages are compressed: a value of `grpc-encoding`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Encoding {
    /// Not at all.
    Identity,
    /// RFC 1952.
    Gzip,
}

impl Encoding {
    /// All that we know, as the value of `grpc-accept-encoding`.
    pub const ACCEPTED: &'static str = "identity,gzip";

    /// Reads the value of `grpc-encoding`. `None` if we do not know it: the call ends with
    /// [`unknown_encoding`].
    pub fn parse(value: &[u8]) -> Option<Encoding> {
        match value {
            b"identity" => Some(Encoding::Identity),
            b"gzip" => Some(Encoding::Gzip),
            _ => None,
        }
    }

    /// The name as it travels.
    pub const fn name(self) -> &'static str {
        match self {
            Encoding::Identity => "identity",
            Encoding::Gzip => "gzip",
        }
    }
}

/// The status of a call whose `grpc-encoding` we do not know (gRPC documentation, "Compression":
/// UNIMPLEMENTED, and the answer says in `grpc-accept-encoding` what is known).
pub fn unknown_encoding(value: &[u8]) -> Status {
    let shown =
        String::from_utf8_lossy(&value[..value.len().min(limits::MAX_SHOWN_BYTES)]).into_owned();
    Status::new(
        Code::Unimplemented,
        format!(
            "grpc-encoding {shown:?} is not known; known are {}",
            Encoding::ACCEPTED
        ),
    )
}

/// The encodings that a peer accepts: a value of `grpc-accept-encoding`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AcceptedEncodings {
    gzip: bool,
}

impl AcceptedEncodings {
    /// What a peer accepts that says nothing.
    pub const IDENTITY: AcceptedEncodings = AcceptedEncodings { gzip: false };

    /// Reads a list. What we do not know is passed over.
    pub fn parse(value: &[u8]) -> AcceptedEncodings {
        let mut names = value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
        AcceptedEncodings {
            gzip: names.any(|name| name == b"gzip"),
        }
    }

    /// Whether the peer accepts it. Identity is always accepted.
    pub fn contains(self, encoding: Encoding) -> bool {
        encoding == Encoding::Identity || self.gzip
    }
}

/// Why a compressed message cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.status().message())]
pub enum InflateError {
    /// It is not gzip, is damaged, or is followed by something.
    Damaged,
    /// It would become larger than allowed. Nothing beyond the limit was kept.
    TooLarge {
        /// What is allowed.
        max_bytes: usize,
    },
    /// It would become so many times what it is that it looks like an attack.
    TooDense,
}

impl InflateError {
    /// The status that the call ends with.
    pub fn status(self) -> Status {
        match self {
            InflateError::Damaged => {
                Status::new(Code::Internal, "the compressed message is not valid gzip")
            }
            InflateError::TooLarge { max_bytes } => Status::new(
                Code::ResourceExhausted,
                format!(
                    "the message has more than {max_bytes} bytes when decompressed, which is the \
                     limit"
                ),
            ),
            InflateError::TooDense => Status::new(
                Code::ResourceExhausted,
                "messages become too many times what was sent when they are decompressed",
            ),
        }
    }
}

const MAGIC: [u8; 2] = [0x1f, 0x8b];
const METHOD_DEFLATE: u8 = 8;
const HEADER_BYTES: usize = 10;
const TRAILER_BYTES: usize = 8;
const FLAG_HEADER_CRC: u8 = 2;
const FLAG_EXTRA: u8 = 4;
const FLAG_NAME: u8 = 8;
const FLAG_COMMENT: u8 = 16;
const FLAGS_RESERVED: u8 = 0xe0;

/// The most that deflate makes of a byte: a match of 258 bytes takes two bits at least.
const DEFLATE_RATIO: usize = 1_032;

/// What the output is given at once while its size is not known.
const OUTPUT_STEP_BYTES: usize = 4096;

thread_local! {
    // Scratch memory, reset before each message. Kept by each connection it would be 340 KiB for
    // whoever sends one compressed message, which is more than all else that a quiet connection
    // has.
    static INFLATER: RefCell<Inflater> = const { RefCell::new(Inflater { state: None }) };
    static DEFLATER: RefCell<Deflater> = const { RefCell::new(Deflater { state: None }) };
}

/// [`Inflater::gunzip`] with the thread's inflater, which gives up after `most_work_bytes` (see
/// [`limits::DEFLATE_BLOCK_WORK_BYTES`]). Returns what it took; `None` if that was not enough.
///
/// # Errors
/// As there.
pub(crate) fn gunzip(
    message: &[u8],
    max_bytes: usize,
    most_work_bytes: usize,
    out: &mut Vec<u8>,
) -> Result<Option<usize>, InflateError> {
    INFLATER
        .with_borrow_mut(|inflater| inflater.gunzip_some(message, max_bytes, most_work_bytes, out))
}

/// [`Deflater::gzip`] with the thread's deflater.
pub(crate) fn gzip(message: &[u8], out: &mut Vec<u8>) {
    DEFLATER.with_borrow_mut(|deflater| deflater.gzip(message, out));
}

/// Decompresses messages. About 12 KiB from the first one on: one per thread is enough.
#[derive(Debug, Default)]
pub struct Inflater {
    state: Option<Inflating>,
}

impl Inflater {
    /// An inflater without any memory.
    pub fn new() -> Inflater {
        Inflater::default()
    }

    /// Replaces `out` by what `message` stands for. The message must be one gzip member: more would
    /// let a few bytes cost the setting up of many.
    ///
    /// # Errors
    /// If it is damaged, or larger than `max_bytes`, which is noticed while it is decompressed.
    /// `out` then holds something of no use.
    pub fn gunzip(
        &mut self,
        message: &[u8],
        max_bytes: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), InflateError> {
        let worked = self.gunzip_some(message, max_bytes, usize::MAX, out)?;
        worked.map(drop).ok_or(InflateError::Damaged)
    }

    fn gunzip_some(
        &mut self,
        message: &[u8],
        max_bytes: usize,
        most_work_bytes: usize,
        out: &mut Vec<u8>,
    ) -> Result<Option<usize>, InflateError> {
        out.clear();
        let deflated = &message[header_bytes(message).ok_or(InflateError::Damaged)?..];
        let state = self.state.get_or_insert_with(Inflating::new);
        state.begin();
        loop {
            // The buffer grows as the output comes, twofold at most; one byte beyond the limit
            // shows that it is passed.
            let len = state.made_bytes();
            let room = (len + OUTPUT_STEP_BYTES).max(len * 2);
            out.resize(room.min(max_bytes.saturating_add(1)), 0);
            let left = most_work_bytes.saturating_sub(state.work_bytes());
            let pause = state
                .advance(deflated, out, left)
                .map_err(|_| InflateError::Damaged)?;
            if state.made_bytes() > max_bytes {
                return Err(InflateError::TooLarge { max_bytes });
            }
            match pause {
                InflatingPause::Ended => break,
                InflatingPause::OutputFull => {}
                InflatingPause::WorkDone => return Ok(None),
            }
        }
        out.truncate(state.made_bytes());
        match deflated[state.used_bytes()..] == trailer_of(out) {
            true => Ok(Some(state.work_bytes())),
            false => Err(InflateError::Damaged),
        }
    }
}

/// A gzip member that is decompressed in steps. About 12 KiB from the first step on, beside what it
/// becomes.
#[derive(Debug)]
pub(crate) struct Unzipping {
    state: Option<Inflating>,
    /// Where what was deflated begins.
    header_bytes: usize,
    crc: Crc,
    out: Vec<u8>,
    announced_bytes: usize,
}

impl Unzipping {
    /// Memory beside what the member becomes, nearly.
    pub(crate) const STATE_BYTES: usize = Inflating::MEMORY_BYTES;

    /// Before the first step, of a member that announces so many bytes.
    pub(crate) fn new(announced_bytes: usize) -> Unzipping {
        Unzipping {
            state: None,
            header_bytes: 0,
            crc: Crc::new(),
            out: Vec::new(),
            announced_bytes,
        }
    }

    /// What the member becomes, in bytes.
    pub(crate) fn announced_bytes(&self) -> usize {
        self.announced_bytes
    }

    /// Goes on for at most so much work, and returns how much it was: see
    /// [`limits::DEFLATE_BLOCK_WORK_BYTES`]. `message` is the same each time.
    ///
    /// # Errors
    /// If it is damaged, or becomes more than it announced.
    pub(crate) fn step(
        &mut self,
        message: &[u8],
        most_work_bytes: usize,
    ) -> Result<usize, InflateError> {
        if self.state.is_none() {
            self.header_bytes = header_bytes(message).ok_or(InflateError::Damaged)?;
            self.out.reserve_exact(self.announced_bytes + 1);
        }
        let deflated = &message[self.header_bytes..];
        let state = self.state.get_or_insert_with(Inflating::new);
        let (before, worked) = (self.out.len(), state.work_bytes());
        // One byte beyond what was announced shows that it was wrong.
        let room = before.saturating_add(most_work_bytes);
        self.out.resize(room.min(self.announced_bytes + 1), 0);
        let pause = state
            .advance(deflated, &mut self.out, most_work_bytes)
            .map_err(|_| InflateError::Damaged)?;
        let (len, worked) = (state.made_bytes(), state.work_bytes() - worked);
        if len > self.announced_bytes {
            return Err(InflateError::Damaged);
        }
        self.out.truncate(len);
        self.crc.update(&self.out[before..]);
        if pause == InflatingPause::Ended {
            if deflated[state.used_bytes()..] != trailer_bytes(&self.crc, len) {
                return Err(InflateError::Damaged);
            }
            self.state = None;
        }
        Ok(worked)
    }

    /// Whether the member was decompressed to its end, and was whole.
    pub(crate) fn has_ended(&self) -> bool {
        self.state.is_none() && self.out.capacity() > 0
    }

    /// What it became.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.out
    }
}

/// Returns what a gzip member says that it becomes, in bytes. RFC 1952 section 2.3.1, ISIZE.
///
/// # Errors
/// If it is no gzip member, or says more than deflate can make of its size.
pub(crate) fn announced_bytes(message: &[u8]) -> Result<usize, InflateError> {
    let least = HEADER_BYTES + TRAILER_BYTES;
    let bytes = message.last_chunk::<4>().ok_or(InflateError::Damaged)?;
    let announced = u32::from_le_bytes(*bytes) as usize;
    if message.len() < least || announced > message.len() * DEFLATE_RATIO {
        return Err(InflateError::Damaged);
    }
    Ok(announced)
}

/// Returns how long the header of the member is, in bytes. RFC 1952 section 2.3.
fn header_bytes(message: &[u8]) -> Option<usize> {
    let (header, mut rest) = message.split_first_chunk::<HEADER_BYTES>()?;
    let flags = header[3];
    if header[..2] != MAGIC || header[2] != METHOD_DEFLATE || flags & FLAGS_RESERVED != 0 {
        return None;
    }
    if flags & FLAG_EXTRA != 0 {
        let (len, after) = rest.split_first_chunk::<2>()?;
        rest = after.get(usize::from(u16::from_le_bytes(*len))..)?;
    }
    for text in [FLAG_NAME, FLAG_COMMENT] {
        if flags & text != 0 {
            let mut bytes = rest.iter().take(limits::GZIP_TEXT_BYTES);
            let end = bytes.position(|&byte| byte == 0)?;
            rest = &rest[end + 1..];
        }
    }
    if flags & FLAG_HEADER_CRC != 0 {
        rest = rest.get(2..)?;
    }
    Some(message.len() - rest.len())
}

/// The checksum and the length of what was compressed.
fn trailer_of(content: &[u8]) -> [u8; TRAILER_BYTES] {
    let mut crc = Crc::new();
    crc.update(content);
    trailer_bytes(&crc, content.len())
}

fn trailer_bytes(crc: &Crc, len: usize) -> [u8; TRAILER_BYTES] {
    let [a, b, c, d] = crc.sum().to_le_bytes();
    let [e, f, g, h] = (len as u32).to_le_bytes();
    [a, b, c, d, e, f, g, h]
}

/// Compresses messages. About 300 KiB from the first one on: one per thread is enough.
#[derive(Debug, Default)]
pub struct Deflater {
    state: Option<Box<Compress>>,
}

impl Deflater {
    /// A deflater without any memory.
    pub fn new() -> Deflater {
        Deflater::default()
    }

    /// Appends `message` as one gzip member.
    pub fn gzip(&mut self, message: &[u8], out: &mut Vec<u8>) {
        // Fast rather than thorough: a server that compresses answers pays for it in the time of
        // all others.
        let state = self
            .state
            .get_or_insert_with(|| Box::new(Compress::new(Compression::fast(), false)));
        state.reset();
        // No flags, no time, no hint, and 255: the system is not known.
        out.extend_from_slice(&[MAGIC[0], MAGIC[1], METHOD_DEFLATE, 0, 0, 0, 0, 0, 0, 255]);
        loop {
            let used = state.total_in() as usize;
            out.reserve((message.len() - used) / 2 + OUTPUT_STEP_BYTES);
            let flow = state
                .compress_vec(&message[used..], out, FlushCompress::Finish)
                .expect("deflate fails only if it is used out of order");
            if flow == Flow::StreamEnd {
                break;
            }
        }
        out.extend_from_slice(&trailer_of(message));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Random;

    const MAX: usize = 1 << 20;

    fn gzip(message: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        Deflater::new().gzip(message, &mut out);
        out
    }

    fn gunzip(message: &[u8], max_bytes: usize) -> Result<Vec<u8>, InflateError> {
        let mut out = Vec::new();
        Inflater::new().gunzip(message, max_bytes, &mut out)?;
        Ok(out)
    }

    #[test]
    fn any_message_comes_back_from_reused_state() {
        let mut random = Random::new(0x5eed_0015);
        let (mut deflater, mut inflater) = (Deflater::new(), Inflater::new());
        let (mut compressed, mut back) = (Vec::new(), Vec::new());
        for round in 0..60 {
            let letters = 1 + random.below(256);
            let longest = if round % 20 == 0 { 300_000 } else { 3000 };
            let message = random.bytes(longest, |random| random.below(letters) as u8);
            compressed.clear();
            deflater.gzip(&message, &mut compressed);
            assert_eq!(
                inflater.gunzip(&compressed, MAX, &mut back),
                Ok(()),
                "{random:?}"
            );
            assert_eq!(back, message, "{random:?}");
        }
    }

    #[test]
    fn the_limit_is_exact() {
        let message = vec![9; 10_000];
        let compressed = gzip(&message);
        assert_eq!(gunzip(&compressed, 10_000), Ok(message));
        assert_eq!(
            gunzip(&compressed, 9_999),
            Err(InflateError::TooLarge { max_bytes: 9_999 })
        );
        assert_eq!(
            gunzip(&compressed, 0),
            Err(InflateError::TooLarge { max_bytes: 0 })
        );
        assert_eq!(gunzip(&gzip(b""), 0), Ok(vec![]));
    }

    #[test]
    fn a_bomb_is_defused_while_it_grows() {
        let bomb = gzip(&vec![0; 64 << 20]);
        assert!(bomb.len() < 400_000);
        let mut out = Vec::new();
        let max_bytes = 100_000;
        assert_eq!(
            Inflater::new().gunzip(&bomb, max_bytes, &mut out),
            Err(InflateError::TooLarge { max_bytes })
        );
        assert!(
            out.capacity() <= 2 * max_bytes + 2 * OUTPUT_STEP_BYTES,
            "{}",
            out.capacity()
        );
        assert_eq!(
            InflateError::TooLarge { max_bytes }.status().code(),
            Code::ResourceExhausted
        );
    }

    #[test]
    fn every_truncation_and_every_extension_is_damage() {
        let compressed = gzip(b"some text, some text, some text");
        for len in 0..compressed.len() {
            assert_eq!(
                gunzip(&compressed[..len], MAX),
                Err(InflateError::Damaged),
                "cut to {len}"
            );
        }
        let twice = [&compressed[..], &compressed[..]].concat();
        assert_eq!(gunzip(&twice, MAX), Err(InflateError::Damaged));
    }

    /// As much as a member announces is made of it, in steps of any size; one that is cut before
    /// its end is damage, though its length still says what it should become.
    #[test]
    fn a_member_in_steps_is_whole_or_damaged() {
        let content: Vec<u8> = (0..2_000_u32).map(|at| (at % 97) as u8).collect();
        let compressed = gzip(&content);
        let unzip = |member: &[u8], most_bytes: usize| {
            let mut unzipping = Unzipping::new(content.len());
            let mut made = 0;
            while !unzipping.has_ended() {
                let bytes = unzipping.step(member, most_bytes)?;
                assert!(bytes <= most_bytes);
                assert!(
                    bytes == most_bytes || unzipping.has_ended(),
                    "less is the end"
                );
                made += bytes;
            }
            assert_eq!(made, content.len());
            Ok(unzipping.into_bytes())
        };
        for most_bytes in [1, 700, content.len(), content.len() + 1, 1 << 20] {
            assert_eq!(unzip(&compressed, most_bytes).as_ref(), Ok(&content));
            let (deflated, trailer) = compressed.split_at(compressed.len() - TRAILER_BYTES);
            for len in HEADER_BYTES..deflated.len() {
                let cut = [&deflated[..len], trailer].concat();
                for cut in [&cut[..], &deflated[..len]] {
                    let result = unzip(cut, most_bytes);
                    assert_eq!(result, Err(InflateError::Damaged), "cut to {len}");
                }
            }
        }
    }

    /// Each of the blocks brings nothing, and takes the time of some thousand bytes.
    #[test]
    fn what_consists_of_empty_blocks_is_done_in_as_many_steps_as_what_becomes_large() {
        const BLOCKS: usize = 4_000;
        const STEP: usize = 64 << 10;
        const BLOCK: usize = limits::DEFLATE_BLOCK_WORK_BYTES;
        let member = testkit::gzip_of_empty_blocks(BLOCKS);
        let mut out = Vec::new();
        for _ in 0..2 {
            let mut inflater = Inflater::new();
            assert_eq!(inflater.gunzip_some(&member, 0, STEP, &mut out), Ok(None));
            let all = inflater.gunzip_some(&member, 0, BLOCKS * BLOCK + 1, &mut out);
            assert_eq!((all, out.len()), (Ok(Some(BLOCKS * BLOCK)), 0));
        }
        let mut unzipping = Unzipping::new(0);
        let mut steps = 0;
        while !unzipping.has_ended() {
            let worked = unzipping.step(&member, STEP).expect("it is sound");
            assert!(worked <= STEP + BLOCK);
            steps += 1;
        }
        assert_eq!(steps, BLOCKS * BLOCK / STEP + 1);
        assert_eq!(unzipping.into_bytes(), b"");
    }

    #[test]
    fn damage_is_noticed_and_never_breaks_out() {
        let message =
            b"some text that is long enough to be worth compressing, long enough".repeat(5);
        let compressed = gzip(&message);
        let mut random = Random::new(0x5eed_0016);
        let mut inflater = Inflater::new();
        let mut out = Vec::new();
        for _ in 0..3000 {
            let mut damaged = compressed.clone();
            let at = random.below(damaged.len() as u64) as usize;
            damaged[at] ^= 1 << random.below(8);
            let result = inflater.gunzip(&damaged, 10_000, &mut out);
            assert!(out.len() <= 10_001);
            // What survives is damage to bits that mean nothing, such as the time in the header.
            assert!(
                result.is_err() || out == message,
                "damage at {at} {random:?}"
            );
        }
        for _ in 0..3000 {
            let mut noise = random.bytes(60, |random| random.number() as u8);
            noise.splice(0..0, compressed[..HEADER_BYTES].iter().copied());
            assert!(
                inflater.gunzip(&noise, 10_000, &mut out).is_err(),
                "{random:?}"
            );
        }
    }

    #[test]
    fn all_parts_of_a_header_are_skipped() {
        let compressed = gzip(b"text");
        let with = |flags: u8, parts: &[u8]| {
            let mut message = compressed.clone();
            message[3] = flags;
            message.splice(HEADER_BYTES..HEADER_BYTES, parts.iter().copied());
            gunzip(&message, MAX)
        };
        assert_eq!(with(FLAG_EXTRA, b"\x03\0abc").as_deref(), Ok(&b"text"[..]));
        assert_eq!(
            with(FLAG_NAME | FLAG_COMMENT, b"name\0comment\0").as_deref(),
            Ok(&b"text"[..])
        );
        assert_eq!(
            with(FLAG_EXTRA | FLAG_NAME | FLAG_HEADER_CRC, b"\0\0n\0cr").as_deref(),
            Ok(&b"text"[..])
        );
        assert_eq!(with(FLAG_EXTRA, b"\xff\xff"), Err(InflateError::Damaged));
        for (letters, is_short) in [
            (limits::GZIP_TEXT_BYTES - 1, true),
            (limits::GZIP_TEXT_BYTES, false),
        ] {
            let name = [&vec![b'n'; letters][..], b"\0"].concat();
            assert_eq!(with(FLAG_NAME, &name).is_ok(), is_short, "{letters}");
            assert_eq!(with(FLAG_COMMENT, &name).is_ok(), is_short, "{letters}");
        }
        assert_eq!(with(0x20, b""), Err(InflateError::Damaged));
    }

    #[test]
    fn encodings() {
        assert_eq!(Encoding::parse(b"gzip"), Some(Encoding::Gzip));
        assert_eq!(Encoding::parse(b"identity"), Some(Encoding::Identity));
        assert_eq!(Encoding::parse(b"deflate"), None);
        assert!(AcceptedEncodings::parse(b"identity, deflate ,gzip").contains(Encoding::Gzip));
        assert!(AcceptedEncodings::parse(Encoding::ACCEPTED.as_bytes()).contains(Encoding::Gzip));
        assert!(!AcceptedEncodings::parse(b"identity,gzip2, xgzip").contains(Encoding::Gzip));
        assert!(AcceptedEncodings::parse(b"").contains(Encoding::Identity));
        let status = unknown_encoding("é".repeat(1000).as_bytes());
        assert_eq!(status.code(), Code::Unimplemented);
        assert!(status.message().len() < 500);
    }
}
