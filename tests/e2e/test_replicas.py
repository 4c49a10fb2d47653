"""Replicas: `pelton serve --follow`, with leaders and replicas that are killed, stopped, cut off.

What a replica has when it has caught up is compared with its leader entry by entry, with versions
and expiries.
"""

import json
import os
import random
import signal
import subprocess
import threading
import time
import urllib.request

import grpc
from pelton.v1 import admin_pb2, admin_pb2_grpc, kv_pb2, kv_pb2_grpc
from support.ports import free_ports
from support.relay import Faults, Relay
from support.server import Server, expect_status, open_channel, wait_until

CATCH_UP_SECONDS = 60


def free_port():
    return free_ports(1)[0]


def leader_of(binary, folder, port, *arguments):
    return Server(binary, "--data", str(folder), *arguments, listen=(f"127.0.0.1:{port}",))


def replica_of(binary, folder, port, *arguments, listen=("127.0.0.1:0",)):
    leader = f"127.0.0.1:{port}"
    return Server(binary, "--data", str(folder), "--follow", leader, *arguments, listen=listen)


def statistics(server):
    with open_channel(server.address) as channel:
        stub = admin_pb2_grpc.AdminStub(channel)
        return stub.Statistics(admin_pb2.StatisticsRequest(), timeout=10)


def entries(server, database=""):
    """All entries of a database: key, value, version and expiry."""
    with open_channel(server.address) as channel:
        store = kv_pb2_grpc.KeyValueStub(channel)
        pages = store.Scan(kv_pb2.ScanRequest(database=database), timeout=60)
        return [
            (entry.key, entry.value, entry.version, entry.expires_at_ms)
            for page in pages
            for entry in page.entries
        ]


def blobs(binary, server):
    listed = subprocess.run(
        [binary, "blob", "list", "--address", server.address, "--output", "json"],
        stdout=subprocess.PIPE,
        check=True,
        timeout=30,
    )
    return listed.stdout


def catch_up(leader, replica):
    """Waits until a replica has all that its leader has now."""

    def has_all():
        wanted = statistics(leader).log.durable_sequence
        found = statistics(replica)
        return found.replica.sequence >= wanted and found.replica.connected

    wait_until(has_all, CATCH_UP_SECONDS, lambda: f"not caught up:\n{replica.log()}")


class Load:
    """Writes to a leader until it is stopped, over a connection that may break."""

    def __init__(self, port, seed):
        self.port, self.random, self.is_over = port, random.Random(seed), False
        self.acknowledged = {}
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        channel = open_channel(f"127.0.0.1:{self.port}")
        store = kv_pb2_grpc.KeyValueStub(channel)
        while not self.is_over:
            number = self.random.randrange(500)
            key = b"key-%d" % number
            try:
                self._write(store, key)
            except grpc.RpcError:
                time.sleep(0.02)
        channel.close()

    def _write(self, store, key):
        kind = self.random.randrange(10)
        if kind == 0:
            store.Delete(kv_pb2.DeleteRequest(key=key), timeout=5)
            self.acknowledged[key] = None
        elif kind == 1:
            puts = [
                kv_pb2.Operation.Put(key=key + b"/%d" % part, value=b"b" * 300)
                for part in range(20)
            ]
            operations = [kv_pb2.Operation(put=put) for put in puts]
            request = kv_pb2.BatchRequest(operations=operations, mode=kv_pb2.BATCH_MODE_ATOMIC)
            store.Batch(request, timeout=5)
        else:
            value = self.random.randbytes(self.random.choice((10, 200, 20_000)))
            ttl = self.random.choice((0, 0, 60_000))
            request = kv_pb2.PutRequest(key=key, value=value)
            if ttl:
                request.time_to_live_ms = ttl
            store.Put(request, timeout=5)
            self.acknowledged[key] = value

    def stop(self):
        self.is_over = True
        self.thread.join(20)


