//! What is counted of connections adds up, and is zero again when they are gone, however they went.
//! Twice.

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use common::tls::{Authority, Secured};
use common::{Server, blocking, eventually, one_loop};
use net::tls::TlsFailureKind;
use net::{Listen, LoopConfig};

/// Echoes are not read: they fill both sockets' buffers, and the output behind them.
const UNREAD_BYTES: usize = 8 << 20;

fn send_much(mut stream: &TcpStream) {
    stream.set_nonblocking(true).expect("it is a socket");
    let piece = vec![1; 1 << 16];
    let (mut sent, mut refused) = (0, 0);
    while sent < UNREAD_BYTES && refused < 20 {
        match stream.write(&piece) {
            Ok(count) => sent += count,
            Err(_) => {
                refused += 1;
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        }
    }
}

fn echo(mut stream: &TcpStream) {
    stream.write_all(b"hello").expect("it reads");
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).expect("it answers");
    assert_eq!(&answer, b"hello");
}

/// Connections that end in each way; returns how many.
fn mixture(server: &Server) -> u64 {
    let silent = server.connect();
    let honest = server.connect();
    echo(&honest);
    let half_closed = server.connect();
    echo(&half_closed);
    half_closed.shutdown(Shutdown::Write).expect("open");
    let mut end = Vec::new();
    (&half_closed).read_to_end(&mut end).expect("a clean end");
    assert_eq!(end, b"");
    // With unread bytes the kernel resets the connection when it is closed.
    let unread = server.connect();
    (&unread).write_all(&[2; 1_000]).expect("it reads");
    let stuffed = server.connect();
    send_much(&stuffed);
    drop((silent, honest, half_closed, unread, stuffed));
    5
}

#[track_caller]
fn assert_gone(server: &Server, opened: u64) {
    eventually("all are closed", || server.sum(|one| one.closed) == opened);
    assert_eq!(server.sum(|one| one.opened), opened);
    let closed = server.habits.closed.lock().expect("no panic").len() as u64;
    assert_eq!(closed, opened, "each is reported to its handler once");
    eventually("buffers are given back", || {
        server.sum(|one| one.input_buffers_lent + one.output_buffers_lent) == 0
    });
}

#[test]
fn plain_connections_add_up() {
    for config in [one_loop(), blocking(8)] {
        let server = Server::start(config);
        let mut opened = 0;
        for _ in 0..2 {
            opened += mixture(&server);
            assert_gone(&server, opened);
        }
        assert_eq!(server.sum(|one| one.refused), 0);
        assert!(server.stop().expect("no failure").drained);
    }
}

#[test]
fn tls_connections_add_up_and_each_failure_is_counted_once() {
    let authority = Authority::new();
    let with_tls = |config: LoopConfig| LoopConfig {
        listen: vec![Listen {
            address: "127.0.0.1:0".parse().expect("valid"),
            tls: Some(authority.server()),
        }],
        ..config
    };
    for config in [one_loop(), blocking(8)] {
        let server = Server::start(with_tls(config));
        for round in 1..=2 {
            let mut honest = Secured::new(server.connect(), &authority.client());
            honest.shake_hands().expect("both sides agree");
            honest.send(b"hello");
            assert_eq!(honest.receive(5).expect("whole records"), b"hello");
            honest.close();
            drop(honest);
            // Not TLS at all, and gone in the midst of a handshake.
            let mut plain = server.connect();
            plain
                .write_all(b"GET / HTTP/1.1\r\n\r\n")
                .expect("it reads");
            let _ = plain.read_to_end(&mut Vec::new());
            let mut gone = server.connect();
            gone.write_all(&[22, 3, 1, 0, 200, 1]).expect("it reads");
            drop((plain, gone));
            // A client that trusts nobody here gives up and says so.
            let stranger = Authority::new();
            let mut distrustful = Secured::new(server.connect(), &stranger.client());
            let failure = distrustful.shake_hands().expect_err("unknown to it");
            assert_eq!(failure.kind, TlsFailureKind::Certificate);
            distrustful.flush();
            drop(distrustful);
            eventually("each is counted", || {
                let of = [
                    server.sum(|one| one.handshakes),
                    server.sum(|one| one.failed_not_tls),
                    server.sum(|one| one.failed_ended),
                    server.sum(|one| one.failed_refused_by_peer),
                ];
                of == [round; 4]
            });
            eventually("all are closed", || {
                server.sum(|one| one.closed) == server.sum(|one| one.opened)
            });
            eventually("buffers are given back", || {
                server.sum(|one| one.input_buffers_lent + one.output_buffers_lent) == 0
            });
        }
        assert!(server.stop().expect("no failure").drained);
    }
}
