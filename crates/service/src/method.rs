//! The table of methods: their names, what they do with data and so which right they need, and
//! where the path of a request leads.

pub use api::CallKind;

use crate::rights::{DropIn, Right};

use Access::{Administer, AnyRight, Open, Read, ReadOrWrite, Write};
use AuditedAct::{DatabaseChange, Recurring, TokenChange, TokenList};
use DatabaseName::{Field, FromSettings, InQuery, Nowhere, Readable, Server, TheDefault};
use MethodTrait::{Act, ManyOperations, OnReplica};
use Route::{Grpc, Http};
use ServiceTrait::{BehindFlag, OfDropIn, OfReplicas, ReadsMetadata, SilentCallers};

/// How a request arrives, and so how it is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// A gRPC method, by its path.
    Grpc(api::Method),
    /// A plain HTTP/2 request, which [`http::route`](crate::http::route) finds by its method and
    /// path, under its label in logs and metrics.
    Http(&'static str),
}

/// What a call does with data, and so which right it needs: also for read-only replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It touches no data, and says what anybody may know who reaches the port.
    Open,
    /// It touches no data, and is for those who may do something here, whatever that is.
    AnyRight,
    /// It reads, and changes nothing.
    Read,
    /// It reads, and changes what is in a database if its request says so.
    ReadOrWrite,
    /// It may change what is in a database.
    Write,
    /// It may change databases as a whole, or copies of them, or who may do what.
    Administer,
}

impl Access {
    /// Returns the right that a caller needs at least; `None`: anybody may call.
    #[inline]
    pub const fn least_right(self) -> Option<Right> {
        match self {
            Access::Open => None,
            Access::AnyRight | Access::Read | Access::ReadOrWrite => Some(Right::Read),
            Access::Write => Some(Right::Write),
            Access::Administer => Some(Right::Admin),
        }
    }
}

/// Where a request names its database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatabaseName {
    /// Nowhere: the call is about no database.
    Nowhere,
    /// Nowhere: the call is about the server as a whole, with all its databases.
    Server,
    /// Nowhere: the call is about those databases that the caller may read.
    Readable,
    /// In a string field of the message, or of the first message of a stream: the numbers of the
    /// fields from the message down to the string. Without it, the default database is meant.
    Field(&'static [u32]),
    /// In the query of the path. Without it, the default database is meant.
    InQuery,
    /// The settings of the server name it.
    FromSettings,
    /// It is the default database.
    TheDefault,
}

/// What a call that administrates has done, as the audit trail sorts its lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditedAct {
    /// A change of tokens or roles.
    TokenChange,
    /// A list of tokens or roles.
    TokenList,
    /// A change of databases, or a copy of them.
    DatabaseChange,
    /// What a replica calls again and again.
    Recurring,
}

/// What is known of a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MethodEntry {
    /// How a request arrives.
    pub route: Route,
    /// What a call does with data.
    pub access: Access,
    /// Where a request names its database.
    pub database: DatabaseName,
    /// What a line of the audit trail is about; `None`: it does not administrate.
    pub act: Option<AuditedAct>,
    /// A replica serves it too, although it administrates: it changes nothing of the leader.
    is_on_replica: bool,
    has_many_operations: bool,
    service: ServiceEntry,
}

/// What is known of a service, or of plain requests that one module serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ServiceEntry {
    drop_in: Option<DropIn>,
    is_behind_flag: bool,
    reads_metadata: bool,
    has_silent_callers: bool,
    is_of_replicas: bool,
}

/// What some methods have beside route, access and database.
#[derive(Clone, Copy)]
enum MethodTrait {
    /// What its line of the audit trail is about: each that administrates has one.
    Act(AuditedAct),
    /// A replica serves it too, although it administrates.
    OnReplica,
    /// One request may have thousands of operations.
    ManyOperations,
}

/// What some services have.
#[derive(Clone, Copy)]
enum ServiceTrait {
    /// It is a drop-in service, which can be opened by its name.
    OfDropIn(DropIn),
    /// It is served with the flag `--interop` only.
    BehindFlag,
    /// Its calls look at the metadata of their requests.
    ReadsMetadata,
    /// Its clients are known to drop the status of a failed call.
    SilentCallers,
    /// Replicas call it, and keep their connection for that.
    OfReplicas,
}

impl ServiceEntry {
    const PLAIN: ServiceEntry = ServiceEntry {
        drop_in: None,
        is_behind_flag: false,
        reads_metadata: false,
        has_silent_callers: false,
        is_of_replicas: false,
    };

    const fn with(mut self, property: ServiceTrait) -> ServiceEntry {
        match property {
            OfDropIn(service) => self.drop_in = Some(service),
            BehindFlag => self.is_behind_flag = true,
            ReadsMetadata => self.reads_metadata = true,
            SilentCallers => self.has_silent_callers = true,
            OfReplicas => self.is_of_replicas = true,
        }
        self
    }
}

