"""Unary calls of generated stubs over `pelton_grpc`, compared with grpcio's channel."""

import socket
import threading
import time

import grpc
import pelton_grpc
import pytest
from both import INSECURE, SECONDS, compare, failure, of_call, outcome
from grpc_health.v1 import health_pb2, health_pb2_grpc
from pelton.v1 import echo_pb2, echo_pb2_grpc, kv_pb2_grpc
from pelton.v1 import kv_pb2 as pb
from server import Server

ECHO = "/pelton.v1.Echo/Unary"
BOTH = pytest.mark.parametrize("insecure_channel", INSECURE.values(), ids=INSECURE)


def echo_of(channel):
    return echo_pb2_grpc.EchoStub(channel)


def test_stubs_call_and_get_their_messages(server, prefix):
    def case(channel):
        kv = kv_pb2_grpc.KeyValueStub(channel)
        kv.Delete(pb.DeleteRequest(key=prefix))
        put = kv.Put(pb.PutRequest(key=prefix, value=b"v"), timeout=SECONDS)
        got = kv.Get(pb.GetRequest(key=prefix), timeout=SECONDS)
        return put.applied, got.found, got.value, kv.Get(pb.GetRequest(key=b"\0none")).found

    assert compare(case, server.address) == (True, True, b"v", False)


def test_health(server):
    def case(channel):
        stub = health_pb2_grpc.HealthStub(channel)
        known = stub.Check(health_pb2.HealthCheckRequest(), timeout=SECONDS).status
        unknown = health_pb2.HealthCheckRequest(service="none")
        return known, outcome(lambda: stub.Check(unknown, timeout=SECONDS))

    known, unknown = compare(case, server.address)
    assert known == health_pb2.HealthCheckResponse.SERVING
    assert unknown["code"] == grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize("size", [0, 1, 100, 70_000, 4_000_000])
def test_messages_of_all_sizes(server, size):
    def case(channel):
        request = echo_pb2.EchoRequest(payload=bytes(size))
        return echo_of(channel).Unary(request, timeout=SECONDS).payload == bytes(size)

    assert compare(case, server.address)


def test_a_call_without_serializers_takes_and_returns_bytes(server):
    def case(channel):
        call = channel.unary_unary(ECHO)
        return outcome(lambda: call(b"\x0a\x02ab")), outcome(lambda: call("text"))

    found, wrong = compare(case, server.address)
    assert found == {"returned": b"\x0a\x02ab"} and "raised" in wrong


def test_with_call_returns_what_came_with_the_answer(server):
    def case(channel):
        request = echo_pb2.EchoRequest(payload=b"a")
        response, call = echo_of(channel).Unary.with_call(request, timeout=SECONDS)
        return response.payload, of_call(call)

    assert compare(case, server.address)[1]["code"] is grpc.StatusCode.OK


def test_a_failed_call_has_the_status_of_the_server(server):
    def case(channel):
        kv = kv_pb2_grpc.KeyValueStub(channel)
        request = pb.GetRequest(database="none", key=b"k")
        unknown = outcome(lambda: kv.Get(request, timeout=SECONDS))
        missing = channel.unary_unary("/none.None/None")
        return unknown, outcome(lambda: missing(b"", timeout=SECONDS))

    unknown, missing = compare(case, server.address)
    assert unknown["code"] == grpc.StatusCode.NOT_FOUND
    assert missing["code"] == grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize("timeout", [0.1, 0, -1, float("nan")])
def test_a_deadline_ends_the_call(server, timeout):
    def case(channel):
        request = echo_pb2.EchoRequest(delay_ms=30_000)
        begun = time.monotonic()
        found = outcome(lambda: echo_of(channel).Unary(request, timeout=timeout), details=False)
        assert time.monotonic() - begun < 20
        return found["code"]

    assert compare(case, server.address) is grpc.StatusCode.DEADLINE_EXCEEDED


