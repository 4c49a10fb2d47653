"""What goes for every call: deadlines, cancellation, metadata, compression, many at once."""

import threading
import time

import grpc
import pytest
from pelton.v1 import echo_pb2, kv_pb2_grpc
from pelton.v1 import kv_pb2 as pb
from raw import DATA, END_STREAM, PREFACE, RST_STREAM, SETTINGS, Connection, frame, grpc_message
from server import expect_status, open_channel, wait_until

ECHO = "/pelton.v1.Echo/Unary"


def delayed(milliseconds, payload=b""):
    return echo_pb2.EchoRequest(payload=payload, delay_ms=milliseconds)


def test_echo(echo):
    assert echo.Unary(echo_pb2.EchoRequest(payload=b"ping")).payload == b"ping"
    assert echo.Unary(echo_pb2.EchoRequest(payload=b"ping", answer_bytes=3)).payload == bytes(3)
    requests = [echo_pb2.EchoRequest(payload=b"%d" % n * n) for n in range(200)]
    assert [answer.payload for answer in echo.Stream(iter(requests))] == [
        request.payload for request in requests
    ]


def test_a_deadline_ends_the_call(echo):
    begin = time.monotonic()
    expect_status(
        grpc.StatusCode.DEADLINE_EXCEEDED, lambda: echo.Unary(delayed(30_000), timeout=0.2)
    )
    # Not at the end of the call: that would take another ten.
    assert time.monotonic() - begin < 20
    assert echo.Unary(delayed(50, b"in time"), timeout=10).payload == b"in time"


@pytest.mark.parametrize("timeout", ["100m", "100000u", "1n", "0S", "00000001m"])
def test_the_server_keeps_the_deadline_itself(server, timeout):
    with Connection(server.address) as connection:
        begin = time.monotonic()
        stream = connection.unary(
            ECHO, delayed(30_000).SerializeToString(), ("grpc-timeout", timeout)
        )
        answer = connection.wait(stream)
        assert answer.grpc_status == grpc.StatusCode.DEADLINE_EXCEEDED.value[0]
        assert time.monotonic() - begin < 20


@pytest.mark.parametrize("timeout", ["99999999H", "1H", "60S"])
def test_a_far_deadline_does_not_matter(server, timeout):
    with Connection(server.address) as connection:
        stream = connection.unary(
            ECHO, delayed(20, b"x").SerializeToString(), ("grpc-timeout", timeout)
        )
        assert connection.wait(stream).grpc_status == 0


def test_cancelled_calls_leave_nothing_behind(server, echo):
    for _ in range(20):
        calls = [echo.Unary.future(delayed(60_000)) for _ in range(50)]
        wait_until(lambda: all(call.running() for call in calls))
        for call in calls:
            call.cancel()
        assert all(call.code() == grpc.StatusCode.CANCELLED for call in calls)
    assert (
        echo.Unary(echo_pb2.EchoRequest(payload=b"still here"), timeout=10).payload == b"still here"
    )


def test_a_reset_stream_gets_no_answer(server):
    with Connection(server.address) as connection:
        cancelled = connection.unary(ECHO, delayed(100).SerializeToString())
        connection.send(frame(RST_STREAM, 0, cancelled, (8).to_bytes(4)))
        later = connection.unary(ECHO, delayed(300).SerializeToString())
        assert connection.wait(later).grpc_status == 0
        assert (
            not connection.answers[cancelled].over and connection.answers[cancelled].headers is None
        )


def test_the_head_of_an_answer(server, prefix):
    with Connection(server.address) as connection:
        answer = connection.wait(
            connection.unary(
                "/pelton.v1.KeyValue/Get", pb.GetRequest(key=prefix).SerializeToString()
            )
        )
        assert answer.headers[":status"] == "200" and answer.headers["content-type"].startswith(
            "application/grpc"
        )
        assert answer.body == grpc_message(b"") and answer.grpc_status == 0 and answer.ends == 1


@pytest.mark.parametrize(
    "content_type", ["application/grpc", "application/grpc+proto", "application/grpc;charset=utf-8"]
)
def test_content_types_of_grpc(server, content_type):
    with Connection(server.address) as connection:
        stream = connection.unary("/pelton.v1.KeyValue/Get", b"", content_type=content_type)
        assert connection.wait(stream).grpc_status == 0


