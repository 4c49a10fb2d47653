"""tkrzw_rpc.DBMService and tkrzw.DBMService, as clients of Tkrzw-RPC see them."""

import os
import signal
import struct
import subprocess
import threading
import time
from concurrent import futures

import grpc
import pytest
from compat import tkrzw_pb2 as before
from compat import tkrzw_pb2_grpc as before_grpc
from compat import tkrzw_rpc_pb2 as pb
from compat import tkrzw_rpc_pb2_grpc as pb_grpc
from pelton.v1 import kv_pb2, kv_pb2_grpc
from server import Server, expect_status, open_channel, wait_until

SUCCESS, NOT_IMPLEMENTED, PRECONDITION, INVALID, NOT_FOUND, INFEASIBLE, DUPLICATION = (
    0,
    3,
    4,
    5,
    7,
    9,
    10,
)

OP = pb.IterateRequest.OpType

# Ordered, unordered, and both in one server.
ORDERED, UNORDERED = 0, 1

WAIT_SECONDS = 20


def start(binary, *words, address="127.0.0.1:0"):
    return Server(binary, command=["tkrzw-server", "--address", address, *words])


@pytest.fixture(scope="module", params=["memory", "memory-sync", "log", "disk"])
def server(request, binary, tmp_path_factory):
    """A server of an ordered and an unordered database: in memory with event loops or a thread per
    connection, with a log, and on disk."""
    folder = tmp_path_factory.mktemp("tkrzw")
    words = {
        "memory": ["--async", "--threads", "2", "#dbm=baby", "#dbm=tiny"],
        "memory-sync": ["#dbm=tree", "#dbm=hash"],
        "log": [f"{folder}/casket.tkt", f"{folder}/casket.tkh", "--async"],
        "disk": [f"{folder}/a.tkt", f"{folder}/b.tkh", "--async", "--kind", "disk"],
    }[request.param]
    with start(binary, *words) as running:
        running.kind = request.param
        yield running


@pytest.fixture
def channel(server):
    with open_channel(server.address) as opened:
        yield opened


@pytest.fixture
def stub(channel):
    stub = pb_grpc.DBMServiceStub(channel)
    for index in (ORDERED, UNORDERED):
        stub.Clear(pb.ClearRequest(dbm_index=index))
    return stub


@pytest.fixture
def older(channel):
    return before_grpc.DBMServiceStub(channel)


def put(stub, key, value, index=ORDERED):
    response = stub.Set(pb.SetRequest(dbm_index=index, key=key, value=value, overwrite=True))
    assert response.status.code == SUCCESS


def get(stub, key, index=ORDERED):
    response = stub.Get(pb.GetRequest(dbm_index=index, key=key))
    if response.status.code == NOT_FOUND:
        return None
    assert response.status.code == SUCCESS
    return response.value


def test_echo_and_inspect(stub, older, server):
    assert stub.Echo(pb.EchoRequest(message="hello")).echo == "hello"
    assert older.Echo(pb.EchoRequest(message="hello")).echo == "hello"
    put(stub, b"a", b"b", UNORDERED)
    records = stub.Inspect(pb.InspectRequest(dbm_index=-1)).records
    names = [record.first for record in records]
    assert names == [
        "version",
        "process_id",
        "num_dbms",
        *(f"dbm_{index}_{name}" for index in (0, 1) for name in ("path", "count", "class")),
        "memory_usage",
        "memory_capacity",
        "repl_max_timestamp",
        "num_active_calls",
        "current_time",
        "running_time",
    ]
    of_server = {record.first: record.second for record in records}
    assert len(of_server["version"]) > 3 and of_server["num_dbms"] == "2"
    assert of_server["process_id"] == str(server.process.pid)
    assert 0 <= float(of_server["running_time"]) < 3600
    for inspect in (stub.Inspect, older.Inspect):
        records = inspect(pb.InspectRequest(dbm_index=UNORDERED)).records
        of_database = {record.first: record.second for record in records}
        assert records[0].first == "class" and of_database["class"].endswith("DBM")
        expected = "volatile" if "memory" in server.kind else "interval=100ms"
        assert of_database["durability"] == expected
        if server.kind != "disk":
            assert of_database["num_records"] == "1"
    expect_status(
        grpc.StatusCode.INVALID_ARGUMENT,
        lambda: stub.Inspect(pb.InspectRequest(dbm_index=2)),
        "dbm_index is out of range",
    )


def test_records(stub):
    assert get(stub, b"k") is None
    put(stub, b"k", b"1")
    again = pb.SetRequest(key=b"k", value=b"2")
    assert stub.Set(again).status.code == DUPLICATION
    assert get(stub, b"k") == b"1"
    omitted = stub.Get(pb.GetRequest(key=b"k", omit_value=True))
    assert (omitted.status.code, omitted.value) == (SUCCESS, b"")
    put(stub, b"", b"")
    assert get(stub, b"") == b""
    large = os.urandom(1_000_000)
    put(stub, b"large", large)
    assert get(stub, b"large") == large
    assert stub.Count(pb.CountRequest()).count == 3
    for code in (SUCCESS, NOT_FOUND):
        assert stub.Remove(pb.RemoveRequest(key=b"k")).status.code == code
    append = pb.AppendRequest(key=b"a", value=b"x", delim=b",")
    for value in (b"x", b"x,x"):
        assert stub.Append(append).status.code == SUCCESS
        assert get(stub, b"a") == value


