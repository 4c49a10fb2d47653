//! `pelton scan` and `pelton count`: ranges of keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use api::keyvalue::{CountPrecision, CountRequest, Direction, Entry, KeyRange, Keys, ScanRequest};
use api::rpc::keyvalue::Count;

use super::Caller;
use super::resumable_scan::{EntrySink, ResumableScan};
use crate::arguments::{
    CountArguments, DatabaseArguments, KeyEncoding, RangeArguments, ScanArguments, quoted,
};
use crate::encoding::{decode_key, escape_into, insert_bytes, show_key};
use crate::exit::{Exit, Failure};
use crate::interrupt;
use crate::output::{Output, entries, object};

/// The bytes of a range of the command line.
pub(super) struct RangeBytes {
    prefix: Option<Vec<u8>>,
    start: Option<Vec<u8>>,
    end: Option<Vec<u8>>,
}

impl RangeBytes {
    pub(super) fn new(
        range: &RangeArguments,
        database: &DatabaseArguments,
    ) -> Result<RangeBytes, Failure> {
        let decode = |text: &Option<std::ffi::OsString>| {
            text.as_deref()
                .map(|text| decode_key(text, database.key_encoding))
                .transpose()
        };
        let range = RangeBytes {
            prefix: decode(&range.prefix)?,
            start: decode(&range.start)?,
            end: decode(&range.end)?,
        };
        if let (Some(start), Some(end)) = (&range.start, &range.end)
            && end < start
            && !end.is_empty()
        {
            return Err(Failure::Usage(
                "--end is below --start: a range goes from --start up to, but not including, --end"
                    .into(),
            ));
        }
        Ok(range)
    }

    pub(super) fn keys(&self) -> Option<Keys<'_>> {
        match (&self.prefix, &self.start, &self.end) {
            (Some(prefix), _, _) => Some(Keys::Prefix(prefix)),
            (None, None, None) => None,
            (None, start, end) => Some(Keys::Range(KeyRange {
                start: start.as_deref().unwrap_or_default(),
                end: end.as_deref().unwrap_or_default(),
            })),
        }
    }
}

/// Counts keys.
pub fn count(arguments: &CountArguments) -> Result<Exit, Failure> {
    let database = &arguments.database;
    let range = RangeBytes::new(&arguments.range, database)?;
    let precision = match arguments.estimate {
        true => CountPrecision::Estimate,
        false => CountPrecision::Unspecified,
    };
    let request = CountRequest {
        database: &database.database,
        precision: precision.number(),
        keys: range.keys(),
        ..CountRequest::default()
    };
    let reply = Caller::connect(&database.connection)?.call::<Count>(&request)?;
    let answer = reply.message();
    let mut output = Output::new(database.connection.output);
    output.either(&answer.count.to_string(), || {
        object([
            ("count", answer.count.into()),
            ("exact", answer.exact.into()),
            ("views", answer.views.into()),
        ])
    })?;
    output.end()?;
    Ok(Exit::Done)
}

/// Prints a range of entries.
pub fn scan(arguments: &ScanArguments) -> Result<Exit, Failure> {
    let database = &arguments.database;
    let range = RangeBytes::new(&arguments.range, database)?;
    let start_after = (arguments.start_after.as_deref())
        .map(|text| decode_key(text, database.key_encoding))
        .transpose()?;
    let direction = match arguments.reverse {
        true => Direction::Backward,
        false => Direction::Forward,
    };
    let request = ScanRequest {
        database: &database.database,
        keys: range.keys(),
        direction: direction.number(),
        keys_only: arguments.keys_only,
        limit: arguments.limit.unwrap_or(0),
        start_after: start_after.as_deref(),
        ..ScanRequest::default()
    };
    let printed = Arc::new(AtomicU64::new(0));
    let noted = Arc::clone(&printed);
    interrupt::say_at_signal(move || {
        let entries = entries(noted.load(Ordering::Relaxed));
        format!("interrupted after at least {entries}; what was printed is incomplete")
    });
    let caller = Caller::connect(&database.connection)?;
    let mut printing = EntryPrinting {
        arguments,
        output: Output::new(database.connection.output),
        line: Vec::new(),
        printed,
    };
    let scan = ResumableScan::new(&database.connection, request);
    scan.run(caller, &mut printing, |last| {
        let behind = start_after_flag(last, database.key_encoding);
        Some(format!(
            "what was printed is incomplete; {behind} goes on behind it"
        ))
    })?;
    printing.output.end()?;
    Ok(Exit::Done)
}

/// The flag that goes on with a scan behind a key.
fn start_after_flag(key: &[u8], encoding: KeyEncoding) -> String {
    let shown = show_key(key, encoding);
    // What is shown of a key that is no plain text is not what it is written as.
    let is_escaped = encoding == KeyEncoding::Text && shown.as_bytes() != key;
    let escaped = if is_escaped {
        " --key-encoding escape"
    } else {
        ""
    };
    let between = if shown.starts_with('-') { "=" } else { " " };
    format!("`--start-after{between}{}{escaped}`", quoted(&shown))
}

/// The entries of a scan on their way to standard output.
struct EntryPrinting<'a> {
    arguments: &'a ScanArguments,
    output: Output,
    /// The line of an entry, whose memory is used again.
    line: Vec<u8>,
    /// Entries that were written out, for the message of a signal.
    printed: Arc<AtomicU64>,
}

impl EntrySink for EntryPrinting<'_> {
    fn entry(&mut self, entry: &Entry<'_>) -> Result<(), Failure> {
        print_entry(&mut self.output, &mut self.line, entry, self.arguments)
    }

    fn page(&mut self, entries: u64) -> Result<(), Failure> {
        self.output.flush()?;
        self.printed.store(entries, Ordering::Relaxed);
        Ok(())
    }

    fn check_interrupt(&self, _: u64) -> Result<(), Failure> {
        Ok(())
    }
}

fn print_entry(
    output: &mut Output,
    line: &mut Vec<u8>,
    entry: &Entry<'_>,
    arguments: &ScanArguments,
) -> Result<(), Failure> {
    if !output.is_json() {
        line.clear();
        line.extend_from_slice(show_key(entry.key, arguments.database.key_encoding).as_bytes());
        if !arguments.keys_only {
            line.push(b'\t');
            escape_into(line, entry.value);
        }
        line.push(b'\n');
        return output.bytes(line);
    }
    let mut fields = object([]);
    insert_bytes(&mut fields, "key", entry.key);
    if !arguments.keys_only {
        insert_bytes(&mut fields, "value", entry.value);
    }
    fields.insert("version".into(), entry.version.into());
    if entry.expires_at_ms != 0 {
        fields.insert("expires_at_ms".into(), entry.expires_at_ms.into());
    }
    output.object(fields)
}
