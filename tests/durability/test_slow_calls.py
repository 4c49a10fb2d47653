"""The slow-call log names what a call has waited for: a call is made to wait in each phase, by
strace, which delays system calls, and by a client that does not read."""

import contextlib
import json
import os
import re
import subprocess
import threading
import time

import grpc
import pytest
import raw
import strace
from pelton.v1 import echo_pb2, kv_pb2_grpc
from pelton.v1 import kv_pb2 as pb
from server import WAIT_SECONDS, Server, open_channel, wait_until

DELAY_US = 300_000
PHASES = ("queue", "read", "commit", "sync", "send")
ECHO = "/pelton.v1.Echo/Unary"
GET = "/pelton.v1.KeyValue/Get"


@contextlib.contextmanager
def serving(binary, folder, *arguments, faults=()):
    """A server with a slow-call log, some of whose system calls are delayed, and a stub."""
    prefix = strace.injecting(folder.parent / "strace", *faults) if faults else ()
    settings = ["--data", str(folder), "--threads", "1", "--log-segment", "4MiB"]
    settings += ["--log-format", "json", "--slow-call", "100ms", *arguments]
    with (
        Server(binary, *settings, prefix=prefix) as server,
        open_channel(server.address) as channel,
    ):
        yield server, kv_pb2_grpc.KeyValueStub(channel)


def slow_calls(server):
    """What the log has of slow calls."""
    lines = [line for line in server.log().splitlines() if '"slow call"' in line]
    return [json.loads(line) for line in lines]


def slow_call(server, method):
    """The last slow call of a method, when it is there."""

    def last():
        return next(
            (call for call in slow_calls(server)[::-1] if call["method"].endswith(method)), None
        )

    wait_until(last, WAIT_SECONDS, server.log)
    return last()


