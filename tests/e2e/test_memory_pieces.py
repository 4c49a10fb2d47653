"""Memory that removed entries leave in pieces comes back without a restart.

Entries of one size fill memory, and all of them are removed again but for one here and there, which
keeps a page of the allocator that entries of no other size fit into. Size after size, that makes
the process take many times the limit, and writers are refused, unless what is left is moved
together.
"""

import grpc
import pytest
from flood import MIB, Honest, status_bytes
from pelton.v1 import admin_pb2, admin_pb2_grpc, kv_pb2_grpc
from pelton.v1 import kv_pb2 as pb
from server import Server, open_channel, wait_until

LIMIT_BYTES = 64 * MIB
# What the process has beside its data when entries were moved together: half of what it may have,
# and something for what comes while that is looked at.
BESIDE_BYTES = 32 * MIB + 16 * MIB
# The sizes of values in two turns, each far from the one before for the allocator.
TURNS = [[16, 100, 420, 1900], [48, 200, 900, 3900]]
OPERATIONS = 8_000


class Writer:
    """Who fills memory size after size."""

    def __init__(self, server, channel, durability):
        self.server = server
        self.kv = kv_pb2_grpc.KeyValueStub(channel)
        self.admin = admin_pb2_grpc.AdminStub(channel)
        self.description = admin_pb2.DatabaseDescription(name="pieces", durability=durability)

    def create(self):
        request = admin_pb2.CreateDatabaseRequest(database=self.description)
        assert self.admin.CreateDatabase(request).created

    def drop(self):
        request = admin_pb2.DropDatabaseRequest(name="pieces", confirm_name="pieces")
        self.admin.DropDatabase(request)

    def batch(self, operations):
        self.kv.Batch(pb.BatchRequest(database="pieces", operations=operations), timeout=120)

    def fill(self, size):
        """Puts entries until memory is full; returns how many, and why there are no more."""
        count = max(1, min(OPERATIONS, 2_000_000 // (size + 30)))
        number = 0
        while True:
            puts = [
                pb.Operation(put=pb.Operation.Put(key=key(size, at), value=b"x" * size))
                for at in range(number, number + count)
            ]
            try:
                self.batch(puts)
            except grpc.RpcError as error:
                assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED, error
                return number, error.details()
            number += count

    def remove_most(self, size, number):
        """Keeps one entry in each two pages of the system, or every second one."""
        kept = max(2, 8192 // (size + 40))
        gone = [key(size, at) for at in range(number) if at % kept]
        for at in range(0, len(gone), OPERATIONS):
            some = gone[at : at + OPERATIONS]
            self.batch([pb.Operation(delete=pb.Operation.Delete(key=one)) for one in some])
        return range(0, number, kept)

    def taken(self):
        """What the process takes, and what its data."""
        statistics = self.admin.Statistics(admin_pb2.StatisticsRequest())
        return status_bytes(self.server.process.pid, "RssAnon"), statistics.memory_bytes

    def is_in_order(self):
        process_bytes, data_bytes = self.taken()
        return process_bytes <= data_bytes + BESIDE_BYTES

    def look(self, size, kept):
        """What was moved is what it was."""
        found = self.kv.Scan(pb.ScanRequest(database="pieces", prefix=b"%d/" % size), timeout=60)
        entries = [(entry.key, entry.value) for page in found for entry in page.entries]
        assert entries == [(key(size, at), b"x" * size) for at in kept]


def key(size, at):
    return b"%d/%09d" % (size, at)


@pytest.mark.parametrize("durability", ["VOLATILE", "WRITTEN"])
def test_memory_in_pieces_comes_back(binary, tmp_path, durability):
    flags = ["--memory-limit", "64MiB", "--data", str(tmp_path / "data")]
    mode = getattr(admin_pb2, f"DURABILITY_MODE_{durability}")
    with (
        Server(binary, *flags, "--durability", "volatile") as server,
        open_channel(server.address) as channel,
        open_channel(server.address) as others,
    ):
        writer = Writer(server, channel, mode)
        other = kv_pb2_grpc.KeyValueStub(others)
        for sizes in TURNS:
            writer.create()
            kept = {}
            for size in sizes:
                number, why = writer.fill(size)
                assert "its process takes" not in why, f"size {size}: {why}"
                assert number > 0
                kept[size] = writer.remove_most(size, number)
                # The thread that serves the writer has nothing to do from now on.
                with Honest(server.address) as honest:
                    wait_until(
                        writer.is_in_order, 60, lambda: f"it takes, of data: {writer.taken()}"
                    )
                assert not honest.problems()
                print(f"{size}: {number} entries, then {writer.taken()} bytes")
                other.Put(pb.PutRequest(key=b"key", value=b"v" * 1_000_000))
                other.Delete(pb.DeleteRequest(key=b"key"))
            for size, numbers in kept.items():
                writer.look(size, numbers)
            writer.drop()
        assert server.stop() == 0