impl MethodEntry {
    const fn new(
        service: ServiceEntry,
        route: Route,
        access: Access,
        database: DatabaseName,
    ) -> MethodEntry {
        MethodEntry {
            route,
            access,
            database,
            act: None,
            is_on_replica: false,
            has_many_operations: false,
            service,
        }
    }

    const fn with(mut self, property: MethodTrait) -> MethodEntry {
        match property {
            Act(act) => self.act = Some(act),
            OnReplica => self.is_on_replica = true,
            ManyOperations => self.has_many_operations = true,
        }
        self
    }

    /// Fails the build for a method that administrates without a line in the audit trail.
    const fn checked(self) -> MethodEntry {
        assert!(
            matches!(self.access, Administer) == self.act.is_some(),
            "exactly the methods that administrate have an `Act`"
        );
        self
    }
}

macro_rules! methods {
    ($($service:ident $([$($of_service:expr),+])? {
        $($method:ident $route:expr, $access:expr, $database:expr $(, $property:expr)*;)*
    })*) => {
        /// A service, or plain requests that one module serves.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Service {
            $(
                #[doc = concat!("Of `", stringify!($($method)|*), "`.")]
                $service,
            )*
        }

        /// A method that this server knows, served already or not.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Method {
            $($(#[doc = concat!("`", stringify!($route), "`")] $method,)*)*
        }

        impl Method {
            /// All methods, in the order of their numbers (`method as usize`).
            pub const ALL: &[Method] = &[$($(Method::$method,)*)*];

            /// What is known of each, in the same order: a table, since each call looks at it.
            const ENTRIES: &[MethodEntry] = &[$($(
                MethodEntry::new(Service::$service.entry(), $route, $access, $database)
                    $(.with($property))*
                    .checked(),
            )*)*];

            /// Returns what is known of the method.
            #[inline]
            pub const fn entry(self) -> &'static MethodEntry {
                &Method::ENTRIES[self as usize]
            }

            /// Returns the service to which the method belongs.
            #[inline]
            pub const fn service(self) -> Service {
                match self { $($(Method::$method)|* => Service::$service,)* }
            }
        }

        impl Service {
            const fn entry(self) -> ServiceEntry {
                match self {
                    $(Service::$service => ServiceEntry::PLAIN $($(.with($of_service))+)?,)*
                }
            }
        }

        /// Returns the method that the `:path` of a gRPC request names, `None` if there is none
        /// (status UNIMPLEMENTED).
        pub fn route(path: &[u8]) -> Option<Method> {
            let name = path.strip_prefix(b"/")?;
            $($(
                if let Grpc(method) = const { $route }
                    && name == method.path.as_bytes()
                {
                    return Some(Method::$method);
                }
            )*)*
            None
        }
    };
}

/// The first field of most requests.
const FIRST: DatabaseName = Field(&[1]);

