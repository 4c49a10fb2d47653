//! Conditions in the headers of a request (RFC 9110 section 13). The version of a blob is its
//! entity tag; it has no date that a caller could name.

use super::range::{ContentPart, part};
use crate::call::Metadata;
use crate::status::Status;

/// The entity tag of a version.
pub(super) fn etag(version: u64) -> String {
    format!("\"{version}\"")
}

fn version_of(tag: &[u8]) -> Option<u64> {
    let tag = tag.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    std::str::from_utf8(tag).ok()?.parse().ok()
}

/// How tags of which one is weak are compared (RFC 9110 section 8.8.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TagComparison {
    Strong,
    Weak,
}

/// Whether a list of entity tags names a version. `*` names all that are there.
fn names(list: &[u8], version: u64, comparison: TagComparison) -> bool {
    let is_it = |tag: &[u8]| {
        let tag = tag.trim_ascii();
        let opaque = match comparison {
            TagComparison::Strong => tag,
            TagComparison::Weak => tag.strip_prefix(b"W/").unwrap_or(tag),
        };
        version_of(opaque) == Some(version)
    };
    list.trim_ascii() == b"*" || list.split(|&byte| byte == b',').any(is_it)
}

/// What a request that changes something makes its condition: the version that must be there, 0 for
/// none. A condition that cannot be kept is refused, since passing it over would replace what the
/// caller wants to keep.
pub(super) fn of_change(metadata: &dyn Metadata) -> Result<Option<u64>, Status> {
    match metadata.first(b"if-none-match") {
        Some(b"*") => return Ok(Some(0)),
        Some(_) => {
            let text = "if-none-match of a request that changes something can only be *";
            return Err(Status::invalid_argument(text));
        }
        None => {}
    }
    let Some(tag) = metadata.first(b"if-match") else {
        return Ok(None);
    };
    version_of(tag).map(Some).ok_or_else(|| {
        Status::invalid_argument("if-match has something else than the etag of a version")
    })
}

/// What a request to read asks for, and on which conditions.
#[derive(Default)]
pub(super) struct Wanted {
    if_match: Option<Box<[u8]>>,
    if_none_match: Option<Box<[u8]>>,
    if_range: Option<Box<[u8]>>,
    range: Option<Box<[u8]>>,
}

/// What there is for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConditionResult {
    /// The caller has it already.
    NotModified,
    /// Not what the caller wants it to be.
    Unmet,
    /// What to send.
    Part(ContentPart),
}

impl Wanted {
    pub(super) fn of(metadata: &dyn Metadata) -> Wanted {
        let of = |name: &[u8]| metadata.first(name).map(Into::into);
        Wanted {
            if_match: of(b"if-match"),
            if_none_match: of(b"if-none-match"),
            if_range: of(b"if-range"),
            range: of(b"range"),
        }
    }

    /// In the order of RFC 9110 section 13.2.2.
    pub(super) fn of_version(&self, version: u64, size_bytes: u64) -> ConditionResult {
        let named = |list: &Option<Box<[u8]>>, comparison| {
            let list = list.as_deref();
            list.map(|list| names(list, version, comparison))
        };
        if named(&self.if_match, TagComparison::Strong) == Some(false) {
            return ConditionResult::Unmet;
        }
        if named(&self.if_none_match, TagComparison::Weak) == Some(true) {
            return ConditionResult::NotModified;
        }
        // A part is wanted only of the version of which the caller has the rest. A date names none.
        let has_rest =
            (self.if_range.as_deref()).is_none_or(|tag| version_of(tag) == Some(version));
        let range = self.range.as_deref().filter(|_| has_rest);
        ConditionResult::Part(part(range, size_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Headers(&'static [(&'static str, &'static str)]);

    impl Metadata for Headers {
        fn first(&self, name: &[u8]) -> Option<&[u8]> {
            let found = self.0.iter().find(|(other, _)| other.as_bytes() == name);
            found.map(|(_, value)| value.as_bytes())
        }
    }

    /// Of version 7, with 100 bytes.
    fn found(headers: &'static [(&'static str, &'static str)]) -> ConditionResult {
        Wanted::of(&Headers(headers)).of_version(7, 100)
    }

    const WHOLE: ConditionResult = ConditionResult::Part(ContentPart::Whole);

    #[test]
    fn what_the_caller_has_is_not_sent_again() {
        for list in ["\"7\"", "W/\"7\"", "\"x\", \"7\"", " W/\"6\",W/\"7\" ", "*"] {
            let headers = Box::leak(Box::new([("if-none-match", list)]));
            assert_eq!(found(headers), ConditionResult::NotModified, "{list}");
        }
        for list in ["\"6\"", "7", "\"77\"", "W/\"6\", \"x\"", "", "\"7"] {
            let headers = Box::leak(Box::new([("if-none-match", list)]));
            assert_eq!(found(headers), WHOLE, "{list}");
        }
    }

    #[test]
    fn what_is_not_as_wanted_is_not_sent() {
        assert_eq!(found(&[("if-match", "\"6\"")]), ConditionResult::Unmet);
        assert_eq!(found(&[("if-match", "\"x\"")]), ConditionResult::Unmet);
        assert_eq!(found(&[("if-match", "W/\"7\"")]), ConditionResult::Unmet);
        assert_eq!(found(&[("if-match", "\"6\", \"7\"")]), WHOLE);
        assert_eq!(found(&[("if-match", "*")]), WHOLE);
    }

    #[test]
    fn a_part_is_only_of_the_version_that_the_caller_has() {
        let part = ConditionResult::Part(ContentPart::Range(10, 20));
        const RANGE: (&str, &str) = ("range", "bytes=10-19");
        assert_eq!(found(&[RANGE]), part);
        assert_eq!(found(&[RANGE, ("if-range", "\"7\"")]), part);
        for other in ["\"6\"", "W/\"7\"", "Sat, 21 Nov 2026 00:00:00 GMT"] {
            let headers = Box::leak(Box::new([RANGE, ("if-range", other)]));
            assert_eq!(found(headers), WHOLE, "{other}");
        }
    }

    #[test]
    fn conditions_of_changes_are_kept_or_refused() {
        let of = |headers| of_change(&Headers(headers)).ok();
        assert_eq!(of(&[]), Some(None));
        assert_eq!(of(&[("if-none-match", "*")]), Some(Some(0)));
        assert_eq!(of(&[("if-match", "\"7\"")]), Some(Some(7)));
        assert_eq!(of(&[("if-none-match", "\"7\"")]), None);
        assert_eq!(of(&[("if-match", "*")]), None);
        assert_eq!(of(&[("if-match", "W/\"7\"")]), None);
    }
}
