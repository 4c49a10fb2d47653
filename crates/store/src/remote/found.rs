//! What an engine has under the keys of a commit, as a state to decide against.

use super::parts::Part;
use crate::decide::PendingState;
use crate::remote_kind::RemoteEntry;
use crate::value::{Entry, Value};

/// See the module.
pub(super) struct FoundEntries<'a> {
    part: &'a Part,
    found: &'a [Option<RemoteEntry>],
}

impl<'a> FoundEntries<'a> {
    /// `found` has what is under each key of the part, in their order.
    pub(super) fn new(part: &'a Part, found: &'a [Option<RemoteEntry>]) -> FoundEntries<'a> {
        FoundEntries { part, found }
    }
}

impl PendingState for FoundEntries<'_> {
    const IS_IN_MEMORY: bool = false;

    fn find<'a>(&'a self, key: &'a [u8], hash: u64) -> Option<Entry<'a>> {
        let index = self.part.index_of(key, hash)?;
        let entry = self.found.get(index)?.as_ref()?;
        Some(Entry {
            key,
            value: Value::Shared(&entry.value),
            version: entry.version,
            expires_ms: entry.expires_ms,
        })
    }
}
