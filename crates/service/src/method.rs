//! Which methods there are, and where the path of a request leads.

/// How many messages go each way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One request, one answer.
    Unary,
    /// One request, a stream of answers.
    ServerStreaming,
    /// A stream of requests, one answer.
    ClientStreaming,
    /// A stream each way.
    Bidirectional,
    /// No gRPC: a plain request, which [`http::route`](crate::http::route) finds.
    Plain,
}

macro_rules! methods {
    ($($method:ident $kind:ident $path:literal)*) => {
        /// A method that this server knows, served already or not.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Method {
            $(#[doc = concat!("`", $path, "`")] $method,)*
        }

        impl Method {
            /// All methods, in the order of their numbers (`method as usize`).
            pub const ALL: &[Method] = &[$(Method::$method),*];

            /// The path without its leading slash: `package.Service/Method`.
            pub fn path(self) -> &'static str {
                match self { $(Method::$method => $path,)* }
            }

            /// How many messages go each way.
            pub fn kind(self) -> Kind {
                match self { $(Method::$method => Kind::$kind,)* }
            }
        }

        /// The method that the `:path` of a request names, `None` if there is none (status
        /// UNIMPLEMENTED).
        pub fn route(path: &[u8]) -> Option<Method> {
            let name = path.strip_prefix(b"/")?;
            $(
                if !matches!(Kind::$kind, Kind::Plain) && name == $path.as_bytes() {
                    return Some(Method::$method);
                }
            )*
            None
        }
    };
}

methods! {
    Get Unary "pelton.v1.KeyValue/Get"
    Put Unary "pelton.v1.KeyValue/Put"
    Delete Unary "pelton.v1.KeyValue/Delete"
    Append Unary "pelton.v1.KeyValue/Append"
    Increment Unary "pelton.v1.KeyValue/Increment"
    Batch Unary "pelton.v1.KeyValue/Batch"
    Transact Unary "pelton.v1.KeyValue/Transact"
    Scan ServerStreaming "pelton.v1.KeyValue/Scan"
    Count Unary "pelton.v1.KeyValue/Count"
    Pipe Bidirectional "pelton.v1.KeyValue/Pipe"
    Watch ServerStreaming "pelton.v1.KeyValue/Watch"

    BlobUpload ClientStreaming "pelton.v1.Blob/Upload"
    BlobDownload ServerStreaming "pelton.v1.Blob/Download"
    BlobStat Unary "pelton.v1.Blob/Stat"
    BlobList ServerStreaming "pelton.v1.Blob/List"
    BlobDelete Unary "pelton.v1.Blob/Delete"
    BlobListUploads Unary "pelton.v1.Blob/ListUploads"
    BlobDiscardUploads Unary "pelton.v1.Blob/DiscardUploads"

    AdminCreateDatabase Unary "pelton.v1.Admin/CreateDatabase"
    AdminListDatabases Unary "pelton.v1.Admin/ListDatabases"
    AdminDropDatabase Unary "pelton.v1.Admin/DropDatabase"
    AdminConvertDatabase ServerStreaming "pelton.v1.Admin/ConvertDatabase"
    AdminStatistics Unary "pelton.v1.Admin/Statistics"
    AdminBackup ServerStreaming "pelton.v1.Admin/Backup"
    AdminSnapshot Unary "pelton.v1.Admin/Snapshot"

    EchoUnary Unary "pelton.v1.Echo/Unary"
    EchoStream Bidirectional "pelton.v1.Echo/Stream"

    HttpBlobPut Plain "http.Blob/PUT"
    HttpBlobGet Plain "http.Blob/GET"
    HttpBlobHead Plain "http.Blob/HEAD"
    HttpBlobDelete Plain "http.Blob/DELETE"
    HttpGupload Plain "http.Gupload/upload"

    HealthCheck Unary "grpc.health.v1.Health/Check"
    HealthList Unary "grpc.health.v1.Health/List"
    HealthWatch ServerStreaming "grpc.health.v1.Health/Watch"

    ReflectionV1 Bidirectional "grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
    ReflectionV1Alpha Bidirectional "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"

    InteropEmptyCall Unary "grpc.testing.TestService/EmptyCall"
    InteropUnaryCall Unary "grpc.testing.TestService/UnaryCall"
    InteropCacheableUnaryCall Unary "grpc.testing.TestService/CacheableUnaryCall"
    InteropStreamingOutputCall ServerStreaming "grpc.testing.TestService/StreamingOutputCall"
    InteropStreamingInputCall ClientStreaming "grpc.testing.TestService/StreamingInputCall"
    InteropFullDuplexCall Bidirectional "grpc.testing.TestService/FullDuplexCall"
    InteropHalfDuplexCall Bidirectional "grpc.testing.TestService/HalfDuplexCall"

    KvstoreCreate Unary "io.grpc.KeyValueService/Create"
    KvstoreRetrieve Unary "io.grpc.KeyValueService/Retrieve"
    KvstoreUpdate Unary "io.grpc.KeyValueService/Update"
    KvstoreDelete Unary "io.grpc.KeyValueService/Delete"

    GuploadUpload ClientStreaming "messaging.GuploadService/Upload"

    YdbPingUnary Unary "Ydb.Debug.V1.DebugService/PingPlainGrpc"
    YdbPingStream Bidirectional "Ydb.Debug.V1.DebugService/PingStream"
}

impl Method {
    /// Whether this is a method of `grpc.testing.TestService`, which is served only behind a flag.
    pub fn is_interop(self) -> bool {
        self.path().starts_with("grpc.testing.")
    }

    /// Whether a call of a method of `pelton.v1` may change what the server keeps.
    pub fn changes_content(self) -> bool {
        matches!(
            self,
            Method::Put
                | Method::Delete
                | Method::Append
                | Method::Increment
                | Method::Batch
                | Method::Transact
                | Method::Pipe
                | Method::BlobUpload
                | Method::BlobDelete
                | Method::BlobDiscardUploads
                | Method::AdminCreateDatabase
                | Method::AdminDropDatabase
                | Method::AdminConvertDatabase
                | Method::AdminBackup
                | Method::AdminSnapshot
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Those of `pelton.v1` that change nothing are listed here, the others there.
    #[test]
    fn methods_change_content_or_do_not() {
        use Method as M;
        let reads = [
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
            M::EchoUnary,
            M::EchoStream,
        ];
        for &method in Method::ALL {
            let is_ours = method.path().starts_with("pelton.v1.");
            let changes = is_ours && !reads.contains(&method);
            assert_eq!(method.changes_content(), changes, "{method:?}");
        }
    }

    #[test]
    fn every_path_leads_to_its_method() {
        for (index, &method) in Method::ALL.iter().enumerate() {
            assert_eq!(method as usize, index);
            let path = format!("/{}", method.path());
            if method.kind() == Kind::Plain {
                assert_eq!(route(path.as_bytes()), None, "{path}");
                continue;
            }
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
}
