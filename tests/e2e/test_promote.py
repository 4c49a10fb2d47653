"""`pelton promote`: a replica takes the place of its leader with all that was answered."""

import json
import os
import random
import subprocess
import time
import urllib.request

import grpc
import pytest
from pelton.v1 import kv_pb2, kv_pb2_grpc
from support.ports import free_ports
from support.server import Server, expect_status, open_channel, wait_until
from test_replicas import catch_up, entries, free_port, leader_of, replica_of, statistics
from test_replicas_acked import PATIENT, Ledger, found, put, serves

REFUSED = grpc.StatusCode.FAILED_PRECONDITION
ONE = ("--replicas-acked", "1", *PATIENT)


def promote(binary, server, *arguments):
    return subprocess.run(
        [binary, "promote", "--address", server.address, "--timeout", "60s", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )


def promoted(binary, server, *arguments):
    told = promote(binary, server, *arguments, "--output", "json")
    assert told.returncode == 0, told.stdout + server.log()
    report = json.loads(told.stdout)
    assert report["promoted"] and report["serves"], report
    return report


def status(binary, server):
    told = subprocess.run(
        [binary, "status", "--address", server.address, "--output", "json"],
        stdout=subprocess.PIPE,
        text=True,
        timeout=30,
    )
    return json.loads(told.stdout)


def history(server):
    return bytes(statistics(server).history_id)


def write(server, key, value=b"value"):
    with open_channel(server.address) as channel:
        return put(channel, key, value)


def replica_at(binary, folder, leader_port, port, *arguments):
    return replica_of(
        binary, folder, leader_port, *arguments, listen=(f"127.0.0.1:{port}",)
    )


def test_a_replica_takes_the_place_of_a_lost_leader_with_all_that_was_answered(binary, tmp_path):
    leader_port, port = free_ports(2)
    leader = leader_of(binary, tmp_path / "leader", leader_port, *ONE)
    replica = replica_at(binary, tmp_path / "replica", leader_port, port)
    ledger = Ledger(leader_port)
    try:
        wait_until(lambda: len(ledger.answered) > 100, 60, leader.log)
        before = history(leader)
        leader.kill()
        ledger.stop()
        report = promoted(binary, replica)
        assert (report["epoch"], report["forced"]) == (2, False)
        there = {key for key, *_ in entries(replica)}
        assert not [key for key in ledger.answered if key not in there]
        answer = write(replica, b"of-epoch-2")
        assert answer.version > report["sequence"]
        # Who watches goes on: it is the same history.
        assert history(replica) == before
        told = status(binary, replica)
        assert (told["role"], told["epoch"], told["replica"]) == ("leader", 2, None)
        # A second one changes nothing.
        again = promote(binary, replica)
        assert again.returncode != 0 and "is no replica" in again.stdout, again.stdout
        # What was promoted stays so, whatever --follow says, and without it.
        assert replica.stop() == 0
        for arguments in (("--follow", f"127.0.0.1:{leader_port}"), ()):
            with leader_of(binary, tmp_path / "replica", port, *arguments) as replica:
                assert statistics(replica).epoch == 2
                write(replica, b"of-epoch-2", str(arguments).encode())
                assert found(replica, b"of-epoch-2")
    finally:
        ledger.stop()
        leader.kill()
        replica.kill()


def test_an_old_leader_that_runs_hears_of_the_new_one_and_takes_no_more_writes(binary, tmp_path):
    leader_port, port = free_ports(2)
    leader = leader_of(binary, tmp_path / "leader", leader_port, *ONE)
    replica = replica_at(binary, tmp_path / "replica", leader_port, port)
    try:
        serves(leader)
        write(leader, b"k")
        catch_up(leader, replica)
        promoted(binary, replica)
        wait_until(lambda: statistics(leader).higher_epoch == 2, 60, replica.log)
        words = f"send this to 127.0.0.1:{port}"
        expect_status(REFUSED, lambda: write(leader, b"k2"), words)
        assert found(leader, b"k"), "reads go on"
        told = status(binary, leader)
        expected = ("superseded", 1, 2, f"127.0.0.1:{port}")
        assert expected == (
            told["role"], told["epoch"], told["higher_epoch"], told["new_leader"]
        )
        write(replica, b"k3")
        # It comes back as a replica with an empty folder, and its old one stays.
        assert leader.stop() == 0
        (tmp_path / "leader").rename(tmp_path / "set-aside")
        with replica_of(binary, tmp_path / "leader", port) as back:
            catch_up(replica, back)
            assert entries(back) == entries(replica)
            assert statistics(back).epoch == 2
    finally:
        leader.kill()
        replica.kill()


def test_without_replicas_acked_force_is_needed_and_a_new_history_begins(binary, tmp_path):
    leader_port, port = free_ports(2)
    leader = leader_of(binary, tmp_path / "leader", leader_port)
    replica = replica_at(binary, tmp_path / "replica", leader_port, port)
    try:
        write(leader, b"k")
        catch_up(leader, replica)
        before = history(leader)
        refused = promote(binary, replica)
        assert refused.returncode == 3, refused.stdout
        assert "no --replicas-acked" in refused.stdout and "--force" in refused.stdout
        assert statistics(replica).replica.connected, "nothing was done"
        write(leader, b"k2")
        leader.kill()
        told = promote(binary, replica, "--force")
        assert told.returncode == 0 and "by force" in told.stdout, told.stdout
        assert "everything up to sequence" in told.stdout
        assert found(replica, b"k")
        write(replica, b"k3")
        assert history(replica) != before
        new = history(replica)
        assert replica.stop() == 0
        with leader_of(binary, tmp_path / "replica", port) as replica:
            assert history(replica) == new, "it begins once"
            assert found(replica, b"k3") and statistics(replica).epoch == 2
    finally:
        leader.kill()
        replica.kill()


def test_with_two_replicas_both_confirm_and_the_one_with_more_is_promoted(binary, tmp_path):
    leader_port, *ports = free_ports(3)
    leader = leader_of(binary, tmp_path / "leader", leader_port, *ONE)
    one, two = (
        replica_at(binary, tmp_path / f"replica-{port}", leader_port, port) for port in ports
    )
    try:
        serves(leader)
        write(leader, b"k")
        catch_up(leader, one)
        catch_up(leader, two)
        write(leader, b"k2")
        # Both count from now on.
        wait_until(lambda: len(statistics(leader).acknowledged.followers) == 2, 60, leader.log)
        time.sleep(1)
        two.kill()
        write(leader, b"only-one-has-it")
        leader.kill()
        two = replica_at(binary, tmp_path / f"replica-{ports[1]}", leader_port, ports[1])
        alone = promote(binary, two)
        assert alone.returncode == 3 and "1 of the 2 replicas" in alone.stdout, alone.stdout
        lesser = promote(binary, two, "--confirm", one.address)
        assert lesser.returncode == 3 and "promote that one" in lesser.stdout, lesser.stdout
        report = promoted(binary, one, "--confirm", two.address)
        assert not report["forced"] and found(one, b"only-one-has-it")
        # The other one follows the new leader, without a new copy.
        assert two.stop() == 0
        with replica_at(binary, tmp_path / f"replica-{ports[1]}", ports[0], ports[1]) as two:
            write(one, b"k4")
            catch_up(one, two)
            assert entries(one) == entries(two)
            assert "takes a new copy" not in two.log()
    finally:
        for server in (leader, one, two):
            server.kill()


def test_a_replica_with_more_than_was_promoted_takes_a_new_copy(binary, tmp_path):
    """What nobody acknowledged is no part of the new epoch, though its sequences come again."""
    leader_port, *ports = free_ports(3)
    leader = leader_of(binary, tmp_path / "leader", leader_port)
    one, two = (
        replica_at(binary, tmp_path / f"replica-{port}", leader_port, port) for port in ports
    )
    try:
        write(leader, b"k")
        catch_up(leader, one)
        catch_up(leader, two)
        one.signal(19)
        for number in range(50):
            write(leader, b"lost-%d" % number)
        catch_up(leader, two)
        leader.kill()
        one.signal(18)
        promoted(binary, one, "--force")
        for number in range(100):
            write(one, b"new-%d" % number)
        assert two.stop() == 0
        with replica_at(binary, tmp_path / f"replica-{ports[1]}", ports[0], ports[1]) as two:
            # It starts anew with the copy.
            wait_until(lambda: two.log().count("listening on") == 2, 60, two.log)
            two.addresses.pop(0)
            catch_up(one, two)
            assert history(two) == history(one)
            assert entries(one) == entries(two)
    finally:
        for server in (leader, one, two):
            server.kill()


def test_metrics_say_the_epoch_and_who_was_superseded(binary, tmp_path):
    leader_port, port, *pages = free_ports(4)

    def metrics(page):
        with urllib.request.urlopen(f"http://127.0.0.1:{page}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        return {line.split()[0]: float(line.split()[-1]) for line in lines if line[0] != "#"}

    listen = ("--metrics-listen", str(pages[0]))
    leader = leader_of(binary, tmp_path / "leader", leader_port, *ONE, *listen)
    listen = ("--metrics-listen", str(pages[1]))
    replica = replica_at(binary, tmp_path / "replica", leader_port, port, *listen)
    try:
        serves(leader)
        write(leader, b"k")
        assert (metrics(pages[0])["pelton_epoch"], metrics(pages[0])["pelton_superseded"]) == (1, 0)
        promoted(binary, replica)
        wait_until(lambda: metrics(pages[0])["pelton_superseded"] == 1, 60, leader.log)
        assert (metrics(pages[1])["pelton_epoch"], metrics(pages[1])["pelton_superseded"]) == (2, 0)
    finally:
        leader.kill()
        replica.kill()


ROUNDS = int(os.environ.get("PELTON_PROMOTIONS", "4"))


@pytest.mark.parametrize("driver", ("event-loop", "blocking"))
def test_no_answered_write_is_lost_whoever_is_killed_before_and_within_a_promotion(
    binary, tmp_path, driver
):
    """The leader is killed, frozen or left running at some moment, and its replica is promoted,
    and killed meanwhile. The old leader comes back with an empty folder. PELTON_SEED repeats it."""
    seed = int(os.environ.get("PELTON_SEED", random.randrange(1 << 32)))
    print(f"PELTON_SEED={seed}")
    chance = random.Random(seed)
    ports = free_ports(2)
    flags = (*ONE, "--driver", driver)
    leader = leader_of(binary, tmp_path / "0", ports[0], *flags)
    replica = replica_at(binary, tmp_path / "1", ports[0], ports[1], *flags)
    lead, folders = 0, 2
    try:
        for number in range(ROUNDS):
            ledger = Ledger(ports[lead])
            wait_until(lambda: len(ledger.answered) > 30, 60, lambda: leader.log() + replica.log())
            time.sleep(chance.uniform(0, 0.3))
            end = chance.choice(("killed", "frozen", "running"))
            if end == "killed":
                leader.kill()
            elif end == "frozen":
                leader.signal(19)
            replica_folder = tmp_path / str(folders - 1)
            replica_port = ports[1 - lead]
            is_killed = chance.random() < 0.5
            if is_killed:
                command = subprocess.Popen(
                    [binary, "promote", "--address", replica.address, "--timeout", "60s"],
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
                time.sleep(chance.uniform(0, 0.15))
                replica.kill()
                command.kill()
                command.wait()
                replica = replica_at(binary, replica_folder, ports[lead], replica_port, *flags)
            if statistics(replica).HasField("replica"):
                told = promote(binary, replica)
                assert told.returncode == 0, told.stdout + replica.log()
            ledger.stop()
            if end == "frozen":
                leader.signal(18)
            # It has answered nothing since, as its replica acknowledges nothing more.
            leader.kill()
            old, leader, lead = lead, replica, 1 - lead
            replica = replica_at(
                binary, tmp_path / str(folders), ports[lead], ports[old], *flags
            )
            folders += 1
            serves(leader)
            there = {key for key, *_ in entries(leader)}
            missing = [key for key in ledger.answered if key not in there]
            assert not missing, (number, end, is_killed, missing[:5])
            assert statistics(leader).epoch == number + 2
            # Callers of the next round put the same keys anew.
            with open_channel(leader.address) as channel:
                store = kv_pb2_grpc.KeyValueStub(channel)
                deletes = [kv_pb2.Operation.Delete(key=key) for key in there]
                for begin in range(0, len(deletes), 1000):
                    operations = [
                        kv_pb2.Operation(delete=one) for one in deletes[begin : begin + 1000]
                    ]
                    store.Batch(kv_pb2.BatchRequest(operations=operations), timeout=60)
        catch_up(leader, replica)
        assert entries(leader) == entries(replica)
    finally:
        leader.kill()
        replica.kill()
