//! `pelton import --tkrzw`: copies the records of a running tkrzw_server.
//!
//! An iterator of the original reads all records, in steps that are sent ahead; a Pipe writes them.
//! How far that has come is noted in a file: where the records of the original have an order, the
//! next run begins behind the last one that was written. Where they have none, it begins anew,
//! which does no harm. At the end both sides are read once more, and compared by the number of
//! records, their bytes, and a sum of their checksums.

use std::sync::mpsc::{Receiver, SyncSender};
use std::time::{Duration, Instant};

use api::keyvalue::{CountPrecision, CountRequest, Entry, PipeAnswers, PipeRequest, ScanRequest};
use api::rpc::Rpc;
use api::rpc::keyvalue::Count;
use api::rpc::tkrzw::{TkrzwCount, TkrzwIterate};
use api::tkrzw::{self, IterateOperation, IterateRequest, IterateResponse, StatusProto};
use client::{CallOptions, Channel, ChannelOptions, Code, StreamStep};
use net::Address;

use super::import_note::NoteFile;
use super::pipe::{self, GROUP_BYTES, GROUP_OPERATIONS, GroupOutcome, PipeGroup};
use super::results::failure_text;
use super::resumable_scan::{EntrySink, ResumableScan};
use super::{Caller, call_failure, tls, unreadable};
use crate::arguments::ImportArguments;
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::json::OwnedOperation;
use crate::limits::TKRZW_STEPS_AHEAD;
use crate::output::{self, Output, object};
use crate::progress::ProgressLine;

/// How long to wait for a record before a signal is looked for.
const LOOK: Duration = Duration::from_millis(20);

/// Codes of the original: done, no such thing, nothing there.
const SUCCESS: i32 = 0;
const NOT_IMPLEMENTED: i32 = 3;
const NOT_FOUND: i32 = 7;

/// What to do where the original cannot be connected to.
const CONNECT_HINT: &str = "--tkrzw says where the tkrzw_server listens whose records are wanted";

/// And where it has no such database.
const INDEX_HINT: &str = "--index says which database, 0 the first one of its command line";

/// Takes a record.
type TakeRecord<'a> = dyn FnMut(&[u8], &[u8]) -> Result<(), Failure> + 'a;

/// Takes a response of an iterator. Returns whether there is to be another one.
type TakeResponse<'a> = dyn FnMut(&IterateResponse<'_>) -> Result<bool, Failure> + 'a;

/// Records by what they have in common in whatever order they come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct RecordSums {
    records: u64,
    bytes: u64,
    checksums: u64,
}

impl RecordSums {
    fn add(&mut self, key: &[u8], value: &[u8]) {
        let of_key = crc32c::crc32c_append(crc32c::crc32c(&key.len().to_le_bytes()), key);
        let checksum = crc32c::crc32c_append(of_key, value);
        self.records += 1;
        self.bytes += (key.len() + value.len()) as u64;
        self.checksums = self.checksums.wrapping_add(u64::from(checksum));
    }
}

/// A running tkrzw_server.
struct Original {
    caller: Caller,
    index: i32,
}

impl Original {
    fn connect(address: &Address, arguments: &ImportArguments) -> Result<Original, Failure> {
        let timeout = Duration::from_millis(arguments.connection.timeout.ms);
        let options = ChannelOptions {
            connect_timeout: timeout,
            ..ChannelOptions::default()
        };
        let channel = Channel::connect(address, &options)
            .map_err(|error| tls::connect_failure_of(address, &error, CONNECT_HINT))?;
        Ok(Original {
            caller: Caller {
                channel,
                address: address.to_string(),
                timeout,
            },
            index: arguments.index,
        })
    }

    fn count(&mut self) -> Result<u64, Failure> {
        let request = tkrzw::CountRequest {
            dbm_index: self.index,
        };
        let reply = match self.caller.call::<TkrzwCount>(&request) {
            Err(Failure::Call(failure)) => {
                let more = match failure.status {
                    Some(Code::Unimplemented) => "it is no tkrzw_server of version 0.9.4 or later",
                    Some(Code::InvalidArgument) => INDEX_HINT,
                    _ => return Err(Failure::Call(failure)),
                };
                return Err(Failure::Call(failure).with(more));
            }
            reply => reply?,
        };
        let response = reply.message();
        check(response.status)?;
        Ok(u64::try_from(response.count).unwrap_or(0))
    }

