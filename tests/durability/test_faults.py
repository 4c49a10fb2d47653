"""Failed writes and syncs of the log, and full disks: what callers are told, what goes on, what is
there afterwards.

The faults are made by strace, which answers a system call in the system's place; and once by a disk
that is really full.
"""

import contextlib
import os
import shutil
import signal
import threading

import grpc
import pytest
import strace
from pelton.v1 import admin_pb2, admin_pb2_grpc, kv_pb2_grpc
from pelton.v1 import kv_pb2 as pb
from server import Server, expect_status, open_channel, wait_until
from small_disk import small_disk_at

CODES = grpc.StatusCode
SEGMENT_BYTES = 64 * 1024
SETTINGS = ["--threads", "2", "--log-segment", str(SEGMENT_BYTES)]
KEPT = {b"kept/%d" % number: b"value %d" % number for number in range(10)}


@contextlib.contextmanager
def serving(binary, folder, prefix=()):
    """A server on a data folder, and stubs."""
    with (
        Server(binary, "--data", str(folder), *SETTINGS, prefix=prefix) as server,
        open_channel(server.address) as channel,
    ):
        yield server, kv_pb2_grpc.KeyValueStub(channel), admin_pb2_grpc.AdminStub(channel)


def put(kv, key, value=b"value"):
    return kv.Put(pb.PutRequest(key=key, value=value), timeout=30)


def value_of(kv, key):
    answer = kv.Get(pb.GetRequest(key=key), timeout=30)
    return answer.value if answer.found else None


def expect_kept(kv, more=()):
    for key, value in (KEPT | dict(more)).items():
        assert value_of(kv, key) == value, key


@pytest.fixture
def folder(binary, tmp_path):
    """A data folder with something in it, closed."""
    folder = tmp_path / "data"
    with serving(binary, folder) as (server, kv, _):
        for key, value in KEPT.items():
            put(kv, key, value)
        assert server.stop() == 0
    return folder


class Writer(threading.Thread):
    """Writes key after key until it is told of a failure."""

    def __init__(self, address, number):
        super().__init__(daemon=True)
        self.address, self.number = address, number
        self.written = {}
        self.error = None

    def run(self):
        with open_channel(self.address) as channel:
            kv = kv_pb2_grpc.KeyValueStub(channel)
            for number in range(10_000):
                self.key, value = b"writer/%d/%d" % (self.number, number), b"%d" % number
                operations = [
                    pb.Operation(put=pb.Operation.Put(key=self.key + end, value=value))
                    for end in (b"/a", b"/b")
                ]
                try:
                    kv.Batch(pb.BatchRequest(operations=operations), timeout=30)
                except grpc.RpcError as error:
                    self.error = error
                    return
                self.written[self.key + b"/a"] = self.written[self.key + b"/b"] = value


