//! What varies in a request: `{{counter}}` and the like, and where they stand in its JSON.

use crate::limits;
use crate::random::Random;

/// Stands before and after the number of a placeholder, where the placeholder was. Unicode has
/// given these to no character, so no text has them.
const MARK_BEGIN: char = '\u{fdd0}';
const MARK_END: char = '\u{fdd1}';

/// What stands for something that varies from request to request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Placeholder {
    /// The number of the request, from 0 on.
    Counter,
    /// A whole number between both, both included.
    Random { least: i64, most: i64 },
    /// So many random bytes.
    RandomBytes { least: usize, most: usize },
    /// So many random letters and digits.
    RandomText { least: usize, most: usize },
    /// A UUID of version 4.
    Uuid,
    /// Nothing: the string in which it stands first is a field of bytes as it is, and not as
    /// base64.
    Utf8,
}

/// What each request draws its values from.
#[derive(Clone, Debug)]
pub(super) struct Draws {
    pub(super) counter: u64,
    pub(super) random: Random,
}

impl Draws {
    fn size(&mut self, least: usize, most: usize) -> usize {
        least + self.random.below((most - least) as u64 + 1) as usize
    }

    /// A number from `least` to `most`, both included.
    pub(super) fn number(&mut self, least: i64, most: i64) -> i64 {
        let above = match most.abs_diff(least).checked_add(1) {
            Some(count) => self.random.below(count),
            None => self.random.next(),
        };
        least.wrapping_add_unsigned(above)
    }
}

const LETTERS: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789ab";
const HEX: &[u8; 16] = b"0123456789abcdef";

impl Placeholder {
    /// Appends what stands in its place in a text or in bytes.
    pub(super) fn append(self, draws: &mut Draws, out: &mut Vec<u8>) {
        match self {
            Placeholder::Counter => append_decimal(i128::from(draws.counter), out),
            Placeholder::Random { least, most } => {
                append_decimal(i128::from(draws.number(least, most)), out);
            }
            Placeholder::RandomBytes { least, most } => {
                let count = draws.size(least, most);
                append_random(count, draws, out, |number| number as u8);
            }
            Placeholder::RandomText { least, most } => {
                let count = draws.size(least, most);
                let letter = |number| LETTERS[number as usize & 63];
                append_random(count, draws, out, letter);
            }
            Placeholder::Uuid => append_uuid(draws, out),
            Placeholder::Utf8 => {}
        }
    }

    /// The most bytes that [`Placeholder::append`] appends.
    pub(super) fn most_bytes(self) -> usize {
        match self {
            // A sign and the digits of 64 bits; the digits and lines of a UUID.
            Placeholder::Counter | Placeholder::Random { .. } => 20,
            Placeholder::RandomBytes { most, .. } | Placeholder::RandomText { most, .. } => most,
            Placeholder::Uuid => 36,
            Placeholder::Utf8 => 0,
        }
    }

    /// The placeholder as it may be written, for messages.
    pub(super) fn name(self) -> &'static str {
        match self {
            Placeholder::Counter => "{{counter}}",
            Placeholder::Random { .. } => "{{random}}",
            Placeholder::RandomBytes { .. } => "{{random_bytes}}",
            Placeholder::RandomText { .. } => "{{random_text}}",
            Placeholder::Uuid => "{{uuid}}",
            Placeholder::Utf8 => "{{utf8}}",
        }
    }
}

