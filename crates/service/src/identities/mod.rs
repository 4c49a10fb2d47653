//! Who calls: identities, the tokens and bindings that prove them, and the table by which loops
//! know them.
//!
//! Loops share an [`Identities`], which holds the present [`IdentityTable`]. A change makes another
//! table and wakes the loops; each takes it over at its next turn. See
//! `docs/internals/rights.md`.

mod binding;
mod first_admin;
mod folder_key;
mod identity;
pub(crate) mod record;
mod record_reader;
pub(crate) mod revoked;
pub(crate) mod role;
mod stored;
mod table;
#[cfg(test)]
mod tests;
mod token;
mod unauthenticated;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use store::{DatabaseId, ReadView, Store};

use crate::limits::IDENTITIES_MAX;
use crate::rights::{Right, Rights};

pub use crate::redact::TOKEN_PREFIX;

pub use binding::{Binding, BindingError, UsableBindings};
pub use first_admin::FIRST_ADMIN;
pub use identity::{
    Identity, IdentityError, IssuedToken, NEVER_MS, Proof, TOKENS_PER_IDENTITY_MAX,
};
pub use record::IdentityRecord;
pub use table::{IdentityKey, IdentityTable};
pub use token::{TOKEN_BYTES, Token, TokenHash, TokenKey, is_same_secret};
pub use unauthenticated::{Unauthenticated, ambiguous, unbound};

use stored::IdentitySnapshot;

/// Draws a token of random bytes. `None`: the system has none.
pub type DrawToken = dyn Fn() -> Option<Token> + Send + Sync;

/// Asks a loop for a turn, from any thread.
pub type LoopWaker = dyn Fn() + Send + Sync;

/// The identities of a server, which its loops share.
pub struct Identities {
    key: TokenKey,
    /// Which bindings can be proved where the server listens.
    bindings: UsableBindings,
    /// That of the present table. Loops compare it with theirs, and look no further.
    version: AtomicU64,
    present: Mutex<Present>,
    wakers: Mutex<Vec<Weak<LoopWaker>>>,
    /// Whoever looks into the store for identities: the last one has seen all changes. What came
    /// of it.
    loading: Mutex<Result<usize, IdentitiesError>>,
    /// The last look into the store, of which the next one decodes no more than has changed.
    last_read: Mutex<Arc<IdentitySnapshot>>,
}

struct Present {
    identities: Vec<Arc<Identity>>,
    table: Arc<IdentityTable>,
}

/// Why there can be no such identities.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentitiesError {
    /// There are too many.
    #[error("there are {0} identities, at most {IDENTITIES_MAX} are allowed")]
    TooMany(usize),
    /// Two have the same name.
    #[error("there are two identities named {0:?}")]
    SameName(String),
    /// Two have the same token, or are bound to the same certificate or user.
    #[error("there are two identities with the same token or binding, {0:?} and another one")]
    SameProof(String),
}

impl Identities {
    /// Those of a server without tokens. Who calls through a listener without a token has the
    /// rights given here for that listener, by its index.
    pub fn new(key: TokenKey, listeners: Vec<Rights>) -> Identities {
        let table = IdentityTable::new(key.clone(), listeners);
        Identities {
            key,
            bindings: UsableBindings::ALL,
            version: AtomicU64::new(table.version()),
            present: Mutex::new(Present {
                identities: Vec::new(),
                table: Arc::new(table),
            }),
            wakers: Mutex::default(),
            loading: Mutex::new(Ok(0)),
            last_read: Mutex::default(),
        }
    }

    /// The same of a server where only these bindings can be proved: the others make nobody an
    /// administrator.
    pub fn with_bindings(mut self, bindings: UsableBindings) -> Identities {
        self.bindings = bindings;
        self
    }

    /// Returns whether callers can prove an identity where the server listens now.
    pub(crate) fn is_provable(&self, identity: &Identity) -> bool {
        identity.is_provable(self.bindings)
    }

    /// Returns the key with which tokens are hashed.
    pub fn key(&self) -> &TokenKey {
        &self.key
    }

    /// Returns the version of the present table.
    #[inline]
    pub fn version(&self) -> u64 {
        // Acquire: whoever sees the number finds the table.
        self.version.load(Ordering::Acquire)
    }

    /// Returns the present table.
    pub fn table(&self) -> Arc<IdentityTable> {
        Arc::clone(&self.present().table)
    }

    /// Returns all identities that can be proved, also those that have expired.
    pub fn all(&self) -> Vec<Arc<Identity>> {
        self.present().identities.clone()
    }

    /// Takes over what the store has of identities, after a start or a change. Returns how many
    /// entries make no sense: nobody is let in for them. The calling thread must hold no
    /// [`View`](store::View) of the index.
    ///
    /// # Errors
    /// If two cannot be told apart, which no change leads to. Then nobody is let in.
    pub fn load(&self, store: &Store, now_ms: u64) -> Result<usize, IdentitiesError> {
        let mut last = self.lock_loading();
        last.clone_from(&self.load_in_turn(store, now_ms));
        last.clone()
    }

    /// Does the same, and returns what came of it if it was something else the time before.
    pub fn load_news(&self, store: &Store, now_ms: u64) -> Option<Result<usize, IdentitiesError>> {
        let mut last = self.lock_loading();
        let loaded = self.load_in_turn(store, now_ms);
        let is_news = *last != loaded;
        *last = loaded;
        is_news.then(|| last.clone())
    }

