//! A watch that goes on behind what it was last sent when the connection ends.
//!
//! It also tries again when the server has gone: that may have been a proxy's connection to it, and
//! whether the changes since then are still there, the server says. When its token is not good any
//! more, it takes the one that is in its file now, if that is another one: tokens are rotated while
//! a watch runs.

use std::time::{Duration, Instant};

use api::keyvalue::{Change, Commit, ResumePoint, WatchRequest, WatchResponse};
use api::rpc::Rpc;
use api::rpc::keyvalue::Watch;
use client::{CallError, CallOptions, Code, StreamStep};
use protobuf::DecodeError;
use service::limits::WATCH_HEARTBEAT_MS;
use zeroize::Zeroizing;

use super::{Caller, backoff, late_failure, unreadable};
use crate::arguments::{ConnectionArguments, Point};
use crate::credentials::{credentials_of, token};
use crate::exit::Failure;
use crate::interrupt::Interrupt;
use crate::report;

/// How long to wait for a response before a signal is looked for.
const LOOK: Duration = Duration::from_millis(50);

/// What to do when changes were lost.
const LOST_HINT: &str = "what came in between cannot be printed any more: begin to watch without \
                         --from, then read what is there with `pelton scan`";

/// What is done with changes.
pub(super) trait ChangeSink {
    /// Takes what comes next of a commit: all of it, or a part.
    fn commit(&mut self, part: &CommitPart<'_>) -> Result<(), Failure>;

    /// A response is over: everything up to `point` was handed over. The first one comes at once.
    fn response(&mut self, point: Point) -> Result<(), Failure>;

    /// Brings what was handed over to where it belongs.
    fn flush(&mut self) -> Result<(), Failure>;

    /// Returns whether it wants no more commits.
    fn is_done(&self) -> bool;

    /// Fails if the user wants the watch to end, or nobody takes what it brings.
    fn check_end(&self) -> Result<(), Failure>;
}

/// Changes of a commit that have not been handed over before.
pub(super) struct CommitPart<'a> {
    pub(super) sequence: u64,
    pub(super) at_ms: u64,
    pub(super) changes: &'a [Change<'a>],
    /// The rest of the commit follows.
    pub(super) is_continued: bool,
    /// From where to go on behind this: behind the commit, or before it if it is not complete.
    pub(super) resume: Point,
}

/// A watch, and how far it has come.
pub(super) struct ResumableWatch<'a> {
    connection: &'a ConnectionArguments,
    request: WatchRequest<'a>,
    interrupt: &'a Interrupt,
    progress: Progress,
    /// With which the last connection was made.
    token: Option<Zeroizing<String>>,
}

/// How far a watch has come.
#[derive(Default)]
struct Progress {
    /// Everything up to here was handed over. `None`: nothing has come.
    point: Option<Point>,
    /// The commit behind that, if a part of it was.
    unfinished: Option<UnfinishedCommit>,
    /// Changes of that commit that have come on this connection.
    received_changes: usize,
    responses: u64,
}

/// A commit of which a part was handed over.
#[derive(Clone, Copy)]
struct UnfinishedCommit {
    sequence: u64,
    /// So many of its changes.
    changes: usize,
}

/// Why a connection has brought no more.
enum WatchBreak {
    /// It was lost, or the server stops: another one may do better.
    Lost(Failure),
    /// The server, or what came from it, ends the watch.
    Refused(Failure),
    /// The sink wants no more.
    Given(Failure),
}

impl WatchBreak {
    /// What the failure of a call that was waited for so long means for another connection.
    fn of_call(address: &str, waited: Duration, error: &CallError) -> WatchBreak {
        let failure = late_failure(address, waited, Watch::METHOD.path, error);
        let may_pass = match error {
            CallError::Status(status) => {
                matches!(status.code(), Code::Unavailable | Code::Unknown)
            }
            CallError::NotBegun(_)
            | CallError::ConnectionLost { .. }
            | CallError::DeadlineExceeded => true,
            CallError::PoolClosed
            | CallError::BadAnswer { .. }
            | CallError::AnswerTooLarge
            | CallError::RequestTooLarge { .. }
            | CallError::MetadataTooLarge
            | CallError::BadRequest { .. } => false,
        };
        match may_pass {
            true => WatchBreak::Lost(failure),
            false => WatchBreak::Refused(failure),
        }
    }
}

