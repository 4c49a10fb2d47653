//! What an answer says about versions.

use super::history::{Answer, Asked, Seen};
use super::keys::Key;

/// What an answer says about versions: of a key, or of the whole database. Each must not be older
/// than what was known when the call began, and a commit must be newer.
pub fn facts(asked: &Asked, answer: &Answer, floor: u64, out: &mut Vec<(Option<Key>, u64)>) {
    let mut commit = |keys: &[Key], version: u64| {
        assert!(
            version > floor,
            "{asked:?} was committed as {version}, though {floor} was visible before it began"
        );
        out.extend(keys.iter().map(|key| (Some(*key), version)));
    };
    match (asked, answer) {
        (
            Asked::Put { key, .. },
            Answer::Put {
                applied: true,
                version,
                ..
            },
        )
        | (Asked::Append(key), Answer::Append { version, .. })
        | (Asked::Increment(key), Answer::Increment { version, .. }) => commit(&[*key], *version),
        (
            Asked::Delete { .. },
            Answer::Delete {
                deleted: true,
                sequence,
                ..
            },
        ) => commit(&[], *sequence),
        (
            Asked::WriteGroup { .. } | Asked::WriteMany(_) | Asked::Transact { .. },
            Answer::Batch { sequence, .. },
        ) => {
            commit(&asked.writes(), *sequence);
        }
        (Asked::Get(key), Answer::Get(Some(Seen { version, .. })))
        | (Asked::Put { key, .. }, Answer::Put { version, .. })
        | (Asked::Delete { key, .. }, Answer::Delete { version, .. }) => {
            out.push((Some(*key), *version))
        }
        (Asked::WriteGroup { first, .. }, Answer::Failed { found }) => {
            out.push((Some(*first), *found))
        }
        (Asked::ReadMany(_), Answer::Batch { sequence, .. })
        | (Asked::Count(_), Answer::Count { sequence, .. }) => {
            assert!(
                *sequence >= floor,
                "{asked:?} was read at {sequence}, though {floor} was visible before it began"
            );
            out.push((None, *sequence));
        }
        (Asked::Changes { behind }, Answer::Changes { from, through, .. }) => {
            let is_right = behind.map_or(*from >= floor, |behind| *from == behind);
            assert!(is_right, "{floor} was visible before {asked:?} began");
            out.push((None, *through));
        }
        (Asked::Scan { .. }, Answer::Pages(pages)) => {
            let mut at_least = floor;
            for page in pages {
                assert!(
                    page.sequence >= at_least,
                    "{asked:?}: a page of {} behind {at_least}",
                    page.sequence
                );
                at_least = page.sequence;
            }
            out.push((None, at_least));
        }
        _ => {}
    }
}