@pytest.mark.parametrize(
    "metadata",
    [
        [("Upper", "a")],
        [("a", "line\nbreak")],
        [("a b", "c")],
        [("a", "ä")],
        [["a", "ä"]],
        [("UPPER-bin", b"a")],
        [("a", b"\xff")],
        [("a", b"a\nb")],
        [("a\n", "b")],
        [("", "b")],
        [(":path", "b")],
        ["aä"],
    ],
)
def test_metadata_that_cannot_be_sent_end_the_call(server, metadata):
    def case(channel):
        call = channel.unary_unary(ECHO)
        blocking = outcome(lambda: call(b"", metadata=metadata), details=False)
        future = call.future(b"", metadata=metadata)
        return blocking["code"], future.code()

    internal = grpc.StatusCode.INTERNAL
    assert compare(case, server.address) == (internal, internal)


@pytest.mark.parametrize(
    "metadata",
    [
        [(1, "a")],
        [("a", 1)],
        [("a", "b", "c")],
        [("a",)],
        [5],
        ["abc"],
        [("a-bin", "text")],
        [("a", "\ud800")],
        [("a", bytearray(b"b"))],
        5,
    ],
)
def test_metadata_that_are_no_pairs_of_text_raise(server, metadata):
    def case(channel):
        return outcome(lambda: channel.unary_unary(ECHO)(b"", metadata=metadata))["raised"]

    expected = ("TypeError", "ValueError", "UnicodeEncodeError")
    assert compare(case, server.address) in expected


@pytest.mark.parametrize("pair", [("a", "b"), ["a", "b"], "ab", {"a": 1, "b": 2}, (b"a", b"b")])
def test_pairs_of_metadata_are_whatever_has_two_parts(server, pair):
    def case(channel):
        call = channel.unary_unary("/grpc.testing.TestService/EmptyCall")
        return outcome(lambda: call(b"", metadata=[pair], timeout=SECONDS))

    assert compare(case, server.address) == {"returned": b""}


@BOTH
def test_a_call_that_has_failed_before_its_channel_is_closed_keeps_its_status(
    binary, insecure_channel
):
    with Server(binary, "--threads", "1") as server:
        channel = insecure_channel(server.address)
        slow = echo_pb2.EchoRequest(delay_ms=30_000)
        unary = echo_of(channel).Unary.future(slow)
        stream = echo_of(channel).Stream(iter([slow]))
        time.sleep(0.3)
        server.process.kill()
        server.process.wait()
        time.sleep(0.3)
        channel.close()
        assert unary.code() is grpc.StatusCode.UNAVAILABLE
        assert stream.code() is grpc.StatusCode.UNAVAILABLE


def test_a_future(server):
    def case(channel):
        call = echo_of(channel).Unary.future(echo_pb2.EchoRequest(payload=b"a"), timeout=SECONDS)
        ended = threading.Event()
        call.add_done_callback(lambda of: ended.set() if of is call else None)
        assert isinstance(call, grpc.Future) and isinstance(call, grpc.Call)
        payload = call.result(SECONDS).payload
        assert ended.wait(SECONDS)
        late = threading.Event()
        call.add_done_callback(lambda _: late.set())
        assert late.is_set(), "it has ended: at once"
        found = call.done(), call.running(), call.cancelled(), call.cancel(), call.exception()
        return payload, found, call.add_callback(print), of_call(call)

    assert compare(case, server.address)[0] == b"a"


def test_a_future_that_fails(server):
    def case(channel):
        call = channel.unary_unary("/none.None/None").future(b"", timeout=SECONDS)
        error = call.exception(SECONDS)
        found = outcome(call.result), failure(error), call.traceback() is not None
        return found, call.cancelled(), of_call(call)

    assert compare(case, server.address)[2]["code"] is grpc.StatusCode.UNIMPLEMENTED


def test_a_future_that_is_cancelled(server):
    def case(channel):
        call = echo_of(channel).Unary.future(echo_pb2.EchoRequest(delay_ms=30_000))
        try:
            call.result(0.01)
        except grpc.FutureTimeoutError:
            pass
        running = call.running(), call.done(), call.is_active()
        cancelled = call.cancel(), call.cancel()
        try:
            call.result(SECONDS)
        except grpc.FutureCancelledError:
            return running, cancelled, call.cancelled(), call.done(), call.code(), call.details()

    found = compare(case, server.address)
    assert found == (
        (True, False, True),
        (True, False),
        True,
        True,
        grpc.StatusCode.CANCELLED,
        "Locally cancelled by application!",
    )


