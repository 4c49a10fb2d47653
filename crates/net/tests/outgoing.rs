//! Connections that this side opens, against sockets of the standard library.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixListener;

use net::{
    Address, ConnectionId, Outgoing, OutgoingEndpoint, Ready, SocketReadResult, SocketWriteResult,
};

const TIMEOUT_NS: u64 = 10_000_000_000;

fn endpoint(text: &str) -> OutgoingEndpoint {
    let address: Address = text.parse().expect(text);
    OutgoingEndpoint::resolve(&address).expect(text).remove(0)
}

/// Waits until something of this connection is reported.
fn wait_for(outgoing: &mut Outgoing, id: ConnectionId) {
    for _ in 0..1_000 {
        outgoing.wait(Some(TIMEOUT_NS)).expect("waiting works");
        while let Some(ready) = outgoing.next_ready() {
            if ready.id == id {
                return;
            }
        }
    }
    panic!("nothing was reported of {id:?}");
}

fn read_all(outgoing: &mut Outgoing, id: ConnectionId, count: usize) -> Vec<u8> {
    let (mut all, mut buffer) = (Vec::new(), [0; 4096]);
    while all.len() < count {
        wait_for(outgoing, id);
        match outgoing.read(id, &mut buffer) {
            SocketReadResult::Bytes(count) => all.extend_from_slice(&buffer[..count]),
            SocketReadResult::Nothing => {}
            other => panic!("{other:?} after {} bytes", all.len()),
        }
    }
    all
}

#[test]
fn bytes_go_there_and_back_and_are_counted() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let mut outgoing = Outgoing::new().expect("an epoll set");
    let to = OutgoingEndpoint::Tcp(listener.local_addr().expect("it is bound"));
    let id = outgoing.dial(&to).expect("somebody listens");
    let (mut peer, _) = listener.accept().expect("it connects");
    wait_for(&mut outgoing, id);
    outgoing.finish_dialing(id).expect("it is connected");
    assert_eq!(outgoing.write(id, b"there"), SocketWriteResult::Bytes(5));
    let mut buffer = [0; 5];
    peer.read_exact(&mut buffer).expect("sent");
    assert_eq!(&buffer, b"there");
    peer.write_all(b"and back").expect("connected");
    assert_eq!(read_all(&mut outgoing, id, 8), b"and back");
    let counters = outgoing.counters();
    assert_eq!((counters.dials, counters.writes), (1, 1));
    assert_eq!((counters.bytes_out, counters.bytes_in), (5, 8));
    if let Some(figures) = outgoing.tcp_figures(id) {
        assert!(figures.segments_out >= 2, "{figures:?}");
    }

    drop(peer);
    wait_for(&mut outgoing, id);
    assert_eq!(outgoing.read(id, &mut [0; 8]), SocketReadResult::End);
    outgoing.close(id);
    assert_eq!(
        outgoing.read(id, &mut [0; 8]),
        SocketReadResult::Broken,
        "it is gone"
    );
    assert_eq!(outgoing.write(id, b"x"), SocketWriteResult::Broken);
}

#[test]
fn a_full_socket_is_reported_when_it_takes_bytes_again() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let mut outgoing = Outgoing::new().expect("an epoll set");
    let to = OutgoingEndpoint::Tcp(listener.local_addr().expect("it is bound"));
    let id = outgoing.dial(&to).expect("somebody listens");
    let (mut peer, _) = listener.accept().expect("it connects");
    wait_for(&mut outgoing, id);
    outgoing.finish_dialing(id).expect("it is connected");
    let block = vec![7; 1 << 20];
    let mut sent = 0;
    loop {
        match outgoing.write(id, &block) {
            SocketWriteResult::Bytes(count) if count == block.len() => sent += count,
            SocketWriteResult::Bytes(count) => {
                sent += count;
                break;
            }
            SocketWriteResult::Broken => panic!("the peer is there"),
        }
        assert!(sent < 1 << 30, "the kernel has no such buffers");
    }
    outgoing.wait(Some(0)).expect("waiting works");
    assert!(
        !std::iter::from_fn(|| outgoing.next_ready()).any(|ready| ready.writable),
        "it is full"
    );
    let mut left = vec![0; sent];
    peer.read_exact(&mut left)
        .expect("all that was taken comes");
    wait_for(&mut outgoing, id);
    assert_eq!(outgoing.write(id, b"more"), SocketWriteResult::Bytes(4));
}

