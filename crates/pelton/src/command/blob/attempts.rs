//! Trying again what a broken connection has ended, and several at a time.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use client::CallError;
use wire::grpc::Code;

use super::super::{Caller, backoff};
use crate::arguments::{ConnectionArguments, OutputFormat};
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::progress::ProgressLine;

/// The longest wait for a server without such a look.
pub(super) const LONGEST_POLL: Duration = Duration::from_millis(200);

/// How many of the names that were left out are listed.
const NAMES_TOLD: usize = 20;

/// Why an attempt has ended without success.
pub(super) enum FailedAttempt {
    /// Another one may do better.
    Again(Failure),
    /// It would end in the same way.
    Final(Failure),
}

impl From<Failure> for FailedAttempt {
    fn from(failure: Failure) -> FailedAttempt {
        FailedAttempt::Final(failure)
    }
}

/// What the failure of a call means for another attempt.
pub(super) fn ended(failure: Failure, error: &CallError) -> FailedAttempt {
    let again = match error {
        CallError::NotBegun(_) | CallError::ConnectionLost { .. } | CallError::DeadlineExceeded => {
            true
        }
        // Damage on the way; or an upload that has moved on since it was asked for.
        CallError::Status(status) => matches!(
            status.code(),
            Code::Unavailable | Code::DataLoss | Code::OutOfRange | Code::Unknown
        ),
        CallError::PoolClosed
        | CallError::BadAnswer { .. }
        | CallError::AnswerTooLarge
        | CallError::RequestTooLarge { .. }
        | CallError::MetadataTooLarge
        | CallError::BadRequest { .. } => false,
    };
    match again {
        true => FailedAttempt::Again(failure),
        false => FailedAttempt::Final(failure),
    }
}

/// What all transfers of a command share.
pub(super) struct Transfers {
    pub(super) interrupt: Interrupt,
    progress: ProgressLine,
    done_bytes: AtomicU64,
    attempts: u32,
    /// There was a connection to the server.
    was_reached: AtomicBool,
    /// Of what is told on the way.
    format: OutputFormat,
}

impl Transfers {
    pub(super) fn new(
        what: &'static str,
        total_bytes: Option<u64>,
        attempts: u32,
        format: OutputFormat,
    ) -> Transfers {
        Transfers {
            interrupt: Interrupt::listen(),
            progress: ProgressLine::transfer(what, total_bytes),
            done_bytes: AtomicU64::new(0),
            attempts: attempts.max(1),
            was_reached: AtomicBool::new(false),
            format,
        }
    }

    /// More will be moved than was known.
    pub(super) fn expect(&self, bytes: u64) {
        self.progress.expect(bytes);
    }

    /// So many bytes more are there, or fewer than was thought.
    pub(super) fn moved(&self, bytes: i64) {
        let before = self
            .done_bytes
            .fetch_add(bytes.cast_unsigned(), Ordering::Relaxed);
        self.progress.set(before.wrapping_add_signed(bytes));
    }

    pub(super) fn check_interrupt(&self) -> Result<(), FailedAttempt> {
        match self.interrupt.is_set() {
            true => Err(FailedAttempt::Final(Failure::Interrupted(
                "interrupted".into(),
            ))),
            false => Ok(()),
        }
    }

    /// Tries until it succeeds, cannot, or so many attempts in a row have brought nothing.
    /// `attempt` moves the number that it is given when it has come further.
    pub(super) fn insist<R>(
        &self,
        mut attempt: impl FnMut(&mut u64) -> Result<R, FailedAttempt>,
    ) -> Result<R, Failure> {
        let (mut reached, mut in_row) = (0, 0);
        loop {
            let before = reached;
            match attempt(&mut reached) {
                Ok(done) => return Ok(done),
                Err(FailedAttempt::Final(failure)) => return Err(failure),
                Err(FailedAttempt::Again(failure)) => {
                    in_row = if reached > before { 1 } else { in_row + 1 };
                    if self.interrupt.is_set() {
                        return Err(Failure::Interrupted("interrupted".into()));
                    }
                    if in_row >= self.attempts {
                        return Err(failure);
                    }
                }
            }
            backoff::wait(in_row, &self.interrupt);
        }
    }

