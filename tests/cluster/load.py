"""Clients that write and read through several gateways, and note what they were told.

Whether a request was carried out is told by its error, as the table at the top of kv.proto does.
What was refused is no part of a history: if it is seen, the history is not linearizable.
"""

import collections
import dataclasses
import random
import struct
import threading
import time

import grpc
from gateway import pushback_ms
from histories import Entry, Operation
from machines import QUORUM_DATABASE
from pelton.v1 import kv_pb2, kv_pb2_grpc
from server import open_channel

CLIENTS = 9
REGISTERS = 8
COUNTERS = 3
QUORUM_KEYS = 12
CALL_SECONDS = 20
# In flight when everything is read at the end.
READS = 64
RECONNECT = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 1000)]

Status = grpc.StatusCode
# Perhaps done.
UNKNOWN = {Status.UNKNOWN, Status.DEADLINE_EXCEEDED, Status.CANCELLED}
# Not done.
REFUSED = {Status.RESOURCE_EXHAUSTED}


@dataclasses.dataclass(frozen=True)
class QuorumWrite:
    """A Put, or with the value None a Delete, of a database with the promise `quorum`."""

    begin: float
    # None: the outcome is unknown.
    end: float | None
    value: bytes | None
    # None: it is not known.
    version: int | None = None


class Notes:
    """What all clients have seen."""

    def __init__(self):
        self.lock = threading.Lock()
        # By key.
        self.histories = collections.defaultdict(list)
        self.quorum = collections.defaultdict(list)
        self.statuses = collections.Counter()
        self.unexpected = []

    def add(self, table, key, noted):
        with self.lock:
            table[key].append(noted)

    def status(self, error, is_unknown):
        with self.lock:
            self.statuses[error.code().name, "unknown" if is_unknown else "refused"] += 1
            known = {Status.UNAVAILABLE, *UNKNOWN, *REFUSED}
            if error.code() not in known and len(self.unexpected) < 10:
                self.unexpected.append(f"{error.code()}: {error.details()}")

    def count(self):
        """What came of the operations, for people."""
        with self.lock:
            operations = [one for history in self.histories.values() for one in history]
            writes = [one for writes in self.quorum.values() for one in writes]
        unknown = sum(one.is_unknown for one in operations)
        return (
            f"{len(operations)} operations of {len(self.histories)} keys, {unknown} of them "
            f"unknown; {len(writes)} writes of `quorum`, {sum(one.end is None for one in writes)} "
            f"unknown; errors: {dict(self.statuses)}"
        )


def is_unknown(error):
    """Whether a call that ended with an error may have been carried out. With a pushback the server
    says that it was not."""
    if error.code() in UNKNOWN:
        return True
    return error.code() == Status.UNAVAILABLE and pushback_ms(error) is None


class Client(threading.Thread):
    """One call at a time. It goes to the next gateway after an error."""

    def __init__(self, number, seed, addresses, notes, is_over):
        super().__init__(daemon=True)
        self.number, self.notes, self.is_over = number, notes, is_over
        self.random = random.Random(f"{seed}/{number}")
        self.channels = [open_channel(address, *RECONNECT) for address in addresses]
        self.stubs = [kv_pb2_grpc.KeyValueStub(channel) for channel in self.channels]
        self.at = number % len(self.stubs)
        self.written = 0
        self.versions = {}

    def run(self):
        try:
            while not self.is_over.is_set():
                self.draw()
        except Exception as error:
            self.notes.unexpected.append(repr(error))
            raise
        finally:
            for channel in self.channels:
                channel.close()

    def draw(self):
        share = self.random.random()
        if share < 0.45:
            self.register(f"register-{self.random.randrange(REGISTERS)}")
        elif share < 0.6:
            self.counter(f"counter-{self.random.randrange(COUNTERS)}")
        elif share < 0.8:
            self.operate(f"own-{self.number}-{self.written}", ("put", self.value()))
        else:
            self.quorum_write(f"quorum-{self.random.randrange(QUORUM_KEYS)}")

    def value(self):
        """No two are alike."""
        self.written += 1
        return f"{self.number}-{self.written}".encode()

    def register(self, key):
        kinds, shares = ["get", "put", "put_if_version", "delete"], [5, 3, 3, 1]
        [kind] = self.random.choices(kinds, shares)
        request = {
            "get": ("get",),
            "put": ("put", self.value()),
            "put_if_version": ("put_if_version", self.value(), self.versions.get(key, 0)),
            "delete": ("delete",),
        }[kind]
        self.operate(key, request)

    def counter(self, key):
        self.operate(key, self.random.choice([("get",), ("increment", 1), ("increment", 1)]))

    def operate(self, key, request):
        method, message = message_of(key, request)
        begin = time.monotonic()
        answer = self.call(method, message)
        end = time.monotonic()
        if answer is Unanswered.REFUSED or (answer is Unanswered.UNKNOWN and request == ("get",)):
            return
        if answer is Unanswered.UNKNOWN:
            self.notes.add(self.notes.histories, key, Operation(begin, None, request))
            return
        outcome = outcome_of(key, request, answer)
        if hasattr(answer, "version"):
            self.versions[key] = answer.version
        self.notes.add(self.notes.histories, key, Operation(begin, end, request, outcome))

    def quorum_write(self, key):
        value = None if self.random.random() < 0.1 else self.value()
        where = {"database": QUORUM_DATABASE, "key": key.encode()}
        begin = time.monotonic()
        if value is None:
            answer = self.call("Delete", kv_pb2.DeleteRequest(**where))
        else:
            answer = self.call("Put", kv_pb2.PutRequest(value=value, **where))
        end = time.monotonic()
        if answer is Unanswered.REFUSED:
            return
        write = QuorumWrite(begin, None, value)
        if answer is not Unanswered.UNKNOWN:
            version = answer.version if value else answer.sequence or None
            write = QuorumWrite(begin, end, value, version)
        self.notes.add(self.notes.quorum, key, write)

    def call(self, method, message):
        try:
            return getattr(self.stubs[self.at], method)(message, timeout=CALL_SECONDS)
        except grpc.RpcError as error:
            is_perhaps_done = is_unknown(error)
            self.notes.status(error, is_perhaps_done)
            self.at = (self.at + 1) % len(self.stubs)
            time.sleep(self.random.uniform(0.02, 0.2))
            return Unanswered.UNKNOWN if is_perhaps_done else Unanswered.REFUSED