#[test]
fn refusals_are_told() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    drop(listener);
    let mut outgoing = Outgoing::new().expect("an epoll set");
    let id = outgoing
        .dial(&OutgoingEndpoint::Tcp(address))
        .expect("the answer comes later");
    wait_for(&mut outgoing, id);
    let error = outgoing.finish_dialing(id).expect_err("nobody listens");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    let unix = outgoing
        .dial(&endpoint("unix:/nowhere/at/all.sock"))
        .expect_err("nobody listens");
    assert_eq!(unix.kind(), std::io::ErrorKind::NotFound);
}

#[test]
fn unix_sockets_are_connected_at_once() {
    let path = std::env::temp_dir().join(format!("pelton-outgoing-{}", std::process::id()));
    let listener = UnixListener::bind(&path).expect("the folder is ours");
    let mut outgoing = Outgoing::new().expect("an epoll set");
    let id = outgoing
        .dial(&endpoint(&format!("unix:{}", path.display())))
        .expect("somebody listens");
    let (mut peer, _) = listener.accept().expect("it connects");
    wait_for(&mut outgoing, id);
    outgoing.finish_dialing(id).expect("it is connected");
    peer.write_all(b"hello").expect("connected");
    assert_eq!(read_all(&mut outgoing, id, 5), b"hello");
    assert_eq!(outgoing.tcp_figures(id), None);
    std::fs::remove_file(&path).expect("it was there");
}

/// A connection to a listener of the standard library, and its other end.
fn connected(outgoing: &mut Outgoing, listener: &TcpListener) -> (ConnectionId, TcpStream) {
    let to = OutgoingEndpoint::Tcp(listener.local_addr().expect("it is bound"));
    let id = outgoing.dial(&to).expect("somebody listens");
    let (peer, _) = listener.accept().expect("it connects");
    wait_for(outgoing, id);
    outgoing.finish_dialing(id).expect("it is connected");
    (id, peer)
}

/// What is reported now, without waiting.
fn ready_now(outgoing: &mut Outgoing) -> Vec<Ready> {
    outgoing.wait(Some(0)).expect("waiting works");
    std::iter::from_fn(|| outgoing.next_ready()).collect()
}

#[test]
fn only_what_is_asked_for_is_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let mut outgoing = Outgoing::new().expect("an epoll set");
    for _ in 0..2 {
        let (id, mut peer) = connected(&mut outgoing, &listener);
        let (other, mut other_peer) = connected(&mut outgoing, &listener);
        // Nothing waits to be written, so that nobody is told that it could be.
        assert_eq!(ready_now(&mut outgoing), []);
        assert_eq!(
            outgoing.write(id, b"all of it"),
            SocketWriteResult::Bytes(9)
        );
        assert_eq!(ready_now(&mut outgoing), []);
        peer.write_all(b"answer").expect("connected");
        wait_for(&mut outgoing, id);
        let readable = Ready {
            id,
            readable: true,
            writable: false,
        };
        assert_eq!(
            ready_now(&mut outgoing),
            [readable],
            "as long as it is not read"
        );
        // Who is closed between the wait and the question is not reported, and the rest is.
        other_peer.write_all(b"answer").expect("connected");
        wait_for(&mut outgoing, other);
        outgoing.wait(Some(0)).expect("waiting works");
        outgoing.close(id);
        let rest: Vec<_> = std::iter::from_fn(|| outgoing.next_ready()).collect();
        let ids: Vec<_> = rest.iter().map(|ready| ready.id).collect();
        assert_eq!(ids, [other]);
        outgoing.close(other);
        assert_eq!(ready_now(&mut outgoing), []);
    }
}

