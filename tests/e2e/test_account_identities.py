"""What one token makes a server hold is bounded, from however many addresses and connections.

Another token's calls succeed all the while, and everything is given back.
"""

import subprocess

import pytest
from flood import MIB, Flood, Honest, judge
from metrics_page import counter
from pelton.v1 import echo_pb2, echo_pb2_grpc, kv_pb2
from raw import MAX_WINDOW
from server import Server, wait_until

GOOD = "pelton_" + "A" * 43
ECHO = "/pelton.v1.Echo/Unary"
PIPE = "/pelton.v1.KeyValue/Pipe"
LARGE_BYTES = 3_000_000
# Each is an address to the server, and none has half of the account.
SOURCES = [f"127.0.0.{number}" for number in range(2, 18)]


@pytest.fixture
def running(binary, tmp_path):
    """A server with tokens that may write and read, and the tokens."""
    admin = tmp_path / "admin"
    admin.write_text(GOOD)
    admin.chmod(0o600)
    flags = ["--admin-token-file", str(admin), "--metrics-listen", "127.0.0.1:0"]
    flags += ["--memory-limit", "128MiB", "--threads", "2"]
    with Server(binary, *flags, listen=["127.0.0.1:0+anonymous=none"]) as server:
        tokens = {}
        for name in ("greedy", "honest"):
            words = ["token", "create", name, "--rights", "write:default"]
            words += ["--address", server.address, "--token-file", str(admin)]
            made = subprocess.run([binary, *words], check=True, capture_output=True, text=True)
            tokens[name] = ("authorization", f"Bearer {made.stdout.strip()}")
        yield server, tokens
        assert server.stop() == 0, server.log()


def buffered(server):
    return counter(server, "pelton_buffered_bytes")


def large_echo(metadata):
    def call(channel):
        request = echo_pb2.EchoRequest(answer_bytes=LARGE_BYTES)
        echo = echo_pb2_grpc.EchoStub(channel)
        answer = echo.Unary(request, timeout=30, metadata=metadata)
        assert len(answer.payload) == LARGE_BYTES

    return call


def test_downloads_that_are_not_read_leave_others_half_of_the_account(running):
    server, tokens = running
    limit = counter(server, "pelton_buffered_limit_bytes")
    assert limit == 32 * MIB
    message = echo_pb2.EchoRequest(answer_bytes=MIB).SerializeToString()
    metadata = [tokens["honest"]]
    call = large_echo(metadata)
    for _ in range(2):
        with Honest(server.address, call=call, metadata=metadata) as honest:
            floods = [
                Flood(server.address, MAX_WINDOW, MAX_WINDOW, 16_384, source) for source in SOURCES
            ]
            for flood in floods:
                flood.calls(ECHO, message, 8, tokens["greedy"])
            wait_until(lambda: buffered(server) > limit // 4)
            most = 0
            for _ in range(20):
                honest.wait_rounds(2)
                most = max(most, buffered(server))
            # With what the honest ones are being sent, and one answer that each loop makes.
            assert most < limit * 3 // 4, f"{most / MIB:.1f} MiB"
            for flood in floods:
                flood.socket.close()
        judge(server, 128 * MIB, 2 * len(SOURCES), honest)
        wait_until(lambda: buffered(server) == 0, 60)
        wait_until(lambda: counter(server, "pelton_running_calls") == 0)


def test_calls_that_are_held_and_writes_of_one_token_leave_others_their_own(running):
    server, tokens = running
    metadata = [tokens["honest"]]
    put = kv_pb2.Operation(put=kv_pb2.Operation.Put(key=b"k", value=b"x" * 100_000))
    message = kv_pb2.PipeRequest(operations=[put] * 4).SerializeToString()
    for _ in range(2):
        with Honest(server.address, metadata=metadata) as honest:
            floods = [Flood(server.address, source=source) for source in SOURCES]
            for flood in floods:
                flood.calls(PIPE, message, 50, tokens["greedy"], end=False)
            wait_until(lambda: counter(server, "pelton_running_calls") > 0)
            honest.wait_rounds(40)
            for flood in floods:
                flood.socket.close()
        judge(server, 128 * MIB, 2 * len(SOURCES), honest)
        wait_until(lambda: counter(server, "pelton_running_calls") == 0, 60)
        wait_until(lambda: buffered(server) == 0, 60)
