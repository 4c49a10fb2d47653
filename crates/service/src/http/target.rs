//! The path of a request: the name of a blob, and in which database.

use crate::status::Status;

/// What comes before the name.
pub(super) const BLOB: &str = "/blob/";

/// Whether a path is `/upload`, with any query or none.
pub(super) fn is_upload(path: &[u8]) -> bool {
    path.split(|&byte| byte == b'?').next() == Some(b"/upload")
}

/// Which blob.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct BlobTarget {
    pub(super) name: String,
    pub(super) database: String,
}

impl BlobTarget {
    /// Returns the database, and the name of the blob in it.
    pub(super) fn place(&self) -> (&str, &str) {
        (&self.database, &self.name)
    }
}

/// Reads `/blob/NAME?database=NAME`, with `%XX` for bytes.
pub(super) fn target(path: &[u8]) -> Result<BlobTarget, Status> {
    let wrong =
        || Status::invalid_argument("the path is not /blob/NAME, in UTF-8, with %XX for bytes");
    let path = path.strip_prefix(BLOB.as_bytes()).ok_or_else(wrong)?;
    let (name, query) = match path.iter().position(|&byte| byte == b'?') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (path, &[][..]),
    };
    let mut target = BlobTarget {
        name: decode(name).ok_or_else(wrong)?,
        database: String::new(),
    };
    for part in query
        .split(|&byte| byte == b'&')
        .filter(|part| !part.is_empty())
    {
        let value = part.strip_prefix(b"database=");
        let value = value.ok_or_else(|| {
            Status::invalid_argument("the query has something else than database=NAME")
        })?;
        target.database = decode(value).ok_or_else(wrong)?;
    }
    Ok(target)
}

fn decode(text: &[u8]) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.iter();
    while let Some(&byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(*rest.next()?).to_digit(16);
        let (high, low) = (digit()?, digit()?);
        bytes.push((16 * high + low) as u8);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_databases_are_read() {
        let read = |path: &str| {
            target(path.as_bytes())
                .ok()
                .map(|one| (one.name, one.database))
        };
        let of = |name: &str, database: &str| Some((name.to_owned(), database.to_owned()));
        assert_eq!(read("/blob/a"), of("a", ""));
        assert_eq!(read("/blob/a/b%20c%C3%BC?database=x"), of("a/b cü", "x"));
        assert_eq!(read("/blob/a%2F..?"), of("a/..", ""));
        assert_eq!(read("/blob/?database="), of("", ""));
        for bad in [
            "/blo/a",
            "/blob/%",
            "/blob/%4",
            "/blob/%zz",
            "/blob/%ff",
            "/blob/a?x=1",
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
