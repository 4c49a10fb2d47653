//! The durable store over the simulated disk: what every engine must do, and what a crash must leave.

mod backup_faults;
mod backups;
mod bench;
mod blobs;
mod crash;
mod failures;
mod figures;
mod folder;
mod lost_log;
mod mailboxes;
mod one_group;
mod plan;
mod snapshot_damage;
mod snapshots;
mod steady;
mod suite;
mod threads;
mod tree_backups;
mod tree_bench;
mod tree_faults;
mod tree_power;
mod tree_race;
mod tree_starts;
mod tree_threads;
mod trees;
