//! A bucket of a database: a partition of the engine.

use store::DatabaseId;
use store::remote::RemotePromise;

/// Names a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BucketPartition {
    pub(crate) promise: RemotePromise,
    pub(crate) database: DatabaseId,
    pub(crate) bucket: u16,
}

impl BucketPartition {
    /// Returns its partition key as the engine has it. Numbers of databases are small: they are
    /// counted.
    pub(crate) fn key(&self) -> (i32, i32) {
        (self.database.number().cast_signed(), i32::from(self.bucket))
    }

    /// Returns one of `queues` numbers, evenly over the partitions.
    pub(crate) fn queue(&self, queues: usize) -> usize {
        let (database, bucket) = self.key();
        let promise = u64::from(self.promise == RemotePromise::Quorum);
        let number = (u64::from(database.cast_unsigned()) << 32)
            | (u64::from(bucket.cast_unsigned()) << 1)
            | promise;
        // Fibonacci hashing (Knuth, "The Art of Computer Programming", volume 3, 6.4).
        let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        usize::try_from(mixed).unwrap_or(0) % queues.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_spread_over_the_queues() {
        let mut counts = [0_u32; 64];
        for database in 0..8 {
            for bucket in 0..1024 {
                let partition = BucketPartition {
                    promise: RemotePromise::Linearizable,
                    database: DatabaseId::of_number(database),
                    bucket,
                };
                counts[partition.queue(counts.len())] += 1;
            }
        }
        assert!(
            counts.iter().all(|count| (64..256).contains(count)),
            "{counts:?}"
        );
    }
}
