//! A pool for one thread, which owns its sockets and turns it.
//!
//! Nothing is shared and nothing runs by itself. A turn is: begin calls ([`LocalPool::engine`]),
//! write each connection that has output once ([`LocalPool::flush`]), wait ([`LocalPool::wait`]),
//! read each connection that has input once and hear what happened ([`LocalPool::receive`]). So a
//! system call is shared by all calls that begin or end in a turn, and no lock is taken.

mod connections;

use std::fmt;
use std::io;

use net::tls::ClientTls;
use net::{Address, OutgoingCounters, OutgoingEndpoint, OutgoingPoller, TcpFigures};

use crate::dialing::DialTarget;
use crate::error::ConnectError;
use crate::limits;
use crate::pool::{
    PoolAction, PoolConnectionKey, PoolEndpoint, PoolEngine, PoolEvent, PoolOptions,
};
use connections::LocalConnections;

/// How a local pool is to be.
#[derive(Clone, Debug, Default)]
pub struct LocalPoolOptions {
    /// How it uses its connections.
    pub pool: PoolOptions,
    /// TLS, with [`APPLICATION`](crate::APPLICATION) in ALPN; `None`: plain.
    pub tls: Option<ClientTls>,
    /// For whom the servers are to answer; `None`: each for its address.
    pub authority: Option<String>,
}

/// Connections to one or more addresses, for one thread.
///
/// ```no_run
/// use client::{LocalPool, LocalPoolOptions, PoolCall, PoolEvent};
///
/// let addresses = ["10.0.0.1:1978".parse()?, "10.0.0.2:1978".parse()?];
/// let mut pool = LocalPool::new(&addresses, LocalPoolOptions::default(), 1, net::monotonic_ns())?;
/// let check = PoolCall {
///     path: "/grpc.health.v1.Health/Check",
///     timeout_ns: Some(5_000_000_000),
///     ..PoolCall::default()
/// };
/// for tag in 0..100 {
///     pool.engine().begin(tag, &check, net::monotonic_ns(), |_request| {})?;
/// }
/// let mut left = 100;
/// while left > 0 {
///     pool.flush(net::monotonic_ns());
///     pool.wait(None, net::monotonic_ns())?;
///     pool.receive(net::monotonic_ns(), &mut |event| {
///         if let PoolEvent::Ended { tag, result, .. } = event {
///             println!("call {tag}: {result:?}");
///             left -= 1;
///         }
///     });
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct LocalPool {
    engine: PoolEngine,
    connections: LocalConnections,
}

impl LocalPool {
    /// Looks up where the servers are. Waits for the resolver; connects to nothing yet. `seed` is
    /// for the jitter of pauses: another one for each client.
    ///
    /// # Errors
    /// If a host is not known, the token must not be sent to one of the addresses, or the system
    /// gives no epoll set.
    pub fn new(
        addresses: &[Address],
        options: LocalPoolOptions,
        seed: u64,
        now_ns: u64,
    ) -> Result<LocalPool, ConnectError> {
        let targets = addresses.iter().map(DialTarget::resolve);
        LocalPool::with_targets(targets.collect::<Result<_, _>>()?, options, seed, now_ns)
    }

    /// The same without the resolver: calls wait until [`LocalPool::set_endpoints`] says where the
    /// servers are.
    ///
    /// # Errors
    /// As [`LocalPool::new`], but for hosts that are not known.
    pub(crate) fn unresolved(
        addresses: &[Address],
        options: LocalPoolOptions,
        seed: u64,
        now_ns: u64,
    ) -> Result<LocalPool, ConnectError> {
        let targets = addresses.iter().map(DialTarget::unresolved);
        let mut pool = LocalPool::with_targets(targets.collect(), options, seed, now_ns)?;
        for endpoint in 0..addresses.len() {
            pool.engine.hold_endpoint(endpoint);
        }
        Ok(pool)
    }

    fn with_targets(
        targets: Vec<DialTarget>,
        options: LocalPoolOptions,
        seed: u64,
        now_ns: u64,
    ) -> Result<LocalPool, ConnectError> {
        let addresses = targets.iter().map(|target| &target.address);
        for address in addresses.clone() {
            if let Some(credentials) = &options.pool.credentials {
                credentials.check(address, options.tls.is_some())?;
            }
        }
        let endpoints = addresses.map(|address| PoolEndpoint {
            name: address.to_string(),
            authority: options
                .authority
                .clone()
                .unwrap_or_else(|| crate::channel::authority(address)),
        });
        let endpoints = endpoints.collect();
        let engine = PoolEngine::new(endpoints, options.pool, seed, now_ns);
        let connections = LocalConnections::new(targets, options.tls, limits::LOCAL_READ_BYTES)
            .map_err(no_epoll)?;
        Ok(LocalPool {
            engine,
            connections,
        })
    }

    /// The pool itself: where calls begin, take messages, and are cancelled; and its statistics.
    pub fn engine(&mut self) -> &mut PoolEngine {
        &mut self.engine
    }

    /// Writes each connection that has output once.
    pub fn flush(&mut self, now_ns: u64) {
        self.act(now_ns);
        while let Some(key) = self.engine.next_output(now_ns) {
            self.connections.write(key, &mut self.engine, now_ns);
        }
    }

