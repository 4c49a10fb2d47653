"""Backups while clients write: what is restored is every write up to the sequence of the backup,
and none after it."""

import subprocess
import threading
import time

import grpc
import pytest
from pelton.v1 import admin_pb2, admin_pb2_grpc, kv_pb2_grpc
from pelton.v1 import kv_pb2 as pb
from server import Server, expect_status, open_channel, wait_until

WRITERS = 4
KEYS = 300
BACKUPS = 4
DATABASES = ["", "other", "disk"]


class Writer(threading.Thread):
    """Puts and deletes keys of its own, each when the one before was answered, and notes what
    happened at which sequence."""

    def __init__(self, address, number):
        super().__init__(daemon=True)
        self.address = address
        self.number = number
        self.stopping = threading.Event()
        # (database, key) -> [(sequence, value or None)]
        self.history = {}
        self.failure = None

    def run(self):
        try:
            with open_channel(self.address) as channel:
                kv = kv_pb2_grpc.KeyValueStub(channel)
                turn = 0
                while not self.stopping.is_set():
                    self.write(kv, turn)
                    turn += 1
        except BaseException as failure:  # noqa: B902 - the test looks at it
            self.failure = failure

    def write(self, kv, turn):
        database = DATABASES[turn % len(DATABASES)]
        key = b"%d/%d" % (self.number, turn * 7 % KEYS)
        value = b"turn %d" % turn + b"." * (turn % 200)
        if turn % 5 == 4:
            value = None
            sequence = kv.Delete(pb.DeleteRequest(database=database, key=key)).sequence
        else:
            sequence = kv.Put(pb.PutRequest(database=database, key=key, value=value)).version
        # Nothing was there to delete: there was no commit.
        if sequence:
            self.history.setdefault((database, key), []).append((sequence, value))


def written(writers):
    # Copied, as they go on meanwhile.
    return sum(len(changes) for writer in writers for changes in list(writer.history.values()))


def content(address):
    """All entries of all databases: value and version."""
    found = {}
    with open_channel(address) as channel:
        kv = kv_pb2_grpc.KeyValueStub(channel)
        for database in DATABASES:
            for page in kv.Scan(pb.ScanRequest(database=database)):
                for entry in page.entries:
                    found[database, entry.key] = entry.value, entry.version
    return found


def restore(binary, backup, data):
    return subprocess.run(
        [binary, "restore", backup, "--data", data], capture_output=True, text=True, timeout=60
    )


def expected(writers, sequence):
    """What the writers had written by the commit of a sequence."""
    entries = {}
    for writer in writers:
        for place, changes in writer.history.items():
            past = [(at, value) for at, value in changes if at <= sequence]
            if past and past[-1][1] is not None:
                entries[place] = past[-1][1]
    return entries


def test_backups_under_load_are_exactly_what_there_was_at_their_sequence(binary, tmp_path):
    flags = [
        "--data",
        str(tmp_path / "data"),
        "--backup-root",
        str(tmp_path / "backups"),
        "--log-segment",
        "1MiB",
    ]
    backups = []
    with Server(binary, *flags) as server, open_channel(server.address) as channel:
        admin = admin_pb2_grpc.AdminStub(channel)
        for name, kind, mode in [
            ("other", admin_pb2.DATABASE_KIND_MEMORY, admin_pb2.DURABILITY_MODE_WRITTEN),
            ("disk", admin_pb2.DATABASE_KIND_DISK, admin_pb2.DURABILITY_MODE_SYNCED),
            ("cache", admin_pb2.DATABASE_KIND_MEMORY, admin_pb2.DURABILITY_MODE_VOLATILE),
        ]:
            description = admin_pb2.DatabaseDescription(name=name, kind=kind, durability=mode)
            admin.CreateDatabase(admin_pb2.CreateDatabaseRequest(database=description))
        writers = [Writer(server.address, number) for number in range(WRITERS)]
        for writer in writers:
            writer.start()
        for number in range(BACKUPS):
            time.sleep(0.3)
            progress = list(admin.Backup(admin_pb2.BackupRequest(name=f"b{number}")))
            assert [one.complete for one in progress] == [False] * (len(progress) - 1) + [True]
            last = progress[-1]
            assert last.written_bytes == last.total_bytes > 0
            assert (last.databases, last.volatile_databases) == (3, 1)
            backups.append((last.path, last.sequence))
            # The log is shortened between the backups.
            assert admin.Snapshot(admin_pb2.SnapshotRequest()).sequence >= last.sequence
        wait_until(
            lambda: any(writer.failure for writer in writers) or written(writers) > 1_000,
            60,
            "the writers do little",
        )
        for writer in writers:
            writer.stopping.set()
        for writer in writers:
            writer.join(timeout=30)
            assert writer.failure is None, writer.failure

    for number, (path, sequence) in enumerate(backups):
        data = tmp_path / f"restored-{number}"
        done = restore(binary, path, data)
        assert done.returncode == 0, done.stderr
        assert f"sequence {sequence}" in done.stdout
        with Server(binary, "--data", str(data)) as server:
            found = content(server.address)
        assert all(version <= sequence for _, version in found.values())
        assert {place: value for place, (value, _) in found.items()} == expected(writers, sequence)
    sequences = [sequence for _, sequence in backups]
    assert sequences == sorted(set(sequences)), "each one shows more than the one before"


