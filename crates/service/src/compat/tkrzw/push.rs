//! PushLast: stores a value under a key that is made of a time.
//!
//! The key is a number of 8 bytes, big-endian: 10 ns since 1970, and the first number from there on
//! that no record has. A few numbers are tried; behind a longer row of records the first gap is
//! looked for in a view. Calls that push at the same time each try numbers of their own
//! ([`PushNumbers`](crate::tkrzw_state::PushNumbers)).

use std::ops::{Bound, ControlFlow};

use api::tkrzw::PushLastRequest;
use store::tree::{NotFetched, ReadPlan};
use store::{
    CommitOutcome, Condition, DatabaseId, Decision, Direction, Mode, OperationStatus, Range,
    ReadView,
};

use super::decode::decode;
use super::pop::too_many_tries;
use super::result::RequestResult;
use super::single::put;
use super::target::target;
use super::walk::{Walk, WalkEnd};
use super::{TkrzwActions, TkrzwStep};
use crate::actions::{CallClock, DatabaseAccess, Responses};
use crate::call::Shared;
use crate::keyvalue;
use crate::limits::{TKRZW_KEYS_TRIED, TKRZW_TRIES};
use crate::method::Method;
use crate::rights::Right;
use crate::status::Status;
use crate::tkrzw_state::{PushTicket, WaitTopic};

const METHOD: Method = Method::TkrzwPushLast;

/// Units of a key in a second.
const UNITS: f64 = 1e8;

/// Units of a key in a microsecond.
const UNITS_OF_MICROSECOND: u64 = 100;

/// All times from here on have numbers that do not fit into a key, in units: 2 to the 64th.
const UNITS_END: f64 = 18_446_744_073_709_551_616.0;

/// A PushLast.
pub(super) struct Push {
    /// Decoded again for each try.
    request: Box<[u8]>,
    database: DatabaseId,
    ticket: PushTicket,
    /// The key that is tried, or from which on a gap is looked for.
    number: u64,
    tries: u32,
    /// There is no row of records whose end could be looked for: numbers are tried alone.
    is_by_hash: bool,
    /// Looks for a gap.
    walk: Option<Walk>,
}

impl Push {
    /// Takes up a request.
    pub(super) fn begin(
        bytes: &[u8],
        shared: &Shared,
        actions: &mut impl TkrzwActions,
    ) -> Result<Option<TkrzwStep>, Status> {
        let request: PushLastRequest<'_> = decode(METHOD, bytes)?;
        let target = target(request.dbm_index, Right::Write, shared, actions)?;
        if shared.settings.tkrzw.is_read_only {
            actions.respond(|out| RequestResult::READ_ONLY.encode(out));
            return Ok(None);
        }
        let number = first_number(request.wtime, actions)?;
        let ticket = shared.settings.tkrzw.state.pushes.enter(target.id, number);
        let number = ticket.take(number).ok_or_else(no_key_left)?;
        submit(target.id, number, request.value, actions)?;
        actions.hold_request(bytes.len());
        Ok(Some(TkrzwStep::Push(Box::new(Push {
            request: bytes.into(),
            database: target.id,
            ticket,
            number,
            tries: 0,
            is_by_hash: target.is_by_hash,
            walk: None,
        }))))
    }

    pub(super) fn plan_reads(&self, plan: &mut ReadPlan) {
        if let Some(walk) = &self.walk {
            walk.plan_reads(plan);
        }
    }

