"""Databases on disk: made, filled, restarted, converted, dropped. What every method does there is
in the tests of the methods, which run on databases of both kinds."""

import json
import os
import subprocess
import threading
import time

import grpc
import pytest
from pelton.v1 import admin_pb2, admin_pb2_grpc, kv_pb2_grpc
from pelton.v1 import kv_pb2 as pb
from raw import DATA, END_STREAM, RST_STREAM, Connection, frame, grpc_message
from server import Server, expect_status, open_channel, wait_until

MEMORY, DISK = admin_pb2.DATABASE_KIND_MEMORY, admin_pb2.DATABASE_KIND_DISK
HOUR_MS = 3_600_000
# An error code of HTTP/2.
CANCEL = (8).to_bytes(4)


class Stubs:
    def __init__(self, channel):
        self.kv = kv_pb2_grpc.KeyValueStub(channel)
        self.admin = admin_pb2_grpc.AdminStub(channel)

    def create(self, name, kind=DISK, **fields):
        description = admin_pb2.DatabaseDescription(name=name, kind=kind, **fields)
        return self.admin.CreateDatabase(admin_pb2.CreateDatabaseRequest(database=description))

    def databases(self):
        return {
            one.database.name: one
            for one in self.admin.ListDatabases(admin_pb2.ListDatabasesRequest()).databases
        }

    def convert(self, name, kind):
        """The last message; those before it only say how far it has come."""
        progress = list(
            self.admin.ConvertDatabase(
                admin_pb2.ConvertDatabaseRequest(name=name, kind=kind), timeout=60
            )
        )
        assert [one.complete for one in progress] == [False] * (len(progress) - 1) + [True]
        assert all(one.copied_entries <= one.total_entries for one in progress)
        return progress[-1]

    def fill(self, database, count, value=b"value of %d", prefix=b"key/"):
        for start in range(0, count, 1_000):
            numbers = range(start, min(start + 1_000, count))
            operations = [
                put(b"%s%06d" % (prefix, number), value % number if b"%" in value else value)
                for number in numbers
            ]
            assert self.kv.Batch(
                pb.BatchRequest(database=database, operations=operations), timeout=60
            ).applied

    def content(self, database):
        """Everything, as a later look must find it again: values, versions, expiries."""
        pages = self.kv.Scan(pb.ScanRequest(database=database), timeout=60)
        return {
            e.key: (e.value, e.version, e.expires_at_ms) for page in pages for e in page.entries
        }


def put(key, value, **rest):
    return pb.Operation(put=pb.Operation.Put(key=key, value=value, **rest))


@pytest.fixture
def folder(tmp_path):
    return str(tmp_path / "data")


@pytest.fixture
def start(binary, folder):
    """Starts a server on the same folder, and again and again."""
    opened = []

    def begin(*flags):
        server = Server(binary, "--data", folder, *flags)
        channel = open_channel(server.address)
        opened.append((server, channel))
        return server, Stubs(channel)

    yield begin
    for server, channel in opened:
        channel.close()
        server.__exit__()


def trees(folder):
    return sorted(os.listdir(os.path.join(folder, "trees")))


def test_a_database_on_disk_is_there_after_a_stop_and_after_a_kill(start, folder):
    server, pelton = start()
    created = pelton.create("large")
    assert created.created and created.database.kind == DISK
    assert not pelton.create("large", MEMORY).created
    pelton.fill("large", 3_000)
    pelton.kv.Put(
        pb.PutRequest(database="large", key=b"expires", value=b"x", time_to_live_ms=HOUR_MS)
    )
    pelton.kv.Delete(pb.DeleteRequest(database="large", key=b"key/000007"))
    expected = pelton.content("large")
    assert len(expected) == 3_000 and expected[b"expires"][2] > 0
    assert pelton.content("") == {}
    for way in ("stop", "kill", "stop"):
        if way == "stop":
            assert server.stop() == 0, server.log()
        else:
            server.kill()
        server, pelton = start()
        assert pelton.content("large") == expected, way
        assert pelton.databases()["large"].database.kind == DISK
        answer = pelton.kv.Put(
            pb.PutRequest(database="large", key=b"after", value=way.encode(), return_previous=True)
        )
        assert answer.applied and answer.version > max(
            version for _, version, _ in expected.values()
        )
        expected[b"after"] = (way.encode(), answer.version, 0)
    assert len(trees(folder)) == 1
    assert pelton.admin.DropDatabase(
        admin_pb2.DropDatabaseRequest(name="large", confirm_name="large")
    ).dropped
    wait_until(lambda: trees(folder) == [], message="the folder of a dropped database stays")


