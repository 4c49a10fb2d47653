"""Batches of thousands of operations from many connections at once: they take turns, so memory
stays bounded, each is answered, and small calls go on beside them."""

import pytest
from flood import MIB, Flood, Honest, status_bytes
from metrics_page import wait_until_calls_add_up
from pelton.v1 import kv_pb2 as pb
from server import Server, wait_until

CONNECTIONS = 60
BATCHES = 3
OPERATIONS = 10_000
# What a thread keeps of pages of every block size that it has used, with the blocking driver; the
# loops of the other driver are few.
PER_CONNECTION_BYTES = MIB


def batch():
    keys = [b"%d" % number for number in range(OPERATIONS)]
    puts = [pb.Operation(put=pb.Operation.Put(key=key)) for key in keys]
    return pb.BatchRequest(operations=puts).SerializeToString()


@pytest.mark.parametrize("goes", [False, True])
def test_large_batches_of_many_connections(binary, tmp_path, goes):
    flags = ["--data", str(tmp_path / "data"), "--memory-limit", "64MiB", "--metrics-listen", "0"]
    with Server(binary, *flags) as server:
        for _ in range(2):
            floods = [open_flood(server) for _ in range(CONNECTIONS)]
            with Honest(server.address) as honest:
                for flood in floods:
                    flood.calls("/pelton.v1.KeyValue/Batch", batch(), BATCHES)
                if not goes:
                    wait_until(lambda floods=floods: have_ended(floods), 120)
                    for flood in floods:
                        assert flood.statuses() == {0: BATCHES}
                for flood in floods:
                    flood.socket.close()
                honest.wait_rounds(5)
            assert not honest.problems()
        peak = status_bytes(server.process.pid, "VmHWM")
        allowed = (64 + 64) * MIB + CONNECTIONS * PER_CONNECTION_BYTES
        assert peak <= allowed, f"{peak / MIB:.0f} MiB, {allowed / MIB:.0f} MiB are allowed"
        wait_until_calls_add_up(server)
        assert server.stop() == 0, server.log()


def open_flood(server):
    return Flood(server.address, window=MIB, connection_window=BATCHES * MIB)


def have_ended(floods):
    for flood in floods:
        flood.poll()
    return all(flood.ended() == BATCHES for flood in floods)
