//! TLS of the commands that speak to a server.

use std::path::PathBuf;

use clap::Args;
use clap::builder::BoolishValueParser;

/// Whether to speak TLS, whom to believe, and who one is.
#[derive(Args, Clone, Debug, Default)]
pub struct TlsArguments {
    /// Speak TLS, and believe servers whose certificate an authority of this system has signed
    ///
    /// The other flags of TLS mean this one too.
    #[arg(long, env = "PELTON_TLS", value_parser = BoolishValueParser::new())]
    pub tls: bool,

    /// Believe only servers whose certificate is one of these (PEM), or signed by one of these
    /// authorities
    #[arg(long, value_name = "FILE", env = "PELTON_TLS_CA")]
    pub tls_ca: Option<PathBuf>,

    /// Certificate to show to a server that asks for one (mutual TLS), in PEM
    #[arg(
        long,
        value_name = "FILE",
        requires = "tls_key",
        env = "PELTON_TLS_CLIENT_CERT"
    )]
    pub tls_cert: Option<PathBuf>,

    /// Private key of that certificate, in PEM
    #[arg(
        long,
        value_name = "FILE",
        requires = "tls_cert",
        env = "PELTON_TLS_CLIENT_KEY"
    )]
    pub tls_key: Option<PathBuf>,

    /// The name that the server's certificate must have [default: the host of --address]
    #[arg(long, value_name = "NAME", env = "PELTON_TLS_SERVER_NAME")]
    pub tls_server_name: Option<String>,

    /// Believe any server, whatever its certificate: whoever is in between can read and change
    /// everything
    #[arg(long, conflicts_with = "tls_ca")]
    pub tls_insecure: bool,
}

impl TlsArguments {
    /// Whether any of the flags asks for TLS.
    pub fn is_wanted(&self) -> bool {
        let TlsArguments {
            tls,
            tls_ca,
            tls_cert,
            tls_key,
            tls_server_name,
            tls_insecure,
        } = self;
        let has_file = tls_ca.is_some() || tls_cert.is_some() || tls_key.is_some();
        *tls || *tls_insecure || has_file || tls_server_name.is_some()
    }
}