    /// Returns whether its records have an order.
    fn is_ordered(&mut self) -> Result<bool, Failure> {
        let mut is_ordered = false;
        let last = request(self.index, IterateOperation::Last, &[]);
        self.iterate(&last, 1, &|| false, &mut |response| {
            let code = response.status.unwrap_or_default().code;
            is_ordered = code != NOT_IMPLEMENTED;
            Ok(false)
        })?;
        Ok(is_ordered)
    }

    /// Hands over all records behind a key, or all that there are.
    fn read(
        &mut self,
        behind: Option<&[u8]>,
        is_interrupted: &dyn Fn() -> bool,
        take: &mut TakeRecord<'_>,
    ) -> Result<(), Failure> {
        let first = match behind {
            None => request(self.index, IterateOperation::First, &[]),
            Some(key) => request(self.index, IterateOperation::JumpUpper, key),
        };
        let mut is_placed = false;
        self.iterate(&first, TKRZW_STEPS_AHEAD, is_interrupted, &mut |response| {
            let status = response.status.unwrap_or_default();
            if is_placed && status.code == NOT_FOUND {
                return Ok(false);
            }
            check(Some(status))?;
            if std::mem::replace(&mut is_placed, true) {
                take(response.key, response.value)?;
            }
            Ok(true)
        })
    }

    /// Sends a first request and then steps, so many ahead of their responses, until `take` has
    /// enough.
    fn iterate(
        &mut self,
        first: &IterateRequest<'_>,
        requests_ahead: usize,
        is_interrupted: &dyn Fn() -> bool,
        take: &mut TakeResponse<'_>,
    ) -> Result<(), Failure> {
        let Caller {
            channel,
            address,
            timeout,
        } = &mut self.caller;
        let failed = |error| call_failure(address, TkrzwIterate::METHOD.path, &error);
        let exchange = channel.call_streaming::<TkrzwIterate>(&CallOptions::default());
        let mut exchange = exchange.map_err(failed)?;
        exchange.send_with_others(first);
        let (mut ahead, mut heard) = (1, Instant::now());
        loop {
            while ahead < requests_ahead && exchange.can_send() {
                exchange.send_with_others(&request(self.index, IterateOperation::Step, &[]));
                ahead += 1;
            }
            let mut wait = LOOK;
            while ahead > requests_ahead / 2 {
                let step = exchange.poll_with(wait, |response| match response {
                    Ok(response) => take(&response),
                    Err(error) => Err(unreadable(error)),
                });
                match step.map_err(failed)? {
                    StreamStep::Message(goes_on) => match goes_on? {
                        true => (ahead, heard) = (ahead - 1, Instant::now()),
                        false => return Ok(()),
                    },
                    StreamStep::Nothing => break,
                    StreamStep::Ended => return Err(unreadable("the iterator has ended")),
                }
                wait = Duration::ZERO;
            }
            if is_interrupted() {
                return Err(Failure::Interrupted("interrupted".into()));
            }
            if heard.elapsed() >= *timeout {
                return Err(Failure::Failed(format!(
                    "no record from {address} for {timeout:.1?}; --timeout says how long to wait"
                )));
            }
        }
    }
}

fn request(dbm_index: i32, operation: IterateOperation, key: &[u8]) -> IterateRequest<'_> {
    IterateRequest {
        dbm_index,
        operation: operation.number(),
        key,
        ..IterateRequest::default()
    }
}

/// Fails with what the original says, if that is not that all is well.
fn check(status: Option<StatusProto<'_>>) -> Result<(), Failure> {
    let status = status.unwrap_or_default();
    match status.code {
        SUCCESS => Ok(()),
        code => Err(Failure::Failed(format!(
            "the tkrzw_server refuses with code {code}: {}",
            status.message
        ))),
    }
}

