//! `pelton delete --prefix` and `--all`

use std::time::Instant;

use api::keyvalue::{
    BatchMode, BatchRequest, DeleteOperation, Keys, Operation, OperationBody, ResultBody,
    ScanRequest,
};
use api::rpc::Rpc;
use api::rpc::keyvalue::{Batch, Scan};
use client::CallOptions;

use super::results::code_name;
use super::{Caller, call_failure, unreadable};
use crate::arguments::DeleteArguments;
use crate::encoding::decode_key;
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::limits;
use crate::output::{Output, counted, object};

/// Removes the keys of a range, group by group, in their order.
pub fn delete_range(arguments: &DeleteArguments) -> Result<Exit, Failure> {
    let database = &arguments.database;
    let prefix = arguments.prefix.as_deref();
    let prefix = prefix.map(|prefix| decode_key(prefix, database.key_encoding));
    let prefix = prefix.transpose()?;
    // A variable that was never set must not remove everything.
    if prefix.as_ref().is_some_and(Vec::is_empty) {
        return Err(Failure::Usage(
            "--prefix is empty, and every key begins with that; --all deletes every key".into(),
        ));
    }
    let prefix = prefix.unwrap_or_default();
    let interrupt = Interrupt::listen();
    let mut range = DeletedRange {
        caller: Caller::connect(&database.connection)?,
        database: &database.database,
        prefix,
        last: None,
        left: arguments.limit.unwrap_or(u64::MAX),
    };
    let mut deleted = 0;
    loop {
        let ended = match range.delete_group(&mut deleted) {
            _ if interrupt.is_set() => Err(Failure::Interrupted("interrupted".into())),
            ended => ended,
        };
        match ended {
            Ok(true) => {}
            Ok(false) => break,
            Err(failure) => {
                let before = format!("{} deleted before", counted(deleted, "key", "keys"));
                return Err(failure.with(&before));
            }
        }
    }
    let mut output = Output::new(database.connection.output);
    let text = format!("{} deleted", counted(deleted, "key", "keys"));
    output.either(&text, || object([("deleted", deleted.into())]))?;
    output.end()?;
    Ok(Exit::Done)
}

/// What is still to be removed.
struct DeletedRange<'a> {
    caller: Caller,
    database: &'a str,
    prefix: Vec<u8>,
    /// The last key that was looked at.
    last: Option<Vec<u8>>,
    /// How many more keys may be removed.
    left: u64,
}

impl DeletedRange<'_> {
    /// Removes the next group and adds how many there were. Returns whether there may be more.
    fn delete_group(&mut self, deleted: &mut u64) -> Result<bool, Failure> {
        let (group, is_last) = self.next_group()?;
        if group.is_empty() {
            return Ok(false);
        }
        let operations: Vec<Operation<'_>> = group
            .iter()
            .map(|key| {
                Operation::from(OperationBody::Delete(DeleteOperation {
                    key,
                    ..DeleteOperation::default()
                }))
            })
            .collect();
        let request = BatchRequest {
            database: self.database,
            mode: BatchMode::Independent.number(),
            operations: operations[..].into(),
            ..BatchRequest::default()
        };
        let reply = self.caller.call::<Batch>(&request)?;
        for result in reply.message().results.iter().flatten() {
            match result.result {
                Some(ResultBody::Delete(result)) => *deleted += u64::from(result.deleted),
                Some(ResultBody::Failure(failure)) => {
                    let code = code_name(failure.code);
                    return Err(Failure::Failed(format!("{code}: {}", failure.message)));
                }
                _ => return Err(unreadable("a result of another operation")),
            }
        }
        self.left -= group.len() as u64;
        self.last = group.into_iter().next_back();
        Ok(!is_last && self.left > 0)
    }

    /// The next keys, and whether there are none behind them.
    fn next_group(&mut self) -> Result<(Vec<Vec<u8>>, bool), Failure> {
        let limit = self.left.min(limits::DELETE_GROUP_KEYS);
        let request = ScanRequest {
            database: self.database,
            keys: (!self.prefix.is_empty()).then_some(Keys::Prefix(&self.prefix)),
            keys_only: true,
            limit,
            start_after: self.last.as_deref(),
            ..ScanRequest::default()
        };
        let Caller {
            channel,
            address,
            timeout,
        } = &mut self.caller;
        let failed = |error| call_failure(address, Scan::METHOD.path, &error);
        let pages = channel.call_server_streaming::<Scan>(&request, &CallOptions::default());
        let mut pages = pages.map_err(failed)?;
        let (mut group, mut bytes) = (Vec::new(), 0);
        loop {
            pages.set_deadline(Some(Instant::now() + *timeout));
            let Some(page) = pages.next_reply().map_err(failed)? else {
                return Ok((group, true));
            };
            let page = page.message();
            for entry in page.entries.iter().flatten() {
                bytes += entry.key.len();
                group.push(entry.key.to_vec());
            }
            if page.last {
                let is_last = (group.len() as u64) < limit;
                return Ok((group, is_last));
            }
            if bytes >= limits::DELETE_GROUP_BYTES {
                return Ok((group, false));
            }
        }
    }
}
