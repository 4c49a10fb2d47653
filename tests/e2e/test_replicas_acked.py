"""Leaders with `--replicas-acked`: what they answer and show is on so many replicas."""

import json
import os
import random
import subprocess
import threading
import time
import urllib.request

import grpc
import pytest
from pelton.v1 import admin_pb2, admin_pb2_grpc, kv_pb2, kv_pb2_grpc
from pelton.v1 import replication_pb2, replication_pb2_grpc
from support.ports import free_ports
from support.server import expect_status, open_channel, wait_until
from test_replicas import catch_up, entries, free_port, leader_of, replica_of, statistics

UNKNOWN, UNAVAILABLE = grpc.StatusCode.UNKNOWN, grpc.StatusCode.UNAVAILABLE
# These only end what hangs.
CALL_SECONDS = 60
TIMEOUT = ("--replicas-acked-timeout", "500ms")
# Of tests in which nothing is to be too late.
PATIENT = ("--replicas-acked-timeout", "60s")


def put(channel, key, value=b"value", database=""):
    request = kv_pb2.PutRequest(database=database, key=key, value=value)
    return kv_pb2_grpc.KeyValueStub(channel).Put(request, timeout=CALL_SECONDS)


def found(server, key, database=""):
    with open_channel(server.address) as channel:
        request = kv_pb2.GetRequest(database=database, key=key)
        return kv_pb2_grpc.KeyValueStub(channel).Get(request, timeout=CALL_SECONDS).found


def serves(server):
    """Waits until what the start has found is on enough replicas."""

    def is_read():
        try:
            found(server, b"k")
        except grpc.RpcError as error:
            assert error.code() == UNAVAILABLE, error
            return False
        return True

    wait_until(is_read, 60, server.log)


class Ledger:
    """Puts a key of its own with each call, with several callers; keeps what was answered."""

    def __init__(self, port, callers=4):
        self.port, self.is_over, self.answered = port, False, []
        self.callers = [
            threading.Thread(target=self._run, args=(number,), daemon=True)
            for number in range(callers)
        ]
        for caller in self.callers:
            caller.start()

    def _run(self, caller):
        number = 0
        with open_channel(f"127.0.0.1:{self.port}") as channel:
            store = kv_pb2_grpc.KeyValueStub(channel)
            while not self.is_over:
                number += 1
                key = b"%d/%08d" % (caller, number)
                try:
                    store.Put(kv_pb2.PutRequest(key=key, value=b"v" * (number % 300)), timeout=5)
                    self.answered.append(key)
                except grpc.RpcError:
                    time.sleep(0.02)

    def stop(self):
        self.is_over = True
        for caller in self.callers:
            caller.join(20)


@pytest.mark.parametrize("driver", ("event-loop", "blocking"))
def test_what_was_answered_is_on_the_replica_when_the_leader_dies(binary, tmp_path, driver):
    seed = int(os.environ.get("PELTON_SEED", random.randrange(1 << 32)))
    print(f"PELTON_SEED={seed}")
    chance = random.Random(seed)
    port = free_port()
    flags = ("--replicas-acked", "1", *PATIENT, "--driver", driver)
    leader = leader_of(binary, tmp_path / "leader", port, *flags)
    replica = replica_of(binary, tmp_path / "replica", port, "--driver", driver)
    ledger = Ledger(port)
    try:
        for number in range(6):
            before = len(ledger.answered)
            wait_until(lambda: len(ledger.answered) > before + 20, 60, leader.log)
            time.sleep(chance.uniform(0, 0.3))
            leader.kill()
            answered = list(ledger.answered)
            there = {key for key, *_ in entries(replica)}
            missing = [key for key in answered if key not in there]
            assert not missing, missing[:5]
            if number % 2:
                replica.kill()
                replica = replica_of(binary, tmp_path / "replica", port, "--driver", driver)
            leader = leader_of(binary, tmp_path / "leader", port, *flags)
        serves(leader)
        ledger.stop()
        catch_up(leader, replica)
        assert entries(leader) == entries(replica)
        assert leader.stop() == 0 and replica.stop() == 0
    finally:
        ledger.stop()
        leader.kill()
        replica.kill()


