//! `pelton upload`

mod content;
mod sources;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use api::blob::{
    StatRequest, UploadBegin, UploadChunk, UploadEnd, UploadPart, UploadRequest, UploadResponse,
};
use api::rpc::Rpc;
use api::rpc::blob::{Stat, Upload};
use client::typed::Reply;
use client::{CallOptions, StreamStep};

use super::attempts::{FailedAttempt, LONGEST_POLL, Transfers, ended};
use crate::arguments::UploadArguments;
use crate::command::put::found;
use crate::command::{Caller, call_failure};
use crate::exit::{CallFailure, Exit, Failure};
use crate::input;
use crate::output::{Output, bytes, object};
use content::{ReadChunks, Summed};
use sources::{UploadSource, sources, unread};

/// How long to look for an answer while there is something to send.
const GLANCE: Duration = Duration::ZERO;

/// What to do about an upload that was not completed.
const RESUMED: &str = "what the server has of it stays for some time (--keep-uploads of the \
                       server); the same command goes on from there";

/// Stores files as blobs.
pub fn upload(arguments: &UploadArguments) -> Result<Exit, Failure> {
    let chunk_bytes = super::download::chunk_bytes(&arguments.transfer)?;
    let sources = sources(arguments)?;
    let total_bytes = sources.iter().map(|source| source.size_bytes).sum();
    let transfer = &arguments.transfer;
    let format = arguments.place.connection.output;
    let transfers = Transfers::new("uploading", total_bytes, transfer.attempts, format);
    let uploading = Uploading {
        arguments,
        transfers: &transfers,
        chunk_bytes: chunk_bytes as usize,
    };
    let path = |source: &UploadSource| source.path.display().to_string();
    let run = |source: &UploadSource| uploading.run(source);
    let (stored, outcome) = transfers.all(sources, transfer.parallel, path, run);
    drop(transfers);
    let mut output = Output::new(arguments.place.connection.output);
    for StoredUpload {
        name,
        size_bytes,
        crc32c,
        version,
    } in stored
    {
        let text = format!(
            "{name}: {}, CRC32C {crc32c:08x}, version {version}",
            bytes(size_bytes)
        );
        output.either(&text, || {
            object([
                ("name", name.clone().into()),
                ("size_bytes", size_bytes.into()),
                ("crc32c", format!("{crc32c:08x}").into()),
                ("version", version.into()),
            ])
        })?;
    }
    output.end()?;
    outcome.map(|()| Exit::Done)
}

struct StoredUpload {
    name: String,
    size_bytes: u64,
    crc32c: u32,
    version: u64,
}

struct Uploading<'a> {
    arguments: &'a UploadArguments,
    transfers: &'a Transfers,
    chunk_bytes: usize,
}

