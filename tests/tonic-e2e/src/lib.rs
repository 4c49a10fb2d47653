//! A running `pelton serve` and tonic channels to it, for the tests of this crate.

pub mod certificates;

use std::env;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Error, Identity};

/// `pelton.v1`, generated from the public .proto files.
pub mod pelton {
    tonic::include_proto!("pelton.v1");
}

/// `grpc.health.v1`, likewise.
pub mod health {
    tonic::include_proto!("grpc.health.v1");
}

const START_WITHIN: Duration = Duration::from_secs(20);

/// A server on a free port of the loopback interface. It is killed when dropped.
pub struct Server {
    process: Child,
    address: String,
}

impl Server {
    /// Starts the program that `PELTON_BINARY` names. What it stores is volatile unless there is a
    /// `--data`.
    pub async fn start(arguments: &[&str]) -> Server {
        let binary = env::var("PELTON_BINARY")
            .expect("PELTON_BINARY names the program; run script/test tonic");
        let durability: &[&str] = match arguments.contains(&"--data") {
            true => &[],
            false => &["--durability", "volatile"],
        };
        let mut process = Command::new(binary)
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(durability)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the program starts");
        let mut lines = BufReader::new(process.stdout.take().expect("it is piped")).lines();
        let address = tokio::time::timeout(START_WITHIN, async {
            while let Some(line) = lines.next_line().await.expect("it prints text") {
                if let Some((_, rest)) = line.split_once("listening on ") {
                    return rest.split_whitespace().next().unwrap_or(rest).to_owned();
                }
            }
            panic!("the server ended at once");
        })
        .await
        .expect("the server says in time where it listens");
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Server { process, address }
    }

    /// A new connection.
    pub async fn channel(&self) -> Channel {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address))
            .expect("the address is valid");
        endpoint
            .connect()
            .await
            .expect("the server accepts connections")
    }

    /// A new connection with TLS, which trusts an authority (PEM) and shows its own certificate if
    /// it has one. That the server refuses the client may be heard here, or with TLS 1.3 only by
    /// the first call.
    pub async fn tls_channel(
        &self,
        authority: &str,
        own: Option<&certificates::Identity>,
    ) -> Result<Channel, Error> {
        let mut tls = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(authority))
            .domain_name("localhost");
        if let Some(own) = own {
            tls = tls.identity(Identity::from_pem(&own.certificate, &own.key));
        }
        let endpoint = Endpoint::from_shared(format!("https://{}", self.address))
            .expect("the address is valid");
        endpoint.tls_config(tls)?.connect().await
    }

    /// Asks it to stop, as `kill` does.
    pub async fn terminate(&self) {
        let id = self.process.id().expect("it runs").to_string();
        let status = Command::new("kill")
            .args(["-TERM", &id])
            .status()
            .await
            .expect("kill exists");
        assert!(status.success());
    }

    /// The exit code once it has ended.
    pub async fn wait(&mut self) -> Option<i32> {
        let ended = tokio::time::timeout(Duration::from_secs(20), self.process.wait()).await;
        ended
            .expect("it ends in time")
            .expect("it can be waited for")
            .code()
    }
}
