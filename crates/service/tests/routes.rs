//! Every method of `proto/` has a route, and the other way round.

use prost_reflect::DescriptorPool;

#[test]
fn every_method_of_the_files_has_a_route_and_the_other_way_round() {
    let proto = concat!(env!("CARGO_MANIFEST_DIR"), "/../../proto");
    let mut compiler = protox::Compiler::new([proto]).expect("the folder is there");
    let files = ["kv", "blob", "admin", "echo"].map(|name| format!("pelton/v1/{name}.proto"));
    compiler.open_files(files).expect("the files compile");
    let pool: DescriptorPool = compiler.descriptor_pool();
    let mut paths = Vec::new();
    for descriptor in pool.services() {
        for method in descriptor.methods() {
            let path = format!("{}/{}", descriptor.full_name(), method.name());
            let kind = match (method.is_client_streaming(), method.is_server_streaming()) {
                (false, false) => api::CallKind::Unary,
                (false, true) => api::CallKind::ServerStreaming,
                (true, false) => api::CallKind::ClientStreaming,
                (true, true) => api::CallKind::Bidirectional,
            };
            let routed = service::route(format!("/{path}").as_bytes());
            assert_eq!(routed.and_then(service::Method::kind), Some(kind), "{path}");
            paths.push(path);
        }
    }
    let ours = service::Method::ALL.iter().map(|method| method.path());
    for path in ours.filter(|path| path.starts_with("pelton.")) {
        assert!(
            paths.iter().any(|known| known == path),
            "{path} is in no file"
        );
    }
}
