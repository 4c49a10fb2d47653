//! What the service manager is told (sd_notify(3)): that the server is ready, stops, is alive.
//! Without one, nothing.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// The socket of the service manager, if there is one.
#[derive(Debug, Default)]
pub struct Notifier {
    socket: Option<UnixDatagram>,
    watchdog: Option<Duration>,
}

impl Notifier {
    /// As the environment says: `NOTIFY_SOCKET`, and `WATCHDOG_USEC` with `WATCHDOG_PID`.
    ///
    /// # Errors
    /// If there is a socket and it cannot be reached.
    pub fn from_environment() -> io::Result<Notifier> {
        let Some(name) = env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
            return Ok(Notifier::default());
        };
        let read = |name| -> Option<u64> { env::var(name).ok()?.parse().ok() };
        Ok(Notifier {
            socket: Some(connect(&name)?),
            watchdog: watchdog(
                read("WATCHDOG_USEC"),
                read("WATCHDOG_PID"),
                std::process::id().into(),
            ),
        })
    }

    /// How often at least [`Notifier::alive`] must be said; `None`: it is not asked for.
    pub fn watchdog(&self) -> Option<Duration> {
        self.watchdog
    }

    /// The server serves; `status` is a line for people.
    pub fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={status}\n"));
    }

    /// The server stops.
    pub fn stopping(&self, status: &str) {
        self.send(&format!("STOPPING=1\nSTATUS={status}\n"));
    }

    /// Settings are read anew; [`Notifier::ready`] follows. `now_ns` is the monotonic clock.
    pub fn reloading(&self, now_ns: u64) {
        let now_us = now_ns / 1_000;
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={now_us}\n"));
    }

    /// The server works.
    pub fn alive(&self) {
        self.send("WATCHDOG=1\n");
    }

    fn send(&self, text: &str) {
        if let Some(socket) = &self.socket {
            // The manager may have gone; the server goes on without.
            let _ = socket.send(text.as_bytes());
        }
    }
}

/// A path, or behind `@` a name of the abstract namespace.
fn connect(name: &OsStr) -> io::Result<UnixDatagram> {
    let bytes = name.as_bytes();
    let address = match bytes.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    // A manager that reads nothing must not hold up the server.
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Between two signs of life, if they are asked of this process.
fn watchdog(usec: Option<u64>, pid: Option<u64>, own: u64) -> Option<Duration> {
    let is_meant = pid.is_none_or(|pid| pid == own);
    usec.filter(|&usec| usec > 0 && is_meant)
        .map(Duration::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notifier(name: &OsStr) -> Notifier {
        Notifier {
            socket: Some(connect(name).expect("somebody listens")),
            watchdog: None,
        }
    }

    fn heard(manager: &UnixDatagram) -> String {
        let mut bytes = [0; 500];
        let count = manager.recv(&mut bytes).expect("something came");
        String::from_utf8_lossy(&bytes[..count]).into_owned()
    }

    #[test]
    fn the_manager_hears_all_by_an_abstract_name_and_by_a_path() {
        let id = std::process::id();
        let abstract_name = format!("pelton-notify-{id}");
        let address = SocketAddr::from_abstract_name(&abstract_name).expect("valid");
        let path = env::temp_dir().join(format!("pelton-notify-{id}.sock"));
        let managers = [
            (
                UnixDatagram::bind_addr(&address),
                format!("@{abstract_name}"),
            ),
            (UnixDatagram::bind(&path), path.display().to_string()),
        ];
        for (manager, name) in managers {
            let manager = manager.expect("the name is free");
            let notifier = notifier(OsStr::new(&name));
            notifier.ready("serving");
            notifier.alive();
            notifier.reloading(5_000_999);
            notifier.stopping("calls end");
            assert_eq!(heard(&manager), "READY=1\nSTATUS=serving\n");
            assert_eq!(heard(&manager), "WATCHDOG=1\n");
            assert_eq!(heard(&manager), "RELOADING=1\nMONOTONIC_USEC=5000\n");
            assert_eq!(heard(&manager), "STOPPING=1\nSTATUS=calls end\n");
        }
        let _ = std::fs::remove_file(&path);
        assert!(connect(path.as_os_str()).is_err(), "nobody listens");
    }

    #[test]
    fn a_manager_that_does_not_read_holds_up_nobody() {
        let name = format!("pelton-deaf-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("valid");
        let _manager = UnixDatagram::bind_addr(&address).expect("the name is free");
        let notifier = notifier(OsStr::new(&format!("@{name}")));
        for _ in 0..10_000 {
            notifier.alive();
        }
    }

    #[test]
    fn signs_of_life_are_for_the_process_that_is_meant() {
        let second = Some(Duration::from_secs(1));
        assert_eq!(watchdog(Some(1_000_000), None, 7), second);
        assert_eq!(watchdog(Some(1_000_000), Some(7), 7), second);
        assert_eq!(watchdog(Some(1_000_000), Some(8), 7), None);
        assert_eq!(watchdog(Some(0), None, 7), None);
        assert_eq!(watchdog(None, Some(7), 7), None);
    }
}
