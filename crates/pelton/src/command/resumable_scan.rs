//! A scan that goes on behind its last entry when the connection ends.
//!
//! A server closes the connection of a client that takes nothing for a while, and so does a reader
//! who pauses behind a pipe to ours. Each page of a scan is a view of its own, so that what is read
//! on a further connection is as good as the rest of the same call.

use std::time::{Duration, Instant};

use api::keyvalue::{Entry, ScanPage, ScanRequest};
use api::rpc::Rpc;
use api::rpc::keyvalue::Scan;
use client::{CallError, CallOptions, StreamStep};
use protobuf::DecodeError;

use super::{Caller, late_failure, unreadable};
use crate::arguments::ConnectionArguments;
use crate::exit::Failure;

/// How long to wait for a page before a signal is looked for.
const LOOK: Duration = Duration::from_millis(50);

/// What is done with the entries of a scan.
pub(super) trait EntrySink {
    /// Takes the next entry.
    fn entry(&mut self, entry: &Entry<'_>) -> Result<(), Failure>;

    /// A page is over, and with it `entries` of the scan. The first one comes even of an empty
    /// database, and of none that does not exist.
    fn page(&mut self, entries: u64) -> Result<(), Failure>;

    /// Fails if the user wants the scan to end.
    fn check_interrupt(&self, entries: u64) -> Result<(), Failure>;
}

/// A scan, and how far it has come.
pub(super) struct ResumableScan<'a> {
    connection: &'a ConnectionArguments,
    request: ScanRequest<'a>,
    /// Entries that were handed over.
    entries: u64,
    /// The key of the last one.
    last_key: Option<Vec<u8>>,
}

/// Why a connection has brought no more.
enum ScanBreak {
    /// It was lost: another one may do better.
    Lost(Failure),
    /// The server, or what came from it, ends the scan.
    Refused(Failure),
    /// The sink wants no more.
    Given(Failure),
}

impl<'a> ResumableScan<'a> {
    pub(super) fn new(
        connection: &'a ConnectionArguments,
        request: ScanRequest<'a>,
    ) -> ResumableScan<'a> {
        ResumableScan {
            connection,
            request,
            entries: 0,
            last_key: None,
        }
    }

    /// Hands all entries to `sink`, and returns how many there were. `incomplete` is what a failure
    /// says besides, given the key of the last entry. Each further connection needs an entry that
    /// the one before has brought, so that this ends.
    pub(super) fn run(
        mut self,
        mut caller: Caller,
        sink: &mut impl EntrySink,
        incomplete: impl Fn(&[u8]) -> Option<String>,
    ) -> Result<u64, Failure> {
        loop {
            let before = self.entries;
            let failure = match self.attempt(&mut caller, sink) {
                Ok(()) => return Ok(self.entries),
                Err(ScanBreak::Given(failure)) => return Err(failure),
                Err(ScanBreak::Refused(failure)) => failure,
                Err(ScanBreak::Lost(_)) if self.is_limit_reached() => {
                    return Ok(self.entries);
                }
                Err(ScanBreak::Lost(failure)) if self.entries == before => failure,
                Err(ScanBreak::Lost(failure)) => match Caller::connect(self.connection) {
                    Ok(next) => {
                        caller = next;
                        continue;
                    }
                    Err(refused) => failure.with(&refused.to_string()),
                },
            };
            let more = self.last_key.as_deref().and_then(incomplete);
            return Err(match more {
                Some(more) => failure.with(&more),
                None => failure,
            });
        }
    }

    fn is_limit_reached(&self) -> bool {
        self.request.limit > 0 && self.entries >= self.request.limit
    }

    /// What is left of the scan.
    fn rest(&self) -> ScanRequest<'_> {
        ScanRequest {
            limit: match self.request.limit {
                0 => 0,
                limit => limit - self.entries,
            },
            start_after: self.last_key.as_deref().or(self.request.start_after),
            ..self.request
        }
    }

    /// Scans on one connection, as far as that brings it. The time of `--timeout` begins anew with
    /// each page, since a scan may be long.
    fn attempt(&mut self, caller: &mut Caller, sink: &mut impl EntrySink) -> Result<(), ScanBreak> {
        let Caller {
            channel,
            address,
            timeout,
        } = caller;
        let timeout = *timeout;
        let ended = |error: CallError| {
            let failure = late_failure(address, timeout, Scan::METHOD.path, &error);
            match error {
                CallError::ConnectionLost { .. } | CallError::NotBegun(_) => {
                    ScanBreak::Lost(failure)
                }
                _ => ScanBreak::Refused(failure),
            }
        };
        let scan = channel.call_streaming::<Scan>(&CallOptions::default());
        let mut scan = scan.map_err(ended)?;
        scan.send(&self.rest());
        scan.close_send();
        let (mut is_complete, mut last_page) = (false, Instant::now());
        loop {
            sink.check_interrupt(self.entries)
                .map_err(ScanBreak::Given)?;
            let step = scan.poll_with(LOOK.min(timeout), |page| self.take(page, sink));
            match step.map_err(ended)? {
                StreamStep::Message(is_last) => {
                    is_complete |= is_last?;
                    last_page = Instant::now();
                }
                StreamStep::Ended if is_complete => return Ok(()),
                StreamStep::Ended => {
                    let failure = unreadable("the last page of the scan is missing");
                    return Err(ScanBreak::Refused(failure));
                }
                StreamStep::Nothing if last_page.elapsed() >= timeout => {
                    return Err(ended(CallError::DeadlineExceeded));
                }
                StreamStep::Nothing => {}
            }
        }
    }

    /// Hands a page to the sink. Returns whether it is the last one.
    fn take(
        &mut self,
        page: Result<ScanPage<'_>, DecodeError>,
        sink: &mut impl EntrySink,
    ) -> Result<bool, ScanBreak> {
        let refused = |error| ScanBreak::Refused(unreadable(error));
        let page = page.map_err(refused)?;
        let mut last_key = None;
        for entry in &page.entries {
            let entry = entry.map_err(refused)?;
            sink.entry(&entry).map_err(ScanBreak::Given)?;
            self.entries += 1;
            last_key = Some(entry.key);
        }
        if let Some(key) = last_key {
            self.last_key = Some(key.to_vec());
        }
        sink.page(self.entries).map_err(ScanBreak::Given)?;
        Ok(page.last)
    }
}
