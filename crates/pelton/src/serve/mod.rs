//! `pelton serve`

mod announce;
mod anonymous;
mod config;
mod failure;
mod last_export;
mod memory;
mod reach;
mod role;
mod start_log;

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use net::{Address, THREAD_LIMITS};
use server::{Server, TimeSource};
use service::ServerInfo;
use store::descriptors::DescriptorPlan;

use crate::activity;
use crate::arguments::{DriverChoice, ServeArguments};
use crate::certificate::{ServedCertificate, ServerCertificate};
use crate::cpus;
use crate::exit::{Exit, Failure};
use crate::follow::Leader;
use crate::init_admin::InitAdmin;
use crate::limits::METRICS_CONNECTION_MS;
use crate::log::Level;
use crate::metrics::{
    BoundEndpoint, Endpoint, FoldersReader, MetricsAddress, Sources, WatchedFolders,
};
use crate::notify::Notifier;
use crate::otlp::ServerSpans;
use crate::process_memory;
use crate::reload::{self, Reload};
use crate::settings::Settings;
use crate::start;
use crate::start_signals::{HangupNoted, StartSignals};
use crate::time_source::SystemTimeSource;
use crate::tkrzw_server::{TkrzwPlan, log_file};
use crate::watchdog::{self, Watchdog};
use announce::announce;
use config::config;
use failure::{leave_no_empty_folder, replica_start_failure, start_failure};
use last_export::export_last_spans;
use reach::Reach;
use role::ServerRole;
use start_log::{
    log_blobs_found, log_recovered, log_settings, log_trees_set_aside, warn,
    warn_of_kvstore_database,
};

const INFO: ServerInfo = ServerInfo {
    name: "pelton",
    version: env!("CARGO_PKG_VERSION"),
};

/// Runs a server until it is stopped. `signals` end the program until it serves.
pub fn serve(arguments: &ServeArguments, signals: StartSignals) -> Result<Exit, Failure> {
    serve_as(arguments, None, signals)
}

/// Returns whether an address can be reached from other machines.
pub fn is_of_network(address: &Address) -> bool {
    // Sockets of the file system are of this machine, whoever may use them there.
    Reach::of(address, 0o666) == Reach::Network
}

/// The same as [`serve`], in the place of a tkrzw_server.
pub fn serve_as(
    arguments: &ServeArguments,
    tkrzw: Option<&TkrzwPlan>,
    signals: StartSignals,
) -> Result<Exit, Failure> {
    let (settings, _) = Settings::load(arguments)?;
    check_pin(&settings)?;
    let init_admin = InitAdmin::new(&settings)?;
    anonymous::check_before_start(&settings, init_admin.is_wanted())?;
    let level = crate::log::start(settings.log_level, settings.log_format);
    log_settings(&settings);
    check_descriptors(&settings)?;
    let notifier = reach_manager()?;
    let memory_limit_bytes = memory::prepare(&settings)?;
    let had_folder = settings.folder().is_some_and(Path::exists);
    let metrics = settings.metrics_listen.as_ref().map(bind_metrics);
    let metrics = metrics.transpose()?;
    let certificate = ServerCertificate::load(&settings)?;
    let leader = Leader::of(&settings)?;
    let role = ServerRole::prepare(&settings, leader)?;
    let told = (&settings, certificate.as_ref());
    let mut config = config(told, memory_limit_bytes, &notifier, tkrzw)?;
    config.first_admin = init_admin.ask();
    let spans = ServerSpans::start(&settings, &mut config)?;
    role.set_up(&mut config, &settings)?;
    let starting = start::watch(settings.folder());
    let started = server::start(config);
    drop(starting);
    let server = started.map_err(|error| {
        init_admin.discard_after(&error);
        if !had_folder {
            leave_no_empty_folder(&settings);
        }
        match role.followed() {
            None => start_failure(&error),
            Some(leader) => replica_start_failure(&error, &leader.address()),
        }
    })?;
    anonymous::check(
        &settings,
        anonymous::has_usable_identity(&settings, server.shared()),
    )?;
    let pid_file = tkrzw
        .map(|plan| plan.begin(&server, &settings))
        .transpose()?;
    let hung_up = signals.pass_on();
    let metrics_address = metrics.as_ref().map(BoundEndpoint::address);
    let _metrics = metrics
        .map(|bound| serve_metrics(bound, (&server, spans.as_ref()), told))
        .transpose()?;
    // Who reads where the server listens may send signals.
    let watched = activity::watch(&server)
        .and_then(|()| process_memory::watch(&server, settings.driver, settings.disk_cache.0));
    watched.map_err(|error| no_thread("that watches memory", &error))?;
    let told = (arguments, &settings, certificate.as_ref());
    let _watchdog = tell_manager(told, tkrzw, &server, level, notifier, &hung_up)?;
    announce(
        &settings,
        memory_limit_bytes,
        &server,
        metrics_address,
        certificate.as_ref(),
    );
    init_admin.tell(server.first_admin());
    log_start(&settings, &server, metrics_address, spans.as_ref());
    let renewal = role.begin(&settings, &server)?;
    let ended = run(server, spans.as_ref(), &settings);
    drop(pid_file);
    renewal.end(ended)
}

