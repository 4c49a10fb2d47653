//! All identities of a moment, as loops hold them.

use std::sync::Arc;

use super::identity::{Identity, IssuedToken, NEVER_MS};
use super::token::{Token, TokenHash, TokenKey};
use super::unauthenticated::Unauthenticated;
use crate::rights::{Right, Rights};

/// Names who calls, by the token that proved it or the listener that stands for those without one.
/// It holds nothing: when the identity is gone it finds nothing any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IdentityKey {
    slot: u32,
    generation: u32,
}

impl IdentityKey {
    /// Finds nothing in any table.
    pub const NOBODY: IdentityKey = IdentityKey {
        slot: u32::MAX,
        generation: 0,
    };

    /// Returns the number of its slot: small, and of no other key at the same time.
    #[inline]
    pub fn slot(self) -> usize {
        self.slot as usize
    }
}

/// The place of a token, or of a listener.
#[derive(Clone, Debug)]
struct TokenSlot {
    /// Grows whenever the slot becomes free.
    generation: u32,
    holder: Option<Holder>,
}

#[derive(Clone, Debug)]
struct Holder {
    identity: Arc<Identity>,
    /// `None`: a listener's.
    hash: Option<TokenHash>,
}

/// All identities of a moment: those of listeners first, then one slot for each token that is good.
/// It never changes; a change makes another table.
#[derive(Debug)]
pub struct IdentityTable {
    key: TokenKey,
    version: u64,
    listeners: usize,
    slots: Vec<TokenSlot>,
    /// Every token in order of its hash, with its slot; `None`: it has expired.
    by_hash: Vec<(TokenHash, Option<u32>)>,
    /// When the next token expires.
    next_expiry_ms: u64,
}

impl IdentityTable {
    /// The table of a server without tokens. A caller without a token has the rights of its
    /// listener.
    pub(super) fn new(key: TokenKey, listeners: Vec<Rights>) -> IdentityTable {
        let slot = |rights| TokenSlot {
            generation: 0,
            holder: Some(Holder {
                identity: Arc::new(Identity::anonymous(rights)),
                hash: None,
            }),
        };
        let slots: Vec<TokenSlot> = listeners.into_iter().map(slot).collect();
        IdentityTable {
            key,
            version: 0,
            listeners: slots.len(),
            slots,
            by_hash: Vec::new(),
            next_expiry_ms: NEVER_MS,
        }
    }

    /// The table that follows, with these identities. A token that is still good, of an identity
    /// with the same name and rights, keeps its slot, so that what its callers run goes on.
    pub(super) fn next(&self, identities: &[Arc<Identity>], now_ms: u64) -> IdentityTable {
        let mut table = IdentityTable {
            key: self.key.clone(),
            version: self.version + 1,
            listeners: self.listeners,
            slots: self.slots.clone(),
            by_hash: Vec::new(),
            next_expiry_ms: NEVER_MS,
        };
        let mut good = table.sort_out(identities, now_ms);
        table.keep_or_free(&mut good);
        table.place(good);
        table.by_hash.sort_unstable_by_key(|(hash, _)| *hash);
        table
    }

    /// Returns the tokens that are good, in order of their hashes, and notes the others as expired.
    fn sort_out(
        &mut self,
        identities: &[Arc<Identity>],
        now_ms: u64,
    ) -> Vec<(TokenHash, Arc<Identity>)> {
        let mut good = Vec::new();
        for identity in identities {
            for &IssuedToken { hash, expires_ms } in identity.tokens() {
                let expires_ms = expires_ms.min(identity.expires_ms());
                if expires_ms <= now_ms {
                    self.by_hash.push((hash, None));
                } else {
                    self.next_expiry_ms = self.next_expiry_ms.min(expires_ms);
                    good.push((hash, Arc::clone(identity)));
                }
            }
        }
        good.sort_unstable_by_key(|(hash, _)| *hash);
        good
    }