#[test]
fn every_call_is_counted_once_and_bytes_when_they_moved() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let mut outgoing = Outgoing::new().expect("an epoll set");
    let (id, mut peer) = connected(&mut outgoing, &listener);
    let before = outgoing.counters();
    assert_eq!((before.dials, before.reads, before.writes), (1, 0, 0));
    for round in 1..=2 {
        assert_eq!(outgoing.read(id, &mut [0; 10]), SocketReadResult::Nothing);
        assert_eq!(outgoing.write(id, b"abc"), SocketWriteResult::Bytes(3));
        assert_eq!(outgoing.write(id, b"de"), SocketWriteResult::Bytes(2));
        peer.write_all(b"seven..").expect("connected");
        wait_for(&mut outgoing, id);
        assert_eq!(outgoing.read(id, &mut [0; 4]), SocketReadResult::Bytes(4));
        assert_eq!(outgoing.read(id, &mut [0; 4]), SocketReadResult::Bytes(3));
        let now = outgoing.counters();
        assert_eq!((now.reads, now.writes), (3 * round, 2 * round));
        assert_eq!((now.bytes_in, now.bytes_out), (7 * round, 5 * round));
        assert!(now.waits > before.waits);
    }
    let waits = outgoing.counters().waits;
    ready_now(&mut outgoing);
    assert_eq!(outgoing.counters().waits, waits + 1);
}

#[test]
fn a_connection_that_the_peer_resets_is_broken_and_one_that_is_gone_too() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let mut outgoing = Outgoing::new().expect("an epoll set");
    for _ in 0..2 {
        let (id, peer) = connected(&mut outgoing, &listener);
        // Closed with something unread: the kernel resets the connection (RFC 2525 section 2.17).
        assert_eq!(outgoing.write(id, b"unread"), SocketWriteResult::Bytes(6));
        let mut arrived = [0];
        assert_eq!(peer.peek(&mut arrived).expect("it comes"), 1);
        drop(peer);
        wait_for(&mut outgoing, id);
        let both = Ready {
            id,
            readable: true,
            writable: true,
        };
        assert_eq!(ready_now(&mut outgoing), [both], "whoever waits is told");
        assert_eq!(outgoing.read(id, &mut [0; 8]), SocketReadResult::Broken);
        assert_eq!(outgoing.write(id, b"more"), SocketWriteResult::Broken);
        let before = outgoing.counters();
        outgoing.close(id);
        outgoing.close(id);
        assert_eq!(outgoing.read(id, &mut [0; 8]), SocketReadResult::Broken);
        assert_eq!(outgoing.write(id, b"more"), SocketWriteResult::Broken);
        assert_eq!(outgoing.counters(), before, "the kernel was not asked");
        assert_eq!(outgoing.tcp_figures(id), None);
        let error = outgoing.finish_dialing(id).expect_err("it is gone");
        assert_eq!(error.raw_os_error(), Some(9), "EBADF");
    }
}

/// Whether the kernel tells of connections: sock_diag(7).
fn has_diagnosis() -> bool {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, netlink, socket_with};
    let (family, kind) = (AddressFamily::NETLINK, SocketType::DGRAM);
    let protocol = Some(netlink::SOCK_DIAG);
    socket_with(family, kind, SocketFlags::CLOEXEC, protocol).is_ok()
}

#[test]
fn both_versions_of_ip_are_dialled_and_their_segments_counted() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        // A system without IPv6 has nothing to connect to.
        let Ok(listener) = TcpListener::bind(address) else {
            continue;
        };
        let mut outgoing = Outgoing::new().expect("an epoll set");
        let (id, mut peer) = connected(&mut outgoing, &listener);
        let before = outgoing.tcp_figures(id);
        assert_eq!(before.is_some(), has_diagnosis(), "{address}");
        for _ in 0..10 {
            assert_eq!(outgoing.write(id, b"ping"), SocketWriteResult::Bytes(4));
            peer.read_exact(&mut [0; 4]).expect("sent");
        }
        // A system without this kind of socket counts nothing.
        if let (Some(before), Some(after)) = (before, outgoing.tcp_figures(id)) {
            assert!(after.segments_out >= before.segments_out + 10, "{address}");
        }
    }
}

#[test]
fn an_address_stands_for_all_that_its_name_stands_for() {
    let resolve = |text: &str| {
        let address: Address = text.parse().expect("valid");
        OutgoingEndpoint::resolve(&address)
    };
    let unix = resolve("unix:/run/a.sock").expect("nothing is looked up");
    assert_eq!(unix, [OutgoingEndpoint::Unix("/run/a.sock".into())]);
    let tcp = resolve("127.0.0.1:4317").expect("nothing is looked up");
    assert_eq!(tcp, [OutgoingEndpoint::Tcp(([127, 0, 0, 1], 4317).into())]);
    assert_eq!(unix[0].to_string(), "unix:/run/a.sock");
    assert_eq!(tcp[0].to_string(), "127.0.0.1:4317");
}