def test_what_cannot_be_on_disk_says_why(start):
    _, pelton = start()
    volatile = {"durability": admin_pb2.DURABILITY_MODE_VOLATILE}
    expect_status(
        grpc.StatusCode.INVALID_ARGUMENT, lambda: pelton.create("a", **volatile), "durability"
    )
    pelton.create("volatile", MEMORY, **volatile)
    expect_status(
        grpc.StatusCode.FAILED_PRECONDITION, lambda: pelton.convert("volatile", DISK), "volatile"
    )
    pelton.create("long-keys", MEMORY)
    pelton.kv.Put(pb.PutRequest(database="long-keys", key=b"k" * 65_535, value=b""))
    expect_status(
        grpc.StatusCode.FAILED_PRECONDITION, lambda: pelton.convert("long-keys", DISK), 65_534
    )
    assert pelton.databases()["long-keys"].database.kind == MEMORY
    assert pelton.kv.Put(pb.PutRequest(database="long-keys", key=b"goes on", value=b"")).applied
    expect_status(grpc.StatusCode.NOT_FOUND, lambda: pelton.convert("none", DISK), "none")
    expect_status(grpc.StatusCode.INVALID_ARGUMENT, lambda: pelton.convert("", 0), "kind")


def test_a_server_without_a_folder_has_no_databases_on_disk(server, channel):
    pelton = Stubs(channel)
    expect_status(grpc.StatusCode.UNIMPLEMENTED, lambda: pelton.create("disk"), "data folder")
    expect_status(grpc.StatusCode.FAILED_PRECONDITION, lambda: pelton.convert("", DISK), "--data")


# --- Conversion
# --------------------------------------------------------------------------------------------------


def test_a_conversion_keeps_everything(start, folder):
    server, pelton = start()
    pelton.create("moves", MEMORY)
    pelton.fill("moves", 5_000)
    pelton.kv.Put(
        pb.PutRequest(database="moves", key=b"expires", value=b"x", time_to_live_ms=HOUR_MS)
    )
    pelton.kv.Put(pb.PutRequest(database="moves", key=b"", value=b""))
    expected = pelton.content("moves")
    for kind in (DISK, MEMORY, DISK):
        last = pelton.convert("moves", kind)
        assert (last.converted, last.copied_entries, last.total_entries) == (True, 5_002, 5_002)
        assert last.sequence > max(version for _, version, _ in expected.values())
        assert pelton.databases()["moves"].database.kind == kind
        assert pelton.content("moves") == expected
        again = pelton.convert("moves", kind)
        assert again.complete and not again.converted
        # It takes writes again, and conditions see what was there before.
        version = expected[b"key/000001"][1]
        answer = pelton.kv.Put(
            pb.PutRequest(
                database="moves", key=b"key/000001", value=b"%d" % kind, if_version=version
            )
        )
        assert answer.applied
        expected[b"key/000001"] = (b"%d" % kind, answer.version, 0)
        assert server.stop() == 0, server.log()
        server, pelton = start()
        assert pelton.content("moves") == expected
    assert len(trees(folder)) == 1


