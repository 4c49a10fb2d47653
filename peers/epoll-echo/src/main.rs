//! Sends back what it gets: one thread, one epoll, per message one `epoll_wait`, one `read` and one
//! `write`. What a round trip costs here is what the kernel takes; what another server takes beyond
//! it is its own.

use std::error::Error;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};

use lexopt::prelude::*;
use rustix::event::epoll;

const USAGE: &str = "\
usage: epoll-echo [--listen HOST:PORT]

Sends back what it gets; 127.0.0.1:1980 unless told otherwise.
";

/// Read at a time. The messages to compare with are far smaller.
const BUFFER_BYTES: usize = 64 * 1024;

/// Events taken at a time.
const EVENTS: usize = 256;

/// The number of the listener among the events; connections are numbered from 0.
const LISTENER: u64 = u64::MAX;

struct Connection {
    socket: TcpStream,
    /// What could not be written yet. Nothing is read meanwhile, so it holds one buffer at most.
    unsent: Vec<u8>,
}

struct Server {
    poll: rustix::fd::OwnedFd,
    listener: TcpListener,
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    buffer: Vec<u8>,
}

impl Server {
    fn new(listener: TcpListener) -> io::Result<Server> {
        listener.set_nonblocking(true)?;
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(
            &poll,
            &listener,
            epoll::EventData::new_u64(LISTENER),
            epoll::EventFlags::IN,
        )?;
        Ok(Server {
            poll,
            listener,
            connections: Vec::new(),
            free: Vec::new(),
            buffer: vec![0; BUFFER_BYTES],
        })
    }

    fn run(&mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(EVENTS);
        loop {
            events.clear();
            match epoll::wait(
                &self.poll,
                rustix::buffer::spare_capacity(&mut events),
                None,
            ) {
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                match event.data.u64() {
                    LISTENER => self.accept()?,
                    number => self.serve(number as usize)?,
                }
            }
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        let (socket, _) = match self.listener.accept() {
            Ok(accepted) => accepted,
            // Gone again, or a signal came: the next event tells what is left.
            Err(error) if is_passing(&error) => return Ok(()),
            Err(error) => return Err(error),
        };
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        let number = self.free.pop().unwrap_or(self.connections.len());
        let data = epoll::EventData::new_u64(number as u64);
        epoll::add(&self.poll, &socket, data, epoll::EventFlags::IN)?;
        let connection = Some(Connection {
            socket,
            unsent: Vec::new(),
        });
        if number == self.connections.len() {
            self.connections.push(connection);
        } else {
            self.connections[number] = connection;
        }
        Ok(())
    }

    fn serve(&mut self, number: usize) -> io::Result<()> {
        let Some(connection) = &mut self.connections[number] else {
            return Ok(());
        };
        let was_blocked = !connection.unsent.is_empty();
        match connection.echo(&mut self.buffer) {
            Ok(()) => {}
            Err(error) if is_passing(&error) => {}
            // Closed or broken; dropping the socket takes it out of the epoll as well.
            Err(_) => {
                self.connections[number] = None;
                self.free.push(number);
                return Ok(());
            }
        }
        let is_blocked = !connection.unsent.is_empty();
        if was_blocked != is_blocked {
            let wanted = if is_blocked {
                epoll::EventFlags::OUT
            } else {
                epoll::EventFlags::IN
            };
            let data = epoll::EventData::new_u64(number as u64);
            epoll::modify(&self.poll, &connection.socket, data, wanted)?;
        }
        Ok(())
    }
}

impl Connection {
    /// Sends what was left over, or else one buffer of what has come.
    fn echo(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        if !self.unsent.is_empty() {
            let written = self.socket.write(&self.unsent)?;
            self.unsent.drain(..written);
            return Ok(());
        }
        let length = self.socket.read(buffer)?;
        if length == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let written = match self.socket.write(&buffer[..length]) {
            Ok(written) => written,
            Err(error) if is_passing(&error) => 0,
            Err(error) => return Err(error),
        };
        self.unsent.extend_from_slice(&buffer[written..length]);
        Ok(())
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::ConnectionAborted
    )
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut listen = "127.0.0.1:1980".to_owned();
    let mut arguments = lexopt::Parser::from_env();
    while let Some(argument) = arguments.next()? {
        match argument {
            Long("listen") => listen = arguments.value()?.string()?,
            Long("help") => {
                print!("{USAGE}");
                return Ok(());
            }
            _ => return Err(format!("{}\n\n{USAGE}", argument.unexpected()).into()),
        }
    }
    let listener = TcpListener::bind(&listen)
        .map_err(|error| format!("cannot listen on {listen} (--listen): {error}"))?;
    println!("listening on {}", listener.local_addr()?);
    Server::new(listener)?.run()?;
    Ok(())
}
