//! Every bound of the export of spans: its name, its default, and what it stops.

use std::time::Duration;

/// Spans that wait to be exported. Beyond it new ones are dropped and counted: a collector that is
/// away must not take the memory of the process, nor the time of its calls. As many as other
/// exporters of OpenTelemetry hold by default.
pub const SPANS_QUEUED: usize = 2_048;

/// Memory of the spans that wait, in bytes. Names of databases come from callers, so that a number
/// of spans alone would bound nothing.
pub const SPAN_QUEUE_BYTES: usize = 4 << 20;

/// Spans in one export. They are there once more while it runs, encoded.
pub const SPANS_PER_EXPORT: usize = 512;

/// How long a span waits for others to be exported with it, unless there are enough before.
pub const SPAN_EXPORT_INTERVAL: Duration = Duration::from_secs(1);

/// How long one attempt of an export may take, with the connection if there is none yet: what OTLP
/// has by default. A collector that hangs is given up then.
pub const SPAN_EXPORT_TIMEOUT: Duration = Duration::from_secs(10);

/// Attempts of one export. Then its spans are dropped, so that those that come later have a chance
/// while somebody may still look at them.
pub const SPAN_EXPORT_ATTEMPTS: u32 = 5;

/// The pause after the first attempt that failed. It doubles with each further one.
pub const SPAN_FIRST_PAUSE: Duration = Duration::from_secs(1);

/// The longest pause between two attempts, also if a collector asks for a longer one: it must not
/// stop the export for as long as it likes.
pub const SPAN_LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// How long the end of a server waits for the export of what is queued, within what it has to
/// drain. A collector that is away or hangs must not keep anybody from stopping.
pub const SPAN_STOP_TIMEOUT: Duration = Duration::from_secs(3);

/// How long it waits where draining has taken all its time: enough for a collector that is there,
/// and calls that were cut are those of which somebody wants to see the spans.
pub const SPAN_STOP_LEAST: Duration = Duration::from_millis(250);

/// How long the end of a command waits for it. Scripts have many commands, and each would wait.
pub const SPAN_COMMAND_STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// How often the end of a process looks whether a signal has come meanwhile that cuts it short.
pub const SPAN_STOP_LOOK: Duration = Duration::from_millis(20);

/// The largest answer of a collector that is read, in bytes: it has a number and a text.
pub const SPAN_ANSWER_BYTES: usize = 64 << 10;

/// Headers that go with each export: a key, and who somebody is.
pub const SPAN_HEADERS: usize = 32;

/// Bytes of their names and values: less than what collectors take with a request by default.
pub const SPAN_HEADER_BYTES: usize = 4 << 10;

/// Attributes of the process that spans come from. They go with each export.
pub const SPAN_RESOURCE_ATTRIBUTES: usize = 64;

/// Bytes of their keys and values.
pub const SPAN_RESOURCE_BYTES: usize = 8 << 10;

/// Characters of what a collector says that are reported.
pub const SPAN_ERROR_CHARACTERS: usize = 300;
