"""Several gateways on one keyspace: what one does, the others see."""

import struct
import threading
from concurrent import futures

import grpc
import pytest
from cql import CqlConnection
from gateway import QUORUM, Gateway, drop_database, fill, make_database, scanned
from pelton.v1 import admin_pb2
from pelton.v1 import kv_pb2 as pb
from server import expect_status, wait_until

NOT_FOUND = grpc.StatusCode.NOT_FOUND


@pytest.fixture(scope="module")
def both(gateway, other):
    """The calls of both gateways, by a connection each. Both know a second database."""
    make_database(gateway.admin(), "second", QUORUM)
    stubs = gateway.kv(), other.kv()
    wait_until(lambda: all(is_there(stub, "second") for stub in stubs))
    return stubs


def is_there(stub, database):
    try:
        stub.Get(pb.GetRequest(database=database, key=b"k"))
    except grpc.RpcError as error:
        assert error.code() == NOT_FOUND, error
        return False
    return True


def test_a_database_of_one_is_found_and_lost_by_the_other(gateway, other, both):
    one, two = both
    make_database(gateway.admin(), "shared")
    one.Put(pb.PutRequest(database="shared", key=b"k", value=b"of the first"))
    wait_until(lambda: is_there(two, "shared"))
    assert two.Get(pb.GetRequest(database="shared", key=b"k")).value == b"of the first"
    lists = [
        each.admin().ListDatabases(admin_pb2.ListDatabasesRequest()).databases
        for each in (gateway, other)
    ]
    first, second = ([each.database for each in listed] for listed in lists)
    assert first == second and {"", "shared"} <= {each.name for each in first}
    again = admin_pb2.DatabaseDescription(name="shared", promise=QUORUM)
    answer = other.admin().CreateDatabase(admin_pb2.CreateDatabaseRequest(database=again))
    assert not answer.created and answer.database.promise != QUORUM
    assert drop_database(other.admin(), "shared")
    assert not is_there(two, "shared")
    wait_until(lambda: not is_there(one, "shared"))
    assert not drop_database(other.admin(), "shared")
    put = pb.PutRequest(database="shared", key=b"k", value=b"v")
    for stub in both:
        expect_status(NOT_FOUND, lambda: stub.Put(put), "database")


def test_a_database_made_anew_has_nothing_of_the_one_before(gateway, node, both):
    admin, (one, _) = gateway.admin(), both
    count = "SELECT COUNT(*) FROM usual.quorum WHERE database = {} ALLOW FILTERING"
    for _ in range(2):
        make_database(admin, "anew", QUORUM, buckets=8)
        assert scanned(one, "anew") == []
        fill(one, "anew", [(b"%d" % n, b"value") for n in range(100)])
        with CqlConnection(node.address) as cql:
            rows = cql.query("SELECT id FROM usual.catalogue WHERE part = 0 AND name = 'anew'")
            number = int.from_bytes(rows[0][0], "big")
            assert cql.query(count.format(number)) == [(struct.pack(">q", 100),)]
            assert drop_database(admin, "anew")
            # The rows go in the background.
            wait_until(lambda: cql.query(count.format(number)) == [(bytes(8),)])


def test_increments_through_both_add_up(both, prefix):
    def add(stub):
        for _ in range(50):
            assert stub.Increment(pb.IncrementRequest(key=prefix, delta=1)).applied

    threads = [threading.Thread(target=add, args=(stub,)) for stub in (*both, *both)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for stub in both:
        assert int.from_bytes(stub.Get(pb.GetRequest(key=prefix)).value, "big") == 200


def test_of_conditional_writes_through_both_one_wins(both, prefix):
    barrier = threading.Barrier(2)

    def put(number, key):
        barrier.wait(30)
        request = pb.PutRequest(key=key, value=b"%d" % number, if_version=0)
        return both[number].Put(request).applied

    with futures.ThreadPoolExecutor(2) as pool:
        for round in range(30):
            key = prefix + b"%d" % round
            applied = list(pool.map(put, range(2), [key, key]))
            assert sorted(applied) == [False, True]
            winner = applied.index(True)
            for stub in both:
                assert stub.Get(pb.GetRequest(key=key)).value == b"%d" % winner


def test_a_write_through_one_is_seen_by_the_next_read_through_the_other(both):
    for database in ("", "second"):
        for number in range(60):
            writer, reader = both[number % 2], both[1 - number % 2]
            value = b"%d" % number
            writer.Put(pb.PutRequest(database=database, key=b"turns", value=value))
            assert reader.Get(pb.GetRequest(database=database, key=b"turns")).value == value


def test_what_was_acknowledged_survives_a_kill_of_the_gateway(binary, node, keyspace, prefix):
    versions = {}
    for round in range(2):
        with Gateway(binary, node.address, keyspace) as short_lived:
            stub = short_lived.kv()
            for number in range(round * 50):
                key = prefix + b"%d" % number
                got = stub.Get(pb.GetRequest(key=key))
                assert (got.value, got.version) == (b"value", versions[key])
            for number in range(50):
                key = prefix + b"%d" % number
                versions[key] = stub.Put(pb.PutRequest(key=key, value=b"value")).version
            short_lived.kill()


def test_a_gateway_stops_in_order_while_calls_run(binary, node, keyspace, prefix):
    with Gateway(binary, node.address, keyspace) as stopped:
        stub, ends, done = stopped.kv(), [], []

        def add():
            try:
                while True:
                    done.append(stub.Increment(pb.IncrementRequest(key=prefix, delta=1)).value)
            except grpc.RpcError as error:
                ends.append(error.code())

        threads = [threading.Thread(target=add) for _ in range(4)]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(done) > 20)
        assert stopped.stop() == 0, stopped.log()
        for thread in threads:
            thread.join(30)
        assert set(ends) == {grpc.StatusCode.UNAVAILABLE}, ends
    with Gateway(binary, node.address, keyspace) as after:
        counted = int.from_bytes(after.kv().Get(pb.GetRequest(key=prefix)).value, "big")
    # What was in flight when the connection closed may have been done.
    assert len(done) <= counted <= len(done) + 4
