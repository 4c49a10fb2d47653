"""Gateways: servers whose databases are on a node of Cassandra, and the keyspaces for them."""

import subprocess

import grpc
from environment import clean_environment
from pelton.v1 import admin_pb2, admin_pb2_grpc, kv_pb2, kv_pb2_grpc
from server import Server, open_channel

LINEARIZABLE = admin_pb2.REMOTE_PROMISE_LINEARIZABLE
QUORUM = admin_pb2.REMOTE_PROMISE_QUORUM
HASH = admin_pb2.REMOTE_ORDER_HASH
MERGED = admin_pb2.REMOTE_ORDER_MERGED


class Gateway(Server):
    """A gateway to the node at `contact`, with channels to it."""

    def __init__(self, binary, contact, keyspace, *words, **options):
        place = ["--store", "cassandra", "--contact", contact, "--keyspace", keyspace]
        super().__init__(binary, *place, "--threads", "2", *words, **options)
        self.channels = []

    def channel(self, *options):
        """Another channel, closed with the gateway."""
        self.channels.append(open_channel(self.address, *options))
        return self.channels[-1]

    def kv(self):
        return kv_pb2_grpc.KeyValueStub(self.channel())

    def admin(self):
        return admin_pb2_grpc.AdminStub(self.channel())

    def __exit__(self, *words):
        for channel in self.channels:
            channel.close()
        super().__exit__(*words)


def pelton(binary, *words, code=0, **variables):
    """What a command prints on standard output, and with another exit code than 0 what it says on
    standard error."""
    # A machine may be busy with other tests.
    environment = clean_environment() | {"PELTON_TIMEOUT": "100s"}
    run = subprocess.run(
        [binary, *map(str, words)],
        env=environment | variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == code, (words, run.returncode, run.stdout[-2000:], run.stderr[-2000:])
    return run.stderr if code else run.stdout


def init_keyspace(binary, contact, keyspace, *words):
    place = ["--contact", contact, "--keyspace", keyspace, "--replicas", "1"]
    return pelton(binary, "store", "init", *place, *words)


def make_database(admin, name, promise=LINEARIZABLE, order=HASH, buckets=0):
    description = admin_pb2.DatabaseDescription(
        name=name, promise=promise, order=order, buckets=buckets
    )
    answer = admin.CreateDatabase(admin_pb2.CreateDatabaseRequest(database=description))
    assert answer.created, answer
    return answer.database


def drop_database(admin, name):
    request = admin_pb2.DropDatabaseRequest(name=name, confirm_name=name)
    return admin.DropDatabase(request).dropped


def fill(kv, database, entries, at_once=500):
    """Puts them all, by batches of independent operations; `entries` are pairs."""
    entries = list(entries)
    calls = []
    for start in range(0, len(entries), at_once):
        operations = [
            kv_pb2.Operation(put=kv_pb2.Operation.Put(key=key, value=value))
            for key, value in entries[start : start + at_once]
        ]
        request = kv_pb2.BatchRequest(
            database=database, mode=kv_pb2.BATCH_MODE_INDEPENDENT, operations=operations
        )
        calls.append(kv.Batch.future(request))
        if len(calls) == 4:
            check(calls.pop(0))
    for call in calls:
        check(call)


def check(call):
    answer = call.result()
    assert answer.applied and all(result.put.applied for result in answer.results), answer


def scanned(kv, database, **request):
    """All entries, after a look at the pages."""
    pages = list(kv.Scan(kv_pb2.ScanRequest(database=database, **request), timeout=60))
    assert [page.last for page in pages] == [False] * (len(pages) - 1) + [True]
    return [entry for page in pages for entry in page.entries]


def pushback_ms(error):
    """The trailer that says when to try again; None where there is none."""
    found = dict(error.trailing_metadata() or ()).get("grpc-retry-pushback-ms")
    return None if found is None else int(found)


def outcome(call):
    """The status with which a call ends, and its error if it is not OK."""
    try:
        call()
    except grpc.RpcError as error:
        return error.code(), error
    return grpc.StatusCode.OK, None
