//! `pelton scan` and `pelton count`: ranges of keys.

use std::time::Instant;

use api::keyvalue::{
    CountPrecision, CountRequest, CountResponse, Direction, Entry, KeyRange, Keys, ScanPage,
    ScanRequest,
};
use service::Method;

use super::{Caller, late_failure, path, unreadable};
use crate::arguments::{CountArguments, DatabaseArguments, RangeArguments, ScanArguments};
use crate::encoding::{decode_key, escape, insert_bytes, show_key};
use crate::exit::{Exit, Failure};
use crate::output::{Output, object};

/// The bytes of a range of the command line.
struct RangeBytes {
    prefix: Option<Vec<u8>>,
    start: Option<Vec<u8>>,
    end: Option<Vec<u8>>,
}

impl RangeBytes {
    fn new(range: &RangeArguments, database: &DatabaseArguments) -> Result<RangeBytes, Failure> {
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

    fn keys(&self) -> Option<Keys<'_>> {
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
    let mut request = Vec::new();
    CountRequest {
        database: &database.database,
        precision: precision.number(),
        keys: range.keys(),
        ..CountRequest::default()
    }
    .encode(&mut request);

    let answer = Caller::connect(&database.connection)?.unary(Method::Count, &request)?;
    let answer = CountResponse::decode(&answer).map_err(unreadable)?;
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

/// Prints a range of entries. The time of `--timeout` begins anew with each page, since a scan may
/// be long.
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
    let mut request = Vec::new();
    ScanRequest {
        database: &database.database,
        keys: range.keys(),
        direction: direction.number(),
        keys_only: arguments.keys_only,
        limit: arguments.limit.unwrap_or(0),
        start_after: start_after.as_deref(),
        ..ScanRequest::default()
    }
    .encode(&mut request);

    let Caller {
        mut channel,
        address,
        timeout,
    } = Caller::connect(&database.connection)?;
    let called = Method::Scan.path();
    let mut pages = channel
        .server_streaming(
            &path(Method::Scan),
            &request,
            &client::CallOptions::default(),
        )
        .map_err(|error| late_failure(&address, timeout, called, &error))?;
    let mut output = Output::new(database.connection.output);
    let mut complete = false;
    loop {
        pages.set_deadline(Some(Instant::now() + timeout));
        let page = pages
            .next_message()
            .map_err(|error| late_failure(&address, timeout, called, &error))?;
        let Some(page) = page else { break };
        let page = ScanPage::decode(&page).map_err(unreadable)?;
        for entry in &page.entries {
            print_entry(&mut output, &entry.map_err(unreadable)?, arguments)?;
        }
        complete |= page.last;
    }
    output.end()?;
    if !complete {
        return Err(unreadable("the last page of the scan is missing"));
    }
    Ok(Exit::Done)
}

fn print_entry(
    output: &mut Output,
    entry: &Entry<'_>,
    arguments: &ScanArguments,
) -> Result<(), Failure> {
    if !output.is_json() {
        let key = show_key(entry.key, arguments.database.key_encoding);
        let text = if arguments.keys_only {
            key
        } else {
            format!("{key}\t{}", escape(entry.value))
        };
        return output.line(&text);
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
