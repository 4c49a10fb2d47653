//! The agent that watches the server on its machine.

use std::time::Duration;

use client::ChannelOptions;
use client::tls::{ClientTls, ClientTlsOptions, Trust};
use lab::agent::{RemoteWatch, RemoteWatchError};
use net::Address;

use crate::arguments::{CredentialArguments, DiagnoseArguments};
use crate::credentials::{credentials_of, given_token};
use crate::exit::Failure;
use crate::settings::TOKEN_VARIABLE;

/// What to do where there is no agent.
const START_HINT: &str = "start `pelton lab agent --server-port PORT` on the server's machine";

/// The agent that --agent names, once it has reported.
///
/// # Errors
/// If it does not: why, and what helps.
pub(super) fn agent_watch(arguments: &DiagnoseArguments) -> Result<Option<RemoteWatch>, Failure> {
    let Some(address) = &arguments.agent else {
        return Ok(None);
    };
    let tls = agent_tls(arguments)?;
    // The token of the environment is for the server, and not for its agent.
    let token = match &arguments.agent_token_file {
        None => None,
        Some(path) => given_token(("--agent-token-file", Some(path)), TOKEN_VARIABLE)?,
    };
    let token = token.as_ref().map(|(token, _)| token.as_str());
    let options = ChannelOptions {
        connect_timeout: Duration::from_millis(arguments.timeout.ms),
        tls,
        credentials: credentials_of(&CredentialArguments::default(), token)?,
        ..ChannelOptions::default()
    };
    let watch = RemoteWatch::new(address.clone(), options);
    watch.map(Some).map_err(|error| failure(address, &error))
}

fn agent_tls(arguments: &DiagnoseArguments) -> Result<Option<ClientTls>, Failure> {
    let Some(path) = &arguments.agent_tls_ca else {
        return Ok(None);
    };
    let named = |error: &dyn std::fmt::Display| {
        Failure::Failed(format!("--agent-tls-ca {}: {error}", path.display()))
    };
    let authorities = std::fs::read(path).map_err(|error| named(&error))?;
    let options = ClientTlsOptions {
        trust: Trust::Authorities(&authorities),
        identity: None,
        server_name: None,
        applications: &[client::APPLICATION],
    };
    let tls = ClientTls::new(&options).map_err(|error| named(&error))?;
    Ok(Some(tls))
}

fn failure(address: &Address, error: &RemoteWatchError) -> Failure {
    match error {
        RemoteWatchError::Connect(client::ConnectError::TokenWithoutTls { .. }) => {
            Failure::Failed(format!(
                "--agent {address}: the token is not sent to another machine without TLS; \
                 --agent-tls-ca speaks TLS, or reach the agent by `ssh -L`"
            ))
        }
        RemoteWatchError::Connect(client::ConnectError::Tls { .. }) => Failure::Failed(format!(
            "--agent {address}: {error}; --agent-tls-ca names the certificate of the agent's \
             --listen-tls-cert"
        )),
        RemoteWatchError::Refused { .. } => Failure::Failed(format!("--agent {address}: {error}")),
        RemoteWatchError::Impossible { figure } => Failure::Failed(format!(
            "the agent at {address} answers impossible figures: {figure}; is it `pelton lab agent` \
             of this version?"
        )),
        RemoteWatchError::Silent => Failure::Failed(format!(
            "--agent {address}: {error}; is it a `pelton lab agent`, and does it still run?"
        )),
        error => Failure::Failed(format!("--agent {address}: {error}; {START_HINT}")),
    }
}
