//! One side of one TLS connection, as a value: the only place that knows rustls's connections.

use rustls::HandshakeKind;
use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedConnectionCommon,
    UnbufferedStatus, WriteTraffic,
};

use std::sync::Arc;

use super::failure::{TlsFailure, TlsFailureKind};
use super::{Agreed, ClientAuthorities, ClientTrust, PeerCertificate};
use crate::io::Input;

/// The most plaintext in a record (RFC 8446 section 5.1).
const RECORD_BYTES: usize = 1 << 14;

/// What a record adds, at most: its head, the nonce of TLS 1.2, the type of TLS 1.3 and the tag.
const RECORD_OVERHEAD_BYTES: usize = 5 + 8 + 1 + 16;

/// Room for what may stand before the next record: an alert, or an answer to a change of keys.
const CONTROL_BYTES: usize = 256;

/// Alerts and the like that one failure can leave behind.
const LAST_WORDS: usize = 4;

/// The most that `plain_bytes` of plaintext become.
pub(crate) fn sealed_bytes(plain_bytes: usize) -> usize {
    plain_bytes + (plain_bytes / RECORD_BYTES + 1) * RECORD_OVERHEAD_BYTES + CONTROL_BYTES
}

/// A session. `incoming` is always the same queue of ciphertext: what is not a whole record stays
/// in it, and the session relies on finding it there.
pub(crate) struct Session {
    side: Side,
    /// The peer has said that nothing follows.
    peer_closed: bool,
    /// This side has said so, or cannot say anything any more.
    is_closed: bool,
    /// Something was understood, so the peer speaks TLS.
    has_understood: bool,
    /// On the side of the server: by what the certificate of a client is checked, and the version
    /// of its authorities when the connection was accepted.
    accepted_by: Option<(ClientAuthorities, u64)>,
}

enum Side {
    Server(UnbufferedServerConnection),
    Client(UnbufferedClientConnection),
}

type Common<D> = UnbufferedConnectionCommon<D>;

/// Takes records from the front of a buffer until something is to be done.
type Process<D> = for<'c, 'i> fn(&'c mut Common<D>, &'i mut [u8]) -> UnbufferedStatus<'c, 'i, D>;

impl Session {
    pub(super) fn server(
        connection: UnbufferedServerConnection,
        accepted_by: (ClientAuthorities, u64),
    ) -> Session {
        Session::new(Side::Server(connection), Some(accepted_by))
    }

    pub(super) fn client(connection: UnbufferedClientConnection) -> Session {
        Session::new(Side::Client(connection), None)
    }

    fn new(side: Side, accepted_by: Option<(ClientAuthorities, u64)>) -> Session {
        Session {
            side,
            accepted_by,
            peer_closed: false,
            is_closed: false,
            has_understood: false,
        }
    }

    /// Whether the two sides have yet to agree.
    pub(crate) fn is_handshaking(&self) -> bool {
        match &self.side {
            Side::Server(connection) => connection.is_handshaking(),
            Side::Client(connection) => connection.is_handshaking(),
        }
    }

    /// What was agreed on, once the handshake is done.
    pub(crate) fn agreed(&self) -> Agreed {
        let (application, kind, shown) = match &self.side {
            Side::Server(connection) => (
                connection.alpn_protocol(),
                connection.handshake_kind(),
                connection.peer_certificates(),
            ),
            Side::Client(connection) => (
                connection.alpn_protocol(),
                connection.handshake_kind(),
                None,
            ),
        };
        let certificate = shown.and_then(|chain| {
            let mut certificate = PeerCertificate::of(chain.first()?);
            let accepted_by = self.accepted_by.as_ref();
            certificate.trust = accepted_by.map(|(authorities, version)| {
                ClientTrust::new(authorities.clone(), *version, chain)
            });
            Some(Arc::new(certificate))
        });
        Agreed {
            application: application.map(<[u8]>::to_vec),
            resumed: kind == Some(HandshakeKind::Resumed),
            certificate,
        }
    }

    /// Whether the peer has said that nothing follows.
    pub(crate) fn peer_closed(&self) -> bool {
        self.peer_closed
    }

