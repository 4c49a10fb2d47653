//! `pelton status`

use std::time::Duration;

use service::Method;
use service::protobuf::Reader;

use super::{Caller, echo, unreadable};
use crate::arguments::StatusArguments;
use crate::encoding::escape;
use crate::exit::{Exit, Failure};
use crate::output::{Output, object};

/// Calls from which the round trip is taken: the fastest, as the others say more about this machine's scheduler.
const ROUND_TRIPS: usize = 5;

/// `HealthCheckResponse.ServingStatus` of <https://github.com/grpc/grpc/blob/master/doc/health-checking.md>.
const SERVING: u64 = 1;

/// Asks a server whether it is ready, what it is, and how far away.
pub fn status(arguments: &StatusArguments) -> Result<Exit, Failure> {
    let mut caller = Caller::connect(&arguments.connection)?;
    let serving = health(&mut caller)?;
    let server = greeting(&mut caller)?;
    let round_trip = (0..ROUND_TRIPS)
        .map(|_| echo::round_trip(&mut caller, b""))
        .try_fold(Duration::MAX, |least, time| {
            time.map(|time| least.min(time))
        })?;

    let word = if serving { "SERVING" } else { "NOT_SERVING" };
    let mut output = Output::new(arguments.connection.output);
    if output.is_json() {
        output.object(object([
            ("address", caller.address.as_str().into()),
            ("status", word.into()),
            ("server", server.as_str().into()),
            ("round_trip_us", (round_trip.as_nanos() as f64 / 1e3).into()),
        ]))?;
    } else {
        output.line(&format!("{} is {word}", caller.address))?;
        output.line(&format!("server: {server}"))?;
        output.line(&format!("round trip: {round_trip:.1?}"))?;
    }
    output.end()?;
    Ok(if serving { Exit::Done } else { Exit::Miss })
}

/// Whether the server as a whole is ready.
fn health(caller: &mut Caller) -> Result<bool, Failure> {
    let answer = caller.unary(Method::HealthCheck, b"")?;
    let mut status = 0;
    Reader::new(&answer)
        .for_each(|number, value| {
            if number == 1 {
                status = value.varint()?;
            }
            Ok(())
        })
        .map_err(unreadable)?;
    Ok(status == SERVING)
}

/// The first line of what the server says of itself over plain HTTP/2.
fn greeting(caller: &mut Caller) -> Result<String, Failure> {
    let options = caller.options();
    let answer = caller
        .channel
        .http_get("/", &options)
        .map_err(|error| super::call_failure(&caller.address, "GET /", &error))?;
    let line = answer
        .body
        .split(|&byte| byte == b'\n')
        .next()
        .unwrap_or_default();
    Ok(escape(line))
}
