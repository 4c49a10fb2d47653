//! A thread that serves one connection at a time.
//!
//! It computes only with one of the permits that all such threads share, and waits without one.

use std::io;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;

use crate::config::LoopConfig;
use crate::core::LoopCore;
use crate::event_loop::monotonic_ns;
use crate::handler::{ConnectionId, Handler, Peer};
use crate::limits::{self, MAX_WAIT_NS, RECEIVE_WAIT_MS};
use crate::notice::{Notice, Notices};
use crate::permits::PermitWaiter;
use crate::pool::ThreadPool;
use crate::port::{BrokenSocket, Interest, Port, Readiness, TransferError};
use crate::socket::{self, timespec};
use crate::spread::LoopShared;

const RECEIVE_WAIT_NS: u64 = RECEIVE_WAIT_MS * 1_000_000;

/// The one socket of a thread.
struct BlockingSocket {
    interest: Interest,
}

impl Port for BlockingSocket {
    type Socket = OwnedFd;

    fn register(
        &mut self,
        socket: &OwnedFd,
        _: ConnectionId,
        interest: Interest,
    ) -> Result<(), BrokenSocket> {
        self.interest = interest;
        socket::make_waiting(socket, RECEIVE_WAIT_MS).map_err(|_| BrokenSocket)
    }

    fn watch(&mut self, _: &OwnedFd, _: ConnectionId, interest: Interest) {
        self.interest = interest;
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
        drop(socket);
    }
}

/// How a thread ended that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ThreadEnd {
    /// It had no connection for a while.
    Idle,
    /// It was stopped.
    Stopped {
        /// Before the deadline.
        in_time: bool,
    },
}

pub(crate) struct ConnectionThread {
    index: usize,
    core: LoopCore<BlockingSocket>,
    shared: Arc<LoopShared>,
    pool: Arc<ThreadPool>,
    current: Option<ConnectionId>,
    /// Without a connection, and the pool knows it, or is about to bring the first one.
    rests: bool,
    /// When it has rested for so long that it may end; `None`: it does not rest, or stays.
    retire_ns: Option<u64>,
    idle_ns: u64,
    /// The peer has said nothing for a while: its next word is waited for in `poll`.
    is_quiet: bool,
    /// Nothing was to be done for a while, and memory was given back.
    is_at_rest: bool,
    give_back: fn(),
    /// The bytes that it had moved when it last gave memory back to the allocator.
    given_back_at_bytes: u64,
    /// It has given back once. The rest of what was under way then is worth it, too, however little
    /// is moved until it goes.
    owes_rest: bool,
    waiter: Arc<PermitWaiter>,
    arrivals: Vec<(OwnedFd, Peer)>,
    notices: Arc<dyn Notices>,
}

impl ConnectionThread {
    pub(crate) fn new(
        index: usize,
        config: &LoopConfig,
        shared: Arc<LoopShared>,
        pool: Arc<ThreadPool>,
        handler: Box<dyn Handler>,
    ) -> ConnectionThread {
        let line = BlockingSocket {
            interest: Interest {
                read: false,
                write: false,
            },
        };
        let core = LoopCore::new(
            line,
            handler,
            shared.counters().clone(),
            config.security(),
            config.write_stall_ms,
            config.drain_ms,
        );
        ConnectionThread {
            index,
            core,
            shared,
            pool,
            current: None,
            rests: true,
            retire_ns: None,
            idle_ns: config.idle_thread_ms.saturating_mul(1_000_000),
            is_quiet: false,
            is_at_rest: false,
            give_back: config.give_back,
            given_back_at_bytes: 0,
            owes_rest: false,
            waiter: PermitWaiter::of_this_thread(),
            arrivals: Vec::new(),
            notices: config.notices.clone(),
        }
    }

    /// Runs until the thread is stopped, or has been idle for long.
    pub(crate) fn run(mut self) -> io::Result<ThreadEnd> {
        self.shared.counters().threads.set(1);
        let ended = self.serve();
        self.shared.counters().end();
        ended
    }