def test_several_records(stub):
    def pairs(**records):
        return [pb.BytesPair(first=key.encode(), second=value) for key, value in records.items()]

    records = [*pairs(b=b"2", a=b"1"), *pairs(b=b"3")]
    assert stub.SetMulti(pb.SetMultiRequest(records=records)).status.code == SUCCESS
    assert stub.SetMulti(pb.SetMultiRequest(records=records)).status.code == DUPLICATION
    found = stub.GetMulti(pb.GetMultiRequest(keys=[b"b", b"x", b"a", b"b"]))
    assert found.status.code == NOT_FOUND
    assert [(record.first, record.second) for record in found.records] == [
        (b"a", b"1"),
        (b"b", b"2"),
    ]
    appended = stub.AppendMulti(pb.AppendMultiRequest(records=records, delim=b"-"))
    assert appended.status.code == SUCCESS
    assert get(stub, b"b") == b"2-2"
    removed = stub.RemoveMulti(pb.RemoveMultiRequest(keys=[b"a", b"x", b"b"]))
    assert removed.status.code == NOT_FOUND
    assert stub.Count(pb.CountRequest()).count == 0
    many = [pb.BytesPair(first=struct.pack(">I", n), second=b"v") for n in range(25_000)]
    request = pb.SetMultiRequest(records=many, overwrite=True)
    assert stub.SetMulti(request).status.code == SUCCESS
    assert stub.Count(pb.CountRequest()).count == 25_000


def test_compare_exchange(stub, older):
    def exchange(**fields):
        response = stub.CompareExchange(pb.CompareExchangeRequest(key=b"k", **fields))
        return response.status.code, response.found, response.actual

    assert exchange(expected_existence=True, expect_any_value=True) == (INFEASIBLE, False, b"")
    assert exchange(desired_existence=True, desired_value=b"1") == (SUCCESS, False, b"")
    wrong = {"expected_existence": True, "expected_value": b"2", "get_actual": True}
    assert exchange(**wrong) == (INFEASIBLE, True, b"1")
    kept = {"expected_existence": True, "expect_any_value": True, "desire_no_update": True}
    assert exchange(**kept, get_actual=True) == (SUCCESS, True, b"1")
    assert exchange(expected_existence=True, expected_value=b"1") == (SUCCESS, True, b"")
    assert get(stub, b"k") is None
    request = before.CompareExchangeRequest(key=b"k", desired_existence=True, desired_value=b"3")
    assert older.CompareExchange(request).status.code == SUCCESS
    assert older.CompareExchange(request).status.code == INFEASIBLE
    assert get(stub, b"k") == b"3"
    # The original takes a record with the empty key for one that must not be there.
    put(stub, b"", b"stays")
    state = pb.RecordState
    request = pb.CompareExchangeMultiRequest(
        expected=[state(existence=True, key=b"k", any_value=True), state(key=b"new")],
        desired=[state(key=b"k"), state(existence=True, key=b"new", value=b"4")],
    )
    for code in (SUCCESS, INFEASIBLE):
        assert stub.CompareExchangeMulti(request).status.code == code
    assert (get(stub, b"k"), get(stub, b"new"), get(stub, b"")) == (None, b"4", b"stays")


def test_increment(stub):
    def increment(by, initial=0):
        response = stub.Increment(pb.IncrementRequest(key=b"n", increment=by, initial=initial))
        assert response.status.code == SUCCESS
        return response.current

    assert increment(-(2**63), 7) == 7 and get(stub, b"n") is None
    assert (increment(5, 100), increment(5, 100)) == (105, 110)
    assert get(stub, b"n") == struct.pack(">q", 110)
    for value, number in ((b"", 0), (b"\x01\x00", 256), (struct.pack(">q", -3) + b"rest", -3)):
        put(stub, b"n", value)
        assert (increment(-(2**63)), increment(1)) == (number, number + 1)
    put(stub, b"n", struct.pack(">q", 2**63 - 1))
    assert increment(1) == -(2**63)


def test_rekey(stub):
    def rekey(old, new, **fields):
        return stub.Rekey(pb.RekeyRequest(old_key=old, new_key=new, **fields)).status.code

    put(stub, b"a", b"1")
    put(stub, b"b", b"2")
    assert rekey(b"x", b"y") == NOT_FOUND
    assert rekey(b"a", b"b") == DUPLICATION
    assert rekey(b"a", b"c", copying=True) == SUCCESS
    assert rekey(b"a", b"b", overwrite=True) == SUCCESS
    assert [get(stub, key) for key in (b"a", b"b", b"c")] == [None, b"1", b"1"]


