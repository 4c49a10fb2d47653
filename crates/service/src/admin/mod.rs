//! `pelton.v1.Admin`: databases, statistics, backups and snapshots, tokens, bindings and roles.
//!
//! `proto/pelton/v1/admin.proto` is the promise that this module keeps. Calls are rare, so each is
//! served whole in one step, although a list of many databases may take longer than a step of a
//! request should. Backups, snapshots and conversions are tasks, which the layer above does beside
//! its loops. Calls about tokens and roles look at all identities, and commit on the condition that
//! nobody has changed one since.

mod acknowledged;
mod figures;
mod forget;
mod identity_call;
mod identity_change;
mod last_admin;
mod promotion;
mod remote;
mod replica_call;
#[cfg(test)]
mod replica_tests;
mod role_request;
#[cfg(test)]
mod role_tests;
mod roles;
mod rotation;
#[cfg(test)]
mod task_tests;
mod tasks;
#[cfg(test)]
mod tests;
mod token_request;
#[cfg(test)]
mod token_tests;
mod tokens;

use store::{
    CommitOutcome, CreateError, DatabaseConfig, DatabaseId, DatabaseInfo, DatabaseLimits, Decision,
    DropError, Durability, Kind, ReadView, Refusal, Store,
};

use crate::actions::{
    Administration, CallClock, DatabaseAccess, Permissions, Responses, SendRoom, Wakeups,
};
use crate::call::{CallHead, CallSteps, PlanReads, Shared};
use crate::keyvalue::messages::{FieldRule, Invalid};
use crate::keyvalue::{awaits_replicas, refusal};
use crate::limits::DURABILITY_INTERVAL_MS_MAX;
use crate::method::Method;
use crate::permission;
use crate::rights::{DEFAULT_DATABASE, Right};
use crate::status::{self, Code, Status, quoted};
use crate::task::TaskNews;
use api::admin::{
    CreateDatabaseRequest, CreateDatabaseResponse, DatabaseDescription, DatabaseKind,
    DatabaseStatistics, DropDatabaseRequest, DropDatabaseResponse, DurabilityMode,
    ListDatabasesResponse, MethodStatistics, ReplicaStatistics, StatisticsRequest,
    StatisticsResponse,
};
use figures::{blob_quota_bytes, log_message};
use identity_call::IdentityCall;
use protobuf::writer;
use replica_call::ReplicaCall;

/// A call of `pelton.v1.Admin` that waits for its request, or for the commit that it asked for.
pub struct AdminCall {
    method: Method,
    /// The request is there, and what it asks for is under way.
    is_under_way: bool,
    /// It lists all databases, as soon as long work has its turn.
    lists: bool,
    /// The database that is being made or dropped.
    name: Box<str>,
    /// Of a call about tokens or roles, once its request is there.
    identity_call: Option<Box<IdentityCall>>,
    /// Of a call about replicas, once its request is there.
    replica_call: Option<Box<ReplicaCall>>,
}

impl AdminCall {
    /// Begins a call of `method`.
    pub fn started(
        method: Method,
        _head: &CallHead<'_>,
        _shared: &Shared,
        _actions: &mut impl Sized,
    ) -> AdminCall {
        AdminCall {
            method,
            is_under_way: false,
            lists: false,
            name: Box::default(),
            identity_call: None,
            replica_call: None,
        }
    }

    fn begin_identity_call(
        &mut self,
        bytes: &[u8],
        shared: &Shared,
        actions: &mut (impl DatabaseAccess + Administration),
    ) -> Result<(), Status> {
        let call = IdentityCall::begin(self.method, bytes, shared, actions)?;
        self.identity_call = Some(Box::new(call));
        Ok(())
    }
}

impl PlanReads for AdminCall {}

