//! The Huffman code of HPACK. RFC 7541 section 5.2 and appendix B.
//!
//! The code is canonical: codes of one length are consecutive numbers in the order of their
//! symbols, and the shorter code is the smaller number. So the lengths say everything, and all
//! tables are computed from them at compile time.
//!
//! The decoder looks at 12 bits at a time. A table says which one or two symbols they begin with;
//! two, almost always, for the digits and lower-case letters that trace ids, paths and tokens are
//! made of. The tables are 12 KiB, of which one kind of text touches a small part. A state machine
//! over whole bytes needs 256 KiB for the same speed.

/// The longest code, that of the end-of-string symbol, is as long as this.
const MAX_CODE_BITS: usize = 30;

/// The bits that one look-up takes into account.
const LOOKUP_BITS: usize = 12;

/// End of string: must not occur in a string (RFC 7541 section 5.2).
const EOS: usize = 256;

/// The length in bits of the code of each byte and of [`EOS`].
#[rustfmt::skip]
const CODE_BITS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
     6, 10, 10, 12, 13,  6,  8, 11, 10, 10,  8, 11,  8,  6,  6,  6,
     5,  5,  5,  6,  6,  6,  6,  6,  6,  6,  7,  8, 15,  6, 12, 10,
    13,  6,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,
     7,  7,  7,  7,  7,  7,  7,  7,  8,  7,  8, 13, 19, 13, 14,  6,
    15,  5,  6,  5,  6,  5,  6,  6,  6,  5,  7,  7,  6,  6,  6,  5,
     6,  7,  6,  5,  5,  6,  7,  7,  7,  7,  7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];

/// The codes of one length.
#[derive(Clone, Copy)]
struct CodesOfLength {
    /// The first code of this length.
    first: u32,
    /// How many codes have this length.
    count: u32,
    /// Where their symbols begin in [`SYMBOLS`].
    offset: u16,
}

/// By length in bits.
const LENGTHS: [CodesOfLength; MAX_CODE_BITS + 1] = {
    let mut lengths = [CodesOfLength {
        first: 0,
        count: 0,
        offset: 0,
    }; MAX_CODE_BITS + 1];
    let mut symbol = 0;
    while symbol <= EOS {
        lengths[CODE_BITS[symbol] as usize].count += 1;
        symbol += 1;
    }
    let mut bits = 1;
    while bits <= MAX_CODE_BITS {
        let shorter = lengths[bits - 1];
        lengths[bits].first = (shorter.first + shorter.count) << 1;
        lengths[bits].offset = shorter.offset + shorter.count as u16;
        bits += 1;
    }
    lengths
};

/// All symbols in the order of their codes.
const SYMBOLS: [u16; 257] = {
    let mut symbols = [0u16; 257];
    let mut used = 0;
    let mut bits = 1;
    while bits <= MAX_CODE_BITS {
        let mut symbol = 0;
        while symbol <= EOS {
            if CODE_BITS[symbol] as usize == bits {
                symbols[used] = symbol as u16;
                used += 1;
            }
            symbol += 1;
        }
        bits += 1;
    }
    symbols
};

/// The code of each byte, right-aligned.
static CODES: [u32; 256] = {
    let mut codes = [0u32; 256];
    let mut bits = 1;
    while bits <= MAX_CODE_BITS {
        let length = LENGTHS[bits];
        let mut at = 0;
        while at < length.count {
            let symbol = SYMBOLS[length.offset as usize + at as usize] as usize;
            if symbol != EOS {
                codes[symbol] = length.first + at;
            }
            at += 1;
        }
        bits += 1;
    }
    codes
};

/// What 12 bits begin with: one or two symbols, or none if the code is longer.
///
/// Two tables, because the next look-up waits for the number of bits and for nothing else.
struct Lookups {
    /// Low six bits: the bits of all symbols together. High two bits: the number of symbols.
    steps: [u8; 1 << LOOKUP_BITS],
    /// The first symbol in the low byte, the second in the high one.
    symbols: [u16; 1 << LOOKUP_BITS],
}

