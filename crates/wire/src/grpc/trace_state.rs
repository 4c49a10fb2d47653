//! What tracing systems say of a trace to each other: the field `tracestate` of W3C Trace Context
//! (<https://www.w3.org/TR/trace-context/>, section 3.3).

use std::fmt;

use crate::limits::{TRACE_STATE_BYTES, TRACE_STATE_MEMBERS};

/// The key of the metadata with it.
pub const TRACESTATE: &str = "tracestate";

/// Bytes of a key, and of a value (sections 3.3.2.2 and 3.3.2.3).
const PART_BYTES: usize = 256;

/// A list of members `key=value`. It is passed on as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceState(Box<str>);

impl TraceState {
    /// Reads the fields of this name of one request, which are one list. `None`: there is nothing
    /// in it, or it is malformed or too long, so that it counts as not there.
    pub fn read<'a>(values: impl Iterator<Item = &'a [u8]>) -> Option<TraceState> {
        let mut list = String::new();
        let mut members: Vec<&[u8]> = Vec::new();
        for member in values.flat_map(|value| value.split(|&byte| byte == b',')) {
            let member = member.trim_ascii();
            if member.is_empty() {
                continue;
            }
            let key = key_of(member)?;
            let separator = usize::from(!list.is_empty());
            let is_full = members.len() >= TRACE_STATE_MEMBERS
                || list.len() + separator + member.len() > TRACE_STATE_BYTES;
            if is_full || members.contains(&key) {
                return None;
            }
            members.push(key);
            if separator > 0 {
                list.push(',');
            }
            list.push_str(str::from_utf8(member).ok()?);
        }
        (!list.is_empty()).then(|| TraceState(list.into()))
    }

    /// Returns it as one value.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TraceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns the key of a member; `None`: it is malformed.
fn key_of(member: &[u8]) -> Option<&[u8]> {
    let at = member.iter().position(|&byte| byte == b'=')?;
    let (key, rest) = member.split_at_checked(at)?;
    let value = rest.get(1..)?;
    let is_first = |byte: &u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9');
    let is_of_key = |byte: &u8| is_first(byte) || matches!(byte, b'_' | b'-' | b'*' | b'/' | b'@');
    let is_of_value = |byte: &u8| matches!(byte, b' '..=b'~') && !matches!(byte, b',' | b'=');
    let is_well_formed = key.first().is_some_and(is_first)
        && key.iter().all(is_of_key)
        && !value.is_empty()
        && value.iter().all(is_of_value)
        && key.len() <= PART_BYTES
        && value.len() <= PART_BYTES;
    is_well_formed.then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(values: &[&str]) -> Option<String> {
        let state = TraceState::read(values.iter().map(|value| value.as_bytes()));
        state.map(|state| state.to_string())
    }

    #[test]
    fn several_fields_are_one_list_and_empty_members_are_left_out() {
        assert_eq!(read(&["a=1"]).as_deref(), Some("a=1"));
        let two = ["rojo=00f0, ,t@v=a b~!", "", "0-x=y"];
        assert_eq!(read(&two).as_deref(), Some("rojo=00f0,t@v=a b~!,0-x=y"));
        for nothing in [&[][..], &[""], &[" , "]] {
            assert_eq!(read(nothing), None);
        }
    }

    #[test]
    fn a_malformed_list_counts_as_not_there() {
        for wrong in [
            "a", "=1", "a=", "A=1", "_a=1", "a b=1", "a=1=2", "a=\u{e9}", "a=\t1\t2", "a=1,a=2",
            "a=1,b",
        ] {
            assert_eq!(read(&[wrong]), None, "{wrong}");
        }
        let long = format!("a={}", "v".repeat(PART_BYTES + 1));
        assert_eq!(read(&[&long]), None);
    }

    #[test]
    fn a_list_is_bounded_in_members_and_bytes() {
        let members = |count: usize| {
            let all: Vec<_> = (0..count).map(|number| format!("k{number}=v")).collect();
            all.join(",")
        };
        assert!(read(&[&members(TRACE_STATE_MEMBERS)]).is_some());
        assert_eq!(read(&[&members(TRACE_STATE_MEMBERS + 1)]), None);
        let half = "v".repeat(TRACE_STATE_BYTES / 2 - 3);
        assert!(read(&[&format!("a={half},b={half}v")]).is_some_and(|list| list.len() == 512));
        assert_eq!(read(&[&format!("a={half},b={half}vv")]), None);
    }
}
