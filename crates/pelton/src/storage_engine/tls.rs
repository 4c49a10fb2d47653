//! TLS to the nodes of an engine, if this build has it.

use std::path::Path;

use cassandra::CassandraConfig;

use crate::exit::Failure;

/// Has the nodes be believed only by the authorities in this file, if there is one.
#[cfg(not(feature = "cassandra-tls"))]
pub(super) fn set_up(
    config: CassandraConfig,
    ca: Option<&Path>,
) -> Result<CassandraConfig, Failure> {
    match ca {
        None => Ok(config),
        Some(_) => Err(Failure::Usage(
            "store-ca: this build of pelton speaks no TLS with nodes of a storage engine: build it \
             with `--features cassandra-tls`, or leave store-ca out"
                .into(),
        )),
    }
}

/// Has the nodes be believed only by the authorities in this file, if there is one.
#[cfg(feature = "cassandra-tls")]
pub(super) fn set_up(
    mut config: CassandraConfig,
    ca: Option<&Path>,
) -> Result<CassandraConfig, Failure> {
    use std::fs::File;
    use std::io::Read as _;

    use crate::limits::STORE_CA_FILE_BYTES;

    let Some(path) = ca else {
        return Ok(config);
    };
    let shown = path.display();
    let mut text = Vec::new();
    let read =
        File::open(path).and_then(|file| file.take(STORE_CA_FILE_BYTES).read_to_end(&mut text));
    read.map_err(|error| Failure::Failed(format!("--store-ca: cannot read {shown}: {error}")))?;
    let tls = cassandra::tls_of(&text);
    let tls = tls.map_err(|error| Failure::Failed(format!("--store-ca {shown}: {error}")))?;
    config.tls = Some(tls);
    Ok(config)
}
