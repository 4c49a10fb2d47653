//! Scan and Count: ranges of keys.

use store::Direction;

use super::{
    EntryMessage, Invalid, ResumePoint, Rule, decode_fields, decode_history_id, encode_history_id,
};
use protobuf::{Fault, Reader, Value, writer};

/// Which keys a Scan or Count looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keys<'a> {
    /// All of the database.
    #[default]
    All,
    /// From `start` to below `end`; an empty one is no bound.
    Range {
        /// The first key.
        start: &'a [u8],
        /// The first key after.
        end: &'a [u8],
    },
    /// All that begin with it.
    Prefix(&'a [u8]),
}

impl<'a> Keys<'a> {
    fn encode(self, out: &mut Vec<u8>) {
        match self {
            Keys::All => {}
            Keys::Prefix(prefix) => writer::bytes_always(out, 3, prefix),
            Keys::Range { start, end } => writer::message(out, 2, |out| {
                writer::bytes(out, 1, start);
                writer::bytes(out, 2, end);
            }),
        }
    }

    fn merge_range(&mut self, value: Value<'a>) -> Result<(), Fault> {
        let (mut start, mut end) = match *self {
            Keys::Range { start, end } => (start, end),
            _ => (&[][..], &[][..]),
        };
        let visit = |number, value: Value<'a>| {
            match number {
                1 => start = value.bytes()?,
                2 => end = value.bytes()?,
                _ => {}
            }
            Ok(())
        };
        Reader::new(value.bytes()?)
            .for_each(visit)
            .map_err(|error| error.fault)?;
        *self = Keys::Range { start, end };
        Ok(())
    }

    fn check(self) -> Result<Keys<'a>, Invalid> {
        match self {
            Keys::Range { start, end } if !end.is_empty() && end < start => {
                Err(Invalid::rule("range", "has an end below its start"))
            }
            keys => Ok(keys),
        }
    }
}

/// A request to read a range of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanRequest<'a> {
    /// Name of the database, empty for the default.
    pub database: &'a str,
    /// Which keys.
    pub keys: Keys<'a>,
    /// In which order.
    pub direction: Direction,
    /// Without values.
    pub keys_only: bool,
    /// 0: none.
    pub limit: u64,
    /// Go on after this key.
    pub start_after: Option<&'a [u8]>,
}

impl<'a> ScanRequest<'a> {
    /// Decodes the message.
    pub fn decode(message: &'a [u8]) -> Result<ScanRequest<'a>, Invalid> {
        let mut request = ScanRequest {
            database: "",
            keys: Keys::All,
            direction: Direction::Forward,
            keys_only: false,
            limit: 0,
            start_after: None,
        };
        let names = &[
            "",
            "database",
            "range",
            "prefix",
            "direction",
            "keys_only",
            "limit",
            "start_after",
        ];
        let (mut direction, mut refused) = (0, None);
        decode_fields(message, names, |number, value| {
            match number {
                1 => request.database = value.string()?,
                2 => request.keys.merge_range(value)?,
                3 => request.keys = Keys::Prefix(value.bytes()?),
                4 => direction = value.int32()?,
                5 => request.keys_only = value.bool()?,
                6 => request.limit = value.varint()?,
                7 => request.start_after = Some(value.bytes()?),
                _ => refused = Invalid::not_served(number).or(refused),
            }
            Ok(())
        })?;
        if let Some(refused) = refused {
            return Err(refused);
        }
        request.direction = match direction {
            0 | 1 => Direction::Forward,
            2 => Direction::Backward,
            _ => {
                return Err(Invalid::rule(
                    "direction",
                    "is not a Direction that this server knows",
                ));
            }
        };
        request.keys = request.keys.check()?;
        Ok(request)
    }

    /// Appends the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        writer::bytes(out, 1, self.database.as_bytes());
        self.keys.encode(out);
        writer::uint64(
            out,
            4,
            if self.direction == Direction::Backward {
                2
            } else {
                1
            },
        );
        writer::bool(out, 5, self.keys_only);
        writer::uint64(out, 6, self.limit);
        if let Some(key) = self.start_after {
            writer::bytes_always(out, 7, key);
        }
    }
}

/// The numbers of the fields of a page, for those who write it piece by piece.
pub(crate) mod page_field {
    pub(crate) const ENTRIES: u32 = 1;
    pub(crate) const SEQUENCE: u32 = 2;
    pub(crate) const LAST: u32 = 3;
    pub(crate) const HISTORY_ID: u32 = 4;
}

/// One page of a scan. Its entries are decoded as they are walked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScanPage<'a> {
    /// The view it was read from.
    pub point: ResumePoint,
    /// Whether the scan is complete.
    pub last: bool,
    message: &'a [u8],
}

