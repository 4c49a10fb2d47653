"""What else a channel has: interceptors, its state, and moments in which others would hang."""

import gc
import os
import threading
import time

import grpc
import pelton_grpc
import pytest
from both import INSECURE, SECONDS, compare, failure, outcome
from pelton.v1 import echo_pb2, echo_pb2_grpc
from server import Server, wait_until

BOTH = pytest.mark.parametrize("insecure_channel", INSECURE.values(), ids=INSECURE)
ECHO = "/pelton.v1.Echo/Unary"


class Interceptor(
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamUnaryClientInterceptor,
    grpc.StreamStreamClientInterceptor,
):
    """Notes what it sees, and lets it pass."""

    def __init__(self):
        self.seen = []

    def intercept(self, continuation, details, request):
        call = continuation(details, request)
        self.seen.append((details.method, isinstance(call, grpc.Call)))
        return call

    intercept_unary_unary = intercept
    intercept_unary_stream = intercept
    intercept_stream_unary = intercept
    intercept_stream_stream = intercept


def test_interceptors(server):
    def case(channel):
        interceptor = Interceptor()
        intercepted = grpc.intercept_channel(channel, interceptor)
        echo = echo_pb2_grpc.EchoStub(intercepted)
        request = echo_pb2.EchoRequest(payload=b"a")
        found = [
            echo.Unary(request, timeout=SECONDS).payload,
            echo.Unary.with_call(request, timeout=SECONDS)[1].code(),
            echo.Unary.future(request, timeout=SECONDS).result(SECONDS).payload,
            [answer.payload for answer in echo.Stream(iter([request]), timeout=SECONDS)],
            intercepted.stream_unary("/grpc.testing.TestService/StreamingInputCall")(iter([])),
            list(intercepted.unary_stream("/grpc.testing.TestService/StreamingOutputCall")(b"")),
        ]
        missing = intercepted.unary_unary("/none.None/None")
        failed = outcome(lambda: missing(b"", timeout=SECONDS))
        future = missing.future(b"", timeout=SECONDS).exception(SECONDS)
        return found, failed, failure(future), interceptor.seen

    found = compare(case, server.address)
    assert found[1]["code"] is grpc.StatusCode.UNIMPLEMENTED and len(found[3]) == 8


@BOTH
def test_a_channel_becomes_ready(server, insecure_channel):
    with insecure_channel(server.address) as channel:
        states = []
        channel.subscribe(states.append, try_to_connect=False)
        wait_until(lambda: states == [grpc.ChannelConnectivity.IDLE], SECONDS)
        for _ in range(2):
            grpc.channel_ready_future(channel).result(SECONDS)
        wait_until(lambda: states[-1] is grpc.ChannelConnectivity.READY, SECONDS)
        channel.unsubscribe(states.append)


@BOTH
def test_a_channel_without_a_server_is_in_transient_failure(insecure_channel):
    with insecure_channel("127.0.0.1:1") as channel:
        states = []
        channel.subscribe(states.append, try_to_connect=True)
        wait_until(lambda: grpc.ChannelConnectivity.TRANSIENT_FAILURE in states, SECONDS)
        ready = grpc.channel_ready_future(channel)
        with pytest.raises(grpc.FutureTimeoutError):
            ready.result(0.1)
        ready.cancel()


@BOTH
def test_a_server_that_dies_and_comes_back(binary, insecure_channel):
    with Server(binary, "--threads", "1") as server:
        address = server.address
        channel = insecure_channel(address)
        unary = echo_pb2_grpc.EchoStub(channel).Unary
        unary(echo_pb2.EchoRequest(), timeout=SECONDS)
        running = unary.future(echo_pb2.EchoRequest(delay_ms=30_000))
        stream = echo_pb2_grpc.EchoStub(channel).Stream(iter([]), wait_for_ready=True)
        time.sleep(0.2)
        server.process.kill()
        assert running.exception(SECONDS).code() is grpc.StatusCode.UNAVAILABLE
        del stream
    found = outcome(lambda: unary(echo_pb2.EchoRequest(), timeout=SECONDS), details=False)
    assert found["code"] is grpc.StatusCode.UNAVAILABLE
    with Server(binary, "--threads", "1", listen=[address]):
        unary(echo_pb2.EchoRequest(), timeout=SECONDS, wait_for_ready=True)
    channel.close()


def test_a_channel_that_is_dropped_calls_nobody_back_and_its_stubs_go_on(server):
    channel = pelton_grpc.insecure_channel(server.address)
    channel.subscribe(lambda _: None, try_to_connect=True)
    call = channel.unary_unary(ECHO)
    del channel
    gc.collect()
    assert call(b"", timeout=SECONDS) == b""
    names = lambda: [thread.name for thread in threading.enumerate()]  # noqa: E731
    wait_until(lambda: "pelton-grpc-state" not in names(), SECONDS, names)


def test_without_wait_for_ready_a_call_waits_for_the_first_attempt_only(server):
    with pelton_grpc.insecure_channel(server.address) as channel:
        assert channel.unary_unary(ECHO)(b"", wait_for_ready=False, timeout=SECONDS) == b""


def test_many_channels(server):
    threads = threading.active_count()
    for _ in range(2):
        channels = [pelton_grpc.insecure_channel(server.address) for _ in range(300)]
        calls = [channel.unary_unary(ECHO).future(b"", timeout=SECONDS) for channel in channels]
        assert [call.result(SECONDS) for call in calls] == [b""] * len(calls)
        for channel in channels:
            channel.close()
    wait_until(lambda: descriptors() < 100, SECONDS, lambda: f"{descriptors()} descriptors")
    wait_until(lambda: threading.active_count() <= threads, SECONDS, threading.enumerate)


def descriptors():
    return len(os.listdir("/proc/self/fd"))
