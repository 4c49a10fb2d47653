//! The methods of `pelton.v1.Admin`.

use super::{harmless, may_repeat};
use crate::admin::{
    BackupProgress, BackupRequest, ConfirmEpochRequest, ConfirmEpochResponse,
    ConvertDatabaseRequest, ConvertProgress, CreateDatabaseRequest, CreateDatabaseResponse,
    CreateTokenRequest, CreateTokenResponse, DropDatabaseRequest, DropDatabaseResponse,
    DropRoleRequest, DropRoleResponse, ForgetReplicasRequest, ForgetReplicasResponse,
    ListDatabasesRequest, ListDatabasesResponse, ListRolesRequest, ListRolesResponse,
    ListTokensRequest, ListTokensResponse, PromoteRequest, PromoteResponse, RevokeTokenRequest,
    RevokeTokenResponse, RotateTokenRequest, RotateTokenResponse, SetRoleRequest, SetRoleResponse,
    SnapshotRequest, SnapshotResponse, StatisticsRequest, StatisticsResponse,
};

super::rpcs! {
    CreateDatabase<'a> crate::admin::CREATE_DATABASE:
        CreateDatabaseRequest<'a> => CreateDatabaseResponse<'a>, may_repeat;
    ListDatabases<'a> crate::admin::LIST_DATABASES:
        ListDatabasesRequest => ListDatabasesResponse<'a>, harmless;
    DropDatabase<'a> crate::admin::DROP_DATABASE:
        DropDatabaseRequest<'a> => DropDatabaseResponse, may_repeat;
    ConvertDatabase<'a> crate::admin::CONVERT_DATABASE:
        ConvertDatabaseRequest<'a> => ConvertProgress, may_repeat;
    Statistics<'a> crate::admin::STATISTICS:
        StatisticsRequest => StatisticsResponse<'a>, harmless;
    Backup<'a> crate::admin::BACKUP: BackupRequest<'a> => BackupProgress<'a>, may_repeat;
    Snapshot<'a> crate::admin::SNAPSHOT: SnapshotRequest => SnapshotResponse, may_repeat;
    CreateToken<'a> crate::admin::CREATE_TOKEN:
        CreateTokenRequest<'a> => CreateTokenResponse<'a>, may_repeat;
    ListTokens<'a> crate::admin::LIST_TOKENS:
        ListTokensRequest => ListTokensResponse<'a>, harmless;
    RevokeToken<'a> crate::admin::REVOKE_TOKEN:
        RevokeTokenRequest<'a> => RevokeTokenResponse, may_repeat;
    RotateToken<'a> crate::admin::ROTATE_TOKEN:
        RotateTokenRequest<'a> => RotateTokenResponse<'a>, may_repeat;
    SetRole<'a> crate::admin::SET_ROLE: SetRoleRequest<'a> => SetRoleResponse, may_repeat;
    ListRoles<'a> crate::admin::LIST_ROLES: ListRolesRequest => ListRolesResponse<'a>, harmless;
    DropRole<'a> crate::admin::DROP_ROLE: DropRoleRequest<'a> => DropRoleResponse, may_repeat;
    ConfirmEpoch<'a> crate::admin::CONFIRM_EPOCH:
        ConfirmEpochRequest<'a> => ConfirmEpochResponse<'a>, may_repeat;
    Promote<'a> crate::admin::PROMOTE:
        PromoteRequest<'a> => PromoteResponse<'a>, may_repeat;
    ForgetReplicas<'a> crate::admin::FORGET_REPLICAS:
        ForgetReplicasRequest<'a> => ForgetReplicasResponse<'a>, may_repeat;
}
