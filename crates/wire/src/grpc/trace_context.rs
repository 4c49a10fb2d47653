//! Which trace a call belongs to: the field `traceparent` of W3C Trace Context
//! (<https://www.w3.org/TR/trace-context/>, section 3.2), and ids of traces and spans.

use std::fmt;

/// The key of the metadata that say which trace a call belongs to.
pub const TRACEPARENT: &str = "traceparent";

/// Bytes of a value of version 00: `00-`, 32 digits, `-`, 16 digits, `-`, 2 digits.
const VALUE_BYTES: usize = 55;

/// The flag by which a caller says that it may have recorded the call.
const SAMPLED: u8 = 1;

/// The id of a trace, never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceId([u8; 16]);

/// The id of a span within its trace, never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SpanId([u8; 8]);

/// A span by its ids, as one process says them to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace.
    pub trace: TraceId,
    /// The span in it that what comes next is a part of.
    pub span: SpanId,
    /// The flags; those that version 00 does not know are 0.
    pub flags: u8,
}

impl TraceId {
    /// Returns the id with these bytes; `None` if they are all 0.
    pub fn new(bytes: [u8; 16]) -> Option<TraceId> {
        (bytes != [0; 16]).then_some(TraceId(bytes))
    }

    /// Returns its bytes.
    pub fn bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl SpanId {
    /// Returns the id with these bytes; `None` if they are all 0.
    pub fn new(bytes: [u8; 8]) -> Option<SpanId> {
        (bytes != [0; 8]).then_some(SpanId(bytes))
    }

    /// Returns its bytes.
    pub fn bytes(&self) -> &[u8; 8] {
        &self.0
    }
}

impl TraceContext {
    /// Reads a value; `None` if it is malformed. Of a later version that is read which version 00
    /// has (section 3.2.3: "Versioning of traceparent").
    pub fn parse(value: &[u8]) -> Option<TraceContext> {
        let (known, rest) = value.split_at_checked(VALUE_BYTES)?;
        let [version] = hex_bytes(known.get(..2)?)?;
        let is_longer_by_right = version != 0 && rest.first() == Some(&b'-');
        if version == u8::MAX || !(rest.is_empty() || is_longer_by_right) {
            return None;
        }
        if [2, 35, 52].iter().any(|&at| known.get(at) != Some(&b'-')) {
            return None;
        }
        let [flags] = hex_bytes(known.get(53..)?)?;
        Some(TraceContext {
            trace: TraceId::new(hex_bytes(known.get(3..35)?)?)?,
            span: SpanId::new(hex_bytes(known.get(36..52)?)?)?,
            flags: flags & SAMPLED,
        })
    }

    /// Returns the context of a span that is recorded.
    pub fn sampled(trace: TraceId, span: SpanId) -> TraceContext {
        TraceContext {
            trace,
            span,
            flags: SAMPLED,
        }
    }

    /// Returns whether the caller may have recorded its part.
    pub fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// Returns the value that says it, of version 00.
    pub fn value(&self) -> String {
        let mut value = String::with_capacity(VALUE_BYTES);
        value.push_str("00-");
        push_hex(&mut value, self.trace.bytes());
        value.push('-');
        push_hex(&mut value, self.span.bytes());
        value.push('-');
        push_hex(&mut value, &[self.flags]);
        value
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Reads twice as many digits, which are of lower case (section 3.2: `HEXDIGLC`).
fn hex_bytes<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    if digits.len() != 2 * N {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let [high, low] = *pair else { return None };
        *byte = digit(high)? << 4 | digit(low)?;
    }
    Some(bytes)
}

fn push_hex(out: &mut String, bytes: &[u8]) {
    let digit = |value: u8| char::from_digit(u32::from(value), 16).unwrap_or('0');
    for byte in bytes {
        out.push(digit(byte >> 4));
        out.push(digit(byte & 15));
    }
}

/// Makes ids from a seed: SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number
/// generators", 2014). They are different, and not secret.
#[derive(Clone, Debug)]
pub struct TraceIdSource(u64);

impl TraceIdSource {
    /// Returns a source for which this seed was drawn.
    pub fn new(seed: u64) -> TraceIdSource {
        TraceIdSource(seed)
    }

    /// Returns the next number.
    pub fn next_number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns the id of a new trace.
    pub fn next_trace(&mut self) -> TraceId {
        let halves = [self.next_nonzero(), self.next_number()];
        let mut bytes = [0; 16];
        for (place, half) in bytes.chunks_exact_mut(8).zip(halves) {
            place.copy_from_slice(&half.to_be_bytes());
        }
        TraceId(bytes)
    }

