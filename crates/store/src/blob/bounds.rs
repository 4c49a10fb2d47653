//! The bounds of unfinished uploads, and which of them make room for others.
//!
//! Room is shared out by peers: an upload never takes the place of one whose peer has less than its
//! own peer would have with it. So whoever fills all places or all bytes with group_sizing of
//! uploads harms only itself. First go uploads that no stream has; of those that a stream has, only
//! such as bring next to nothing for [`limits::STALLED_UPLOAD_MS`], and only of the peer that has
//! most. For a peer that has none the time is shorter, [`limits::STALLED_FOR_NEWCOMER_MS`].

use std::collections::BTreeMap;
use std::sync::Arc;

use super::blobs::{BlobStore, BlobsState, EndedUpload};
use super::error::{UploadBound, UploadError};
use super::limits;
use super::peer::UploadPeer;
use super::stream::Begin;
use super::unfinished::{IncompleteUpload, Over};
use crate::database_id::DatabaseId;
use crate::descriptor_budget::DescriptorPermit;

/// Who asks for room, and when.
#[derive(Clone, Copy, Debug)]
pub(super) struct RoomRequest {
    pub(super) peer: UploadPeer,
    pub(super) now_ms: u64,
    /// The upload that it is for, if there is one: it makes no room for itself.
    pub(super) number: Option<u64>,
}

/// What is short.
#[derive(Clone, Copy, Debug)]
struct Shortage {
    /// Of which database; `None`: of all together.
    database: Option<DatabaseId>,
    /// What one upload counts.
    weigh: fn(&IncompleteUpload) -> u64,
    /// What is to become free.
    missing: u64,
    /// What the peer that asks will have more.
    added: u64,
}

/// An upload that may have to go.
struct Candidate {
    unfinished: Arc<IncompleteUpload>,
    has_stream: bool,
    idle_since_ms: u64,
}

/// What a peer has.
#[derive(Default)]
struct Share {
    weight: u64,
    /// The first to go comes last.
    candidates: Vec<Candidate>,
}

/// Uploads that streams have.
#[derive(Clone, Copy, Default)]
struct OpenUploads {
    /// Of the peer that asks.
    own: usize,
    others: usize,
}

impl OpenUploads {
    fn add(&mut self, is_own: bool) {
        match is_own {
            true => self.own += 1,
            false => self.others += 1,
        }
    }

    /// Returns the share that a peer has of so many places, if it has used it up. Where not one
    /// place is left, its share is not what stands in its way.
    fn exceeded_share(self, places: usize) -> Option<usize> {
        let left = places.saturating_sub(self.others);
        let share = left.div_ceil(limits::UPLOADS_PEER_SHARE);
        (self.own >= share && self.own < left).then_some(share)
    }
}

impl BlobsState {
    /// Adds an upload whose place was found. Returns it, and the one that it takes the key of.
    fn add_upload(
        &mut self,
        begin: &Begin,
        asking: RoomRequest,
    ) -> (Arc<IncompleteUpload>, Option<Arc<IncompleteUpload>>) {
        self.used.entry(begin.database).or_default().unfinished += 1;
        let number = self.next_number;
        self.next_number += 1;
        let unfinished = IncompleteUpload::new(number, begin, asking.peer);
        self.unfinished.insert(number, Arc::clone(&unfinished));
        let before = begin
            .key()
            .and_then(|key| self.uploads.insert(key, Arc::clone(&unfinished)));
        (unfinished, before)
    }
}

