//! A case for each message of `proto/`.

use protobuf::{DecodeError, EnumDescription, FieldDescription, Message};

/// The description of a message, and what the code made of it does.
pub struct Case {
    pub name: &'static str,
    /// The full name by which the code knows it.
    pub described_name: &'static str,
    pub fields: &'static [FieldDescription],
    pub oneofs: &'static [(&'static str, &'static [FieldDescription])],
    /// Decodes the message with all that is in it, and encodes it again.
    pub recode: fn(&[u8]) -> Result<Vec<u8>, DecodeError>,
}

macro_rules! cases {
    ($($name:literal $message:path;)*) => {
        pub const CASES: &[Case] = &[$(
            Case {
                name: $name,
                described_name: <$message as Message>::NAME,
                fields: <$message as Message>::FIELDS,
                oneofs: <$message as Message>::ONEOFS,
                recode: |bytes| {
                    let message = <$message>::decode(bytes)?;
                    message.validate()?;
                    let mut out = b"before".to_vec();
                    message.encode(&mut out);
                    assert_eq!(out.len() - 6, message.encoded_len(), "{message:?}");
                    Ok(out.split_off(6))
                },
            },
        )*];
    };
}

cases! {
    "pelton.v1.Entry" api::keyvalue::Entry;
    "pelton.v1.KeyRange" api::keyvalue::KeyRange;
    "pelton.v1.GetRequest" api::keyvalue::GetRequest;
    "pelton.v1.GetResponse" api::keyvalue::GetResponse;
    "pelton.v1.PutRequest" api::keyvalue::PutRequest;
    "pelton.v1.PutResponse" api::keyvalue::PutResponse;
    "pelton.v1.DeleteRequest" api::keyvalue::DeleteRequest;
    "pelton.v1.DeleteResponse" api::keyvalue::DeleteResponse;
    "pelton.v1.AppendRequest" api::keyvalue::AppendRequest;
    "pelton.v1.AppendResponse" api::keyvalue::AppendResponse;
    "pelton.v1.IncrementRequest" api::keyvalue::IncrementRequest;
    "pelton.v1.IncrementResponse" api::keyvalue::IncrementResponse;
    "pelton.v1.Operation" api::keyvalue::Operation;
    "pelton.v1.Operation.Get" api::keyvalue::GetOperation;
    "pelton.v1.Operation.Put" api::keyvalue::PutOperation;
    "pelton.v1.Operation.Delete" api::keyvalue::DeleteOperation;
    "pelton.v1.Operation.Append" api::keyvalue::AppendOperation;
    "pelton.v1.Operation.Increment" api::keyvalue::IncrementOperation;
    "pelton.v1.OperationResult" api::keyvalue::OperationResult;
    "pelton.v1.Failure" api::keyvalue::Failure;
    "pelton.v1.BatchRequest" api::keyvalue::BatchRequest;
    "pelton.v1.BatchResponse" api::keyvalue::BatchResponse;
    "pelton.v1.Comparison" api::keyvalue::Comparison;
    "pelton.v1.TransactRequest" api::keyvalue::TransactRequest;
    "pelton.v1.TransactResponse" api::keyvalue::TransactResponse;
    "pelton.v1.ScanRequest" api::keyvalue::ScanRequest;
    "pelton.v1.ScanPage" api::keyvalue::ScanPage;
    "pelton.v1.CountRequest" api::keyvalue::CountRequest;
    "pelton.v1.CountResponse" api::keyvalue::CountResponse;
    "pelton.v1.PipeRequest" api::keyvalue::PipeRequest;
    "pelton.v1.PipeResponse" api::keyvalue::PipeResponse;
    "pelton.v1.ResumePoint" api::keyvalue::ResumePoint;
    "pelton.v1.WatchRequest" api::keyvalue::WatchRequest;
    "pelton.v1.WatchResponse" api::keyvalue::WatchResponse;
    "pelton.v1.WatchResponse.Commit" api::keyvalue::Commit;
    "pelton.v1.WatchResponse.Change" api::keyvalue::Change;
    "pelton.v1.BlobDescription" api::blob::BlobDescription;
    "pelton.v1.UploadRequest" api::blob::UploadRequest;
    "pelton.v1.UploadBegin" api::blob::UploadBegin;
    "pelton.v1.UploadChunk" api::blob::UploadChunk;
    "pelton.v1.UploadEnd" api::blob::UploadEnd;
    "pelton.v1.UploadResponse" api::blob::UploadResponse;
    "pelton.v1.DownloadRequest" api::blob::DownloadRequest;
    "pelton.v1.DownloadResponse" api::blob::DownloadResponse;
    "pelton.v1.StatRequest" api::blob::StatRequest;
    "pelton.v1.StatResponse" api::blob::StatResponse;
    "pelton.v1.ListRequest" api::blob::ListRequest;
    "pelton.v1.ListResponse" api::blob::ListResponse;
    "pelton.v1.DeleteBlobRequest" api::blob::DeleteBlobRequest;
    "pelton.v1.DeleteBlobResponse" api::blob::DeleteBlobResponse;
    "pelton.v1.ListUploadsRequest" api::blob::ListUploadsRequest;
    "pelton.v1.UploadDescription" api::blob::UploadDescription;
    "pelton.v1.ListUploadsResponse" api::blob::ListUploadsResponse;
    "pelton.v1.DiscardUploadsRequest" api::blob::DiscardUploadsRequest;
    "pelton.v1.DiscardUploadsResponse" api::blob::DiscardUploadsResponse;
    "pelton.v1.DatabaseDescription" api::admin::DatabaseDescription;
    "pelton.v1.CreateDatabaseRequest" api::admin::CreateDatabaseRequest;
    "pelton.v1.CreateDatabaseResponse" api::admin::CreateDatabaseResponse;
    "pelton.v1.ListDatabasesRequest" api::admin::ListDatabasesRequest;
    "pelton.v1.ListDatabasesResponse" api::admin::ListDatabasesResponse;
    "pelton.v1.DropDatabaseRequest" api::admin::DropDatabaseRequest;
    "pelton.v1.DropDatabaseResponse" api::admin::DropDatabaseResponse;
    "pelton.v1.ConvertDatabaseRequest" api::admin::ConvertDatabaseRequest;
    "pelton.v1.ConvertProgress" api::admin::ConvertProgress;
    "pelton.v1.DatabaseStatistics" api::admin::DatabaseStatistics;
    "pelton.v1.StatisticsRequest" api::admin::StatisticsRequest;
    "pelton.v1.StatisticsResponse" api::admin::StatisticsResponse;
    "pelton.v1.StatisticsResponse.Log" api::admin::LogStatistics;
    "pelton.v1.StatisticsResponse.MethodStatistics" api::admin::MethodStatistics;
    "pelton.v1.StatisticsResponse.Acknowledged" api::admin::AcknowledgedStatistics;
    "pelton.v1.StatisticsResponse.Follower" api::admin::FollowerStatistics;
    "pelton.v1.StatisticsResponse.Replica" api::admin::ReplicaStatistics;
    "pelton.v1.BackupRequest" api::admin::BackupRequest;
    "pelton.v1.BackupProgress" api::admin::BackupProgress;
    "pelton.v1.SnapshotRequest" api::admin::SnapshotRequest;
    "pelton.v1.SnapshotResponse" api::admin::SnapshotResponse;
    "pelton.v1.TokenDescription" api::admin::TokenDescription;
    "pelton.v1.CreateTokenRequest" api::admin::CreateTokenRequest;
    "pelton.v1.CreateTokenResponse" api::admin::CreateTokenResponse;
    "pelton.v1.ListTokensRequest" api::admin::ListTokensRequest;
    "pelton.v1.ListTokensResponse" api::admin::ListTokensResponse;
    "pelton.v1.RevokeTokenRequest" api::admin::RevokeTokenRequest;
    "pelton.v1.RevokeTokenResponse" api::admin::RevokeTokenResponse;
    "pelton.v1.RotateTokenRequest" api::admin::RotateTokenRequest;
    "pelton.v1.RotateTokenResponse" api::admin::RotateTokenResponse;
    "pelton.v1.RoleDescription" api::admin::RoleDescription;
    "pelton.v1.SetRoleRequest" api::admin::SetRoleRequest;
    "pelton.v1.SetRoleResponse" api::admin::SetRoleResponse;
    "pelton.v1.ListRolesRequest" api::admin::ListRolesRequest;
    "pelton.v1.ListRolesResponse" api::admin::ListRolesResponse;
    "pelton.v1.DropRoleRequest" api::admin::DropRoleRequest;
    "pelton.v1.ConfirmEpochRequest" api::admin::ConfirmEpochRequest;
    "pelton.v1.ConfirmEpochResponse" api::admin::ConfirmEpochResponse;
    "pelton.v1.PromoteRequest" api::admin::PromoteRequest;
    "pelton.v1.PromoteResponse" api::admin::PromoteResponse;
    "pelton.v1.ForgetReplicasRequest" api::admin::ForgetReplicasRequest;
    "pelton.v1.ForgetReplicasResponse" api::admin::ForgetReplicasResponse;
    "pelton.v1.DropRoleResponse" api::admin::DropRoleResponse;
    "pelton.v1.CopyRequest" api::replication::CopyRequest;
    "pelton.v1.CopyResponse" api::replication::CopyResponse;
    "pelton.v1.FollowRequest" api::replication::FollowRequest;
    "pelton.v1.FollowResponse" api::replication::FollowResponse;
    "pelton.v1.LogGroup" api::replication::LogGroup;
    "pelton.v1.AcknowledgeRequest" api::replication::AcknowledgeRequest;
    "pelton.v1.AcknowledgeResponse" api::replication::AcknowledgeResponse;
    "pelton.v1.ReadContentRequest" api::replication::ReadContentRequest;
    "pelton.v1.ReadContentResponse" api::replication::ReadContentResponse;
    "pelton.v1.EchoRequest" api::echo::EchoRequest;
    "pelton.v1.EchoResponse" api::echo::EchoResponse;
    "grpc.health.v1.HealthCheckRequest" api::health::HealthCheckRequest;
    "grpc.health.v1.HealthCheckResponse" api::health::HealthCheckResponse;
    "grpc.health.v1.HealthListRequest" api::health::HealthListRequest;
    "grpc.health.v1.HealthListResponse" api::health::HealthListResponse;
    "grpc.health.v1.HealthListResponse.StatusesEntry" api::health::StatusEntry;
    "grpc.reflection.v1.ServerReflectionRequest" api::reflection::ServerReflectionRequest;
    "grpc.reflection.v1.ExtensionRequest" api::reflection::ExtensionRequest;
    "grpc.reflection.v1.ServerReflectionResponse" api::reflection::ServerReflectionResponse;
    "grpc.reflection.v1.FileDescriptorResponse" api::reflection::FileDescriptorResponse;
    "grpc.reflection.v1.ExtensionNumberResponse" api::reflection::ExtensionNumberResponse;
    "grpc.reflection.v1.ListServiceResponse" api::reflection::ListServiceResponse;
    "grpc.reflection.v1.ServiceResponse" api::reflection::ServiceResponse;
    "grpc.reflection.v1.ErrorResponse" api::reflection::ErrorResponse;
    "grpc.testing.Empty" api::interop::Empty;
    "grpc.testing.BoolValue" api::interop::BoolValue;
    "grpc.testing.Payload" api::interop::Payload;
    "grpc.testing.EchoStatus" api::interop::EchoStatus;
    "grpc.testing.SimpleRequest" api::interop::SimpleRequest;
    "grpc.testing.SimpleResponse" api::interop::SimpleResponse;
    "grpc.testing.StreamingInputCallRequest" api::interop::StreamingInputCallRequest;
    "grpc.testing.StreamingInputCallResponse" api::interop::StreamingInputCallResponse;
    "grpc.testing.ResponseParameters" api::interop::ResponseParameters;
    "grpc.testing.StreamingOutputCallRequest" api::interop::StreamingOutputCallRequest;
    "grpc.testing.StreamingOutputCallResponse" api::interop::StreamingOutputCallResponse;
    "grpc.testing.TestOrcaReport" api::interop::TestOrcaReport;
    "grpc.testing.TestOrcaReport.RequestCostEntry" api::interop::CostEntry;
    "grpc.testing.TestOrcaReport.UtilizationEntry" api::interop::UtilizationEntry;
    "io.grpc.CreateRequest" api::kvstore::CreateRequest;
    "io.grpc.CreateResponse" api::kvstore::CreateResponse;
    "io.grpc.RetrieveRequest" api::kvstore::RetrieveRequest;
    "io.grpc.RetrieveResponse" api::kvstore::RetrieveResponse;
    "io.grpc.UpdateRequest" api::kvstore::UpdateRequest;
    "io.grpc.UpdateResponse" api::kvstore::UpdateResponse;
    "io.grpc.DeleteRequest" api::kvstore::DeleteRequest;
    "io.grpc.DeleteResponse" api::kvstore::DeleteResponse;
    "messaging.Chunk" api::gupload::Chunk;
    "messaging.UploadStatus" api::gupload::UploadStatus;
    "pelton.lab.v1.AgentWatchRequest" api::agent::AgentWatchRequest;
    "pelton.lab.v1.AgentReport" api::agent::AgentReport;
    "pelton.lab.v1.ProcessActivity" api::agent::ProcessActivity;
    "pelton.lab.v1.MachineActivity" api::agent::MachineActivity;
    "pelton.lab.v1.ThreadActivity" api::agent::ThreadActivity;
    "pelton.lab.v1.NetworkActivity" api::agent::NetworkActivity;
    "example.EchoRequest" api::brpc_echo::EchoRequest;
    "example.EchoResponse" api::brpc_echo::EchoResponse;
    "FixLengthPBMsg" api::srpc_benchmark::FixLengthPbMsg;
    "EmptyPBMsg" api::srpc_benchmark::EmptyPbMsg;
    "tkrzw_rpc.StatusProto" api::tkrzw::StatusProto;
    "tkrzw_rpc.StringPair" api::tkrzw::StringPair;
    "tkrzw_rpc.BytesPair" api::tkrzw::BytesPair;
    "tkrzw_rpc.RecordState" api::tkrzw::RecordState;
    "tkrzw_rpc.EchoRequest" api::tkrzw::EchoRequest;
    "tkrzw_rpc.EchoResponse" api::tkrzw::EchoResponse;
    "tkrzw_rpc.InspectRequest" api::tkrzw::InspectRequest;
    "tkrzw_rpc.InspectResponse" api::tkrzw::InspectResponse;
    "tkrzw_rpc.GetRequest" api::tkrzw::GetRequest;
    "tkrzw_rpc.GetResponse" api::tkrzw::GetResponse;
    "tkrzw_rpc.GetMultiRequest" api::tkrzw::GetMultiRequest;
    "tkrzw_rpc.GetMultiResponse" api::tkrzw::GetMultiResponse;
    "tkrzw_rpc.SetRequest" api::tkrzw::SetRequest;
    "tkrzw_rpc.SetResponse" api::tkrzw::SetResponse;
    "tkrzw_rpc.SetMultiRequest" api::tkrzw::SetMultiRequest;
    "tkrzw_rpc.SetMultiResponse" api::tkrzw::SetMultiResponse;
    "tkrzw_rpc.RemoveRequest" api::tkrzw::RemoveRequest;
    "tkrzw_rpc.RemoveResponse" api::tkrzw::RemoveResponse;
    "tkrzw_rpc.RemoveMultiRequest" api::tkrzw::RemoveMultiRequest;
    "tkrzw_rpc.RemoveMultiResponse" api::tkrzw::RemoveMultiResponse;
    "tkrzw_rpc.AppendRequest" api::tkrzw::AppendRequest;
    "tkrzw_rpc.AppendResponse" api::tkrzw::AppendResponse;
    "tkrzw_rpc.AppendMultiRequest" api::tkrzw::AppendMultiRequest;
    "tkrzw_rpc.AppendMultiResponse" api::tkrzw::AppendMultiResponse;
    "tkrzw_rpc.CompareExchangeRequest" api::tkrzw::CompareExchangeRequest;
    "tkrzw_rpc.CompareExchangeResponse" api::tkrzw::CompareExchangeResponse;
    "tkrzw_rpc.IncrementRequest" api::tkrzw::IncrementRequest;
    "tkrzw_rpc.IncrementResponse" api::tkrzw::IncrementResponse;
    "tkrzw_rpc.CompareExchangeMultiRequest" api::tkrzw::CompareExchangeMultiRequest;
    "tkrzw_rpc.CompareExchangeMultiResponse" api::tkrzw::CompareExchangeMultiResponse;
    "tkrzw_rpc.RekeyRequest" api::tkrzw::RekeyRequest;
    "tkrzw_rpc.RekeyResponse" api::tkrzw::RekeyResponse;
    "tkrzw_rpc.PopFirstRequest" api::tkrzw::PopFirstRequest;
    "tkrzw_rpc.PopFirstResponse" api::tkrzw::PopFirstResponse;
    "tkrzw_rpc.PushLastRequest" api::tkrzw::PushLastRequest;
    "tkrzw_rpc.PushLastResponse" api::tkrzw::PushLastResponse;
    "tkrzw_rpc.CountRequest" api::tkrzw::CountRequest;
    "tkrzw_rpc.CountResponse" api::tkrzw::CountResponse;
    "tkrzw_rpc.GetFileSizeRequest" api::tkrzw::GetFileSizeRequest;
    "tkrzw_rpc.GetFileSizeResponse" api::tkrzw::GetFileSizeResponse;
    "tkrzw_rpc.ClearRequest" api::tkrzw::ClearRequest;
    "tkrzw_rpc.ClearResponse" api::tkrzw::ClearResponse;
    "tkrzw_rpc.RebuildRequest" api::tkrzw::RebuildRequest;
    "tkrzw_rpc.RebuildResponse" api::tkrzw::RebuildResponse;
    "tkrzw_rpc.ShouldBeRebuiltRequest" api::tkrzw::ShouldBeRebuiltRequest;
    "tkrzw_rpc.ShouldBeRebuiltResponse" api::tkrzw::ShouldBeRebuiltResponse;
    "tkrzw_rpc.SynchronizeRequest" api::tkrzw::SynchronizeRequest;
    "tkrzw_rpc.SynchronizeResponse" api::tkrzw::SynchronizeResponse;
    "tkrzw_rpc.SearchRequest" api::tkrzw::SearchRequest;
    "tkrzw_rpc.SearchResponse" api::tkrzw::SearchResponse;
    "tkrzw_rpc.StreamRequest" api::tkrzw::StreamRequest;
    "tkrzw_rpc.StreamResponse" api::tkrzw::StreamResponse;
    "tkrzw_rpc.IterateRequest" api::tkrzw::IterateRequest;
    "tkrzw_rpc.IterateResponse" api::tkrzw::IterateResponse;
    "tkrzw_rpc.ReplicateRequest" api::tkrzw::ReplicateRequest;
    "tkrzw_rpc.ReplicateResponse" api::tkrzw::ReplicateResponse;
    "tkrzw_rpc.ChangeMasterRequest" api::tkrzw::ChangeMasterRequest;
    "tkrzw_rpc.ChangeMasterResponse" api::tkrzw::ChangeMasterResponse;
    "tkrzw.EchoResponse" api::tkrzw_before::EchoResponse;
    "tkrzw.InspectResponse" api::tkrzw_before::InspectResponse;
    "tkrzw.CompareExchangeRequest" api::tkrzw_before::CompareExchangeRequest;
    "tkrzw.CompareExchangeResponse" api::tkrzw_before::CompareExchangeResponse;
    "tkrzw.StreamRequest" api::tkrzw_before::StreamRequest;
    "tkrzw.StreamResponse" api::tkrzw_before::StreamResponse;
    "Ydb.Debug.V1.PlainGrpcRequest" api::ydb_ping::PlainGrpcRequest;
    "Ydb.Debug.V1.PlainGrpcResponse" api::ydb_ping::PlainGrpcResponse;
    "grpc.reflection.v1alpha.ServerReflectionRequest" api::reflection::ServerReflectionRequest;
    "grpc.reflection.v1alpha.ExtensionRequest" api::reflection::ExtensionRequest;
    "grpc.reflection.v1alpha.ServerReflectionResponse" api::reflection::ServerReflectionResponse;
    "grpc.reflection.v1alpha.FileDescriptorResponse" api::reflection::FileDescriptorResponse;
    "grpc.reflection.v1alpha.ExtensionNumberResponse" api::reflection::ExtensionNumberResponse;
    "grpc.reflection.v1alpha.ListServiceResponse" api::reflection::ListServiceResponse;
    "grpc.reflection.v1alpha.ServiceResponse" api::reflection::ServiceResponse;
    "grpc.reflection.v1alpha.ErrorResponse" api::reflection::ErrorResponse;
    "opentelemetry.proto.collector.trace.v1.ExportTraceServiceRequest"
        api::otlp::ExportTraceServiceRequest;
    "opentelemetry.proto.collector.trace.v1.ExportTraceServiceResponse"
        api::otlp::ExportTraceServiceResponse;
    "opentelemetry.proto.collector.trace.v1.ExportTracePartialSuccess"
        api::otlp::ExportTracePartialSuccess;
    "opentelemetry.proto.trace.v1.ResourceSpans" api::otlp::ResourceSpans;
    "opentelemetry.proto.trace.v1.ScopeSpans" api::otlp::ScopeSpans;
    "opentelemetry.proto.trace.v1.Span" api::otlp::ExportedSpan;
    "opentelemetry.proto.trace.v1.Status" api::otlp::SpanStatus;
    "opentelemetry.proto.common.v1.AnyValue" api::otlp::AnyValue;
    "opentelemetry.proto.common.v1.KeyValue" api::otlp::Attribute;
    "opentelemetry.proto.common.v1.InstrumentationScope" api::otlp::InstrumentationScope;
    "opentelemetry.proto.resource.v1.Resource" api::otlp::Resource;
    "google.rpc.Status" api::error_details::DetailedStatus;
    "google.rpc.RetryInfo" api::error_details::RetryInfo;
    "google.protobuf.Any" api::error_details::AnyMessage;
    "google.protobuf.Duration" api::error_details::ProtobufDuration;
    "xds.data.orca.v3.OrcaLoadReport" api::interop::OrcaLoadReport;
    "xds.data.orca.v3.OrcaLoadReport.RequestCostEntry" api::interop::OrcaCostEntry;
    "xds.data.orca.v3.OrcaLoadReport.UtilizationEntry" api::interop::OrcaUtilizationEntry;
}

