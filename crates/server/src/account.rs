//! The account of a server: what its peers make it hold, charged before or as it comes to be, and
//! given back when it goes.
//!
//! Every connection has a [`Holding`]: unfinished requests, unsent answers, and what is set aside
//! for answers that are on their way. A body that several answers share is charged once
//! ([`Account::charge_shared`]). While less is charged than may be, everybody goes on. When the
//! account is full, a connection that holds more than [`limits::SMALL_HOLDING_BYTES`] waits: it
//! produces nothing and its windows stay shut, until its peer has read on. Smaller ones go on, so
//! that new and small callers are served all the same. And the connection is ended that holds most
//! of those that have not moved for [`limits::STALLED_MS`]; one that only waits for memory itself
//! has longer. Where small ones together are why the account is full, such as senders of a byte now
//! and then, those of them go that do not move.
//!
//! The connections from one address are one to it, and so are those of one token ([`Parties`]):
//! neither may have most of an account of which half is used. Of those that do not move, the
//! connections of that token go first that hold most and move least together.

mod claimed;
mod held;
mod idle;
mod long_claim;
mod looks;
mod messages;
mod parties;
mod shared_body;
mod weight;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use net::PeerAddress;
use service::identities::IdentityKey;
use wire::Pause;

use crate::SharedWaker;
use crate::limits;
use claimed::ClaimedBytes;
pub(crate) use held::HeldBytes;
use idle::{IdleConnections, IdlePlace};
pub(crate) use long_claim::LongClaim;
use looks::{ConnectionLooks, Looks};
pub(crate) use parties::CountedCaller;
use parties::{Parties, Party, PartyHolding};
use shared_body::{SharedBody, SharedCharge};
use weight::sort_by_weight;

/// What all peers of a server make it hold, and how much that may be.
#[derive(Debug)]
pub(crate) struct Account {
    /// What those who ask for statistics are told.
    charged: Arc<AtomicUsize>,
    limit_bytes: usize,
    /// Taken by calls for what they are about to produce, until it is charged.
    claimed: ClaimedBytes,
    /// Shared bodies that are held, and how many answers hold each.
    shared: Mutex<HashMap<SharedBody, usize>>,
    parties: Mutex<Parties>,
    /// Connections that were opened, ever.
    opened: AtomicU64,
    /// Connections that hold more than a little.
    holders: Mutex<Vec<Arc<MemoryHolder>>>,
    /// When the account was last relieved, in nanoseconds; 0: never.
    relieved_ns: AtomicU64,
    /// Connections that were ended to relieve it, shown as a metric.
    evicted: Arc<AtomicU64>,
    /// How often connections were condemned or looked for, ever: loops look at theirs when it has
    /// changed.
    verdicts: AtomicU64,
    /// A connection receives a large message although there is no memory left for it.
    is_overdrawn: AtomicBool,
    /// When connections that wait look again.
    looks: Looks,
    /// Those that make room for others.
    idle: IdleConnections,
}

/// Asks a loop for a tick.
#[derive(Clone)]
struct Wake(SharedWaker);

impl std::fmt::Debug for Wake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Wake")
    }
}

/// A connection that holds more than a little, as those see it who relieve the account.
#[derive(Debug)]
struct MemoryHolder {
    held_bytes: AtomicUsize,
    /// When it last moved, in nanoseconds.
    moved_ns: AtomicU64,
    waits_for_memory: AtomicBool,
    is_condemned: AtomicBool,
    address: Arc<PartyHolding>,
    identity: Option<Arc<PartyHolding>>,
    /// Of the connection's loop.
    wake: Wake,
}

impl Account {
    pub fn new(limit_bytes: usize) -> Arc<Account> {
        Arc::new(Account {
            charged: Arc::default(),
            limit_bytes,
            claimed: ClaimedBytes::default(),
            shared: Mutex::default(),
            parties: Mutex::default(),
            opened: AtomicU64::new(0),
            holders: Mutex::default(),
            relieved_ns: AtomicU64::new(0),
            evicted: Arc::default(),
            verdicts: AtomicU64::new(0),
            is_overdrawn: AtomicBool::new(false),
            looks: Looks::default(),
            idle: IdleConnections::default(),
        })
    }

