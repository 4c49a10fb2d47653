//! The generations of databases on disk.

use std::fmt;

use crate::database_id::DatabaseId;

/// A database from a commit on that made it, or cleared it. Its folder is named
/// `DATABASE-SEQUENCE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Generation {
    /// The database.
    pub database: DatabaseId,
    /// The sequence of that commit; 0: it was always there.
    pub sequence: u64,
}

impl fmt::Display for Generation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.name())
    }
}

impl Generation {
    /// Returns the name of its folder.
    pub(super) fn name(&self) -> String {
        format!("{}-{}", self.database, self.sequence)
    }

    pub(super) fn parse(name: &str) -> Option<Generation> {
        let (database, sequence) = name.split_once('-')?;
        let generation = Generation {
            database: DatabaseId(database.parse().ok()?),
            sequence: sequence.parse().ok()?,
        };
        // Nothing but what this program writes: "+1-01" is no such name.
        (generation.name() == name).then_some(generation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_names_are_read() {
        for generation in [(0, 0), (7, 12), (u32::MAX, u64::MAX)] {
            let generation = Generation {
                database: DatabaseId(generation.0),
                sequence: generation.1,
            };
            assert_eq!(Generation::parse(&generation.name()), Some(generation));
        }
        for name in [
            "", "1", "1-", "-1", "+1-2", "01-2", "1-2-3", "1-2.new", "a-b",
        ] {
            assert_eq!(Generation::parse(name), None, "{name}");
        }
    }
}