    /// Whether nothing more can be said, since it was said or cannot be.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Opens every whole record of `incoming`: plaintext goes to `plain`, what the protocol has to
    /// say into `out`. After a failure `out` has the alert, and the session is of no further use.
    pub(crate) fn open(
        &mut self,
        incoming: &mut Input,
        out: &mut Input,
        plain: &mut dyn FnMut(&[u8]),
    ) -> Result<(), TlsFailure> {
        let before_bytes = incoming.len();
        let opened = match &mut self.side {
            Side::Server(connection) => open(connection, SERVER, incoming, out, plain),
            Side::Client(connection) => open(connection, CLIENT, incoming, out, plain),
        };
        match opened {
            Ok(peer_closed) => {
                self.peer_closed |= peer_closed;
                self.has_understood |= incoming.len() < before_bytes;
                Ok(())
            }
            Err(error) => {
                self.is_closed = true;
                Err(TlsFailure::of(&error, !self.has_understood))
            }
        }
    }

    /// Seals plaintext into records at the end of `out`.
    pub(crate) fn seal(
        &mut self,
        incoming: &mut Input,
        plain: &[u8],
        out: &mut Input,
    ) -> Result<(), TlsFailure> {
        if self.is_closed {
            return Err(TlsFailure::new(TlsFailureKind::Broken));
        }
        out.reserve(sealed_bytes(plain.len()));
        self.write(incoming, out, Write::Plain(plain))
    }

    /// Tells the peer that nothing follows; once.
    pub(crate) fn close(&mut self, incoming: &mut Input, out: &mut Input) {
        if std::mem::replace(&mut self.is_closed, true) || self.is_handshaking() {
            return;
        }
        out.reserve(CONTROL_BYTES);
        // Fails only when the keys are used up: then the connection ends without a word.
        let _ = self.write(incoming, out, Write::CloseNotify);
    }

    fn write(
        &mut self,
        incoming: &mut Input,
        out: &mut Input,
        what: Write<'_>,
    ) -> Result<(), TlsFailure> {
        let written = match &mut self.side {
            Side::Server(connection) => write(connection, SERVER, incoming, out, what),
            Side::Client(connection) => write(connection, CLIENT, incoming, out, what),
        };
        written.map_err(|error| {
            self.is_closed = true;
            TlsFailure::of(&error, false)
        })
    }
}

const SERVER: Process<ServerConnectionData> = Common::<ServerConnectionData>::process_tls_records;
const CLIENT: Process<ClientConnectionData> = Common::<ClientConnectionData>::process_tls_records;

/// What is written into the next records.
#[derive(Clone, Copy)]
enum Write<'a> {
    Plain(&'a [u8]),
    CloseNotify,
}

/// Returns whether the peer said that nothing follows.
fn open<D>(
    connection: &mut Common<D>,
    process: Process<D>,
    incoming: &mut Input,
    out: &mut Input,
    plain: &mut dyn FnMut(&[u8]),
) -> Result<bool, rustls::Error> {
    let mut peer_closed = false;
    loop {
        let mut status = process(connection, incoming.bytes_mut());
        let mut is_done = false;
        let mut failed = None;
        match &mut status.state {
            Ok(ConnectionState::ReadTraffic(traffic)) => {
                while let Some(record) = traffic.next_record() {
                    match record {
                        Ok(record) => {
                            status.discard += record.discard;
                            plain(record.payload);
                        }
                        Err(error) => failed = Some(error),
                    }
                }
            }
            Ok(ConnectionState::EncodeTlsData(data)) => encode(data, out),
            // Whoever owns `out` sends it.
            Ok(ConnectionState::TransmitTlsData(_)) => {}
            Ok(ConnectionState::PeerClosed) => peer_closed = true,
            Ok(
                ConnectionState::BlockedHandshake
                | ConnectionState::WriteTraffic(_)
                | ConnectionState::Closed,
            ) => is_done = true,
            Ok(_) => failed = Some(unexpected()),
            Err(error) => failed = Some(error.clone()),
        }
        let discard = status.discard;
        if let Ok(ConnectionState::TransmitTlsData(data)) = status.state {
            data.done();
        }
        incoming.consume(discard);
        if let Some(error) = failed {
            say_last_words(connection, process, incoming, out);
            return Err(error);
        }
        if is_done {
            return Ok(peer_closed);
        }
    }
}