def write_until_failure(address):
    writers = [Writer(address, number) for number in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
        assert writer.error, "a writer saw no failure"
    return writers


def expect_read_only(kv, admin):
    refused = [
        lambda: put(kv, b"later"),
        lambda: kv.Delete(pb.DeleteRequest(key=b"kept/0"), timeout=30),
        lambda: kv.Increment(pb.IncrementRequest(key=b"later", delta=1), timeout=30),
        lambda: admin.CreateDatabase(
            admin_pb2.CreateDatabaseRequest(database=admin_pb2.DatabaseDescription(name="later")),
            timeout=30,
        ),
    ]
    for call in refused:
        expect_status(CODES.FAILED_PRECONDITION, call, "read-only", "restart")


@pytest.mark.parametrize(
    "fault",
    [
        "fdatasync:error=EIO:when=12",
        "pwrite64:error=EIO:when=12",
        "pwrite64:error=ENOSPC:when=12",
        "fdatasync:error=ENOSPC:when=12",
    ],
)
def test_after_a_failed_write_or_sync_nothing_more_is_written(binary, folder, tmp_path, fault):
    with serving(binary, folder, strace.injecting(tmp_path / "strace", fault)) as (
        server,
        kv,
        admin,
    ):
        writers = write_until_failure(server.address)
        unknown = [writer for writer in writers if writer.error.code() == CODES.UNKNOWN]
        assert unknown, "nobody was in the group that failed"
        for writer in writers:
            if writer in unknown:
                assert "outcome unknown" in writer.error.details()
            else:
                assert writer.error.code() == CODES.FAILED_PRECONDITION, writer.error
        expect_read_only(kv, admin)
        # Reads go on, and show nothing that may be gone after the restart.
        expect_kept(kv, [pair for writer in writers for pair in writer.written.items()])
        for writer in writers:
            assert value_of(kv, writer.key + b"/a") is None
        assert value_of(kv, b"later") is None
        wait_until(
            lambda: "log has failed; writes are refused until a restart" in server.log(),
            message="nothing is logged",
        )
        assert server.stop() != 0, "a stop that could not close the log"
    with serving(binary, folder) as (server, kv, _):
        expect_kept(kv, [pair for writer in writers for pair in writer.written.items()])
        for writer in writers:
            found = {value_of(kv, writer.key + end) for end in (b"/a", b"/b")}
            assert len(found) == 1, f"half of a batch: {found}"
            assert writer in unknown or found == {None}, "it was said that nothing was done"
        assert value_of(kv, b"later") is None
        put(kv, b"later")
        assert server.stop() == 0


@pytest.mark.parametrize(
    "fault", ["fdatasync:error=EINTR:when=2+3", "pwrite64:error=EINTR:when=2+3"]
)
def test_an_interruption_is_no_failure(binary, folder, tmp_path, fault):
    with serving(binary, folder, strace.injecting(tmp_path / "strace", fault)) as (server, kv, _):
        more = {b"more/%d" % number: b"x" * 5_000 for number in range(50)}
        for key, value in more.items():
            put(kv, key, value)
        server.kill()
    assert "INJECTED" in (tmp_path / "strace").read_text()
    with serving(binary, folder) as (_, kv, _):
        expect_kept(kv, more)


# A large part of a segment: where such a value finds no room there is nearly always some for small
# groups, wherever the groups before have ended. It takes fewer bytes than the deletes of a test.
FILL_BYTES = 20_000


def fill(kv):
    """Writes until there is no room; what was written."""
    written = {}
    for number in range(1_000):
        key, value = b"fill/%d" % number, (b"%d" % number * FILL_BYTES)[:FILL_BYTES]
        try:
            put(kv, key, value)
        except grpc.RpcError as error:
            assert error.code() == CODES.RESOURCE_EXHAUSTED, error
            assert "the disk has no room" in error.details(), error.details()
            return written
        written[key] = value
    raise AssertionError("the disk does not get full")


def full_disk(server, kv, make_room):
    """What a full disk means, and that its end is noticed without a restart. What is written in the
    end."""
    small = {b"small/%d" % number: b"" for number in range(600)}
    puts = [pb.Operation(put=pb.Operation.Put(key=key)) for key in small]
    assert kv.Batch(pb.BatchRequest(operations=puts), timeout=30).applied
    written = small | fill(kv)
    expect_status(
        CODES.RESOURCE_EXHAUSTED,
        lambda: put(kv, b"grows", bytes(FILL_BYTES)),
        "the disk has no room",
        "reads go on",
    )
    expect_kept(kv, written)
    assert value_of(kv, b"grows") is None
    # What frees memory is taken while the file that is there has room, and then refused like all
    # else.
    refused = None
    for key in (*list(written)[-1:], *small):
        try:
            assert kv.Delete(pb.DeleteRequest(key=key), timeout=30).deleted
        except grpc.RpcError as error:
            refused = error
            break
        del written[key]
        assert value_of(kv, key) is None
    assert (
        refused.code() == CODES.RESOURCE_EXHAUSTED and "the disk has no room" in refused.details()
    ), refused
    assert len(small) > len(small.keys() & written.keys()) > 0
    expect_kept(kv, written)
    wait_until(lambda: "no room for the log" in server.log(), message="nothing is logged")

    make_room()

    def takes_writes():
        with contextlib.suppress(grpc.RpcError):
            return put(kv, b"grows", bytes(FILL_BYTES)).applied
        return False

    wait_until(takes_writes, message="there is room, and writes are refused")
    wait_until(lambda: "room for the log again" in server.log(), message="nothing is logged")
    more = {b"again/%d" % number: bytes(5_000) for number in range(50)}
    for key, value in more.items():
        put(kv, key, value)
    return written | more | {b"grows": bytes(FILL_BYTES)}


def test_a_disk_without_room_for_the_next_file(binary, folder, tmp_path):
    prefix = strace.injecting(
        tmp_path / "strace", "pwrite64:error=ENOSPC", only_file=folder / "segment.new"
    )
    with serving(binary, folder, prefix) as (server, kv, _):
        tracer = strace.tracer_of(server.process.pid)

        def make_room():
            os.kill(tracer, signal.SIGTERM)
            strace.wait_for_end(tracer)

        written = full_disk(server, kv, make_room)
        server.kill()
    with serving(binary, folder) as (server, kv, _):
        expect_kept(kv, written)
        assert server.stop() == 0


@pytest.fixture
def small_disk(tmp_path):
    """A file system with room for a few files of the log."""
    place = tmp_path / "disk"
    place.mkdir()
    with small_disk_at(place, "1m"):
        yield place


def test_a_disk_that_is_really_full(binary, small_disk):
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(512 * 1024))
    with serving(binary, small_disk / "data") as (server, kv, _):
        for key, value in KEPT.items():
            put(kv, key, value)
        written = full_disk(server, kv, ballast.unlink)
        server.kill()
    with serving(binary, small_disk / "data") as (server, kv, _):
        expect_kept(kv, written)
        assert server.stop() == 0


# A memtable of 4 MiB, so that few of them are many.
SMALL_TREES = [
    "--threads",
    "1",
    "--kind",
    "disk",
    "--memory-limit",
    "64MiB",
    "--log-segment",
    "4MiB",
    "--max-value",
    "1MiB",
]


