//! Contents of blobs, fetched from the leader before the groups are followed that name them.

use std::collections::BTreeSet;
use std::time::Duration;

use api::replication::ReadContentRequest;
use api::rpc::replication::ReadContent;
use client::Channel;
use store::Store;
use store::blob::NamedContent;
use store::log::FollowedGroup;

use super::leader::{Leader, LeaderError, begin, read_until};
use crate::limits::FOLLOW_SILENCE_MS;

/// Fetches contents over a connection of its own.
#[derive(Debug, Default)]
pub struct Contents {
    channel: Option<Channel>,
}

impl Contents {
    /// Fetches the contents that groups name and that are not here; returns the numbers of those
    /// that the leader does not have any more. When this returns, the others are on the device.
    ///
    /// # Errors
    /// If they cannot be had now, or something else comes first.
    pub fn fetch(
        &mut self,
        groups: &[FollowedGroup],
        (store, leader): (&Store, &Leader),
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<BTreeSet<u64>, LeaderError> {
        let mut gone = BTreeSet::new();
        for named in groups.iter().flat_map(NamedContent::all_in) {
            if store.has_content(named.number)? {
                continue;
            }
            let fetched = self.fetch_one(&named, (store, leader), is_interrupted);
            match fetched {
                Ok(()) => {}
                Err(error) if error.is_not_found() => {
                    gone.insert(named.number);
                }
                Err(error) => {
                    self.channel = None;
                    return Err(error);
                }
            }
        }
        Ok(gone)
    }

    fn fetch_one(
        &mut self,
        named: &NamedContent,
        (store, leader): (&Store, &Leader),
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<(), LeaderError> {
        let channel = match self.channel.take() {
            Some(channel) => channel,
            None => leader.connect()?,
        };
        let channel = self.channel.insert(channel);
        let mut received = store.receive_content(named)?;
        let number = named.number;
        let mut call = begin::<ReadContent>(channel, &ReadContentRequest { number })?;
        let silence = Duration::from_millis(FOLLOW_SILENCE_MS);
        read_until(&mut call, (silence, is_interrupted), &mut |part| {
            received.add(part.data)?;
            Ok(None::<()>)
        })?;
        Ok(received.finish()?)
    }
}