/// After a failure: the alert that tells the peer.
fn say_last_words<D>(
    connection: &mut Common<D>,
    process: Process<D>,
    incoming: &mut Input,
    out: &mut Input,
) {
    // With nothing to say it would go on to read, and fail once more.
    for _ in 0..LAST_WORDS {
        if !connection.wants_write() {
            return;
        }
        let mut status = process(connection, incoming.bytes_mut());
        let Ok(ConnectionState::EncodeTlsData(data)) = &mut status.state else {
            return;
        };
        encode(data, out);
        let discard = status.discard;
        incoming.consume(discard);
    }
}

fn write<D>(
    connection: &mut Common<D>,
    process: Process<D>,
    incoming: &mut Input,
    out: &mut Input,
    what: Write<'_>,
) -> Result<(), rustls::Error> {
    loop {
        let status = process(connection, incoming.bytes_mut());
        let discard = status.discard;
        let mut written = None;
        match status.state? {
            ConnectionState::WriteTraffic(mut traffic) => {
                written = Some(put(&mut traffic, out, what))
            }
            ConnectionState::EncodeTlsData(mut data) => encode(&mut data, out),
            ConnectionState::TransmitTlsData(data) => data.done(),
            // Everything that came was opened when it came, so nothing else can be there.
            _ => return Err(unexpected()),
        }
        incoming.consume(discard);
        if let Some(written) = written {
            return written;
        }
    }
}

fn put<D>(
    traffic: &mut WriteTraffic<'_, D>,
    out: &mut Input,
    what: Write<'_>,
) -> Result<(), rustls::Error> {
    let mut put = |room: &mut [u8]| match what {
        Write::Plain(plain) => traffic.encrypt(plain, room),
        Write::CloseNotify => traffic.queue_close_notify(room),
    };
    let mut count = put(out.room());
    if let Err(EncryptError::InsufficientSize(size)) = &count {
        out.reserve(size.required_size);
        count = put(out.room());
    }
    let count = count.map_err(|error| rustls::Error::General(error.to_string()))?;
    out.filled(count);
    Ok(())
}

fn encode<D>(data: &mut EncodeTlsData<'_, D>, out: &mut Input) {
    let mut encoded = data.encode(out.room());
    if let Err(EncodeError::InsufficientSize(size)) = &encoded {
        out.reserve(size.required_size);
        encoded = data.encode(out.room());
    }
    let count = encoded.expect("there is room now, and it was not encoded before");
    out.filled(count);
}

