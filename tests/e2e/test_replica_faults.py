"""Replicas whose leader is lost while they take a new copy, whose own disk fails, or that are told
to follow themselves.

What a replica has must stay until what comes in its place is complete and on the device: so it is
killed at each step of that, with a leader that is gone.
"""

import json
import os
import random
import shutil
import subprocess
import time
import urllib.request

import pytest
import strace
from environment import clean_environment
from pelton.v1 import admin_pb2, admin_pb2_grpc, kv_pb2, kv_pb2_grpc
from support.ports import free_ports
from support.relay import Faults, Relay
from support.server import Server, open_channel, wait_until
from test_replicas import (
    CATCH_UP_SECONDS,
    catch_up,
    entries,
    free_port,
    leader_of,
    replica_of,
    statistics,
)

needs_strace = pytest.mark.skipif(
    not strace.works(), reason="no strace, or it may not trace processes here"
)
# Nothing of the log is kept longer than a start of the leader needs it.
SHORT_LOG = ("--keep-log", "0", "--log-segment", "64KiB")
MARK = "pelton-replica"


def fill(channel, prefix, count, size):
    store = kv_pb2_grpc.KeyValueStub(channel)
    for number in range(count):
        key = b"%s/%d" % (prefix, number)
        store.Put(kv_pb2.PutRequest(key=key, value=os.urandom(size)), timeout=30)


def leave_behind(binary, tmp_path, port):
    """Makes a replica that a leader has gone on without, so that it needs a new copy; returns what
    it has."""
    with leader_of(binary, tmp_path / "leader", port, *SHORT_LOG) as leader:
        with open_channel(leader.address) as channel:
            fill(channel, b"old", 20, 1_000)
        with replica_of(binary, tmp_path / "replica", port) as replica:
            catch_up(leader, replica)
            served = entries(replica)
            assert replica.stop() == 0
        assert leader.stop() == 0
    # For some minutes it would keep the log behind the copy that it has given.
    with leader_of(binary, tmp_path / "leader", port, *SHORT_LOG) as leader:
        with open_channel(leader.address) as channel:
            fill(channel, b"new", 300, 10_000)
            admin_pb2_grpc.AdminStub(channel).Snapshot(admin_pb2.SnapshotRequest())
            fill(channel, b"new", 20, 10_000)
        assert leader.stop() == 0
    return served


def state_of(folder):
    """The state in the mark of a replica."""
    lines = (folder / MARK).read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith("state "))


def remains(folder):
    """Folders of copies that are on their way, or of what was served before."""
    names = ("replica-copy", "replica-new", "replica-old")
    return [name for name in names if (folder / name).exists()]


def status_of(binary, server):
    """What `pelton status` says of a replica, for programs and for people. It is ready, as reads go
    on whatever is in the way of following."""
    command = [binary, "status", "--address", server.address]
    run = {"stdout": subprocess.PIPE, "text": True, "check": True, "timeout": 30}
    words = subprocess.run(command, **run).stdout
    fields = json.loads(subprocess.run([*command, "--output", "json"], **run).stdout)
    return fields["replica"], words