impl<A> CallSteps<A> for AdminCall
where
    A: Administration + DatabaseAccess + Permissions + Responses + SendRoom + Wakeups + CallClock,
{
    fn message(&mut self, bytes: &[u8], _last: bool, shared: &Shared, actions: &mut A) {
        if std::mem::replace(&mut self.is_under_way, true) {
            return actions.finish(status::second_request(self.method.path()));
        }
        let served = match self.method {
            Method::AdminCreateDatabase => self.create_database(bytes, shared, actions),
            Method::AdminListDatabases | Method::AdminStatistics => self.begin_list(bytes, actions),
            Method::AdminDropDatabase => self.drop_database(bytes, shared, actions),
            Method::AdminConvertDatabase => tasks::begin_convert(bytes, &shared.store, actions),
            Method::AdminBackup if shared.store.awaits_replicas() => Err(awaits_replicas(shared)),
            Method::AdminBackup => tasks::begin_backup(bytes, actions),
            Method::AdminSnapshot => tasks::begin_snapshot(bytes, actions),
            Method::AdminCreateToken
            | Method::AdminListTokens
            | Method::AdminRevokeToken
            | Method::AdminRotateToken
            | Method::AdminSetRole
            | Method::AdminListRoles
            | Method::AdminDropRole => self.begin_identity_call(bytes, shared, actions),
            Method::AdminConfirmEpoch | Method::AdminPromote | Method::AdminForgetReplicas => {
                ReplicaCall::begin(self.method, bytes, shared, actions)
                    .map(|call| self.replica_call = Some(Box::new(call)))
            }
            method => Err(Status::unimplemented(method.path())),
        };
        if let Err(status) = served {
            actions.finish(status);
        }
    }

    fn half_closed(&mut self, _shared: &Shared, actions: &mut A) {
        if !self.is_under_way {
            actions.finish(status::no_request(self.method.path()));
        }
    }

    fn writable(&mut self, _shared: &Shared, actions: &mut A) {
        if self.lists {
            actions.step_later();
        }
        if let Some(call) = &mut self.identity_call {
            call.writable(actions);
        }
    }

    fn read(&mut self, view: &ReadView<'_>, _kept: &[u8], shared: &Shared, actions: &mut A) {
        if let Some(call) = &mut self.identity_call
            && let Err(status) = call.read(view, shared, actions)
        {
            actions.finish(status);
        }
    }

    fn woken(&mut self, shared: &Shared, actions: &mut A) {
        if let Some(call) = &self.replica_call {
            return call.look(actions);
        }
        if !self.lists || !actions.can_send() {
            return;
        }
        match self.method {
            Method::AdminListDatabases => list_databases(shared, actions),
            _ => statistics(shared, actions),
        }
    }

    fn task(&mut self, news: &TaskNews<'_>, _shared: &Shared, actions: &mut A) {
        tasks::answer(news, actions);
    }

    /// The catalogue was changed, or the change was refused.
    fn committed(&mut self, outcome: &CommitOutcome<'_>, shared: &Shared, actions: &mut A) {
        if let Some(call) = &mut self.identity_call {
            if let Err(status) = call.committed(outcome, shared, actions) {
                actions.finish(status);
            }
            return;
        }
        let created = self.method == Method::AdminCreateDatabase;
        let answered = match outcome.decision {
            Decision::Applied if created => answer_created(&self.name, true, shared, actions),
            // Somebody else was quicker.
            Decision::Refused(Refusal::NotCreated(CreateError::Exists)) => {
                answer_created(&self.name, false, shared, actions)
            }
            Decision::Refused(Refusal::NotCreated(error)) => Err(not_created(&error)),
            Decision::Applied => answer_dropped(true, actions),
            Decision::Refused(Refusal::NotDropped(DropError::Unknown)) => {
                answer_dropped(false, actions)
            }
            Decision::Refused(Refusal::NotDropped(error @ DropError::NotEmpty { .. })) => {
                Err(not_confirmed(&self.name, &error))
            }
            Decision::Refused(Refusal::NotDropped(error)) => Err(not_dropped(&error)),
            Decision::Refused(other) => Err(refusal(other)),
            Decision::Failed { .. } => Err(Status::internal(
                "a change of the catalogue has no operations",
            )),
        };
        if let Err(status) = answered {
            actions.finish(status);
        }
    }
}

#[cold]
fn invalid(method: Method, invalid: impl Into<Invalid>) -> Status {
    let invalid = invalid.into();
    let code = match invalid.rule {
        FieldRule::NotServed => Code::Unimplemented,
        FieldRule::Malformed(_) | FieldRule::Broken(_) => Code::InvalidArgument,
    };
    Status::new(code, format!("{}: {invalid}", method.path()))
}

// --- create

