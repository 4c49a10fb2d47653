"""Every method of pelton.v1.KeyValue, as its .proto file describes it."""

import struct
import time

import grpc
import pytest
from pelton.v1 import kv_pb2 as pb
from raw import DATA, END_STREAM, Connection, frame, grpc_message
from server import expect_status, wait_until

# The same for databases of both kinds.
pytestmark = pytest.mark.parametrize("server", ["memory", "disk"], indirect=True)


def number(value):
    return struct.pack(">q", value)


# --- Get and Put
# --------------------------------------------------------------------------------------------------


def test_a_missing_key_is_an_answer(kv, prefix):
    assert kv.Get(pb.GetRequest(key=prefix)) == pb.GetResponse()


def test_put_and_get(kv, prefix):
    put = kv.Put(pb.PutRequest(key=prefix, value=b"value"))
    assert put.applied and put.version > 0 and not put.HasField("previous")
    assert kv.Get(pb.GetRequest(key=prefix)) == pb.GetResponse(
        found=True, value=b"value", version=put.version
    )


def test_an_overwrite_has_a_higher_version_and_returns_what_was_there(kv, prefix):
    first = kv.Put(pb.PutRequest(key=prefix, value=b"1", return_previous=True))
    assert not first.HasField("previous")
    second = kv.Put(pb.PutRequest(key=prefix, value=b"2", return_previous=True))
    assert second.version > first.version
    assert second.previous == pb.Entry(value=b"1", version=first.version)
    assert kv.Get(pb.GetRequest(key=prefix)).value == b"2"


@pytest.mark.parametrize(
    "key",
    [
        b"\0",
        b"\xff\xff",
        bytes(range(256)),
        b"\n\r\t",
        "größe/ключ".encode(),
        b"\xed\xa0\x80",
        b"k" * 65_534,
    ],
    ids=["nul", "ff", "all bytes", "control", "utf-8", "not utf-8", "long"],
)
def test_keys_and_values_are_bytes(kv, key):
    put = kv.Put(pb.PutRequest(key=key, value=key))
    assert kv.Get(pb.GetRequest(key=key)) == pb.GetResponse(
        found=True, value=key, version=put.version
    )
    assert kv.Delete(pb.DeleteRequest(key=key)).deleted


def test_the_longest_key(server, kv):
    """A database on disk takes one byte less."""
    key = b"k" * 65_535
    put = pb.PutRequest(key=key, value=b"value")
    if server.kind == "disk":
        expect_status(grpc.StatusCode.RESOURCE_EXHAUSTED, lambda: kv.Put(put), 65_535, 65_534)
        assert not kv.Get(pb.GetRequest(key=key)).found
        return
    version = kv.Put(put).version
    assert kv.Get(pb.GetRequest(key=key)).version == version
    assert kv.Delete(pb.DeleteRequest(key=key)).deleted


def test_empty_key_and_empty_value(kv, prefix):
    put = kv.Put(pb.PutRequest(key=b"", value=b"of the empty key"))
    assert put.applied
    assert kv.Get(pb.GetRequest()).value == b"of the empty key"
    assert kv.Delete(pb.DeleteRequest(key=b"")).deleted
    assert not kv.Get(pb.GetRequest()).found

    kv.Put(pb.PutRequest(key=prefix, value=b""))
    answer = kv.Get(pb.GetRequest(key=prefix))
    assert answer.found and answer.value == b"" and answer.version > 0


def test_put_on_a_version(kv, prefix):
    created = kv.Put(pb.PutRequest(key=prefix, value=b"1", if_version=0))
    assert created.applied
    again = kv.Put(pb.PutRequest(key=prefix, value=b"2", if_version=0))
    assert (again.applied, again.version) == (False, created.version)
    changed = kv.Put(pb.PutRequest(key=prefix, value=b"3", if_version=created.version))
    assert changed.applied and changed.version > created.version
    late = kv.Put(
        pb.PutRequest(key=prefix, value=b"4", if_version=created.version, return_previous=True)
    )
    assert (late.applied, late.version) == (False, changed.version)
    assert late.previous == pb.Entry(value=b"3", version=changed.version)
    absent = kv.Put(pb.PutRequest(key=prefix + b"absent", value=b"5", if_version=created.version))
    assert (absent.applied, absent.version) == (False, 0)
    assert kv.Get(pb.GetRequest(key=prefix)).value == b"3"


