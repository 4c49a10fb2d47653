//! Latencies in files: the log format of HdrHistogram, version 2
//! (<https://github.com/HdrHistogram/HdrHistogram>), which other tools read and write too. Values
//! are nanoseconds.

use std::collections::BTreeMap;
use std::io::Read;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::ZlibDecoder;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::interval_log::{
    IntervalLogIterator, IntervalLogWriterBuilder, LogEntry, Tag,
};
use hdrhistogram::serialization::{Deserializer, V2DeflateSerializer};
use serde_json::{Map, Value};

use crate::limits;
use crate::measure;
use crate::report::{self, Report};
use crate::terminal_text::without_controls;

/// Histograms under the tags that logs have for them. The one without a tag, which is where tools
/// look first, is that of latencies.
#[derive(Clone, Debug, Default)]
pub struct HistogramLog {
    histograms: BTreeMap<String, Histogram<u64>>,
}

/// Why a file is no such log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HistogramLogError {
    /// A line is none of it.
    #[error("byte {offset} begins a line that is none of a log of HdrHistogram")]
    BadLine {
        /// Where.
        offset: usize,
    },
    /// A histogram cannot be read.
    #[error("histogram {number} cannot be read: {reason}")]
    BadHistogram {
        /// Which, from 1 on.
        number: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// There is no histogram in it.
    #[error("it has no histogram")]
    Empty,
    /// There are too many tags.
    #[error("it has more than {} tags", limits::MAX_HISTOGRAM_TAGS)]
    TooManyTags,
    /// A log cannot be written.
    #[error("the histograms cannot be encoded: {0}")]
    Encode(String),
}

/// The names of what is measured beside the latency, as tags.
const UNCORRECTED: &str = "uncorrected";
const FIRST_MESSAGE: &str = "first_message";
const BETWEEN_MESSAGES: &str = "between_messages";
const RESPONSE: &str = "response";

impl HistogramLog {
    /// The latencies of a run: from when calls were to begin; of an open loop also from when they
    /// began, as `uncorrected`; of streaming methods also those of messages.
    pub fn of(report: &Report) -> HistogramLog {
        let tally = &report.outcome().tally;
        let mut log = HistogramLog::default();
        log.histograms
            .insert(String::new(), tally.latency_ns.clone());
        let mut more = Vec::new();
        if report.is_open_loop() {
            more.push((UNCORRECTED, &tally.uncorrected_ns));
        }
        if let Some(streams) = &tally.streams {
            more.push((FIRST_MESSAGE, &streams.first_ns));
            more.push((BETWEEN_MESSAGES, &streams.gap_ns));
            more.push((RESPONSE, &streams.response_ns));
        }
        for (tag, histogram) in more.into_iter().filter(|(_, it)| !it.is_empty()) {
            log.histograms.insert(tag.to_owned(), histogram.clone());
        }
        log
    }

    /// The log as the bytes of a file: a run that began at `start` and lasted so long.
    ///
    /// # Errors
    /// If a histogram cannot be encoded, which none of a run is.
    pub fn encode(
        &self,
        start: SystemTime,
        length: Duration,
    ) -> Result<Vec<u8>, HistogramLogError> {
        let mut bytes = Vec::new();
        let mut serializer = V2DeflateSerializer::new();
        let failed = |error: &dyn std::fmt::Display| HistogramLogError::Encode(error.to_string());
        let since_epoch = start.duration_since(SystemTime::UNIX_EPOCH);
        let mut writer = IntervalLogWriterBuilder::new()
            .add_comment("[Latencies in nanoseconds, of pelton load]")
            .add_comment("[Histogram log format version 1.3]")
            .with_start_time(start)
            .with_max_value_divisor(NS_PER_MS)
            .begin_log_with(&mut bytes, &mut serializer)
            .map_err(|error| failed(&error))?;
        for (tag, histogram) in &self.histograms {
            let tag = Tag::new(tag).filter(|_| !tag.is_empty());
            let begun = since_epoch.clone().unwrap_or_default();
            let written = writer.write_histogram(histogram, begun, length, tag);
            written.map_err(|error| failed(&error))?;
        }
        Ok(bytes)
    }

