//! Copies entries of a database from memory to disk, and back.

use std::ops::ControlFlow;

use super::ConvertError;
use crate::database::DatabaseConfig;
use crate::database_id::DatabaseId;
use crate::limits;
use crate::range::{Direction, Range, ScanEnd};
use crate::snapshot::limits::SLICE_ROWS;
use crate::store::Store;
use crate::tree::{self, TreeIndex, TreeWriter};
use crate::value::Entry;

/// Copies a page of a database in memory; returns the last key, if there may be more.
pub(super) fn copy_to_tree(
    store: &Store,
    id: DatabaseId,
    range: &Range<'_>,
    writer: &mut TreeWriter,
    entries: &mut u64,
) -> Result<Option<Box<[u8]>>, ConvertError> {
    let database = store.find(id).ok_or(ConvertError::Unknown)?;
    let state = database.state.read();
    let (mut last, mut too_long) = (None, false);
    let end = (state.index.memory()).scan(range, Direction::Forward, 0, SLICE_ROWS, &mut |entry| {
        if entry.key.len() > tree::limits::KEY_BYTES {
            too_long = true;
            return ControlFlow::Break(());
        }
        writer.load(entry);
        *entries += 1;
        ControlFlow::Continue(())
    });
    if let ScanEnd::BudgetSpent(key) = end {
        last = Some(key.into());
    }
    drop(state);
    if too_long {
        return Err(ConvertError::KeyTooLong);
    }
    if writer.wants_seal() || writer.active_bytes() >= limits::CONVERTED_BYTES {
        flush(writer)?;
    }
    Ok(last)
}

/// Copies a page of a tree; returns the last key, if there may be more.
pub(super) fn copy_from_tree(
    from: &TreeIndex,
    range: &Range<'_>,
    entries: &mut u64,
    load: &mut dyn FnMut(&Entry<'_>),
) -> Result<Option<Box<[u8]>>, ConvertError> {
    let view = from.view();
    let end = view.scan(range, Direction::Forward, 0, SLICE_ROWS, &mut |entry| {
        load(entry);
        *entries += 1;
        ControlFlow::Continue(())
    });
    Ok(match end.map_err(ConvertError::Tree)? {
        ScanEnd::BudgetSpent(key) => Some(key.into()),
        _ => None,
    })
}

/// Makes the folder of a database on disk that has none yet: what is not on the device is not
/// copied.
pub(in crate::durable) fn make_tree(store: &Store, id: DatabaseId) -> Result<(), ConvertError> {
    let made = store.tree(id).map_or(Ok(false), |tree| tree.make());
    made.map(drop).map_err(ConvertError::Tree)
}

pub(super) fn flush(writer: &mut TreeWriter) -> Result<(), ConvertError> {
    // What is in it is durable in the log, or in the snapshot.
    writer.seal(u64::MAX);
    while (writer.index().flush_unread()).map_err(ConvertError::Tree)? {}
    Ok(())
}

pub(super) fn check_memory(
    store: &Store,
    config: &DatabaseConfig,
    bytes: u64,
) -> Result<(), ConvertError> {
    let limit_bytes = config.limits.memory_bytes;
    if bytes > limit_bytes {
        return Err(ConvertError::TooLarge { limit_bytes });
    }
    let limit_bytes = store.memory_limit_bytes();
    if store.memory_bytes().saturating_add(bytes) > limit_bytes {
        return Err(ConvertError::TooLarge { limit_bytes });
    }
    Ok(())
}
