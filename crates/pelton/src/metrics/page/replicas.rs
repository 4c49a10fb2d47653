//! How a replica follows its leader, and who follows this server.

use service::following::FollowingState;
use store::{AcknowledgedState, Store};

use crate::metrics::exposition::FamilyKind::Gauge;
use crate::metrics::exposition::MetricsPage;

/// Writes how many follow this server, and of a replica how far it has come, at a monotonic time.
pub(super) fn write(
    page: &mut MetricsPage,
    followers: u64,
    following: Option<(FollowingState, u64)>,
) {
    page.single(
        "pelton_followers",
        Gauge,
        "Servers that follow this one.",
        followers,
    );
    let Some((state, now_ns)) = following else {
        return;
    };
    let gauges = [
        (
            "pelton_replica_connected",
            "1 while there is a stream of the log of the leader.",
            u64::from(state.is_connected),
        ),
        (
            "pelton_replica_blocked",
            "1 while the log, disk or memory of this replica has no place for what its leader has.",
            u64::from(state.is_blocked),
        ),
        (
            "pelton_replica_sequence",
            "The last sequence of the leader that is on the device here, and visible.",
            state.sequence,
        ),
        (
            "pelton_replica_lag_sequences",
            "By how many sequences this replica is behind its leader, as that said last.",
            state.lag_sequences(),
        ),
        (
            "pelton_replica_lag_milliseconds",
            "For how long this replica has not had everything that its leader has.",
            state.lag_ms(now_ns),
        ),
        (
            "pelton_replica_too_far_behind",
            "1 while this replica is further behind than --max-lag says, and so not ready.",
            u64::from(state.is_too_far_behind),
        ),
    ];
    for (name, help, value) in gauges {
        page.single(name, Gauge, help, value);
    }
}

/// Writes in which epoch the server is, and whether another one leads in a higher one.
pub(super) fn write_epoch(page: &mut MetricsPage, store: &Store) {
    if !store.has_log() {
        return;
    }
    page.single(
        "pelton_epoch",
        Gauge,
        "The epoch of the history: 1, and one more for each replica that was promoted.",
        store.epoch(),
    );
    page.single(
        "pelton_superseded",
        Gauge,
        "1 while this server takes no writes, as a replica was promoted in a higher epoch.",
        u64::from(store.higher_epoch() > 0),
    );
}

/// Writes what followers hold.
pub(super) fn write_acknowledged(page: &mut MetricsPage, state: &AcknowledgedState) {
    page.single(
        "pelton_replicas_required",
        Gauge,
        "Replicas that must hold a commit before it is visible (--replicas-acked).",
        state.required,
    );
    page.single(
        "pelton_replicas_late",
        Gauge,
        "1 while too few replicas hold what was written, so that writes are refused.",
        u64::from(state.is_late),
    );
    page.single(
        "pelton_replicas_absent",
        Gauge,
        "Replicas that count for --replicas-acked, as they may hold what was answered, and are not \
         connected.",
        state.absent.len(),
    );
    page.single(
        "pelton_replicas_acknowledged_sequence",
        Gauge,
        "Everything up to this sequence is held by as many replicas as must hold it.",
        state.sequence,
    );
    page.family(
        "pelton_follower_acknowledged_sequence",
        Gauge,
        "Everything up to this sequence is on the device of a follower that is connected.",
    );
    for (replica, sequence) in &state.followers {
        let id = format!("{:032x}", u128::from_be_bytes(*replica));
        page.sample(&[("replica", &id)], sequence);
    }
}
