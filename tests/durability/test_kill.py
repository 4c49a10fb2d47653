"""Kill -9 under load from several clients, again and again on the same data folder.

After each kill, everything that was ever acknowledged must be there as it was, and of what was
under way the first few commits of each writer, each whole, or nothing. Then the next round writes
on.

PELTON_KILL_ROUNDS says how many rounds (100), PELTON_KILL_SEED repeats the choices of an earlier
run; not its moments.
"""

import json
import os
import pathlib
import random
import subprocess
import sys
import time

import pytest
from pelton.v1 import admin_pb2, admin_pb2_grpc, kv_pb2_grpc
from pelton.v1 import kv_pb2 as pb
from server import Server, open_channel
from writers import (
    DISK,
    DISK_KIND,
    DISK_WRITTEN,
    INTERVAL,
    MEMORY_KIND,
    SHARED_KEY,
    WRITTEN,
    number_in,
    put,
)

ROUNDS = int(os.environ.get("PELTON_KILL_ROUNDS", "100"))
SEED = os.environ.get("PELTON_KILL_SEED", str(random.randrange(1 << 32)))
CLIENTS = 3
HERE = pathlib.Path(__file__).resolve().parent

# Small files, so that the log changes from one to the next, and snapshots are made, all the time;
# and a small limit of memory, of which memtables get a share, so that they are flushed all the
# time.
SETTINGS = ["--log-segment", "256KiB", "--memory-limit", "128MiB", "--keep-log", "0"]
DRIVERS = [
    ["--driver", "event-loop", "--threads", "2"],
    ["--driver", "event-loop", "--threads", "1"],
    ["--driver", "blocking"],
]


