//! What [`super::protocol`] and [`super::deferral`] are made of, where threads are real.

use std::sync::TryLockError;
pub(super) use std::sync::atomic::{AtomicU32, Ordering, fence};
pub(super) use std::sync::{Arc, Mutex, MutexGuard};

pub(super) use crossbeam_queue::ArrayQueue as SubmissionQueue;

/// Locks. What a thread that panicked has left is used as it is: each state is whole between two
/// steps, and a panic of ours ends the process in the programs that we ship.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Locks as [`lock`] does, unless another thread has locked: `None`.
pub(super) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
