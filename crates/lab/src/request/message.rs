//! A request as bytes, and what is filled into it for each call.

use bytes::Bytes;
use protobuf::writer;

use super::placeholder::{Draws, Placeholder};
use crate::random::Random;

/// A request of a method, encoded as far as it is the same in each call.
#[derive(Clone, Debug)]
pub struct RequestTemplate(Template);

#[derive(Clone, Debug)]
enum Template {
    Fixed(Bytes),
    Varying(Vec<RequestPart>),
}

/// A part of a message.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum RequestPart {
    /// The same bytes in each.
    Fixed(Vec<u8>),
    /// A number, without its tag.
    Number {
        value: NumberValue,
        encoding: NumberEncoding,
    },
    /// What is appended as it is.
    Filled(Placeholder),
    /// Bytes with their length in front.
    Delimited(Vec<RequestPart>),
}

/// A number that varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NumberValue {
    /// The number of the request; after this one it begins again.
    Counter { last: u64 },
    /// A whole number between both, both included.
    Random { least: i64, most: i64 },
}

/// How a number is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NumberEncoding {
    Varint,
    ZigZag,
    Fixed32,
    Fixed64,
    Float,
    Double,
}

/// What the requests of one thread draw their values from.
#[derive(Clone, Debug)]
pub(crate) struct RequestDraws {
    draws: Draws,
    stride: u64,
}

impl RequestDraws {
    /// The first request of this thread, of so many, has the number of the thread.
    pub(crate) fn new((thread, threads): (usize, usize), seed: u64) -> RequestDraws {
        RequestDraws {
            draws: Draws {
                counter: thread as u64,
                random: Random::of_thread(seed, thread),
            },
            stride: threads as u64,
        }
    }

    /// Goes on to the next request.
    pub(crate) fn advance(&mut self) {
        self.draws.counter = self.draws.counter.wrapping_add(self.stride);
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.draws.random.below(bound as u64) as usize
    }
}

impl RequestTemplate {
    /// A request that is the same in each call.
    pub fn fixed(bytes: Vec<u8>) -> RequestTemplate {
        RequestTemplate(Template::Fixed(bytes.into()))
    }

    pub(super) fn of_parts(parts: Vec<RequestPart>) -> RequestTemplate {
        RequestTemplate(Template::Varying(parts))
    }

    /// The bytes of the request if they are the same in each call.
    pub fn bytes(&self) -> Option<&Bytes> {
        match &self.0 {
            Template::Fixed(bytes) => Some(bytes),
            Template::Varying(_) => None,
        }
    }

    /// The most bytes that a request has.
    pub fn most_bytes(&self) -> usize {
        match &self.0 {
            Template::Fixed(bytes) => bytes.len(),
            Template::Varying(parts) => most_bytes(parts),
        }
    }

    /// Appends a request.
    pub(crate) fn encode(&self, draws: &mut RequestDraws, out: &mut Vec<u8>) {
        match &self.0 {
            Template::Fixed(bytes) => out.extend_from_slice(bytes),
            Template::Varying(parts) => encode(parts, &mut draws.draws, out),
        }
    }
}

pub(super) fn most_bytes(parts: &[RequestPart]) -> usize {
    let bytes = |part: &RequestPart| match part {
        RequestPart::Fixed(bytes) => bytes.len(),
        // A varint of 64 bits.
        RequestPart::Number { .. } => 10,
        RequestPart::Filled(placeholder) => placeholder.most_bytes(),
        RequestPart::Delimited(parts) => {
            let most = most_bytes(parts);
            most.saturating_add(writer::varint_len(most as u64))
        }
    };
    parts.iter().map(bytes).fold(0, usize::saturating_add)
}

fn encode(parts: &[RequestPart], draws: &mut Draws, out: &mut Vec<u8>) {
    for part in parts {
        match part {
            RequestPart::Fixed(bytes) => out.extend_from_slice(bytes),
            RequestPart::Number { value, encoding } => {
                encode_number(value.draw(draws), *encoding, out);
            }
            RequestPart::Filled(placeholder) => placeholder.append(draws, out),
            RequestPart::Delimited(parts) => encode_delimited(parts, draws, out),
        }
    }
}

/// Appends parts with their length, which is known when they are there. It takes one byte nearly
/// always; a longer one moves them.
fn encode_delimited(parts: &[RequestPart], draws: &mut Draws, out: &mut Vec<u8>) {
    let at = out.len();
    out.push(0);
    encode(parts, draws, out);
    let length = (out.len() - at - 1) as u64;
    let mut head = Vec::new();
    match out.get_mut(at) {
        Some(place) if length < 0x80 => *place = length as u8,
        _ => {
            writer::varint(&mut head, length);
            out.splice(at..=at, head);
        }
    }
}

impl NumberValue {
    fn draw(self, draws: &mut Draws) -> i128 {
        match self {
            NumberValue::Counter { last: u64::MAX } => i128::from(draws.counter),
            NumberValue::Counter { last } => i128::from(draws.counter % (last + 1)),
            NumberValue::Random { least, most } => i128::from(draws.number(least, most)),
        }
    }
}

fn encode_number(number: i128, encoding: NumberEncoding, out: &mut Vec<u8>) {
    match encoding {
        NumberEncoding::Varint => writer::varint(out, number as u64),
        NumberEncoding::ZigZag => {
            let number = number as i64;
            writer::varint(out, ((number << 1) ^ (number >> 63)).cast_unsigned());
        }
        NumberEncoding::Fixed32 => out.extend_from_slice(&(number as u32).to_le_bytes()),
        NumberEncoding::Fixed64 => out.extend_from_slice(&(number as u64).to_le_bytes()),
        NumberEncoding::Float => out.extend_from_slice(&(number as f32).to_le_bytes()),
        NumberEncoding::Double => out.extend_from_slice(&(number as f64).to_le_bytes()),
    }
}