    fn serve(&mut self) -> io::Result<ThreadEnd> {
        while !self.core.has_ended() {
            self.wait()?;
            if self.turn() {
                return Ok(ThreadEnd::Idle);
            }
        }
        let cut_off = self.core.cut_off();
        if let Some(connections) = cut_off {
            self.notices.notice(&Notice::DrainDeadlinePassed {
                loop_index: self.index,
                connections,
            });
        }
        Ok(ThreadEnd::Stopped {
            in_time: cut_off.is_none(),
        })
    }

    /// Computes, with a permit. Returns whether the thread is to end, since it was idle for long.
    fn turn(&mut self) -> bool {
        let pool = Arc::clone(&self.pool);
        let permit = pool.permits().acquire(&self.waiter);
        let waits = u64::from(permit.has_waited());
        self.shared.counters().permit_waits.add(waits);
        let now_ns = monotonic_ns();
        if self.shared.waker().awake() {
            self.shared.waker().quieten();
            self.collect(now_ns);
        }
        self.core.tick(now_ns);
        self.look_for_work(now_ns);
        self.may_retire(now_ns)
    }

    /// Whether the thread has rested for long enough, and is not needed.
    fn may_retire(&mut self, now_ns: u64) -> bool {
        let is_due = self.retire_ns.is_some_and(|at_ns| at_ns <= now_ns);
        if !is_due || !self.rests || self.core.is_stopping() {
            return false;
        }
        if !self.core.is_idle() {
            self.retire_ns = Some(now_ns + self.idle_ns);
            return false;
        }
        self.retire_ns = None;
        self.pool.retire(self.index)
    }

    /// Takes the next connection when the last one is gone.
    fn look_for_work(&mut self, now_ns: u64) {
        self.current = self.current.filter(|&id| self.core.socket(id).is_some());
        // One that is dead already is no work.
        while self.current.is_none() && !self.rests && !self.core.is_stopping() {
            match self.pool.next(self.index) {
                Some((socket, peer)) => self.open(socket, &peer, now_ns),
                None => {
                    self.rests = true;
                    self.retire_ns = Some(now_ns.saturating_add(self.idle_ns));
                }
            }
        }
    }

    fn open(&mut self, socket: OwnedFd, peer: &Peer, now_ns: u64) {
        self.rests = false;
        self.retire_ns = None;
        self.is_quiet = false;
        self.current = self.core.open(socket, peer, now_ns);
    }

    /// Waits for the peer alone if nobody else can bring work, and for all who can otherwise.
    fn wait(&mut self) -> io::Result<()> {
        if self.core.has_work() {
            return Ok(());
        }
        let deadlines_ns = [self.core.next_deadline_ns(), self.retire_ns];
        let timeout_ns = (deadlines_ns.into_iter().flatten().min())
            .map(|at_ns| at_ns.saturating_sub(monotonic_ns()).min(MAX_WAIT_NS));
        let is_far = timeout_ns.is_none_or(|ns| ns >= RECEIVE_WAIT_NS);
        match self.current {
            Some(id) if is_far && !self.is_quiet && self.core.only_waits_for(id) => {
                self.is_quiet = !self.core.read_ahead(id, socket::receive_waiting);
                self.is_at_rest &= self.is_quiet;
                Ok(())
            }
            _ if self.is_at_rest || !is_far => self.wait_for_all(timeout_ns).map(drop),
            _ => {
                if self.wait_for_all(Some(RECEIVE_WAIT_NS))? {
                    self.rest();
                }
                Ok(())
            }
        }
    }

    /// Nothing was to be done for a while: gives memory back.
    fn rest(&mut self) {
        self.core.rest();
        self.is_at_rest = true;
        let counters = self.shared.counters();
        let moved_bytes = counters.bytes_in.get() + counters.bytes_out.get();
        let is_much = moved_bytes >= self.given_back_at_bytes + limits::GIVE_BACK_BYTES;
        let is_rest = self.owes_rest && moved_bytes > self.given_back_at_bytes;
        if is_much || is_rest {
            self.owes_rest = is_much;
            self.given_back_at_bytes = moved_bytes;
            (self.give_back)();
        }
    }

