//! Calls with any number of messages both ways.

use std::time::{Duration, Instant};

use wire::StreamKey;
use wire::grpc::{Code, Metadata};

use super::{CallInfo, Channel};
use crate::core::CallEventKind;
use crate::error::CallError;
use crate::limits;

/// What became of looking at a call.
#[derive(Debug)]
pub enum StreamStep<M = Vec<u8>> {
    /// The next message of the server, or what was made of it.
    Message(M),
    /// No message came in the time given; or there is room for sending again, and it is worth
    /// asking [`Streaming::can_send`].
    Nothing,
    /// The server ended the call with status OK.
    Ended,
}

/// A call that is under way. Whoever sends must also look ([`Streaming::poll`]): a server that
/// nobody listens to stops taking messages. Dropped early: the call is given up.
#[derive(Debug)]
pub struct Streaming<'a> {
    channel: &'a mut Channel,
    call: StreamKey,
    deadline: Option<Instant>,
    is_over: bool,
    /// How the call has failed, until the next message was asked for.
    failure: Option<CallError>,
}

impl<'a> Streaming<'a> {
    pub(crate) fn new(
        channel: &'a mut Channel,
        call: StreamKey,
        deadline: Option<Instant>,
    ) -> Streaming<'a> {
        Streaming {
            channel,
            call,
            deadline,
            is_over: false,
            failure: None,
        }
    }

    /// Whether little enough waits to be sent for a further message.
    pub fn can_send(&self) -> bool {
        !self.is_over && self.channel.core.can_send(self.call)
    }

    /// Sends a message: what does not fit now goes out while the call is looked at.
    pub fn send(&mut self, message: &[u8]) {
        if !self.is_over {
            self.channel.core.send(self.call, message, false);
            self.channel.send();
        }
    }

    /// The same for one of many messages: it goes out with others, at the latest when the call is
    /// looked at. `encode` appends the message to what it is given.
    pub fn send_with_others(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        if self.is_over {
            return;
        }
        self.channel.core.send_with(self.call, false, encode);
        if self.channel.core.output().len() >= limits::GATHERED_BYTES {
            self.channel.send();
        }
    }

    /// Whether the messages from here on are compressed; only in a call that began with `compress`.
    pub fn set_compress(&mut self, compress: bool) {
        self.channel.core.set_compress(self.call, compress);
    }

    /// What has come with the call by now.
    pub fn info(&self) -> &CallInfo {
        self.channel.last_call()
    }

    /// Sends what waits, and returns the initial metadata of the answer if they come within `wait`,
    /// or have come; they may come long before the first message. Empty if the server sends only a
    /// status.
    ///
    /// # Errors
    /// If the call has failed before; [`Streaming::poll`] returns the same.
    pub fn poll_initial_metadata(&mut self, wait: Duration) -> Result<Option<Metadata>, CallError> {
        self.channel.send();
        let until = Instant::now() + wait;
        while !self.channel.has_head && !self.is_over {
            match self.next_event(until) {
                Ok(None) => return Ok(None),
                Ok(Some(_)) => {}
                Err(error) => self.failure = Some(error),
            }
        }
        let failure = self.failure.as_ref().filter(|_| !self.channel.has_head);
        match failure {
            Some(error) => Err(error.clone()),
            None => Ok(Some(self.info().initial_metadata.clone())),
        }
    }

    /// Ends the client's side: no message follows.
    pub fn close_send(&mut self) {
        if !self.is_over {
            self.channel.core.close_send(self.call);
            self.channel.send();
        }
    }

    /// Sends what waits, and takes the next message if there is one within `wait`.
    ///
    /// # Errors
    /// If the call has ended in any other way than with status OK, or its deadline has passed.
    pub fn poll(&mut self, wait: Duration) -> Result<StreamStep, CallError> {
        self.poll_with(wait, <[u8]>::to_vec)
    }

    /// The same; `take` looks at the message where it lies.
    ///
    /// # Errors
    /// As [`Streaming::poll`].
    pub fn poll_with<M>(
        &mut self,
        wait: Duration,
        take: impl FnOnce(&[u8]) -> M,
    ) -> Result<StreamStep<M>, CallError> {
        if self.is_over {
            return self.failure.take().map_or(Ok(StreamStep::Ended), Err);
        }
        self.channel.send();
        let until = Instant::now() + wait;
        loop {
            match self.next_event(until)? {
                Some(CallEventKind::Message) => {
                    let taken = take(self.channel.core.message());
                    self.channel.core.release(self.call);
                    return Ok(StreamStep::Message(taken));
                }
                Some(CallEventKind::Head { .. }) => {}
                Some(CallEventKind::Ended(_)) => return Ok(StreamStep::Ended),
                Some(_) | None => return Ok(StreamStep::Nothing),
            }
        }
    }

    /// Takes what happens next, `None` if nothing does until then. The call is over with any end,
    /// of which only that with status OK is no error.
    fn next_event(&mut self, until: Instant) -> Result<Option<CallEventKind>, CallError> {
        let until = self.deadline.map_or(until, |deadline| deadline.min(until));
        match self.channel.next_until(self.call, Some(until)) {
            None if self.deadline == Some(until) => {
                self.is_over = true;
                self.channel.end_span(Code::DeadlineExceeded);
                self.channel.cancel(self.call);
                Err(CallError::DeadlineExceeded)
            }
            Some(CallEventKind::Ended(status)) if status.is_ok() => {
                self.is_over = true;
                Ok(Some(CallEventKind::Ended(status)))
            }
            Some(
                end @ (CallEventKind::Ended(_)
                | CallEventKind::NotBegun
                | CallEventKind::Lost { .. }
                | CallEventKind::AnswerTooLarge
                | CallEventKind::BadAnswer { .. }),
            ) => {
                self.is_over = true;
                Err(self.channel.error_of(end, self.deadline))
            }
            event => Ok(event),
        }
    }
}

impl Drop for Streaming<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.channel.cancel(self.call);
        }
    }
}
