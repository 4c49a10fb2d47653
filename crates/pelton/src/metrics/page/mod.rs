//! What is served: every metric with its name and what it means.

mod calls;
mod connections;
mod databases;
mod log;
mod replicas;
mod spans;
mod storage_engine;

use std::sync::Arc;

use client::spans::SpanQueue;
use net::CountersReader;
use net::tls::ServerTls;
use server::TimeSource;
use service::Shared;
use store::remote::RemoteStore;

use super::exposition::FamilyKind::Gauge;
use super::exposition::MetricsPage;
use super::folders::{self, FoldersReader};
use super::process;
use crate::time_source::SystemTimeSource;

/// Where figures come from.
pub struct Sources {
    pub shared: Arc<Shared>,
    pub counters: CountersReader,
    /// Of the listeners with TLS, if there are some.
    pub tls: Option<ServerTls>,
    /// The way to the databases, if they are on a storage engine.
    pub remote: Option<Arc<RemoteStore>>,
    /// The spans that are exported, if they are.
    pub spans: Option<SpanQueue>,
    /// The folders of the data and of backups.
    pub folders: FoldersReader,
    /// When the process began, in seconds since 1970.
    pub start_s: u64,
}

impl Sources {
    /// All metrics as they are now. Everything goes on meanwhile, so they belong to no one moment.
    pub fn page(&self) -> String {
        let mut page = MetricsPage::default();
        page.family(
            "pelton_build_info",
            Gauge,
            "Always 1; the label says the version.",
        );
        page.sample(&[("version", self.shared.server.version)], 1);
        let totals = self.shared.figures.totals();
        calls::write(&mut page, &totals, self.shared.settings.interop);
        connections::write_sockets(&mut page, &totals, &self.counters.read());
        if let Some(tls) = &self.tls {
            connections::write_tls(&mut page, tls, &self.counters.read());
        }
        databases::write_memory(&mut page, &totals, &self.shared);
        databases::write_readers(&mut page, &self.shared);
        databases::write(&mut page, &self.shared);
        if let Some(blobs) = self.shared.store.blobs() {
            let statistics = blobs.statistics();
            databases::write_blobs(&mut page, &statistics);
        }
        if let Some(figures) = self.shared.store.log_statistics() {
            log::write(&mut page, &figures);
            log::write_syncs_and_snapshots(&mut page, &figures);
        }
        if let Some(remote) = &self.remote {
            storage_engine::write(&mut page, remote);
        }
        folders::write(&mut page, &self.folders.read());
        let following = self.shared.following.as_ref().map(|following| {
            let now_ns = SystemTimeSource.monotonic_ns();
            (following.state(), now_ns)
        });
        replicas::write(&mut page, self.shared.store.followers() as u64, following);
        replicas::write_acknowledged(&mut page, &self.shared.store.acknowledged());
        replicas::write_epoch(&mut page, &self.shared.store);
        if let Some(spans) = &self.spans {
            spans::write(&mut page, spans);
        }
        process::write(&mut page, self.start_s);
        page.finish()
    }
}
