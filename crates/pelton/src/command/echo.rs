//! `pelton echo`

use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use api::echo::EchoRequest;
use api::rpc::echo::Unary;

use super::{Caller, unreadable};
use crate::arguments::{ConnectionArguments, EchoArguments};
use crate::encoding::insert_bytes;
use crate::exit::{Exit, Failure};
use crate::interrupt;
use crate::output::{Output, counted, note, object};

/// Sends bytes to the server and back.
pub fn echo(arguments: &EchoArguments) -> Result<Exit, Failure> {
    let payload = arguments.text.as_bytes();
    let made = Arc::new(AtomicU32::new(0));
    let (count, noted) = (arguments.count, Arc::clone(&made));
    interrupt::say_at_signal(move || {
        let made = noted.load(Ordering::Relaxed);
        format!(
            "interrupted; of {}, {made} had been answered",
            counted(u64::from(count), "call", "calls")
        )
    });
    let mut caller = Caller::connect(&arguments.connection)?;
    let times = (0..count)
        .map(|_| {
            let time = round_trip(&mut caller, payload)?;
            made.fetch_add(1, Ordering::Relaxed);
            Ok(time)
        })
        .collect::<Result<Vec<Duration>, Failure>>()?;
    print(&arguments.connection, payload, times)?;
    Ok(Exit::Done)
}

/// One call of Echo, the answer compared with what was sent.
pub(super) fn round_trip(caller: &mut Caller, payload: &[u8]) -> Result<Duration, Failure> {
    let request = EchoRequest {
        payload,
        ..EchoRequest::default()
    };
    let begin = Instant::now();
    let reply = caller.call::<Unary>(&request)?;
    let time = begin.elapsed();
    if reply.message().payload != payload {
        return Err(unreadable("what came back is not what was sent"));
    }
    Ok(time)
}

fn print(
    connection: &ConnectionArguments,
    payload: &[u8],
    mut times: Vec<Duration>,
) -> Result<(), Failure> {
    times.sort_unstable();
    let (fastest, median, slowest) = (times[0], times[times.len() / 2], times[times.len() - 1]);
    let mut output = Output::new(connection.output);
    if output.is_json() {
        let microseconds = |time: Duration| serde_json::Value::from(time.as_nanos() as f64 / 1e3);
        let mut fields = object([
            ("calls", times.len().into()),
            ("fastest_us", microseconds(fastest)),
            ("median_us", microseconds(median)),
            ("slowest_us", microseconds(slowest)),
        ]);
        insert_bytes(&mut fields, "payload", payload);
        output.object(fields)?;
    } else if times.len() == 1 {
        output.raw(payload)?;
        note(format_args!("pelton: {median:.1?} there and back"));
    } else {
        let count = times.len();
        output.line(&format!(
            "{count} calls: fastest {fastest:.1?}, median {median:.1?}, slowest {slowest:.1?}"
        ))?;
    }
    output.end()
}
