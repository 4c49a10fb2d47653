//! Get and Put of `pelton.v1.KeyValue` on tonic: one thread, a hash map under a reader-writer lock.
//!
//! Written the way its users would write it, with nothing tuned and nothing left out that they
//! would have.

use std::collections::HashMap;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::RwLock;
use std::sync::atomic::{AtomicU64, Ordering};

use lexopt::prelude::*;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::codegen::Bytes;
use tonic::transport::{Identity, Server, ServerTlsConfig};
use tonic::{Request, Response, Status};

use pelton::key_value_server::{KeyValue, KeyValueServer};
use pelton::{GetRequest, GetResponse, PutRequest, PutResponse};

#[allow(
    missing_docs,
    dead_code,
    clippy::enum_variant_names,
    reason = "generated for all messages of the file, of which two methods need a few"
)]
mod pelton {
    tonic::include_proto!("pelton.v1");
}

const USAGE: &str = "\
usage: tonic-kv [OPTION ...]

Options
  --listen HOST:PORT   where to listen (127.0.0.1:1979)
  --preload N          begin with N keys, key-000000000000 and so on, with values of --value bytes (0)
  --value N            bytes of a preloaded value (32)
  --tls-cert FILE      speak TLS with this certificate, in PEM
  --tls-key FILE       its private key
";

type AnyError = Box<dyn std::error::Error>;

struct Settings {
    listen: SocketAddr,
    preload: u64,
    value_bytes: usize,
    tls_cert: Option<PathBuf>,
    tls_key: Option<PathBuf>,
}

/// What a key has.
struct Entry {
    value: Bytes,
    version: u64,
}

#[derive(Default)]
struct Store {
    entries: RwLock<HashMap<Bytes, Entry>>,
    last_version: AtomicU64,
}

impl Store {
    fn put(&self, key: Bytes, value: Bytes) -> u64 {
        let mut entries = self
            .entries
            .write()
            .expect("nobody panics while holding the lock");
        let version = self.last_version.fetch_add(1, Ordering::Relaxed) + 1;
        entries.insert(key, Entry { value, version });
        version
    }
}

#[tonic::async_trait]
impl KeyValue for Store {
    async fn get(&self, request: Request<GetRequest>) -> Result<Response<GetResponse>, Status> {
        let request = request.into_inner();
        check_database(&request.database)?;
        let entries = self
            .entries
            .read()
            .expect("nobody panics while holding the lock");
        let response = match entries.get(&request.key) {
            Some(entry) => GetResponse {
                found: true,
                value: entry.value.clone(),
                version: entry.version,
                ..GetResponse::default()
            },
            None => GetResponse::default(),
        };
        Ok(Response::new(response))
    }

    async fn put(&self, request: Request<PutRequest>) -> Result<Response<PutResponse>, Status> {
        let request = request.into_inner();
        check_database(&request.database)?;
        if request.condition.is_some() || request.expiry.is_some() || request.return_previous {
            return Err(Status::unimplemented("only a plain Put is served here"));
        }
        let version = self.put(request.key, request.value);
        Ok(Response::new(PutResponse {
            applied: true,
            version,
            ..PutResponse::default()
        }))
    }
}

fn check_database(name: &str) -> Result<(), Status> {
    if name.is_empty() {
        return Ok(());
    }
    Err(Status::not_found(format!(
        "there is no database {name:?}, only the default one"
    )))
}

fn settings() -> Result<Settings, AnyError> {
    let mut settings = Settings {
        listen: "127.0.0.1:1979".parse()?,
        preload: 0,
        value_bytes: 32,
        tls_cert: None,
        tls_key: None,
    };
    let mut arguments = lexopt::Parser::from_env();
    while let Some(argument) = arguments.next()? {
        match argument {
            Long("listen") => settings.listen = arguments.value()?.parse()?,
            Long("preload") => settings.preload = arguments.value()?.parse()?,
            Long("value") => settings.value_bytes = arguments.value()?.parse()?,
            Long("tls-cert") => settings.tls_cert = Some(arguments.value()?.into()),
            Long("tls-key") => settings.tls_key = Some(arguments.value()?.into()),
            Long("help") => {
                print!("{USAGE}");
                std::process::exit(0);
            }
            _ => return Err(format!("{}\n\n{USAGE}", argument.unexpected()).into()),
        }
    }
    Ok(settings)
}

async fn serve(settings: &Settings) -> Result<(), AnyError> {
    let store = Store::default();
    let value = Bytes::from(vec![b'v'; settings.value_bytes]);
    for number in 0..settings.preload {
        store.put(format!("key-{number:012}").into(), value.clone());
    }
    let listener = TcpListener::bind(settings.listen)
        .await
        .map_err(|error| format!("cannot listen on {} (--listen): {error}", settings.listen))?;
    println!("listening on {}", listener.local_addr()?);
    let mut server = Server::builder().tcp_nodelay(true);
    if let (Some(certificate), Some(key)) = (&settings.tls_cert, &settings.tls_key) {
        let identity = Identity::from_pem(fs::read(certificate)?, fs::read(key)?);
        server = server.tls_config(ServerTlsConfig::new().identity(identity))?;
    }
    server
        .add_service(KeyValueServer::new(store))
        .serve_with_incoming_shutdown(TcpListenerStream::new(listener), async {
            // Without a handler for the signal the process just goes on until it is killed.
            let _ = tokio::signal::ctrl_c().await;
        })
        .await?;
    Ok(())
}

fn main() -> Result<(), AnyError> {
    let settings = settings()?;
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(serve(&settings))
}
