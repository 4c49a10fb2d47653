"""Ways to write, each in a thread of its own with one call (or one Pipe) at a time, each with a
model of its keys."""

import queue
import random
import struct
import threading

import grpc
from model import SOME_TIME, Entry, Space, Wrong
from pelton.v1 import admin_pb2
from pelton.v1 import kv_pb2 as pb

CALL_SECONDS = 30

# The default database is synced; these are as durable as a kill of the server is concerned.
WRITTEN, INTERVAL = "written", "interval"
# These are on disk.
DISK, DISK_WRITTEN = "disk", "disk-written"
LAST_DATABASES = ["", WRITTEN, INTERVAL, DISK, DISK_WRITTEN]

SHARED_KEY = b"shared"
HOUR_MS = 3_600_000


class Gone(Exception):
    """The server is gone: what is under way may or may not have been done."""


def call(method, request):
    try:
        return method(request, timeout=CALL_SECONDS)
    except grpc.RpcError as error:
        if error.code() == grpc.StatusCode.UNAVAILABLE:
            raise Gone from error
        raise


class Writer:
    def __init__(self, client, name, source, database=""):
        self.name = f"{name}@{database}" if database else name
        self.random = source
        self.space = Space(database, f"{client}/{name}/".encode())
        self.spaces = [self.space]
        self.counter = 0
        self.begin()

    def __str__(self):
        return f"{self.space}"

    def connect(self, kv, admin):
        self.kv, self.admin = kv, admin

    def begin(self):
        """Before a round."""
        self.acknowledged = 0
        self.versions = []
        self.shared = []
        self.failure = None

    def check(self, found):
        """Takes out of `found` what is this writer's, and compares."""
        space = self.space
        keys = [
            (database, key)
            for database, key in found
            if database == space.database and key.startswith(space.prefix)
        ]
        return space.check({key[1]: found.pop(key) for key in keys})

    def count(self):
        return sum(len(space.entries) for space in self.spaces)

    def run(self):
        while True:
            self.step()

    def number(self):
        self.counter += 1
        return self.counter

    def key(self, number):
        return self.space.prefix + b"%d" % number

    def value(self):
        """Never the same twice."""
        length = self.random.choice([0, 10, 100, 100, 1_000, 1_000, 5_000])
        length = 70_000 if self.counter % 100 == 0 else length
        return b"%d." % self.number() + bytes([self.counter % 251]) * length

    def some_key(self, new_share):
        """A key that was written already, or a new one."""
        if not self.space.entries or self.random.random() < new_share:
            return self.key(self.number())
        return self.random.choice(list(self.space.entries))

    def done(self, version):
        self.space.acknowledge(version)
        self.acknowledged += 1
        self.versions.append(version)

    def expect(self, condition, *what):
        if not condition:
            raise Wrong(f"{self}: {what}")


class Puts(Writer):
    """Put and Delete: conditions, times to live, previous values."""

    def step(self):
        key = self.some_key(0.3)
        old = self.space.entries.get(key)
        kinds = [self.put, self.put, self.put_briefly, self.put_refused]
        kinds += [self.put_if_version, self.keep_expiry, self.delete] if old else []
        self.random.choice(kinds)(key, old)

    def send_put(self, key, old, entry, **fields):
        self.space.send({key: entry})
        answer = call(
            self.kv.Put,
            pb.PutRequest(
                database=self.space.database,
                key=key,
                value=entry.value,
                return_previous=True,
                **fields,
            ),
        )
        self.expect(answer.applied, key, answer)
        self.expect(answer.HasField("previous") == (old is not None), key, old, answer)
        self.expect(old is None or answer.previous.value == old.value, key, old, answer)
        self.done(answer.version)

    def put(self, key, old):
        self.send_put(key, old, Entry(self.value()))

    def put_briefly(self, key, old):
        self.send_put(key, old, Entry(self.value(), 0, SOME_TIME), time_to_live_ms=HOUR_MS)

    def keep_expiry(self, key, old):
        self.send_put(key, old, Entry(self.value(), 0, old.expires_at_ms), keep_time_to_live=True)

    def put_if_version(self, key, old):
        self.send_put(key, old, Entry(self.value()), if_version=old.version)

    def put_refused(self, key, old):
        """A condition that is not met must leave nothing behind, and its answer rests on what
        lasts."""
        request = pb.PutRequest(
            database=self.space.database, key=key, value=b"never", if_exists=old is None
        )
        answer = call(self.kv.Put, request)
        self.expect(
            not answer.applied and answer.version == (old.version if old else 0), key, old, answer
        )

    def delete(self, key, old):
        self.space.send({key: None})
        answer = call(self.kv.Delete, pb.DeleteRequest(database=self.space.database, key=key))
        self.expect(answer.deleted and answer.version == old.version, key, old, answer)
        self.done(answer.sequence)


