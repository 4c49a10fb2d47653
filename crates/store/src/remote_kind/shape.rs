//! What a database on an engine elsewhere promises, and how its keys are divided.

use std::fmt;

use xxhash_rust::xxh3::xxh3_64;

use super::limits;

/// What is promised of the writes and reads of a database. Chosen when it is made, for all of it:
/// plain writes beside conditional ones on the same keys would take the promise of the latter away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RemotePromise {
    /// Each request on one bucket takes effect at one moment between its start and its answer.
    /// Conditions, versions, previous values, Append and Increment hold.
    #[default]
    Linearizable,
    /// Unconditional writes and deletes reach a quorum, and of two writes that meet the one with
    /// the later clock stays. What depends on what is there is refused ([`Lack`](super::Lack)).
    Quorum,
}

/// In which order the keys of a database are walked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RemoteOrder {
    /// Bucket by bucket, and by key within a bucket: each key once, in an order that stays.
    #[default]
    Hash,
    /// By key: each page is merged from all buckets.
    Merged,
}

/// How a database on an engine elsewhere is made. Fixed for its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteShape {
    /// What is promised.
    pub promise: RemotePromise,
    /// In which order its keys are walked.
    pub order: RemoteOrder,
    /// In how many parts its keys are divided; at least one.
    pub buckets: u16,
}

/// Why a database cannot have a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// There is no bucket.
    #[error("a database has at least one bucket")]
    NoBuckets,
    /// There are too many.
    #[error("a database in {order} order has at most {most} buckets")]
    TooManyBuckets {
        /// The order of its keys.
        order: RemoteOrder,
        /// How many it can have.
        most: u16,
    },
}

impl RemoteShape {
    /// A shape with the usual number of buckets.
    pub fn new(promise: RemotePromise, order: RemoteOrder) -> RemoteShape {
        let buckets = match order {
            RemoteOrder::Hash => limits::BUCKETS,
            RemoteOrder::Merged => limits::MERGED_BUCKETS,
        };
        RemoteShape {
            promise,
            order,
            buckets,
        }
    }

    /// Fails if a database cannot have this shape.
    pub fn check(&self) -> Result<(), ShapeError> {
        let order = self.order;
        let most = match order {
            RemoteOrder::Hash => limits::MOST_BUCKETS,
            RemoteOrder::Merged => limits::MOST_MERGED_BUCKETS,
        };
        match self.buckets {
            0 => Err(ShapeError::NoBuckets),
            buckets if buckets > most => Err(ShapeError::TooManyBuckets { order, most }),
            _ => Ok(()),
        }
    }

    /// Returns the bucket of a key, below [`buckets`](RemoteShape::buckets): the upper part of the
    /// product of XXH3 (64 bits, without a seed) of the key and the number of buckets. All servers
    /// agree on it, and it never changes: it says where entries are.
    pub fn bucket_of(&self, key: &[u8]) -> u16 {
        let product = u128::from(xxh3_64(key)) * u128::from(self.buckets.max(1));
        // Below the number of buckets.
        (product >> 64) as u16
    }

    /// As it stands in an encoded configuration: promise and order, a byte each, and the buckets,
    /// little-endian.
    pub(crate) fn encode(&self) -> [u8; 4] {
        let promise = match self.promise {
            RemotePromise::Linearizable => 0,
            RemotePromise::Quorum => 1,
        };
        let order = match self.order {
            RemoteOrder::Hash => 0,
            RemoteOrder::Merged => 1,
        };
        let [low, high] = self.buckets.to_le_bytes();
        [promise, order, low, high]
    }

    /// `None`: this is no shape that this version knows.
    pub(crate) fn decode([promise, order, low, high]: [u8; 4]) -> Option<RemoteShape> {
        let promise = match promise {
            0 => RemotePromise::Linearizable,
            1 => RemotePromise::Quorum,
            _ => return None,
        };
        let order = match order {
            0 => RemoteOrder::Hash,
            1 => RemoteOrder::Merged,
            _ => return None,
        };
        let buckets = u16::from_le_bytes([low, high]);
        let shape = RemoteShape {
            promise,
            order,
            buckets,
        };
        shape.check().is_ok().then_some(shape)
    }
}

impl fmt::Display for RemotePromise {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            RemotePromise::Linearizable => "linearizable",
            RemotePromise::Quorum => "quorum",
        })
    }
}

impl fmt::Display for RemoteOrder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            RemoteOrder::Hash => "hash",
            RemoteOrder::Merged => "merged",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_stay_in_the_buckets_in_which_earlier_versions_put_them() {
        let shape = RemoteShape::new(RemotePromise::Linearizable, RemoteOrder::Hash);
        for key in [&b""[..], b"a", b"key", &[0xff; 100]] {
            let expected = (u128::from(xxh3_64(key)) >> 54) as u16;
            assert_eq!(shape.bucket_of(key), expected);
        }
        // By the reference implementation of XXH3.
        assert_eq!(xxh3_64(b""), 0x2d06_8005_38d3_94c2);
        assert_eq!(shape.bucket_of(b""), 180);
    }

    #[test]
    fn buckets_are_used_evenly() {
        for buckets in [1, 3, 16, 64, 1_000] {
            let shape = RemoteShape {
                buckets,
                ..RemoteShape::new(RemotePromise::Quorum, RemoteOrder::Hash)
            };
            let mut counts = vec![0_u32; usize::from(buckets)];
            for number in 0..100 * u32::from(buckets) {
                counts[usize::from(shape.bucket_of(&number.to_be_bytes()))] += 1;
            }
            assert!(counts.iter().all(|count| (40..180).contains(count)));
        }
    }

    #[test]
    fn shapes_are_read_as_they_were_written_and_in_no_other_form() {
        for promise in [RemotePromise::Linearizable, RemotePromise::Quorum] {
            for order in [RemoteOrder::Hash, RemoteOrder::Merged] {
                let shape = RemoteShape::new(promise, order);
                assert_eq!(shape.check(), Ok(()));
                assert_eq!(RemoteShape::decode(shape.encode()), Some(shape));
                let none = RemoteShape {
                    buckets: 0,
                    ..shape
                };
                assert_eq!(none.check(), Err(ShapeError::NoBuckets));
                let many = RemoteShape {
                    buckets: limits::MOST_BUCKETS + 1,
                    ..shape
                };
                assert!(many.check().is_err());
                assert_eq!(RemoteShape::decode(many.encode()), None);
            }
        }
        assert_eq!(RemoteShape::decode([2, 0, 1, 0]), None);
        assert_eq!(RemoteShape::decode([0, 2, 1, 0]), None);
    }
}
