//! `pelton restore`

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use server::TimeSource;
use store::StoreConfig;
use store::backup::{self, Manifest, RestoreConfig, RestoreError};
use store::durable::{TREES_FOLDER, TreePlace};
use store::tree::TreeConfig;
use wal::disk::{Disk, RealDisk};
use wal::{LogConfig, LogId};

use crate::arguments::RestoreArguments;
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::output::{Output, bytes, databases, entries, object};
use crate::own_files;
use crate::progress::ProgressLine;
use crate::randomness::random;
use crate::time_source::SystemTimeSource;

/// Makes a data folder of a backup, or checks one.
pub fn restore(arguments: &RestoreArguments) -> Result<Exit, Failure> {
    own_files::deny_others();
    let name = arguments.backup.display();
    let source = RealDisk::open_read_only(&arguments.backup).map_err(|error| {
        // `pelton backup NAME` makes it where the server says.
        let is_name = arguments.backup.components().count() == 1;
        let hint = match error.kind() {
            std::io::ErrorKind::NotFound if is_name => {
                "; a backup lies in the folder that --backup-root of its server names"
            }
            _ => "",
        };
        Failure::Failed(format!("cannot read the backup {name}: {error}{hint}"))
    })?;
    match &arguments.data {
        Some(data) => restore_into(arguments, &source, data)?,
        None => verify(arguments, &source)?,
    }
    Ok(Exit::Done)
}

fn verify(arguments: &RestoreArguments, source: &RealDisk) -> Result<(), Failure> {
    let verified = with_progress("checking", |watch| backup::verify(source, watch));
    let verified = verified.map_err(failure)?;
    let manifest = &verified.manifest;
    let mut output = Output::new(arguments.output);
    let text = format!(
        "{} is whole: sequence {}, {}, {}",
        arguments.backup.display(),
        manifest.cut.sequence,
        bytes(manifest.bytes() + verified.blob_bytes),
        databases(manifest.databases)
    );
    output.either(&text, || {
        let mut fields = of_manifest(manifest, verified.blob_bytes);
        fields.extend(object([
            ("snapshot_entries", verified.snapshot_entries.into()),
            ("log_records", verified.log_records.into()),
        ]));
        fields
    })?;
    output.end()
}

fn of_manifest(manifest: &Manifest, blob_bytes: u64) -> serde_json::Map<String, serde_json::Value> {
    object([
        ("server", manifest.server.clone().into()),
        ("history_id", format!("{:016x}", manifest.history_id).into()),
        ("sequence", manifest.cut.sequence.into()),
        ("wall_ms", manifest.wall_ms.into()),
        ("bytes", (manifest.bytes() + blob_bytes).into()),
        ("databases", manifest.databases.into()),
        ("volatile_databases", manifest.volatile_databases.into()),
    ])
}

fn restore_into(
    arguments: &RestoreArguments,
    source: &RealDisk,
    data: &Path,
) -> Result<(), Failure> {
    let (target, is_made) = backup::new_folder(data).map_err(failure)?;
    let target: Arc<dyn Disk> = Arc::new(target);
    let config = config(data);
    let restored = with_progress("restoring", |watch| {
        backup::restore(source, &target, &config, &mut SystemTimeSource, watch)
    });
    let restored = restored.map_err(|error| {
        if is_made {
            // What was in it is removed.
            let _ = fs::remove_dir(data);
        }
        failure(error)
    })?;
    let sequence = restored.manifest.cut.sequence;
    let mut output = Output::new(arguments.output).optional();
    let text = format!(
        "restored into {}: sequence {sequence}, {}, {}, new history {:016x}\n\
         tokens and roles are in no backup: start with --init-admin, and make them anew",
        data.display(),
        entries(restored.entries),
        databases(restored.databases),
        restored.history_id
    );
    output.either(&text, || {
        object([
            ("data", data.display().to_string().into()),
            ("sequence", sequence.into()),
            ("entries", restored.entries.into()),
            ("databases", restored.databases.into()),
            (
                "bytes",
                (restored.manifest.bytes() + restored.blob_bytes).into(),
            ),
            ("history_id", format!("{:016x}", restored.history_id).into()),
            (
                "backup_history_id",
                format!("{:016x}", restored.manifest.history_id).into(),
            ),
        ])
    })?;
    output.end()
}

/// What did not work, in the words of a command.
fn failure(error: RestoreError) -> Failure {
    let message = error.to_string();
    match error.is_cancelled() {
        true => Failure::Interrupted(message),
        false => Failure::Failed(message),
    }
}

/// All that was in the server is to be in the folder, whatever this process may use of memory.
fn config(data: &Path) -> RestoreConfig {
    let log_id = LogId {
        history: random(),
        secret: random(),
    };
    let mut store = StoreConfig::new(random());
    store.default_database.durability = store::Durability::Synced;
    RestoreConfig {
        store,
        log: LogConfig::new(log_id, SystemTimeSource.wall_ms()),
        trees: Some(TreePlace {
            folder: data.join(TREES_FOLDER),
            config: TreeConfig::default(),
        }),
    }
}

/// Shows how far something has come, and ends it when the user wants to.
fn with_progress<R>(
    what: &'static str,
    run: impl FnOnce(&mut dyn FnMut(u64, u64) -> ControlFlow<()>) -> R,
) -> R {
    let interrupt = Interrupt::listen();
    let progress = ProgressLine::bytes(what);
    run(&mut |done_bytes, total_bytes| {
        progress.set_of(done_bytes, total_bytes);
        match interrupt.is_set() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    })
}