class Appends(Writer):
    def step(self):
        key = self.key(self.random.randrange(20))
        old = self.space.entries.get(key, Entry(b""))
        if len(old.value) > 3_000:
            self.space.send({key: None})
            self.done(call(self.kv.Delete, pb.DeleteRequest(key=key)).sequence)
            return
        part = b"%d;" % self.number()
        self.space.send({key: Entry(old.value + part)})
        answer = call(self.kv.Append, pb.AppendRequest(key=key, value=part))
        self.expect(
            answer.applied and answer.length == len(old.value) + len(part), key, old, answer
        )
        self.done(answer.version)


class Increments(Writer):
    def step(self):
        key = self.key(self.random.randrange(20))
        old = number_in(self.space.entries.get(key))
        delta = self.random.randrange(-1_000, 1_000)
        self.space.send({key: Entry(number_bytes(old + delta))})
        answer = call(self.kv.Increment, pb.IncrementRequest(key=key, delta=delta))
        self.expect(answer.applied and answer.value == old + delta, key, old, delta, answer)
        self.done(answer.version)


class Batches(Writer):
    """Atomic batches over many keys, in which every kind of operation occurs; some fail at their
    last operation."""

    OTHERS = 12

    def step(self):
        commit, operations = self.operations()
        if self.space.entries and self.random.random() < 0.1:
            operations.append(put(self.key(1), b"never", if_exists=False))
            answer = call(self.kv.Batch, self.request(operations))
            self.expect(
                not answer.applied and answer.failed_operation == len(operations) - 1, answer
            )
            return
        self.space.send(commit)
        answer = call(self.kv.Batch, self.request(operations))
        self.expect(answer.applied, answer)
        self.expect(answer.results[-1].increment.value == number_in(commit[self.key(2)]), answer)
        self.done(answer.sequence)

    def request(self, operations):
        return pb.BatchRequest(database=self.space.database, operations=operations)

    def operations(self):
        """The same number under many keys, the last of which goes; a text and a counter."""
        stamp = b"%d" % self.number()
        text = self.space.entries.get(self.key(1), Entry(b"")).value[-500:]
        counter = number_in(self.space.entries.get(self.key(2)))
        keys = [self.key(100 + number) for number in range(self.OTHERS)]
        commit = {key: Entry(stamp) for key in keys}
        operations = [put(key, stamp) for key in keys]
        commit[keys[-1]] = None
        operations.append(pb.Operation(delete=pb.Operation.Delete(key=keys[-1])))
        commit[self.key(1)] = Entry(text + stamp)
        operations.append(put(self.key(1), text))
        operations.append(pb.Operation(append=pb.Operation.Append(key=self.key(1), value=stamp)))
        commit[self.key(2)] = Entry(number_bytes(counter + 7))
        operations.append(pb.Operation(increment=pb.Operation.Increment(key=self.key(2), delta=7)))
        return commit, operations


class HugeBatches(Writer):
    """Commits larger than a file of the log, now and then."""

    def begin(self):
        super().begin()
        self.pause = threading.Event()

    def step(self):
        stamp = b"%d." % self.number()
        value = stamp + bytes(self.random.randrange(100_000, 400_000))
        keys = [self.key(number) for number in range(self.random.randrange(3, 8))]
        self.space.send({key: Entry(value) for key in keys})
        answer = call(self.kv.Batch, pb.BatchRequest(operations=[put(key, value) for key in keys]))
        self.expect(answer.applied, answer)
        self.done(answer.sequence)
        self.pause.wait(0.1)


class Fillers(Writer):
    """Enough to fill memtables again and again, by writes that need not know what was there."""

    def begin(self):
        super().begin()
        self.pause = threading.Event()

    def step(self):
        stamp = b"%d." % self.number()
        value = stamp + self.random.randbytes(3_000)
        keys = [self.key(self.random.randrange(1_000)) for _ in range(30)]
        self.space.send({key: Entry(value) for key in keys})
        answer = call(
            self.kv.Batch,
            pb.BatchRequest(
                database=self.space.database, operations=[put(key, value) for key in set(keys)]
            ),
        )
        self.expect(answer.applied, answer)
        self.done(answer.sequence)
        self.pause.wait(0.02)


