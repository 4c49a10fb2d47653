"""`pelton load --protocol baidu_std|srpc`: against the server, and against one by the byte."""

import json
import os
import socket
import subprocess

import pytest
from environment import clean_environment
from framed_client import bytes_field, gzip, number_field
from framed_server import FramedServer, response, srpc_response
from server import Server
from test_tokens import CLOSED, shown

ECHO = ("example.EchoService", "Echo")
BENCHMARK = ("BenchmarkPB", "echo_pb")
HELLO = bytes_field(1, b"r" * 5)
# A busy machine makes a result void, which has an exit code of its own; its calls are good.
MEASURED = (0, 1)


def run(binary, address, *words, codes=MEASURED, **variables):
    environment = clean_environment()
    command = [binary, "load", "--address", address, "--warm-up", "0s", *map(str, words)]
    done = subprocess.run(
        command, env=environment | variables, capture_output=True, text=True, timeout=100
    )
    assert done.returncode in codes, (words, done.returncode, done.stdout, done.stderr)
    return done


def figures(binary, address, *words, **more):
    return json.loads(run(binary, address, "--output", "json", *words, **more).stdout)


def assert_all_succeeded(found, calls):
    assert (found["succeeded"], found["failures"], found["unfinished"]) == (calls, 0, 0), found
    assert found["p50_us"] <= found["max_us"] and 0 < found["mean_us"] <= found["max_us"], found


# --- against the server


@pytest.mark.parametrize(
    "protocol, mode, known_as, in_flight",
    [
        ("baidu_std", "single", "multiplexed", 50),
        ("baidu_std", "multiplexed", "multiplexed", 1),
        ("baidu_std", "pooled", "exclusive", 1),
        ("baidu_std", "short", "short", 1),
        ("srpc", None, "exclusive", 1),
        ("srpc", "exclusive", "exclusive", 1),
        ("srpc", "short", "short", 1),
        ("grpc", "single", "multiplexed", 50),
    ],
)
def test_an_echo_is_loaded_in_every_mode(binary, server, protocol, mode, known_as, in_flight):
    words = ["--protocol", protocol, "--echo", "32", "--connections", "4", "--calls", "500"]
    words += ["--mode", mode] if mode else []
    words += ["--in-flight", in_flight] if in_flight > 1 else []
    found = figures(binary, server.address, *words)
    assert_all_succeeded(found, 500)
    assert (found["protocol"], found["mode"]) == (protocol, known_as)
    dialed = 500 if mode == "short" else 0
    assert found["connections_dialed"] == dialed, found
    path = BENCHMARK if protocol == "srpc" else ECHO
    assert found["what"] == "%s/%s, 32 bytes" % path


@pytest.mark.parametrize("protocol", ["baidu_std", "srpc"])
def test_keys_are_put_and_read(binary, server, protocol):
    words = ["--protocol", protocol, "--mix", "get=50,put=40,incr=10", "--keys", "50"]
    found = figures(binary, server.address, *words, "--calls", "400", "--connections", "2")
    assert_all_succeeded(found, 400)
    assert found["misses"] == 0, found
    text = run(binary, server.address, *words, "--calls", "10").stdout
    assert f" over {protocol}: 8 connections" in text and " mean " in text, text


@pytest.mark.parametrize("protocol", ["baidu_std", "srpc", "grpc"])
def test_a_service_is_named_without_its_package(binary, server, protocol):
    words = ["--protocol", protocol, "--connections", "1", "--calls", "10"]
    found = figures(
        binary, server.address, *words, "--method", "Health/Check", "--data", '{"service": ""}'
    )
    assert_all_succeeded(found, 10)
    assert found["what"] == "grpc.health.v1.Health/Check"
    # Nothing says what its package is: the server takes the short name where there is no header.
    raw = ["--method", "Health/Check", "--data-file", os.devnull]
    if protocol != "grpc":
        assert_all_succeeded(figures(binary, server.address, *words, *raw), 10)
    known = ["--method", "ServerReflection/ServerReflectionInfo", "--data", "{}"]
    done = run(binary, server.address, *words, *known, codes=(2,))
    assert "write one of grpc.reflection.v1.ServerReflection, " in done.stderr, done.stderr


def test_large_echoes_come_back_whole(binary, server):
    for protocol in ("baidu_std", "srpc"):
        words = ["--protocol", protocol, "--echo", "3MiB", "--connections", "2", "--calls", "20"]
        words += ["--in-flight", "2"] if protocol == "baidu_std" else []
        assert_all_succeeded(figures(binary, server.address, *words), 20)


