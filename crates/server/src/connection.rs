//! One connection of a loop: which protocol it speaks, and what is counted of it.

use std::collections::VecDeque;
use std::net::Ipv4Addr;

use net::{AddressKey, ConnectionId, Io, Peer, PeerAddress};
use service::identities::{Identity, IdentityKey};
use service::{CallerId, PeerKind};
use store::DatabaseId;
use store::blob::UploadPeer;
use wire::framed::FramedProtocol;
use wire::http1::{self, Greeting};
use wire::http2::frame;
use wire::{CloseReason, ErrorCode, StreamKey};

use crate::account::{CountedCaller, Holding};
use crate::admission::ShedFor;
use crate::audit::ConnectionDenials;
use crate::authorization::LastAuthorization;
use crate::call_id::CallId;
use crate::limits;
use crate::peer_identity::PeerIdentity;
use crate::rpc_connection::RpcConnection;
use crate::slow_calls::UnsentSlowCalls;
use crate::stream::StreamHandle;
use crate::tls::HTTP2;
use crate::unsent_answers::UnsentAnswers;
use crate::wrong_tokens::ConnectionWrongTokens;

/// A connection of this loop.
pub(crate) enum ConnectionState {
    /// The first bytes have not decided yet what it speaks.
    Undecided(Box<Link>),
    /// It speaks HTTP/2, or another protocol that carries calls.
    Rpc(Box<RpcState>),
    /// Answered and to be closed: what still comes is not looked at.
    Over(Box<Link>),
}

/// What is known of a connection, whatever it speaks.
pub(crate) struct Link {
    pub id: ConnectionId,
    pub peer: PeerKind,
    /// Whose its calls without a token are.
    pub identity: PeerIdentity,
    /// Where the peer is, for the log.
    pub address: PeerAddress,
    /// When it was opened.
    pub opened_ns: u64,
    /// By which what is scarce is shared out to its calls: uploads, and places for calls that wait.
    pub caller: CallerId,
    /// When the timer of this connection is due; `u64::MAX` if none is set.
    pub armed_ns: u64,
    /// What it makes the server hold.
    pub holding: Holding,
    /// TLS without HTTP/2 in ALPN: what may be spoken on it is HTTP/1.1 at most, which gets its
    /// answer.
    pub without_http2: bool,
    /// Calls of a server that follows this one came over it.
    pub replicates: bool,
    /// Beyond a limit of connections: its calls get UNAVAILABLE.
    pub refused: Option<ShedFor>,
}

/// A connection that carries calls, and what these have on it.
pub(crate) struct RpcState {
    pub link: Link,
    pub connection: RpcConnection,
    /// Whose its calls are.
    pub authorization: LastAuthorization,
    /// What it has sent of wrong tokens.
    pub wrong_tokens: ConnectionWrongTokens,
    /// The lines that it has in the audit trail.
    pub denials: ConnectionDenials,
    /// A call of it was let in that not everybody may begin.
    pub has_let_in: bool,
    /// Calls of this connection that run, also those whose stream was reset.
    running: usize,
    /// Short reads of its calls that wait until it has send capacity.
    pub deferred_reads: DeferredReads,
    /// Answers of calls that have ended, and which wait for the peer's windows.
    pub unsent_answers: UnsentAnswers,
    /// Those of them that the slow-call log looks at.
    pub unsent_slow: UnsentSlowCalls,
    /// When bytes were read from it last, in nanoseconds.
    pub received_ns: u64,
    /// Memory for answers that calls have taken and that is not charged yet, in bytes.
    claimed_bytes: usize,
    /// A call has to try again to take some.
    claim_failed: bool,
    /// Since when a large answer waits for memory, in nanoseconds.
    starves_since_ns: Option<u64>,
    /// Stands in the queue of those that wait for memory for a large message.
    pub waits_for_turn: bool,
    /// Stands in the queue of those that decompress a large message.
    pub unpacks: bool,
    /// Receives a large message beyond the server's limit.
    pub overdraws: bool,
    /// Its error stands in the log.
    error_logged: bool,
}

/// Short reads of the calls of a connection that wait until it has send capacity.
#[derive(Default)]
pub(crate) struct DeferredReads {
    /// Database, call, and what was kept for it.
    waiting: VecDeque<(DatabaseId, CallId, Box<[u8]>)>,
    /// One of them has a large answer.
    is_large: bool,
}

