"""Streams of generated stubs over `pelton_grpc`, compared with grpcio's channel."""

import gc
import itertools
import queue
import threading
import time

import grpc
import pelton_grpc
import pytest
from both import INSECURE, SECONDS, compare, failure, of_call, outcome, pairs
from pelton.v1 import echo_pb2, echo_pb2_grpc, kv_pb2_grpc
from pelton.v1 import kv_pb2 as pb
from server import wait_until

BOTH = pytest.mark.parametrize("insecure_channel", INSECURE.values(), ids=INSECURE)


def echo_of(channel):
    return echo_pb2_grpc.EchoStub(channel)


def requests(count, **fields):
    return (echo_pb2.EchoRequest(payload=b"%d" % number, **fields) for number in range(count))


def test_a_server_streams(server, prefix):
    def case(channel):
        kv = kv_pb2_grpc.KeyValueStub(channel)
        for number in range(50):
            kv.Put(pb.PutRequest(key=prefix + b"%03d" % number, value=bytes(50_000)))
        call = kv.Scan(pb.ScanRequest(prefix=prefix), timeout=SECONDS)
        assert isinstance(call, grpc.Call) and isinstance(call, grpc.Future)
        pages = list(call)
        keys = [entry.key for page in pages for entry in page.entries]
        return len(pages) > 1, keys, of_call(call), outcome(lambda: next(call, "none"))

    assert len(compare(case, server.address)[1]) == 50


def test_both_sides_stream(server):
    def case(channel):
        call = echo_of(channel).Stream(requests(200), timeout=SECONDS)
        return [answer.payload for answer in call], of_call(call)

    assert len(compare(case, server.address)[0]) == 200


def test_a_client_streams(server):
    def case(channel):
        call = channel.stream_unary("/grpc.testing.TestService/StreamingInputCall")
        sent = iter([b"\x0a\x05\x12\x03abc"] * 3)
        response, ended = call.with_call(sent, timeout=SECONDS)
        future = call.future(iter([]), timeout=SECONDS)
        return response, of_call(ended), future.result(SECONDS), of_call(future), call(iter([]))

    assert compare(case, server.address)[0] == b"\x08\x09"


def test_ping_pong(server):
    def case(channel):
        sent, found = queue.Queue(), []
        call = echo_of(channel).Stream(iter(sent.get, None), timeout=SECONDS)
        for number in range(20):
            sent.put(echo_pb2.EchoRequest(payload=b"%d" % number))
            found.append(next(call).payload)
        running = call.is_active(), call.running(), call.done()
        sent.put(None)
        return found, running, list(call), call.code()

    assert compare(case, server.address)[1] == (True, True, False)


def test_a_stream_that_fails(server):
    def case(channel):
        kv = kv_pb2_grpc.KeyValueStub(channel)
        call = kv.Scan(pb.ScanRequest(database="none"), timeout=SECONDS)
        found = [outcome(lambda: next(call)) for _ in range(2)]
        missing = channel.stream_unary("/none.None/None")
        return found, of_call(call), outcome(lambda: missing(iter([b"a"]), timeout=SECONDS))

    assert compare(case, server.address)[1]["code"] is grpc.StatusCode.NOT_FOUND


def test_a_deadline_ends_a_stream(server):
    def case(channel):
        call = echo_of(channel).Stream(requests(3, delay_ms=30_000), timeout=0.2)
        assert 0 <= call.time_remaining() <= 0.2
        return outcome(lambda: list(call), details=False)["code"], call.code()

    assert compare(case, server.address) == (grpc.StatusCode.DEADLINE_EXCEEDED,) * 2


def test_a_stream_that_is_cancelled(server):
    def case(channel):
        never = threading.Event()

        def two():
            yield from requests(2)
            never.wait(SECONDS)

        call = echo_of(channel).Stream(two())
        first = next(call).payload
        cancelled = call.cancel(), call.cancel(), call.cancelled(), call.code(), call.details()
        never.set()
        rest = failure(next_error(call))
        return first, cancelled, rest["code"], rest["details"]

    found = compare(case, server.address)
    assert found[1][3] is grpc.StatusCode.CANCELLED


def next_error(call):
    """What ends an iteration. What came before the call was given up may come first."""
    while True:
        try:
            next(call)
        except grpc.RpcError as error:
            return error