    /// Adds the histograms of a file.
    ///
    /// # Errors
    /// If it is no such log. What was read before that is added.
    pub fn add(&mut self, file: &[u8]) -> Result<(), HistogramLogError> {
        let mut number = 0;
        for entry in IntervalLogIterator::new(file) {
            let entry = entry.map_err(|error| {
                let hdrhistogram::serialization::interval_log::LogIteratorError::ParseError {
                    offset,
                } = error;
                HistogramLogError::BadLine { offset }
            })?;
            let LogEntry::Interval(interval) = entry else {
                continue;
            };
            number += 1;
            let bad = |reason| HistogramLogError::BadHistogram { number, reason };
            let histogram = decode(interval.encoded_histogram()).map_err(bad)?;
            // It is printed, and others may have written it.
            let tag = without_controls(interval.tag().map_or("", |tag| tag.as_str()));
            if !self.histograms.contains_key(&tag)
                && self.histograms.len() >= limits::MAX_HISTOGRAM_TAGS
            {
                return Err(HistogramLogError::TooManyTags);
            }
            let sum = self.histograms.entry(tag).or_insert_with(|| {
                let mut sum = measure::histogram();
                sum.auto(true);
                sum
            });
            sum.add(&histogram)
                .map_err(|error| bad(error.to_string()))?;
        }
        match number {
            0 => Err(HistogramLogError::Empty),
            _ => Ok(()),
        }
    }

    /// The text for people: a row of percentiles for each histogram.
    pub fn text(&self) -> String {
        let mut lines = vec![report::latency_head()];
        for (tag, histogram) in &self.histograms {
            lines.push(report::latency_row(name(tag), histogram));
        }
        let counts = self.histograms.iter().map(|(tag, histogram)| {
            let count = histogram.len();
            format!("{} {count}", name(tag))
        });
        let counts: Vec<String> = counts.collect();
        lines.push(format!("values: {}", counts.join(", ")));
        lines.join("\n")
    }

    /// The same under names, an object for each histogram. Times are in microseconds.
    pub fn fields(&self) -> Vec<Map<String, Value>> {
        let histograms = self.histograms.iter();
        let fields =
            histograms.map(|(tag, histogram)| report::latency_fields(name(tag), histogram));
        fields.collect()
    }
}

const NS_PER_MS: f64 = 1e6;

fn name(tag: &str) -> &str {
    match tag {
        "" => "latency",
        tag => tag,
    }
}

const V2_COOKIE: [u8; 4] = 0x1c84_9313_u32.to_be_bytes();
const V2_DEFLATED_COOKIE: [u8; 4] = 0x1c84_9314_u32.to_be_bytes();

/// Bytes of an encoded histogram before its counts: cookie, length of the counts, normalizing
/// offset, digits, lowest and highest value, ratio.
const V2_HEAD_BYTES: usize = 40;

/// Reads a histogram. What it says of its own size is checked before anything is made of it.
fn decode(encoded: &str) -> Result<Histogram<u64>, String> {
    let bytes = STANDARD.decode(encoded);
    let bytes = bytes.map_err(|error| format!("it is no base64: {error}"))?;
    let plain = match bytes.split_first_chunk::<4>() {
        Some((&V2_DEFLATED_COOKIE, rest)) => {
            // Its length stands before it; the end says the same.
            let deflated = rest.get(4..).unwrap_or_default();
            inflate(deflated)?
        }
        _ => bytes,
    };
    let head = plain.split_first_chunk::<8>();
    let counted = head.map(|(&[a, b, c, d, e, f, g, h], _)| {
        ([a, b, c, d], u32::from_be_bytes([e, f, g, h]) as usize)
    });
    match counted {
        Some((V2_COOKIE, bytes)) if plain.len() >= V2_HEAD_BYTES => {
            if bytes > plain.len() - V2_HEAD_BYTES {
                return Err(format!(
                    "it is cut: {bytes} bytes of counts are announced, {} are there",
                    plain.len() - V2_HEAD_BYTES
                ));
            }
        }
        _ => return Err("it is none of version 2".into()),
    }
    let read = Deserializer::new().deserialize(&mut &plain[..]);
    read.map_err(|error| error.to_string())
}

