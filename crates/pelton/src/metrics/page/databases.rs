//! What is stored: memory, databases, the threads that read those on disk, and blobs.

use std::sync::atomic::Ordering;

use service::Shared;
use service::figures::Totals;
use store::blob::{BlobStatistics, BlobUse};
use store::tree::Trouble;
use store::{DatabaseId, Store};

use crate::metrics::exposition::FamilyKind::{Counter, Gauge};
use crate::metrics::exposition::MetricsPage;

/// Writes what is held in memory, and its limits.
pub(super) fn write_memory(page: &mut MetricsPage, totals: &Totals, shared: &Shared) {
    let watched = shared.store.watched();
    let gauges = [
        (
            "pelton_buffered_bytes",
            "Unfinished requests and unsent answers of all connections.",
            totals.buffered_bytes,
        ),
        (
            "pelton_buffered_limit_bytes",
            "How many of these there may be before calls are refused.",
            totals.buffered_limit_bytes,
        ),
        (
            "pelton_data_memory_bytes",
            "What the entries of all databases take in memory, by estimate.",
            shared.store.memory_bytes(),
        ),
        (
            "pelton_data_memory_limit_bytes",
            "What they may take (--memory-limit).",
            shared.store.memory_limit_bytes(),
        ),
        (
            "pelton_reclaiming_entries",
            "Entries of databases in memory that were dropped, cleared or converted, and whose \
             memory is not freed yet. Without a data folder none are counted.",
            shared.store.reclaiming_entries(),
        ),
        (
            "pelton_waiting_calls",
            "Calls that wait for something that may never come, such as those that watch.",
            shared.waiting.count() as u64,
        ),
        (
            "pelton_watched_databases",
            "Databases whose commits are kept in memory, since somebody watches them, or did until \
             a minute ago.",
            watched.databases,
        ),
        (
            "pelton_watched_bytes",
            "What these commits take in memory.",
            watched.bytes,
        ),
    ];
    for (name, help, value) in gauges {
        page.single(name, Gauge, help, value);
    }
}

/// Writes what the threads did that read databases on disk.
pub(super) fn write_readers(page: &mut MetricsPage, shared: &Shared) {
    let readers = shared.figures.readers();
    let figures = [
        (
            "pelton_readers",
            Gauge,
            "Threads that read databases on disk, begun when they are needed.",
            &readers.threads,
        ),
        (
            "pelton_reader_jobs_waiting",
            Gauge,
            "Reads of databases on disk, some of one tick together, that wait for such a thread.",
            &readers.waiting_jobs,
        ),
        (
            "pelton_reader_jobs_total",
            Counter,
            "Such reads that were begun.",
            &readers.jobs,
        ),
        (
            "pelton_reader_jobs_refused_total",
            Counter,
            "Such reads for which there was no place: their calls got UNAVAILABLE.",
            &readers.refused_jobs,
        ),
    ];
    for (name, kind, help, value) in figures {
        page.single(name, kind, help, value.load(Ordering::Relaxed));
    }
}

/// Figures of one database.
struct DatabaseFigures {
    name: String,
    statistics: store::Statistics,
    blobs: BlobUse,
    is_failing: bool,
}

/// Takes one figure of a database.
type DatabaseFigure = fn(&DatabaseFigures) -> u64;

/// What is shown of each database: name, meaning and figure.
const DATABASE_GAUGES: [(&str, &str, DatabaseFigure); 10] = [
    (
        "pelton_database_entries",
        "Entries, with those that have expired and are not removed yet; on disk by estimate. \
             The default database has an empty name.",
        |one| one.statistics.entries,
    ),
    (
        "pelton_database_expiring_entries",
        "Those of the entries that have a time to live; not counted on disk.",
        |one| one.statistics.expiring,
    ),
    (
        "pelton_database_content_bytes",
        "Bytes of keys and values; not counted on disk.",
        |one| one.statistics.content_bytes,
    ),
    (
        "pelton_database_memory_bytes",
        "What the entries take in memory, by estimate.",
        |one| one.statistics.memory_bytes,
    ),
    (
        "pelton_database_disk_bytes",
        "What files of its own take, of a database on disk.",
        |one| one.statistics.disk_bytes,
    ),
    (
        "pelton_database_sequence",
        "The commit sequence that reads see.",
        |one| one.statistics.sequence,
    ),
    ("pelton_database_blobs", "Blobs that are complete.", |one| {
        one.blobs.blobs
    }),
    (
        "pelton_database_blob_bytes",
        "Bytes of their content, with unfinished uploads and what is not removed yet.",
        |one| one.blobs.bytes,
    ),
    (
        "pelton_database_unfinished_uploads",
        "Uploads of blobs that are not complete.",
        |one| one.blobs.unfinished,
    ),
    (
        "pelton_database_failing",
        "1 if the disk does not take what was written to a database on disk: it is in the log, \
             and is tried again.",
        |one| u64::from(one.is_failing),
    ),
];

/// Writes the figures of each database.
pub(super) fn write(page: &mut MetricsPage, shared: &Shared) {
    let store = &shared.store;
    let infos = store.databases().into_iter();
    let databases: Vec<_> = infos
        .filter_map(|info| {
            Some(DatabaseFigures {
                statistics: store.statistics(info.id)?,
                blobs: store.blob_use(info.id),
                is_failing: is_failing(store, info.id),
                name: info.name,
            })
        })
        .collect();
    for (name, help, of) in DATABASE_GAUGES {
        page.family(name, Gauge, help);
        for database in &databases {
            page.sample(&[("database", &database.name)], of(database));
        }
    }
}

/// Whether what is in memory of a database on disk cannot be brought there.
fn is_failing(store: &Store, id: DatabaseId) -> bool {
    let tree = store.tree(id);
    tree.is_some_and(|tree| tree.trouble() != Trouble::None)
}

/// Writes what blobs may take, and which uploads were lost.
pub(super) fn write_blobs(page: &mut MetricsPage, statistics: &BlobStatistics) {
    write_blob_quota(page, statistics.quota_bytes);
    write_lost_uploads(page, statistics);
}

/// Without a quota there is nothing to compare with.
fn write_blob_quota(page: &mut MetricsPage, quota_bytes: u64) {
    if quota_bytes < u64::MAX {
        page.single(
            "pelton_blob_quota_bytes",
            Gauge,
            "What pelton_database_blob_bytes of each database may be: --blob-quota.",
            quota_bytes,
        );
    }
}

/// Those that failed are worth an alert.
fn write_lost_uploads(page: &mut MetricsPage, statistics: &BlobStatistics) {
    page.single(
        "pelton_blob_uploads_failed_total",
        Counter,
        "Unfinished uploads that were lost to errors of the disk.",
        statistics.failed_uploads,
    );
    page.single(
        "pelton_blob_uploads_evicted_total",
        Counter,
        "Unfinished uploads that were removed to make room for others.",
        statistics.evicted_uploads,
    );
}
