//! Databases that become ones of another kind.

use api::admin::ConvertProgress;
use service::{TaskFailure, TaskFailureKind};
use store::durable::{ConvertError, Durable};
use store::tree::TreeError;
use store::{DatabaseId, Kind, Refusal, Store};
use wal::disk::is_full;

use super::{DoneTask, TaskProgress, TaskWatch};

/// Converts a database.
pub(super) fn convert(
    store: &Store,
    durable: &Durable,
    id: DatabaseId,
    kind: Kind,
    watch: &mut TaskWatch<'_>,
) -> Result<DoneTask, TaskFailure> {
    let total_entries = entries(store, id);
    let converted = durable.convert(id, kind, &mut |copied_entries| {
        watch.tell(TaskProgress::Conversion(ConvertProgress {
            copied_entries,
            // On disk it is known by estimate only.
            total_entries: total_entries.max(copied_entries),
            ..ConvertProgress::default()
        }));
        watch.go_on()
    });
    match converted {
        Ok(report) => Ok(DoneTask::Conversion(ConvertProgress {
            copied_entries: report.entries,
            total_entries: report.entries,
            complete: true,
            converted: true,
            sequence: report.sequence,
        })),
        // Another call was quicker.
        Err(ConvertError::IsOfKind) => Ok(DoneTask::Conversion(ConvertProgress::NOTHING_DONE)),
        Err(error) => Err(not_converted(&error)),
    }
}

/// About how many entries there are.
fn entries(store: &Store, id: DatabaseId) -> u64 {
    store.statistics(id).map_or(0, |figures| figures.entries)
}

#[cold]
fn not_converted(error: &ConvertError) -> TaskFailure {
    let kind = kind_of(error);
    let what = match kind {
        TaskFailureKind::OutcomeUnknown => "whether the database was converted is unknown",
        _ => "the database was not converted, and is as it was",
    };
    TaskFailure {
        kind,
        message: format!("{what}: {error}"),
    }
}

fn kind_of(error: &ConvertError) -> TaskFailureKind {
    match error {
        ConvertError::Unknown => TaskFailureKind::Gone,
        ConvertError::NotPossible(_) | ConvertError::KeyTooLong => TaskFailureKind::NotPossible,
        ConvertError::TooLarge { .. } => TaskFailureKind::Full,
        ConvertError::LogFailed | ConvertError::Refused(Refusal::LogFailed) => {
            TaskFailureKind::LogFailed
        }
        ConvertError::Refused(Refusal::OutcomeUnknown) => TaskFailureKind::OutcomeUnknown,
        ConvertError::Refused(Refusal::LogFull) => TaskFailureKind::Full,
        ConvertError::Busy | ConvertError::Refused(_) => TaskFailureKind::NotNow,
        ConvertError::Cancelled | ConvertError::Stopping => TaskFailureKind::Stopping,
        ConvertError::Tree(TreeError::Io { source, .. }) if is_full(source) => {
            TaskFailureKind::Full
        }
        ConvertError::Tree(error) if error.is_of_damage() => TaskFailureKind::Damaged,
        _ => TaskFailureKind::Device,
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use service::Code;

    use super::*;

    fn io(kind: io::ErrorKind) -> ConvertError {
        ConvertError::Tree(TreeError::Io {
            folder: "trees/1-2".into(),
            source: kind.into(),
        })
    }

    #[test]
    fn failures_have_the_status_of_the_table() {
        use ConvertError as E;
        let damaged = TreeError::Damaged {
            folder: "trees/1-2".into(),
            what: "a block".into(),
        };
        let cases = [
            (E::Unknown, Code::NotFound),
            (E::KeyTooLong, Code::FailedPrecondition),
            (
                E::NotPossible(store::CreateError::VolatileOnDisk),
                Code::FailedPrecondition,
            ),
            (E::TooLarge { limit_bytes: 5 }, Code::ResourceExhausted),
            (io(io::ErrorKind::StorageFull), Code::ResourceExhausted),
            (io(io::ErrorKind::PermissionDenied), Code::Unavailable),
            (E::Tree(damaged), Code::DataLoss),
            (E::LogFailed, Code::FailedPrecondition),
            (E::Refused(Refusal::LogFailed), Code::FailedPrecondition),
            (E::Refused(Refusal::LogFull), Code::ResourceExhausted),
            (E::Refused(Refusal::LogBehind), Code::Unavailable),
            (E::Busy, Code::Unavailable),
            (E::Cancelled, Code::Unavailable),
            (E::Stopping, Code::Unavailable),
        ];
        for (error, code) in cases {
            let status = not_converted(&error).status();
            assert_eq!(status.code(), code, "{error:?}");
            assert!(
                status.message().contains("as it was"),
                "{}",
                status.message()
            );
        }
        let unknown = not_converted(&E::Refused(Refusal::OutcomeUnknown)).status();
        assert_eq!(unknown.code(), Code::Unknown);
        let message = unknown.message();
        assert!(message.contains("whether the database was converted is unknown"));
        assert!(!message.contains("as it was"), "{message}");
    }
}
