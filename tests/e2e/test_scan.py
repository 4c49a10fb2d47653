"""Scan and Count: ranges, both directions, pages, and what happens meanwhile."""

import random

import grpc
import pytest
from pelton.v1 import kv_pb2 as pb
from pelton.v1 import kv_pb2_grpc
from server import Server, open_channel

KEYS = sorted(
    {b"%s%d" % (letter, n) for letter in (b"a", b"b", b"\xff") for n in range(700)}
    | {b"", b"\xff" * 3}
)
VALUES = {key: b"value of " + key for key in KEYS}


@pytest.fixture(scope="module", params=["memory", "disk"])
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def kv(binary, kind, tmp_path_factory):
    """A server whose default database holds exactly KEYS, in memory or on disk."""
    folder = tmp_path_factory.mktemp("data")
    place = ["--data", str(folder / "pelton"), "--kind", "disk"] if kind == "disk" else []
    with (
        Server(binary, "--threads", "2", *place) as server,
        open_channel(server.address) as channel,
    ):
        stub = kv_pb2_grpc.KeyValueStub(channel)
        shuffled = random.Random(1).sample(KEYS, len(KEYS))
        for key in shuffled:
            stub.Put(pb.PutRequest(key=key, value=VALUES[key]))
        yield stub


def scan(kv, **request):
    """All entries, after a look at the pages."""
    pages = list(kv.Scan(pb.ScanRequest(**request), timeout=30))
    assert [page.last for page in pages] == [False] * (len(pages) - 1) + [True]
    assert all(page.sequence > 0 for page in pages)
    return [entry for page in pages for entry in page.entries]


def keys(kv, **request):
    return [entry.key for entry in scan(kv, **request)]


def test_everything_in_order(kv):
    entries = scan(kv)
    assert [entry.key for entry in entries] == KEYS
    assert all(entry.value == VALUES[entry.key] and entry.version > 0 for entry in entries)
    assert keys(kv, direction=pb.DIRECTION_BACKWARD) == KEYS[::-1]


@pytest.mark.parametrize("direction", [pb.DIRECTION_FORWARD, pb.DIRECTION_BACKWARD])
@pytest.mark.parametrize(
    ("start", "end"),
    [
        (b"", b""),
        (b"a", b"b"),
        (b"a100", b"a101"),
        (b"b", b""),
        (b"", b"a5"),
        (b"c", b"d"),
        (b"a1", b"a1"),
        (b"\xff\xff", b""),
    ],
)
def test_ranges(kv, start, end, direction):
    expected = [key for key in KEYS if key >= start and (key < end or not end)]
    wanted = pb.KeyRange(start=start, end=end)
    found = keys(kv, range=wanted, direction=direction)
    assert found == (expected if direction == pb.DIRECTION_FORWARD else expected[::-1])
    count = kv.Count(pb.CountRequest(range=wanted))
    assert (count.count, count.exact, count.views) == (len(expected), True, 1)


@pytest.mark.parametrize(
    "prefix", [b"", b"a", b"a1", b"zzz", b"\xff", b"\xff\xff", b"\xff\xff\xff", b"\xff\xff\xff\xff"]
)
def test_prefixes(kv, prefix):
    expected = [key for key in KEYS if key.startswith(prefix)]
    assert keys(kv, prefix=prefix) == expected
    assert keys(kv, prefix=prefix, direction=pb.DIRECTION_BACKWARD) == expected[::-1]
    assert kv.Count(pb.CountRequest(prefix=prefix)).count == len(expected)


def test_count_of_everything(kv):
    answer = kv.Count(pb.CountRequest())
    assert (
        (answer.count, answer.exact) == (len(KEYS), True)
        and answer.views >= 1
        and answer.sequence > 0
    )
    assert kv.Count(pb.CountRequest(precision=pb.COUNT_PRECISION_ESTIMATE)).count == len(KEYS)


def test_keys_only_and_limit(kv):
    entries = scan(kv, prefix=b"a", keys_only=True, limit=5)
    assert [entry.key for entry in entries] == [key for key in KEYS if key.startswith(b"a")][:5]
    assert all(entry.value == b"" and entry.version > 0 for entry in entries)
    assert keys(kv, limit=1, direction=pb.DIRECTION_BACKWARD) == KEYS[-1:]
    assert len(keys(kv, limit=10**12)) == len(KEYS)


@pytest.mark.parametrize("direction", [pb.DIRECTION_FORWARD, pb.DIRECTION_BACKWARD])
def test_going_on_after_a_key(kv, direction):
    found = []
    while batch := keys(
        kv, direction=direction, limit=97, **({"start_after": found[-1]} if found else {})
    ):
        found += batch
    assert found == (KEYS if direction == pb.DIRECTION_FORWARD else KEYS[::-1])
    # The key need not exist.
    if direction == pb.DIRECTION_FORWARD:
        assert keys(kv, start_after=b"a100x", limit=1) == [b"a101"]
    # The empty key is a key like others.
    assert keys(kv, start_after=b"", limit=1) == [KEYS[1]]


def test_pages_stay_below_one_mebibyte(kv):
    for n in range(40):
        kv.Put(pb.PutRequest(key=b"large/%02d" % n, value=b"v" * 100_000))
    kv.Put(pb.PutRequest(key=b"large/20", value=b"v" * 3_000_000))
    pages = list(kv.Scan(pb.ScanRequest(prefix=b"large/")))
    assert sum(len(page.entries) for page in pages) == 40
    assert all(page.ByteSize() <= (1 << 20) + 64 or len(page.entries) == 1 for page in pages)
    for n in range(40):
        kv.Delete(pb.DeleteRequest(key=b"large/%02d" % n))


def test_a_scan_that_is_cancelled_ends(kv):
    call = kv.Scan(pb.ScanRequest())
    next(call)
    call.cancel()
    with pytest.raises(grpc.RpcError) as error:
        list(call)
    assert error.value.code() == grpc.StatusCode.CANCELLED
    assert keys(kv, limit=1) == [b""]


def test_keys_that_stay_appear_once_while_others_come_and_go(kv):
    """A slow reader, and a writer between the pages."""
    stable = [b"stable/%05d" % n for n in range(5_000)]
    for start in range(0, len(stable), 1_000):
        operations = [
            pb.Operation(put=pb.Operation.Put(key=key, value=b"v" * 400))
            for key in stable[start : start + 1_000]
        ]
        kv.Batch(pb.BatchRequest(operations=operations))
    seen = []
    for number, page in enumerate(kv.Scan(pb.ScanRequest(prefix=b"stable/"))):
        seen += [entry.key for entry in page.entries]
        kv.Put(pb.PutRequest(key=stable[number] + b"/new", value=b""))
        kv.Put(pb.PutRequest(key=stable[-1 - number] + b"/new", value=b""))
        kv.Delete(pb.DeleteRequest(key=stable[number] + b"/new"))
    assert [key for key in seen if not key.endswith(b"/new")] == stable
    assert seen == sorted(seen)