class Transfers(Writer):
    """Transact: what is taken from one account is in another, and a third key counts."""

    def step(self):
        one, other = (self.key(number) for number in self.random.sample(range(10), 2))
        entries = self.space.entries
        have, has = number_in(entries.get(one)), number_in(entries.get(other))
        amount = self.random.randrange(100)
        self.space.send(
            {one: Entry(number_bytes(have - amount)), other: Entry(number_bytes(has + amount))}
        )
        comparison = pb.Comparison(key=one, version=entries[one].version if one in entries else 0)
        operations = [
            pb.Operation(increment=pb.Operation.Increment(key=one, delta=-amount)),
            pb.Operation(increment=pb.Operation.Increment(key=other, delta=amount)),
        ]
        answer = call(
            self.kv.Transact, pb.TransactRequest(comparisons=[comparison], when_met=operations)
        )
        self.expect(answer.met and answer.batch.applied, answer)
        self.done(answer.batch.sequence)

    def check(self, found):
        versions = super().check(found)
        total = sum(number_in(entry) for entry in self.space.entries.values())
        self.expect(total == 0, "the accounts together have", total)
        return versions


class Pipes(Writer):
    """A Pipe: batches are there in the order sent. With `failures_only`, acknowledged several at a
    time."""

    AHEAD = 32

    def __init__(self, *arguments, failures_only):
        super().__init__(*arguments)
        self.failures_only = failures_only

    def run(self):
        requests = queue.SimpleQueue()
        answers = self.kv.Pipe(iter(requests.get, None), timeout=CALL_SECONDS)
        try:
            self.talk(requests, answers)
        except grpc.RpcError as error:
            # A Pipe that goes on and on is ended by a stop in the midst of its batches, and is told
            # so.
            stopped = (
                error.code() == grpc.StatusCode.UNKNOWN and "the server stopped" in error.details()
            )
            if error.code() != grpc.StatusCode.UNAVAILABLE and not stopped:
                raise
            raise Gone from error
        finally:
            requests.put(None)

    def talk(self, requests, answers):
        done = 0
        while True:
            while len(self.space.under_way) < self.AHEAD:
                requests.put(self.batch())
            answer = next(answers)
            self.expect(not answer.HasField("failure") and answer.done > done, answer)
            self.expect(
                self.failures_only or (answer.batch.applied and answer.done == done + 1), answer
            )
            for _ in range(answer.done - done):
                self.space.acknowledge(answer.batch.sequence)
                self.acknowledged += 1
            if not self.failures_only:
                self.versions.append(answer.batch.sequence)
            done = answer.done

    def batch(self):
        number = self.number()
        stamp = b"%d" % number
        keys = [self.key(number % 200), self.key(1_000), self.key(1_001)]
        self.space.send({key: Entry(stamp) for key in keys})
        answers = pb.PIPE_ANSWERS_FAILURES_ONLY if self.failures_only else pb.PIPE_ANSWERS_ALL
        return pb.PipeRequest(operations=[put(key, stamp) for key in keys], answers=answers)


class Shared(Writer):
    """A counter that all clients increment and read. `shared`: (1, what an increment of 1 answered,
    or 0 if it was not answered), (0, what a read saw)."""

    def step(self):
        if self.random.random() < 0.3:
            answer = call(self.kv.Get, pb.GetRequest(key=SHARED_KEY))
            self.shared.append((0, number_in(answer) if answer.found else 0))
            return
        self.shared.append((1, 0))
        answer = call(self.kv.Increment, pb.IncrementRequest(key=SHARED_KEY, delta=1))
        self.shared[-1] = (1, answer.value)
        self.acknowledged += 1
        self.versions.append(answer.version)


