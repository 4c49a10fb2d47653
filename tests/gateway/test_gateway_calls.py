"""The calls of pelton.v1.KeyValue on databases of every shape."""

import struct
import time

import grpc
import pytest
from gateway import (
    HASH,
    LINEARIZABLE,
    MERGED,
    QUORUM,
    fill,
    make_database,
    scanned,
)
from pelton.v1 import admin_pb2
from pelton.v1 import kv_pb2 as pb
from server import expect_status, wait_until

LARGEST = 4_000_000
LONGEST_KEY = 65_000
FAILED_PRECONDITION = grpc.StatusCode.FAILED_PRECONDITION
EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED

SHAPES = [(LINEARIZABLE, HASH), (LINEARIZABLE, MERGED), (QUORUM, HASH), (QUORUM, MERGED)]
NAMES = ["linearizable-hash", "linearizable-merged", "quorum-hash", "quorum-merged"]
# Keys that a walk goes over: of several prefixes, and the extremes.
KEYS = sorted(
    {b"%s%03d" % (letter, n) for letter in (b"a", b"b", b"\xff") for n in range(150)}
    | {b"", b"\0", b"\xff" * 3}
)


@pytest.fixture(scope="module", params=NAMES)
def database(request, admin):
    """The name of a database, which is made once."""
    return made(request.param, admin)


def made(name, admin):
    promise, order = SHAPES[NAMES.index(name)]
    listed = admin.ListDatabases(admin_pb2.ListDatabasesRequest()).databases
    if name not in {one.database.name for one in listed}:
        make_database(admin, name, promise, order, 16 if order == MERGED else 64)
    return name


@pytest.fixture
def linearizable(admin):
    return made("linearizable-hash", admin)


@pytest.fixture
def quorum(admin):
    return made("quorum-hash", admin)


def op_put(key, value, **rest):
    return pb.Operation(put=pb.Operation.Put(key=key, value=value, **rest))


def op_get(key):
    return pb.Operation(get=pb.Operation.Get(key=key))


def op_delete(key, **rest):
    return pb.Operation(delete=pb.Operation.Delete(key=key, **rest))


def op_increment(key, delta=1):
    return pb.Operation(increment=pb.Operation.Increment(key=key, delta=delta))


# --- What a database is
# --------------------------------------------------------------------------------------------------


def test_a_database_is_described_as_it_was_made(admin):
    for name, (promise, order), buckets in zip(NAMES, SHAPES, [64, 16, 64, 16]):
        made(name, admin)
        listed = admin.ListDatabases(admin_pb2.ListDatabasesRequest()).databases
        (found,) = [one.database for one in listed if one.database.name == name]
        assert found.kind == admin_pb2.DATABASE_KIND_REMOTE
        assert (found.promise, found.order, found.buckets) == (promise, order, buckets)


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"kind": admin_pb2.DATABASE_KIND_MEMORY}, "kind"),
        ({"kind": admin_pb2.DATABASE_KIND_DISK}, "kind"),
        ({"durability": admin_pb2.DURABILITY_MODE_VOLATILE}, "durability"),
        ({"quota_bytes": 1_000_000}, "quota_bytes"),
        ({"order": MERGED, "buckets": 65}, "buckets"),
        ({"buckets": 16_385}, "buckets"),
    ],
)
def test_a_database_of_another_kind_is_refused(admin, fields, word):
    wanted = admin_pb2.DatabaseDescription(name="refused", **fields)
    request = admin_pb2.CreateDatabaseRequest(database=wanted)
    with pytest.raises(grpc.RpcError) as error:
        admin.CreateDatabase(request)
    assert error.value.code() in (
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.UNIMPLEMENTED,
    )
    assert word in error.value.details()
    listed = admin.ListDatabases(admin_pb2.ListDatabasesRequest()).databases
    assert "refused" not in {one.database.name for one in listed}


