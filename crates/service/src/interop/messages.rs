//! The messages of the test service, as far as the server looks at them (`proto/grpc/testing/messages.proto`).

use std::collections::VecDeque;

use super::orca;
use crate::limits::{
    INTEROP_INTERVAL_US_MAX, INTEROP_LOAD_REPORT_BYTES_MAX, INTEROP_PAYLOAD_BYTES_MAX,
    INTEROP_RESPONSES_MAX,
};
use crate::status::{Code, Status};
use protobuf::{DecodeError, Fault, Reader, Value, writer};

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
    let mut request = SimpleRequest::default();
    let (mut size, mut status) = (0, EchoStatus::default());
    Reader::new(bytes)
        .for_each(|field, value| {
            match field {
                2 => size = value.int32()?,
                6 => request.compress_response = bool_value(value)?,
                7 => status.merge(value)?,
                8 => request.expect_compressed = bool_value(value)?,
                9 => request.fill_server_id = value.bool()?,
                11 => orca::append_report(value, request.load_report.get_or_insert_default())?,
                _ => {}
            }
            Ok(())
        })
        .map_err(|error| malformed("SimpleRequest", error))?;
    let report_bytes = request.load_report.as_ref().map_or(0, Vec::len);
    if report_bytes > INTEROP_LOAD_REPORT_BYTES_MAX {
        return Err(Status::resource_exhausted(format!(
            "field orca_per_query_report: {report_bytes} bytes of trailers, at most \
             {INTEROP_LOAD_REPORT_BYTES_MAX} are allowed"
        )));
    }
    request.response_bytes = within("response_size", size, INTEROP_PAYLOAD_BYTES_MAX)?;
    request.end_with = status.end()?;
    Ok(request)
}

/// `StreamingInputCallRequest`
pub(super) fn decode_input(bytes: &[u8]) -> Result<InputRequest, Status> {
    let mut request = InputRequest::default();
    Reader::new(bytes)
        .for_each(|field, value| {
            match field {
                1 => request.payload_bytes = payload_bytes(value)?,
                2 => request.expect_compressed = bool_value(value)?,
                _ => {}
            }
            Ok(())
        })
        .map_err(|error| malformed("StreamingInputCallRequest", error))?;
    Ok(request)
}

/// `StreamingOutputCallRequest`: appends the messages asked for to `owed`, or says how the call is to end at once.
pub(super) fn decode_output(
    bytes: &[u8],
    owed: &mut VecDeque<Response>,
) -> Result<Option<Status>, Status> {
    let mut status = EchoStatus::default();
    // The first complaint about a limit; what the reader itself may complain about is only the form.
    let mut refused = None;
    Reader::new(bytes)
        .for_each(|field, value| {
            match field {
                2 if refused.is_none() => match decode_response(value.bytes()?)? {
                    Ok(_) if owed.len() >= INTEROP_RESPONSES_MAX => {
                        refused = Some(too_many_responses())
                    }
                    Ok(response) => owed.push_back(response),
                    Err(refusal) => refused = Some(refusal),
                },
                7 => status.merge(value)?,
                // Whoever asks for it waits for its reports, so it is refused at once.
                8 => _ = refused.get_or_insert_with(no_load_reports_out_of_band),
                _ => {}
            }
            Ok(())
        })
        .map_err(|error| malformed("StreamingOutputCallRequest", error))?;
    match refused {
        Some(refusal) => Err(refusal),
        None => status.end(),
    }
}

/// `ResponseParameters`
fn decode_response(bytes: &[u8]) -> Result<Result<Response, Status>, Fault> {
    let (mut size, mut interval_us, mut compress) = (0, 0, false);
    Reader::new(bytes)
        .for_each(|field, value| {
            match field {
                1 => size = value.int32()?,
                2 => interval_us = value.int32()?,
                3 => compress = bool_value(value)?,
                _ => {}
            }
            Ok(())
        })
        .map_err(|error| error.fault)?;
    let size = within("response_parameters.size", size, INTEROP_PAYLOAD_BYTES_MAX);
    let interval_us = within(
        "response_parameters.interval_us",
        interval_us,
        INTEROP_INTERVAL_US_MAX,
    );
    Ok(size.and_then(|payload_bytes| {
        Ok(Response {
            payload_bytes,
            interval_us: interval_us?,
            compress,
        })
    }))
}

/// `EchoStatus`
#[derive(Default)]
struct EchoStatus {
    code: i32,
    message: String,
}

impl EchoStatus {
    fn merge(&mut self, value: Value<'_>) -> Result<(), Fault> {
        Reader::new(value.bytes()?)
            .for_each(|field, value| {
                match field {
                    1 => self.code = value.int32()?,
                    2 => self.message = value.string()?.to_owned(),
                    _ => {}
                }
                Ok(())
            })
            .map_err(|error| error.fault)
    }

    /// The status to end the call with, `None` for code 0.
    fn end(self) -> Result<Option<Status>, Status> {
        match u64::try_from(self.code).ok().and_then(Code::from_number) {
            Some(Code::Ok) => Ok(None),
            Some(code) => Ok(Some(Status::new(code, self.message))),
            None => Err(Status::invalid_argument(format!(
                "field response_status.code: {} is no gRPC status code; they go from 0 to {}",
                self.code,
                Code::ALL.len() - 1
            ))),
        }
    }
}

/// `BoolValue`; absent means false.
fn bool_value(value: Value<'_>) -> Result<bool, Fault> {
    let mut inside = false;
    Reader::new(value.bytes()?)
        .for_each(|field, value| {
            if field == 1 {
                inside = value.bool()?;
            }
            Ok(())
        })
        .map_err(|error| error.fault)?;
    Ok(inside)
}

/// `Payload`: the size of its body.
fn payload_bytes(value: Value<'_>) -> Result<u64, Fault> {
    let mut length = 0;
    Reader::new(value.bytes()?)
        .for_each(|field, value| {
            if field == 2 {
                length = value.bytes()?.len() as u64;
            }
            Ok(())
        })
        .map_err(|error| error.fault)?;
    Ok(length)
}

/// `SimpleResponse` and `StreamingOutputCallResponse` are the same on the wire: a payload of zeros as field 1.
pub(super) fn encode_payload(out: &mut Vec<u8>, payload_bytes: u32) {
    let length = payload_bytes as usize;
    let inside = if length == 0 {
        0
    } else {
        writer::bytes_len(2, length)
    };
    writer::bytes_head(out, 1, inside);
    if length > 0 {
        writer::bytes_head(out, 2, length);
        out.resize(out.len() + length, 0);
    }
}

/// `SimpleResponse.server_id`: tells servers apart.
pub(super) fn encode_server_id(out: &mut Vec<u8>, history_id: u64) {
    writer::bytes(out, 4, format!("pelton-{history_id:016x}").as_bytes());
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
        "field response_parameters: the call would have to remember more than {INTEROP_RESPONSES_MAX} messages \
         that it owes; ask for fewer at once"
    ))
}

#[cold]
fn no_load_reports_out_of_band() -> Status {
    Status::unimplemented(
        "field orca_oob_report: this server has no xds.service.orca.v3.OpenRcaService, which would send the reports",
    )
}

#[cold]
fn malformed(message: &str, error: DecodeError) -> Status {
    Status::invalid_argument(format!("{message}: {error}"))
}
