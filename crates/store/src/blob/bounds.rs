//! The bounds of unfinished uploads, and which of them make room for others.
//!
//! Room is shared out by peers: an upload never takes the place of one whose peer has less than its own peer would have with
//! it. So whoever fills all places or all bytes with halves of uploads harms only itself. First go uploads that no stream
//! has; of those that a stream has, only such as bring nothing for [`limits::STALLED_UPLOAD_MS`], and only of the peer that
//! has most.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::blobs::{Blobs, EndedUpload, State};
use super::error::UploadError;
use super::limits;
use super::peer::UploadPeer;
use super::unfinished::{Over, Unfinished};
use crate::catalogue::DatabaseId;

/// Who asks for room, and when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asking {
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
    weigh: fn(&Unfinished) -> u64,
    /// What is to become free.
    missing: u64,
    /// What the peer that asks will have more.
    added: u64,
}

/// An upload that may have to go.
struct Candidate {
    unfinished: Arc<Unfinished>,
    has_stream: bool,
    touched_ms: u64,
}

/// What a peer has.
#[derive(Default)]
struct Share {
    weight: u64,
    /// The first to go comes last.
    candidates: Vec<Candidate>,
}

impl Blobs {
    /// Whether a database can have one more upload. Makes room if it can be made.
    pub(super) fn check_places(
        self: &Arc<Blobs>,
        database: DatabaseId,
        asking: Asking,
    ) -> Result<(), UploadError> {
        let bounds = [
            (Some(database), self.config.uploads_per_database),
            (None, limits::UPLOADS),
        ];
        for (of, allowed) in bounds {
            let too_many = UploadError::TooMany {
                uploads: allowed,
                of: match of {
                    Some(_) => "this database",
                    None => "all databases together",
                },
            };
            self.make_room(too_many, asking, |state| {
                let unfinished = match of {
                    Some(database) => state.used(database).unfinished,
                    None => state.unfinished.len() as u64,
                };
                Some(Shortage {
                    database: of,
                    weigh: |_| 1,
                    missing: (unfinished + 1)
                        .checked_sub(allowed as u64)
                        .filter(|&n| n > 0)?,
                    added: 1,
                })
            })?;
        }
        self.check_share(database, asking.peer)
    }

    /// Whether a peer can have one more upload that a stream has. Others are left a part of the places, however long this
    /// one keeps its streams open.
    fn check_share(&self, database: DatabaseId, peer: UploadPeer) -> Result<(), UploadError> {
        let allowed = self
            .config
            .uploads_per_database
            .div_ceil(limits::UPLOADS_PEER_SHARE);
        let state = self.state.lock();
        let is_open = |unfinished: &&Arc<Unfinished>| {
            unfinished.database == database && unfinished.peer() == peer && unfinished.has_stream()
        };
        match state.unfinished.values().filter(is_open).count() < allowed {
            true => Ok(()),
            false => Err(UploadError::TooMany {
                uploads: allowed,
                of: "one address in this database",
            }),
        }
    }

    /// Whether so much more can come into a database now. Makes room if it can be made.
    pub(super) fn check_room(
        self: &Arc<Blobs>,
        database: DatabaseId,
        added_bytes: u64,
        asking: Asking,
    ) -> Result<(), UploadError> {
        self.find_room(database, added_bytes, asking, |_| {})
    }

    /// Takes room for so much more in a database. Makes room if it can be made.
    pub(super) fn book(
        self: &Arc<Blobs>,
        database: DatabaseId,
        added_bytes: u64,
        asking: Asking,
    ) -> Result<(), UploadError> {
        self.find_room(database, added_bytes, asking, |state| {
            state.used.entry(database).or_default().bytes += added_bytes;
        })
    }

