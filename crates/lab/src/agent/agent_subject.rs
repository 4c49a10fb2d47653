//! Which server an agent watches.

use std::io::{self, ErrorKind};

use thiserror::Error;

use crate::diagnose::{PortListeners, SystemFolders};

/// Which server an agent watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentSubject {
    /// This process.
    Process(u32),
    /// Whichever process listens on this TCP port when somebody asks.
    Port(u16),
}

/// Why a server cannot be watched.
#[derive(Debug, Error)]
pub(super) enum SubjectError {
    /// There is no such process.
    #[error("{} is not there", .0.words())]
    NotThere(AgentSubject),
    /// The agent has not the right to look at it.
    #[error("{} may not be looked at: its own user may, and root", .0.words())]
    NotPermitted(AgentSubject),
    /// The system does not let the agent look.
    #[error(transparent)]
    Unreadable(UnreadableSystem),
}

/// What keeps an agent from reading what the kernel says.
#[derive(Debug, Error)]
pub(super) enum UnreadableSystem {
    /// The agent has as many descriptors as it may have.
    #[error(
        "the agent has no file descriptor left to read /proc with; start it with a higher limit \
         (ulimit -n)"
    )]
    NoDescriptor,
    /// The machine has.
    #[error(
        "the server's machine has no file descriptor left for the agent to read /proc with; \
         fs.file-max of sysctl is its limit"
    )]
    NoDescriptorOfMachine,
    /// The machine has no memory.
    #[error("the server's machine has no memory left for the agent to read /proc with")]
    NoMemory,
    /// Something else.
    #[error("the agent cannot read /proc: {0}")]
    Other(io::Error),
}

impl UnreadableSystem {
    /// Returns what an error of reading means.
    pub(super) fn of(error: io::Error) -> UnreadableSystem {
        const MACHINE_HAS_NO_FILES: i32 = 23;
        const PROCESS_HAS_NO_FILES: i32 = 24;
        match error.raw_os_error() {
            Some(PROCESS_HAS_NO_FILES) => UnreadableSystem::NoDescriptor,
            Some(MACHINE_HAS_NO_FILES) => UnreadableSystem::NoDescriptorOfMachine,
            _ if error.kind() == ErrorKind::OutOfMemory => UnreadableSystem::NoMemory,
            _ => UnreadableSystem::Other(error),
        }
    }

    /// Whether the system has too little of something, which may pass.
    pub(super) fn is_shortage(&self) -> bool {
        !matches!(self, UnreadableSystem::Other(_))
    }
}

impl AgentSubject {
    /// Returns its processes.
    ///
    /// # Errors
    /// If there are none, or they cannot be seen.
    pub(super) fn processes(self, folders: &SystemFolders) -> Result<Vec<u32>, SubjectError> {
        let port = match self {
            AgentSubject::Process(process) => return Ok(vec![process]),
            AgentSubject::Port(port) => port,
        };
        match folders.port_listeners(port) {
            Ok(PortListeners::Found(processes)) => Ok(processes),
            Ok(PortListeners::Nobody) => Err(SubjectError::NotThere(self)),
            Ok(PortListeners::Hidden) => Err(SubjectError::NotPermitted(self)),
            Err(error) => Err(self.unseen(error)),
        }
    }

    /// Returns what an error means with which it was looked at.
    pub(super) fn unseen(self, error: io::Error) -> SubjectError {
        match error.kind() {
            ErrorKind::PermissionDenied => SubjectError::NotPermitted(self),
            _ => SubjectError::Unreadable(UnreadableSystem::of(error)),
        }
    }

    pub(super) fn port(self) -> Option<u16> {
        match self {
            AgentSubject::Process(_) => None,
            AgentSubject::Port(port) => Some(port),
        }
    }

    /// Returns what it is, in words.
    pub fn words(self) -> String {
        match self {
            AgentSubject::Process(process) => format!("process {process}"),
            AgentSubject::Port(port) => format!("the process that listens on port {port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_of_the_system_has_its_own_words() {
        let subject = AgentSubject::Port(1_986);
        for (number, words, is_shortage) in [
            (24, "ulimit -n", true),
            (23, "fs.file-max", true),
            (12, "no memory left", true),
            (13, "port 1986 may not be looked at: its own user", false),
            (1, "port 1986 may not be looked at: its own user", false),
            (5, "the agent cannot read /proc: Input/output error", false),
        ] {
            let error = subject.unseen(io::Error::from_raw_os_error(number));
            let text = error.to_string();
            assert!(text.contains(words), "{number}: {text}");
            assert!(!text.contains("not there"), "{number}: {text}");
            let of_system = match error {
                SubjectError::Unreadable(unreadable) => unreadable.is_shortage(),
                _ => false,
            };
            assert_eq!(of_system, is_shortage, "{number}");
        }
        let absent = SubjectError::NotThere(subject).to_string();
        assert_eq!(absent, "the process that listens on port 1986 is not there");
    }
}
