//! Both faces over TLS, against `wire`'s server role behind an event loop of `net`.

mod common;
#[path = "common/local_client.rs"]
mod local_client;
#[path = "common/pooled.rs"]
mod pooled;

use std::collections::HashMap;
use std::thread::{self, JoinHandle};
use std::time::{SystemTime, UNIX_EPOCH};

use client::tls::{ClientTls, ClientTlsOptions, TlsFailureKind, Trust};
use client::{
    APPLICATION, Address, CallOptions, Channel, ChannelOptions, ConnectError, Local, LocalOptions,
    LocalPoolOptions,
};
use common::by_path;
use local_client::{LocalClient, Reported};
use net::tls::{ServerTls, ServerTlsOptions};
use net::{
    Closed, ConnectionId, Connections, Handler, Io, Listen, LoopConfig, Loops, Peer, StopHandle,
};
use pooled::Pooled;
use wire::{Connection, Event, StreamKey};

/// A certificate that is its own authority, and its key.
struct Identity {
    certificate: String,
    key: String,
}

impl Identity {
    fn new() -> Identity {
        let key = rcgen::KeyPair::generate().expect("random numbers");
        let params = rcgen::CertificateParams::new(["localhost".into()]).expect("a name");
        Identity {
            certificate: params.self_signed(&key).expect("signed").pem(),
            key: key.serialize_pem(),
        }
    }

    fn server(&self, clients: Option<&Identity>, applications: &[&[u8]]) -> ServerTls {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        ServerTls::new(&ServerTlsOptions {
            certificate: self.certificate.as_bytes(),
            key: self.key.as_bytes(),
            client_authorities: clients.map(|one| one.certificate.as_bytes()),
            client_certificate_optional: false,
            applications,
            now_s: since_1970.expect("after 1970").as_secs(),
        })
        .expect("valid")
    }

    fn trusting(&self) -> ClientTls {
        ClientTls::new(&ClientTlsOptions {
            trust: Trust::Authorities(self.certificate.as_bytes()),
            identity: None,
            server_name: Some("localhost"),
            applications: &[APPLICATION],
        })
        .expect("valid")
    }
}

/// Answers by path.
#[derive(Default)]
struct ByPath {
    connections: HashMap<ConnectionId, Served>,
}

struct Served {
    connection: Connection,
    paths: HashMap<u32, String>,
}

impl Served {
    fn happened(&mut self, event: Event, input: &[u8], out: &mut Vec<u8>) {
        match event {
            Event::Request { stream, end } => {
                let head = self.connection.head();
                let path = String::from_utf8_lossy(head.path()).into_owned();
                if end || !head.is_grpc() {
                    self.answer(stream, &path, b"", out);
                } else {
                    self.paths.insert(stream.id, path);
                }
            }
            Event::Message { stream, .. } => {
                let message = self.connection.message(input).to_vec();
                self.connection.release(stream, out);
                let path = self.paths[&stream.id].clone();
                self.answer(stream, &path, &message, out);
            }
            Event::Cancelled { stream, .. } => self.connection.forget(stream),
            _ => {}
        }
    }

    fn answer(&mut self, stream: StreamKey, path: &str, message: &[u8], out: &mut Vec<u8>) {
        by_path(&mut self.connection, stream, out, path, message);
    }
}

impl Handler for ByPath {
    fn opened(&mut self, id: ConnectionId, _: &Peer, io: &mut Io, now_ns: u64) {
        let mut connection = Connection::new(&wire::Config::server(), now_ns);
        connection.start(&mut io.output);
        let paths = HashMap::new();
        self.connections.insert(id, Served { connection, paths });
    }

