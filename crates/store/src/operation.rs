//! What a write request may ask for.

/// One operation of a commit.
#[derive(Clone, Copy, Debug)]
pub enum Operation<'a> {
    /// Reads a key. Within a commit it sees the commit's own earlier writes.
    Get {
        /// The key.
        key: &'a [u8],
    },
    /// Stores a value.
    Put {
        /// The key.
        key: &'a [u8],
        /// The value.
        value: &'a [u8],
        /// What must hold for it to happen.
        condition: Condition<'a>,
        /// The entry's time to live. A Put without one clears it.
        expiry: Expiry,
        /// Whether the outcome shall carry the value before.
        want_previous: bool,
    },
    /// Removes a key. That there is none is no failure.
    Delete {
        /// The key.
        key: &'a [u8],
        /// What must hold for it to happen.
        condition: Condition<'a>,
        /// Whether the outcome shall carry the value before.
        want_previous: bool,
    },
    /// Puts bytes behind a value; a missing key counts as an empty value. Keeps the time to live.
    Append {
        /// The key.
        key: &'a [u8],
        /// The bytes to add.
        value: &'a [u8],
        /// What must hold for it to happen.
        condition: Condition<'a>,
    },
    /// Adds to a counter: a signed 64-bit number, stored as 8 bytes, big-endian. A value of another
    /// length and an overflow are outcomes that change nothing. Keeps the time to live.
    Increment {
        /// The key.
        key: &'a [u8],
        /// What to add.
        delta: i64,
        /// What a missing key counts as; `delta` is added to it.
        initial: i64,
        /// What must hold for it to happen.
        condition: Condition<'a>,
    },
    /// Adds to a counter as [`Operation::Increment`] does, and always takes effect, for services
    /// whose counters have always been so: of a value of another length the first 8 bytes count, a
    /// shorter one is a number without sign, and the sum wraps around. Keeps the time to live.
    WrappingIncrement {
        /// The key.
        key: &'a [u8],
        /// What to add.
        delta: i64,
        /// What a missing key counts as; `delta` is added to it.
        initial: i64,
    },
    /// Checks a condition and does nothing else. In a [`Mode::Transact`] commit, the compares
    /// pushed before either list choose between the lists; elsewhere, a condition that does not
    /// hold is this operation's failure.
    Compare {
        /// The key.
        key: &'a [u8],
        /// What to check.
        condition: Condition<'a>,
    },
    /// Removes the entry of a key if its time has come, and does nothing otherwise: for sweeping
    /// ([`Store::sweep`](crate::Store::sweep)). It changes nothing that anybody could see.
    Expire {
        /// The key.
        key: &'a [u8],
    },
    /// Removes every entry of the database. Stands alone in its commit.
    Clear,
}

/// What must hold for an operation to happen. An expired entry counts as absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Condition<'a> {
    /// Nothing.
    #[default]
    None,
    /// The key has no value.
    Absent,
    /// The key has a value.
    Present,
    /// The entry was last written by the commit of this sequence; 0: the key has no value.
    VersionIs(u64),
    /// The key has exactly this value.
    ValueIs(&'a [u8]),
}

/// The time to live that a Put gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expiry {
    /// The entry stays until it is removed.
    #[default]
    None,
    /// As it was; none for a new key.
    Keep,
    /// So many milliseconds from the commit on.
    AfterMs(u64),
    /// At this time, in milliseconds since 1970, for a value that is moved with its expiry; 0: the
    /// entry stays.
    AtMs(u64),
}

/// How the operations of a commit belong together. They take effect in the order pushed, and later
/// ones see what earlier ones did, in every mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// All or nothing: the first operation that fails undoes the others.
    Atomic,
    /// Each operation has its own outcome; one that fails changes nothing.
    Independent,
    /// Compares, then one of two lists, which is applied as in [`Mode::Atomic`]: see
    /// [`Commit::list`](crate::Commit::list).
    Transact,
}

/// The parts of a [`Mode::Transact`] commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactList {
    /// Compares, which come first. (In the other modes: all operations.)
    Compares,
    /// What happens if every compare holds.
    Then,
    /// What happens otherwise.
    Otherwise,
}
