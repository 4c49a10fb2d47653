"""A thread for each connection or an event loop: any number of connections is served at once.

With `--driver blocking` threads come and go with connections, and `--threads` bounds the calls
that compute, not those that wait.
"""

import os
import threading
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from pelton.v1 import admin_pb2, admin_pb2_grpc, kv_pb2_grpc
from pelton.v1 import kv_pb2 as pb
from server import Server, open_channel, wait_until

CONNECTIONS = 200


def figures(server):
    """Connections and calls, the question itself left out, whose call may not be shown yet."""
    with open_channel(server.address) as channel:
        admin = admin_pb2_grpc.AdminStub(channel)
        found = admin.Statistics(admin_pb2.StatisticsRequest(), timeout=60)
    return found.open_connections - 1, found.running_calls


def threads(server):
    return len(os.listdir(f"/proc/{server.process.pid}/task"))


def are_shown(server, count):
    connections, calls = figures(server)
    return connections == count and calls - count in (0, 1)


def watch(channel):
    call = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
    assert next(call).status == health_pb2.HealthCheckResponse.SERVING
    return call


def pipe(channel, ends):
    """A stream of batches that has brought one and waits for its caller."""

    def batches():
        yield pb.PipeRequest(operations=[pb.Operation(get=pb.Operation.Get(key=b"k"))])
        ends.wait()

    call = kv_pb2_grpc.KeyValueStub(channel).Pipe(batches())
    assert next(call).done == 1
    return call


def test_calls_beside_an_idle_stream_on_each_of_many_connections(binary, tmp_path):
    flags = ["--threads", "2", "--data", str(tmp_path / "data")]
    with Server(binary, *flags) as server:
        before = threads(server)
        for round_number in range(2):
            ends = threading.Event()
            channels = [open_channel(server.address) for _ in range(CONNECTIONS)]
            streams = []
            for number, channel in enumerate(channels):
                streams.append(pipe(channel, ends) if number % 2 else watch(channel))
            for number, channel in enumerate(channels):
                kv = kv_pb2_grpc.KeyValueStub(channel)
                key = b"%d/%d" % (round_number, number)
                assert kv.Put(pb.PutRequest(key=key, value=key), timeout=60).version
                assert kv.Get(pb.GetRequest(key=key), timeout=60).value == key
            assert are_shown(server, CONNECTIONS), figures(server)
            if server.driver == "blocking":
                assert threads(server) > CONNECTIONS
            for stream in streams:
                stream.cancel()
            ends.set()
            for channel in channels:
                channel.close()
            wait_until(lambda: are_shown(server, 0), 60, lambda: f"{figures(server)} are left")
        # Those that stay: eight of the driver, and what the store has begun meanwhile.
        wait_until(lambda: threads(server) <= before + 20, 60, "idle threads do not end")
        with open_channel(server.address) as channel:
            kv = kv_pb2_grpc.KeyValueStub(channel)
            assert kv.Count(pb.CountRequest()).count == 2 * CONNECTIONS
        assert server.stop() == 0


def test_a_stop_with_an_idle_stream_on_each_of_many_connections(binary):
    with Server(binary, "--threads", "2") as server:
        channels = [open_channel(server.address) for _ in range(CONNECTIONS)]
        streams = [watch(channel) for channel in channels]
        # Before --drain-timeout is over: the exit code says so.
        assert server.stop() == 0, server.log()
        for stream in streams:
            try:
                statuses = [answer.status for answer in stream]
                code = None
            except grpc.RpcError as error:
                statuses, code = [], error.code()
            assert code == grpc.StatusCode.UNAVAILABLE, (statuses, code)
        for channel in channels:
            channel.close()


@pytest.mark.parametrize("size", [100, 256 << 10])
def test_an_idle_connection_takes_little_memory(binary, size):
    """Each has got and put a value before it fell idle, so that its buffers have been large."""
    with Server(binary) as server:
        value = b"v" * size
        with open_channel(server.address) as channel:
            kv_pb2_grpc.KeyValueStub(channel).Put(pb.PutRequest(key=b"k", value=value))

        def resident():
            status = Path(f"/proc/{server.process.pid}/status").read_text()
            line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
            return int(line.split()[1]) * 1024

        before = resident()
        channels = [open_channel(server.address) for _ in range(CONNECTIONS)]
        for channel in channels:
            kv = kv_pb2_grpc.KeyValueStub(channel)
            assert len(kv.Get(pb.GetRequest(key=b"k"), timeout=60).value) == len(value)
            kv.Put(pb.PutRequest(key=b"k", value=value), timeout=60)

        each = (resident() - before) // CONNECTIONS
        print(f"{each} bytes for each connection")
        # With a thread for each: its stack, and what the allocator keeps of what it has freed.
        assert each <= (2 << 20 if size > 100_000 else 200 << 10)
        for channel in channels:
            channel.close()
        assert server.stop() == 0
