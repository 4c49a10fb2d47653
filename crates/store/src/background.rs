//! Threads whose work can wait: they leave the CPU to those that clients wait for.

use std::io;
use std::thread;

use rustix::process::{getpriority_process, setpriority_process};
use rustix::thread::gettid;

use crate::limits::{BULK_NICE, FLUSH_NICE, NICE_MAX};

/// How long the work of a thread can wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Background {
    /// Not for ever: writers wait for it in the end if it does not get on ([`FLUSH_NICE`]).
    Flush,
    /// As long as others have something to do ([`BULK_NICE`]).
    Bulk,
}

/// A thread has the priority of all others.
#[derive(Debug, thiserror::Error)]
#[error(
    "the priority of the thread {thread} cannot be lowered ({error}); what it does may hold up \
     calls"
)]
pub struct PriorityError {
    thread: String,
    #[source]
    error: io::Error,
}

impl Background {
    /// Declares the calling thread background work: from now on it has a smaller share of a CPU
    /// that others want, and one that wakes up takes the CPU from it at once. Of a CPU that nobody
    /// else wants it has all. There is no way back, since it takes a privilege to raise a priority;
    /// threads that this one begins are like it.
    ///
    /// It is never shut out: whoever waits for something that it holds waits longer, but not for
    /// ever. Linux has a priority for each thread (sched(7), setpriority(2)).
    ///
    /// # Errors
    /// The system refuses it. The thread goes on as it was.
    pub fn enter(self) -> Result<(), PriorityError> {
        let nice = match self {
            Background::Flush => FLUSH_NICE,
            Background::Bulk => BULK_NICE,
        };
        lower(nice).map_err(|error| PriorityError {
            thread: thread::current().name().unwrap_or_default().into(),
            error: error.into(),
        })
    }
}

fn lower(nice: i32) -> rustix::io::Result<()> {
    // Not the process, which would be every thread of it on other systems, and its first one on
    // Linux.
    let this_thread = Some(gettid());
    // Whoever runs the server may have given all of it a priority.
    let usual = getpriority_process(this_thread)?;
    setpriority_process(this_thread, (usual + nice).min(NICE_MAX))
}

#[cfg(test)]
mod tests {
    use rustix::process::getpid;

    use super::*;

    fn nice_of_this_thread() -> i32 {
        getpriority_process(Some(gettid())).expect("a thread may ask for its own priority")
    }

    #[test]
    fn it_is_the_one_thread_that_gives_way() {
        let usual = nice_of_this_thread();
        let nice_of = |background: Background| {
            let thread = thread::spawn(move || {
                background.enter().expect("everybody may lower it");
                nice_of_this_thread()
            });
            thread.join().expect("it has ended well")
        };
        assert_eq!(
            nice_of(Background::Flush),
            (usual + FLUSH_NICE).min(NICE_MAX)
        );
        assert_eq!(nice_of(Background::Bulk), (usual + BULK_NICE).min(NICE_MAX));
        assert_eq!(nice_of_this_thread(), usual);
        let first_thread = getpriority_process(Some(getpid()));
        assert_eq!(
            first_thread,
            Ok(usual),
            "no test lowers that of the first thread"
        );
    }

    #[test]
    fn the_lowest_is_no_error() {
        let thread = thread::spawn(|| {
            for _ in 0..4 {
                Background::Bulk.enter().expect("everybody may lower it");
            }
            nice_of_this_thread()
        });
        assert_eq!(thread.join().expect("it has ended well"), NICE_MAX);
    }
}