def test_maintenance(stub, server):
    size = stub.GetFileSize(pb.GetFileSizeRequest())
    assert size.status.code == (PRECONDITION if "memory" in server.kind else SUCCESS)
    assert not stub.ShouldBeRebuilt(pb.ShouldBeRebuiltRequest()).tobe
    for name, code in (("num_buckets", SUCCESS), ("no_such", INVALID)):
        params = [pb.StringPair(first=name, second="1")]
        assert stub.Rebuild(pb.RebuildRequest(params=params)).status.code == code
    put(stub, b"k", b"v")
    for hard in (False, True):
        assert stub.Synchronize(pb.SynchronizeRequest(hard=hard)).status.code == SUCCESS
    backup = pb.SynchronizeRequest(params=[pb.StringPair(first="make_backup", second="x")])
    expected = INFEASIBLE if "memory" in server.kind else NOT_IMPLEMENTED
    assert stub.Synchronize(backup).status.code == expected


def test_search(stub):
    for key in (b"apple", b"Apple pie", b"banana", b"b"):
        for index in (ORDERED, UNORDERED):
            put(stub, key, b"", index)

    def search(mode, pattern, capacity=0, index=ORDERED):
        request = pb.SearchRequest(dbm_index=index, mode=mode, pattern=pattern, capacity=capacity)
        response = stub.Search(request)
        return response.status.code, list(response.matched)

    for mode, pattern, expected in (
        ("contain", b"an", [b"banana"]),
        ("contain*", b"an\npp", [b"Apple pie", b"apple", b"banana"]),
        ("containcase", b"APPLE", [b"Apple pie", b"apple"]),
        ("containword", b"pie", [b"Apple pie"]),
        ("containcaseword", b"PI", []),
        ("begin", b"b", [b"b", b"banana"]),
        ("end", b"e", [b"Apple pie", b"apple"]),
        ("regex", b"a.a", [b"banana"]),
        ("regex", b"(?i)^A", [b"Apple pie", b"apple"]),
    ):
        for index in (ORDERED, UNORDERED):
            assert search(mode, pattern, index=index) == (SUCCESS, expected), mode
    assert search("edit", b"appel", 1) == (SUCCESS, [b"apple"])
    assert search("editbin", b"bb", 2) == (SUCCESS, [b"b", b"apple"])
    assert search("upper", b"b") == (SUCCESS, [])
    assert search("upper", b"b", 9) == (SUCCESS, [b"banana"])
    assert search("upperinc", b"b", 9) == (SUCCESS, [b"b", b"banana"])
    assert search("lower", b"b", 1) == (SUCCESS, [b"apple"])
    assert search("lowerinc", b"b", 9) == (SUCCESS, [b"b", b"apple", b"Apple pie"])
    assert search("upper", b"b", 9, UNORDERED)[0] == NOT_IMPLEMENTED
    assert search("no_such", b"")[0] == INVALID
    assert search("regex", b"(")[0] == INVALID


def test_iterate(stub, older):
    for key in (b"a", b"b", b"c"):
        put(stub, key, key * 2)
    put(stub, b"only", b"1", UNORDERED)
    operations = [
        ({"operation": OP.OP_GET}, (NOT_FOUND, b"", b"")),
        ({"operation": OP.OP_FIRST}, (SUCCESS, b"", b"")),
        ({"operation": OP.OP_GET}, (SUCCESS, b"a", b"aa")),
        ({"operation": OP.OP_NEXT}, (SUCCESS, b"", b"")),
        ({"operation": OP.OP_GET, "omit_value": True}, (SUCCESS, b"b", b"")),
        ({"operation": OP.OP_SET, "value": b"new"}, (SUCCESS, b"", b"")),
        ({"operation": OP.OP_STEP}, (SUCCESS, b"b", b"new")),
        ({"operation": OP.OP_GET}, (SUCCESS, b"c", b"cc")),
        ({"operation": OP.OP_PREVIOUS}, (SUCCESS, b"", b"")),
        ({"operation": OP.OP_REMOVE}, (SUCCESS, b"", b"")),
        ({"operation": OP.OP_GET}, (SUCCESS, b"c", b"cc")),
        ({"operation": OP.OP_LAST}, (SUCCESS, b"", b"")),
        ({"operation": OP.OP_NEXT}, (SUCCESS, b"", b"")),
        ({"operation": OP.OP_NEXT}, (NOT_FOUND, b"", b"")),
        ({"operation": OP.OP_JUMP, "key": b"aa"}, (SUCCESS, b"", b"")),
        ({"operation": OP.OP_GET}, (SUCCESS, b"c", b"cc")),
        ({"operation": OP.OP_JUMP_LOWER, "key": b"c"}, (SUCCESS, b"", b"")),
        ({"operation": OP.OP_GET}, (SUCCESS, b"a", b"aa")),
        ({"operation": OP.OP_JUMP_LOWER, "key": b"c", "jump_inclusive": True}, (0, b"", b"")),
        ({"operation": OP.OP_GET}, (SUCCESS, b"c", b"cc")),
        ({"operation": OP.OP_JUMP_UPPER, "key": b"c"}, (SUCCESS, b"", b"")),
        ({"operation": OP.OP_GET}, (NOT_FOUND, b"", b"")),
        ({"operation": OP.OP_NONE}, (SUCCESS, b"", b"")),
        ({"operation": OP.OP_LAST, "dbm_index": 1}, (NOT_IMPLEMENTED, b"", b"")),
        ({"operation": OP.OP_JUMP, "key": b"x", "dbm_index": 1}, (NOT_FOUND, b"", b"")),
        ({"operation": OP.OP_FIRST, "dbm_index": 1}, (SUCCESS, b"", b"")),
        ({"operation": OP.OP_GET, "dbm_index": 1}, (SUCCESS, b"only", b"1")),
    ]
    requests = [pb.IterateRequest(**fields) for fields, _ in operations]
    responses = list(stub.Iterate(iter(requests)))
    said = [(response.status.code, response.key, response.value) for response in responses]
    assert said == [expected for _, expected in operations]
    first = [pb.IterateRequest(operation=OP.OP_FIRST), pb.IterateRequest(operation=OP.OP_GET)]
    assert [one.key for one in older.Iterate(iter(first))] == [b"", b"a"]
    for wrong in (
        pb.IterateRequest(dbm_index=-1),
        pb.IterateRequest(dbm_index=2),
        pb.IterateRequest(operation=99),
    ):
        expect_status(grpc.StatusCode.INVALID_ARGUMENT, lambda: list(stub.Iterate(iter([wrong]))))


