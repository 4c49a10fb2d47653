//! What is served: every metric with its name and what it means.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use api::CallKind;
use net::tls::ServerTls;
use net::{CountersReader, LoopCounters};
use service::figures::Totals;
use service::{Code, Method, RefusedFor, Shared};
use store::blob::{BlobStatistics, BlobUse};
use store::durable::LogStatistics;
use store::tree::Trouble;
use store::{DatabaseId, Store};

use super::exposition::FamilyKind::{Counter, Gauge, Histogram};
use super::exposition::{Label, Page};
use super::process;

/// Takes one figure out of several.
type Of<T> = dyn Fn(&T) -> u64;

/// Where figures come from.
pub struct Sources {
    pub shared: Arc<Shared>,
    pub counters: CountersReader,
    /// Of the listeners with TLS, if there are some.
    pub tls: Option<ServerTls>,
    /// When the process began, in seconds since 1970.
    pub start_s: u64,
}

impl Sources {
    /// All metrics as they are now. Everything goes on meanwhile, so they belong to no one moment.
    pub fn page(&self) -> String {
        let mut page = Page::default();
        page.family(
            "pelton_build_info",
            Gauge,
            "Always 1; the label says the version.",
        );
        page.sample(&[("version", self.shared.server.version)], 1);
        let totals = self.shared.figures.totals();
        calls(&mut page, &totals, self.shared.settings.interop);
        sockets(&mut page, &totals, &self.counters.read());
        if let Some(tls) = &self.tls {
            self::tls(&mut page, tls, &self.counters.read());
        }
        memory(&mut page, &totals, &self.shared);
        readers(&mut page, &self.shared);
        databases(&mut page, &self.shared);
        if let Some(blobs) = self.shared.store.blobs() {
            let statistics = blobs.statistics();
            blob_quota(&mut page, statistics.quota_bytes);
            lost_uploads(&mut page, &statistics);
        }
        if let Some(figures) = self.shared.store.log_statistics() {
            log(&mut page, &figures);
            syncs_and_snapshots(&mut page, &figures);
        }
        process::write(&mut page, self.start_s);
        page.finish()
    }
}

/// The labels that the gRPC metrics of other servers have, so that dashboards for those fit.
fn method_labels(method: Method) -> [Label<'static>; 3] {
    let (service, name) = method
        .label()
        .rsplit_once('/')
        .unwrap_or(("", method.label()));
    let shape = match method.kind() {
        Some(CallKind::Unary) => "unary",
        Some(CallKind::ServerStreaming) => "server_stream",
        Some(CallKind::ClientStreaming) => "client_stream",
        Some(CallKind::Bidirectional) => "bidi_stream",
        None => "plain",
    };
    [
        ("grpc_type", shape),
        ("grpc_service", service),
        ("grpc_method", name),
    ]
}

fn calls(page: &mut Page, totals: &Totals, interop: bool) {
    page.family(
        "grpc_server_started_total",
        Counter,
        "Calls that were begun, by method. Those that run now are not in \
         grpc_server_handled_total.",
    );
    for &(method, calls) in &totals.started {
        page.sample(&method_labels(method), calls);
    }
    page.family(
        "grpc_server_handled_total",
        Counter,
        "Calls that have ended, by method and status; with status OK for each method that is \
         served, be it 0.",
    );
    let is_served = |method: &&Method| method.service().is_served(interop);
    for &method in Method::ALL.iter().filter(is_served) {
        let [shape, service, name] = method_labels(method);
        let mut sample = |code: Code, calls: u64| {
            let code = code.name();
            page.sample(&[shape, service, name, ("grpc_code", code)], calls);
        };
        let of_method = || totals.ended.iter().filter(|(one, ..)| *one == method);
        if of_method().all(|(_, code, _)| *code != Code::Ok) {
            sample(Code::Ok, 0);
        }
        for (_, code, calls) in of_method() {
            sample(*code, *calls);
        }
    }
    page.family(
        "grpc_server_handling_seconds",
        Histogram,
        "How long the calls took that have ended, from the turn of the loop in which they were \
         read to the end of that in which their last answer was made; for streams, as long as they \
         were open.",
    );
    for (method, durations) in &totals.took {
        page.histogram(&method_labels(*method), durations);
    }
    page.single(
        "pelton_running_calls",
        Gauge,
        "Calls that run now.",
        totals.running_calls,
    );
    page.family(
        "pelton_refused_calls_total",
        Counter,
        "Calls that were refused before they began, by reason; they are not in \
         grpc_server_handled_total.",
    );
    for (calls, reason) in totals.refused {
        let reason = match reason {
            RefusedFor::Stopping => "stopping",
            RefusedFor::Connections => "connections",
            RefusedFor::AddressConnections => "address_connections",
            RefusedFor::RunningCalls => "running_calls",
            RefusedFor::Buffers => "buffers",
            RefusedFor::UnknownMethod => "unknown_method",
            RefusedFor::Unauthenticated => "unauthenticated",
            RefusedFor::PermissionDenied => "permission_denied",
        };
        page.sample(&[("reason", reason)], calls);
    }
}

