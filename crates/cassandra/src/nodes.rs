//! The nodes of the cluster, and how many requests each may have in flight.
//!
//! A node that does not answer holds its permits and no others. What cannot get a permit of any
//! replica within [`limits::PERMIT_TIMEOUT`] is refused.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use scylla::cluster::{ClusterState, Node};
use scylla::policies::load_balancing::{
    LoadBalancingPolicy, NodeIdentifier, SingleTargetLoadBalancingPolicy,
};
use store::remote::RemoteNode;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use crate::failure::{EngineFailure, FailureCause};
use crate::limits;

/// What is kept of all nodes.
#[derive(Debug)]
pub(crate) struct ClusterNodes {
    datacenter: Option<String>,
    known: Mutex<HashMap<u128, Arc<NodePermits>>>,
}

/// One node.
pub(crate) struct NodePermits {
    permits: Arc<Semaphore>,
    policy: Arc<dyn LoadBalancingPolicy>,
}

/// A permit to send one request to a node.
pub(crate) struct NodePermit {
    policy: Arc<dyn LoadBalancingPolicy>,
    _permit: OwnedSemaphorePermit,
}

impl NodePermit {
    /// Returns what makes the driver send the request to this node.
    pub(crate) fn policy(&self) -> Arc<dyn LoadBalancingPolicy> {
        Arc::clone(&self.policy)
    }
}

impl ClusterNodes {
    /// Nodes of `datacenter` are asked first.
    pub(crate) fn new(datacenter: Option<String>) -> ClusterNodes {
        ClusterNodes {
            datacenter,
            known: Mutex::default(),
        }
    }

    /// Returns the nodes to be asked, the best first: replicas before others, connected ones before
    /// others, those of the data center before others, in the order of the ring.
    pub(crate) fn candidates(
        &self,
        state: &ClusterState,
        replicas: &[Arc<Node>],
    ) -> Vec<Arc<NodePermits>> {
        let nodes = match replicas.is_empty() {
            true => state.get_nodes_info(),
            false => replicas,
        };
        let mut nodes: Vec<&Arc<Node>> = nodes.iter().filter(|node| node.is_enabled()).collect();
        // Stable: of two that are alike the order of the ring decides, so that the conditional
        // writes of a partition meet at one node.
        nodes.sort_by_key(|node| (!node.is_connected(), !self.is_near(node)));
        nodes.iter().map(|node| self.permits(node)).collect()
    }

    /// Returns all nodes of the cluster.
    pub(crate) fn all(&self, state: &ClusterState) -> Vec<RemoteNode> {
        let known = self.known.lock();
        let describe = |node: &Arc<Node>| RemoteNode {
            address: node.address.to_string(),
            is_connected: node.is_connected(),
            requests: (known.get(&node.host_id.as_u128())).map_or(0, |node| node.in_use()),
            limit_requests: limits::NODE_PERMITS,
        };
        let nodes = state.get_nodes_info().iter().take(limits::NODES);
        nodes.map(describe).collect()
    }

    fn is_near(&self, node: &Node) -> bool {
        self.datacenter.is_none() || node.datacenter == self.datacenter
    }

    fn permits(&self, node: &Node) -> Arc<NodePermits> {
        let mut known = self.known.lock();
        let id = node.host_id.as_u128();
        if known.len() >= limits::NODES && !known.contains_key(&id) {
            // Those in use come again with all their permits: a bound on a table, not on requests.
            known.clear();
        }
        let permits = known.entry(id).or_insert_with(|| {
            Arc::new(NodePermits {
                permits: Arc::new(Semaphore::new(limits::NODE_PERMITS)),
                policy: SingleTargetLoadBalancingPolicy::new(
                    NodeIdentifier::HostId(node.host_id),
                    None,
                ),
            })
        });
        Arc::clone(permits)
    }
}

/// Takes a permit of the first node from `first` on that has one, or waits for one of that node.
///
/// # Errors
///
/// If there is no node, or none of them has a permit for so long.
pub(crate) async fn acquire(
    candidates: &[Arc<NodePermits>],
    first: usize,
    deadline: Instant,
) -> Result<NodePermit, EngineFailure> {
    let in_turn = candidates.iter().cycle().skip(first).take(candidates.len());
    for node in in_turn {
        if let Ok(permit) = Arc::clone(&node.permits).try_acquire_owned() {
            return Ok(node.permit(permit));
        }
    }
    let Some(node) = candidates.iter().cycle().nth(first) else {
        return Err(EngineFailure::unsent(
            FailureCause::Unreachable,
            "the cluster has no node",
        ));
    };
    let until = deadline.min(Instant::now() + limits::PERMIT_TIMEOUT);
    match timeout_at(until, Arc::clone(&node.permits).acquire_owned()).await {
        Ok(Ok(permit)) => Ok(node.permit(permit)),
        _ => Err(EngineFailure::unsent(
            FailureCause::Overloaded,
            "each node that could be asked has as many requests in flight as it may have",
        )),
    }
}

impl NodePermits {
    /// Returns what makes the driver send a request to this node.
    pub(crate) fn policy(&self) -> Arc<dyn LoadBalancingPolicy> {
        Arc::clone(&self.policy)
    }

    /// Returns how many permits are in use.
    fn in_use(&self) -> usize {
        limits::NODE_PERMITS.saturating_sub(self.permits.available_permits())
    }

    fn permit(&self, permit: OwnedSemaphorePermit) -> NodePermit {
        NodePermit {
            policy: Arc::clone(&self.policy),
            _permit: permit,
        }
    }
}

impl fmt::Debug for NodePermits {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("NodePermits")
            .field("available", &self.permits.available_permits())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::paused_time::run;

    fn node(permits: usize) -> Arc<NodePermits> {
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], 9042));
        Arc::new(NodePermits {
            permits: Arc::new(Semaphore::new(permits)),
            policy: SingleTargetLoadBalancingPolicy::new(
                NodeIdentifier::NodeAddress(address),
                None,
            ),
        })
    }

    #[test]
    fn a_node_without_permits_leaves_the_request_to_the_next() {
        run(async {
            let nodes = [node(1), node(1)];
            let deadline = Instant::now() + Duration::from_secs(10);
            for _ in 0..2 {
                let first = acquire(&nodes, 0, deadline).await.unwrap();
                let second = acquire(&nodes, 0, deadline).await.unwrap();
                assert_eq!(nodes[1].permits.available_permits(), 0);
                let failure = acquire(&nodes, 0, deadline).await.err().unwrap();
                assert_eq!(failure.cause, FailureCause::Overloaded);
                assert!(!failure.may_have_happened);
                drop((first, second));
                assert_eq!(nodes[0].permits.available_permits(), 1);
            }
        });
    }

    #[test]
    fn the_wait_for_a_permit_ends_with_the_deadline() {
        run(async {
            let nodes = [node(0)];
            let begin = Instant::now();
            let deadline = begin + Duration::from_millis(20);
            assert!(acquire(&nodes, 3, deadline).await.is_err());
            assert_eq!(begin.elapsed(), Duration::from_millis(20));
            let far = begin + Duration::from_secs(100);
            assert!(acquire(&nodes, 0, far).await.is_err());
            assert!(begin.elapsed() < Duration::from_secs(1));
        });
    }

    #[test]
    fn without_nodes_nothing_is_sent() {
        let failure = run(acquire(&[], 0, Instant::now())).err().unwrap();
        assert_eq!(failure.cause, FailureCause::Unreachable);
    }
}
