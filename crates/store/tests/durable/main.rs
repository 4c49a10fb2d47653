//! The durable store over the simulated disk: what every engine must do, and what a crash must leave.

mod backup_faults;
mod backups;
mod bench;
mod crash;
mod failures;
mod folder;
mod plan;
mod snapshot_damage;
mod snapshots;
mod steady;
mod suite;
mod threads;