def expect_phase(call, phase, at_least_us=DELAY_US * 9 // 10):
    """It waited for this, and for nothing else that long."""
    times = {name: call[f"{name}_us"] for name in PHASES}
    assert times[phase] >= at_least_us, call
    others = [us for name, us in times.items() if name != phase]
    assert max(others) < at_least_us, call
    assert sum(times.values()) <= call["took_us"], call


def put(kv, key, value=b"value", database=""):
    return kv.Put(pb.PutRequest(key=key, value=value, database=database), timeout=30)


@pytest.mark.parametrize("call, phase", [("fdatasync", "sync"), ("pwrite64", "commit")])
def test_a_put_that_waits_for_the_device_is_in_the_log(binary, tmp_path, call, phase):
    faults = [f"{call}:delay_enter={DELAY_US}"]
    with serving(binary, tmp_path / "data", faults=faults) as (server, kv):
        for number in range(2):
            put(kv, b"secret/%d" % number)
        found = slow_call(server, "Put")
        expect_phase(found, phase)
        assert (found["status"], found["database"], found["key_bytes"]) == ("OK", "", 8), found
        assert found["peer"].startswith("127.0.0.1:"), found
        assert found["identity"] == "(anonymous)", found
        assert "secret" not in server.log(), "keys may be personal"


@pytest.mark.parametrize(
    "keys, expected",
    [
        ("off", {}),
        ("length", {"key_bytes": 100}),
        ("prefix", {"key_bytes": 100, "key_prefix": r"a\n\xff" + "b" * 29}),
    ],
)
def test_of_keys_there_is_what_was_asked_for(binary, tmp_path, keys, expected):
    faults = [f"fdatasync:delay_enter={DELAY_US}"]
    arguments = ["--slow-call-keys", keys, "--log-level", "error"]
    with serving(binary, tmp_path / "data", *arguments, faults=faults) as (server, kv):
        put(kv, b"a\n\xff" + b"b" * 97)
        found = slow_call(server, "Put")
        assert {name: found[name] for name in found if name.startswith("key")} == expected


def test_a_get_that_waits_for_a_read_is_in_the_log(binary, tmp_path):
    # Memtables are so small that what was written first is in tables alone.
    folder, arguments = tmp_path / "data", ["--kind", "disk", "--memory-limit", "64MiB"]
    arguments += ["--disk-cache", "1MiB"]
    with serving(binary, folder, *arguments) as (server, kv):
        for number in range(1_500):
            put(kv, b"key/%d" % number, os.urandom(10_000))
        assert server.stop() == 0
    faults = [f"pread64:delay_enter={DELAY_US}"]
    with serving(binary, folder, *arguments, faults=faults) as (server, kv):
        for number in range(0, 300, 100):
            assert kv.Get(pb.GetRequest(key=b"key/%d" % number), timeout=30).found
        expect_phase(slow_call(server, "Get"), "read")


def test_a_batch_that_waits_for_its_turn_is_in_the_log(binary, tmp_path):
    faults = [f"fdatasync:delay_enter={DELAY_US}"]
    with serving(binary, tmp_path / "data", faults=faults) as (server, kv):
        # More than the calls of a loop have under way; the second one waits for the first.
        calls = []
        for size in (1_200_000, 100_000):
            operation = pb.Operation(put=pb.Operation.Put(key=b"key", value=b"v" * size))
            calls.append(kv.Batch.future(pb.BatchRequest(operations=[operation]), timeout=30))
            time.sleep(0.05)
        for call in calls:
            call.result()
        wait_until(
            lambda: any(one["queue_us"] >= DELAY_US // 2 for one in slow_calls(server)),
            WAIT_SECONDS,
            server.log,
        )


def test_an_answer_that_is_not_taken_is_in_the_log(binary, tmp_path):
    with serving(binary, tmp_path / "data") as (server, kv):
        put(kv, b"large", b"v" * 100_000)
        settings = raw.settings_payload(initial_window_size=1_000)
        request = pb.GetRequest(key=b"large").SerializeToString()
        with raw.Connection(server.address, settings) as connection:
            stream = connection.unary(GET, request)
            time.sleep(DELAY_US / 1e6)
            assert not [one for one in slow_calls(server) if one["method"].endswith("Get")]
            update = (200_000).to_bytes(4)
            connection.send(raw.frame(raw.WINDOW_UPDATE, 0, stream, update))
            connection.send(raw.frame(raw.WINDOW_UPDATE, 0, 0, update))
            wait_until(lambda: connection.read(1) or connection.answers[stream].over, WAIT_SECONDS)
            expect_phase(slow_call(server, "Get"), "send", DELAY_US * 8 // 10)
        # And one that is given up.
        with raw.Connection(server.address, settings) as connection:
            connection.unary(GET, request)
            time.sleep(DELAY_US / 1e6)
        wait_until(
            lambda: len([one for one in slow_calls(server) if one["method"].endswith("Get")]) == 2,
            WAIT_SECONDS,
            server.log,
        )
        expect_phase(slow_call(server, "Get"), "send", DELAY_US * 8 // 10)


def test_a_call_whose_token_was_revoked_meanwhile_names_it(binary, tmp_path):
    def token(*words):
        words = [binary, "token", *words, "--address", server.address]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done
        return re.search(r"pelton_[\w-]{43}|$", done.stdout)[0]

    with serving(binary, tmp_path / "data") as (server, _), open_channel(server.address) as channel:
        secret = token("create", "shop", "--rights", "write")
        calls = channel.unary_unary(ECHO, lambda request: request, echo_pb2.EchoResponse.FromString)
        request = echo_pb2.EchoRequest(delay_ms=20_000).SerializeToString()
        metadata = [("authorization", f"Bearer {secret}")]
        call = calls.future(request, metadata=metadata, timeout=30)
        time.sleep(DELAY_US / 1e6)
        token("revoke", "shop")
        assert call.exception().code() == grpc.StatusCode.UNAUTHENTICATED
        found = slow_call(server, "Echo/Unary")
        assert (found["identity"], found["status"]) == ("shop", "UNAUTHENTICATED"), found


def test_a_wrong_token_that_waits_for_its_refusal_is_no_slow_call(binary, tmp_path):
    wrong = [("authorization", f"Bearer pelton_{'x' * 43}")]
    with serving(binary, tmp_path / "data") as (server, kv):
        # The first 16 of a connection are refused at once, each further one waits 100 ms more.
        request = pb.PutRequest(key=b"k")
        calls = [kv.Put.future(request, metadata=wrong, timeout=30) for _ in range(24)]
        for call in calls:
            assert call.exception().code() == grpc.StatusCode.UNAUTHENTICATED
        assert not [call for call in slow_calls(server) if call["method"].endswith("Put")]


def test_what_is_slow_by_the_hundred_is_counted(binary, tmp_path):
    faults = [f"fdatasync:delay_enter={DELAY_US}"]
    with serving(binary, tmp_path / "data", faults=faults) as (server, kv):
        for _ in range(2):
            calls = [
                kv.Put.future(pb.PutRequest(key=b"%d" % number), timeout=30)
                for number in range(100)
            ]
            for call in calls:
                call.result()
        threading.Event().wait(0.2)
        put(kv, b"last")
        wait_until(
            lambda: sum(one.get("suppressed", 0) for one in slow_calls(server)) >= 100,
            WAIT_SECONDS,
            server.log,
        )
        found = slow_calls(server)
        assert len(found) <= 60, "the lines are bounded"
        assert len(found) + sum(one.get("suppressed", 0) for one in found) == 201


def test_without_a_threshold_nothing_is_logged(binary, tmp_path):
    prefix = strace.injecting(tmp_path / "strace", f"fdatasync:delay_enter={DELAY_US}")
    folder = str(tmp_path / "data")
    with (
        Server(binary, "--data", folder, "--log-level", "debug", prefix=prefix) as server,
        open_channel(server.address) as channel,
    ):
        put(kv_pb2_grpc.KeyValueStub(channel), b"key")
        assert server.stop() == 0
        assert "slow call" not in server.log()
