//! What a start puts into the log: the settings, what was found in the data folder, and warnings.

use std::net::SocketAddr;

use net::Address;
use store::blob::FoundBlobs;
use store::limits::SET_ASIDE_MS;
use store::{SET_ASIDE_FOLDER, Store};
use wal::Recovered;

use super::anonymous::warn_of_listener;
use super::config::largest_file_bytes;
use crate::output::counted;
use crate::settings::{Settings, warning_of_variables};

const MS_PER_DAY: u64 = 24 * 60 * 60 * 1000;

/// Puts into the log what the server runs with, at level debug, and what looks like a setting and
/// is none.
pub(super) fn log_settings(settings: &Settings) {
    for (name, value) in settings.lines() {
        match value {
            Some(value) => tracing::debug!("setting {name} = {value}"),
            None => tracing::debug!("setting {name} is not set"),
        }
    }
    let of_spans = settings.otlp.warnings();
    for warning in warning_of_variables().into_iter().chain(of_spans) {
        tracing::warn!("{warning}");
    }
}

/// Puts into the log what was found in the data folder.
pub(super) fn log_recovered(recovered: &Recovered) {
    let Recovered {
        records,
        last_sequence,
        ..
    } = recovered;
    if let Some(loss) = &recovered.loss {
        tracing::warn!("a part of the log was given up, as --accept-loss says: {loss}");
        tracing::warn!(
            "changes of tokens and roles in that part are undone: tokens that were revoked or \
             rotated in it are good again; look at `pelton token list`, and revoke them once more"
        );
    }
    if let Some(torn) = &recovered.torn {
        tracing::warn!(
            "the last group of the log was not whole, and was cut: {} bytes with {}, in {}. A stop \
             in the middle of a write leaves that, and none of it was acknowledged; where the disk \
             has changed what it had confirmed, acknowledged changes are undone: if tokens were \
             changed last, look at `pelton token list`",
            torn.bytes,
            counted(u64::from(torn.records), "record", "records"),
            torn.place
        );
    }
    if recovered.given_up > 0 {
        tracing::warn!(
            "{} of the log that --keep-log keeps for those who watch are damaged, or stand before \
             one that is missing, and are removed: nothing else needs them",
            counted(recovered.given_up, "file", "files")
        );
    }
    let records = counted(*records, "record", "records");
    if recovered.created {
        tracing::info!("the data folder is new");
    } else if recovered.closed {
        tracing::info!(
            "read {records} from the log, up to sequence {last_sequence}; the last stop was clean"
        );
    } else {
        tracing::info!(
            "read {records} from the log, up to sequence {last_sequence}; the last stop was not \
             clean"
        );
    }
}

/// Puts into the log how many folders of databases on disk nothing names.
pub(super) fn log_trees_set_aside(count: u64) {
    if count > 0 {
        tracing::warn!(
            "neither the log nor a snapshot names {count} folders in the folder of databases on \
             disk, or there are files of others in them: such as a crash leaves of one that was \
             being made, or of a log of which a part was given up, or copies that somebody has put \
             there; they were moved into the folder `{SET_ASIDE_FOLDER}` of the data folder, and \
             are removed after {} days",
            SET_ASIDE_MS / MS_PER_DAY
        );
    }
}

/// Puts into the log what was found in the folder of blobs.
pub(super) fn log_blobs_found(found: &FoundBlobs) {
    let FoundBlobs {
        blobs,
        unfinished,
        removed,
        set_aside,
        expired,
        missing,
        missing_names,
    } = found;
    if blobs + unfinished > 0 {
        let blobs = counted(*blobs, "blob", "blobs");
        let uploads = counted(*unfinished, "unfinished upload", "unfinished uploads");
        tracing::info!("found {blobs} and {uploads}");
    }
    if *removed > 0 {
        let files = counted(*removed, "file", "files");
        tracing::info!("removed {files} of blobs that were deleted or replaced before the stop");
    }
    if *set_aside > 0 {
        tracing::warn!(
            "nothing names {set_aside} files of the folder `blobs`: such as a crash leaves of \
             uploads that were not complete, or of blobs that were being removed; they were moved \
             into the folder `{SET_ASIDE_FOLDER}` of the data folder, and are removed after {} \
             days",
            SET_ASIDE_MS / MS_PER_DAY
        );
    }
    if *expired > 0 {
        tracing::info!("removed {expired} files or folders that had been set aside long ago");
    }
    if *missing > 0 {
        let more = match *missing > missing_names.len() as u64 {
            true => " and others",
            false => "",
        };
        tracing::error!(
            "{missing} blobs have no content: their files in the folder `blobs` of the data folder \
             are gone, removed by somebody else: {missing_names:?}{more}; reading them fails with \
             DATA_LOSS; upload them again, delete them, or restore a backup"
        );
    }
}

/// Puts into the log what an operator should know.
pub(super) fn warn(settings: &Settings, addresses: &[Address], metrics: Option<SocketAddr>) {
    if settings.max_value.0 > store::limits::VALUE_BYTES as u64 {
        tracing::warn!(
            "--max-value {} is above {} bytes: clients refuse messages above 4 MiB unless they are \
             set up to receive more, so that they may not be able to read what they have stored",
            settings.max_value,
            store::limits::VALUE_BYTES
        );
    }
    if let Some(bytes) = largest_file_bytes().filter(|_| settings.folder().is_some()) {
        tracing::warn!(
            "this process may make no file of more than {bytes} bytes (`ulimit -f`, `LimitFSIZE=` \
             of systemd): larger blobs, snapshots, backups and tables of databases on disk fail"
        );
    }
    for (address, listen) in addresses.iter().zip(settings.addresses()) {
        warn_of_listener(settings, address, &listen);
    }
    if let Some(address) = metrics.filter(|address| !address.ip().is_loopback()) {
        tracing::warn!(
            "whoever can reach {address} can read the metrics, with the names of all databases: \
             there is no access control"
        );
    }
}

/// Says that the calls of the key-value example will be refused until somebody makes a database.
pub(super) fn warn_of_kvstore_database(name: &str, store: &Store) {
    let is_there = store.databases().iter().any(|one| one.name == name);
    if !is_there {
        tracing::warn!(
            "there is no database `{name}`, which --kvstore-database names: all calls of \
             io.grpc.KeyValueService fail until `pelton database create {name}` makes it"
        );
    }
}
