//! How far a connection has come, which streams have begun on it, and how it ends. RFC 9113
//! sections 3.4, 5.1.1 and 6.8.

use super::config::Role;
use super::error::{CloseReason, ConnectionError, ErrorCode};
use super::frame::{FrameHeader, MAX_31_BIT, PREFACE, flag, kind};
use crate::limits::GOAWAY_TEXT_BYTES_MAX;

/// How far the handshake of a connection has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Handshake {
    /// Server: the client's preface has not arrived.
    Preface,
    /// The peer's first frame, which must be SETTINGS, has not arrived.
    FirstSettings,
    Done,
}

/// How far a graceful end has come. RFC 9113 section 6.8.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Draining {
    No,
    /// GOAWAY with 2^31-1 and a PING have been sent; requests are still taken.
    Announced,
    /// The final GOAWAY has been sent, with this last stream.
    Final(u32),
}

/// The life of a connection.
#[derive(Debug)]
pub(crate) struct Lifecycle {
    role: Role,
    handshake: Handshake,
    draining: Draining,
    /// Once there is one, what comes is not looked at.
    close_reason: Option<CloseReason>,
    /// Client: the last stream that the peer's GOAWAY lets live.
    peer_goaway: Option<u32>,
    /// Client: the error that the peer's GOAWAY names.
    peer_error: Option<CloseReason>,
    /// Server: the highest stream that the peer has opened.
    highest_peer_id: u32,
    /// Client: the next stream that we open.
    next_id: u32,
}

impl Lifecycle {
    /// Returns the life of a connection that begins.
    pub(crate) fn new(role: Role) -> Lifecycle {
        Lifecycle {
            role,
            handshake: match role {
                Role::Server => Handshake::Preface,
                Role::Client => Handshake::FirstSettings,
            },
            draining: Draining::No,
            close_reason: None,
            peer_goaway: None,
            peer_error: None,
            highest_peer_id: 0,
            next_id: 1,
        }
    }

    /// Returns whether we open the streams.
    #[inline]
    pub(crate) fn is_client(&self) -> bool {
        self.role == Role::Client
    }

