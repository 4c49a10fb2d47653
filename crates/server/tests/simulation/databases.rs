//! The databases of a simulated world.

use store::Durability;

/// A database by its number. No number and no name is used twice in a round.
pub type Db = u16;

/// Always there.
pub const DEFAULT: Db = 0;
/// Made at the beginning, and never dropped.
pub const MADE: std::ops::Range<Db> = 1..4;
/// Made and dropped all the time: from this one on.
pub const FLEETING: Db = 4;

/// Milliseconds between two syncs of the databases that are synced now and then.
pub const INTERVAL_MS: u64 = 20;

/// What an answer of a database promises. The default one is made by the server.
pub fn durability(db: Db) -> Durability {
    match db % 4 {
        0 => Durability::Synced,
        1 => Durability::Interval { ms: INTERVAL_MS },
        2 => Durability::Written,
        _ => Durability::Volatile,
    }
}

/// Its name.
pub fn name(db: Db) -> String {
    match db {
        DEFAULT => String::new(),
        db => format!("database-{db}"),
    }
}

/// The database of a name.
pub fn of_name(name: &str) -> Db {
    match name.strip_prefix("database-") {
        Some(number) => number.parse().expect("a database of this world"),
        None => {
            assert_eq!(name, "", "a database of this world");
            DEFAULT
        }
    }
}
