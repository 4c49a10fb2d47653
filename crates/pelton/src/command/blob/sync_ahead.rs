//! Makes a file durable on a thread of its own while more is written to it, so that nobody waits
//! for all of it at the end.

use std::fs::File;
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use crate::limits::DOWNLOAD_SYNC_BYTES;

/// The thread, once there is something to do for it.
#[derive(Debug, Default)]
pub(super) struct SyncAhead {
    worker: Option<SyncThread>,
    /// Written, and no sync asked for.
    unasked_bytes: u64,
}

#[derive(Debug)]
struct SyncThread {
    requests: SyncSender<()>,
    thread: JoinHandle<io::Result<()>>,
}

impl SyncAhead {
    /// So much more has been written.
    pub(super) fn wrote(&mut self, bytes: usize, file: &File) {
        self.unasked_bytes += bytes as u64;
        if self.unasked_bytes < DOWNLOAD_SYNC_BYTES {
            return;
        }
        if self.worker.is_none() {
            // Without a thread everything is synced at the end.
            self.worker = SyncThread::start(file).ok();
        }
        if let Some(worker) = &self.worker {
            // One that is asked for and has not begun will do.
            let _ = worker.requests.try_send(());
        }
        self.unasked_bytes = 0;
    }

    /// Ends the thread; afterwards nobody else has the file. An error was told to it, and would be
    /// told to nobody again.
    pub(super) fn end(&mut self) -> io::Result<()> {
        let Some(SyncThread { requests, thread }) = self.worker.take() else {
            return Ok(());
        };
        drop(requests);
        (thread.join())
            .unwrap_or_else(|_| Err(io::Error::other("the thread that syncs it panicked")))
    }
}

impl Drop for SyncAhead {
    fn drop(&mut self) {
        // Whoever wants to know has asked before.
        let _ = self.end();
    }
}

impl SyncThread {
    fn start(file: &File) -> io::Result<SyncThread> {
        let file = file.try_clone()?;
        let (requests, asked) = sync_channel(1);
        let thread = thread::Builder::new()
            .name("sync-ahead".into())
            .spawn(move || sync(&file, &asked))?;
        Ok(SyncThread { requests, thread })
    }
}

fn sync(file: &File, asked: &Receiver<()>) -> io::Result<()> {
    asked.iter().try_for_each(|()| file.sync_data())
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;

    use super::*;

    const PART: usize = DOWNLOAD_SYNC_BYTES as usize / 2;

    #[test]
    fn a_thread_is_there_once_there_is_much_and_lets_go_of_the_file() {
        let path = std::env::temp_dir().join(format!("pelton-sync-ahead-{}", std::process::id()));
        let file = File::create(&path).unwrap();
        let mut ahead = SyncAhead::default();
        ahead.wrote(PART, &file);
        assert!(ahead.worker.is_none());
        ahead.wrote(PART, &file);
        assert!(ahead.worker.is_some());
        ahead.wrote(8 * PART, &file);
        ahead.end().unwrap();
        assert!(ahead.worker.is_none());
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn an_error_is_not_lost() {
        // Neither can be synced, which is as good as a disk that fails.
        let file = OpenOptions::new().write(true).open("/dev/null").unwrap();
        let mut ahead = SyncAhead::default();
        ahead.wrote(2 * PART, &file);
        ahead.end().unwrap_err();
        ahead.end().unwrap();
    }
}
