//! What is done with the folder of a replica before its server starts.

use std::fs;
use std::io;
use std::path::Path;
use std::thread;

use server::TimeSource;
use store::SET_ASIDE_FOLDER;
use store::durable::{LOCK_NAME, REPLICA_ID_NAME, REPLICA_MARK_NAME};
use wal::disk::{Disk, RealDisk};

use super::backoff::Backoff;
use super::copying::{COPY_FOLDER, copy, remove_folder};
use super::leader::{Leader, LeaderError};
use super::mark::ReplicaMark;
use crate::exit::Failure;
use crate::randomness::random;
use crate::settings::{FORMAT_FILE, Settings};
use crate::time_source::SystemTimeSource;

/// Sees to it that the data folder is that of a replica of the leader, with a copy of what that
/// has; without a leader, that it is none. Takes as long as the copy takes: signals end the program
/// meanwhile.
///
/// # Errors
/// If the folder is of another kind, or the leader will never give a copy.
pub fn prepare(settings: &Settings, leader: Option<&Leader>) -> Result<(), Failure> {
    let Some(folder) = settings.folder() else {
        return Ok(());
    };
    let failed = |error: io::Error| {
        Failure::Failed(format!(
            "the data folder {} cannot be used: {error}",
            folder.display()
        ))
    };
    let Some(leader) = leader else {
        return match folder.join(REPLICA_MARK_NAME).exists() {
            false => Ok(()),
            true => Err(is_replica(folder)),
        };
    };
    let disk = RealDisk::open_or_create(folder).map_err(failed)?;
    match ReplicaMark::read(&disk).map_err(failed)? {
        Some(ReplicaMark::Following) => return Ok(()),
        Some(_) => {}
        None if folder.join(FORMAT_FILE).exists() => return Err(is_server(folder)),
        None if !is_empty(folder).map_err(failed)? => return Err(is_foreign(folder)),
        None => ReplicaMark::Copying.write(&disk).map_err(failed)?,
    }
    fill(folder, &disk, settings, leader)
}

fn fill(
    folder: &Path,
    disk: &RealDisk,
    settings: &Settings,
    leader: &Leader,
) -> Result<(), Failure> {
    let mut backoff = Backoff::default();
    let mut told = String::new();
    loop {
        let error = match try_fill(folder, disk, settings, leader) {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        let words = format!("no copy of {} could be taken: {error}", leader.address());
        if error.is_final() {
            return Err(Failure::Failed(format!(
                "{words}; --follow says which server it is, --follow-token-file whose right \
                 `admin` it has, --follow-tls-ca speaks TLS"
            )));
        }
        if told != words {
            tracing::warn!("{words}; it is tried again");
            told = words;
        }
        thread::sleep(backoff.next(random()));
    }
}

/// Takes the steps that are left to a folder with a copy.
fn try_fill(
    folder: &Path,
    disk: &RealDisk,
    settings: &Settings,
    leader: &Leader,
) -> Result<(), LeaderError> {
    let mark = ReplicaMark::read(disk)?;
    {
        let Some(_lock) = disk.lock()? else {
            let why = format!("another process uses the data folder {}", folder.display());
            return Err(LeaderError::Local(why));
        };
        match mark {
            Some(ReplicaMark::Following) | None => return Ok(()),
            Some(ReplicaMark::Copying) if folder.join(FORMAT_FILE).exists() => {
                // It was complete before that could be noted.
                remove_folder(&folder.join(COPY_FOLDER))?;
                return Ok(ReplicaMark::Following.write(disk)?);
            }
            Some(ReplicaMark::Copying | ReplicaMark::Renew) => clear(folder)?,
            Some(ReplicaMark::RenewAside) => set_aside(folder)?,
        }
        disk.sync_folder()?;
        ReplicaMark::Copying.write(disk)?;
    }
    tracing::info!("taking a copy of {}", leader.address());
    copy(leader, folder, settings)?;
    Ok(ReplicaMark::Following.write(disk)?)
}

/// The files and folders of a data folder but those that stay in any case.
fn content(folder: &Path) -> io::Result<Vec<fs::DirEntry>> {
    let stays = [
        REPLICA_MARK_NAME,
        REPLICA_ID_NAME,
        LOCK_NAME,
        SET_ASIDE_FOLDER,
    ];
    let mut content = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if !stays.iter().any(|stays| name == *stays) {
            content.push(entry);
        }
    }
    Ok(content)
}

fn is_empty(folder: &Path) -> io::Result<bool> {
    Ok(content(folder)?.is_empty())
}

/// Removes what is there.
fn clear(folder: &Path) -> io::Result<()> {
    for entry in content(folder)? {
        match entry.file_type()?.is_dir() {
            true => fs::remove_dir_all(entry.path())?,
            false => fs::remove_file(entry.path())?,
        }
    }
    Ok(())
}

/// Moves what is there into a folder of its own, from where it is removed after some days like all
/// that is set aside.
fn set_aside(folder: &Path) -> io::Result<()> {
    let content = content(folder)?;
    if content.is_empty() {
        return Ok(());
    }
    let name = format!("{:014}-replica", SystemTimeSource.wall_ms());
    let place = folder.join(SET_ASIDE_FOLDER).join(name);
    fs::create_dir_all(&place)?;
    for entry in content {
        fs::rename(entry.path(), place.join(entry.file_name()))?;
    }
    tracing::warn!(
        "what this replica had of another history is in {}, where it stays for seven days",
        place.display()
    );
    Ok(())
}

fn is_replica(folder: &Path) -> Failure {
    Failure::Failed(format!(
        "the data folder {} is that of a replica: start it with --follow LEADER. `pelton backup` \
         of the running replica and `pelton restore` make a server of its own of it",
        folder.display()
    ))
}

fn is_server(folder: &Path) -> Failure {
    Failure::Failed(format!(
        "the data folder {} is that of a server of its own, and a replica has nothing but what its \
         leader has: name an empty folder with --data",
        folder.display()
    ))
}

fn is_foreign(folder: &Path) -> Failure {
    Failure::Failed(format!(
        "the folder {} has something in it, and nothing but the data of the replica may be there: \
         name an empty folder with --data",
        folder.display()
    ))
}
