"""Chaos: clients that behave in every bad way at once, with every method, beside honest ones.

Databases in memory and on disk are attacked and used; memory is small and descriptors are few.

The process lives; memory stays below the limit and 64 MiB and 128 KiB for each connection (with a
thread for each connection 1 MiB, since the allocator keeps for a thread what it has freed); every
call of an honest client succeeds and its answer is right; afterwards nothing is left of the
attackers; a stop amid them is a clean one.

PELTON_CHAOS_SECONDS (15) is how long a run takes, PELTON_SEED repeats what an earlier one drew.
"""

import contextlib
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import time

from blob_client import pattern, stub, upload
from flood import BESIDE_LIMIT_BYTES, MIB, PER_CONNECTION_BYTES, status_bytes
from methods import ATTACKED, BLOB, KEYS, LARGE_KEY, ON_DISK
from metrics_page import assert_calls_add_up, families
from pelton.v1 import admin_pb2, admin_pb2_grpc, kv_pb2_grpc
from pelton.v1 import kv_pb2 as pb
from server import Server, open_channel, wait_until

SEED = os.environ.get("PELTON_SEED", str(random.randrange(1 << 32)))
SECONDS = float(os.environ.get("PELTON_CHAOS_SECONDS", "15"))
QUIET_SECONDS = min(4.0, SECONDS)
# Of all attackers at a time; the honest ones have some fifteen.
CONNECTIONS = 80
HONEST_CONNECTIONS = 24
LIMIT_BYTES = 128 * MIB
# Few, and enough for all of these connections: with a thread for each, a connection has two.
DESCRIPTORS = {"event-loop": 400, "blocking": 700}
CONNECTION_BYTES = {"event-loop": PER_CONNECTION_BYTES, "blocking": MIB}
DRAIN_SECONDS = 3
HERE = pathlib.Path(__file__).resolve().parent
HONEST = ["honest-memory", "honest-disk"]

# What must be zero again when nobody is connected: gauges with one of these words in their names.
BUSY = r"running|streams|waiting|buffered|connections\[|buffers.*(input|output)|charged|held"


