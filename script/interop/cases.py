"""The interoperability cases with grpcio. Each function is the case of its name in the public
description."""

import concurrent.futures
import importlib
import os
import queue
import sys
import time

import grpc

import support
from support import SECONDS_MAX, SERVICE, expect, expect_equal


def channels():
    """The module whose channels are used: PELTON_CHANNEL, or grpcio."""
    return importlib.import_module(os.environ.get("PELTON_CHANNEL", "grpc"))


MESSAGES = support.Messages()
CHANNEL = channels().insecure_channel(sys.argv[1])


def serialize(message):
    return message.SerializeToString()


def method(kind, name, answer, service=SERVICE):
    return getattr(CHANNEL, kind)(
        service + name, request_serializer=serialize, response_deserializer=answer.FromString
    )


EMPTY_CALL = method("unary_unary", "EmptyCall", MESSAGES.Empty)
UNARY_CALL = method("unary_unary", "UnaryCall", MESSAGES.SimpleResponse)
CACHEABLE_UNARY_CALL = method("unary_unary", "CacheableUnaryCall", MESSAGES.SimpleResponse)
STREAMING_INPUT_CALL = method(
    "stream_unary", "StreamingInputCall", MESSAGES.StreamingInputCallResponse
)
STREAMING_OUTPUT_CALL = method(
    "unary_stream", "StreamingOutputCall", MESSAGES.StreamingOutputCallResponse
)
FULL_DUPLEX_CALL = method("stream_stream", "FullDuplexCall", MESSAGES.StreamingOutputCallResponse)
HALF_DUPLEX_CALL = method("stream_stream", "HalfDuplexCall", MESSAGES.StreamingOutputCallResponse)

SIZES = (31415, 9, 2653, 58979)
PAYLOAD_SIZES = (27182, 8, 1828, 45904)


class Requests:
    """Requests of a stream, sent one by one."""

    def __init__(self):
        self.waiting = queue.Queue()

    def send(self, request):
        self.waiting.put(request)

    def end(self):
        self.waiting.put(None)

    def __iter__(self):
        return self

    def __next__(self):
        request = self.waiting.get()
        if request is None:
            raise StopIteration
        return request


def sizes_of(responses):
    return tuple(len(response.payload.body) for response in responses)


def status_of(call):
    """The code and message that a call fails with."""
    try:
        call()
    except grpc.RpcError as error:
        return error.code(), error.details()
    return grpc.StatusCode.OK, ""


def empty_unary():
    expect_equal(EMPTY_CALL(MESSAGES.Empty(), timeout=SECONDS_MAX), MESSAGES.Empty(), "answer")


def large_unary():
    expected = MESSAGES.SimpleResponse(payload=MESSAGES.payload(314159))
    expect_equal(
        UNARY_CALL(MESSAGES.large(), timeout=SECONDS_MAX) == expected,
        True,
        "answer is as asked for",
    )


def cacheable_unary():
    # Without a caching proxy in between, what can be seen is that both calls work, differ, and may
    # be cached.
    request = MESSAGES.SimpleRequest(payload=MESSAGES.Payload(body=str(time.time_ns()).encode()))
    metadata = (("x-user-ip", "1.2.3.4"),)
    bodies = set()
    for _ in range(2):
        response, call = CACHEABLE_UNARY_CALL.with_call(
            request, metadata=metadata, timeout=SECONDS_MAX
        )
        expect(
            "max-age=60" in dict(call.initial_metadata())["cache-control"],
            "cache-control says 60 seconds",
        )
        bodies.add(response.payload.body)
    expect_equal(len(bodies), 2, "different answers")