class Unanswered:
    """How a call ended that has no response."""

    UNKNOWN = object()
    REFUSED = object()


def message_of(key, request):
    """The method and the message of a request of a history."""
    kind, where = request[0], {"key": key.encode()}
    if kind == "get":
        return "Get", kv_pb2.GetRequest(**where)
    if kind == "delete":
        return "Delete", kv_pb2.DeleteRequest(**where)
    if kind == "increment":
        return "Increment", kv_pb2.IncrementRequest(delta=request[1], **where)
    if kind == "put_if_version":
        _, value, version = request
        return "Put", kv_pb2.PutRequest(value=value, if_version=version, **where)
    return "Put", kv_pb2.PutRequest(value=request[1], **where)


def outcome_of(key, request, answer):
    """What a history has of a response."""
    kind = request[0]
    if kind == "get":
        return entry_of(key, answer)
    if kind == "increment":
        assert answer.applied, answer
        return Entry(answer.value, answer.version)
    if kind == "put_if_version":
        return (answer.applied, answer.version)
    return answer.version


def entry_of(key, answer):
    if not answer.found:
        return None
    if key.startswith("counter"):
        return Entry(struct.unpack(">q", answer.value)[0], answer.version)
    return Entry(answer.value, answer.version)


class Load:
    """Clients that run while the `with` block does; `notes` has what they saw."""

    def __init__(self, seed, addresses, clients=CLIENTS):
        self.notes, self.is_over = Notes(), threading.Event()
        words = (seed, addresses, self.notes, self.is_over)
        self.clients = [Client(number, *words) for number in range(clients)]

    def __enter__(self):
        for client in self.clients:
            client.start()
        return self.notes

    def __exit__(self, *_):
        self.is_over.set()
        for client in self.clients:
            client.join(2 * CALL_SECONDS)
        assert not any(client.is_alive() for client in self.clients), "a call does not end"


def read_all(stub, notes):
    """Reads every key once, some at a time, and adds that to the histories."""
    keys = list(notes.histories)
    for start in range(0, len(keys), READS):
        begin = time.monotonic()
        calls = [
            (key, stub.Get.future(kv_pb2.GetRequest(key=key.encode()), timeout=CALL_SECONDS))
            for key in keys[start : start + READS]
        ]
        for key, call in calls:
            entry = entry_of(key, call.result())
            read = Operation(begin, time.monotonic(), ("get",), entry)
            notes.add(notes.histories, key, read)


def read_quorum(stub, key):
    """The value, or None, and the version of a key of the database with the promise `quorum`."""
    request = kv_pb2.GetRequest(database=QUORUM_DATABASE, key=key.encode())
    answer = stub.Get(request, timeout=CALL_SECONDS)
    return (answer.value, answer.version) if answer.found else (None, 0)
