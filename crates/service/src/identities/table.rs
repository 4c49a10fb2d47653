//! All identities of a moment, as loops hold them.

use std::sync::Arc;

use super::binding::Binding;
use super::identity::{Identity, NEVER_MS, Proof};
use super::token::{Token, TokenKey};
use super::unauthenticated::Unauthenticated;
use crate::rights::{Right, Rights};

/// Names who calls, by what proved it or the listener that stands for those who prove nothing.
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

/// The place of a token, of a binding, or of a listener.
#[derive(Clone, Debug)]
struct ProofSlot {
    /// Grows whenever the slot becomes free.
    generation: u32,
    holder: Option<IdentityHolder>,
    /// Who had it before it became free last.
    former: Option<FormerHolder>,
}

/// Whose slot was taken away, for what is said of the calls that run still.
#[derive(Clone, Debug)]
struct FormerHolder {
    identity: Arc<Identity>,
    /// That of its keys.
    generation: u32,
    /// Why.
    end: Unauthenticated,
}

#[derive(Clone, Debug)]
struct IdentityHolder {
    identity: Arc<Identity>,
    /// `None`: a listener's.
    proof: Option<Proof>,
}

/// A proof that is good, and whose it is; `None`: it has its slot.
type GoodProof = (Proof, Option<Arc<Identity>>);

/// All identities of a moment: those of listeners first, then one slot for each proof that is good.
/// It never changes; a change makes another table.
#[derive(Debug)]
pub struct IdentityTable {
    key: TokenKey,
    version: u64,
    listeners: usize,
    slots: Vec<ProofSlot>,
    /// Every proof in order, with its slot; `None`: it has expired.
    by_proof: Vec<(Proof, Option<u32>)>,
    /// When the next proof expires.
    next_expiry_ms: u64,
    /// How often certificates were to be checked anew.
    certificate_checks: u64,
}

impl IdentityTable {
    /// The table of a server without tokens. A caller without a token has the rights of its
    /// listener.
    pub(super) fn new(key: TokenKey, listeners: Vec<Rights>) -> IdentityTable {
        let slot = |rights| ProofSlot {
            generation: 0,
            holder: Some(IdentityHolder {
                identity: Arc::new(Identity::anonymous(rights)),
                proof: None,
            }),
            former: None,
        };
        let slots: Vec<ProofSlot> = listeners.into_iter().map(slot).collect();
        IdentityTable {
            key,
            version: 0,
            listeners: slots.len(),
            slots,
            by_proof: Vec::new(),
            next_expiry_ms: NEVER_MS,
            certificate_checks: 0,
        }
    }

    /// The table that follows, with these identities. A token that is still good, of an identity
    /// with the same name and at least the same rights, keeps its slot, so that what its callers
    /// run goes on.
    pub(super) fn next(&self, identities: &[Arc<Identity>], now_ms: u64) -> IdentityTable {
        let mut table = IdentityTable {
            key: self.key.clone(),
            version: self.version + 1,
            listeners: self.listeners,
            slots: self.slots.clone(),
            by_proof: Vec::new(),
            next_expiry_ms: NEVER_MS,
            certificate_checks: self.certificate_checks,
        };
        let mut good = table.sort_out(identities, now_ms);
        table.keep_or_free(&mut good);
        table.place(good);
        table.by_proof.sort_unstable();
        table
    }

    /// Has the loops that take over this table look anew whether certificates are trusted.
    pub(super) fn with_certificate_check(mut self) -> IdentityTable {
        self.certificate_checks += 1;
        self
    }

    /// Returns how often certificates were to be checked anew: a loop that has seen the number has
    /// no reason to look at its connections.
    pub fn certificate_checks(&self) -> u64 {
        self.certificate_checks
    }

    /// Returns the proofs that are good, in order, and notes the others as expired.
    fn sort_out(&mut self, identities: &[Arc<Identity>], now_ms: u64) -> Vec<GoodProof> {
        let mut good = Vec::new();
        for identity in identities {
            for (proof, expires_ms) in identity.proofs() {
                if expires_ms <= now_ms {
                    self.by_proof.push((proof, None));
                } else {
                    self.next_expiry_ms = self.next_expiry_ms.min(expires_ms);
                    good.push((proof, Some(Arc::clone(identity))));
                }
            }
        }
        good.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        good
    }

    /// Takes the identities out of `good` whose proofs keep their slots, and frees the slots of all
    /// others.
    fn keep_or_free(&mut self, good: &mut [GoodProof]) {
        for (index, slot) in self.slots.iter_mut().enumerate().skip(self.listeners) {
            let Some(holder) = &mut slot.holder else {
                continue;
            };
            let found = (holder.proof.as_ref())
                .and_then(|proof| good.binary_search_by(|(other, _)| other.cmp(proof)).ok())
                .and_then(|at| good.get_mut(at));
            let mut end = Unauthenticated::Ended;
            let kept = found.and_then(|(proof, identity)| {
                if identity
                    .as_ref()
                    .is_some_and(|one| one.has_name_of(&holder.identity))
                {
                    end = Unauthenticated::RightsChanged;
                }
                let goes_on = |identity: &mut Arc<Identity>| identity.goes_on_for(&holder.identity);
                Some((&*proof, identity.take_if(goes_on)?))
            });
            match kept {
                Some((proof, identity)) => {
                    holder.identity = identity;
                    self.by_proof.push((proof.clone(), Some(index as u32)));
                }
                None => {
                    slot.former = slot.holder.take().map(|holder| FormerHolder {
                        identity: holder.identity,
                        generation: slot.generation,
                        end,
                    });
                    slot.generation = slot.generation.wrapping_add(1);
                }
            }
        }
    }

