"""No answer before its sync: a server under strace, and the order of its system calls.

Every answer that rests on a write must be sent after an `fdatasync` of the log that was begun after
the write was done. The clients have many calls in flight at once, so that groups and syncs are
shared.
"""

import bisect
import itertools
import threading

import pytest
import strace
from pelton.v1 import admin_pb2
from pelton.v1 import kv_pb2 as pb
from raw import DATA, END_STREAM, Connection, frame, grpc_message
from server import Server

CLIENTS = 4
IN_FLIGHT = 8
ROUNDS = 30
SECONDS = 60


class Client(threading.Thread):
    """Notes which answer rests on which write: the n-th record in the log that has this token,
    counted from 1."""

    def __init__(self, address, number):
        super().__init__(daemon=True)
        self.connection = Connection(address)
        self.local_port = self.connection.socket.getsockname()[1]
        self.number = number
        # (stream, number of its message): (token, which record of it)
        self.rests_on = {}
        self.failure = None

    def run(self):
        try:
            for round_number in range(ROUNDS):
                self.write_many(round_number)
                self.race(round_number)
            self.pipe()
        except BaseException as failure:  # noqa: B902 - the test looks at it
            self.failure = failure

    def send(self, method, request, token, record):
        stream = self.connection.unary(f"/pelton.v1.{method}", request.SerializeToString())
        self.rests_on[stream, 0] = token, record
        return stream

    def wait(self, *streams):
        answers = [self.connection.wait(stream, SECONDS) for stream in streams]
        assert all(answer.grpc_status == 0 for answer in answers), [
            answer.grpc_message for answer in answers
        ]
        return [answer.body[5:] for answer in answers]

    def write_many(self, round_number):
        """Every kind of write at once, then a second write of the same keys."""
        keys = [b"key:%02d:%04d:%02d;" % (self.number, round_number, n) for n in range(IN_FLIGHT)]
        for record in (1, 2):
            kinds = itertools.cycle(
                [self.put, self.append, self.increment, self.batch, self.transact]
            )
            self.wait(*[kind(key, record) for kind, key in zip(kinds, keys)])
        self.wait(self.send("KeyValue/Delete", pb.DeleteRequest(key=keys[0]), keys[0], 3))
        if round_number == 0:
            name = f"database-{self.number}-"
            description = admin_pb2.DatabaseDescription(name=name)
            request = admin_pb2.CreateDatabaseRequest(database=description)
            self.wait(self.send("Admin/CreateDatabase", request, name.encode(), 1))

    def put(self, key, record):
        return self.send("KeyValue/Put", pb.PutRequest(key=key, value=b"v"), key, record)

    def append(self, key, record):
        return self.send("KeyValue/Append", pb.AppendRequest(key=key, value=b"v"), key, record)

    def increment(self, key, record):
        return self.send("KeyValue/Increment", pb.IncrementRequest(key=key, delta=1), key, record)

    def batch(self, key, record):
        return self.send(
            "KeyValue/Batch", pb.BatchRequest(operations=[put(key), put(b"beside")]), key, record
        )

    def transact(self, key, record):
        comparison = pb.Comparison(key=b"nobody", exists=False)
        return self.send(
            "KeyValue/Transact",
            pb.TransactRequest(comparisons=[comparison], when_met=[put(key)]),
            key,
            record,
        )

    def race(self, round_number):
        """All clients try to be the first to write a key, and read it: one succeeds, and what all
        are told rests on it."""
        key = b"race:%04d;" % round_number
        request = pb.PutRequest(key=key, value=b"v", if_exists=False).SerializeToString()
        streams = [self.connection.unary("/pelton.v1.KeyValue/Put", request)]
        get = pb.GetRequest(key=key).SerializeToString()
        streams += [self.connection.unary("/pelton.v1.KeyValue/Get", get) for _ in range(5)]
        _, *gets = self.wait(*streams)
        self.rests_on[streams[0], 0] = key, 1
        for stream, answer in zip(streams[1:], gets):
            if pb.GetResponse.FromString(answer).found:
                self.rests_on[stream, 0] = key, 1

    def pipe(self):
        stream, head = self.connection.request("/pelton.v1.KeyValue/Pipe")
        keys = [b"pipe:%02d:%04d;" % (self.number, n) for n in range(60)]
        requests = [pb.PipeRequest(operations=[put(key)]).SerializeToString() for key in keys]
        body = b"".join(frame(DATA, 0, stream, grpc_message(request)) for request in requests)
        self.connection.send(head + body + frame(DATA, END_STREAM, stream))
        self.wait(stream)
        self.rests_on.update({(stream, n): (key, 1) for n, key in enumerate(keys)})


