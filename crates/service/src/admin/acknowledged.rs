//! What the statistics say of followers, and what they hold.

use api::admin::{AcknowledgedStatistics, FollowerStatistics};
use store::AcknowledgedState;

/// Returns the followers that are connected.
pub(super) fn followers(state: &AcknowledgedState) -> Vec<FollowerStatistics<'_>> {
    let followers = state.followers.iter();
    let statistics = followers.map(|(replica_id, sequence)| FollowerStatistics {
        replica_id,
        sequence: *sequence,
    });
    statistics.collect()
}

/// Returns the replicas that count and are not connected.
pub(super) fn absent(state: &AcknowledgedState) -> Vec<&[u8]> {
    state.absent.iter().map(|id| &id[..]).collect()
}

/// Returns what they hold, with these; `None`: nobody asks for it, and nobody says so.
pub(super) fn message<'a>(
    state: &AcknowledgedState,
    (followers, absent): (&'a [FollowerStatistics<'a>], &'a [&'a [u8]]),
) -> Option<AcknowledgedStatistics<'a>> {
    let is_of_interest = state.required > 0 || !followers.is_empty();
    is_of_interest.then(|| AcknowledgedStatistics {
        required: u32::try_from(state.required).unwrap_or(u32::MAX),
        sequence: state.sequence,
        late: state.is_late,
        followers: followers.into(),
        absent: absent.into(),
    })
}