fn append_decimal(number: i128, out: &mut Vec<u8>) {
    // A sign and 20 digits.
    let mut text = [0; 21];
    let mut at = text.len();
    let mut rest = number.unsigned_abs() as u64;
    loop {
        at -= 1;
        text[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if number < 0 {
        at -= 1;
        text[at] = b'-';
    }
    out.extend_from_slice(&text[at..]);
}

/// Appends so many bytes, each made of eight random bits.
fn append_random(count: usize, draws: &mut Draws, out: &mut Vec<u8>, byte: impl Fn(u64) -> u8) {
    out.reserve(count);
    let mut left = count;
    while left > 0 {
        let number = draws.random.next();
        let some = left.min(8);
        out.extend((0..some).map(|at| byte(number >> (at * 8))));
        left -= some;
    }
}

/// Appends a UUID of version 4 (RFC 9562, section 5.4).
fn append_uuid(draws: &mut Draws, out: &mut Vec<u8>) {
    let high = draws.random.next() & 0xffff_ffff_ffff_0fff | 0x4000;
    let low = draws.random.next() & 0x3fff_ffff_ffff_ffff | 0x8000_0000_0000_0000;
    for (number, lines) in [(high, [8, 12]), (low, [0, 4])] {
        for digit in 0..16 {
            if lines.contains(&digit) {
                out.push(b'-');
            }
            out.push(HEX[(number >> (60 - digit * 4)) as usize & 15]);
        }
    }
}

/// Reads what stands between the braces.
fn read(text: &str) -> Result<Placeholder, String> {
    let mut words = text.split_ascii_whitespace();
    let name = words.next().unwrap_or_default();
    let arguments: Vec<&str> = words.collect();
    let wrong = || format!("`{{{{{text}}}}}` is nothing that can be filled in; write {KNOWN}");
    match (name, arguments.as_slice()) {
        ("counter", []) => Ok(Placeholder::Counter),
        ("uuid", []) => Ok(Placeholder::Uuid),
        ("utf8", []) => Ok(Placeholder::Utf8),
        ("random", [least, most]) => match (least.parse(), most.parse()) {
            (Ok(least), Ok(most)) if least <= most => Ok(Placeholder::Random { least, most }),
            _ => Err(format!(
                "`{{{{{text}}}}}` has no such numbers; write two whole ones, the smaller first"
            )),
        },
        ("random_bytes", sizes) => {
            let (least, most) = read_sizes(text, sizes)?;
            Ok(Placeholder::RandomBytes { least, most })
        }
        ("random_text", sizes) => {
            let (least, most) = read_sizes(text, sizes)?;
            Ok(Placeholder::RandomText { least, most })
        }
        _ => Err(wrong()),
    }
}

const KNOWN: &str = "{{counter}}, {{random 1 100}}, {{random_bytes 16}}, {{random_text 16}}, \
                     {{uuid}} or {{utf8}}, or \\u007b for a brace itself";

/// Reads one size, or the least and the most.
fn read_sizes(text: &str, sizes: &[&str]) -> Result<(usize, usize), String> {
    let read = |size: &str| {
        let size = size.parse::<usize>().ok();
        size.filter(|&size| size <= limits::MAX_REQUEST_BYTES)
    };
    let both = match sizes {
        [size] => read(size).map(|size| (size, size)),
        [least, most] => read(least).zip(read(most)),
        _ => None,
    };
    both.filter(|(least, most)| least <= most).ok_or_else(|| {
        format!(
            "`{{{{{text}}}}}` has no such sizes; write one, or the least and the most, of at most \
             {} bytes",
            limits::MAX_REQUEST_BYTES
        )
    })
}

/// Takes the placeholders out of a JSON text: a mark stands in the place of each, outside of a
/// string as a string of its own.
///
/// # Errors
/// What is wrong with one of them.
pub(super) fn take_out(json: &str) -> Result<(String, Vec<Placeholder>), String> {
    let mut text = String::with_capacity(json.len());
    let mut placeholders = Vec::new();
    let (mut in_string, mut rest) = (false, json);
    while let Some(next) = rest.chars().next() {
        if let Some(inner) = rest.strip_prefix("{{") {
            let Some((inner, behind)) = inner.split_once("}}") else {
                let shown: String = rest.chars().take(30).collect();
                return Err(format!("`{shown}` has no `}}}}` behind it"));
            };
            if placeholders.len() == limits::MAX_PLACEHOLDERS {
                return Err(format!(
                    "it has more than {} placeholders",
                    limits::MAX_PLACEHOLDERS
                ));
            }
            let quote = if in_string { "" } else { "\"" };
            let number = placeholders.len();
            text.push_str(&format!("{quote}{MARK_BEGIN}{number}{MARK_END}{quote}"));
            placeholders.push(read(inner)?);
            rest = behind;
            continue;
        }
        let is_escape = in_string && next == '\\';
        let taken = match is_escape {
            true => 1 + rest.chars().nth(1).map_or(0, char::len_utf8),
            false => next.len_utf8(),
        };
        in_string ^= next == '"';
        let (copied, behind) = rest.split_at(taken);
        text.push_str(copied);
        rest = behind;
    }
    Ok((text, placeholders))
}

/// A part of a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StringPart<'a> {
    Text(&'a str),
    Filled(Placeholder),
}

/// The parts of a string in which [`take_out`] has left marks; each part but marks is not empty.
pub(super) fn parts<'a>(text: &'a str, placeholders: &[Placeholder]) -> Vec<StringPart<'a>> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once(MARK_BEGIN) {
        let marked = behind.split_once(MARK_END).and_then(|(number, behind)| {
            let number = number.parse::<usize>().ok()?;
            Some((*placeholders.get(number)?, behind))
        });
        let Some((placeholder, behind)) = marked else {
            break;
        };
        if !before.is_empty() {
            parts.push(StringPart::Text(before));
        }
        parts.push(StringPart::Filled(placeholder));
        rest = behind;
    }
    if !rest.is_empty() {
        parts.push(StringPart::Text(rest));
    }
    parts
}