def test_put_if_the_key_exists_or_not(kv, prefix):
    assert not kv.Put(pb.PutRequest(key=prefix, value=b"1", if_exists=True)).applied
    assert kv.Put(pb.PutRequest(key=prefix, value=b"2", if_exists=False)).applied
    assert not kv.Put(pb.PutRequest(key=prefix, value=b"3", if_exists=False)).applied
    assert kv.Put(pb.PutRequest(key=prefix, value=b"4", if_exists=True)).applied
    assert kv.Get(pb.GetRequest(key=prefix)).value == b"4"


def test_put_on_a_value(kv, prefix):
    assert not kv.Put(pb.PutRequest(key=prefix, value=b"1", if_value=b"")).applied
    kv.Put(pb.PutRequest(key=prefix, value=b""))
    assert kv.Put(pb.PutRequest(key=prefix, value=b"2", if_value=b"")).applied
    assert not kv.Put(pb.PutRequest(key=prefix, value=b"3", if_value=b"22")).applied
    assert kv.Put(pb.PutRequest(key=prefix, value=b"4", if_value=b"2")).applied


def test_time_to_live(kv, prefix):
    before_ms = time.time_ns() // 1_000_000
    put = kv.Put(pb.PutRequest(key=prefix, value=b"soon gone", time_to_live_ms=400))
    found = kv.Get(pb.GetRequest(key=prefix))
    assert (
        found.version == put.version
        and before_ms + 390 <= found.expires_at_ms <= before_ms + 10_000
    )
    wait_until(lambda: not kv.Get(pb.GetRequest(key=prefix)).found)
    assert time.time_ns() // 1_000_000 >= found.expires_at_ms
    # Absent for conditions, Scan and Count as well.
    assert not kv.Put(pb.PutRequest(key=prefix, value=b"x", if_exists=True)).applied
    assert kv.Count(pb.CountRequest(prefix=prefix)).count == 0
    assert not any(page.entries for page in kv.Scan(pb.ScanRequest(prefix=prefix)))
    assert kv.Put(pb.PutRequest(key=prefix, value=b"new", if_version=0)).applied
    assert kv.Get(pb.GetRequest(key=prefix)).expires_at_ms == 0


def test_an_expiry_is_kept_or_cleared(kv, prefix):
    kv.Put(pb.PutRequest(key=prefix, value=b"1", time_to_live_ms=3_600_000))
    expiry_ms = kv.Get(pb.GetRequest(key=prefix)).expires_at_ms
    kv.Append(pb.AppendRequest(key=prefix, value=b"2"))
    kv.Put(pb.PutRequest(key=prefix, value=b"3", keep_time_to_live=True))
    assert kv.Get(pb.GetRequest(key=prefix)).expires_at_ms == expiry_ms
    kv.Put(pb.PutRequest(key=prefix, value=b"4"))
    assert kv.Get(pb.GetRequest(key=prefix)).expires_at_ms == 0


# --- Delete
# --------------------------------------------------------------------------------------------------


def test_delete(kv, prefix):
    assert kv.Delete(pb.DeleteRequest(key=prefix)) == pb.DeleteResponse()
    put = kv.Put(pb.PutRequest(key=prefix, value=b"value"))
    deleted = kv.Delete(pb.DeleteRequest(key=prefix, return_previous=True))
    assert deleted.deleted and deleted.version == put.version and deleted.sequence > put.version
    assert deleted.previous == pb.Entry(value=b"value", version=put.version)
    assert not kv.Get(pb.GetRequest(key=prefix)).found
    assert not kv.Delete(pb.DeleteRequest(key=prefix)).deleted
    # Versions are never used again: a writer with an old one cannot mistake the new entry for it.
    assert kv.Put(pb.PutRequest(key=prefix)).version > deleted.sequence


def test_delete_on_a_condition(kv, prefix):
    put = kv.Put(pb.PutRequest(key=prefix, value=b"value"))
    for unmet in [{"if_version": put.version + 1}, {"if_value": b"other"}]:
        answer = kv.Delete(pb.DeleteRequest(key=prefix, **unmet))
        assert (answer.deleted, answer.version, answer.sequence) == (False, put.version, 0)
    assert kv.Delete(pb.DeleteRequest(key=prefix, if_value=b"value")).deleted
    put = kv.Put(pb.PutRequest(key=prefix, value=b"value"))
    assert kv.Delete(pb.DeleteRequest(key=prefix, if_version=put.version)).deleted


# --- Append and Increment
# ------------------------------------------------------------------------------------------