/// Reaches the service manager, if one has said where it listens.
fn reach_manager() -> Result<Arc<Notifier>, Failure> {
    let notifier = Notifier::from_environment().map_err(|error| {
        Failure::Failed(format!(
            "cannot reach the service manager (NOTIFY_SOCKET): {error}"
        ))
    })?;
    Ok(Arc::new(notifier))
}

/// Refuses a start with which nobody could be served.
fn check_descriptors(settings: &Settings) -> Result<(), Failure> {
    let addresses = settings.addresses().len() + usize::from(settings.metrics_listen.is_some());
    // The blocking driver begins a thread when a connection comes that has a descriptor.
    let threads = match settings.driver {
        DriverChoice::EventLoop => settings.threads,
        DriverChoice::Blocking => 1,
    };
    DescriptorPlan::check_process(threads, addresses)
        .map_err(|error| Failure::Failed(error.to_string()))
}

/// Puts into the log how the server runs, what it has found, and what an operator should look at.
fn log_start(
    settings: &Settings,
    server: &Server,
    metrics: Option<SocketAddr>,
    spans: Option<&ServerSpans>,
) {
    if let Some(spans) = spans {
        spans.log_start();
    }
    if settings.driver == DriverChoice::Blocking {
        tracing::info!(
            "one thread per connection: {} calls compute at once (--threads)",
            settings.threads
        );
    }
    log_found(server);
    warn(settings, server.addresses(), metrics);
    warn_of_kvstore_database(&settings.kvstore_database, &server.shared().store);
    anonymous::warn_of_databases(settings, &server.shared().store);
}

/// Says that a thread cannot be had.
fn no_thread(which: &str, error: &std::io::Error) -> Failure {
    Failure::Failed(format!(
        "a thread {which} cannot be had: {error}; what limits threads: {THREAD_LIMITS}"
    ))
}

/// Serves until the server is stopped, and reports how it ended.
fn run(server: Server, spans: Option<&ServerSpans>, settings: &Settings) -> Result<Exit, Failure> {
    let store = server.shared().store.clone();
    let ended = server.run();
    // Those of the last calls too.
    if let Some(spans) = spans {
        let drain = Duration::from_millis(settings.drain_timeout.ms);
        let now_ns = SystemTimeSource.monotonic_ns();
        export_last_spans(spans, ended.as_ref().ok(), (drain, now_ns));
    }
    let ended = ended.map_err(|error| Failure::Failed(format!("the server stopped: {error}")))?;
    if (store.log_statistics()).is_some_and(|log| log.has_failed) {
        let why =
            "stopped with a log that had failed: writes were refused since then, as the log says";
        return Err(Failure::Failed(why.into()));
    }
    if ended.drained {
        tracing::info!("stopped; every call was answered or ended with a status");
        return Ok(Exit::Done);
    }
    let why = match ended.hurried {
        true => "stopped at once, as a second signal asked: calls that still ran were cut",
        false => "stopped before all calls had ended: they were cut when --drain-timeout was over",
    };
    Err(Failure::Failed(why.into()))
}