    /// Connects to the server. Where there was none before, there is none to wait for: that is told
    /// at once, as by all other commands. One that has gone may come again.
    pub(super) fn connect(&self, arguments: &ConnectionArguments) -> Result<Caller, FailedAttempt> {
        self.check_interrupt()?;
        match Caller::connect(arguments) {
            Ok(caller) => {
                self.was_reached.store(true, Ordering::Relaxed);
                Ok(caller)
            }
            Err(failure) if self.was_reached.load(Ordering::Relaxed) => {
                Err(FailedAttempt::Again(failure))
            }
            Err(failure) => Err(FailedAttempt::Final(failure)),
        }
    }

    /// Does each piece of work, some at a time. What was begun is ended. Where something is missing
    /// the others are done all the same; after another failure nothing more is begun. The answer is
    /// what was done, and a failure, the others are told here; where there is more than one piece
    /// of work, it says which one failed, and which were not begun.
    pub(super) fn all<W: Send, R: Send>(
        &self,
        work: Vec<W>,
        parallel: u8,
        name: impl Fn(&W) -> String + Sync,
        each: impl Fn(&W) -> Result<R, Failure> + Sync,
    ) -> (Vec<R>, Result<(), Failure>) {
        let is_one = work.len() == 1;
        let threads = work.len().min(usize::from(parallel));
        let waiting: Mutex<VecDeque<W>> = Mutex::new(work.into());
        let lock = || waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let take = || lock().pop_front();
        let leave_out = || -> Vec<String> { lock().drain(..).map(|one| name(&one)).collect() };
        let results = thread::scope(|scope| {
            let worker = || {
                let (mut done, mut failures) = (Vec::new(), Vec::new());
                while let Some(one) = take() {
                    let failure = match each(&one) {
                        Ok(result) => {
                            done.push(result);
                            continue;
                        }
                        Err(failure) if is_one => failure,
                        Err(failure) => failure.about(&name(&one)),
                    };
                    let left_out = match failure.exit() {
                        Exit::Miss => Vec::new(),
                        _ => leave_out(),
                    };
                    failures.push(match left_out.is_empty() {
                        true => failure,
                        false => failure.with(&format!("not begun: {}", some_of(&left_out))),
                    });
                }
                (done, failures)
            };
            let spawn = |_| thread::Builder::new().spawn_scoped(scope, worker).ok();
            let handles: Vec<_> = (1..threads).map_while(spawn).collect();
            // This thread is one of them, the only one where the system gives no other.
            let mut results = vec![worker()];
            let joined = handles.into_iter().map(|handle| handle.join());
            results.extend(
                joined.map(|ended| ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))),
            );
            results
        });
        let (mut all, mut failures) = (Vec::new(), Vec::new());
        for (mut done, mut failed) in results {
            all.append(&mut done);
            failures.append(&mut failed);
        }
        // The program ends with the worst.
        failures.sort_by_key(|failure| failure.exit() != Exit::Miss);
        let last = failures.pop();
        for failure in failures {
            failure.report(self.format);
        }
        (all, last.map_or(Ok(()), Err))
    }
}

/// Names, so many of them as somebody reads, and how many more there are.
fn some_of(names: &[String]) -> String {
    let told = names.len().min(NAMES_TOLD);
    let listed = names[..told].join(", ");
    match names.len() - told {
        0 => listed,
        more => format!("{listed} and {more} more"),
    }
}

#[cfg(test)]
#[test]
fn only_some_of_many_names_are_told() {
    let names: Vec<String> = (0..25).map(|number| format!("n{number}")).collect();
    assert_eq!(some_of(&names[..2]), "n0, n1");
    assert!(some_of(&names[..NAMES_TOLD]).ends_with(", n19"));
    assert!(some_of(&names).ends_with(", n19 and 5 more"));
}