impl AdminCall {
    fn create_database(
        &mut self,
        bytes: &[u8],
        shared: &Shared,
        actions: &mut (impl Administration + Permissions + Responses),
    ) -> Result<(), Status> {
        let request =
            CreateDatabaseRequest::decode(bytes).map_err(|error| invalid(self.method, error))?;
        let wanted = request.database.unwrap_or_default();
        set_audited_database(wanted.name, "", actions);
        permission::check_database(Right::Admin, wanted.name, actions)?;
        let store = &shared.store;
        let kind = remote::kind_of(&wanted, store.is_remote());
        let modes = kind.and_then(|kind| Ok((kind, mode_of(&wanted)?)));
        let (kind, mode) = modes.map_err(|error| invalid(self.method, error))?;
        if store.database(wanted.name).is_some() {
            return answer_created(wanted.name, false, shared, actions);
        }
        // The default database has the empty name, and would be looked for under this one. One of
        // an older server stays what it is.
        if wanted.name == DEFAULT_DATABASE {
            return Err(Status::invalid_argument(
                "field database.name: the default database is there already, and has the empty \
                 name; a second one called \
                 \"default\" would be taken for it: choose another name",
            ));
        }
        let config = config_of(&wanted, kind, mode, store)?;
        self.name = wanted.name.into();
        actions.create_database(wanted.name, &config);
        Ok(())
    }
}

/// Notes for the audit trail which database it is.
fn set_audited_database(name: &str, detail: &str, actions: &mut impl Administration) {
    let subject = if name.is_empty() {
        DEFAULT_DATABASE
    } else {
        name
    };
    actions.set_audited(subject, detail);
}

fn answer_created(
    name: &str,
    created: bool,
    shared: &Shared,
    actions: &mut impl Responses,
) -> Result<(), Status> {
    let databases = shared.store.databases();
    let Some(info) = databases.iter().find(|info| info.name == name) else {
        return Err(Status::new(
            Code::Aborted,
            "the database was dropped while it was created; nothing of it is left",
        ));
    };
    let database = Some(describe(info));
    actions.respond(|out| CreateDatabaseResponse { created, database }.encode(out));
    Ok(())
}

#[cold]
fn not_created(error: &CreateError) -> Status {
    let (code, field) = match error {
        CreateError::BadName => (Code::InvalidArgument, "field database.name: "),
        CreateError::LimitTooLarge { .. } => (Code::InvalidArgument, "field database: "),
        CreateError::VolatileOnDisk => (Code::InvalidArgument, "field database.durability: "),
        CreateError::KindNotSupported | CreateError::RemoteNotSupported => {
            (Code::Unimplemented, "field database.kind: ")
        }
        CreateError::BadShape(_) => (Code::InvalidArgument, "field database.buckets: "),
        CreateError::TooMany => (Code::ResourceExhausted, ""),
        CreateError::DurabilityNotSupported(_) => {
            (Code::Unimplemented, "field database.durability: ")
        }
        // What this server or its machine cannot do, in the store's own words.
        _ => (Code::FailedPrecondition, ""),
    };
    Status::new(code, format!("{field}{error}"))
}

fn mode_of(wanted: &DatabaseDescription<'_>) -> Result<DurabilityMode, Invalid> {
    match DurabilityMode::from_number(wanted.durability) {
        Some(DurabilityMode::Unspecified) => Ok(DurabilityMode::Synced),
        Some(mode) => Ok(mode),
        None => Err(Invalid::rule(
            "database.durability",
            "is not a DurabilityMode that this version knows",
        )),
    }
}

fn config_of(
    wanted: &DatabaseDescription<'_>,
    kind: Kind,
    mode: DurabilityMode,
    store: &Store,
) -> Result<DatabaseConfig, Status> {
    let mut limits = DatabaseLimits::for_values(value_bytes_of(wanted, store)?);
    if wanted.quota_bytes > 0 {
        limits.memory_bytes = wanted.quota_bytes;
    }
    let config = DatabaseConfig {
        kind: Kind::Memory,
        durability: durability_of(mode, wanted.interval_ms)?,
        limits,
    };
    Ok(config.of_kind(kind))
}