def test_callbacks_of_many_calls_all_run_and_what_they_raise_stops_none(server):
    with pelton_grpc.insecure_channel(server.address) as channel:
        ended = threading.Semaphore(0)

        own = threading.current_thread()

        def done(call):
            ended.release()
            # What runs at once raises where it is given.
            if threading.current_thread() is not own:
                raise RuntimeError("of a callback")

        calls = [
            echo_of(channel).Unary.future(echo_pb2.EchoRequest(payload=b"%d" % number))
            for number in range(300)
        ]
        for call in calls:
            call.add_done_callback(done)
        for number, call in enumerate(calls):
            assert call.result(SECONDS).payload == b"%d" % number
            assert ended.acquire(timeout=SECONDS)


def test_callbacks_of_many_threads_on_a_new_channel_all_run(server):
    for _ in range(50):
        with pelton_grpc.insecure_channel(server.address) as channel:
            ended, begin = threading.Semaphore(0), threading.Barrier(8)

            def run(unary=echo_of(channel).Unary, ended=ended, begin=begin):
                call = unary.future(echo_pb2.EchoRequest(delay_ms=5), timeout=SECONDS)
                begin.wait(SECONDS)
                call.add_done_callback(lambda _: ended.release())

            threads = [threading.Thread(target=run) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
                assert ended.acquire(timeout=SECONDS)


def test_many_threads(server):
    with pelton_grpc.insecure_channel(server.address) as channel:
        unary, wrong = echo_of(channel).Unary, []

        def run(thread):
            for number in range(100):
                payload = b"%d/%d" % (thread, number)
                answer = unary(echo_pb2.EchoRequest(payload=payload), timeout=SECONDS)
                if answer.payload != payload:
                    wrong.append((payload, answer.payload))

        threads = [threading.Thread(target=run, args=(number,)) for number in range(32)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong


def test_what_serializers_raise(server):
    def broken(_):
        raise RuntimeError("of a serializer")

    def case(channel):
        unsent = channel.unary_unary(ECHO, request_serializer=broken)
        unread = channel.unary_unary(ECHO, response_deserializer=broken)
        future = unread.future(b"", timeout=SECONDS)
        found = outcome(lambda: unsent(b"")), outcome(lambda: unread(b"", timeout=SECONDS))
        return [each["code"] for each in found], future.exception(SECONDS).code()

    codes, code = compare(case, server.address)
    assert codes == [grpc.StatusCode.INTERNAL] * 2 and code is grpc.StatusCode.INTERNAL


@pytest.mark.parametrize("made", [None, "text", bytearray(b""), 5])
def test_what_serializers_make_is_bytes(server, made):
    def case(channel):
        call = channel.unary_unary(ECHO, request_serializer=lambda _: made)
        future = outcome(lambda: call.future(b"", timeout=SECONDS).code())
        return outcome(lambda: call(b"", timeout=SECONDS)), future

    compare(case, server.address)


@pytest.mark.parametrize("made", [None, "text", bytearray(b""), 5])
def test_a_stream_of_what_is_not_bytes_ends(server, made):
    with pelton_grpc.insecure_channel(server.address) as channel:
        call = channel.stream_stream("/pelton.v1.Echo/Stream", request_serializer=lambda _: made)(
            iter([b""]), timeout=SECONDS
        )
        found = outcome(lambda: list(call))
        assert found["code"] is grpc.StatusCode.INTERNAL
        assert found["details"] == "Exception serializing request!"


@BOTH
def test_a_closed_channel_takes_no_calls_and_ends_those_that_run(server, insecure_channel):
    channel = insecure_channel(server.address)
    unary = echo_of(channel).Unary
    running = unary.future(echo_pb2.EchoRequest(delay_ms=30_000))
    ended = []

    def block():
        ended.append(outcome(lambda: unary(echo_pb2.EchoRequest(delay_ms=30_000))))

    blocked = threading.Thread(target=block)
    blocked.start()
    time.sleep(0.2)
    for _ in range(2):
        channel.close()
    blocked.join(SECONDS)
    assert ended[0]["code"] is grpc.StatusCode.CANCELLED
    assert running.code() is grpc.StatusCode.CANCELLED
    for call in (unary, unary.with_call, unary.future):
        with pytest.raises(ValueError, match="(?i)closed"):
            call(echo_pb2.EchoRequest())


@BOTH
@pytest.mark.parametrize("target", ["127.0.0.1:1", "no-such-host.invalid:1", "unix:/none"])
def test_without_a_server_a_call_is_unavailable(insecure_channel, target):
    with insecure_channel(target) as channel:
        found = outcome(lambda: echo_of(channel).Unary(echo_pb2.EchoRequest(), timeout=SECONDS))
        assert found["code"] is grpc.StatusCode.UNAVAILABLE and found["details"]
        future = echo_of(channel).Unary.future(echo_pb2.EchoRequest(), timeout=SECONDS)
        assert future.code() is grpc.StatusCode.UNAVAILABLE


@BOTH
def test_a_call_may_wait_until_there_is_a_server(insecure_channel):
    with socket.socket() as socket_:
        socket_.bind(("127.0.0.1", 0))
        target = f"127.0.0.1:{socket_.getsockname()[1]}"
        with insecure_channel(target) as channel:
            unary = echo_of(channel).Unary
            found = outcome(
                lambda: unary(echo_pb2.EchoRequest(), timeout=0.3, wait_for_ready=True), False
            )
    assert found["code"] is grpc.StatusCode.DEADLINE_EXCEEDED


@pytest.mark.parametrize("form", ["{}", "dns:{}", "dns:///{}", "ipv4:{}"])
def test_forms_of_targets(server, form):
    def case(channel):
        return echo_of(channel).Unary(echo_pb2.EchoRequest(payload=b"a"), timeout=SECONDS).payload

    assert compare(case, form.format(server.address)) == b"a"


@pytest.mark.parametrize("sent", [1000, 1_100_000, 5_000_000])
def test_the_size_of_messages_is_limited_by_options(server, sent):
    options = [
        ("grpc.max_receive_message_length", 1_000_000),
        ("grpc.max_send_message_length", 2_000_000),
    ]

    def case(channel):
        request = echo_pb2.EchoRequest(payload=bytes(sent))
        found = outcome(lambda: echo_of(channel).Unary(request, timeout=SECONDS), details=False)
        return found.get("code", grpc.StatusCode.OK)

    exhausted = grpc.StatusCode.RESOURCE_EXHAUSTED
    expected = grpc.StatusCode.OK if sent == 1000 else exhausted
    assert compare(case, server.address, options=options) is expected


def test_without_options_an_answer_has_at_most_four_mebibytes(server):
    def case(channel):
        codes = []
        for size in (4_194_000, 4_194_400):
            request = echo_pb2.EchoRequest(payload=bytes(size))
            found = outcome(lambda: echo_of(channel).Unary(request, timeout=SECONDS), False)
            codes.append(found.get("code"))
        return codes

    assert compare(case, server.address) == [None, grpc.StatusCode.RESOURCE_EXHAUSTED]


def test_compression(server):
    def case(channel):
        request = echo_pb2.EchoRequest(payload=bytes(10_000))
        call = echo_of(channel).Unary
        answer = call(request, compression=grpc.Compression.Gzip, timeout=SECONDS)
        return answer.payload == bytes(10_000)

    assert compare(case, server.address)
    assert compare(case, server.address, compression=grpc.Compression.Gzip)


def test_an_unknown_option_is_named_once(server, caplog):
    for _ in range(2):
        options = [("grpc.of_a_test", 1)]
        with pelton_grpc.insecure_channel(server.address, options=options) as channel:
            echo_of(channel).Unary(echo_pb2.EchoRequest(), timeout=SECONDS)
    named = [record for record in caplog.records if "grpc.of_a_test" in record.getMessage()]
    assert len(named) == 1


def test_a_callback_that_would_end_its_thread_stops_no_other(server):
    with pelton_grpc.insecure_channel(server.address) as channel:
        for raised in (SystemExit, KeyboardInterrupt, GeneratorExit):
            for payload in (b"first", b"second"):
                ended = threading.Event()

                def done(call, ended=ended, raised=raised):
                    ended.set()
                    raise raised()

                # It has not ended yet, so that the callback runs on the thread of all of them.
                call = echo_of(channel).Unary.future(
                    echo_pb2.EchoRequest(payload=payload, delay_ms=100)
                )
                call.add_done_callback(done)
                assert ended.wait(SECONDS), (raised, payload)
                assert call.result(SECONDS).payload == payload
