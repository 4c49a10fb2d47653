"""A tour of Pelton's API from Python. docs/python.md explains it, and says how to run it."""

import os
import random
import time

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from pelton.v1 import admin_pb2, admin_pb2_grpc, echo_pb2, echo_pb2_grpc, kv_pb2, kv_pb2_grpc

ADDRESS = os.environ.get("PELTON_ADDRESS", "127.0.0.1:1978")


def values(store):
    store.Put(kv_pb2.PutRequest(key=b"greeting", value=b"hello"), timeout=10)
    answer = store.Get(kv_pb2.GetRequest(key=b"greeting"), timeout=10)
    print("greeting is", answer.value.decode())

    answer = store.Get(kv_pb2.GetRequest(key=b"nobody"), timeout=10)
    if not answer.found:
        print("nobody is not there")


def conditions(store):
    # Only if there is no such key.
    claim = store.Put(kv_pb2.PutRequest(key=b"leader", value=b"alice", if_exists=False), timeout=10)
    print("alice leads" if claim.applied else "alice is too late")

    # Only if nobody has written since.
    store.Put(kv_pb2.PutRequest(key=b"leader", value=b"bob", if_version=claim.version), timeout=10)
    put = kv_pb2.PutRequest(key=b"leader", value=b"eve", if_version=claim.version)
    answer = store.Put(put, timeout=10)
    print("eve leads" if answer.applied else "eve is too late")


def numbers(store):
    for _ in range(3):
        answer = store.Increment(kv_pb2.IncrementRequest(key=b"visits", delta=1), timeout=10)
    print("visits:", answer.value)

    answer = store.Increment(kv_pb2.IncrementRequest(key=b"greeting", delta=1), timeout=10)
    if not answer.applied:
        print("greeting:", kv_pb2.IncrementRefusal.Name(answer.refusal))


def batch(store):
    cities = {b"city/oslo": b"709000", b"city/paris": b"2100000", b"city/rome": b"2800000"}
    puts = [kv_pb2.Operation.Put(key=key, value=value) for key, value in cities.items()]
    operations = [kv_pb2.Operation(put=put) for put in puts]
    answer = store.Batch(kv_pb2.BatchRequest(operations=operations), timeout=10)
    print(len(answer.results), "cities stored")

    # All or nothing: the second operation fails, so the first one is not done either.
    operations = [
        kv_pb2.Operation(put=kv_pb2.Operation.Put(key=b"city/bonn", value=b"336000")),
        kv_pb2.Operation(put=kv_pb2.Operation.Put(key=b"city/rome", value=b"0", if_exists=False)),
    ]
    answer = store.Batch(kv_pb2.BatchRequest(operations=operations), timeout=10)
    if not answer.applied:
        print("nothing was done, because of operation", answer.failed_operation)


def transact(store):
    request = kv_pb2.TransactRequest(
        comparisons=[
            kv_pb2.Comparison(key=b"leader", value=b"bob"),
            kv_pb2.Comparison(key=b"election", exists=False),
        ],
        when_met=[
            kv_pb2.Operation(put=kv_pb2.Operation.Put(key=b"leader", value=b"carol")),
            kv_pb2.Operation(increment=kv_pb2.Operation.Increment(key=b"term", delta=1)),
        ],
        when_unmet=[kv_pb2.Operation(get=kv_pb2.Operation.Get(key=b"leader"))],
    )
    for _ in range(2):
        answer = store.Transact(request, timeout=10)
        if answer.met:
            print("carol leads in term", answer.batch.results[1].increment.value)
        else:
            leader = answer.batch.results[0].get.value.decode()
            print("comparison", answer.unmet_comparison, "was not met:", leader, "leads")


def ranges(store):
    for page in store.Scan(kv_pb2.ScanRequest(prefix=b"city/"), timeout=10):
        for entry in page.entries:
            print(entry.key.decode(), entry.value.decode())

    # The last key below `city/paris`, without its value.
    below = kv_pb2.KeyRange(start=b"city/", end=b"city/paris")
    backward = kv_pb2.ScanRequest(
        range=below, direction=kv_pb2.DIRECTION_BACKWARD, limit=1, keys_only=True
    )
    for page in store.Scan(backward, timeout=10):
        for entry in page.entries:
            print("before paris:", entry.key.decode())

    answer = store.Count(kv_pb2.CountRequest(prefix=b"city/"), timeout=10)
    print(answer.count, "cities")


