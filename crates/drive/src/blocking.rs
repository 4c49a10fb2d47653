//! A thread that serves one connection at a time.

use std::io;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;

use crate::config::LoopConfig;
use crate::core::Core;
use crate::event_loop::{MAX_WAIT_NS, monotonic_ns};
use crate::handler::{ConnectionId, Handler, Peer};
use crate::limits::RECEIVE_WAIT_MS;
use crate::notice::{Notice, Notices};
use crate::pool::Pool;
use crate::port::{Broken, Interest, Port, Readiness, TransferError};
use crate::socket::{self, timespec};
use crate::spread::LoopShared;

const RECEIVE_WAIT_NS: u64 = RECEIVE_WAIT_MS * 1_000_000;

/// The one socket of a thread.
struct Line {
    interest: Interest,
}

impl Port for Line {
    type Socket = OwnedFd;

    fn register(
        &mut self,
        socket: &OwnedFd,
        _: ConnectionId,
        interest: Interest,
    ) -> Result<(), Broken> {
        self.interest = interest;
        socket::make_waiting(socket, RECEIVE_WAIT_MS).map_err(|_| Broken)
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

pub(crate) struct ConnectionThread {
    index: usize,
    core: Core<Line>,
    shared: Arc<LoopShared>,
    pool: Arc<Pool>,
    current: Option<ConnectionId>,
    /// Without a connection, and the pool knows it.
    rests: bool,
    /// The peer has said nothing for a while: its next word is waited for in `poll`.
    is_quiet: bool,
    arrivals: Vec<(OwnedFd, Peer)>,
    notices: Arc<dyn Notices>,
}

impl ConnectionThread {
    pub(crate) fn new(
        index: usize,
        config: &LoopConfig,
        shared: Arc<LoopShared>,
        pool: Arc<Pool>,
        handler: Box<dyn Handler>,
    ) -> ConnectionThread {
        let line = Line {
            interest: Interest {
                read: false,
                write: false,
            },
        };
        let core = Core::new(
            line,
            handler,
            shared.counters.clone(),
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
            is_quiet: false,
            arrivals: Vec::new(),
            notices: config.notices.clone(),
        }
    }

    /// Runs until the thread is stopped. The answer is whether it drained in time.
    pub(crate) fn run(mut self) -> io::Result<bool> {
        let mut now_ns = monotonic_ns();
        while !self.core.has_ended() {
            self.look_for_work(now_ns);
            self.wait()?;
            now_ns = monotonic_ns();
            if self.shared.alarm.awake() {
                self.shared.alarm.quieten();
                self.collect(now_ns);
            }
            self.core.tick(now_ns);
        }
        let Some(connections) = self.core.cut_off() else {
            return Ok(true);
        };
        self.notices.notice(&Notice::DrainDeadlinePassed {
            loop_index: self.index,
            connections,
        });
        Ok(false)
    }

    /// Takes the next connection when the last one is gone.
    fn look_for_work(&mut self, now_ns: u64) {
        self.current = self.current.filter(|&id| self.core.socket(id).is_some());
        if self.current.is_some() || self.rests || self.core.is_stopping() {
            return;
        }
        match self.pool.next(self.index) {
            Some((socket, peer)) => self.open(socket, &peer, now_ns),
            None => self.rests = true,
        }
    }

    fn open(&mut self, socket: OwnedFd, peer: &Peer, now_ns: u64) {
        self.rests = false;
        self.is_quiet = false;
        self.current = self.core.open(socket, peer, now_ns);
    }

    /// Waits for the peer alone if nobody else can bring work, and for all who can otherwise.
    fn wait(&mut self) -> io::Result<()> {
        if self.core.has_work() {
            return Ok(());
        }
        let timeout_ns = self
            .core
            .next_deadline_ns()
            .map(|at_ns| at_ns.saturating_sub(monotonic_ns()).min(MAX_WAIT_NS));
        let is_far = timeout_ns.is_none_or(|ns| ns >= RECEIVE_WAIT_NS);
        match self.current {
            Some(id) if is_far && !self.is_quiet && self.core.only_waits_for(id) => {
                self.is_quiet = !self.core.read_ahead(id, socket::receive_waiting);
                Ok(())
            }
            _ => self.wait_for_all(timeout_ns),
        }
    }

    /// Waits for the alarm, for the socket as far as the connection is to be read or written, and for a deadline.
    fn wait_for_all(&mut self, timeout_ns: Option<u64>) -> io::Result<()> {
        let timeout_ns = match self.shared.alarm.may_sleep() {
            true => timeout_ns,
            false => Some(0),
        };
        if timeout_ns != Some(0) {
            self.shared.counters.waits.add(1);
        }
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, self.core.port.interest.read);
        flags.set(PollFlags::OUT, self.core.port.interest.write);
        let alarm = PollFd::new(&self.shared.alarm, PollFlags::IN);
        let (mut both, mut only) = ([alarm.clone(), alarm.clone()], [alarm]);
        let watched = self.current.and_then(|id| self.core.socket(id));
        let entries = match watched {
            Some(socket) => {
                both[1] = PollFd::new(socket, flags);
                &mut both[..]
            }
            None => &mut only[..],
        };
        match poll(entries, timeout_ns.map(timespec).as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let found = entries.get(1).map(PollFd::revents);
        if let (Some(id), Some(found)) = (self.current, found)
            && !found.is_empty()
        {
            let readiness = readiness(found);
            self.is_quiet &= !readiness.readable;
            self.core.ready(id, readiness);
        }
        Ok(())
    }

    /// Takes what other threads left: a connection, and the wish to stop.
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
                self.shared.counters.closed.add(1);
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
