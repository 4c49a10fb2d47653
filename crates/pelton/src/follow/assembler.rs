//! Groups of a leader, put together from the parts in which they come.

use api::replication::LogGroup;
use store::log::FollowedGroup;

use crate::limits::FOLLOWED_GROUP_BYTES_MAX;

/// Puts groups together. Whatever does not fit is refused: what was lost on the way comes once more
/// over another connection.
#[derive(Debug, Default)]
pub struct Assembler {
    /// What is there of the group that is not whole.
    body: Vec<u8>,
}

/// Why a part does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AssemblyError {
    /// It is larger than any group.
    #[error("the leader has sent a group of {0} bytes, which is more than a group can have")]
    TooLarge(u64),
    /// It has more bytes than its group.
    #[error("the leader has sent parts of a group that do not fit together")]
    Parts,
    /// Its checksum is wrong.
    #[error("a group of the leader has changed on its way")]
    Checksum,
}

impl Assembler {
    /// Whether some of a group is there, and the rest is not.
    #[cfg(test)]
    fn is_within(&self) -> bool {
        !self.body.is_empty()
    }

    /// Takes the next part; returns its group when that is whole.
    pub fn add(&mut self, part: &LogGroup<'_>) -> Result<Option<FollowedGroup>, AssemblyError> {
        if part.body_bytes > FOLLOWED_GROUP_BYTES_MAX {
            return Err(AssemblyError::TooLarge(part.body_bytes));
        }
        self.body.extend_from_slice(part.data);
        let bytes = self.body.len() as u64;
        if bytes < part.body_bytes {
            return match part.data.is_empty() {
                true => Err(AssemblyError::Parts),
                false => Ok(None),
            };
        }
        let body = std::mem::take(&mut self.body);
        if bytes > part.body_bytes {
            return Err(AssemblyError::Parts);
        }
        if store::blob::crc32c(&body) != part.crc32c {
            return Err(AssemblyError::Checksum);
        }
        Ok(Some(FollowedGroup {
            first_sequence: part.first_sequence,
            last_sequence: part.last_sequence,
            wall_ms: part.wall_ms,
            records: part.records,
            body: body.into(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part<'a>(body: &[u8], data: &'a [u8]) -> LogGroup<'a> {
        LogGroup {
            first_sequence: 3,
            last_sequence: 4,
            wall_ms: 5,
            records: 1,
            body_bytes: body.len() as u64,
            crc32c: store::blob::crc32c(body),
            data,
        }
    }

    #[test]
    fn a_group_is_whole_when_its_last_part_has_come() {
        let mut assembler = Assembler::default();
        let body = b"records of a group";
        for size in [1, 5, body.len()] {
            let mut parts = body.chunks(size).peekable();
            while let Some(data) = parts.next() {
                let added = assembler.add(&part(body, data)).expect("it fits");
                assert_eq!(added.is_some(), parts.peek().is_none());
                assert_eq!(assembler.is_within(), parts.peek().is_some());
                if let Some(group) = added {
                    assert_eq!((&*group.body, group.last_sequence), (&body[..], 4));
                }
            }
        }
        let empty = assembler.add(&part(b"", b"")).expect("it fits");
        assert!(empty.is_some_and(|group| group.body.is_empty()));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let add = |part: &LogGroup<'_>| Assembler::default().add(part).err();
        let large = LogGroup {
            body_bytes: FOLLOWED_GROUP_BYTES_MAX + 1,
            ..part(b"", b"")
        };
        let expected = AssemblyError::TooLarge(FOLLOWED_GROUP_BYTES_MAX + 1);
        assert_eq!(add(&large), Some(expected));
        assert_eq!(add(&part(b"ab", b"abc")), Some(AssemblyError::Parts));
        assert_eq!(add(&part(b"ab", b"")), Some(AssemblyError::Parts));
        assert_eq!(add(&part(b"ab", b"ac")), Some(AssemblyError::Checksum));
    }
}
