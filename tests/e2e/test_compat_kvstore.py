"""io.grpc.KeyValueService, as clients of the gRPC project's key-value example see it."""

import signal
import threading
import time
from concurrent import futures

import grpc
import pytest
from compat import kvstore_pb2 as pb
from compat import kvstore_pb2_grpc
from metrics_page import counter
from pelton.v1 import admin_pb2, admin_pb2_grpc, kv_pb2, kv_pb2_grpc
from server import Server, expect_status, open_channel, wait_until

NOT_FOUND = grpc.StatusCode.NOT_FOUND
ALREADY_EXISTS = grpc.StatusCode.ALREADY_EXISTS


@pytest.fixture(scope="module", params=["memory", "disk"])
def server(request, binary, tmp_path_factory):
    """A server whose default database is in memory, or on disk."""
    place = (
        ["--data", str(tmp_path_factory.mktemp("data") / "pelton"), "--kind", "disk"]
        if request.param == "disk"
        else []
    )
    with Server(binary, "--threads", "2", *place) as running:
        yield running


class Client:
    """The four methods, with a status instead of an exception."""

    def __init__(self, channel):
        self.stub = kvstore_pb2_grpc.KeyValueServiceStub(channel)

    def create(self, key, value):
        return outcome(lambda: self.stub.Create(pb.CreateRequest(key=key, value=value)))

    def retrieve(self, key):
        return outcome(lambda: self.stub.Retrieve(pb.RetrieveRequest(key=key)))

    def update(self, key, value):
        return outcome(lambda: self.stub.Update(pb.UpdateRequest(key=key, value=value)))

    def delete(self, key):
        return outcome(lambda: self.stub.Delete(pb.DeleteRequest(key=key)))


def outcome(call):
    """The response; or the status, which must come without a text, as the original's."""
    try:
        return call()
    except grpc.RpcError as error:
        assert not error.details(), error.details()
        return error.code()


def value_of(response):
    assert isinstance(response, pb.RetrieveResponse), response
    return response.value


@pytest.fixture
def client(channel):
    return Client(channel)


def test_every_method_and_every_status(client, prefix):
    assert client.retrieve(prefix) == NOT_FOUND
    assert client.update(prefix, b"0") == NOT_FOUND
    assert client.retrieve(prefix) == NOT_FOUND
    assert client.delete(prefix) == pb.DeleteResponse()
    assert client.create(prefix, b"one") == pb.CreateResponse()
    assert client.create(prefix, b"two") == ALREADY_EXISTS
    assert client.retrieve(prefix) == pb.RetrieveResponse(value=b"one")
    assert client.update(prefix, b"three") == pb.UpdateResponse()
    assert client.retrieve(prefix) == pb.RetrieveResponse(value=b"three")
    assert client.delete(prefix) == pb.DeleteResponse()
    assert client.delete(prefix) == pb.DeleteResponse()
    assert client.retrieve(prefix) == NOT_FOUND


@pytest.mark.parametrize("method, response", [("Create", b""), ("Update", b""), ("Delete", b"")])
def test_answers_are_of_no_bytes_at_all(channel, prefix, method, response):
    """The article's client takes anything else for an error."""
    send = lambda name: channel.unary_unary(f"/io.grpc.KeyValueService/{name}")(
        pb.CreateRequest(key=prefix + method.encode(), value=b"v").SerializeToString()
    )
    if method == "Update":
        send("Create")
    assert send(method) == response


@pytest.mark.parametrize("size", [1, 16_383, 16_384, 65_536, 4_000_000])
def test_values_come_back_whole(client, prefix, size):
    value = bytes(range(256)) * (size // 256 + 1)
    assert client.create(prefix, value[:size]) == pb.CreateResponse()
    assert value_of(client.retrieve(prefix)) == value[:size]
    client.delete(prefix)


def test_what_only_this_server_refuses_has_words(channel, prefix):
    stub = kvstore_pb2_grpc.KeyValueServiceStub(channel)
    exhausted = grpc.StatusCode.RESOURCE_EXHAUSTED
    large = pb.CreateRequest(key=prefix, value=b"v" * 4_000_001)
    expect_status(exhausted, lambda: stub.Create(large), 4_000_001, 4_000_000)
    expect_status(exhausted, lambda: stub.Retrieve(pb.RetrieveRequest(key=b"k" * 65_536)), 65_535)
    broken = channel.unary_unary("/io.grpc.KeyValueService/Create")
    expect_status(
        grpc.StatusCode.INVALID_ARGUMENT,
        lambda: broken(b"\x0a\x05"),
        "io.grpc.KeyValueService/Create",
    )
    unknown = channel.unary_unary("/io.grpc.KeyValueService/Truncate")
    expect_status(grpc.StatusCode.UNIMPLEMENTED, lambda: unknown(b""))


def test_of_many_creates_one_succeeds(server, prefix):
    barrier = threading.Barrier(8)

    def create(number):
        with open_channel(server.address) as channel:
            barrier.wait(20)
            return Client(channel).create(prefix, b"%d" % number)

    with futures.ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(create, range(8)))
    assert sorted(map(str, outcomes)) == sorted(
        map(str, [pb.CreateResponse()] + [ALREADY_EXISTS] * 7)
    )
    winner = outcomes.index(pb.CreateResponse())
    with open_channel(server.address) as channel:
        assert value_of(Client(channel).retrieve(prefix)) == b"%d" % winner


