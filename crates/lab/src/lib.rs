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

pub mod agent;
pub mod compare;
pub mod diagnose;
mod failure;
mod histogram_log;
mod keys;
mod latency_counts;
pub mod limits;
mod load_plan;
pub mod machine;
mod measure;
mod method;
mod pacing;
mod page;
mod process;
mod random;
mod rate_profile;
mod report;
mod request;
mod requirement;
mod run;
mod run_intervals;
mod run_watch;
pub mod scenario;
mod stalls;
mod stream_plan;
pub mod sweep;
pub mod tap;
mod terminal_text;
mod transport;
mod upload;
mod values;
mod verdict;
mod worker;
mod workload;
mod zipf;

pub use failure::FailureKind;
pub use histogram_log::{HistogramLog, HistogramLogError};
pub use keys::Distribution;
pub use latency_counts::SharedLatencies;
pub use load_plan::{Length, LoadPlan};
pub use measure::{StreamTally, Tally, Window};
pub use method::{
    DescribedMethod, MethodError, MethodKind, MethodName, descriptors_in, descriptors_of,
};
pub use pacing::{Arrivals, Pace};
pub use process::{process_cpu_ns, thread_cpu_ns};
pub use rate_profile::{RateProfile, RateSteps};
pub use report::{KvstoreReport, PingTable, Report};
pub use request::RequestTemplate;
pub use requirement::{Requirement, RequirementError, RequirementResult};
pub use run::{LoadOutcome, run};
pub use run_intervals::LoadInterval;
pub use run_watch::LoadProgress;
pub use stalls::Stalls;
pub use stream_plan::StreamPlan;
pub use transport::Transport;
pub use upload::{
    UploadFailure, UploadPlan, UploadReport, UploadRunError, UploadRunOutcome, UploadTimes,
    UploadWay, run_uploads,
};
pub use values::ValueSizes;
pub use verdict::Verdict;
pub use worker::{
    ConnectionMode, LoadRunError, LoadWorker, MetadataField, MetadataValue, WorkerPlan,
};
pub use workload::{
    KeyUse, KvstoreDeletes, KvstoreLeft, KvstoreLoad, KvstoreWorkload, MethodRequests, Mix,
    MixError, MixOperation, PeltonLoad, PeltonShape, PeltonWorkload, Ping, RequestOrder,
    SameRequest, TkrzwLoad, TkrzwOperation, TkrzwShape, TkrzwWorkload, Workload, Ycsb,
};