static LOOKUPS: Lookups = {
    let mut lookups = Lookups {
        steps: [0; 1 << LOOKUP_BITS],
        symbols: [0; 1 << LOOKUP_BITS],
    };
    let mut window = 0;
    while window < 1 << LOOKUP_BITS {
        let (first, first_bits) = first_symbol(window, LOOKUP_BITS);
        if first_bits > 0 {
            let rest_bits = LOOKUP_BITS - first_bits;
            let (second, second_bits) = first_symbol(window & ((1 << rest_bits) - 1), rest_bits);
            let count = if second_bits > 0 { 2 } else { 1 };
            lookups.steps[window] = (first_bits + second_bits) as u8 | count << 6;
            lookups.symbols[window] = first as u16 | (second as u16) << 8;
        }
        window += 1;
    }
    lookups
};

/// The symbol and the number of bits of the code that the `bits` low bits of `window` begin with,
/// or zeros.
const fn first_symbol(window: usize, bits: usize) -> (u32, usize) {
    let mut len = 1;
    while len <= bits {
        let code = (window >> (bits - len)) as u32;
        let length = LENGTHS[len];
        if code < length.first + length.count {
            // Not below the first code of this length: a smaller one would have been found among
            // the shorter.
            return (
                SYMBOLS[length.offset as usize + (code - length.first) as usize] as u32,
                len,
            );
        }
        len += 1;
    }
    (0, 0)
}

/// The symbol with a code of more than 12 bits that `bits` begin with, and the length of the code.
#[cold]
fn long_symbol(bits: u64) -> (usize, u32) {
    for len in LOOKUP_BITS as u32 + 1..=MAX_CODE_BITS as u32 {
        let code = (bits >> (64 - len)) as u32;
        let length = LENGTHS[len as usize];
        if code < length.first + length.count {
            return (
                usize::from(SYMBOLS[usize::from(length.offset) + (code - length.first) as usize]),
                len,
            );
        }
    }
    unreachable!("30 bits of ones are the last code of a complete code")
}

/// Why a string could not be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HuffmanError {
    /// The end-of-string symbol, or a padding that is not the first bits of it or longer than seven
    /// bits.
    Invalid,
    /// The string does not fit.
    TooLong,
}

/// The bytes that must be free behind the longest string that [`decode`] is allowed to write.
pub(super) const SLACK_BYTES: usize = 8;

/// Not more than this is decoded from `encoded_len` bytes: the shortest code has five bits.
#[inline]
pub(super) fn max_decoded_len(encoded_len: usize) -> usize {
    encoded_len * 8 / 5
}

/// A string in Huffman code, and behind it ones without end: its padding continued (RFC 7541
/// section 5.2).
///
/// The next eight bytes are always read ahead, so that nobody waits for them.
struct Bits<'a> {
    bytes: &'a [u8],
    ahead: u64,
    ahead_at: usize,
    /// Left-aligned.
    window: u64,
    valid: u32,
}

impl Bits<'_> {
    #[inline]
    fn new(bytes: &[u8]) -> Bits<'_> {
        let mut bits = Bits {
            bytes,
            ahead: 0,
            ahead_at: 0,
            window: 0,
            valid: 0,
        };
        bits.ahead = bits.word();
        bits
    }

    /// Eight bytes, as far as they are there.
    #[inline]
    fn word(&self) -> u64 {
        let rest = self.bytes.get(self.ahead_at..).unwrap_or_default();
        match rest.first_chunk::<8>() {
            Some(bytes) => u64::from_be_bytes(*bytes),
            None => last_word(rest),
        }
    }

    /// Makes at least 56 bits valid.
    #[inline]
    fn refill(&mut self) {
        // Bits of a byte that does not fit whole come in as well; next time the same bits are added
        // once more.
        self.window |= self.ahead >> self.valid;
        self.ahead_at += (63 - self.valid as usize) / 8;
        self.valid |= 56;
        self.ahead = self.word();
    }

    /// Takes one or two symbols. If there are none, the code is longer than 12 bits, or the end has
    /// come.
    #[inline]
    fn take_symbols(&mut self) -> (u16, u32) {
        let index = (self.window >> (64 - LOOKUP_BITS)) as usize;
        let step = u32::from(LOOKUPS.steps[index]);
        self.take(step & 0x3f);
        (LOOKUPS.symbols[index], step >> 6)
    }

    #[inline]
    fn take(&mut self, bits: u32) {
        self.window <<= bits;
        self.valid -= bits;
    }

    /// The bits of the string that are not taken yet, or none if more than these have been taken.
    #[inline]
    fn left(&self) -> Option<usize> {
        (self.bytes.len() * 8 + self.valid as usize).checked_sub(self.ahead_at * 8)
    }
}

