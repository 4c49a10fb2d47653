//! Watching: what is committed, response by response.

use std::iter::FusedIterator;
use std::time::Instant;

use api::keyvalue::{self, Change, ChangeKind, Commit, WatchResponse};
use api::rpc::keyvalue::Watch;
use wire::grpc::Metadata;

use super::point::ResumePoint;
use super::scan::StoredEntry;
use super::single::StoredValue;
use crate::channel::ServerStreaming;
use crate::error::CallError;
use crate::typed::{AwaitedStream, Call, OpenStream, Replies, Reply, ReplySource};

impl<'a, O> Call<'a, Watch, O> {
    /// Begins behind this point, and not behind what is there now: the point of an earlier
    /// response ([`WatchedCommits::resume`]), or of a scan ([`ScannedPage::resume_point`]). The
    /// call ends with OUT_OF_RANGE if the changes since then are no longer all there.
    ///
    /// [`ScannedPage::resume_point`]: super::ScannedPage::resume_point
    pub fn resume(mut self, point: &'a ResumePoint) -> Self {
        self.request.resume = Some(keyvalue::ResumePoint {
            history_id: &point.history_id,
            sequence: point.sequence,
        });
        self
    }

    /// Leaves the values out.
    pub fn keys_only(mut self) -> Self {
        self.request.keys_only = true;
        self
    }

    /// Also returns the entries before the changes, as far as they are known.
    pub fn with_previous(mut self) -> Self {
        self.request.with_previous = true;
        self
    }

    /// Takes a response of so many bytes, from 128 KiB to 64 MiB; without this 4 MiB. A commit that
    /// does not fit comes without previous entries, then without its largest values, then in parts.
    pub fn max_response_bytes(mut self, bytes: u64) -> Self {
        self.request.max_answer_bytes = bytes;
        self
    }
}

impl<'a, C: OpenStream> Call<'_, Watch, &'a mut C> {
    /// Begins to watch. A time limit is that of the whole stream, which does not end by itself.
    ///
    /// # Errors
    /// If the call cannot begin.
    pub fn send(self) -> Result<WatchStream<C::Source<'a>>, CallError> {
        let (over, request, options) = self.into_parts();
        let replies = over.open_stream(&request, &options)?;
        Ok(WatchStream {
            replies,
            is_over: false,
        })
    }
}

/// One response to a watcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchedCommits {
    /// The commits, in their order. None: nothing has changed, and only the point is new.
    pub commits: Vec<WatchedCommit>,
    /// From where to watch if the stream breaks after this response. With a part of a commit it is
    /// the point before that commit: all its parts come again.
    pub resume: ResumePoint,
    /// The watcher was too slow, and the server ends the call. It may resume.
    pub is_too_slow: bool,
}

/// What a commit has changed, of the keys that are watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchedCommit {
    /// The sequence of the commit.
    pub sequence: u64,
    /// When it was made by the clock of the server, in milliseconds since 1970.
    pub at_ms: u64,
    /// The changes, at most one for each key.
    pub changes: Vec<WatchedChange>,
    /// The rest of the changes is in the next response.
    pub is_continued: bool,
}

/// What a commit has done to a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchedChange {
    /// What has become of the key. `Unspecified`: something that this client does not know.
    pub kind: ChangeKind,
    /// The key, and for `Set` the value; without a key for `Clear`.
    pub entry: StoredEntry,
    /// The entry before, if it was asked for, there was one, and it is known.
    pub previous: Option<StoredValue>,
    /// There is a value that is not here, so that the commit fits into a response: a get returns
    /// it.
    pub is_value_left_out: bool,
}

impl WatchedCommits {
    fn of(response: &WatchResponse<'_>) -> WatchedCommits {
        let resume = response.resume.unwrap_or_default();
        // All of them were decoded when the response came.
        let commits = response.commits.iter().flatten();
        WatchedCommits {
            commits: commits.map(|commit| WatchedCommit::of(&commit)).collect(),
            resume: ResumePoint {
                history_id: resume.history_id.to_vec(),
                sequence: resume.sequence,
            },
            is_too_slow: response.too_slow,
        }
    }
}

impl WatchedCommit {
    fn of(commit: &Commit<'_>) -> WatchedCommit {
        let changes = commit.changes.iter().flatten();
        WatchedCommit {
            sequence: commit.sequence,
            at_ms: commit.at_ms,
            changes: changes.map(|change| WatchedChange::of(&change)).collect(),
            is_continued: commit.continued,
        }
    }
}

impl WatchedChange {
    fn of(change: &Change<'_>) -> WatchedChange {
        WatchedChange {
            kind: ChangeKind::from_number(change.kind).unwrap_or(ChangeKind::Unspecified),
            entry: StoredEntry::of(&change.entry.unwrap_or_default()),
            previous: change.previous.as_ref().map(StoredValue::of),
            is_value_left_out: change.value_left_out,
        }
    }
}

/// The responses to a watcher, in order: the first one comes at once, and then one at least every
/// 10 seconds. A watcher that falls behind what the server keeps ends with OUT_OF_RANGE.
/// Dropped: the call is cancelled.
#[derive(Debug)]
pub struct WatchStream<S> {
    replies: Replies<Watch, S>,
    /// The call has ended, well or not.
    is_over: bool,
}

impl<S> WatchStream<S> {
    fn take(
        &mut self,
        reply: Result<Option<Reply<Watch>>, CallError>,
    ) -> Result<Option<WatchedCommits>, CallError> {
        self.is_over = !matches!(reply, Ok(Some(_)));
        Ok(reply?.map(|reply| WatchedCommits::of(&reply.message())))
    }
}

impl WatchStream<ServerStreaming<'_>> {
    /// Gives the call up at another time from now on: 10 seconds and some more behind a response,
    /// a server that has gone without a word is noticed. The server still knows the first deadline.
    pub fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.replies.set_deadline(deadline);
    }
}

impl<S: ReplySource> WatchStream<S> {
    /// Waits for the next response; `None` if the server has ended the call with status OK.
    ///
    /// # Errors
    /// If the call ends in any other way: once.
    pub fn next_response(&mut self) -> Result<Option<WatchedCommits>, CallError> {
        if self.is_over {
            return Ok(None);
        }
        let reply = self.replies.next_reply();
        self.take(reply)
    }

    /// Waits for the initial metadata, as [`ReplySource::initial_metadata`] returns them.
    ///
    /// # Errors
    /// If the call has failed before; [`WatchStream::next_response`] returns the same.
    pub fn initial_metadata(&mut self) -> Result<Metadata, CallError> {
        self.replies.initial_metadata()
    }
}

impl WatchStream<AwaitedStream> {
    /// Resolves to the next response; `None` if the server has ended the call with status OK.
    /// Dropped before: nothing is lost.
    ///
    /// # Errors
    /// If the call ends in any other way: once.
    pub async fn next_response(&mut self) -> Result<Option<WatchedCommits>, CallError> {
        if self.is_over {
            return Ok(None);
        }
        let reply = self.replies.next_reply().await;
        self.take(reply)
    }

    /// Resolves to the initial metadata, as [`ReplySource::initial_metadata`] returns them.
    ///
    /// # Errors
    /// If the call has failed before; [`WatchStream::next_response`] returns the same.
    pub async fn initial_metadata(&mut self) -> Result<Metadata, CallError> {
        self.replies.initial_metadata().await
    }
}

/// Ends behind the first error.
impl<S: ReplySource> Iterator for WatchStream<S> {
    type Item = Result<WatchedCommits, CallError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_response().transpose()
    }
}

impl<S: ReplySource> FusedIterator for WatchStream<S> {}