class ClientProcess:
    def __init__(self, number):
        command = [sys.executable, str(HERE / "client.py"), str(number), SEED]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, **command):
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()

    def answer(self):
        line = self.process.stdout.readline()
        assert line, "a client has ended"
        answer = json.loads(line)
        assert "failure" not in answer, answer["failure"]
        return answer

    def end(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.kill()
        self.process.wait()


@pytest.fixture
def clients():
    processes = [ClientProcess(number) for number in range(CLIENTS)]
    yield processes
    for process in processes:
        process.end()


class Versions:
    """Every number of a commit that any client has been told, or has found."""

    def __init__(self):
        self.seen = set()
        self.highest = 0

    def after_restart(self, answers):
        """What was found may be older than what other clients were told; nobody may have been told
        it for another."""
        for answer in answers:
            self.add(answer["versions"])
        self.highest = max(self.seen, default=0)

    def of_load(self, answers):
        for answer in answers:
            assert not answer["versions"] or answer["versions"][0] > self.highest, (
                "a version below those before the restart"
            )
            self.add(answer["versions"])

    def add(self, versions):
        again = self.seen.intersection(versions)
        assert not again, f"given out for two commits: {sorted(again)[:10]}"
        self.seen.update(versions)


class SharedCounter:
    """What all clients increment at once."""

    def __init__(self):
        self.least = 0
        self.most = 0
        self.answers = set()

    def of_load(self, answers):
        """What was answered is there; what was read is there; nothing is there that nobody has
        asked for."""
        pairs = [pair for answer in answers for pair in answer["shared"]]
        acknowledged = [value for is_write, value in pairs if is_write and value]
        assert len(set(acknowledged)) == len(acknowledged), "two increments had the same answer"
        assert not self.answers.intersection(acknowledged), (
            "an increment was taken back after it was answered"
        )
        self.answers.update(acknowledged)
        before = self.least
        self.least = max([before + len(acknowledged), *(value for _, value in pairs)])
        self.most = before + sum(is_write for is_write, _ in pairs)

    def check(self, kv):
        found = kv.Get(pb.GetRequest(key=SHARED_KEY), timeout=15)
        number = number_in(found) if found.found else 0
        assert self.least <= number <= self.most, (
            f"{number} is not between {self.least} and {self.most}"
        )
        self.least = self.most = number
        return found.found


def create_databases(server):
    with open_channel(server.address) as channel:
        admin = admin_pb2_grpc.AdminStub(channel)
        for name, kind, durability, interval_ms in [
            (WRITTEN, MEMORY_KIND, admin_pb2.DURABILITY_MODE_WRITTEN, 0),
            (INTERVAL, MEMORY_KIND, admin_pb2.DURABILITY_MODE_INTERVAL, 20),
            (DISK, DISK_KIND, admin_pb2.DURABILITY_MODE_SYNCED, 0),
            (DISK_WRITTEN, DISK_KIND, admin_pb2.DURABILITY_MODE_WRITTEN, 0),
        ]:
            description = admin_pb2.DatabaseDescription(
                name=name, kind=kind, durability=durability, interval_ms=interval_ms
            )
            assert admin.CreateDatabase(
                admin_pb2.CreateDatabaseRequest(database=description)
            ).created


def check(server, clients, versions, shared):
    """Compares everything; the number of keys."""
    for client in clients:
        client.ask(do="check", address=server.address)
    answers = [client.answer() for client in clients]
    versions.after_restart(answers)
    with open_channel(server.address) as channel:
        kv = kv_pb2_grpc.KeyValueStub(channel)
        expected = shared.check(kv) + sum(answer["default_keys"] for answer in answers)
        assert kv.Count(pb.CountRequest(), timeout=15).count == expected, (
            "there are keys that nobody has written"
        )
    return sum(answer["keys"] for answer in answers)


def kill_at_start(binary, folder, source):
    """Kills a server that may be anywhere between its first instruction and its first answers."""
    command = [binary, "serve", "--listen", "127.0.0.1:0", "--data", folder, *SETTINGS]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(source.uniform(0, 0.06))
    process.kill()
    process.wait()


def wait_for_change_of_files(folder, seconds):
    """Until a file of the log or of a tree comes, goes or changes its name, or the time is over."""
    before = files(folder)
    deadline = time.monotonic() + seconds
    while files(folder) == before and time.monotonic() < deadline:
        time.sleep(0.0005)


def files(folder):
    return {os.path.join(place, name) for place, _, names in os.walk(folder) for name in names}


def verify_log(binary, folder, ending):
    verified = subprocess.run(
        [binary, "log", "verify", folder, "--output", "json"], capture_output=True, text=True
    )
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert json.loads(verified.stdout)["ending"] == ending, verified.stdout


def end_round(server, source, folder):
    """Ends the server in the midst of all; how."""
    way = source.choice(
        ["kill"] * 6
        + ["kill at once", "kill at a change of files", "kill at a change of files", "stop"]
    )
    if way == "kill at a change of files":
        wait_for_change_of_files(source.choice([folder, f"{folder}/trees"]), 0.5)
        time.sleep(source.uniform(0, 0.002))
    elif way != "kill at once":
        time.sleep(source.uniform(0.02, 0.4))
    if way == "stop":
        assert server.stop() == 0, server.log()
    else:
        assert server.process.poll() is None, server.log()
        server.kill()
    return way


def test_what_was_acknowledged_outlives_a_kill(binary, clients, tmp_path):
    print(f"PELTON_KILL_SEED={SEED}")
    source, folder = random.Random(SEED), str(tmp_path / "data")
    versions, shared, acknowledged, ways, snapshots = Versions(), SharedCounter(), {}, {}, 0
    for number in range(ROUNDS + 1):
        while number and source.random() < 0.15:
            kill_at_start(binary, folder, source)
            ways["kill at start"] = ways.get("kill at start", 0) + 1
        with Server(binary, "--data", folder, *SETTINGS, *source.choice(DRIVERS)) as server:
            if number == 0:
                create_databases(server)
            keys = check(server, clients, versions, shared)
            if number == ROUNDS:
                assert server.stop() == 0, server.log()
                break
            for client in clients:
                client.ask(do="load")
            way = end_round(server, source, folder)
            answers = [client.answer() for client in clients]
        ways[way] = ways.get(way, 0) + 1
        snapshots += server.log().count("made a snapshot")
        versions.of_load(answers)
        shared.of_load(answers)
        for name, count in (pair for answer in answers for pair in answer["acknowledged"].items()):
            acknowledged[name] = acknowledged.get(name, 0) + count
        if number % 10 == 0 or way == "stop":
            verify_log(binary, folder, "closed" if way == "stop" else "open")
    verify_log(binary, folder, "closed")
    print(
        f"{ROUNDS} rounds, {keys} keys at the end; ended by {ways}; {snapshots} snapshots; "
        f"acknowledged {acknowledged}"
    )
    # On a busy machine ten rounds may be over before a writer whose answers come seldom has had
    # one.
    assert ROUNDS < 50 or all(acknowledged.values()), f"a writer has done nothing: {acknowledged}"
    assert ROUNDS < 50 or snapshots, "the log was never shortened"


def test_versions_of_volatile_commits_are_not_given_out_again(binary, tmp_path):
    """A kill takes the commits of a volatile database, of which the log knows nothing; their
    numbers stay theirs."""
    highest = 0
    for _ in range(5):
        with (
            Server(binary, "--data", str(tmp_path / "data"), *SETTINGS) as server,
            open_channel(server.address) as channel,
        ):
            kv, admin = kv_pb2_grpc.KeyValueStub(channel), admin_pb2_grpc.AdminStub(channel)
            description = admin_pb2.DatabaseDescription(
                name="volatile", durability=admin_pb2.DURABILITY_MODE_VOLATILE
            )
            admin.CreateDatabase(admin_pb2.CreateDatabaseRequest(database=description))
            for database in ("", "volatile", "volatile", "volatile"):
                version = kv.Put(
                    pb.PutRequest(database=database, key=b"key", value=b"value"), timeout=15
                ).version
                assert version > highest, "a version was given out twice"
                highest = version
            server.kill()


def test_the_folder_stays_small_under_overwrites(binary, tmp_path):
    """The log of what was overwritten goes: the folder is bounded by what is in the database, not
    by what was written."""
    folder, written, largest = tmp_path / "data", 0, 0
    values = [random.Random(number).randbytes(30_000) for number in range(10)]
    with (
        Server(binary, "--data", str(folder), *SETTINGS) as server,
        open_channel(server.address) as channel,
    ):
        kv = kv_pb2_grpc.KeyValueStub(channel)
        # How large it grows until a snapshot shortens it depends on the machine; that it does not
        # grow on with what is written shows sooner or later.
        for number in range(1_000):
            if number >= 100 and written > 5 * largest:
                break
            last, operations = (
                number,
                [put(b"%d" % key, values[(number + key) % 10]) for key in range(10)],
            )
            assert kv.Batch(pb.BatchRequest(operations=operations), timeout=30).applied
            written += 10 * 30_000
            largest = max(largest, folder_bytes(folder))
        server.kill()
    with (
        Server(binary, "--data", str(folder), *SETTINGS) as server,
        open_channel(server.address) as channel,
    ):
        kv = kv_pb2_grpc.KeyValueStub(channel)
        for key in range(10):
            assert (
                kv.Get(pb.GetRequest(key=b"%d" % key), timeout=15).value
                == values[(last + key) % 10]
            )
    print(f"{written} bytes written, the folder had {largest} at most")
    assert written > 5 * largest


def folder_bytes(folder):
    total = 0
    for file in folder.iterdir():
        try:
            total += file.stat().st_size
        except FileNotFoundError:
            continue
    return total