def test_append(kv, prefix):
    first = kv.Append(pb.AppendRequest(key=prefix, value=b"ab"))
    assert first.length == 2
    second = kv.Append(pb.AppendRequest(key=prefix, value=b"cde"))
    assert second.length == 5 and second.version > first.version
    assert kv.Get(pb.GetRequest(key=prefix)) == pb.GetResponse(
        found=True, value=b"abcde", version=second.version
    )


def test_append_up_to_the_largest_value(kv, prefix):
    kv.Put(pb.PutRequest(key=prefix, value=b"x" * 3_999_999))
    assert kv.Append(pb.AppendRequest(key=prefix, value=b"y")).length == 4_000_000
    expect_status(
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        lambda: kv.Append(pb.AppendRequest(key=prefix, value=b"z")),
        4_000_000,
    )
    assert kv.Get(pb.GetRequest(key=prefix)).value[-2:] == b"xy"
    kv.Delete(pb.DeleteRequest(key=prefix))


def test_increment(kv, prefix):
    for delta, total in [(5, 5), (-7, -2), (0, -2), (2**63 - 1, 2**63 - 3), (-(2**63), -3)]:
        answer = kv.Increment(pb.IncrementRequest(key=prefix, delta=delta))
        assert (answer.applied, answer.value, answer.refusal) == (True, total, 0)
        stored = kv.Get(pb.GetRequest(key=prefix))
        assert (stored.value, stored.version) == (number(total), answer.version)


def test_an_increment_that_overflows_changes_nothing(kv, prefix):
    for start, delta in [(2**63 - 1, 1), (-(2**63), -1)]:
        put = kv.Put(pb.PutRequest(key=prefix, value=number(start)))
        answer = kv.Increment(pb.IncrementRequest(key=prefix, delta=delta))
        assert (answer.applied, answer.value, answer.refusal) == (
            False,
            start,
            pb.INCREMENT_REFUSAL_OVERFLOW,
        )
        assert kv.Get(pb.GetRequest(key=prefix)).version == put.version


def test_an_increment_of_what_is_no_number_changes_nothing(kv, prefix):
    for value in [b"", b"1", b"123456789"]:
        kv.Put(pb.PutRequest(key=prefix, value=value))
        answer = kv.Increment(pb.IncrementRequest(key=prefix, delta=1))
        assert (answer.applied, answer.refusal) == (False, pb.INCREMENT_REFUSAL_NOT_A_NUMBER)
        assert kv.Get(pb.GetRequest(key=prefix)).value == value


# --- Batch
# --------------------------------------------------------------------------------------------------


def op_get(key):
    return pb.Operation(get=pb.Operation.Get(key=key))


def op_put(key, value, **rest):
    return pb.Operation(put=pb.Operation.Put(key=key, value=value, **rest))


def op_delete(key, **rest):
    return pb.Operation(delete=pb.Operation.Delete(key=key, **rest))


def op_append(key, value):
    return pb.Operation(append=pb.Operation.Append(key=key, value=value))


def op_increment(key, delta):
    return pb.Operation(increment=pb.Operation.Increment(key=key, delta=delta))


@pytest.mark.parametrize(
    "mode", [pb.BATCH_MODE_UNSPECIFIED, pb.BATCH_MODE_ATOMIC, pb.BATCH_MODE_INDEPENDENT]
)
def test_a_batch_of_all_kinds_sees_its_own_writes(kv, prefix, mode):
    a, n, c = prefix + b"a", prefix + b"n", prefix + b"c"
    operations = [
        op_put(a, b"1"),
        op_get(a),
        op_append(a, b"2"),
        op_get(a),
        op_increment(n, 7),
        op_increment(n, -2),
        op_put(c, b"gone", return_previous=True),
        op_delete(c, return_previous=True),
        op_get(c),
        op_delete(prefix + b"never there"),
    ]
    answer = kv.Batch(pb.BatchRequest(mode=mode, operations=operations))
    assert answer.applied and answer.sequence > 0 and not answer.HasField("failed_result")
    results = answer.results
    assert [result.WhichOneof("result") for result in results] == [
        operation.WhichOneof("operation") for operation in operations
    ]
    assert results[1].get.value == b"1" and results[3].get.value == b"12"
    assert results[2].append.length == 2
    assert [results[4].increment.value, results[5].increment.value] == [7, 5]
    assert results[7].delete.deleted and results[7].delete.previous.value == b"gone"
    assert not results[8].get.found and not results[9].delete.deleted
    # One commit: one version for all that it wrote.
    assert (
        kv.Get(pb.GetRequest(key=a)).version
        == kv.Get(pb.GetRequest(key=n)).version
        == answer.sequence
    )


