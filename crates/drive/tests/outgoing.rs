//! Connections that this side opens, against sockets of the standard library.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;

use drive::{Address, ConnectionId, Endpoint, Outgoing, Read, Written};

const PATIENCE_NS: u64 = 10_000_000_000;

fn endpoint(text: &str) -> Endpoint {
    let address: Address = text.parse().expect(text);
    Endpoint::resolve(&address).expect(text).remove(0)
}

/// Waits until something of this connection is reported.
fn wait_for(outgoing: &mut Outgoing, id: ConnectionId) {
    for _ in 0..1_000 {
        outgoing.wait(Some(PATIENCE_NS)).expect("waiting works");
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
            Read::Bytes(count) => all.extend_from_slice(&buffer[..count]),
            Read::Nothing => {}
            other => panic!("{other:?} after {} bytes", all.len()),
        }
    }
    all
}

#[test]
fn bytes_go_there_and_back_and_are_counted() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let mut outgoing = Outgoing::new().expect("an epoll set");
    let to = Endpoint::Tcp(listener.local_addr().expect("it is bound"));
    let id = outgoing.dial(&to).expect("somebody listens");
    let (mut peer, _) = listener.accept().expect("it connects");
    wait_for(&mut outgoing, id);
    outgoing.finish_dialing(id).expect("it is connected");
    assert_eq!(outgoing.write(id, b"there"), Written::Bytes(5));
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
    assert_eq!(outgoing.read(id, &mut [0; 8]), Read::End);
    outgoing.close(id);
    assert_eq!(outgoing.read(id, &mut [0; 8]), Read::Broken, "it is gone");
    assert_eq!(outgoing.write(id, b"x"), Written::Broken);
}

#[test]
fn a_full_socket_is_reported_when_it_takes_bytes_again() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let mut outgoing = Outgoing::new().expect("an epoll set");
    let to = Endpoint::Tcp(listener.local_addr().expect("it is bound"));
    let id = outgoing.dial(&to).expect("somebody listens");
    let (mut peer, _) = listener.accept().expect("it connects");
    wait_for(&mut outgoing, id);
    outgoing.finish_dialing(id).expect("it is connected");
    let block = vec![7; 1 << 20];
    let mut sent = 0;
    loop {
        match outgoing.write(id, &block) {
            Written::Bytes(count) if count == block.len() => sent += count,
            Written::Bytes(count) => {
                sent += count;
                break;
            }
            Written::Broken => panic!("the peer is there"),
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
    assert_eq!(outgoing.write(id, b"more"), Written::Bytes(4));
}

#[test]
fn refusals_are_told() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    drop(listener);
    let mut outgoing = Outgoing::new().expect("an epoll set");
    let id = outgoing
        .dial(&Endpoint::Tcp(address))
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
