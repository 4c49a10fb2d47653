//! Contents of blobs, fetched from the leader before the groups are followed that name them.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use api::replication::{READ_CONTENT, ReadContentRequest, ReadContentResponse};
use client::{CallOptions, Channel, StreamStep};
use store::Store;
use store::blob::NamedContent;
use store::log::FollowedGroup;

use super::leader::{Leader, LeaderError, path_of};
use crate::limits::FOLLOW_SILENCE_MS;

/// Fetches contents over a connection of its own.
#[derive(Debug, Default)]
pub struct Contents {
    channel: Option<Channel>,
}

impl Contents {
    /// Fetches the contents that groups name and that are not here; returns the numbers of those
    /// that the leader does not have any more. When this returns, the others are on the device.
    pub fn fetch(
        &mut self,
        groups: &[FollowedGroup],
        (store, leader): (&Store, &Leader),
    ) -> Result<BTreeSet<u64>, LeaderError> {
        let mut gone = BTreeSet::new();
        for named in groups.iter().flat_map(NamedContent::all_in) {
            let local = |error: std::io::Error| LeaderError::Local(error.to_string());
            if store.has_content(named.number).map_err(local)? {
                continue;
            }
            let fetched = self.fetch_one(&named, store, leader);
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
        store: &Store,
        leader: &Leader,
    ) -> Result<(), LeaderError> {
        let channel = match self.channel.take() {
            Some(channel) => channel,
            None => leader.connect()?,
        };
        let channel = self.channel.insert(channel);
        let local = |error: std::io::Error| LeaderError::Local(error.to_string());
        let mut received = store.receive_content(named).map_err(local)?;
        let stream = channel.streaming(&path_of(&READ_CONTENT), &CallOptions::default());
        let mut stream = stream.map_err(LeaderError::Call)?;
        let mut request = Vec::new();
        let number = named.number;
        ReadContentRequest { number }.encode(&mut request);
        stream.send(&request);
        stream.close_send();
        let silence = Duration::from_millis(FOLLOW_SILENCE_MS);
        let mut heard = Instant::now();
        loop {
            match stream.poll(silence).map_err(LeaderError::Call)? {
                StreamStep::Message(bytes) => {
                    heard = Instant::now();
                    let part = ReadContentResponse::decode(&bytes);
                    let part = part.map_err(|error| LeaderError::Nonsense(error.to_string()))?;
                    received.add(part.data).map_err(local)?;
                }
                StreamStep::Nothing if heard.elapsed() < silence => {}
                StreamStep::Nothing => return Err(LeaderError::Silent(silence)),
                StreamStep::Ended => {
                    return received
                        .finish()
                        .map_err(|error| LeaderError::Local(error.to_string()));
                }
            }
        }
    }
}