# --- Get, Put, Delete
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 70_000, LARGEST])
def test_a_value_comes_back_whole(stub, database, prefix, size):
    value = (bytes(range(256)) * (size // 256 + 1))[:size]
    put = stub.Put(pb.PutRequest(database=database, key=prefix, value=value))
    assert put.applied and put.version > 0
    got = stub.Get(pb.GetRequest(database=database, key=prefix))
    assert (got.found, got.version, got.value == value) == (True, put.version, True)
    assert stub.Delete(pb.DeleteRequest(database=database, key=prefix)).deleted
    assert stub.Get(pb.GetRequest(database=database, key=prefix)) == pb.GetResponse()


def test_one_byte_more_is_refused_and_changes_nothing(stub, database, prefix):
    large = pb.PutRequest(database=database, key=prefix, value=b"v" * (LARGEST + 1))
    expect_status(EXHAUSTED, lambda: stub.Put(large), LARGEST + 1, LARGEST)
    assert not stub.Get(pb.GetRequest(database=database, key=prefix)).found


def test_the_longest_key(stub, database):
    longest = b"\xff" + b"k" * (LONGEST_KEY - 1)
    put = stub.Put(pb.PutRequest(database=database, key=longest, value=b"value"))
    got = stub.Get(pb.GetRequest(database=database, key=longest))
    assert (got.value, got.version) == (b"value", put.version)
    (entry,) = scanned(stub, database, prefix=b"\xffkkkk")
    assert entry.key == longest
    assert stub.Delete(pb.DeleteRequest(database=database, key=longest)).deleted
    longer = pb.PutRequest(database=database, key=longest + b"k", value=b"value")
    expect_status(EXHAUSTED, lambda: stub.Put(longer), LONGEST_KEY + 1, LONGEST_KEY)


def test_the_empty_key_is_a_key(stub, database):
    assert stub.Put(pb.PutRequest(database=database, value=b"of the empty key")).applied
    assert stub.Get(pb.GetRequest(database=database)).value == b"of the empty key"
    assert stub.Delete(pb.DeleteRequest(database=database)).deleted
    assert not stub.Get(pb.GetRequest(database=database)).found


def test_versions_grow(stub, database, prefix):
    request = pb.PutRequest(database=database, key=prefix, value=b"value")
    versions = [stub.Put(request).version for _ in range(20)]
    assert versions == sorted(set(versions))
    assert stub.Get(pb.GetRequest(database=database, key=prefix)).version == versions[-1]


def test_an_entry_expires(stub, database, prefix):
    request = pb.PutRequest(database=database, key=prefix, value=b"soon gone", time_to_live_ms=700)
    before_ms = time.time_ns() // 1_000_000
    stub.Put(request)
    get = pb.GetRequest(database=database, key=prefix)
    got = stub.Get(get)
    assert got.found and before_ms + 600 <= got.expires_at_ms <= before_ms + 10_000
    wait_until(lambda: not stub.Get(get).found)
    assert time.time_ns() // 1_000_000 >= got.expires_at_ms
    assert scanned(stub, database, prefix=prefix) == []
    assert stub.Count(pb.CountRequest(database=database, prefix=prefix)).count == 0
    # A new entry does not take over what was.
    assert stub.Put(pb.PutRequest(database=database, key=prefix, value=b"new")).applied
    assert stub.Get(get).expires_at_ms == 0


def test_a_new_key_gets_no_version_a_second_time(stub, linearizable, prefix):
    seen = set()
    for _ in range(10):
        put = stub.Put(pb.PutRequest(database=linearizable, key=prefix, if_version=0))
        assert put.applied and put.version not in seen
        seen.add(put.version)
        request = pb.DeleteRequest(database=linearizable, key=prefix, if_version=put.version)
        assert stub.Delete(request).deleted


# --- What depends on what is stored
# --------------------------------------------------------------------------------------------------


def test_conditions_and_previous_values(stub, linearizable, prefix):
    put = lambda **fields: stub.Put(
        pb.PutRequest(database=linearizable, key=prefix, return_previous=True, **fields)
    )
    assert not put(value=b"0", if_exists=True).applied
    first = put(value=b"1", if_version=0)
    assert first.applied and not first.HasField("previous")
    late = put(value=b"x", if_version=0)
    assert (late.applied, late.version, late.previous.value) == (False, first.version, b"1")
    second = put(value=b"2", if_value=b"1")
    assert second.applied and second.previous == pb.Entry(value=b"1", version=first.version)
    assert not put(value=b"x", if_value=b"1").applied
    assert put(value=b"3", if_version=second.version).applied
    delete = pb.DeleteRequest(database=linearizable, key=prefix, if_value=b"2")
    assert not stub.Delete(delete).deleted
    delete = pb.DeleteRequest(database=linearizable, key=prefix, return_previous=True)
    assert stub.Delete(delete).previous.value == b"3"


def test_append_and_increment(stub, linearizable, prefix):
    text, number = prefix + b"text", prefix + b"number"
    for length in (3, 6, 9):
        request = pb.AppendRequest(database=linearizable, key=text, value=b"abc")
        assert stub.Append(request).length == length
    add = lambda delta, **rest: stub.Increment(
        pb.IncrementRequest(database=linearizable, key=number, delta=delta, **rest)
    )
    assert [add(5, initial=10).value, add(-20).value, add(0).value] == [15, -5, -5]
    got = stub.Get(pb.GetRequest(database=linearizable, key=number))
    assert got.value == struct.pack(">q", -5)
    refused = add(-(2**63))
    assert (refused.applied, refused.refusal) == (False, pb.INCREMENT_REFUSAL_OVERFLOW)
    request = pb.IncrementRequest(database=linearizable, key=text, delta=1)
    assert stub.Increment(request).refusal == pb.INCREMENT_REFUSAL_NOT_A_NUMBER


def test_an_expiry_is_kept(stub, linearizable, prefix):
    put = lambda **fields: stub.Put(pb.PutRequest(database=linearizable, key=prefix, **fields))
    get = lambda: stub.Get(pb.GetRequest(database=linearizable, key=prefix))
    put(value=b"1", time_to_live_ms=3_600_000)
    expires_ms = get().expires_at_ms
    put(value=b"2", keep_time_to_live=True)
    stub.Append(pb.AppendRequest(database=linearizable, key=prefix, value=b"3"))
    assert (get().value, get().expires_at_ms) == (b"23", expires_ms)
    # Further away than the engine can express.
    put(value=b"4", time_to_live_ms=100 * 365 * 86_400_000)
    assert get().expires_at_ms > expires_ms
    put(value=b"5")
    assert get().expires_at_ms == 0


@pytest.mark.parametrize(
    "call",
    [
        lambda stub, **of: stub.Put(pb.PutRequest(if_version=0, **of)),
        lambda stub, **of: stub.Put(pb.PutRequest(if_exists=True, **of)),
        lambda stub, **of: stub.Put(pb.PutRequest(if_value=b"x", **of)),
        lambda stub, **of: stub.Put(pb.PutRequest(return_previous=True, **of)),
        lambda stub, **of: stub.Put(pb.PutRequest(keep_time_to_live=True, **of)),
        lambda stub, **of: stub.Delete(pb.DeleteRequest(if_value=b"x", **of)),
        lambda stub, **of: stub.Delete(pb.DeleteRequest(return_previous=True, **of)),
        lambda stub, **of: stub.Append(pb.AppendRequest(value=b"x", **of)),
        lambda stub, **of: stub.Increment(pb.IncrementRequest(delta=1, **of)),
    ],
    ids="version exists value previous keep-expiry delete delete-previous append increment".split(),
)
def test_a_quorum_refuses_what_depends_on_what_is_stored(stub, quorum, prefix, call):
    stub.Put(pb.PutRequest(database=quorum, key=prefix, value=b"before"))
    expect_status(
        FAILED_PRECONDITION,
        lambda: call(stub, database=quorum, key=prefix),
        "operation 0",
        "`quorum`",
        "`linearizable`",
    )
    assert stub.Get(pb.GetRequest(database=quorum, key=prefix)).value == b"before"


def test_a_quorum_names_the_operation_and_the_comparison(stub, quorum, prefix):
    operations = [op_put(prefix, b"1"), op_increment(prefix)]
    batch = pb.BatchRequest(database=quorum, operations=operations)
    expect_status(FAILED_PRECONDITION, lambda: stub.Batch(batch), "operation 1")
    transact = pb.TransactRequest(
        database=quorum,
        comparisons=[pb.Comparison(key=prefix, exists=False)],
        when_met=[op_put(prefix, b"1")],
    )
    expect_status(FAILED_PRECONDITION, lambda: stub.Transact(transact), "`linearizable`")
    assert not stub.Get(pb.GetRequest(database=quorum, key=prefix)).found


# --- Several operations
# --------------------------------------------------------------------------------------------------


def test_independent_operations_are_each_answered_in_their_place(stub, database, prefix):
    entries = [(prefix + b"%03d" % n, b"value %d" % n) for n in range(200)]
    request = pb.BatchRequest(
        database=database,
        mode=pb.BATCH_MODE_INDEPENDENT,
        operations=[op_put(key, value) for key, value in entries],
    )
    assert all(result.put.applied for result in stub.Batch(request).results)
    reads = pb.BatchRequest(database=database, operations=[op_get(key) for key, _ in entries])
    found = [result.get.value for result in stub.Batch(reads).results]
    assert found == [value for _, value in entries]
    mixed = pb.BatchRequest(
        database=database,
        mode=pb.BATCH_MODE_INDEPENDENT,
        operations=[op_delete(entries[0][0]), op_put(entries[1][0], b"again")],
    )
    results = stub.Batch(mixed).results
    assert results[0].delete.deleted and results[1].put.applied
    assert stub.Count(pb.CountRequest(database=database, prefix=prefix)).count == 199


def test_independent_operations_fail_alone(stub, linearizable, prefix):
    request = pb.BatchRequest(
        database=linearizable,
        mode=pb.BATCH_MODE_INDEPENDENT,
        operations=[
            op_put(prefix, b"1", if_exists=True),
            op_put(prefix, b"2", if_exists=False),
            op_increment(prefix),
            op_get(prefix),
            op_increment(prefix + b"n", 7),
            op_increment(prefix + b"n", -2),
        ],
    )
    results = stub.Batch(request).results
    assert [results[0].put.applied, results[1].put.applied] == [False, True]
    assert results[2].increment.refusal == pb.INCREMENT_REFUSAL_NOT_A_NUMBER
    assert results[3].get.value == b"2"
    assert [results[4].increment.value, results[5].increment.value] == [7, 5]


def test_an_atomic_batch_of_one_bucket_takes_effect_as_a_whole(stub, linearizable, prefix):
    key = prefix + b"key"
    answer = stub.Batch(
        pb.BatchRequest(
            database=linearizable,
            operations=[op_put(key, b"1"), op_get(key), op_delete(key), op_put(key, b"2")],
        )
    )
    assert answer.applied and answer.results[1].get.value == b"1"
    assert answer.results[2].delete.deleted
    failed = stub.Batch(
        pb.BatchRequest(
            database=linearizable, operations=[op_put(key, b"3"), op_put(key, b"4", if_version=1)]
        )
    )
    assert (failed.applied, failed.failed_operation) == (False, 1)
    assert stub.Get(pb.GetRequest(database=linearizable, key=key)).value == b"2"


def test_what_is_atomic_over_buckets_is_refused_with_the_keys_that_part(stub, database, prefix):
    """Of so many keys two are in different buckets."""
    keys = [prefix + b"%d" % n for n in range(60)]
    batch = pb.BatchRequest(database=database, operations=[op_put(key, b"1") for key in keys])
    words = ["operations 0 and", "bucket", "INDEPENDENT"]
    error = expect_status(FAILED_PRECONDITION, lambda: stub.Batch(batch), *words)
    assert "nothing was done" in error.details()
    assert stub.Count(pb.CountRequest(database=database, prefix=prefix)).count == 0


def test_a_transaction_over_buckets_is_refused(stub, linearizable, prefix):
    keys = [prefix + b"%d" % n for n in range(60)]
    request = pb.TransactRequest(
        database=linearizable,
        comparisons=[pb.Comparison(key=key, exists=False) for key in keys],
        when_met=[op_put(keys[0], b"1")],
    )
    expect_status(FAILED_PRECONDITION, lambda: stub.Transact(request), "operations 0 and")


def test_a_transaction_on_one_key(stub, linearizable, prefix):
    request = pb.TransactRequest(
        database=linearizable,
        comparisons=[pb.Comparison(key=prefix, exists=False)],
        when_met=[op_put(prefix, b"first")],
        when_unmet=[op_get(prefix)],
    )
    first, second = stub.Transact(request), stub.Transact(request)
    assert first.met and first.batch.applied
    assert not second.met and second.unmet_comparison == 0
    assert second.batch.results[0].get.value == b"first"


def test_a_pipe_keeps_its_order(stub, linearizable, prefix):
    count = 150
    requests = (
        pb.PipeRequest(database=linearizable, operations=[op_increment(prefix), op_get(prefix)])
        for _ in range(count)
    )
    answers = list(stub.Pipe(requests, timeout=60))
    assert [answer.batch_number for answer in answers] == list(range(1, count + 1))
    assert [answer.done for answer in answers] == list(range(1, count + 1))
    for number, answer in enumerate(answers, 1):
        counted, read = answer.batch.results
        assert counted.increment.value == int.from_bytes(read.get.value, "big") == number


def test_a_refused_batch_of_a_pipe_hinders_nobody(stub, quorum, prefix):
    requests = [
        pb.PipeRequest(database=quorum, operations=[op_put(prefix, b"1")]),
        pb.PipeRequest(operations=[op_increment(prefix)]),
        pb.PipeRequest(operations=[op_put(b"k" * (LONGEST_KEY + 1), b"2")]),
        pb.PipeRequest(operations=[op_get(prefix)]),
    ]
    answers = list(stub.Pipe(iter(requests), timeout=60))
    codes = [answer.failure.code for answer in answers]
    assert codes == [0, FAILED_PRECONDITION.value[0], EXHAUSTED.value[0], 0]
    assert answers[3].batch.results[0].get.value == b"1"


# --- Scan and Count
# --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def walked(admin, stub, database):
    """The name of another database of the same shape, which holds exactly KEYS."""
    name = f"walked-{database}"
    promise, order = SHAPES[NAMES.index(database)]
    make_database(admin, name, promise, order, 16)
    fill(stub, name, [(key, b"value of " + key) for key in KEYS])
    return name


@pytest.mark.parametrize("direction", [pb.DIRECTION_FORWARD, pb.DIRECTION_BACKWARD])
@pytest.mark.parametrize(
    "range",
    [(b"", b""), (b"a", b"b"), (b"a100", b"a101"), (b"b", b""), (b"", b"a05"), (b"c", b"d")],
)
def test_a_range_has_each_of_its_keys_once(stub, walked, range, direction):
    start, end = range
    expected = [key for key in KEYS if key >= start and (key < end or not end)]
    wanted = pb.KeyRange(start=start, end=end)
    found = [one.key for one in scanned(stub, walked, range=wanted, direction=direction)]
    if "merged" in walked:
        assert found == (expected if direction == pb.DIRECTION_FORWARD else expected[::-1])
    assert sorted(found) == expected
    count = stub.Count(pb.CountRequest(database=walked, range=wanted))
    assert (count.count, count.exact) == (len(expected), True)


@pytest.mark.parametrize("prefix", [b"a", b"a1", b"zzz", b"\xff", b"\xff\xff\xff", b"\0"])
def test_a_prefix_has_each_of_its_keys_once(stub, walked, prefix):
    expected = [key for key in KEYS if key.startswith(prefix)]
    found = scanned(stub, walked, prefix=prefix)
    assert sorted(one.key for one in found) == expected
    assert all(one.value == b"value of " + one.key and one.version > 0 for one in found)
    assert stub.Count(pb.CountRequest(database=walked, prefix=prefix)).count == len(expected)


@pytest.mark.parametrize("direction", [pb.DIRECTION_FORWARD, pb.DIRECTION_BACKWARD])
def test_a_scan_goes_on_behind_a_key(stub, walked, direction):
    found = []
    while batch := scanned(
        stub,
        walked,
        direction=direction,
        keys_only=True,
        limit=97,
        **({"start_after": found[-1]} if found else {}),
    ):
        found += [one.key for one in batch]
        assert all(one.value == b"" and one.version > 0 for one in batch)
    assert sorted(found) == KEYS


def test_ten_thousand_keys_come_once_each(stub, admin):
    for promise, name in ((LINEARIZABLE, "many-linearizable"), (QUORUM, "many-quorum")):
        make_database(admin, name, promise, HASH)
        keys = [b"%08d" % n for n in range(10_000 if promise == QUORUM else 2_000)]
        fill(stub, name, [(key, b"v" * 100) for key in keys])
        assert sorted(one.key for one in scanned(stub, name)) == keys
        count = stub.Count(pb.CountRequest(database=name))
        assert (count.count, count.exact) == (len(keys), True)
        rough = pb.CountRequest(database=name, precision=pb.COUNT_PRECISION_ESTIMATE)
        assert len(keys) / 2 < stub.Count(rough).count < len(keys) * 2


def test_keys_that_stay_come_once_while_others_come_and_go(stub, admin):
    for order in (HASH, MERGED):
        name = f"comes-and-goes-{order}"
        make_database(admin, name, QUORUM, order, 16)
        stable = [b"stable/%05d" % n for n in range(3_000)]
        fill(stub, name, [(key, b"v" * 1_000) for key in stable])
        seen = []
        scan = stub.Scan(pb.ScanRequest(database=name, prefix=b"stable/"))
        for number, page in enumerate(scan):
            seen += [entry.key for entry in page.entries]
            new = [stable[number] + b"/new", stable[-1 - number] + b"/new"]
            fill(stub, name, [(key, b"") for key in new])
            stub.Delete(pb.DeleteRequest(database=name, key=new[0]))
        assert sorted(key for key in seen if not key.endswith(b"/new")) == stable


def test_pages_stay_below_one_mebibyte(stub, database, prefix):
    fill(stub, database, [(prefix + b"%02d" % n, b"v" * 100_000) for n in range(30)], at_once=10)
    stub.Put(pb.PutRequest(database=database, key=prefix + b"large", value=b"v" * LARGEST))
    pages = list(stub.Scan(pb.ScanRequest(database=database, prefix=prefix)))
    assert sum(len(page.entries) for page in pages) == 31
    assert all(page.ByteSize() <= (1 << 20) + 64 or len(page.entries) == 1 for page in pages)
    for entry in scanned(stub, database, prefix=prefix, keys_only=True):
        stub.Delete(pb.DeleteRequest(database=database, key=entry.key))
