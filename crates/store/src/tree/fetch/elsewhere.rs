//! What was read for a call by an engine elsewhere, in the form of what was fetched from a tree.

use std::sync::Arc;

use lsm_tree::Slice;

use super::fetched::{Fetched, FetchedEntry, PageEnd, Prefetched};
use super::plan::{PlannedRead, ReadPlan};
use crate::limits;
use crate::remote_kind::{RemoteEntry, RemoteError};
use crate::tree::key::stored;

/// What an engine returns for a call.
#[derive(Debug)]
pub(crate) enum FromElsewhere {
    /// For its keys, from the first on.
    Keys(Vec<Option<RemoteEntry>>),
    /// Entries of its range, in the order of the database; and the key that the walk has passed,
    /// unless it is complete.
    Page {
        rows: Vec<(Vec<u8>, RemoteEntry)>,
        passed: Option<Vec<u8>>,
    },
    /// How many entries its range has.
    Count { count: u64, is_estimate: bool },
}

impl Fetched {
    /// What was read elsewhere for the call at a place of a plan. Versions there are no sequences,
    /// and have no history.
    pub(crate) fn from_elsewhere(
        plan: Arc<ReadPlan>,
        call: usize,
        result: Result<FromElsewhere, RemoteError>,
    ) -> Fetched {
        let mut entries = Vec::new();
        let prefetched = match result {
            Ok(found) => prefetched(&plan.calls[call].read, found, &mut entries),
            Err(why) => Prefetched::Refused(why),
        };
        let bytes = entries.iter().flatten().map(FetchedEntry::bytes).sum();
        Fetched {
            plan,
            sequence: 0,
            history_id: 0,
            first: call,
            calls: vec![prefetched],
            entries,
            bytes,
        }
    }
}

/// What was found for a call. An answer to another question is one that cannot be right.
fn prefetched(
    planned: &PlannedRead,
    found: FromElsewhere,
    entries: &mut Vec<Option<FetchedEntry>>,
) -> Prefetched {
    match (planned, found) {
        (PlannedRead::Nothing, _) => Prefetched::Nothing,
        (PlannedRead::Keys { keys, .. }, FromElsewhere::Keys(found)) => {
            let shared_bytes = limits::SHARED_VALUE_BYTES;
            let entry = |entry| FetchedEntry::from_elsewhere(&[], entry, shared_bytes);
            entries.extend((found.into_iter().take(keys.len())).map(|found| found.map(entry)));
            Prefetched::Keys {
                first_key: keys.start,
                entries: 0..entries.len(),
            }
        }
        (PlannedRead::Page { page, .. }, FromElsewhere::Page { rows, passed }) => {
            let entry = |(key, entry): (Vec<u8>, RemoteEntry)| {
                Some(FetchedEntry::from_elsewhere(
                    &stored(&key),
                    entry,
                    page.bytes,
                ))
            };
            entries.extend(rows.into_iter().map(entry));
            Prefetched::Page {
                entries: 0..entries.len(),
                end: match passed {
                    None => PageEnd::Complete,
                    Some(key) => PageEnd::Passed(Slice::new(&stored(&key))),
                },
            }
        }
        (PlannedRead::Count { .. }, FromElsewhere::Count { count, is_estimate }) => {
            Prefetched::Count {
                count,
                passed: None,
                is_estimate,
            }
        }
        _ => Prefetched::Refused(RemoteError::Damaged),
    }
}
