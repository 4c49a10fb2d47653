//! What a caller may choose.

use std::str::FromStr;
use std::sync::Arc;

use crate::core::Security;
use crate::notice::{Notice, Notices, SilentNotices};
use crate::tls::ServerTls;
use crate::{Address, AddressError, limits};

/// How connections get the threads that serve them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Driver {
    /// Each thread is a loop over many connections: what arrives together is served together.
    #[default]
    EventLoops,
    /// Each thread serves one connection at a time, one request after the other.
    Blocking,
}

/// How a driver listens, runs and stops.
#[derive(Clone)]
pub struct LoopConfig {
    /// Where to listen, and where with TLS; at least one.
    pub listen: Vec<Listen>,
    /// Event loops or one thread per connection.
    pub driver: Driver,
    /// Event loops, one thread each; default: the CPUs that this process may use. With
    /// [`Driver::Blocking`]: the threads that compute at once ([`limits::BLOCKING_CALLS`] is a good
    /// number), of as many as there are connections.
    pub threads: usize,
    /// Stack of each thread that serves a single connection.
    pub thread_stack_bytes: usize,
    /// Milliseconds after which such a thread ends if it has no connection.
    pub idle_thread_ms: u64,
    /// CPUs to pin threads to, in turn: the first thread to the first. Empty (default): not pinned.
    pub pin: Vec<usize>,
    /// Open connections of all threads together, above which new ones are refused.
    pub max_connections: usize,
    /// Open connections from one address (an IPv4 address, or an IPv6 network of 64 bits) above
    /// which new ones are refused; 0: as many as `max_connections`.
    pub max_connections_per_address: usize,
    /// Whether that holds for loopback addresses, too. Default: no.
    pub limit_loopback: bool,
    /// Socket send buffer of TCP connections in bytes; `None`: the kernel sizes it as it goes.
    pub tcp_send_buffer: Option<usize>,
    /// Socket receive buffer of TCP connections in bytes; `None`: the kernel sizes it as it goes.
    pub tcp_receive_buffer: Option<usize>,
    /// Permission bits of UNIX socket files. Default 0o600: only this user.
    pub unix_mode: u32,
    /// Milliseconds without a byte taken after which a peer with waiting output is closed.
    pub write_stall_ms: u64,
    /// Milliseconds that running calls may take to end after a stop was asked for.
    pub drain_ms: u64,
    /// Whether SIGTERM, SIGINT and SIGQUIT stop the loops. Off: only
    /// [`StopHandle`](crate::StopHandle) does.
    pub handle_signals: bool,
    /// What gets notices of what happens.
    pub notices: Arc<dyn Notices>,
    /// Called by a thread of [`Driver::Blocking`] that rests after it has moved much
    /// ([`limits::GIVE_BACK_BYTES`]): an allocator that keeps what is freed for the thread that had
    /// it may give that back. Default: nothing is done.
    pub give_back: fn(),
}

/// Where to listen, and how. Read from a text it is plain.
#[derive(Clone, Debug)]
pub struct Listen {
    /// Where.
    pub address: Address,
    /// With TLS; `None`: plain.
    pub tls: Option<ServerTls>,
}

impl From<Address> for Listen {
    fn from(address: Address) -> Listen {
        Listen { address, tls: None }
    }
}

impl FromStr for Listen {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Listen, AddressError> {
        text.parse().map(|address: Address| address.into())
    }
}

impl LoopConfig {
    /// What each loop needs to know of TLS.
    pub(crate) fn security(&self) -> Security {
        let listeners = self.listen.iter().map(|listen| listen.tls.clone());
        Security::new(listeners.collect(), self.notices.clone())
    }
}

impl Default for LoopConfig {
    fn default() -> LoopConfig {
        LoopConfig {
            listen: Vec::new(),
            driver: Driver::EventLoops,
            threads: std::thread::available_parallelism().map_or(1, |count| count.get()),
            thread_stack_bytes: limits::THREAD_STACK_BYTES,
            idle_thread_ms: limits::IDLE_THREAD_MS,
            pin: Vec::new(),
            max_connections: limits::MAX_CONNECTIONS,
            max_connections_per_address: limits::MAX_CONNECTIONS_PER_ADDRESS,
            limit_loopback: false,
            tcp_send_buffer: None,
            tcp_receive_buffer: None,
            unix_mode: 0o600,
            write_stall_ms: limits::WRITE_STALL_MS,
            drain_ms: limits::DRAIN_MS,
            handle_signals: true,
            notices: Arc::new(SilentNotices),
            give_back: || {},
        }
    }
}