def test_a_replica_serves_what_it_has_until_a_new_copy_is_complete(binary, tmp_path):
    port = free_port()
    served = leave_behind(binary, tmp_path, port)
    folder = tmp_path / "replica"
    leader = leader_of(binary, tmp_path / "leader", port, *SHORT_LOG)
    # A copy is some megabytes: none of them comes through.
    faults = Faults(cut_bytes=500_000, cuts=1 << 30, spread=0.2)
    try:
        with Relay(leader.address, 5, faults) as relay:
            relay_port = relay.address.rsplit(":", 1)[1]
            replica = replica_of(binary, folder, relay_port)
            replica.wait_for_log("takes a new copy", "what this replica has is served")
            assert entries(replica) == served
            said, words = status_of(binary, replica)
            assert not said["connected"] and not said["blocked"]
            assert "a new copy is needed" in said["problem"] and "NOT CONNECTED" in words
            # Lost meanwhile: the leader, then the replica.
            leader.kill()
            assert entries(replica) == served
            replica.kill()
        with replica_of(binary, folder, port, "--backup-root", str(tmp_path)) as replica:
            replica.wait_for_log("cannot be followed")
            assert entries(replica) == served
            assert state_of(folder) == "following" and not remains(folder)
            # What docs/operations.md says for a leader that is lost.
            subprocess.run(
                [binary, "backup", "saved", "--address", replica.address],
                check=True,
                stdout=subprocess.DEVNULL,
                timeout=60,
            )
            subprocess.run(
                [binary, "restore", tmp_path / "saved", "--data", tmp_path / "restored"],
                check=True,
                stdout=subprocess.DEVNULL,
                timeout=60,
            )
            with leader_of(binary, tmp_path / "restored", 0) as restored:
                assert entries(restored) == served
            # The leader is back after all.
            leader = leader_of(binary, tmp_path / "leader", port, *SHORT_LOG)
            replica.wait_for_log("the copy has")
            wait_until(lambda: replica.log().count("listening on") == 2, CATCH_UP_SECONDS)
            replica.addresses.pop(0)
            catch_up(leader, replica)
            assert entries(replica) == entries(leader) != served
            assert not remains(folder) and not (folder / "set-aside").exists()
    finally:
        leader.kill()


@pytest.fixture(scope="module")
def copied(binary, tmp_path_factory):
    """A replica that was killed when its new copy had come, and nothing was done with it; with what
    it served, and what is in the copy."""
    tmp_path = tmp_path_factory.mktemp("copied")
    port = free_port()
    served = leave_behind(binary, tmp_path, port)
    folder = tmp_path / "replica"
    with leader_of(binary, tmp_path / "leader", port, *SHORT_LOG) as leader:
        # It executes itself when it has the copy.
        prefix = strace.injecting(tmp_path / "strace", "execve:signal=KILL:when=1")
        leader_at = f"127.0.0.1:{port}"
        replica = Server(binary, "--data", str(folder), "--follow", leader_at, prefix=prefix)
        replica.wait()
        assert state_of(folder) == "copied", replica.log()
        wanted = entries(leader)
    assert wanted != served
    return folder, served, wanted


