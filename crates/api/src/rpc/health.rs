//! The methods of `grpc.health.v1.Health`.

use super::harmless;
use crate::health::{
    HealthCheckRequest, HealthCheckResponse, HealthListRequest, HealthListResponse,
};

super::rpcs! {
    Check<'a> crate::health::CHECK: HealthCheckRequest<'a> => HealthCheckResponse, harmless;
    List<'a> crate::health::LIST: HealthListRequest => HealthListResponse<'a>, harmless;
    Watch<'a> crate::health::WATCH: HealthCheckRequest<'a> => HealthCheckResponse, harmless;
}
