//! How calls of a pool begin.

use bytes::Bytes;

use super::calls::CallStage;
use super::connection::PoolConnection;
use super::event::{PoolCall, PoolCallKey, PoolEvent};
use super::kept::KeptMessage;
use super::waiting::WaitCause;
use super::{PoolEngine, merged};
use crate::core::{CallRequest, Core};
use crate::credentials::Credentials;
use crate::error::{CallError, NotBegun};

impl PoolEngine {
    /// Begins a call with one request, which `encode` appends to what it is given: at once, or not
    /// at all. `tag` is the caller's name for the call. The call goes out with the next output, or
    /// waits.
    ///
    /// # Errors
    /// If the call is refused at once; nothing is sent then, and nothing is reported of it.
    pub fn begin(
        &mut self,
        tag: u64,
        call: &PoolCall<'_>,
        now_ns: u64,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> Result<PoolCallKey, CallError> {
        self.begin_shared(tag, call, now_ns, |out| {
            encode(out);
            None
        })
    }

    /// The same for a request of which others hold a part: `encode` appends its head, and returns
    /// what follows, which is not copied before it goes out; `None`: nothing does.
    ///
    /// # Errors
    /// As [`PoolEngine::begin`].
    pub fn begin_shared(
        &mut self,
        tag: u64,
        call: &PoolCall<'_>,
        now_ns: u64,
        encode: impl FnOnce(&mut Vec<u8>) -> Option<Bytes>,
    ) -> Result<PoolCallKey, CallError> {
        let key = self.admit(tag, call, now_ns)?;
        let limit_bytes = self.options.max_request_bytes;
        if let Some(state) = self.calls.get_mut(key) {
            let bytes = state.kept.push(state.compresses, encode).len();
            state.is_send_ended = true;
            if bytes > limit_bytes {
                self.calls.remove(key);
                return Err(self.refused(CallError::RequestTooLarge { bytes, limit_bytes }));
            }
        }
        self.start(key, now_ns)
    }

    /// Begins a call to which messages go by [`PoolEngine::send`].
    ///
    /// # Errors
    /// As [`PoolEngine::begin`].
    pub fn begin_streaming(
        &mut self,
        tag: u64,
        call: &PoolCall<'_>,
        now_ns: u64,
    ) -> Result<PoolCallKey, CallError> {
        let key = self.admit(tag, call, now_ns)?;
        if let Some(state) = self.calls.get_mut(key) {
            state.traits.is_streaming = true;
        }
        self.start(key, now_ns)
    }

    /// Gives a call a slot, unless it is known that it cannot be made.
    fn admit(
        &mut self,
        tag: u64,
        call: &PoolCall<'_>,
        now_ns: u64,
    ) -> Result<PoolCallKey, CallError> {
        if self.close_ns.is_some() {
            return Err(self.refused(CallError::NotBegun(NotBegun::PoolClosed)));
        }
        let default_ns = self
            .options
            .default_timeout
            .map(|timeout| u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX));
        let timeout_ns = call.timeout_ns.or(default_ns);
        if timeout_ns == Some(0) {
            return Err(self.refused(CallError::NotBegun(NotBegun::DeadlinePassed)));
        }
        let deadline_ns =
            timeout_ns.map_or(u64::MAX, |timeout_ns| now_ns.saturating_add(timeout_ns));
        self.has_begun = true;
        if self.is_idle {
            self.wake_timers(now_ns);
        }
        let key = self.calls.insert(tag, call, deadline_ns);
        if let Some(state) = self.calls.get_mut(key) {
            state.metadata = merged(call.metadata, self.options.credentials.as_ref());
        }
        Ok(key)
    }

    fn refused(&mut self, error: CallError) -> CallError {
        self.counters.refused += 1;
        error
    }

    /// Opens a stream for a new call, or lets it wait.
    fn start(&mut self, key: PoolCallKey, now_ns: u64) -> Result<PoolCallKey, CallError> {
        if self.waiting.queued() == 0 && self.has_permit() {
            match self.open_anywhere(key, now_ns) {
                OpenedStream::Running => {
                    self.counters.begun += 1;
                    return Ok(key);
                }
                OpenedStream::Impossible(error) => {
                    self.calls.remove(key);
                    return Err(self.refused(error));
                }
                OpenedStream::NoRoom => {}
            }
        }
        if let Err(error) = self.check_wait(key, now_ns) {
            self.calls.remove(key);
            return Err(self.refused(error));
        }
        self.waiting.count_time(now_ns);
        if self.waiting.queued() == 0 {
            self.waiting.set_cause(self.wait_cause());
        }
        self.waiting.push_back(key);
        self.needs_balance |= self.has_permit();
        self.counters.begun += 1;
        Ok(key)
    }

