//! Frees what was cleared and dropped, away from the loops: freeing millions of entries takes a second.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread;

use store::Garbage;
use store::background::Background;

use crate::limits;
use crate::settings::Log;

/// Where garbage goes.
#[derive(Clone)]
pub(crate) enum Reaper {
    /// A thread of its own.
    Thread(SyncSender<Garbage>),
    /// Freed at once, as in a simulation, which has one thread.
    Inline,
}

impl Reaper {
    /// Starts the thread. It ends when the last loop has.
    pub fn start(log: Arc<dyn Log>) -> std::io::Result<Reaper> {
        let (sender, receiver) = sync_channel::<Garbage>(limits::GARBAGE_QUEUE);
        thread::Builder::new()
            .name("pelton-reaper".into())
            .spawn(move || {
                if let Err(error) = Background::Bulk.enter() {
                    log.storage(&error.to_string());
                }
                receiver.iter().for_each(drop);
            })?;
        Ok(Reaper::Thread(sender))
    }

    pub fn take(&self, garbage: Garbage) {
        if garbage.is_empty() {
            return;
        }
        match self {
            // With the queue full the loop pays for its own rubbish: slow, but bounded.
            Reaper::Thread(sender) => match sender.try_send(garbage) {
                Ok(()) => {}
                Err(TrySendError::Full(garbage) | TrySendError::Disconnected(garbage)) => {
                    drop(garbage)
                }
            },
            Reaper::Inline => drop(garbage),
        }
    }
}