impl DeferredReads {
    /// Adds a read, which has a large answer or is not known to.
    #[cold]
    pub fn push(&mut self, (database, call): (DatabaseId, CallId), kept: &[u8], is_large: bool) {
        self.is_large |= is_large;
        self.waiting.push_back((database, call, kept.into()));
    }

    /// Returns whether there are some that may go on.
    #[inline]
    pub fn may_go_on(&self, connection: &RpcConnection) -> bool {
        !self.waiting.is_empty()
            && match self.is_large {
                true => connection.has_large_capacity(),
                false => connection.has_capacity(),
            }
    }

    /// Takes some out, as many as may go on at once.
    pub fn take(&mut self) -> impl Iterator<Item = (DatabaseId, CallId, Box<[u8]>)> + '_ {
        self.is_large = false;
        let count = self.waiting.len().min(limits::READS_RESUMED);
        self.waiting.drain(..count)
    }

    /// Returns whether the read of a call waits.
    pub fn contains(&self, call: CallId) -> bool {
        (self.waiting.iter()).any(|&(_, other, _)| other == call)
    }

    /// Returns whether none waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns how many wait.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }
}

impl Link {
    /// Returns whether the peer is of this machine.
    #[inline]
    pub fn is_local(&self) -> bool {
        matches!(self.peer, PeerKind::Unix | PeerKind::Loopback)
    }

    /// Returns who a caller is to the account; `None`: somebody of this machine without an
    /// identity, of whom is not counted what all their calls take.
    #[inline]
    pub fn counted(&self, key: IdentityKey, identity: Option<&Identity>) -> Option<CountedCaller> {
        let has_token = identity.is_some_and(|identity| !identity.is_anonymous());
        (has_token || !self.is_local()).then_some(CountedCaller { key, has_token })
    }

    pub fn new(id: ConnectionId, peer: &Peer, holding: Holding, now_ns: u64) -> Link {
        let kind = match &peer.address {
            PeerAddress::Unix => PeerKind::Unix,
            address if address.is_local() => PeerKind::Loopback,
            _ if peer.tls.is_some() => PeerKind::RemoteTls,
            _ => PeerKind::RemotePlain,
        };
        Link {
            id,
            peer: kind,
            identity: PeerIdentity::new(peer),
            address: peer.address,
            opened_ns: now_ns,
            caller: CallerId {
                address: upload_peer(&peer.address),
                connection: holding.number(),
                identity: None,
            },
            armed_ns: u64::MAX,
            holding,
            without_http2: peer
                .tls
                .as_ref()
                .is_some_and(|agreed| agreed.application.as_deref() != Some(HTTP2)),
            replicates: false,
            refused: match (peer.over_limit, peer.is_over_address_limit()) {
                (false, _) => None,
                (true, false) => Some(ShedFor::Connections),
                (true, true) => Some(ShedFor::AddressConnections),
            },
        }
    }
}

impl RpcState {
    pub fn new(link: Link, connection: RpcConnection) -> RpcState {
        RpcState {
            link,
            connection,
            authorization: LastAuthorization::default(),
            wrong_tokens: ConnectionWrongTokens::default(),
            denials: ConnectionDenials::default(),
            has_let_in: false,
            running: 0,
            deferred_reads: DeferredReads::default(),
            unsent_answers: UnsentAnswers::default(),
            unsent_slow: UnsentSlowCalls::default(),
            received_ns: 0,
            claimed_bytes: 0,
            claim_failed: false,
            starves_since_ns: None,
            waits_for_turn: false,
            unpacks: false,
            overdraws: false,
            error_logged: false,
        }
    }

    /// Returns the handle of a stream, whose output goes to `output`.
    #[inline]
    pub fn stream<'a>(&'a mut self, key: StreamKey, output: &'a mut Vec<u8>) -> StreamHandle<'a> {
        StreamHandle::new(&mut self.connection, key, output)
    }

    /// Counts a call that begins.
    #[inline]
    pub fn begin_call(&mut self) {
        self.running += 1;
    }

    /// Counts a call that has ended.
    #[inline]
    pub fn end_call(&mut self) {
        self.running -= 1;
    }

    /// Returns how many calls run.
    #[inline]
    pub fn running_calls(&self) -> usize {
        self.running
    }

