//! What says who may do what, with any bytes in it: the fuzz target `identities`.

use service::identities::IdentityRecord;
use service::limits::RIGHT_BYTES_MAX;
use service::rights::{Grant, Right, Rights};

/// Reads bytes as a right, and as an entry of the index of identities: what is read is written as
/// it was, and no right holds that does not stand there.
pub fn fuzz_identities(data: &[u8]) {
    let Some((&name_bytes, data)) = data.split_first() else {
        return;
    };
    if name_bytes == 0 {
        return fuzz_grant(data);
    }
    let (name, value) = data.split_at(usize::from(name_bytes).min(data.len()));
    let Some(record) = IdentityRecord::decode(name, value) else {
        return;
    };
    assert_eq!(record.encode(), value, "{record:?}");
    let identity = &record.identity;
    assert_eq!(identity.name().as_bytes(), name);
    assert!(!identity.is_anonymous());
    for right in Right::ALL {
        let is_written = identity.rights().grants().iter().any(|grant| {
            let text = grant.to_string();
            let found = value
                .windows(text.len())
                .any(|piece| piece == text.as_bytes());
            assert!(found, "{text} stands nowhere");
            Right::ALL
                .iter()
                .any(|one| *one >= right && text == one.name())
        });
        assert_eq!(identity.rights().on_server(right), is_written, "{record:?}");
    }
}

fn fuzz_grant(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let Ok(grant) = text.parse::<Grant>() else {
        return;
    };
    assert!(text.len() <= RIGHT_BYTES_MAX);
    assert_eq!(grant.to_string(), text);
    let rights = Rights::new(vec![grant]);
    let (word, place) = text
        .split_once(':')
        .map_or((text, None), |(word, place)| (word, Some(place)));
    let level = Right::ALL.iter().position(|right| right.name() == word);
    for (number, right) in Right::ALL.into_iter().enumerate() {
        let is_enough = level.is_some_and(|level| level >= number);
        assert_eq!(rights.anywhere(right), is_enough, "{text}");
        assert_eq!(
            rights.on_server(right),
            is_enough && place.is_none(),
            "{text}"
        );
        for database in ["", "orders"] {
            let written = if database.is_empty() {
                "default"
            } else {
                database
            };
            let is_there = place.is_none_or(|place| place == written);
            assert_eq!(
                rights.on_database(right, database),
                is_enough && is_there,
                "{text}"
            );
            for name in ["", "images/a", "images/"] {
                let path = format!("{written}/{name}");
                let has_prefix =
                    place.is_some_and(|place| place.contains('/') && path.starts_with(place));
                let expected = is_enough && (is_there || has_prefix);
                assert_eq!(
                    rights.on_blobs(right, database, name),
                    expected,
                    "{text}: {path}"
                );
            }
        }
    }
}

#[test]
fn the_corpus_of_identities_passes() {
    testkit::replay_corpus("identities", fuzz_identities);
}