impl BlobStore {
    /// Adds an upload, if its database, all of them together, and its peer may have one more. Makes
    /// room if it can be made. The bounds are looked at and the upload is added under one lock, so
    /// that uploads that begin together do not take the same place.
    ///
    /// Returns it, and the one that it takes the key of, if there is one.
    pub(super) fn add_upload(
        self: &Arc<BlobStore>,
        begin: &Begin,
        asking: RoomRequest,
    ) -> Result<(Arc<IncompleteUpload>, Option<Arc<IncompleteUpload>>), UploadError> {
        let mut short_of = UploadBound::Database;
        let mut added = None;
        let made = self.make_room(UploadError::Gone, asking, |state| {
            if let Err(error) = self.check_share(state, begin.database, asking) {
                added = Some(Err(error));
                return None;
            }
            let places = [
                (UploadBound::Database, Some(begin.database)),
                (UploadBound::Server, None),
            ];
            for (bound, database) in places {
                let unfinished = match database {
                    Some(database) => state.used(database).unfinished,
                    None => state.unfinished.len() as u64,
                };
                let missing = (unfinished + 1).saturating_sub(self.places(bound) as u64);
                if missing > 0 {
                    short_of = bound;
                    return Some(Shortage {
                        database,
                        weigh: |_| 1,
                        missing,
                        added: 1,
                    });
                }
            }
            added = Some(Ok(state.add_upload(begin, asking)));
            None
        });
        match (made, added) {
            (Ok(()), Some(added)) => added,
            _ => Err(UploadError::TooMany {
                uploads: self.places(short_of),
                of: short_of,
            }),
        }
    }

    fn places(&self, bound: UploadBound) -> usize {
        match bound {
            UploadBound::Server => limits::UPLOADS,
            UploadBound::Database | UploadBound::Peer => self.config.uploads_per_database,
        }
    }

    /// A file descriptor for one more open upload. Makes room if it can be made.
    pub(super) fn make_upload_permit(
        self: &Arc<BlobStore>,
        asking: RoomRequest,
    ) -> Result<DescriptorPermit, UploadError> {
        let limit = self.upload_descriptors.limit();
        let allowed = limit;
        let mut permit = None;
        self.make_room(UploadError::Descriptors { limit, allowed }, asking, |_| {
            permit = self.upload_descriptors.acquire();
            permit.is_none().then_some(Shortage {
                database: None,
                weigh: |unfinished| u64::from(unfinished.has_stream()),
                missing: 1,
                added: 1,
            })
        })?;
        permit.ok_or(UploadError::Descriptors { limit, allowed })
    }

    /// Has the peer that asks go on with an upload, if it may have one more that is open, or this
    /// one is open for it already. Until [`IncompleteUpload::take`] says what came of it, it counts
    /// as open.
    pub(super) fn claim_upload(
        &self,
        unfinished: &Arc<IncompleteUpload>,
        asking: RoomRequest,
    ) -> Result<(), UploadError> {
        let state = self.state.lock();
        if unfinished.has_stream() && unfinished.peer() == asking.peer {
            return Ok(());
        }
        self.check_share(&state, unfinished.database, asking)?;
        unfinished.claim(asking.peer, asking.now_ms);
        Ok(())
    }

    /// Whether a peer can have one more upload that a stream has. Each has at most a part of what
    /// the open uploads of others leave, so that there is always something left for the next peer,
    /// however many keep their streams open, and however long.
    fn check_share(
        &self,
        state: &BlobsState,
        database: DatabaseId,
        asking: RoomRequest,
    ) -> Result<(), UploadError> {
        let (mut here, mut everywhere) = (OpenUploads::default(), OpenUploads::default());
        for unfinished in state.unfinished.values() {
            if unfinished.has_stream() && asking.number != Some(unfinished.number) {
                let is_own = unfinished.peer() == asking.peer;
                everywhere.add(is_own);
                if unfinished.database == database {
                    here.add(is_own);
                }
            }
        }
        if let Some(uploads) = here.exceeded_share(self.config.uploads_per_database) {
            return Err(UploadError::TooMany {
                uploads,
                of: UploadBound::Peer,
            });
        }
        let limit = self.config.open_uploads;
        match everywhere.exceeded_share(limit) {
            Some(allowed) => Err(UploadError::Descriptors { limit, allowed }),
            None => Ok(()),
        }
    }

    /// Whether so much more can come into a database now. Makes room if it can be made.
    pub(super) fn check_room(
        self: &Arc<BlobStore>,
        database: DatabaseId,
        added_bytes: u64,
        asking: RoomRequest,
    ) -> Result<(), UploadError> {
        self.find_room(database, added_bytes, asking, |_| {})
    }