def test_a_message_split_at_every_byte(server, kv, prefix):
    kv.Put(pb.PutRequest(key=prefix, value=b"value"))
    message = grpc_message(pb.GetRequest(key=prefix).SerializeToString())
    with Connection(server.address) as connection:
        streams = []
        for cut in range(len(message) + 1):
            stream, head = connection.request("/pelton.v1.KeyValue/Get")
            for piece in [
                head,
                frame(DATA, 0, stream, message[:cut]),
                frame(DATA, END_STREAM, stream, message[cut:]),
            ]:
                connection.send(piece)
            streams.append(stream)
        for stream in streams:
            answer = connection.wait(stream)
            assert (
                answer.grpc_status == 0
                and pb.GetResponse.FromString(answer.body[5:]).value == b"value"
            )


def test_bytes_that_come_one_by_one(server):
    with Connection(server.address, greet=False) as connection:
        stream, head = connection.request(ECHO)
        request = echo_pb2.EchoRequest(payload=b"slow").SerializeToString()
        everything = (
            PREFACE
            + frame(SETTINGS)
            + head
            + frame(DATA, END_STREAM, stream, grpc_message(request))
        )
        for byte in everything:
            connection.send(bytes([byte]))
        answer = connection.wait(stream)
        assert echo_pb2.EchoResponse.FromString(answer.body[5:]).payload == b"slow"


def test_gzip_both_ways(server, prefix):
    value = b"compressible " * 50_000
    with open_channel(server.address) as channel:
        kv = kv_pb2_grpc.KeyValueStub(channel)
        assert kv.Put(
            pb.PutRequest(key=prefix, value=value), compression=grpc.Compression.Gzip
        ).applied
        assert kv.Get(pb.GetRequest(key=prefix), compression=grpc.Compression.Gzip).value == value
        assert kv.Get(pb.GetRequest(key=prefix)).value == value
        found = [
            entry.value
            for page in kv.Scan(pb.ScanRequest(prefix=prefix), compression=grpc.Compression.Gzip)
            for entry in page.entries
        ]
        assert found == [value]


def test_an_unknown_compression_is_refused_with_what_is_known(server):
    with Connection(server.address) as connection:
        stream, head = connection.request(ECHO, ("grpc-encoding", "snappy"))
        connection.send(head + frame(DATA, END_STREAM, stream, grpc_message(b"x", compressed=1)))
        answer = connection.wait(stream)
        assert answer.grpc_status == grpc.StatusCode.UNIMPLEMENTED.value[0]
        assert "gzip" in answer.headers["grpc-accept-encoding"]


def test_broken_gzip_fails_the_call_alone(server):
    with Connection(server.address) as connection:
        stream, head = connection.request(ECHO, ("grpc-encoding", "gzip"))
        connection.send(
            head + frame(DATA, END_STREAM, stream, grpc_message(b"no gzip at all", compressed=1))
        )
        assert connection.wait(stream).grpc_status not in (0, None)
        assert connection.wait(connection.unary(ECHO, b"")).grpc_status == 0


def test_metadata_of_all_kinds_is_taken(echo):
    metadata = [
        ("x-api-key", "token"),
        ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ("x-empty", ""),
        ("x-twice", "1"),
        ("x-twice", "2"),
        ("x-data-bin", bytes(range(256))),
        ("x-symbols", "!#$%&'*+-.^_`|~ (),/:;<=>?@[]{}"),
    ]
    for _ in range(3):
        assert echo.Unary(echo_pb2.EchoRequest(payload=b"m"), metadata=metadata).payload == b"m"


def in_threads(count, work):
    """Runs work(0) … work(count - 1) at the same time, and raises what any of them raised."""
    failures = []

    def run(number):
        try:
            work(number)
        except BaseException as failure:  # noqa: B902 - it is raised again below
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def test_increments_of_many_clients_are_all_counted(server, kv, prefix):
    clients, each = 8, 200

    def work(_):
        with open_channel(server.address) as channel:
            stub = kv_pb2_grpc.KeyValueStub(channel)
            last = 0
            for _ in range(each):
                answer = stub.Increment(pb.IncrementRequest(key=prefix, delta=1))
                assert answer.value > last
                last = answer.value

    in_threads(clients, work)
    assert kv.Increment(pb.IncrementRequest(key=prefix)).value == clients * each