    /// The bytes that are charged, to be read by others.
    pub fn counter(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.charged)
    }

    /// Connections that were ended to relieve it, to be read by others.
    pub fn evicted(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.evicted)
    }

    /// What all peers together may make the server hold, in bytes.
    pub fn limit_bytes(&self) -> usize {
        self.limit_bytes
    }

    pub fn charged_bytes(&self) -> usize {
        self.charged.load(Ordering::Relaxed)
    }

    pub fn is_full(&self) -> bool {
        self.charged_bytes() > self.limit_bytes
    }

    fn is_half_used(&self) -> bool {
        self.charged_bytes() > self.limit_bytes / 2
    }

    /// How often connections were condemned, ever.
    pub fn verdicts(&self) -> u64 {
        self.verdicts.load(Ordering::Acquire)
    }

    /// Takes memory for what a call is about to produce, before it exists, so that threads that
    /// produce something at the same time do not all take what is left. While the account is not
    /// full, one of them may exceed it. To be followed by [`Account::end_claim`] with the bytes
    /// that are returned, when what was produced is charged. `None`: not now.
    pub fn claim(&self, bytes: usize) -> Option<usize> {
        if bytes == 0 {
            return Some(0);
        }
        let is_taken = self.claimed.add_if(bytes, |claimed| {
            // Read behind what is claimed, and written before it: so what goes from one to the
            // other is seen.
            let charged = self.charged.load(Ordering::Relaxed);
            let is_free = charged.saturating_add(claimed).saturating_add(bytes) <= self.limit_bytes;
            let is_alone = claimed == 0 && charged <= self.limit_bytes;
            is_free || is_alone
        });
        is_taken.then_some(bytes)
    }

    /// Takes memory although there may be none, for what is so little that a connection may always
    /// have it. To be followed by [`Account::end_claim`].
    pub fn claim_little(&self, bytes: usize) {
        self.claimed.add(bytes);
    }

    /// What was claimed is charged, or was not produced.
    pub fn end_claim(&self, bytes: usize) {
        self.claimed.subtract(bytes);
    }

    /// Whether not even small callers can be let in.
    pub fn is_overfull(&self) -> bool {
        self.beyond_reserve() > 0
    }

    fn beyond_reserve(&self) -> usize {
        let reserve = self.limit_bytes / limits::RESERVE_SHARE;
        self.charged_bytes()
            .saturating_sub(self.limit_bytes + reserve)
    }

    /// Opens the holding of a connection from `peer`, served by the loop that `wake` wakes.
    pub fn open(self: &Arc<Account>, peer: &PeerAddress, wake: &SharedWaker) -> Holding {
        Holding {
            number: self.opened.fetch_add(1, Ordering::Relaxed),
            account: Arc::clone(self),
            address: lock(&self.parties).open(Party::of(peer)),
            identity: None,
            wake: Wake(Arc::clone(wake)),
            charged_bytes: 0,
            held_bytes: 0,
            present_bytes: 0,
            unsent_bytes: 0,
            sent_bytes: 0,
            owed_bytes: 0,
            moved_ns: 0,
            taken_ns: 0,
            waits_for_memory: false,
            holder: None,
            is_evicted: false,
            looks: ConnectionLooks::default(),
            idle: None,
        }
    }

    /// Charges a body that others may hold too, as long as what is returned lives: once, however
    /// many hold it.
    pub fn charge_shared(self: &Arc<Account>, body: &Bytes) -> Box<dyn wire::BodyCharge> {
        let body = SharedBody {
            place: body.as_ptr().addr(),
            bytes: body.len(),
        };
        let mut shared = lock(&self.shared);
        let holders = shared.entry(body).or_default();
        *holders += 1;
        if *holders == 1 {
            self.charged.fetch_add(body.bytes, Ordering::Relaxed);
        }
        drop(shared);
        Box::new(SharedCharge {
            account: Arc::clone(self),
            body,
        })
    }

    /// Ends the connections that hold most and move least, of a party or of all, until as much is
    /// given back as is at a time: first those of the token that does so with all its connections.
    /// Small ones only where `ends_small` says so of all holders.
    fn relieve(
        &self,
        now_ns: u64,
        of: Option<&Arc<PartyHolding>>,
        ends_small: impl FnOnce(&[Arc<MemoryHolder>]) -> bool,
    ) {
        let relieved_ns = self.relieved_ns.load(Ordering::Relaxed);
        let due_ns = relieved_ns + limits::RELIEVE_MS * 1_000_000;
        if relieved_ns != 0 && now_ns < due_ns {
            return;
        }
        let (order, relieved) = (Ordering::Relaxed, &self.relieved_ns);
        // Of two loops that look at the same time one does it.
        let is_mine = relieved.compare_exchange(relieved_ns, now_ns.max(1), order, order);
        if is_mine.is_err() {
            return;
        }
        // Those that held little while there was enough are shown from now on.
        self.verdicts.fetch_add(1, Ordering::Release);
        let holders = lock(&self.holders);
        let is_of = |holder: &&Arc<MemoryHolder>| of.is_none_or(|of| holder.is_of(of));
        let stalled = holders.iter().filter(|holder| holder.is_stalled(now_ns));
        let mut stalled: Vec<_> = stalled.filter(is_of).collect();
        if stalled.is_empty() {
            return;
        }
        sort_by_weight(&mut stalled, now_ns);
        let ends_small = ends_small(&holders);
        let mut freed = 0;
        for holder in stalled {
            if freed >= limits::RELIEVED_AT_ONCE_BYTES {
                break;
            }
            if ends_small || !holder.is_small() {
                freed += holder.bytes();
                holder.condemn(&self.verdicts);
            }
        }
    }

    fn is_full_of_small(&self, holders: &[Arc<MemoryHolder>]) -> bool {
        let small = holders.iter().filter(|holder| holder.is_small());
        let bytes: usize = small.map(|holder| holder.bytes()).sum();
        bytes >= self.limit_bytes / limits::SMALL_HOLDERS_SHARE
    }

    #[cfg(test)]
    pub fn claimed_bytes(&self) -> usize {
        self.claimed.bytes()
    }

    #[cfg(test)]
    fn shared_bodies(&self) -> usize {
        lock(&self.shared).len()
    }
}

impl MemoryHolder {
    fn bytes(&self) -> usize {
        self.held_bytes.load(Ordering::Relaxed)
    }

    fn is_small(&self) -> bool {
        self.bytes() < limits::SMALL_HOLDING_BYTES
    }

    /// What it holds, by the time for which it has not moved: who holds most and moves least has
    /// most.
    fn weight(&self, now_ns: u64) -> u128 {
        let still_ns = now_ns.saturating_sub(self.moved_ns.load(Ordering::Relaxed));
        self.bytes() as u128 * u128::from(still_ns)
    }

    fn is_of(&self, party: &Arc<PartyHolding>) -> bool {
        let is_party = |own: &Arc<PartyHolding>| Arc::ptr_eq(own, party);
        is_party(&self.address) || self.identity.as_ref().is_some_and(is_party)
    }

    /// Has its loop end it, which looks for it when the count of verdicts has changed.
    fn condemn(&self, verdicts: &AtomicU64) {
        self.is_condemned.store(true, Ordering::Relaxed);
        verdicts.fetch_add(1, Ordering::Release);
        (self.wake.0)();
    }

    fn is_stalled(&self, now_ns: u64) -> bool {
        let allowed_ms = match self.waits_for_memory.load(Ordering::Relaxed) {
            true => limits::WAITING_STALLED_MS,
            false => limits::STALLED_MS,
        };
        stands_still(self.moved_ns.load(Ordering::Relaxed), allowed_ms, now_ns)
            && !self.is_condemned.load(Ordering::Relaxed)
    }
}

fn stands_still(moved_ns: u64, allowed_ms: u64, now_ns: u64) -> bool {
    now_ns.saturating_sub(moved_ns) >= allowed_ms * 1_000_000
}

/// What one connection makes the server hold. Given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Holding {
    /// Names the connection among those of the server.
    number: u64,
    account: Arc<Account>,
    address: Arc<PartyHolding>,
    /// Whose calls it has, if that is counted.
    identity: Option<(CountedCaller, Arc<PartyHolding>)>,
    wake: Wake,
    /// What it is charged with: without bodies that are shared.
    charged_bytes: usize,
    /// What waits for its peer or of it, bodies that are shared in full.
    held_bytes: usize,
    /// What of that has come from its peer, or waits for it.
    present_bytes: usize,
    /// What of that waits to be sent.
    unsent_bytes: usize,
    /// What has waited and was sent, ever.
    sent_bytes: u64,
    /// How much less that must become until the connection counts as moving.
    owed_bytes: usize,
    moved_ns: u64,
    /// When its peer last took some of what waits to be sent, or that began to wait.
    taken_ns: u64,
    waits_for_memory: bool,
    holder: Option<Arc<MemoryHolder>>,
    /// The connection is ended to relieve the account, and counted.
    is_evicted: bool,
    looks: ConnectionLooks,
    /// Its place among those that make room for others, if it is one.
    idle: Option<IdlePlace>,
}

impl Holding {
    /// Changes what the connection is charged with, what it holds with bodies that are shared, and
    /// what of that waits to be sent.
    #[inline]
    pub fn change(&mut self, held: HeldBytes, now_ns: u64) {
        let sent_bytes = held.sent_bytes - self.sent_bytes;
        let begins_to_wait = self.unsent_bytes == 0 && held.unsent_bytes > 0;
        if sent_bytes > 0 || begins_to_wait {
            self.taken_ns = now_ns;
        }
        self.unsent_bytes = held.unsent_bytes;
        if sent_bytes > 0 {
            self.sent_bytes = held.sent_bytes;
            let sent_bytes = usize::try_from(sent_bytes).unwrap_or(usize::MAX);
            self.owed_bytes = self.owed_bytes.saturating_sub(sent_bytes);
        }
        let has_moved = sent_bytes > 0 && self.owed_bytes == 0;
        if held.waits_for_memory != self.waits_for_memory {
            self.note_waiting(held.waits_for_memory);
        }
        let present_bytes = held.all_bytes - held.expected_bytes;
        if held.charged_bytes != self.charged_bytes
            || held.all_bytes != self.held_bytes
            || present_bytes != self.present_bytes
            || (has_moved && self.holder.is_some())
        {
            self.note_movement(present_bytes, now_ns);
            self.change_to(held.charged_bytes, held.all_bytes, now_ns);
        }
    }

