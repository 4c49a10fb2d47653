//! Uploads as gupload's client makes them: a file in chunks, over gRPC or as the body of a plain
//! request, one after the other on one connection.

mod content;
mod report;
mod run;
mod transfer;

pub use report::UploadReport;
pub use run::{UploadPlan, UploadRunError, UploadRunOutcome, run_uploads};
pub use transfer::{UploadFailure, UploadTimes, UploadWay};
