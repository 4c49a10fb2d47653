//! How a channel is to be.

use std::net::IpAddr;

use client::tls::{ClientTls, ClientTlsOptions, Trust};
use client::{APPLICATION, Address, LocalPoolOptions, PoolOptions};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::limits;

/// Where a channel leads, and what it uses for that.
#[derive(Clone)]
#[pyclass(frozen, module = "pelton_grpc._native")]
pub(crate) struct ChannelSettings {
    /// Or why there are none: gRPC reports that when a call is made.
    pub(crate) addresses: Result<Vec<Address>, String>,
    pub(crate) options: LocalPoolOptions,
    /// What the addresses lead to may change.
    pub(crate) has_names: bool,
}

/// Returns whether an address has a name that is looked up.
fn is_name(address: &Address) -> bool {
    match address {
        Address::Tcp { host, .. } => host.parse::<IpAddr>().is_err(),
        Address::Unix(_) => false,
    }
}

#[pymethods]
impl ChannelSettings {
    /// Each address is `host:port`, `[ipv6]:port` or `unix:/path`. Of the sizes, `None` is the
    /// default.
    #[new]
    #[pyo3(signature = (addresses, authority=None, max_received_bytes=None, max_sent_bytes=None))]
    fn new(
        addresses: Vec<String>,
        authority: Option<String>,
        max_received_bytes: Option<usize>,
        max_sent_bytes: Option<usize>,
    ) -> ChannelSettings {
        let addresses: Result<Vec<Address>, _> =
            addresses.iter().map(|address| address.parse()).collect();
        let mut pool = PoolOptions {
            max_message_bytes: limits::RECEIVED_MESSAGE_BYTES,
            max_calls_per_connection: limits::CALLS_PER_CONNECTION,
            ..PoolOptions::default()
        };
        if let Some(bytes) = max_received_bytes {
            pool.max_message_bytes = bytes;
        }
        if let Some(bytes) = max_sent_bytes {
            pool.max_request_bytes = bytes;
        }
        ChannelSettings {
            has_names: addresses.as_ref().is_ok_and(|all| all.iter().any(is_name)),
            addresses: addresses.map_err(|error| error.to_string()),
            options: LocalPoolOptions {
                pool,
                tls: None,
                authority,
            },
        }
    }

    /// Returns the same with TLS: whom to believe (`None`: the authorities of the system), what
    /// this side shows, and the name that the server's certificate must have, if it is another one
    /// than that of the target.
    #[pyo3(signature = (authorities=None, private_key=None, certificates=None, server_name=None))]
    fn with_tls(
        &self,
        authorities: Option<&[u8]>,
        private_key: Option<&[u8]>,
        certificates: Option<&[u8]>,
        server_name: Option<&str>,
    ) -> PyResult<ChannelSettings> {
        let tls = ClientTls::new(&ClientTlsOptions {
            trust: authorities.map_or(Trust::System, Trust::Authorities),
            identity: certificates.zip(private_key),
            server_name,
            applications: &[APPLICATION],
        });
        let mut settings = self.clone();
        settings.options.tls = Some(tls.map_err(|error| PyValueError::new_err(error.to_string()))?);
        Ok(settings)
    }
}
