//! `pelton proto`

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::arguments::{OutputFormat, ProtoArguments};
use crate::exit::{Exit, Failure};
use crate::output::Output;

use crate::settings::FORMAT_FILE as DATA_FOLDER_FILE;

macro_rules! proto_files {
    ($($path:literal)*) => {
        /// Path and content of every `.proto` file that users need.
        const PROTO_FILES: &[(&str, &str)] =
            &[$(($path, include_str!(concat!("../../../../proto/", $path)))),*];
    };
}

proto_files! {
    "compat/brpc_echo.proto"
    "compat/gupload.proto"
    "compat/kvstore.proto"
    "compat/srpc_benchmark.proto"
    "compat/tkrzw.proto"
    "compat/tkrzw_rpc.proto"
    "compat/ydb_ping.proto"
    "grpc/health/v1/health.proto"
    "grpc/reflection/v1/reflection.proto"
    "grpc/reflection/v1alpha/reflection.proto"
    "grpc/testing/empty.proto"
    "grpc/testing/messages.proto"
    "grpc/testing/test.proto"
    "pelton/lab/v1/agent.proto"
    "pelton/v1/admin.proto"
    "pelton/v1/blob.proto"
    "pelton/v1/echo.proto"
    "pelton/v1/kv.proto"
    "pelton/v1/replication.proto"
}

/// Writes the `.proto` files. What is there with another content is left alone unless `--force` is
/// given, and then nothing at all is written: half a set of files would not fit together.
pub fn write_proto_files(arguments: &ProtoArguments) -> Result<Exit, Failure> {
    let folder = &arguments.folder;
    if !arguments.force
        && let Some(path) = first_other(folder)?
    {
        return Err(Failure::Failed(format!(
            "{} is there with another content, nothing was written; --force overwrites it",
            path.display()
        )));
    }
    if folder.join(DATA_FOLDER_FILE).exists() {
        return Err(Failure::Failed(format!(
            "{} is the data folder of a server: choose another one",
            folder.display()
        )));
    }
    let mut output = Output::new(OutputFormat::Text);
    for (path, content) in PROTO_FILES {
        let path = folder.join(path);
        write(&path, content).map_err(|error| {
            Failure::Failed(format!("cannot write {}: {error}", path.display()))
        })?;
        output.line(&path.display().to_string())?;
    }
    output.end()?;
    Ok(Exit::Done)
}

/// The first file that is there with another content.
fn first_other(folder: &Path) -> Result<Option<PathBuf>, Failure> {
    for (path, content) in PROTO_FILES {
        let path = folder.join(path);
        match fs::read(&path) {
            Ok(there) if there != content.as_bytes() => return Ok(Some(path)),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                return Err(Failure::Failed(format!(
                    "cannot read {}: {error}",
                    path.display()
                )));
            }
        }
    }
    Ok(None)
}

fn write(path: &Path, content: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, content)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files_in(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).expect("the folder is readable") {
            let path = entry.expect("the folder is readable").path();
            if path.is_dir() {
                files_in(&path, found)
            } else {
                found.push(path)
            }
        }
    }

    /// A file that was added to `proto/` must not be forgotten here.
    #[test]
    fn every_proto_file_is_in_the_table() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proto");
        let mut found = Vec::new();
        files_in(&root, &mut found);
        found.retain(|path| {
            path.extension()
                .is_some_and(|extension| extension == "proto")
        });
        let mut found: Vec<&Path> = found
            .iter()
            .map(|path| path.strip_prefix(&root).expect("below the root"))
            .collect();
        found.sort();
        let table: Vec<&Path> = PROTO_FILES
            .iter()
            .map(|(path, _)| Path::new(path))
            .collect();
        assert_eq!(found, table);
    }
}