fn unexpected() -> rustls::Error {
    rustls::Error::General("the session is in a state that it cannot be in".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::IDLE_TLS_BYTES;
    use crate::tls::{ClientTls, ClientTlsOptions, ServerTls, ServerTlsOptions, Trust};

    fn tls() -> (ServerTls, ClientTls) {
        let key = rcgen::KeyPair::generate().expect("random numbers");
        let params = rcgen::CertificateParams::new(["localhost".into()]).expect("a name");
        let certificate = params.self_signed(&key).expect("signed").pem();
        let server = ServerTls::new(&ServerTlsOptions {
            certificate: certificate.as_bytes(),
            key: key.serialize_pem().as_bytes(),
            client_authorities: None,
            client_certificate_optional: false,
            applications: &[b"h2"],
            now_s: 1_800_000_000,
        });
        let client = ClientTls::new(&ClientTlsOptions {
            trust: Trust::Authorities(certificate.as_bytes()),
            identity: None,
            server_name: None,
            applications: &[b"h2"],
        });
        (server.expect("valid"), client.expect("valid"))
    }

    /// A session with its two queues.
    struct End {
        session: Session,
        incoming: Input,
        outgoing: Input,
        plain: Vec<u8>,
    }

    impl End {
        fn new(session: Session) -> End {
            End {
                session,
                incoming: Input::default(),
                outgoing: Input::default(),
                plain: Vec::new(),
            }
        }

        fn receive(&mut self, bytes: &[u8]) {
            self.incoming.push(bytes);
            let plain = &mut self.plain;
            let take = &mut |piece: &[u8]| plain.extend_from_slice(piece);
            let opened = self
                .session
                .open(&mut self.incoming, &mut self.outgoing, take);
            opened.expect("no fault");
        }

        fn send(&mut self, plain: &[u8]) {
            let sealed = self
                .session
                .seal(&mut self.incoming, plain, &mut self.outgoing);
            sealed.expect("agreed");
        }
    }

    /// Carries bytes until both are silent.
    fn carry(one: &mut End, other: &mut End) {
        while !one.outgoing.is_empty() || !other.outgoing.is_empty() {
            for _ in 0..2 {
                let bytes = one.outgoing.bytes().to_vec();
                one.outgoing.consume(bytes.len());
                other.receive(&bytes);
                std::mem::swap(one, other);
            }
        }
    }

    fn agreed(server: &ServerTls, client: &ClientTls) -> (End, End) {
        let address = "localhost:1".parse().expect("valid");
        let mut near = End::new(client.session(&address).expect("a name"));
        let mut far = End::new(server.accept().expect("random numbers"));
        near.receive(&[]);
        carry(&mut near, &mut far);
        assert!(!near.session.is_handshaking() && !far.session.is_handshaking());
        (near, far)
    }

    #[test]
    fn an_idle_session_is_small() {
        let (server, client) = tls();
        agreed(&server, &client); // whatever is made once
        let mut kept = None;
        let measured = allocation_counter::measure(|| {
            let (_, far) = agreed(&server, &client);
            kept = Some(far.session);
        });
        let bytes = usize::try_from(measured.bytes_current).expect("it keeps something");
        let bytes = bytes + size_of::<crate::secure::Secure>();
        println!("an idle session takes {bytes} bytes");
        assert!(bytes <= IDLE_TLS_BYTES, "{bytes}");
        drop(kept);
    }

    #[test]
    fn allocations_go_by_records_and_not_by_what_is_in_them() {
        let (server, client) = tls();
        let (mut near, mut far) = agreed(&server, &client);
        for size in [100, 10_000, 10_000] {
            near.plain.reserve(size);
            far.send(&vec![1; size]);
            carry(&mut near, &mut far);
        }
        let plain = vec![1; 10_000];
        let measured = allocation_counter::measure(|| far.send(&plain));
        assert!(measured.count_total <= 2, "{measured:?}");
    }

    #[test]
    fn sealed_bytes_have_room() {
        let (server, client) = tls();
        let (mut near, mut far) = agreed(&server, &client);
        for count in [
            0,
            1,
            RECORD_BYTES - 1,
            RECORD_BYTES,
            RECORD_BYTES + 1,
            300_000,
        ] {
            near.send(&vec![7; count]);
            let (sealed, room) = (near.outgoing.len(), sealed_bytes(count));
            assert!(sealed <= room, "{count}");
            let records = count / RECORD_BYTES + 1;
            let spare = CONTROL_BYTES + records * RECORD_OVERHEAD_BYTES;
            assert!(room <= sealed + spare, "{room} bytes for {sealed}");
            carry(&mut near, &mut far);
            assert_eq!(std::mem::take(&mut far.plain), vec![7; count]);
        }
    }

    /// Records that came are opened when plaintext is sealed, too: what they make the protocol send
    /// goes first.
    #[test]
    fn what_the_protocol_has_to_send_goes_before_what_is_sealed() {
        let (server, client) = tls();
        let address = "localhost:1".parse().expect("valid");
        for _ in 0..2 {
            let mut near = End::new(client.session(&address).expect("a name"));
            let mut far = End::new(server.accept().expect("random numbers"));
            near.receive(&[]);
            far.receive(near.outgoing.bytes());
            near.outgoing.consume(near.outgoing.len());
            // The server's flight came, and nobody has looked at it.
            near.incoming.push(far.outgoing.bytes());
            far.outgoing.consume(far.outgoing.len());
            near.send(b"sealed");
            far.receive(near.outgoing.bytes());
            assert!(!far.session.is_handshaking());
            assert_eq!(far.plain, b"sealed");
        }
    }

    #[test]
    fn a_closure_alert_is_received_once_and_nothing_follows() {
        let (server, client) = tls();
        let (mut near, mut far) = agreed(&server, &client);
        near.send(b"last");
        near.session.close(&mut near.incoming, &mut near.outgoing);
        let said = near.outgoing.len();
        near.session.close(&mut near.incoming, &mut near.outgoing);
        assert_eq!(near.outgoing.len(), said);
        carry(&mut near, &mut far);
        assert!(far.session.peer_closed() && far.plain == b"last");
        far.send(b"still an answer");
        carry(&mut near, &mut far);
        assert_eq!(near.plain, b"still an answer");
        let late = near
            .session
            .seal(&mut near.incoming, b"x", &mut near.outgoing);
        assert!(late.is_err());
    }
}
