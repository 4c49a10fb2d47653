//! Generates the clients of what is called, without protoc, and the version of tonic.

use std::error::Error;
use std::fs;

const ROOT: &str = "../../proto";
const FILES: [&str; 2] = [
    "../../proto/pelton/v1/kv.proto",
    "../../proto/compat/ydb_ping.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    for file in FILES.iter().chain(&["Cargo.lock"]) {
        println!("cargo::rerun-if-changed={file}");
    }
    let mut descriptors = protox::compile(FILES, [ROOT])?;
    for service in descriptors
        .file
        .iter_mut()
        .flat_map(|file| &mut file.service)
    {
        service
            .method
            .retain(|method| matches!(method.name(), "Get" | "PingPlainGrpc"));
    }
    tonic_prost_build::configure()
        .build_server(false)
        .bytes(".")
        .compile_fds(descriptors)?;
    let lock = fs::read_to_string("Cargo.lock")?;
    let version = lock
        .split("name = \"tonic\"\nversion = \"")
        .nth(1)
        .and_then(|rest| rest.split('"').next());
    println!(
        "cargo::rustc-env=TONIC_VERSION={}",
        version.ok_or("Cargo.lock names no tonic")?
    );
    Ok(())
}