methods! {
    KeyValue {
        Get Grpc(api::keyvalue::GET), Read, FIRST;
        Put Grpc(api::keyvalue::PUT), Write, FIRST;
        Delete Grpc(api::keyvalue::DELETE), Write, FIRST;
        Append Grpc(api::keyvalue::APPEND), Write, FIRST;
        Increment Grpc(api::keyvalue::INCREMENT), Write, FIRST;
        Batch Grpc(api::keyvalue::BATCH), ReadOrWrite, FIRST, ManyOperations;
        Transact Grpc(api::keyvalue::TRANSACT), ReadOrWrite, FIRST, ManyOperations;
        Scan Grpc(api::keyvalue::SCAN), Read, FIRST;
        Count Grpc(api::keyvalue::COUNT), Read, FIRST;
        Pipe Grpc(api::keyvalue::PIPE), ReadOrWrite, FIRST;
        Watch Grpc(api::keyvalue::WATCH), Read, FIRST;
    }
    Blob {
        BlobUpload Grpc(api::blob::UPLOAD), Write, Field(&[1, 1]);
        BlobDownload Grpc(api::blob::DOWNLOAD), Read, FIRST;
        BlobStat Grpc(api::blob::STAT), Read, FIRST;
        BlobList Grpc(api::blob::LIST), Read, FIRST;
        BlobDelete Grpc(api::blob::DELETE), Write, FIRST;
        BlobListUploads Grpc(api::blob::LIST_UPLOADS), Read, FIRST;
        BlobDiscardUploads Grpc(api::blob::DISCARD_UPLOADS), Write, FIRST;
    }
    Admin {
        AdminCreateDatabase
            Grpc(api::admin::CREATE_DATABASE), Administer, Field(&[1, 1]), Act(DatabaseChange);
        AdminListDatabases Grpc(api::admin::LIST_DATABASES), Read, Readable;
        AdminDropDatabase Grpc(api::admin::DROP_DATABASE), Administer, FIRST, Act(DatabaseChange);
        AdminConvertDatabase
            Grpc(api::admin::CONVERT_DATABASE), Administer, FIRST, Act(DatabaseChange);
        AdminStatistics Grpc(api::admin::STATISTICS), Read, Server;
        AdminBackup Grpc(api::admin::BACKUP), Administer, Server, Act(DatabaseChange), OnReplica;
        AdminSnapshot
            Grpc(api::admin::SNAPSHOT), Administer, Server, Act(DatabaseChange), OnReplica;
        AdminCreateToken Grpc(api::admin::CREATE_TOKEN), Administer, Server, Act(TokenChange);
        AdminListTokens
            Grpc(api::admin::LIST_TOKENS), Administer, Server, Act(TokenList), OnReplica;
        AdminRevokeToken Grpc(api::admin::REVOKE_TOKEN), Administer, Server, Act(TokenChange);
        AdminRotateToken Grpc(api::admin::ROTATE_TOKEN), Administer, Server, Act(TokenChange);
        AdminSetRole Grpc(api::admin::SET_ROLE), Administer, Server, Act(TokenChange);
        AdminListRoles Grpc(api::admin::LIST_ROLES), Administer, Server, Act(TokenList), OnReplica;
        AdminDropRole Grpc(api::admin::DROP_ROLE), Administer, Server, Act(TokenChange);
        AdminConfirmEpoch
            Grpc(api::admin::CONFIRM_EPOCH), Administer, Server, Act(DatabaseChange), OnReplica;
        AdminPromote Grpc(api::admin::PROMOTE), Administer, Server, Act(DatabaseChange), OnReplica;
        AdminForgetReplicas
            Grpc(api::admin::FORGET_REPLICAS), Administer, Server, Act(DatabaseChange);
    }
    Replication [OfReplicas] {
        ReplicationCopy
            Grpc(api::replication::COPY), Administer, Server, Act(DatabaseChange), OnReplica;
        ReplicationFollow
            Grpc(api::replication::FOLLOW), Administer, Server, Act(Recurring), OnReplica;
        ReplicationAcknowledge
            Grpc(api::replication::ACKNOWLEDGE), Administer, Server, Act(Recurring), OnReplica;
        ReplicationReadContent
            Grpc(api::replication::READ_CONTENT), Administer, Server, Act(Recurring), OnReplica;
    }
    Echo {
        EchoUnary Grpc(api::echo::UNARY), AnyRight, Nowhere;
        EchoStream Grpc(api::echo::STREAM), AnyRight, Nowhere;
    }
    HttpBlob {
        HttpBlobPut Http("http.Blob/PUT"), Write, InQuery;
        HttpBlobGet Http("http.Blob/GET"), Read, InQuery;
        HttpBlobHead Http("http.Blob/HEAD"), Read, InQuery;
        HttpBlobDelete Http("http.Blob/DELETE"), Write, InQuery;
    }
    HttpGupload [OfDropIn(DropIn::Gupload), SilentCallers] {
        HttpGupload Http("http.Gupload/upload"), Write, TheDefault;
    }
    Health {
        HealthCheck Grpc(api::health::CHECK), Open, Nowhere;
        HealthList Grpc(api::health::LIST), Open, Nowhere;
        HealthWatch Grpc(api::health::WATCH), Open, Nowhere;
    }
    ReflectionV1 {
        ReflectionV1 Grpc(api::reflection::SERVER_REFLECTION_INFO), Open, Nowhere;
    }
    ReflectionV1Alpha {
        ReflectionV1Alpha Grpc(api::reflection::SERVER_REFLECTION_INFO_V1ALPHA), Open, Nowhere;
    }
    Interop [BehindFlag, ReadsMetadata] {
        InteropEmptyCall Grpc(api::interop::EMPTY_CALL), AnyRight, Nowhere;
        InteropUnaryCall Grpc(api::interop::UNARY_CALL), AnyRight, Nowhere;
        InteropCacheableUnaryCall Grpc(api::interop::CACHEABLE_UNARY_CALL), AnyRight, Nowhere;
        InteropStreamingOutputCall Grpc(api::interop::STREAMING_OUTPUT_CALL), AnyRight, Nowhere;
        InteropStreamingInputCall Grpc(api::interop::STREAMING_INPUT_CALL), AnyRight, Nowhere;
        InteropFullDuplexCall Grpc(api::interop::FULL_DUPLEX_CALL), AnyRight, Nowhere;
        InteropHalfDuplexCall Grpc(api::interop::HALF_DUPLEX_CALL), AnyRight, Nowhere;
    }
    Kvstore [OfDropIn(DropIn::Kvstore)] {
        KvstoreCreate Grpc(api::kvstore::CREATE), Write, FromSettings;
        KvstoreRetrieve Grpc(api::kvstore::RETRIEVE), Read, FromSettings;
        KvstoreUpdate Grpc(api::kvstore::UPDATE), Write, FromSettings;
        KvstoreDelete Grpc(api::kvstore::DELETE), Write, FromSettings;
    }
    Gupload [OfDropIn(DropIn::Gupload), SilentCallers] {
        GuploadUpload Grpc(api::gupload::UPLOAD), Write, TheDefault;
    }
    YdbPing [OfDropIn(DropIn::YdbPing)] {
        YdbPingUnary Grpc(api::ydb_ping::PING_PLAIN_GRPC), AnyRight, Nowhere;
        YdbPingStream Grpc(api::ydb_ping::PING_STREAM), AnyRight, Nowhere;
    }
    BrpcEcho [OfDropIn(DropIn::BrpcEcho)] {
        BrpcEcho Grpc(api::brpc_echo::ECHO), AnyRight, Nowhere;
    }
    SrpcBenchmark [OfDropIn(DropIn::SrpcBenchmark)] {
        SrpcEchoPb Grpc(api::srpc_benchmark::ECHO_PB), AnyRight, Nowhere;
        SrpcSlowPb Grpc(api::srpc_benchmark::SLOW_PB), AnyRight, Nowhere;
    }
    Tkrzw [OfDropIn(DropIn::Tkrzw)] {
        TkrzwEcho Grpc(api::tkrzw::ECHO), AnyRight, Nowhere;
        TkrzwInspect Grpc(api::tkrzw::INSPECT), Read, FromSettings;
        TkrzwGet Grpc(api::tkrzw::GET), Read, FromSettings;
        TkrzwGetMulti Grpc(api::tkrzw::GET_MULTI), Read, FromSettings, ManyOperations;
        TkrzwSet Grpc(api::tkrzw::SET), Write, FromSettings;
        TkrzwSetMulti Grpc(api::tkrzw::SET_MULTI), Write, FromSettings, ManyOperations;
        TkrzwRemove Grpc(api::tkrzw::REMOVE), Write, FromSettings;
        TkrzwRemoveMulti Grpc(api::tkrzw::REMOVE_MULTI), Write, FromSettings, ManyOperations;
        TkrzwAppend Grpc(api::tkrzw::APPEND), Write, FromSettings;
        TkrzwAppendMulti Grpc(api::tkrzw::APPEND_MULTI), Write, FromSettings, ManyOperations;
        TkrzwCompareExchange Grpc(api::tkrzw::COMPARE_EXCHANGE), Write, FromSettings;
        TkrzwIncrement Grpc(api::tkrzw::INCREMENT), Write, FromSettings;
        TkrzwCompareExchangeMulti
            Grpc(api::tkrzw::COMPARE_EXCHANGE_MULTI), Write, FromSettings, ManyOperations;
        TkrzwRekey Grpc(api::tkrzw::REKEY), Write, FromSettings;
        TkrzwPopFirst Grpc(api::tkrzw::POP_FIRST), Write, FromSettings;
        TkrzwPushLast Grpc(api::tkrzw::PUSH_LAST), Write, FromSettings;
        TkrzwCount Grpc(api::tkrzw::COUNT), Read, FromSettings;
        TkrzwGetFileSize Grpc(api::tkrzw::GET_FILE_SIZE), Read, FromSettings;
        TkrzwClear Grpc(api::tkrzw::CLEAR), Write, FromSettings;
        TkrzwRebuild Grpc(api::tkrzw::REBUILD), Write, FromSettings;
        TkrzwShouldBeRebuilt Grpc(api::tkrzw::SHOULD_BE_REBUILT), Read, FromSettings;
        TkrzwSynchronize Grpc(api::tkrzw::SYNCHRONIZE), Read, FromSettings;
        TkrzwSearch Grpc(api::tkrzw::SEARCH), Read, FromSettings;
        TkrzwStream Grpc(api::tkrzw::STREAM), ReadOrWrite, FromSettings;
        TkrzwIterate Grpc(api::tkrzw::ITERATE), ReadOrWrite, FromSettings;
        TkrzwReplicate Grpc(api::tkrzw::REPLICATE), Read, Server;
        TkrzwChangeMaster Grpc(api::tkrzw::CHANGE_MASTER), Write, Server;
    }
    TkrzwBefore [OfDropIn(DropIn::Tkrzw)] {
        TkrzwBeforeEcho Grpc(api::tkrzw_before::ECHO), AnyRight, Nowhere;
        TkrzwBeforeInspect Grpc(api::tkrzw_before::INSPECT), Read, FromSettings;
        TkrzwBeforeGet Grpc(api::tkrzw_before::GET), Read, FromSettings;
        TkrzwBeforeGetMulti Grpc(api::tkrzw_before::GET_MULTI), Read, FromSettings, ManyOperations;
        TkrzwBeforeSet Grpc(api::tkrzw_before::SET), Write, FromSettings;
        TkrzwBeforeSetMulti Grpc(api::tkrzw_before::SET_MULTI), Write, FromSettings, ManyOperations;
        TkrzwBeforeRemove Grpc(api::tkrzw_before::REMOVE), Write, FromSettings;
        TkrzwBeforeRemoveMulti
            Grpc(api::tkrzw_before::REMOVE_MULTI), Write, FromSettings, ManyOperations;
        TkrzwBeforeAppend Grpc(api::tkrzw_before::APPEND), Write, FromSettings;
        TkrzwBeforeAppendMulti
            Grpc(api::tkrzw_before::APPEND_MULTI), Write, FromSettings, ManyOperations;
        TkrzwBeforeCompareExchange Grpc(api::tkrzw_before::COMPARE_EXCHANGE), Write, FromSettings;
        TkrzwBeforeIncrement Grpc(api::tkrzw_before::INCREMENT), Write, FromSettings;
        TkrzwBeforeCompareExchangeMulti
            Grpc(api::tkrzw_before::COMPARE_EXCHANGE_MULTI), Write, FromSettings, ManyOperations;
        TkrzwBeforeCount Grpc(api::tkrzw_before::COUNT), Read, FromSettings;
        TkrzwBeforeGetFileSize Grpc(api::tkrzw_before::GET_FILE_SIZE), Read, FromSettings;
        TkrzwBeforeClear Grpc(api::tkrzw_before::CLEAR), Write, FromSettings;
        TkrzwBeforeRebuild Grpc(api::tkrzw_before::REBUILD), Write, FromSettings;
        TkrzwBeforeShouldBeRebuilt Grpc(api::tkrzw_before::SHOULD_BE_REBUILT), Read, FromSettings;
        TkrzwBeforeSynchronize Grpc(api::tkrzw_before::SYNCHRONIZE), Read, FromSettings;
        TkrzwBeforeSearch Grpc(api::tkrzw_before::SEARCH), Read, FromSettings;
        TkrzwBeforeStream Grpc(api::tkrzw_before::STREAM), ReadOrWrite, FromSettings;
        TkrzwBeforeIterate Grpc(api::tkrzw_before::ITERATE), ReadOrWrite, FromSettings;
        TkrzwBeforeReplicate Grpc(api::tkrzw_before::REPLICATE), Read, Server;
        TkrzwBeforeChangeMaster Grpc(api::tkrzw_before::CHANGE_MASTER), Write, Server;
    }
}

