//! The deadlines of a connection.

use super::config::{Config, Role};
use super::error::{ConnectionError, ErrorCode};
use crate::limits;

pub(super) const NS_PER_MS: u64 = 1_000_000;

const KEEPALIVE_PING: [u8; 8] = *b"keepaliv";
const DRAIN_PING: [u8; 8] = *b"draining";

/// Bytes that must move: since when, and how many until the time begins anew.
///
/// They are a share of what waits. If a single byte were enough, a peer that takes one a minute
/// could keep all that may wait for as long as it likes.
#[derive(Debug, Clone, Copy)]
struct ByteProgress {
    since_ns: u64,
    owed_bytes: usize,
}

impl ByteProgress {
    #[inline]
    fn note(progress: &mut Option<ByteProgress>, waiting: usize, moved: usize, now_ns: u64) {
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
        *progress = Some(ByteProgress {
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
pub(super) struct ConnectionTimers {
    /// Until the preface, then until our SETTINGS are acknowledged.
    handshake_ns: Option<u64>,
    has_preface: bool,
    block_ns: Option<u64>,
    drain_ns: Option<u64>,
    /// While something waits to be sent.
    sending: Option<ByteProgress>,
    /// Server: while messages are unfinished.
    gathering: Option<ByteProgress>,
    received_ns: u64,
    /// When the keepalive PING was sent that has not been followed by anything.
    ping_ns: Option<u64>,
}

impl ConnectionTimers {
    pub(super) fn new(config: &Config, now_ns: u64) -> ConnectionTimers {
        let is_client = config.role == Role::Client;
        let timeout_ms = if is_client {
            limits::SETTINGS_ACK_TIMEOUT_MS
        } else {
            limits::PREFACE_TIMEOUT_MS
        };
        ConnectionTimers {
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
        ByteProgress::note(&mut self.sending, waiting, moved, now_ns);
    }

    /// So many bytes of messages are unfinished, after so many have come.
    #[inline]
    pub(super) fn gathered(&mut self, waiting: usize, moved: usize, now_ns: u64) {
        ByteProgress::note(&mut self.gathering, waiting, moved, now_ns);
    }

    /// Returns when the first deadline is.
    pub(super) fn next_deadline_ns(&self, config: &Config) -> Option<u64> {
        [
            self.handshake_ns,
            self.block_ns,
            self.drain_ns,
            self.sending_deadline_ns(config),
            self.gathering_deadline_ns(config),
            self.keepalive_deadline_ns(config),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Returns the error with which the connection ends, if the peer has let a deadline pass.
    pub(super) fn check(&self, config: &Config, now_ns: u64) -> Result<(), ConnectionError> {
        if is_past(self.handshake_ns, now_ns) {
            return Err(if self.has_preface {
                ConnectionError {
                    code: ErrorCode::SettingsTimeout,
                    why: "SETTINGS were not acknowledged in time",
                }
            } else {
                ConnectionError::protocol("the preface did not arrive in time")
            });
        }
        if is_past(self.block_ns, now_ns) {
            return Err(ConnectionError::calm("a header block took too long"));
        }
        if is_past(self.sending_deadline_ns(config), now_ns) {
            return Err(ConnectionError::calm(
                "what waits to be sent was not read in time",
            ));
        }
        Ok(())
    }

    /// Returns whether unfinished messages have made no progress for too long. Then the time begins
    /// anew, for what is unfinished.
    pub(super) fn take_unfinished_due(
        &mut self,
        config: &Config,
        unfinished_bytes: usize,
        now_ns: u64,
    ) -> bool {
        let is_due = is_past(self.gathering_deadline_ns(config), now_ns);
        if is_due {
            self.gathering = None;
            self.gathered(unfinished_bytes, 0, now_ns);
        }
        is_due
    }

    /// Returns whether the PING of a drain has not been answered in time.
    pub(super) fn is_drain_due(&self, now_ns: u64) -> bool {
        is_past(self.drain_ns, now_ns)
    }

    /// Returns what the PING says that is to be sent, as nothing has come for long; an error if the
    /// last one was not answered.
    pub(super) fn keepalive(
        &mut self,
        config: &Config,
        now_ns: u64,
    ) -> Result<Option<[u8; 8]>, ConnectionError> {
        if !is_past(self.keepalive_deadline_ns(config), now_ns) {
            return Ok(None);
        }
        if self.ping_ns.is_some() {
            return Err(ConnectionError {
                code: ErrorCode::NoError,
                why: "a PING was not answered in time",
            });
        }
        self.ping_ns = Some(now_ns);
        Ok(Some(KEEPALIVE_PING))
    }

    fn sending_deadline_ns(&self, config: &Config) -> Option<u64> {
        self.sending.map(|progress| progress.deadline_ns(config))
    }

    /// Returns when unfinished messages must have made progress.
    pub(super) fn gathering_deadline_ns(&self, config: &Config) -> Option<u64> {
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

fn is_past(deadline_ns: Option<u64>, now_ns: u64) -> bool {
    deadline_ns.is_some_and(|deadline_ns| now_ns >= deadline_ns)
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
        let mut timers = ConnectionTimers::new(&config, 0);
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