    /// Refuses a call that would wait for longer than calls may.
    fn check_wait(&self, key: PoolCallKey, now_ns: u64) -> Result<(), CallError> {
        let limit = self.options.max_waiting;
        if self.waiting.len() >= limit {
            return Err(CallError::NotBegun(NotBegun::QueueFull { limit }));
        }
        let waits_for_ready = self
            .calls
            .get(key)
            .is_some_and(|call| call.traits.waits_for_ready);
        match self.unreachable(now_ns) {
            Some(reason) if !waits_for_ready => {
                Err(CallError::NotBegun(NotBegun::Unreachable { reason }))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn has_permit(&self) -> bool {
        self.in_flight < self.options.max_in_flight
    }

    pub(super) fn wait_cause(&self) -> WaitCause {
        if !self.has_permit() {
            WaitCause::Permit
        } else if self.has_serving_connection() {
            WaitCause::Stream
        } else {
            WaitCause::Connection
        }
    }

    /// Lets calls of the queue begin, as far as there is room.
    pub(super) fn dispatch(&mut self, now_ns: u64, on: &mut impl FnMut(PoolEvent<'_>)) {
        if self.waiting.queued() == 0 {
            return;
        }
        self.waiting.count_time(now_ns);
        while self.has_permit()
            && let Some(key) = self.waiting.pop(&self.calls)
        {
            match self.open_anywhere(key, now_ns) {
                OpenedStream::Running => self.report_writable(key, on),
                OpenedStream::Impossible(error) => self.end_failed(key, error, on),
                OpenedStream::NoRoom => {
                    self.waiting.push_front(key);
                    self.needs_balance = true;
                    break;
                }
            }
        }
        self.waiting.compact(&self.calls);
    }

    /// A streaming call that waited may take more now than could be kept for it.
    fn report_writable(&mut self, key: PoolCallKey, on: &mut impl FnMut(PoolEvent<'_>)) {
        let Some(state) = self.calls.get_mut(key) else {
            return;
        };
        let tag = state.tag;
        if std::mem::take(&mut state.wants_writable) && self.can_send(key) {
            on(PoolEvent::Writable { call: key, tag });
        }
    }

    /// Opens a stream for a call, on the connection whose turn it is.
    fn open_anywhere(&mut self, key: PoolCallKey, now_ns: u64) -> OpenedStream {
        while let Some(slot) = self.choose() {
            let connection = &mut self.connections[slot as usize];
            let authority = &self.endpoints[connection.endpoint].endpoint.authority;
            let Some(state) = self.calls.get_mut(key) else {
                return OpenedStream::NoRoom;
            };
            let Some(core) = connection.core.as_mut() else {
                return OpenedStream::NoRoom;
            };
            let of_credentials = self.options.credentials.as_ref().map(Credentials::metadata);
            let stream = core.open(&CallRequest {
                path: &state.path,
                authority,
                timeout_ns: (state.deadline_ns != u64::MAX)
                    .then(|| state.deadline_ns.saturating_sub(now_ns)),
                metadata: state.metadata.as_ref().or(of_credentials),
                gzip: state.traits.compress,
                accepts_gzip: true,
            });
            let stream = match stream {
                Ok(stream) => stream,
                Err(error @ (CallError::BadRequest { .. } | CallError::MetadataTooLarge)) => {
                    return OpenedStream::Impossible(error);
                }
                Err(_) => {
                    // The server has changed its mind since the load was last looked at.
                    self.refresh(slot);
                    if self.loads[slot as usize] != u32::MAX {
                        return OpenedStream::NoRoom;
                    }
                    continue;
                }
            };
            core.set_token(stream, key.slot + 1);
            state.stage = CallStage::Running {
                connection: slot,
                stream,
            };
            state.attempts += 1;
            state.opened_ns = now_ns;
            let mut left = state.kept.iter().count();
            for message in state.kept.iter() {
                left -= 1;
                send_kept(core, stream, message, state.is_send_ended && left == 0);
            }
            if state.is_send_ended && state.kept.iter().next().is_none() {
                core.close_send(stream);
            }
            note_begun(connection);
            self.in_flight += 1;
            self.peak_in_flight = self.peak_in_flight.max(self.in_flight);
            self.touch(slot);
            self.refresh(slot);
            return OpenedStream::Running;
        }
        OpenedStream::NoRoom
    }
}

/// What became of opening a stream for a call.
enum OpenedStream {
    Running,
    NoRoom,
    Impossible(CallError),
}

fn note_begun(connection: &mut PoolConnection) {
    connection.in_flight += 1;
    connection.begun += 1;
}

pub(super) fn send_kept(
    core: &mut Core,
    stream: wire::StreamKey,
    message: &KeptMessage,
    last: bool,
) {
    core.set_compress(stream, message.compress);
    match &message.body {
        None => core.send(stream, &message.head, last),
        Some(body) => core.send_shared(stream, last, &message.head, body.clone().into()),
    }
}
