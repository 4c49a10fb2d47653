"""pelton.v1.Admin: databases and statistics."""

import grpc
import pytest
from metrics_page import counter
from pelton.v1 import admin_pb2, admin_pb2_grpc, kv_pb2_grpc
from pelton.v1 import kv_pb2 as pb
from server import Server, expect_status, open_channel, wait_until


@pytest.fixture
def admin(channel):
    return admin_pb2_grpc.AdminStub(channel)


def volatile(name, **fields):
    description = admin_pb2.DatabaseDescription(
        name=name, durability=admin_pb2.DURABILITY_MODE_VOLATILE, **fields
    )
    return admin_pb2.CreateDatabaseRequest(database=description)


def test_databases_come_and_go(admin, kv):
    created = admin.CreateDatabase(volatile("comes-and-goes", max_value_bytes=1_000))
    assert created.created and created.database.max_value_bytes == 1_000
    assert not admin.CreateDatabase(volatile("comes-and-goes")).created
    kv.Put(pb.PutRequest(database="comes-and-goes", key=b"key", value=b"value"))
    assert not kv.Get(pb.GetRequest(key=b"key")).found
    expect_status(
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        lambda: kv.Put(pb.PutRequest(database="comes-and-goes", key=b"key", value=b"x" * 1_001)),
    )
    listed = {
        one.database.name: one
        for one in admin.ListDatabases(admin_pb2.ListDatabasesRequest()).databases
    }
    assert listed["comes-and-goes"].entries == 1
    assert listed["comes-and-goes"].content_bytes == 8
    assert "" in listed

    drop = admin_pb2.DropDatabaseRequest(name="comes-and-goes")
    error = expect_status(grpc.StatusCode.INVALID_ARGUMENT, lambda: admin.DropDatabase(drop))
    assert "confirm_name" in error.details()
    drop.confirm_name = drop.name
    assert admin.DropDatabase(drop).dropped
    assert not admin.DropDatabase(drop).dropped
    expect_status(
        grpc.StatusCode.NOT_FOUND,
        lambda: kv.Get(pb.GetRequest(database="comes-and-goes", key=b"key")),
    )


def test_a_quota_refuses_growth_and_takes_deletes(admin, kv):
    admin.CreateDatabase(volatile("quota", quota_bytes=100_000))
    stored = []

    def fill():
        for number in range(1_000):
            key = b"%d" % number
            kv.Put(pb.PutRequest(database="quota", key=key, value=b"x" * 1_000))
            stored.append(key)

    error = expect_status(grpc.StatusCode.RESOURCE_EXHAUSTED, fill)
    assert "100000" in error.details() and 50 < len(stored) < 100
    assert kv.Delete(pb.DeleteRequest(database="quota", key=stored[0])).deleted
    kv.Put(pb.PutRequest(database="quota", key=b"again", value=b"x" * 900))
    admin.DropDatabase(admin_pb2.DropDatabaseRequest(name="quota", confirm_name="quota"))


def test_expired_entries_are_swept_from_an_idle_server(binary):
    with (
        Server(binary, "--threads", "2", "--metrics-listen", "0") as server,
        open_channel(server.address) as channel,
    ):
        kv = kv_pb2_grpc.KeyValueStub(channel)
        for number in range(500):
            kv.Put(pb.PutRequest(key=b"%d" % number, value=b"x", time_to_live_ms=50))
        kv.Put(pb.PutRequest(key=b"stays", value=b"x", time_to_live_ms=3_600_000))
        # Metrics are read by threads of their own: nothing is called that could wake the server.
        entries = lambda: counter(server, 'pelton_database_entries{database=""}')  # noqa: E731
        wait_until(lambda: entries() <= 1, message="what has expired stays")
        assert entries() == 1


def test_what_cannot_be_created_says_why(admin):
    error = expect_status(
        grpc.StatusCode.INVALID_ARGUMENT, lambda: admin.CreateDatabase(volatile("a/b"))
    )
    assert "database.name" in error.details()
    drop = admin_pb2.DropDatabaseRequest()
    error = expect_status(grpc.StatusCode.FAILED_PRECONDITION, lambda: admin.DropDatabase(drop))
    assert "default database" in error.details()


def test_statistics_count_what_was_done(binary):
    with Server(binary, "--threads", "2") as server, open_channel(server.address) as channel:
        kv = channel.unary_unary("/pelton.v1.KeyValue/Get")
        for _ in range(7):
            kv(b"")
        expect_status(
            grpc.StatusCode.NOT_FOUND,
            lambda: kv(pb.GetRequest(database="none").SerializeToString()),
        )
        statistics = admin_pb2_grpc.AdminStub(channel).Statistics(admin_pb2.StatisticsRequest())
        calls = {(one.method, one.code): one.calls for one in statistics.methods}
        assert calls[("pelton.v1.KeyValue/Get", 0)] == 7
        assert calls[("pelton.v1.KeyValue/Get", grpc.StatusCode.NOT_FOUND.value[0])] == 1
        assert statistics.server.startswith("pelton ")
        assert statistics.open_connections >= 1
        assert [one.database.name for one in statistics.databases] == [""]
        assert 0 < statistics.memory_limit_bytes
