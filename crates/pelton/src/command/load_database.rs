//! The database that `pelton load` makes for itself, so that it changes nothing of what is there.

use std::time::{SystemTime, UNIX_EPOCH};

use client::Code;
use service::Method;
use service::admin::messages::{
    CreateDatabaseResponse, DatabaseDescription, DropDatabaseRequest, decode_databases,
    decode_dropped, encode_create_database,
};

use super::{Caller, unreadable};
use crate::arguments::{ConnectionArguments, LoadArguments, OutputFormat};
use crate::exit::Failure;

/// What to do where a database cannot be made.
const NAME_ONE: &str = "--database names one to use instead, in which entries are written and left behind; '' is the default database";

/// A database of one run.
pub struct OwnDatabase {
    connection: ConnectionArguments,
    name: String,
}

impl OwnDatabase {
    /// Makes one with a name that nobody has, of the kind and durability of the default database.
    pub fn create(arguments: &LoadArguments) -> Result<OwnDatabase, Failure> {
        let connection = ConnectionArguments {
            address: arguments.address.clone(),
            timeout: arguments.timeout,
            output: OutputFormat::Text,
            tls: arguments.tls.clone(),
        };
        let mut caller = Caller::connect(&connection)?;
        let created = create(&mut caller);
        let name = created.map_err(|failure| match &failure {
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
        let mut request = Vec::new();
        DropDatabaseRequest {
            name: &self.name,
            confirm_name: &self.name,
        }
        .encode(&mut request);
        let dropped = Caller::connect(&self.connection)
            .and_then(|mut caller| caller.unary(Method::AdminDropDatabase, &request));
        let left = format!(
            "the database `{0}` of this load is left; `pelton database drop {0} --with-content` removes it",
            self.name
        );
        let answer = dropped.map_err(|failure| failure.with(&left))?;
        decode_dropped(&answer).map_err(unreadable)?;
        Ok(())
    }
}

/// Statuses of a server that lets nobody, or not us, make databases.
fn is_no_admin(code: Code) -> bool {
    matches!(
        code,
        Code::PermissionDenied | Code::Unimplemented | Code::Unauthenticated
    )
}

fn create(caller: &mut Caller) -> Result<String, Failure> {
    let list = caller.unary(Method::AdminListDatabases, b"")?;
    let mut model = DatabaseDescription::default();
    for database in decode_databases(&list) {
        let database = database.map_err(unreadable)?.database;
        if database.name.is_empty() {
            model = database;
        }
    }
    loop {
        let name = fresh_name();
        let mut request = Vec::new();
        encode_create_database(
            &DatabaseDescription {
                name: &name,
                ..model
            },
            &mut request,
        );
        let answer = caller.unary(Method::AdminCreateDatabase, &request)?;
        let is_new = CreateDatabaseResponse::decode(&answer)
            .map_err(unreadable)?
            .created;
        if is_new {
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
