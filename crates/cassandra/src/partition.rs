//! A bucket of a database: a partition of the engine.

use store::DatabaseId;
use store::remote::{RemotePromise, RemoteShape};

use crate::schema;

/// The table of the entries of a database, which follows from its promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum EntryTable {
    Linearizable,
    Quorum,
}

impl EntryTable {
    pub(crate) fn of(promise: RemotePromise) -> EntryTable {
        match promise {
            RemotePromise::Linearizable => EntryTable::Linearizable,
            RemotePromise::Quorum => EntryTable::Quorum,
        }
    }

    /// Returns its name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            EntryTable::Linearizable => schema::LINEARIZABLE.name,
            EntryTable::Quorum => schema::QUORUM.name,
        }
    }
}

/// Names a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BucketPartition {
    pub(crate) table: EntryTable,
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
        let table = u64::from(self.table == EntryTable::Quorum);
        let number = (u64::from(database.cast_unsigned()) << 32)
            | (u64::from(bucket.cast_unsigned()) << 1)
            | table;
        // Fibonacci hashing (Knuth, "The Art of Computer Programming", volume 3, 6.4).
        let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        usize::try_from(mixed).unwrap_or(0) % queues.max(1)
    }
}

/// A database, with how it is laid out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DatabasePlace {
    pub(crate) database: DatabaseId,
    pub(crate) shape: RemoteShape,
}

impl DatabasePlace {
    pub(crate) fn partition(&self, bucket: u16) -> BucketPartition {
        BucketPartition {
            table: EntryTable::of(self.shape.promise),
            database: self.database,
            bucket,
        }
    }

    pub(crate) fn partition_of(&self, key: &[u8]) -> BucketPartition {
        self.partition(self.shape.bucket_of(key))
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
                    table: EntryTable::Linearizable,
                    database: DatabaseId::of_number(database).unwrap(),
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