type Groups = Receiver<Result<PipeGroup<Box<[u8]>>, Failure>>;

/// Reads records in a thread of its own, as groups of Puts whose places are their keys.
fn read_groups(mut original: Original, behind: Option<Vec<u8>>) -> Result<Groups, Failure> {
    pipe::send_ahead(move |sender| {
        let mut building = BuiltGroups::new(sender);
        let read = original.read(behind.as_deref(), &|| false, &mut |key, value| {
            building.push(key, value)
        });
        building.end(read);
    })
}

/// Groups on their way to the thread that writes.
struct BuiltGroups {
    sender: SyncSender<Result<PipeGroup<Box<[u8]>>, Failure>>,
    operations: Vec<OwnedOperation>,
    places: Vec<Box<[u8]>>,
    bytes: usize,
}

impl BuiltGroups {
    fn new(sender: SyncSender<Result<PipeGroup<Box<[u8]>>, Failure>>) -> BuiltGroups {
        BuiltGroups {
            sender,
            operations: Vec::new(),
            places: Vec::new(),
            bytes: 0,
        }
    }

    fn push(&mut self, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        self.bytes += key.len() + value.len();
        self.places.push(key.into());
        let put = OwnedOperation::put(key.to_vec(), value.to_vec(), None);
        self.operations.push(put);
        match self.operations.len() >= GROUP_OPERATIONS || self.bytes >= GROUP_BYTES {
            true => self.send(),
            false => Ok(()),
        }
    }

    fn send(&mut self) -> Result<(), Failure> {
        self.bytes = 0;
        let group = PipeGroup {
            operations: std::mem::take(&mut self.operations),
            places: std::mem::take(&mut self.places),
        };
        // Nobody wants more when the Pipe has ended.
        let sent = self.sender.send(Ok(group));
        sent.map_err(|_| Failure::BrokenPipe)
    }

    /// Sends what is left, and why nothing follows.
    fn end(mut self, read: Result<(), Failure>) {
        if !self.operations.is_empty() && self.send().is_err() {
            return;
        }
        if let Err(failure) = read {
            let _ = self.sender.send(Err(failure));
        }
    }
}

/// Copies the records of a database.
pub(super) fn import_tkrzw(
    arguments: &ImportArguments,
    address: &Address,
) -> Result<Exit, Failure> {
    let interrupt = Interrupt::listen();
    let mut original = Original::connect(address, arguments)?;
    let total = original.count()?;
    let is_ordered = original.is_ordered()?;
    let mut caller = Caller::connect(&arguments.connection)?;
    let mut note = NoteFile::find(arguments, address)?;
    match &mut note {
        Some(note) if !is_ordered => note.begin_anew()?,
        Some(_) => {}
        None => check_empty(&mut caller, &arguments.database)?,
    }
    let mut note = note.map_or_else(|| NoteFile::begin(arguments, address), Ok)?;
    let behind = note.last_key();
    let groups = read_groups(original, behind)?;
    let request = PipeRequest {
        database: &arguments.database,
        answers: PipeAnswers::FailuresOnly.number(),
        ..PipeRequest::default()
    };
    let progress = ProgressLine::entries("importing", Some(total));
    progress.set(note.records());
    let ended = pipe::run(
        &mut caller,
        request,
        &groups,
        &interrupt,
        &mut |places: &[Box<[u8]>], outcome| {
            check_written(places, &outcome)?;
            note.advance(places, is_ordered)?;
            progress.set(note.records());
            Ok(())
        },
    );
    drop(progress);
    ended.or_else(|failure| Err(failure.with(&note.how_far(is_ordered)?)))?;
    let sums = verify(arguments, address, &mut note, &interrupt, total)?;
    note.remove();
    say(arguments, address, sums)?;
    Ok(Exit::Done)
}

