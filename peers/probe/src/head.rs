//! The header blocks of requests: what a gRPC client sends before each message.

use crate::frames::{
    write_hpack_indexed, write_hpack_remembered, write_hpack_unremembered,
    write_hpack_unremembered_literal,
};
use crate::random::Random;

/// Whether and how the header blocks of one connection's calls differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variation {
    /// After the first call every block is the same few indexes: a client without deadline or
    /// tracing.
    None,
    /// A different `grpc-timeout` and a unique `traceparent` in each call, and the same
    /// `authorization`. Names and the constant value stand in the dynamic table.
    Indexed,
    /// The same three fields, spelled out in full in each call, as clients on gRPC core send
    /// metadata.
    Literal,
}

/// The static table's `:method POST` and `:scheme http` (RFC 7541 appendix A).
const METHOD_POST: usize = 3;
const SCHEME_HTTP: usize = 6;
/// The first entry of the dynamic table: the one remembered last.
const DYNAMIC_FIRST: usize = 62;

const AUTHORIZATION: &[u8] =
    b"Bearer 3f1c2a9e7b4d4c0f8a6e5d2b1c0f9e8d7c6b5a4f3e2d1c0b9a8f7e6d5c4b3a29";

/// The fields remembered by the first call, in order. The last one gets the index `DYNAMIC_FIRST`.
fn remembered<'a>(
    path: &'a str,
    authority: &'a str,
    variation: Variation,
) -> Vec<(&'a str, &'a [u8])> {
    let mut fields: Vec<(&str, &[u8])> = vec![
        (":path", path.as_bytes()),
        (":authority", authority.as_bytes()),
        ("te", b"trailers"),
        ("content-type", b"application/grpc"),
        ("user-agent", b"probe/0.1"),
        ("grpc-accept-encoding", b"identity, deflate, gzip"),
    ];
    if variation == Variation::Indexed {
        fields.push(("authorization", AUTHORIZATION));
        fields.push(("grpc-timeout", b"5S"));
        fields.push((
            "traceparent",
            b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ));
    }
    fields
}

/// Makes the header blocks of one connection.
pub struct HeadWriter {
    variation: Variation,
    /// The block of the first call, which fills the dynamic table.
    first: Vec<u8>,
    /// What all later blocks begin with.
    later: Vec<u8>,
    used: bool,
    random: Random,
}

impl HeadWriter {
    /// For calls of `path` (with its leading slash).
    pub fn new(path: &str, authority: &str, variation: Variation, seed: u64) -> HeadWriter {
        let mut first = Vec::new();
        let mut later = Vec::new();
        for block in [&mut first, &mut later] {
            write_hpack_indexed(block, METHOD_POST);
            write_hpack_indexed(block, SCHEME_HTTP);
        }
        let fields = remembered(path, authority, variation);
        // Varied fields are remembered for their names only, so later blocks do not refer to their
        // values.
        let constant = if variation == Variation::Indexed {
            fields.len() - 2
        } else {
            fields.len()
        };
        for (position, (name, value)) in fields.iter().enumerate() {
            write_hpack_remembered(&mut first, name, value);
            if position < constant {
                write_hpack_indexed(&mut later, DYNAMIC_FIRST + fields.len() - 1 - position);
            }
        }
        HeadWriter {
            variation,
            first,
            later,
            used: false,
            random: Random::new(seed),
        }
    }

    /// Appends the next call's block.
    pub fn write(&mut self, out: &mut Vec<u8>) {
        if !self.used {
            self.used = true;
            out.extend_from_slice(&self.first);
            return;
        }
        out.extend_from_slice(&self.later);
        match self.variation {
            Variation::None => {}
            Variation::Indexed => {
                write_hpack_unremembered(out, DYNAMIC_FIRST + 1, &self.timeout());
                let traceparent = self.traceparent();
                write_hpack_unremembered(out, DYNAMIC_FIRST, &traceparent);
            }
            Variation::Literal => {
                write_hpack_unremembered_literal(out, "grpc-timeout", &self.timeout());
                let traceparent = self.traceparent();
                write_hpack_unremembered_literal(out, "traceparent", &traceparent);
                write_hpack_unremembered_literal(out, "authorization", AUTHORIZATION);
            }
        }
    }

    /// Between 4 and 5 seconds in microseconds: a deadline as it comes from a clock, never the same
    /// twice in a row.
    fn timeout(&mut self) -> [u8; 8] {
        let mut digits = *b"4000000u";
        let mut rest = self.random.below(1_000_000);
        for digit in digits[1..7].iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        digits
    }

    /// As the W3C's trace context has it: version, trace, span, flags.
    fn traceparent(&mut self) -> [u8; 55] {
        let mut text = *b"00-00000000000000000000000000000000-0000000000000000-01";
        for (start, random) in [
            (3, self.random.next()),
            (19, self.random.next()),
            (36, self.random.next()),
        ] {
            write_hex(&mut text[start..start + 16], random);
        }
        text
    }
}

/// Writes a number as 16 lower-case hexadecimal digits.
pub fn write_hex(out: &mut [u8], value: u64) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (position, digit) in out.iter_mut().enumerate() {
        *digit = DIGITS[(value >> (60 - 4 * position)) as usize & 0xf];
    }
}
