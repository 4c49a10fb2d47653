//! A replica that needs a new copy stops serving, and the program begins anew in the same process.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::exit::{Exit, Failure};

/// Whether the program is to begin anew when its server has stopped.
#[derive(Clone, Debug, Default)]
pub struct Renewal(Arc<AtomicBool>);

impl Renewal {
    /// Has the program begin anew when its server has stopped.
    pub fn ask(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// Returns how the server has ended, unless the program is to begin anew.
    pub fn end(&self, ended: Result<Exit, Failure>) -> Result<Exit, Failure> {
        match self.0.load(Ordering::SeqCst) {
            true => Err(Renewal::begin_anew()),
            false => ended,
        }
    }

    /// Begins anew: the same program with the same arguments in this process.
    fn begin_anew() -> Failure {
        let mut words = std::env::args_os();
        // The file itself may have been replaced since.
        let mut program = Command::new("/proc/self/exe");
        if let Some(name) = words.next() {
            program.arg0(name);
        }
        let error = program.args(words).exec();
        Failure::Failed(format!(
            "the program cannot be started anew, which a replica needs for a new copy: {error}; \
             start it again"
        ))
    }
}
