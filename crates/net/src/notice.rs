//! What a driver has to say to whoever keeps the log.

use std::fmt;
use std::io;

use crate::Address;
use crate::peer_address::PeerAddress;
use crate::tls::TlsFailure;

/// Something worth a line in a log.
#[derive(Debug)]
#[non_exhaustive]
pub enum Notice {
    /// `accept` fails; it is tried again every
    /// [`ACCEPT_BACKOFF_MS`](crate::limits::ACCEPT_BACKOFF_MS). Said once until it works again.
    AcceptFailing {
        /// The listener.
        address: Address,
        /// What the kernel says.
        error: io::Error,
    },
    /// `accept` works again.
    AcceptWorks {
        /// The listener.
        address: Address,
    },
    /// The connection limit is reached: new peers are refused. Said once until connections are
    /// below it again.
    ConnectionLimit {
        /// The limit.
        max_connections: usize,
    },
    /// There are too many connections from one address: more of its are refused. Said at most every
    /// [`ADDRESS_NOTICE_MS`](crate::limits::ADDRESS_NOTICE_MS).
    AddressLimit {
        /// The peer that was refused.
        peer: PeerAddress,
        /// The limit.
        max_connections: usize,
    },
    /// A connection was refused since the blocking driver could not start a thread for it. Said at
    /// most every [`THREAD_NOTICE_MS`](crate::limits::THREAD_NOTICE_MS).
    ThreadNotStarted {
        /// The threads that run for connections.
        threads: usize,
        /// What the kernel says.
        error: io::Error,
    },
    /// A loop could not be bound to its CPU; it runs unpinned.
    PinFailed {
        /// The CPU asked for.
        cpu: usize,
        /// What the kernel says.
        error: io::Error,
    },
    /// A stop was asked for: draining begins.
    Stopping {
        /// A signal (or else the program) asked.
        by_signal: bool,
    },
    /// A second stop was asked for: connections are cut.
    StoppingNow,
    /// The drain deadline passed with work still running.
    DrainDeadlinePassed {
        /// The loop.
        loop_index: usize,
        /// Its open connections, which are cut.
        connections: usize,
    },
    /// A connection with TLS failed, most often in its handshake.
    TlsFailed {
        /// Whose.
        peer: PeerAddress,
        /// Why.
        failure: TlsFailure,
    },
    /// The file descriptors allowed to this process are fewer than `max_connections` needs.
    FewDescriptors {
        /// What is allowed.
        allowed: u64,
        /// What would be needed.
        needed: u64,
    },
    /// `max_connections` was lowered to what the file descriptors allow.
    FewerConnections {
        /// What it was.
        asked: usize,
        /// What it is.
        max_connections: usize,
    },
}

/// Takes notices. Called from any loop's thread; must not block for long.
pub trait Notices: Send + Sync {
    /// One notice.
    fn notice(&self, notice: &Notice);
}

/// Takes notices and forgets them.
#[derive(Clone, Copy, Debug, Default)]
pub struct SilentNotices;

impl Notices for SilentNotices {
    fn notice(&self, _: &Notice) {}
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::AcceptFailing { address, error } => {
                write!(f, "cannot accept connections on {address} for now: {error}")
            }
            Notice::AcceptWorks { address } => {
                write!(f, "accepting connections on {address} again")
            }
            Notice::ConnectionLimit { max_connections } => {
                write!(
                    f,
                    "{max_connections} connections are open, the most allowed: refusing more"
                )
            }
            Notice::AddressLimit {
                peer,
                max_connections,
            } => write!(
                f,
                "refused a connection from {peer}: {max_connections} are open from that address, \
                 the most allowed"
            ),
            Notice::ThreadNotStarted { threads, error } => write!(
                f,
                "refused a connection: no thread can be started for it, beside {threads} for \
                 other connections: {error}; the system bounds threads (ulimit -u, TasksMax= of \
                 systemd, pids.max of a cgroup)"
            ),
            Notice::PinFailed { cpu, error } => {
                write!(f, "cannot pin a loop to CPU {cpu}: {error}")
            }
            Notice::Stopping { by_signal: true } => f.write_str("signal received: draining"),
            Notice::Stopping { by_signal: false } => f.write_str("stop asked for: draining"),
            Notice::StoppingNow => f.write_str(
                "asked to stop a second time: closing all connections, calls that run are cut; \
                 a third signal ends the process at once",
            ),
            Notice::DrainDeadlinePassed {
                loop_index,
                connections,
            } => write!(
                f,
                "loop {loop_index} did not drain in time: cutting {connections} connections"
            ),
            Notice::TlsFailed { peer, failure } => {
                write!(f, "closed a TLS connection from {peer}: {failure}")
            }
            Notice::FewDescriptors { allowed, needed } => write!(
                f,
                "only {allowed} file descriptors are allowed, \
                 {needed} needed at the connection limit"
            ),
            Notice::FewerConnections {
                asked,
                max_connections,
            } => write!(
                f,
                "at most {max_connections} connections instead of {asked}: no more file \
                 descriptors are allowed (ulimit -n, LimitNOFILE= of systemd)"
            ),
        }
    }
}
