//! What the messages of streaming methods have shown.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::rows::row;
use super::{Report, add_latencies, object, per, rounded};
use crate::measure::StreamTally;

/// How many of them went, and how fast they came.
pub(super) fn line(report: &Report, streams: &StreamTally) -> String {
    let mut line = format!(
        "messages: {} sent, {:.0}/s; {} received, {:.0}/s",
        streams.sent,
        per_s(report, streams.sent),
        streams.received,
        per_s(report, streams.received)
    );
    if !streams.response_ns.is_empty() && has_other_number_of_responses(streams) {
        write!(
            line,
            "\n  requests and responses are not as many: the row `response` is right only where \
             each request has one response, in order"
        )
        .expect("a String takes what is written");
    }
    line
}

/// Whether responses are fewer or more than requests, beside those under way at both ends.
fn has_other_number_of_responses(streams: &StreamTally) -> bool {
    streams.sent.abs_diff(streams.received) * 20 > streams.sent.max(streams.received)
}

/// The rows of their times.
pub(super) fn rows(streams: &StreamTally) -> Vec<String> {
    let rows = [
        ("first message", &streams.first_ns),
        ("between", &streams.gap_ns),
        ("response", &streams.response_ns),
    ];
    let recorded = rows.iter().filter(|(_, histogram)| !histogram.is_empty());
    recorded
        .map(|(name, histogram)| row(name, histogram))
        .collect()
}

/// The same under their names.
pub(super) fn add(report: &Report, streams: &StreamTally, fields: &mut Map<String, Value>) {
    fields.extend(object([
        ("messages_sent", streams.sent.into()),
        ("messages_received", streams.received.into()),
        ("messages_sent_per_s", rounded(per_s(report, streams.sent))),
        (
            "messages_received_per_s",
            rounded(per_s(report, streams.received)),
        ),
    ]));
    add_latencies(fields, "first_message_", &streams.first_ns);
    add_latencies(fields, "between_messages_", &streams.gap_ns);
    add_latencies(fields, "response_", &streams.response_ns);
}

fn per_s(report: &Report, count: u64) -> f64 {
    per(count as f64 * 1e9, report.outcome().elapsed_ns).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pacing::Pace;
    use crate::report::tests::{outcome, plan};

    /// So many requests and responses of a run of a second.
    fn report(sent: u64, received: u64, change: impl FnOnce(&mut StreamTally)) -> Report {
        let mut streams = StreamTally {
            sent,
            received,
            ..StreamTally::default()
        };
        change(&mut streams);
        let mut outcome = outcome();
        outcome.tally.streams = Some(Box::new(streams));
        Report::new("x".into(), &plan(Pace::Closed), outcome, 1)
    }

    fn respond(streams: &mut StreamTally) {
        streams.response_ns.record(7_000).expect("in range");
    }

    #[test]
    fn messages_have_a_line_and_rows() {
        let both = report(300, 310, respond);
        let text = both.text();
        assert!(
            text.contains("\nmessages: 300 sent, 300/s; 310 received, 310/s\n"),
            "{text}"
        );
        assert!(text.contains("\nresponse            7.0"), "{text}");
        assert!(
            !text.contains("first message") && !text.contains("as many"),
            "{text}"
        );
        let fields = both.fields();
        assert_eq!(fields["messages_sent"], 300);
        assert_eq!(fields["messages_received_per_s"], 310.0);
        assert_eq!(fields["response_p50_us"], 7.003);
        assert_eq!(fields["first_message_p50_us"], Value::Null);
        let server = report(1, 300, |streams| {
            streams.first_ns.record(5_000).expect("in range");
            streams.gap_ns.record(6_000).expect("in range");
        });
        let text = server.text();
        assert!(text.contains("\nfirst message       5.0"), "{text}");
        assert!(text.contains("\nbetween             6.0"), "{text}");
        assert!(!text.contains("as many"), "{text}");
    }

    #[test]
    fn responses_that_are_not_as_many_as_requests_are_told() {
        for (sent, received) in [(300, 200), (200, 300)] {
            let text = report(sent, received, respond).text();
            assert!(
                text.contains("requests and responses are not as many"),
                "{text}"
            );
        }
    }

    #[test]
    fn a_run_without_streams_has_no_messages() {
        let unary = Report::new("x".into(), &plan(Pace::Closed), outcome(), 1);
        assert!(!unary.text().contains("messages:"));
        assert!(!unary.fields().contains_key("messages_sent"));
    }
}
