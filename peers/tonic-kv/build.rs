//! Generates the code for Get and Put of `pelton.v1.KeyValue`, without protoc.

use std::error::Error;

const ROOT: &str = "../../proto";
const FILE: &str = "../../proto/pelton/v1/kv.proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={FILE}");
    let mut descriptors = protox::compile([FILE], [ROOT])?;
    // Only what is compared; the other methods would need handlers that say no.
    for service in descriptors
        .file
        .iter_mut()
        .flat_map(|file| &mut file.service)
    {
        service
            .method
            .retain(|method| matches!(method.name(), "Get" | "Put"));
    }
    tonic_prost_build::configure()
        .build_client(false)
        .bytes(".")
        .compile_fds(descriptors)?;
    Ok(())
}