def test_versions_guard_against_lost_updates(server, kv, prefix):
    clients, each = 6, 40
    kv.Put(pb.PutRequest(key=prefix, value=b"0"))

    def work(_):
        with open_channel(server.address) as channel:
            stub = kv_pb2_grpc.KeyValueStub(channel)
            done = 0
            while done < each:
                seen = stub.Get(pb.GetRequest(key=prefix))
                value = b"%d" % (int(seen.value) + 1)
                done += stub.Put(
                    pb.PutRequest(key=prefix, value=value, if_version=seen.version)
                ).applied

    in_threads(clients, work)
    assert int(kv.Get(pb.GetRequest(key=prefix)).value) == clients * each


def test_what_one_connection_was_answered_every_other_sees(server, prefix):
    """Each writes a number and then reads all others' keys: none may be older than what was
    answered before."""
    clients, rounds = 4, 150
    answered = [0] * clients

    def work(me):
        with open_channel(server.address) as channel:
            stub = kv_pb2_grpc.KeyValueStub(channel)
            for round_number in range(1, rounds + 1):
                stub.Put(pb.PutRequest(key=prefix + b"%d" % me, value=b"%d" % round_number))
                answered[me] = round_number
                before = list(answered)
                for other in range(clients):
                    value = stub.Get(pb.GetRequest(key=prefix + b"%d" % other)).value
                    assert int(value or 0) >= before[other]

    in_threads(clients, work)


def test_an_atomic_batch_is_seen_whole(server, kv, prefix):
    keys = [prefix + b"%d" % n for n in range(20)]
    stop = threading.Event()

    def write(value):
        kv.Batch(
            pb.BatchRequest(
                operations=[
                    pb.Operation(put=pb.Operation.Put(key=key, value=b"%d" % value)) for key in keys
                ]
            )
        )

    def work(me):
        with open_channel(server.address) as channel:
            stub = kv_pb2_grpc.KeyValueStub(channel)
            reads = [pb.Operation(get=pb.Operation.Get(key=key)) for key in keys]
            while not stop.is_set():
                values = {
                    result.get.value
                    for result in stub.Batch(pb.BatchRequest(operations=reads)).results
                }
                assert len(values) == 1, values
                scanned = {
                    entry.value
                    for page in stub.Scan(pb.ScanRequest(prefix=prefix))
                    for entry in page.entries
                }
                assert len(scanned) == 1, scanned

    def all_work(me):
        if me > 0:
            return work(me)
        try:
            for value in range(1, 300):
                write(value)
        finally:
            stop.set()

    write(0)
    in_threads(4, all_work)


def test_hundreds_of_calls_on_one_channel(kv, prefix):
    calls = [
        kv.Put.future(pb.PutRequest(key=prefix + b"%d" % n, value=b"%d" % n)) for n in range(1_000)
    ]
    assert all(call.result(timeout=30).applied for call in calls)
    reads = [kv.Get.future(pb.GetRequest(key=prefix + b"%d" % n)) for n in range(1_000)]
    assert [read.result(timeout=30).value for read in reads] == [b"%d" % n for n in range(1_000)]


def test_a_caller_that_does_not_read_holds_up_nobody(server, kv, prefix):
    """A scan of 40 MB that nobody reads; others are served, and the server does not buffer it."""
    for n in range(40):
        kv.Put(pb.PutRequest(key=prefix + b"%d" % n, value=b"v" * 1_000_000))
    before = server.resident_bytes()
    with Connection(server.address) as connection:
        # The windows of 64 KiB stay shut after the first page; the socket's buffer could take more.
        for _ in range(20):
            connection.unary(
                "/pelton.v1.KeyValue/Scan", pb.ScanRequest(prefix=prefix).SerializeToString()
            )
        begin = time.monotonic()
        for _ in range(200):
            kv.Get(pb.GetRequest(key=prefix + b"0", database=""), timeout=10)
        assert time.monotonic() - begin < 60
        assert server.resident_bytes() - before < 200 << 20
    for n in range(40):
        kv.Delete(pb.DeleteRequest(key=prefix + b"%d" % n))
