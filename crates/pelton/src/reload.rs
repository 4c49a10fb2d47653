//! SIGHUP: reads the level of the log anew from the configuration file, and the certificate.

use std::io::{self, Read, Write};
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
use crate::start_signals::HangupNoted;
use crate::time_source::SystemTimeSource;

/// What is read anew at SIGHUP, and what has to know.
pub struct Reload {
    pub arguments: ServeArguments,
    /// The settings that the server runs with.
    pub running: Settings,
    pub level: Level,
    pub notifier: Arc<Notifier>,
    /// What the service manager is told when it is done.
    pub status: String,
    pub certificate: Option<ServedCertificate>,
}

/// From now on SIGHUP stops the server as SIGTERM does: that of a terminal that was closed, where
/// there is nothing to read anew. Where `nohup` ignores the signal it stays ignored. The thread
/// ends with the process.
pub fn stop_on_hangup(server: net::StopHandle, hung_up: &HangupNoted) -> io::Result<()> {
    if is_hangup_ignored() {
        return Ok(());
    }
    let mut hangups = hangups(hung_up)?;
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
pub fn on_hangup(what: Reload, hung_up: &HangupNoted) -> io::Result<()> {
    let mut hangups = hangups(hung_up)?;
    let thread = thread::Builder::new().name("pelton-reload".into());
    thread.spawn(move || {
        // Several signals that came meanwhile are one. The other end is never closed.
        while matches!(hangups.read(&mut [0; 64]), Ok(1..)) {
            what.run();
        }
    })?;
    Ok(())
}

/// Returns what brings a byte for each SIGHUP from now on, and for those that came before.
pub fn hangups(hung_up: &HangupNoted) -> io::Result<UnixStream> {
    let (hangups, mut signal_end) = UnixStream::pair()?;
    pipe::register(SIGHUP, signal_end.try_clone()?)?;
    if hung_up.take() {
        signal_end.write_all(&[0])?;
    }
    Ok(hangups)
}

impl Reload {
    fn run(&self) {
        self.notifier.reloading(SystemTimeSource.monotonic_ns());
        if self.arguments.config.is_some() {
            reload(&self.arguments, &self.running, &self.level);
        }
        if let Some(certificate) = &self.certificate {
            certificate.look(true);
        }
        self.notifier.ready(&self.status);
    }
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
