//! The messages of `grpc.testing` that the cases send and expect.

use api::interop::{
    BoolValue, EchoStatus, Payload, ResponseParameters, SimpleRequest, SimpleResponse,
    StreamingInputCallResponse, StreamingOutputCallRequest,
};
use protobuf::{DecodeError, Message};

/// What payloads are made of: at least as much as the longest one has.
static ZEROS: [u8; 300_000] = [0; 300_000];

/// Returns a message as bytes.
pub fn encode<'a>(message: &impl Message<'a>) -> Vec<u8> {
    let mut out = Vec::new();
    message.encode(&mut out);
    out
}

/// A payload of so many zeros.
pub fn payload(size: usize) -> Option<Payload<'static>> {
    let body = &ZEROS[..size];
    Some(Payload { body })
}

pub fn boolean(value: bool) -> Option<BoolValue> {
    Some(BoolValue { value })
}

/// A request for a payload, with one.
pub fn simple_request(response_size: usize, payload_size: usize) -> SimpleRequest<'static> {
    SimpleRequest {
        response_size: response_size as i32,
        payload: payload(payload_size),
        ..SimpleRequest::default()
    }
}

/// How a call is to end.
pub fn echo_status(code: i32, message: &str) -> Option<EchoStatus<'_>> {
    Some(EchoStatus { code, message })
}

/// A message that is wanted in a stream of answers.
pub fn wanted(size: usize, compressed: Option<bool>) -> ResponseParameters {
    ResponseParameters {
        size: size as i32,
        interval_us: 0,
        compressed: compressed.and_then(boolean),
    }
}

/// A request for a stream of answers, with a payload.
pub fn output_request(
    wanted: &[ResponseParameters],
    payload_size: usize,
) -> StreamingOutputCallRequest<'_> {
    StreamingOutputCallRequest {
        response_parameters: wanted.into(),
        payload: payload(payload_size),
        ..StreamingOutputCallRequest::default()
    }
}

/// The body of the payload of a `SimpleResponse`, or of a `StreamingOutputCallResponse`, which has
/// it in the same field; `None` if there is none.
pub fn payload_body(response: &[u8]) -> Result<Option<&[u8]>, DecodeError> {
    let payload = SimpleResponse::decode(response)?.payload;
    Ok(payload.map(|payload| payload.body))
}

/// How many bytes a `StreamingInputCallResponse` has counted.
pub fn aggregated_size(response: &[u8]) -> Result<i32, DecodeError> {
    Ok(StreamingInputCallResponse::decode(response)?.aggregated_payload_size)
}
