//! Load on a gRPC service, and what it measures.
//!
//! A [`LoadPlan`] says how calls are sent, a [`Workload`] says which; [`run`] carries it out and
//! returns a [`LoadOutcome`], which a [`Report`] puts into words, lines or JSON. What decides and
//! counts is a value without socket, thread and clock ([`LoadWorker`]), so that tests can put it
//! before a server that stalls for an exactly known time.

// What ships does not panic: docs/internals/panics.md.
#![cfg_attr(
    not(test),
    warn(
        clippy::disallowed_methods,
        clippy::panic,
        clippy::todo,
        clippy::unimplemented,
        clippy::unwrap_used
    )
)]

pub mod diagnose;
mod failure;
mod keys;
pub mod limits;
mod measure;
mod method;
mod pacing;
mod process;
mod random;
mod report;
mod run;
mod stalls;
pub mod tap;
mod transport;
mod values;
mod verdict;
mod worker;
mod workload;
mod zipf;

pub use failure::FailureKind;
pub use keys::Distribution;
pub use measure::{Tally, Window};
pub use method::{MethodError, MethodName, descriptors_of};
pub use pacing::{Arrivals, Pace};
pub use process::process_cpu_ns;
pub use report::{KvstoreReport, PingTable, Report};
pub use run::{Length, LoadOutcome, LoadPlan, LoadProgress, run};
pub use stalls::Stalls;
pub use transport::Transport;
pub use values::ValueSizes;
pub use verdict::Verdict;
pub use worker::{ConnectionMode, LoadWorker, MetadataField, MetadataValue, RunError, WorkerPlan};
pub use workload::{
    KeyUse, KvstoreDeletes, KvstoreLeft, KvstoreLoad, KvstoreWorkload, Mix, MixError, PeltonLoad,
    PeltonShape, PeltonWorkload, Ping, SameRequest, Workload,
};