def put(key):
    return pb.Operation(put=pb.Operation.Put(key=key, value=b"v"))


class Log:
    """The writes and syncs of the log, by number of the line in the record."""

    def __init__(self, calls):
        files = [
            call
            for call in calls
            if call.name in ("pwrite64", "fdatasync") and call.file.endswith(".log")
        ]
        self.writes = [call for call in files if call.name == "pwrite64"]
        self.syncs = [call for call in files if call.name == "fdatasync" and call.result == 0]
        self.bytes = [call.data for call in self.writes]

    def write_of(self, token, record):
        """The write in which the n-th record with this token went to the log."""
        for call, data in zip(self.writes, self.bytes):
            record -= data.count(token)
            if record <= 0:
                return call
        raise AssertionError(f"{token} was answered and is not in the log")

    def durable_at(self, write):
        """When the first sync was done that was begun after a write was done."""
        return min(
            (sync.end for sync in self.syncs if sync.begin > write.end and sync.file == write.file),
            default=None,
        )


def answers_in(calls, local_port):
    """When each message was sent to a client: (stream, number): line."""
    sends = [
        call
        for call in calls
        if call.name == "sendto" and call.file.endswith(f":{local_port}]") and call.data
    ]
    ends = list(itertools.accumulate(len(call.data) for call in sends))
    output = b"".join(call.data for call in sends)
    messages, position, counts = {}, 0, {}
    bodies = {}
    while position < len(output):
        length, kind, stream = (
            int.from_bytes(output[position : position + 3]),
            output[position + 3],
            int.from_bytes(output[position + 5 : position + 9]),
        )
        if kind == DATA and length:
            # The first byte of its frame may be in an earlier send than the last.
            sent = sends[bisect.bisect_right(ends, position)].begin
            body = bodies.get(stream, b"") + output[position + 9 : position + 9 + length]
            while len(body) >= 5 and len(body) >= 5 + int.from_bytes(body[1:5]):
                messages[stream, counts.get(stream, 0)] = sent
                counts[stream] = counts.get(stream, 0) + 1
                body = body[5 + int.from_bytes(body[1:5]) :]
            bodies[stream] = body
        position += 9 + length
    return messages


def run_clients(address):
    clients = [Client(address, number) for number in range(CLIENTS)]
    for client in clients:
        client.start()
    for client in clients:
        client.join(2 * SECONDS)
        assert not client.is_alive(), "a client still waits"
        if client.failure:
            raise client.failure
    return clients


@pytest.mark.parametrize(
    "durability, driver",
    [("synced", "event-loop"), ("written", "event-loop"), ("synced", "blocking")],
)
def test_no_answer_comes_before_its_sync(binary, tmp_path, durability, driver):
    record = tmp_path / "strace"
    prefix = strace.recording(record, "pwrite64", "fdatasync", "sendto")
    arguments = [
        "--driver",
        driver,
        "--threads",
        "2" if driver == "event-loop" else "16",
        "--log-segment",
        "64KiB",
    ]
    arguments += ["--data", str(tmp_path / "data"), "--durability", durability]
    with Server(binary, *arguments, prefix=prefix) as server:
        tracer = strace.tracer_of(server.process.pid)
        clients = run_clients(server.address)
        assert server.stop() == 0, server.log()
        strace.wait_for_end(tracer)
    calls = strace.read_calls(record)
    log, count = Log(calls), 0
    for client in clients:
        sent = answers_in(calls, client.local_port)
        for answer, (token, number) in client.rests_on.items():
            write = log.write_of(token, number)
            # Databases are synced unless created otherwise.
            needs_sync = durability == "synced" or token.startswith(b"database")
            ready = log.durable_at(write) if needs_sync else write.end
            assert ready and ready < sent[answer], (
                f"{token}: written in {write.begin}, durable in {ready}, answered in {sent[answer]}"
            )
            count += 1
    files = {call.file for call in log.writes}
    print(
        f"{durability}, {driver}: {count} answers, {len(log.writes)} groups, {len(log.syncs)} "
        f"syncs, {len(files)} files of the log"
    )
    assert count > 1_000 and len(files) > 2 and len(log.writes) < count / 2, (
        "too little to prove anything"
    )