    fn find_room(
        self: &Arc<Blobs>,
        database: DatabaseId,
        added_bytes: u64,
        asking: Asking,
        use_it: impl Fn(&mut State),
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
                weigh: Unfinished::stored_bytes,
                missing,
                added: added_bytes,
            })
        })
    }

    fn check_disk(self: &Arc<Blobs>, added_bytes: u64, asking: Asking) -> Result<(), UploadError> {
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
                weigh: Unfinished::stored_bytes,
                missing: wanted.checked_sub(found).filter(|&n| n > 0)?,
                added: added_bytes,
            })
        })
    }

    /// Removes uploads until nothing is short, or returns the error.
    fn make_room(
        self: &Arc<Blobs>,
        error: UploadError,
        asking: Asking,
        mut shortage: impl FnMut(&mut State) -> Option<Shortage>,
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
            let victims = shortage.victims(&state, asking);
            drop(state);
            let Some(victims) = victims else { break };
            if !self.evict_all(&victims, asking.now_ms) {
                break;
            }
        }
        Err(error)
    }

    /// Removes uploads that no stream has, or whose stream brings nothing; one that a stream
    /// resumes meanwhile stays. Returns whether the room of all that were ended is free: if not,
    /// ending more of them is no use.
    fn evict_all(self: &Arc<Blobs>, victims: &[Arc<Unfinished>], now_ms: u64) -> bool {
        let ended: Vec<EndedUpload> = victims
            .iter()
            .filter_map(|victim| self.evict(victim, now_ms))
            .collect();
        self.remove_ended(&ended)
    }

    fn evict(self: &Arc<Blobs>, unfinished: &Arc<Unfinished>, now_ms: u64) -> Option<EndedUpload> {
        // Locked: a stream works with it.
        let progress = unfinished.progress.try_lock()?;
        if progress.is_sealed || (unfinished.has_stream() && !unfinished.is_stalled(now_ms)) {
            return None;
        }
        self.end_and_keep(unfinished, progress, Over::Evicted)
    }

    /// Keeps what uploads that no stream has keep of each database's room within its bound. The largest of them may be
    /// larger than that: it is kept as long as its room is needed for nothing else.
    pub(super) fn bound_idle_bytes(self: &Arc<Blobs>, database: DatabaseId, now_ms: u64) {
        let _making_room = self.making_room.lock();
        for _ in 0..limits::ROOM_ATTEMPTS {
            let state = self.state.lock();
            let is_idle = |unfinished: &&Arc<Unfinished>| {
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
                weigh: Unfinished::stored_bytes,
                missing: counted_bytes - self.config.idle_upload_bytes,
                added: 0,
            };
            let asking = Asking {
                peer: UploadPeer::Unknown,
                now_ms,
                number: Some(largest.number),
            };
            let victims = shortage.of_those_with_most(shortage.shares(&state, asking));
            drop(state);
            if !self.evict_all(&victims, now_ms) {
                return;
            }
        }
    }
}

impl Shortage {
    /// What each peer has, and what of it may go.
    fn shares(&self, state: &State, asking: Asking) -> BTreeMap<UploadPeer, Share> {
        let mut shares = BTreeMap::<UploadPeer, Share>::new();
        for unfinished in state.unfinished.values() {
            if self
                .database
                .is_some_and(|database| database != unfinished.database)
            {
                continue;
            }
            let share = shares.entry(unfinished.peer()).or_default();
            share.weight += (self.weigh)(unfinished);
            let has_stream = unfinished.has_stream();
            if asking.number == Some(unfinished.number)
                || (has_stream && !unfinished.is_stalled(asking.now_ms))
            {
                continue;
            }
            share.candidates.push(Candidate {
                unfinished: Arc::clone(unfinished),
                has_stream,
                touched_ms: unfinished.touched_ms(),
            });
        }
        for share in shares.values_mut() {
            share.candidates.sort_by_key(|candidate| {
                let number = candidate.unfinished.number;
                std::cmp::Reverse((candidate.has_stream, candidate.touched_ms, number))
            });
        }
        shares
    }

    /// Those that make room for whoever asks; `None`: they would not be enough, and none is to go.
    fn victims(&self, state: &State, asking: Asking) -> Option<Vec<Arc<Unfinished>>> {
        let mut shares = self.shares(state, asking);
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
    ) -> Option<(Arc<Unfinished>, u64)> {
        let most = shares.values().map(|share| share.weight).max()?;
        let (_, share) = (shares.iter_mut())
            .filter(|(peer, share)| **peer == asking || share.weight >= own)
            .filter(|(_, share)| {
                let last = share.candidates.last();
                last.is_some_and(|last| !last.has_stream || share.weight == most)
            })
            .max_by_key(|(_, share)| {
                let oldest_ms = share.candidates.last().map_or(0, |last| last.touched_ms);
                (share.weight, std::cmp::Reverse(oldest_ms))
            })?;
        let victim = share.candidates.pop()?.unfinished;
        let weight = (self.weigh)(&victim);
        share.weight -= weight.min(share.weight);
        Some((victim, weight))
    }

    /// Those that go where nobody asks: of the peers with most, as many as are needed and there are.
    fn of_those_with_most(&self, mut shares: BTreeMap<UploadPeer, Share>) -> Vec<Arc<Unfinished>> {
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