/// Puts into the log what the data folder held.
fn log_found(server: &Server) {
    if let Some(recovered) = server.recovered() {
        log_recovered(recovered);
    }
    if let Some(found) = server.blobs_found() {
        log_blobs_found(found);
    }
    log_trees_set_aside(server.trees_set_aside());
}

/// Checks that this process may use the CPUs of `--pin`. Where the system does not say, the loops
/// will.
fn check_pin(settings: &Settings) -> Result<(), Failure> {
    cpus::check(&settings.pin)
        .map_err(|wrong| Failure::Usage(format!("pin names {wrong} (see pelton serve --help)")))
}

/// Tells the service manager that the server is ready, and what it wants to hear from then on.
fn tell_manager(
    (arguments, settings, certificate): (&ServeArguments, &Settings, Option<&ServerCertificate>),
    tkrzw: Option<&TkrzwPlan>,
    server: &Server,
    level: Level,
    notifier: Arc<Notifier>,
    hung_up: &HangupNoted,
) -> Result<Option<Watchdog>, Failure> {
    let addresses: Vec<_> = server.addresses().iter().map(Address::to_string).collect();
    let status = format!("serving on {}", addresses.join(", "));
    let failed = |error| no_thread("or signal", &error);
    let watchdog = watchdog::start(&notifier, server.pulse()).map_err(failed)?;
    let (to_tell, to_say) = (Arc::clone(&notifier), status.clone());
    let certificate = certificate.map(|certificate| ServedCertificate::new(certificate, server));
    let watched = certificate
        .as_ref()
        .map_or(Ok(()), ServedCertificate::watch);
    watched.map_err(failed)?;
    if let Some(plan) = tkrzw {
        let file = plan.log_file().map(Path::to_owned);
        log_file::open_on_hangup(file, certificate, hung_up).map_err(failed)?;
    } else if arguments.config.is_none() && certificate.is_none() {
        reload::stop_on_hangup(server.stop_handle(), hung_up).map_err(failed)?;
    } else {
        let reload = Reload {
            arguments: arguments.clone(),
            running: settings.clone(),
            level,
            notifier: to_tell,
            status: to_say,
            certificate,
        };
        reload::on_hangup(reload, hung_up).map_err(failed)?;
    }
    notifier.ready(&status);
    Ok(watchdog)
}

fn bind_metrics(address: &MetricsAddress) -> Result<BoundEndpoint, Failure> {
    BoundEndpoint::bind(address).map_err(|error| {
        let why = match error.kind() {
            io::ErrorKind::AddrInUse => "another process listens there".into(),
            _ => error.to_string(),
        };
        Failure::Failed(format!(
            "cannot serve metrics on {address}: {why}; --metrics-listen says where"
        ))
    })
}

fn serve_metrics(
    bound: BoundEndpoint,
    (server, spans): (&Server, Option<&ServerSpans>),
    (settings, certificate): (&Settings, Option<&ServerCertificate>),
) -> Result<Endpoint, Failure> {
    let folders = WatchedFolders {
        data: settings.folder().map(Path::to_owned),
        backup_root: settings.backup_root.clone(),
    };
    let sources = Sources {
        shared: Arc::clone(server.shared()),
        counters: server.counters(),
        tls: certificate.map(|certificate| certificate.tls().clone()),
        remote: server.remote().cloned(),
        spans: spans.map(ServerSpans::queue),
        folders: FoldersReader::new(folders),
        start_s: SystemTimeSource.wall_ms() / 1_000,
    };
    let timeout = Duration::from_millis(METRICS_CONNECTION_MS);
    bound
        .serve(Arc::new(move || sources.page()), timeout)
        .map_err(|error| {
            Failure::Failed(format!(
                "a thread for metrics cannot be started: {error}; what limits threads: \
                 {THREAD_LIMITS}"
            ))
        })
}