impl<'a> ResumableWatch<'a> {
    /// `from`: where to begin, if not with what is changed from now on.
    pub(super) fn new(
        connection: &'a ConnectionArguments,
        request: WatchRequest<'a>,
        from: Option<Point>,
        interrupt: &'a Interrupt,
    ) -> ResumableWatch<'a> {
        ResumableWatch {
            connection,
            request,
            interrupt,
            progress: Progress {
                point: from,
                ..Progress::default()
            },
            token: None,
        }
    }

    /// Hands all changes to `sink`, until that is done. Once the server has responded, it is tried
    /// again for as long as that takes; until then, as with other commands, a failure is the end.
    pub(super) fn run(mut self, sink: &mut impl ChangeSink) -> Result<(), Failure> {
        let mut in_row = 0;
        loop {
            let before = self.progress.responses;
            let mut until = "until the server is there";
            let failure = match self.attempt(in_row > 0, sink) {
                Ok(()) => return Ok(()),
                Err(WatchBreak::Lost(failure)) if self.progress.responses > 0 => failure,
                Err(WatchBreak::Refused(failure)) if self.has_other_token(&failure) => {
                    until = "with the token that is in --token-file now";
                    failure
                }
                Err(
                    WatchBreak::Lost(failure)
                    | WatchBreak::Refused(failure)
                    | WatchBreak::Given(failure),
                ) => {
                    return Err(self.with_point(failure));
                }
            };
            in_row = match self.progress.responses > before {
                true => 1,
                false => in_row + 1,
            };
            if in_row == 1 {
                let text = format!("{failure}; trying again {until}");
                report::warn(&text, self.connection.output);
            }
            backoff::wait(in_row, self.interrupt);
            sink.check_end()
                .map_err(|failure| self.with_point(failure))?;
        }
    }

    /// Returns whether the token with which the watch has run is not good any more, and another
    /// one is in its file by now.
    fn has_other_token(&self, failure: &Failure) -> bool {
        let is_refused = matches!(
            failure,
            Failure::Call(call) if call.status == Some(Code::Unauthenticated)
        );
        let arguments = &self.connection.credentials;
        is_refused
            && self.progress.responses > 0
            && arguments.token_file.is_some()
            && token(arguments).is_ok_and(|now| now.is_some() && now != self.token)
    }

    /// The same failure, with how to go on.
    fn with_point(&self, failure: Failure) -> Failure {
        if matches!(&failure, Failure::Call(call) if call.status == Some(Code::OutOfRange)) {
            return failure.with(LOST_HINT);
        }
        let Some(point) = self.progress.point.filter(|_| self.progress.responses > 0) else {
            return failure;
        };
        let failure = failure.with(&format!("`--from {point}` goes on from here"));
        match self.progress.unfinished {
            Some(UnfinishedCommit { changes, .. }) => failure.with(&format!(
                "of the commit behind that point the first {changes} changes were printed"
            )),
            None => failure,
        }
    }

    /// Watches on one connection, as far as that brings it.
    fn attempt(&mut self, is_repeated: bool, sink: &mut impl ChangeSink) -> Result<(), WatchBreak> {
        let caller = token(&self.connection.credentials).and_then(|token| {
            self.token = token;
            let token = self.token.as_ref().map(|token| token.as_str());
            let credentials = credentials_of(&self.connection.credentials, token)?;
            Caller::connect_as(self.connection, credentials)
        });
        let Caller {
            mut channel,
            address,
            timeout,
        } = caller.map_err(|failure| match failure.may_pass() {
            true => WatchBreak::Lost(failure),
            false => WatchBreak::Refused(failure),
        })?;
        let ended = |error: CallError, waited| WatchBreak::of_call(&address, waited, &error);
        let watch = channel.call_streaming::<Watch>(&CallOptions::default());
        let mut watch = watch.map_err(|error| ended(error, timeout))?;
        let from = self.progress.point;
        let history_id = from.map_or([0; 8], |from| api::history_id_bytes(from.history_id));
        watch.send(&WatchRequest {
            resume: from.map(|from| ResumePoint {
                history_id: match from.history_id {
                    0 => &[],
                    _ => &history_id,
                },
                sequence: from.sequence,
            }),
            ..self.request
        });
        watch.close_send();
        let progress = &mut self.progress;
        progress.received_changes = 0;
        let (mut last_response, mut longest) = (Instant::now(), timeout);
        let mut is_resumed = false;
        loop {
            sink.check_end().map_err(WatchBreak::Given)?;
            let step = watch.poll_with(LOOK.min(timeout), |response| {
                let response = response.map_err(|error| WatchBreak::Refused(unreadable(error)))?;
                progress.take(&response, sink)
            });
            match step.map_err(|error| ended(error, longest))? {
                StreamStep::Message(taken) => {
                    taken?;
                    if sink.is_done() {
                        return Ok(());
                    }
                    if is_repeated && !is_resumed {
                        is_resumed = true;
                        let text = "the server is there again, and nothing was missed";
                        report::warn(text, self.connection.output);
                    }
                    last_response = Instant::now();
                    longest = timeout + Duration::from_millis(WATCH_HEARTBEAT_MS);
                }
                StreamStep::Ended => {
                    return Err(WatchBreak::Lost(unreadable(
                        "the watch has ended by itself",
                    )));
                }
                StreamStep::Nothing if last_response.elapsed() >= longest => {
                    return Err(ended(CallError::DeadlineExceeded, longest));
                }
                StreamStep::Nothing => {}
            }
        }
    }
}