class Databases(Writer):
    """Databases that come and go, of each durability, with something in them."""

    NAMES = 6
    DURABILITIES = [
        admin_pb2.DURABILITY_MODE_SYNCED,
        admin_pb2.DURABILITY_MODE_INTERVAL,
        admin_pb2.DURABILITY_MODE_WRITTEN,
        admin_pb2.DURABILITY_MODE_VOLATILE,
    ]

    def __init__(self, client, name, source):
        super().__init__(client, name, source)
        self.prefix = f"client-{client}-"
        # Durability and keys by name; the kinds of which each may be; and what is under way: (name,
        # what it will be).
        self.there = {}
        self.kinds = {}
        self.under_way = None

    def step(self):
        name = self.prefix + str(self.random.randrange(self.NAMES))
        if name not in self.there:
            self.create(name)
        elif self.random.random() < 0.3:
            self.drop(name)
        elif self.random.random() < 0.3:
            self.convert(name)
        self.acknowledged += 1
        if name in self.there:
            self.fill(*self.there[name])

    def create(self, name):
        durability = self.random.choice(self.DURABILITIES)
        interval_ms = 50 if durability == admin_pb2.DURABILITY_MODE_INTERVAL else 0
        kind = (
            MEMORY_KIND
            if durability == admin_pb2.DURABILITY_MODE_VOLATILE
            else self.random.choice(KINDS)
        )
        self.kinds[name] = {kind}
        description = admin_pb2.DatabaseDescription(
            name=name, kind=kind, durability=durability, interval_ms=interval_ms
        )
        self.under_way = name, (durability, Space(name, b""))
        answer = call(
            self.admin.CreateDatabase, admin_pb2.CreateDatabaseRequest(database=description)
        )
        self.expect(answer.created, "it was there already", answer)
        self.settle()

    def drop(self, name):
        self.under_way = name, None
        answer = call(
            self.admin.DropDatabase, admin_pb2.DropDatabaseRequest(name=name, confirm_name=name)
        )
        self.expect(answer.dropped, "it was not there", name)
        self.settle()

    def convert(self, name):
        """All or nothing, whatever happens on the way."""
        durability, _ = self.there[name]
        if durability == admin_pb2.DURABILITY_MODE_VOLATILE:
            return
        (kind,) = self.kinds[name]
        other = KINDS[KINDS[0] == kind]
        self.kinds[name].add(other)
        request = admin_pb2.ConvertDatabaseRequest(name=name, kind=other)
        try:
            *_, last = self.admin.ConvertDatabase(request, timeout=CALL_SECONDS)
        except grpc.RpcError as error:
            if error.code() != grpc.StatusCode.UNAVAILABLE:
                raise
            # One at a time in all of the server.
            if "another backup" not in error.details():
                raise Gone from error
            self.kinds[name] = {kind}
            return
        self.expect(last.complete and last.converted, last)
        self.kinds[name] = {other}
        self.versions.append(last.sequence)

    def settle(self):
        name, will_be = self.under_way
        self.under_way = None
        if will_be:
            self.there[name] = will_be
        else:
            del self.there[name]

    def fill(self, durability, space):
        stamp = b"%d" % self.number()
        keys = [b"%d" % number for number in range(self.counter % 5 + 1)]
        space.send({key: Entry(stamp) for key in keys})
        answer = call(
            self.kv.Batch,
            pb.BatchRequest(database=space.database, operations=[put(key, stamp) for key in keys]),
        )
        self.expect(answer.applied, answer)
        space.acknowledge(answer.sequence)
        self.versions.append(answer.sequence)

    def check(self, found):
        listed = call(self.admin.ListDatabases, admin_pb2.ListDatabasesRequest()).databases
        kinds = {
            one.database.name: one.database.kind
            for one in listed
            if one.database.name.startswith(self.prefix)
        }
        listed = {
            one.database.name: one.database.durability
            for one in listed
            if one.database.name.startswith(self.prefix)
        }
        if self.under_way:
            name, will_be = self.under_way
            if (name in listed) == bool(will_be):
                self.settle()
            self.under_way = None
        expected = {name: durability for name, (durability, _) in self.there.items()}
        self.expect(
            listed == expected, "databases that are there, and that must be", listed, expected
        )
        for name, kind in kinds.items():
            self.expect(
                kind in self.kinds[name], "a database of another kind", name, kind, self.kinds[name]
            )
            self.kinds[name] = {kind}
        return [version for there in self.there.values() for version in self.check_content(*there)]

    def check_content(self, durability, space):
        if durability == admin_pb2.DURABILITY_MODE_VOLATILE:
            space.entries.clear()
            space.under_way.clear()
        pages = self.kv.Scan(pb.ScanRequest(database=space.database), timeout=CALL_SECONDS)
        entries = {
            e.key: Entry(e.value, e.version, e.expires_at_ms)
            for page in pages
            for e in page.entries
        }
        return space.check(entries)

    def count(self):
        return sum(len(space.entries) for _, space in self.there.values())


MEMORY_KIND, DISK_KIND = KINDS = admin_pb2.DATABASE_KIND_MEMORY, admin_pb2.DATABASE_KIND_DISK


def put(key, value, **condition):
    return pb.Operation(put=pb.Operation.Put(key=key, value=value, **condition))


def number_bytes(number):
    return struct.pack(">q", number)


def number_in(entry):
    return struct.unpack(">q", entry.value)[0] if entry else 0


def writers_of_client(client, seed):
    """Every writer has a prefix of its own."""

    def writer(make, name, *more, **options):
        return make(client, name, random.Random(f"{seed}/{client}/{name}{more}"), *more, **options)

    writers = [
        writer(Puts, "put"),
        writer(Puts, "put", WRITTEN),
        writer(Puts, "put", INTERVAL),
        writer(Appends, "append"),
        writer(Increments, "increment"),
        writer(Batches, "batch"),
        writer(Batches, "batch", INTERVAL),
        writer(Puts, "put", DISK),
        writer(Puts, "put", DISK_WRITTEN),
        writer(Batches, "batch", DISK),
        writer(Fillers, "fill", DISK),
        writer(Fillers, "fill", DISK_WRITTEN),
        writer(Transfers, "transfer"),
        writer(Pipes, "pipe", failures_only=False),
        writer(Pipes, "pipe-failures", failures_only=True),
        writer(Shared, "shared"),
        writer(Databases, "databases"),
    ]
    return writers + [writer(HugeBatches, "huge")] if client == 0 else writers