impl<'a> ScanPage<'a> {
    /// Decodes all but the entries.
    pub fn decode(message: &'a [u8]) -> Result<ScanPage<'a>, Invalid> {
        let mut page = ScanPage {
            message,
            ..ScanPage::default()
        };
        decode_fields(
            message,
            &["", "entries", "sequence", "last", "history_id"],
            |number, value| {
                match number {
                    page_field::ENTRIES => drop(value.bytes()?),
                    page_field::SEQUENCE => page.point.sequence = value.varint()?,
                    page_field::LAST => page.last = value.bool()?,
                    page_field::HISTORY_ID => page.point.history_id = decode_history_id(value)?,
                    _ => {}
                }
                Ok(())
            },
        )?;
        Ok(page)
    }

    /// Appends which view a page was read from.
    pub(crate) fn encode_point(out: &mut Vec<u8>, point: ResumePoint) {
        writer::uint64(out, page_field::SEQUENCE, point.sequence);
        encode_history_id(out, page_field::HISTORY_ID, point.history_id);
    }

    /// The entries, in order.
    pub fn entries(&self) -> impl Iterator<Item = Result<EntryMessage<'a>, Invalid>> + use<'a> {
        super::batch::repeated(self.message, page_field::ENTRIES, "entries").map(|entry| {
            let mut decoded = None;
            let malformed = |fault| Invalid {
                field: "entries",
                rule: Rule::Malformed(fault),
            };
            EntryMessage::merge_into(&mut decoded, Value::Bytes(entry?)).map_err(malformed)?;
            Ok(decoded.unwrap_or_default())
        })
    }

    /// Appends a page.
    pub fn encode<'e>(
        out: &mut Vec<u8>,
        point: ResumePoint,
        last: bool,
        entries: impl IntoIterator<Item = EntryMessage<'e>>,
    ) {
        ScanPage::encode_point(out, point);
        for entry in entries {
            writer::message(out, page_field::ENTRIES, |out| entry.encode(out));
        }
        writer::bool(out, page_field::LAST, last);
    }
}

/// A request to count a range of keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CountRequest<'a> {
    /// Name of the database, empty for the default.
    pub database: &'a str,
    /// Which keys.
    pub keys: Keys<'a>,
    /// Whether an estimate will do.
    pub estimate: bool,
}

impl<'a> CountRequest<'a> {
    /// Decodes the message.
    pub fn decode(message: &'a [u8]) -> Result<CountRequest<'a>, Invalid> {
        let mut request = CountRequest::default();
        let (mut precision, mut refused) = (0, None);
        decode_fields(
            message,
            &["", "database", "range", "prefix", "precision"],
            |number, value| {
                match number {
                    1 => request.database = value.string()?,
                    2 => request.keys.merge_range(value)?,
                    3 => request.keys = Keys::Prefix(value.bytes()?),
                    4 => precision = value.int32()?,
                    _ => refused = Invalid::not_served(number).or(refused),
                }
                Ok(())
            },
        )?;
        if let Some(refused) = refused {
            return Err(refused);
        }
        request.estimate = match precision {
            0 | 1 => false,
            2 => true,
            _ => {
                return Err(Invalid::rule(
                    "precision",
                    "is not a CountPrecision that this server knows",
                ));
            }
        };
        request.keys = request.keys.check()?;
        Ok(request)
    }

    /// Appends the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        writer::bytes(out, 1, self.database.as_bytes());
        self.keys.encode(out);
        writer::uint64(out, 4, if self.estimate { 2 } else { 0 });
    }
}

/// The answer to a Count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CountResponse {
    /// How many.
    pub count: u64,
    /// False: an estimate.
    pub exact: bool,
    /// From how many views it was counted.
    pub views: u64,
    /// The last of them.
    pub point: ResumePoint,
}

impl CountResponse {
    /// Appends the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        writer::uint64(out, 1, self.count);
        writer::bool(out, 2, self.exact);
        writer::uint64(out, 3, self.views);
        writer::uint64(out, 4, self.point.sequence);
        encode_history_id(out, 5, self.point.history_id);
    }

    /// Decodes the message.
    pub fn decode(message: &[u8]) -> Result<CountResponse, Invalid> {
        let mut response = CountResponse::default();
        decode_fields(
            message,
            &["", "count", "exact", "views", "sequence", "history_id"],
            |number, value| {
                match number {
                    1 => response.count = value.varint()?,
                    2 => response.exact = value.bool()?,
                    3 => response.views = value.varint()?,
                    4 => response.point.sequence = value.varint()?,
                    5 => response.point.history_id = decode_history_id(value)?,
                    _ => {}
                }
                Ok(())
            },
        )?;
        Ok(response)
    }
}