def test_an_iterator_finds_its_way_when_all_is_cleared(stub):
    put(stub, b"a", b"1")
    put(stub, b"b", b"2")
    requests, responses = Requests(), None
    responses = stub.Iterate(requests)

    def ask(**fields):
        requests.put(pb.IterateRequest(**fields))
        response = next(responses)
        return response.status.code, response.key

    assert ask(operation=OP.OP_FIRST) == (SUCCESS, b"")
    assert ask(operation=OP.OP_STEP) == (SUCCESS, b"a")
    stub.Clear(pb.ClearRequest())
    assert ask(operation=OP.OP_GET) == (NOT_FOUND, b"")
    put(stub, b"c", b"3")
    assert ask(operation=OP.OP_FIRST) == (SUCCESS, b"")
    assert ask(operation=OP.OP_GET) == (SUCCESS, b"c")
    requests.end()
    assert list(responses) == []


class Requests:
    """Requests of a stream, one after the other."""

    def __init__(self):
        self.condition = threading.Condition()
        self.waiting = []

    def put(self, request):
        with self.condition:
            self.waiting.append(request)
            self.condition.notify()

    def end(self):
        self.put(None)

    def __iter__(self):
        return self

    def __next__(self):
        with self.condition:
            self.condition.wait_for(lambda: self.waiting)
            request = self.waiting.pop(0)
        if request is None:
            raise StopIteration
        return request


def stream_request(kind, omit=False, **fields):
    types = {
        "echo": pb.EchoRequest,
        "get": pb.GetRequest,
        "set": pb.SetRequest,
        "remove": pb.RemoveRequest,
        "append": pb.AppendRequest,
        "compare_exchange": pb.CompareExchangeRequest,
        "increment": pb.IncrementRequest,
    }
    return pb.StreamRequest(**{f"{kind}_request": types[kind](**fields), "omit_response": omit})


def test_stream(stub, older):
    requests = [
        (stream_request("echo", message="hello"), SUCCESS),
        (stream_request("get", key=b"k"), NOT_FOUND),
        (stream_request("set", key=b"k", value=b"1"), SUCCESS),
        (stream_request("set", key=b"k", value=b"1"), DUPLICATION),
        (stream_request("append", key=b"k", value=b"2", delim=b"-"), SUCCESS),
        (stream_request("get", dbm_index=UNORDERED, key=b"k"), NOT_FOUND),
        (stream_request("set", dbm_index=UNORDERED, key=b"k", value=b"u"), SUCCESS),
        (stream_request("get", key=b"k"), SUCCESS),
        # It neither waits nor tells here.
        (stream_request("compare_exchange", key=b"k", retry_wait=1000, notify=True), INFEASIBLE),
        (stream_request("remove", key=b"k"), SUCCESS),
        (stream_request("increment", key=b"k", increment=1, initial=1), SUCCESS),
    ]
    responses = list(stub.Stream(request for request, _ in requests))
    kinds = [response.WhichOneof("response_oneof") for response in responses]
    sent = [request.WhichOneof("request_oneof") for request, _ in requests]
    assert kinds == [kind.replace("request", "response") for kind in sent]
    codes = [getattr(one, kind).status.code for one, kind in zip(responses, kinds)]
    assert codes == [code for _, code in requests]
    assert responses[7].get_response.value == b"1-2"
    assert responses[10].increment_response.current == 2
    silent = [stream_request("set", omit=True, key=b"x%d" % n, value=b"v") for n in range(3_000)]
    silent.append(stream_request("set", omit=True, key=b"x0", value=b"v"))
    silent.append(stream_request("get", key=b"x2999"))
    (last,) = stub.Stream(iter(silent))
    assert last.get_response.value == b"v"
    assert stub.Count(pb.CountRequest()).count == 3_001
    exchange = before.CompareExchangeRequest(key=b"o", desired_existence=True, desired_value=b"1")
    request = before.StreamRequest(compare_exchange_request=exchange)
    (response,) = older.Stream(iter([request]))
    assert response.compare_exchange_response.status.code == SUCCESS
    assert get(stub, b"o") == b"1"
    for wrong in (
        pb.StreamRequest(),
        stream_request("get", dbm_index=-1),
        stream_request("set", omit=True, dbm_index=2),
    ):
        expect_status(grpc.StatusCode.INVALID_ARGUMENT, lambda: list(stub.Stream(iter([wrong]))))


