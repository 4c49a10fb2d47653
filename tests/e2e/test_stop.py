"""Stopping: each signal, under load, with open streams of every kind and half-sent messages.

Each call ends exactly once with a status, and the exit code is 0.
"""

import json
import os
import signal
import socket
import subprocess
import threading
import time

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from pelton.v1 import echo_pb2, echo_pb2_grpc, kv_pb2_grpc
from pelton.v1 import kv_pb2 as pb
from raw import DATA, END_STREAM, SETTINGS, Connection, frame, grpc_message
from server import Server, catches, open_channel, wait_until

ROUNDS = int(os.environ.get("PELTON_STOP_ROUNDS", "50"))
SIGNALS = [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT]
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE.value[0]

# Longer than a stopping server may take when nobody holds it up.
STOP_SECONDS = 15

# StreamingOutputCallRequest with one response of one byte (field 2: response_parameters, in it
# field 1: size).
ONE_BYTE_BACK = b"\x12\x02\x08\x01"


class Load(threading.Thread):
    """A client that calls and calls until the server is gone."""

    def __init__(self, address, number):
        super().__init__(daemon=True)
        self.address = address
        self.key = b"load/%d" % number
        self.succeeded = 0
        self.last_written = 0
        self.failure = None

    def run(self):
        try:
            with open_channel(self.address) as channel:
                self.call(kv_pb2_grpc.KeyValueStub(channel))
        except BaseException as failure:  # noqa: B902 - the test looks at it
            self.failure = failure

    def call(self, kv):
        while True:
            # Several at once, so that some are always on their way. The order of the writes is not
            # known, so that all write the same number.
            number = self.last_written + 1
            put = pb.PutRequest(key=self.key, value=b"%d" % number)
            calls = [kv.Put.future(put, timeout=STOP_SECONDS) for _ in range(8)]
            calls += [
                kv.Get.future(pb.GetRequest(key=self.key), timeout=STOP_SECONDS) for _ in range(8)
            ]
            codes = [call.code() for call in calls]
            if grpc.StatusCode.OK in codes[:8]:
                self.last_written = number
            self.succeeded += codes.count(grpc.StatusCode.OK)
            if set(codes) != {grpc.StatusCode.OK}:
                assert set(codes) <= {grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE}, codes
                return


class RawLoad(threading.Thread):
    """The same frame by frame, to see what becomes of each stream."""

    def __init__(self, address):
        super().__init__(daemon=True)
        self.connection = Connection(address)
        self.failure = None

    def run(self):
        try:
            self.call()
        except BaseException as failure:  # noqa: B902 - the test looks at it
            self.failure = failure

    def call(self):
        connection, window = self.connection, 32
        while not connection.closed and not connection.goaways:
            open_streams = sum(not answer.over for answer in connection.answers.values())
            frames = b""
            for _ in range(window - open_streams):
                stream, head = connection.request("/pelton.v1.KeyValue/Get")
                frames += head + frame(DATA, END_STREAM, stream, grpc_message(b""))
            connection.send_quietly(frames)
            connection.read(0.2)
            self.forget_ended()
        while not connection.closed:
            assert connection.read(STOP_SECONDS) or connection.closed, (
                "the server keeps the connection open"
            )
        last_stream = connection.goaways[-1][0]
        for stream, answer in connection.answers.items():
            # RFC 9113 section 6.8: streams above the last one were not and will not be processed.
            if stream <= last_stream:
                assert_ended_once(answer)

    def forget_ended(self):
        for stream, answer in list(self.connection.answers.items()):
            if answer.over and len(self.connection.answers) > 500:
                assert_ended_once(answer)
                assert answer.grpc_status == 0
                # What comes after the end would be noticed as a frame of an unknown stream.
                del self.connection.answers[stream]


def assert_ended_once(answer):
    assert answer.ends == 1, f"ended {answer.ends} times, resets {answer.resets}"
    assert answer.grpc_status in (0, UNAVAILABLE), f"{answer.grpc_status} {answer.grpc_message}"
    # After its end a stream may be reset with NO_ERROR, to ask the client to stop sending (RFC 9113
    # section 8.1).
    assert answer.resets in ([], [0])


def open_health_watch(channel):
    call = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
    assert next(call).status == health_pb2.HealthCheckResponse.SERVING
    return call


def open_full_duplex(channel, gate):
    """A bidirectional call after its first exchange, waiting for its client."""

    def requests():
        yield ONE_BYTE_BACK
        gate.wait(STOP_SECONDS)

    call = channel.stream_stream("/grpc.testing.TestService/FullDuplexCall")(requests())
    next(call)
    return call