    /// Takes room for so much more in a database. Makes room if it can be made.
    pub(super) fn book(
        self: &Arc<BlobStore>,
        database: DatabaseId,
        added_bytes: u64,
        asking: RoomRequest,
    ) -> Result<(), UploadError> {
        self.find_room(database, added_bytes, asking, |state| {
            state.used.entry(database).or_default().bytes += added_bytes;
        })
    }

    fn find_room(
        self: &Arc<BlobStore>,
        database: DatabaseId,
        added_bytes: u64,
        asking: RoomRequest,
        use_it: impl Fn(&mut BlobsState),
    ) -> Result<(), UploadError> {
        self.check_disk(added_bytes, asking)?;
        let quota_bytes = self.config.quota_bytes;
        let quota = UploadError::Quota {
            quota_bytes,
            used_bytes: self.used(database).bytes,
            added_bytes,
        };
        self.make_room(quota, asking, |state| {
            let wanted = state.used(database).bytes.saturating_add(added_bytes);
            let Some(missing) = wanted
                .checked_sub(quota_bytes)
                .filter(|&missing| missing > 0)
            else {
                use_it(state);
                return None;
            };
            Some(Shortage {
                database: Some(database),
                weigh: IncompleteUpload::stored_bytes,
                missing,
                added: added_bytes,
            })
        })
    }

    fn check_disk(
        self: &Arc<BlobStore>,
        added_bytes: u64,
        asking: RoomRequest,
    ) -> Result<(), UploadError> {
        let reserved_bytes = self.config.free_bytes;
        let free_bytes = || {
            self.disk
                .free_bytes()
                .map_err(|source| UploadError::System {
                    what: "the free bytes of the disk cannot be asked for",
                    source,
                })
        };
        let wanted = added_bytes.saturating_add(reserved_bytes);
        let mut found = free_bytes()?;
        if wanted <= found {
            return Ok(());
        }
        let full = UploadError::Full {
            free_bytes: found,
            reserved_bytes,
        };
        let mut asked = false;
        self.make_room(full, asking, |_| {
            if std::mem::replace(&mut asked, true) {
                found = free_bytes().unwrap_or(0);
            }
            Some(Shortage {
                database: None,
                weigh: IncompleteUpload::stored_bytes,
                missing: wanted.checked_sub(found).filter(|&n| n > 0)?,
                added: added_bytes,
            })
        })
    }

    /// Removes uploads until nothing is short, or returns the error.
    fn make_room(
        self: &Arc<BlobStore>,
        error: UploadError,
        asking: RoomRequest,
        mut shortage: impl FnMut(&mut BlobsState) -> Option<Shortage>,
    ) -> Result<(), UploadError> {
        if shortage(&mut self.state.lock()).is_none() {
            return Ok(());
        }
        let _making_room = self.making_room.lock();
        for _ in 0..limits::ROOM_ATTEMPTS {
            let mut state = self.state.lock();
            let Some(shortage) = shortage(&mut state) else {
                return Ok(());
            };
            let stalled_ms = shortage.stalled_ms(&state, asking);
            let victims = shortage.victims(&state, asking, stalled_ms);
            drop(state);
            let Some(victims) = victims else { break };
            if !self.evict_all(&victims, asking.now_ms, stalled_ms) {
                break;
            }
        }
        Err(error)
    }

    /// Removes uploads that no stream has, or whose stream brings next to nothing; one that a
    /// stream resumes meanwhile stays. Returns whether the room of all that were ended is free: if
    /// not, ending more of them is no use.
    fn evict_all(
        self: &Arc<BlobStore>,
        victims: &[Arc<IncompleteUpload>],
        now_ms: u64,
        stalled_ms: u64,
    ) -> bool {
        let ended: Vec<EndedUpload> = victims
            .iter()
            .filter_map(|victim| self.evict(victim, now_ms, stalled_ms))
            .collect();
        self.remove_ended(&ended)
    }

    fn evict(
        self: &Arc<BlobStore>,
        unfinished: &Arc<IncompleteUpload>,
        now_ms: u64,
        stalled_ms: u64,
    ) -> Option<EndedUpload> {
        // Locked: a stream works with it.
        let progress = unfinished.progress.try_lock()?;
        if progress.is_sealed || !unfinished.is_idle(now_ms, stalled_ms) {
            return None;
        }
        self.end_and_keep(unfinished, progress, Over::Evicted)
    }

