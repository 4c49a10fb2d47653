//! The hash of keys.

use std::hash::Hasher;

use foldhash::SharedSeed;
use foldhash::quality::FoldHasher;

/// Hashes keys with a secret seed, so that nobody outside can choose keys that collide.
///
/// Clones give the same hashes. The hash of a key never leaves the process.
#[derive(Clone, Debug)]
pub struct KeyHasher {
    seed: u64,
    shared: SharedSeed,
}

impl KeyHasher {
    /// A hasher for a seed, which a server draws at random at its start.
    pub fn new(seed: u64) -> KeyHasher {
        // The two seeds must differ, or half of the secret would be known from the other half.
        KeyHasher {
            seed: seed.rotate_left(32) ^ 0x9e37_79b9_7f4a_7c15,
            shared: SharedSeed::from_u64(seed),
        }
    }

    /// The hash of a key. All 64 bits are of use.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> u64 {
        let mut hasher = FoldHasher::with_seed(self.seed, &self.shared);
        hasher.write(key);
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_and_lengths_make_a_difference() {
        let (one, two) = (KeyHasher::new(1), KeyHasher::new(2));
        assert_eq!(one.hash(b"key"), one.clone().hash(b"key"));
        assert_ne!(one.hash(b"key"), two.hash(b"key"));
        assert_ne!(one.hash(b""), one.hash(b"\0"));
        assert_ne!(one.hash(b"\0"), one.hash(b"\0\0"));
    }

    #[test]
    fn middle_bits_are_spread_evenly() {
        let hasher = KeyHasher::new(7);
        let mut counts = [0u32; 256];
        for number in 0..256_000u32 {
            counts[crate::memory::table_of(hasher.hash(format!("key-{number}").as_bytes()))] += 1;
        }
        assert!(
            counts.iter().all(|count| (800..1200).contains(count)),
            "{counts:?}"
        );
    }
}
