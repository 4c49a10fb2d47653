//! Calls with one request and any number of messages of the server.

use std::time::Instant;

use wire::StreamKey;
use wire::grpc::Metadata;

use super::{CallInfo, Channel};
use crate::core::CallEventKind;
use crate::error::CallError;

/// The messages of a call that is under way, in order. Dropped early: the call is given up.
#[derive(Debug)]
pub struct ServerStreaming<'a> {
    channel: &'a mut Channel,
    call: StreamKey,
    deadline: Option<Instant>,
    is_over: bool,
    /// How the call has failed, until the next message was asked for.
    failure: Option<CallError>,
}

impl<'a> ServerStreaming<'a> {
    pub(super) fn new(
        channel: &'a mut Channel,
        call: StreamKey,
        deadline: Option<Instant>,
    ) -> ServerStreaming<'a> {
        ServerStreaming {
            channel,
            call,
            deadline,
            is_over: false,
            failure: None,
        }
    }

    /// Gives up at another time from now on. The server still knows the first deadline.
    pub fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.deadline = deadline;
    }

    /// The next message; `None` when the call has ended with status OK.
    ///
    /// # Errors
    /// If it has ended in any other way.
    pub fn next_message(&mut self) -> Result<Option<Vec<u8>>, CallError> {
        while !self.is_over {
            if let CallEventKind::Message = self.next_event()? {
                let message = self.channel.core.message().to_vec();
                self.channel.core.release(self.call);
                return Ok(Some(message));
            }
        }
        self.failure.take().map_or(Ok(None), Err)
    }

    /// Waits for the initial metadata of the answer, which may come long before its first message.
    /// Empty if the server sends only a status.
    ///
    /// # Errors
    /// If the call has failed before; [`ServerStreaming::next_message`] returns the same.
    pub fn initial_metadata(&mut self) -> Result<Metadata, CallError> {
        while !self.channel.has_head && !self.is_over {
            if let Err(error) = self.next_event() {
                self.failure = Some(error);
            }
        }
        let failure = self.failure.as_ref().filter(|_| !self.channel.has_head);
        match failure {
            Some(error) => Err(error.clone()),
            None => Ok(self.info().initial_metadata.clone()),
        }
    }

    /// What has come with the call by now.
    pub fn info(&self) -> &CallInfo {
        self.channel.last_call()
    }

    /// Takes what happens next. The call is over with any end.
    fn next_event(&mut self) -> Result<CallEventKind, CallError> {
        match self.channel.next(self.call, self.deadline) {
            Ok(
                event @ (CallEventKind::Head { .. }
                | CallEventKind::Message
                | CallEventKind::Writable),
            ) => Ok(event),
            Ok(CallEventKind::Ended(status)) if status.is_ok() => {
                self.is_over = true;
                Ok(CallEventKind::Ended(status))
            }
            Ok(end) => {
                self.is_over = true;
                Err(self.channel.error_of(end, self.deadline))
            }
            Err(error) => {
                self.is_over = true;
                Err(error)
            }
        }
    }
}

impl Iterator for ServerStreaming<'_> {
    type Item = Result<Vec<u8>, CallError>;

    fn next(&mut self) -> Option<Result<Vec<u8>, CallError>> {
        self.next_message().transpose()
    }
}

impl Drop for ServerStreaming<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.channel.cancel(self.call);
        }
    }
}