fn sockets(page: &mut Page, totals: &Totals, loops: &[LoopCounters]) {
    let sum = |of: &Of<LoopCounters>| loops.iter().map(of).sum::<u64>();
    page.single(
        "pelton_connections",
        Gauge,
        "Connections that are open now.",
        totals.open_connections,
    );
    page.single(
        "pelton_loops",
        Gauge,
        "Event loops, or threads for connections and their door, that run now.",
        sum(&|one| one.threads),
    );
    let counters: [(_, _, &Of<LoopCounters>); 12] = [
        (
            "pelton_connections_opened_total",
            "Connections taken in, with those to be refused.",
            &|one| one.opened,
        ),
        (
            "pelton_connections_closed_total",
            "Connections closed.",
            &|one| one.closed,
        ),
        (
            "pelton_connections_refused_total",
            "Connections that were one too many.",
            &|one| one.refused,
        ),
        (
            "pelton_connections_refused_by_address_total",
            "Connections that were one too many from their address.",
            &|one| one.refused_by_address,
        ),
        (
            "pelton_connections_stalled_total",
            "Connections closed since their peer took no answer for too long.",
            &|one| one.stalled,
        ),
        (
            "pelton_received_bytes_total",
            "Bytes received from all connections.",
            &|one| one.bytes_in,
        ),
        (
            "pelton_sent_bytes_total",
            "Bytes sent to all connections.",
            &|one| one.bytes_out,
        ),
        (
            "pelton_socket_reads_total",
            "System calls that receive.",
            &|one| one.reads,
        ),
        (
            "pelton_socket_writes_total",
            "System calls that send.",
            &|one| one.writes,
        ),
        (
            "pelton_short_writes_total",
            "System calls that could not send all: the peer is slower than this side.",
            &|one| one.short_writes,
        ),
        (
            "pelton_chokes_total",
            "Times that so much output waited for a peer that nothing more was read from it.",
            &|one| one.chokes,
        ),
        ("pelton_loop_turns_total", "Turns of all loops.", &|one| {
            one.ticks
        }),
    ];
    for (name, help, of) in counters {
        page.single(name, Counter, help, sum(of));
    }
    page.single(
        "pelton_connections_evicted_total",
        Counter,
        "Connections closed since pelton_buffered_bytes was above its limit, and they held most \
         and did not move.",
        totals.evicted_connections,
    );
    page.family(
        "pelton_socket_buffers",
        Gauge,
        "Buffers for input and output of connections, in use and kept for the next.",
    );
    let buffers: [(_, &Of<LoopCounters>); 3] = [
        ("input", &|one| one.input_buffers_lent),
        ("output", &|one| one.output_buffers_lent),
        ("free", &|one| one.buffers_pooled),
    ];
    for (state, of) in buffers {
        page.sample(&[("state", state)], sum(of));
    }
}

fn tls(page: &mut Page, tls: &ServerTls, loops: &[LoopCounters]) {
    let sum = |of: &Of<LoopCounters>| loops.iter().map(of).sum::<u64>();
    page.single(
        "pelton_tls_certificate_not_after_seconds",
        Gauge,
        "When the certificate in use runs out, in seconds since 1970.",
        tls.validity().not_after_s,
    );
    page.single(
        "pelton_tls_handshakes_total",
        Counter,
        "TLS handshakes done.",
        sum(&|one| one.handshakes),
    );
    page.single(
        "pelton_tls_resumed_total",
        Counter,
        "Those of them that resumed a session.",
        sum(&|one| one.resumed),
    );
    page.family(
        "pelton_tls_failures_total",
        Counter,
        "Connections with TLS that failed, most in their handshake, by reason.",
    );
    let reasons: [(_, &Of<LoopCounters>); 9] = [
        ("not_tls", &|one| one.failed_not_tls),
        ("client_certificate", &|one| one.failed_certificate),
        ("incompatible", &|one| one.failed_incompatible),
        ("refused_by_client", &|one| one.failed_refused_by_peer),
        ("broken", &|one| one.failed_broken),
        ("ended", &|one| one.failed_ended),
        ("timed_out", &|one| one.failed_timed_out),
        ("too_large", &|one| one.failed_too_large),
        ("crowded_out", &|one| one.failed_crowded_out),
    ];
    for (reason, of) in reasons {
        page.sample(&[("reason", reason)], sum(of));
    }
}

fn memory(page: &mut Page, totals: &Totals, shared: &Shared) {
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
    ];
    for (name, help, value) in gauges {
        page.single(name, Gauge, help, value);
    }
}

