"""Faults of nodes and gateways while clients write: what was acknowledged is there, histories of
single keys are linearizable where that is promised, and what is unknown took effect once at most.

PELTON_ROUNDS=N: each fault N times (1), in a random order. PELTON_SEED repeats the order and the
requests of each client; not how they meet.
"""

import dataclasses
import os
import random
import threading
import time

import grpc
from grpc_health.v1 import health_pb2
from histories import check
from load import Load, read_all, read_quorum
from machines import GATEWAYS, open_health
from pelton.v1 import kv_pb2

ROUNDS = int(os.environ.get("PELTON_ROUNDS", "1"))
SEED = int(os.environ.get("PELTON_SEED", "0")) or random.SystemRandom().randrange(1 << 32)

# After the last fault a write of unknown outcome may still come: its request waits at a node that
# was frozen or starts, for some seconds at most (write_request_timeout and
# cas_contention_timeout are 2 s and 1.8 s).
SETTLE_SECONDS = 15

# What requests may hold while nothing answers: a gateway's share of memory for requests under way
# is 64 MiB with its `--memory-limit`. Each of them is there as its message, as its batch and as the
# frame of the driver.
ROOM_BYTES = 64 << 20
COPIES = 4
LARGE_BYTES = 256 << 10
FLOOD_CALLS = 600
FROZEN_SECONDS = 20


def test_acknowledged_writes_survive_faults_of_nodes_and_gateways(machines):
    print(f"PELTON_SEED={SEED}")
    order = random.Random(SEED)
    with Load(SEED, machines.listens) as notes:
        time.sleep(5)
        for _ in range(ROUNDS):
            faults = list(machines.faults().items())
            order.shuffle(faults)
            for name, befall in faults:
                begun = time.monotonic()
                befall(order)
                healed = time.monotonic()
                machines.wait_until_all_serve()
                over = time.monotonic()
                print(f"{name}: {healed - begun:.0f} s, served {over - healed:.1f} s later")
                print(f"  {notes.count()}", flush=True)
                time.sleep(3)
    machines.assert_alive()
    assert not notes.unexpected, notes.unexpected
    time.sleep(SETTLE_SECONDS)
    look_at_all(machines, notes)
    print(notes.count())


def look_at_all(machines, notes):
    """Reads everything through two gateways, and checks it."""
    settled = time.monotonic()
    stubs = [gateway.kv() for gateway in machines.gateways[:2]]
    for stub in stubs:
        read_all(stub, notes)
    for key, history in notes.histories.items():
        bounded = [
            dataclasses.replace(operation, latest=settled) if operation.is_unknown else operation
            for operation in history
        ]
        try:
            check(bounded)
        except AssertionError as error:
            raise AssertionError(f"{key}: {error}") from None
    lower = sum(map(lower_versions, notes.histories.values()))
    print(f"versions that went down: {lower}")
    for key, writes in notes.quorum.items():
        finals = [read_quorum(stub, key) for stub in stubs]
        assert finals[0] == finals[1], (key, finals)
        check_quorum(key, writes, finals[0])


def lower_versions(history):
    """How many operations saw or wrote a lower version of the key than one that had ended before
    they began, with no Delete about."""
    seen = [(one, version) for one in history if (version := present_version(one))]
    deletes = [one for one in history if one.request[0] == "delete"]
    ended = sorted(seen, key=lambda pair: pair[0].end)
    at, largest, count = 0, (None, 0), 0
    for operation, version in sorted(seen, key=lambda pair: pair[0].begin):
        while at < len(ended) and ended[at][0].end < operation.begin:
            largest = max(largest, ended[at], key=lambda pair: pair[1])
            at += 1
        before, most = largest
        if version < most:
            count += not any(
                (delete.is_unknown or delete.end > before.begin) and delete.begin < operation.end
                for delete in deletes
            )
    return count


def present_version(operation):
    """The version of the key after an operation, if that is known."""
    kind, outcome = operation.request[0], operation.outcome
    if operation.is_unknown or kind == "delete" or outcome is None:
        return None
    if kind in ("get", "increment"):
        return outcome.version
    return outcome if kind == "put" else outcome[1]


