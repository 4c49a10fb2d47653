//! The cases. Each function is the one of its name in the public description.

use std::time::{Duration, Instant};

use api::interop::{SimpleRequest, StreamingInputCallRequest, StreamingOutputCallRequest};
use client::{CallError, CallOptions, Code, Metadata, Status, StreamStep};

use crate::caller::{Caller, CallerStream};
use crate::messages::{
    aggregated_size, boolean, echo_status, encode, output_request, payload, payload_body,
    simple_request, wanted,
};

/// Why a case has failed.
pub type Trouble = Box<dyn std::error::Error>;
pub type Outcome = Result<(), Trouble>;
pub type Case = fn(&mut Caller) -> Outcome;

pub const ALL: &[(&str, Case)] = &[
    ("empty_unary", empty_unary),
    ("large_unary", large_unary),
    ("large_unary_compressed", large_unary_compressed),
    ("client_compressed_unary", client_compressed_unary),
    ("server_compressed_unary", server_compressed_unary),
    ("client_streaming", client_streaming),
    ("client_compressed_streaming", client_compressed_streaming),
    ("server_streaming", server_streaming),
    ("server_compressed_streaming", server_compressed_streaming),
    ("ping_pong", ping_pong),
    ("empty_stream", empty_stream),
    ("custom_metadata", custom_metadata),
    ("status_code_and_message", status_code_and_message),
    ("special_status_message", special_status_message),
    ("unimplemented_method", unimplemented_method),
    ("unimplemented_service", unimplemented_service),
    ("cancel_after_begin", cancel_after_begin),
    ("cancel_after_first_response", cancel_after_first_response),
    ("timeout_on_sleeping_server", timeout_on_sleeping_server),
];

const EMPTY: &str = "/grpc.testing.TestService/EmptyCall";
const UNARY: &str = "/grpc.testing.TestService/UnaryCall";
const STREAMING_INPUT: &str = "/grpc.testing.TestService/StreamingInputCall";
const STREAMING_OUTPUT: &str = "/grpc.testing.TestService/StreamingOutputCall";
const FULL_DUPLEX: &str = "/grpc.testing.TestService/FullDuplexCall";

const TIMEOUT: Duration = Duration::from_secs(20);
const LARGE_REQUEST: usize = 271_828;
const LARGE_RESPONSE: usize = 314_159;
const REQUEST_SIZES: [usize; 4] = [27_182, 8, 1_828, 45_904];
const RESPONSE_SIZES: [usize; 4] = [31_415, 9, 2_653, 58_979];

fn soon() -> CallOptions<'static> {
    CallOptions {
        deadline: Some(Instant::now() + TIMEOUT),
        ..CallOptions::default()
    }
}

fn expect(is_true: bool, what: impl Into<String>) -> Outcome {
    match is_true {
        true => Ok(()),
        false => Err(what.into().into()),
    }
}

fn expect_zeros(response: &[u8], size: usize) -> Outcome {
    let body = payload_body(response)?.ok_or("the answer has no payload")?;
    expect(
        body.len() == size && body.iter().all(|&byte| byte == 0),
        format!("{} bytes came, and not {size} zeros", body.len()),
    )
}

fn expect_status<T>(result: Result<T, CallError>, code: Code) -> Result<Status, Trouble> {
    match result {
        Err(CallError::Status(status)) if status.code() == code => Ok(status),
        Err(error) => Err(format!("expected {code:?}: {error}").into()),
        Ok(_) => Err(format!("expected {code:?}, and it went well").into()),
    }
}

fn empty_unary(channel: &mut Caller) -> Outcome {
    let answer = channel.unary(EMPTY, b"", &soon())?;
    expect(answer.is_empty(), "the answer is not empty")
}

fn large_unary(channel: &mut Caller) -> Outcome {
    let request = simple_request(LARGE_RESPONSE, LARGE_REQUEST);
    let answer = channel.unary(UNARY, &encode(&request), &soon())?;
    expect_zeros(&answer, LARGE_RESPONSE)
}

/// Not one of the public cases: those on compressed requests need a server that looks at the flag,
/// which few do.
fn large_unary_compressed(channel: &mut Caller) -> Outcome {
    let options = CallOptions {
        compress: true,
        ..soon()
    };
    let request = simple_request(LARGE_RESPONSE, LARGE_REQUEST);
    let answer = channel.unary(UNARY, &encode(&request), &options)?;
    expect_zeros(&answer, LARGE_RESPONSE)
}

fn client_compressed_unary(channel: &mut Caller) -> Outcome {
    let request = |compressed| SimpleRequest {
        expect_compressed: boolean(compressed),
        ..simple_request(LARGE_RESPONSE, LARGE_REQUEST)
    };
    // The probe: a server that looks at the flag at all refuses this.
    let probe = channel.unary(UNARY, &encode(&request(true)), &soon());
    expect_status(probe, Code::InvalidArgument)?;
    for compress in [true, false] {
        let options = CallOptions { compress, ..soon() };
        let answer = channel.unary(UNARY, &encode(&request(compress)), &options)?;
        expect_zeros(&answer, LARGE_RESPONSE)?;
    }
    Ok(())
}

