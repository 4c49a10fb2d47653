"""tkrzw_rpc.DBMService on gateways: one whose default database has one bucket and its keys in
order, and one whose default database has many buckets."""

import struct

import grpc
import pytest
from compat import tkrzw_rpc_pb2 as pb
from compat import tkrzw_rpc_pb2_grpc as pb_grpc
from server import open_channel
from test_compat_tkrzw import (
    DUPLICATION,
    INFEASIBLE,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    SUCCESS,
    Requests,
    get,
    put,
    stream_request,
)

OP = pb.IterateRequest.OpType
SECONDS = 30


@pytest.fixture(params=["one bucket", "many buckets"])
def tkrzw(request):
    """The calls, on one of both gateways."""
    name = {"one bucket": "server", "many buckets": "gateway"}[request.param]
    with open_channel(request.getfixturevalue(name).address) as channel:
        yield pb_grpc.DBMServiceStub(channel)


@pytest.fixture
def in_order(server):
    """The calls, on the gateway whose keys are in order."""
    with open_channel(server.address) as channel:
        yield pb_grpc.DBMServiceStub(channel)


@pytest.fixture
def many_buckets(gateway):
    with open_channel(gateway.address) as channel:
        yield pb_grpc.DBMServiceStub(channel)


def pairs(prefix, *entries):
    return [pb.BytesPair(first=prefix + key, second=value) for key, value in entries]


def test_records(tkrzw, prefix):
    for _ in range(2):
        assert get(tkrzw, prefix) is None
        put(tkrzw, prefix, b"1")
        again = pb.SetRequest(key=prefix, value=b"2")
        assert tkrzw.Set(again, timeout=SECONDS).status.code == DUPLICATION
        assert get(tkrzw, prefix) == b"1"
        for value in (b"x", b"x,x"):
            append = pb.AppendRequest(key=prefix + b"a", value=b"x", delim=b",")
            assert tkrzw.Append(append, timeout=SECONDS).status.code == SUCCESS
            assert get(tkrzw, prefix + b"a") == value
        large = b"v" * 1_000_000
        put(tkrzw, prefix + b"large", large)
        assert get(tkrzw, prefix + b"large") == large
        for key in (b"", b"a", b"large"):
            for code in (SUCCESS, NOT_FOUND):
                remove = pb.RemoveRequest(key=prefix + key)
                assert tkrzw.Remove(remove, timeout=SECONDS).status.code == code


def test_increment(tkrzw, prefix):
    def increment(by, initial=0):
        request = pb.IncrementRequest(key=prefix, increment=by, initial=initial)
        response = tkrzw.Increment(request, timeout=SECONDS)
        assert response.status.code == SUCCESS
        return response.current

    assert (increment(5, 100), increment(5, 100)) == (105, 110)
    assert get(tkrzw, prefix) == struct.pack(">q", 110)
    put(tkrzw, prefix, struct.pack(">q", 2**63 - 1))
    assert increment(1) == -(2**63)


def test_compare_exchange(tkrzw, prefix):
    def exchange(**fields):
        request = pb.CompareExchangeRequest(key=prefix, **fields)
        response = tkrzw.CompareExchange(request, timeout=SECONDS)
        return response.status.code, response.found, response.actual

    assert exchange(expected_existence=True, expect_any_value=True) == (INFEASIBLE, False, b"")
    assert exchange(desired_existence=True, desired_value=b"1") == (SUCCESS, False, b"")
    wrong = {"expected_existence": True, "expected_value": b"2", "get_actual": True}
    assert exchange(**wrong) == (INFEASIBLE, True, b"1")
    assert exchange(expected_existence=True, expected_value=b"1") == (SUCCESS, True, b"")
    assert get(tkrzw, prefix) is None


def test_several_records(tkrzw, prefix):
    """Each of them changes by itself, as with the original."""
    records = pairs(prefix, (b"b", b"2"), (b"a", b"1"))
    request = pb.SetMultiRequest(records=records)
    for code in (SUCCESS, DUPLICATION):
        assert tkrzw.SetMulti(request, timeout=SECONDS).status.code == code
    append = pb.AppendMultiRequest(records=records, delim=b"-")
    assert tkrzw.AppendMulti(append, timeout=SECONDS).status.code == SUCCESS
    keys = [prefix + key for key in (b"b", b"x", b"a")]
    found = tkrzw.GetMulti(pb.GetMultiRequest(keys=keys), timeout=SECONDS)
    assert found.status.code == NOT_FOUND
    assert [(one.first, one.second) for one in found.records] == [
        (prefix + b"a", b"1-1"),
        (prefix + b"b", b"2-2"),
    ]
    for key in keys:
        code = tkrzw.Remove(pb.RemoveRequest(key=key)).status.code
        assert code == (NOT_FOUND if key == prefix + b"x" else SUCCESS)


