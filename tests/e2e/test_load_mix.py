"""`pelton load --mix` and `--ycsb`: which calls a server gets, and what they leave in it."""

import json

import pytest
from metrics_page import families
from pelton.v1 import kv_pb2 as pb
from pelton.v1 import kv_pb2_grpc
from server import Server, open_channel
from test_load_framed import run

KEYS = 500
CALLS = 4000


@pytest.fixture
def server(binary):
    with Server(binary, "--metrics-listen", "127.0.0.1:0") as server:
        yield server


def calls_of(server):
    """Calls of the load by method. What it stores first comes in Batches, which are left out, as
    are the Counts of the test."""
    calls = {
        sample.labels["grpc_method"]: sample.value
        for family in families(server)
        for sample in family.samples
        if sample.name == "grpc_server_started_total"
        and sample.labels["grpc_service"] == "pelton.v1.KeyValue"
        and sample.labels["grpc_method"] not in ("Batch", "Count")
    }
    return {method: count for method, count in calls.items() if count}


def entries_of(server):
    with open_channel(server.address) as channel:
        return kv_pb2_grpc.KeyValueStub(channel).Count(pb.CountRequest()).count


def load(binary, server, *words, **more):
    size = ["--keys", KEYS, "--calls", CALLS, "--connections", 2, "--in-flight", 8]
    words = ["--database=", "--fill", "--output", "json", "--seed", 1, *size, *words]
    return json.loads(run(binary, server.address, *words, **more).stdout)


# Shares of all calls in percent: of 150 calls of F 100 are Gets, and 50 Puts.
YCSB = {
    "A": {"Get": 50, "Put": 50},
    "b": {"Get": 95, "Put": 5},
    "C": {"Get": 100},
    "D": {"Get": 95, "Put": 5},
    "E": {"Scan": 95, "Put": 5},
    "F": {"Get": 67, "Put": 33},
}


@pytest.mark.parametrize("letter", YCSB)
def test_a_workload_of_ycsb_makes_its_calls(binary, server, letter):
    for again in range(2):
        before, entries = calls_of(server), entries_of(server)
        report = load(binary, server, "--ycsb", letter, "--threads", 2)
        assert report["failures"] == report["misses"] == 0, report
        made = {method: count - before.get(method, 0) for method, count in calls_of(server).items()}
        total = sum(made.values())
        shares = {method: 100 * count / total for method, count in made.items()}
        assert shares == pytest.approx(YCSB[letter], abs=4), (again, made)
        inserted = entries_of(server) - max(entries, KEYS)
        if letter in "DE":
            # The second time the same keys are inserted, but for what one thread makes more.
            assert inserted == made["Put"] if not again else inserted < made["Put"] / 2, made
        else:
            assert inserted == 0, made


def test_what_goes_alone_is_refused_in_batches(binary, server):
    words = ["--mix", "scan=100", "--batch", 10]
    refused = run(binary, server.address, *words, codes=(2,))
    assert "`scan` goes in a call of its own; leave out --batch and --pipe" in refused.stderr
    refused = run(binary, server.address, "--ycsb", "A", "--mix", "get=100", codes=(2,))
    assert "cannot be used with" in refused.stderr
    assert calls_of(server) == {}