    fn received(&mut self, id: ConnectionId, io: &mut Io, now_ns: u64) {
        let served = self.connections.get_mut(&id).expect("it was opened");
        let (input, mut consumed) = (io.input.bytes().to_vec(), 0);
        while let Some(event) =
            served
                .connection
                .poll_event(&input, &mut consumed, &mut io.output, now_ns)
        {
            served.happened(event, &input, &mut io.output);
        }
        served.connection.transmit(&mut io.output, now_ns);
        io.input.consume(consumed);
        if io.end_of_input() {
            io.close_when_written();
        }
    }

    fn writable(&mut self, id: ConnectionId, io: &mut Io, now_ns: u64) {
        let served = self.connections.get_mut(&id).expect("it was opened");
        served.connection.transmit(&mut io.output, now_ns);
    }
    fn closed(&mut self, id: ConnectionId, _: Closed, _: u64) {
        self.connections.remove(&id);
    }
    fn tick(&mut self, _: &mut dyn Connections, _: u64) {}
    fn next_deadline_ns(&self) -> Option<u64> {
        None
    }
    fn stop(&mut self, _: &mut dyn Connections, _: u64) {}
    fn is_drained(&self) -> bool {
        true
    }
}

/// A server that stops when it goes.
struct Server {
    address: Address,
    stop: StopHandle,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn start(tls: Option<ServerTls>) -> Server {
        let address = "127.0.0.1:0".parse().expect("valid");
        let loops = Loops::bind(LoopConfig {
            listen: vec![Listen { address, tls }],
            threads: 1,
            handle_signals: false,
            ..LoopConfig::default()
        });
        let loops = loops.expect("a port is free");
        let (address, stop) = (loops.addresses()[0].clone(), loops.stop_handle());
        let thread = thread::spawn(move || {
            let ended = loops.run(|_| Box::new(ByPath::default()));
            ended.expect("no failure");
        });
        Server {
            address,
            stop,
            thread: Some(thread),
        }
    }

    fn channel(&self, tls: &ClientTls) -> Result<Channel, ConnectError> {
        let options = ChannelOptions {
            tls: Some(tls.clone()),
            ..ChannelOptions::default()
        };
        Channel::connect(&self.address, &options)
    }