    /// Takes those tokens out of `good` that keep their slots, and frees the slots of all others.
    fn keep_or_free(&mut self, good: &mut Vec<(TokenHash, Arc<Identity>)>) {
        for (index, slot) in self.slots.iter_mut().enumerate().skip(self.listeners) {
            let Some(holder) = &mut slot.holder else {
                continue;
            };
            let found = (holder.hash)
                .and_then(|hash| good.binary_search_by_key(&hash, |(hash, _)| *hash).ok())
                .filter(|&at| good[at].1.is_like(&holder.identity));
            match found {
                Some(at) => {
                    let (hash, identity) = good.remove(at);
                    holder.identity = identity;
                    self.by_hash.push((hash, Some(index as u32)));
                }
                None => {
                    slot.holder = None;
                    slot.generation = slot.generation.wrapping_add(1);
                }
            }
        }
    }

    /// Gives each of these tokens a slot.
    fn place(&mut self, good: Vec<(TokenHash, Arc<Identity>)>) {
        let mut from = self.listeners;
        for (hash, identity) in good {
            let is_free = |slot: &TokenSlot| slot.holder.is_none();
            let index = match self.slots[from..].iter().position(is_free) {
                Some(ahead) => from + ahead,
                None => {
                    self.slots.push(TokenSlot {
                        generation: 0,
                        holder: None,
                    });
                    self.slots.len() - 1
                }
            };
            from = index + 1;
            self.slots[index].holder = Some(Holder {
                identity,
                hash: Some(hash),
            });
            self.by_hash.push((hash, Some(index as u32)));
        }
    }

    /// Returns how many tables there were before.
    #[inline]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns when the next token expires, in milliseconds since 1970; `u64::MAX` if none does.
    #[inline]
    pub fn next_expiry_ms(&self) -> u64 {
        self.next_expiry_ms
    }

    /// Returns the key of those who call through a listener without a token.
    pub fn of_listener(&self, listener: usize) -> IdentityKey {
        match u32::try_from(listener) {
            Ok(slot) if listener < self.listeners => IdentityKey {
                slot,
                generation: 0,
            },
            _ => IdentityKey::NOBODY,
        }
    }

    /// Returns whether a listener gives callers without a token a right on the whole server.
    pub(super) fn is_open_for(&self, right: Right) -> bool {
        let listeners = self.slots.iter().take(self.listeners);
        let mut identities = listeners.filter_map(|slot| slot.holder.as_ref());
        identities.any(|holder| holder.identity.rights().on_server(right))
    }

    /// Returns the identity that a key names; `None` if it was revoked or has expired.
    #[inline]
    pub fn get(&self, key: IdentityKey) -> Option<&Identity> {
        let slot = self.slots.get(key.slot as usize)?;
        let holder = slot.holder.as_ref()?;
        (slot.generation == key.generation).then_some(&*holder.identity)
    }

    /// Returns the key of the identity whose token the value of the header `authorization` has.
    ///
    /// # Errors
    /// If there is no token in it, or one that is not good at this time.
    pub fn resolve(
        &self,
        authorization: &[u8],
        now_ms: u64,
    ) -> Result<IdentityKey, Unauthenticated> {
        let token = Token::of_header(authorization).ok_or(Unauthenticated::NoToken)?;
        let hash = self.key.hash(&token);
        let found = self.by_hash.binary_search_by_key(&hash, |(hash, _)| *hash);
        let at = found.map_err(|_| Unauthenticated::Unknown)?;
        let (known, slot) = self.by_hash[at];
        if !self.key.is_hash_of(&known, &token) {
            return Err(Unauthenticated::Unknown);
        }
        let slot = slot.ok_or(Unauthenticated::Expired)?;
        let TokenSlot { generation, holder } = &self.slots[slot as usize];
        let is_good = |holder: &Holder| holder.identity.is_good(&known, now_ms);
        match holder.as_ref().is_some_and(is_good) {
            true => Ok(IdentityKey {
                slot,
                generation: *generation,
            }),
            false => Err(Unauthenticated::Expired),
        }
    }

    /// Returns how many slots there are, and were at once.
    #[cfg(test)]
    pub(super) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Returns how many slots somebody has.
    #[cfg(test)]
    pub(super) fn slots_in_use(&self) -> usize {
        let is_used = |slot: &&TokenSlot| slot.holder.is_some();
        self.slots.iter().filter(is_used).count()
    }
}