def kill_at(binary, folder, fault, tmp_path):
    """Starts a replica without a leader that is killed at a system call; returns whether it was."""
    prefix = strace.injecting(tmp_path / "strace", fault)
    environment = clean_environment()
    command = [binary, "serve", "--data", folder, "--follow", "127.0.0.1:1"]
    process = subprocess.Popen(
        [*prefix, *command, "--listen", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
        text=True,
    )
    with process:
        for line in process.stdout:
            if "listening on" in line:
                process.kill()
                return False
        process.wait()
    return True


@needs_strace
@pytest.mark.parametrize(
    "call", ["rename", "renameat", "fsync", "fdatasync", "mkdir", "unlinkat", "rmdir"]
)
def test_a_replica_that_is_killed_while_it_takes_its_new_copy_has_it_afterwards(
    binary, tmp_path, copied, call
):
    source, served, wanted = copied
    step, kills, found = 1, 0, set()
    while True:
        folder = tmp_path / f"replica-{step}"
        shutil.copytree(source, folder)
        was_killed = kill_at(binary, folder, f"{call}:signal=KILL:when={step}", tmp_path)
        found.add(state_of(folder))
        kills += was_killed
        with replica_of(binary, folder, 1) as replica:
            assert entries(replica) == wanted, (call, step)
            assert state_of(folder) == "following" and not remains(folder)
            assert replica.stop() == 0
        shutil.rmtree(folder)
        if not was_killed:
            break
        step += 1 if step < 12 else 7
    print(f"{call}: {kills} kills, found {sorted(found)}")
    if call == "renameat":
        assert {"copied", "moving-out", "moving-in", "following"} <= found


@needs_strace
def test_a_copy_that_was_damaged_is_not_used_and_what_is_there_is_served(binary, tmp_path, copied):
    source, served, _ = copied
    for what in ("flip", "truncate", "remove"):
        folder = tmp_path / what
        shutil.copytree(source, folder)
        file = max((folder / "replica-copy").iterdir(), key=lambda file: file.stat().st_size)
        if what == "flip":
            content = bytearray(file.read_bytes())
            content[len(content) // 2] ^= 1
            file.write_bytes(content)
        elif what == "truncate":
            os.truncate(file, file.stat().st_size // 2)
        else:
            file.unlink()
        with replica_of(binary, folder, 1) as replica:
            replica.wait_for_log("the new copy of the leader could not be used")
            assert entries(replica) == served
            assert state_of(folder) == "following" and not remains(folder)


@needs_strace
def test_a_replica_whose_log_has_failed_says_so_and_leaves_its_leader_alone(binary, tmp_path):
    port, page = free_ports(2)
    with leader_of(binary, tmp_path / "leader", port) as leader:
        with replica_of(binary, tmp_path / "replica", port) as replica:
            assert replica.stop() == 0
        with Relay(leader.address, 3, Faults()) as relay:
            follow = relay.address
            with Server(
                binary, "--data", str(tmp_path / "replica"), "--follow", follow,
                "--metrics-listen", str(page),
                prefix=strace.injecting(tmp_path / "strace", "fdatasync:error=EIO:when=8+"),
            ) as replica:  # fmt: skip
                with open_channel(leader.address) as channel:
                    store = kv_pb2_grpc.KeyValueStub(channel)

                    def is_blocked():
                        store.Put(kv_pb2.PutRequest(key=b"k", value=b"v"), timeout=30)
                        return statistics(replica).replica.blocked

                    wait_until(is_blocked, message=replica.log)
                before = relay.connections
                said, words = status_of(binary, replica)
                assert said["blocked"] and not said["connected"], said
                assert "sync of the log" in said["problem"], said
                assert "BLOCKED by its own log, disk or memory" in words
                metrics = urllib.request.urlopen(f"http://127.0.0.1:{page}/metrics", timeout=10)
                lines = metrics.read().decode().splitlines()
                assert "pelton_replica_blocked 1" in lines
                assert "pelton_replica_connected 0" in lines
                entries(replica)
                time.sleep(2)
                assert relay.connections - before <= 1, "it goes on to ask its leader"
                assert statistics(replica).replica.blocked
                assert "has no place for what its leader" in replica.log()
                assert "cannot be followed" not in replica.log(), replica.log()
            with replica_of(binary, tmp_path / "replica", port) as replica:
                catch_up(leader, replica)
                assert entries(leader) == entries(replica)


def test_servers_that_follow_themselves_or_each_other_say_so(binary, tmp_path):
    leader_port, one_port, two_port = free_ports(3)

    def start(name, follow, own):
        return replica_of(binary, tmp_path / name, follow, listen=(f"127.0.0.1:{own}",))

    circle = "it is this server, or follows it"
    with leader_of(binary, tmp_path / "leader", leader_port) as leader:
        with start("one", leader_port, one_port) as one:
            with start("two", one_port, two_port) as two:
                catch_up(leader, one)
                catch_up(leader, two)
    # By another address than its own, which a setting could be seen to be.
    itself = ("--data", str(tmp_path / "one"), "--follow", f"localhost:{one_port}")
    with Server(binary, *itself, listen=(f"127.0.0.1:{one_port}",)) as one:
        one.wait_for_log(circle)
        assert not statistics(one).replica.connected
    with start("one", two_port, one_port) as one, start("two", one_port, two_port) as two:
        for _ in range(2):
            for server in (one, two):
                server.wait_for_log(circle)
                said, words = status_of(binary, server)
                assert not said["connected"] and circle in said["problem"], said
                assert "NOT CONNECTED" in words
            time.sleep(3)
    # Nothing was lost by it.
    with leader_of(binary, tmp_path / "leader", leader_port) as leader:
        with open_channel(leader.address) as channel:
            fill(channel, b"later", 3, 100)
        with start("one", leader_port, one_port) as one, start("two", one_port, two_port) as two:
            catch_up(leader, one)
            catch_up(leader, two)
            assert entries(leader) == entries(one) == entries(two)
            assert "takes a new copy" not in one.log() + two.log()
    refused = subprocess.run(
        [binary, "serve", "--data", tmp_path / "one", "--follow", f"127.0.0.1:{one_port}",
         "--listen", f"127.0.0.1:{one_port}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
    )  # fmt: skip
    assert refused.returncode == 2 and "follow names this server itself" in refused.stdout


@pytest.mark.parametrize("damage", ["flip", "truncate", "remove"])
def test_a_replica_whose_log_is_damaged_says_that_it_takes_a_new_copy_without_its_folder(
    binary, tmp_path, damage
):
    port = free_port()
    folder = tmp_path / "replica"
    with leader_of(binary, tmp_path / "leader", port) as leader:
        # So much that no snapshot is due behind the copy: a part of the log would be needless.
        with open_channel(leader.address) as channel:
            fill(channel, b"before", 200, 20_000)
        with replica_of(binary, folder, port, "--log-segment", "64KiB") as replica:
            with open_channel(leader.address) as channel:
                fill(channel, b"behind", 200, 5_000)
            catch_up(leader, replica)
            assert replica.stop() == 0
        segments = sorted(folder.glob("*.log"))
        segment = segments[len(segments) // 2]
        if damage == "flip":
            content = bytearray(segment.read_bytes())
            content[len(content) // 3] ^= 1
            segment.write_bytes(content)
        elif damage == "truncate":
            os.truncate(segment, 10_000)
        else:
            segment.unlink()
        names = sorted(os.listdir(folder))
        refused = subprocess.run(
            [binary, "serve", "--data", folder, "--follow", f"127.0.0.1:{port}",
             "--listen", "127.0.0.1:0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
        )  # fmt: skip
        assert refused.returncode == 3 and segment.name in refused.stdout, refused.stdout
        assert f"it takes a new copy of 127.0.0.1:{port}" in refused.stdout, refused.stdout
        assert "--accept-loss" not in refused.stdout, refused.stdout
        assert sorted(os.listdir(folder)) == names, "nothing was changed"
        folder.rename(tmp_path / "away")
        with replica_of(binary, folder, port) as replica:
            catch_up(leader, replica)
            assert entries(leader) == entries(replica)


def test_a_replica_that_is_killed_while_it_takes_its_first_copy_takes_it_at_the_next_start(
    binary, tmp_path
):
    seed = int(os.environ.get("PELTON_SEED", random.randrange(1 << 32)))
    print(f"PELTON_SEED={seed}")
    chance = random.Random(seed)
    port = free_port()
    folder = tmp_path / "replica"
    command = [binary, "serve", "--data", folder, "--follow", f"127.0.0.1:{port}"]
    found = []
    with leader_of(binary, tmp_path / "leader", port) as leader:
        with open_channel(leader.address) as channel:
            fill(channel, b"k", 200, 20_000)
        for _ in range(8):
            for _ in range(3):
                process = subprocess.Popen(
                    [*command, "--listen", "127.0.0.1:0"],
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
                time.sleep(chance.uniform(0, 0.25))
                process.kill()
                process.wait()
                if (folder / MARK).exists():
                    found.append(state_of(folder))
            with replica_of(binary, folder, port) as replica:
                catch_up(leader, replica)
                assert entries(leader) == entries(replica)
                assert not remains(folder)
            shutil.rmtree(folder)
    print(found)
    # Of a start that was killed before its first file was whole.
    folder.mkdir()
    (folder / f"{MARK}.new").write_text("pelton-rep")
    with leader_of(binary, tmp_path / "leader", port) as leader:
        with replica_of(binary, folder, port) as replica:
            catch_up(leader, replica)
