"""Calls to a server of grpcio that sends its head, and the rest when it is let go on."""

import contextlib
import signal
import threading
import time
from concurrent import futures

import grpc
import pytest
from both import INSECURE, SECONDS, compare, failure, outcome, pairs

BOTH = pytest.mark.parametrize("insecure_channel", INSECURE.values(), ids=INSECURE)


class Waiting(grpc.GenericRpcHandler):
    """Sends metadata, and when it is let go on as many answers as its path says."""

    def __init__(self):
        self.begins = threading.Event()
        self.begins.set()
        self.goes_on = threading.Event()

    def service(self, details):
        count = details.method.rpartition("/")[2]
        if not count.isdigit():
            return None

        def answer(requests, context):
            assert self.begins.wait(SECONDS)
            context.send_initial_metadata([("at", "once"), ("at-bin", b"\xff")])
            assert self.goes_on.wait(SECONDS)
            for _ in range(int(count)):
                yield b"answer"

        return grpc.stream_stream_rpc_method_handler(answer)


@pytest.fixture
def waiting():
    handler = Waiting()
    server = grpc.server(futures.ThreadPoolExecutor(16), handlers=[handler])
    handler.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    yield handler
    handler.begins.set()
    handler.goes_on.set()
    server.stop(None).wait(SECONDS)


INITIAL = [("at", "once"), ("at-bin", b"\xff")]


def test_initial_metadata_of_futures_come_before_their_ends(waiting):
    # Those of grpcio's unary futures come with the answer.
    with INSECURE["pelton"](waiting.address) as channel:
        waiting.goes_on.clear()
        unary = channel.unary_unary("/w/1").future(b"", timeout=SECONDS)
        streamed = channel.stream_unary("/w/1").future(iter([b""]), timeout=SECONDS)
        stream = channel.unary_stream("/w/1")(b"", timeout=SECONDS)
        cancelled = channel.unary_unary("/w/1").future(b"", timeout=SECONDS)
        calls = [unary, streamed, stream, cancelled]
        for _ in range(2):
            assert [pairs(call.initial_metadata()) for call in calls] == [INITIAL] * 4
            assert not any(call.done() for call in calls[:3])
            cancelled.cancel()
        waiting.goes_on.set()
        assert [unary.result(), streamed.result(), list(stream)] == [b"answer"] * 2 + [[b"answer"]]
        assert [pairs(call.initial_metadata()) for call in calls] == [INITIAL] * 4


def test_initial_metadata_of_calls_that_end_without_any(waiting):
    def case(channel):
        waiting.goes_on.clear()
        cancelled = channel.unary_unary("/w/1").future(b"", timeout=SECONDS)
        cancelled.cancel()
        missing = channel.unary_unary("/w/none").future(b"", timeout=SECONDS)
        return [bool(call.initial_metadata()) for call in (cancelled, missing)], missing.code()

    assert compare(case, waiting.address) == ([False] * 2, grpc.StatusCode.UNIMPLEMENTED)


@BOTH
def test_initial_metadata_beside_a_thread_that_waits_for_a_message(waiting, insecure_channel):
    with insecure_channel(waiting.address) as channel:
        for _ in range(2):
            waiting.goes_on.clear()
            waiting.begins.clear()
            call = channel.unary_stream("/w/2")(b"", timeout=SECONDS)
            messages = []
            thread = threading.Thread(target=lambda: messages.extend(call))  # noqa: B023
            thread.start()
            threading.Timer(0.3, waiting.begins.set).start()
            time.sleep(0.1)
            assert pairs(call.initial_metadata()) == INITIAL
            waiting.goes_on.set()
            thread.join(SECONDS)
            assert messages == [b"answer"] * 2


@BOTH
def test_initial_metadata_in_a_handler_of_a_signal(waiting, insecure_channel):
    with insecure_channel(waiting.address) as channel:
        waiting.begins.clear()
        call = channel.unary_stream("/w/1")(b"", timeout=SECONDS)
        found = []

        def handler(*_):
            threading.Timer(0.2, waiting.begins.set).start()
            found.append(pairs(call.initial_metadata()))
            waiting.goes_on.set()

        former = signal.signal(signal.SIGALRM, handler)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            assert list(call) == [b"answer"]
        finally:
            signal.signal(signal.SIGALRM, former)
        assert found == [INITIAL]


@pytest.mark.parametrize("raises", [True, False])
def test_a_deserializer_that_fails_ends_a_call_that_streams_to_the_server(waiting, raises):
    def broken(_):
        if raises:
            raise RuntimeError("of a deserializer")

    def case(channel):
        waiting.goes_on.set()
        method = channel.stream_unary("/w/1", response_deserializer=broken)
        call = method.future(iter([b""]), timeout=SECONDS)
        found = [failure(call.exception(SECONDS))["code"], outcome(call.result)["code"]]
        found += [call.code(), call.details(), call.done(), call.cancelled()]
        return found, outcome(lambda: method(iter([b""]), timeout=SECONDS))["details"]

    found, details = compare(case, waiting.address)
    assert found[0] is grpc.StatusCode.INTERNAL and details == "Exception deserializing response!"


@pytest.mark.parametrize("count", [0, 2, 1000])
def test_a_call_that_streams_to_the_server_has_one_answer_or_fails(waiting, count):
    waiting.goes_on.set()
    with INSECURE["pelton"](waiting.address) as channel:
        method = channel.stream_unary(f"/w/{count}")
        call = method.future(iter([b""]), timeout=SECONDS)
        assert call.code() is grpc.StatusCode.INTERNAL
        assert outcome(call.result)["code"] is grpc.StatusCode.INTERNAL
        found = outcome(lambda: method(iter([b""]), timeout=SECONDS))
        assert found["code"] is grpc.StatusCode.INTERNAL


@BOTH
def test_callbacks_of_two_channels_may_wait_for_each_other(waiting, insecure_channel):
    with contextlib.ExitStack() as stack:
        ended = [threading.Event(), threading.Event()]
        waited = []

        def wait(_):
            waited.append(ended[1].wait(SECONDS))
            ended[0].set()

        def happen(_):
            ended[1].set()

        waiting.goes_on.clear()
        for callback in (wait, happen):
            channel = stack.enter_context(insecure_channel(waiting.address))
            call = channel.unary_unary("/w/1").future(b"", timeout=SECONDS)
            call.add_done_callback(callback)
        waiting.goes_on.set()
        assert ended[0].wait(SECONDS) and waited == [True]


def test_a_callback_may_wait_for_the_result_of_another_call(waiting):
    with INSECURE["pelton"](waiting.address) as channel:
        waiting.goes_on.clear()
        calls = [channel.unary_unary("/w/1").future(b"", timeout=SECONDS) for _ in range(2)]
        found, ended = [], threading.Event()

        def wait(_):
            found.append(calls[1].result(SECONDS))
            ended.set()

        calls[0].add_done_callback(wait)
        waiting.goes_on.set()
        assert ended.wait(SECONDS) and found == [b"answer"]