    /// Keeps what uploads that no stream has keep of each database's room within its bound. The
    /// largest of them may be larger than that: it is kept as long as its room is needed for
    /// nothing else.
    pub(super) fn bound_idle_bytes(self: &Arc<BlobStore>, database: DatabaseId, now_ms: u64) {
        let _making_room = self.making_room.lock();
        for _ in 0..limits::ROOM_ATTEMPTS {
            let state = self.state.lock();
            let is_idle = |unfinished: &&Arc<IncompleteUpload>| {
                unfinished.database == database && !unfinished.has_stream()
            };
            let idle = || state.unfinished.values().filter(is_idle);
            let bytes: u64 = idle().map(|unfinished| unfinished.stored_bytes()).sum();
            let largest = idle().max_by_key(|unfinished| unfinished.stored_bytes());
            let Some(largest) = largest else { return };
            let counted_bytes = bytes - largest.stored_bytes().min(bytes);
            if counted_bytes <= self.config.idle_upload_bytes {
                return;
            }
            let shortage = Shortage {
                database: Some(database),
                weigh: IncompleteUpload::stored_bytes,
                missing: counted_bytes - self.config.idle_upload_bytes,
                added: 0,
            };
            let asking = RoomRequest {
                peer: UploadPeer::Unknown,
                now_ms,
                number: Some(largest.number),
            };
            let stalled_ms = limits::STALLED_UPLOAD_MS;
            let victims = shortage.of_those_with_most(shortage.shares(&state, asking, stalled_ms));
            drop(state);
            if !self.evict_all(&victims, now_ms, stalled_ms) {
                return;
            }
        }
    }
}

impl Shortage {
    fn concerns(&self, unfinished: &IncompleteUpload) -> bool {
        (self.database).is_none_or(|database| database == unfinished.database)
    }

    /// For how long an upload that a stream has must have brought next to nothing to make room.
    fn stalled_ms(&self, state: &BlobsState, asking: RoomRequest) -> u64 {
        let has_one = state.unfinished.values().any(|unfinished| {
            asking.number != Some(unfinished.number)
                && unfinished.peer() == asking.peer
                && self.concerns(unfinished)
        });
        match has_one {
            true => limits::STALLED_UPLOAD_MS,
            false => limits::STALLED_FOR_NEWCOMER_MS,
        }
    }

    /// What each peer has, and what of it may go.
    fn shares(
        &self,
        state: &BlobsState,
        asking: RoomRequest,
        stalled_ms: u64,
    ) -> BTreeMap<UploadPeer, Share> {
        let mut shares = BTreeMap::<UploadPeer, Share>::new();
        for unfinished in state.unfinished.values() {
            if !self.concerns(unfinished) {
                continue;
            }
            let share = shares.entry(unfinished.peer()).or_default();
            let weight = (self.weigh)(unfinished);
            share.weight += weight;
            // One that is locked is at work, or its stream has just left it and waits for the disk:
            // it cannot go now, and whoever asks does not wait. One without weight would go for
            // nothing.
            if asking.number == Some(unfinished.number)
                || weight == 0
                || !unfinished.is_idle(asking.now_ms, stalled_ms)
                || unfinished.progress.is_locked()
            {
                continue;
            }
            share.candidates.push(Candidate {
                unfinished: Arc::clone(unfinished),
                has_stream: unfinished.has_stream(),
                idle_since_ms: unfinished.idle_since_ms(),
            });
        }
        for share in shares.values_mut() {
            share.candidates.sort_by_key(|candidate| {
                let number = candidate.unfinished.number;
                std::cmp::Reverse((candidate.has_stream, candidate.idle_since_ms, number))
            });
        }
        shares
    }

