"""Ydb.Debug.V1.DebugService, as the YDB project's ping benchmark calls it."""

import time
from concurrent import futures

import grpc
import pytest
from compat import ydb_ping_pb2 as pb
from compat import ydb_ping_pb2_grpc
from server import expect_status, open_channel


@pytest.fixture
def stub(channel):
    return ydb_ping_pb2_grpc.DebugServiceStub(channel)


def now_us():
    return time.time_ns() // 1_000


def test_a_plain_ping_is_answered_with_nothing(channel, stub):
    assert stub.PingPlainGrpc(pb.PlainGrpcRequest(), timeout=30) == pb.PlainGrpcResponse()
    raw = channel.unary_unary("/Ydb.Debug.V1.DebugService/PingPlainGrpc")
    assert raw(b"") == b""


def test_a_stream_tells_the_time_of_each_answer(stub):
    begin_us = now_us()
    times = [answer.CallBackTs for answer in stub.PingStream(iter([pb.PlainGrpcRequest()] * 100))]
    assert len(times) == 100
    assert times == sorted(times)
    # The clock is read in microseconds, and it is that of this machine.
    assert begin_us - 1_000 <= times[0] <= times[-1] <= now_us() + 1_000
    assert len({at % 1_000 for at in times}) > 1


def ping_pong(stub, count):
    """Sends a ping when the one before was answered."""
    answers = []

    def requests():
        for number in range(count):
            while len(answers) < number:
                time.sleep(0)
            yield pb.PlainGrpcRequest()

    for answer in stub.PingStream(requests()):
        answers.append(answer.CallBackTs)
    return answers


def test_write_then_read_on_one_stream(stub):
    answers = ping_pong(stub, 50)
    assert len(answers) == 50 and all(answers)


def test_streams_and_calls_at_once(server):
    def work(number):
        with open_channel(server.address) as channel:
            stub = ydb_ping_pb2_grpc.DebugServiceStub(channel)
            if number % 2:
                return all(
                    stub.PingPlainGrpc(pb.PlainGrpcRequest(), timeout=10).CallBackTs == 0
                    for _ in range(100)
                )
            return len(ping_pong(stub, 100)) == 100

    with futures.ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))


def test_a_stream_without_a_ping_ends_well(stub):
    call = stub.PingStream(iter([]))
    assert list(call) == []
    assert call.code() == grpc.StatusCode.OK


def test_a_stream_may_be_left(stub):
    call = stub.PingStream(iter([pb.PlainGrpcRequest()] * 3))
    next(call)
    call.cancel()
    with pytest.raises(grpc.RpcError):
        for _ in call:
            pass
    assert stub.PingPlainGrpc(pb.PlainGrpcRequest(), timeout=30) == pb.PlainGrpcResponse()


def test_what_is_no_ping(channel):
    plain = channel.unary_unary("/Ydb.Debug.V1.DebugService/PingPlainGrpc")
    expect_status(grpc.StatusCode.INVALID_ARGUMENT, lambda: plain(b"\x0a\x05"), "PlainGrpcRequest")
    stream = channel.stream_stream("/Ydb.Debug.V1.DebugService/PingStream")
    expect_status(
        grpc.StatusCode.INVALID_ARGUMENT,
        lambda: list(stream(iter([b"", b"\x0a\x05"]))),
        "PlainGrpcRequest",
    )
    other = channel.unary_unary("/Ydb.Debug.V1.DebugService/PingGrpcProxy")
    expect_status(grpc.StatusCode.UNIMPLEMENTED, lambda: other(b""))
