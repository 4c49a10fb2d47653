//! What happens by time alone.

use super::config::{Config, Role};
use super::connection::{Connection, Phase};
use super::error::{Cause, ConnectionError, ErrorCode};
use super::frame;
use super::memo::Memo;
use crate::grpc::{Code, Status};
use crate::limits;

pub(super) const NS_PER_MS: u64 = 1_000_000;

const KEEPALIVE_PING: [u8; 8] = *b"keepaliv";
const DRAIN_PING: [u8; 8] = *b"draining";

/// Bytes that must move: since when, and how many until the time begins anew.
///
/// They are a share of what waits. If a single byte were enough, a peer that takes one a minute
/// could keep all that may wait for as long as it likes.
#[derive(Debug, Clone, Copy)]
struct Progress {
    since_ns: u64,
    owed_bytes: usize,
}

impl Progress {
    #[inline]
    fn note(progress: &mut Option<Progress>, waiting: usize, moved: usize, now_ns: u64) {
        if waiting == 0 {
            *progress = None;
            return;
        }
        if let Some(progress) = progress
            && progress.owed_bytes > moved
        {
            progress.owed_bytes -= moved;
            return;
        }
        *progress = Some(Progress {
            since_ns: now_ns,
            owed_bytes: waiting.div_ceil(limits::PROGRESS_SHARE),
        });
    }

    fn deadline_ns(self, config: &Config) -> u64 {
        self.since_ns + config.no_progress_timeout_ms * NS_PER_MS
    }
}

/// The deadlines of one connection.
#[derive(Debug)]
pub(super) struct Timers {
    /// Until the preface, then until our SETTINGS are acknowledged.
    handshake_ns: Option<u64>,
    has_preface: bool,
    block_ns: Option<u64>,
    drain_ns: Option<u64>,
    /// While something waits to be sent.
    sending: Option<Progress>,
    /// Server: while messages are unfinished.
    gathering: Option<Progress>,
    received_ns: u64,
    /// When the keepalive PING was sent that has not been followed by anything.
    ping_ns: Option<u64>,
}

impl Timers {
    pub(super) fn new(config: &Config, now_ns: u64) -> Timers {
        let is_client = config.role == Role::Client;
        let timeout_ms = if is_client {
            limits::SETTINGS_ACK_TIMEOUT_MS
        } else {
            limits::PREFACE_TIMEOUT_MS
        };
        Timers {
            handshake_ns: Some(now_ns + timeout_ms * NS_PER_MS),
            has_preface: is_client,
            block_ns: None,
            drain_ns: None,
            sending: None,
            gathering: None,
            received_ns: now_ns,
            ping_ns: None,
        }
    }

    pub(super) fn preface_arrived(&mut self, now_ns: u64) {
        self.has_preface = true;
        self.handshake_ns = Some(now_ns + limits::SETTINGS_ACK_TIMEOUT_MS * NS_PER_MS);
    }

    pub(super) fn settings_acknowledged(&mut self) {
        self.handshake_ns = None;
    }

    #[inline]
    pub(super) fn received(&mut self, now_ns: u64) {
        self.received_ns = now_ns;
        self.ping_ns = None;
    }

    pub(super) fn block_began(&mut self, now_ns: u64) {
        self.block_ns = Some(now_ns + limits::HEADER_BLOCK_TIMEOUT_MS * NS_PER_MS);
    }

    pub(super) fn block_ended(&mut self) {
        self.block_ns = None;
    }

    /// What the PING says that tells when all requests have arrived that were on their way.
    pub(super) fn begin_drain(&mut self, now_ns: u64) -> [u8; 8] {
        self.drain_ns = Some(now_ns + limits::DRAIN_PING_TIMEOUT_MS * NS_PER_MS);
        DRAIN_PING
    }

    pub(super) fn end_drain(&mut self) {
        self.drain_ns = None;
    }

    pub(super) fn is_drain_ping(&self, opaque: [u8; 8]) -> bool {
        self.drain_ns.is_some() && opaque == DRAIN_PING
    }

    /// So many bytes wait to be sent, after so many have gone.
    #[inline]
    pub(super) fn sent(&mut self, waiting: usize, moved: usize, now_ns: u64) {
        Progress::note(&mut self.sending, waiting, moved, now_ns);
    }

    /// So many bytes of messages are unfinished, after so many have come.
    #[inline]
    pub(super) fn gathered(&mut self, waiting: usize, moved: usize, now_ns: u64) {
        Progress::note(&mut self.gathering, waiting, moved, now_ns);
    }

    fn sending_deadline_ns(&self, config: &Config) -> Option<u64> {
        self.sending.map(|progress| progress.deadline_ns(config))
    }

    fn gathering_deadline_ns(&self, config: &Config) -> Option<u64> {
        self.gathering.map(|progress| progress.deadline_ns(config))
    }

    fn keepalive_deadline_ns(&self, config: &Config) -> Option<u64> {
        match self.ping_ns {
            Some(ping_ns) => Some(ping_ns + limits::KEEPALIVE_TIMEOUT_MS * NS_PER_MS),
            None if config.keepalive_ms == 0 => None,
            None => Some(self.received_ns + config.keepalive_ms * NS_PER_MS),
        }
    }
}