    /// Those that make room for whoever asks; `None`: they would not be enough, and none is to go.
    fn victims(
        &self,
        state: &BlobsState,
        asking: RoomRequest,
        stalled_ms: u64,
    ) -> Option<Vec<Arc<IncompleteUpload>>> {
        let mut shares = self.shares(state, asking, stalled_ms);
        shares.entry(asking.peer).or_default().weight += self.added;
        let (mut victims, mut freed) = (Vec::new(), 0);
        while freed < self.missing {
            let own = shares.get(&asking.peer).map_or(0, |share| share.weight);
            let (victim, weight) = self.next_victim(&mut shares, own, asking.peer)?;
            freed += weight;
            victims.push(victim);
        }
        Some(victims)
    }

    /// The next one to go, and what it weighs.
    fn next_victim(
        &self,
        shares: &mut BTreeMap<UploadPeer, Share>,
        own: u64,
        asking: UploadPeer,
    ) -> Option<(Arc<IncompleteUpload>, u64)> {
        let most = shares.values().map(|share| share.weight).max()?;
        let (_, share) = (shares.iter_mut())
            .filter(|(peer, share)| **peer == asking || share.weight >= own)
            .filter(|(_, share)| {
                let last = share.candidates.last();
                last.is_some_and(|last| !last.has_stream || share.weight == most)
            })
            .max_by_key(|(_, share)| {
                let oldest_ms = (share.candidates.last()).map_or(0, |last| last.idle_since_ms);
                (share.weight, std::cmp::Reverse(oldest_ms))
            })?;
        let victim = share.candidates.pop()?.unfinished;
        let weight = (self.weigh)(&victim);
        share.weight -= weight.min(share.weight);
        Some((victim, weight))
    }

    /// Those that go where nobody asks: of the peers with most, as many as are needed and there
    /// are.
    fn of_those_with_most(
        &self,
        mut shares: BTreeMap<UploadPeer, Share>,
    ) -> Vec<Arc<IncompleteUpload>> {
        for share in shares.values_mut() {
            share.candidates.retain(|candidate| !candidate.has_stream);
        }
        let (mut victims, mut freed) = (Vec::new(), 0);
        while freed < self.missing
            && let Some((victim, weight)) = self.next_victim(&mut shares, 0, UploadPeer::Unknown)
        {
            freed += weight;
            victims.push(victim);
        }
        victims
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blob::Owner;
    use crate::durable::Opened;
    use crate::store::{Store, StoreConfig};
    use wal::{LogConfig, LogId};

    struct Caller;

    impl Owner for Caller {
        fn lost(&self, _why: UploadError) {}
    }

    fn start(blobs: &Arc<BlobStore>, name: &str, now_ms: u64) -> Result<(), UploadError> {
        let begin = Begin {
            database: DatabaseId::DEFAULT,
            name: name.into(),
            upload_id: (*b"id").into(),
            offset: 0,
            size_bytes: None,
            content_type: "".into(),
            now_ms,
        };
        blobs.begin_upload(&begin, Arc::new(Caller)).map(drop)
    }

    /// The oldest one is being made durable, which takes its time: the next one goes.
    #[test]
    fn an_upload_that_is_at_work_is_passed_over() {
        let mut config = StoreConfig::new(1);
        config.blobs.free_bytes = 0;
        config.blobs.uploads_per_database = 4;
        let id = LogId {
            history: 1,
            secret: 2,
        };
        let disk = Arc::new(testkit::simulated_disk(1));
        let opened = Store::open(config, disk, &LogConfig::new(id, 1));
        let Opened { store, .. } = opened.expect("an empty disk can be used");
        let blobs = store.blobs().expect("there is a log");
        for number in 0..4 {
            start(blobs, &format!("{number}"), number).expect("there is a place");
        }
        let oldest = blobs.state.lock().unfinished.values().next().cloned();
        let oldest = oldest.expect("there are four");
        let at_work = oldest.progress.lock();
        for number in 4..9 {
            start(blobs, &format!("{number}"), number).expect("room is made");
        }
        drop(at_work);
        let names = || -> Vec<_> {
            let uploads = blobs.uploads(DatabaseId::DEFAULT);
            uploads
                .iter()
                .map(|upload| upload.name.to_string())
                .collect()
        };
        assert_eq!(names(), ["0", "6", "7", "8"]);
        start(blobs, "9", 9).expect("room is made");
        assert_eq!(names(), ["6", "7", "8", "9"]);
    }
}
