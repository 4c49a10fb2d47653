"""Many large requests in flight: each comes in its turn, all are answered, and memory stays
bounded. Progress is counted, not timed."""

import json
import subprocess

import grpc
import pytest
from pelton.v1 import kv_pb2 as pb
from pelton.v1 import kv_pb2_grpc
from server import Server

MIB = 1 << 20
NO_LIMIT = [("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]


def put_all(address, channels, in_flight, rounds, size_bytes):
    """Puts from several channels, so many at a time on each; how many were done."""
    done = 0
    opened = [grpc.insecure_channel(address, options=NO_LIMIT) for _ in range(channels)]
    try:
        stubs = [kv_pb2_grpc.KeyValueStub(channel) for channel in opened]
        for turn in range(rounds):
            value = bytes([turn]) * size_bytes
            calls = [
                stub.Put.future(pb.PutRequest(key=b"%d" % number, value=value), timeout=300)
                for stub in stubs
                for number in range(in_flight)
            ]
            for call in calls:
                call.result()
                done += 1
        assert stubs[0].Count(pb.CountRequest(), timeout=60).count == in_flight
    finally:
        for channel in opened:
            channel.close()
    return done


@pytest.mark.parametrize("size_bytes", [100_000, 3 * MIB, 10 * MIB])
def test_large_puts_in_flight_all_end(binary, size_bytes):
    with Server(
        binary, "--durability", "volatile", "--max-value", "16MiB", "--memory-limit", "256MiB"
    ) as server:
        assert (
            put_all(server.address, channels=4, in_flight=6, rounds=2, size_bytes=size_bytes) == 48
        )
        assert server.stop() == 0


def test_large_puts_of_one_connection_all_end(binary):
    """More at a time than may be unfinished on a connection: windows are opened for some, and no
    call ends for the others."""
    with Server(
        binary, "--durability", "volatile", "--max-value", "16MiB", "--memory-limit", "1GiB"
    ) as server:
        shape = ["--connections", "1", "--in-flight", "16", "--value-size", "10MiB", "--keys", "4"]
        command = [
            binary,
            "load",
            "--address",
            server.address,
            "--mix",
            "put=100",
            *shape,
            "--calls",
            "40",
            "--warm-up",
            "0s",
            "--output",
            "json",
        ]
        # Its exit code would also say that the generator was the limit, as with these sizes it may
        # be.
        result = subprocess.run(command, capture_output=True, text=True, timeout=600)
        figures = json.loads(result.stdout)
        assert (figures["calls"], figures["failures"], figures["unfinished"]) == (40, 0, 0), (
            figures["first_failure"]
        )
        assert server.stop() == 0


def test_large_puts_end_where_memory_is_short(binary):
    """The memory for requests on their way, a quarter of the limit, takes a few of them at a time:
    16 of 72 MiB."""
    with Server(
        binary, "--durability", "volatile", "--max-value", "4MB", "--memory-limit", "64MiB"
    ) as server:
        assert put_all(server.address, channels=4, in_flight=6, rounds=2, size_bytes=3 * MIB) == 48
        assert server.stop() == 0