def test_many_clients_at_once(server, prefix):
    def work(number):
        key = prefix + b"%d" % number
        with open_channel(server.address) as channel:
            client = Client(channel)
            for round_number in range(50):
                value = b"%d of %d" % (round_number, number)
                assert client.create(key, value) == pb.CreateResponse()
                assert value_of(client.retrieve(key)) == value
                assert client.update(key, value * 2) == pb.UpdateResponse()
                assert value_of(client.retrieve(key)) == value * 2
                assert client.delete(key) == pb.DeleteResponse()
                assert client.retrieve(key) == NOT_FOUND

    with futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))


def test_the_keys_are_those_of_the_default_database(client, kv, prefix):
    client.create(prefix, b"created")
    assert kv.Get(kv_pb2.GetRequest(key=prefix)).value == b"created"
    kv.Put(kv_pb2.PutRequest(key=prefix, value=b"put"))
    assert value_of(client.retrieve(prefix)) == b"put"
    client.delete(prefix)
    assert not kv.Get(kv_pb2.GetRequest(key=prefix)).found


def test_another_database(binary):
    with (
        Server(binary, "--kvstore-database", "articles") as server,
        open_channel(server.address) as channel,
    ):
        words = ["there is no database `articles`", "pelton database create articles"]
        server.wait_for_log("WARN", *words)
        client, kv = Client(channel), kv_pb2_grpc.KeyValueStub(channel)
        missing = lambda: client.stub.Create(pb.CreateRequest(key=b"k", value=b"v"))
        expect_status(
            grpc.StatusCode.FAILED_PRECONDITION, missing, "articles", "--kvstore-database"
        )
        admin = admin_pb2_grpc.AdminStub(channel)
        volatile = admin_pb2.DatabaseDescription(
            name="articles", durability=admin_pb2.DURABILITY_MODE_VOLATILE
        )
        admin.CreateDatabase(admin_pb2.CreateDatabaseRequest(database=volatile))
        assert client.create(b"k", b"v") == pb.CreateResponse()
        assert not kv.Get(kv_pb2.GetRequest(key=b"k")).found
        assert kv.Get(kv_pb2.GetRequest(database="articles", key=b"k")).value == b"v"
        admin.DropDatabase(admin_pb2.DropDatabaseRequest(name="articles", confirm_name="articles"))
        expect_status(grpc.StatusCode.FAILED_PRECONDITION, missing, "articles")


@pytest.mark.parametrize("kind", ["memory", "disk"])
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_what_was_answered_is_there_after_a_restart(binary, tmp_path, end, kind):
    place = ["--data", str(tmp_path / "data"), "--kind", kind]
    with Server(binary, *place) as server, open_channel(server.address) as channel:
        client = Client(channel)
        for number in range(20):
            client.create(b"%d" % number, b"first")
        client.update(b"1", b"second")
        client.delete(b"2")
        server.signal(end)
        server.wait()
    with Server(binary, *place) as server, open_channel(server.address) as channel:
        client = Client(channel)
        assert value_of(client.retrieve(b"0")) == b"first"
        assert value_of(client.retrieve(b"1")) == b"second"
        assert client.retrieve(b"2") == NOT_FOUND
        assert client.create(b"19", b"again") == ALREADY_EXISTS
        assert client.create(b"2", b"again") == pb.CreateResponse()


# --- --simulate
# --------------------------------------------------------------------------------------------------


def creates(channel, count, timeout=None):
    """That many Creates at once; what became of each."""
    stub = kvstore_pb2_grpc.KeyValueServiceStub(channel)
    request = lambda number: pb.CreateRequest(key=b"%d" % number, value=b"v")
    calls = [stub.Create.future(request(number), timeout=timeout) for number in range(count)]
    return [call.code() for call in calls]


OK = grpc.StatusCode.OK


def test_a_delay_holds_no_thread(binary):
    """One thread for all of them would take 100 seconds."""
    threads = ["--threads", "1"]
    with (
        Server(binary, *threads, "--simulate", "read=500ms,write=500ms") as server,
        open_channel(server.address) as channel,
    ):
        begin = time.monotonic()
        assert creates(channel, 200) == [OK] * 200
        assert 0.5 <= time.monotonic() - begin < 50
        begin = time.monotonic()
        assert Client(channel).retrieve(b"none") == NOT_FOUND
        assert time.monotonic() - begin >= 0.5


