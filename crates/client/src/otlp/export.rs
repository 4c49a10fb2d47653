//! One attempt of an export.

use std::time::{Duration, Instant};

use api::otlp::{EXPORT, ExportTraceServiceResponse};
use net::tls::ClientTls;

use super::endpoint::OtlpEndpoint;
use super::fault::ExportFault;
use super::headers::OtlpHeaders;
use super::retry::Retry;
use crate::channel::{CallOptions, Channel, ChannelOptions};
use crate::error::CallError;
use crate::spans::limits;

/// A collector, and how to speak to it.
#[derive(Clone, Debug)]
pub struct OtlpTarget {
    /// Where it listens.
    pub endpoint: OtlpEndpoint,
    /// TLS, with [`APPLICATION`](crate::APPLICATION) in ALPN, if the endpoint has it.
    pub tls: Option<ClientTls>,
    /// What goes with each export.
    pub headers: OtlpHeaders,
}

/// What a collector says of an export that it took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TakenExport {
    /// Spans that it refused.
    pub rejected: u64,
    /// Why.
    pub message: String,
}

/// Why an export has failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub(super) struct ExportError {
    pub why: String,
    pub fault: ExportFault,
    pub retry: Retry,
}

/// Takes exports.
pub(super) trait TakeExport: Send {
    /// Sends a request with spans, which may take so long.
    ///
    /// # Errors
    /// If the collector does not take it.
    fn take_export(&mut self, request: &[u8], time: Duration) -> Result<TakenExport, ExportError>;
}

/// A collector over a channel, which is opened when it is needed.
pub(super) struct Collector {
    target: OtlpTarget,
    channel: Option<Channel>,
}

impl Collector {
    pub fn new(target: OtlpTarget) -> Collector {
        Collector {
            target,
            channel: None,
        }
    }

    fn connect(&self, by: Instant) -> Result<Channel, ExportError> {
        let options = ChannelOptions {
            connect_timeout: by.saturating_duration_since(Instant::now()),
            max_message_bytes: limits::SPAN_ANSWER_BYTES,
            tls: self.target.tls.clone(),
            ..ChannelOptions::default()
        };
        let connected = Channel::connect(self.target.endpoint.address(), &options);
        connected.map_err(|error| ExportError {
            fault: ExportFault::of_connection(&error),
            why: error.to_string(),
            retry: Retry::Later,
        })
    }

    /// Makes the call over a channel, and keeps that if it can be used again.
    fn call(
        &mut self,
        mut channel: Channel,
        request: &[u8],
        by: Instant,
    ) -> Result<Vec<u8>, CallError> {
        let options = CallOptions {
            deadline: Some(by),
            metadata: self.target.headers.metadata(),
            ..CallOptions::default()
        };
        let answer = channel.unary(&format!("/{}", EXPORT.path), request, &options);
        if let Ok(_) | Err(CallError::Status(_)) = &answer {
            self.channel = Some(channel);
        }
        answer
    }
}

impl TakeExport for Collector {
    fn take_export(&mut self, request: &[u8], time: Duration) -> Result<TakenExport, ExportError> {
        let by = Instant::now() + time;
        let mut answer = None;
        if let Some(channel) = self.channel.take() {
            answer = Some(self.call(channel, request, by));
        }
        // A channel on which nothing was said for long may be closed: that says nothing of the
        // collector.
        let answer = match answer {
            Some(answer) if !is_of_old_channel(&answer) => answer,
            _ => {
                let channel = self.connect(by)?;
                self.call(channel, request, by)
            }
        };
        match answer {
            Ok(answer) => Ok(read(&answer)),
            Err(error) => Err(ExportError {
                why: shortened(&error.to_string()),
                fault: ExportFault::of_call(&error),
                retry: Retry::of(&error),
            }),
        }
    }
}

fn is_of_old_channel<T>(answer: &Result<T, CallError>) -> bool {
    matches!(
        answer,
        Err(CallError::NotBegun(_) | CallError::ConnectionLost { .. })
    )
}

/// Reads an answer. One that makes no sense says nothing, and the spans were taken.
fn read(answer: &[u8]) -> TakenExport {
    let answer = ExportTraceServiceResponse::decode(answer).ok();
    let partial = answer.and_then(|answer| answer.partial_success);
    partial.map_or_else(TakenExport::default, |partial| TakenExport {
        rejected: u64::try_from(partial.rejected_spans).unwrap_or(0),
        message: shortened(partial.error_message),
    })
}

/// Returns what may stand in one line of a log.
fn shortened(text: &str) -> String {
    let kept = text.chars().take(limits::SPAN_ERROR_CHARACTERS);
    kept.flat_map(|one| match one.is_control() {
        true => one.escape_default().collect::<Vec<_>>(),
        false => vec![one],
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_says_how_many_were_refused() {
        let refused = b"\x0a\x07\x08\x03\x12\x03a\nb";
        let expected = TakenExport {
            rejected: 3,
            message: "a\\nb".into(),
        };
        assert_eq!(read(refused), expected);
        let negative = b"\x0a\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01";
        for answer in [&b""[..], b"\x0a\x00", b"\xff", negative] {
            assert_eq!(read(answer), TakenExport::default(), "{answer:02x?}");
        }
    }

    #[test]
    fn what_a_collector_says_is_bounded() {
        let text = "x".repeat(limits::SPAN_ERROR_CHARACTERS + 1);
        assert_eq!(shortened(&text).len(), limits::SPAN_ERROR_CHARACTERS);
    }
}
