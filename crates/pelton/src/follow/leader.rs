//! The server that is followed, and connections to it.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::rpc::Rpc;
use client::tls::ClientTls;
use client::typed::Exchange;
use client::{
    Address, CallError, CallOptions, Channel, ChannelOptions, Code, ConnectError, Credentials,
    NotBegun, StreamStep,
};
use protobuf::DecodeError;
use service::following::Following;
use wal::disk::RealDisk;

use super::promise::EpochPromise;
use super::replica_id::replica_id;
use crate::arguments::TlsArguments;
use crate::command::client_tls;
use crate::credentials::{FOLLOW_TOKEN_VARIABLE, given_token};
use crate::exit::Failure;
use crate::limits::{FOLLOW_CONNECT_MS, FOLLOW_LOOK_MS, FOLLOW_MESSAGE_BYTES_MAX};
use crate::settings::Settings;

/// The server that is followed.
#[derive(Clone, Debug)]
pub struct Leader {
    address: Address,
    options: ChannelOptions,
}

/// Why a leader could not be followed this time.
#[derive(Debug, thiserror::Error)]
pub enum LeaderError {
    /// There is no connection.
    #[error("{0}")]
    NotConnected(ConnectError),
    /// A call has failed.
    #[error("{0}{advice}", advice = advice(.0))]
    Call(CallError),
    /// What it has sent makes no sense.
    #[error("{0}")]
    Nonsense(String),
    /// Nothing was heard of it.
    #[error("nothing was heard of it for {} s", .0.as_secs())]
    Silent(Duration),
    /// It is this server, or gets what it has from it.
    #[error(
        "it is this server, or follows it, directly or through others, so that none of them gets \
         what others write: name another one with --follow; where one of the data folders is a \
         copy of the other, remove pelton-replica-id in one of them while it is stopped"
    )]
    Circle,
    /// It leads in an epoch that is over, or has not heard of the one that was confirmed here.
    #[error(
        "it is in epoch {epoch}, and epoch {confirmed} was confirmed here for another leader\
         {}: start this replica with --follow and the address of that", at(.address)
    )]
    OlderEpoch {
        /// Its epoch.
        epoch: u64,
        /// What was confirmed.
        confirmed: u64,
        /// Where the other leader is, if that is known.
        address: String,
    },
    /// An operator wants something of this replica, which comes first.
    #[error("an operator wants something else of this replica")]
    Interrupted,
    /// Something in this machine is in the way.
    #[error("{0}")]
    Local(String),
}

/// What to do about a call that failed, beside what it says itself.
fn advice(error: &CallError) -> &'static str {
    match is_for_tls(error) {
        true => "; --follow-tls or --follow-tls-ca follows it over TLS",
        false => "",
    }
}

/// Whether the server speaks TLS, and was asked without.
pub fn is_for_tls(error: &CallError) -> bool {
    match error {
        CallError::ConnectionLost { reason }
        | CallError::NotBegun(NotBegun::Closing { reason }) => reason == client::SERVER_SPEAKS_TLS,
        _ => false,
    }
}

fn at(address: &str) -> String {
    match address {
        "" => String::new(),
        address => format!(" ({address})"),
    }
}

impl From<CallError> for LeaderError {
    fn from(error: CallError) -> LeaderError {
        LeaderError::Call(error)
    }
}

impl From<DecodeError> for LeaderError {
    fn from(error: DecodeError) -> LeaderError {
        LeaderError::Nonsense(error.to_string())
    }
}

impl From<io::Error> for LeaderError {
    fn from(error: io::Error) -> LeaderError {
        LeaderError::Local(error.to_string())
    }
}

impl LeaderError {
    /// Whether another attempt can only fail as well, until somebody changes something.
    pub fn is_final(&self) -> bool {
        match self {
            LeaderError::NotConnected(error) => {
                matches!(error, ConnectError::TokenWithoutTls { .. })
            }
            LeaderError::Call(error) => {
                let is_refusal = matches!(
                    code_of(error),
                    Some(
                        Code::Unauthenticated
                            | Code::PermissionDenied
                            | Code::Unimplemented
                            | Code::FailedPrecondition
                            | Code::InvalidArgument
                    )
                );
                is_refusal || is_for_tls(error)
            }
            LeaderError::Nonsense(_)
            | LeaderError::Silent(_)
            | LeaderError::Circle
            | LeaderError::OlderEpoch { .. }
            | LeaderError::Interrupted
            | LeaderError::Local(_) => false,
        }
    }

    /// Whether it says that what comes next is not there, so that a copy is needed.
    pub fn is_out_of_range(&self) -> bool {
        matches!(self, LeaderError::Call(error) if code_of(error) == Some(Code::OutOfRange))
    }