def test_a_write_that_waits_in_vain_is_unknown_and_seen_when_the_replica_is_back(binary, tmp_path):
    port, page = free_ports(2)
    flags = ("--replicas-acked", "1", *TIMEOUT, "--metrics-listen", f"127.0.0.1:{page}")

    def metrics():
        with urllib.request.urlopen(f"http://127.0.0.1:{page}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        return dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))

    def status():
        told = subprocess.run(
            [binary, "status", "--address", leader.address, "--output", "json"],
            stdout=subprocess.PIPE,
            check=True,
            timeout=30,
        )
        return json.loads(told.stdout)["acknowledged"]

    with leader_of(binary, tmp_path / "leader", port, *flags) as leader:
        with open_channel(leader.address) as channel:
            for round_ in range(2):
                replica = replica_of(binary, tmp_path / "replica", port)
                serves(leader)
                put(channel, b"before-%d" % round_)
                catch_up(leader, replica)
                [follower] = status()["followers"]
                assert follower["sequence"] == statistics(leader).log.durable_sequence
                assert metrics()["pelton_replicas_late"] == "0"
                assert metrics()["pelton_replicas_absent"] == "0"
                replica.kill()
                wait_until(lambda: not status()["followers"])
                assert metrics()["pelton_replicas_absent"] == "1"
                key = b"late-%d" % round_
                watched = kv_pb2_grpc.KeyValueStub(channel).Watch(kv_pb2.WatchRequest())
                next(watched)
                expect_status(UNKNOWN, lambda: put(channel, key), "may still take effect")
                expect_status(UNAVAILABLE, lambda: put(channel, b"other"), "nothing was done")
                assert status()["late"] and metrics()["pelton_replicas_late"] == "1"
                assert not found(leader, key) and found(leader, b"before-%d" % round_)
                assert key not in [one for one, *_ in entries(leader)]
                with replica_of(binary, tmp_path / "replica", port) as replica:
                    wait_until(lambda: found(leader, key), 60, leader.log)
                    told = next(watched)
                    changed = [one.entry.key for commit in told.commits for one in commit.changes]
                    assert changed == [key], "it is told of when it is seen"
                    put(channel, b"other")
                    catch_up(leader, replica)
                    assert entries(leader) == entries(replica)
                    assert not status()["late"]
                watched.cancel()


def test_two_replicas_are_two_folders_and_the_second_may_come_while_a_write_waits(binary, tmp_path):
    port = free_port()
    with leader_of(binary, tmp_path / "leader", port) as leader:
        with open_channel(leader.address) as channel:
            put(channel, b"old")
    with leader_of(binary, tmp_path / "leader", port, "--replicas-acked", "2", *PATIENT) as leader:
        with open_channel(leader.address) as channel:
            expect_status(UNAVAILABLE, lambda: found(leader, b"old"), "just been started")
            with replica_of(binary, tmp_path / "one", port) as one:
                wait_until(lambda: statistics(leader).acknowledged.followers)
                said = ("just been started", "--replicas-acked says 2, 1 are connected", "start")
                expect_status(UNAVAILABLE, lambda: found(leader, b"old"), *said)
                with replica_of(binary, tmp_path / "two", port) as two:
                    serves(leader)
                    assert found(leader, b"old")
                    # Behind so many writes both count, and the log says that this was acknowledged.
                    for _ in range(20):
                        put(channel, b"both")
                    two.kill()
                waiting = kv_pb2_grpc.KeyValueStub(channel).Put.future(
                    kv_pb2.PutRequest(key=b"waiting", value=b"v"), timeout=CALL_SECONDS
                )
                # It is on one replica, and that is not enough.
                wait_until(lambda: found(one, b"waiting"))
                assert not waiting.done() and not found(leader, b"waiting")
                # The copy of another one is made while the write waits.
                with replica_of(binary, tmp_path / "three", port) as three:
                    assert waiting.result().version > 0
                    assert found(leader, b"waiting")
                    catch_up(leader, one)
                    catch_up(leader, three)
                    assert entries(leader) == entries(one) == entries(three)
                    ids = {bytes(f.replica_id) for f in statistics(leader).acknowledged.followers}
                    assert len(ids) == 2


class Holder:
    """A connection that says what a replica holds."""

    def __init__(self, leader, replica_id):
        self.leader, self.replica_id = leader, replica_id
        self.channel = open_channel(leader.address)
        self.says = threading.Semaphore(0)
        self.sequences = []
        stub = replication_pb2_grpc.ReplicationStub(self.channel)
        self.is_first = True
        self.call = stub.Acknowledge(self._requests())

    def _requests(self):
        while True:
            self.says.acquire()
            sequence = self.sequences.pop(0)
            if sequence is None:
                return
            yield replication_pb2.AcknowledgeRequest(
                history_id=statistics(self.leader).history_id,
                replica_id=self.replica_id,
                sequence=sequence,
            )

    def hold(self, sequence=None):
        if sequence is None:
            sequence = statistics(self.leader).log.durable_sequence
        self.sequences.append(sequence)
        self.says.release()
        return next(self.call)

    def close(self):
        self.sequences.append(None)
        self.says.release()
        self.channel.close()


def test_two_connections_of_one_replica_count_once(binary, tmp_path):
    port = free_port()
    flags = ("--replicas-acked", "2", *TIMEOUT)
    with leader_of(binary, tmp_path / "leader", port, *flags) as leader:
        first, second = Holder(leader, b"a" * 16), Holder(leader, b"a" * 16)
        other = Holder(leader, b"b" * 16)
        try:
            first.hold()
            told = second.hold()
            assert (told.required, told.acknowledged_sequence) == (2, 0)
            assert len(statistics(leader).acknowledged.followers) == 1
            # Were it left open, and the later one ended, its caller would not be counted any more.
            assert first.call.code() == grpc.StatusCode.ABORTED, first.call.details()
            assert "pelton-replica-id" in first.call.details()
            expect_status(UNAVAILABLE, lambda: found(leader, b"k"))
            assert other.hold().acknowledged_sequence > 0
            serves(leader)
            # Each becomes one that counts, by a commit that both must hold.
            for _ in range(6):
                second.hold(), other.hold()
                time.sleep(0.1)
            with open_channel(leader.address) as channel:
                store = kv_pb2_grpc.KeyValueStub(channel)
                waiting = store.Put.future(kv_pb2.PutRequest(key=b"k", value=b"v"), timeout=60)
                before = statistics(leader).log.durable_sequence
                wait_until(lambda: statistics(leader).acknowledged.late)
                second.hold()
                assert not found(leader, b"k")
                assert waiting.code() == UNKNOWN
                expect_status(
                    grpc.StatusCode.FAILED_PRECONDITION,
                    lambda: Holder(leader, b"c" * 16).hold(1 << 60),
                    "new copy",
                )
                expect_status(
                    grpc.StatusCode.INVALID_ARGUMENT,
                    lambda: Holder(leader, b"short").hold(),
                    "replica_id",
                )
                assert other.hold().acknowledged_sequence >= before
                wait_until(lambda: found(leader, b"k"))
                # Whoever is not connected does not count.
                other.close()
                wait_until(lambda: len(statistics(leader).acknowledged.followers) == 1)
                expect_status(UNKNOWN, lambda: put(channel, b"next"))
        finally:
            for one in (first, second, other):
                one.close()


def test_what_replicas_say_is_read_while_as_many_writes_wait_as_may(binary, tmp_path):
    port = free_port()
    flags = ("--replicas-acked", "1", *PATIENT, "--memory-limit", "32MiB")
    with leader_of(binary, tmp_path / "leader", port, *flags) as leader:
        with replica_of(binary, tmp_path / "replica", port, "--memory-limit", "64MiB"):
            serves(leader)
            channels = [open_channel(leader.address) for _ in range(4)]
            # Beyond a few megabytes of them nothing more is read from those who write.
            calls = [
                kv_pb2_grpc.KeyValueStub(channels[number % 4]).Put.future(
                    kv_pb2.PutRequest(key=b"%d" % (number % 40), value=b"v" * 50_000),
                    timeout=CALL_SECONDS,
                )
                for number in range(1200)
            ]
            refused = [call.code() for call in calls if call.code() != grpc.StatusCode.OK]
            # None has waited in vain; some may be shed before they began.
            assert set(refused) <= {UNAVAILABLE} and len(refused) < 600, refused
            for channel in channels:
                channel.close()


def test_a_revocation_that_waited_in_vain_counts_when_the_replica_is_back(binary, tmp_path):
    port = free_port()
    flags = ("--replicas-acked", "1", *TIMEOUT)
    with leader_of(binary, tmp_path / "leader", port, *flags) as leader:
        replica = replica_of(binary, tmp_path / "replica", port)
        serves(leader)
        with open_channel(leader.address) as channel:
            admin = admin_pb2_grpc.AdminStub(channel)
            made = admin.CreateToken(
                admin_pb2.CreateTokenRequest(name="reader", rights=["read"]), timeout=CALL_SECONDS
            )
            metadata = [("authorization", f"Bearer {made.token}")]

            def is_good():
                store = kv_pb2_grpc.KeyValueStub(channel)
                try:
                    store.Get(kv_pb2.GetRequest(key=b"k"), metadata=metadata, timeout=10)
                except grpc.RpcError as error:
                    assert error.code() == grpc.StatusCode.UNAUTHENTICATED, error
                    return False
                return True

            assert is_good()
            replica.kill()
            revoke = admin_pb2.RevokeTokenRequest(name="reader")
            expect_status(UNKNOWN, lambda: admin.RevokeToken(revoke, timeout=CALL_SECONDS))
            assert is_good()
            with replica_of(binary, tmp_path / "replica", port):
                wait_until(lambda: not is_good(), 60, leader.log)


def test_volatile_databases_wait_for_nobody(binary, tmp_path):
    port = free_port()
    folder = tmp_path / "leader"
    with leader_of(binary, folder, port) as leader:
        with open_channel(leader.address) as channel:
            volatile = admin_pb2.DURABILITY_MODE_VOLATILE
            description = admin_pb2.DatabaseDescription(name="volatile", durability=volatile)
            request = admin_pb2.CreateDatabaseRequest(database=description)
            admin_pb2_grpc.AdminStub(channel).CreateDatabase(request, timeout=CALL_SECONDS)
    with leader_of(binary, folder, port, "--replicas-acked", "1", *TIMEOUT) as leader:
        with open_channel(leader.address) as channel:
            for key in (b"one", b"two"):
                put(channel, key, database="volatile")
                assert found(leader, key, database="volatile")
                expect_status(UNAVAILABLE, lambda: put(channel, key), "just been started")
            backup = admin_pb2_grpc.AdminStub(channel).Backup(admin_pb2.BackupRequest(name="b"))
            expect_status(UNAVAILABLE, lambda: list(backup), "just been started")
        assert leader.stop() == 0, "what waits holds up no stop"
    # Without the flag it is served at once, and so decides alone again.
    with leader_of(binary, folder, port) as leader:
        assert not found(leader, b"one")


def test_a_conversion_waits_for_no_replica_as_each_takes_a_new_copy_for_it(binary, tmp_path):
    port, own = free_ports(2)
    where = (f"127.0.0.1:{own}",)
    flags = ("--replicas-acked", "1", *PATIENT)
    with leader_of(binary, tmp_path / "leader", port, *flags) as leader:
        with replica_of(binary, tmp_path / "replica", port, listen=where):
            serves(leader)
            with open_channel(leader.address) as channel:
                description = admin_pb2.DatabaseDescription(name="turned")
                request = admin_pb2.CreateDatabaseRequest(database=description)
                admin_pb2_grpc.AdminStub(channel).CreateDatabase(request, timeout=CALL_SECONDS)
                put(channel, b"before", database="turned")
    # For some minutes it would keep the log behind the copy that it has given.
    with leader_of(binary, tmp_path / "leader", port, *flags) as leader:
        with replica_of(binary, tmp_path / "replica", port, listen=where) as replica:
            serves(leader)
            subprocess.run(
                [binary, "database", "convert", "turned", "--kind", "disk",
                 "--address", leader.address],
                check=True,
                timeout=120,
            )  # fmt: skip
            with open_channel(leader.address) as channel:
                put(channel, b"behind", database="turned")
            replica.wait_for_log("takes a new copy")
            catch_up(leader, replica)
            assert entries(leader, "turned") == entries(replica, "turned")


@pytest.mark.parametrize(
    "flags, words",
    [
        (("--replicas-acked", "1", "--durability", "volatile"), "data folder"),
        (("--replicas-acked", "17"), "16"),
        (("--replicas-acked", "1", "--replicas-acked-timeout", "1ms"), "10ms"),
    ],
)
def test_what_makes_no_sense_together_is_refused(binary, tmp_path, flags, words):
    data = () if "volatile" in flags else ("--data", str(tmp_path / "data"))
    refused = subprocess.run(
        [binary, "serve", "--listen", "127.0.0.1:0", *data, *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
    )
    assert refused.returncode == 2 and words in refused.stdout, refused.stdout
