//! The messages of the test service, as far as the server looks at them
//! (`proto/grpc/testing/messages.proto`).

use std::collections::VecDeque;

use super::orca;
use crate::limits::{
    INTEROP_INTERVAL_US_MAX, INTEROP_LOAD_REPORT_BYTES_MAX, INTEROP_PAYLOAD_BYTES_MAX,
    INTEROP_RESPONSES_MAX,
};
use crate::status::{Code, Status};
use api::interop as api;
use protobuf::{DecodeError, writer};

/// `SimpleRequest`
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SimpleRequest {
    pub response_bytes: u32,
    pub compress_response: bool,
    pub expect_compressed: bool,
    pub end_with: Option<Status>,
    pub fill_server_id: bool,
    /// An encoded `OrcaLoadReport` to give back.
    pub load_report: Option<Vec<u8>>,
}

/// `StreamingInputCallRequest`
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct InputRequest {
    pub payload_bytes: u64,
    pub expect_compressed: bool,
}

/// `ResponseParameters`: one message that the server owes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Response {
    pub payload_bytes: u32,
    pub interval_us: u32,
    pub compress: bool,
}

/// `SimpleRequest`
pub(super) fn decode_simple(bytes: &[u8]) -> Result<SimpleRequest, Status> {
    let malformed = |error| malformed("SimpleRequest", error);
    let request = api::SimpleRequest::decode(bytes).map_err(malformed)?;
    let report = request.orca_per_query_report.as_ref();
    let load_report = report.map(orca::encode_report).transpose();
    let load_report = load_report.map_err(malformed)?;
    let report_bytes = load_report.as_ref().map_or(0, Vec::len);
    if report_bytes > INTEROP_LOAD_REPORT_BYTES_MAX {
        return Err(Status::resource_exhausted(format!(
            "field orca_per_query_report: {report_bytes} bytes of trailers, at most \
             {INTEROP_LOAD_REPORT_BYTES_MAX} are allowed"
        )));
    }
    Ok(SimpleRequest {
        response_bytes: within(
            "response_size",
            request.response_size,
            INTEROP_PAYLOAD_BYTES_MAX,
        )?,
        compress_response: is_true(request.response_compressed),
        expect_compressed: is_true(request.expect_compressed),
        end_with: end_with(request.response_status)?,
        fill_server_id: request.fill_server_id,
        load_report,
    })
}

/// `StreamingInputCallRequest`
pub(super) fn decode_input(bytes: &[u8]) -> Result<InputRequest, Status> {
    let request = api::StreamingInputCallRequest::decode(bytes)
        .map_err(|error| malformed("StreamingInputCallRequest", error))?;
    Ok(InputRequest {
        payload_bytes: request
            .payload
            .map_or(0, |payload| payload.body.len() as u64),
        expect_compressed: is_true(request.expect_compressed),
    })
}

/// `StreamingOutputCallRequest`: appends the messages asked for to `owed`, or returns how the call
/// is to end at once.
pub(super) fn decode_output(
    bytes: &[u8],
    owed: &mut VecDeque<Response>,
) -> Result<Option<Status>, Status> {
    let malformed = |error| malformed("StreamingOutputCallRequest", error);
    let request = api::StreamingOutputCallRequest::decode(bytes).map_err(malformed)?;
    for parameters in &request.response_parameters {
        let response = response(&parameters.map_err(malformed)?)?;
        if owed.len() >= INTEROP_RESPONSES_MAX {
            return Err(too_many_responses());
        }
        owed.push_back(response);
    }
    // A caller that asks for it waits for its reports, so it is refused at once.
    if request.orca_oob_report.is_some() {
        return Err(no_load_reports_out_of_band());
    }
    end_with(request.response_status)
}

/// `ResponseParameters`
fn response(parameters: &api::ResponseParameters) -> Result<Response, Status> {
    Ok(Response {
        payload_bytes: within(
            "response_parameters.size",
            parameters.size,
            INTEROP_PAYLOAD_BYTES_MAX,
        )?,
        interval_us: within(
            "response_parameters.interval_us",
            parameters.interval_us,
            INTEROP_INTERVAL_US_MAX,
        )?,
        compress: is_true(parameters.compressed),
    })
}

/// Returns the status to end the call with, `None` for code 0.
fn end_with(status: Option<api::EchoStatus<'_>>) -> Result<Option<Status>, Status> {
    let api::EchoStatus { code, message } = status.unwrap_or_default();
    let known = usize::try_from(code)
        .ok()
        .and_then(|number| Code::ALL.get(number));
    match known {
        Some(Code::Ok) => Ok(None),
        Some(&code) => Ok(Some(Status::new(code, message.to_owned()))),
        None => Err(Status::invalid_argument(format!(
            "field response_status.code: {code} is no gRPC status code; they go from 0 to {}",
            Code::ALL.len() - 1
        ))),
    }
}

/// Returns whether a flag that can be absent is there and true.
fn is_true(value: Option<api::BoolValue>) -> bool {
    value.is_some_and(|value| value.value)
}

/// `SimpleResponse` and `StreamingOutputCallResponse` are the same on the wire: a payload of zeros
/// as field 1.
pub(super) fn encode_payload(out: &mut Vec<u8>, payload_bytes: u32) {
    let length = payload_bytes as usize;
    let inside = if length == 0 {
        0
    } else {
        writer::bytes_len(api::Payload::NUMBERS.body, length)
    };
    writer::bytes_head(out, api::SimpleResponse::NUMBERS.payload, inside);
    if length > 0 {
        writer::bytes_head(out, api::Payload::NUMBERS.body, length);
        out.resize(out.len() + length, 0);
    }
}

/// `SimpleResponse.server_id`: tells servers apart.
pub(super) fn encode_server_id(out: &mut Vec<u8>, history_id: u64) {
    let server_id = &format!("pelton-{history_id:016x}");
    let response = api::SimpleResponse {
        server_id,
        ..api::SimpleResponse::default()
    };
    response.encode(out);
}

fn within(field: &str, value: i32, max: u32) -> Result<u32, Status> {
    match u32::try_from(value) {
        Ok(value) if value <= max => Ok(value),
        Ok(value) => Err(Status::resource_exhausted(format!(
            "field {field}: {value} is asked for, at most {max} is allowed"
        ))),
        Err(_) => Err(Status::invalid_argument(format!(
            "field {field}: {value} is negative"
        ))),
    }
}

#[cold]
fn too_many_responses() -> Status {
    Status::resource_exhausted(format!(
        "field response_parameters: the call would have to remember more than \
         {INTEROP_RESPONSES_MAX} messages \
         that it owes; ask for fewer at once"
    ))
}

#[cold]
fn no_load_reports_out_of_band() -> Status {
    Status::unimplemented(
        "field orca_oob_report: this server has no xds.service.orca.v3.OpenRcaService, which \
         would send the reports",
    )
}

#[cold]
fn malformed(message: &str, error: DecodeError) -> Status {
    Status::invalid_argument(format!("{message}: {error}"))
}
