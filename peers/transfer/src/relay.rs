//! Passes bytes on after a delay, without bounding their rate: a longer way, not a narrower one.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// Read at a time.
const PIECE_BYTES: usize = 256 * 1024;

/// Pieces on their way in one direction. At 2.5 ms they are few even on a fast machine; a receiver
/// that stops reading must not make the relay grow.
const PIECES: usize = 256;

/// Connections that are passed on at a time, at most as many as the benchmark opens.
const CONNECTIONS: usize = 256;

struct Piece {
    due: Instant,
    buffer: Vec<u8>,
    count: usize,
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
            // Buffers come back: fresh pages for each would cost more than the copies.
            let (used, spare) = channel();
            ways.push(thread::spawn(move || take(from, &pieces, &spare, delay)));
            ways.push(thread::spawn(move || deliver(to, &arriving, &used)));
        }
    }
    Ok(())
}

fn take(
    mut from: TcpStream,
    pieces: &SyncSender<Piece>,
    spare: &Receiver<Vec<u8>>,
    delay: Duration,
) {
    loop {
        let mut buffer = spare.try_recv().unwrap_or_else(|_| vec![0; PIECE_BYTES]);
        // A broken connection ends here, and what came before it still arrives.
        let Ok(count @ 1..) = from.read(&mut buffer) else {
            return;
        };
        let due = Instant::now() + delay;
        let piece = Piece { due, buffer, count };
        if pieces.send(piece).is_err() {
            return;
        }
    }
}

fn deliver(mut to: TcpStream, arriving: &Receiver<Piece>, used: &Sender<Vec<u8>>) {
    for piece in arriving {
        thread::sleep(piece.due.saturating_duration_since(Instant::now()));
        if to.write_all(&piece.buffer[..piece.count]).is_err() {
            return;
        }
        // Nobody wants it when all has been taken.
        let _ = used.send(piece.buffer);
    }
    let _ = to.shutdown(Shutdown::Write);
}