def pipe(store):
    def batches():
        for start in range(0, 10_000, 1000):
            rows = range(start, start + 1000)
            puts = (kv_pb2.Operation.Put(key=b"row/%05d" % row, value=b"...") for row in rows)
            yield kv_pb2.PipeRequest(
                mode=kv_pb2.BATCH_MODE_INDEPENDENT,
                answers=kv_pb2.PIPE_ANSWERS_FAILURES_ONLY,
                operations=[kv_pb2.Operation(put=put) for put in puts],
            )

    done = 0
    for answer in store.Pipe(batches(), timeout=60):
        done = answer.done
        if answer.batch_number:
            why = answer.failure.message or answer.batch.results
            print("batch", answer.batch_number, "failed:", why)
    print(done, "batches are done")


def time_to_live(store):
    store.Put(kv_pb2.PutRequest(key=b"session", value=b"...", time_to_live_ms=200), timeout=10)
    expires_at_ms = store.Get(kv_pb2.GetRequest(key=b"session"), timeout=10).expires_at_ms
    print("the session expires" if expires_at_ms else "the session stays")
    while store.Get(kv_pb2.GetRequest(key=b"session"), timeout=10).found:
        time.sleep(0.05)
    print("the session is gone")


def databases(channel, store):
    admin = admin_pb2_grpc.AdminStub(channel)
    orders = admin_pb2.DatabaseDescription(
        name="orders", durability=admin_pb2.DURABILITY_MODE_VOLATILE, quota_bytes=1 << 20
    )
    admin.CreateDatabase(admin_pb2.CreateDatabaseRequest(database=orders), timeout=10)
    store.Put(kv_pb2.PutRequest(database="orders", key=b"1", value=b"..."), timeout=10)
    for found in admin.ListDatabases(admin_pb2.ListDatabasesRequest(), timeout=10).databases:
        if found.database.name == "orders":
            print("orders:", found.entries, "entry")
    # The name twice, because there is something in it.
    drop = admin_pb2.DropDatabaseRequest(name="orders", confirm_name="orders")
    admin.DropDatabase(drop, timeout=10)


def deadlines(channel):
    echo = echo_pb2_grpc.EchoStub(channel)
    try:
        echo.Unary(echo_pb2.EchoRequest(delay_ms=10_000), timeout=0.1)
    except grpc.RpcError as error:
        print("no answer in 100 ms:", error.code().name)


# What may be sent again: the server did nothing, and says when to try.
def put_with_retries(store, request, attempts=5):
    for attempt in range(attempts):
        try:
            return store.Put(request, timeout=10)
        except grpc.RpcError as error:
            pushback = dict(error.trailing_metadata() or ()).get("grpc-retry-pushback-ms")
            may_repeat = error.code() == grpc.StatusCode.UNAVAILABLE and pushback is not None
            if not may_repeat or attempt + 1 == attempts:
                raise
            # A little longer each time, and never all callers at once.
            time.sleep(int(pushback) / 1000 * random.uniform(1, 2 << attempt))


# Whether the server may have done what was asked for, as the table in kv.proto says.
NOTHING_DONE = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.DATA_LOSS,
}


def errors(store):
    put_with_retries(store, kv_pb2.PutRequest(key=b"careful", value=b"..."))
    wrong = [
        kv_pb2.PutRequest(database="nowhere", key=b"a", value=b"1"),
        kv_pb2.PutRequest(key=b"a" * 70_000, value=b"1"),
        kv_pb2.PutRequest(key=b"a", value=b"1", keep_time_to_live=False),
    ]
    for request in wrong:
        try:
            store.Put(request, timeout=10)
        except grpc.RpcError as error:
            outcome = "nothing was done" if error.code() in NOTHING_DONE else "perhaps it was done"
            print(f"{error.code().name}: {outcome}")


def health(channel):
    stub = health_pb2_grpc.HealthStub(channel)
    answer = stub.Check(health_pb2.HealthCheckRequest(service="pelton.v1.KeyValue"), timeout=10)
    print("health:", health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))


def main():
    with grpc.insecure_channel(ADDRESS) as channel:
        store = kv_pb2_grpc.KeyValueStub(channel)
        values(store)
        conditions(store)
        numbers(store)
        batch(store)
        transact(store)
        ranges(store)
        pipe(store)
        time_to_live(store)
        databases(channel, store)
        deadlines(channel)
        errors(store)
        health(channel)


if __name__ == "__main__":
    main()