def test_reads_go_on_and_writes_are_refused_during_a_conversion(start):
    _, pelton = start("--threads", "2")
    pelton.create("busy", MEMORY)
    pelton.create("other", MEMORY)
    pelton.fill("busy", 60_000, value=b"v" * 100)
    stop, refused, done, failures = threading.Event(), [], [], []

    def write_and_read():
        try:
            while not stop.is_set():
                assert pelton.kv.Get(
                    pb.GetRequest(database="busy", key=b"key/000005"), timeout=30
                ).found
                assert pelton.kv.Put(
                    pb.PutRequest(database="other", key=b"key", value=b""), timeout=30
                ).applied
                try:
                    answer = pelton.kv.Put(
                        pb.PutRequest(database="busy", key=b"key/000005", value=b"%d" % len(done)),
                        timeout=30,
                    )
                    done.append(answer.version)
                except grpc.RpcError as error:
                    assert error.code() == grpc.StatusCode.UNAVAILABLE, error
                    refused.append(error.details())
        except BaseException as failure:  # noqa: B902 - the test looks at it
            failures.append(failure)

    writer = threading.Thread(target=write_and_read, daemon=True)
    writer.start()
    # There and back, and again until the writer has had its turn in the midst of one.
    until = time.monotonic() + 60
    while not (refused or failures) and time.monotonic() < until:
        for kind in (DISK, MEMORY):
            assert pelton.convert("busy", kind).sequence
    before = len(done)
    wait_until(lambda: failures or len(done) > before)
    stop.set()
    writer.join(30)
    assert not failures, failures
    assert refused and "convert" in refused[0], refused[:1]
    assert pelton.kv.Get(pb.GetRequest(database="busy", key=b"key/000005")).version == done[-1]
    assert pelton.kv.Count(pb.CountRequest(database="busy")).count == 60_000


def test_a_conversion_that_is_given_up_leaves_the_database_as_it_was(start, folder):
    server, pelton = start()
    pelton.create("stays", MEMORY)
    pelton.fill("stays", 60_000, value=b"v" * 100)
    expected = pelton.content("stays")
    convert = "/pelton.v1.Admin/ConvertDatabase"
    with Connection(server.address) as connection:
        # In one piece, so that the second comes while the first has hardly begun: it waits.
        messages = [
            admin_pb2.ConvertDatabaseRequest(name="stays", kind=DISK).SerializeToString()
            for _ in range(2)
        ]
        heads = [connection.request(convert) for _ in messages]
        sent = [
            head + frame(DATA, END_STREAM, stream, grpc_message(one))
            for (stream, head), one in zip(heads, messages)
        ]
        connection.send(b"".join(sent))
        (first, _), (second, _) = heads
        # One that waits is given up like one that runs.
        connection.send(frame(RST_STREAM, 0, second, CANCEL))
        wait_until(lambda: trees(folder) != [], message="nothing is copied")
        connection.send(frame(RST_STREAM, 0, first, CANCEL))
        # The place is free when it has cleaned up behind itself.
        wait_until(lambda: is_writable(pelton.kv, "stays"))
    assert {**pelton.content("stays"), b"w": None} == {**expected, b"w": None}
    # Where the machine had no time for us, it was done before it was given up.
    is_done = pelton.databases()["stays"].database.kind == DISK
    wait_until(
        lambda: len(trees(folder)) == is_done,
        message="the copy of a conversion that was given up stays",
    )
    assert pelton.convert("stays", MEMORY if is_done else DISK).converted


def is_writable(kv, database):
    try:
        return kv.Put(pb.PutRequest(database=database, key=b"w", value=b"")).applied
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.UNAVAILABLE, error
        return False


def run(binary, server, *words):
    command = [binary, *words, "--address", server.address]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_the_command_converts(binary, start):
    server, pelton = start()
    made = run(binary, server, "database", "create", "shop", "--kind", "disk")
    assert made.returncode == 0 and "disk, synced" in made.stdout, made
    pelton.fill("shop", 10)
    done = run(binary, server, "database", "convert", "shop", "--kind", "memory")
    assert (
        done.returncode == 0
        and "`shop` is in memory now" in done.stdout
        and "10 entries" in done.stdout
    ), done
    again = run(binary, server, "database", "convert", "shop", "--kind", "memory")
    assert again.returncode == 1 and "already" in again.stderr, again
    default = run(binary, server, "database", "convert", "--kind", "disk", "--output", "json")
    assert default.returncode == 0 and json.loads(default.stdout)["converted"], default
    assert pelton.databases()[""].database.kind == DISK
    unknown = run(binary, server, "database", "convert", "nosuch", "--kind", "disk")
    assert unknown.returncode == 1 and "nosuch" in unknown.stderr, unknown


# --- The default database
# ------------------------------------------------------------------------------------------