impl LoopConfig {
    /// Connections above `max_connections` that are opened to be refused in their own protocol.
    pub fn max_refusals(&self) -> usize {
        refusals(self.max_connections)
    }

    /// Lowers `max_connections` so that connections, with those to be refused, take no more
    /// descriptors than these, and says so. One address then has a part of them at most
    /// ([`limits::ADDRESS_SHARE_OF_FEW_PERCENT`]), unless it may have all.
    pub fn bound_connections(&mut self, descriptors: usize) {
        let allowed = descriptors.saturating_sub(refusals(descriptors));
        let allowed = match self.driver {
            Driver::EventLoops => allowed,
            // A socket, and what wakes its thread.
            Driver::Blocking => allowed / 2,
        };
        let max_connections = allowed.max(1);
        if max_connections < self.max_connections {
            let asked = std::mem::replace(&mut self.max_connections, max_connections);
            let share = (max_connections * limits::ADDRESS_SHARE_OF_FEW_PERCENT / 100).max(1);
            self.max_connections_per_address = self.max_connections_per_address.min(share);
            let notice = Notice::FewerConnections {
                asked,
                max_connections,
            };
            self.notices.notice(&notice);
        }
    }
}

fn refusals(connections: usize) -> usize {
    (connections / limits::REFUSALS_SHARE).clamp(limits::MIN_REFUSALS, limits::MAX_REFUSALS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_a_share_of_the_connections_between_two_bounds() {
        for (max_connections, expected) in [
            (1, 8),
            (64, 8),
            (71, 8),
            (72, 9),
            (2_047, 255),
            (2_048, 256),
            (10_000, 256),
        ] {
            let config = LoopConfig {
                max_connections,
                ..LoopConfig::default()
            };
            assert_eq!(config.max_refusals(), expected, "{max_connections}");
        }
    }

    /// Keeps what it is told.
    #[derive(Default)]
    struct Told(std::sync::Mutex<Vec<String>>);

    impl Notices for Told {
        fn notice(&self, notice: &Notice) {
            self.0.lock().expect("no panic").push(notice.to_string());
        }
    }

    /// Who has one address may not have all connections that the descriptors allow.
    #[test]
    fn where_descriptors_are_few_an_address_has_a_part_of_the_connections() {
        for (descriptors, per_address, expected) in [
            (16, 1_024, 6),
            (376, 1_024, 246),
            (376, 100, 100),
            (376, 0, 0),
            (0, 1_024, 1),
            (1 << 20, 1_024, 1_024),
        ] {
            let mut config = LoopConfig {
                max_connections_per_address: per_address,
                ..LoopConfig::default()
            };
            for _ in 0..2 {
                config.bound_connections(descriptors);
                let left = config.max_connections_per_address;
                assert_eq!(left, expected, "{descriptors} {per_address}");
            }
        }
    }

    /// Also those that are refused have a descriptor.
    #[test]
    fn connections_fit_into_the_descriptors_that_there_are() {
        for (driver, descriptors, expected) in [
            (Driver::EventLoops, 108, 95),
            (Driver::EventLoops, 113, 99),
            (Driver::EventLoops, 115, 100),
            (Driver::EventLoops, 10_000, 100),
            (Driver::EventLoops, 9, 1),
            (Driver::EventLoops, 10, 2),
            (Driver::EventLoops, 0, 1),
            (Driver::Blocking, 108, 47),
            (Driver::Blocking, 228, 100),
            (Driver::Blocking, 10, 1),
        ] {
            for max_connections in [100, usize::MAX] {
                let told = Arc::new(Told::default());
                let mut config = LoopConfig {
                    driver,
                    max_connections,
                    notices: told.clone(),
                    ..LoopConfig::default()
                };
                config.bound_connections(descriptors);
                config.bound_connections(descriptors);
                let told = std::mem::take(&mut *told.0.lock().expect("no panic"));
                let is_lowered = config.max_connections < max_connections;
                assert_eq!(told.len(), usize::from(is_lowered), "told once: {told:?}");
                assert!(told.iter().all(|line| line.contains("ulimit -n")));
                if max_connections == 100 {
                    assert_eq!(config.max_connections, expected, "{driver:?} {descriptors}");
                }
                let sockets = config.max_connections + refusals(config.max_connections);
                assert!(sockets <= descriptors.max(9), "{driver:?} {descriptors}");
            }
        }
    }
}
