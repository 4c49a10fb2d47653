//! Who goes first when the account is to be relieved.

use std::collections::HashMap;
use std::sync::Arc;

use super::MemoryHolder;
use super::parties::PartyHolding;

/// Puts those first that hold most and move least, with all connections of their token that are
/// here; of one token, those that do so by themselves.
pub(super) fn sort_by_weight(holders: &mut [&Arc<MemoryHolder>], now_ns: u64) {
    let mut of_identities: HashMap<*const PartyHolding, u128> = HashMap::new();
    for holder in holders.iter() {
        if let Some(identity) = &holder.identity {
            *of_identities.entry(Arc::as_ptr(identity)).or_default() += holder.weight(now_ns);
        }
    }
    holders.sort_by_cached_key(|holder| {
        let weight = holder.weight(now_ns);
        let identity = holder.identity.as_ref().map(Arc::as_ptr);
        let together = identity.and_then(|identity| of_identities.get(&identity));
        std::cmp::Reverse((together.copied().unwrap_or(weight), weight))
    });
}