/// Fewer than eight bytes, and ones behind them.
#[inline]
fn last_word(rest: &[u8]) -> u64 {
    let ones = u64::MAX >> (rest.len() * 8);
    match (rest.first_chunk::<4>(), rest.last_chunk::<4>()) {
        // They may overlap: then they say the same.
        (Some(first), Some(last)) => {
            let last = u64::from(u32::from_be_bytes(*last)) << (64 - rest.len() * 8);
            u64::from(u32::from_be_bytes(*first)) << 32 | last | ones
        }
        _ => rest.iter().enumerate().fold(ones, |word, (at, &byte)| {
            word | u64::from(byte) << (56 - at * 8)
        }),
    }
}

/// Decodes `encoded` to the front of `target` and says how many bytes came out. The last
/// [`SLACK_BYTES`] of `target` are not part of what may be used, but are written to.
pub(super) fn decode(encoded: &[u8], target: &mut [u8]) -> Result<usize, HuffmanError> {
    let mut bits = Bits::new(encoded);
    let mut len = 0;
    loop {
        let place = target
            .get_mut(len..)
            .and_then(|rest| rest.first_chunk_mut::<SLACK_BYTES>());
        let place = place.ok_or(HuffmanError::TooLong)?;
        bits.refill();
        // Four look-ups take 48 of the 56 bits at most, and give as many bytes as the place has.
        let (mut text, mut text_len) = (0u64, 0);
        for _ in 0..4 {
            let (symbols, count) = bits.take_symbols();
            text |= u64::from(symbols) << ((text_len * 8) & 63);
            text_len += count;
        }
        *place = text.to_le_bytes();
        len += text_len as usize;

        // In the ones behind the end nothing is found, since no code of up to 12 bits consists of
        // ones. So only a wrong string, whose last bits are the beginning of a code, can have led
        // beyond it.
        let left = bits.left().ok_or(HuffmanError::Invalid)?;
        if left < 8 && bits.window.leading_ones() as usize >= left {
            return if len + SLACK_BYTES <= target.len() {
                Ok(len)
            } else {
                Err(HuffmanError::TooLong)
            };
        }
        if text_len == 0 {
            let (symbol, symbol_bits) = long_symbol(bits.window);
            if symbol_bits as usize > left || symbol == EOS {
                return Err(HuffmanError::Invalid);
            }
            target[len] = symbol as u8;
            len += 1;
            bits.take(symbol_bits);
        }
    }
}

/// The length of `text` when encoded.
pub(super) fn encoded_len(text: &[u8]) -> usize {
    let bits: usize = text
        .iter()
        .map(|&byte| usize::from(CODE_BITS[usize::from(byte)]))
        .sum();
    bits.div_ceil(8)
}