def client_compressed_unary():
    expecting = MESSAGES.large(expect_compressed=MESSAGES.BoolValue(value=True))
    code, _ = status_of(lambda: UNARY_CALL(expecting, timeout=SECONDS_MAX))
    expect_equal(code, grpc.StatusCode.INVALID_ARGUMENT, "status of the probe")
    response = UNARY_CALL(expecting, timeout=SECONDS_MAX, compression=grpc.Compression.Gzip)
    expect_equal(len(response.payload.body), 314159, "size of the answer")
    response = UNARY_CALL(
        MESSAGES.large(expect_compressed=MESSAGES.BoolValue(value=False)), timeout=SECONDS_MAX
    )
    expect_equal(len(response.payload.body), 314159, "size of the answer")


def server_compressed_unary():
    for compressed in (True, False):
        request = MESSAGES.large(response_compressed=MESSAGES.BoolValue(value=compressed))
        response = UNARY_CALL(request, timeout=SECONDS_MAX)
        expect_equal(response.payload.body == bytes(314159), True, "zeros come back")


def client_streaming():
    requests = (
        MESSAGES.StreamingInputCallRequest(payload=MESSAGES.payload(size)) for size in PAYLOAD_SIZES
    )
    response = STREAMING_INPUT_CALL(requests, timeout=SECONDS_MAX)
    expect_equal(response.aggregated_payload_size, 74922, "sum")


def server_streaming():
    responses = STREAMING_OUTPUT_CALL(MESSAGES.wanted(*SIZES), timeout=SECONDS_MAX)
    expect_equal(sizes_of(responses), SIZES, "sizes of the answers")


def server_compressed_streaming():
    request = MESSAGES.StreamingOutputCallRequest(
        response_parameters=[
            MESSAGES.ResponseParameters(size=31415, compressed=MESSAGES.BoolValue(value=True)),
            MESSAGES.ResponseParameters(size=92653, compressed=MESSAGES.BoolValue(value=False)),
        ]
    )
    responses = STREAMING_OUTPUT_CALL(request, timeout=SECONDS_MAX)
    expect_equal(sizes_of(responses), (31415, 92653), "sizes of the answers")


def intervals_are_kept():
    # The public description has this as a feature of servers, without a case of its own.
    parameters = [MESSAGES.ResponseParameters(size=1, interval_us=50_000) for _ in range(4)]
    begin = time.monotonic()
    request = MESSAGES.StreamingOutputCallRequest(response_parameters=parameters)
    responses = STREAMING_OUTPUT_CALL(request, timeout=SECONDS_MAX)
    expect_equal(sizes_of(responses), (1, 1, 1, 1), "sizes of the answers")
    expect(time.monotonic() - begin >= 0.2, "four pauses of 50 ms take at least 200 ms")


def ping_pong():
    requests = Requests()
    responses = FULL_DUPLEX_CALL(requests, timeout=SECONDS_MAX)
    for size, payload_size in zip(SIZES, PAYLOAD_SIZES):
        requests.send(MESSAGES.wanted(size, payload=MESSAGES.payload(payload_size)))
        expect_equal(len(next(responses).payload.body), size, "size of the answer")
    requests.end()
    expect_equal(list(responses), [], "further answers")


def half_duplex():
    # Not a case of the public description, but a method of its service.
    requests = [MESSAGES.wanted(size) for size in SIZES]
    expect_equal(
        sizes_of(HALF_DUPLEX_CALL(iter(requests), timeout=SECONDS_MAX)),
        SIZES,
        "sizes of the answers",
    )


def empty_stream():
    expect_equal(list(FULL_DUPLEX_CALL(iter(()), timeout=SECONDS_MAX)), [], "answers")


def custom_metadata():
    initial = ("x-grpc-test-echo-initial", "test_initial_metadata_value")
    trailing = ("x-grpc-test-echo-trailing-bin", b"\xab\xab\xab")
    stream = FULL_DUPLEX_CALL(
        iter([MESSAGES.wanted(314159, payload=MESSAGES.payload(271828))]),
        metadata=(initial, trailing),
        timeout=SECONDS_MAX,
    )
    expect_equal(sizes_of(stream), (314159,), "sizes of the answers")
    _, unary = UNARY_CALL.with_call(
        MESSAGES.large(), metadata=(initial, trailing), timeout=SECONDS_MAX
    )
    for call in (unary, stream):
        expect(
            initial in [tuple(pair) for pair in call.initial_metadata()],
            "echo in the initial metadata",
        )
        expect(
            trailing in [tuple(pair) for pair in call.trailing_metadata()],
            "echo in the trailing metadata",
        )