fn server_compressed_unary(channel: &mut Caller) -> Outcome {
    for compressed in [true, false] {
        let request = SimpleRequest {
            response_compressed: boolean(compressed),
            ..simple_request(LARGE_RESPONSE, LARGE_REQUEST)
        };
        let answer = channel.unary_with_info(UNARY, &encode(&request), &soon())?;
        expect_zeros(&answer, LARGE_RESPONSE)?;
        let was_compressed = channel.last_call().message_was_compressed;
        expect(
            was_compressed == compressed,
            format!("compressed: {was_compressed}, asked for {compressed}"),
        )?;
    }
    Ok(())
}

/// The next message; the call must not end before it.
fn next(call: &mut CallerStream<'_>) -> Result<Vec<u8>, Trouble> {
    loop {
        match call.poll(TIMEOUT)? {
            StreamStep::Message(message) => return Ok(message),
            StreamStep::Nothing => {}
            StreamStep::Ended => return Err("the call ended before its last message".into()),
        }
    }
}

fn expect_end(call: &mut CallerStream<'_>) -> Outcome {
    loop {
        match call.poll(TIMEOUT)? {
            StreamStep::Message(_) => return Err("a message too many".into()),
            StreamStep::Nothing => {}
            StreamStep::Ended => return Ok(()),
        }
    }
}

fn client_streaming(channel: &mut Caller) -> Outcome {
    let mut call = channel.streaming(STREAMING_INPUT, &soon())?;
    for size in REQUEST_SIZES {
        let request = StreamingInputCallRequest {
            payload: payload(size),
            expect_compressed: None,
        };
        call.send(&encode(&request));
    }
    call.close_send();
    let total = aggregated_size(&next(&mut call)?)?;
    expect(total == 74_922, format!("{total} bytes were counted"))?;
    expect_end(&mut call)
}

fn client_compressed_streaming(channel: &mut Caller) -> Outcome {
    let request = |size, compressed| StreamingInputCallRequest {
        payload: payload(size),
        expect_compressed: boolean(compressed),
    };
    // The probe.
    let mut call = channel.streaming(STREAMING_INPUT, &soon())?;
    call.send(&encode(&request(27_182, true)));
    call.close_send();
    expect_status(call.poll(TIMEOUT), Code::InvalidArgument)?;
    drop(call);

    let options = CallOptions {
        compress: true,
        ..soon()
    };
    let mut call = channel.streaming(STREAMING_INPUT, &options)?;
    call.send(&encode(&request(27_182, true)));
    call.set_compress(false);
    call.send(&encode(&request(45_904, false)));
    call.close_send();
    let total = aggregated_size(&next(&mut call)?)?;
    expect(total == 73_086, format!("{total} bytes were counted"))?;
    expect_end(&mut call)
}

fn server_streaming(channel: &mut Caller) -> Outcome {
    let all = RESPONSE_SIZES.map(|size| wanted(size, None));
    let request = output_request(&all, 0);
    let answers = channel.server_streaming(STREAMING_OUTPUT, &encode(&request), &soon())?;
    expect(answers.len() == 4, format!("{} messages", answers.len()))?;
    let mut pairs = answers.iter().zip(RESPONSE_SIZES);
    pairs.try_for_each(|(answer, size)| expect_zeros(answer, size))
}

fn server_compressed_streaming(channel: &mut Caller) -> Outcome {
    let both = [(31_415, true), (92_653, false)];
    let all = both.map(|(size, compressed)| wanted(size, Some(compressed)));
    let mut call = channel.streaming(STREAMING_OUTPUT, &soon())?;
    call.send(&encode(&output_request(&all, 0)));
    call.close_send();
    for (size, compressed) in both {
        expect_zeros(&next(&mut call)?, size)?;
        let was_compressed = call.message_was_compressed();
        expect(
            was_compressed == compressed,
            format!("compressed: {was_compressed}, asked for {compressed}"),
        )?;
    }
    expect_end(&mut call)
}

fn ping_pong(channel: &mut Caller) -> Outcome {
    let mut call = channel.streaming(FULL_DUPLEX, &soon())?;
    for (request, response) in REQUEST_SIZES.into_iter().zip(RESPONSE_SIZES) {
        let one = [wanted(response, None)];
        call.send(&encode(&output_request(&one, request)));
        expect_zeros(&next(&mut call)?, response)?;
    }
    call.close_send();
    expect_end(&mut call)
}

fn empty_stream(channel: &mut Caller) -> Outcome {
    let mut call = channel.streaming(FULL_DUPLEX, &soon())?;
    call.close_send();
    expect_end(&mut call)
}