    /// Returns the id of a new span.
    pub fn next_span(&mut self) -> SpanId {
        SpanId(self.next_nonzero().to_be_bytes())
    }

    /// One number of all is 0, and it comes once in a round.
    fn next_nonzero(&mut self) -> u64 {
        match self.next_number() {
            0 => self.next_number() | 1,
            number => number,
        }
    }
}

#[cfg(test)]
mod tests {
    use testkit::Random;

    use super::*;

    const VALUE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn the_example_of_the_recommendation_is_read() {
        let context = TraceContext::parse(VALUE.as_bytes()).expect("it is one");
        assert_eq!(context.trace.bytes()[..2], [0x4b, 0xf9]);
        assert_eq!(context.span.bytes()[6..], [0x02, 0xb7]);
        assert!(context.is_sampled());
        assert_eq!(context.value(), VALUE);
        let shown = format!("00-{}-{}-01", context.trace, context.span);
        assert_eq!(shown, VALUE);
        let unsampled = VALUE.replace("-01", "-00");
        let context = TraceContext::parse(unsampled.as_bytes()).expect("it is one");
        assert!(!context.is_sampled());
        assert_eq!(context.value(), unsampled);
    }

    #[test]
    fn flags_that_are_not_known_are_passed_over() {
        for (flags, is_sampled) in [("02", false), ("03", true), ("ff", true), ("fe", false)] {
            let value = VALUE.replace("-01", &format!("-{flags}"));
            let context = TraceContext::parse(value.as_bytes()).expect(flags);
            assert_eq!(context.is_sampled(), is_sampled, "{flags}");
            assert!(context.flags <= 1);
        }
    }

    #[test]
    fn what_is_malformed_is_no_context() {
        let with = |from: &str, to: &str| VALUE.replacen(from, to, 1);
        for value in [
            String::new(),
            "00".into(),
            VALUE[..VALUE.len() - 1].into(),
            format!("{VALUE}0"),
            format!("{VALUE}-00"),
            format!(" {VALUE}"),
            with("00-", "ff-"),
            with("00-", "0g-"),
            with("00-4b", "00_4b"),
            with("4bf9", "4BF9"),
            with("-01", "-0x"),
            with("-01", "_01"),
            with("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            with("00f067aa0ba902b7", &"0".repeat(16)),
            VALUE.replace('-', ":"),
        ] {
            assert_eq!(TraceContext::parse(value.as_bytes()), None, "{value:?}");
        }
    }

    #[test]
    fn of_a_later_version_the_known_part_is_read() {
        for (value, is_read) in [
            (VALUE.replacen("00-", "01-", 1), true),
            (format!("{}-more", VALUE.replacen("00-", "cc-", 1)), true),
            (format!("{}more", VALUE.replacen("00-", "cc-", 1)), false),
        ] {
            let context = TraceContext::parse(value.as_bytes());
            assert_eq!(context.is_some(), is_read, "{value}");
            assert!(context.is_none_or(|context| context.value() == VALUE));
        }
    }

    #[test]
    fn a_value_is_read_as_it_was_written() {
        let mut random = Random::new(0x5eed_0018);
        let mut ids = TraceIdSource::new(random.number());
        for _ in 0..1_000 {
            let mut context = TraceContext::sampled(ids.next_trace(), ids.next_span());
            context.flags = random.below(2_u64) as u8;
            let value = context.value();
            assert_eq!(TraceContext::parse(value.as_bytes()), Some(context));
            // Whatever one byte becomes: it is refused, or is another context that is written so.
            let mut changed = value.into_bytes();
            let at = random.below(changed.len() as u64) as usize;
            changed[at] = random.below(256_u64) as u8;
            if let Some(other) = TraceContext::parse(&changed) {
                assert!(!(2..=52).contains(&at) || other.value().as_bytes() == changed);
            }
        }
    }

    #[test]
    fn ids_are_different_and_follow_from_the_seed() {
        let ids = |seed| {
            let mut source = TraceIdSource::new(seed);
            (0..100).map(|_| source.next_span()).collect::<Vec<_>>()
        };
        assert_eq!(ids(7), ids(7));
        let (one, other) = (ids(7), ids(8));
        assert!(one.iter().all(|id| !other.contains(id)));
        assert!((1..100).all(|at| !one[..at].contains(&one[at])));
        // The state before the one that becomes 0.
        let mut source = TraceIdSource::new(0_u64.wrapping_sub(0x9e37_79b9_7f4a_7c15));
        assert_ne!(source.clone().next_span().bytes(), &[0; 8]);
        assert_ne!(source.next_trace().bytes(), &[0; 16]);
    }
}
