//! `pelton.v1.Admin`.

use std::time::Duration;

use api::admin::{
    BackupRequest, ConvertDatabaseRequest, CreateDatabaseRequest, CreateTokenRequest,
    DatabaseDescription, DatabaseKind, DropDatabaseRequest, DropRoleRequest, DurabilityMode,
    ListDatabasesRequest, ListRolesRequest, ListTokensRequest, RevokeTokenRequest,
    RotateTokenRequest, SetRoleRequest, SnapshotRequest, StatisticsRequest,
};
use api::rpc::admin as rpc;

use super::call::rounded_up_ms;
use super::{Call, OpenStream, Replies, Reply, TypedMethod};
use crate::error::CallError;

/// A server, to administer it. Outcomes are the responses as they came ([`Reply`]); their messages
/// are in `api::admin`.
#[derive(Debug)]
pub struct Admin<'c, C> {
    over: &'c mut C,
}

impl<'c, C> Admin<'c, C> {
    /// Returns the server at the other end of `over`.
    pub fn new(over: &'c mut C) -> Admin<'c, C> {
        Admin { over }
    }

    /// Creates a database, in memory and synced unless the call says otherwise.
    pub fn create_database<'a>(
        &'a mut self,
        name: &'a str,
    ) -> Call<'a, rpc::CreateDatabase, &'a mut C> {
        let database = Some(DatabaseDescription {
            name,
            ..DatabaseDescription::default()
        });
        Call::new(self.over, CreateDatabaseRequest { database })
    }

    /// Lists all databases.
    pub fn list_databases(&mut self) -> Call<'_, rpc::ListDatabases, &mut C> {
        Call::new(self.over, ListDatabasesRequest {})
    }

    /// Removes a database; one that is not empty only if the call [confirms](Call::confirm) it.
    pub fn drop_database<'a>(
        &'a mut self,
        name: &'a str,
    ) -> Call<'a, rpc::DropDatabase, &'a mut C> {
        let request = DropDatabaseRequest {
            name,
            ..DropDatabaseRequest::default()
        };
        Call::new(self.over, request)
    }

    /// Makes a database one of another kind, with all that is in it.
    pub fn convert_database<'a>(
        &'a mut self,
        name: &'a str,
        kind: DatabaseKind,
    ) -> Call<'a, rpc::ConvertDatabase, &'a mut C> {
        let kind = kind.number();
        Call::new(self.over, ConvertDatabaseRequest { name, kind })
    }

    /// Returns what the server holds and has done.
    pub fn statistics(&mut self) -> Call<'_, rpc::Statistics, &mut C> {
        Call::new(self.over, StatisticsRequest {})
    }

    /// Writes a copy of all databases into a new folder of this name on the server.
    pub fn backup<'a>(&'a mut self, name: &'a str) -> Call<'a, rpc::Backup, &'a mut C> {
        Call::new(self.over, BackupRequest { name })
    }

    /// Writes a snapshot now, so that the log before it is not needed any more.
    pub fn snapshot(&mut self) -> Call<'_, rpc::Snapshot, &mut C> {
        Call::new(self.over, SnapshotRequest {})
    }

    /// Makes a token with these rights. The response is the only place where it is shown.
    pub fn create_token<'a>(
        &'a mut self,
        name: &'a str,
        rights: &'a [&'a str],
    ) -> Call<'a, rpc::CreateToken, &'a mut C> {
        let request = CreateTokenRequest {
            name,
            rights: rights.into(),
            ..CreateTokenRequest::default()
        };
        Call::new(self.over, request)
    }

    /// Lists all tokens.
    pub fn list_tokens(&mut self) -> Call<'_, rpc::ListTokens, &mut C> {
        Call::new(self.over, ListTokensRequest {})
    }

    /// Takes a token back; the last of an administrator only if the call
    /// [confirms](Call::confirm) it.
    pub fn revoke_token<'a>(&'a mut self, name: &'a str) -> Call<'a, rpc::RevokeToken, &'a mut C> {
        let request = RevokeTokenRequest {
            name,
            ..RevokeTokenRequest::default()
        };
        Call::new(self.over, request)
    }

    /// Makes another token for the same name and rights.
    pub fn rotate_token<'a>(&'a mut self, name: &'a str) -> Call<'a, rpc::RotateToken, &'a mut C> {
        let request = RotateTokenRequest {
            name,
            ..RotateTokenRequest::default()
        };
        Call::new(self.over, request)
    }

    /// Makes a role, or gives one other rights.
    pub fn set_role<'a>(
        &'a mut self,
        name: &'a str,
        rights: &'a [&'a str],
    ) -> Call<'a, rpc::SetRole, &'a mut C> {
        let rights = rights.into();
        Call::new(self.over, SetRoleRequest { name, rights })
    }

    /// Lists all roles.
    pub fn list_roles(&mut self) -> Call<'_, rpc::ListRoles, &mut C> {
        Call::new(self.over, ListRolesRequest {})
    }

    /// Removes a role that nobody has.
    pub fn drop_role<'a>(&'a mut self, name: &'a str) -> Call<'a, rpc::DropRole, &'a mut C> {
        Call::new(self.over, DropRoleRequest { name })
    }
}

