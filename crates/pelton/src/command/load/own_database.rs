//! The database that `pelton load` makes for itself, so that it changes nothing of what is there.

use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use api::admin::{
    CreateDatabaseRequest, DatabaseDescription, DatabaseKind, DropDatabaseRequest,
    ListDatabasesRequest, StatisticsRequest,
};
use api::keyvalue::GetRequest;
use api::rpc::admin::{CreateDatabase, DropDatabase, ListDatabases, Statistics};
use api::rpc::keyvalue::Get;
use client::Code;

use crate::arguments::{ConnectionArguments, LoadArguments, OutputFormat};
use crate::command::Caller;
use crate::exit::Failure;

/// What to do where a database cannot be made.
const NAME_ONE: &str = "--database names one to use instead, in which entries are written and left \
                        behind; '' is the default database";

/// What to do where the server is no Pelton server.
const NO_PELTON: &str = "it is no Pelton server, which has this method: to load a service of \
                         another one take --method package.Service/Method --data JSON";

/// Bytes of values below which nobody asks whether they fit: any server has room for them.
const WORTH_ASKING_BYTES: u64 = 16 << 20;

/// Pause before a server that is full is asked again.
const DROP_AGAIN_AFTER: Duration = Duration::from_millis(50);

/// A database of one run.
pub struct OwnDatabase {
    connection: ConnectionArguments,
    name: String,
}

/// Refuses keys that cannot all be in the server's memory, if it tells how much it may use.
/// `database` names one that is there, `None` is one that is made like the default database.
pub fn check_memory(arguments: &LoadArguments, database: Option<&str>) -> Result<(), Failure> {
    let bytes = arguments
        .keys
        .saturating_mul(arguments.value_size.mean_bytes() as u64);
    if bytes < WORTH_ASKING_BYTES {
        return Ok(());
    }
    let mut caller = Caller::connect(&connection(arguments))?;
    // What the server does not tell is no reason to refuse.
    let Ok(list) = caller.call::<ListDatabases>(&ListDatabasesRequest {}) else {
        return Ok(());
    };
    let mut found = list.message().databases.iter().flatten();
    let is_in_memory = found.any(|found| {
        let found = found.database.unwrap_or_default();
        found.name == database.unwrap_or_default() && found.kind == DatabaseKind::Memory.number()
    });
    let Ok(figures) = caller.call::<Statistics>(&StatisticsRequest {}) else {
        return Ok(());
    };
    let limit = figures.message().memory_limit_bytes;
    if !is_in_memory || limit == 0 || bytes <= limit {
        return Ok(());
    }
    Err(Failure::Usage(format!(
        "{} keys with values of {} bytes need {:.1} GiB, and the server may use {:.1} GiB of \
         memory (--memory-limit); take fewer --keys or a smaller --value-size, or a database on \
         disk by --database",
        arguments.keys,
        arguments.value_size.mean_bytes(),
        gibibytes(bytes),
        gibibytes(limit),
    )))
}

/// Refuses a load of a database that is not there, by asking it for a key.
pub fn check_existence(arguments: &LoadArguments, database: &str) -> Result<(), Failure> {
    let request = GetRequest {
        database,
        key: b"load",
        ..GetRequest::default()
    };
    let mut caller = Caller::connect(&connection(arguments))?;
    match caller.call::<Get>(&request) {
        Err(Failure::Call(call)) if call.status == Some(Code::NotFound) => Err(Failure::Call(call)),
        Err(failure) if is_foreign(&failure) => Err(failure.with(NO_PELTON)),
        // Whatever else there is to say, the load itself finds out, and counts it.
        _ => Ok(()),
    }
}

fn gibibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}

fn connection(arguments: &LoadArguments) -> ConnectionArguments {
    ConnectionArguments {
        address: arguments.address.clone(),
        timeout: arguments.timeout,
        output: OutputFormat::Text,
        tls: arguments.tls.clone(),
        credentials: arguments.credentials.clone(),
        profile: arguments.profile.clone(),
    }
}

impl OwnDatabase {
    /// Makes one with a name that nobody has, of the kind and durability of the default database.
    pub fn create(arguments: &LoadArguments) -> Result<OwnDatabase, Failure> {
        OwnDatabase::create_over(connection(arguments))
    }

    /// The same over a connection as any command makes it.
    pub fn create_over(connection: ConnectionArguments) -> Result<OwnDatabase, Failure> {
        let mut caller = Caller::connect(&connection)?;
        let created = create(&mut caller);
        let name = created.map_err(|failure| match &failure {
            failure_of_another if is_foreign(failure_of_another) => failure.with(NO_PELTON),
            Failure::Call(call) if call.status.is_some_and(is_no_admin) => failure.with(NAME_ONE),
            _ => failure,
        })?;
        Ok(OwnDatabase { connection, name })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Removes it with all that is in it.
    pub fn remove(self) -> Result<(), Failure> {
        let request = DropDatabaseRequest {
            name: &self.name,
            confirm_name: &self.name,
        };
        // A server that was full of this load's connections may not have seen yet that they are
        // gone.
        let until = Instant::now() + Duration::from_millis(self.connection.timeout.ms);
        let dropped = loop {
            let dropped = Caller::connect(&self.connection)
                .and_then(|mut caller| caller.call::<DropDatabase>(&request));
            match dropped {
                Err(Failure::Call(call))
                    if call.status == Some(Code::Unavailable) && Instant::now() < until =>
                {
                    thread::sleep(DROP_AGAIN_AFTER);
                }
                dropped => break dropped,
            }
        };
        let left = format!(
            "the database `{0}` of this load is left; `pelton database drop {0} --with-content` \
             removes it",
            self.name
        );
        dropped.map(drop).map_err(|failure| failure.with(&left))
    }
}

/// Whether a server does not know a method that every Pelton server has.
fn is_foreign(failure: &Failure) -> bool {
    matches!(failure, Failure::Call(call) if call.status == Some(Code::Unimplemented))
}

/// Statuses of a server that lets nobody, or not us, make databases.
fn is_no_admin(code: Code) -> bool {
    matches!(code, Code::PermissionDenied | Code::Unauthenticated)
}

fn create(caller: &mut Caller) -> Result<String, Failure> {
    let list = caller.call::<ListDatabases>(&ListDatabasesRequest {})?;
    let listed = list.message().databases;
    let mut listed = listed.iter().flatten().filter_map(|one| one.database);
    let model = listed.find(|database| database.name.is_empty());
    let model = model.unwrap_or_default();
    loop {
        let name = fresh_name();
        let database = Some(DatabaseDescription {
            name: &name,
            ..model
        });
        let reply = caller.call::<CreateDatabase>(&CreateDatabaseRequest { database })?;
        if reply.message().created {
            return Ok(name);
        }
    }
}

/// `load-`, the process and the time: two runs at once have different ones.
fn fresh_name() -> String {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
    let now_us = since_1970.unwrap_or_default().as_micros();
    format!("load-{:x}-{now_us:x}", std::process::id())
}