def test_a_replica_has_what_its_leader_has_and_takes_no_writes(binary, tmp_path):
    port = free_port()
    with leader_of(binary, tmp_path / "leader", port) as leader:
        with open_channel(leader.address) as channel:
            store = kv_pb2_grpc.KeyValueStub(channel)
            admin = admin_pb2_grpc.AdminStub(channel)
            for name, kind in (("disk", "DATABASE_KIND_DISK"), ("memory", "DATABASE_KIND_MEMORY")):
                description = admin_pb2.DatabaseDescription(name=name, kind=kind)
                admin.CreateDatabase(admin_pb2.CreateDatabaseRequest(database=description))
            for number in range(200):
                for database in ("", "disk", "memory"):
                    key = b"%05d" % number
                    store.Put(kv_pb2.PutRequest(database=database, key=key, value=b"v" * number))
            with replica_of(binary, tmp_path / "replica", port) as replica:
                # Behind the copy: databases that come, go and are emptied.
                for number in range(0, 200, 3):
                    store.Delete(kv_pb2.DeleteRequest(database="disk", key=b"%05d" % number))
                    store.Increment(kv_pb2.IncrementRequest(key=b"counter", delta=1))
                late = admin_pb2.DatabaseDescription(name="late", kind="DATABASE_KIND_DISK")
                admin.CreateDatabase(admin_pb2.CreateDatabaseRequest(database=late))
                store.Put(kv_pb2.PutRequest(database="late", key=b"k", value=b"v" * 100_000))
                admin.DropDatabase(
                    admin_pb2.DropDatabaseRequest(name="memory", confirm_name="memory")
                )
                catch_up(leader, replica)
                for database in ("", "disk", "late"):
                    assert entries(leader, database) == entries(replica, database)
                assert statistics(leader).history_id == statistics(replica).history_id
                assert statistics(leader).followers == 1
                with open_channel(replica.address) as own:
                    there = kv_pb2_grpc.KeyValueStub(own)
                    expect_status(
                        grpc.StatusCode.NOT_FOUND,
                        lambda: there.Get(kv_pb2.GetRequest(database="memory", key=b"k")),
                    )
                    put = kv_pb2.Operation(put=kv_pb2.Operation.Put(key=b"k", value=b"v"))
                    pipe = iter([kv_pb2.PipeRequest(operations=[put])])
                    for write in (
                        lambda: there.Put(kv_pb2.PutRequest(key=b"k", value=b"v")),
                        lambda: there.Delete(kv_pb2.DeleteRequest(key=b"k")),
                        lambda: there.Batch(kv_pb2.BatchRequest(operations=[put])),
                        lambda: there.Transact(kv_pb2.TransactRequest(when_met=[put])),
                        lambda: admin_pb2_grpc.AdminStub(own).DropDatabase(
                            admin_pb2.DropDatabaseRequest(name="late", confirm_name="late")
                        ),
                        lambda: admin_pb2_grpc.AdminStub(own).CreateToken(
                            admin_pb2.CreateTokenRequest(name="t", rights=["read"])
                        ),
                    ):
                        expect_status(
                            grpc.StatusCode.FAILED_PRECONDITION, write, f"127.0.0.1:{port}"
                        )
                    refused = [answer for answer in there.Pipe(pipe) if "replica of" in str(answer)]
                    assert len(refused) == 1, "a batch of a Pipe is refused by itself"
                    get = kv_pb2.Operation(get=kv_pb2.Operation.Get(key=b"counter"))
                    assert there.Batch(kv_pb2.BatchRequest(operations=[get])).results
                assert entries(leader) == entries(replica)
                assert replica.stop() == 0
            # A replica is none without its leader, and a leader becomes none.
            refused = subprocess.run(
                [binary, "serve", "--data", str(tmp_path / "replica"), "--listen", "127.0.0.1:0"],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=60,
            )
            assert refused.returncode == 3 and "--follow" in refused.stdout, refused.stdout
        assert leader.stop() == 0
    refused = subprocess.run(
        [binary, "serve", "--data", str(tmp_path / "leader"), "--follow", "127.0.0.1:1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
    )
    assert refused.returncode == 3 and "empty folder" in refused.stdout, refused.stdout


def test_a_replica_goes_on_whoever_is_killed_and_when(binary, tmp_path):
    seed = int(os.environ.get("PELTON_SEED", random.randrange(1 << 32)))
    print(f"PELTON_SEED={seed}")
    chance = random.Random(seed)
    port = free_port()
    leader = leader_of(binary, tmp_path / "leader", port)
    replica = replica_of(binary, tmp_path / "replica", port)
    load = Load(port, seed)
    try:
        for _ in range(12):
            time.sleep(chance.uniform(0.05, 0.6))
            who = chance.randrange(3)
            if who != 1:
                replica.kill()
            if who != 0:
                leader.kill()
                leader = leader_of(binary, tmp_path / "leader", port)
            if who != 1:
                replica = replica_of(binary, tmp_path / "replica", port)
        load.stop()
        catch_up(leader, replica)
        assert entries(leader) == entries(replica)
        assert load.acknowledged
        assert "taking a copy" not in replica.log()
        # A clean stop and start of both, and one more write.
        assert replica.stop() == 0 and leader.stop() == 0
        leader = leader_of(binary, tmp_path / "leader", port)
        replica = replica_of(binary, tmp_path / "replica", port)
        with open_channel(leader.address) as channel:
            store = kv_pb2_grpc.KeyValueStub(channel)
            store.Put(kv_pb2.PutRequest(key=b"last", value=b"value"), wait_for_ready=True)
        catch_up(leader, replica)
        assert entries(leader) == entries(replica)
    finally:
        load.stop()
        leader.kill()
        replica.kill()


def test_a_replica_whose_connection_breaks_again_and_again_goes_on(binary, tmp_path):
    port = free_port()
    with leader_of(binary, tmp_path / "leader", port) as leader:
        faults = Faults(cut_bytes=400_000, cuts=12, delay_seconds=0.002)
        with Relay(leader.address, 11, faults) as relay:
            relay_port = relay.address.rsplit(":", 1)[1]
            with replica_of(binary, tmp_path / "replica", relay_port) as replica:
                with open_channel(leader.address) as channel:
                    store = kv_pb2_grpc.KeyValueStub(channel)
                    for number in range(120):
                        store.Put(kv_pb2.PutRequest(key=b"%d" % number, value=b"v" * 50_000))
                catch_up(leader, replica)
                assert entries(leader) == entries(replica)
                assert relay.cuts > 3


def test_a_replica_goes_on_behind_a_leader_that_stands_still(binary, tmp_path):
    port = free_port()
    with leader_of(binary, tmp_path / "leader", port) as leader:
        with replica_of(binary, tmp_path / "replica", port) as replica:
            catch_up(leader, replica)
            leader.signal(signal.SIGSTOP)
            try:
                replica.wait_for_log("nothing was heard of it")
                assert entries(replica) == []
                assert not statistics(replica).replica.connected
            finally:
                leader.signal(signal.SIGCONT)
            with open_channel(leader.address) as channel:
                store = kv_pb2_grpc.KeyValueStub(channel)
                store.Put(kv_pb2.PutRequest(key=b"k", value=b"v"), timeout=30)
            catch_up(leader, replica)
            assert entries(leader) == entries(replica)


def test_metrics_and_status_say_how_far_behind_a_replica_is(binary, tmp_path):
    port = free_port()

    def metrics(page):
        with urllib.request.urlopen(f"http://127.0.0.1:{page}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        samples = (line.split() for line in lines if not line.startswith("#"))
        return {words[0]: float(words[1]) for words in samples if len(words) == 2}

    pages = free_ports(2)
    with leader_of(binary, tmp_path / "leader", port, "--metrics-listen", str(pages[0])) as leader:
        with replica_of(
            binary, tmp_path / "replica", port, "--metrics-listen", str(pages[1])
        ) as replica:
            catch_up(leader, replica)
            assert metrics(pages[0])["pelton_followers"] == 1
            found = metrics(pages[1])
            assert found["pelton_replica_connected"] == 1
            assert found["pelton_replica_lag_sequences"] == 0
            assert found["pelton_replica_lag_milliseconds"] == 0
            leader.kill()
            wait_until(lambda: metrics(pages[1])["pelton_replica_connected"] == 0)
            wait_until(lambda: metrics(pages[1])["pelton_replica_lag_milliseconds"] > 0)
            status = subprocess.run(
                [binary, "status", "--address", replica.address],
                stdout=subprocess.PIPE,
                text=True,
                timeout=30,
            )
            words = f"replica of 127.0.0.1:{port}: NOT CONNECTED"
            assert status.returncode == 0 and words in status.stdout, status.stdout


def test_a_replica_for_which_the_log_has_gone_on_too_far_takes_a_new_copy(binary, tmp_path):
    port = free_port()
    settings = ("--keep-log", "0", "--log-segment", "64KiB")
    with leader_of(binary, tmp_path / "leader", port, *settings) as leader:
        own = free_port()
        where = (f"127.0.0.1:{own}",)
        with replica_of(binary, tmp_path / "replica", port, listen=where) as replica:
            catch_up(leader, replica)
    # For some minutes it would keep the log behind the copy that it has given.
    with leader_of(binary, tmp_path / "leader", port, *settings) as leader:
        with open_channel(leader.address) as channel:
            store = kv_pb2_grpc.KeyValueStub(channel)
            for number in range(300):
                store.Put(kv_pb2.PutRequest(key=b"%d" % number, value=b"v" * 10_000))
            admin = admin_pb2_grpc.AdminStub(channel)
            admin.Snapshot(admin_pb2.SnapshotRequest())
            for number in range(20):
                store.Put(kv_pb2.PutRequest(key=b"%d" % number, value=b"w" * 10_000))
        with replica_of(binary, tmp_path / "replica", port, listen=where) as replica:
            pid = replica.process.pid
            replica.wait_for_log("takes a new copy", "the copy has")
            wait_until(lambda: replica.log().count("listening on") == 2, CATCH_UP_SECONDS)
            catch_up(leader, replica)
            assert entries(leader) == entries(replica)
            assert replica.process.pid == pid and replica.process.poll() is None


def test_a_replica_of_another_history_takes_a_new_copy_and_sets_aside_what_it_had(binary, tmp_path):
    port = free_port()
    own = free_port()
    where = (f"127.0.0.1:{own}",)
    for name in ("one", "two"):
        with leader_of(binary, tmp_path / name, port) as leader:
            with open_channel(leader.address) as channel:
                store = kv_pb2_grpc.KeyValueStub(channel)
                store.Put(kv_pb2.PutRequest(key=name.encode(), value=b"v"))
            with replica_of(binary, tmp_path / "replica", port, listen=where) as replica:
                if name == "two":
                    replica.wait_for_log("takes a new copy")
                    wait_until(lambda: replica.log().count("listening on") == 2, CATCH_UP_SECONDS)
                catch_up(leader, replica)
                assert entries(leader) == entries(replica)
    aside = os.listdir(tmp_path / "replica" / "set-aside")
    assert len(aside) == 1 and aside[0].endswith("-replica"), aside


def test_blobs_come_before_what_names_them_and_go_when_they_are_replaced(binary, tmp_path):
    port = free_port()
    content = tmp_path / "content"
    with leader_of(binary, tmp_path / "leader", port) as leader:

        def upload(name, size):
            content.write_bytes(os.urandom(size))
            subprocess.run(
                [binary, "upload", "--address", leader.address, "--name", name, content],
                check=True,
                stdout=subprocess.DEVNULL,
                timeout=60,
            )

        for number in range(3):
            upload(f"before-{number}", 70_000 * number)
        with replica_of(binary, tmp_path / "replica", port) as replica:
            for number in range(3):
                upload(f"behind-{number}", 500_000 * number)
            for _ in range(5):
                upload("replaced", 200_000)
            catch_up(leader, replica)
            assert blobs(binary, leader) == blobs(binary, replica)
            for name in ("before-2", "behind-2", "replaced"):
                found = [tmp_path / "of-leader", tmp_path / "of-replica"]
                for server, path in zip((leader, replica), found):
                    subprocess.run(
                        [
                            binary,
                            "download",
                            name,
                            "--to",
                            path,
                            "--force",
                            "--address",
                            server.address,
                        ],
                        check=True,
                        stdout=subprocess.DEVNULL,
                        timeout=60,
                    )
                assert found[0].read_bytes() == found[1].read_bytes()
            contents = tmp_path / "replica" / "blobs"
            wait_until(lambda: len(os.listdir(contents)) == 7, 30, lambda: os.listdir(contents))
            assert replica.stop() == 0
        with replica_of(binary, tmp_path / "replica", port) as replica:
            assert blobs(binary, leader) == blobs(binary, replica)


def test_a_replica_of_a_replica_has_what_the_first_leader_has(binary, tmp_path):
    port, middle_port = free_port(), free_port()
    with leader_of(binary, tmp_path / "leader", port) as leader:
        load = Load(port, 7)
        where = (f"127.0.0.1:{middle_port}",)
        middle = replica_of(binary, tmp_path / "middle", port, listen=where)
        with replica_of(binary, tmp_path / "last", middle_port) as last:
            for _ in range(3):
                time.sleep(0.4)
                middle.kill()
                middle = replica_of(binary, tmp_path / "middle", port, listen=where)
            load.stop()
            catch_up(leader, middle)
            catch_up(middle, last)
            assert entries(leader) == entries(middle) == entries(last)
        # It goes on with the first leader, whose log has other groups.
        with replica_of(binary, tmp_path / "last", port) as last:
            with open_channel(leader.address) as channel:
                store = kv_pb2_grpc.KeyValueStub(channel)
                store.Put(kv_pb2.PutRequest(key=b"last", value=b"value"))
            catch_up(leader, last)
            assert entries(leader) == entries(last)
            assert "taking a copy" not in last.log()
        middle.kill()


def test_tokens_of_the_leader_are_good_at_a_replica_and_it_needs_the_right_admin(binary, tmp_path):
    port = free_port()
    folder = tmp_path / "leader"
    listen = f"127.0.0.1:{port}+anonymous=none"
    token_file = tmp_path / "admin"
    with Server(
        binary, "--data", str(folder), "--init-admin-file", str(token_file), listen=(listen,)
    ) as leader:

        def create(name, *rights):
            made = subprocess.run(
                [binary, "token", "create", name, "--rights", ",".join(rights), "--address",
                 leader.address, "--token-file", token_file, "--output", "json"],
                stdout=subprocess.PIPE,
                check=True,
                timeout=30,
            )  # fmt: skip
            return json.loads(made.stdout)["token"]

        reader = create("reader", "read")
        (tmp_path / "reader").write_text(reader)
        refused = subprocess.run(
            [binary, "serve", "--data", tmp_path / "other", "--follow", leader.address,
             "--follow-token-file", tmp_path / "reader", "--listen", "127.0.0.1:0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
        )  # fmt: skip
        assert refused.returncode == 3 and "PERMISSION_DENIED" in refused.stdout, refused.stdout
        with replica_of(
            binary,
            tmp_path / "replica",
            port,
            "--follow-token-file",
            str(token_file),
            listen=("127.0.0.1:0+anonymous=none",),
        ) as replica:
            later = create("later", "read")
            with open_channel(replica.address) as channel:
                store = kv_pb2_grpc.KeyValueStub(channel)

                def get(token):
                    metadata = [("authorization", f"Bearer {token}")]
                    return store.Get(kv_pb2.GetRequest(key=b"k"), metadata=metadata, timeout=10)

                assert not get(reader).found

                def is_known():
                    try:
                        return not get(later).found
                    except grpc.RpcError:
                        return False

                wait_until(is_known, CATCH_UP_SECONDS, "a token that was made later is not known")


def test_a_replica_that_is_too_far_behind_is_not_ready_until_it_has_caught_up(binary, tmp_path):
    port, page = free_ports(2)
    leader = leader_of(binary, tmp_path / "leader", port)
    flags = ("--max-lag", "4s", "--metrics-listen", str(page))
    replica = replica_of(binary, tmp_path / "replica", port, *flags)

    def is_ready():
        asked = subprocess.run(
            [binary, "status", "--address", replica.address],
            stdout=subprocess.PIPE,
            timeout=30,
        )
        return asked.returncode == 0

    def is_too_far():
        with urllib.request.urlopen(f"http://127.0.0.1:{page}/metrics", timeout=10) as answer:
            return b"\npelton_replica_too_far_behind 1" in answer.read()

    try:
        catch_up(leader, replica)
        wait_until(lambda: is_ready() and not is_too_far(), 60, replica.log)
        for _ in range(2):
            leader.kill()
            wait_until(lambda: not is_ready(), 60, replica.log)
            assert is_too_far()
            # Only those who ask for it are told.
            assert entries(replica) == []
            leader = leader_of(binary, tmp_path / "leader", port)
            wait_until(lambda: is_ready() and not is_too_far(), 60, replica.log)
    finally:
        leader.kill()
        replica.kill()


def test_a_lag_is_for_replicas_only_and_within_bounds(binary, tmp_path):
    for flags, words in (
        (("--max-lag", "5s"), "follows nobody"),
        (("--max-lag", "10ms", "--follow", "127.0.0.1:1"), "1s to 1d"),
    ):
        folder = str(tmp_path / "data")
        refused = subprocess.run(
            [binary, "serve", "--listen", "127.0.0.1:0", "--data", folder, *flags],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
        )
        assert refused.returncode == 2 and words in refused.stdout, refused.stdout