def run_beside(script, *arguments):
    """A process of clients; see `result_of`."""
    command = [sys.executable, str(HERE / script), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def result_of(process):
    output, errors = process.communicate(timeout=SECONDS + 300)
    assert process.returncode == 0, f"{process.args}: {errors}"
    return json.loads(output)


@contextlib.contextmanager
def ended_at_last(process):
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def fill(server):
    """What attackers ask for, and the databases of the honest."""
    with open_channel(server.address) as channel:
        kv, admin = kv_pb2_grpc.KeyValueStub(channel), admin_pb2_grpc.AdminStub(channel)
        for name in [*HONEST, ON_DISK]:
            on_disk = name.endswith("disk")
            database = admin_pb2.DatabaseDescription(
                name=name,
                kind=admin_pb2.DATABASE_KIND_DISK if on_disk else admin_pb2.DATABASE_KIND_MEMORY,
                durability=admin_pb2.DURABILITY_MODE_WRITTEN,
            )
            admin.CreateDatabase(admin_pb2.CreateDatabaseRequest(database=database))
        entries = [(LARGE_KEY, bytes(3_900_000))]
        entries += [(b"chaos/%d" % number, bytes(50_000)) for number in range(KEYS)]
        for database in ATTACKED:
            for key, value in entries:
                kv.Put(pb.PutRequest(database=database, key=key, value=value))
        upload(stub(channel), BLOB, pattern(3, 6 * MIB), chunk_bytes=MIB)


def samples(server):
    """Values by name with labels."""
    return {
        f"{sample.name}{sorted(sample.labels.items())}": sample.value
        for family in families(server)
        for sample in family.samples
        if family.type != "histogram"
    }


def busy(server):
    """Gauges that are not zero although nobody is connected."""
    return {name: value for name, value in samples(server).items() if is_busy(name) and value}


def is_busy(name):
    return "_total[" not in name and "limit" not in name and re.search(BUSY, name)


def open_descriptors(server):
    folder = f"/proc/{server.process.pid}/fd"
    found = []
    for name in os.listdir(folder):
        with contextlib.suppress(OSError):
            found.append(os.readlink(f"{folder}/{name}"))
    return found


def at_work(server):
    """What tells why something does not end: what readers have done, and what each thread does and
    has done."""
    found = [f"{name} {value:.0f}" for name, value in samples(server).items() if "reader" in name]
    for task in sorted(pathlib.Path(f"/proc/{server.process.pid}/task").iterdir()):
        with contextlib.suppress(OSError):
            name, stat = (task / "comm").read_text().strip(), (task / "stat").read_text()
            # Behind the name in brackets: the state first, and the ticks of user and system as 12th
            # and 13th.
            fields = stat.rpartition(")")[2].split()
            found.append(f"{name}: {fields[0]}, {fields[11]} + {fields[12]} ticks")
    return "\n".join(found)


def of_clients(server):
    """Descriptors that belong to some call or connection: sockets and contents of blobs."""
    return sum(link.startswith("socket:") or "/blobs/" in link for link in open_descriptors(server))


def total(found, name, **labels):
    return sum(
        value
        for key, value in found.items()
        if key.startswith(f"{name}[") and all(f"('{k}', '{v}')" in key for k, v in labels.items())
    )


def assert_nothing_is_left(server, sockets_before):
    wait_until(lambda: not busy(server), 60, lambda: f"not zero: {busy(server)}\n{at_work(server)}")
    wait_until(
        lambda: of_clients(server) <= sockets_before,
        60,
        lambda: f"{of_clients(server)} sockets and contents instead of {sockets_before}",
    )
    now = samples(server)
    opened = total(now, "pelton_connections_opened_total")
    closed = total(now, "pelton_connections_closed_total")
    assert opened == closed > CONNECTIONS, f"{opened} connections were opened, {closed} closed"
    assert_calls_add_up(families(server))
    for code in ["Internal", "INTERNAL", "DataLoss", "DATA_LOSS"]:
        label = f"('grpc_code', '{code}')"
        ended = [name for name, value in now.items() if value and label in name]
        assert not ended, f"{server.log()}\nno call may end with {code}: {ended}"
    return now


def assert_lives(server, connections):
    assert server.process.poll() is None, f"it ended ({server.process.poll()}):\n{server.log()}"
    assert "panicked" not in server.log(), server.log()
    peak = status_bytes(server.process.pid, "VmHWM")
    allowed = LIMIT_BYTES + BESIDE_LIMIT_BYTES + connections * CONNECTION_BYTES[server.driver]
    print(f"memory: at most {peak / MIB:.0f} MiB resident, {allowed / MIB:.0f} MiB allowed")
    return [] if peak <= allowed else [f"{peak / MIB:.0f} of {allowed / MIB:.0f} MiB resident"]


def told(what, summary):
    figures = "p50 {p50_ms} ms, p99 {p99_ms} ms, longest {longest_ms} ms ({longest})".format(
        **summary
    )
    print(f"{what}: {summary['calls']} calls, {len(summary['failures'])} failures, {figures}")


def test_chaos(binary, tmp_path):
    driver = os.environ.get("PELTON_TEST_DRIVER", "event-loop")
    seed = f"{SEED}/{driver}"
    print(f"seed {seed!r}")
    flags = ["--data", str(tmp_path / "data"), "--durability", "written"]
    flags += ["--memory-limit", str(LIMIT_BYTES), "--disk-cache", "8MiB", "--blob-quota", "300MiB"]
    flags += ["--backup-root", str(tmp_path / "backups"), "--interop", "--metrics-listen", "0"]
    flags += ["--drain-timeout", f"{DRAIN_SECONDS}s"]
    few = ["prlimit", f"--nofile={DESCRIPTORS[driver]}:{DESCRIPTORS[driver]}"]
    with Server(binary, *flags, prefix=few) as server:
        fill(server)
        wait_until(lambda: total(samples(server), "pelton_connections") == 0)
        sockets = of_clients(server)
        before = total(samples(server), "grpc_server_handled_total")
        quiet = result_of(honest(server, f"{seed}/quiet", QUIET_SECONDS))
        told("without chaos", quiet)
        assert not quiet["failures"], quiet["failures"][:5]
        counted = total(samples(server), "grpc_server_handled_total") - before
        assert counted == quiet["calls"], f"{counted} of {quiet['calls']} calls are counted"

        problems = attacked(server, seed)
        print("\n".join(problems))
        now = assert_nothing_is_left(server, sockets)
        told_of = re.compile("refused|evicted|closed")
        print({name: value for name, value in now.items() if told_of.search(name) and value})
        # A second time, after all that.
        again = result_of(honest(server, f"{seed}/after", 1.0))
        told("after chaos", again)
        problems += [f"after chaos: {one}" for one in again["failures"][:5]]
        stop_amid_attackers(server, seed)
        assert not problems, "\n".join(problems)


def honest(server, seed, seconds):
    return run_beside("honest.py", server.address, seed, seconds, *HONEST)


def attackers(server, seed, seconds):
    options = ["--seed", seed, "--seconds", seconds, "--connections", CONNECTIONS]
    return run_beside("attackers.py", server.address, *options)


def attacked(server, seed):
    """One round of chaos with honest clients beside. What went wrong."""
    good, bad = honest(server, f"{seed}/beside", SECONDS), attackers(server, seed, SECONDS)
    with ended_at_last(good), ended_at_last(bad):
        summary, attack = result_of(good), result_of(bad)
    told("beside chaos", summary)
    print(f"chaos, begun and closed by the server: {attack}")
    problems = assert_lives(server, CONNECTIONS + HONEST_CONNECTIONS)
    kinds = sorted({re.sub(r"\d+", "N", one) for one in summary["failures"]})
    problems += [f"{len(summary['failures'])} honest calls failed, such as"] if kinds else []
    return problems + kinds[:8]


def stop_amid_attackers(server, seed):
    with ended_at_last(attackers(server, f"{seed}/stop", 60)):
        before = total(samples(server), "pelton_connections_opened_total")

        def is_under_attack():
            opened = total(samples(server), "pelton_connections_opened_total") - before
            return opened > 2 * CONNECTIONS

        wait_until(is_under_attack, 60)
        begin = time.monotonic()
        assert server.stop() == 0, server.log()
        took = time.monotonic() - begin
        # The rest is for writing what is to last, and for a busy machine.
        assert took < DRAIN_SECONDS + 15, f"the stop took {took:.1f} s"
        print(f"the stop amid chaos took {took:.1f} s")
