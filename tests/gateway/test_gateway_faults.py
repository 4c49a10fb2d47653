"""The node is frozen, killed and started again: what callers, health and memory do meanwhile."""

import threading
import time

import grpc
import pytest
from gateway import QUORUM, Gateway, make_database, outcome, pushback_ms
from grpc_health.v1 import health_pb2, health_pb2_grpc
from pelton.v1 import kv_pb2 as pb
from server import wait_until

OK = grpc.StatusCode.OK
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
UNKNOWN = grpc.StatusCode.UNKNOWN
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
# A request to the store counts as not answered after this.
STORE_SECONDS = 2
SECONDS = 60


@pytest.fixture(scope="module")
def impatient(binary, node, keyspace):
    """A gateway that waits for the store for a short time, and has little memory."""
    words = ["--store-timeout", f"{STORE_SECONDS}s", "--memory-limit", "256MiB"]
    with Gateway(binary, node.address, keyspace, *words) as running:
        make_database(running.admin(), "by-quorum", QUORUM)
        yield running
        assert running.process.poll() is None, running.log()


@pytest.fixture
def calls(impatient):
    return impatient.kv()


def health(gateway):
    stub = health_pb2_grpc.HealthStub(gateway.channel())
    return stub.Check(health_pb2.HealthCheckRequest(), timeout=SECONDS).status


@pytest.fixture
def frozen(node):
    node.freeze()
    yield node
    node.thaw()


def put(stub, key, database="", **fields):
    request = pb.PutRequest(database=database, key=key, value=b"value", **fields)
    return outcome(lambda: stub.Put(request, timeout=SECONDS))


def test_a_frozen_node_costs_time_and_every_outcome_is_told(impatient, calls, node, prefix):
    counted = pb.IncrementRequest(key=prefix + b"n", delta=1)
    assert calls.Increment(counted).value == 1
    node.freeze()
    try:
        begin = time.monotonic()
        ends = {}

        def end(name, call):
            ends[name] = outcome(call)

        get = pb.GetRequest(key=prefix)
        threads = [
            threading.Thread(target=end, args=words)
            for words in (
                ("get", lambda: calls.Get(get, timeout=SECONDS)),
                ("scan", lambda: list(calls.Scan(pb.ScanRequest(), timeout=SECONDS))),
                ("count", lambda: calls.Count(pb.CountRequest(), timeout=SECONDS)),
                (
                    "put",
                    lambda: calls.Put(pb.PutRequest(key=prefix, value=b"v"), timeout=SECONDS),
                ),
                ("increment", lambda: calls.Increment(counted, timeout=SECONDS)),
                (
                    "quorum",
                    lambda: calls.Put(
                        pb.PutRequest(database="by-quorum", key=prefix, value=b"v"),
                        timeout=SECONDS,
                    ),
                ),
            )
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SECONDS)
        # Within the timeout of the store, and not much later.
        assert time.monotonic() - begin < 4 * STORE_SECONDS + 4
        codes = {name: code for name, (code, _) in ends.items()}
        # Reads, and what comes before a write: nothing was done, and that is said.
        for name in ("get", "scan", "count"):
            assert codes[name] == UNAVAILABLE, ends[name]
        # A write that was sent may have been done; one that must read first was not sent.
        assert codes["put"] == UNKNOWN and codes["quorum"] == UNKNOWN, codes
        assert "outcome unknown" in ends["put"][1].details()
        assert codes["increment"] in (UNAVAILABLE, UNKNOWN)
        wait_until(lambda: health(impatient) == NOT_SERVING)
    finally:
        node.thaw()
    wait_until(lambda: health(impatient) == SERVING)
    assert calls.Get(pb.GetRequest(key=prefix)).found in (True, False)
    # What was told to have been done is there once, and what was not told at most once.
    value = calls.Increment(counted).value
    assert value == 2 or (value == 3 and codes["increment"] == UNKNOWN)
    words = "the storage engine serves again"
    impatient.wait_for_log("the storage engine does not serve", words)


def test_a_deadline_of_the_caller_holds_while_the_node_is_frozen(impatient, calls, frozen, prefix):
    begin = time.monotonic()
    request = pb.PutRequest(key=prefix, value=b"v")
    code, _ = outcome(lambda: calls.Put(request, timeout=0.5))
    assert code in (grpc.StatusCode.DEADLINE_EXCEEDED, UNKNOWN)
    assert time.monotonic() - begin < STORE_SECONDS


def test_memory_is_bounded_while_nothing_answers(impatient, node, prefix):
    """Requests of 400 MB in all: those for which there is no room are refused at once, and say
    when to try again."""
    wait_until(lambda: health(impatient) == SERVING)
    stubs = [impatient.kv() for _ in range(4)]
    value = b"v" * 1_000_000
    for stub in stubs:
        stub.Put(pb.PutRequest(database="by-quorum", key=prefix, value=value))
    before = impatient.resident_bytes()
    node.freeze()
    try:
        pending = [
            stubs[number % 4].Put.future(
                pb.PutRequest(database="by-quorum", key=prefix + b"%d" % number, value=value),
                timeout=SECONDS,
            )
            for number in range(400)
        ]
        most, errors = 0, []
        while not all(call.done() for call in pending):
            most = max(most, impatient.resident_bytes())
            time.sleep(0.02)
        errors = [call.exception() for call in pending]
        assert most - before < 200 << 20, f"{(most - before) >> 20} MiB"
    finally:
        node.thaw()
    codes = [OK if error is None else error.code() for error in errors]
    assert set(codes) <= {OK, UNKNOWN, UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED}, set(codes)
    refused = [error for error in errors if error and error.code() == UNAVAILABLE]
    assert refused, codes
    assert any(pushback_ms(error) for error in refused)
    for error in refused:
        # By the gateway's own bounds, or by its memory for all requests: before anything is done.
        refusals = ("nothing was done", "the memory for requests")
        assert any(words in error.details() for words in refusals), error
    wait_until(lambda: health(impatient) == SERVING)
    for stub in stubs:
        assert put(stub, prefix + b"after")[0] == OK


def test_a_node_that_is_gone_and_comes_back(impatient, calls, gateway, node, prefix):
    versions = {}
    for number in range(20):
        key = prefix + b"%d" % number
        versions[key] = calls.Put(pb.PutRequest(key=key, value=b"kept")).version
    node.kill()
    try:
        wait_until(lambda: health(impatient) == NOT_SERVING)
        wait_until(lambda: health(gateway) == NOT_SERVING)
        for call in (
            lambda: calls.Get(pb.GetRequest(key=prefix), timeout=SECONDS),
            lambda: calls.Put(pb.PutRequest(key=prefix + b"late", value=b"v"), timeout=SECONDS),
            lambda: calls.Increment(pb.IncrementRequest(key=prefix, delta=1), timeout=SECONDS),
        ):
            code, error = outcome(call)
            # Nobody took the request: nothing was done, whatever it was.
            assert code == UNAVAILABLE, (code, error)
            assert "nothing was done" in error.details()
    finally:
        node.start()
    for one in (impatient, gateway):
        wait_until(lambda: health(one) == SERVING, 60)
    for key, version in versions.items():
        got = calls.Get(pb.GetRequest(key=key))
        assert (got.value, got.version) == (b"kept", version)
    assert put(calls, prefix + b"again", if_version=0)[0] == OK