def test_an_error_code_is_named_and_counted(binary, server):
    words = ["--data-file", os.devnull, "--connections", "2", "--calls", "20"]
    for protocol, method, text in (
        ("baidu_std", "example.EchoService/No", "ENOMETHOD (1002)"),
        ("srpc", "BenchmarkPB/no", "METHOD_NOT_FOUND (3)"),
        ("srpc", "No/no", "SERVICE_NOT_FOUND (2)"),
    ):
        command = ["--protocol", protocol, "--method", method, *words]
        done = run(binary, server.address, *command, codes=(3,))
        assert f"failed: 20 × {text}" in done.stdout, done.stdout
        assert "does not exist" in done.stdout and "no call to" in done.stderr


@pytest.mark.parametrize(
    "protocol, text",
    [
        (
            "baidu_std",
            "ENOMETHOD (1002), the method does not exist over this protocol: "
            "[E1002]pelton.v1.KeyValue/Pipe has streams, which this protocol has not: call it "
            "over gRPC",
        ),
        ("srpc", "METHOD_NOT_FOUND (3): the method does not exist over this protocol"),
    ],
)
def test_a_method_with_streams_is_not_said_to_be_missing(binary, server, protocol, text):
    words = ["--protocol", protocol, "--method", "KeyValue/Pipe", "--data-file", os.devnull]
    done = run(binary, server.address, *words, "--connections", "1", "--calls", "1", codes=(3,))
    assert f"the first said: {text}\n" in done.stdout, done.stdout


def test_a_token_goes_with_the_calls(binary, tmp_path):
    with Server(binary, "--init-admin", listen=(CLOSED,)) as server:
        file = tmp_path / "token"
        file.write_text(shown(server))
        for protocol, refused in (("baidu_std", "ERPCAUTH (1004)"), ("srpc", "SYSTEM_ERROR (100)")):
            words = ["--protocol", protocol, "--echo", "5", "--connections", "2", "--calls", "50"]
            found = figures(binary, server.address, *words, "--token-file", file)
            assert_all_succeeded(found, 50)
            done = run(binary, server.address, *words, codes=(3,))
            assert f"failed: 50 × {refused}" in done.stdout, done.stdout
            # Over baidu_std the server says it; SRPC has no place for a text.
            said = {"baidu_std": done.stdout, "srpc": done.stderr}[protocol]
            assert "token" in said and "--token-file" in said, said
            if protocol == "srpc":
                assert "+anonymous=service:srpc-benchmark" in said, said


def test_calls_go_through_tls(binary, tmp_path):
    tls = ["--tls-self-signed=" + str(tmp_path / "tls")]
    with Server(binary, *tls, listen=("tls:127.0.0.1:0",)) as server:
        for protocol in ("baidu_std", "srpc"):
            words = ["--protocol", protocol, "--echo", "5", "--connections", "2", "--calls", "50"]
            found = figures(binary, server.address, *words, "--tls-insecure")
            assert_all_succeeded(found, 50)
            # At once, and not after the time that was to be measured.
            words = ["--protocol", protocol, "--echo", "5", "--duration", "90s"]
            done = run(binary, server.address, *words, codes=(3,))
            assert not done.stdout, done.stdout
            assert "the server speaks TLS; --tls" in done.stderr, done.stderr
            assert "--tls-ca" in done.stderr, done.stderr


# --- against a server by the byte


def test_requests_have_what_those_of_brpcs_client_have(binary, tmp_path):
    token = tmp_path / "token"
    token.write_text("pelton_" + "A" * 43)
    with FramedServer(lambda waiting: response(waiting[0], waiting[0].body)) as server:
        words = ["--protocol", "baidu_std", "--echo", "5", "--connections", "2", "--calls", "30"]
        words += ["--in-flight", "1", "--deadline", "1500ms", "--metadata", "x-trace=7"]
        found = figures(binary, server.address, *words, "--token-file", token)
        assert_all_succeeded(found, 30)
        assert found["connections"] == server.connections == 2
    assert len(server.requests) == 30
    for connection in (1, 2):
        requests = [one for one in server.requests if one.connection == connection]
        ids = [one.correlation_id for one in requests]
        assert len(set(ids)) == len(ids) and all(0 < one < 2**63 for one in ids)
        assert requests[0].authentication == token.read_bytes()
        assert all(one.authentication is None for one in requests[1:])
    for one in server.requests:
        assert (one.names, one.timeout_ms, one.body) == (ECHO, 1500, HELLO)
        assert one.metadata == [(b"x-trace", b"7")]
        # Compression, content type, checksum: all that stand for nothing.
        nothing = {number: one.fields[number] for number in (3, 10, 11, 12)}
        assert nothing == {3: [0], 10: [0], 11: [0], 12: [b""]}


