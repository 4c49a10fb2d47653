"""Databases on disk under hardship: kills in the midst of conversions, and more data than the
memory limit.

PELTON_KILL_ROUNDS / 4 conversions are killed (25); PELTON_KILL_SEED repeats the choices of an
earlier run, not its moments. That everything acknowledged outlives a kill is in test_kill.py, for
databases of both kinds.
"""

import os
import random
import threading
import time

import grpc
from pelton.v1 import admin_pb2, admin_pb2_grpc, kv_pb2_grpc
from pelton.v1 import kv_pb2 as pb
from server import Server, open_channel, wait_until
from writers import DISK_KIND, KINDS, MEMORY_KIND, put

ROUNDS = max(4, int(os.environ.get("PELTON_KILL_ROUNDS", "100")) // 4)
SEED = os.environ.get("PELTON_KILL_SEED", str(random.randrange(1 << 32)))
SECONDS = 60


def stubs(channel):
    return kv_pb2_grpc.KeyValueStub(channel), admin_pb2_grpc.AdminStub(channel)


def create(admin, name, kind):
    description = admin_pb2.DatabaseDescription(name=name, kind=kind)
    assert admin.CreateDatabase(admin_pb2.CreateDatabaseRequest(database=description)).created


def kind_of(admin, name):
    databases = admin.ListDatabases(admin_pb2.ListDatabasesRequest(), timeout=SECONDS).databases
    return next(one.database.kind for one in databases if one.database.name == name)


def content(kv, database, **request):
    pages = kv.Scan(pb.ScanRequest(database=database, **request), timeout=SECONDS)
    return {e.key: (e.value, e.version, e.expires_at_ms) for page in pages for e in page.entries}


class Conversion(threading.Thread):
    """Notes whether it was told that it is done."""

    def __init__(self, admin, kind):
        super().__init__(daemon=True)
        self.admin, self.kind = admin, kind
        self.is_told, self.failure = False, None

    def run(self):
        try:
            request = admin_pb2.ConvertDatabaseRequest(name="moves", kind=self.kind)
            for progress in self.admin.ConvertDatabase(request, timeout=SECONDS):
                self.is_told = progress.complete
        except grpc.RpcError as error:
            if error.code() != grpc.StatusCode.UNAVAILABLE:
                self.failure = error


def fill(kv, count):
    for start in range(0, count, 1_000):
        operations = [
            put(b"%06d" % number, b"value of %d " % number * 5)
            for number in range(start, start + 1_000)
        ]
        operations[0].put.time_to_live_ms = 3_600_000
        assert kv.Batch(
            pb.BatchRequest(database="moves", operations=operations), timeout=SECONDS
        ).applied


def test_a_conversion_is_done_or_not_whenever_the_server_dies(binary, tmp_path):
    print(f"PELTON_KILL_SEED={SEED}")
    source, folder = random.Random(SEED), tmp_path / "data"
    kind, longest, ends, conversion = MEMORY_KIND, 0.0, {}, None
    with Server(binary, "--data", str(folder)) as server, open_channel(server.address) as channel:
        kv, admin = stubs(channel)
        create(admin, "moves", kind)
        fill(kv, 20_000)
        expected = content(kv, "moves")
        # How long it takes, there and back.
        for other in KINDS[::-1]:
            begin = time.monotonic()
            assert list(
                admin.ConvertDatabase(
                    admin_pb2.ConvertDatabaseRequest(name="moves", kind=other), timeout=SECONDS
                )
            )[-1].converted
            longest = max(longest, time.monotonic() - begin)
        assert server.stop() == 0, server.log()
    for number in range(ROUNDS):
        with (
            Server(binary, "--data", str(folder)) as server,
            open_channel(server.address) as channel,
        ):
            kv, admin = stubs(channel)
            found = kind_of(admin, "moves")
            if conversion:
                assert found == conversion.kind or not conversion.is_told, (
                    "a conversion was taken back"
                )
                end = (
                    "told"
                    if conversion.is_told
                    else "done"
                    if found == conversion.kind
                    else "not done"
                )
                ends[end] = ends.get(end, 0) + 1
            kind = found
            assert content(kv, "moves") == expected, f"round {number}"
            # Nothing is left of conversions that came to nothing; what a snapshot does not have yet
            # is kept.
            assert len(os.listdir(folder / "trees")) <= 2, os.listdir(folder / "trees")
            key, value = b"%06d" % source.randrange(20_000), b"round %d" % number
            answer = kv.Put(
                pb.PutRequest(database="moves", key=key, value=value, if_version=expected[key][1]),
                timeout=SECONDS,
            )
            assert answer.applied, (key, answer, expected[key])
            expected[key] = (value, answer.version, 0)
            wanted = MEMORY_KIND if kind == DISK_KIND else DISK_KIND
            conversion = Conversion(admin, wanted)
            conversion.start()
            time.sleep(source.uniform(0, 1.1 * longest))
            assert server.process.poll() is None, server.log()
            server.kill()
            conversion.join(SECONDS)
            assert conversion.failure is None, conversion.failure
    with Server(binary, "--data", str(folder)) as server, open_channel(server.address) as channel:
        kv, admin = stubs(channel)
        kind = kind_of(admin, "moves")
        assert content(kv, "moves") == expected
        admin.Snapshot(admin_pb2.SnapshotRequest(), timeout=SECONDS)
        assert server.stop() == 0, server.log()
    left = os.listdir(folder / "trees")
    assert len(left) == (kind == DISK_KIND), left
    print(f"{ROUNDS} conversions killed, the longest takes {longest:.2f} s: {ends}")


LIMIT_BYTES = 64 << 20
DATA_BYTES = 4 * LIMIT_BYTES
VALUE_BYTES = 1_000


def test_more_data_than_the_memory_limit(binary, tmp_path):
    flags = ["--memory-limit", f"{LIMIT_BYTES >> 20}MiB", "--disk-cache", "8MiB"]
    folder, count = str(tmp_path / "data"), DATA_BYTES // VALUE_BYTES
    source = random.Random(1)
    order = source.sample(range(count), count)
    with (
        Server(binary, "--data", folder, *flags) as server,
        open_channel(server.address) as channel,
    ):
        kv, admin = stubs(channel)
        create(admin, "large", DISK_KIND)
        for start in range(0, count, 500):
            load(kv, order[start : start + 500])
        check_large(kv, source, count)
        # Databases in memory still have room.
        assert kv.Put(pb.PutRequest(key=b"key", value=bytes(1_000_000)), timeout=SECONDS).applied
        peak_bytes = peak_resident_bytes(server)
        server.kill()
    with (
        Server(binary, "--data", folder, *flags) as server,
        open_channel(server.address) as channel,
    ):
        kv, admin = stubs(channel)
        check_large(kv, source, count)
        peak_again = peak_resident_bytes(server)
        assert server.stop() == 0, server.log()
    print(
        f"{count * VALUE_BYTES} bytes of values, limit {LIMIT_BYTES}: at most {peak_bytes} "
        f"resident, after a restart {peak_again}"
    )
    # The limit, and what buffers and the cache may take beside it.
    assert max(peak_bytes, peak_again) < 2 * LIMIT_BYTES


def value_of(number):
    return random.Random(number).randbytes(VALUE_BYTES)


def load(kv, numbers):
    """Writes, again where the server asks to wait: it is told to be behind with what it has to
    write."""
    operations = [put(b"%08d" % number, value_of(number)) for number in numbers]
    request = pb.BatchRequest(database="large", operations=operations)

    def is_done():
        try:
            return kv.Batch(request, timeout=SECONDS).applied
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.UNAVAILABLE, error
            return False

    wait_until(is_done, SECONDS)


def check_large(kv, source, count):
    answer = kv.Count(pb.CountRequest(database="large"), timeout=SECONDS)
    assert (answer.count, answer.exact) == (count, True)
    for number in source.sample(range(count), 500):
        assert kv.Get(
            pb.GetRequest(database="large", key=b"%08d" % number), timeout=SECONDS
        ).value == value_of(number)
    begin = source.randrange(count - 2_000)
    wanted = pb.KeyRange(start=b"%08d" % begin, end=b"%08d" % (begin + 2_000))
    for direction in (pb.DIRECTION_FORWARD, pb.DIRECTION_BACKWARD):
        found = content(kv, "large", range=wanted, direction=direction)
        expected = [(b"%08d" % number, value_of(number)) for number in range(begin, begin + 2_000)]
        if direction == pb.DIRECTION_BACKWARD:
            expected.reverse()
        assert [(key, value) for key, (value, _, _) in found.items()] == expected


def peak_resident_bytes(server):
    with open(f"/proc/{server.process.pid}/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))
