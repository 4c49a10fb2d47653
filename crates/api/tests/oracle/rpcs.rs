//! The typed descriptions of methods against the descriptor set that a server reports by
//! reflection.

use std::collections::BTreeSet;

use api::rpc;
use prost_reflect::DescriptorPool;

use crate::descriptions::kind_of;

const DESCRIPTOR_SET: &[u8] = include_bytes!("../../../service/src/descriptor_set.bin");

#[test]
fn every_method_of_pelton_v1_and_health_has_a_description_with_its_kind_and_types() {
    let pool = DescriptorPool::decode(DESCRIPTOR_SET).expect("the committed set is valid");
    let in_set: BTreeSet<[String; 4]> = pool
        .services()
        .filter(|service| matches!(service.package_name(), "pelton.v1" | "grpc.health.v1"))
        .flat_map(|service| service.methods().collect::<Vec<_>>())
        .map(|method| {
            let service = method.parent_service().full_name().to_owned();
            [
                format!("{service}/{}", method.name()),
                format!("{:?}", kind_of(&method)),
                method.input().full_name().to_owned(),
                method.output().full_name().to_owned(),
            ]
        })
        .collect();
    let services = [
        rpc::keyvalue::RPCS,
        rpc::blob::RPCS,
        rpc::admin::RPCS,
        rpc::replication::RPCS,
        rpc::echo::RPCS,
        rpc::health::RPCS,
    ];
    let described: Vec<[String; 4]> = services
        .concat()
        .iter()
        .map(|rpc| {
            [
                rpc.method.path.to_owned(),
                format!("{:?}", rpc.method.kind),
                rpc.request.to_owned(),
                rpc.response.to_owned(),
            ]
        })
        .collect();
    assert_eq!(described.len(), in_set.len(), "each once");
    assert_eq!(BTreeSet::from_iter(described), in_set);
}