def test_an_atomic_batch_does_all_or_nothing(kv, prefix):
    kv.Put(pb.PutRequest(key=prefix, value=b"before"))
    for operation, kind in [
        (op_put(prefix, b"x", if_version=0), "put"),
        (op_delete(prefix, if_value=b"other"), "delete"),
        (op_increment(prefix, 1), "increment"),
    ]:
        answer = kv.Batch(
            pb.BatchRequest(
                operations=[op_put(prefix, b"after"), op_put(prefix + b"2", b""), operation]
            )
        )
        assert not answer.applied and answer.failed_operation == 2 and len(answer.results) == 0
        assert answer.failed_result.WhichOneof("result") == kind
        assert kv.Get(pb.GetRequest(key=prefix)).value == b"before"
        assert not kv.Get(pb.GetRequest(key=prefix + b"2")).found


def test_operations_of_an_independent_batch_fail_alone(kv, prefix):
    large = prefix + b"large"
    kv.Put(pb.PutRequest(key=large, value=b"v" * 3_999_999))
    answer = kv.Batch(
        pb.BatchRequest(
            mode=pb.BATCH_MODE_INDEPENDENT,
            operations=[
                op_put(prefix, b"1", if_exists=True),
                op_put(prefix, b"2", if_exists=False),
                op_increment(prefix, 1),
                op_append(large, b"22"),
                op_get(prefix),
            ],
        )
    )
    assert answer.applied
    assert [answer.results[0].put.applied, answer.results[1].put.applied] == [False, True]
    assert answer.results[2].increment.refusal == pb.INCREMENT_REFUSAL_NOT_A_NUMBER
    assert answer.results[3].failure.code == grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]
    assert answer.results[3].failure.message
    assert answer.results[4].get.value == b"2"
    assert kv.Delete(pb.DeleteRequest(key=large)).deleted


@pytest.mark.parametrize("mode", [pb.BATCH_MODE_ATOMIC, pb.BATCH_MODE_INDEPENDENT])
def test_a_batch_that_holds_what_is_never_allowed_does_nothing(kv, prefix, mode):
    for wrong, code in [
        (op_put(prefix, b"v" * 4_000_001), grpc.StatusCode.RESOURCE_EXHAUSTED),
        (op_put(b"k" * 65_536, b""), grpc.StatusCode.RESOURCE_EXHAUSTED),
        (op_delete(prefix, if_version=0), grpc.StatusCode.INVALID_ARGUMENT),
    ]:
        request = pb.BatchRequest(mode=mode, operations=[op_put(prefix, b"1"), wrong])
        expect_status(code, lambda: kv.Batch(request))
        assert not kv.Get(pb.GetRequest(key=prefix)).found


def test_an_empty_batch_is_answered(kv):
    answer = kv.Batch(pb.BatchRequest())
    assert answer.applied and len(answer.results) == 0


def test_a_batch_of_reads(kv, prefix):
    kv.Put(pb.PutRequest(key=prefix, value=b"value"))
    answer = kv.Batch(pb.BatchRequest(operations=[op_get(prefix), op_get(prefix + b"missing")]))
    assert answer.applied and answer.sequence > 0
    assert answer.results[0].get.value == b"value" and not answer.results[1].get.found


def test_a_batch_whose_answer_would_be_too_large_does_nothing(kv, prefix):
    kv.Put(pb.PutRequest(key=prefix, value=b"x" * 100_000))
    operations = [op_put(prefix + b"new", b"")] + [op_get(prefix)] * 50
    for limit in [0, 1_000_000]:
        expect_status(
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            lambda: kv.Batch(pb.BatchRequest(operations=operations, max_answer_bytes=limit)),
            limit or 4 << 20,
        )
        assert not kv.Get(pb.GetRequest(key=prefix + b"new")).found
    assert len(kv.Batch(pb.BatchRequest(operations=operations[:30])).results) == 30


# --- What a caller does wrong, and what is not there yet
# -----------------------------------------------------------


