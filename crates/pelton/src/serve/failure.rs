//! Why a server did not start, and which flag helps.

use net::{Address, BindError};
use server::StartError;
use store::SET_ASIDE_FOLDER;
use store::durable::{FolderError, OpenError};
use store::snapshot::SnapshotReadError;

use crate::arguments::KindArgument;
use crate::exit::Failure;
use crate::settings::Settings;

/// What to do first where a device has failed twice, and may not for ever.
const NOT_YET_LOST: &str = "Nothing may be lost: the device failed to read. Start again; if that \
                            fails as well, copy the folder to another device, or restore a backup. \
                            Only where both fail, ";

/// Says why the server did not start, and which flag helps.
pub(super) fn start_failure(error: &StartError) -> Failure {
    let advice = match error {
        StartError::Bind(BindError::InUse {
            address: Address::Tcp { host, port },
        }) => format!(
            "; choose another port with --listen {}, or stop the other process (ss -ltnp 'sport = \
             :{port}' shows it)",
            Address::Tcp {
                host: host.clone(),
                port: port.wrapping_add(1).max(1024)
            }
        ),
        StartError::Bind(BindError::InUse { .. }) => {
            "; choose another path with --listen unix:/path".into()
        }
        StartError::Bind(_) => "; --listen says where to listen".into(),
        StartError::Open(OpenError::Folder(error)) => return folder_failure(error),
        StartError::Open(OpenError::Log(wal::LogOpenError::Damaged { .. })) => {
            "; nothing was changed. --accept-loss starts with what is whole, and gives up the \
             rest, revocations of tokens included"
                .into()
        }
        StartError::Open(OpenError::Orphans { .. }) => format!(
            "; nothing was changed. --accept-loss starts without them, and moves them into the \
             folder {SET_ASIDE_FOLDER} of the data folder"
        ),
        StartError::Open(OpenError::Database { error, .. }) if error.can_be_given_up() => format!(
            "; nothing was changed. {}--accept-loss starts without what is in such a database: its \
             folder alone is moved into the folder {SET_ASIDE_FOLDER} of the data folder, and it \
             begins anew with what the log still has of it",
            match error.is_of_damage() {
                true => "",
                false => NOT_YET_LOST,
            }
        ),
        StartError::Open(OpenError::Snapshot(SnapshotReadError::Damaged { .. })) => {
            "; nothing was changed. Put a whole copy of the file back, or restore a backup".into()
        }
        StartError::OtherSecret(_) => {
            "; put the file `pelton-data` of this folder back. --accept-loss starts without it: \
             all these tokens become invalid, and --init-admin-file FILE beside it makes an \
             administrator's token anew, with which the others are rotated"
                .into()
        }
        StartError::OtherKind(kind) => {
            let wanted = match kind {
                store::Kind::Memory => KindArgument::Disk,
                _ => KindArgument::Memory,
            };
            format!(
                "; nothing was changed. Start without --kind, then `pelton database convert --kind \
                 {wanted}` converts it while the server runs"
            )
        }
        _ => String::new(),
    };
    Failure::Failed(format!("{error}{advice}"))
}

/// Says why a replica did not start: where something of its folder is damaged or missing, the
/// leader has all of it.
pub(super) fn replica_start_failure(error: &StartError, leader: &str) -> Failure {
    let is_of_folder = match error {
        StartError::Open(error) => match error {
            OpenError::Log(
                wal::LogOpenError::Damaged { .. } | wal::LogOpenError::Misfit { .. },
            )
            | OpenError::Snapshot(SnapshotReadError::Damaged { .. })
            | OpenError::Folder(FolderError::Damaged { .. } | FolderError::Unmarked { .. })
            | OpenError::TreeAhead { .. }
            | OpenError::Replay(_)
            | OpenError::Orphans { .. } => true,
            OpenError::Database { error, .. } => error.can_be_given_up(),
            _ => false,
        },
        StartError::OtherSecret(_) => true,
        _ => false,
    };
    if !is_of_folder {
        return start_failure(error);
    }
    Failure::Failed(format!(
        "{error}; nothing was changed. This is a replica: move its data folder away, and start \
         again; it takes a new copy of {leader}. If the leader is lost, keep the folder: what is \
         whole in it is all there is"
    ))
}

/// Says why the data folder cannot be used, and which flag says where it is.
pub(super) fn folder_failure(error: &FolderError) -> Failure {
    Failure::Failed(format!(
        "{error}; --data says which folder, --durability volatile does without one"
    ))
}

/// The folder is made before it is known whether the server can start. Removes it if it is empty.
pub(super) fn leave_no_empty_folder(settings: &Settings) {
    if let Some(folder) = settings.folder() {
        let _ = std::fs::remove_dir(folder);
    }
}

#[cfg(test)]
mod tests {
    use store::tree::TreeError;

    use super::*;

    /// Who accepts a loss at once loses what a second start might have read.
    #[test]
    fn where_a_device_has_failed_to_read_the_advice_is_to_try_again_first() {
        let with = |error| OpenError::Database {
            name: "disk".into(),
            error,
            others: Vec::new(),
        };
        let device = TreeError::Io {
            folder: "trees/2-9".into(),
            source: std::io::Error::from_raw_os_error(5),
        };
        let damage = TreeError::Damaged {
            folder: "trees/2-9".into(),
            what: "a part of a table does not fit its checksum".into(),
        };
        for (error, is_first) in [(device, true), (damage, false)] {
            let message = start_failure(&StartError::Open(with(error))).to_string();
            let again = message.find("Start again");
            assert_eq!(again.is_some(), is_first, "{message}");
            let accept = message.find("--accept-loss").expect("it is named");
            assert!(again.is_none_or(|again| again < accept), "{message}");
        }
        let no_rights = TreeError::Io {
            folder: "trees/2-9".into(),
            source: std::io::Error::from_raw_os_error(13),
        };
        let message = start_failure(&StartError::Open(with(no_rights))).to_string();
        assert!(!message.contains("--accept-loss"), "{message}");
    }

    /// A replica may not be started with that flag, and needs it for nothing.
    #[test]
    fn a_replica_whose_folder_is_damaged_is_to_take_a_new_copy() {
        let damage = TreeError::Damaged {
            folder: "trees/2-9".into(),
            what: "a part of a table does not fit its checksum".into(),
        };
        let database = OpenError::Database {
            name: "disk".into(),
            error: damage,
            others: Vec::new(),
        };
        let ahead = OpenError::TreeAhead {
            tree_sequence: 9,
            last_sequence: 8,
        };
        for error in [database, ahead] {
            let error = StartError::Open(error);
            let message = replica_start_failure(&error, "leader:1978").to_string();
            assert!(!message.contains("--accept-loss"), "{message}");
            let words = "it takes a new copy of leader:1978";
            assert!(message.contains(words), "{message}");
        }
        let error = StartError::Bind(BindError::InUse {
            address: "127.0.0.1:1978".parse().expect("valid"),
        });
        let message = replica_start_failure(&error, "leader:1978").to_string();
        assert_eq!(message, start_failure(&error).to_string());
    }

    #[test]
    fn a_port_in_use_names_the_port_and_the_flag() {
        let error = StartError::Bind(BindError::InUse {
            address: "127.0.0.1:1978".parse().expect("valid"),
        });
        let message = start_failure(&error).to_string();
        assert!(
            message.contains("127.0.0.1:1978") && message.contains("--listen 127.0.0.1:1979"),
            "{message}"
        );
    }
}