/// A value that the server's requests and answers cannot carry would be of no use.
fn value_bytes_of(wanted: &DatabaseDescription<'_>, store: &Store) -> Result<usize, Status> {
    let of_server = store
        .limits(DatabaseId::DEFAULT)
        .unwrap_or_default()
        .value_bytes;
    match usize::try_from(wanted.max_value_bytes) {
        Ok(0) => Ok(of_server),
        Ok(given) if given <= of_server => Ok(given),
        _ => Err(Status::invalid_argument(format!(
            "field database.max_value_bytes is {}, at most {of_server} are allowed (--max-value \
             of the server)",
            wanted.max_value_bytes
        ))),
    }
}

fn durability_of(mode: DurabilityMode, interval_ms: u32) -> Result<Durability, Status> {
    let interval_ms = u64::from(interval_ms);
    let is_interval = mode == DurabilityMode::Interval;
    if is_interval && !(1..=DURABILITY_INTERVAL_MS_MAX).contains(&interval_ms) {
        return Err(Status::invalid_argument(format!(
            "field database.interval_ms is {interval_ms}; with durability INTERVAL give 1 to \
             {DURABILITY_INTERVAL_MS_MAX}"
        )));
    }
    if !is_interval && interval_ms != 0 {
        return Err(Status::invalid_argument(format!(
            "field database.interval_ms is {interval_ms}; leave it out unless durability is \
             INTERVAL"
        )));
    }
    Ok(match mode {
        DurabilityMode::Unspecified | DurabilityMode::Synced => Durability::Synced,
        DurabilityMode::Interval => Durability::Interval { ms: interval_ms },
        DurabilityMode::Written => Durability::Written,
        DurabilityMode::Volatile => Durability::Volatile,
    })
}

/// A database in the words of the API.
fn describe(info: &DatabaseInfo) -> DatabaseDescription<'_> {
    let config = &info.config;
    let shape = config.kind.remote();
    let (durability, interval_ms) = match config.durability {
        Durability::Synced => (DurabilityMode::Synced, 0),
        Durability::Interval { ms } => (DurabilityMode::Interval, ms),
        Durability::Written => (DurabilityMode::Written, 0),
        Durability::Volatile => (DurabilityMode::Volatile, 0),
    };
    DatabaseDescription {
        name: &info.name,
        kind: match config.kind {
            Kind::Memory => DatabaseKind::Memory.number(),
            Kind::Remote(_) => DatabaseKind::Remote.number(),
            _ => DatabaseKind::Disk.number(),
        },
        durability: durability.number(),
        interval_ms: u32::try_from(interval_ms).unwrap_or(u32::MAX),
        quota_bytes: match config.limits.memory_bytes {
            u64::MAX => 0,
            quota_bytes => quota_bytes,
        },
        max_value_bytes: config.limits.value_bytes as u64,
        promise: shape.map_or(0, |shape| remote::number_of_promise(shape.promise)),
        order: shape.map_or(0, |shape| remote::number_of_order(shape.order)),
        buckets: shape.map_or(0, |shape| shape.buckets.into()),
    }
}

// --- drop

impl AdminCall {
    fn drop_database(
        &mut self,
        bytes: &[u8],
        shared: &Shared,
        actions: &mut (impl Administration + Permissions + Responses),
    ) -> Result<(), Status> {
        let request =
            DropDatabaseRequest::decode(bytes).map_err(|error| invalid(self.method, error))?;
        set_audited_database(request.name, "", actions);
        permission::check_database(Right::Admin, request.name, actions)?;
        let store = &shared.store;
        let Some(id) = store.database(request.name) else {
            return answer_dropped(false, actions);
        };
        self.name = request.name.into();
        if id == DatabaseId::DEFAULT || request.confirm_name == request.name {
            actions.drop_database(id);
        } else if request.confirm_name.is_empty() {
            // Whether it is empty shows when its turn has come: others write meanwhile.
            actions.drop_empty_database(id);
        } else {
            let figures = store.statistics(id);
            let entries = figures.map_or(0, |figures| figures.entries);
            let content = DropError::not_empty(entries, store.blob_use(id));
            return Err(not_confirmed(request.name, &content));
        }
        Ok(())
    }
}

fn answer_dropped(dropped: bool, actions: &mut impl Responses) -> Result<(), Status> {
    actions.respond(|out| DropDatabaseResponse { dropped }.encode(out));
    Ok(())
}

#[cold]
fn not_dropped(error: &DropError) -> Status {
    Status::new(Code::FailedPrecondition, error.to_string())
}