def test_a_backup_needs_a_root_a_good_name_and_a_free_one(binary, tmp_path):
    request = admin_pb2.BackupRequest(name="one")
    with (
        Server(binary, "--data", str(tmp_path / "data")) as server,
        open_channel(server.address) as channel,
    ):
        admin = admin_pb2_grpc.AdminStub(channel)
        error = expect_status(
            grpc.StatusCode.FAILED_PRECONDITION, lambda: list(admin.Backup(request))
        )
        assert "--backup-root" in error.details()
    flags = ["--data", str(tmp_path / "data"), "--backup-root", str(tmp_path / "backups")]
    with Server(binary, *flags) as server, open_channel(server.address) as channel:
        admin = admin_pb2_grpc.AdminStub(channel)
        for name in ["", ".", "..", "../up", "a/b", "a\\b", "a\0b", "x" * 129]:
            bad = admin_pb2.BackupRequest(name=name)
            expect_status(grpc.StatusCode.INVALID_ARGUMENT, lambda bad=bad: list(admin.Backup(bad)))
        assert list(admin.Backup(request))[-1].complete
        expect_status(grpc.StatusCode.ALREADY_EXISTS, lambda: list(admin.Backup(request)))
        assert [path.name for path in (tmp_path / "backups").iterdir()] == ["one"]


@pytest.mark.parametrize("how", ["cancel", "deadline"])
def test_a_backup_that_nobody_waits_for_is_removed(binary, tmp_path, how):
    flags = [
        "--data",
        str(tmp_path / "data"),
        "--backup-root",
        str(tmp_path / "backups"),
        "--durability",
        "written",
    ]
    with Server(binary, *flags) as server, open_channel(server.address) as channel:
        kv, admin = kv_pb2_grpc.KeyValueStub(channel), admin_pb2_grpc.AdminStub(channel)
        for attempt in range(4):
            fill(kv, attempt, 60_000 << attempt)
            name = f"given-up-{attempt}"
            give_up(admin, name, how)
            # The server can make the next one as soon as the thread of this one has ended.
            wait_until(lambda: is_made(admin, f"next-{attempt}"))  # noqa: B023
            if not (tmp_path / "backups" / name).exists():
                assert is_made(admin, name)
                return
            # On a fast device, or where the machine had no time for us, it was done before: then it
            # is whole, and proves nothing else. The next one takes longer.
            done = restore(
                binary, str(tmp_path / "backups" / name), str(tmp_path / f"restored-{attempt}")
            )
            assert done.returncode == 0, done.stderr
    raise AssertionError("each backup was done before it was given up")


def fill(kv, number, count):
    for first in range(0, count, 1_000):
        put = [
            pb.Operation(put=pb.Operation.Put(key=b"%d/%d" % (number, at), value=b"x" * 500))
            for at in range(first, first + 1_000)
        ]
        kv.Batch(pb.BatchRequest(operations=put))


def give_up(admin, name, how):
    call = admin.Backup(
        admin_pb2.BackupRequest(name=name), timeout=0.05 if how == "deadline" else None
    )
    try:
        if how == "cancel":
            next(call)
            call.cancel()
        list(call)
    except grpc.RpcError as error:
        assert error.code() in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)


def is_made(admin, name):
    try:
        return list(admin.Backup(admin_pb2.BackupRequest(name=name)))[-1].complete
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.UNAVAILABLE, error
        return False