    /// Adds the memory for answers that a step has taken, or found none of.
    #[inline]
    pub fn add_claim(&mut self, bytes: usize, has_failed: bool) {
        self.claimed_bytes += bytes;
        self.claim_failed |= has_failed;
    }

    /// Takes out what was added, in bytes: it is charged now.
    #[inline]
    pub fn take_claimed_bytes(&mut self) -> usize {
        std::mem::take(&mut self.claimed_bytes)
    }

    /// Returns whether a call has to try again to take some.
    #[inline]
    pub fn has_failed_claim(&self) -> bool {
        self.claim_failed
    }

    /// The same, and that is done about it.
    #[inline]
    pub fn take_failed_claim(&mut self) -> bool {
        std::mem::take(&mut self.claim_failed)
    }

    /// Returns whether a large answer has waited for memory for [`limits::STARVED_MS`], or a
    /// request for that. `is_paused`: the connection may not have any now.
    #[inline]
    pub fn starves(&mut self, is_paused: bool, now_ns: u64) -> bool {
        if !is_paused {
            self.starves_since_ns = None;
            return false;
        }
        self.starves_while_paused(now_ns)
    }

    #[cold]
    fn starves_while_paused(&mut self, now_ns: u64) -> bool {
        let lacks_memory =
            !self.deferred_reads.is_empty() || self.claim_failed || self.connection.has_put_back();
        if !lacks_memory {
            self.starves_since_ns = None;
            return false;
        }
        let since_ns = *self.starves_since_ns.get_or_insert(now_ns);
        now_ns >= since_ns + limits::STARVED_MS * 1_000_000
    }

    /// Returns how the peer broke the protocol or a limit, and where it is, once for the log. That
    /// a peer fell silent is no error.
    pub fn take_error(&mut self) -> Option<(&'static str, &PeerAddress)> {
        match self.connection.close_reason() {
            Some(CloseReason::Error { code, why })
                if *code != ErrorCode::NoError && !self.error_logged =>
            {
                self.error_logged = true;
                Some((*why, &self.link.address))
            }
            _ => None,
        }
    }

    /// Looks anew at what is to be held back: other connections may have filled the account since.
    #[inline]
    pub fn refresh_pause(&mut self) {
        self.connection.set_pause(self.link.holding.pause());
    }
}

impl ConnectionState {
    /// Returns what is known of the connection, whatever it speaks.
    #[inline]
    pub fn link(&self) -> &Link {
        match self {
            ConnectionState::Undecided(link) | ConnectionState::Over(link) => link,
            ConnectionState::Rpc(rpc) => &rpc.link,
        }
    }

    /// The same, to be changed.
    pub fn link_mut(&mut self) -> &mut Link {
        match self {
            ConnectionState::Undecided(link) | ConnectionState::Over(link) => link,
            ConnectionState::Rpc(rpc) => &mut rpc.link,
        }
    }

    /// Returns the connection if it carries calls.
    #[inline]
    pub fn rpc(&mut self) -> Option<&mut RpcState> {
        match self {
            ConnectionState::Rpc(rpc) => Some(rpc),
            ConnectionState::Undecided(_) | ConnectionState::Over(_) => None,
        }
    }

    /// Whether no request can come any more: those that were on their way when the drain began have
    /// arrived.
    pub fn is_drained(&self) -> bool {
        match self {
            ConnectionState::Rpc(rpc) => rpc.connection.close_reason().is_some(),
            ConnectionState::Undecided(_) | ConnectionState::Over(_) => true,
        }
    }
}

fn upload_peer(address: &PeerAddress) -> UploadPeer {
    match *address {
        PeerAddress::Tcp(address) => {
            UploadPeer::with_address(AddressKey::of(address.ip()).address())
        }
        PeerAddress::Unix => UploadPeer::Local,
        PeerAddress::Simulated(node) => UploadPeer::with_address(Ipv4Addr::from(node).into()),
    }
}

