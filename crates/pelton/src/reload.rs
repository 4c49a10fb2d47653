//! SIGHUP: reads the level of the log anew from the configuration file, and the certificate.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;

use server::TimeSource;
use signal_hook::consts::SIGHUP;
use signal_hook::low_level::pipe;

use crate::arguments::ServeArguments;
use crate::certificate::ServedCertificate;
use crate::interrupt::is_hangup_ignored;
use crate::log::Level;
use crate::notify::Notifier;
use crate::settings::Settings;
use crate::time_source::SystemTimeSource;

/// From now on SIGHUP stops the server as SIGTERM does: that of a terminal that was closed, where
/// there is nothing to read anew. Where `nohup` ignores the signal it stays ignored. The thread
/// ends with the process.
pub fn stop_on_hangup(server: net::StopHandle) -> io::Result<()> {
    if is_hangup_ignored() {
        return Ok(());
    }
    let (mut hangups, signal_end) = UnixStream::pair()?;
    pipe::register(SIGHUP, signal_end)?;
    let thread = thread::Builder::new().name("pelton-reload".into());
    thread.spawn(move || {
        if hangups.read_exact(&mut [0]).is_ok() {
            tracing::info!("SIGHUP, and no --config to read anew: stopping, as at SIGTERM");
            server.stop();
        }
    })?;
    Ok(())
}

/// From now on SIGHUP reads the configuration file and the certificate anew, of which there must be
/// one. The thread ends with the process.
pub fn on_hangup(
    arguments: &ServeArguments,
    settings: &Settings,
    level: Level,
    notifier: Arc<Notifier>,
    status: String,
    certificate: Option<ServedCertificate>,
) -> io::Result<()> {
    let (mut hangups, signal_end) = UnixStream::pair()?;
    pipe::register(SIGHUP, signal_end)?;
    let (arguments, running) = (arguments.clone(), settings.clone());
    let thread = thread::Builder::new().name("pelton-reload".into());
    thread.spawn(move || {
        // Several signals that came meanwhile are one. The other end is never closed.
        while matches!(hangups.read(&mut [0; 64]), Ok(1..)) {
            notifier.reloading(SystemTimeSource.monotonic_ns());
            if arguments.config.is_some() {
                reload(&arguments, &running, &level);
            }
            if let Some(certificate) = &certificate {
                certificate.look(true);
            }
            notifier.ready(&status);
        }
    })?;
    Ok(())
}

fn reload(arguments: &ServeArguments, running: &Settings, level: &Level) {
    match Settings::load(arguments) {
        Ok((settings, _)) => {
            level.set(settings.log_level);
            tracing::info!("SIGHUP: log-level is {}", settings.log_level);
            let waiting = waiting(running, &settings);
            if !waiting.is_empty() {
                tracing::warn!(
                    "SIGHUP: these settings have changed, and need a restart: {}",
                    waiting.join(", ")
                );
            }
        }
        Err(error) => {
            // One line, although the message of a wrong file shows the place in it.
            let error = error.to_string().replace('\n', " ");
            tracing::error!("SIGHUP: nothing was changed: {error}");
        }
    }
}

/// Returns what has changed since the start and is not read anew, each with both values.
fn waiting(running: &Settings, read: &Settings) -> Vec<String> {
    read.changes(running)
        .into_iter()
        .filter(|(name, ..)| *name != "log-level")
        .map(|(name, new, old)| format!("{name} (is {old}, would be {new})"))
        .collect()
}
