//! `pelton download`

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Instant;

use api::blob::{DownloadRequest, DownloadResponse};
use api::rpc::Rpc;
use api::rpc::blob::Download;
use client::{CallError, CallOptions, StreamStep};
use protobuf::DecodeError;
use wire::grpc::Code;

use super::super::{Caller, call_failure, in_database, wildcard_hint};
use super::attempts::{FailedAttempt, LONGEST_POLL, Transfers, ended};
use super::below;
use super::part::BlobSource;
use super::sink::{DownloadTarget, FetchedBlob, Sink, no_folder};
use crate::arguments::{DownloadArguments, TransferArguments};
use crate::exit::{Exit, Failure};
use crate::in_place;
use crate::output::{Output, bytes, counted, object};

/// Fetches blobs into files.
pub fn download(arguments: &DownloadArguments) -> Result<Exit, Failure> {
    let chunk_bytes = chunk_bytes(&arguments.transfer)?;
    let (targets, left_out) = match arguments.recursive {
        true => below::targets(arguments)?,
        false => (targets(arguments)?, 0),
    };
    let transfer = &arguments.transfer;
    let format = arguments.place.connection.output;
    let transfers = Transfers::new("downloading", Some(0), transfer.attempts, format);
    let downloading = Downloading {
        arguments,
        transfers: &transfers,
        chunk_bytes,
    };
    let name = |target: &DownloadTarget| target.name.clone();
    let run = |target: &DownloadTarget| downloading.run(target);
    let (fetched, outcome) = transfers.all(targets, transfer.parallel, name, run);
    drop(transfers);
    // What goes to standard output stands there alone.
    if fetched.iter().any(|one| one.path.is_none()) {
        return outcome.map(|()| Exit::Done);
    }
    let mut output = Output::new(arguments.place.connection.output);
    for one in fetched {
        let path = one.path.unwrap_or_default().display().to_string();
        let text = format!("{path}: {}, CRC32C {:08x}", bytes(one.bytes), one.crc32c);
        output.either(&text, || {
            object([
                ("name", one.name.clone().into()),
                ("path", path.clone().into()),
                ("size_bytes", one.bytes.into()),
                ("crc32c", format!("{:08x}", one.crc32c).into()),
                ("version", one.version.into()),
                ("resumed_bytes", one.resumed_bytes.into()),
            ])
        })?;
    }
    output.end()?;
    outcome?;
    match left_out {
        0 => Ok(Exit::Done),
        left_out => Err(Failure::Failed(format!(
            "{} left out",
            counted(left_out, "blob was", "blobs were")
        ))),
    }
}

/// The size of chunks, checked.
pub(super) fn chunk_bytes(transfer: &TransferArguments) -> Result<u32, Failure> {
    let most = store::blob::limits::CHUNK_BYTES as u64;
    match transfer.chunk_size.0 {
        bytes if (1..=most).contains(&bytes) => Ok(bytes as u32),
        _ => Err(Failure::Usage(
            "--chunk-size: a chunk has 1 byte to 4MiB".into(),
        )),
    }
}

fn targets(arguments: &DownloadArguments) -> Result<Vec<DownloadTarget>, Failure> {
    let to = arguments.to.as_deref();
    if to.is_some_and(|to| to.as_os_str() == "-") {
        let [name] = &arguments.names[..] else {
            return Err(Failure::Usage(
                "only one blob fits on standard output".into(),
            ));
        };
        let name = name.clone();
        return Ok(vec![DownloadTarget { name, path: None }]);
    }
    let is_folder = to.is_some_and(Path::is_dir);
    if let Some(to) = to.filter(|to| !is_folder && names_folder(to, arguments)) {
        return Err(no_folder(to));
    }
    let target = |name: &String| {
        let last = name.rsplit('/').next().unwrap_or_default();
        if last.is_empty() && (to.is_none() || is_folder) {
            return Err(Failure::Usage(format!(
                "`{name}` ends with a slash; name a file with --to"
            )));
        }
        let path = match to {
            Some(folder) if is_folder => folder.join(last),
            Some(file) => file.to_owned(),
            None => last.into(),
        };
        in_place::check_free(&path, arguments.force)?;
        Ok(DownloadTarget {
            name: name.clone(),
            path: Some(path),
        })
    };
    arguments.names.iter().map(target).collect()
}

/// Whether `--to` can only be a folder.
fn names_folder(to: &Path, arguments: &DownloadArguments) -> bool {
    arguments.names.len() > 1 || to.as_os_str().as_bytes().ends_with(b"/")
}

struct Downloading<'a> {
    arguments: &'a DownloadArguments,
    transfers: &'a Transfers,
    chunk_bytes: u32,
}