def open_scan(channel):
    """A scan of 8 MB of which one page was read."""
    call = kv_pb2_grpc.KeyValueStub(channel).Scan(pb.ScanRequest(prefix=b"scan/"))
    next(call)
    return call


def open_echo_stream(channel, gate):
    def requests():
        yield echo_pb2.EchoRequest(payload=b"first")
        gate.wait(STOP_SECONDS)

    call = echo_pb2_grpc.EchoStub(channel).Stream(requests())
    assert next(call).payload == b"first"
    return call


def open_half_sent(connection):
    """Streams on which a head, a part of a message's own head, or a part of a message has come and
    no more."""
    empty = grpc_message(b"")
    streams = []
    for path in [
        "/grpc.testing.TestService/FullDuplexCall",
        "/grpc.testing.TestService/StreamingInputCall",
        "/grpc.testing.TestService/StreamingOutputCall",
        "/pelton.v1.Echo/Stream",
        "/pelton.v1.KeyValue/Put",
        "/pelton.v1.KeyValue/Scan",
    ]:
        for part in [b"", empty[:3], grpc_message(bytes(1000))[:500]]:
            stream, head = connection.request(path)
            connection.send(head + (frame(DATA, 0, stream, part) if part else b""))
            streams.append(stream)
    for path in [
        "/grpc.testing.TestService/FullDuplexCall",
        "/grpc.testing.TestService/StreamingInputCall",
    ]:
        # One whole message, half of a second.
        stream, head = connection.request(path)
        connection.send(head + frame(DATA, 0, stream, empty + empty[:4]))
        streams.append(stream)
    # All has arrived when a later call is answered.
    assert connection.wait(connection.unary("/pelton.v1.KeyValue/Get", b"")).grpc_status == 0
    return streams


def last_status(call, messages=None):
    """Reads a call to its end and gives back its status."""
    try:
        for message in call:
            if messages is not None:
                messages.append(message)
    except grpc.RpcError:
        pass
    return call.code()


@pytest.mark.parametrize("round_number", range(ROUNDS))
def test_each_call_ends_exactly_once(binary, round_number):
    with Server(binary, "--threads", "2", "--interop") as server:
        stop_under_load(server, SIGNALS[round_number % len(SIGNALS)])


@pytest.mark.parametrize("durability", ["synced", "interval=1s", "written"])
@pytest.mark.parametrize("number", SIGNALS)
def test_each_call_of_a_server_whose_writes_last_ends_exactly_once(
    binary, number, durability, tmp_path
):
    folder = str(tmp_path / "data")
    settings = ["--threads", "2", "--interop", "--data", folder, "--durability", durability]
    with Server(binary, *settings) as server:
        written = stop_under_load(server, number)
    assert ending_of_log(binary, folder) == "closed"
    for _ in range(2):
        # The second start reads what the first one made of it.
        with Server(binary, *settings) as server, open_channel(server.address) as channel:
            kv = kv_pb2_grpc.KeyValueStub(channel)
            for key, value in written.items():
                found = int(kv.Get(pb.GetRequest(key=key)).value)
                assert found >= value, (
                    f"{key} was answered with {value}, and is {found} after a restart"
                )
                written[key] = found + 1
                kv.Put(pb.PutRequest(key=key, value=b"%d" % written[key]))
            server.signal(number)
            assert server.wait() == 0, server.log()
            server.wait_for_log("the last stop was clean")
        assert ending_of_log(binary, folder) == "closed"


@pytest.mark.parametrize("number", SIGNALS)
def test_a_stop_that_cuts_calls_closes_the_log_all_the_same(binary, number, tmp_path):
    """A call that outlasts the drain timeout, and one that a second signal cuts."""
    folder = str(tmp_path / "data")
    for seconds, signals in [("1s", 1), ("60s", 2)]:
        with (
            Server(binary, "--data", folder, "--drain-timeout", seconds) as server,
            Connection(server.address) as connection,
        ):
            put = pb.PutRequest(key=b"key", value=seconds.encode()).SerializeToString()
            assert (
                connection.wait(connection.unary("/pelton.v1.KeyValue/Put", put)).grpc_status == 0
            )
            connection.unary(
                "/pelton.v1.Echo/Unary", echo_pb2.EchoRequest(delay_ms=60_000).SerializeToString()
            )
            assert (
                connection.wait(connection.unary("/pelton.v1.KeyValue/Get", b"")).grpc_status == 0
            )
            server.signal(number)
            if signals == 2:
                wait_until(
                    lambda: connection.read(0.01) or connection.goaways,
                    message="the first signal does nothing",
                )
                # One that comes at once would count as the same.
                time.sleep(0.5)
                server.signal(number)
            assert (server.wait() == 0) == (signals == 1), server.log()
        assert ending_of_log(binary, folder) == "closed"
        with Server(binary, "--data", folder) as server, open_channel(server.address) as channel:
            assert (
                kv_pb2_grpc.KeyValueStub(channel).Get(pb.GetRequest(key=b"key")).value
                == seconds.encode()
            )
            assert server.stop() == 0