def test_several_records_of_one_bucket_change_together(in_order, prefix):
    for key, value in ((b"b", b"2"), (b"a", b"1")):
        put(in_order, prefix + key, value)
    state = pb.RecordState
    exchange = pb.CompareExchangeMultiRequest(
        expected=[state(existence=True, key=prefix + b"a", any_value=True)],
        desired=[state(key=prefix + b"a"), state(existence=True, key=prefix + b"c", value=b"4")],
    )
    for code in (SUCCESS, INFEASIBLE):
        assert in_order.CompareExchangeMulti(exchange, timeout=SECONDS).status.code == code
    rekey = pb.RekeyRequest(old_key=prefix + b"c", new_key=prefix + b"d")
    for code in (SUCCESS, NOT_FOUND):
        assert in_order.Rekey(rekey, timeout=SECONDS).status.code == code
    assert get(in_order, prefix + b"d") == b"4"
    keys = [prefix + key for key in (b"a", b"b", b"d")]
    removed = in_order.RemoveMulti(pb.RemoveMultiRequest(keys=keys), timeout=SECONDS)
    assert removed.status.code == NOT_FOUND
    assert [get(in_order, key) for key in keys] == [None] * 3


def test_what_would_change_several_buckets_at_once_is_refused(many_buckets, prefix):
    state = pb.RecordState
    keys = [prefix + b"%d" % n for n in range(60)]
    exchange = pb.CompareExchangeMultiRequest(
        expected=[state(key=key) for key in keys],
        desired=[state(existence=True, key=key, value=b"v") for key in keys],
    )
    with pytest.raises(grpc.RpcError) as error:
        many_buckets.CompareExchangeMulti(exchange, timeout=SECONDS)
    assert error.value.code() == grpc.StatusCode.FAILED_PRECONDITION
    assert "bucket" in error.value.details()
    assert [get(many_buckets, key) for key in keys[:3]] == [None] * 3


def test_what_needs_keys_in_order_is_not_implemented_by_hash(many_buckets, prefix):
    """As with an unordered database of the original."""
    put(many_buckets, prefix, b"value")
    for operation in (OP.OP_LAST, OP.OP_PREVIOUS, OP.OP_JUMP_LOWER, OP.OP_JUMP_UPPER):
        requests = [pb.IterateRequest(operation=operation, key=prefix)]
        (response,) = many_buckets.Iterate(iter(requests), timeout=SECONDS)
        assert response.status.code == NOT_IMPLEMENTED
    search = pb.SearchRequest(mode="upper", pattern=prefix, capacity=9)
    assert many_buckets.Search(search, timeout=SECONDS).status.code == NOT_IMPLEMENTED


def test_an_iterator_by_hash_goes_on_behind_what_is_removed(many_buckets, prefix):
    for number in range(8):
        put(many_buckets, prefix + b"%d" % number, b"value")
    requests = Requests()
    responses = many_buckets.Iterate(requests, timeout=60)

    def ask(operation, **fields):
        requests.put(pb.IterateRequest(operation=operation, **fields))
        return next(responses)

    assert ask(OP.OP_JUMP, key=prefix + b"no").status.code == NOT_FOUND
    assert ask(OP.OP_JUMP, key=prefix + b"3").status.code == SUCCESS
    assert ask(OP.OP_GET).key == prefix + b"3"
    assert ask(OP.OP_SET, value=b"new").status.code == SUCCESS
    assert ask(OP.OP_GET).value == b"new"
    many_buckets.Remove(pb.RemoveRequest(key=prefix + b"3"))
    after = ask(OP.OP_GET)
    assert after.status.code in (SUCCESS, NOT_FOUND) and after.key != prefix + b"3"
    # Over all records; those of this test are removed on the way.
    assert ask(OP.OP_FIRST).status.code == SUCCESS
    removed = 0
    while (response := ask(OP.OP_GET)).status.code == SUCCESS:
        if response.key.startswith(prefix):
            assert ask(OP.OP_REMOVE).status.code == SUCCESS
            removed += 1
        elif ask(OP.OP_NEXT).status.code != SUCCESS:
            break
    assert removed == 7
    requests.end()
    list(responses)


def test_count_and_search(tkrzw, prefix):
    for key in (b"apple", b"Apple pie", b"banana"):
        put(tkrzw, prefix + key, b"")
    assert tkrzw.Count(pb.CountRequest(), timeout=SECONDS).count >= 3
    for mode, pattern, expected in (
        ("begin", prefix, [b"Apple pie", b"apple", b"banana"]),
        ("end", prefix + b"banana", [b"banana"]),
        ("contain", prefix + b"a", [b"apple"]),
    ):
        request = pb.SearchRequest(mode=mode, pattern=pattern, capacity=100)
        response = tkrzw.Search(request, timeout=SECONDS)
        assert response.status.code == SUCCESS
        assert sorted(response.matched) == [prefix + key for key in expected]


