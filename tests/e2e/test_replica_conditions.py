"""Replicas under conditions of their machines: full disks, copied folders, promotions by force
under load."""

import itertools
import os
import random
import shutil
import time

import grpc
import pytest
from pelton.v1 import kv_pb2, kv_pb2_grpc
from support.ports import free_ports
from support.server import open_channel, wait_until
from support.small_disk import small_disk_at
from test_promote import delete_all, history, promote, replica_at, write
from test_replicas import Load, catch_up, entries, leader_of, replica_of, statistics
from test_replicas_acked import PATIENT, TIMEOUT, Ledger, found, serves

SMALL_SEGMENTS = ("--log-segment", "4MiB")


@pytest.fixture
def small_disk(tmp_path):
    """A file system with room for a few files of the log."""
    place = tmp_path / "disk"
    place.mkdir()
    with small_disk_at(place, "48m"):
        yield place


def fill(disk):
    """Takes all room that is left; returns the file that has it."""
    ballast = disk / "ballast"
    with open(ballast, "wb", buffering=0) as file:
        for size in (1 << 20, 4096):
            try:
                while file.write(bytes(size)) == size:
                    pass
            except OSError:
                continue
    return ballast


def put_large(server, number):
    request = kv_pb2.PutRequest(key=b"large/%d" % number, value=os.urandom(1 << 20))
    with open_channel(server.address) as channel:
        kv_pb2_grpc.KeyValueStub(channel).Put(request, timeout=30)


def test_a_replica_without_room_is_blocked_and_goes_on_when_there_is_some(
    binary, tmp_path, small_disk
):
    port, *_ = free_ports(2)
    folder = small_disk / "replica"
    with leader_of(binary, tmp_path / "leader", port, *SMALL_SEGMENTS) as leader:
        with replica_of(binary, folder, port, *SMALL_SEGMENTS) as replica:
            numbers = itertools.count()
            for again in range(2):
                write(leader, b"before/%d" % again)
                catch_up(leader, replica)
                ballast = fill(small_disk)
                # More than what the segments have room for that are there, or that snapshots free.
                wait_until(lambda: is_blocked_by(next(numbers), leader, replica), 60, replica.log)
                assert found(replica, b"before/%d" % again), "reads go on"
                write(leader, b"meanwhile")
                ballast.unlink()
                catch_up(leader, replica)
                assert not statistics(replica).replica.blocked
                assert entries(leader) == entries(replica)
            assert replica.stop() == 0
        assert leader.stop() == 0


def is_blocked_by(number, leader, replica):
    put_large(leader, number % 12)
    return statistics(replica).replica.blocked


def test_a_leader_without_room_refuses_and_its_replica_has_what_it_answered(
    binary, tmp_path, small_disk
):
    port, *_ = free_ports(2)
    flags = ("--replicas-acked", "1", *PATIENT, *SMALL_SEGMENTS)
    leader = leader_of(binary, small_disk / "leader", port, *flags)
    replica = replica_of(binary, tmp_path / "replica", port, *SMALL_SEGMENTS)
    try:
        serves(leader)
        for again in range(2):
            ballast = fill(small_disk)
            with pytest.raises(grpc.RpcError) as refused:
                for number in range(24):
                    put_large(leader, again * 100 + number)
            assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED, refused.value
            ballast.unlink()
            key = b"room/%d" % again
            wait_until(lambda: is_written(leader, key), 60, leader.log)
        catch_up(leader, replica)
        assert entries(leader) == entries(replica)
        assert leader.stop() == 0 and replica.stop() == 0
    finally:
        leader.kill()
        replica.kill()


def is_written(server, key):
    try:
        write(server, key)
    except grpc.RpcError:
        return False
    return True


