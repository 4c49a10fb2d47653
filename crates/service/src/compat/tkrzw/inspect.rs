//! Inspect: names and values that describe a database, or the server.

use api::tkrzw::{InspectRequest, InspectResponse, StringPair};
use api::tkrzw_before;
use protobuf::writer;
use store::Durability;

use super::decode::decode;
use super::result::RequestResult;
use super::target::{Target, target};
use super::{Package, TkrzwActions};
use crate::actions::{CallClock, Permissions};
use crate::call::Shared;
use crate::method::Method;
use crate::permission;
use crate::rights::{DropIn, Right};
use crate::settings::tkrzw::DatabaseClass;
use crate::status::Status;
use crate::tkrzw_state::MasterOrders;

/// Names and values, in order.
type Attributes = Vec<(String, String)>;

/// Responds to a request.
pub(super) fn respond(
    method: Method,
    bytes: &[u8],
    shared: &Shared,
    actions: &mut impl TkrzwActions,
) -> Result<(), Status> {
    let request: InspectRequest = decode(method, bytes)?;
    let attributes = match request.dbm_index {
        ..0 => of_server(shared, actions)?,
        index => of_database(target(index, Right::Read, shared, actions)?, shared),
    };
    let package = Package::of(method);
    actions.respond(|out| encode(package, &attributes, out));
    Ok(())
}

fn encode(package: Package, attributes: &Attributes, out: &mut Vec<u8>) {
    let number = match package {
        Package::Before => tkrzw_before::InspectResponse::NUMBERS.records,
        Package::Present => {
            RequestResult::SUCCESS.encode(out);
            InspectResponse::NUMBERS.records
        }
    };
    for (first, second) in attributes {
        writer::message(out, number, |out| StringPair { first, second }.encode(out));
    }
}

fn add(attributes: &mut Attributes, name: impl Into<String>, value: impl ToString) {
    attributes.push((name.into(), value.to_string()));
}

/// Returns what describes the server, to those who may read each of the databases.
fn of_server(
    shared: &Shared,
    actions: &(impl Permissions + CallClock),
) -> Result<Attributes, Status> {
    let (settings, store) = (&shared.settings.tkrzw, &shared.store);
    let mut attributes = Attributes::new();
    add(&mut attributes, "version", shared.server.version);
    add(&mut attributes, "process_id", std::process::id());
    add(&mut attributes, "num_dbms", settings.databases.len());
    for (index, database) in settings.databases.iter().enumerate() {
        if !permission::has_drop_in(DropIn::Tkrzw, actions) {
            permission::check_database(Right::Read, &database.name, actions)?;
        }
        let records = records_of(&database.name, shared);
        add(&mut attributes, format!("dbm_{index}_path"), &database.path);
        add(&mut attributes, format!("dbm_{index}_count"), records);
        add(
            &mut attributes,
            format!("dbm_{index}_class"),
            database.class.name(),
        );
    }
    let now_us = actions.wall_us();
    let running_us = now_us.saturating_sub(settings.start_us);
    add(&mut attributes, "memory_usage", store.memory_bytes());
    add(
        &mut attributes,
        "memory_capacity",
        store.memory_limit_bytes(),
    );
    let master = settings.master.as_deref();
    let master = master.map(MasterOrders::progress).unwrap_or_default();
    add(&mut attributes, "repl_max_timestamp", master.timestamp);
    add(
        &mut attributes,
        "num_active_calls",
        shared.waiting.count() + 1,
    );
    add(&mut attributes, "current_time", seconds(now_us));
    add(&mut attributes, "running_time", seconds(running_us));
    // The original has nothing of these.
    if !master.address.is_empty() {
        add(&mut attributes, "repl_master", &master.address);
        add(&mut attributes, "repl_connected", master.is_connected);
        add(&mut attributes, "repl_problem", &master.problem);
    }
    Ok(attributes)
}

fn seconds(us: u64) -> String {
    format!("{}.{:03}", us / 1_000_000, us / 1_000 % 1_000)
}

fn records_of(name: &str, shared: &Shared) -> u64 {
    let id = match name {
        "" => Some(store::DatabaseId::DEFAULT),
        name => shared.store.database(name),
    };
    let statistics = id.and_then(|id| shared.store.statistics(id));
    statistics.map_or(0, |statistics| statistics.entries)
}

/// Returns what describes a database: the names that suites and tools of the original read, of
/// those that mean something here.
fn of_database(target: Target<'_>, shared: &Shared) -> Attributes {
    let database = target.database;
    let statistics = shared.store.statistics(target.id);
    let (records, content_bytes) = statistics.map_or((0, 0), |statistics| {
        (statistics.entries, statistics.content_bytes)
    });
    let has_file = !database.path.is_empty();
    let is_of_files = {
        use DatabaseClass as C;
        matches!(database.class, C::Hash | C::Tree | C::Skip)
    };
    let mut attributes = Attributes::new();
    add(&mut attributes, "class", database.class.name());
    if is_of_files {
        add(&mut attributes, "healthy", true);
        add(&mut attributes, "auto_restored", false);
    }
    if has_file {
        add(&mut attributes, "path", &database.path);
    }
    add(&mut attributes, "num_records", records);
    add(&mut attributes, "eff_data_size", content_bytes);
    if has_file {
        add(&mut attributes, "file_size", file_bytes(target, shared));
    }
    if let Some(bounds) = shared.store.cache_bounds(target.id) {
        let memory_bytes = statistics.map_or(0, |statistics| statistics.memory_bytes);
        add(&mut attributes, "mem_usage", memory_bytes);
        add(&mut attributes, "cap_rec_num", bounds.entries);
        // The original has -1 for none.
        let cap = i64::try_from(bounds.memory_bytes).unwrap_or(-1);
        add(&mut attributes, "cap_mem_size", cap);
    }
    add(&mut attributes, "ordered", database.class.is_ordered());
    let config = shared.store.config(target.id).unwrap_or_default();
    add(
        &mut attributes,
        "durability",
        durability_words(config.durability),
    );
    attributes
}

/// Returns a durability as the command line writes it.
fn durability_words(durability: Durability) -> String {
    match durability {
        Durability::Synced => "synced".to_owned(),
        Durability::Interval { ms } => format!("interval={ms}ms"),
        Durability::Written => "written".to_owned(),
        Durability::Volatile => "volatile".to_owned(),
    }
}

/// Returns what a database with a file takes: on disk its own files, in memory its records, as the
/// log belongs to all databases.
pub(super) fn file_bytes(target: Target<'_>, shared: &Shared) -> u64 {
    let statistics = shared.store.statistics(target.id);
    statistics.map_or(0, |statistics| match statistics.disk_bytes {
        0 => statistics.content_bytes,
        bytes => bytes,
    })
}
