//! Compiles the public .proto files without protoc.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let proto = "../../proto";
    let files = [
        "pelton/v1/blob.proto",
        "pelton/v1/kv.proto",
        "pelton/v1/echo.proto",
        "grpc/health/v1/health.proto",
    ];
    let descriptors = protox::compile(files, [proto])?;
    tonic_prost_build::configure()
        .build_server(false)
        .compile_fds(descriptors)?;
    println!("cargo:rerun-if-changed={proto}");
    Ok(())
}
