//! Waiting for sockets without holding them.

use std::io;
use std::sync::Arc;

use crate::epoll::Epoll;
use crate::handler::Waker;
use crate::wake::EventfdWaker;

/// Waits for the sockets of an [`Outgoing`](super::Outgoing), which others may use meanwhile. What
/// it has waited for is handed over by [`Outgoing::take_events`](super::Outgoing::take_events).
pub struct OutgoingPoller {
    epoll: Epoll,
    waker: Arc<EventfdWaker>,
    waits: u64,
}

impl OutgoingPoller {
    pub(super) fn new(epoll: &Epoll) -> io::Result<OutgoingPoller> {
        let waker = Arc::new(EventfdWaker::new()?);
        let epoll = epoll.try_clone()?;
        epoll.add_wake(waker.as_ref())?;
        Ok(OutgoingPoller {
            epoll,
            waker,
            waits: 0,
        })
    }

    /// Returns what wakes this poller, from any thread.
    pub fn waker(&self) -> OutgoingWaker {
        OutgoingWaker(Arc::clone(&self.waker))
    }

    /// Waits until something is ready or somebody wakes it, but not longer than `timeout_ns`
    /// (`None`: for ever). After a wake that came before, it does not wait at all.
    ///
    /// # Errors
    /// If the system refuses, which it has no reason to.
    pub fn wait(&mut self, timeout_ns: Option<u64>) -> io::Result<()> {
        self.waits += 1;
        let may_sleep = timeout_ns != Some(0) && self.waker.may_sleep();
        let waited = self
            .epoll
            .wait(if may_sleep { timeout_ns } else { Some(0) });
        self.waker.awake();
        waited
    }

    pub(super) fn take_waits(&mut self) -> u64 {
        std::mem::take(&mut self.waits)
    }

    pub(super) fn epoll(&mut self) -> &mut Epoll {
        &mut self.epoll
    }
}

impl std::fmt::Debug for OutgoingPoller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OutgoingPoller").finish_non_exhaustive()
    }
}

/// Wakes an [`OutgoingPoller`]. Costs a system call only if it sleeps.
#[derive(Clone, Debug)]
pub struct OutgoingWaker(Arc<EventfdWaker>);

impl OutgoingWaker {
    /// Ends the wait that runs, or the next one.
    pub fn wake(&self) {
        self.0.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use super::super::{Outgoing, OutgoingEndpoint, SocketReadResult};

    #[test]
    fn a_poller_waits_for_sockets_that_others_use() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let mut sockets = Outgoing::new().expect("an epoll set");
        let mut poller = sockets.poller().expect("descriptors are left");
        let id = sockets
            .dial(&OutgoingEndpoint::Tcp(address))
            .expect("it listens");
        let (mut peer, _) = listener.accept().expect("it connects");
        poller.wait(None).expect("waiting works");
        sockets.take_events(&mut poller);
        assert!(sockets.next_ready().is_some_and(|ready| ready.writable));
        sockets.finish_dialing(id).expect("it stands");
        for _ in 0..2 {
            peer.write_all(b"x").expect("it has room");
            poller.wait(None).expect("waiting works");
            sockets.take_events(&mut poller);
            assert!(sockets.next_ready().is_some_and(|ready| ready.id == id));
            assert_eq!(sockets.next_ready(), None);
            assert_eq!(sockets.read(id, &mut [0; 9]), SocketReadResult::Bytes(1));
        }
        assert_eq!(sockets.counters().waits, 3);
    }

    #[test]
    fn a_wait_without_an_end_lasts_until_somebody_wakes_it() {
        let sockets = Outgoing::new().expect("an epoll set");
        let mut poller = sockets.poller().expect("descriptors are left");
        for _ in 0..2 {
            let (waker, is_waking) = (poller.waker(), Arc::new(AtomicBool::new(false)));
            let noted = Arc::clone(&is_waking);
            let thread = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(100));
                noted.store(true, Ordering::SeqCst);
                waker.wake();
            });
            poller.wait(None).expect("it is woken");
            assert!(is_waking.load(Ordering::SeqCst), "it did not sleep");
            thread.join().expect("waking does not panic");
            poller.wait(Some(0)).expect("it does not sleep");
        }
    }

    #[test]
    fn a_wake_ends_a_wait_and_is_kept_for_the_next_one() {
        let sockets = Outgoing::new().expect("an epoll set");
        let mut poller = sockets.poller().expect("descriptors are left");
        let waker = poller.waker();
        for _ in 0..2 {
            waker.wake();
            poller.wait(None).expect("it does not sleep");
            let other = waker.clone();
            let thread = std::thread::spawn(move || other.wake());
            poller.wait(None).expect("it is woken");
            thread.join().expect("waking does not panic");
        }
    }
}