const INITIAL: &str = "x-grpc-test-echo-initial";
const TRAILING: &str = "x-grpc-test-echo-trailing-bin";

fn custom_metadata(channel: &mut Caller) -> Outcome {
    let mut metadata = Metadata::new();
    metadata.push_ascii(INITIAL, "test_initial_metadata_value")?;
    metadata.push_binary(TRAILING, [0xab, 0xab, 0xab])?;
    let options = CallOptions {
        metadata: Some(&metadata),
        ..soon()
    };
    let request = simple_request(LARGE_RESPONSE, LARGE_REQUEST);
    channel.unary_with_info(UNARY, &encode(&request), &options)?;
    expect_echo(channel)?;
    let mut call = channel.streaming(FULL_DUPLEX, &options)?;
    let one = [wanted(LARGE_RESPONSE, None)];
    call.send(&encode(&output_request(&one, LARGE_REQUEST)));
    call.close_send();
    next(&mut call)?;
    expect_end(&mut call)?;
    drop(call);
    expect_echo(channel)
}

fn expect_echo(channel: &Caller) -> Outcome {
    let info = channel.last_call();
    let initial = info.initial_metadata.get(INITIAL);
    expect(
        initial == Some(b"test_initial_metadata_value"),
        format!("initial metadata: {initial:?}"),
    )?;
    let trailing = info.trailing_metadata.get(TRAILING);
    expect(
        trailing == Some(&[0xab; 3]),
        format!("trailing metadata: {trailing:?}"),
    )
}

fn status_code_and_message(channel: &mut Caller) -> Outcome {
    const MESSAGE: &str = "test status message";
    let request = SimpleRequest {
        response_status: echo_status(2, MESSAGE),
        ..SimpleRequest::default()
    };
    let unary = expect_status(
        channel.unary(UNARY, &encode(&request), &soon()),
        Code::Unknown,
    )?;
    expect(unary.message() == MESSAGE, unary.message())?;
    let mut call = channel.streaming(FULL_DUPLEX, &soon())?;
    let request = StreamingOutputCallRequest {
        response_status: echo_status(2, MESSAGE),
        ..StreamingOutputCallRequest::default()
    };
    call.send(&encode(&request));
    call.close_send();
    let streamed = expect_status(call.poll(TIMEOUT), Code::Unknown)?;
    expect(streamed.message() == MESSAGE, streamed.message())
}

fn special_status_message(channel: &mut Caller) -> Outcome {
    const MESSAGE: &str =
        "\t\ntest with whitespace\r\nand Unicode BMP \u{263a} and non-BMP \u{1f608}\t\n";
    let request = SimpleRequest {
        response_status: echo_status(2, MESSAGE),
        ..SimpleRequest::default()
    };
    let status = expect_status(
        channel.unary(UNARY, &encode(&request), &soon()),
        Code::Unknown,
    )?;
    expect(status.message() == MESSAGE, status.message())
}

fn unimplemented_method(channel: &mut Caller) -> Outcome {
    let path = "/grpc.testing.TestService/UnimplementedCall";
    expect_status(channel.unary(path, b"", &soon()), Code::Unimplemented).map(drop)
}

fn unimplemented_service(channel: &mut Caller) -> Outcome {
    let path = "/grpc.testing.UnimplementedService/UnimplementedCall";
    expect_status(channel.unary(path, b"", &soon()), Code::Unimplemented).map(drop)
}

/// To give a call up is to drop it here: it has no status then, and the channel must go on.
fn cancel_after_begin(channel: &mut Caller) -> Outcome {
    drop(channel.streaming(STREAMING_INPUT, &soon())?);
    empty_unary(channel)
}

fn cancel_after_first_response(channel: &mut Caller) -> Outcome {
    let mut call = channel.streaming(FULL_DUPLEX, &soon())?;
    let one = [wanted(31_415, None)];
    call.send(&encode(&output_request(&one, 27_182)));
    expect_zeros(&next(&mut call)?, 31_415)?;
    drop(call);
    empty_unary(channel)
}

fn timeout_on_sleeping_server(channel: &mut Caller) -> Outcome {
    let options = CallOptions {
        deadline: Some(Instant::now() + Duration::from_millis(1)),
        ..CallOptions::default()
    };
    let mut call = channel.streaming(FULL_DUPLEX, &options)?;
    call.send(&encode(&output_request(&[], 27_182)));
    loop {
        match call.poll(TIMEOUT) {
            // Either side may see it first.
            Err(CallError::DeadlineExceeded) => break,
            Err(CallError::Status(status)) if status.code() == Code::DeadlineExceeded => break,
            Ok(StreamStep::Nothing) => {}
            other => return Err(format!("expected DEADLINE_EXCEEDED: {other:?}").into()),
        }
    }
    drop(call);
    empty_unary(channel)
}