    #[cold]
    fn note_waiting(&mut self, waits_for_memory: bool) {
        self.waits_for_memory = waits_for_memory;
        if let Some(holder) = &self.holder {
            (holder.waits_for_memory).store(waits_for_memory, Ordering::Relaxed);
        }
    }

    fn change_to(&mut self, charged_bytes: usize, held_bytes: usize, now_ns: u64) {
        replace(&self.account.charged, self.charged_bytes, charged_bytes);
        self.address.replace(self.held_bytes, held_bytes);
        if let Some((_, identity)) = &self.identity {
            identity.replace(self.held_bytes, held_bytes);
        }
        (self.charged_bytes, self.held_bytes) = (charged_bytes, held_bytes);
        self.show();
        self.relieve(now_ns);
    }

    /// A connection moves when a share of what it holds has come or gone: a byte a minute is no
    /// movement, nor is what is only charged beforehand.
    fn note_movement(&mut self, present_bytes: usize, now_ns: u64) {
        let before_bytes = std::mem::replace(&mut self.present_bytes, present_bytes);
        let moved_bytes = before_bytes.abs_diff(present_bytes);
        self.owed_bytes = self.owed_bytes.saturating_sub(moved_bytes);
        if self.owed_bytes == 0 || before_bytes == 0 {
            self.moved_ns = now_ns;
            self.owed_bytes = present_bytes.div_ceil(wire::limits::PROGRESS_SHARE);
            // A verdict that its loop has not carried out is about what it was then: later it would
            // end a connection that moves.
            if let Some(holder) = &self.holder {
                holder.is_condemned.store(false, Ordering::Relaxed);
            }
        }
    }

    /// Notes whose call begins on the connection; `None`: nobody's that is counted. What it holds
    /// is that of a token from the first call on that has one, and that of another caller only when
    /// it holds little and no call runs (`is_idle`): so nobody can have others answer for what they
    /// hold.
    #[inline]
    pub fn note_caller(&mut self, caller: Option<CountedCaller>, is_idle: bool) {
        let known = self.identity.as_ref().map(|(known, _)| *known);
        if known != caller {
            self.note_other_caller(known, caller, is_idle);
        }
    }

    #[cold]
    fn note_other_caller(
        &mut self,
        known: Option<CountedCaller>,
        caller: Option<CountedCaller>,
        is_idle: bool,
    ) {
        let has_token = |caller: Option<CountedCaller>| caller.is_some_and(|one| one.has_token);
        let is_first = known.is_none() || (has_token(caller) && !has_token(known));
        if is_first || (is_idle && self.is_small()) {
            self.set_identity(caller);
        }
    }

    fn set_identity(&mut self, caller: Option<CountedCaller>) {
        if let Some((_, before)) = self.identity.take() {
            before.replace(self.held_bytes, 0);
        }
        self.identity = caller.map(|caller| {
            let holding = lock(&self.account.parties).open(Party::Identity(caller.key));
            holding.replace(0, self.held_bytes);
            (caller, holding)
        });
        // Those who relieve the account see it anew.
        self.hide();
        self.show();
    }

    /// Returns whose calls the connection has, if that is counted.
    #[inline]
    pub fn counted_key(&self) -> Option<IdentityKey> {
        self.identity.as_ref().map(|(caller, _)| caller.key)
    }

    /// Returns what all connections of the token hold whose calls it has, in bytes.
    pub fn identity_bytes(&self) -> usize {
        (self.identity.as_ref()).map_or(0, |(_, identity)| identity.bytes())
    }

    /// Names the connection among those of the server, of all loops.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Lets those see it who relieve the account, if they do not and should by now.
    pub fn show_if_hidden(&mut self) {
        if self.holder.is_none() {
            self.show();
        }
    }

    /// Lets those see it who relieve the account, if it holds more than a little: while half of the
    /// account is used, also if that is not much.
    fn show(&mut self) {
        let is_enough = self.held_bytes >= limits::RELIEVED_FROM_BYTES;
        let may_be_ended = is_enough && self.account.is_half_used();
        if self.is_small() && !may_be_ended {
            return self.hide();
        }
        let holder = self.holder.get_or_insert_with(|| {
            let holder = Arc::new(MemoryHolder {
                held_bytes: AtomicUsize::new(0),
                moved_ns: AtomicU64::new(0),
                waits_for_memory: AtomicBool::new(self.waits_for_memory),
                is_condemned: AtomicBool::new(false),
                address: Arc::clone(&self.address),
                identity: (self.identity.as_ref()).map(|(_, identity)| Arc::clone(identity)),
                wake: self.wake.clone(),
            });
            lock(&self.account.holders).push(Arc::clone(&holder));
            holder
        });
        holder.held_bytes.store(self.held_bytes, Ordering::Relaxed);
        holder.moved_ns.store(self.moved_ns, Ordering::Relaxed);
    }

    fn hide(&mut self) {
        if let Some(holder) = self.holder.take() {
            let mut holders = lock(&self.account.holders);
            if let Some(at) = holders.iter().position(|other| Arc::ptr_eq(other, &holder)) {
                holders.swap_remove(at);
            }
        }
    }

    /// What waits to be sent, or is set aside for it, as it was last told.
    #[inline]
    pub fn unsent_bytes(&self) -> usize {
        self.unsent_bytes
    }

    /// Whether it holds so little that it goes on when the account is full.
    pub fn is_small(&self) -> bool {
        self.held_bytes < limits::SMALL_HOLDING_BYTES
    }

    /// Whether its peer has sent so much that is not ended that it sends no more while the account
    /// is overfull.
    pub fn has_sent_much(&self) -> bool {
        self.held_bytes.saturating_sub(self.unsent_bytes) >= limits::SMALL_HOLDING_BYTES
    }

    /// What is to be held back of what would be produced for this peer. What it has sent and has
    /// not ended counts for nothing here: that ends only if its calls go on.
    pub fn pause(&self) -> Pause {
        if !(self.account.is_full() || self.large_party().is_some()) {
            Pause::No
        } else if self.unsent_bytes < limits::SMALL_HOLDING_BYTES {
            Pause::Large
        } else {
            Pause::All
        }
    }

    /// Returns whose connections, this one among them, take most of an account of which half is
    /// used: those of its token, or of its address.
    fn large_party(&self) -> Option<&Arc<PartyHolding>> {
        if !self.account.is_half_used() {
            return None;
        }
        let half = self.account.limit_bytes / 2;
        let identity = self.identity.as_ref().map(|(_, identity)| identity);
        let mut parties = identity.into_iter().chain([&self.address]);
        parties.find(|party| party.bytes() > half)
    }

