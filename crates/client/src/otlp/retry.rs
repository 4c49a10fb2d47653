//! Whether, and when, an export that has failed is tried again: OTLP, "Failures" and "OTLP/gRPC
//! throttling".

use std::time::Duration;

use api::error_details::{DetailedStatus, ProtobufDuration, RetryInfo};
use wire::grpc::{Code, Status, TraceIdSource};

use crate::error::CallError;
use crate::spans::limits;

/// The trailer with the details of a status, a message `google.rpc.Status`.
const DETAILS: &str = "grpc-status-details-bin";

/// The type of the detail by which a collector asks for a pause.
const RETRY_INFO: &str = "type.googleapis.com/google.rpc.RetryInfo";

/// Whether an export that has failed can be tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Retry {
    /// It would fail again.
    Never,
    /// After the usual pause.
    Later,
    /// After as long as the collector asks for.
    After(Duration),
}

impl Retry {
    /// Returns it of the end of a call.
    pub(super) fn of(error: &CallError) -> Retry {
        match error {
            CallError::Status(status) => of_status(status),
            CallError::DeadlineExceeded
            | CallError::NotBegun(_)
            | CallError::ConnectionLost { .. } => Retry::Later,
            CallError::PoolClosed
            | CallError::BadAnswer { .. }
            | CallError::AnswerTooLarge
            | CallError::RequestTooLarge { .. }
            | CallError::MetadataTooLarge
            | CallError::BadRequest { .. } => Retry::Never,
        }
    }
}

fn of_status(status: &Status) -> Retry {
    let details = status.metadata().and_then(|metadata| metadata.get(DETAILS));
    let asked = details.and_then(retry_delay);
    match (status.code(), asked) {
        (
            Code::Cancelled
            | Code::DeadlineExceeded
            | Code::Aborted
            | Code::OutOfRange
            | Code::Unavailable
            | Code::DataLoss,
            None,
        ) => Retry::Later,
        (
            Code::Cancelled
            | Code::DeadlineExceeded
            | Code::Aborted
            | Code::OutOfRange
            | Code::Unavailable
            | Code::DataLoss
            | Code::ResourceExhausted,
            Some(delay),
        ) => Retry::After(delay),
        _ => Retry::Never,
    }
}

/// Returns the pause that the details of a status ask for.
fn retry_delay(details: &[u8]) -> Option<Duration> {
    let status = DetailedStatus::decode(details).ok()?;
    let mut details = status.details.iter().filter_map(Result::ok);
    let detail = details.find(|detail| detail.type_url == RETRY_INFO)?;
    let ProtobufDuration { seconds, nanos } = RetryInfo::decode(detail.value).ok()?.retry_delay?;
    let seconds = Duration::from_secs(u64::try_from(seconds).ok()?);
    seconds.checked_add(Duration::from_nanos(u64::try_from(nanos).ok()?))
}

/// Pauses between attempts, which grow and vary.
#[derive(Debug)]
pub(super) struct RetryPauses {
    first: Duration,
    random: TraceIdSource,
}

impl RetryPauses {
    pub(super) fn new(first: Duration, seed: u64) -> RetryPauses {
        let random = TraceIdSource::new(seed);
        RetryPauses { first, random }
    }

    /// Returns the pause after so many attempts, at least one, that have failed; `None`: it is
    /// given up.
    pub(super) fn after(&mut self, attempts: u32, retry: Retry) -> Option<Duration> {
        if retry == Retry::Never || attempts >= limits::SPAN_EXPORT_ATTEMPTS {
            return None;
        }
        let doubled = 1_u32.checked_shl(attempts.saturating_sub(1));
        let grown = self.first.saturating_mul(doubled.unwrap_or(u32::MAX));
        let asked = match retry {
            Retry::After(delay) => delay,
            Retry::Never | Retry::Later => Duration::ZERO,
        };
        let pause = grown.max(asked).min(limits::SPAN_LONGEST_PAUSE);
        // Servers that were refused together must not come back together: up to a fifth more.
        let spread_ns = u64::try_from(pause.as_nanos() / 5).unwrap_or(u64::MAX);
        let more_ns = self.random.next_number() % spread_ns.saturating_add(1);
        Some(pause + Duration::from_nanos(more_ns))
    }
}

#[cfg(test)]
mod tests {
    use api::error_details::AnyMessage;
    use wire::grpc::Metadata;

    use super::*;
    use crate::error::NotBegun;

