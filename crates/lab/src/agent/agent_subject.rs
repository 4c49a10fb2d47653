//! Which server an agent watches.

use crate::diagnose::SystemFolders;

/// Which server an agent watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentSubject {
    /// This process.
    Process(u32),
    /// Whichever process listens on this TCP port when somebody asks.
    Port(u16),
}

impl AgentSubject {
    /// Returns its processes; none if there are none that may be looked at.
    pub(super) fn processes(self, folders: &SystemFolders) -> Vec<u32> {
        match self {
            AgentSubject::Process(process) => vec![process],
            AgentSubject::Port(port) => folders.listeners(port),
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
