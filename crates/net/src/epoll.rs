//! Sockets of the kernel, reported by epoll.

use std::io;
use std::mem::MaybeUninit;

use rustix::event::{PollFd, PollFlags, epoll, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;

use crate::handler::ConnectionId;
use crate::limits::{EVENTS_PER_TICK, PRECISE_WAIT_NS};
use crate::port::{BrokenSocket, Interest, Port, Readiness, TransferError};
use crate::slab::NO_GENERATION;
use crate::socket::{self, timespec};

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EpollToken {
    Connection(ConnectionId),
    /// Another thread woke the loop.
    Wake,
    Listener(u32),
}

impl EpollToken {
    fn to_bits(self) -> u64 {
        let (slot, generation) = match self {
            EpollToken::Connection(id) => (id.slot, id.generation),
            EpollToken::Wake => (0, NO_GENERATION),
            EpollToken::Listener(index) => (index + 1, NO_GENERATION),
        };
        u64::from(generation) << 32 | u64::from(slot)
    }

    fn from_bits(bits: u64) -> EpollToken {
        let (slot, generation) = (bits as u32, (bits >> 32) as u32);
        match (slot, generation) {
            (0, NO_GENERATION) => EpollToken::Wake,
            (index, NO_GENERATION) => EpollToken::Listener(index - 1),
            _ => EpollToken::Connection(ConnectionId { slot, generation }),
        }
    }
}

/// One epoll set and the events it reported last.
pub(crate) struct Epoll {
    set: OwnedFd,
    events: Vec<(EpollToken, Readiness)>,
}

impl Epoll {
    pub(crate) fn new() -> io::Result<Epoll> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Epoll {
            set,
            events: Vec::with_capacity(EVENTS_PER_TICK),
        })
    }

    /// Returns a second way to wait for the same set, with events of its own: what one reports, the
    /// other does not have to wait for.
    pub(crate) fn try_clone(&self) -> io::Result<Epoll> {
        Ok(Epoll {
            set: self.set.try_clone()?,
            events: Vec::with_capacity(EVENTS_PER_TICK),
        })
    }

    /// Exchanges the events that were reported last.
    pub(crate) fn swap_events(&mut self, other: &mut Epoll) {
        std::mem::swap(&mut self.events, &mut other.events);
    }

    /// Reports the wake-up event: once for each write, so that it needs no reading.
    pub(crate) fn add_wake(&self, event: impl AsFd) -> io::Result<()> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        Ok(epoll::add(&self.set, event, data(EpollToken::Wake), flags)?)
    }

    pub(crate) fn add_listener(&self, listener: impl AsFd, index: u32) -> io::Result<()> {
        Ok(epoll::add(
            &self.set,
            listener,
            data(EpollToken::Listener(index)),
            epoll::EventFlags::IN,
        )?)
    }

    /// Stops or goes on reporting a listener.
    pub(crate) fn watch_listener(&self, listener: impl AsFd, index: u32, on: bool) {
        let flags = if on {
            epoll::EventFlags::IN
        } else {
            epoll::EventFlags::empty()
        };
        let modified = epoll::modify(
            &self.set,
            listener,
            data(EpollToken::Listener(index)),
            flags,
        );
        debug_assert!(modified.is_ok(), "the listener was added: {modified:?}");
    }

    /// Waits for events, but not longer than `timeout_ns` (`None`: for ever).
    pub(crate) fn wait(&mut self, timeout_ns: Option<u64>) -> io::Result<()> {
        self.events.clear();
        let mut timeout = timeout_ns.map(timespec);
        if let Some(precise) = &timeout
            && timeout_ns.is_some_and(|ns| 0 < ns && ns < PRECISE_WAIT_NS)
        {
            // epoll's own timeout counts milliseconds on older kernels; ppoll always has
            // nanoseconds.
            match poll(&mut [PollFd::new(&self.set, PollFlags::IN)], Some(precise)) {
                Ok(_) | Err(Errno::INTR) => timeout = Some(timespec(0)),
                Err(error) => return Err(error.into()),
            }
        }
        // Not kept as the kernel gives them: that type cannot go from thread to thread.
        let mut space = [const { MaybeUninit::uninit() }; EVENTS_PER_TICK];
        match epoll::wait(&self.set, &mut space[..], timeout.as_ref()) {
            Ok((reported, _)) => {
                self.events.extend(reported.iter().map(parsed));
                Ok(())
            }
            Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn event_count(&self) -> usize {
        self.events.len()
    }

    pub(crate) fn event(&self, index: usize) -> (EpollToken, Readiness) {
        self.events[index]
    }
}

/// What an event is about, and what it reports.
fn parsed(event: &epoll::Event) -> (EpollToken, Readiness) {
    let (flags, data) = (event.flags, event.data);
    let dead = flags.intersects(epoll::EventFlags::HUP | epoll::EventFlags::ERR);
    let readiness = Readiness {
        readable: dead || flags.contains(epoll::EventFlags::IN),
        writable: dead || flags.contains(epoll::EventFlags::OUT),
        hung_up: dead,
    };
    (EpollToken::from_bits(data.u64()), readiness)
}

impl Port for Epoll {
    type Socket = OwnedFd;

    fn register(
        &mut self,
        socket: &OwnedFd,
        id: ConnectionId,
        interest: Interest,
    ) -> Result<(), BrokenSocket> {
        epoll::add(
            &self.set,
            socket,
            data(EpollToken::Connection(id)),
            event_flags(interest),
        )
        .map_err(|_| BrokenSocket)
    }

    fn watch(&mut self, socket: &OwnedFd, id: ConnectionId, interest: Interest) {
        let token = data(EpollToken::Connection(id));
        let modified = epoll::modify(&self.set, socket, token, event_flags(interest));
        debug_assert!(modified.is_ok(), "registered when opened: {modified:?}");
    }

    fn receive(&mut self, socket: &OwnedFd, into: &mut [u8]) -> Result<usize, TransferError> {
        socket::receive(socket, into)
    }

    fn send(&mut self, socket: &OwnedFd, bytes: &[u8]) -> Result<usize, TransferError> {
        socket::send_some(socket, bytes)
    }

    fn end_output(&mut self, socket: &OwnedFd) {
        socket::end_output(socket);
    }

    fn close(&mut self, socket: OwnedFd) {
        drop(socket); // which also takes it out of the set
    }
}

fn data(token: EpollToken) -> epoll::EventData {
    epoll::EventData::new_u64(token.to_bits())
}

fn event_flags(interest: Interest) -> epoll::EventFlags {
    let mut flags = epoll::EventFlags::empty();
    flags.set(epoll::EventFlags::IN, interest.read);
    flags.set(epoll::EventFlags::OUT, interest.write);
    flags
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn tokens_survive_the_kernel() {
        let last = ConnectionId {
            slot: u32::MAX,
            generation: NO_GENERATION - 1,
        };
        for token in [
            EpollToken::Wake,
            EpollToken::Listener(0),
            EpollToken::Listener(7),
            EpollToken::Connection(last),
        ] {
            assert_eq!(EpollToken::from_bits(token.to_bits()), token);
        }
    }

    #[test]
    fn short_waits_are_precise() {
        let mut epoll = Epoll::new().expect("epoll");
        let begin = std::time::Instant::now();
        for _ in 0..5 {
            epoll.wait(Some(100_000)).expect("wait");
        }
        let waited = begin.elapsed();
        assert!(
            waited >= std::time::Duration::from_micros(500),
            "{waited:?}"
        );
    }

    /// What is reported of a socket now, if anything is.
    fn reported(epoll: &mut Epoll) -> Option<(EpollToken, Readiness)> {
        epoll.wait(Some(0)).expect("wait");
        (epoll.event_count() > 0).then(|| epoll.event(0))
    }

    #[test]
    fn a_socket_is_reported_for_what_is_asked_and_when_it_is_dead() {
        let (near, far) = UnixStream::pair().expect("a pair");
        let near = OwnedFd::from(near);
        let mut epoll = Epoll::new().expect("epoll");
        let id = ConnectionId {
            slot: 3,
            generation: 8,
        };
        let interest = |read, write| Interest { read, write };
        let ready = |readable, writable, hung_up| {
            let readiness = Readiness {
                readable,
                writable,
                hung_up,
            };
            Some((EpollToken::Connection(id), readiness))
        };
        let registered = epoll.register(&near, id, interest(true, false));
        registered.expect("it is a socket");
        assert_eq!(reported(&mut epoll), None);
        for _ in 0..2 {
            epoll.watch(&near, id, interest(false, true));
            assert_eq!(reported(&mut epoll), ready(false, true, false));
            (&far).write_all(b"x").expect("it has room");
            assert_eq!(reported(&mut epoll), ready(false, true, false));
            epoll.watch(&near, id, interest(true, true));
            assert_eq!(reported(&mut epoll), ready(true, true, false));
            epoll.watch(&near, id, interest(true, false));
            assert_eq!(reported(&mut epoll), ready(true, false, false));
            assert!(matches!(epoll.receive(&near, &mut [0; 9]), Ok(1)));
            assert_eq!(reported(&mut epoll), None);
        }
        epoll.watch(&near, id, interest(false, false));
        drop(far);
        assert_eq!(reported(&mut epoll), ready(true, true, true));
        epoll.close(near);
        assert_eq!(reported(&mut epoll), None);
    }

    #[test]
    fn a_listener_is_reported_while_it_is_watched() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let mut epoll = Epoll::new().expect("epoll");
        epoll.add_listener(&listener, 5).expect("it is a socket");
        let address = listener.local_addr().expect("it is bound");
        let _client = TcpStream::connect(address).expect("it listens");
        let token = |epoll: &mut Epoll| reported(epoll).map(|(token, _)| token);
        for _ in 0..2 {
            assert_eq!(token(&mut epoll), Some(EpollToken::Listener(5)));
            epoll.watch_listener(&listener, 5, false);
            assert_eq!(token(&mut epoll), None);
            epoll.watch_listener(&listener, 5, true);
        }
    }
}
