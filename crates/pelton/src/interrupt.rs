//! Ctrl-C while something long is under way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// Whether the user wants us to stop.
#[derive(Clone)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// From now on the first SIGINT or SIGTERM is only noted, so that the command can say how far it came; a second one
    /// ends the program at once.
    pub fn listen() -> Interrupt {
        let noted = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // In this order: the first signal finds the flag not set, and sets it.
            flag::register_conditional_default(signal, Arc::clone(&noted))
                .and_then(|_| flag::register(signal, Arc::clone(&noted)))
                .expect("these signals may be handled");
        }
        Interrupt(noted)
    }

    /// Whether a signal has come.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