    /// Whether the connection is to be ended, to relieve the account.
    pub fn is_condemned(&self) -> bool {
        let holder = self.holder.as_ref();
        holder.is_some_and(|holder| holder.is_condemned.load(Ordering::Relaxed))
    }

    /// Returns whether the connection is to be ended, to relieve the account. The caller ends it
    /// then; it is counted once.
    pub fn evict_if_condemned(&mut self) -> bool {
        if !self.is_condemned() {
            return false;
        }
        if !std::mem::replace(&mut self.is_evicted, true) {
            self.account.evicted.fetch_add(1, Ordering::Relaxed);
        }
        true
    }

    /// When its peer last took some of what waited to be sent, or that began to wait.
    pub fn taken_ns(&self) -> u64 {
        self.taken_ns
    }

    /// Looks whether the account is to be relieved, for the sake of this connection: one that only
    /// waits for its own peer to read needs nothing, and ends nobody, itself least of all.
    pub fn relieve(&self, now_ns: u64) {
        let account = &self.account;
        if account.is_full() && !self.waits_for_its_peer(now_ns) {
            account.relieve(now_ns, None, |holders| account.is_full_of_small(holders));
        }
    }

    /// Looks whether others are to be ended although the account is not full, since a large message
    /// of this connection that lacks so many bytes has waited for memory for
    /// [`limits::STARVED_MS`]. Where its token or its address holds too much, those of that.
    pub fn relieve_starved(&self, lacked_bytes: usize, now_ns: u64) {
        let account = &self.account;
        let of_party = match account.is_full() {
            true => None,
            false => self.large_party(),
        };
        if of_party.is_some() || account.left_for_messages() < lacked_bytes {
            account.relieve(now_ns, of_party, |_| true);
        }
    }

    fn waits_for_its_peer(&self, now_ns: u64) -> bool {
        self.unsent_bytes >= limits::SMALL_HOLDING_BYTES
            && stands_still(self.moved_ns, limits::STALLED_MS, now_ns)
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.looks.end(&self.account.looks);
        if self.idle.is_some() {
            self.account.idle.remove(self.number);
        }
        replace(&self.account.charged, self.charged_bytes, 0);
        self.address.replace(self.held_bytes, 0);
        if let Some((_, identity)) = &self.identity {
            identity.replace(self.held_bytes, 0);
        }
        self.hide();
    }
}

