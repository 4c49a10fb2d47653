//! `--log_file`: what goes to standard error goes to a file.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::thread;

use crate::certificate::ServedCertificate;
use crate::reload;
use crate::start_signals::HangupNoted;

/// From now on standard error is this file, which grows at its end.
///
/// # Errors
/// If it cannot be opened.
pub fn open(file: &Path) -> io::Result<()> {
    let opened: File = OpenOptions::new().create(true).append(true).open(file)?;
    rustix::stdio::dup2_stderr(&opened)?;
    Ok(())
}

/// From now on SIGHUP opens the file anew, if there is one, so that it can be moved away, and reads
/// the certificate anew. As with tkrzw_server it ends nothing. The thread ends with the process.
///
/// # Errors
/// If there is no thread or no handler for it.
pub fn open_on_hangup(
    file: Option<PathBuf>,
    certificate: Option<ServedCertificate>,
    hung_up: &HangupNoted,
) -> io::Result<()> {
    let mut hangups = reload::hangups(hung_up)?;
    let thread = thread::Builder::new().name("pelton-reload".into());
    thread.spawn(move || {
        // Several signals that came meanwhile are one. The other end is never closed.
        while matches!(hangups.read(&mut [0; 64]), Ok(1..)) {
            if let Some(file) = &file
                && let Err(error) = open(file)
            {
                let file = file.display();
                tracing::warn!("SIGHUP: {file} cannot be opened anew, the log stays: {error}");
            }
            if let Some(certificate) = &certificate {
                certificate.look(true);
            }
        }
    })?;
    Ok(())
}