    /// Responds, or tries another key.
    pub(super) fn committed(
        &mut self,
        outcome: &CommitOutcome<'_>,
        shared: &Shared,
        actions: &mut (impl DatabaseAccess + Responses),
    ) {
        if let Decision::Refused(refusal) = outcome.decision {
            return actions.finish(keyvalue::refusal(refusal));
        }
        let stored = (outcome.first()).is_some_and(|one| one.status == OperationStatus::Done);
        if stored {
            self.tell(shared);
            return actions.respond(|out| RequestResult::SUCCESS.encode(out));
        }
        self.tries += 1;
        if self.tries >= TKRZW_TRIES {
            return actions.finish(too_many_tries());
        }
        if self.tries < TKRZW_KEYS_TRIED || self.is_by_hash {
            return self.try_number(actions);
        }
        let start = self.number.to_be_bytes();
        let range = Range {
            start: Bound::Included(&start[..]),
            end: Bound::Unbounded,
        };
        let walk = Walk::new(self.database, &range, Direction::Forward).keys_only();
        walk.ask(actions);
        self.walk = Some(walk);
    }

    /// Passes records whose keys follow each other.
    pub(super) fn read(
        &mut self,
        view: &ReadView<'_>,
        actions: &mut (impl DatabaseAccess + Responses + CallClock),
    ) -> Result<(), NotFetched> {
        let Some(walk) = &mut self.walk else {
            debug_assert!(false, "nothing was to be read");
            return Ok(());
        };
        let number = &mut self.number;
        let end = walk.step(view, actions.now_ms(), &mut |entry| {
            match <[u8; 8]>::try_from(entry.key).map(u64::from_be_bytes) {
                Ok(taken) if taken == *number => *number = number.saturating_add(1),
                Ok(taken) if taken > *number => return ControlFlow::Break(()),
                // Keys of another length lie between those that are numbers.
                _ => {}
            }
            ControlFlow::Continue(())
        })?;
        match end {
            WalkEnd::Paused => walk.ask(actions),
            WalkEnd::Stopped | WalkEnd::Complete => {
                self.walk = None;
                self.try_number(actions);
            }
        }
        Ok(())
    }

    /// Tries the next number that no other call tries, from the present one on.
    fn try_number(&mut self, actions: &mut (impl DatabaseAccess + Responses)) {
        let Some(number) = self.ticket.take(self.number) else {
            return actions.finish(no_key_left());
        };
        self.number = number;
        let submitted = match decode::<PushLastRequest<'_>>(METHOD, &self.request) {
            Ok(request) => submit(self.database, self.number, request.value, actions),
            Err(status) => Err(status),
        };
        if let Err(status) = submitted {
            actions.finish(status);
        }
    }

    /// Tells a call that waits for a record, if it was asked for.
    fn tell(&self, shared: &Shared) {
        let request = decode::<PushLastRequest<'_>>(METHOD, &self.request);
        if request.is_ok_and(|request| request.notify) {
            let waiting = &shared.settings.tkrzw.state.waiting;
            waiting.wake_first(&WaitTopic::Queue(self.database));
        }
    }
}

/// Returns the number from which on a key is looked for.
fn first_number(wtime: f64, actions: &impl CallClock) -> Result<u64, Status> {
    let units = wtime * UNITS;
    if units.is_nan() || units >= UNITS_END {
        return Err(Status::invalid_argument(format!(
            "field wtime is {wtime:e}; it may be up to 184467440737 seconds since 1970, or below 0 \
             for the clock of the server"
        )));
    }
    Ok(match wtime < 0.0 {
        true => actions.wall_us().saturating_mul(UNITS_OF_MICROSECOND),
        // A conversion to an integer is bounded by its type.
        false => units as u64,
    })
}

/// The status of a push behind the last key that there can be.
#[cold]
fn no_key_left() -> Status {
    Status::resource_exhausted(
        "field wtime: all keys from there on are taken, up to the last one that there can be; \
         nothing was done",
    )
}

fn submit(
    database: DatabaseId,
    number: u64,
    value: &[u8],
    actions: &mut impl DatabaseAccess,
) -> Result<(), Status> {
    let key = number.to_be_bytes();
    let mut commit = actions.write(database, Mode::Independent);
    let pushed = commit.push(&put(&key, value, Condition::Absent));
    pushed.map_err(|error| keyvalue::push_error(METHOD, error))?;
    commit.submit();
    Ok(())
}
