//! Passes bytes on after a delay, without bounding their rate: a longer way, not a narrower one.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// Read at a time.
const PIECE_BYTES: usize = 256 * 1024;

/// Pieces on their way in one direction. At 2.5 ms they are few even on a fast machine; a receiver that stops reading
/// must not make the relay grow.
const PIECES: usize = 256;

/// Connections that are passed on at a time, at most as many as the benchmark opens.
const CONNECTIONS: usize = 256;

struct Piece {
    due: Instant,
    bytes: Vec<u8>,
}

/// Passes connections on to `address` until it is ended.
pub fn run(listen: &str, address: &str, delay: Duration) -> io::Result<()> {
    let listener = TcpListener::bind(listen)?;
    println!("listening on {}", listener.local_addr()?);
    let mut ways: Vec<thread::JoinHandle<()>> = Vec::new();
    for near in listener.incoming() {
        ways.retain(|way| !way.is_finished());
        if ways.len() >= 4 * CONNECTIONS {
            return Err(io::Error::other("too many connections"));
        }
        let near = near?;
        let far = TcpStream::connect(address)?;
        near.set_nodelay(true)?;
        far.set_nodelay(true)?;
        for (from, to) in [(&near, &far), (&far, &near)] {
            let (from, to) = (from.try_clone()?, to.try_clone()?);
            let (pieces, arriving) = sync_channel(PIECES);
            ways.push(thread::spawn(move || take(from, &pieces, delay)));
            ways.push(thread::spawn(move || deliver(to, &arriving)));
        }
    }
    Ok(())
}

fn take(mut from: TcpStream, pieces: &SyncSender<Piece>, delay: Duration) {
    let mut buffer = vec![0; PIECE_BYTES];
    // A broken connection ends here, and what came before it still arrives.
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let piece = Piece {
            due: Instant::now() + delay,
            bytes: buffer[..count].to_vec(),
        };
        if pieces.send(piece).is_err() {
            break;
        }
    }
}

fn deliver(mut to: TcpStream, arriving: &Receiver<Piece>) {
    for piece in arriving {
        thread::sleep(piece.due.saturating_duration_since(Instant::now()));
        if to.write_all(&piece.bytes).is_err() {
            return;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}
