//! Whether this server takes writes, or another one.

use crate::call::Shared;
use crate::status::{Code, Status};

impl Shared {
    /// Returns whether another server takes the writes.
    #[inline]
    pub(crate) fn refuses_writes(&self) -> bool {
        self.following.is_some() || self.store.higher_epoch() > 0
    }

    /// Returns the status of a call that writes, if another server takes the writes.
    #[inline]
    pub(crate) fn write_refusal(&self) -> Option<Status> {
        match &self.following {
            Some(following) => Some(following.refusal()),
            None => (self.store.higher_epoch() > 0).then(|| self.superseded()),
        }
    }

    #[cold]
    fn superseded(&self) -> Status {
        let place = match &*self.store.new_leader() {
            "" => "nobody has told this server where that is".to_owned(),
            address => format!("send this to {address}"),
        };
        Status::new(
            Code::FailedPrecondition,
            format!(
                "a replica of this server was promoted, in epoch {}, and takes the writes; nothing \
                 was done; {place}",
                self.store.higher_epoch()
            ),
        )
    }
}
