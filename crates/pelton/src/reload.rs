//! SIGHUP: reads the level of the log anew from the configuration file, and the certificate.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;

use server::TimeSource;
use signal_hook::consts::SIGHUP;
use signal_hook::low_level::pipe;

use crate::arguments::ServeArguments;
use crate::certificate::ServerCertificate;
use crate::log::Level;
use crate::notify::Notifier;
use crate::serve::SystemTimeSource;
use crate::settings::Settings;

/// From now on SIGHUP does it, if there is a configuration file or a certificate. Without both the signal ends the program, as that of a
/// terminal that was closed should. The thread ends with the process.
pub fn on_hangup(
    arguments: &ServeArguments,
    level: Level,
    notifier: Arc<Notifier>,
    status: String,
    certificate: Option<ServerCertificate>,
) -> io::Result<()> {
    if arguments.config.is_none() && certificate.is_none() {
        return Ok(());
    }
    let (mut hangups, signal_end) = UnixStream::pair()?;
    pipe::register(SIGHUP, signal_end)?;
    let arguments = arguments.clone();
    let thread = thread::Builder::new().name("pelton-reload".into());
    thread.spawn(move || {
        // Several signals that came meanwhile are one. The other end is never closed.
        while matches!(hangups.read(&mut [0; 64]), Ok(1..)) {
            notifier.reloading(SystemTimeSource.monotonic_ns());
            if arguments.config.is_some() {
                reload(&arguments, &level);
            }
            if let Some(certificate) = &certificate {
                certificate.look(true);
            }
            notifier.ready(&status);
        }
    })?;
    Ok(())
}

fn reload(arguments: &ServeArguments, level: &Level) {
    match Settings::load(arguments) {
        Ok((settings, _)) => {
            level.set(settings.log_level);
            tracing::info!(
                "SIGHUP: log-level is {}; all other settings need a restart",
                settings.log_level
            );
        }
        Err(error) => {
            // One line, although the message of a wrong file shows the place in it.
            let error = error.to_string().replace('\n', " ");
            tracing::error!("SIGHUP: nothing was changed: {error}");
        }
    }
}