/// Each enum of `proto/`.
pub const ENUMS: &[EnumDescription] = &[
    api::keyvalue::IncrementRefusal::DESCRIPTION,
    api::keyvalue::BatchMode::DESCRIPTION,
    api::keyvalue::Direction::DESCRIPTION,
    api::keyvalue::CountPrecision::DESCRIPTION,
    api::keyvalue::PipeAnswers::DESCRIPTION,
    api::keyvalue::ChangeKind::DESCRIPTION,
    api::admin::DatabaseKind::DESCRIPTION,
    api::admin::RemotePromise::DESCRIPTION,
    api::admin::RemoteOrder::DESCRIPTION,
    api::admin::DurabilityMode::DESCRIPTION,
    api::health::ServingStatus::DESCRIPTION,
    api::gupload::UploadStatusCode::DESCRIPTION,
    api::tkrzw::IterateOperation::DESCRIPTION,
    api::tkrzw::ReplicatedOperation::DESCRIPTION,
    api::otlp::SpanKind::DESCRIPTION,
    api::otlp::SpanStatusCode::DESCRIPTION,
];

/// Each method of `proto/`.
pub const METHODS: &[&[api::Method]] = &[
    api::keyvalue::METHODS,
    api::blob::METHODS,
    api::admin::METHODS,
    api::replication::METHODS,
    api::echo::METHODS,
    api::agent::METHODS,
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
    api::otlp::METHODS,
];
