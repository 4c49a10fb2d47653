//! Connecting to an address whose name stands for several endpoints: one after the other.

use std::io;

use net::{Address, ConnectionId, Outgoing, OutgoingEndpoint};

use crate::error::ConnectError;

/// An address, and what its name stands for.
#[derive(Debug)]
pub(crate) struct DialTarget {
    pub(crate) address: Address,
    pub(crate) endpoints: Vec<OutgoingEndpoint>,
    /// The endpoint that the next connection tries first: the one that accepted last, or the one
    /// behind it if nothing came of that.
    pub(crate) preferred: usize,
}

/// How far one connection has come with the endpoints of its target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DialAttempt {
    /// The endpoint that is being tried, or has accepted.
    pub(crate) endpoint: usize,
    /// The preferred endpoint that it knows of.
    preferred: usize,
    /// Endpoints that are still to be tried.
    tries_left: usize,
}

impl DialTarget {
    /// Waits for the resolver.
    pub(crate) fn resolve(address: &Address) -> Result<DialTarget, ConnectError> {
        let unknown = |error| ConnectError::UnknownHost {
            address: address.clone(),
            error,
        };
        Ok(DialTarget {
            address: address.clone(),
            endpoints: OutgoingEndpoint::resolve(address).map_err(unknown)?,
            preferred: 0,
        })
    }

    /// A target whose name has not been looked up: [`DialTarget::replace`] follows.
    pub(crate) fn unresolved(address: &Address) -> DialTarget {
        DialTarget {
            address: address.clone(),
            endpoints: Vec::new(),
            preferred: 0,
        }
    }

    /// The name stands for these endpoints now. Returns those before, or `None` if they are the
    /// same: many resolvers return them in another order each time.
    pub(crate) fn replace(
        &mut self,
        endpoints: Vec<OutgoingEndpoint>,
    ) -> Option<Vec<OutgoingEndpoint>> {
        let is_known = |endpoint| self.endpoints.contains(endpoint);
        let is_kept = |endpoint| endpoints.contains(endpoint);
        if endpoints.iter().all(is_known) && self.endpoints.iter().all(is_kept) {
            return None;
        }
        let former = std::mem::replace(&mut self.endpoints, endpoints);
        let preferred = former.get(self.preferred);
        let is_preferred = |endpoint| Some(endpoint) == preferred;
        self.preferred = self.endpoints.iter().position(is_preferred).unwrap_or(0);
        Some(former)
    }

    /// Returns an attempt that has come to the same endpoint, and tries all others if that fails;
    /// `None`: the name stands for it no more. `former`: the endpoints that it knows of.
    pub(crate) fn moved(
        &self,
        attempt: DialAttempt,
        former: &[OutgoingEndpoint],
    ) -> Option<DialAttempt> {
        let own = former.get(attempt.endpoint)?;
        let endpoint = self.endpoints.iter().position(|each| each == own)?;
        Some(DialAttempt {
            endpoint,
            preferred: self.preferred,
            tries_left: self.endpoints.len() - 1,
        })
    }

    /// Returns an attempt that tries all endpoints, the preferred one first.
    pub(crate) fn attempt(&self) -> DialAttempt {
        DialAttempt {
            endpoint: self.preferred,
            preferred: self.preferred,
            tries_left: self.endpoints.len(),
        }
    }

    /// Begins to connect to the next endpoint that is left. `failure` is why the one before it
    /// failed; `None`: there is none before.
    ///
    /// # Errors
    /// If none is left: why the last one failed.
    pub(crate) fn dial(
        &self,
        attempt: &mut DialAttempt,
        sockets: &mut Outgoing,
        mut failure: Option<io::Error>,
    ) -> io::Result<ConnectionId> {
        while attempt.tries_left > 0 {
            if failure.is_some() {
                attempt.endpoint = (attempt.endpoint + 1) % self.endpoints.len().max(1);
            }
            attempt.tries_left -= 1;
            let Some(endpoint) = self.endpoints.get(attempt.endpoint) else {
                break;
            };
            match sockets.dial(endpoint) {
                Ok(id) => return Ok(id),
                Err(error) => failure = Some(error),
            }
        }
        let none = || io::Error::new(io::ErrorKind::AddrNotAvailable, "it has no address");
        Err(failure.unwrap_or_else(none))
    }

    /// The endpoint of this attempt has accepted.
    pub(crate) fn accepted(&mut self, attempt: &mut DialAttempt) {
        self.preferred = attempt.endpoint;
        attempt.preferred = attempt.endpoint;
    }

    /// No call could begin over what this attempt has reached, if it has reached anything: the next
    /// one begins behind it, unless another attempt has found a better one meanwhile.
    pub(crate) fn failed(&mut self, attempt: DialAttempt) {
        if self.preferred == attempt.preferred {
            self.preferred = (attempt.endpoint + 1) % self.endpoints.len().max(1);
        }
    }
}