    fn details(kind: &str, seconds: i64, nanos: i32) -> Vec<u8> {
        let mut info = Vec::new();
        let retry_delay = Some(ProtobufDuration { seconds, nanos });
        RetryInfo { retry_delay }.encode(&mut info);
        let detail = |type_url, value| AnyMessage { type_url, value };
        let both = [detail("another", b""), detail(kind, &info)];
        let mut details = Vec::new();
        let status = DetailedStatus {
            code: 8,
            details: (&both[..]).into(),
            ..DetailedStatus::default()
        };
        status.encode(&mut details);
        details
    }

    fn with_details(code: Code, details: Vec<u8>) -> CallError {
        let mut metadata = Metadata::new();
        let pushed = metadata.push_received(b"x", b"y");
        pushed.expect("it may stand there");
        let mut encoded = Vec::new();
        wire::grpc::metadata::encode_binary(&details, &mut encoded);
        let pushed = metadata.push_received(DETAILS.as_bytes(), &encoded);
        pushed.expect("it may stand there");
        CallError::Status(Status::new(code, "busy").with_metadata(metadata))
    }

    #[test]
    fn codes_are_retried_as_otlp_says() {
        let retried = |with: bool| {
            let is_retried = |code: &&Code| {
                let error = match with {
                    true => with_details(**code, details(RETRY_INFO, 7, 5)),
                    false => CallError::Status(Status::new(**code, "")),
                };
                match (Retry::of(&error), with) {
                    (Retry::Never, _) => false,
                    (retry, true) => retry == Retry::After(Duration::new(7, 5)),
                    (retry, false) => retry == Retry::Later,
                }
            };
            let codes = Code::ALL.iter().filter(is_retried);
            codes.map(|code| code.name()).collect::<Vec<_>>().join(" ")
        };
        let always = "CANCELLED DEADLINE_EXCEEDED ABORTED OUT_OF_RANGE UNAVAILABLE DATA_LOSS";
        assert_eq!(retried(false), always);
        let with = always.replace("ABORTED", "RESOURCE_EXHAUSTED ABORTED");
        assert_eq!(retried(true), with);
    }

    #[test]
    fn what_ended_without_a_status_is_retried_unless_it_was_nonsense() {
        let reason = String::new();
        for (error, expected) in [
            (CallError::DeadlineExceeded, Retry::Later),
            (CallError::NotBegun(NotBegun::Refused), Retry::Later),
            (
                CallError::ConnectionLost {
                    reason: reason.clone(),
                },
                Retry::Later,
            ),
            (CallError::BadAnswer { reason }, Retry::Never),
        ] {
            assert_eq!(Retry::of(&error), expected, "{error}");
        }
    }

    #[test]
    fn details_that_ask_for_nothing_that_can_be_are_passed_over() {
        for details in [
            details("type.googleapis.com/google.rpc.DebugInfo", 7, 5),
            details(RETRY_INFO, -1, 0),
            details(RETRY_INFO, 1, -1),
            b"\x1a\xff".to_vec(),
            Vec::new(),
        ] {
            let error = with_details(Code::ResourceExhausted, details.clone());
            assert_eq!(Retry::of(&error), Retry::Never, "{details:02x?}");
        }
    }

    #[test]
    fn pauses_double_and_end() {
        let mut pauses = RetryPauses::new(limits::SPAN_FIRST_PAUSE, 7);
        let mut last = Duration::ZERO;
        for attempts in 1..limits::SPAN_EXPORT_ATTEMPTS {
            let least = limits::SPAN_FIRST_PAUSE * (1 << (attempts - 1));
            let pause = pauses.after(attempts, Retry::Later).expect("again");
            assert!(pause >= least && pause <= least * 6 / 5, "{pause:?}");
            assert!(pause > last);
            last = pause;
        }
        assert_eq!(
            pauses.after(limits::SPAN_EXPORT_ATTEMPTS, Retry::Later),
            None
        );
        assert_eq!(pauses.after(1, Retry::Never), None);
    }

    #[test]
    fn a_collector_may_ask_for_more_and_not_for_as_much_as_it_likes() {
        let mut pauses = RetryPauses::new(limits::SPAN_FIRST_PAUSE, 7);
        let mut after = |seconds| {
            let asked = Retry::After(Duration::from_secs(seconds));
            pauses.after(1, asked).expect("again").as_secs_f64()
        };
        assert!((1.0..=1.2).contains(&after(0)));
        assert!((9.0..=10.8).contains(&after(9)));
        let longest = limits::SPAN_LONGEST_PAUSE.as_secs_f64();
        assert!((longest..=longest * 1.2).contains(&after(1 << 40)));
    }
}