impl Progress {
    /// Hands to the sink what a response brings.
    fn take(
        &mut self,
        response: &WatchResponse<'_>,
        sink: &mut impl ChangeSink,
    ) -> Result<(), WatchBreak> {
        let broken = |error: DecodeError| WatchBreak::Refused(unreadable(error));
        let Some(resume) = response.resume else {
            return Err(WatchBreak::Refused(unreadable(
                "a response without a point",
            )));
        };
        let point = Point {
            history_id: api::history_id(resume.history_id),
            sequence: resume.sequence,
        };
        for commit in &response.commits {
            self.take_commit(&commit.map_err(broken)?, point, sink)?;
            if sink.is_done() {
                // What else has come is left for another run.
                return sink.flush().map_err(WatchBreak::Given);
            }
        }
        self.point = Some(point);
        self.responses += 1;
        sink.response(point).map_err(WatchBreak::Given)
    }

    fn take_commit(
        &mut self,
        commit: &Commit<'_>,
        point: Point,
        sink: &mut impl ChangeSink,
    ) -> Result<(), WatchBreak> {
        let unfinished = self.unfinished.filter(|it| it.sequence == commit.sequence);
        let known = unfinished.map_or(0, |it| it.changes);
        if unfinished.is_none() {
            self.received_changes = 0;
        }
        let changes: Result<Vec<Change<'_>>, DecodeError> = commit.changes.iter().collect();
        let changes = changes.map_err(|error| WatchBreak::Refused(unreadable(error)))?;
        // All parts of a commit come again on a further connection, in the same order.
        let skipped = known.saturating_sub(self.received_changes);
        let changes_left = changes.get(skipped..).unwrap_or_default();
        self.received_changes += changes.len();
        if !changes_left.is_empty() || !commit.continued {
            let part = CommitPart {
                sequence: commit.sequence,
                at_ms: commit.at_ms,
                changes: changes_left,
                is_continued: commit.continued,
                resume: match commit.continued {
                    true => point,
                    false => Point {
                        sequence: commit.sequence,
                        ..point
                    },
                },
            };
            sink.commit(&part).map_err(WatchBreak::Given)?;
        }
        self.unfinished = commit.continued.then(|| UnfinishedCommit {
            sequence: commit.sequence,
            changes: known.max(self.received_changes),
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use api::keyvalue::Entry;

    use super::*;

    /// What was handed over: the sequence and the keys of each part, and whether more follows.
    #[derive(Default)]
    struct Recorded {
        parts: Vec<(u64, Vec<u8>, bool)>,
        resumes: Vec<u64>,
        limit: usize,
    }

    impl ChangeSink for Recorded {
        fn commit(&mut self, part: &CommitPart<'_>) -> Result<(), Failure> {
            let keys = part.changes.iter().map(|change| {
                let entry = change.entry.expect("each change has a key");
                entry.key[0]
            });
            self.parts
                .push((part.sequence, keys.collect(), part.is_continued));
            self.resumes.push(part.resume.sequence);
            Ok(())
        }

        fn response(&mut self, _: Point) -> Result<(), Failure> {
            Ok(())
        }

        fn flush(&mut self) -> Result<(), Failure> {
            Ok(())
        }

        fn is_done(&self) -> bool {
            let complete = self.parts.iter().filter(|part| !part.2).count();
            self.limit > 0 && complete >= self.limit
        }

        fn check_end(&self) -> Result<(), Failure> {
            Ok(())
        }
    }

    /// Takes a response with one commit, which changes these keys.
    fn take(
        progress: &mut Progress,
        sink: &mut Recorded,
        (sequence, keys, continued, resume): (u64, &[u8], bool, u64),
    ) {
        let changes: Vec<Change<'_>> = (0..keys.len())
            .map(|place| Change {
                entry: Some(Entry {
                    key: &keys[place..=place],
                    ..Entry::default()
                }),
                ..Change::default()
            })
            .collect();
        let commits = [Commit {
            sequence,
            at_ms: 1,
            changes: changes[..].into(),
            continued,
        }];
        let response = WatchResponse {
            commits: (&commits).into(),
            resume: Some(ResumePoint {
                history_id: &[0, 0, 0, 0, 0, 0, 0, 9],
                sequence: resume,
            }),
            ..WatchResponse::default()
        };
        let taken = progress.take(&response, sink);
        assert!(taken.is_ok(), "the response is valid");
    }

    /// What the server sends of three commits from a point on, the second one in parts.
    fn sent(from: u64, sizes: &[usize]) -> Vec<(u64, &'static [u8], bool, u64)> {
        let mut all: Vec<(u64, &'static [u8], bool, u64)> = vec![(3, b"x", false, 3)];
        let mut rest = &b"abcdefg"[..];
        for &size in sizes {
            let (part, behind) = rest.split_at(size.min(rest.len()));
            rest = behind;
            let resume = if rest.is_empty() { 5 } else { 3 };
            all.push((5, part, !rest.is_empty(), resume));
        }
        assert!(rest.is_empty());
        all.push((8, b"y", false, 9));
        all.retain(|response| response.0 > from);
        all
    }

    #[test]
    fn no_change_is_repeated_or_missed_wherever_the_connection_breaks() {
        let whole = [7];
        let sizes: [&[usize]; 4] = [&[3, 2, 2], &[1, 1, 1, 1, 3], &[6, 1], &whole];
        for (first, second, third) in sizes.iter().flat_map(|one| {
            let others = sizes
                .iter()
                .flat_map(|two| sizes.iter().map(move |three| (two, three)));
            others.map(move |(two, three)| (one, two, three))
        }) {
            for breaks in 0..36 {
                let (mut progress, mut sink) = (Progress::default(), Recorded::default());
                let connections = [(first, breaks % 6), (second, breaks / 6), (third, 99)];
                for (sizes, count) in connections {
                    progress.received_changes = 0;
                    let from = progress.point.map_or(2, |point| point.sequence);
                    for response in sent(from, sizes).into_iter().take(count) {
                        take(&mut progress, &mut sink, response);
                    }
                }
                let keys: Vec<u8> = sink.parts.iter().flat_map(|part| part.1.clone()).collect();
                assert_eq!(
                    keys, b"xabcdefgy",
                    "{first:?} {second:?} {third:?} {breaks}"
                );
                let complete = sink.parts.iter().filter(|part| !part.2);
                let complete: Vec<u64> = complete.map(|part| part.0).collect();
                assert_eq!(complete, [3, 5, 8]);
                for (part, resume) in sink.parts.iter().zip(&sink.resumes) {
                    assert_eq!(*resume, if part.2 { 3 } else { part.0 });
                }
                assert_eq!(progress.point.map(|point| point.sequence), Some(9));
                assert!(progress.unfinished.is_none());
            }
        }
    }

    #[test]
    fn behind_the_limit_nothing_is_handed_over() {
        let (mut progress, mut sink) = (Progress::default(), Recorded::default());
        sink.limit = 2;
        let point = Some(ResumePoint::default());
        let commits = [1, 2, 3].map(|sequence| Commit {
            sequence,
            ..Commit::default()
        });
        let response = WatchResponse {
            commits: (&commits).into(),
            resume: point,
            ..WatchResponse::default()
        };
        assert!(progress.take(&response, &mut sink).is_ok());
        assert_eq!(sink.resumes, [1, 2]);
    }
}
