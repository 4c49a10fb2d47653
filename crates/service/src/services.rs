//! Which services this server serves, for those who tell others: health and reflection.

/// Full names of the services that are served always.
pub const SERVED: [&str; 10] = [
    "Ydb.Debug.V1.DebugService",
    "grpc.health.v1.Health",
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
    "io.grpc.KeyValueService",
    "messaging.GuploadService",
    "pelton.v1.Admin",
    "pelton.v1.Blob",
    "pelton.v1.Echo",
    "pelton.v1.KeyValue",
];

/// Full name of the service that is served only behind a flag.
pub const INTEROP: &str = "grpc.testing.TestService";

/// The services that are served, with or without the test service.
pub fn served(interop: bool) -> impl Iterator<Item = &'static str> {
    SERVED.into_iter().chain(interop.then_some(INTEROP))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method::Method;

    #[test]
    fn every_service_has_a_method() {
        for service in served(true) {
            let belongs = |method: &&Method| {
                method
                    .path()
                    .strip_prefix(service)
                    .is_some_and(|rest| rest.starts_with('/'))
            };
            assert!(
                Method::ALL.iter().any(|method| belongs(&method)),
                "{service}"
            );
        }
    }
}
