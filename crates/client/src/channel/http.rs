//! Plain HTTP requests.

use std::time::{Duration, Instant};

use wire::StreamKey;

use super::{CallInfo, CallOptions, Channel};
use crate::core::CallEventKind;
use crate::credentials::Credentials;
use crate::error::CallError;
use crate::limits;

/// The answer to a plain HTTP request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpAnswer {
    /// The HTTP status; 0: it has not come.
    pub status: u16,
    /// The body, at most [`limits::HTTP_BODY_BYTES`] of it.
    pub body: Vec<u8>,
}

impl Channel {
    /// Sends a plain HTTP GET.
    ///
    /// # Errors
    /// If there is no answer.
    pub fn http_get(
        &mut self,
        path: &str,
        options: &CallOptions<'_>,
    ) -> Result<HttpAnswer, CallError> {
        self.begin_http();
        let opened = self.core.open_http_get(&self.authority, path);
        let call = opened.map_err(|error| self.with_reason(error))?;
        let mut answer = HttpAnswer::default();
        loop {
            let kind = self.next(call, options.deadline)?;
            if self.note_http(call, kind, &mut answer, options.deadline)? {
                return Ok(answer);
            }
        }
    }

    /// Begins a plain HTTP POST, whose body follows. Of the options it has the deadline, which the
    /// server is not told; the credentials of the channel go with it.
    ///
    /// # Errors
    /// If it cannot begin.
    pub fn http_post(
        &mut self,
        path: &str,
        options: &CallOptions<'_>,
    ) -> Result<HttpPost<'_>, CallError> {
        self.begin_http();
        let metadata = self.credentials.as_ref().map(Credentials::metadata);
        let opened = (self.core).open_http_post(&self.authority, path, metadata);
        let call = opened.map_err(|error| self.with_reason(error))?;
        Ok(HttpPost {
            channel: self,
            call,
            deadline: options.deadline,
            answer: HttpAnswer::default(),
            is_over: false,
        })
    }

    fn begin_http(&mut self) {
        self.catch_up();
        self.info = CallInfo::default();
    }

    /// Adds what happened to a request to its answer; returns whether that is complete.
    fn note_http(
        &mut self,
        call: StreamKey,
        kind: CallEventKind,
        answer: &mut HttpAnswer,
        deadline: Option<Instant>,
    ) -> Result<bool, CallError> {
        match kind {
            CallEventKind::Head { http_status } => answer.status = http_status,
            CallEventKind::Message => {
                let room = limits::HTTP_BODY_BYTES - answer.body.len();
                let piece = self.core.message();
                let kept = piece.get(..room).unwrap_or(piece);
                answer.body.extend_from_slice(kept);
                self.core.release(call);
            }
            CallEventKind::Writable => {}
            CallEventKind::Ended(status) if status.is_ok() => {
                // An answer without a body has its head in the same event.
                if answer.status == 0 {
                    answer.status = self.core.http_status();
                }
                return Ok(true);
            }
            end => return Err(self.error_of(end, deadline)),
        }
        Ok(false)
    }
}

/// A plain HTTP POST whose body is under way. Whoever sends must also look ([`HttpPost::poll`]).
/// Dropped early: the request is given up.
#[derive(Debug)]
pub struct HttpPost<'a> {
    channel: &'a mut Channel,
    call: StreamKey,
    deadline: Option<Instant>,
    answer: HttpAnswer,
    is_over: bool,
}

impl HttpPost<'_> {
    /// Returns whether little enough waits to be sent for a further piece.
    pub fn can_send(&self) -> bool {
        !self.is_over && self.channel.core.can_send(self.call)
    }

    /// Sends a piece of the body: it goes out with others, at the latest when the request is looked
    /// at.
    pub fn send_with_others(&mut self, piece: &[u8]) {
        if self.is_over {
            return;
        }
        self.channel.core.send_body(self.call, piece);
        if self.channel.core.output().len() >= limits::GATHERED_BYTES {
            self.channel.send();
        }
    }

    /// Ends the body.
    pub fn close_send(&mut self) {
        if !self.is_over {
            self.channel.core.close_send(self.call);
            self.channel.send();
        }
    }

    /// Sends what waits, and takes what comes within `wait`, or until there is room for sending
    /// again. Returns whether the answer is complete, which a server may send before it has read
    /// the whole body.
    ///
    /// # Errors
    /// If there is no answer, or none before the deadline. The request is over then.
    pub fn poll(&mut self, wait: Duration) -> Result<bool, CallError> {
        if self.is_over {
            return Ok(true);
        }
        self.channel.send();
        let until = Instant::now() + wait;
        let until = self.deadline.map_or(until, |deadline| deadline.min(until));
        let noted = match self.channel.next_until(self.call, Some(until)) {
            None if self.deadline == Some(until) => {
                self.channel.cancel(self.call);
                Err(CallError::DeadlineExceeded)
            }
            None => Ok(false),
            Some(kind) => {
                (self.channel).note_http(self.call, kind, &mut self.answer, self.deadline)
            }
        };
        self.is_over = !matches!(noted, Ok(false));
        noted
    }

    /// What has come of the answer.
    pub fn answer(&self) -> &HttpAnswer {
        &self.answer
    }
}

impl Drop for HttpPost<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.channel.cancel(self.call);
        }
    }
}
