//! Diagnosis: what makes a service slow, found by short experiments.
//!
//! Experiments bring figures ([`LoadEvidence`], [`ClientEvidence`]); what decides is a value of
//! them, and nothing else ([`judge_load`], [`judge_client`]). So each decision has a table of
//! evidence as its test. [`LoadDiagnosis`] makes experiments with our own generator, [`client_run`]
//! makes one of what the tap saw of the user's own client. A [`DiagnosisReport`] prints both.

mod agent_presence;
mod cause;
mod client_run;
mod client_runs;
mod client_verdict;
mod compression;
mod diagnosis;
mod evidence;
mod ladder;
pub mod limits;
mod load_experiments;
mod load_verdict;
mod process_watch;
mod report;
mod saturated_server;
mod small_messages;
mod system_folders;
mod waiting_server;
mod wandering;
mod way_verdict;

#[cfg(test)]
mod tests;

pub use agent_presence::{AgentLoss, AgentLossCause, AgentPresence};
pub use cause::Cause;
pub use client_run::{RunConditions, client_run, left_calls_time};
pub use client_verdict::judge_client;
pub use diagnosis::{Conclusion, Diagnosis, ProposedChange};
pub use evidence::{
    ClientEvidence, ClientRun, CompressionUse, EarlyEnd, LoadCeiling, LoadEvidence, LoadPoint,
    MachineUse, ProcessUse, ThreadUse,
};
pub use load_experiments::{LoadDiagnosis, LoadSubject, MakeBatches, ServerWatch};
pub use load_verdict::judge_load;
pub use process_watch::{WatchSwitch, WatchedProcesses, WatchedUse, watch_processes};
pub use report::DiagnosisReport;
pub use system_folders::SystemFolders;

pub(crate) use process_watch::ProcessWatch;
pub(crate) use system_folders::PortListeners;
