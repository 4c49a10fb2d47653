"""`pelton promote`: a replica takes the place of its leader with all that was answered."""

import json
import os
import random
import shutil
import socket
import subprocess
import threading
import time
import urllib.request

import grpc
import pytest
from pelton.v1 import admin_pb2, admin_pb2_grpc, kv_pb2, kv_pb2_grpc
from support.ports import free_ports
from support.server import Server, expect_status, open_channel, wait_until
from test_replicas import catch_up, entries, leader_of, replica_of, statistics
from test_replicas_acked import PATIENT, Ledger, found, put, serves

REFUSED = grpc.StatusCode.FAILED_PRECONDITION
ONE = ("--replicas-acked", "1", *PATIENT)


def promote(binary, server, *arguments, timeout="60s"):
    return subprocess.run(
        [binary, "promote", "--address", server.address, "--timeout", timeout, *arguments],
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
    return replica_of(binary, folder, leader_port, *arguments, listen=(f"127.0.0.1:{port}",))


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
        assert expected == (told["role"], told["epoch"], told["higher_epoch"], told["new_leader"])
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


def delete_all(server, keys):
    with open_channel(server.address) as channel:
        store = kv_pb2_grpc.KeyValueStub(channel)
        deletes = [kv_pb2.Operation(delete=kv_pb2.Operation.Delete(key=key)) for key in keys]
        for begin in range(0, len(deletes), 1000):
            request = kv_pb2.BatchRequest(operations=deletes[begin : begin + 1000])
            store.Batch(request, timeout=60)


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
            replica = replica_at(binary, tmp_path / str(folders), ports[lead], ports[old], *flags)
            folders += 1
            serves(leader)
            there = {key for key, *_ in entries(leader)}
            missing = [key for key in ledger.answered if key not in there]
            assert not missing, (number, end, is_killed, missing[:5])
            assert statistics(leader).epoch == number + 2
            # Callers of the next round put the same keys anew.
            delete_all(leader, there)
        catch_up(leader, replica)
        assert entries(leader) == entries(replica)
    finally:
        leader.kill()
        replica.kill()


def test_an_old_leader_comes_back_with_its_folder_of_which_what_nobody_had_is_set_aside(
    binary, tmp_path
):
    ports = free_ports(3)
    leader = leader_of(
        binary,
        tmp_path / "0",
        ports[0],
        "--replicas-acked",
        "1",
        "--replicas-acked-timeout",
        "300ms",
    )
    replica = replica_at(binary, tmp_path / "1", ports[0], ports[1], *ONE)
    back = None
    try:
        serves(leader)
        write(leader, b"k")
        catch_up(leader, replica)
        # A further replica has nothing to do with who leads.
        refused = started_in_vain(binary, tmp_path / "0-copy", tmp_path / "0", ports[1])
        assert "no replica was promoted at" in refused, refused
        # The leader's log has something that no replica has.
        replica.signal(19)
        expect_status(grpc.StatusCode.UNKNOWN, lambda: write(leader, b"lost"))
        leader.kill()
        replica.signal(18)
        promoted(binary, replica)
        back = replica_at(binary, tmp_path / "0", ports[1], ports[0], *ONE)
        wait_until(lambda: back.log().count("listening on") == 2, 60, back.log)
        back.addresses.pop(0)
        serves(replica)
        for number in range(100):
            write(replica, b"of-epoch-2/%d" % number)
        catch_up(replica, back)
        assert entries(back) == entries(replica) and found(back, b"k")
        assert not found(back, b"lost")
        aside = list((tmp_path / "0" / "set-aside").glob("*-replica"))
        assert len(aside) == 1 and list(aside[0].glob("*.log")), aside
        # It counts: it is promoted in its turn, and the other one comes back.
        wait_until(lambda: len(statistics(replica).acknowledged.followers) == 1, 60, replica.log)
        write(replica, b"counts")
        write(replica, b"counts-2")
        replica.kill()
        promoted(binary, back)
        # It is set to follow the one that leads now.
        replica = replica_at(binary, tmp_path / "1", ports[0], ports[1], *ONE)
        wait_until(lambda: replica.log().count("listening on") == 2, 60, replica.log)
        assert "starts anew as its replica" in replica.log()
        serves(back)
        write(back, b"of-epoch-3")
        catch_up(back, replica)
        assert entries(back) == entries(replica)
        assert statistics(replica).epoch == 3
        # Whoever was promoted asks what it was set to follow, and takes nothing of it.
        assert statistics(replica).followers == 0
    finally:
        for server in (leader, replica, back):
            if server:
                server.kill()


def started_in_vain(binary, copy, folder, port):
    """What a start with a copy of a data folder and --follow says that is refused."""
    shutil.copytree(folder, copy)
    before = sorted(path.name for path in copy.iterdir())
    told = subprocess.run(
        [
            binary,
            "serve",
            "--data",
            str(copy),
            "--follow",
            f"127.0.0.1:{port}",
            "--listen",
            "127.0.0.1:0",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
    )
    assert told.returncode == 3, told.stdout
    assert sorted(path.name for path in copy.iterdir()) == before
    return told.stdout


def test_a_server_that_nobody_was_promoted_in_place_of_follows_nobody(binary, tmp_path):
    with Server(binary, "--data", str(tmp_path / "one")) as one:
        write(one, b"one")
        with Server(binary, "--data", str(tmp_path / "other")) as other:
            write(other, b"other")
            assert one.stop() == 0
            port = other.address.rsplit(":", 1)[1]
            refused = started_in_vain(binary, tmp_path / "copy", tmp_path / "one", port)
            assert "has another history" in refused, refused
        refused = started_in_vain(binary, tmp_path / "copy-2", tmp_path / "one", port)
        assert "cannot be asked" in refused, refused
    with Server(binary, "--data", str(tmp_path / "copy")) as one:
        assert found(one, b"one")


def test_a_promoted_server_takes_nothing_of_a_replica_where_the_old_leader_was(binary, tmp_path):
    ports = free_ports(2)
    leader = leader_of(binary, tmp_path / "0", ports[0], *ONE)
    replica = replica_at(binary, tmp_path / "1", ports[0], ports[1], *ONE)
    try:
        serves(leader)
        write(leader, b"k")
        catch_up(leader, replica)
        assert leader.stop() == 0
        promoted(binary, replica)
        # --follow stays among its settings, and there is its own replica now.
        leader = replica_at(binary, tmp_path / "empty", ports[1], ports[0], *ONE)
        serves(replica)
        wait_until(lambda: "has heard of epoch 2" in replica.log(), 60, replica.log)
        write(replica, b"k2")
        catch_up(replica, leader)
        assert statistics(leader).followers == 0
        assert statistics(replica).followers == 1
    finally:
        leader.kill()
        replica.kill()


def test_a_lost_replica_is_forgotten_and_then_not_needed(binary, tmp_path):
    leader_port, *ports = free_ports(4)
    leader = leader_of(binary, tmp_path / "leader", leader_port, *ONE)
    replicas = [replica_at(binary, tmp_path / str(port), leader_port, port, *ONE) for port in ports]

    def forget(*arguments):
        return subprocess.run(
            [binary, "forget-replicas", "--address", leader.address, "--timeout", "60s"]
            + list(arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
        )

    def acknowledged():
        return status(binary, leader)["acknowledged"]

    try:
        serves(leader)
        for number in range(20):
            write(leader, b"%d" % number)
        wait_until(lambda: len(acknowledged()["followers"]) == 3, 60, leader.log)
        time.sleep(1)
        write(leader, b"all-count")
        none = forget("--output", "json")
        assert json.loads(none.stdout) == {"forgotten": [], "left": 3}, none.stdout
        ids = [one["replica_id"] for one in acknowledged()["followers"]]
        here = forget(ids[0])
        assert here.returncode == 3 and "is connected" in here.stdout, here.stdout
        unknown = forget("00" * 16)
        assert unknown.returncode == 3 and "none of those that count" in unknown.stdout
        wrong = forget("00")
        assert wrong.returncode == 2 and "32 hexadecimal digits" in wrong.stdout, wrong.stdout
        lost = replicas.pop()
        lost.kill()
        shutil.rmtree(tmp_path / str(ports[2]))
        wait_until(lambda: len(acknowledged()["absent"]) == 1, 60, leader.log)
        gone = acknowledged()["absent"]
        told = forget("--output", "json")
        assert json.loads(told.stdout) == {"forgotten": gone, "left": 2}, told.stdout
        write(leader, b"after")
        assert acknowledged()["absent"] == []
        # A further start knows of it, and those that are left can do without it.
        leader.kill()
        promoted(binary, replicas[0], "--confirm", replicas[1].address)
        assert found(replicas[1], b"after")
        refused = subprocess.run(
            [binary, "forget-replicas", "--address", replicas[1].address],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
        )
        assert refused.returncode == 3 and "is a replica" in refused.stdout, refused.stdout
    finally:
        for server in (leader, *replicas):
            server.kill()


def test_what_was_confirmed_in_a_history_does_not_bind_in_another_one(binary, tmp_path):
    """A replica that has confirmed a high epoch follows who was promoted by force in a lower."""
    leader_port, *ports = free_ports(3)
    leader = leader_of(binary, tmp_path / "leader", leader_port, *ONE)
    one, two = (replica_at(binary, tmp_path / str(port), leader_port, port, *ONE) for port in ports)
    try:
        serves(leader)
        for number in range(20):
            write(leader, b"%d" % number)
        wait_until(lambda: len(statistics(leader).acknowledged.followers) == 2, 60, leader.log)
        time.sleep(1)
        write(leader, b"both-count")
        with open_channel(two.address) as channel:
            confirmed = admin_pb2_grpc.AdminStub(channel).ConfirmEpoch(
                admin_pb2.ConfirmEpochRequest(
                    history_id=history(leader), epoch=7, candidate_id=b"x" * 16, address="x:1"
                ),
                timeout=60,
            )
            assert confirmed.epoch == 7
            for epoch in (1 << 40, (1 << 64) - 1):
                request = admin_pb2.ConfirmEpochRequest(
                    history_id=history(leader), epoch=epoch, candidate_id=b"y" * 16
                )
                expect_status(
                    REFUSED,
                    lambda: admin_pb2_grpc.AdminStub(channel).ConfirmEpoch(request, timeout=60),
                    "too far above",
                )
        leader.kill()
        report = promoted(binary, one, "--force")
        assert (report["epoch"], report["forced"]) == (2, True)
        assert two.stop() == 0
        two = replica_at(binary, tmp_path / str(ports[1]), ports[0], ports[1], *ONE)
        wait_until(lambda: two.log().count("listening on") == 2, 60, two.log)
        two.addresses.pop(0)
        serves(one)
        write(one, b"of-the-new-history")
        catch_up(one, two)
        assert entries(one) == entries(two)
    finally:
        for server in (leader, one, two):
            server.kill()


def test_a_damaged_confirmation_is_named_as_such(binary, tmp_path):
    port = free_ports(1)[0]
    with leader_of(binary, tmp_path / "leader", port):
        with replica_of(binary, tmp_path / "replica", port):
            pass
        (tmp_path / "replica" / "pelton-epoch").write_text("pelton-epoch\nformat 2\n")
        told = subprocess.run(
            [
                binary,
                "serve",
                "--data",
                str(tmp_path / "replica"),
                "--follow",
                f"127.0.0.1:{port}",
                "--listen",
                "127.0.0.1:0",
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
        )
        assert told.returncode == 3 and "pelton-epoch is damaged" in told.stdout, told.stdout
        assert "thread" not in told.stdout, told.stdout


def test_a_failed_promotion_says_who_has_confirmed_and_who_has_not(binary, tmp_path):
    leader_port, *ports = free_ports(4)
    leader = leader_of(binary, tmp_path / "leader", leader_port, *ONE)
    replicas = [replica_at(binary, tmp_path / str(port), leader_port, port, *ONE) for port in ports]
    try:
        serves(leader)
        for number in range(20):
            write(leader, b"%d" % number)
        wait_until(lambda: len(statistics(leader).acknowledged.followers) == 3, 60, leader.log)
        time.sleep(1)
        write(leader, b"all-count")
        leader.kill()
        replicas[2].kill()
        others = [word for one in replicas[1:] for word in ("--confirm", one.address)]
        told = promote(binary, replicas[0], *others)
        assert told.returncode == 3 and "2 of the 3 replicas" in told.stdout, told.stdout
        assert f"{replicas[1].address} have confirmed the epoch" in told.stdout, told.stdout
        assert f"not confirmed: cannot connect to {replicas[2].address}" in told.stdout, told.stdout
        assert "nothing was done" not in told.stdout
    finally:
        for server in (leader, *replicas):
            server.kill()


def test_a_lower_number_of_replicas_holds_when_as_many_as_before_have_it(binary, tmp_path):
    leader_port, *ports = free_ports(3)
    two_acked = ("--replicas-acked", "2", *PATIENT)
    leader = leader_of(binary, tmp_path / "leader", leader_port, *two_acked)
    one, two = (replica_at(binary, tmp_path / str(port), leader_port, port, *ONE) for port in ports)
    try:
        serves(leader)
        write(leader, b"k")
        two.kill()
        for _ in range(2):
            leader.kill()
            leader = leader_of(binary, tmp_path / "leader", leader_port, *ONE)
            wait_until(lambda: len(statistics(leader).acknowledged.followers) == 1, 60, leader.log)
            time.sleep(0.5)
            with pytest.raises(grpc.RpcError) as refused:
                found(leader, b"k")
            assert refused.value.code() == grpc.StatusCode.UNAVAILABLE
        two = replica_at(binary, tmp_path / str(ports[1]), leader_port, ports[1], *ONE)
        serves(leader)
        wait_until(lambda: statistics(leader).acknowledged.required == 1, 60, leader.log)
        two.kill()
        write(leader, b"one-is-enough")
    finally:
        for server in (leader, one, two):
            server.kill()


class StallingRelay:
    """Passes bytes on, of those from the server only so many: then it holds its peace."""

    def __init__(self, port, most_bytes):
        self.port_behind, self.left, self.has_stalled = port, most_bytes, threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                front, _ = self.listener.accept()
                behind = socket.create_connection(("127.0.0.1", self.port_behind))
            except OSError:
                return
            for pair in ((front, behind, False), (behind, front, True)):
                threading.Thread(target=self._pass_on, args=pair, daemon=True).start()

    def _pass_on(self, source, target, counts):
        try:
            while data := source.recv(1 << 16):
                if counts:
                    self.left -= len(data)
                    if self.left < 0:
                        self.has_stalled.set()
                        return
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass


def test_a_replica_is_promoted_at_once_though_a_copy_of_its_leader_stalls(binary, tmp_path):
    """What an operator wants comes before what a leader may never send."""
    leader_port, other_port, port = free_ports(3)
    leader = leader_of(binary, tmp_path / "leader", leader_port)
    other = leader_of(binary, tmp_path / "other", other_port)
    replica = replica_at(binary, tmp_path / "replica", leader_port, port)
    relay = StallingRelay(other_port, 4 << 20)
    try:
        write(leader, b"k")
        catch_up(leader, replica)
        assert replica.stop() == 0
        with open_channel(other.address) as channel:
            for number in range(20):
                put(channel, b"large/%d" % number, os.urandom(1 << 20))
        # That has another history, so that it takes a copy.
        replica = replica_at(binary, tmp_path / "replica", relay.port, port)
        assert relay.has_stalled.wait(60), replica.log()
        told = promote(binary, replica, "--force", timeout="8s")
        assert told.returncode == 0, told.stdout + replica.log()
        assert statistics(replica).epoch == 2 and found(replica, b"k")
    finally:
        relay.listener.close()
        for server in (leader, other, replica):
            server.kill()


def test_a_replica_that_follows_one_with_less_keeps_what_it_has_acknowledged(binary, tmp_path):
    """Else a promotion of that one would lose what was answered, though this one has confirmed."""
    leader_port, *ports, nobody = free_ports(4)
    folders = [tmp_path / str(port) for port in ports]
    leader = leader_of(binary, tmp_path / "leader", leader_port, *ONE)
    one, two = (
        replica_at(binary, folder, leader_port, port, *ONE) for folder, port in zip(folders, ports)
    )
    try:
        serves(leader)
        write(leader, b"k")
        catch_up(leader, one)
        catch_up(leader, two)
        assert one.stop() == 0
        write(leader, b"only-two-has-it")
        assert two.stop() == 0
        one = replica_at(binary, folders[0], nobody, ports[0], *ONE)
        two = replica_at(binary, folders[1], ports[0], ports[1], *ONE)
        wait_until(lambda: "is a replica itself" in two.log(), 60, two.log)
        time.sleep(1)
        assert found(two, b"only-two-has-it") and "takes a new copy" not in two.log()
        # It goes on when the other one has it too.
        assert one.stop() == 0
        one = replica_at(binary, folders[0], leader_port, ports[0], *ONE)
        catch_up(leader, one)
        write(leader, b"of-a-chain")
        catch_up(one, two)
        assert entries(two) == entries(leader) and "takes a new copy" not in two.log()
    finally:
        for server in (leader, one, two):
            server.kill()
