//! What is done with the folder of a replica before its server starts.

use std::io;
use std::path::Path;
use std::thread;

use server::TimeSource;
use store::durable::REPLICA_MARK_NAME;
use wal::disk::{Disk, RealDisk};

use super::backoff::Backoff;
use super::copying::{load_copy, take_copy};
use super::leader::{Leader, LeaderError};
use super::mark::{OldContent, Promotion, ReplicaMark};
use super::old_leader::{RejoinError, rejoin};
use super::placing;
use crate::exit::Failure;
use crate::randomness::random;
use crate::settings::{FORMAT_FILE, Settings};
use crate::time_source::SystemTimeSource;

/// What a server is that starts in a data folder.
#[derive(Debug, PartialEq, Eq)]
pub enum Prepared {
    /// One of its own.
    Server,
    /// A replica; why a new copy could not be used, if so: what was there is still served.
    Replica(Option<String>),
    /// One of its own, which was a replica until it was promoted.
    Promoted(Promotion),
}

/// Sees to it that the data folder is that of a replica of the leader, with a copy of what that
/// has; without a leader, that it is none. Takes as long as the copy takes: signals end the program
/// meanwhile. Whom a promoted replica has followed is passed over.
///
/// # Errors
/// If the folder is of another kind, or the leader will never give a copy.
pub fn prepare(settings: &Settings, leader: Option<&Leader>) -> Result<Prepared, Failure> {
    let Some(folder) = settings.folder() else {
        return Ok(Prepared::Server);
    };
    let failed = |error: io::Error| {
        Failure::Failed(format!(
            "the data folder {} cannot be used: {error}",
            folder.display()
        ))
    };
    let Some(leader) = leader else {
        if !folder.join(REPLICA_MARK_NAME).exists() {
            return Ok(Prepared::Server);
        }
        let read = RealDisk::open(folder).and_then(|disk| ReplicaMark::read(&disk));
        return match read.map_err(failed)? {
            Some(ReplicaMark::Promoted(promotion)) => Ok(Prepared::Promoted(promotion)),
            _ => Err(is_replica(folder)),
        };
    };
    let disk = RealDisk::open_or_create(folder).map_err(failed)?;
    match ReplicaMark::read(&disk).map_err(failed)? {
        Some(ReplicaMark::Promoted(promotion)) => return Ok(Prepared::Promoted(promotion)),
        Some(_) => {}
        None if folder.join(FORMAT_FILE).exists() => {
            let joined = rejoin(folder, &disk, leader);
            joined.map_err(|error| is_server(folder, &error))?;
        }
        None if !placing::is_empty(folder).map_err(failed)? => return Err(is_foreign(folder)),
        None => ReplicaMark::Copying.write(&disk).map_err(failed)?,
    }
    let preparing = Preparing {
        folder,
        disk,
        settings,
        leader,
    };
    preparing.run().map(Prepared::Replica)
}

struct Preparing<'a> {
    folder: &'a Path,
    disk: RealDisk,
    settings: &'a Settings,
    leader: &'a Leader,
}

impl Preparing<'_> {
    fn run(&self) -> Result<Option<String>, Failure> {
        let mut backoff = Backoff::of_leader();
        let mut told = String::new();
        loop {
            let error = match self.try_all() {
                Ok(unusable) => return Ok(unusable),
                Err(error) => error,
            };
            let address = self.leader.address();
            let words = match &error {
                LeaderError::Local(_) => {
                    let folder = self.folder.display();
                    format!("no copy of {address} can be kept in {folder}: {error}")
                }
                _ => format!("no copy of {address} could be taken: {error}"),
            };
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

    /// Takes the steps that are left to a folder with a copy. Returns why a new copy could not be
    /// used, if so.
    fn try_all(&self) -> Result<Option<String>, LeaderError> {
        let Some(_lock) = self.disk.lock()? else {
            let folder = self.folder.display();
            let why = format!("another process uses the data folder {folder}");
            return Err(LeaderError::Local(why));
        };
        let mut unusable = None;
        while let Some(mark) = ReplicaMark::read(&self.disk)? {
            let next = match mark {
                ReplicaMark::Following => {
                    self.remove_remains();
                    break;
                }
                // It was found before.
                ReplicaMark::Promoted(_) => break,
                ReplicaMark::Copying => {
                    placing::clear(self.folder)?;
                    self.disk.sync_folder()?;
                    let copy = take_copy(self.leader, self.folder, None)?;
                    ReplicaMark::Copied(copy, OldContent::Removed)
                }
                ReplicaMark::Copied(copy, old) => {
                    let loaded = load_copy(&copy, self.folder, self.settings);
                    match loaded.and_then(|()| Ok(placing::make_place(self.folder)?)) {
                        Ok(()) => ReplicaMark::MovingOut(old),
                        Err(error) if self.folder.join(FORMAT_FILE).exists() => {
                            unusable = Some(error.to_string());
                            ReplicaMark::Following
                        }
                        Err(error) => {
                            ReplicaMark::Copying.write(&self.disk)?;
                            return Err(error);
                        }
                    }
                }
                ReplicaMark::MovingOut(old) => {
                    placing::move_out(self.folder)?;
                    ReplicaMark::MovingIn(old)
                }
                ReplicaMark::MovingIn(old) => {
                    self.move_in(old)?;
                    ReplicaMark::Following
                }
            };
            next.write(&self.disk)?;
        }
        Ok(unusable)
    }

    fn move_in(&self, old: OldContent) -> io::Result<()> {
        let now_ms = SystemTimeSource.wall_ms();
        if let Some(place) = placing::move_in(self.folder, old, now_ms)? {
            tracing::warn!(
                "what this replica had of another history is in {place}, where it stays for seven \
                 days"
            );
        }
        Ok(())
    }

    fn remove_remains(&self) {
        if let Err(error) = placing::remove_remains(self.folder) {
            tracing::warn!("what is left of copies of the leader stays, and takes room: {error}");
        }
    }
}

fn is_replica(folder: &Path) -> Failure {
    Failure::Failed(format!(
        "the data folder {} is that of a replica: start it with --follow LEADER. `pelton promote` \
         has the running replica take the place of its leader",
        folder.display()
    ))
}

fn is_server(folder: &Path, error: &RejoinError) -> Failure {
    Failure::Failed(format!(
        "the data folder {} is that of a server of its own, and a replica has nothing but what its \
         leader has. It becomes that of a replica by itself where a replica was promoted in its \
         place, but {error}. Else name an empty folder with --data, or move this one away, and \
         keep it until it is certain that nothing in it is missing elsewhere",
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