fn inflate(deflated: &[u8]) -> Result<Vec<u8>, String> {
    let mut plain = Vec::new();
    let most = limits::MAX_HISTOGRAM_BYTES as u64;
    let mut source = ZlibDecoder::new(deflated).take(most + 1);
    let read = source.read_to_end(&mut plain);
    read.map_err(|error| format!("it cannot be decompressed: {error}"))?;
    match plain.len() > limits::MAX_HISTOGRAM_BYTES {
        true => Err(format!("it has more than {most} bytes")),
        false => Ok(plain),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::StreamTally;
    use crate::pacing::{Arrivals, Pace};
    use crate::report::tests::{outcome, plan};

    fn report(pace: Pace, has_streams: bool) -> Report {
        let mut outcome = outcome();
        if has_streams {
            let mut streams = StreamTally::default();
            streams.first_ns.record(5_000).expect("in range");
            outcome.tally.streams = Some(Box::new(streams));
        }
        Report::new("x".into(), &plan(pace), outcome, 1)
    }

    fn encoded(log: &HistogramLog) -> Vec<u8> {
        let start = SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_500);
        log.encode(start, Duration::from_secs(10)).expect("it can")
    }

    #[test]
    fn a_log_that_is_read_is_what_was_written() {
        let open = Pace::Open {
            rate: 1_000.0,
            arrivals: Arrivals::Fixed,
        };
        for (pace, has_streams, tags) in [
            (Pace::Closed, false, vec![""]),
            (open, false, vec!["", "uncorrected"]),
            (Pace::Closed, true, vec!["", "first_message"]),
        ] {
            let log = HistogramLog::of(&report(pace, has_streams));
            let found: Vec<&String> = log.histograms.keys().collect();
            assert_eq!(found, tags);
            let mut read = HistogramLog::default();
            read.add(&encoded(&log)).expect("it was written here");
            assert_eq!(read.histograms, log.histograms);
        }
    }

    #[test]
    fn the_lines_are_those_that_other_tools_know() {
        let bytes = encoded(&HistogramLog::of(&report(Pace::Closed, true)));
        let text = String::from_utf8(bytes).expect("it is text");
        assert!(
            text.contains("#[StartTime: 1700000000.500 (seconds since epoch)]"),
            "{text}"
        );
        let intervals: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let (latency, first) = (intervals[0], intervals[1]);
        assert!(
            latency.starts_with("1700000000.500,10.000,1.000,HISTFAA"),
            "{latency}"
        );
        assert!(first.starts_with("Tag=first_message,1700000000.500,10.000,0.005,HISTFAA"));
    }

    #[test]
    fn files_are_added_up() {
        let log = HistogramLog::of(&report(Pace::Closed, false));
        let mut sum = HistogramLog::default();
        for _ in 0..3 {
            sum.add(&encoded(&log)).expect("it was written here");
        }
        assert_eq!(sum.histograms[""].len(), 3_000);
        assert_eq!(sum.histograms[""].max(), log.histograms[""].max());
        let text = sum.text();
        assert!(text.ends_with("values: latency 3000"), "{text}");
        let fields = sum.fields();
        assert_eq!((fields.len(), &fields[0]["values"]), (1, &3_000.into()));
        assert_eq!(fields[0]["histogram"], "latency");
    }

    /// Larger values than a run has: those of other tools, in other units.
    #[test]
    fn values_of_others_are_kept() {
        let mut wide = Histogram::<u64>::new(2).expect("two digits");
        wide.record(u64::MAX / 3).expect("it grows");
        let mut log = HistogramLog::default();
        log.histograms.insert(String::new(), wide);
        let mut sum = HistogramLog::default();
        sum.add(&encoded(&log)).expect("it was written here");
        assert_eq!(sum.histograms[""].len(), 1);
    }

    fn refusal(file: &[u8]) -> String {
        let added = HistogramLog::default().add(file);
        added.expect_err("it is none").to_string()
    }

    fn line(bytes: &[u8]) -> Vec<u8> {
        format!("0.0,1.0,1.0,{}\n", STANDARD.encode(bytes)).into_bytes()
    }

    #[test]
    fn what_is_no_log_is_said() {
        assert_eq!(refusal(b""), "it has no histogram");
        assert_eq!(refusal(b"#only a comment\n"), "it has no histogram");
        assert!(refusal(b"hello\n").contains("byte 0 begins a line"));
        assert!(
            refusal(b"0.0,1.0,1.0,!!!\n").contains("histogram 1 cannot be read: it is no base64")
        );
        assert!(refusal(&line(b"")).contains("none of version 2"));
        assert!(refusal(&line(b"\x1c\x84\x93\x14\x00\x00\x00\x01\xff")).contains("decompressed"));
    }

    /// A head that announces more counts than there are, and a body that grows when it is
    /// decompressed, make nothing large.
    #[test]
    fn what_a_histogram_says_of_its_size_is_checked() {
        use std::io::Write as _;
        let mut head = [V2_COOKIE, u32::MAX.to_be_bytes()].concat();
        head.resize(V2_HEAD_BYTES, 0);
        assert!(refusal(&line(&head)).contains("4294967295 bytes of counts are announced"));
        let mut bomb = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        let zeros = vec![0; limits::MAX_HISTOGRAM_BYTES + 1];
        bomb.write_all(&zeros).expect("it is a Vec");
        let deflated = bomb.finish().expect("it is a Vec");
        let bytes = [&V2_DEFLATED_COOKIE[..], &[0; 4], &deflated].concat();
        assert!(refusal(&line(&bytes)).contains("it has more than"));
    }

    #[test]
    fn a_tag_is_no_command_of_a_terminal() {
        let log = HistogramLog::of(&report(Pace::Closed, false));
        let text = String::from_utf8(encoded(&log)).expect("it is text");
        let interval = text.lines().last().expect("it has a histogram");
        let mut read = HistogramLog::default();
        let file = format!("Tag=\u{1b}]0;x\u{7},{interval}\n");
        read.add(file.as_bytes()).expect("it has a tag");
        assert!(read.text().contains("?]0;x?"), "{}", read.text());
    }

    /// Whatever a file has in the place of a histogram is read, or refused.
    #[test]
    fn histograms_of_any_bytes_do_not_panic() {
        let log = HistogramLog::of(&report(Pace::Closed, true));
        let mut random = crate::random::Random::new(5);
        let mut plain = vec![0; V2_HEAD_BYTES + 64];
        let mut serializer = hdrhistogram::serialization::V2Serializer::new();
        let mut whole = Vec::new();
        let latency = &log.histograms[""];
        hdrhistogram::serialization::Serializer::serialize(&mut serializer, latency, &mut whole)
            .expect("it is one");
        for round in 0..600 {
            let bytes = match round % 2 {
                0 => &mut whole.clone(),
                _ => &mut plain,
            };
            if round % 2 == 1 {
                bytes[..4].copy_from_slice(&V2_COOKIE);
                bytes[4..8].copy_from_slice(&64_u32.to_be_bytes());
            }
            for _ in 0..=random.below(6) {
                let at = 8 + random.below(bytes.len() as u64 - 8) as usize;
                bytes[at] = random.below(256) as u8;
            }
            let mut sum = HistogramLog::default();
            if sum.add(&line(bytes)).is_ok() {
                // Twice: also what is added up.
                let _ = sum.add(&line(bytes));
                assert!(!sum.text().is_empty() && !sum.fields().is_empty());
            }
        }
    }

    #[test]
    fn the_number_of_tags_is_bounded() {
        let log = HistogramLog::of(&report(Pace::Closed, false));
        let text = String::from_utf8(encoded(&log)).expect("it is text");
        let interval = text.lines().last().expect("it has a histogram");
        let lines = (0..=limits::MAX_HISTOGRAM_TAGS).map(|tag| format!("Tag=t{tag},{interval}\n"));
        let file: String = lines.collect();
        assert!(refusal(file.as_bytes()).contains("more than 64 tags"));
    }
}
