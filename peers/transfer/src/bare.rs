//! Files over bare TCP: a line that says what is wanted, then the bytes.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;

/// Read and written at a time: enough that system calls cost little beside their bytes, little
/// enough for the caches.
const BUFFER_BYTES: usize = 256 * 1024;

/// Longest line that says what is wanted.
const LINE_BYTES: u64 = 4096;

/// Takes one connection after the other: the thread that works is the one whose CPU time is
/// counted.
pub fn serve(listen: &str, folder: &Path) -> io::Result<()> {
    let listener = TcpListener::bind(listen)?;
    println!("listening on {}", listener.local_addr()?);
    for socket in listener.incoming() {
        // Whoever breaks a connection off hurts only itself.
        if let Err(error) = socket.and_then(|socket| answer(socket, folder)) {
            eprintln!("transfer serve: {error}");
        }
    }
    Ok(())
}

fn answer(socket: TcpStream, folder: &Path) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let mut input = BufReader::with_capacity(BUFFER_BYTES, &socket);
    let mut line = String::new();
    (&mut input).take(LINE_BYTES).read_line(&mut line)?;
    let invalid = || io::Error::new(io::ErrorKind::InvalidData, format!("asked for {line:?}"));
    let (wanted, name) = line.trim_end().split_once(' ').ok_or_else(invalid)?;
    if name.is_empty() || name.contains('/') || name.starts_with('.') {
        return Err(invalid());
    }
    let path = folder.join(name);
    let bytes = match wanted {
        "keep" => {
            let mut file = File::create(path)?;
            let bytes = copy(&mut input, &mut file)?;
            file.sync_data()?;
            bytes
        }
        "discard" => copy(&mut input, &mut io::sink())?,
        "fetch" => {
            copy(&mut File::open(path)?, &mut &socket)?;
            return socket.shutdown(Shutdown::Write);
        }
        _ => return Err(invalid()),
    };
    (&socket).write_all(&bytes.to_be_bytes())
}

/// Reads into a buffer and writes from it: `io::copy` would have the kernel move the bytes, which
/// no server can do that looks at them.
fn copy(from: &mut impl Read, to: &mut impl Write) -> io::Result<u64> {
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut bytes = 0;
    loop {
        let count = from.read(&mut buffer)?;
        if count == 0 {
            return Ok(bytes);
        }
        to.write_all(&buffer[..count])?;
        bytes += count as u64;
    }
}

/// Sends a file, and waits for the answer.
pub fn put(address: &str, path: &Path, discards: bool) -> io::Result<()> {
    let mut socket = TcpStream::connect(address)?;
    socket.set_nodelay(true)?;
    let wanted = if discards { "discard" } else { "keep" };
    let name = path.file_name().unwrap_or_default().display();
    socket.write_all(format!("{wanted} {name}\n").as_bytes())?;
    let sent = copy(&mut File::open(path)?, &mut socket)?;
    socket.shutdown(Shutdown::Write)?;
    let mut answer = [0; 8];
    socket.read_exact(&mut answer)?;
    match u64::from_be_bytes(answer) == sent {
        true => Ok(()),
        false => Err(io::Error::other(
            "the other side has another number of bytes",
        )),
    }
}

/// Fetches a file.
pub fn get(address: &str, name: &str, to: &Path) -> io::Result<()> {
    let mut socket = TcpStream::connect(address)?;
    socket.set_nodelay(true)?;
    socket.write_all(format!("fetch {name}\n").as_bytes())?;
    let mut file = File::create(to)?;
    match copy(&mut socket, &mut file)? {
        0 => Err(io::Error::other("nothing came")),
        _ => file.sync_data(),
    }
}

/// Copies a file on this machine.
pub fn write(path: &Path, to: &Path) -> io::Result<()> {
    let mut file = File::create(to)?;
    copy(&mut File::open(path)?, &mut file)?;
    file.sync_data()
}