/// What the first bytes of a connection say.
pub(crate) enum OpeningBytes {
    Http2,
    /// baidu_std or SRPC.
    Framed(FramedProtocol),
    /// More bytes are needed.
    Wait,
    /// The peer said nothing and went, as those do who only look whether somebody listens.
    Gone,
    /// Not for this port: answered, if there is an answer, and to be closed. Says what it was, for
    /// the log.
    Refuse(&'static str),
}

/// Looks at the first bytes, and answers those that are no protocol of this port.
pub(crate) fn open(io: &mut Io, about: &str, without_http2: bool) -> OpeningBytes {
    match http1::recognise(io.input.bytes()) {
        Greeting::Http2 if without_http2 => {
            // RFC 9113 sections 3.2 and 3.4: who speaks it over TLS says so in ALPN, and we begin
            // with SETTINGS.
            const WHY: &str = "HTTP/2 over TLS needs h2 in ALPN";
            frame::write_settings(&mut io.output, &[]);
            frame::write_goaway(&mut io.output, 0, ErrorCode::InadequateSecurity, WHY);
            OpeningBytes::Refuse("HTTP/2 over TLS without h2 in ALPN")
        }
        Greeting::Http2 => OpeningBytes::Http2,
        Greeting::BaiduStd => OpeningBytes::Framed(FramedProtocol::BaiduStd),
        Greeting::Srpc => OpeningBytes::Framed(FramedProtocol::Srpc),
        Greeting::NeedMore if !io.end_of_input() => OpeningBytes::Wait,
        Greeting::Http1 => {
            io.output.extend_from_slice(&http1::answer(about));
            OpeningBytes::Refuse("an HTTP/1.x request")
        }
        Greeting::Redis => {
            let line = about.lines().next().unwrap_or_default();
            let answer = http1::redis_answer(&format!("this is {line} It does not speak Redis"));
            io.output.extend_from_slice(&answer);
            OpeningBytes::Refuse("a command of a Redis client")
        }
        Greeting::Tls => OpeningBytes::Refuse("a TLS greeting on a plain port"),
        Greeting::NeedMore if io.input.is_empty() => OpeningBytes::Gone,
        Greeting::NeedMore => {
            OpeningBytes::Refuse("a connection that ended within its first bytes")
        }
        Greeting::Unknown => OpeningBytes::Refuse("bytes that are no protocol of this port"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use service::identities::{Binding, Identities, NEVER_MS, TokenKey};
    use service::rights::Rights;

    use super::*;
    use crate::SharedWaker;
    use crate::account::Account;
    use crate::pair::Pair;

    fn said(pair: &Pair) -> Vec<String> {
        pair.said.lock().expect("one thread").clone()
    }

    #[test]
    fn all_callers_count_but_those_of_this_machine_without_an_identity() {
        let identities = Identities::new(TokenKey::new(&[1; 32]), vec![Rights::new(Vec::new())]);
        let binding: Binding = "uid:7".parse().expect("a binding");
        let bound = Identity::bound("a", Rights::new(Vec::new()), NEVER_MS, binding.clone());
        (identities.replace(vec![bound.expect("it is sound")], 0)).expect("it is new");
        let table = identities.table();
        let found = table.resolve_bindings(&[Arc::new(binding)], 0);
        let found = found.expect("it has not expired").expect("it is bound");
        let anonymous = table.of_listener(0);
        let account = Account::new(1 << 20);
        for (address, is_local) in [("127.0.0.1:1", true), ("192.0.2.1:1", false)] {
            let address = PeerAddress::Tcp(address.parse().expect("an address"));
            let wake: SharedWaker = Arc::new(|| {});
            let holding = account.open(&address, &wake);
            let peer = Peer {
                address,
                listener: 0,
                outgoing: false,
                over_limit: false,
                place: None,
                handshake: None,
                tls: None,
                user: None,
            };
            let id = ConnectionId {
                slot: 0,
                generation: 0,
            };
            let link = Link::new(id, &peer, holding, 0);
            for (key, has_token) in [(found, true), (anonymous, false)] {
                let counted = link.counted(key, table.get(key));
                let counted = counted.map(|counted| counted.has_token);
                let expected = (has_token || !is_local).then_some(has_token);
                assert_eq!(counted, expected, "{is_local} {has_token}");
            }
        }
    }

    #[test]
    fn what_is_not_for_this_port_is_closed_and_logged_once() {
        for (bytes, what) in [
            (&b"\x16\x03\x01\x00\xc8\x01\x00"[..], "TLS"),
            (b"GET / HTTP/1.1\r\n", "HTTP/1"),
            (b"*1\r\n$4\r\nPING\r\n", "Redis"),
            (b"\x00\x01\x02\x03", "no protocol"),
        ] {
            let mut pair = Pair::accepted(false);
            pair.receive(bytes);
            pair.receive(b"more of it");
            pair.turn();
            assert!(pair.io.is_closing() && pair.io.input.is_empty());
            let said = said(&pair);
            assert!(said.len() == 1 && said[0].contains(what), "{said:?}");
        }
    }

    #[test]
    fn http2_over_tls_is_for_those_who_said_so_in_the_handshake() {
        for (application, is_served) in [
            (Some(&b"h2"[..]), true),
            (Some(b"http/1.1"), false),
            (None, false),
        ] {
            let mut pair = Pair::accepted(false);
            pair.accept_over_tls(application);
            pair.receive(wire::http1::PREFACE);
            assert_eq!(pair.io.is_closing(), !is_served, "{application:?}");
            if !is_served {
                // SETTINGS, then GOAWAY with INADEQUATE_SECURITY: RFC 9113 sections 6.5, 6.8 and 7.
                assert_eq!(pair.io.output[3], 4);
                assert_eq!((pair.io.output[9 + 3], pair.io.output[9 + 9 + 7]), (7, 12));
                assert_eq!(said(&pair), ["HTTP/2 over TLS without h2 in ALPN"]);
            }
        }
        let mut pair = Pair::accepted(false);
        pair.accept_over_tls(Some(b"http/1.1"));
        pair.receive(b"GET / HTTP/1.1\r\n\r\n");
        assert!(pair.io.output.starts_with(b"HTTP/1.1 505 "));
    }

    #[test]
    fn uploads_from_one_network_of_64_bits_are_those_of_one_peer() {
        let tcp =
            |address: &str| upload_peer(&PeerAddress::Tcp(address.parse().expect("an address")));
        assert_eq!(tcp("[2001:db8::1]:1"), tcp("[2001:db8::2:7]:2"));
        assert_ne!(tcp("[2001:db8::1]:1"), tcp("[2001:db8:0:1::1]:1"));
        assert_eq!(tcp("[::ffff:192.0.2.1]:1"), tcp("192.0.2.1:9"));
    }

    #[test]
    fn a_peer_is_local_by_its_address_and_refused_by_the_limit_that_it_is_over() {
        let account = crate::account::Account::new(1_000);
        let wake: crate::SharedWaker = std::sync::Arc::new(|| {});
        let tcp = |address: &str| PeerAddress::Tcp(address.parse().expect("an address"));
        for (address, kind) in [
            (PeerAddress::Unix, PeerKind::Unix),
            (tcp("127.0.0.1:1"), PeerKind::Loopback),
            (tcp("[::1]:1"), PeerKind::Loopback),
            (tcp("192.0.2.1:1"), PeerKind::RemotePlain),
        ] {
            for (over_limit, refused) in [(false, None), (true, Some(ShedFor::Connections))] {
                let peer = Peer {
                    address,
                    listener: 0,
                    outgoing: false,
                    over_limit,
                    place: None,
                    handshake: None,
                    tls: None,
                    user: None,
                };
                let id = ConnectionId {
                    slot: 0,
                    generation: 0,
                };
                let holding = account.open(&address, &wake);
                let link = Link::new(id, &peer, holding, 7);
                assert!(link.peer == kind, "{address:?}");
                assert!(link.refused == refused, "{over_limit}");
                assert_eq!(link.opened_ns, 7);
                assert!(ConnectionState::Undecided(Box::new(link)).is_drained());
            }
        }
    }

    #[test]
    fn a_broken_rule_is_logged_once() {
        let mut pair = Pair::open();
        pair.receive(b"\x00\x00\x01\x06\x00\x00\x00\x00\x00x");
        pair.turn();
        pair.close();
        assert!(pair.io.is_closing());
        assert_eq!(said(&pair), ["the length of PING is not 8"]);
    }

    #[test]
    fn who_only_looks_whether_somebody_listens_is_not_logged() {
        let mut pair = Pair::accepted(false);
        pair.io.set_end_of_input();
        pair.receive(b"");
        assert!(pair.io.is_closing());
        assert!(said(&pair).is_empty());
        let mut pair = Pair::open();
        pair.io.set_end_of_input();
        pair.receive(b"");
        pair.close();
        assert!(pair.io.is_closing());
        assert!(said(&pair).is_empty());
    }
}
