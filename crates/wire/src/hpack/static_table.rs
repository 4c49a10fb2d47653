//! The static table. RFC 7541 appendix A.

use super::names::{self, KnownName};

/// The highest index of the static table; indexes start with 1.
pub(super) const LEN: usize = ENTRIES.len();

/// One entry as a piece of [`TEXT`]: the name, then directly the value.
#[derive(Clone, Copy)]
pub(super) struct StaticEntry {
    pub(super) start: u16,
    pub(super) name_len: u8,
    pub(super) value_len: u8,
    pub(super) known: KnownName,
}

impl StaticEntry {
    pub(super) fn name(&self) -> &'static [u8] {
        let start = usize::from(self.start);
        &TEXT[start..start + usize::from(self.name_len)]
    }

    pub(super) fn value(&self) -> &'static [u8] {
        let start = usize::from(self.start) + usize::from(self.name_len);
        &TEXT[start..start + usize::from(self.value_len)]
    }
}

/// The entry with this index, or none if it is 0 or belongs to the dynamic table.
#[inline]
pub(super) fn get(index: usize) -> Option<&'static StaticEntry> {
    TABLE.get(index.wrapping_sub(1))
}

/// Where a field stands in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StaticMatch {
    /// The index of an entry with this name and value.
    Field(usize),
    /// The index of the first entry with this name.
    Name(usize),
    Nothing,
}

/// Looks a field up, for the encoder.
pub(super) fn find(name: &[u8], value: &[u8]) -> StaticMatch {
    let Some(first) = find_name(name) else {
        return StaticMatch::Nothing;
    };
    // The entries of one name stand side by side.
    for index in first..=LEN {
        let entry = &TABLE[index - 1];
        if entry.name() != name {
            break;
        }
        if entry.value() == value {
            return StaticMatch::Field(index);
        }
    }
    StaticMatch::Name(first)
}

fn find_name(name: &[u8]) -> Option<usize> {
    let mut at = bucket(name);
    // The table is less than half full, so that an empty place ends each search.
    while BUCKETS[at] != 0 {
        let index = usize::from(BUCKETS[at]);
        if TABLE[index - 1].name() == name {
            return Some(index);
        }
        at = (at + 1) % BUCKETS.len();
    }
    None
}

const fn bucket(name: &[u8]) -> usize {
    if name.is_empty() {
        return 0;
    }
    let (first, last) = (name[0] as usize, name[name.len() - 1] as usize);
    (name.len() * 19 + first * 5 + last * 7) % BUCKET_COUNT
}

const BUCKET_COUNT: usize = 128;

/// Open addressing over the distinct names: the index of the first entry of a name, or 0.
static BUCKETS: [u8; BUCKET_COUNT] = {
    let mut buckets = [0u8; BUCKET_COUNT];
    let mut index = 1;
    while index <= LEN {
        let name = ENTRIES[index - 1].0.as_bytes();
        let is_first = index == 1 || !names::equal(name, ENTRIES[index - 2].0.as_bytes());
        if is_first {
            let mut at = bucket(name);
            while buckets[at] != 0 {
                at = (at + 1) % BUCKET_COUNT;
            }
            buckets[at] = index as u8;
        }
        index += 1;
    }
    buckets
};

const TEXT_LEN: usize = {
    let mut len = 0;
    let mut at = 0;
    while at < LEN {
        len += ENTRIES[at].0.len() + ENTRIES[at].1.len();
        at += 1;
    }
    len
};

/// All names and values one after the other.
pub(super) static TEXT: [u8; TEXT_LEN] = {
    let mut text = [0u8; TEXT_LEN];
    let mut used = 0;
    let mut entry = 0;
    while entry < LEN {
        let (name, value) = (ENTRIES[entry].0.as_bytes(), ENTRIES[entry].1.as_bytes());
        let mut at = 0;
        while at < name.len() + value.len() {
            text[used] = if at < name.len() {
                name[at]
            } else {
                value[at - name.len()]
            };
            used += 1;
            at += 1;
        }
        entry += 1;
    }
    text
};

static TABLE: [StaticEntry; LEN] = {
    let mut table = [StaticEntry {
        start: 0,
        name_len: 0,
        value_len: 0,
        known: KnownName::Other,
    }; LEN];
    let mut start = 0;
    let mut at = 0;
    while at < LEN {
        let (name, value) = (ENTRIES[at].0.as_bytes(), ENTRIES[at].1.as_bytes());
        table[at] = StaticEntry {
            start: start as u16,
            name_len: name.len() as u8,
            value_len: value.len() as u8,
            known: KnownName::of(name),
        };
        start += name.len() + value.len();
        at += 1;
    }
    table
};

const ENTRIES: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_is_found_at_its_index() {
        for (at, (name, value)) in ENTRIES.iter().enumerate() {
            let entry = get(at + 1).expect("indexes start with 1");
            assert_eq!(
                (entry.name(), entry.value()),
                (name.as_bytes(), value.as_bytes())
            );
            assert_eq!(
                find(name.as_bytes(), value.as_bytes()),
                StaticMatch::Field(at + 1)
            );
        }
        assert!(get(0).is_none() && get(LEN + 1).is_none());
    }

    #[test]
    fn unknown_values_and_names() {
        assert_eq!(find(b":status", b"418"), StaticMatch::Name(8));
        assert_eq!(find(b":path", b"/a"), StaticMatch::Name(4));
        assert_eq!(find(b"grpc-status", b"0"), StaticMatch::Nothing);
        assert_eq!(find(b"", b""), StaticMatch::Nothing);
    }
}