def test_iterate_goes_over_each_record_once(tkrzw, prefix):
    keys = {prefix + b"%02d" % n for n in range(20)}
    for key in keys:
        put(tkrzw, key, b"of " + key)
    requests = Requests()
    responses = tkrzw.Iterate(requests, timeout=60)

    def ask(operation):
        requests.put(pb.IterateRequest(operation=operation))
        return next(responses)

    assert ask(OP.OP_FIRST).status.code in (SUCCESS, NOT_FOUND)
    seen = []
    while (response := ask(OP.OP_STEP)).status.code == SUCCESS:
        seen.append(response.key)
        if response.key in keys:
            assert response.value == b"of " + response.key
    assert response.status.code == NOT_FOUND
    assert len(seen) == len(set(seen)) and keys <= set(seen)
    requests.end()
    assert list(responses) == []


def test_stream(tkrzw, prefix):
    requests = [
        (stream_request("echo", message="hello"), SUCCESS),
        (stream_request("get", key=prefix), NOT_FOUND),
        (stream_request("set", key=prefix, value=b"1"), SUCCESS),
        (stream_request("set", key=prefix, value=b"1"), DUPLICATION),
        (stream_request("append", key=prefix, value=b"2", delim=b"-"), SUCCESS),
        (stream_request("get", key=prefix), SUCCESS),
        (stream_request("compare_exchange", key=prefix), INFEASIBLE),
        (stream_request("remove", key=prefix), SUCCESS),
        (stream_request("increment", key=prefix, increment=1, initial=1), SUCCESS),
    ]
    responses = list(tkrzw.Stream((request for request, _ in requests), timeout=SECONDS))
    kinds = [response.WhichOneof("response_oneof") for response in responses]
    codes = [getattr(one, kind).status.code for one, kind in zip(responses, kinds)]
    assert codes == [code for _, code in requests]
    assert responses[5].get_response.value == b"1-2"
    silent = [stream_request("set", omit=True, key=prefix + b"%d" % n) for n in range(100)]
    silent.append(stream_request("get", key=prefix + b"99"))
    (last,) = tkrzw.Stream(iter(silent), timeout=SECONDS)
    assert last.get_response.status.code == SUCCESS


def test_what_there_is_not_ends_with_a_status_and_never_hangs(tkrzw):
    """Clear, an update log to follow, a queue that is woken: each call ends in time, and who is
    refused hears why."""
    for call in (
        lambda: tkrzw.Clear(pb.ClearRequest(), timeout=SECONDS),
        lambda: list(tkrzw.Replicate(pb.ReplicateRequest(), timeout=SECONDS)),
        lambda: tkrzw.Synchronize(pb.SynchronizeRequest(hard=True), timeout=SECONDS),
        lambda: tkrzw.Rebuild(pb.RebuildRequest(), timeout=SECONDS),
        lambda: tkrzw.GetFileSize(pb.GetFileSizeRequest(), timeout=SECONDS),
        lambda: tkrzw.ShouldBeRebuilt(pb.ShouldBeRebuiltRequest(), timeout=SECONDS),
        lambda: tkrzw.Inspect(pb.InspectRequest(), timeout=SECONDS),
    ):
        try:
            call()
        except grpc.RpcError as error:
            assert error.code() in (
                grpc.StatusCode.UNIMPLEMENTED,
                grpc.StatusCode.FAILED_PRECONDITION,
            ), error
            assert error.details()


def test_clear_is_refused_with_what_to_do(tkrzw, prefix):
    put(tkrzw, prefix, b"stays")
    with pytest.raises(grpc.RpcError) as error:
        tkrzw.Clear(pb.ClearRequest(), timeout=SECONDS)
    assert error.value.code() == grpc.StatusCode.UNIMPLEMENTED
    assert "cleared" in error.value.details()
    assert get(tkrzw, prefix) == b"stays"


def test_a_queue_is_first_in_first_out(in_order):
    """Of all keys of the database the first is taken, so that this has its own prefix at the
    beginning: the time that a push is given."""
    first = struct.pack(">Q", 0)
    for value in (b"0", b"1", b"2"):
        push = pb.PushLastRequest(value=value, wtime=0)
        assert in_order.PushLast(push, timeout=SECONDS).status.code == SUCCESS
    seen = []
    while len(seen) < 3:
        popped = in_order.PopFirst(pb.PopFirstRequest(), timeout=SECONDS)
        assert popped.status.code == SUCCESS
        if popped.key[:7] == first[:7]:
            seen.append((struct.unpack(">Q", popped.key)[0], popped.value))
    assert seen == [(0, b"0"), (1, b"1"), (2, b"2")]