    /// Waits for the waker, for the socket as far as the connection is to be read or written, and
    /// for a deadline. Returns whether nothing has come but the deadline.
    fn wait_for_all(&mut self, timeout_ns: Option<u64>) -> io::Result<bool> {
        let timeout_ns = match self.shared.waker().may_sleep() {
            true => timeout_ns,
            false => Some(0),
        };
        if timeout_ns != Some(0) {
            self.shared.counters().waits.add(1);
        }
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, self.core.port().interest.read);
        flags.set(PollFlags::OUT, self.core.port().interest.write);
        let waker = PollFd::new(self.shared.waker(), PollFlags::IN);
        let (mut both, mut only) = ([waker.clone(), waker.clone()], [waker]);
        let watched = self.current.and_then(|id| self.core.socket(id));
        let entries = match watched {
            Some(socket) => {
                both[1] = PollFd::new(socket, flags);
                &mut both[..]
            }
            None => &mut only[..],
        };
        let count = match poll(entries, timeout_ns.map(timespec).as_ref()) {
            Ok(count) => count,
            Err(Errno::INTR) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let is_over = count == 0 && timeout_ns != Some(0);
        self.is_at_rest &= is_over;
        let found = entries.get(1).map(PollFd::revents);
        if let (Some(id), Some(found)) = (self.current, found)
            && !found.is_empty()
        {
            let readiness = readiness(found);
            self.is_quiet &= !readiness.readable;
            self.core.ready(id, readiness);
        }
        Ok(is_over)
    }

    /// Takes what other threads left: a connection, and requests to stop.
    fn collect(&mut self, now_ns: u64) {
        let stops = self.shared.collect(&mut self.arrivals);
        if stops > 0 && !self.core.is_stopping() {
            self.core.stop(now_ns);
        }
        if stops > 1 && !self.core.has_ended() {
            self.core.stop_now(now_ns);
        }
        while let Some((socket, peer)) = self.arrivals.pop() {
            debug_assert!(self.rests, "only to who rests is a connection given");
            if self.core.is_stopping() {
                drop(socket); // nothing was answered: the peer may safely try elsewhere
                self.shared.counters().closed.add(1);
            } else {
                self.open(socket, &peer, now_ns);
            }
        }
    }
}

fn readiness(flags: PollFlags) -> Readiness {
    let dead = flags.intersects(PollFlags::HUP | PollFlags::ERR);
    Readiness {
        readable: dead || flags.contains(PollFlags::IN),
        writable: dead || flags.contains(PollFlags::OUT),
        hung_up: dead,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn the_end_of_output_reaches_the_peer_of_a_line() {
        let (near, far) = UnixStream::pair().expect("a pair");
        let (near, far) = (OwnedFd::from(near), OwnedFd::from(far));
        let mut line = BlockingSocket {
            interest: Interest {
                read: true,
                write: false,
            },
        };
        let mut into = [0; 8];
        assert!(matches!(line.send(&near, b"last"), Ok(4)));
        line.end_output(&near);
        assert!(matches!(line.receive(&far, &mut into), Ok(4)));
        assert!(matches!(line.receive(&far, &mut into), Ok(0)), "the end");
        assert!(matches!(line.send(&far, b"still"), Ok(5)));
        assert!(matches!(line.receive(&near, &mut into), Ok(5)));
    }

    #[test]
    fn a_dead_socket_is_worth_reading_and_writing() {
        for (flags, readable, writable, hung_up) in [
            (PollFlags::empty(), false, false, false),
            (PollFlags::IN, true, false, false),
            (PollFlags::OUT, false, true, false),
            (PollFlags::IN | PollFlags::OUT, true, true, false),
            (PollFlags::HUP, true, true, true),
            (PollFlags::ERR, true, true, true),
        ] {
            let expected = Readiness {
                readable,
                writable,
                hung_up,
            };
            assert_eq!(readiness(flags), expected, "{flags:?}");
        }
    }
}