/// Whether a string has a mark.
pub(super) fn is_marked(text: &str) -> bool {
    text.contains(MARK_BEGIN)
}

/// A text of JSON as the user wrote it, nearly: marks become braces, for messages.
pub(super) fn readable(text: &str, placeholders: &[Placeholder]) -> String {
    let shown = |part: &StringPart<'_>| match part {
        StringPart::Text(text) => (*text).to_owned(),
        StringPart::Filled(placeholder) => placeholder.name().to_owned(),
    };
    parts(text, placeholders).iter().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draws() -> Draws {
        Draws {
            counter: 12,
            random: Random::new(3),
        }
    }

    fn appended(placeholder: Placeholder, draws: &mut Draws) -> Vec<u8> {
        let mut out = Vec::new();
        placeholder.append(draws, &mut out);
        assert!(out.len() <= placeholder.most_bytes(), "{placeholder:?}");
        out
    }

    #[test]
    fn placeholders_are_found_inside_and_outside_of_strings() {
        let (text, found) =
            take_out(r#"{"a": {{counter}}, "b\"{": "x{{random -3 7}}y", "c": {"d": {}}}"#)
                .expect("it is well formed");
        let random = Placeholder::Random { least: -3, most: 7 };
        assert_eq!(found, [Placeholder::Counter, random]);
        let json: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
        let marked = json["b\"{"].as_str().expect("a string");
        assert_eq!(
            parts(marked, &found),
            [
                StringPart::Text("x"),
                StringPart::Filled(random),
                StringPart::Text("y")
            ]
        );
        let alone = json["a"].as_str().expect("a string");
        assert_eq!(
            parts(alone, &found),
            [StringPart::Filled(Placeholder::Counter)]
        );
        assert_eq!(readable(marked, &found), "x{{random}}y");
    }

    #[test]
    fn a_text_without_placeholders_stays_as_it_is() {
        for json in [
            r#"{"a": {"b": "}}"}}"#,
            r#"{"a": "\u007b{b}}"}"#,
            "",
            "{",
            r#""\"#,
        ] {
            assert_eq!(take_out(json), Ok((json.to_owned(), vec![])));
        }
        // A mark without a placeholder is text.
        let text = "a\u{fdd0}7\u{fdd1}b";
        assert_eq!(parts(text, &[]), [StringPart::Text(text)]);
    }

    #[test]
    fn what_is_no_placeholder_is_said() {
        for (json, part) in [
            ("{{", "has no `}}` behind it"),
            ("{{}}", "is nothing that can be filled in"),
            ("{{count}}", "write {{counter}}, {{random 1 100}}"),
            ("{{counter 1}}", "is nothing that can be filled in"),
            ("{{random 1}}", "is nothing that can be filled in"),
            ("{{random 2 1}}", "the smaller first"),
            ("{{random a b}}", "write two whole ones"),
            ("{{random_bytes}}", "has no such sizes"),
            ("{{random_bytes 2 1}}", "has no such sizes"),
            ("{{random_text 67108865}}", "at most 67108864 bytes"),
        ] {
            let error = take_out(json).expect_err(json);
            assert!(error.contains(part), "{json}: {error}");
        }
        let many = "{{counter}}".repeat(limits::MAX_PLACEHOLDERS);
        assert!(take_out(&many).is_ok());
        let error = take_out(&format!("{many}{{{{uuid}}}}")).expect_err("too many");
        assert!(error.contains("placeholders"), "{error}");
    }

    #[test]
    fn numbers_are_written_in_decimal() {
        let mut draws = draws();
        assert_eq!(appended(Placeholder::Counter, &mut draws), b"12");
        draws.counter = 0;
        assert_eq!(appended(Placeholder::Counter, &mut draws), b"0");
        draws.counter = u64::MAX;
        assert_eq!(
            appended(Placeholder::Counter, &mut draws),
            u64::MAX.to_string().as_bytes()
        );
        let (least, most) = (i64::MIN, i64::MIN);
        assert_eq!(
            appended(Placeholder::Random { least, most }, &mut draws),
            i64::MIN.to_string().as_bytes()
        );
    }

    #[test]
    fn random_numbers_reach_both_bounds_and_nothing_beyond() {
        let mut draws = draws();
        let mut seen = [0_u32; 3];
        for _ in 0..300 {
            let number = draws.number(-1, 1);
            seen[usize::try_from(number + 1).expect("within the bounds")] += 1;
        }
        assert!(seen.iter().all(|&times| times > 50), "{seen:?}");
        // The whole range has one more numbers than 64 bits count.
        let whole = draws.number(i64::MIN, i64::MAX);
        assert_ne!(whole, draws.number(i64::MIN, i64::MAX));
    }

    #[test]
    fn sizes_lie_between_both_bounds() {
        let mut draws = draws();
        let mut sizes = std::collections::BTreeSet::new();
        for _ in 0..200 {
            let text = appended(Placeholder::RandomText { least: 7, most: 10 }, &mut draws);
            assert!(text.iter().all(u8::is_ascii_alphanumeric), "{text:?}");
            sizes.insert(text.len());
        }
        assert_eq!(sizes.into_iter().collect::<Vec<_>>(), [7, 8, 9, 10]);
        let bytes = Placeholder::RandomBytes {
            least: 40,
            most: 40,
        };
        let (one, two) = (appended(bytes, &mut draws), appended(bytes, &mut draws));
        assert_eq!((one.len(), two.len()), (40, 40));
        assert_ne!(one, two);
    }

    #[test]
    fn uuids_have_their_version_and_variant() {
        let mut draws = draws();
        let text = String::from_utf8(appended(Placeholder::Uuid, &mut draws)).expect("text");
        let lines: Vec<usize> = text.match_indices('-').map(|(at, _)| at).collect();
        assert_eq!((text.len(), lines), (36, vec![8, 13, 18, 23]));
        assert_eq!(text.as_bytes()[14], b'4', "{text}");
        assert!(b"89ab".contains(&text.as_bytes()[19]), "{text}");
        assert_ne!(text.as_bytes(), appended(Placeholder::Uuid, &mut draws));
    }
}