def test_requests_have_what_those_of_srpcs_client_have(binary):
    with FramedServer(lambda _: srpc_response(), b"SRPC") as server:
        words = ["--protocol", "srpc", "--echo", "5", "--connections", "2", "--calls", "30"]
        assert_all_succeeded(figures(binary, server.address, *words), 30)
    assert len(server.requests) == 30
    for one in server.requests:
        assert (one.names, one.body) == (BENCHMARK, HELLO)
        assert sorted(one.fields) == [1, 7] and one.fields[7] == [0]


def test_responses_are_matched_in_any_order(binary):
    """Eight at a time, the last one first."""

    def answer(waiting):
        if len(waiting) < 8:
            return None
        return b"".join(response(one, one.body) for one in reversed(waiting))

    with FramedServer(answer) as server:
        words = ["--protocol", "baidu_std", "--echo", "5", "--connections", "1", "--calls", "80"]
        found = figures(binary, server.address, *words, "--mode", "single", "--in-flight", "8")
    assert_all_succeeded(found, 80)


def test_compressed_responses_are_read(binary):
    def answer(waiting):
        meta = bytes_field(2, number_field(1, 0)) + number_field(3, 2)
        meta += number_field(4, waiting[0].correlation_id)
        body = gzip(waiting[0].body)
        size = (len(meta) + len(body)).to_bytes(4, "big")
        return b"PRPC" + size + len(meta).to_bytes(4, "big") + meta + body

    with FramedServer(answer) as server:
        words = ["--protocol", "baidu_std", "--echo", "5", "--connections", "1", "--calls", "10"]
        assert_all_succeeded(figures(binary, server.address, *words), 10)


ONE = ["--echo", "5", "--connections", "1", "--calls", "1"]


@pytest.mark.parametrize(
    "answer, text",
    [
        (lambda one: response(one, code=2004, text="[E2004]full"), "ELIMIT (2004)"),
        (lambda one: response(one, code=-7), "error -7"),
        (lambda one: b"", "the server closed it"),
        (lambda one: b"PRPC\xff\xff\xff\xff\0\0\0\0", "a frame is larger than the limit"),
        (lambda one: response(one, bytes_field(1, "x" * 5)), "another value than was written"),
    ],
)
def test_what_goes_wrong_is_said_and_counted_once(binary, answer, text):
    with FramedServer(lambda waiting: answer(waiting[0])) as server:
        done = run(binary, server.address, "--protocol", "baidu_std", *ONE, codes=(3,))
        assert "calls: 0 succeeded, 1 failed" in done.stdout, done.stdout
        assert text in done.stdout and "no call to" in done.stderr, (done.stdout, done.stderr)
    assert len(server.requests) == 1


@pytest.mark.parametrize("mode", ["multiplexed", "short"])
@pytest.mark.parametrize(
    "sent, text, flag",
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "the server speaks HTTP/1.1", "--address"),
        (b"\0\0\0\4\0\0\0\0\0", "the server speaks HTTP/2 (gRPC)", "--protocol grpc"),
        (b"SRPC" + bytes(12), "the server speaks SRPC and not baidu_std", "--protocol srpc"),
        (srpc_response(), "the server speaks SRPC and not baidu_std", "--protocol srpc"),
        (b"\x15\3\3\0\2\2\x0a", "the server speaks TLS", "--tls-ca"),
        (b"220 mail.test ESMTP\r\n", "the server does not speak baidu_std", "--address"),
    ],
)
def test_a_server_of_another_protocol_ends_the_load_at_once(binary, sent, text, flag, mode):
    with FramedServer(lambda _: sent) as server:
        words = ["--protocol", "baidu_std", "--echo", "5", "--duration", "90s", "--mode", mode]
        done = run(binary, server.address, *words, "--connections", "4", codes=(3,))
        assert not done.stdout, done.stdout
        assert text in done.stderr and flag in done.stderr, done.stderr
        assert server.connections <= 4, "none is made again"


def test_a_second_response_ends_the_connection_and_no_call_twice(binary):
    def answer(waiting):
        repeats = 2 if len(server.requests) == 3 else 1
        return response(waiting[0], waiting[0].body) * repeats

    with FramedServer(answer) as server:
        words = ["--protocol", "baidu_std", "--echo", "5", "--connections", "1", "--calls", "20"]
        found = figures(binary, server.address, *words, "--in-flight", "1")
    assert found["succeeded"] + found["failures"] == 20 and found["failures"] <= 1, found
    assert server.connections == 2 == found["reconnects"] + 1, found