    fn local_client(&self, tls: &ClientTls) -> LocalClient {
        let options = LocalOptions {
            tls: Some(tls.clone()),
            ..LocalOptions::default()
        };
        LocalClient {
            local: Local::new(&self.address, options).expect("the address is known"),
            reported: Vec::new(),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.stop();
        let thread = self.thread.take().expect("it ends once");
        thread.join().expect("the server does not panic");
    }
}

#[test]
fn calls_go_through_both_faces() {
    let identity = Identity::new();
    let server = Server::start(Some(identity.server(None, &[APPLICATION])));
    let tls = identity.trusting();
    let mut channel = server.channel(&tls).expect("it listens");
    let large = vec![7; 3_000_000];
    for message in [&b"x"[..], &large] {
        let answer = channel.unary("/t.T/Echo", message, &CallOptions::default());
        assert!(answer.expect("an answer") == message);
    }
    let mut stream = channel
        .server_streaming("/t.T/Stream", &[0; 50], &CallOptions::default())
        .expect("it begins");
    let mut count = 0;
    while let Some(message) = stream.next_message().expect("no fault") {
        assert_eq!(message, [count; 1000]);
        count += 1;
    }
    assert_eq!(count, 50);
    drop(stream);
    drop(channel);

    let mut local_client = server.local_client(&tls);
    let channels = [local_client.connect(), local_client.connect()];
    for tag in 0..100 {
        let request = vec![tag as u8; 1 + 500 * tag as usize];
        local_client.begin(channels[tag as usize % 2], tag, "/t.T/Echo", &request);
    }
    for tag in 0..100 {
        local_client.until(|reported| *reported == Reported::Ok(tag, 1));
        let answer = Reported::Message(tag, vec![tag as u8; 1 + 500 * tag as usize]);
        assert!(local_client.reported.contains(&answer), "{tag}");
    }
}

/// A pool that uses this.
fn pooled(address: &Address, tls: Option<&ClientTls>) -> Pooled {
    let options = LocalPoolOptions {
        tls: tls.cloned(),
        ..pooled::of(2)
    };
    Pooled::new(address, options)
}

#[test]
fn calls_go_through_a_pool() {
    let one = Identity::new();
    let server = Server::start(Some(one.server(None, &[APPLICATION])));
    let mut pooled = pooled(&server.address, Some(&one.trusting()));
    for _ in 0..2 {
        for tag in 0..20 {
            pooled.begin(tag, "/t.T/Echo", &vec![tag as u8; 50_000]);
        }
        for tag in 0..20 {
            pooled.ended(tag).expect("it is answered");
            assert_eq!(pooled.messages(tag), [vec![tag as u8; 50_000]]);
        }
        pooled.reported.clear();
    }
    pooled.close();
}

#[test]
fn a_pool_says_why_there_is_no_tls() {
    let (one, other) = (Identity::new(), Identity::new());
    let with_tls = Server::start(Some(one.server(None, &[APPLICATION])));
    let plain = Server::start(None);
    for (server, tls, words) in [
        (&with_tls, Some(other.trusting()), "certificate"),
        (&with_tls, None, client::SERVER_SPEAKS_TLS),
        (&plain, Some(one.trusting()), "does not speak TLS"),
    ] {
        let mut pooled = pooled(&server.address, tls.as_ref());
        pooled.begin(1, "/t.T/Echo", b"question");
        let error = pooled.ended(1).expect_err("there is no TLS").to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn both_faces_say_why_there_is_no_tls() {
    let (identity, stranger) = (Identity::new(), Identity::new());
    let secure = Server::start(Some(identity.server(None, &[APPLICATION])));
    let mutual = Server::start(Some(identity.server(Some(&stranger), &[APPLICATION])));
    let no_http2 = Server::start(Some(identity.server(None, &[])));
    let plain = Server::start(None);
    let cases = [
        (
            &secure,
            stranger.trusting(),
            TlsFailureKind::Certificate,
            "unknown issuer",
        ),
        (
            &no_http2,
            identity.trusting(),
            TlsFailureKind::Incompatible,
            "h2",
        ),
        (
            &plain,
            identity.trusting(),
            TlsFailureKind::NotTls,
            "does not speak TLS",
        ),
    ];
    for (server, tls, kind, words) in cases {
        match server.channel(&tls).expect_err(words) {
            ConnectError::Tls { failure, .. } => assert_eq!(failure.kind, kind, "{failure}"),
            other => panic!("{other}"),
        }
        let mut local_client = server.local_client(&tls);
        let channel = local_client
            .local
            .open_channel(LocalClient::now_ns())
            .expect("room");
        let reported =
            local_client.until(|reported| matches!(reported, Reported::Disconnected(..)));
        let Reported::Disconnected(which, reason) = reported else {
            unreachable!("it is one")
        };
        assert!(which == channel && reason.contains(words), "{reason}");
    }
    // In TLS 1.3 a client learns after its handshake that it should have had a certificate.
    let mut channel = mutual
        .channel(&identity.trusting())
        .expect("so far all is well");
    let error = channel.unary("/t.T/Echo", b"x", &CallOptions::default());
    let error = error.expect_err("no certificate").to_string();
    assert!(error.contains("CertificateRequired"), "{error}");
}

#[test]
fn a_plain_client_is_told_that_the_server_speaks_tls() {
    let server = Server::start(Some(Identity::new().server(None, &[APPLICATION])));
    let mut channel =
        Channel::connect(&server.address, &ChannelOptions::default()).expect("it listens");
    let error = channel.unary("/t.T/Echo", b"x", &CallOptions::default());
    let error = error.expect_err("another protocol").to_string();
    assert!(error.contains(client::SERVER_SPEAKS_TLS), "{error}");
}