macro_rules! replies {
    ($($method:ident),*) => { $(
        impl TypedMethod for rpc::$method {
            type Outcome = Reply<rpc::$method>;

            fn outcome(reply: Reply<rpc::$method>) -> Reply<rpc::$method> {
                reply
            }
        }
    )* };
}

replies!(
    CreateDatabase,
    ListDatabases,
    DropDatabase,
    Statistics,
    Snapshot,
    CreateToken,
    ListTokens,
    RevokeToken,
    RotateToken,
    SetRole,
    ListRoles,
    DropRole
);

macro_rules! confirmed {
    ($($method:ident),*) => { $(
        impl<O> Call<'_, rpc::$method, O> {
            /// Says that it is meant, where the server asks for that.
            pub fn confirm(mut self) -> Self {
                self.request.confirm_name = self.request.name;
                self
            }
        }
    )* };
}

confirmed!(DropDatabase, RevokeToken, RotateToken);

impl<'a, O> Call<'a, rpc::CreateDatabase, O> {
    fn with(mut self, change: impl FnOnce(&mut DatabaseDescription<'a>)) -> Self {
        if let Some(database) = &mut self.request.database {
            change(database);
        }
        self
    }

    /// Its entries are on disk, with a cache in memory.
    pub fn on_disk(self) -> Self {
        self.with(|database| database.kind = DatabaseKind::Disk.number())
    }

    /// When a write to it is acknowledged.
    pub fn durability(self, mode: DurabilityMode) -> Self {
        self.with(|database| database.durability = mode.number())
    }

    /// A write is on the device so long after it was acknowledged, at the latest. Rounded up to a
    /// millisecond.
    pub fn synced_every(self, interval: Duration) -> Self {
        self.with(|database| {
            database.durability = DurabilityMode::Interval.number();
            database.interval_ms = u32::try_from(rounded_up_ms(interval)).unwrap_or(u32::MAX);
        })
    }

    /// What it may take of memory or disk; 0: only the server's own limit.
    pub fn quota_bytes(self, bytes: u64) -> Self {
        self.with(|database| database.quota_bytes = bytes)
    }

    /// Its largest value; 0: the server's limit.
    pub fn max_value_bytes(self, bytes: u64) -> Self {
        self.with(|database| database.max_value_bytes = bytes)
    }
}

impl<'a, O> Call<'a, rpc::CreateToken, O> {
    /// The token expires so long from now.
    pub fn expires_after(mut self, time: Duration) -> Self {
        self.request.expires_after_ms = rounded_up_ms(time);
        self
    }

    /// It is proved by what the caller's side of the connection shows, and not by a token.
    pub fn binding(mut self, binding: &'a str) -> Self {
        self.request.binding = binding;
        self
    }
}

impl<O> Call<'_, rpc::RotateToken, O> {
    /// The token before is good for so long from now as well.
    pub fn keep_for(mut self, time: Duration) -> Self {
        self.request.keep_for_ms = rounded_up_ms(time);
        self
    }

    /// The new token expires so long from now.
    pub fn expires_after(mut self, time: Duration) -> Self {
        self.request.expires_after_ms = rounded_up_ms(time);
        self
    }

    /// The caller's own token is revoked at once too.
    pub fn revoke_own(mut self) -> Self {
        self.request.revoke_own = true;
        self
    }

    /// Revokes what an earlier rotation keeps for a while still; else this one is refused.
    pub fn revoke_kept(mut self) -> Self {
        self.request.revoke_kept = true;
        self
    }
}

macro_rules! progress {
    ($($method:ident),*) => { $(
        impl<'a, C: OpenStream> Call<'a, rpc::$method, &'a mut C> {
            /// Begins it. The last response says that it is complete; dropped before, it is given
            /// up.
            ///
            /// # Errors
            /// If the call cannot begin.
            pub fn send(self) -> Result<Replies<rpc::$method, C::Source<'a>>, CallError> {
                let (over, request, options) = self.into_parts();
                over.open_stream(&request, &options)
            }
        }
    )* };
}

progress!(ConvertDatabase, Backup);