/// Appends `text` encoded to `out`.
pub(super) fn encode(text: &[u8], out: &mut Vec<u8>) {
    let (mut window, mut valid) = (0u64, 0);
    for &byte in text {
        let bits = u32::from(CODE_BITS[usize::from(byte)]);
        // At most 31 bits are left from before, so that 30 more fit.
        window |= u64::from(CODES[usize::from(byte)]) << (64 - valid - bits);
        valid += bits;
        if valid >= 32 {
            out.extend_from_slice(&window.to_be_bytes()[..4]);
            window <<= 32;
            valid -= 32;
        }
    }
    // The padding is the first bits of the end-of-string symbol: ones.
    window |= u64::MAX.checked_shr(valid).unwrap_or(0);
    out.extend_from_slice(&window.to_be_bytes()[..valid.div_ceil(8) as usize]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Random;

    fn decoded(source: &[u8]) -> Result<Vec<u8>, HuffmanError> {
        let mut target = vec![0; max_decoded_len(source.len()) + SLACK_BYTES];
        let len = decode(source, &mut target)?;
        target.truncate(len);
        Ok(target)
    }

    fn encoded(text: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        encode(text, &mut out);
        assert_eq!(out.len(), encoded_len(text));
        out
    }

    #[test]
    fn codes_as_printed_in_appendix_b() {
        let printed = [
            (b'0', 0x0, 5),
            (b't', 0x9, 5),
            (b' ', 0x14, 6),
            (b'u', 0x2d, 6),
            (b':', 0x5c, 7),
            (b'z', 0x7b, 7),
        ];
        let rare = [
            (b'&', 0xf8, 8),
            (b'X', 0xfc, 8),
            (b'!', 0x3f8, 10),
            (b'|', 0x7fc, 11),
            (b'#', 0xffa, 12),
        ];
        let long = [
            (0, 0x1ff8, 13),
            (0x5c, 0x7fff0, 19),
            (10, 0x3ffffffc, 30),
            (22, 0x3ffffffe, 30),
            (249, 0xffffffe, 28),
        ];
        for (symbol, code, bits) in printed.into_iter().chain(rare).chain(long) {
            assert_eq!(
                (CODES[usize::from(symbol)], CODE_BITS[usize::from(symbol)]),
                (code, bits),
                "symbol {symbol}"
            );
        }
        let last = LENGTHS[MAX_CODE_BITS];
        assert_eq!(
            last.first + last.count,
            1 << MAX_CODE_BITS,
            "the code is complete"
        );
        assert_eq!(
            usize::from(SYMBOLS[EOS]),
            EOS,
            "end of string is the last code"
        );
    }

    #[test]
    fn strings_of_appendix_c() {
        let cases: [(&[u8], &[u8]); 4] = [
            (
                b"www.example.com",
                &[
                    0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff,
                ],
            ),
            (b"no-cache", &[0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf]),
            (b"302", &[0x64, 0x02]),
            (b"", &[]),
        ];
        for (text, code) in cases {
            assert_eq!(encoded(text), code);
            assert_eq!(decoded(code).as_deref(), Ok(text));
        }
    }

    #[test]
    fn every_byte_at_every_place_comes_back() {
        for byte in 0..=255u8 {
            for before in 0..20 {
                for after in [0, 1, 7, 20] {
                    let mut text = vec![b'a'; before];
                    text.push(byte);
                    text.extend(vec![b'7'; after]);
                    assert_eq!(decoded(&encoded(&text)).as_deref(), Ok(&text[..]));
                }
            }
        }
    }

    #[test]
    fn random_texts_come_back() {
        let mut random = Random::new(0x5eed_0001);
        for _ in 0..5000 {
            let any = random.below(4) == 0;
            let text = random.bytes(200, |random| {
                if any {
                    random.number() as u8
                } else {
                    b'0' + random.below(75) as u8
                }
            });
            assert_eq!(
                decoded(&encoded(&text)).as_deref(),
                Ok(&text[..]),
                "{random:?}"
            );
        }
    }

    #[test]
    fn any_bytes_decode_to_what_encodes_to_them_or_are_refused() {
        let mut random = Random::new(0x5eed_0002);
        for _ in 0..20_000 {
            let source = random.bytes(40, |random| {
                if random.below(3) == 0 {
                    0xff
                } else {
                    random.number() as u8
                }
            });
            if let Ok(text) = decoded(&source) {
                assert_eq!(encoded(&text), source, "{random:?}");
            }
        }
    }

    #[test]
    fn padding_and_end_of_string() {
        // RFC 7541 section 5.2: longer than seven bits, not of ones, end-of-string symbol.
        assert_eq!(decoded(&[0xff]), Err(HuffmanError::Invalid));
        assert_eq!(decoded(&[0x1f, 0xff]), Err(HuffmanError::Invalid));
        // An "a" is 00011. Behind it stand zeros, a zero at the end, ones.
        assert_eq!(decoded(&[0x18]), Err(HuffmanError::Invalid));
        assert_eq!(decoded(&[0x1e]), Err(HuffmanError::Invalid));
        assert_eq!(
            decoded(&[0xff, 0xff, 0xff, 0xff]),
            Err(HuffmanError::Invalid)
        );
        assert_eq!(decoded(&[0xff; 20]), Err(HuffmanError::Invalid));
        assert_eq!(decoded(&[0x1f]), Ok(b"a".to_vec()));
    }

    #[test]
    fn what_does_not_fit_is_refused_at_every_length() {
        for text in [&[b'e'; 60][..], &[200; 60][..]] {
            let source = encoded(text);
            for room in 0..60 {
                let mut target = vec![0; room + SLACK_BYTES];
                assert_eq!(
                    decode(&source, &mut target),
                    Err(HuffmanError::TooLong),
                    "room for {room}"
                );
            }
            let mut target = vec![0; 60 + SLACK_BYTES];
            assert_eq!(decode(&source, &mut target), Ok(60));
        }
    }
}
