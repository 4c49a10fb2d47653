//! What is known of a blob: its entry in the hidden index.

use super::limits;
use crate::database_id::DatabaseId;

/// The version of the encoding, its first byte.
const VERSION: u8 = 1;

/// Bytes of the fields of fixed length: version, database, number, size, checksum, time, length of
/// the SHA-256.
const HEAD_BYTES: usize = 1 + 4 + 8 + 8 + 4 + 8 + 1;

/// What is known of a blob. Its version is that of its entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Description<'a> {
    /// The database that it belongs to.
    pub database: DatabaseId,
    /// Names the file of the content.
    pub number: u64,
    /// Bytes of content.
    pub size_bytes: u64,
    /// CRC32C of the content.
    pub crc32c: u32,
    /// When it was completed, in milliseconds since 1970.
    pub created_ms: u64,
    /// SHA-256 of the content, if the uploader gave it.
    pub sha256: Option<[u8; 32]>,
    /// As the uploader gave it.
    pub content_type: &'a str,
}

impl<'a> Description<'a> {
    /// Appends the value of its entry.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(VERSION);
        out.extend_from_slice(&self.database.0.to_le_bytes());
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&self.size_bytes.to_le_bytes());
        out.extend_from_slice(&self.crc32c.to_le_bytes());
        out.extend_from_slice(&self.created_ms.to_le_bytes());
        let sha256 = self.sha256.as_ref().map_or(&[][..], |sha256| &sha256[..]);
        out.push(sha256.len() as u8);
        out.extend_from_slice(sha256);
        out.extend_from_slice(self.content_type.as_bytes());
    }

    /// `None`: the value is none that this version writes.
    pub fn decode(value: &'a [u8]) -> Option<Description<'a>> {
        let (head, rest) = value.split_at_checked(HEAD_BYTES)?;
        let number_at = |at: usize| {
            let bytes = head[at..at + 8].try_into();
            u64::from_le_bytes(bytes.expect("the slice has this length"))
        };
        let (sha256, content_type) = rest.split_at_checked(usize::from(head[HEAD_BYTES - 1]))?;
        let sha256 = match sha256.len() {
            0 => None,
            _ => Some(sha256.try_into().ok()?),
        };
        let short_at = |at: usize| {
            let bytes = head[at..at + 4].try_into();
            u32::from_le_bytes(bytes.expect("the slice has this length"))
        };
        (head[0] == VERSION).then_some(Description {
            database: DatabaseId(short_at(1)),
            number: number_at(5),
            size_bytes: number_at(13),
            crc32c: short_at(21),
            created_ms: number_at(25),
            sha256,
            content_type: std::str::from_utf8(content_type).ok()?,
        })
    }
}

/// The key of a blob's description: the number of its database, so that those of one stand
/// together, and its name.
pub fn key(database: DatabaseId, name: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(4 + name.len());
    key.extend_from_slice(&database.0.to_be_bytes());
    key.extend_from_slice(name.as_bytes());
    key
}

/// The database and the name of a key.
pub fn split_key(key: &[u8]) -> Option<(DatabaseId, &str)> {
    let (database, name) = key.split_first_chunk()?;
    let name = std::str::from_utf8(name).ok()?;
    Some((DatabaseId(u32::from_be_bytes(*database)), name))
}

/// What is wrong with the name of a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// It has no bytes, or too many.
    #[error("has {0} bytes; a blob's name has 1 to {max}", max = limits::NAME_BYTES)]
    Length(usize),
    /// There is a control character in it.
    #[error("has a control character in it")]
    Control,
    /// There is `.` or `..` between its slashes.
    #[error("has \".\" or \"..\" as a part between slashes")]
    Dots,
}

/// Checks the name of a blob. No file is named after it, but others may write it to one of that
/// name.
pub fn check_name(name: &str) -> Result<(), NameError> {
    if !(1..=limits::NAME_BYTES).contains(&name.len()) {
        return Err(NameError::Length(name.len()));
    }
    if name.chars().any(char::is_control) {
        return Err(NameError::Control);
    }
    if name.split('/').any(|part| part == "." || part == "..") {
        return Err(NameError::Dots);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_reads_as_it_was_written() {
        for sha256 in [None, Some([7; 32])] {
            let description = Description {
                database: DatabaseId(5),
                number: 0x0123_4567_89ab_cdef,
                size_bytes: 1 << 40,
                crc32c: 0xdead_beef,
                created_ms: 1_700_000_000_000,
                sha256,
                content_type: "text/plain",
            };
            let mut value = Vec::new();
            description.encode(&mut value);
            assert_eq!(Description::decode(&value), Some(description));
            assert_eq!(Description::decode(&value[..HEAD_BYTES - 1]), None);
            value[0] = 2;
            assert_eq!(Description::decode(&value), None);
        }
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        for good in [
            "a", "a/b", "..a", "a..", ".hidden", "a/.../b", "/", "ä ö", "a//b",
        ] {
            assert_eq!(check_name(good), Ok(()), "{good:?}");
        }
        for bad in ["..", ".", "../a", "a/..", "a/../b", "./a", "a/."] {
            assert_eq!(check_name(bad), Err(NameError::Dots), "{bad:?}");
        }
        for bad in ["a\nb", "\0", "a\u{7f}", "\u{85}"] {
            assert_eq!(check_name(bad), Err(NameError::Control), "{bad:?}");
        }
        assert_eq!(check_name(""), Err(NameError::Length(0)));
        assert_eq!(check_name(&"a".repeat(1024)), Ok(()));
        assert_eq!(check_name(&"a".repeat(1025)), Err(NameError::Length(1025)));
    }

    #[test]
    fn keys_stand_together_by_database() {
        let key = key(DatabaseId(258), "x/y");
        assert_eq!(key, b"\0\0\x01\x02x/y");
        assert_eq!(split_key(&key), Some((DatabaseId(258), "x/y")));
        assert_eq!(split_key(b"\0\0"), None);
    }
}
