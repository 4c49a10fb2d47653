//! Random numbers that need not be secret.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

/// Draws a number. The standard library's hasher is seeded by the system; what it makes of nothing
/// is as random.
pub fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
