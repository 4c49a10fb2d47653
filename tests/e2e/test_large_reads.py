"""Reads of values above 4 MB of a database on disk take memory that was claimed before.

A reader claims what its next call needs, as the index of each table says, before a block is read.
"""

import os

import grpc
import pytest
from flood import MIB, Flood, Honest, judge, status_bytes
from pelton.v1 import kv_pb2 as pb
from pelton.v1 import kv_pb2_grpc
from raw import grpc_message
from server import Server, wait_until

VALUE_BYTES = 16_000_000
VALUES = 8
CONNECTIONS = 100
LIMIT_MIB = 256


@pytest.fixture(scope="module")
def flags(binary, tmp_path_factory):
    """Of a server whose large values are in tables, each in one block with some small ones."""
    folder = tmp_path_factory.mktemp("large-reads")
    flags = ["--data", str(folder / "data"), "--kind", "disk", "--durability", "written"]
    flags += ["--disk-cache", "8MiB", "--max-value", "16MiB"]
    flags += ["--memory-limit", f"{LIMIT_MIB}MiB"]
    with Server(binary, *flags) as server:
        options = [("grpc.max_send_message_length", -1)]
        with grpc.insecure_channel(server.address, options=options) as channel:
            kv = kv_pb2_grpc.KeyValueStub(channel)
            for number in range(VALUES):
                for small in range(5):
                    kv.Put(pb.PutRequest(key=b"%d/a%d" % (number, small), value=b"s" * 300))
                kv.Put(pb.PutRequest(key=b"%d/b" % number, value=os.urandom(VALUE_BYTES)))
        assert server.stop() == 0
    return flags


def get(number):
    return pb.GetRequest(key=b"%d/b" % number)


def gets(number):
    keys = [b"%d/b" % ((number + more) % VALUES) for more in range(4)]
    operations = [pb.Operation(get=pb.Operation.Get(key=key)) for key in keys]
    return pb.BatchRequest(operations=operations)


def small_scan(number):
    """What it shows is small, and lies in the block of a large value."""
    return pb.ScanRequest(prefix=b"%d/a" % number)


def large_scan(number):
    return pb.ScanRequest(prefix=b"%d/" % number, direction=pb.DIRECTION_BACKWARD)


def count(_):
    return pb.CountRequest()


@pytest.mark.parametrize(
    ("method", "request_of"),
    [("Get", get), ("Batch", gets), ("Scan", small_scan), ("Scan", large_scan), ("Count", count)],
    ids=["get", "batch", "small-scan", "large-scan", "count"],
)
def test_reads_of_large_values_stay_within_the_memory(binary, flags, method, request_of):
    with Server(binary, *flags) as server:
        with Honest(server.address) as honest:
            floods = [Flood(server.address, window=65_535) for _ in range(CONNECTIONS)]
            for at, flood in enumerate(floods):

                def message(number, at=at):
                    request = request_of((at + number) % VALUES)
                    return grpc_message(request.SerializeToString())

                flood.calls(f"/pelton.v1.KeyValue/{method}", message, 4)
            for _ in range(2):
                honest.wait_rounds(5, 120)
                for flood in floods:
                    flood.poll(0.01)
        judge(server, LIMIT_MIB * MIB, CONNECTIONS + 4, honest)
        for flood in floods:
            flood.socket.close()
        pid = server.process.pid
        wait_until(
            lambda: status_bytes(pid, "VmRSS") < (LIMIT_MIB // 2 + 64) * MIB,
            60,
            "memory is not given back",
        )
        assert server.stop() == 0, server.log()
