//! The Range header (RFC 9110 section 14.2).

/// Which part of a content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContentPart {
    /// All of it.
    Whole,
    /// From the first to below the second byte.
    Range(u64, u64),
    /// None of it is there.
    Unsatisfiable,
}

/// What a header asks for. One that is not understood, or asks for several ranges, is passed over,
/// as the RFC allows.
pub(super) fn part(header: Option<&[u8]>, size_bytes: u64) -> ContentPart {
    let range = header
        .and_then(|header| std::str::from_utf8(header).ok())
        .and_then(|header| header.strip_prefix("bytes="))
        .and_then(|range| range.split_once('-'));
    // Digits that are more than a number can hold mean the end, wherever that is.
    let number = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| text.parse::<u64>().unwrap_or(u64::MAX))
    };
    match range {
        Some(("", last)) => match number(last) {
            None => ContentPart::Whole,
            Some(0) => ContentPart::Unsatisfiable,
            Some(_) if size_bytes == 0 => ContentPart::Unsatisfiable,
            Some(last) => ContentPart::Range(size_bytes.saturating_sub(last), size_bytes),
        },
        Some((first, last)) => {
            let Some(first) = number(first) else {
                return ContentPart::Whole;
            };
            let last = match (last, number(last)) {
                ("", _) => u64::MAX,
                (_, Some(last)) if last >= first => last,
                _ => return ContentPart::Whole,
            };
            match first >= size_bytes {
                true => ContentPart::Unsatisfiable,
                false => ContentPart::Range(first, last.saturating_add(1).min(size_bytes)),
            }
        }
        None => ContentPart::Whole,
    }
}

#[test]
fn ranges_are_those_of_the_rfc() {
    let of = |text: &str| part(Some(text.as_bytes()), 10_000);
    assert_eq!(of("bytes=0-499"), ContentPart::Range(0, 500));
    assert_eq!(of("bytes=500-999"), ContentPart::Range(500, 1_000));
    assert_eq!(of("bytes=-500"), ContentPart::Range(9_500, 10_000));
    assert_eq!(of("bytes=9500-"), ContentPart::Range(9_500, 10_000));
    assert_eq!(of("bytes=0-0"), ContentPart::Range(0, 1));
    assert_eq!(
        of("bytes=9999-99999999999999999999"),
        ContentPart::Range(9_999, 10_000)
    );
    assert_eq!(of("bytes=-20000"), ContentPart::Range(0, 10_000));
    assert_eq!(of("bytes=10000-"), ContentPart::Unsatisfiable);
    assert_eq!(of("bytes=-0"), ContentPart::Unsatisfiable);
    for passed_over in [
        "bytes=0-1,3-4",
        "bytes=5-3",
        "lines=1-2",
        "bytes=a-b",
        "bytes=-",
        "",
    ] {
        assert_eq!(of(passed_over), ContentPart::Whole, "{passed_over}");
    }
    assert_eq!(part(None, 5), ContentPart::Whole);
    assert_eq!(part(Some(b"bytes=-5"), 0), ContentPart::Unsatisfiable);
}