def test_queue(stub):
    pop = pb.PopFirstRequest()
    assert stub.PopFirst(pop).status.code == NOT_FOUND
    for value in (b"0", b"1", b"2"):
        assert stub.PushLast(pb.PushLastRequest(value=value)).status.code == SUCCESS
    for number in range(3):
        response = stub.PopFirst(pop)
        assert response.key == struct.pack(">Q", number)
        assert response.value == b"%d" % number
    started = time.time()
    assert stub.PushLast(pb.PushLastRequest(value=b"now", wtime=-1)).status.code == SUCCESS
    response = stub.PopFirst(pop)
    (key,) = struct.unpack(">Q", response.key)
    assert started - 1 < key / 1e8 < time.time() + 1
    assert stub.PushLast(pb.PushLastRequest(value=b"v", wtime=1.5)).status.code == SUCCESS
    response = stub.PopFirst(pb.PopFirstRequest(omit_value=True))
    assert (response.key, response.value) == (struct.pack(">Q", 150_000_000), b"")


def test_each_record_is_popped_once(stub):
    count = 300
    for number in range(count):
        stub.PushLast(pb.PushLastRequest(value=b"%d" % number))

    def pop(_):
        return stub.PopFirst(pb.PopFirstRequest())

    with futures.ThreadPoolExecutor(16) as pool:
        popped = list(pool.map(pop, range(count + 20)))
    values = [int(one.value) for one in popped if one.status.code == SUCCESS]
    assert sorted(values) == list(range(count))
    assert [one.status.code for one in popped].count(NOT_FOUND) == 20


def test_pushes_at_one_time_all_come_through(stub):
    """However many push at once: each has a key of its own, without gaps."""
    calls = [
        stub.PushLast.future(pb.PushLastRequest(value=b"%d" % number, wtime=5))
        for number in range(800)
    ]
    assert {call.result(60).status.code for call in calls} == {SUCCESS}
    assert stub.Count(pb.CountRequest()).count == 800
    keys, values = set(), set()
    for _ in range(800):
        popped = stub.PopFirst(pb.PopFirstRequest())
        keys.add(struct.unpack(">Q", popped.key)[0])
        values.add(popped.value)
    assert keys == set(range(500_000_000, 500_000_800)) and len(values) == 800
    never = pb.PushLastRequest(value=b"v", wtime=float("inf"))
    expect_status(grpc.StatusCode.INVALID_ARGUMENT, lambda: stub.PushLast(never), "wtime")


def test_large_requests_are_written_in_slices(stub):
    """Of several records with one key the first, whatever slice the others are in."""
    count = 30_000
    records = [
        pb.BytesPair(first=b"%08d" % (number * 7 % count), second=b"%d" % number)
        for number in range(count)
    ]
    records += [pb.BytesPair(first=b"%08d" % number, second=b"again") for number in range(count)]
    for overwrite, code in ((True, SUCCESS), (False, DUPLICATION)):
        request = pb.SetMultiRequest(records=records, overwrite=overwrite)
        assert stub.SetMulti(request).status.code == code
    assert stub.Count(pb.CountRequest()).count == count
    assert get(stub, b"%08d" % 7) == b"1" and get(stub, b"%08d" % (5 * 7)) == b"5"
    keys = [record.first for record in records]
    removed = [stub.RemoveMulti(pb.RemoveMultiRequest(keys=keys)).status.code for _ in range(2)]
    assert removed == [SUCCESS, NOT_FOUND]


def test_many_searches_all_end(stub):
    """More than compute at a time, from several connections, beside a call that is none."""
    put_all = [pb.BytesPair(first=b"key %d" % number, second=b"") for number in range(3_000)]
    assert stub.SetMulti(pb.SetMultiRequest(records=put_all)).status.code == SUCCESS
    request = pb.SearchRequest(mode="edit", pattern=b"key 1234", capacity=1)
    calls = [stub.Search.future(request) for _ in range(40)]
    assert get(stub, b"key 1") == b""
    assert [list(call.result(60).matched) for call in calls] == [[b"key 1234"]] * 40