impl Uploading<'_> {
    fn run(&self, source: &UploadSource) -> Result<StoredUpload, Failure> {
        if source.upload_id.is_empty() {
            let mut summed = Summed::default();
            return match self.pipe(source, &mut summed) {
                Ok(stored) => Ok(stored),
                // That an input is wrong has nothing to do with how far it came.
                Err(FailedAttempt::Again(failure) | FailedAttempt::Final(failure))
                    if summed.bytes == 0 =>
                {
                    Err(failure.with("nothing was stored"))
                }
                Err(FailedAttempt::Again(failure) | FailedAttempt::Final(failure)) => Err(failure
                    .with(&format!(
                        "{} were sent, and nothing is kept of what comes from standard input; from \
                         a file an upload can be resumed",
                        bytes(summed.bytes)
                    ))),
            };
        }
        let file = File::open(&source.path).map_err(|error| unread(&source.path, &error))?;
        // What this run has sent, and its checksum: the whole is compared at the end.
        let mut summed = Summed::default();
        let mut shown = 0;
        let mut is_first = true;
        let mut is_resumable = false;
        let stored = self.transfers.insist(|reached| {
            let ended = self.attempt(
                source,
                &file,
                &mut summed,
                &mut shown,
                &mut is_first,
                reached,
            );
            is_resumable |= matches!(ended, Err(FailedAttempt::Again(_)));
            ended
        });
        // The connection was lost, or the upload interrupted: what is stored of it waits for the
        // next attempt.
        let may_go_on = is_resumable || self.transfers.interrupt.is_set();
        stored.map_err(|failure| match may_go_on && summed.bytes > 0 {
            true => failure.with(RESUMED),
            false => failure,
        })
    }

    /// One attempt to store a file: goes on where the server is. `reached` moves as more of it is
    /// stored.
    fn attempt(
        &self,
        source: &UploadSource,
        file: &File,
        summed: &mut Summed,
        shown: &mut i64,
        is_first: &mut bool,
        reached: &mut u64,
    ) -> Result<StoredUpload, FailedAttempt> {
        let mut caller = self.connect()?;
        let unfinished_bytes = self.stored_bytes(&mut caller, source)?;
        // The last attempt may have been stored although its answer was lost. Not if the server has
        // an unfinished upload of this file: the same content was there before, and that upload
        // would be left behind.
        if !std::mem::take(is_first)
            && unfinished_bytes.is_none()
            && let Some(stored) = self.look(&mut caller, source, file, summed)?
        {
            return Ok(stored);
        }
        let offset = unfinished_bytes.unwrap_or(0);
        self.transfers.moved(offset as i64 - *shown);
        *shown = offset as i64;
        *reached = (*reached).max(offset);
        summed
            .up_to(file, offset)
            .map_err(|error| unread(&source.path, &error))?;
        // Told of before its end is sent, without which nothing is stored.
        let mut read = |buffer: &mut [u8], offset| match file.read_at(buffer, offset)? {
            0 => source.check_unchanged(file).map(|()| 0),
            count => Ok(count),
        };
        self.send(&mut caller, source, summed, &mut read, shown)
    }

    /// What can be read only once.
    fn pipe(
        &self,
        source: &UploadSource,
        summed: &mut Summed,
    ) -> Result<StoredUpload, FailedAttempt> {
        let mut caller = self.connect()?;
        let mut read = |buffer: &mut [u8], _| input::Interruptible(io::stdin()).glance(buffer);
        self.send(&mut caller, source, summed, &mut read, &mut 0)
    }

    fn connect(&self) -> Result<Caller, FailedAttempt> {
        self.transfers.connect(&self.arguments.place.connection)
    }

    fn stat(
        &self,
        caller: &mut Caller,
        source: &UploadSource,
        upload_id: &[u8],
    ) -> Result<Reply<Stat>, FailedAttempt> {
        let stat = caller.try_call::<Stat>(&StatRequest {
            database: &self.arguments.place.database,
            name: &source.name,
            upload_id,
        });
        stat.map_err(|error| ended(caller.failure::<Stat>(&error), &error))
    }

    /// How much the server has of an unfinished upload of this file; `None`: there is none.
    fn stored_bytes(
        &self,
        caller: &mut Caller,
        source: &UploadSource,
    ) -> Result<Option<u64>, FailedAttempt> {
        let reply = self.stat(caller, source, &source.upload_id)?;
        let answer = reply.message();
        Ok(answer.found.then_some(answer.stored_bytes))
    }

    /// Whether the whole of it is stored.
    fn look(
        &self,
        caller: &mut Caller,
        source: &UploadSource,
        file: &File,
        summed: &mut Summed,
    ) -> Result<Option<StoredUpload>, FailedAttempt> {
        // Only when everything was sent can it be.
        if Some(summed.bytes) != source.size_bytes {
            return Ok(None);
        }
        let reply = self.stat(caller, source, &[])?;
        let answer = reply.message();
        let size_bytes = summed.bytes;
        summed
            .up_to(file, size_bytes)
            .map_err(|error| unread(&source.path, &error))?;
        let ours = answer
            .blob
            .filter(|blob| (blob.size_bytes, blob.crc32c) == (size_bytes, summed.crc32c));
        Ok(ours.map(|blob| StoredUpload {
            name: source.name.clone(),
            size_bytes,
            crc32c: blob.crc32c,
            version: blob.version,
        }))
    }

    /// Sends what is behind the part that was summed up, and the end.
    fn send(
        &self,
        caller: &mut Caller,
        source: &UploadSource,
        summed: &mut Summed,
        read: &mut dyn FnMut(&mut [u8], u64) -> io::Result<usize>,
        shown: &mut i64,
    ) -> Result<StoredUpload, FailedAttempt> {
        let (address, timeout) = (&caller.address, caller.timeout);
        let failed = |error| {
            let failure = call_failure(address, Upload::METHOD.path, &error);
            ended(failure, &error)
        };
        let options = CallOptions {
            compress: self.arguments.compress,
            ..CallOptions::default()
        };
        let streaming = caller.channel.call_streaming::<Upload>(&options);
        let mut streaming = streaming.map_err(failed)?;
        streaming.set_compress(self.arguments.compress);
        streaming.send_with_others(&self.begin(source, summed.bytes));

        let mut ahead = ReadChunks::new(self.chunk_bytes);
        let (mut is_over, mut answer) = (false, None);
        let mut moved = Instant::now();
        loop {
            self.transfers.check_interrupt()?;
            while !is_over && streaming.can_send() {
                let read = ahead.next(|buffer| read(buffer, summed.bytes));
                let Some(data) = next_data(read, source)? else {
                    // The server is listened to while a pipe brings nothing.
                    moved = Instant::now();
                    break;
                };
                if data.is_empty() && source.size_bytes.is_none() && summed.bytes == 0 {
                    let instead = "A file that is empty can be uploaded by its name";
                    let failure = input::empty("standard input", instead);
                    return Err(FailedAttempt::Final(failure));
                }
                if data.is_empty() {
                    is_over = true;
                    streaming.send_with_others(&end(summed.crc32c));
                    streaming.close_send();
                } else {
                    streaming.send_with_others(&chunk(data));
                    summed.add(data);
                    self.transfers.moved(data.len() as i64);
                    *shown += data.len() as i64;
                }
                moved = Instant::now();
            }
            let wait = if is_over || !streaming.can_send() {
                timeout
            } else {
                GLANCE
            };
            match streaming.poll(wait.min(LONGEST_POLL)).map_err(failed)? {
                StreamStep::Message(reply) => answer = Some(reply),
                StreamStep::Ended => break,
                StreamStep::Nothing if moved.elapsed() > self.stall_timeout(timeout) => {
                    let message = format!("{address} took nothing for {timeout:?}");
                    return Err(FailedAttempt::Again(Failure::Failed(message)));
                }
                StreamStep::Nothing => {}
            }
        }
        let answer = answer.as_ref().map(Reply::message);
        self.stored(source, summed, &answer.unwrap_or_default())
    }

    /// How long nothing may move. The end of an upload waits for the disk of the server, which may
    /// take its time.
    fn stall_timeout(&self, timeout: Duration) -> Duration {
        timeout.max(Duration::from_secs(10)) * 3
    }

    fn begin<'a>(&'a self, source: &'a UploadSource, offset: u64) -> UploadRequest<'a> {
        part(UploadPart::Begin(UploadBegin {
            database: &self.arguments.place.database,
            name: &source.name,
            upload_id: &source.upload_id,
            offset,
            size_bytes: source.size_bytes,
            content_type: &self.arguments.content_type,
            if_version: self.if_version(),
            ..UploadBegin::default()
        }))
    }

    /// Which version the name must have; 0: there must be none.
    fn if_version(&self) -> Option<u64> {
        let if_absent = self.arguments.if_absent.then_some(0);
        if_absent.or(self.arguments.if_version)
    }

    /// The condition was not met.
    fn miss(&self, name: &str, version: u64) -> Failure {
        let failure = CallFailure {
            what: format!(
                "nothing stored: the blob `{name}` {}",
                found(version, false)
            ),
            address: self.arguments.place.connection.address.to_string(),
            status: None,
            hint: String::new(),
            names_nothing: false,
            is_miss: true,
        };
        failure.into()
    }

    fn stored(
        &self,
        source: &UploadSource,
        summed: &Summed,
        answer: &UploadResponse<'_>,
    ) -> Result<StoredUpload, FailedAttempt> {
        let blob = answer.blob.unwrap_or_default();
        if !answer.applied && self.if_version().is_some() {
            return Err(FailedAttempt::Final(self.miss(&source.name, blob.version)));
        }
        if !answer.applied || (blob.size_bytes, blob.crc32c) != (summed.bytes, summed.crc32c) {
            let name = &source.name;
            let message = format!("`{name}` is stored otherwise than it was sent; upload it again");
            return Err(FailedAttempt::Final(Failure::Failed(message)));
        }
        Ok(StoredUpload {
            name: source.name.clone(),
            size_bytes: blob.size_bytes,
            crc32c: blob.crc32c,
            version: blob.version,
        })
    }
}

/// Returns what a source has brought, be it its end; `None`: nothing yet.
fn next_data<'a>(
    read: io::Result<&'a [u8]>,
    source: &UploadSource,
) -> Result<Option<&'a [u8]>, Failure> {
    match read {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(input::unreadable(&source.shown(), &error)),
        Ok(data) => Ok(Some(data)),
    }
}

fn part(part: UploadPart<'_>) -> UploadRequest<'_> {
    UploadRequest { part: Some(part) }
}

fn chunk(data: &[u8]) -> UploadRequest<'_> {
    part(UploadPart::Chunk(UploadChunk {
        data,
        crc32c: Some(crc32c::crc32c(data)),
    }))
}

fn end(crc32c: u32) -> UploadRequest<'static> {
    part(UploadPart::End(UploadEnd {
        crc32c: Some(crc32c),
        sha256: &[],
    }))
}