def test_the_default_database_is_of_the_kind_that_was_asked_for(binary, start, folder):
    server, pelton = start("--kind", "disk")
    server.wait_for_log("storing on disk")
    assert pelton.databases()[""].database.kind == DISK
    server.stop()
    # Nothing is in it: it may become another one, there and back.
    server, pelton = start("--kind", "memory")
    assert pelton.databases()[""].database.kind == MEMORY
    server.stop()
    server, pelton = start("--kind", "disk")
    version = pelton.kv.Put(pb.PutRequest(key=b"key", value=b"value")).version
    server.stop()

    command = [binary, "serve", "--listen", "127.0.0.1:0", "--data", folder, "--kind", "memory"]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert refused.returncode != 0 and "pelton database convert --kind memory" in refused.stderr, (
        refused
    )
    for flags in ([], ["--kind", "disk"]):
        server, pelton = start(*flags)
        assert pelton.content("") == {b"key": (b"value", version, 0)}
        assert pelton.databases()[""].database.kind == DISK
        server.wait_for_log("the last stop was clean")
        server.stop()
    wrong = [
        binary,
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--data",
        folder,
        "--kind",
        "disk",
        "--durability",
        "volatile",
    ]
    refused = subprocess.run(wrong, capture_output=True, text=True, timeout=30)
    assert refused.returncode != 0 and "durability" in refused.stderr, refused


# --- What only databases on disk have
# --------------------------------------------------------------------------------


def test_counts_are_exact_or_estimated_as_asked(start):
    _, pelton = start("--memory-limit", "16MiB")
    pelton.create("counted")
    # More than a memtable: some of it is in tables.
    pelton.fill("counted", 20_000, value=os.urandom(400).replace(b"%", b"."))
    for start_key, end in [(b"", b""), (b"key/005000", b"key/015000")]:
        wanted = pb.KeyRange(start=start_key, end=end)
        exact = pelton.kv.Count(pb.CountRequest(database="counted", range=wanted), timeout=60)
        assert (exact.count, exact.exact) == (10_000 if start_key else 20_000, True)
        estimate = pelton.kv.Count(
            pb.CountRequest(
                database="counted", range=wanted, precision=pb.COUNT_PRECISION_ESTIMATE
            ),
            timeout=60,
        )
        assert estimate.exact or exact.count / 2 <= estimate.count <= exact.count * 2, (
            exact.count,
            estimate.count,
        )


def test_expired_entries_are_gone_and_swept(start):
    _, pelton = start()
    pelton.create("brief")
    for number in range(500):
        put = pb.PutRequest(database="brief", key=b"%d" % number, value=b"x", time_to_live_ms=50)
        pelton.kv.Put(put)
    pelton.kv.Put(
        pb.PutRequest(database="brief", key=b"stays", value=b"x", time_to_live_ms=HOUR_MS)
    )
    wait_until(lambda: list(pelton.content("brief")) == [b"stays"])
    assert pelton.kv.Put(
        pb.PutRequest(database="brief", key=b"1", value=b"new", if_version=0)
    ).applied
    assert pelton.kv.Count(pb.CountRequest(database="brief")).count == 2


def test_walks_over_deleted_entries_end_in_steps(start):
    """A step passes over 8192 deleted entries, and the next one goes on behind: each is a view."""
    _, stubs = start()
    stubs.create("emptied")
    for _ in range(2):
        stubs.fill("emptied", 20_000)
        kept = stubs.kv.Put(pb.PutRequest(database="emptied", key=b"key/zzz", value=b"last"))
        for first in range(0, 20_000, 1_000):
            keys = [b"key/%06d" % number for number in range(first, first + 1_000)]
            operations = [pb.Operation(delete=pb.Operation.Delete(key=key)) for key in keys]
            request = pb.BatchRequest(database="emptied", operations=operations)
            assert stubs.kv.Batch(request).applied
        counted = stubs.kv.Count(pb.CountRequest(database="emptied", prefix=b"key/"))
        assert (counted.count, counted.exact) == (1, True)
        assert counted.views >= 3, "20 000 deleted entries were passed over in fewer steps"
        assert stubs.content("emptied") == {b"key/zzz": (b"last", kept.version, 0)}
        backward = pb.DIRECTION_BACKWARD
        request = pb.ScanRequest(database="emptied", prefix=b"key/", direction=backward)
        pages = stubs.kv.Scan(request)
        assert [entry.key for page in pages for entry in page.entries] == [b"key/zzz"]