    /// Gives each of these proofs a slot that has none yet.
    fn place(&mut self, good: Vec<GoodProof>) {
        let mut from = self.listeners;
        let without = good.into_iter();
        let without = without.filter_map(|(proof, identity)| Some((proof, identity?)));
        for (proof, identity) in without {
            let is_free = |slot: &ProofSlot| slot.holder.is_none();
            let index = match self.slots[from..].iter().position(is_free) {
                Some(ahead) => from + ahead,
                None => {
                    self.slots.push(ProofSlot {
                        generation: 0,
                        holder: None,
                        former: None,
                    });
                    self.slots.len() - 1
                }
            };
            from = index + 1;
            self.slots[index].holder = Some(IdentityHolder {
                identity,
                proof: Some(proof.clone()),
            });
            self.by_proof.push((proof, Some(index as u32)));
        }
    }

    /// Returns how many tables there were before.
    #[inline]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns when the next token or binding expires, in milliseconds since 1970; `u64::MAX` if
    /// none does.
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

    /// Returns the identity that a key names, or named until its slot was taken away last: to say
    /// whose a call was that ends with it, and for nothing else. `None`: the slot was taken away
    /// twice since.
    pub fn get_former(&self, key: IdentityKey) -> Option<&Identity> {
        let former = || self.former(key).map(|former| &*former.identity);
        self.get(key).or_else(former)
    }

    /// Returns why a key names nobody any more.
    #[cold]
    pub fn why_ended(&self, key: IdentityKey) -> Unauthenticated {
        match (self.get(key), self.former(key)) {
            // What has ended is what the connection shows.
            (Some(_), _) => Unauthenticated::CertificateExpired,
            (None, Some(former)) => former.end,
            (None, None) => Unauthenticated::Ended,
        }
    }

    fn former(&self, key: IdentityKey) -> Option<&FormerHolder> {
        let former = self.slots.get(key.slot as usize)?.former.as_ref();
        former.filter(|former| former.generation == key.generation)
    }

    /// Returns what proved the identity that a key names; `None`: nothing, as it is a listener's,
    /// or it was revoked or has expired.
    pub fn proof(&self, key: IdentityKey) -> Option<&Proof> {
        self.get(key)?;
        let holder = self.slots.get(key.slot as usize)?.holder.as_ref()?;
        holder.proof.as_ref()
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
        let wanted = Proof::Token(self.key.hash(&token));
        let (known, slot) = self.find(&wanted).ok_or(Unauthenticated::Unknown)?;
        let is_its_hash = |hash| self.key.is_hash_of(hash, &token);
        if !matches!(known, Proof::Token(hash) if is_its_hash(hash)) {
            return Err(Unauthenticated::Unknown);
        }
        let key = self.good(known, slot, now_ms);
        key.ok_or(Unauthenticated::Expired)
    }

    /// Returns the key of the identity that is bound to one of these; `None` if there is none.
    ///
    /// # Errors
    /// If several of them are bound to somebody, or to somebody who has expired.
    pub fn resolve_bindings(
        &self,
        bindings: &[Arc<Binding>],
        now_ms: u64,
    ) -> Result<Option<IdentityKey>, Unauthenticated> {
        let find = |binding: &Arc<Binding>| self.find(&Proof::Binding(Arc::clone(binding)));
        let mut found = bindings.iter().filter_map(find);
        let Some((proof, slot)) = found.next() else {
            return Ok(None);
        };
        // The same name twice is no second identity.
        if found.any(|(other, _)| other != proof) {
            return Err(Unauthenticated::Ambiguous);
        }
        let key = self.good(proof, slot, now_ms);
        key.ok_or(Unauthenticated::BindingExpired).map(Some)
    }

    /// Returns the names of all who are bound to one of these, to say who they are.
    pub fn names_of(&self, bindings: &[Arc<Binding>]) -> Vec<&str> {
        let of_one = |binding: &Arc<Binding>| {
            let (_, slot) = self.find(&Proof::Binding(Arc::clone(binding)))?;
            let holder = self.slots.get(slot? as usize)?.holder.as_ref()?;
            Some(holder.identity.name())
        };
        let mut names: Vec<&str> = bindings.iter().filter_map(of_one).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    fn find(&self, proof: &Proof) -> Option<(&Proof, Option<u32>)> {
        let found = self
            .by_proof
            .binary_search_by(|(other, _)| other.cmp(proof));
        let (known, slot) = self.by_proof.get(found.ok()?)?;
        Some((known, *slot))
    }

    /// Returns the key of a proof that has not expired.
    fn good(&self, proof: &Proof, slot: Option<u32>, now_ms: u64) -> Option<IdentityKey> {
        let slot = slot?;
        let ProofSlot {
            generation, holder, ..
        } = self.slots.get(slot as usize)?;
        let is_good = (holder.as_ref()).is_some_and(|one| one.identity.is_good(proof, now_ms));
        is_good.then_some(IdentityKey {
            slot,
            generation: *generation,
        })
    }

    /// Returns how many slots there are, and were at once.
    #[cfg(test)]
    pub(super) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Returns how many slots somebody has.
    #[cfg(test)]
    pub(super) fn slots_in_use(&self) -> usize {
        let is_used = |slot: &&ProofSlot| slot.holder.is_some();
        self.slots.iter().filter(is_used).count()
    }
}