def test_serial_operations_follow_each_other(binary):
    with (
        Server(binary, "--simulate", "read=10ms,write=50ms,serial") as server,
        open_channel(server.address) as channel,
    ):
        begin = time.monotonic()
        assert creates(channel, 20) == [OK] * 20
        assert time.monotonic() - begin >= 20 * 0.05
        # From several connections too.
        with open_channel(server.address) as other:
            begin = time.monotonic()
            stubs = [kvstore_pb2_grpc.KeyValueServiceStub(one) for one in (channel, other)]
            calls = [
                stub.Update.future(pb.UpdateRequest(key=b"1", value=b"w"))
                for stub in stubs
                for _ in range(5)
            ]
            assert [call.code() for call in calls] == [OK] * 10
            assert time.monotonic() - begin >= 10 * 0.05


def test_an_operation_that_is_given_up_while_it_is_delayed_does_nothing(binary):
    with (
        Server(binary, "--simulate", "read=0ms,write=3s") as server,
        open_channel(server.address) as channel,
    ):
        stub = kvstore_pb2_grpc.KeyValueServiceStub(channel)
        assert (
            Client(channel).retrieve(b"none") == NOT_FOUND
        )  # connected: from here on the delays count
        cancelled = stub.Create.future(pb.CreateRequest(key=b"cancelled", value=b"v"))
        assert creates(channel, 1, timeout=0.2) == [grpc.StatusCode.DEADLINE_EXCEEDED]
        cancelled.cancel()
        assert Client(channel).create(b"last", b"v") == pb.CreateResponse()
        # The ones before would have been done by now.
        assert Client(channel).retrieve(b"0") == NOT_FOUND
        assert Client(channel).retrieve(b"cancelled") == NOT_FOUND


def test_a_stop_waits_for_delayed_operations(binary):
    with (
        Server(binary, "--simulate", "read=0ms,write=1s") as server,
        open_channel(server.address) as channel,
    ):
        stub = kvstore_pb2_grpc.KeyValueServiceStub(channel)
        # Calls that wait for the connection are sent in any order, later ones in theirs.
        assert Client(channel).retrieve(b"none") == NOT_FOUND
        calls = [
            stub.Create.future(pb.CreateRequest(key=b"%d" % number, value=b"v"))
            for number in range(10)
        ]
        # Reads take no time: when one is answered, the writes before it have arrived.
        assert Client(channel).retrieve(b"none") == NOT_FOUND
        server.signal(signal.SIGTERM)
        assert [call.code() for call in calls] == [OK] * 10
        assert server.wait() == 0


def test_a_stop_ends_operations_that_would_take_too_long(binary):
    settings = ["--simulate", "read=0ms,write=50s", "--drain-timeout", "2s"]
    with Server(binary, *settings) as server, open_channel(server.address) as channel:
        stub = kvstore_pb2_grpc.KeyValueServiceStub(channel)
        assert Client(channel).retrieve(b"none") == NOT_FOUND
        call = stub.Create.future(pb.CreateRequest(key=b"k", value=b"v"))
        assert Client(channel).retrieve(b"none") == NOT_FOUND
        server.signal(signal.SIGTERM)
        assert call.code() == grpc.StatusCode.UNAVAILABLE
        server.wait()


def test_what_waits_is_limited(binary):
    """Two values of 25 MB fit into what a connection may have of the 256 MiB that may wait, a third
    one does not."""
    size = 25_000_000
    options = [("grpc.max_send_message_length", -1)]
    settings = [
        "--simulate",
        "read=0ms,write=60s",
        "--max-value",
        str(size),
        "--memory-limit",
        "2GiB",
        "--metrics-listen",
        "0",
    ]
    with Server(binary, *settings) as server, open_channel(server.address, *options) as channel:
        stub = kvstore_pb2_grpc.KeyValueServiceStub(channel)
        value = b"v" * size
        waiting = []
        # One after the other: what is gathered at a time is limited, too.
        for count in (1, 2):
            waiting.append(stub.Create.future(pb.CreateRequest(key=b"%d" % count, value=value)))
            received = lambda: counter(server, "pelton_received_bytes_total")
            has_come = lambda: received() > count * size  # noqa: B023
            wait_until(has_come, message="the server does not hold it")
        third = lambda: stub.Create(pb.CreateRequest(key=b"3", value=value))
        expect_status(grpc.StatusCode.RESOURCE_EXHAUSTED, third, "--simulate", 268435456)
        for call in waiting:
            call.cancel()
        wait_until(lambda: not_exhausted(stub, value), 30, "what was cancelled still counts")


def not_exhausted(stub, value):
    call = stub.Create.future(pb.CreateRequest(key=b"4", value=value), timeout=2)
    return call.code() == grpc.StatusCode.DEADLINE_EXCEEDED


@pytest.mark.parametrize(
    "text", ["", "10ms", "read=10ms", "read=1ms,write=2ms,parallel", "read=10,write=50ms"]
)
def test_a_wrong_delay_is_refused_at_start(binary, text):
    with pytest.raises(AssertionError, match="the server did not start"):
        with Server(binary, "--simulate", text):
            pass