#[cold]
fn not_confirmed(name: &str, content: &DropError) -> Status {
    let name = quoted(name);
    Status::invalid_argument(format!(
        "field confirm_name: {name}: {content}; to drop it with all of that, give its name \
         here again"
    ))
}

// --- figures

impl AdminCall {
    /// Lists all databases when long work has its turn: there may be a thousand.
    fn begin_list(&mut self, bytes: &[u8], actions: &mut impl Wakeups) -> Result<(), Status> {
        // It has no fields, as has the request of ListDatabases.
        StatisticsRequest::decode(bytes).map_err(|error| invalid(self.method, error))?;
        self.lists = true;
        actions.step_later();
        Ok(())
    }
}

/// Lists those databases that the caller may read.
fn list_databases(shared: &Shared, actions: &mut (impl Permissions + Responses)) {
    let mut infos = by_name(&shared.store);
    infos.retain(|info| permission::holds(Right::Read, &info.name, actions));
    actions.respond(|out| {
        for database in figures_of(&infos, &shared.store) {
            let number = ListDatabasesResponse::NUMBERS.databases;
            writer::message(out, number, |out| database.encode(out));
        }
    });
}

fn by_name(store: &Store) -> Vec<DatabaseInfo> {
    let mut infos = store.databases();
    infos.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    infos
}

/// The figures of those databases that are still there.
fn figures_of<'a>(
    infos: &'a [DatabaseInfo],
    store: &'a Store,
) -> impl Iterator<Item = DatabaseStatistics<'a>> {
    infos.iter().filter_map(|info| {
        let statistics = store.statistics(info.id)?;
        let blobs = store.blob_use(info.id);
        Some(DatabaseStatistics {
            database: Some(describe(info)),
            entries: statistics.entries,
            content_bytes: statistics.content_bytes,
            memory_bytes: statistics.memory_bytes,
            disk_bytes: statistics.disk_bytes,
            sequence: statistics.sequence,
            blobs: blobs.blobs,
            blob_bytes: blobs.bytes,
            unfinished_uploads: blobs.unfinished,
        })
    })
}

fn statistics(shared: &Shared, actions: &mut (impl Responses + CallClock)) {
    let totals = shared.figures.totals();
    let infos = by_name(&shared.store);
    let methods = totals.ended.iter().map(|&(method, code, calls)| {
        let (method, code) = (method.label(), code as u32);
        MethodStatistics {
            method,
            code,
            calls,
        }
    });
    let methods: Vec<_> = methods.collect();
    let databases: Vec<_> = figures_of(&infos, &shared.store).collect();
    let history_id = api::history_id_bytes(shared.store.history_id());
    let following = shared.following.as_deref();
    let following = following.map(|following| (following.leader(), following.state()));
    let acknowledged = shared.store.acknowledged();
    let followers = acknowledged::followers(&acknowledged);
    let absent = acknowledged::absent(&acknowledged);
    let response = StatisticsResponse {
        server: &format!("{} {}", shared.server.name, shared.server.version),
        uptime_ms: shared.figures.uptime_ms(actions.now_ns()),
        databases: (&databases[..]).into(),
        open_connections: totals.open_connections,
        running_calls: totals.running_calls,
        methods: (&methods[..]).into(),
        memory_bytes: shared.store.memory_bytes(),
        memory_limit_bytes: shared.store.memory_limit_bytes(),
        history_id: match shared.store.history_id() {
            0 => &[],
            _ => &history_id,
        },
        log: shared.store.log_statistics().map(log_message),
        buffered_bytes: totals.buffered_bytes,
        buffered_limit_bytes: totals.buffered_limit_bytes,
        blob_quota_bytes: blob_quota_bytes(&shared.store),
        replica: (following.as_ref()).map(|(leader, state)| ReplicaStatistics {
            leader,
            connected: state.is_connected,
            sequence: state.sequence,
            leader_sequence: state.leader_sequence,
            lag_ms: state.lag_ms(actions.now_ns()),
            problem: &state.problem,
            blocked: state.is_blocked,
        }),
        followers: shared.store.followers() as u64,
        acknowledged: acknowledged::message(&acknowledged, (&followers, &absent)),
        epoch: match shared.store.has_log() {
            true => shared.store.epoch(),
            false => 0,
        },
        higher_epoch: shared.store.higher_epoch(),
        new_leader: &shared.store.new_leader(),
    };
    actions.respond(|out| response.encode(out));
}