@pytest.mark.parametrize(
    "protocol, mode, connections",
    [("baidu_std", "single", 1), ("baidu_std", "pooled", 2), ("srpc", "pooled", 2)],
)
def test_a_deadline_passes_once(binary, protocol, mode, connections):
    """Where calls go one by one, another connection takes the place of the one whose response may
    still come."""

    def answer(waiting):
        if len(server.requests) == 3:
            return None
        if protocol == "srpc":
            return srpc_response()
        return b"".join(response(one, one.body) for one in waiting)

    with FramedServer(answer, b"SRPC" if protocol == "srpc" else b"PRPC") as server:
        words = ["--protocol", protocol, "--mode", mode, "--echo", "5", "--connections", "1"]
        words += ["--calls", "10", "--deadline", "300ms"]
        words += ["--in-flight", "1"] if mode == "single" else []
        found = figures(binary, server.address, *words)
    assert (found["succeeded"], found["failures"], found["unfinished"]) == (9, 1, 0), found
    assert found["failures_by_kind"] == "deadline passed here: 1"
    assert server.connections == connections


def test_a_server_that_is_not_there_is_named(binary):
    with socket.create_server(("127.0.0.1", 0)) as gone:
        address = "127.0.0.1:%d" % gone.getsockname()[1]
    for protocol in ("baidu_std", "srpc"):
        done = run(binary, address, "--protocol", protocol, *ONE, codes=(3,))
        assert address in done.stderr and "nobody listens there" in done.stderr, done.stderr


def test_keys_of_a_server_that_does_not_speak_grpc_are_refused_with_what_to_do(binary):
    with socket.create_server(("127.0.0.1", 0)) as foreign:
        address = "127.0.0.1:%d" % foreign.getsockname()[1]
        done = run(binary, address, "--protocol", "baidu_std", "--timeout", "1s", codes=(3,))
    assert "--echo" in done.stderr, done.stderr


# All that is to be changed, whichever of the flags is there.
SRPC_ONE_AT_A_TIME = (
    "a connection of --protocol srpc carries one call at a time: take --mode exclusive, the "
    "default, or short, no --in-flight above 1, and as many --connections as there are to be calls "
    "at a time"
)


def test_flags_that_contradict_the_protocol_are_usage_errors(binary):
    for words, text in (
        (["--protocol", "srpc", "--mode", "single", "--echo", "5"], SRPC_ONE_AT_A_TIME),
        (["--protocol", "srpc", "--in-flight", "2", "--echo", "5"], SRPC_ONE_AT_A_TIME),
        (["--protocol", "srpc", "--mode", "short", "--in-flight", "2"], SRPC_ONE_AT_A_TIME),
        (["--protocol", "baidu_std", "--mode", "pooled", "--in-flight", "2"], "--mode multiplexed"),
        (["--protocol", "baidu_std", "--pipe"], "--pipe goes only with --protocol grpc"),
        (["--protocol", "srpc", "--authority", "a.test", "--echo", "5"], "--authority goes only"),
        (["--echo", "0"], "from 1 to"),
        (["--echo", "5", "--mix", "get=100"], "--mix"),
        (["--protocol", "thrift"], "baidu_std"),
        (["--mode", "each"], "multiplexed, single, exclusive, pooled, short"),
    ):
        done = run(binary, "127.0.0.1:1", *words, codes=(2,))
        assert text in done.stderr, done.stderr


JSON = ("--data", "{}", "--descriptor-set")


def test_a_file_that_cannot_be_used_is_named_with_its_flag(binary, tmp_path):
    nothing, text = tmp_path / "nothing", tmp_path / "text"
    text.write_text("syntax = 'proto3';")
    method = ["--protocol", "baidu_std", "--method", "t.T/Ask"]
    for words, said in (
        (["--data-file", nothing], f"--data-file: cannot read {nothing}: "),
        (["--data", f"@{nothing}"], f"--data: cannot read {nothing}: "),
        ([*JSON, nothing], f"--descriptor-set: cannot read {nothing}: "),
        ([*JSON, tmp_path], f"--descriptor-set: cannot read {tmp_path}: "),
        ([*JSON, text], f"--descriptor-set: {text} is no FileDescriptorSet: "),
    ):
        done = run(binary, "127.0.0.1:1", *method, *words, codes=(3,))
        assert said in done.stderr, done.stderr
