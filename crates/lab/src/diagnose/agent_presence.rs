//! Which agent watched the server, and how it was lost.

use std::time::Duration;

/// An agent on the server's machine that reported when the experiments began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentPresence {
    /// Where it is.
    pub address: String,
    /// How it was lost, if it was.
    pub loss: Option<AgentLoss>,
}

/// How an agent was lost while the experiments went on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentLoss {
    /// When, since the run began.
    pub after: Duration,
    /// Why.
    pub cause: AgentLossCause,
}

/// Why an agent was lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentLossCause {
    /// It reports no more: why, as far as that is known.
    Stopped(String),
    /// It reported what cannot be: what.
    Impossible(String),
}

impl AgentPresence {
    /// Returns how it was lost, in words.
    pub fn loss_words(&self) -> Option<String> {
        let loss = self.loss.as_ref()?;
        let (address, second) = (&self.address, loss.after.as_secs());
        Some(match &loss.cause {
            AgentLossCause::Stopped(why) => format!(
                "the agent at {address} stopped answering at second {second} of the run: {why}; \
                 what the server's process did from then on is not known"
            ),
            AgentLossCause::Impossible(what) => format!(
                "the agent at {address} answers impossible figures: {what}; from second {second} \
                 of the run on it was not believed"
            ),
        })
    }
}

/// What is needed where the server's process cannot be seen: never what is there already.
pub(super) fn needs_server(agent: Option<&AgentPresence>) -> String {
    match agent {
        None => "the figures of the server's process: run this on its machine, with --server-pid \
                 if it is not found by its port, or `pelton lab agent` there, and --agent here"
            .into(),
        Some(AgentPresence {
            address,
            loss: None,
        }) => format!(
            "the figures of the server's process: the agent at {address} had none of this load; \
             run this again"
        ),
        Some(AgentPresence { address, .. }) => format!(
            "the figures of the server's process until the end: find out why the agent at \
             {address} was lost, and run this again"
        ),
    }
}