    fn lock_loading(&self) -> MutexGuard<'_, Result<usize, IdentitiesError>> {
        // A whole value takes the place of another: sound whoever panicked.
        self.loading.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The caller has locked `loading`, before the store is looked at.
    fn load_in_turn(&self, store: &Store, now_ms: u64) -> Result<usize, IdentitiesError> {
        let Some(view) = store.view(DatabaseId::IDENTITIES) else {
            return Ok(0);
        };
        let read = self.read(&ReadView::memory(&view));
        drop(view);
        let records = read.stored().records.iter();
        let identities = records.map(|record| Arc::clone(&record.identity));
        let replaced = self.replace_shared(identities.collect(), now_ms);
        if replaced.is_err() {
            self.replace(Vec::new(), now_ms)?;
        }
        replaced.map(|()| read.stored().unreadable)
    }

    /// Returns the identities that a view of their index shows. Decodes what has changed since this
    /// was called last.
    pub(crate) fn read(&self, view: &ReadView<'_>) -> Arc<IdentitySnapshot> {
        let earlier = Arc::clone(&self.lock_last_read());
        let read = Arc::new(IdentitySnapshot::read_after(&earlier, view));
        *self.lock_last_read() = Arc::clone(&read);
        read
    }

    fn lock_last_read(&self) -> MutexGuard<'_, Arc<IdentitySnapshot>> {
        // A whole value takes the place of another: sound whoever panicked.
        self.last_read
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes another table of these identities, and has the loops take it over.
    ///
    /// # Errors
    /// If there are too many of them, or two cannot be told apart. Then nothing changes.
    pub fn replace(&self, identities: Vec<Identity>, now_ms: u64) -> Result<(), IdentitiesError> {
        self.replace_shared(identities.into_iter().map(Arc::new).collect(), now_ms)
    }

    fn replace_shared(
        &self,
        identities: Vec<Arc<Identity>>,
        now_ms: u64,
    ) -> Result<(), IdentitiesError> {
        check(&identities)?;
        let mut present = self.present();
        present.identities = identities;
        self.renew(present, now_ms);
        Ok(())
    }

    /// Returns whether callers without a token have a right on the whole server, through one of the
    /// listeners.
    pub fn is_open_for(&self, right: Right) -> bool {
        self.present().table.is_open_for(right)
    }

    /// Makes another table if a token has expired by now. Returns whether one had.
    pub fn expire(&self, now_ms: u64) -> bool {
        let present = self.present();
        let has_expired = present.table.next_expiry_ms() <= now_ms;
        if has_expired {
            self.renew(present, now_ms);
        }
        has_expired
    }

    /// Has the loops look anew whom the certificates of their connections prove, as an authority is
    /// not trusted any more.
    pub fn check_certificates(&self, now_ms: u64) {
        let present = self.present();
        let table = present.table.next(&present.identities, now_ms);
        self.publish(present, table.with_certificate_check());
    }

    fn renew(&self, present: MutexGuard<'_, Present>, now_ms: u64) {
        let table = present.table.next(&present.identities, now_ms);
        self.publish(present, table);
    }

    fn publish(&self, mut present: MutexGuard<'_, Present>, table: IdentityTable) {
        self.version.store(table.version(), Ordering::Release);
        present.table = Arc::new(table);
        drop(present);
        let wakers = self.lock_wakers().clone();
        for wake in wakers.iter().filter_map(Weak::upgrade) {
            wake();
        }
    }

    /// Has a loop woken by each change, as long as its waker lives.
    pub fn wake_on_change(&self, waker: &Arc<LoopWaker>) {
        let mut wakers = self.lock_wakers();
        if wakers.len() == wakers.capacity() {
            // Those of threads that have ended; what grows afterwards grows by half or more.
            wakers.retain(|waker| waker.strong_count() > 0);
        }
        wakers.push(Arc::downgrade(waker));
    }

    fn present(&self) -> MutexGuard<'_, Present> {
        // Whole values take each other's place: sound whoever panicked.
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_wakers(&self) -> MutexGuard<'_, Vec<Weak<LoopWaker>>> {
        self.wakers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Identities {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = self.version();
        write!(formatter, "Identities(version {version})")
    }
}

/// Looks whether there can be all of these beside each other.
fn check(identities: &[Arc<Identity>]) -> Result<(), IdentitiesError> {
    if identities.len() > IDENTITIES_MAX {
        return Err(IdentitiesError::TooMany(identities.len()));
    }
    let mut names: Vec<&str> = identities.iter().map(|identity| identity.name()).collect();
    names.sort_unstable();
    if let Some(two) = names.windows(2).find(|two| two[0] == two[1]) {
        return Err(IdentitiesError::SameName(two[0].to_owned()));
    }
    let proofs = identities
        .iter()
        .flat_map(|identity| (identity.proofs()).map(|(proof, _)| (proof, identity.name())));
    let mut proofs: Vec<(Proof, &str)> = proofs.collect();
    proofs.sort_unstable();
    match proofs.windows(2).find(|two| two[0].0 == two[1].0) {
        Some(two) => Err(IdentitiesError::SameProof(two[0].1.to_owned())),
        None => Ok(()),
    }
}