impl Connection {
    /// When [`Connection::deadline_passed`] is to be called, if nothing happens before.
    pub fn next_deadline_ns(&self) -> Option<u64> {
        if self.phase == Phase::Closed {
            return None;
        }
        let timers = &self.timers;
        [
            timers.handshake_ns,
            timers.block_ns,
            timers.drain_ns,
            timers.sending_deadline_ns(&self.config),
            timers.gathering_deadline_ns(&self.config),
            timers.keepalive_deadline_ns(&self.config),
            self.late.linger_due_ns(),
            self.turns.lapse_due_ns(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Does what is due by now. Calling it early does nothing.
    pub fn deadline_passed(&mut self, out: &mut Vec<u8>, now_ns: u64) {
        self.now_ns = now_ns;
        if self.phase == Phase::Closed {
            return;
        }
        if let Err(error) = self.check_deadlines(out, now_ns) {
            self.fail(error, out);
        }
    }

    fn check_deadlines(&mut self, out: &mut Vec<u8>, now_ns: u64) -> Result<(), ConnectionError> {
        let is_past =
            |deadline: Option<u64>| deadline.is_some_and(|deadline_ns| now_ns >= deadline_ns);
        if is_past(self.timers.handshake_ns) {
            return Err(if self.timers.has_preface {
                ConnectionError {
                    code: ErrorCode::SettingsTimeout,
                    why: "SETTINGS were not acknowledged in time",
                }
            } else {
                ConnectionError::protocol("the preface did not arrive in time")
            });
        }
        if is_past(self.timers.block_ns) {
            return Err(ConnectionError::calm("a header block took too long"));
        }
        if is_past(self.timers.sending_deadline_ns(&self.config)) {
            return Err(ConnectionError::calm(
                "what waits to be sent was not read in time",
            ));
        }
        if is_past(self.timers.gathering_deadline_ns(&self.config)) {
            self.end_unfinished(out)?;
        }
        if is_past(self.turns.lapse_due_ns()) {
            self.lapse_turns(out);
        }
        self.end_lingering(out);
        if is_past(self.timers.drain_ns) {
            self.finish_draining(out);
        }
        if is_past(self.timers.keepalive_deadline_ns(&self.config)) {
            if self.timers.ping_ns.is_some() {
                return Err(ConnectionError {
                    code: ErrorCode::NoError,
                    why: "a PING was not answered in time",
                });
            }
            self.timers.ping_ns = Some(now_ns);
            frame::write_ping(out, 0, KEEPALIVE_PING);
            self.trim();
        }
        Ok(())
    }

    /// Messages have begun and do not go on: ends their calls. A stream that we hold ourselves, or
    /// whose window we keep shut until its turn, is not in arrears.
    #[cold]
    fn end_unfinished(&mut self, out: &mut Vec<u8>) -> Result<(), ConnectionError> {
        self.timers.gathering = None;
        self.timers.gathered(self.gathered_bytes, 0, self.now_ns);
        let late: Vec<_> = self
            .streams
            .iter_mut()
            .filter(|(_, stream)| {
                let waits_for_us = stream.held
                    || (stream.turn.is_waiting() && stream.receive_window.available() == 0);
                stream.inbound.deframer.is_mid_message() && !waits_for_us && !stream.is_dead()
            })
            .map(|(slot, _)| slot)
            .collect();
        for slot in late {
            let message = "the rest of a message did not arrive in time";
            let status = Status::new(Code::ResourceExhausted, message);
            self.end_call(slot, &status, Cause::TooMuchUnfinished, out)?;
        }
        Ok(())
    }

    /// Gives memory back that a connection which has fallen silent does not need.
    fn trim(&mut self) {
        self.streams.trim();
        self.pool.trim();
        self.memo = Memo::default();
        self.head_at = super::connection::HeadAt::Fields;
        self.info = super::headers::HeadInfo::EMPTY;
        self.fields.release_memory();
        self.message_at = super::connection::MessageAt::Nowhere;
        self.unpacked = Vec::new();
        self.events.shrink_to_fit();
        self.ready.shrink_to_fit();
        self.resumed.shrink_to_fit();
        self.turns.trim();
        // Not `late`: a stream may have been reset a moment ago, and its frames are still to come.
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A 64th of what waits has to move, rounded up; then the time begins anew, for a share of what
    /// waits by then.
    #[test]
    fn time_begins_anew_when_a_share_has_moved() {
        let config = Config::server();
        let timeout_ns = config.no_progress_timeout_ms * NS_PER_MS;
        let mut timers = Timers::new(&config, 0);
        for begun_ns in [1_000, 2_000] {
            let mut note = |waiting, moved, now_ns, since_ns: Option<u64>| {
                timers.sent(waiting, moved, now_ns);
                let expected = since_ns.map(|since_ns| since_ns + timeout_ns);
                assert_eq!(timers.sending_deadline_ns(&config), expected);
                timers.gathered(waiting, moved, now_ns);
                assert_eq!(timers.gathering_deadline_ns(&config), expected);
            };
            let at = |after_ns: u64| begun_ns + after_ns;
            note(641, 0, at(0), Some(at(0)));
            note(631, 10, at(1), Some(at(0)));
            note(641, 0, at(2), Some(at(0)));
            note(640, 1, at(3), Some(at(3)));
            note(631, 9, at(4), Some(at(3)));
            note(630, 1, at(5), Some(at(5)));
            note(530, 100, at(6), Some(at(6)));
            note(0, 530, at(7), None);
        }
    }
}