    /// Waits until there is something to receive, but not beyond `timeout_ns` (`None`: for ever),
    /// nor beyond what is due here by time.
    ///
    /// # Errors
    /// If the system refuses, which it has no reason to.
    pub fn wait(&mut self, timeout_ns: Option<u64>, now_ns: u64) -> io::Result<()> {
        let due_ns = self
            .engine
            .next_deadline_ns()
            .map(|at_ns| at_ns.saturating_sub(now_ns));
        let timeout_ns = [timeout_ns, due_ns].into_iter().flatten().min();
        let is_busy = self.engine.is_busy();
        self.connections
            .sockets
            .wait(if is_busy { Some(0) } else { timeout_ns })
    }

    /// After [`LocalPool::wait`]: reads each connection that is ready once, and reports what
    /// happened to calls.
    pub fn receive(&mut self, now_ns: u64, on: &mut impl FnMut(PoolEvent<'_>)) {
        self.connections.receive(&mut self.engine, now_ns);
        self.engine.poll(now_ns, on);
        self.act(now_ns);
    }

    /// The name of an address, by its number, stands for these endpoints now, or it is not known
    /// and this is why.
    pub(crate) fn set_endpoints(
        &mut self,
        address: usize,
        found: Result<Vec<OutgoingEndpoint>, String>,
        now_ns: u64,
    ) {
        let none = || String::from("its name stands for no address");
        let found = found.and_then(|found| match found.is_empty() {
            true => Err(none()),
            false => Ok(found),
        });
        match found {
            Ok(found) => self
                .connections
                .set_endpoints(address, found, &mut self.engine, now_ns),
            Err(reason) => self.engine.endpoint_unknown(address, reason),
        }
    }

    /// Returns whether a connection could not be made, or was lost, since this was last asked: the
    /// names may stand for other endpoints by now.
    pub(crate) fn take_failures(&mut self) -> bool {
        let of_sockets = self.connections.take_failures();
        self.engine.take_failures() || of_sockets
    }

    /// A place to wait for the sockets while others turn the pool.
    pub(crate) fn poller(&self) -> io::Result<OutgoingPoller> {
        self.connections.sockets.poller()
    }

    /// Takes what the poller has waited for, as [`LocalPool::wait`] would.
    pub(crate) fn take_events(&mut self, poller: &mut OutgoingPoller) {
        self.connections.sockets.take_events(poller);
    }

    /// What was done with sockets so far.
    pub fn socket_counters(&self) -> OutgoingCounters {
        self.connections.sockets.counters()
    }

    /// What the kernel has counted for a connection, if it is one of TCP and the kernel says so.
    pub fn tcp_figures(&mut self, key: PoolConnectionKey) -> Option<TcpFigures> {
        let socket = self.connections.socket(key)?;
        self.connections.sockets.tcp_figures(socket)
    }

    /// Does what the pool asks for.
    fn act(&mut self, now_ns: u64) {
        while let Some(action) = self.engine.next_action() {
            match action {
                PoolAction::Dial {
                    connection,
                    endpoint,
                } => self
                    .connections
                    .dial(connection, endpoint, &mut self.engine, now_ns),
                PoolAction::Close {
                    connection,
                    unsent,
                    was_open,
                } => self.connections.close(connection, &unsent, was_open),
            }
        }
    }
}

pub(crate) fn no_epoll(error: io::Error) -> ConnectError {
    ConnectError::NoResource {
        what: "the system gives no epoll set",
        error,
        limited_by: "`ulimit -n`, fs.file-max, and memory",
    }
}

impl fmt::Debug for LocalPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalPool")
            .field("engine", &self.engine)
            .field("sockets", &self.connections.sockets)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;
    use std::thread;
    use std::time::{Duration, Instant};

    use net::OutgoingEndpoint;

    use super::*;

    /// The kernel accepts for a process that hangs.
    #[test]
    fn an_address_is_reached_though_its_first_endpoint_says_nothing() {
        let listen = || TcpListener::bind("127.0.0.1:0").expect("a free port");
        let at = |listener: &TcpListener| {
            OutgoingEndpoint::Tcp(listener.local_addr().expect("it is bound"))
        };
        let (mute, good) = (listen(), listen());
        let endpoints = vec![at(&mute), at(&good)];
        thread::spawn(move || {
            while let Ok((mut socket, _)) = good.accept() {
                let mut connection = wire::Connection::new(&wire::Config::server(), 0);
                let mut output = Vec::new();
                connection.start(&mut output);
                socket.write_all(&output).expect("the client is there");
                thread::spawn(move || {
                    thread::sleep(Duration::from_secs(20));
                    drop(socket);
                });
            }
        });
        let mut options = LocalPoolOptions::default();
        options.pool.connect_timeout = Duration::from_millis(300);
        let address = "127.0.0.1:1".parse().expect("an address");
        let now_ns = net::monotonic_ns;
        let mut pool = LocalPool::new(&[address], options, 1, now_ns()).expect("sound");
        pool.connections.targets[0].endpoints = endpoints;
        let begun = Instant::now();
        while pool.engine().statistics(now_ns()).counters.opened == 0 {
            let statistics = pool.engine().statistics(now_ns());
            assert!(begun.elapsed() < Duration::from_secs(8), "{statistics:?}");
            pool.flush(now_ns());
            pool.wait(Some(10_000_000), now_ns()).expect("it waits");
            pool.receive(now_ns(), &mut |_| {});
        }
    }
}