impl Downloading<'_> {
    fn run(&self, target: &DownloadTarget) -> Result<FetchedBlob, Failure> {
        let database = &self.arguments.place.database;
        if self.arguments.recursive {
            below::make_folder(target)?;
        }
        let mut sink = Sink::open(target, database)?;
        self.transfers.moved(sink.moved_bytes());
        let fetched = self.transfers.insist(|reached| {
            let ended = self.attempt(target, &mut sink);
            self.transfers.moved(sink.moved_bytes());
            *reached = (*reached).max(sink.state.bytes);
            ended
        });
        match fetched {
            Ok(()) => sink.complete(self.arguments.force),
            Err(failure) => {
                sink.give_up(self.transfers.interrupt.is_set());
                let place = in_database(database);
                let name = &target.name;
                let hint = wildcard_hint(name, "pelton download --recursive", "blobs");
                Err(failure.or_miss(&format!("there is no blob `{name}`{place}{hint}")))
            }
        }
    }

    fn attempt(&self, target: &DownloadTarget, sink: &mut Sink<'_>) -> Result<(), FailedAttempt> {
        let mut caller = (self.transfers).connect(&self.arguments.place.connection)?;
        let received = self.receive(&mut caller, target, sink);
        let ended = received.and_then(|()| sink.check());
        sink.is_hopeless = matches!(ended, Err(FailedAttempt::Final(_)));
        ended
    }

    fn receive(
        &self,
        caller: &mut Caller,
        target: &DownloadTarget,
        sink: &mut Sink<'_>,
    ) -> Result<(), FailedAttempt> {
        let request = DownloadRequest {
            database: &self.arguments.place.database,
            name: &target.name,
            offset: sink.state.bytes,
            length_bytes: 0,
            chunk_bytes: self.chunk_bytes,
            if_version: sink.is_known.then_some(sink.state.source.version),
        };
        let (address, timeout) = (&caller.address, caller.timeout);
        let failure = |error: &CallError| call_failure(address, Download::METHOD.path, error);
        let streaming = (caller.channel).call_streaming::<Download>(&CallOptions::default());
        let mut streaming = streaming.map_err(|error| ended(failure(&error), &error))?;
        streaming.send(&request);
        streaming.close_send();
        let mut moved = Instant::now();
        loop {
            self.transfers.check_interrupt()?;
            let wait = timeout.min(LONGEST_POLL);
            match streaming.poll_with(wait, |response| self.take(response, sink)) {
                Err(error) => return Err(self.refused(failure(&error), &error, sink)),
                Ok(StreamStep::Message(taken)) => {
                    // A message without any bytes is no progress.
                    if taken? {
                        moved = Instant::now();
                        continue;
                    }
                }
                Ok(StreamStep::Ended) if !sink.is_known => return Err(no_blob(address, target)),
                Ok(StreamStep::Ended) => return Ok(()),
                Ok(StreamStep::Nothing) => {}
            }
            if moved.elapsed() > timeout {
                let message = format!("{address} sent nothing for {timeout:?}");
                return Err(FailedAttempt::Again(Failure::Failed(message)));
            }
        }
    }

    /// What the end of a call means.
    fn refused(&self, failure: Failure, error: &CallError, sink: &mut Sink<'_>) -> FailedAttempt {
        let CallError::Status(status) = error else {
            return ended(failure, error);
        };
        match status.code() {
            // What is there is of another blob.
            Code::Aborted | Code::OutOfRange if sink.is_known => begin_anew(failure, sink),
            // On the device of the server: it stays so.
            Code::DataLoss => FailedAttempt::Final(failure),
            _ => ended(failure, error),
        }
    }

    /// Returns whether it brought the download on.
    fn take(
        &self,
        response: Result<DownloadResponse<'_>, DecodeError>,
        sink: &mut Sink<'_>,
    ) -> Result<bool, FailedAttempt> {
        let damaged = || {
            let name = &sink.target.name;
            FailedAttempt::Again(Failure::Failed(format!("`{name}` was damaged on its way")))
        };
        let response = response.map_err(|_| damaged())?;
        let data = response.data;
        let is_progress = !data.is_empty() || !sink.is_known;
        let is_sound = |expected| expected == crc32c::crc32c(data);
        if !response.crc32c.is_none_or(is_sound) {
            return Err(damaged());
        }
        if let Some(blob) = response.blob {
            let source = BlobSource {
                size_bytes: blob.size_bytes,
                crc32c: blob.crc32c,
                version: blob.version,
            };
            if sink.is_known && sink.state.source != source {
                let failure = Failure::Failed(format!("`{}` was replaced", sink.target.name));
                return Err(begin_anew(failure, sink));
            }
            if sink.expects(source) {
                self.transfers.expect(source.size_bytes);
            }
        }
        sink.add(data)?;
        self.transfers.moved(sink.moved_bytes());
        Ok(is_progress && sink.is_known)
    }
}

/// The answer ended well, and said nothing of a blob: an empty file would be an invention.
fn no_blob(address: &str, target: &DownloadTarget) -> FailedAttempt {
    let name = &target.name;
    FailedAttempt::Final(Failure::Failed(format!(
        "the answer of {address} says nothing of the blob `{name}`: is it a server of Pelton?"
    )))
}

/// The blob was replaced.
fn begin_anew(failure: Failure, sink: &mut Sink<'_>) -> FailedAttempt {
    match sink.begin_anew() {
        Ok(true) => FailedAttempt::Again(failure),
        Ok(false) => {
            FailedAttempt::Final(failure.with("the blob was replaced meanwhile: begin anew"))
        }
        Err(failure) => FailedAttempt::Final(failure),
    }
}