@BOTH
def test_cancelling_wakes_a_thread_that_waits_for_a_message(server, insecure_channel):
    with insecure_channel(server.address) as channel:
        never = threading.Event()
        call = echo_of(channel).Stream(iter(never.wait, True))
        found = []
        waiting = threading.Thread(target=lambda: found.append(outcome(lambda: next(call), False)))
        waiting.start()
        time.sleep(0.2)
        call.cancel()
        waiting.join(SECONDS)
        never.set()
        assert found[0]["code"] is grpc.StatusCode.CANCELLED


def test_an_iterator_that_raises_ends_the_call(server):
    def broken():
        yield from requests(1)
        raise RuntimeError("of an iterator")

    def case(channel):
        call = echo_of(channel).Stream(broken(), timeout=SECONDS)
        error = next_error(call)
        return error.code(), error.details(), call.code()

    found = compare(case, server.address)
    assert found[:2] == (grpc.StatusCode.UNKNOWN, "Exception iterating requests!")


def test_initial_metadata_come_before_the_first_message(server):
    def case(channel):
        call = channel.stream_stream("/grpc.testing.TestService/FullDuplexCall")
        sent = queue.Queue()
        metadata = [("x-grpc-test-echo-initial", "a"), ("x-grpc-test-echo-trailing-bin", b"\0\1")]
        running = call(iter(sent.get, None), metadata=metadata, timeout=SECONDS)
        sent.put(b"\x12\x02\x08\x01")
        initial = pairs(running.initial_metadata())
        sent.put(None)
        return initial, len(list(running)), pairs(running.trailing_metadata())

    assert compare(case, server.address) == (
        [("x-grpc-test-echo-initial", "a")],
        1,
        [("x-grpc-test-echo-trailing-bin", b"\0\1")],
    )


@BOTH
def test_who_drops_a_stream_cancels_it(server, insecure_channel):
    with insecure_channel(server.address) as channel:
        ended = threading.Event()

        def endless():
            try:
                for request in requests(20_000):
                    yield request
                    time.sleep(0.01)
            finally:
                ended.set()

        call = echo_of(channel).Stream(endless())
        next(call)
        del call
        gc.collect()
        assert ended.wait(SECONDS), "nobody takes requests any more"


def test_a_server_that_takes_nothing_holds_up_the_iterator(server):
    with pelton_grpc.insecure_channel(server.address) as channel:
        taken = itertools.count()

        def large():
            for _ in range(1000):
                next(taken)
                yield echo_pb2.EchoRequest(payload=bytes(100_000), delay_ms=30_000)

        call = echo_of(channel).Stream(large())
        last = -1

        def stands():
            nonlocal last
            time.sleep(0.3)
            before, last = last, int(repr(taken)[6:-1])
            return last == before and last > 0

        wait_until(stands, SECONDS)
        assert last < 900
        call.cancel()


@BOTH
def test_callbacks_learn_of_the_end(server, insecure_channel):
    with insecure_channel(server.address) as channel:
        call = echo_of(channel).Stream(requests(3, delay_ms=50), timeout=SECONDS)
        ended = threading.Event()
        call.add_done_callback(lambda of: ended.set() if of is call else None)
        assert [answer.payload for answer in call] == [b"0", b"1", b"2"]
        assert ended.wait(SECONDS) and call.code() is grpc.StatusCode.OK


def test_code_waits_for_the_end_and_not_for_who_takes_the_messages(server):
    with pelton_grpc.insecure_channel(server.address) as channel:
        call = echo_of(channel).Stream(requests(3, delay_ms=50), timeout=SECONDS)
        assert call.code() is grpc.StatusCode.OK
        assert [answer.payload for answer in call] == [b"0", b"1", b"2"]


def test_large_messages_and_many(server):
    def case(channel):
        large = (echo_pb2.EchoRequest(payload=bytes(3_000_000)) for _ in range(5))
        sizes = [len(answer.payload) for answer in echo_of(channel).Stream(large, timeout=SECONDS)]
        many = echo_of(channel).Stream(requests(5000), timeout=2 * SECONDS)
        return sizes, sum(int(answer.payload) for answer in many)

    assert compare(case, server.address) == ([3_000_000] * 5, sum(range(5000)))


def test_a_closed_channel_ends_streams(server):
    def case(channel):
        never = threading.Event()
        call = echo_of(channel).Stream(iter(never.wait, True))
        channel.close()
        found = failure(next_error(call), details=False)["code"]
        never.set()
        return found, outcome(lambda: echo_of(channel).Stream(iter([])))

    found = compare(case, server.address)
    assert found == (grpc.StatusCode.CANCELLED, {"raised": "ValueError"})
