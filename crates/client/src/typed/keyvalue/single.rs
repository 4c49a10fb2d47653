//! Calls for one key, and the number of keys.

use std::time::Duration;

use api::keyvalue::{
    AppendResponse, Condition, CountPrecision, DeleteResponse, Entry, Expiry, GetResponse,
    IncrementRefusal, IncrementResponse, KeyRange, Keys, PutResponse,
};
use api::rpc::keyvalue::{Append, Count, Delete, Get, Increment, Put, Scan, Watch};

use crate::typed::call::rounded_up_ms;
use crate::typed::{Call, Reply, TypedMethod};

macro_rules! conditional {
    ($($method:ident),*) => { $(
        impl<'a, O> Call<'a, $method, O> {
            /// Only if the key has this version; 0: only if it is absent.
            pub fn if_version(self, version: u64) -> Self {
                self.on(Condition::IfVersion(version))
            }

            /// Only if there is no such key.
            pub fn if_absent(self) -> Self {
                self.on(Condition::IfExists(false))
            }

            /// Only if there is such a key.
            pub fn if_exists(self) -> Self {
                self.on(Condition::IfExists(true))
            }

            /// Only if the key exists with exactly this value.
            pub fn if_value(self, value: &'a [u8]) -> Self {
                self.on(Condition::IfValue(value))
            }

            fn on(mut self, condition: Condition<'a>) -> Self {
                self.request.condition = Some(condition);
                self
            }
        }
    )* };
}

conditional!(Put, Delete, Append, Increment);

impl<O> Call<'_, Put, O> {
    /// The entry expires so long after the commit. Rounded up to a millisecond.
    pub fn time_to_live(mut self, time_to_live: Duration) -> Self {
        self.request.expiry = Some(Expiry::TimeToLiveMs(rounded_up_ms(time_to_live)));
        self
    }

    /// A key that exists keeps its expiry.
    pub fn keep_time_to_live(mut self) -> Self {
        self.request.expiry = Some(Expiry::KeepTimeToLive(true));
        self
    }

    /// The outcome has the entry as it was before.
    pub fn return_previous(mut self) -> Self {
        self.request.return_previous = true;
        self
    }
}

impl<O> Call<'_, Delete, O> {
    /// The outcome has the entry as it was before.
    pub fn return_previous(mut self) -> Self {
        self.request.return_previous = true;
        self
    }
}

impl<O> Call<'_, Increment, O> {
    /// What a missing key counts as.
    pub fn initial(mut self, initial: i64) -> Self {
        self.request.initial = initial;
        self
    }
}

macro_rules! ranged {
    ($($method:ident),*) => { $(
        impl<'a, O> Call<'a, $method, O> {
            /// Only keys that begin with these bytes.
            pub fn prefix(mut self, prefix: &'a [u8]) -> Self {
                self.request.keys = Some(Keys::Prefix(prefix));
                self
            }

            /// Only keys from `start` on and before `end`; empty: from the first, to the last.
            pub fn range(mut self, start: &'a [u8], end: &'a [u8]) -> Self {
                self.request.keys = Some(Keys::Range(KeyRange { start, end }));
                self
            }
        }
    )* };
}

ranged!(Count, Scan, Watch);

impl<O> Call<'_, Count, O> {
    /// An estimate will do where an exact number takes long.
    pub fn estimate(mut self) -> Self {
        self.request.precision = CountPrecision::Estimate.number();
        self
    }
}

/// The value of a key, with what is known of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredValue {
    /// The value.
    pub value: Vec<u8>,
    /// Names this state of the entry, and grows with each write of the key; never 0.
    pub version: u64,
    /// When the key expires, in milliseconds since 1970; `None`: never.
    pub expires_at_ms: Option<u64>,
}

impl StoredValue {
    fn new(value: &[u8], version: u64, expires_at_ms: u64) -> StoredValue {
        StoredValue {
            value: value.to_vec(),
            version,
            expires_at_ms: (expires_at_ms != 0).then_some(expires_at_ms),
        }
    }

    pub(super) fn of(entry: &Entry<'_>) -> StoredValue {
        StoredValue::new(entry.value, entry.version, entry.expires_at_ms)
    }
}