def test_a_replica_and_its_copied_folder_count_once_and_either_goes_on_alone(binary, tmp_path):
    """Somebody copies the folder of a replica to have another one: both have its id."""
    port, *_ = free_ports(2)
    leader = leader_of(binary, tmp_path / "leader", port, "--replicas-acked", "2", *TIMEOUT)
    first = replica_of(binary, tmp_path / "first", port)
    other = replica_of(binary, tmp_path / "other", port)
    copied = None
    try:
        serves(leader)
        write(leader, b"with two")
        catch_up(leader, other)
        assert other.stop() == 0
        assert first.stop() == 0
        shutil.copytree(tmp_path / "first", tmp_path / "copied")
        first = replica_of(binary, tmp_path / "first", port)
        copied = replica_of(binary, tmp_path / "copied", port)
        for _ in range(3):
            with pytest.raises(grpc.RpcError):
                write(leader, b"with one, twice")
        # One of both goes, and comes back: the other one counts, with one more that is another.
        other = replica_of(binary, tmp_path / "other", port)
        for gone in (first, copied):
            gone.kill()
            wait_until(lambda: is_written(leader, b"with two again"), 60, leader.log)
            if gone is first:
                first = replica_of(binary, tmp_path / "first", port)
                catch_up(leader, first)
        catch_up(leader, first)
        assert entries(leader) == entries(first)
        assert leader.stop() == 0 and first.stop() == 0
    finally:
        for server in (leader, first, other, copied):
            if server:
                server.kill()


ROUNDS = int(os.environ.get("PELTON_PROMOTIONS", "3"))


@pytest.mark.parametrize("driver", ("event-loop", "blocking"))
def test_a_promotion_by_force_under_load_has_a_part_of_the_history_and_says_how_much(
    binary, tmp_path, driver
):
    """Nobody acknowledges: what is missing is behind the sequence that it names, and nothing else.
    The old leader, which may run on, comes back with an empty folder. PELTON_SEED repeats it."""
    seed = int(os.environ.get("PELTON_SEED", random.randrange(1 << 32)))
    print(f"PELTON_SEED={seed}")
    chance = random.Random(seed)
    ports = free_ports(2)
    driver = ("--driver", driver)
    leader = leader_of(binary, tmp_path / "0", ports[0], *driver)
    replica = replica_at(binary, tmp_path / "1", ports[0], ports[1], *driver)
    lead = 0
    try:
        for number in range(ROUNDS):
            ledger, load = Ledger(ports[lead], callers=2), Load(ports[lead], chance.random())
            wait_until(lambda: len(ledger.answered) > 30, 60, leader.log)
            time.sleep(chance.uniform(0, 0.3))
            end = chance.choice(("killed", "frozen", "running"))
            if end == "killed":
                leader.kill()
            elif end == "frozen":
                leader.signal(19)
            before = history(replica)
            told = promote(binary, replica, "--force")
            assert told.returncode == 0, told.stdout + replica.log()
            if end == "frozen":
                leader.signal(18)
            ledger.stop(), load.stop()
            assert history(replica) != before
            there = {key: version for key, _, version, _ in entries(replica)}
            promoted_at = part_of(entries(leader) if end != "killed" else None, replica)
            missing = [key for key in ledger.answered if key not in there]
            assert_a_beginning(ledger.answered, missing)
            assert promoted_at >= max(there.values())
            leader.kill()
            # It is of another history: its folder is put aside by hand.
            old = tmp_path / str(lead)
            old.rename(tmp_path / f"{lead}-of-round-{number}")
            leader, lead = replica, 1 - lead
            replica = replica_at(binary, old, ports[lead], ports[1 - lead], *driver)
            catch_up(leader, replica)
            assert entries(leader) == entries(replica), (number, end)
            delete_all(leader, there)
        assert leader.stop() == 0 and replica.stop() == 0
    finally:
        leader.kill()
        replica.kill()


def part_of(of_leader, replica):
    """Checks that a promoted replica has each entry of the old leader that is old enough, as it is
    there; returns the sequence up to which it has them."""
    end = statistics(replica).log.durable_sequence
    if of_leader is not None:
        there = {key: (value, version) for key, value, version, _ in entries(replica)}
        highest = max(version for _, version in there.values())
        for key, value, version, _ in of_leader:
            if version <= highest:
                assert there.get(key) == (value, version), (key, version, highest)
    return end


def assert_a_beginning(answered, missing):
    """Of each caller, who waits for each answer, the last ones are missing or none."""
    for caller in (b"0/", b"1/"):
        of_caller = [key for key in answered if key.startswith(caller)]
        lost = [key for key in missing if key.startswith(caller)]
        assert lost == of_caller[len(of_caller) - len(lost) :]