/// Returns the method that the path of a request names that came otherwise than over HTTP/2: a
/// service may be named without its package.
pub fn route_of_any(path: &[u8]) -> Option<Method> {
    route(path).or_else(|| route_of_short(path))
}

fn route_of_short(path: &[u8]) -> Option<Method> {
    let asked = full_name(path)?;
    let is_it = |method: &&Method| is_short_of(asked, method.path());
    Method::ALL.iter().find(is_it).copied()
}

/// Returns whether there is a service that such a path names.
pub fn has_service(path: &[u8]) -> bool {
    let service = full_name(path).and_then(|name| name.rsplit_once('/'));
    service.is_some_and(|(service, _)| {
        let mut methods = Method::ALL.iter().filter(|method| !method.is_plain());
        methods.any(|method| {
            let full = method.service_label();
            full == service || is_short_of(service, full)
        })
    })
}

/// Returns the names of service and method of a path, as they stand there.
fn full_name(path: &[u8]) -> Option<&str> {
    str::from_utf8(path.strip_prefix(b"/")?).ok()
}

/// Returns whether a name is another one without its package. By the end, as names mostly differ
/// there: whoever calls what there is not has every method compared.
fn is_short_of(name: &str, full: &str) -> bool {
    let package = full
        .strip_suffix(name)
        .and_then(|rest| rest.strip_suffix('.'));
    package.is_some() && !name.contains('.')
}

