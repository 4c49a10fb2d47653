"""The clients of a recorded run: each writes one database, and notes how it must be."""

import random
import struct
import threading
import traceback
from dataclasses import dataclass

from calls import Calls, Refused
from history import SOME_TIME, Blob, Database, Entry, Step, Timeline
from pelton.v1 import admin_pb2 as admin
from pelton.v1 import blob_pb2
from pelton.v1 import kv_pb2 as pb
from raw import END_STREAM

MEMORY, DISK = admin.DATABASE_KIND_MEMORY, admin.DATABASE_KIND_DISK
SYNCED = admin.DURABILITY_MODE_SYNCED
WRITTEN = admin.DURABILITY_MODE_WRITTEN
INTERVAL = admin.DURABILITY_MODE_INTERVAL
VOLATILE = admin.DURABILITY_MODE_VOLATILE

# The server does one conversion, backup or snapshot at a time.
TASKS = threading.Lock()

HOUR_MS = 3_600_000
# Shorter than it takes until a state is looked at.
BRIEF_MS = 50
CHUNK_BYTES = 30_000


class Writer:
    """Writes one database. `calls` is its connection in the current run, `run` its number."""

    def __init__(self, name, seed, kind=MEMORY, durability=SYNCED):
        self.name, self.kind, self.durability = name, kind, durability
        self.random = random.Random(f"{seed}/{name}")
        self.timeline = Timeline(name, is_volatile=durability == VOLATILE)
        self.database = Database(MEMORY) if name == "" else None
        self.uploads = {}
        self.timeline.add(Step(self.database, None))
        self.count = 0

    def connect(self, address, run):
        self.calls, self.run = Calls(address), run
        self.failure = None

    # Steps

    def note(self, stream, database, is_synced=None):
        """The call on `stream` was acknowledged, and the database is so now."""
        if is_synced is None:
            is_synced = self.durability in (SYNCED, VOLATILE)
        self.database = database
        answer = (self.run, self.calls.local_port, stream)
        self.timeline.add(Step(database, answer, is_synced, dict(self.uploads)))

    def ask(self, method, request):
        """Calls, and returns the only or last message, and the stream."""
        stream = self.calls.begin(method, request)
        return self.calls.messages(method, stream)[-1], stream

    def confirm(self):
        """Reads: what is shown after a restart is durable."""
        if self.database is None:
            _, stream = self.ask("Admin/ListDatabases", admin.ListDatabasesRequest())
            self.note(stream, None, is_synced=True)
        else:
            _, stream = self.ask("KeyValue/Get", pb.GetRequest(database=self.name, key=b"nothing"))
            if self.durability == VOLATILE:
                self.database = Database(self.database.kind)
            self.note(stream, self.database, is_synced=True)

    def changed(self, changes):
        """Returns the database with other entries, None where they are removed."""
        entries = dict(self.database.entries)
        for key, entry in changes.items():
            if entry is None:
                entries.pop(key, None)
            else:
                entries[key] = entry
        return Database(self.database.kind, entries, self.database.blobs)

    def with_blobs(self, blobs):
        return Database(self.database.kind, self.database.entries, blobs)

    def number(self):
        self.count += 1
        return self.count

    def key(self, count=24):
        return b"key %02d" % self.random.randrange(count)

    def value(self):
        """Never the same twice."""
        length = self.random.choice([0, 10, 100, 600, 600, 3_000])
        return b"%d." % self.number() + self.random.randbytes(length)

    def create(self):
        description = admin.DatabaseDescription(
            name=self.name, kind=self.kind, durability=self.durability
        )
        if self.durability == INTERVAL:
            description.interval_ms = 50
        request = admin.CreateDatabaseRequest(database=description)
        answer, stream = self.ask("Admin/CreateDatabase", request)
        assert answer.created
        self.note(stream, Database(self.kind), is_synced=True)

    def drop(self):
        request = admin.DropDatabaseRequest(name=self.name, confirm_name=self.name)
        answer, stream = self.ask("Admin/DropDatabase", request)
        assert answer.dropped
        self.uploads = {}
        self.note(stream, None, is_synced=True)

    def convert(self):
        kind = DISK if self.database.kind == MEMORY else MEMORY
        request = admin.ConvertDatabaseRequest(name=self.name, kind=kind)
        with TASKS:
            answer, stream = self.ask("Admin/ConvertDatabase", request)
        assert answer.complete and answer.converted
        database = Database(kind, self.database.entries, self.database.blobs)
        self.note(stream, database, is_synced=True)

    def put(self):
        key, value = self.key(), self.value()
        answer, stream = self.ask(
            "KeyValue/Put", pb.PutRequest(database=self.name, key=key, value=value)
        )
        self.note(stream, self.changed({key: Entry(value, answer.version)}))

    def put_for_an_hour(self):
        key, value = self.key(), self.value()
        request = pb.PutRequest(database=self.name, key=key, value=value, time_to_live_ms=HOUR_MS)
        answer, stream = self.ask("KeyValue/Put", request)
        self.note(stream, self.changed({key: Entry(value, answer.version, SOME_TIME)}))

    def put_briefly(self):
        """Whenever it is looked at, it has expired: as if the key had been removed."""
        key, value = self.key(), self.value()
        request = pb.PutRequest(database=self.name, key=key, value=value, time_to_live_ms=BRIEF_MS)
        _, stream = self.ask("KeyValue/Put", request)
        self.note(stream, self.changed({key: None}))

    def delete(self):
        key = self.key()
        _, stream = self.ask("KeyValue/Delete", pb.DeleteRequest(database=self.name, key=key))
        self.note(stream, self.changed({key: None}))

    def append(self):
        """To a key of its own, so that it never meets one that has expired meanwhile."""
        key, part = b"appended", b"%d;" % self.number()
        old = self.database.entries.get(key, Entry(b"", 0))
        request = pb.AppendRequest(database=self.name, key=key, value=part)
        answer, stream = self.ask("KeyValue/Append", request)
        self.note(stream, self.changed({key: Entry(old.value + part, answer.version)}))

    def increment(self):
        key, delta = b"counted", self.random.randrange(-1_000, 1_000)
        old = self.database.entries.get(key, Entry(bytes(8), 0))
        request = pb.IncrementRequest(database=self.name, key=key, delta=delta)
        answer, stream = self.ask("KeyValue/Increment", request)
        value = struct.pack(">q", struct.unpack(">q", old.value)[0] + delta)
        self.note(stream, self.changed({key: Entry(value, answer.version)}))

    def batch(self, count=6, size=None):
        """One commit over several keys, some of which it removes: it is there whole, or not."""
        operations, changes = [], {}
        for key in {self.key() for _ in range(count)}:
            if self.random.random() < 0.2 and size is None:
                operations.append(pb.Operation(delete=pb.Operation.Delete(key=key)))
                changes[key] = None
                continue
            value = self.value() if size is None else self.random.randbytes(size)
            operations.append(pb.Operation(put=pb.Operation.Put(key=key, value=value)))
            changes[key] = value
        request = pb.BatchRequest(database=self.name, operations=operations)
        answer, stream = self.ask("KeyValue/Batch", request)
        assert answer.applied
        version = answer.sequence
        entries = {k: v if v is None else Entry(v, version) for k, v in changes.items()}
        self.note(stream, self.changed(entries))

    def fill(self):
        """Enough to fill a memtable in a few steps."""
        self.batch(count=12, size=3_000)

    # Blobs

    def upload(self, name=None, upload_id=b"", content=None, offset=0, keep=None):
        """Uploads a blob; with `keep`, ends the stream after so many bytes, and is not done."""
        name = name or f"blob {self.random.randrange(5)}"
        if content is None:
            content = self.random.randbytes(self.random.choice([0, 500, 70_000]))
        stream = self.calls.begin("Blob/Upload")
        begin = blob_pb2.UploadBegin(
            database=self.name, name=name, upload_id=upload_id, offset=offset
        )
        self.calls.send_message(stream, blob_pb2.UploadRequest(begin=begin))
        last = len(content) if keep is None else keep
        for at in range(offset, last, CHUNK_BYTES):
            chunk = blob_pb2.UploadChunk(data=content[at : min(at + CHUNK_BYTES, last)])
            self.calls.send_message(stream, blob_pb2.UploadRequest(chunk=chunk))
        if keep is None:
            ending = blob_pb2.UploadRequest(end=blob_pb2.UploadEnd())
            self.calls.send_message(stream, ending, END_STREAM)
        else:
            self.calls.half_close(stream)
            self.expect_cut(stream)
            return
        answer = self.calls.messages("Blob/Upload", stream)[-1]
        assert answer.applied
        self.uploads.pop(upload_id, None)
        blobs = dict(self.database.blobs)
        blobs[name] = Blob(content, answer.blob.version)
        self.note(stream, self.with_blobs(blobs), is_synced=True)

    def expect_cut(self, stream):
        try:
            self.calls.messages("Blob/Upload", stream)
        except Refused:
            return
        raise AssertionError("an upload without an end was taken")

    def upload_in_two_parts(self):
        name, upload_id = f"blob {self.random.randrange(5)}", b"upload %d" % self.number()
        content = self.random.randbytes(self.CUT_BYTES * 3 // 2)
        self.upload(name, upload_id, content, keep=self.CUT_BYTES)
        request = blob_pb2.StatRequest(database=self.name, name=name, upload_id=upload_id)
        stored, stream = self.ask("Blob/Stat", request)
        self.uploads[upload_id] = (name, content, stored.stored_bytes)
        # Nothing has changed, but that an upload is there.
        self.note(stream, self.database)
        if self.random.random() < 0.7:
            self.upload(name, upload_id, content, offset=stored.stored_bytes)

    def delete_blob(self):
        name = f"blob {self.random.randrange(5)}"
        request = blob_pb2.DeleteBlobRequest(database=self.name, name=name)
        _, stream = self.ask("Blob/Delete", request)
        blobs = dict(self.database.blobs)
        blobs.pop(name, None)
        self.note(stream, self.with_blobs(blobs), is_synced=True)

    # Rounds

    WRITES = ("put", "put", "delete", "batch", "append", "increment")
    WRITES += ("put_for_an_hour", "put_briefly")

    def work(self, steps):
        for _ in range(steps):
            getattr(self, self.random.choice(self.WRITES))()

    def run_safely(self, steps):
        try:
            if self.database is None:
                self.create()
            self.work(steps)
        except BaseException:  # noqa: B902 - the recorder looks at it
            self.failure = traceback.format_exc()


class Fills(Writer):
    """Writes so much that memtables are flushed, and tables merged."""

    WRITES = (*Writer.WRITES, "fill", "fill", "fill")


class Blobs(Writer):
    CUT_BYTES = 100_000
    WRITES = ("upload", "upload", "delete_blob", "upload_in_two_parts", "put")


class LargeBlobs(Blobs):
    """Uploads that are synced and marked while more comes."""

    CUT_BYTES = 9 << 20

    def work(self, steps):
        for _ in range(steps):
            self.put()
            self.upload_in_two_parts()


class Moves(Writer):
    """Converts its database to and fro, with writes and blobs between."""

    def work(self, steps):
        for number in range(steps):
            if number % 8 == 5:
                self.convert()
            else:
                kinds = ("put", "batch", "fill", "delete", "append")
                getattr(self, self.random.choice(kinds))()


class Comes(Writer):
    """Drops its database and makes it anew, in turn in memory and on disk."""

    def work(self, steps):
        for number in range(steps):
            if number % 7 == 6:
                self.drop()
                self.kind = DISK if self.kind == MEMORY else MEMORY
                self.create()
            else:
                kinds = ("put", "batch", "fill", "upload", "delete")
                getattr(self, self.random.choice(kinds))()


@dataclass(frozen=True)
class Backup:
    """A backup that was acknowledged, and the steps of each writer that may be its last in it."""

    name: str
    answer: tuple
    steps: dict


class Operator:
    """Makes snapshots and backups while the writers write."""

    name = "operator"

    def __init__(self, writers):
        self.writers, self.backups = writers, []

    def connect(self, address, run):
        self.calls, self.run, self.failure = Calls(address), run, None

    def run_safely(self, rounds):
        try:
            for number in range(rounds):
                self.make_backup(f"backup-{self.run}-{number}")
                with TASKS:
                    self.calls.call("Admin/Snapshot", admin.SnapshotRequest())
        except BaseException:  # noqa: B902 - the recorder looks at it
            self.failure = traceback.format_exc()

    def make_backup(self, name):
        with TASKS:
            first = {writer.name: len(writer.timeline.steps) - 1 for writer in self.writers}
            stream = self.calls.begin("Admin/Backup", admin.BackupRequest(name=name))
            assert self.calls.messages("Admin/Backup", stream)[-1].complete
            last = {writer.name: len(writer.timeline.steps) for writer in self.writers}
        answer = (self.run, self.calls.local_port, stream)
        self.backups.append(Backup(name, answer, {n: (first[n], last[n]) for n in first}))


def all_writers(seed):
    return [
        Writer("", seed),
        Writer("written", seed, durability=WRITTEN),
        Writer("interval", seed, durability=INTERVAL),
        Writer("volatile", seed, durability=VOLATILE),
        Fills("disk", seed, kind=DISK),
        Fills("disk-written", seed, kind=DISK, durability=WRITTEN),
        Moves("moves", seed),
        Comes("comes", seed, kind=DISK),
        Blobs("blobs", seed),
    ]


def writer_of(name, seed):
    """Returns a new writer of the kind that has this database."""
    return next(writer for writer in all_writers(seed) if writer.name == name)


def work_together(writers, operator, address, run, steps, backups):
    """Lets all writers work at once, and meanwhile makes backups and snapshots."""
    workers = [*writers, operator] if operator else writers
    for worker in workers:
        worker.connect(address, run)
    if run > 0:
        for writer in writers:
            writer.confirm()
    threads = [threading.Thread(target=writer.run_safely, args=(steps,)) for writer in writers]
    if operator:
        threads.append(threading.Thread(target=operator.run_safely, args=(backups,)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    failures = [f"{one.name!r}: {one.failure}" for one in workers if one.failure]
    assert not failures, "\n".join(failures)
