//! Whether the server is a leader or a replica, and what begins with that.

use std::path::Path;

use server::{Server, ServerConfig, Storage};
use store::ReplicasAcked;

use super::no_thread;
use crate::exit::Failure;
use crate::follow::{self, Leader, Prepared, Promotion, Renewal};
use crate::settings::Settings;

/// What the server is.
pub(super) enum ServerRole {
    /// It takes writes.
    Leader,
    /// It follows another one; why a new copy could not be used, if so.
    Replica(Leader, Option<String>),
    /// It takes writes since it was promoted, and whom it was set to follow is to hear of that.
    Promoted(Promotion, Option<Leader>),
}

impl ServerRole {
    /// Finds out what the server is, and makes its data folder ready.
    ///
    /// # Errors
    /// If the folder is of another kind.
    pub(super) fn prepare(
        settings: &Settings,
        leader: Option<Leader>,
    ) -> Result<ServerRole, Failure> {
        let prepared = follow::prepare(settings, leader.as_ref())?;
        Ok(match (prepared, leader) {
            (Prepared::Promoted(promotion), leader) => ServerRole::Promoted(promotion, leader),
            (Prepared::Replica(unusable), Some(leader)) => ServerRole::Replica(leader, unusable),
            (Prepared::Server | Prepared::Replica(_), _) => ServerRole::Leader,
        })
    }

    /// The leader that is followed.
    pub(super) fn followed(&self) -> Option<&Leader> {
        match self {
            ServerRole::Replica(leader, _) => Some(leader),
            ServerRole::Leader | ServerRole::Promoted(..) => None,
        }
    }

    /// Sets up what the server is started with.
    pub(super) fn set_up(
        &self,
        config: &mut ServerConfig,
        settings: &Settings,
    ) -> Result<(), Failure> {
        let followed = self.followed().zip(settings.folder());
        let following = followed.map(|(leader, folder)| leader.following(folder));
        config.following = following.transpose()?;
        if let Storage::Folder { log, .. } = &mut config.storage {
            log.follows = self.followed().is_some();
            if let ServerRole::Promoted(promotion, _) = self {
                log.begin_history = promotion.begins_history;
            }
        }
        Ok(())
    }

    /// Removes copies for replicas that an earlier run has left, as the folder is locked by now;
    /// then notes in the log what a leader begins with, or follows the leader.
    pub(super) fn begin(self, settings: &Settings, server: &Server) -> Result<Renewal, Failure> {
        let renewal = Renewal::default();
        let Some(folder) = settings.folder() else {
            return Ok(renewal);
        };
        if let Err(error) = store::backup::remove_left_copies(folder) {
            tracing::warn!("copies that were made for replicas stay, and take room: {error}");
        }
        match self {
            ServerRole::Leader => lead(server, folder, (None, settings))?,
            ServerRole::Replica(leader, unusable) => {
                let told = (renewal.clone(), unusable);
                let started = follow::start(server, leader, folder.to_owned(), told);
                started.map_err(|error| no_thread("that follows the leader", &error))?;
                if let Some(max_lag) = settings.max_lag {
                    let watched = follow::watch_lag(server, max_lag.ms);
                    watched.map_err(|error| no_thread("that watches the lag", &error))?;
                }
            }
            ServerRole::Promoted(promotion, old_leader) => {
                lead(server, folder, (Some(&promotion), settings))?;
                log_promotion(&promotion, old_leader.as_ref());
                if let Some(old_leader) = old_leader {
                    let told = follow::tell_old_leader(
                        old_leader,
                        (server, folder),
                        (&promotion, &renewal),
                    );
                    told.map_err(|error| no_thread("that tells the old leader", &error))?;
                }
            }
        }
        Ok(renewal)
    }
}

/// Has writes wait for replicas, if they are to.
fn lead(
    server: &Server,
    folder: &Path,
    (promotion, settings): (Option<&Promotion>, &Settings),
) -> Result<(), Failure> {
    let replicas = settings.replicas_acked;
    let required_before = follow::note_leadership(server, folder, (promotion, replicas))?;
    let wanted = ReplicasAcked {
        replicas,
        timeout_ms: settings.replicas_acked_timeout.ms,
    };
    server
        .shared()
        .store
        .require_replicas(wanted, required_before);
    if replicas == 0 && required_before > 0 {
        tracing::warn!(
            "writes are answered before a replica has them (no --replicas-acked), though \
             {required_before} had to have them before: replicas that counted are forgotten, and \
             none of them can be promoted without --force"
        );
    }
    if replicas > 0 {
        tracing::info!(
            "writes are answered and shown when {replicas} replicas have them (--replicas-acked), \
             and nothing is served before they have what the log has"
        );
    }
    Ok(())
}

fn log_promotion(promotion: &Promotion, old_leader: Option<&Leader>) {
    tracing::info!(
        "this server was a replica, and was promoted: it takes writes, in epoch {}",
        promotion.epoch
    );
    if let Some(old_leader) = old_leader {
        tracing::warn!(
            "--follow {} is passed over, as this server was promoted, unless a later leader is \
             there: leave it out from now on",
            old_leader.address()
        );
    }
}