def test_an_unknown_database_is_not_found(kv):
    name = "no such database"
    for call in [
        lambda: kv.Get(pb.GetRequest(database=name)),
        lambda: kv.Put(pb.PutRequest(database=name)),
        lambda: kv.Delete(pb.DeleteRequest(database=name)),
        lambda: kv.Append(pb.AppendRequest(database=name)),
        lambda: kv.Increment(pb.IncrementRequest(database=name)),
        lambda: kv.Batch(pb.BatchRequest(database=name, operations=[op_get(b"")])),
        lambda: list(kv.Scan(pb.ScanRequest(database=name))),
        lambda: kv.Count(pb.CountRequest(database=name)),
    ]:
        expect_status(grpc.StatusCode.NOT_FOUND, call, name)


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda kv: kv.Delete(pb.DeleteRequest(key=b"k", if_version=0)), "if_version"),
        (lambda kv: kv.Put(pb.PutRequest(key=b"k", time_to_live_ms=0)), "time_to_live_ms"),
        (
            lambda kv: kv.Put(pb.PutRequest(key=b"k", time_to_live_ms=3_153_600_000_001)),
            "time_to_live_ms",
        ),
        (lambda kv: kv.Put(pb.PutRequest(key=b"k", keep_time_to_live=False)), "keep_time_to_live"),
        (
            lambda kv: kv.Batch(pb.BatchRequest(operations=[op_get(b""), pb.Operation()])),
            "operation",
        ),
        (
            lambda kv: kv.Batch(pb.BatchRequest(operations=[op_delete(b"k", if_version=0)])),
            "if_version",
        ),
        (lambda kv: list(kv.Scan(pb.ScanRequest(range=pb.KeyRange(start=b"b", end=b"a")))), "end"),
        (lambda kv: kv.Count(pb.CountRequest(range=pb.KeyRange(start=b"b", end=b"a"))), "end"),
        (lambda kv: list(kv.Scan(pb.ScanRequest(prefix=b"b", start_after=b"c"))), "start_after"),
        (lambda kv: list(kv.Scan(pb.ScanRequest(prefix=b"b", start_after=b"a"))), "start_after"),
    ],
)
def test_a_wrong_field_is_named(kv, call, word):
    expect_status(grpc.StatusCode.INVALID_ARGUMENT, lambda: call(kv), word)


@pytest.mark.parametrize("garbage", [b"\xff", b"\x12\x05ab", b"\x0a\x02\xff\xfe", b"\x00"])
def test_a_malformed_message_is_refused(channel, garbage):
    get = channel.unary_unary("/pelton.v1.KeyValue/Get")
    expect_status(grpc.StatusCode.INVALID_ARGUMENT, lambda: get(garbage))


def test_unknown_fields_are_skipped(channel, kv, prefix):
    kv.Put(pb.PutRequest(key=prefix, value=b"value"))
    request = b"\xa2\x06\x03new\xf8\x07\x2a" + pb.GetRequest(key=prefix).SerializeToString()
    answer = channel.unary_unary(
        "/pelton.v1.KeyValue/Get", response_deserializer=pb.GetResponse.FromString
    )(request)
    assert answer.value == b"value"


def test_a_unary_call_without_a_message_fails(channel):
    call = channel.stream_unary("/pelton.v1.KeyValue/Get")
    with pytest.raises(grpc.RpcError) as error:
        call(iter([]), timeout=10)
    assert error.value.code() in (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.INVALID_ARGUMENT)


def test_a_unary_call_with_two_messages_fails(server):
    with Connection(server.address) as connection:
        stream, head = connection.request("/pelton.v1.KeyValue/Get")
        connection.send(head + frame(DATA, END_STREAM, stream, 2 * grpc_message(b"")))
        assert connection.wait(stream).grpc_status == grpc.StatusCode.UNIMPLEMENTED.value[0]


def test_a_unary_call_whose_end_comes_late_is_answered(server):
    """Some clients end their side by an empty frame of its own, which may come when the answer is
    out."""
    with Connection(server.address) as connection:
        for _ in range(3_000):
            stream, head = connection.request("/pelton.v1.KeyValue/Get")
            connection.send(head + frame(DATA, 0, stream, grpc_message(b"")))
            if stream % 3 == 0:
                connection.read(0.001)
            connection.send(frame(DATA, END_STREAM, stream))
            assert connection.wait(stream).grpc_status == 0


def test_what_there_is_not_says_so(channel):
    for call in [
        lambda: channel.unary_unary("/pelton.v1.Blob/NoSuchMethod")(b""),
        lambda: channel.unary_unary("/pelton.v1.KeyValue/NoSuchMethod")(b""),
        lambda: channel.unary_unary("/no.such.Service/Method")(b""),
        lambda: channel.unary_unary("/pelton.v1.KeyValue/get")(b""),
    ]:
        expect_status(grpc.StatusCode.UNIMPLEMENTED, call)