impl Method {
    /// Returns the path of a gRPC method without its leading slash, `package.Service/Method`. A
    /// plain request has none.
    #[inline]
    pub const fn path(self) -> &'static str {
        match self.entry().route {
            Grpc(method) => method.path,
            Http(_) => "",
        }
    }

    /// Returns what logs and metrics name the method: its path, or the label of a plain request.
    pub const fn label(self) -> &'static str {
        match self.entry().route {
            Grpc(method) => method.path,
            Http(label) => label,
        }
    }

    /// Returns the name of the service in logs and metrics.
    pub fn service_label(self) -> &'static str {
        let label = self.label();
        label.rsplit_once('/').map_or("", |(service, _)| service)
    }

    /// Returns how many messages go each way; `None` for a plain request.
    #[inline]
    pub const fn kind(self) -> Option<CallKind> {
        match self.entry().route {
            Grpc(method) => Some(method.kind),
            Http(_) => None,
        }
    }

    /// Returns whether this is a plain HTTP/2 request, which no gRPC path names.
    #[inline]
    pub const fn is_plain(self) -> bool {
        matches!(self.entry().route, Http(_))
    }

    /// Returns whether a call may change what the server keeps.
    pub const fn changes_content(self) -> bool {
        matches!(self.entry().access, ReadOrWrite | Write | Administer)
    }

    /// Returns whether a replica refuses the method: its leader alone changes what it keeps. What
    /// may read or write is looked at where its request is known.
    #[inline]
    pub const fn is_for_leader(self) -> bool {
        match self.entry().access {
            Write => true,
            Administer => !self.entry().is_on_replica,
            Open | AnyRight | Read | ReadOrWrite => false,
        }
    }

    /// Returns whether one request of the method may have thousands of operations.
    pub const fn has_many_operations(self) -> bool {
        self.entry().has_many_operations
    }

    /// Returns whether a call administrates, and so has a line in the audit trail.
    #[inline]
    pub const fn administrates(self) -> bool {
        matches!(self.entry().access, Administer)
    }

    /// Returns the drop-in service that the method belongs to, which can be opened by its name.
    #[inline]
    pub const fn drop_in(self) -> Option<DropIn> {
        self.entry().service.drop_in
    }

    /// Returns whether calls of the method look at the metadata of the request. Those of plain
    /// requests look at all header fields.
    #[inline]
    pub const fn reads_metadata(self) -> bool {
        self.entry().service.reads_metadata
    }

    /// Returns whether clients of the method are known to drop the status of a failed call, so
    /// that the server's log is where its reason is looked for. Those of gupload print a message
    /// of their own.
    pub const fn has_silent_callers(self) -> bool {
        self.entry().service.has_silent_callers
    }

    /// Returns whether replicas call the method, on a connection that they keep for that.
    #[inline]
    pub const fn is_of_replicas(self) -> bool {
        self.entry().service.is_of_replicas
    }

    /// Returns whether the method is served, with or without the flag `--interop`.
    #[inline]
    pub const fn is_served(self, interop: bool) -> bool {
        interop || !self.entry().service.is_behind_flag
    }
}

