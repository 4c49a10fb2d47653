//! Requests to the storage engine that has the databases, and its nodes.

use store::remote::{RemoteHealth, RemoteNode, RemoteStore};

use crate::metrics::exposition::FamilyKind::{Counter, Gauge};
use crate::metrics::exposition::MetricsPage;

/// Writes what is under way, what has failed, and how the nodes are.
pub(super) fn write(page: &mut MetricsPage, remote: &RemoteStore) {
    let (backend, room) = (remote.backend(), remote.room());
    page.single(
        "pelton_store_serving",
        Gauge,
        "1 while the storage engine can serve; 0 without a quorum of its nodes, or with a schema \
         of another version.",
        u64::from(backend.health() == RemoteHealth::Serving),
    );
    let gauges = [
        (
            "pelton_store_requests",
            "Requests to the storage engine that are under way.",
            room.requests(),
        ),
        (
            "pelton_store_requests_limit",
            "How many there may be; more are refused.",
            room.limit_requests(),
        ),
        (
            "pelton_store_used_bytes",
            "Bytes that these requests hold, with what was read for them.",
            room.held_bytes(),
        ),
        (
            "pelton_store_limit_bytes",
            "How many bytes they may hold; what would hold more is refused.",
            room.limit_bytes(),
        ),
    ];
    for (name, help, value) in gauges {
        page.single(name, Gauge, help, value);
    }
    page.family(
        "pelton_store_failed_total",
        Counter,
        "Reads and commits that the storage engine has not carried out, or of which the outcome is \
         unknown, by the reason.",
    );
    for (reason, count) in room.failed() {
        page.sample(&[("reason", reason)], count);
    }
    write_nodes(page, remote);
}

fn write_nodes(page: &mut MetricsPage, remote: &RemoteStore) {
    type ValueOf = fn(&RemoteNode) -> usize;
    let nodes = remote.backend().nodes();
    let families: [(&str, &str, ValueOf); 3] = [
        (
            "pelton_store_node_connected",
            "1 while there is a connection to this node of the storage engine.",
            |node| usize::from(node.is_connected),
        ),
        (
            "pelton_store_node_requests",
            "Requests of this server that this node has not answered.",
            |node| node.requests,
        ),
        (
            "pelton_store_node_requests_limit",
            "How many there may be; others wait for a moment, or are refused.",
            |node| node.limit_requests,
        ),
    ];
    for (name, help, value) in families {
        page.family(name, Gauge, help);
        for node in &nodes {
            page.sample(&[("node", node.address.as_str())], value(node));
        }
    }
}