def test_waiting_calls_are_woken(stub, server):
    waiting = [stub.PopFirst.future(pb.PopFirstRequest(retry_wait=WAIT_SECONDS)) for _ in range(8)]
    exchange = pb.CompareExchangeRequest(
        key=b"\xff",
        expected_existence=True,
        expected_value=b"ready",
        desire_no_update=True,
        retry_wait=WAIT_SECONDS,
    )
    time.sleep(0.2)
    assert not any(call.done() for call in waiting)
    started = time.monotonic()
    for number in range(8):
        stub.PushLast(pb.PushLastRequest(value=b"%d" % number, notify=True))
    popped = sorted(int(call.result().value) for call in waiting)
    assert popped == list(range(8))
    waiting = stub.CompareExchange.future(exchange)
    time.sleep(0.2)
    assert not waiting.done()
    ready = pb.CompareExchangeRequest(
        key=b"\xff", desired_existence=True, desired_value=b"ready", notify=True
    )
    assert stub.CompareExchange(ready).status.code == SUCCESS
    assert waiting.result().status.code == SUCCESS
    # Those that are only woken to look now and then take five seconds.
    assert time.monotonic() - started < 4


def test_waiting_calls_give_up_in_time(stub):
    started = time.monotonic()
    pop = stub.PopFirst(pb.PopFirstRequest(retry_wait=0.3))
    assert pop.status.code == NOT_FOUND
    exchange = pb.CompareExchangeRequest(key=b"k", expected_existence=True, retry_wait=0.3)
    assert stub.CompareExchange(exchange).status.code == INFEASIBLE
    assert 0.6 <= time.monotonic() - started < 4


def test_without_an_update_log_nobody_can_follow(stub, older):
    for one in (stub, older):
        expect_status(
            grpc.StatusCode.FAILED_PRECONDITION,
            lambda: list(one.Replicate(pb.ReplicateRequest())),
            "disabled update logging",
        )
        assert one.ChangeMaster(pb.ChangeMasterRequest()).status.code == SUCCESS


def test_the_older_package_has_the_same_records(stub, older):
    put(stub, b"k", b"v")
    assert older.Get(pb.GetRequest(key=b"k")).value == b"v"
    assert older.Set(pb.SetRequest(key=b"k")).status.code == DUPLICATION
    records = [pb.BytesPair(first=b"a", second=b"1")]
    assert older.SetMulti(pb.SetMultiRequest(records=records)).status.code == SUCCESS
    found = older.GetMulti(pb.GetMultiRequest(keys=[b"k", b"a"]))
    assert [record.first for record in found.records] == [b"a", b"k"]
    assert older.Append(pb.AppendRequest(key=b"k", value=b"w")).status.code == SUCCESS
    appended = older.AppendMulti(pb.AppendMultiRequest(records=records, delim=b","))
    assert appended.status.code == SUCCESS
    assert older.Increment(pb.IncrementRequest(key=b"n", increment=1)).current == 1
    state = pb.RecordState(existence=True, key=b"a", value=b"1,1")
    exchange = pb.CompareExchangeMultiRequest(expected=[state], desired=[pb.RecordState(key=b"a")])
    assert older.CompareExchangeMulti(exchange).status.code == SUCCESS
    assert older.Remove(pb.RemoveRequest(key=b"a")).status.code == NOT_FOUND
    assert older.RemoveMulti(pb.RemoveMultiRequest(keys=[b"n"])).status.code == SUCCESS
    assert older.Count(pb.CountRequest()).count == 1
    assert list(older.Search(pb.SearchRequest(mode="begin", pattern=b"")).matched) == [b"k"]
    assert older.Rebuild(pb.RebuildRequest()).status.code == SUCCESS
    assert not older.ShouldBeRebuilt(pb.ShouldBeRebuiltRequest()).tobe
    assert older.Synchronize(pb.SynchronizeRequest()).status.code == SUCCESS
    assert older.GetFileSize(pb.GetFileSizeRequest()).status.code in (SUCCESS, PRECONDITION)
    assert older.Clear(pb.ClearRequest()).status.code == SUCCESS
    assert get(stub, b"k") is None


def test_waiting_calls_end_when_the_server_stops(binary):
    for words in ([], ["--async"]):
        with start(binary, "--shutdown_wait", "10", *words) as server:
            with open_channel(server.address) as channel:
                stub = pb_grpc.DBMServiceStub(channel)
                calls = [stub.PopFirst.future(pb.PopFirstRequest(retry_wait=600)) for _ in range(5)]
                exchange = pb.CompareExchangeRequest(
                    key=b"k", expected_existence=True, retry_wait=600
                )
                calls.append(stub.CompareExchange.future(exchange))
                requests = Requests()
                iterator = stub.Iterate(requests)
                requests.put(pb.IterateRequest(operation=OP.OP_FIRST))
                assert next(iterator).status.code == SUCCESS
                # All have come: the last one was answered, or is behind them.
                assert stub.Echo(pb.EchoRequest(message="x")).echo == "x"
                requests.end()
                assert list(iterator) == []
                assert server.stop() == 0
                for call in calls:
                    assert call.exception().code() == grpc.StatusCode.UNAVAILABLE