/// Takes a part of a sum from `before` to `after`.
fn replace(sum: &AtomicUsize, before: usize, after: usize) {
    if after >= before {
        sum.fetch_add(after - before, Ordering::Relaxed);
    } else {
        sum.fetch_sub(before - after, Ordering::Relaxed);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Whole entries are put in and taken out: sound whoever panicked.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use service::identities::{Identities, TokenKey};
    use service::rights::Rights;
    use wire::BodyCharge;

    const MB: usize = 1 << 20;
    const SECOND_NS: u64 = 1_000_000_000;

    fn holding(account: &Arc<Account>, node: u32) -> Holding {
        account.open(&PeerAddress::Simulated(node), &waker())
    }

    fn gathered(bytes: usize) -> HeldBytes {
        HeldBytes {
            unsent_bytes: 0,
            ..HeldBytes::unsent(bytes)
        }
    }

    /// As much as is given back at a time, to the byte: nobody more is ended.
    #[test]
    fn no_more_are_ended_at_a_time_than_give_back_enough() {
        for (first_bytes, ended) in [
            (limits::RELIEVED_AT_ONCE_BYTES, [true, false]),
            (limits::RELIEVED_AT_ONCE_BYTES - 1, [true, true]),
        ] {
            let account = Account::new(MB + MB / 2);
            let mut many = [1, 2].map(|node| holding(&account, node));
            many[0].change(HeldBytes::unsent(first_bytes), 1);
            many[1].change(HeldBytes::unsent(first_bytes - 2), 1);
            holding(&account, 9).relieve(1 + limits::STALLED_MS * 1_000_000);
            assert_eq!(many.each_ref().map(Holding::is_condemned), ended);
        }
    }

    /// Half messages too small for any of them to matter, each kept alive by a byte now and then,
    /// fill no account for long.
    #[test]
    fn small_ones_that_do_not_move_are_ended_where_they_fill_the_account() {
        let account = Account::new(8 * MB);
        let mut many: Vec<_> = (0..300).map(|node| holding(&account, node % 20)).collect();
        for one in &mut many {
            one.change(gathered(40_000), 1);
        }
        assert!(account.is_full());
        let condemned = |many: &[Holding]| many.iter().filter(|one| one.is_condemned()).count();
        let mut now_ns = limits::STALLED_MS * 1_000_000;
        for one in &mut many {
            one.change(gathered(40_001), now_ns);
        }
        assert_eq!(condemned(&many), 0, "it is not long enough");
        for round in 1..100 {
            now_ns += limits::RELIEVE_MS * 1_000_000;
            let moves = many.len() - 1;
            many[moves].change(gathered(40_001 + round * 100), now_ns);
            let other = holding(&account, 99);
            other.relieve(now_ns);
            assert!(condemned(&many) <= limits::RELIEVED_AT_ONCE_BYTES / 40_000 + 1);
            many.retain(|one| !one.is_condemned());
        }
        assert!(!account.is_full(), "{}", account.charged_bytes());
        assert!(many.len() > 150, "no more than is needed: {}", many.len());
    }

    #[test]
    fn small_ones_stay_where_others_fill_the_account() {
        let account = Account::new(8 * MB);
        let mut large = holding(&account, 1);
        large.change(gathered(9 * MB), 1);
        let mut small: Vec<_> = (2..50).map(|node| holding(&account, node)).collect();
        for round in 0..10_usize {
            let now_ns = 2 + round as u64 * SECOND_NS;
            large.change(gathered(9 * MB + round % 2 * MB), now_ns);
            for one in &mut small {
                one.change(gathered(40_000 + round), now_ns);
            }
            assert!(small.iter().all(|one| !one.is_condemned()), "{round}");
        }
    }

    /// Otherwise messages whose responses nobody takes would follow each other without an end.
    #[test]
    fn messages_come_beyond_the_limit_until_too_much_is_held_beyond_it() {
        let account = Account::new(8 * MB);
        let mut others = holding(&account, 1);
        let overfull = 9 * MB;
        for _ in 0..2 {
            for (bytes, plain, compressed) in [
                (overfull, true, true),
                (overfull + 1, true, false),
                (overfull + limits::OVERDRAWN_BYTES, true, false),
                (overfull + limits::OVERDRAWN_BYTES + 1, false, false),
            ] {
                others.change(HeldBytes::unsent(bytes), 0);
                assert_eq!(account.try_overdraft(true), compressed, "{bytes}");
                assert!(
                    !compressed || !account.try_overdraft(false),
                    "one at a time"
                );
                account.end_overdraft();
                assert_eq!(account.try_overdraft(false), plain, "{bytes}");
                account.end_overdraft();
            }
        }
    }

    /// A turn that a message is given, and that lapses, moves nothing; what comes in it does.
    #[test]
    fn what_is_charged_beforehand_is_no_movement() {
        let account = Account::new(8 * MB);
        let mut now_ns = 1;
        for _ in 0..2 {
            let (mut idle, mut sends) = (holding(&account, 1), holding(&account, 2));
            let expecting = |here: usize, expected_bytes: usize| HeldBytes {
                expected_bytes,
                ..gathered(here + expected_bytes)
            };
            for step in 0..5 {
                idle.change(expecting(5 * MB, step % 2 * MB), now_ns);
                sends.change(
                    expecting(2 * MB + step * MB / 2, 2 * MB - step * MB / 2),
                    now_ns,
                );
                now_ns += SECOND_NS / 2;
            }
            holding(&account, 3).relieve(now_ns);
            assert!(idle.is_condemned() && !sends.is_condemned());
            drop((idle, sends));
            assert_eq!(account.charged_bytes(), 0);
        }
    }

    /// While the account is not full, but large messages find no memory.
    #[test]
    fn who_holds_most_and_moves_least_is_ended_for_a_message_that_waits() {
        let account = Account::new(8 * MB);
        let stalled_ns = limits::STALLED_MS * 1_000_000;
        let mut now_ns = 1;
        for _ in 0..2 {
            // Two MB for a long time weigh more than three for a short one.
            let mut many = [2, 3, 1].map(|_| holding(&account, 1));
            many[0].change(gathered(2 * MB), now_ns);
            many[1].change(gathered(3 * MB), now_ns + stalled_ns);
            many[2].change(gathered(MB), now_ns + stalled_ns);
            let condemned = |many: &[Holding; 3]| many.each_ref().map(Holding::is_condemned);
            let waits = holding(&account, 2);
            now_ns += 2 * stalled_ns;
            waits.relieve(now_ns);
            waits.relieve_starved(account.left_for_messages(), now_ns);
            assert_eq!(condemned(&many), [false; 3], "there is memory");
            assert!(!account.is_full());
            for expected in [
                [true, false, false],
                [true, true, false],
                [true, true, true],
            ] {
                waits.relieve_starved(300_000, now_ns);
                waits.relieve_starved(300_000, now_ns);
                assert_eq!(condemned(&many), expected);
                now_ns += limits::RELIEVE_MS * 1_000_000;
            }
            drop(many);
            assert_eq!(account.charged_bytes(), 0);
            assert!(lock(&account.holders).is_empty());
        }
    }

    #[test]
    fn small_ones_that_came_early_are_ended_too_for_a_message_that_waits() {
        let account = Account::new(8 * MB);
        let mut now_ns = 1;
        for _ in 0..2 {
            let mut many: Vec<_> = (0..160).map(|_| holding(&account, 1)).collect();
            for one in &mut many {
                one.change(gathered(40_000), now_ns);
            }
            assert!(!account.is_full());
            let waits = holding(&account, 2);
            now_ns += limits::STALLED_MS * 1_000_000;
            while account.left_for_messages() < MB {
                waits.relieve_starved(MB, now_ns);
                let before = many.len();
                many.retain(|one| !one.is_condemned());
                let ended = before - many.len();
                assert!((1..=27).contains(&ended), "{ended} at a time");
                now_ns += limits::RELIEVE_MS * 1_000_000;
            }
            waits.relieve_starved(MB, now_ns);
            assert!(many.len() > 100 && !many.iter().any(Holding::is_condemned));
        }
    }

    /// An address that holds too much is shut out by its own, and that is ended.
    #[test]
    fn where_an_address_holds_too_much_its_own_are_ended() {
        let account = Account::new(8 * MB);
        let mut now_ns = 1;
        for _ in 0..2 {
            let mut many = [1, 1, 2].map(|node| holding(&account, node));
            for (one, bytes) in many.iter_mut().zip([3 * MB, 2 * MB, 5 * MB / 2]) {
                one.change(gathered(bytes), now_ns);
            }
            let (inside, outside) = (holding(&account, 1), holding(&account, 2));
            now_ns += limits::STALLED_MS * 1_000_000;
            let condemned = |many: &[Holding; 3]| many.each_ref().map(Holding::is_condemned);
            inside.relieve_starved(1, now_ns);
            assert_eq!(condemned(&many), [true, false, false]);
            now_ns += limits::RELIEVE_MS * 1_000_000;
            inside.relieve_starved(1, now_ns);
            assert_eq!(condemned(&many), [true, true, false], "not that of another");
            now_ns += limits::RELIEVE_MS * 1_000_000;
            outside.relieve_starved(1, now_ns);
            assert_eq!(condemned(&many), [true; 3]);
        }
    }

    #[test]
    fn addresses_are_swept_seldom_however_many_have_connections() {
        let account = Account::new(8 * MB);
        let known = || lock(&account.parties).len();
        let count = 10 * limits::KEPT_PARTIES as u32;
        for round in 0..2 {
            let (mut open, mut sweeps) = (Vec::new(), Vec::new());
            for node in 0..count {
                open.push(holding(&account, node));
                sweeps.push(lock(&account.parties).swept_above());
            }
            sweeps.dedup();
            assert!(sweeps.len() <= 8, "round {round}: {sweeps:?}");
            assert_eq!(known(), count as usize);
            drop(open);
            // The addresses of those who have gone do not stay.
            for node in 0..2 * count {
                drop(holding(&account, count + node));
                assert!(known() <= 2 * count as usize);
            }
            for node in 0..count {
                drop(holding(&account, node));
            }
            assert!(known() <= 2 * limits::KEPT_PARTIES, "{}", known());
        }
    }

    /// A peer that takes what it is sent moves, although as much comes as goes.
    #[test]
    fn what_is_sent_is_movement() {
        let account = Account::new(8 * MB);
        let (mut reads, mut rests) = (holding(&account, 1), holding(&account, 2));
        for (at, holding) in [&mut reads, &mut rests].into_iter().enumerate() {
            holding.change(HeldBytes::unsent((6 - at) * MB), SECOND_NS);
        }
        for round in 1..=8 {
            let held = HeldBytes {
                sent_bytes: round * MB as u64,
                ..HeldBytes::unsent(6 * MB)
            };
            reads.change(held, SECOND_NS + round * SECOND_NS / 4);
        }
        let now_ns = 4 * SECOND_NS;
        reads.relieve(now_ns);
        assert_eq!((reads.is_condemned(), rests.is_condemned()), (false, true));
    }

    #[test]
    fn what_a_peer_has_sent_does_not_pause_what_it_is_sent() {
        let account = Account::new(8 * MB);
        let mut sender = holding(&account, 1);
        let held = HeldBytes {
            unsent_bytes: 10,
            ..HeldBytes::unsent(9 * MB)
        };
        sender.change(held, 0);
        assert_eq!((sender.pause(), sender.is_small()), (Pause::Large, false));
        assert!(account.is_full());
    }

    /// Those who hold little are in nobody's way: they are not among those who may be ended.
    #[test]
    fn who_holds_little_is_not_shown_while_less_than_half_is_used() {
        let account = Account::new(8 * MB);
        let mut one = holding(&account, 1);
        let least = limits::SMALL_HOLDING_BYTES;
        for _ in 0..2 {
            for (bytes, is_small) in [(1, true), (least - 1, true), (least, false), (MB, false)] {
                one.change(gathered(bytes), 0);
                assert_eq!(one.is_small(), is_small, "{bytes}");
                let shown = lock(&account.holders).len();
                assert_eq!(shown, usize::from(!is_small), "{bytes}");
            }
            one.change(HeldBytes::default(), 0);
            assert!(one.is_small() && lock(&account.holders).is_empty());
        }
    }

    fn waker() -> SharedWaker {
        Arc::new(|| {})
    }

    #[test]
    fn a_shared_body_is_charged_once_and_given_back_with_its_last_holder() {
        let account = Account::new(MB);
        let (one, other): (Bytes, Bytes) = (vec![0; 1000].into(), vec![0; 10].into());
        for _ in 0..2 {
            let mut charges: Vec<Box<dyn BodyCharge>> =
                (0..20).map(|_| account.charge_shared(&one)).collect();
            charges.push(account.charge_shared(&other));
            assert_eq!(account.charged_bytes(), 1010);
            charges.truncate(1);
            assert_eq!(account.charged_bytes(), 1000);
            charges.clear();
            assert_eq!((account.charged_bytes(), account.shared_bodies()), (0, 0));
        }
    }

    /// Whoever goes last, the sum neither wraps nor keeps anything.
    #[test]
    fn shared_bodies_that_begin_at_one_place_are_charged_each() {
        let account = Account::new(MB);
        let whole: Bytes = vec![0; 1000].into();
        let part = whole.slice(..10);
        for (first, last) in [(&whole, &part), (&part, &whole), (&whole, &part)] {
            let charges = [first, last, first].map(|body| account.charge_shared(body));
            assert_eq!(
                (account.charged_bytes(), account.shared_bodies()),
                (1010, 2)
            );
            let [one, other, again] = charges;
            drop((one, again));
            assert_eq!(account.charged_bytes(), last.len());
            drop(other);
            assert_eq!((account.charged_bytes(), account.shared_bodies()), (0, 0));
        }
    }

    #[test]
    fn threads_that_produce_at_once_take_no_more_than_there_is() {
        let account = Account::new(10 * MB);
        for _ in 0..2 {
            let most = AtomicUsize::new(0);
            std::thread::scope(|scope| {
                for node in 0..16 {
                    let (account, most) = (&account, &most);
                    scope.spawn(move || {
                        let mut holding = holding(account, node);
                        for _ in 0..500 {
                            let Some(claimed) = account.claim(3 * MB) else {
                                std::thread::yield_now();
                                continue;
                            };
                            holding.change(HeldBytes::unsent(3 * MB), 0);
                            account.end_claim(claimed);
                            most.fetch_max(account.charged_bytes(), Ordering::Relaxed);
                            std::thread::yield_now();
                            holding.change(HeldBytes::unsent(0), 0);
                        }
                    });
                }
            });
            // The last one may go beyond.
            assert!(most.into_inner() <= 13 * MB);
            assert_eq!(account.charged_bytes(), 0);
            assert_eq!(account.claimed.bytes(), 0);
        }
    }

    /// Between the look at what is charged and the claim another one comes, is charged, and goes:
    /// the sum of claims is the same as before, and nothing may be claimed by the old look.
    #[test]
    fn a_claim_that_comes_and_goes_meanwhile_is_noticed() {
        let claimed = ClaimedBytes::default();
        for _ in 0..2 {
            let looks = AtomicUsize::new(0);
            let may = |bytes: usize| {
                assert_eq!(bytes, 0);
                let is_first = looks.fetch_add(1, Ordering::Relaxed) == 0;
                if is_first {
                    claimed.add(7);
                    claimed.subtract(7);
                }
                is_first
            };
            assert!(!claimed.add_if(5, may), "the first look is old");
            assert_eq!((looks.into_inner(), claimed.bytes()), (2, 0));
            assert!(claimed.add_if(5, |bytes| bytes == 0));
            claimed.subtract(5);
        }
        // The claims overflow, the bytes do not.
        claimed.0.fetch_add(u64::MAX << 40, Ordering::Relaxed);
        claimed.add(9);
        assert_eq!(claimed.bytes(), 9);
    }

    #[test]
    fn one_call_may_always_claim_and_the_others_what_is_left() {
        let account = Account::new(10 * MB);
        for _ in 0..2 {
            assert_eq!(account.claim(64 * MB), Some(64 * MB));
            assert_eq!(account.claim(1), None);
            assert_eq!(account.claim(0), Some(0));
            account.end_claim(64 * MB);
            assert_eq!(account.claim(6 * MB), Some(6 * MB));
            assert_eq!(account.claim(4 * MB), Some(4 * MB));
            assert_eq!(account.claim(1), None);
            account.end_claim(6 * MB);
            account.end_claim(4 * MB);
        }
    }

    #[test]
    fn a_full_account_stops_large_holders_and_lets_small_ones_go_on() {
        let account = Account::new(8 * MB);
        let (mut large, mut small) = (holding(&account, 1), holding(&account, 2));
        for _ in 0..2 {
            // As much as there may be is not too much.
            small.change(HeldBytes::default(), 0);
            large.change(HeldBytes::unsent(8 * MB), 0);
            assert!(!account.is_full());
            large.change(HeldBytes::unsent(8 * MB + 1), 0);
            assert!(account.is_full());
            large.change(HeldBytes::unsent(9 * MB), 0);
            small.change(HeldBytes::unsent(10), 0);
            assert_eq!((large.pause(), small.pause()), (Pause::All, Pause::Large));
            small.change(HeldBytes::unsent(MB / 8), 0);
            assert_eq!(small.pause(), Pause::All);
            large.change(HeldBytes::unsent(MB), 0);
            assert_eq!((large.pause(), small.pause()), (Pause::No, Pause::No));
        }
        drop((large, small));
        assert_eq!(account.charged_bytes(), 0);
    }

    #[test]
    fn an_address_with_most_of_a_half_used_account_waits_and_others_do_not() {
        let account = Account::new(8 * MB);
        let mut two = holding(&account, 1);
        let mut other = holding(&account, 2);
        two.change(HeldBytes::unsent(2 * MB), 0);
        for _ in 0..2 {
            let mut one = holding(&account, 1);
            one.change(HeldBytes::unsent(3 * MB), 0);
            other.change(HeldBytes::unsent(MB), 0);
            let pauses = [&one, &two, &other].map(Holding::pause);
            assert_eq!(pauses, [Pause::All, Pause::All, Pause::No]);
            drop(one);
            // Others use that half now, and the address no longer has what its connection had.
            other.change(HeldBytes::unsent(5 * MB), 0);
            assert_eq!((two.pause(), other.pause()), (Pause::No, Pause::All));
        }
    }

    /// Somebody with a token, and without one: two of each.
    fn callers() -> [CountedCaller; 4] {
        let key = TokenKey::new(&[1; 32]);
        let table = Identities::new(key, vec![Rights::default(); 4]).table();
        [0, 1, 2, 3].map(|number| CountedCaller {
            key: table.of_listener(number),
            has_token: number < 2,
        })
    }

    fn holding_of(account: &Arc<Account>, node: u32, caller: CountedCaller) -> Holding {
        let mut holding = holding(account, node);
        holding.note_caller(Some(caller), true);
        holding
    }

    #[test]
    fn a_token_with_most_of_a_half_used_account_waits_wherever_it_calls_from() {
        let account = Account::new(8 * MB);
        let [greedy, honest, ..] = callers();
        for _ in 0..2 {
            let mut many: Vec<_> = (0..5)
                .map(|node| holding_of(&account, node, greedy))
                .collect();
            let mut other = holding_of(&account, 0, honest);
            let mut not_counted = holding(&account, 99);
            other.change(HeldBytes::unsent(MB / 2), 0);
            not_counted.change(HeldBytes::unsent(MB / 2), 0);
            for one in &mut many {
                one.change(HeldBytes::unsent(MB), 0);
            }
            assert!(!account.is_full() && account.is_half_used());
            assert!(many.iter().all(|one| one.pause() == Pause::All));
            assert_eq!((other.pause(), not_counted.pause()), (Pause::No, Pause::No));
            assert_eq!(many[0].identity_bytes(), 5 * MB);
            // One connection less, and the others go on.
            many.truncate(4);
            assert!(many.iter().all(|one| one.pause() == Pause::No));
            drop((many, other, not_counted));
            assert_eq!(account.charged_bytes(), 0);
        }
    }

    /// They have not changed since there was enough for all.
    #[test]
    fn those_that_held_little_while_there_was_enough_are_looked_for() {
        let account = Account::new(8 * MB);
        let stalled_ns = limits::STALLED_MS * 1_000_000;
        let mut now_ns = 1;
        for _ in 0..2 {
            let bytes = limits::RELIEVED_FROM_BYTES;
            let count = 6 * MB / bytes;
            let mut many: Vec<_> = (0..count).map(|_| holding(&account, 1)).collect();
            for one in &mut many {
                one.change(gathered(bytes), now_ns);
            }
            let verdicts = account.verdicts();
            now_ns += stalled_ns;
            holding(&account, 2).relieve_starved(3 * MB, now_ns);
            assert!(account.verdicts() > verdicts, "loops look at theirs");
            many.iter_mut().for_each(Holding::show_if_hidden);
            for _ in 0..6 * MB / limits::RELIEVED_AT_ONCE_BYTES {
                now_ns += limits::RELIEVE_MS * 1_000_000;
                holding(&account, 2).relieve_starved(3 * MB, now_ns);
            }
            assert!(many.iter().all(Holding::is_condemned));
            drop(many);
            now_ns += SECOND_NS;
        }
    }

    /// Though each of its connections holds less than that of another one.
    #[test]
    fn connections_of_the_token_that_holds_most_and_moves_least_go_first() {
        let account = Account::new(8 * MB);
        let [greedy, honest, ..] = callers();
        let mut now_ns = 1;
        for _ in 0..2 {
            let mut many: Vec<_> = (0..7)
                .map(|node| holding_of(&account, node, greedy))
                .collect();
            let mut large = holding_of(&account, 20, honest);
            let mut not_counted = holding(&account, 21);
            for one in &mut many {
                one.change(HeldBytes::unsent(MB * 3 / 4), now_ns);
            }
            large.change(HeldBytes::unsent(2 * MB), now_ns);
            not_counted.change(HeldBytes::unsent(2 * MB), now_ns);
            now_ns += limits::STALLED_MS * 1_000_000;
            holding(&account, 30).relieve(now_ns);
            assert!(many.iter().any(Holding::is_condemned));
            assert!(!large.is_condemned() && !not_counted.is_condemned());
            // When less is left of them, others that do not move go, too.
            many.truncate(1);
            large.change(HeldBytes::unsent(9 * MB), now_ns);
            now_ns += limits::STALLED_MS * 1_000_000;
            holding(&account, 30).relieve(now_ns);
            assert!(large.is_condemned() && !not_counted.is_condemned());
            now_ns += SECOND_NS;
        }
    }

    /// Nobody has others answer for what they hold.
    #[test]
    fn what_a_connection_holds_is_that_of_whose_calls_it_has() {
        let account = Account::new(8 * MB);
        let [one, other, anonymous, elsewhere] = callers();
        let bytes = |caller: CountedCaller| {
            let party = lock(&account.parties).open(Party::Identity(caller.key));
            party.bytes()
        };
        for _ in 0..2 {
            let mut holding = holding(&account, 1);
            holding.change(HeldBytes::unsent(MB), 0);
            holding.note_caller(Some(anonymous), false);
            assert_eq!(bytes(anonymous), MB, "also what it held before");
            // A token takes over from none, and nothing else does while it holds much.
            holding.note_caller(Some(one), false);
            for caller in [Some(other), Some(anonymous), None] {
                for is_idle in [false, true] {
                    holding.note_caller(caller, is_idle);
                    assert_eq!([one, other, anonymous].map(bytes), [MB, 0, 0]);
                }
            }
            holding.change(HeldBytes::unsent(limits::SMALL_HOLDING_BYTES - 1), 0);
            holding.note_caller(Some(other), false);
            assert_eq!(holding.counted_key(), Some(one.key), "a call runs");
            for caller in [other, elsewhere, anonymous] {
                holding.note_caller(Some(caller), true);
                assert_eq!(holding.counted_key(), Some(caller.key));
                assert_eq!(bytes(caller), limits::SMALL_HOLDING_BYTES - 1);
            }
            holding.note_caller(None, true);
            assert_eq!([one, other, anonymous, elsewhere].map(bytes), [0; 4]);
            holding.note_caller(Some(one), true);
            assert!(bytes(one) > 0);
            drop(holding);
            assert_eq!((bytes(one), account.charged_bytes()), (0, 0));
            assert!(lock(&account.holders).is_empty());
        }
    }

    /// One with little to send needs memory for what it asks for next; one that does not read its
    /// much needs none.
    #[test]
    fn whoever_waits_for_its_own_peer_with_much_ends_nobody() {
        let account = Account::new(8 * MB);
        let stalled_ns = limits::STALLED_MS * 1_000_000;
        let mut now_ns = 1;
        for _ in 0..2 {
            for (bytes, ends_others) in [
                (limits::SMALL_HOLDING_BYTES, false),
                (limits::SMALL_HOLDING_BYTES - 1, true),
            ] {
                let (mut large, mut asks) = (holding(&account, 1), holding(&account, 2));
                large.change(HeldBytes::unsent(9 * MB), now_ns);
                asks.change(HeldBytes::unsent(bytes), now_ns);
                now_ns += stalled_ns;
                asks.relieve(now_ns);
                assert_eq!(large.is_condemned(), ends_others, "{bytes}");
                now_ns += stalled_ns;
            }
        }
    }

    #[test]
    fn the_largest_holder_that_does_not_move_is_ended_one_after_the_other() {
        let account = Account::new(8 * MB);
        let mut holdings: Vec<_> = (0..3).map(|node| holding(&account, node)).collect();
        for (holding, mb) in holdings.iter_mut().zip([5, 3, 4]) {
            holding.change(HeldBytes::unsent(mb * MB), 1);
        }
        let condemned = |holdings: &[Holding]| -> Vec<bool> {
            holdings.iter().map(Holding::is_condemned).collect()
        };
        assert_eq!(condemned(&holdings), [false; 3], "all have just moved");
        let now_ns = 1 + limits::STALLED_MS * 1_000_000;
        // The largest moves on; a single byte would be no movement.
        holdings[0].change(HeldBytes::unsent(4 * MB), now_ns);
        holdings[1].change(HeldBytes::unsent(3 * MB - 1), now_ns);
        assert_eq!(condemned(&holdings), [false, false, true]);
        holdings[0].relieve(now_ns + SECOND_NS / 100);
        assert_eq!(
            condemned(&holdings),
            [false, false, true],
            "time to go first"
        );
        holdings[0].relieve(now_ns + limits::RELIEVE_MS * 1_000_000);
        assert_eq!(condemned(&holdings), [false, true, true]);
        holdings.clear();
        assert_eq!(account.charged_bytes(), 0);
        assert!(lock(&account.holders).is_empty());
    }

    /// A client alone that takes its time over what it was sent stays; it goes when another needs
    /// the memory.
    #[test]
    fn a_slow_reader_is_ended_only_for_another() {
        let account = Account::new(8 * MB);
        let mut now_ns = 1;
        for _ in 0..2 {
            let mut slow = [holding(&account, 1), holding(&account, 2)];
            for holding in &mut slow {
                holding.change(HeldBytes::unsent(5 * MB), now_ns);
            }
            now_ns += 2 * limits::STALLED_MS * 1_000_000;
            // It says something, and is still not reading.
            slow[0].change(HeldBytes::unsent(5 * MB - 1), now_ns);
            slow[1].relieve(now_ns);
            assert!(account.is_full() && !slow.iter().any(Holding::is_condemned));
            // One that sends waits for the server, not for its own peer.
            let mut sender = holding(&account, 3);
            let held = HeldBytes {
                unsent_bytes: 0,
                ..HeldBytes::unsent(MB)
            };
            sender.change(held, now_ns);
            assert!(slow[1].is_condemned() && !slow[0].is_condemned());
            now_ns += SECOND_NS;
            sender.relieve(now_ns + 2 * limits::STALLED_MS * 1_000_000);
            assert!(slow[0].is_condemned());
            now_ns += 3 * limits::STALLED_MS * 1_000_000;
        }
    }

    /// Whose request waits for memory is not ended as if it did not read; but it is, if that lasts.
    #[test]
    fn one_that_waits_for_memory_is_ended_later() {
        let account = Account::new(8 * MB);
        let mut now_ns = 1;
        for _ in 0..2 {
            let mut holdings = [5, 4].map(|_| holding(&account, 1));
            let waits = HeldBytes {
                unsent_bytes: 0,
                waits_for_memory: true,
                ..HeldBytes::unsent(5 * MB)
            };
            holdings[0].change(waits, now_ns);
            holdings[1].change(HeldBytes::unsent(4 * MB), now_ns);
            let condemned =
                |holdings: &[Holding; 2]| holdings.each_ref().map(Holding::is_condemned);
            let other = holding(&account, 2);
            other.relieve(now_ns + limits::STALLED_MS * 1_000_000);
            assert_eq!(condemned(&holdings), [false, true]);
            let last_ns = now_ns + limits::WAITING_STALLED_MS * 1_000_000;
            other.relieve(last_ns - 1);
            assert_eq!(condemned(&holdings), [false, true]);
            // It goes on, and then stands still like any other.
            let goes_on = HeldBytes {
                waits_for_memory: false,
                ..waits
            };
            holdings[0].change(goes_on, last_ns - 1);
            other.relieve(last_ns - 1 + limits::RELIEVE_MS * 1_000_000);
            assert_eq!(condemned(&holdings), [true, true]);
            drop(holdings);
            now_ns = last_ns + SECOND_NS;
            let mut waiting = holding(&account, 1);
            waiting.change(
                HeldBytes {
                    charged_bytes: 9 * MB,
                    ..waits
                },
                now_ns,
            );
            now_ns += limits::WAITING_STALLED_MS * 1_000_000;
            other.relieve(now_ns - 1);
            assert!(!waiting.is_condemned());
            other.relieve(now_ns + limits::RELIEVE_MS * 1_000_000);
            assert!(waiting.is_condemned());
            now_ns += SECOND_NS;
        }
    }

    /// The verdict of one time is not carried out at another.
    #[test]
    fn a_connection_that_moves_again_before_it_is_ended_is_not_ended_later() {
        let account = Account::new(8 * MB);
        let stalled_ns = limits::STALLED_MS * 1_000_000;
        let (mut one, mut other) = (holding(&account, 1), holding(&account, 2));
        let mut now_ns = 1;
        for _ in 0..2 {
            one.change(HeldBytes::unsent(6 * MB), now_ns);
            other.change(HeldBytes::unsent(3 * MB), now_ns);
            now_ns += stalled_ns;
            holding(&account, 3).relieve(now_ns);
            assert!(one.is_condemned() && !other.is_condemned());
            // Both move, and the account is full all the while.
            one.change(HeldBytes::unsent(5 * MB), now_ns);
            other.change(HeldBytes::unsent(4 * MB), now_ns);
            assert!(account.is_full());
            assert!(!one.evict_if_condemned() && !other.evict_if_condemned());
            now_ns += stalled_ns;
        }
        assert_eq!(account.evicted.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn an_eviction_is_counted_once_and_when_it_is_carried_out() {
        let account = Account::new(8 * MB);
        let mut now_ns = 1;
        for round in 0..2 {
            let mut large = holding(&account, 1);
            large.change(HeldBytes::unsent(9 * MB), now_ns);
            assert!(!large.evict_if_condemned());
            now_ns += limits::STALLED_MS * 1_000_000;
            holding(&account, 2).relieve(now_ns);
            assert_eq!(account.evicted().load(Ordering::Relaxed), round);
            for _ in 0..2 {
                assert!(large.evict_if_condemned());
                assert_eq!(account.evicted().load(Ordering::Relaxed), round + 1);
            }
        }
    }

    #[test]
    fn addresses_that_are_gone_are_forgotten() {
        let account = Account::new(MB);
        let kept = holding(&account, 0);
        for node in 0..3 * limits::KEPT_PARTIES as u32 {
            drop(holding(&account, node));
        }
        assert!(lock(&account.parties).len() <= limits::KEPT_PARTIES + 1);
        drop(kept);
    }
}
