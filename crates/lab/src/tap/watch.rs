//! Follows one connection, whatever it speaks.

use super::direction::TapDirection;
use super::framed::{BaiduStdWatch, MAGIC};
use super::frames::Unreadable;
use super::http2::{Http2Watch, Noting};
use super::ledger::{ConnectionFigures, ConnectionLedger};
use super::time_use::RelayHold;
use super::totals::TapTotals;

/// What a connection speaks.
#[derive(Debug)]
enum Protocol {
    /// The client has not sent enough to say it; what it has.
    Open(Vec<u8>),
    Http2(Box<Http2Watch>),
    BaiduStd(Box<BaiduStdWatch>),
    /// Its bytes are forwarded, and not looked at.
    Unreadable(Unreadable),
}

/// A connection that is followed.
#[derive(Debug)]
pub(super) struct ConnectionWatch {
    protocol: Protocol,
    ledger: ConnectionLedger,
}

impl ConnectionWatch {
    /// Begins with nothing; `index` is how many connections were there before.
    pub(super) fn new(index: usize) -> ConnectionWatch {
        ConnectionWatch {
            protocol: Protocol::Open(Vec::new()),
            ledger: ConnectionLedger::new(index),
        }
    }

    /// Which connection it is, from 0.
    pub(super) fn index(&self) -> usize {
        self.ledger.index()
    }

    /// Its numbers so far.
    pub(super) fn figures(&self) -> &ConnectionFigures {
        self.ledger.figures()
    }

    /// Whether a call is under way.
    pub(super) fn has_open_calls(&self) -> bool {
        self.ledger.has_open_calls()
    }

    /// Whether it speaks HTTP/2, or nobody has said anything: servers of HTTP/2 may speak first.
    pub(super) fn may_be_http2(&self) -> bool {
        matches!(self.protocol, Protocol::Http2(_) | Protocol::Open(_))
    }

    /// Why it is not followed any further.
    pub(super) fn unreadable(&self) -> Option<Unreadable> {
        match self.protocol {
            Protocol::Unreadable(reason) => Some(reason),
            _ => None,
        }
    }

    /// Bytes went in this direction.
    pub(super) fn saw(
        &mut self,
        totals: &mut TapTotals,
        direction: TapDirection,
        bytes: &[u8],
        now_ns: u64,
    ) {
        let Protocol::Open(first) = &mut self.protocol else {
            return self.follow(totals, direction, bytes, now_ns);
        };
        if direction == TapDirection::ToServer {
            first.extend_from_slice(bytes);
            if first.len() < MAGIC.len() {
                return;
            }
        }
        let first = std::mem::take(first);
        self.protocol = match first.starts_with(MAGIC) {
            true => Protocol::BaiduStd(Box::default()),
            false => Protocol::Http2(Box::new(Http2Watch::new())),
        };
        self.follow(totals, TapDirection::ToServer, &first, now_ns);
        // A server may speak first: HTTP/2 allows its SETTINGS before the client's preface.
        if direction == TapDirection::ToClient {
            self.follow(totals, direction, bytes, now_ns);
        }
    }

    fn follow(
        &mut self,
        totals: &mut TapTotals,
        direction: TapDirection,
        bytes: &[u8],
        now_ns: u64,
    ) {
        let mut noting = Noting {
            ledger: &mut self.ledger,
            totals,
            now_ns,
        };
        let followed = match &mut self.protocol {
            Protocol::Http2(watch) => watch.push(direction, bytes, &mut noting),
            Protocol::BaiduStd(watch) => watch.push(direction, bytes, &mut noting),
            Protocol::Open(_) | Protocol::Unreadable(_) => Ok(()),
        };
        if let Err(reason) = followed {
            self.ledger.close(totals, now_ns);
            self.protocol = Protocol::Unreadable(reason);
        }
    }

    /// Whether bytes wait in the tap for whoever receives in this direction to read.
    pub(super) fn set_unread(&mut self, direction: TapDirection, is_unread: bool, now_ns: u64) {
        self.ledger
            .set_hold(RelayHold::Unread(direction), is_unread, now_ns);
    }

    /// Whether the tap keeps bytes back in this direction, as a rate was asked for.
    pub(super) fn set_shaped(&mut self, direction: TapDirection, is_shaped: bool, now_ns: u64) {
        self.ledger
            .set_hold(RelayHold::Shaped(direction), is_shaped, now_ns);
    }

    /// The connection is over.
    pub(super) fn close(&mut self, totals: &mut TapTotals, now_ns: u64) {
        self.ledger.close(totals, now_ns);
    }

    /// The report is made while it goes on.
    pub(super) fn settle(&mut self, totals: &mut TapTotals, now_ns: u64) {
        self.ledger.settle(totals, now_ns);
    }
}