impl TypedMethod for Get {
    type Outcome = Option<StoredValue>;

    fn outcome(reply: Reply<Get>) -> Option<StoredValue> {
        found_value(&reply.message())
    }
}

/// Returns what a get has found.
pub(super) fn found_value(get: &GetResponse<'_>) -> Option<StoredValue> {
    (get.found).then(|| StoredValue::new(get.value, get.version, get.expires_at_ms))
}

/// What became of a put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutOutcome {
    /// False: the condition was not met, and nothing has changed.
    pub applied: bool,
    /// The version of the entry now; 0: there is none.
    pub version: u64,
    /// If it was asked for: the entry before.
    pub previous: Option<StoredValue>,
}

impl PutOutcome {
    pub(super) fn of(put: &PutResponse<'_>) -> PutOutcome {
        PutOutcome {
            applied: put.applied,
            version: put.version,
            previous: put.previous.as_ref().map(StoredValue::of),
        }
    }
}

impl TypedMethod for Put {
    type Outcome = PutOutcome;

    fn outcome(reply: Reply<Put>) -> PutOutcome {
        PutOutcome::of(&reply.message())
    }
}

/// What became of a delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeleteOutcome {
    /// False: there was no such key, or the condition was not met.
    pub deleted: bool,
    /// The version of the entry that was found, deleted or not; 0: there was none.
    pub version: u64,
    /// If it was asked for: the entry before.
    pub previous: Option<StoredValue>,
    /// The sequence of the commit that deleted it; 0: nothing was deleted.
    pub sequence: u64,
}

impl DeleteOutcome {
    pub(super) fn of(delete: &DeleteResponse<'_>) -> DeleteOutcome {
        DeleteOutcome {
            deleted: delete.deleted,
            version: delete.version,
            previous: delete.previous.as_ref().map(StoredValue::of),
            sequence: delete.sequence,
        }
    }
}

impl TypedMethod for Delete {
    type Outcome = DeleteOutcome;

    fn outcome(reply: Reply<Delete>) -> DeleteOutcome {
        DeleteOutcome::of(&reply.message())
    }
}

/// What became of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendOutcome {
    /// False: the condition was not met, and nothing has changed.
    pub applied: bool,
    /// The version of the entry now; 0: there is none.
    pub version: u64,
    /// Bytes of the whole value now.
    pub length: u64,
}

impl AppendOutcome {
    pub(super) fn of(append: &AppendResponse) -> AppendOutcome {
        AppendOutcome {
            applied: append.applied,
            version: append.version,
            length: append.length,
        }
    }
}

impl TypedMethod for Append {
    type Outcome = AppendOutcome;

    fn outcome(reply: Reply<Append>) -> AppendOutcome {
        AppendOutcome::of(&reply.message())
    }
}

/// What became of an increment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IncrementOutcome {
    /// False: nothing has changed.
    pub applied: bool,
    /// The number now.
    pub value: i64,
    /// The version of the entry now; 0: there is none.
    pub version: u64,
    /// Why nothing was added; `None` if it was, or for a reason that this version does not know.
    pub refusal: Option<IncrementRefusal>,
}

impl IncrementOutcome {
    pub(super) fn of(increment: &IncrementResponse) -> IncrementOutcome {
        let refusal = IncrementRefusal::from_number(increment.refusal);
        IncrementOutcome {
            applied: increment.applied,
            value: increment.value,
            version: increment.version,
            refusal: refusal.filter(|&refusal| refusal != IncrementRefusal::Unspecified),
        }
    }
}

impl TypedMethod for Increment {
    type Outcome = IncrementOutcome;

    fn outcome(reply: Reply<Increment>) -> IncrementOutcome {
        IncrementOutcome::of(&reply.message())
    }
}

/// How many keys there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountOutcome {
    /// The number.
    pub count: u64,
    /// False: it is an estimate.
    pub exact: bool,
}

impl TypedMethod for Count {
    type Outcome = CountOutcome;

    fn outcome(reply: Reply<Count>) -> CountOutcome {
        let count = reply.message();
        CountOutcome {
            count: count.count,
            exact: count.exact,
        }
    }
}