def ending_of_log(binary, folder):
    verified = subprocess.run(
        [binary, "log", "verify", folder, "--output", "json"], capture_output=True, text=True
    )
    assert verified.returncode == 0, verified.stdout + verified.stderr
    return json.loads(verified.stdout)["ending"]


def stop_under_load(server, number):
    """Stops a server that has all to do at once. What was answered as written last, by key."""
    gate = threading.Event()
    with open_channel(server.address) as channel, Connection(server.address) as half:
        kv = kv_pb2_grpc.KeyValueStub(channel)
        for n in range(8):
            kv.Put(pb.PutRequest(key=b"scan/%d" % n, value=b"v" * 1_000_000))
        load = [Load(server.address, n) for n in range(2)] + [RawLoad(server.address)]
        for client in load:
            client.start()
        watch = open_health_watch(channel)
        scan = open_scan(channel)
        others = [open_full_duplex(channel, gate), open_echo_stream(channel, gate)]
        streams = open_half_sent(half)
        wait_until(
            lambda: all(client.succeeded > 0 for client in load[:2]),
            message="the load does not run",
        )

        begin = time.monotonic()
        server.signal(number)
        statuses = []
        for call in [watch, *others]:
            statuses.append(last_status(call, messages := []))
            if call is watch:
                # Told that it stops before the call ends.
                assert [message.status for message in messages][-1:] == [
                    health_pb2.HealthCheckResponse.NOT_SERVING
                ]
        assert set(statuses) <= {grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE}, statuses
        # A scan whose client reads may be finished.
        assert last_status(scan) in (grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE)
        half.wait_closed(STOP_SECONDS)
        for stream in streams:
            assert half.answers[stream].over, (
                f"stream {stream} was left open; GOAWAY {half.goaways}\n{server.log()}"
            )
            assert_ended_once(half.answers[stream])
        assert server.wait(STOP_SECONDS) == 0, server.log()
        assert time.monotonic() - begin < STOP_SECONDS
        gate.set()
        for client in load:
            client.join(STOP_SECONDS)
            assert not client.is_alive(), "a client still waits although the server is gone"
            if client.failure:
                raise client.failure
        return {client.key: client.last_written for client in load[:2]}


@pytest.mark.parametrize("number", SIGNALS)
def test_an_idle_server_stops_at_once(binary, number):
    with Server(binary, "--drain-timeout", "60s") as server, Connection(server.address) as idle:
        idle.wait(idle.get("/"))
        begin = time.monotonic()
        server.signal(number)
        idle.wait_closed()
        assert server.wait() == 0
        # The drain timeout has not been waited for.
        assert time.monotonic() - begin < 30
        # No new connections while it stops, none after.
        with pytest.raises(OSError):
            socket.create_connection(server.host_port, timeout=5)


def test_user_signals_do_nothing(binary):
    """Those that rotate logs send them, and by default they end a process."""
    with Server(binary) as server:
        for number in [signal.SIGUSR1, signal.SIGUSR2] * 2:
            server.signal(number)
            with open_channel(server.address) as channel:
                stub = kv_pb2_grpc.KeyValueStub(channel)
                put = stub.Put(pb.PutRequest(key=b"k", value=b"v"), timeout=STOP_SECONDS)
                assert put.applied
        assert server.stop() == 0


def test_a_running_call_is_waited_for(binary):
    with Server(binary) as server, Connection(server.address) as connection:
        request = echo_pb2.EchoRequest(payload=b"running", delay_ms=1_500).SerializeToString()
        stream = connection.unary("/pelton.v1.Echo/Unary", request)
        assert connection.wait(connection.unary("/pelton.v1.KeyValue/Get", b"")).grpc_status == 0
        server.signal(signal.SIGTERM)
        answer = connection.wait(stream)
        assert answer.grpc_status == 0 and b"running" in answer.body
        assert server.wait() == 0