def check_quorum(key, writes, final):
    """The write with the largest version stays; one that began after another had ended has the
    larger one, since all gateways have one clock here."""
    known = [write for write in writes if write.version is not None]
    value, version = final
    newest = max(known, key=lambda write: write.version, default=None)
    if newest is not None and value is not None:
        assert version >= newest.version, f"{key}: lost {newest}, there is {final}"
    perhaps = {write.value for write in writes if write.version is None}
    same = [write for write in known if write.version == version]
    if value is None:
        is_deleted = newest is None or newest.value is None or None in perhaps
        assert is_deleted, f"{key}: lost {newest}"
    else:
        assert value in ({write.value for write in same} or perhaps), (key, final, same)
    ended = sorted(known, key=lambda write: write.end)
    at = largest = 0
    for write in sorted(known, key=lambda write: write.begin):
        while at < len(ended) and ended[at].end < write.begin:
            largest = max(largest, ended[at].version)
            at += 1
        assert write.version > largest, f"{key}: {write} has a smaller version than one before it"


def test_memory_is_bounded_and_health_says_so_while_no_node_answers(machines):
    status = health_pb2.HealthCheckResponse
    machines.wait_until_all_serve()
    before = [gateway.resident_bytes() for gateway in machines.gateways]
    with machines.all_nodes_frozen():
        floods = [Flood(gateway) for gateway in machines.gateways]
        for flood in floods:
            flood.start()
        machines.wait_for_health(status.NOT_SERVING, FROZEN_SECONDS)
        until = time.monotonic() + FROZEN_SECONDS
        most = before
        while time.monotonic() < until:
            now = [gateway.resident_bytes() for gateway in machines.gateways]
            most = [max(pair) for pair in zip(most, now, strict=True)]
            time.sleep(0.1)
        for flood in floods:
            flood.is_over.set()
            flood.join(60)
            assert not flood.is_alive(), "a call does not end"
            print(flood.statuses)
    grown = [(high - low) >> 20 for high, low in zip(most, before, strict=True)]
    print(f"MiB before: {[low >> 20 for low in before]}, grown by {grown}")
    assert all(more <= COPIES * ROOM_BYTES >> 20 for more in grown), grown
    assert all("UNAVAILABLE" in flood.statuses for flood in floods)
    machines.wait_until_all_serve()
    machines.assert_alive()


class Flood(threading.Thread):
    """Keeps large Puts in flight at one gateway, far more than it has room for."""

    def __init__(self, gateway):
        super().__init__(daemon=True)
        self.stub, self.is_over = gateway.kv(), threading.Event()
        self.statuses, self.lock = {}, threading.Lock()
        self.slots = threading.Semaphore(FLOOD_CALLS)

    def run(self):
        value = bytes(LARGE_BYTES)
        number = 0
        while not self.is_over.is_set():
            if not self.slots.acquire(timeout=0.1):
                continue
            number += 1
            request = kv_pb2.PutRequest(key=f"large-{number % 64}".encode(), value=value)
            self.stub.Put.future(request, timeout=30).add_done_callback(self.ended)
        for _ in range(FLOOD_CALLS):
            self.slots.acquire(timeout=60)

    def ended(self, call):
        code = call.code().name
        with self.lock:
            self.statuses[code] = self.statuses.get(code, 0) + 1
        if code == grpc.StatusCode.UNAVAILABLE.name:
            # As a client that heeds the pushback does, more or less.
            time.sleep(0.001)
        self.slots.release()


def test_a_client_that_watches_health_hears_of_both_changes(machines):
    machines.wait_until_all_serve()
    seen = []
    with open_health(machines.listens[GATEWAYS - 1]) as stub:
        watching = stub.Watch(health_pb2.HealthCheckRequest(), timeout=180)
        seen.append(next(watching).status)
        with machines.all_nodes_frozen():
            seen.append(next(watching).status)
        seen.append(next(watching).status)
        watching.cancel()
    status = health_pb2.HealthCheckResponse
    assert seen == [status.SERVING, status.NOT_SERVING, status.SERVING]
    machines.wait_until_all_serve()