/// Returns the full names of the gRPC services that are served, with or without the flag
/// `--interop`, for health and reflection: in order, and behind them those that a flag adds.
pub fn served(interop: bool) -> impl Iterator<Item = &'static str> {
    let name = |method: Method| (!method.is_served(false), method.service_label());
    let mut names: Vec<_> = served_methods(interop).map(name).collect();
    names.sort_unstable();
    names.dedup();
    names.into_iter().map(|(_, name)| name)
}

/// Returns the same in the order of the table.
pub(crate) fn served_in_order(interop: bool) -> Vec<&'static str> {
    let mut names: Vec<_> = served_methods(interop).map(Method::service_label).collect();
    names.dedup();
    names
}

fn served_methods(interop: bool) -> impl Iterator<Item = Method> {
    let methods = Method::ALL.iter().copied();
    methods.filter(move |method| !method.is_plain() && method.is_served(interop))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use prost_reflect::DescriptorPool;

    use super::*;
    use crate::descriptor::DESCRIPTOR_SET;

    /// What is declared beside those of the table, and answered as an unknown method.
    const UNIMPLEMENTED: api::Method = api::interop::UNIMPLEMENTED_CALL;

    /// Declared for clients of the public tests, and for `pelton lab agent`; never served.
    const NEVER_SERVED: [&str; 2] = ["grpc.testing.UnimplementedService/", "pelton.lab.v1."];

    /// All methods that `api` describes.
    const DESCRIBED: [&[api::Method]; 15] = [
        api::keyvalue::METHODS,
        api::blob::METHODS,
        api::admin::METHODS,
        api::replication::METHODS,
        api::echo::METHODS,
        api::health::METHODS,
        api::reflection::METHODS,
        api::interop::METHODS,
        api::kvstore::METHODS,
        api::gupload::METHODS,
        api::ydb_ping::METHODS,
        api::brpc_echo::METHODS,
        api::srpc_benchmark::METHODS,
        api::tkrzw::METHODS,
        api::tkrzw_before::METHODS,
    ];

    /// The methods that the compiled `.proto` files declare.
    fn declared() -> BTreeMap<String, CallKind> {
        let pool = DescriptorPool::decode(DESCRIPTOR_SET).expect("the committed set is sound");
        let services: Vec<_> = pool.services().collect();
        let methods = services.iter().flat_map(|service| {
            service.methods().map(move |method| {
                let path = format!("{}/{}", service.full_name(), method.name());
                let kind = match (method.is_client_streaming(), method.is_server_streaming()) {
                    (false, false) => CallKind::Unary,
                    (false, true) => CallKind::ServerStreaming,
                    (true, false) => CallKind::ClientStreaming,
                    (true, true) => CallKind::Bidirectional,
                };
                (path, kind)
            })
        });
        let is_served = |(path, _): &(String, CallKind)| {
            path != UNIMPLEMENTED.path && !NEVER_SERVED.iter().any(|name| path.starts_with(name))
        };
        methods.filter(is_served).collect()
    }

    #[test]
    fn the_table_has_each_method_that_is_declared_and_described() {
        let table: BTreeMap<_, _> = (Method::ALL.iter())
            .filter_map(|method| Some((method.path().to_owned(), method.kind()?)))
            .collect();
        assert_eq!(table, declared());
        let described: BTreeMap<_, _> = (DESCRIBED.iter().copied().flatten())
            .filter(|&&method| method != UNIMPLEMENTED)
            .map(|method| (method.path.to_owned(), method.kind))
            .collect();
        assert_eq!(table, described);
    }

    use Method as M;

    /// Methods that read.
    const READS: &[M] = &[
        M::Get,
        M::Scan,
        M::Count,
        M::Watch,
        M::BlobDownload,
        M::BlobStat,
        M::BlobList,
        M::BlobListUploads,
        M::AdminListDatabases,
        M::AdminStatistics,
        M::HttpBlobGet,
        M::HttpBlobHead,
        M::KvstoreRetrieve,
        M::TkrzwInspect,
        M::TkrzwBeforeInspect,
        M::TkrzwGet,
        M::TkrzwBeforeGet,
        M::TkrzwGetMulti,
        M::TkrzwBeforeGetMulti,
        M::TkrzwCount,
        M::TkrzwBeforeCount,
        M::TkrzwGetFileSize,
        M::TkrzwBeforeGetFileSize,
        M::TkrzwShouldBeRebuilt,
        M::TkrzwBeforeShouldBeRebuilt,
        M::TkrzwSynchronize,
        M::TkrzwBeforeSynchronize,
        M::TkrzwSearch,
        M::TkrzwBeforeSearch,
        M::TkrzwReplicate,
        M::TkrzwBeforeReplicate,
    ];

    /// A request of one of these that was repeated would take effect twice.
    #[test]
    fn methods_change_content_or_do_not() {
        let is_open = [
            Service::Health,
            Service::ReflectionV1,
            Service::ReflectionV1Alpha,
        ];
        let touches_nothing = [
            Service::Echo,
            Service::Interop,
            Service::YdbPing,
            Service::BrpcEcho,
            Service::SrpcBenchmark,
        ];
        let administrates = [Service::Admin, Service::Replication];
        let echoes = [M::TkrzwEcho, M::TkrzwBeforeEcho];
        let as_the_request_says = [
            M::Batch,
            M::Transact,
            M::Pipe,
            M::TkrzwStream,
            M::TkrzwBeforeStream,
            M::TkrzwIterate,
            M::TkrzwBeforeIterate,
        ];
        for &method in Method::ALL {
            let expected = match method {
                _ if is_open.contains(&method.service()) => Access::Open,
                _ if touches_nothing.contains(&method.service()) => Access::AnyRight,
                _ if echoes.contains(&method) => Access::AnyRight,
                _ if as_the_request_says.contains(&method) => Access::ReadOrWrite,
                _ if READS.contains(&method) => Access::Read,
                _ if administrates.contains(&method.service()) => Access::Administer,
                _ => Access::Write,
            };
            assert_eq!(method.entry().access, expected, "{method:?}");
            let changes = matches!(
                expected,
                Access::ReadOrWrite | Access::Write | Access::Administer
            );
            assert_eq!(method.changes_content(), changes, "{method:?}");
        }
    }

    #[test]
    fn a_method_that_touches_data_has_a_database_or_all_of_them() {
        use Method as M;
        let of_server = [
            M::AdminStatistics,
            M::AdminBackup,
            M::AdminSnapshot,
            M::AdminCreateToken,
            M::AdminListTokens,
            M::AdminRevokeToken,
            M::AdminRotateToken,
            M::AdminSetRole,
            M::AdminListRoles,
            M::AdminDropRole,
            M::AdminConfirmEpoch,
            M::AdminPromote,
            M::AdminForgetReplicas,
            M::ReplicationCopy,
            M::ReplicationFollow,
            M::ReplicationAcknowledge,
            M::ReplicationReadContent,
            M::TkrzwReplicate,
            M::TkrzwBeforeReplicate,
            M::TkrzwChangeMaster,
            M::TkrzwBeforeChangeMaster,
        ];
        for &method in Method::ALL {
            let MethodEntry {
                access, database, ..
            } = *method.entry();
            let has_none = matches!(access, Access::Open | Access::AnyRight);
            assert_eq!(database == DatabaseName::Nowhere, has_none, "{method:?}");
            let is_of_server = of_server.contains(&method);
            assert_eq!(database == DatabaseName::Server, is_of_server, "{method:?}");
            let lists = method == M::AdminListDatabases;
            assert_eq!(database == DatabaseName::Readable, lists, "{method:?}");
        }
    }

    #[test]
    fn a_replica_leaves_to_its_leader_what_changes_something_there() {
        for method in [
            M::Put,
            M::BlobUpload,
            M::HttpBlobPut,
            M::AdminCreateToken,
            M::KvstoreCreate,
        ] {
            assert!(method.is_for_leader(), "{method:?}");
        }
        for method in [
            M::Get,
            M::Batch,
            M::Watch,
            M::AdminBackup,
            M::ReplicationFollow,
        ] {
            assert!(!method.is_for_leader(), "{method:?}");
        }
    }

    /// What can be opened by itself is what original clients call that can send no token.
    #[test]
    fn the_methods_of_drop_in_services_have_their_name() {
        for &method in Method::ALL {
            let expected = match method.service() {
                Service::Kvstore => Some(DropIn::Kvstore),
                Service::Gupload | Service::HttpGupload => Some(DropIn::Gupload),
                Service::YdbPing => Some(DropIn::YdbPing),
                Service::BrpcEcho => Some(DropIn::BrpcEcho),
                Service::SrpcBenchmark => Some(DropIn::SrpcBenchmark),
                Service::Tkrzw | Service::TkrzwBefore => Some(DropIn::Tkrzw),
                _ => None,
            };
            assert_eq!(method.drop_in(), expected, "{method:?}");
        }
    }

    #[test]
    fn every_path_leads_to_its_method() {
        for (index, &method) in Method::ALL.iter().enumerate() {
            assert_eq!(method as usize, index);
            let label = format!("/{}", method.label());
            if method.is_plain() {
                assert_eq!((method.path(), method.kind()), ("", None));
                assert_eq!(route(label.as_bytes()), None, "{label}");
                continue;
            }
            let path = format!("/{}", method.path());
            assert_eq!(path, label);
            assert_eq!(route(path.as_bytes()), Some(method), "{path}");
            assert_eq!(
                route(&path.as_bytes()[1..]),
                None,
                "{path} without its slash"
            );
            assert_eq!(route(format!("{path}/").as_bytes()), None);
            assert_eq!(route(path.to_lowercase().as_bytes()), None);
        }
        assert_eq!(route(b""), None);
        assert_eq!(route(b"/"), None);
    }

    #[test]
    fn services_have_a_short_name_where_there_is_no_header() {
        for (path, method) in [
            ("/pelton.v1.KeyValue/Get", Some(Method::Get)),
            ("/KeyValue/Get", Some(Method::Get)),
            ("/Health/Check", Some(Method::HealthCheck)),
            ("/EchoService/Echo", Some(Method::BrpcEcho)),
            ("/BenchmarkPB/echo_pb", Some(Method::SrpcEchoPb)),
            ("/v1.KeyValue/Get", None),
            ("/Value/Get", None),
            ("/.KeyValue/Get", None),
            ("/KeyValue/get", None),
            ("/KeyValue", None),
            ("KeyValue/Get", None),
            ("//Get", None),
            ("/Blob/PUT", None),
            ("/", None),
        ] {
            assert_eq!(route_of_any(path.as_bytes()), method, "{path}");
        }
        for &method in Method::ALL.iter().filter(|method| !method.is_plain()) {
            let full = format!("/{}", method.path());
            assert_eq!(route_of_any(full.as_bytes()), Some(method), "{full}");
        }
        assert!(has_service(b"/KeyValue/No") && has_service(b"/pelton.v1.KeyValue/No"));
        assert!(!has_service(b"/v1.KeyValue/Get") && !has_service(b"/Value/Get"));
        assert!(!has_service(b"//Get") && !has_service(b"/.KeyValue/Get"));
        assert!(!has_service(b"/No/Get") && !has_service(b"/http.Gupload/upload"));
        assert!(!has_service(b"\xff/Get") && !has_service(b""));
    }

    #[test]
    fn services_are_listed_in_order_and_the_one_behind_a_flag_last() {
        let always = [
            "BenchmarkPB",
            "Ydb.Debug.V1.DebugService",
            "example.EchoService",
            "grpc.health.v1.Health",
            "grpc.reflection.v1.ServerReflection",
            "grpc.reflection.v1alpha.ServerReflection",
            "io.grpc.KeyValueService",
            "messaging.GuploadService",
            "pelton.v1.Admin",
            "pelton.v1.Blob",
            "pelton.v1.Echo",
            "pelton.v1.KeyValue",
            "pelton.v1.Replication",
            "tkrzw.DBMService",
            "tkrzw_rpc.DBMService",
        ];
        assert_eq!(served(false).collect::<Vec<_>>(), always);
        let all: Vec<_> = always
            .into_iter()
            .chain(["grpc.testing.TestService"])
            .collect();
        assert_eq!(served(true).collect::<Vec<_>>(), all);
    }
}