def test_the_drain_timeout_ends_what_takes_longer(binary):
    with (
        Server(binary, "--drain-timeout", "1s") as server,
        Connection(server.address) as connection,
    ):
        request = echo_pb2.EchoRequest(delay_ms=60_000).SerializeToString()
        stream = connection.unary("/pelton.v1.Echo/Unary", request)
        assert connection.wait(connection.unary("/pelton.v1.KeyValue/Get", b"")).grpc_status == 0
        begin = time.monotonic()
        server.signal(signal.SIGTERM)
        assert connection.wait(stream).grpc_status == UNAVAILABLE
        assert server.wait() == 0
        assert 0.5 < time.monotonic() - begin < 30


@pytest.mark.parametrize("number", SIGNALS)
def test_a_second_signal_stops_at_once(binary, number):
    with (
        Server(binary, "--drain-timeout", "60s") as server,
        Connection(server.address) as connection,
    ):
        request = echo_pb2.EchoRequest(delay_ms=60_000).SerializeToString()
        connection.unary("/pelton.v1.Echo/Unary", request)
        assert connection.wait(connection.unary("/pelton.v1.KeyValue/Get", b"")).grpc_status == 0
        server.signal(number)
        with pytest.raises(subprocess.TimeoutExpired):
            server.process.wait(1.5)
        begin = time.monotonic()
        server.signal(number)
        server.wait()
        # Long before the drain timeout, and the end of the call.
        assert time.monotonic() - begin < 20


def test_a_client_that_does_not_speak_holds_up_nobody(binary):
    with Server(binary) as server:
        silent = [socket.create_connection(server.host_port) for _ in range(10)]
        with Connection(server.address, greet=False) as half_greeted:
            half_greeted.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS)[:5])
            with Connection(server.address) as connection:
                connection.wait(connection.get("/"))
            server.signal(signal.SIGTERM)
            assert server.wait(STOP_SECONDS) == 0
        for connection in silent:
            connection.close()


# While it starts


def start_without_waiting(binary, *arguments):
    return subprocess.Popen(
        [binary, "serve", "--listen", "127.0.0.1:0", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("flags", [("--config",), ("--tls-key", "--tls-cert")])
def test_a_signal_while_it_starts_ends_it_with_exit_code_0(binary, tmp_path, number, flags):
    """It waits for a file that nobody writes: for its settings, or, later, for its key."""
    files = []
    for flag in flags:
        os.mkfifo(tmp_path / flag.strip("-"))
        files += [flag, str(tmp_path / flag.strip("-"))]
    process = start_without_waiting(binary, "--data", str(tmp_path / "data"), *files)
    try:
        wait_until(lambda: catches(process, SIGNALS))
        # It stays in the start.
        time.sleep(0.2)
        process.send_signal(number)
        output = process.communicate(timeout=STOP_SECONDS)[0]
    finally:
        process.kill()
    assert process.returncode == 0, output
    assert "listening on" not in output


def test_a_signal_at_any_moment_of_a_start_loses_nothing(binary, tmp_path):
    """Each start reads what the last one, which was stopped early, has left of the folder."""
    data = ("--data", str(tmp_path / "data"))
    keys = [b"%d" % number for number in range(2000)]
    with Server(binary, *data) as server, open_channel(server.address) as channel:
        kv = kv_pb2_grpc.KeyValueStub(channel)
        for put in [kv.Put.future(pb.PutRequest(key=key, value=b"v" * 1000)) for key in keys]:
            put.result(timeout=STOP_SECONDS)
        server.process.kill()
    for delay_ms in [0, 1, 2, 5, 10, 15, 20, 30, 50, 100, 200]:
        process = start_without_waiting(binary, *data)
        try:
            wait_until(lambda: catches(process, SIGNALS))  # noqa: B023
            time.sleep(delay_ms / 1000)
            process.send_signal(SIGNALS[delay_ms % 3])
            output = process.communicate(timeout=STOP_SECONDS)[0]
        finally:
            process.kill()
        assert process.returncode == 0, output
    with Server(binary, *data) as server, open_channel(server.address) as channel:
        kv = kv_pb2_grpc.KeyValueStub(channel)
        for get in [kv.Get.future(pb.GetRequest(key=key)) for key in keys]:
            assert get.result(timeout=STOP_SECONDS).value == b"v" * 1000
