//! `pelton.v1.KeyValue`.

mod batch;
pub mod operation;
mod pipe;
mod pipe_sides;
mod point;
mod scan;
mod single;
mod watch;

pub use batch::{BatchOutcome, FailedOperation, OperationOutcome, TransactOutcome};
pub use pipe::{Pipe, PipeOutcome};
pub use pipe_sides::{PipeReceiver, PipeSender};
pub use point::ResumePoint;
pub use scan::{ScanEntries, ScannedPage, StoredEntry};
pub use single::{
    AppendOutcome, CountOutcome, DeleteOutcome, IncrementOutcome, PutOutcome, StoredValue,
};
pub use watch::{WatchStream, WatchedChange, WatchedCommit, WatchedCommits};

use api::keyvalue::{
    BatchRequest, Comparison, CountRequest, Operation, PipeRequest, ScanRequest, TransactRequest,
    WatchRequest,
};
use api::rpc::keyvalue as rpc;

use super::Call;

/// The keys of a database.
#[derive(Debug)]
pub struct KeyValue<'c, C> {
    over: &'c mut C,
    database: &'c str,
}

impl<'c, C> KeyValue<'c, C> {
    /// Returns the keys of the default database.
    pub fn new(over: &'c mut C) -> KeyValue<'c, C> {
        KeyValue::of(over, "")
    }

    /// Returns the keys of the database `database`.
    pub fn of(over: &'c mut C, database: &'c str) -> KeyValue<'c, C> {
        KeyValue { over, database }
    }

    /// Reads the value of a key; `None`: there is no such key.
    pub fn get<'a>(&'a mut self, key: &'a [u8]) -> Call<'a, rpc::Get, &'a mut C> {
        let mut get = operation::get(key).over(&mut *self.over);
        get.request.database = self.database;
        get
    }

    /// Writes the value of a key, which never expires unless the call says so.
    pub fn put<'a>(&'a mut self, key: &'a [u8], value: &'a [u8]) -> Call<'a, rpc::Put, &'a mut C> {
        let mut put = operation::put(key, value).over(&mut *self.over);
        put.request.database = self.database;
        put
    }

    /// Removes a key.
    pub fn delete<'a>(&'a mut self, key: &'a [u8]) -> Call<'a, rpc::Delete, &'a mut C> {
        let mut delete = operation::delete(key).over(&mut *self.over);
        delete.request.database = self.database;
        delete
    }

    /// Adds bytes at the end of the value of a key; a missing key counts as an empty value.
    pub fn append<'a>(
        &'a mut self,
        key: &'a [u8],
        value: &'a [u8],
    ) -> Call<'a, rpc::Append, &'a mut C> {
        let mut append = operation::append(key, value).over(&mut *self.over);
        append.request.database = self.database;
        append
    }

    /// Adds to a number; a missing key counts as 0, or as the call says.
    pub fn increment<'a>(
        &'a mut self,
        key: &'a [u8],
        delta: i64,
    ) -> Call<'a, rpc::Increment, &'a mut C> {
        let mut increment = operation::increment(key, delta).over(&mut *self.over);
        increment.request.database = self.database;
        increment
    }

    /// Applies several operations as one commit, all or none, unless the call says otherwise.
    pub fn batch<'a>(
        &'a mut self,
        operations: &'a [Operation<'a>],
    ) -> Call<'a, rpc::Batch, &'a mut C> {
        let request = BatchRequest {
            database: self.database,
            operations: operations.into(),
            ..BatchRequest::default()
        };
        Call::new(self.over, request)
    }

    /// Compares keys, and applies `when_met` as one commit if all comparisons are met.
    pub fn transact<'a>(
        &'a mut self,
        comparisons: &'a [Comparison<'a>],
        when_met: &'a [Operation<'a>],
    ) -> Call<'a, rpc::Transact, &'a mut C> {
        let request = TransactRequest {
            database: self.database,
            comparisons: comparisons.into(),
            when_met: when_met.into(),
            ..TransactRequest::default()
        };
        Call::new(self.over, request)
    }

    /// Reads entries in the order of their keys: all of the database, unless the call says which.
    pub fn scan(&mut self) -> Call<'_, rpc::Scan, &mut C> {
        let request = ScanRequest {
            database: self.database,
            ..ScanRequest::default()
        };
        Call::new(self.over, request)
    }

    /// Watches what is committed from now on, or from the point that the call says: in all of the
    /// database, unless the call says where.
    ///
    /// The stream borrows what it goes over, and not the point and the keys of the call: so the
    /// point can be set to that of each response.
    pub fn watch<'r>(&mut self) -> Call<'r, rpc::Watch, &mut C>
    where
        'c: 'r,
    {
        let request = WatchRequest {
            database: self.database,
            ..WatchRequest::default()
        };
        Call::new(self.over, request)
    }

    /// Counts the keys: all of the database, unless the call says which.
    pub fn count(&mut self) -> Call<'_, rpc::Count, &mut C> {
        let request = CountRequest {
            database: self.database,
            ..CountRequest::default()
        };
        Call::new(self.over, request)
    }

    /// Opens a stream of batches, which take effect in the order in which they are sent.
    pub fn pipe(&mut self) -> Call<'_, rpc::Pipe, &mut C> {
        let request = PipeRequest {
            database: self.database,
            ..PipeRequest::default()
        };
        Call::new(self.over, request)
    }
}