/// The threads that read databases on disk.
fn readers(page: &mut Page, shared: &Shared) {
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
struct Database {
    name: String,
    statistics: store::Statistics,
    blobs: BlobUse,
    is_failing: bool,
}

fn databases(page: &mut Page, shared: &Shared) {
    let store = &shared.store;
    let infos = store.databases().into_iter();
    let databases: Vec<_> = infos
        .filter_map(|info| {
            Some(Database {
                statistics: store.statistics(info.id)?,
                blobs: store.blob_use(info.id),
                is_failing: is_failing(store, info.id),
                name: info.name,
            })
        })
        .collect();
    let gauges: [(_, _, &Of<Database>); 10] = [
        (
            "pelton_database_entries",
            "Entries, with those that have expired and are not removed yet; on disk by estimate. \
             The default database has an empty name.",
            &|one| one.statistics.entries,
        ),
        (
            "pelton_database_expiring_entries",
            "Those of the entries that have a time to live; not counted on disk.",
            &|one| one.statistics.expiring,
        ),
        (
            "pelton_database_content_bytes",
            "Bytes of keys and values; not counted on disk.",
            &|one| one.statistics.content_bytes,
        ),
        (
            "pelton_database_memory_bytes",
            "What the entries take in memory, by estimate.",
            &|one| one.statistics.memory_bytes,
        ),
        (
            "pelton_database_disk_bytes",
            "What files of its own take, of a database on disk.",
            &|one| one.statistics.disk_bytes,
        ),
        (
            "pelton_database_sequence",
            "The commit sequence that reads see.",
            &|one| one.statistics.sequence,
        ),
        (
            "pelton_database_blobs",
            "Blobs that are complete.",
            &|one| one.blobs.blobs,
        ),
        (
            "pelton_database_blob_bytes",
            "Bytes of their content, with unfinished uploads and what is not removed yet.",
            &|one| one.blobs.bytes,
        ),
        (
            "pelton_database_unfinished_uploads",
            "Uploads of blobs that are not complete.",
            &|one| one.blobs.unfinished,
        ),
        (
            "pelton_database_failing",
            "1 if the disk does not take what was written to a database on disk: it is in the log, \
             and is tried again.",
            &|one| u64::from(one.is_failing),
        ),
    ];
    for (name, help, of) in gauges {
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

/// Those that failed are worth an alarm.
fn lost_uploads(page: &mut Page, statistics: &BlobStatistics) {
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

/// Without a quota there is nothing to compare with.
fn blob_quota(page: &mut Page, quota_bytes: u64) {
    if quota_bytes < u64::MAX {
        page.single(
            "pelton_blob_quota_bytes",
            Gauge,
            "What pelton_database_blob_bytes of each database may be: --blob-quota.",
            quota_bytes,
        );
    }
}

fn log(page: &mut Page, figures: &LogStatistics) {
    let counters = [
        (
            "pelton_log_groups_total",
            "Groups of records written to the log.",
            figures.groups,
        ),
        (
            "pelton_log_records_total",
            "Records in them.",
            figures.records,
        ),
        (
            "pelton_log_bytes_total",
            "Bytes of these groups, with what fills up their blocks.",
            figures.group_bytes,
        ),
        (
            "pelton_log_syncs_total",
            "Syncs of the log, with those that no write waited for.",
            figures.syncs,
        ),
    ];
    for (name, help, value) in counters {
        page.single(name, Counter, help, value);
    }
    let gauges = [
        (
            "pelton_log_segments",
            "Files of the log that hold groups.",
            figures.segments,
        ),
        (
            "pelton_log_segment_bytes",
            "Bytes of these files on the device.",
            figures.segment_bytes,
        ),
        (
            "pelton_log_written_sequence",
            "The last sequence written to the log.",
            figures.written_sequence,
        ),
        (
            "pelton_log_durable_sequence",
            "The last sequence known to be on the device.",
            figures.durable_sequence,
        ),
        (
            "pelton_log_full",
            "1 while there is no room for the log: writes that grow are refused.",
            figures.is_full.into(),
        ),
        (
            "pelton_log_not_ready",
            "1 while the log cannot grow for another reason: writes that grow are refused.",
            figures.is_not_ready.into(),
        ),
        (
            "pelton_log_failed",
            "1 after a write or sync has failed: writes are refused until a restart.",
            figures.has_failed.into(),
        ),
    ];
    for (name, help, value) in gauges {
        page.single(name, Gauge, help, value);
    }
}

fn syncs_and_snapshots(page: &mut Page, figures: &LogStatistics) {
    page.family(
        "pelton_log_sync_duration_seconds",
        Histogram,
        "How long the syncs took that writes waited for.",
    );
    page.histogram(&[], &figures.sync_durations);
    page.single(
        "pelton_snapshots_total",
        Counter,
        "Snapshots made.",
        figures.snapshots_made,
    );
    page.single(
        "pelton_snapshot_failures_total",
        Counter,
        "Attempts to make a snapshot that failed.",
        figures.snapshots_failed,
    );
    page.single(
        "pelton_snapshot_sequence",
        Gauge,
        "The newest snapshot has everything up to this sequence; 0: there is none.",
        figures.snapshot_sequence,
    );
    page.single(
        "pelton_snapshot_bytes",
        Gauge,
        "Bytes of the newest snapshot.",
        figures.snapshot_bytes,
    );
}