def test_records_last_and_other_clients_see_them(binary, tmp_path):
    path = tmp_path / "casket.tkh"
    for value in (b"1", b"2"):
        with start(binary, str(path)) as server:
            server.wait_for_log("HashDBM", "kept as casket.tkh", "100 ms")
            with open_channel(server.address) as channel:
                stub = pb_grpc.DBMServiceStub(channel)
                expected = None if value == b"1" else b"1"
                assert get(stub, b"k") == expected
                put(stub, b"k", value)
                assert stub.Synchronize(pb.SynchronizeRequest(hard=True)).status.code == SUCCESS
                others = kv_pb2_grpc.KeyValueStub(channel)
                response = others.Get(kv_pb2.GetRequest(database="casket.tkh", key=b"k"))
                assert response.value == value
            assert server.stop() == 0
    assert not path.exists()


def run(binary, *words):
    return subprocess.run(
        [binary, "tkrzw-server", "--address", "127.0.0.1:0", *words],
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_file_of_the_original_is_left_alone(binary, tmp_path):
    path = tmp_path / "casket.tkt"
    path.write_bytes(b"somebody's data")
    ended = run(binary, str(path))
    assert ended.returncode == 3
    for word in (str(path), "TreeDBM", "import"):
        assert word in ended.stderr
    assert os.listdir(tmp_path) == ["casket.tkt"]
    assert path.read_bytes() == b"somebody's data"


@pytest.mark.parametrize(
    "words",
    [
        ["--daemon"],
        ["--repl_master", "nowhere"],
        ["--ulog_prefix", "x", "--durability", "volatile"],
        ["a.tkh#record_comp_mode=aes"],
    ],
)
def test_what_would_be_missing_is_refused(binary, words, tmp_path):
    ended = run(binary, *words)
    assert ended.returncode == 2 and len(ended.stderr) > 20


def test_the_command_line_of_the_original(binary, tmp_path):
    log, pid = tmp_path / "log", tmp_path / "pid"
    words = ["--log_file", str(log), "--pid_file", str(pid), "--log_level", "info"]
    words += ["--log_date", "w3cdtf", "--server_id", "2", "--read_only", "#num_buckets=1m"]
    with start(binary, *words, address="0.0.0.0:0") as server:
        port = server.address.rsplit(":", 1)[1]
        assert pid.read_text().strip() == str(server.process.pid)
        # The last of what it says at its start.
        wait_until(lambda: "drop-in service tkrzw does" in log.read_text())
        text = log.read_text()
        for word in ("--log_date", "#num_buckets", "whoever can reach"):
            assert word in text, text
        # What rotates logs moves the file away, and says so.
        log.rename(tmp_path / "log.1")
        server.signal(signal.SIGHUP)
        wait_until(log.exists)
        with open_channel(f"127.0.0.1:{port}") as channel:
            stub = pb_grpc.DBMServiceStub(channel)
            set_one = pb.SetRequest(key=b"k", overwrite=True)
            assert stub.Set(set_one).status.code == PRECONDITION
            # Nothing but this service is open to everybody.
            others = kv_pb2_grpc.KeyValueStub(channel)
            expect_status(
                grpc.StatusCode.PERMISSION_DENIED,
                lambda: others.Get(kv_pb2.GetRequest(key=b"k")),
            )
        assert server.stop() == 0
        assert "stopped" in log.read_text()
    assert not pid.exists()


@pytest.mark.parametrize("words", [["--async"], []])
def test_a_cache_drops_what_was_not_used_for_longest(binary, words):
    bounds = "#dbm=cache,cap_rec_num=100", "#dbm=cache,cap_mem_size=100k"
    server = start(binary, *words, *bounds, "#dbm=cache")
    with server, open_channel(server.address) as channel:
        stub = pb_grpc.DBMServiceStub(channel)
        for number in range(300):
            put(stub, b"%d" % number, b"", index=0)
            # These are read all the time, each in one of the ways in which records are read.
            assert get(stub, b"0", index=0) == b""
            keys = [b"1"] if number else []
            assert stub.GetMulti(pb.GetMultiRequest(keys=keys)).status.code in (SUCCESS, NOT_FOUND)
        left = {number for number in range(300) if get(stub, b"%d" % number, index=0) == b""}
        assert left == {0, 1, *range(202, 300)}
        large = [pb.BytesPair(first=b"%d" % number, second=bytes(10_000)) for number in range(50)]
        assert stub.SetMulti(pb.SetMultiRequest(dbm_index=1, records=large)).status.code == SUCCESS
        assert 5 <= stub.Count(pb.CountRequest(dbm_index=1)).count <= 10
        default = str(1 << 20)
        for index, expected in enumerate((("100", "-1"), (default, "100000"), (default, "-1"))):
            records = stub.Inspect(pb.InspectRequest(dbm_index=index)).records
            found = {record.first: record.second for record in records}
            assert (found["cap_rec_num"], found["cap_mem_size"]) == expected
        stub.Clear(pb.ClearRequest(dbm_index=0))
        put(stub, b"again", b"", index=0)
        assert get(stub, b"again", index=0) == b""


def test_pelton_serve_has_the_service_too(binary):
    with Server(binary) as server, open_channel(server.address) as channel:
        stub = pb_grpc.DBMServiceStub(channel)
        put(stub, b"k", b"v")
        others = kv_pb2_grpc.KeyValueStub(channel)
        assert others.Get(kv_pb2.GetRequest(key=b"k")).value == b"v"
        requests = [pb.IterateRequest(operation=OP.OP_LAST)]
        assert [one.status.code for one in stub.Iterate(iter(requests))] == [SUCCESS]


def test_many_connections_share_one_thread_of_calls(binary):
    """As with the pool of the original: waiting calls and idle streams are in nobody's way."""
    with start(binary, "--threads", "1") as server:
        channels = [open_channel(server.address) for _ in range(12)]
        stubs = [pb_grpc.DBMServiceStub(channel) for channel in channels]
        waiting = [stub.PopFirst.future(pb.PopFirstRequest(retry_wait=60)) for stub in stubs[:6]]
        idle = [Requests() for _ in range(3)]
        streams = [stub.Iterate(requests) for stub, requests in zip(stubs[6:], idle)]
        for requests, stream in zip(idle, streams):
            requests.put(pb.IterateRequest(operation=OP.OP_FIRST))
            assert next(stream).status.code == SUCCESS
        for stub in stubs[9:]:
            for _ in range(2):
                stub.PushLast(pb.PushLastRequest(value=b"v", notify=True))
        assert [call.result().value for call in waiting] == [b"v"] * 6
        for requests in idle:
            requests.end()
        for channel in channels:
            channel.close()


@pytest.mark.parametrize("driver", [["--async"], []], ids=["async", "sync"])
def test_a_stream_without_responses_has_no_end(binary, driver):
    """What its commits hold is given back although nothing is sent."""
    count, value = 120, bytes(1_000_000)
    with start(binary, "#dbm=hash", *driver) as server, open_channel(server.address) as channel:
        stub = pb_grpc.DBMServiceStub(channel)
        for _ in range(2):
            silent = (
                pb.StreamRequest(
                    set_request=pb.SetRequest(key=b"%d" % (n % 4), value=value, overwrite=True),
                    omit_response=True,
                )
                for n in range(count)
            )
            assert list(stub.Stream(silent, timeout=60)) == []
            assert stub.Count(pb.CountRequest()).count == 4
        assert server.resident_bytes() < 300 << 20


def test_searches_take_memory_for_their_answers_before_they_find_anything(binary):
    """However many search, and whether or not they read what they get."""
    with (
        start(binary, "#dbm=tree", "--async", "--memory-limit", "200MiB") as server,
        open_channel(server.address) as channel,
    ):
        stub = pb_grpc.DBMServiceStub(channel)
        for start_at in range(0, 20_000, 1_000):
            records = [
                pb.BytesPair(first=b"%05d" % n + bytes(995), second=b"v")
                for n in range(start_at, start_at + 1_000)
            ]
            stub.SetMulti(pb.SetMultiRequest(records=records))
        search = pb.SearchRequest(mode="contain", pattern=b"000", capacity=3_000)
        expected = len(stub.Search(search).matched)
        assert expected > 0
        with pytest.raises(grpc.RpcError) as refused:
            stub.Search(pb.SearchRequest(mode="begin", pattern=b"", capacity=0))
        assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        calls = [stub.Search.future(search, timeout=120) for _ in range(150)]
        highest = 0
        while not all(call.done() for call in calls):
            highest = max(highest, server.resident_bytes())
            time.sleep(0.02)
        assert all(len(call.result().matched) == expected for call in calls)
        assert highest < 400 << 20


def test_a_search_does_not_hold_up_a_stop(binary):
    with start(binary, "#dbm=hash", "--async") as server, open_channel(server.address) as channel:
        stub = pb_grpc.DBMServiceStub(channel)
        records = [pb.BytesPair(first=b"%d" % n + bytes(60_000), second=b"") for n in range(40)]
        stub.SetMulti(pb.SetMultiRequest(records=records))
        search = pb.SearchRequest(mode="editbin", pattern=bytes(range(256)) * 250, capacity=1)
        calls = [stub.Search.future(search) for _ in range(4)]
        time.sleep(0.3)
        assert not any(call.done() for call in calls)
        began = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - began < 10
        assert {call.exception().code() for call in calls} == {grpc.StatusCode.UNAVAILABLE}


def test_files_whose_names_differ_in_other_characters_are_other_databases(binary, tmp_path):
    data = ["--data", str(tmp_path / "data")]
    for name, there in [("\u00e4.tkh", b"a"), ("\u00fc.tkh", b"u")] * 2:
        with start(binary, f"{tmp_path}/{name}", *data) as server:
            with open_channel(server.address) as channel:
                stub = pb_grpc.DBMServiceStub(channel)
                answer = stub.Get(pb.GetRequest(key=b"k"))
                assert answer.value in (b"", there)
                stub.Set(pb.SetRequest(key=b"k", value=there, overwrite=True))
            assert server.stop() == 0
