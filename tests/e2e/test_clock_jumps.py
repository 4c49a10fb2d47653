"""Leaders and replicas on machines whose wall clocks are set: by an hour and by ten years, forth
and back, once and again and again."""

import os
import random
import subprocess
import time

import pytest
from pelton.v1 import kv_pb2, kv_pb2_grpc
from support.ports import free_ports
from support.server import Server, open_channel, wait_until
from support.settable_clock import SettableClock, build
from test_promote import promoted
from test_replicas import catch_up, entries, statistics
from test_replicas_acked import PATIENT, Ledger, found, serves

HOUR = 3_600
YEARS = 10 * 365 * 24 * HOUR
# What a lag is at most that was not made up by a clock, on however busy a machine.
LAG_MS_MAX = 10 * 60 * 1_000


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return build(tmp_path_factory.mktemp("clock"))


@pytest.fixture
def clocks(library, tmp_path):
    """Those of the leader's machine, and of the replica's."""
    return [SettableClock(library, tmp_path / f"clock-of-{name}") for name in ("leader", "replica")]


def server_with(clock, binary, *arguments, port=0):
    return Server(binary, *arguments, listen=(f"127.0.0.1:{port}",), variables=clock.variables)


def leader_with(clock, binary, tmp_path, port, *arguments):
    return server_with(clock, binary, "--data", str(tmp_path / "leader"), *arguments, port=port)


def replica_with(clock, binary, tmp_path, port, *arguments, own_port=0):
    folder = ("--data", str(tmp_path / "replica"), "--follow", f"127.0.0.1:{port}")
    return server_with(clock, binary, *folder, *arguments, port=own_port)


def put_for(server, key, seconds):
    """Puts an entry that lives for so long; returns when it expires, by the clock of the server."""
    with open_channel(server.address) as channel:
        store = kv_pb2_grpc.KeyValueStub(channel)
        request = kv_pb2.PutRequest(key=key, value=b"v", time_to_live_ms=round(seconds * 1_000))
        store.Put(request, timeout=60)
        return store.Get(kv_pb2.GetRequest(key=key), timeout=60).expires_at_ms


def is_ready(binary, server):
    asked = [binary, "status", "--address", server.address]
    return subprocess.run(asked, stdout=subprocess.DEVNULL, timeout=30).returncode == 0


def test_a_clock_is_set_and_no_other(binary, tmp_path, clocks):
    [clock, _] = clocks
    with server_with(clock, binary, "--data", str(tmp_path / "data")) as server:
        for ahead in (0, HOUR, YEARS):
            clock.set_ahead(ahead)

            def is_set():
                expires_s = put_for(server, b"k", HOUR) / 1e3
                return abs(expires_s - time.time() - HOUR - ahead) < 60  # noqa: B023

            wait_until(is_set)
        # Back again: what lives for seconds does so by the time that goes on.
        for ahead in (0, -YEARS):
            clock.set_ahead(ahead)
            put_for(server, b"short", 2)
            wait_until(lambda: not found(server, b"short"), 60)
            assert found(server, b"k")
            assert put_for(server, b"k", HOUR) / 1e3 > time.time() + YEARS
        server.wait_for_log("behind the time of the data")


def test_writes_are_acknowledged_and_replicated_whichever_clock_is_set(binary, tmp_path, clocks):
    seed = int(os.environ.get("PELTON_SEED", random.randrange(1 << 32)))
    print(f"PELTON_SEED={seed}")
    chance = random.Random(seed)
    [port] = free_ports(1)
    flags = ("--replicas-acked", "1", *PATIENT)
    leader = leader_with(clocks[0], binary, tmp_path, port, *flags)
    replica = replica_with(clocks[1], binary, tmp_path, port, "--max-lag", "1d")
    ledger = Ledger(port)
    try:
        for number in range(16):
            clock = clocks[number % 2] if number < 10 else chance.choice(clocks)
            clock.set_ahead(chance.choice((0, HOUR, -HOUR, YEARS, -YEARS)))
            before = len(ledger.answered)
            wait_until(lambda: len(ledger.answered) > before + 20, 60, leader.log)  # noqa: B023
            assert statistics(replica).replica.lag_ms < LAG_MS_MAX
            if number == 11:
                # Either begins anew with the clock that it has.
                leader.kill()
                leader = leader_with(clocks[0], binary, tmp_path, port, *flags)
            if number == 13:
                replica.kill()
                replica = replica_with(clocks[1], binary, tmp_path, port, "--max-lag", "1d")
        ledger.stop()
        catch_up(leader, replica)
        assert entries(leader) == entries(replica)
        there = {key for key, *_ in entries(leader)}
        assert there >= set(ledger.answered)
        for server in (leader, replica):
            log = server.log()
            assert "new copy" not in log and "NOT_SERVING" not in log, log
    finally:
        ledger.stop()
        leader.kill()
        replica.kill()


def test_a_replica_is_behind_for_as_long_as_it_is_whatever_its_clock_shows(
    binary, tmp_path, clocks
):
    [port] = free_ports(1)
    leader = leader_with(clocks[0], binary, tmp_path, port)
    replica = replica_with(clocks[1], binary, tmp_path, port, "--max-lag", "2s")

    def lag_ms():
        return statistics(replica).replica.lag_ms

    try:
        for ahead in (-HOUR, YEARS):
            catch_up(leader, replica)
            wait_until(lambda: is_ready(binary, replica), 60, replica.log)
            leader.kill()
            clocks[1].set_ahead(ahead)
            wait_until(lambda: not is_ready(binary, replica), 60, lambda: lag_ms())
            assert 2_000 < lag_ms() < LAG_MS_MAX
            leader = leader_with(clocks[0], binary, tmp_path, port)
    finally:
        leader.kill()
        replica.kill()


@pytest.mark.parametrize("ahead", (HOUR, YEARS))
def test_what_expires_does_so_at_a_replica_that_has_lost_a_leader_whose_clock_was_ahead(
    binary, tmp_path, clocks, ahead
):
    [port, own_port] = free_ports(2)
    flags = ("--replicas-acked", "1", *PATIENT)
    leader = leader_with(clocks[0], binary, tmp_path, port, *flags)
    replica = replica_with(clocks[1], binary, tmp_path, port, own_port=own_port)
    try:
        serves(leader)
        # A start would take over the time of the copy: it comes with a group.
        clocks[0].set_ahead(ahead)
        wait_until(lambda: put_for(leader, b"lasting", HOUR) / 1e3 > time.time() + ahead / 2)
        lasting_ms = put_for(leader, b"lasting", HOUR)
        put_for(leader, b"short", 4)
        leader.kill()
        # The leader is in the dark, and says no more what has expired.
        wait_until(lambda: not found(replica, b"short"), 60)
        assert found(replica, b"lasting")
        replica.wait_for_log("behind the time of the data")
        # Which epoch is the later one has nothing to do with clocks.
        promoted(binary, replica)
        follower = server_with(
            clocks[0], binary, "--data", str(tmp_path / "leader"), "--follow",
            f"127.0.0.1:{own_port}", port=port,
        )  # fmt: skip
        with follower:
            catch_up(replica, follower)
            assert [key for key, *_ in entries(replica)] == [b"lasting"]
            assert entries(follower) == entries(replica)
            assert put_for(replica, b"later", HOUR) >= lasting_ms
    finally:
        leader.kill()
        replica.kill()