    /// Whether it says that what is here is not of its history.
    pub fn is_of_other_history(&self) -> bool {
        matches!(self, LeaderError::Call(error) if code_of(error) == Some(Code::FailedPrecondition))
    }

    /// Whether it says that something is not there.
    pub fn is_not_found(&self) -> bool {
        matches!(self, LeaderError::Call(error) if code_of(error) == Some(Code::NotFound))
    }
}

fn code_of(error: &CallError) -> Option<Code> {
    match error {
        CallError::Status(status) => Some(status.code()),
        _ => None,
    }
}

impl Leader {
    /// Of the settings; `None`: they name none.
    pub fn of(settings: &Settings) -> Result<Option<Leader>, Failure> {
        let Some(address) = &settings.follow else {
            return Ok(None);
        };
        let file = ("--follow-token-file", settings.follow_token_file.as_deref());
        let token = given_token(file, FOLLOW_TOKEN_VARIABLE)?;
        let credentials = token
            .map(|(token, _)| Credentials::token(&token))
            .transpose();
        let credentials =
            credentials.map_err(|_| Failure::Usage("follow-token-file has no token".into()))?;
        Ok(Some(Leader {
            address: address.0.clone(),
            options: ChannelOptions {
                connect_timeout: Duration::from_millis(FOLLOW_CONNECT_MS),
                max_message_bytes: FOLLOW_MESSAGE_BYTES_MAX,
                tls: tls(settings)?,
                credentials,
                ..ChannelOptions::default()
            },
        }))
    }

    /// Returns where it is.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Returns what tells others how it is followed by the replica with this data folder.
    pub fn following(&self, folder: &Path) -> Result<Arc<Following>, Failure> {
        let id = replica_id(folder);
        let id = id.map_err(|error| {
            Failure::Failed(format!("the id of this replica cannot be had: {error}"))
        })?;
        // The thread that follows needs it, and could only say that it cannot be had.
        let promise = RealDisk::open(folder).and_then(|disk| EpochPromise::read(&disk));
        promise.map_err(|error| {
            Failure::Failed(format!(
                "what this replica has confirmed cannot be read: {error}"
            ))
        })?;
        Ok(Arc::new(Following::new(&self.address(), id, 0)))
    }

    /// Connects to it.
    pub fn connect(&self) -> Result<Channel, LeaderError> {
        Channel::connect(&self.address, &self.options).map_err(LeaderError::NotConnected)
    }
}

fn tls(settings: &Settings) -> Result<Option<ClientTls>, Failure> {
    client_tls(&TlsArguments {
        tls: settings.follow_tls,
        tls_ca: settings.follow_tls_ca.clone(),
        tls_cert: settings.follow_tls_cert.clone(),
        tls_key: settings.follow_tls_key.clone(),
        tls_server_name: settings.follow_tls_server_name.clone(),
        tls_insecure: false,
    })
}

/// Begins a call with one request.
pub fn begin<'c, M: Rpc>(
    channel: &'c mut Channel,
    request: &M::Request<'_>,
) -> Result<Exchange<'c, M>, LeaderError> {
    let mut call = begin_open::<M>(channel, request)?;
    call.close_send();
    Ok(call)
}

/// Begins a call whose requests may go on.
pub fn begin_open<'c, M: Rpc>(
    channel: &'c mut Channel,
    request: &M::Request<'_>,
) -> Result<Exchange<'c, M>, LeaderError> {
    let mut call = channel.call_streaming::<M>(&CallOptions::default())?;
    call.send(request);
    Ok(call)
}

/// Hands over the responses of a call until `take` returns something; `None`: it has ended before.
///
/// # Errors
/// If it ends with another status than OK, if nothing is heard for `silence`, if something else
/// comes first, and those of `take`.
pub fn read_until<M: Rpc, T>(
    call: &mut Exchange<'_, M>,
    (silence, is_interrupted): (Duration, &dyn Fn() -> bool),
    take: &mut impl FnMut(&M::Response<'_>) -> Result<Option<T>, LeaderError>,
) -> Result<Option<T>, LeaderError> {
    let mut heard = Instant::now();
    let look = silence.min(Duration::from_millis(FOLLOW_LOOK_MS));
    loop {
        if is_interrupted() {
            return Err(LeaderError::Interrupted);
        }
        match call.poll_with(look, |response| take(&response?))? {
            StreamStep::Message(taken) => match taken? {
                None => heard = Instant::now(),
                taken => return Ok(taken),
            },
            StreamStep::Nothing if heard.elapsed() < silence => {}
            StreamStep::Nothing => return Err(LeaderError::Silent(silence)),
            StreamStep::Ended => return Ok(None),
        }
    }
}
