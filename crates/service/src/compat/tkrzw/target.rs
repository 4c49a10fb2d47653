//! The database that a request names by its index.

use store::DatabaseId;
use store::remote::RemoteOrder;

use crate::actions::Permissions;
use crate::call::Shared;
use crate::keyvalue;
use crate::rights::{DropIn, Right};
use crate::settings::tkrzw::TkrzwDatabase;
use crate::status::{Code, Status};

/// The database of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target<'a> {
    pub(super) id: DatabaseId,
    pub(super) database: &'a TkrzwDatabase,
    /// Its keys are walked in the order of their hashes: what is behind a key may be below it.
    pub(super) is_by_hash: bool,
}

impl Target<'_> {
    /// Whether its records can be walked in the order of their keys.
    pub(super) fn is_ordered(&self) -> bool {
        self.database.class.is_ordered() && !self.is_by_hash
    }
}

/// Returns the database with an index, to those who have a right there.
///
/// # Errors
/// INVALID_ARGUMENT if there is none with the index, FAILED_PRECONDITION if it was dropped since
/// the start.
#[inline]
pub(super) fn target<'a>(
    index: i32,
    right: Right,
    shared: &'a Shared,
    actions: &impl Permissions,
) -> Result<Target<'a>, Status> {
    let database = named(index, shared)?;
    let found =
        keyvalue::find_database_of_drop_in((DropIn::Tkrzw, right), &database.name, shared, actions);
    let id = found.map_err(|status| match status.code() == Code::NotFound {
        true => no_database(&database.name),
        false => status,
    })?;
    Ok(Target {
        id,
        database,
        is_by_hash: shared.store.is_remote() && is_by_hash(id, shared),
    })
}

#[cold]
fn is_by_hash(id: DatabaseId, shared: &Shared) -> bool {
    let shape = (shared.store.config(id)).and_then(|config| config.kind.remote());
    shape.is_some_and(|shape| shape.order == RemoteOrder::Hash)
}

/// Returns what the settings say of the database with an index.
fn named(index: i32, shared: &Shared) -> Result<&TkrzwDatabase, Status> {
    let databases = &shared.settings.tkrzw.databases;
    let place = usize::try_from(index).ok();
    place
        .and_then(|place| databases.get(place))
        .ok_or_else(out_of_range)
}

#[cold]
fn out_of_range() -> Status {
    Status::invalid_argument("dbm_index is out of range")
}

#[cold]
fn no_database(name: &str) -> Status {
    let words = format!("the database {name:?} was dropped; pelton database create makes it");
    Status::new(Code::FailedPrecondition, words)
}