    /// Returns whether the connection is over.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.close_reason.is_some()
    }

    /// Returns why the connection is over, if it is.
    #[inline]
    pub(crate) fn close_reason(&self) -> Option<&CloseReason> {
        self.close_reason.as_ref()
    }

    /// Ends the connection. The first reason stands; returns whether it was this one. A peer that
    /// has named an error by GOAWAY, and then ends the connection, has ended it for that.
    pub(crate) fn close(&mut self, reason: CloseReason) -> bool {
        let is_first = self.close_reason.is_none();
        if is_first {
            let told = match reason {
                CloseReason::Drained | CloseReason::PeerGone => self.peer_error.take(),
                _ => None,
            };
            self.close_reason = Some(told.unwrap_or(reason));
        }
        is_first
    }

    /// Returns whether the client's preface is still to come.
    #[inline]
    pub(crate) fn awaits_preface(&self) -> bool {
        self.handshake == Handshake::Preface
    }

    /// Looks for the client's preface at the beginning of what has come, and returns whether it is
    /// there as a whole. A first byte that is wrong is as good as all of them.
    pub(crate) fn take_preface(&mut self, input: &[u8]) -> Result<bool, ConnectionError> {
        let seen = input.len().min(PREFACE.len());
        if input[..seen] != PREFACE[..seen] {
            return Err(ConnectionError::protocol(
                "the connection does not begin with the preface of HTTP/2",
            ));
        }
        let is_whole = seen == PREFACE.len();
        if is_whole {
            self.handshake = Handshake::FirstSettings;
        }
        Ok(is_whole)
    }

    /// Checks that the first frame is SETTINGS. RFC 9113 section 3.4.
    #[inline]
    pub(crate) fn check_first_frame(&mut self, header: FrameHeader) -> Result<(), ConnectionError> {
        if self.handshake == Handshake::Done {
            return Ok(());
        }
        if header.kind != kind::SETTINGS || header.has(flag::ACK) {
            return Err(ConnectionError::protocol("the first frame is not SETTINGS"));
        }
        self.handshake = Handshake::Done;
        Ok(())
    }

    /// Returns whether the peer's SETTINGS have come, and the connection is not over.
    pub(crate) fn is_open(&self) -> bool {
        self.handshake == Handshake::Done && !self.is_closed()
    }

    /// Server: the peer has opened a stream.
    #[inline]
    pub(crate) fn begin_peer_stream(&mut self, id: u32) {
        self.highest_peer_id = id;
    }

    /// Returns the highest stream that the peer has opened; 0 on a client.
    #[inline]
    pub(crate) fn highest_peer_id(&self) -> u32 {
        self.highest_peer_id
    }

    /// Client: returns whether no more streams are to be opened.
    pub(crate) fn is_going_away(&self) -> bool {
        self.is_closed() || self.peer_goaway.is_some() || self.draining != Draining::No
    }

    /// Client: returns whether all stream identifiers have been used.
    pub(crate) fn has_used_all_ids(&self) -> bool {
        self.next_id > MAX_31_BIT
    }

    /// Client: returns the identifier of the stream that is opened.
    #[inline]
    pub(crate) fn take_id(&mut self) -> u32 {
        let id = self.next_id;
        self.next_id += 2;
        id
    }

    /// Client: all identifiers below this one have been used.
    #[cfg(test)]
    pub(crate) fn skip_ids_to(&mut self, id: u32) {
        self.next_id = id;
    }

    /// Returns whether a stream has never been opened. RFC 9113 section 5.1.1.
    pub(crate) fn is_idle(&self, id: u32) -> bool {
        match self.role {
            Role::Server => id.is_multiple_of(2) || id > self.highest_peer_id,
            Role::Client => id.is_multiple_of(2) || id >= self.next_id,
        }
    }

    /// Server: returns whether a stream is above the last one that our GOAWAY names.
    #[inline]
    pub(crate) fn is_beyond_goaway(&self, id: u32) -> bool {
        matches!(self.draining, Draining::Final(last) if id > last && !self.is_client())
    }

    /// Begins a graceful end, unless it has begun or the connection is over. A client names no
    /// stream, and begins none; a server takes those that are on their way. Returns whether it has
    /// begun now.
    pub(crate) fn begin_drain(&mut self) -> bool {
        if self.is_closed() || self.draining != Draining::No {
            return false;
        }
        self.draining = match self.role {
            Role::Client => Draining::Final(0),
            Role::Server => Draining::Announced,
        };
        true
    }

    /// Requests that were on their way have arrived: returns the last stream, for the final GOAWAY,
    /// if it has not been sent.
    pub(crate) fn finish_drain(&mut self) -> Option<u32> {
        if self.draining != Draining::Announced {
            return None;
        }
        self.draining = Draining::Final(self.highest_peer_id);
        Some(self.highest_peer_id)
    }

    /// Client: the peer's GOAWAY names this error, with this text.
    pub(crate) fn peer_complains(&mut self, code: ErrorCode, text: &[u8]) {
        if code == ErrorCode::NoError {
            return;
        }
        let text = &text[..text.len().min(GOAWAY_TEXT_BYTES_MAX)];
        let shown = text.iter().map(|&byte| match byte {
            b' '..=b'~' => char::from(byte),
            _ => '?',
        });
        let text = shown.collect::<String>().into_boxed_str();
        self.peer_error = Some(CloseReason::Refused { code, text });
    }

    /// Client: the peer goes, and lets streams up to `last` live.
    pub(crate) fn peer_goes(&mut self, last: u32) -> Result<(), ConnectionError> {
        // "Endpoints MUST NOT increase the value they send in the last stream identifier" (RFC 9113
        // section 6.8).
        if self.peer_goaway.is_some_and(|before| last > before) {
            return Err(ConnectionError::protocol(
                "a GOAWAY names a higher stream than the one before",
            ));
        }
        self.peer_goaway = Some(last);
        Ok(())
    }

    /// Returns whether the connection ends with its last stream.
    #[inline]
    pub(crate) fn ends_with_last_stream(&self) -> bool {
        let is_ending = matches!(self.draining, Draining::Final(_)) || self.peer_goaway.is_some();
        is_ending && !self.is_closed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http2::error::ErrorCode;

    fn header(kind: u8, flags: u8) -> FrameHeader {
        FrameHeader {
            length: 0,
            kind,
            flags,
            stream: 0,
        }
    }

    #[test]
    fn a_server_expects_the_preface_and_then_settings() {
        let mut life = Lifecycle::new(Role::Server);
        assert!(life.awaits_preface());
        assert_eq!(life.take_preface(&PREFACE[..5]), Ok(false));
        let refused = life.take_preface(b"GET").map_err(|error| error.code);
        assert_eq!(refused, Err(ErrorCode::ProtocolError));
        assert_eq!(life.take_preface(PREFACE), Ok(true));
        assert!(!life.awaits_preface() && !life.is_open());
        for wrong in [header(kind::PING, 0), header(kind::SETTINGS, flag::ACK)] {
            let refused = life.check_first_frame(wrong).map_err(|error| error.code);
            assert_eq!(refused, Err(ErrorCode::ProtocolError));
        }
        assert_eq!(life.check_first_frame(header(kind::SETTINGS, 0)), Ok(()));
        assert_eq!(life.check_first_frame(header(kind::PING, 0)), Ok(()));
        assert!(life.is_open());
    }

    #[test]
    fn each_side_opens_streams_in_order() {
        let mut server = Lifecycle::new(Role::Server);
        let mut client = Lifecycle::new(Role::Client);
        for id in [1, 3] {
            assert!(server.is_idle(id) && client.is_idle(id));
            server.begin_peer_stream(id);
            assert_eq!(client.take_id(), id);
            assert!(!server.is_idle(id) && !client.is_idle(id));
            assert!(server.is_idle(id + 1) && client.is_idle(id + 1));
        }
        assert!(!client.has_used_all_ids());
        client.skip_ids_to(MAX_31_BIT);
        assert!(!client.has_used_all_ids());
        assert_eq!(client.take_id(), MAX_31_BIT);
        assert!(client.has_used_all_ids());
    }

    #[test]
    fn a_server_drains_in_two_steps() {
        let mut life = Lifecycle::new(Role::Server);
        life.begin_peer_stream(3);
        assert_eq!(life.finish_drain(), None);
        assert!(life.begin_drain() && !life.begin_drain());
        assert!(!life.ends_with_last_stream() && !life.is_beyond_goaway(5));
        life.begin_peer_stream(5);
        assert_eq!(life.finish_drain(), Some(5));
        assert_eq!(life.finish_drain(), None);
        assert!(life.is_beyond_goaway(7) && !life.is_beyond_goaway(5));
        assert!(life.ends_with_last_stream());
        assert!(life.close(CloseReason::Drained) && !life.close(CloseReason::PeerGone));
        assert_eq!(life.close_reason(), Some(&CloseReason::Drained));
        assert!(!life.ends_with_last_stream() && !life.begin_drain());
    }

    #[test]
    fn a_client_that_drains_or_whose_server_goes_opens_nothing() {
        let mut life = Lifecycle::new(Role::Client);
        assert!(!life.is_going_away());
        assert!(life.begin_drain());
        assert!(life.is_going_away() && life.ends_with_last_stream());
        let mut life = Lifecycle::new(Role::Client);
        for (last, is_allowed) in [(7, true), (7, true), (3, true), (5, false)] {
            assert_eq!(life.peer_goes(last).is_ok(), is_allowed, "{last}");
        }
        assert!(life.is_going_away() && life.ends_with_last_stream());
    }

    #[test]
    fn a_server_that_names_an_error_has_ended_the_connection_for_it() {
        let told = |code, text: &[u8], reason: CloseReason| {
            let mut life = Lifecycle::new(Role::Client);
            life.peer_complains(code, text);
            assert!(life.close(reason));
            life.close_reason().expect("it is closed").to_string()
        };
        let calm = ErrorCode::EnhanceYourCalm;
        for reason in [CloseReason::Drained, CloseReason::PeerGone] {
            assert_eq!(
                told(calm, b"too many resets\n", reason.clone()),
                "the server ended it: too many resets? (EnhanceYourCalm)"
            );
            let nothing = told(calm, b"", reason.clone());
            assert_eq!(nothing, "the server ended it (EnhanceYourCalm)");
            let shown = reason.to_string();
            assert_eq!(told(ErrorCode::NoError, b"bye", reason), shown);
        }
        let long = told(calm, &[b'x'; 70_000], CloseReason::Drained);
        assert!(long.len() < GOAWAY_TEXT_BYTES_MAX + 100, "{}", long.len());
    }
}