/// Which connection has the socket of a slot.
#[derive(Debug, Default)]
pub(crate) struct SocketOwners(Vec<u32>);

impl SocketOwners {
    pub(crate) fn set(&mut self, socket: ConnectionId, owner: u32) {
        let slot = socket.slot as usize;
        if self.0.len() <= slot {
            self.0.resize(slot + 1, u32::MAX);
        }
        self.0[slot] = owner;
    }

    /// Returns the slot of the connection; of a socket that was closed, perhaps another one.
    pub(crate) fn get(&self, socket: ConnectionId) -> u32 {
        self.0
            .get(socket.slot as usize)
            .copied()
            .unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// Endpoints on which nobody listens.
    fn refusing(count: usize) -> Vec<OutgoingEndpoint> {
        let endpoint = |_| {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
            OutgoingEndpoint::Tcp(listener.local_addr().expect("it is bound"))
        };
        (0..count).map(endpoint).collect()
    }

    /// Returns the endpoints that were tried, and why the last one failed.
    fn tried(target: &DialTarget, sockets: &mut Outgoing) -> (Vec<usize>, io::Error) {
        let mut attempt = target.attempt();
        let (mut tried, mut failure) = (Vec::new(), None);
        loop {
            match target.dial(&mut attempt, sockets, failure.take()) {
                Ok(id) => {
                    tried.push(attempt.endpoint);
                    while sockets.next_ready().is_none() {
                        sockets.wait(None).expect("waiting works");
                    }
                    failure = sockets.finish_dialing(id).err();
                    assert!(failure.is_some(), "nobody listens");
                }
                Err(error) => return (tried, error),
            }
        }
    }

    #[test]
    fn each_endpoint_is_tried_once_from_the_preferred_one_on() {
        let mut sockets = Outgoing::new().expect("an epoll set");
        let mut target = DialTarget {
            address: "127.0.0.1:1".parse().expect("an address"),
            endpoints: refusing(3),
            preferred: 0,
        };
        for preferred in [1, 0, 2] {
            target.accepted(&mut DialAttempt {
                endpoint: preferred,
                ..DialAttempt::default()
            });
            let (order, error) = tried(&target, &mut sockets);
            assert_eq!(order, [0, 1, 2].map(|step| (preferred + step) % 3));
            assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        }
        target.endpoints.clear();
        let (order, error) = tried(&target, &mut sockets);
        assert!(order.is_empty() && error.to_string() == "it has no address");
    }

    #[test]
    fn the_endpoint_behind_one_that_came_to_nothing_is_preferred() {
        let mut target = DialTarget {
            address: "127.0.0.1:1".parse().expect("an address"),
            endpoints: refusing(3),
            preferred: 0,
        };
        // What was not connected to in time, and what accepted and said nothing.
        for (is_accepted, next) in [(false, 1), (true, 2), (false, 0), (true, 1)] {
            let mut attempt = target.attempt();
            if is_accepted {
                target.accepted(&mut attempt);
            }
            target.failed(attempt);
            assert_eq!(target.preferred, next);
        }
        let (mut good, slow) = (target.attempt(), target.attempt());
        good.endpoint = 2;
        target.accepted(&mut good);
        target.failed(slow);
        assert_eq!(target.preferred, 2, "another one has found it");
    }

    #[test]
    fn attempts_follow_their_endpoints_when_the_name_stands_for_others() {
        let endpoints = refusing(4);
        let some = |numbers: &[usize]| -> Vec<OutgoingEndpoint> {
            numbers
                .iter()
                .map(|&number| endpoints[number].clone())
                .collect()
        };
        let address = "db.invalid:1".parse().expect("an address");
        let mut target = DialTarget::unresolved(&address);
        assert_eq!(target.replace(some(&[0, 1, 2])), Some(Vec::new()));
        let mut attempt = target.attempt();
        attempt.endpoint = 2;
        target.accepted(&mut attempt);
        for _ in 0..2 {
            assert_eq!(target.replace(some(&[2, 1, 0])), None, "in another order");
            assert_eq!(target.preferred, 2);
        }
        let former = target.replace(some(&[3, 2])).expect("others");
        assert_eq!((former.len(), target.preferred), (3, 1));
        let moved = target.moved(attempt, &former).expect("it is there");
        assert_eq!((moved.endpoint, moved.tries_left), (1, 1));
        let former = target.replace(some(&[0])).expect("others");
        assert_eq!(target.preferred, 0);
        assert_eq!(target.moved(moved, &former), None, "it is gone");
    }

    #[test]
    fn a_socket_has_the_owner_that_was_set_last() {
        let mut owners = SocketOwners::default();
        let socket = |slot| ConnectionId {
            slot,
            generation: 0,
        };
        for owner in [7, 9] {
            owners.set(socket(3), owner);
            assert_eq!(
                [0, 3, 4].map(|slot| owners.get(socket(slot))),
                [u32::MAX, owner, u32::MAX]
            );
        }
    }
}