def check_status(message):
    status = MESSAGES.EchoStatus(code=2, message=message)
    expected = (grpc.StatusCode.UNKNOWN, message)
    unary = MESSAGES.SimpleRequest(response_status=status)
    expect_equal(
        status_of(lambda: UNARY_CALL(unary, timeout=SECONDS_MAX)),
        expected,
        "status of the unary call",
    )
    streamed = iter([MESSAGES.StreamingOutputCallRequest(response_status=status)])
    found = status_of(lambda: list(FULL_DUPLEX_CALL(streamed, timeout=SECONDS_MAX)))
    expect_equal(found, expected, "status of the stream")


def status_code_and_message():
    check_status("test status message")


def special_status_message():
    check_status("\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈\t\n")


def unimplemented(service):
    call = method("unary_unary", "UnimplementedCall", MESSAGES.Empty, service)
    code, _ = status_of(lambda: call(MESSAGES.Empty(), timeout=SECONDS_MAX))
    expect_equal(code, grpc.StatusCode.UNIMPLEMENTED, "status")


def unimplemented_method():
    unimplemented(SERVICE)


def unimplemented_service():
    unimplemented("/grpc.testing.UnimplementedService/")


def cancel_after_begin():
    requests = Requests()
    call = STREAMING_INPUT_CALL.future(requests, timeout=SECONDS_MAX)
    call.cancel()
    requests.end()
    expect(call.cancelled(), "the call is cancelled")
    expect_equal(call.code(), grpc.StatusCode.CANCELLED, "status")


def cancel_after_first_response():
    requests = Requests()
    responses = FULL_DUPLEX_CALL(requests, timeout=SECONDS_MAX)
    requests.send(MESSAGES.wanted(31415, payload=MESSAGES.payload(27182)))
    expect_equal(len(next(responses).payload.body), 31415, "size of the answer")
    responses.cancel()
    requests.end()
    expect_equal(status_of(lambda: next(responses))[0], grpc.StatusCode.CANCELLED, "status")


def timeout_on_sleeping_server():
    requests = Requests()
    requests.send(MESSAGES.wanted(payload=MESSAGES.payload(27182)))
    responses = FULL_DUPLEX_CALL(requests, timeout=0.001)
    code, _ = status_of(lambda: next(responses))
    requests.end()
    expect_equal(code, grpc.StatusCode.DEADLINE_EXCEEDED, "status")


def concurrent_large_unary():
    with concurrent.futures.ThreadPoolExecutor(1) as checker:
        calls = [UNARY_CALL.future(MESSAGES.large(), timeout=2 * SECONDS_MAX) for _ in range(1000)]
        sizes = checker.map(lambda call: len(call.result().payload.body), calls)
        expect_equal(set(sizes), {314159}, "sizes of the answers")


# Of what the arguments name, which are other cases too, those that are here; else all.
NAMED = sys.argv[2:]
CASES = [
    empty_unary,
    cacheable_unary,
    large_unary,
    client_compressed_unary,
    server_compressed_unary,
    client_streaming,
    server_streaming,
    server_compressed_streaming,
    intervals_are_kept,
    ping_pong,
    half_duplex,
    empty_stream,
    custom_metadata,
    status_code_and_message,
    special_status_message,
    unimplemented_method,
    unimplemented_service,
    cancel_after_begin,
    cancel_after_first_response,
    timeout_on_sleeping_server,
    concurrent_large_unary,
]

grpc.channel_ready_future(CHANNEL).result(timeout=SECONDS_MAX)
support.run(
    channels().__name__, [case for case in CASES if not NAMED or case.__name__ in NAMED]
)
