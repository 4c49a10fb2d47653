//! What reaches the supervisor of a server from signals, stop handles and its threads.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What stands in a report, one byte each. signal-hook writes an X.
const BY_SIGNAL: u8 = b'X';
const BY_HANDLE: u8 = b'S';
/// There is something in the list.
const LISTED: u8 = b'L';

/// Where signals, stop handles and threads report to the supervisor.
#[derive(Debug)]
pub(crate) struct Reports {
    stream: UnixStream,
    listed: Mutex<Listed>,
}

/// What was reported.
#[derive(Debug)]
pub(crate) enum LoopReport {
    /// A signal came that asks all loops to stop.
    Signal,
    /// A stop handle asks them to.
    Handle,
    /// Threads are to be started, or are about to end.
    Threads(Listed),
}

/// What threads have reported.
#[derive(Debug, Default)]
pub(crate) struct Listed {
    start: Vec<usize>,
    ended: Vec<usize>,
}

impl Listed {
    /// Slots whose thread is to be started.
    pub(crate) fn to_start(&self) -> impl Iterator<Item = usize> {
        self.start.iter().copied()
    }

    /// Loops whose thread is about to end.
    pub(crate) fn ended(&self) -> impl Iterator<Item = usize> {
        self.ended.iter().copied()
    }
}

impl Reports {
    /// Reports, and where they are read.
    pub(crate) fn new() -> io::Result<(Arc<Reports>, UnixStream)> {
        let (control, stream) = UnixStream::pair()?;
        let listed = Mutex::default();
        Ok((Arc::new(Reports { stream, listed }), control))
    }

    /// A further writer, for signals.
    pub(crate) fn stream(&self) -> io::Result<UnixStream> {
        self.stream.try_clone()
    }

    /// Somebody asks all loops to stop.
    pub(crate) fn stop(&self) {
        self.write(BY_HANDLE);
    }

    /// The thread of a slot is to be started.
    pub(crate) fn start(&self, slot: usize) {
        self.list(|listed| listed.start.push(slot));
    }

    fn ended(&self, index: usize) {
        self.list(|listed| listed.ended.push(index));
    }

    /// One byte for all that gathers until it is read, so that nobody waits for room.
    fn list(&self, add: impl FnOnce(&mut Listed)) {
        let mut listed = self.lock();
        let was_empty = listed.start.is_empty() && listed.ended.is_empty();
        add(&mut listed);
        drop(listed);
        if was_empty {
            self.write(LISTED);
        }
    }

    /// Waits for the next report on the stream that [`Reports::new`] has returned. `None`: nobody
    /// can report any more.
    pub(crate) fn next(&self, mut control: &UnixStream) -> Option<LoopReport> {
        let mut byte = [0];
        loop {
            match control.read(&mut byte) {
                Ok(1..) => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Cannot be while this side holds the other end.
                Ok(0) | Err(_) => return None,
            }
        }
        Some(match byte[0] {
            LISTED => LoopReport::Threads(std::mem::take(&mut *self.lock())),
            BY_SIGNAL => LoopReport::Signal,
            _ => LoopReport::Handle,
        })
    }

    fn write(&self, byte: u8) {
        // Fails only when nobody listens any more: then there is nothing left to stop.
        let _ = (&self.stream).write_all(&[byte]);
    }

    fn lock(&self) -> MutexGuard<'_, Listed> {
        // Nothing under this lock can panic half-way.
        self.listed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reports the end of a thread when it is dropped: however the thread ends.
pub(crate) struct ReportEnd<'a> {
    reports: &'a Reports,
    index: usize,
}

impl<'a> ReportEnd<'a> {
    /// For the loop with this number.
    pub(crate) fn new(reports: &'a Reports, index: usize) -> ReportEnd<'a> {
        ReportEnd { reports, index }
    }
}

impl Drop for ReportEnd<'_> {
    fn drop(&mut self) {
        self.reports.ended(self.index);
    }
}