/// Refuses to write into a database that has something else: it could not be compared.
fn check_empty(caller: &mut Caller, database: &str) -> Result<(), Failure> {
    let request = CountRequest {
        database,
        precision: CountPrecision::Estimate.number(),
        ..CountRequest::default()
    };
    match caller.call::<Count>(&request)?.message().count {
        0 => Ok(()),
        count => Err(Failure::Failed(format!(
            "the database {database:?} has {} already, and there is no note of an import into it; \
             nothing was written. Name an empty one with --database, or the note with --note",
            output::entries(count)
        ))),
    }
}

fn check_written(places: &[Box<[u8]>], outcome: &GroupOutcome<'_>) -> Result<(), Failure> {
    match outcome {
        GroupOutcome::Done => Ok(()),
        GroupOutcome::Refused(failure) => Err(Failure::Failed(format!(
            "{} from the key \"{}\" on were refused: {}",
            output::entries(places.len() as u64),
            places
                .first()
                .map_or(String::new(), |key| key.escape_ascii().to_string()),
            failure_text(failure)
        ))),
        GroupOutcome::Answered(..) => Err(unreadable("a Put without a condition failed")),
    }
}

/// Reads both sides once more, and compares them.
fn verify(
    arguments: &ImportArguments,
    address: &Address,
    note: &mut NoteFile,
    interrupt: &Interrupt,
    total: u64,
) -> Result<RecordSums, Failure> {
    let written = |failure: Failure| {
        failure.with("all records are written, and not compared yet: the same command goes on")
    };
    let mut there = RecordSums::default();
    let progress = ProgressLine::entries("reading again there", Some(total));
    let mut original = Original::connect(address, arguments).map_err(written)?;
    let read = original.read(None, &|| interrupt.is_set(), &mut |key, value| {
        there.add(key, value);
        progress.set(there.records);
        Ok(())
    });
    read.map_err(written)?;
    drop(progress);
    let mut here = Comparing {
        sums: RecordSums::default(),
        interrupt,
        progress: ProgressLine::entries("reading again here", Some(total)),
    };
    let request = ScanRequest {
        database: &arguments.database,
        ..ScanRequest::default()
    };
    let caller = Caller::connect(&arguments.connection)?;
    let scan = ResumableScan::new(&arguments.connection, request);
    scan.run(caller, &mut here, |_| None).map_err(written)?;
    let here = here.sums;
    if here == there {
        return Ok(here);
    }
    note.begin_anew()?;
    Err(Failure::Failed(format!(
        "the sides differ: there are {} with {} bytes and checksum {:x} on {address}, and {} with \
         {} bytes and checksum {:x} here. Records were changed while they were copied, or others \
         write here. When nobody writes any more, the same command copies all of them again; what \
         was removed there meanwhile stays here, unless the database is emptied before",
        output::entries(there.records),
        there.bytes,
        there.checksums,
        output::entries(here.records),
        here.bytes,
        here.checksums,
    )))
}

/// Adds up what is here.
struct Comparing<'a> {
    sums: RecordSums,
    interrupt: &'a Interrupt,
    progress: ProgressLine,
}

impl EntrySink for Comparing<'_> {
    fn entry(&mut self, entry: &Entry<'_>) -> Result<(), Failure> {
        self.sums.add(entry.key, entry.value);
        Ok(())
    }

    fn page(&mut self, entries: u64) -> Result<(), Failure> {
        self.progress.set(entries);
        Ok(())
    }

    fn check_interrupt(&self, _: u64) -> Result<(), Failure> {
        match self.interrupt.is_set() {
            true => Err(Failure::Interrupted("interrupted".into())),
            false => Ok(()),
        }
    }
}

fn say(arguments: &ImportArguments, address: &Address, sums: RecordSums) -> Result<(), Failure> {
    let mut output = Output::new(arguments.connection.output);
    let entries = output::entries(sums.records);
    let into = match arguments.database.as_str() {
        "" => "the default database".to_owned(),
        name => format!("the database {name:?}"),
    };
    output.either(
        &format!("{entries} written from {address} into {into}, the same on both sides"),
        || {
            object([
                ("entries", sums.records.into()),
                ("bytes", sums.bytes.into()),
                ("checksum", sums.checksums.into()),
            ])
        },
    )?;
    output.end()
}