@pytest.fixture
def small_trees(binary, tmp_path):
    """A data folder whose databases on disk have a small file system of their own; its log has
    room."""
    folder = tmp_path / "data"
    place, aside = folder / "trees", tmp_path / "trees"
    with Server(binary, "--data", str(folder), *SMALL_TREES) as server:
        assert server.stop() == 0
    place.rename(aside)
    place.mkdir()
    with small_disk_at(place, "96m"):
        shutil.copytree(aside, place, dirs_exist_ok=True)
        yield folder


def test_a_disk_without_room_for_a_database(binary, small_trees):
    """Memtables cannot be flushed: what grows the database is refused with a reason that lasts
    until there is room."""
    ballast = small_trees / "trees" / "ballast"
    ballast.write_bytes(bytes(92 << 20))
    value = lambda number: number.to_bytes(4) + os.urandom(256 * 1024)
    with (
        Server(binary, "--data", str(small_trees), *SMALL_TREES) as server,
        open_channel(server.address) as channel,
    ):
        kv = kv_pb2_grpc.KeyValueStub(channel)
        written, refused = {}, None
        for number in range(1_000):
            try:
                put(kv, b"%d" % number, last := value(number))
                written[b"%d" % number] = last
            except grpc.RpcError as error:
                refused = error
                if "no room" in error.details():
                    break
                # The last flush was under way when the memtables ran out: it has not failed yet.
                assert error.code() == CODES.UNAVAILABLE, error
        assert refused and refused.code() == CODES.RESOURCE_EXHAUSTED, refused
        for words in ("the disk has no room for more of this database", "reads go on"):
            assert words in refused.details(), refused.details()
        for key, wanted in written.items():
            assert value_of(kv, key) == wanted, key
        ballast.unlink()
        takes_writes = lambda: succeeds(lambda: put(kv, b"later", value(0)))
        wait_until(takes_writes, message="there is room, and writes are refused")
        server.kill()
    with (
        Server(binary, "--data", str(small_trees), *SMALL_TREES) as server,
        open_channel(server.address) as channel,
    ):
        kv = kv_pb2_grpc.KeyValueStub(channel)
        for key, wanted in written.items():
            assert value_of(kv, key) == wanted, key
        assert value_of(kv, b"later") is not None
        assert server.stop() == 0


def succeeds(call):
    with contextlib.suppress(grpc.RpcError):
        call()
        return True
    return False


def test_a_start_on_a_full_disk_is_refused(binary, small_disk):
    (small_disk / "ballast").write_bytes(bytes(1024 * 1024 - SEGMENT_BYTES // 2))
    with pytest.raises(AssertionError, match="(?i)no space"):
        with serving(binary, small_disk / "data"):
            pass
    (small_disk / "ballast").unlink()
    with serving(binary, small_disk / "data") as (server, kv, _):
        put(kv, b"key")
        assert server.stop() == 0


@pytest.mark.parametrize(
    "call, is_new",
    [
        ("fdatasync:error=EIO", False),
        ("pwrite64:error=ENOSPC", False),
        ("fsync:error=EIO", False),
        ("fdatasync:error=EIO", True),
        ("pwrite64:error=ENOSPC", True),
        ("fsync:error=EIO", True),
        ("renameat:error=EIO", True),
    ],
)
def test_a_start_that_meets_a_failure_loses_nothing(binary, folder, tmp_path, call, is_new):
    """The n-th such call of a start fails, for each n: the start is refused with one line or goes
    on, and what was there is there afterwards."""
    if is_new:
        folder = tmp_path / "new"
    refused = failed = 0
    for number in range(1, 8):
        if not is_new:
            crash(binary, folder, number)
        started = True
        try:
            with serving(
                binary, folder, strace.injecting(tmp_path / "strace", f"{call}:when={number}")
            ) as (server, kv, _):
                with contextlib.suppress(grpc.RpcError):
                    put(kv, b"during")
                server.kill()
        except AssertionError as failure:
            started = False
            refused += 1
            lines = [line for line in str(failure).splitlines()[1:] if line]
            assert (
                len(lines) == 1 and lines[0].startswith("pelton: ") and str(folder) in lines[0]
            ), lines
        injected = "INJECTED" in (tmp_path / "strace").read_text()
        assert started or injected
        failed += injected
        if not is_new:
            with serving(binary, folder) as (server, kv, _):
                expect_kept(kv, {b"crash/%d" % n: b"%d" % n for n in range(1, number + 1)})
                server.kill()
        elif folder.exists():
            with serving(binary, folder) as (server, kv, _):
                put(kv, b"key")
                assert server.stop() == 0
            shutil.rmtree(folder)
    print(
        f"{call}, {'new' if is_new else 'old'} folder: {failed} calls failed, {refused} starts "
        "refused"
    )
    assert failed, "nothing was tried"


def crash(binary, folder, number):
    """One more write, and no clean end."""
    with serving(binary, folder) as (server, kv, _):
        put(kv, b"crash/%d" % number, b"%d" % number)
        server.kill()
