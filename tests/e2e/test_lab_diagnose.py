"""`pelton lab diagnose`: a cause is planted in a client or a server of grpcio, and has to be named,
or the report says `undecided` and what it needs. A wrong name is a failure."""

import base64
import collections
import concurrent.futures
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import grpc
import pytest
from environment import clean_environment
from pelton.v1 import echo_pb2, echo_pb2_grpc
from server import Server

ROOT = pathlib.Path(__file__).resolve().parents[2]
DESCRIPTORS = ROOT / "crates" / "service" / "src" / "descriptor_set.bin"
# What is measured is the machine's, too: these are for one with nothing else to do.
planted_cause = pytest.mark.skipif(
    "PELTON_PLANTED" not in os.environ,
    reason="PELTON_PLANTED=1 on a quiet machine has them run",
)

ECHO_METHOD = ["--method", "pelton.v1.Echo/Unary", "--repeat-safe", "--data"]
ECHO = [*ECHO_METHOD, "{}", "--descriptor-set", DESCRIPTORS]


def diagnose(binary, target, *words, codes=(0,)):
    """Runs a diagnosis, and returns its report."""
    command = [binary, "lab", "diagnose", "--target", target, "--output", "json"]
    command += map(str, words)
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=170, env=clean_environment()
    )
    assert done.returncode in codes, (done.returncode, done.stdout, done.stderr)
    return json.loads(done.stdout)


# Whether the last causes were named on a machine with nothing else to do.
NAMED_WHERE_QUIET = collections.deque(maxlen=5)


def is_quiet(report):
    """Whether the machine had nothing else to do before the experiments; None: not known."""
    busy_percent = (report["machine"] or {}).get("busy_before_percent")
    return busy_percent is not None and busy_percent < 5


def assert_named(report, *causes):
    """The first cause is one of these; `undecided` says what it needs, and is no failure where the
    machine is too busy to decide. On a quiet one it may come out so once in five."""
    is_undecided = report["verdict"] == "undecided"
    if is_quiet(report):
        NAMED_WHERE_QUIET.append(not is_undecided)
    if is_undecided:
        assert report["needs"], report
        assert NAMED_WHERE_QUIET.count(False) < 2, f"undecided too often: {report}"
        pytest.skip(f"undecided: {report['sentence']}")
    assert report["causes"] and report["causes"][0] in causes, json.dumps(report, indent=1)
    assert report["evidence_for"], report


class Planted(echo_pb2_grpc.EchoServicer):
    """grpcio's server, with something to do for each call."""

    def __init__(self, work):
        self.work = work

    def Unary(self, request, context):
        self.work()
        answer = bytes(request.answer_bytes) or request.payload
        return echo_pb2.EchoResponse(payload=answer)


@contextlib.contextmanager
def planted(work, *options, threads=64, compression=None):
    pool = concurrent.futures.ThreadPoolExecutor(threads)
    server = grpc.server(pool, options=options, compression=compression)
    echo_pb2_grpc.add_EchoServicer_to_server(Planted(work), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(0).wait()


def sleep():
    time.sleep(0.015)


def serial():
    lock = threading.Lock()

    def work():
        with lock:
            time.sleep(0.015)

    return work


def burn():
    until = time.thread_time() + 0.005
    while time.thread_time() < until:
        pass


# --- our own generator as the client


def test_what_grpcio_refuses_at_its_limit_is_made_again(binary):
    """It counts a call for a while after its end, and refuses the next one."""
    with planted(sleep, ("grpc.max_concurrent_streams", 4)) as address:
        command = [binary, "load", "--address", address, *map(str, ECHO[:2]), *map(str, ECHO[3:])]
        command += ["--connections", "1", "--in-flight", "4", "--calls", "200", "--warm-up", "0s"]
        done = subprocess.run(
            [*command, "--output", "json"],
            capture_output=True,
            text=True,
            timeout=100,
            env=clean_environment(),
        )
    report = json.loads(done.stdout)
    assert (done.returncode, report["failures"]) == (0, 0), report
    assert report["calls"] == 200


@planted_cause
def test_a_lock_in_the_server_is_named(binary):
    with planted(serial()) as address:
        report = diagnose(binary, address, *ECHO)
    assert_named(report, "server_serial")
    assert "one call after the other" in report["sentence"]


@planted_cause
def test_a_pool_of_threads_is_named(binary):
    with planted(sleep, threads=4) as address:
        report = diagnose(binary, address, *ECHO)
    assert_named(report, "server_pool")


@planted_cause
def test_a_limit_on_streams_is_named_and_more_connections_are_tried(binary):
    with planted(sleep, ("grpc.max_concurrent_streams", 4)) as address:
        report = diagnose(binary, address, *ECHO)
    assert_named(report, "stream_limit")
    change = report["change"]
    assert change["measured_gain"] > 1.5 and change["predicted_gain"] > 1.5, report


@contextlib.contextmanager
def way(binary, *conditions):
    """A way to a server of Pelton that the tap makes."""
    with Server(binary) as server:
        command = ["lab", "tap", "--target", server.address, *conditions]
        with Server(binary, command=command) as tap:
            yield tap.address


def echo_of(bytes_of_request):
    """Requests of so many bytes, and small answers."""
    payload = base64.b64encode(bytes(bytes_of_request)).decode()
    request = json.dumps({"payload": payload, "answer_bytes": 1})
    return [*ECHO_METHOD, request, "--descriptor-set", DESCRIPTORS]


@planted_cause
@pytest.mark.parametrize("bandwidth", ["400KiB", "40KiB"])
def test_a_way_that_is_full_of_requests_is_named(binary, bandwidth):
    with way(binary, "--bandwidth", bandwidth) as address:
        report = diagnose(binary, address, *echo_of(2_000))
    assert_named(report, "bandwidth")
    change = report["change"]
    assert change["measured_gain"] > 1.5 and change["predicted_gain"] > 1.5, report


@planted_cause
def test_a_way_whose_packets_are_counted_is_named(binary):
    with way(binary, "--packets-per-second", "400") as address:
        report = diagnose(binary, address, *echo_of(10))
    if report["verdict"] == "no limit found":
        pytest.skip(report["sentence"])
    assert_named(report, "packets_per_second")
    assert report["change"]["measured_gain"] > 1.5, report


def bind(process, cpu):
    """Has all threads of a process run on one CPU, and those that they start."""
    for thread in os.listdir(f"/proc/{process.pid}/task"):
        os.sched_setaffinity(int(thread), {cpu})


@planted_cause
def test_messages_that_are_too_small_are_named(binary):
    """A server with a thread for each connection, which reads and writes once for each message, on
    one CPU: more connections bring nothing, and ten operations in a message a lot."""
    words = ["--driver", "blocking", "--threads", "1", "--durability", "volatile"]
    with Server(binary, *words) as server:
        bind(server.process, min(os.sched_getaffinity(0)))
        report = diagnose(binary, server.address, "--max-rate", 1_000_000)
    assert_named(report, "small_messages")
    assert report["causes"][1:] in (["server_cpu"], ["server_thread"]), report
    assert report["change"]["measured_gain"] >= 2, report


@planted_cause
def test_a_generator_that_is_slower_than_the_server_is_named(binary):
    """It has one thread, and the server as many as there are CPUs beside."""
    cpus = len(os.sched_getaffinity(0))
    if cpus < 4:
        pytest.skip(f"the server needs three CPUs or more, and there are {cpus} in all")
    with Server(binary, "--threads", str(cpus - 1), "--durability", "volatile") as server:
        report = diagnose(binary, server.address, "--max-rate", 10_000_000)
    assert_named(report, "generator")


@planted_cause
def test_a_lock_behind_much_data_is_told_from_a_way_that_is_full(binary):
    with planted(serial()) as address:
        report = diagnose(binary, address, *echo_of(4_000))
    assert_named(report, "server_serial")


@planted_cause
def test_a_server_without_cpu_left_is_named(binary):
    with planted(burn) as address:
        report = diagnose(binary, address, *ECHO)
    assert_named(report, "server_cpu", "server_thread")


@planted_cause
def test_a_server_that_syncs_a_file_is_named(binary, tmp_path):
    with open(tmp_path / "log", "wb", buffering=0) as file:
        begin = time.monotonic()
        for _ in range(20):
            file.write(b"x" * 100)
            os.fsync(file.fileno())
        if time.monotonic() - begin < 20 * 0.0003:
            pytest.skip("this disk syncs at once, so that nobody waits for it")
        lock = threading.Lock()

        def work():
            with lock:
                until = time.monotonic() + 0.01
                while time.monotonic() < until:
                    file.write(b"x" * 100)
                    os.fsync(file.fileno())

        with planted(work) as address:
            report = diagnose(binary, address, *ECHO)
    assert_named(report, "disk_sync")


@planted_cause
def test_a_service_with_more_to_give_is_healthy(binary, server):
    report = diagnose(binary, server.address, "--max-rate", 3_000)
    assert report["verdict"] == "no limit found", report
    assert report["causes"] == []
    assert all(point["calls_per_s"] < 3_300 for point in report["experiments"])


@pytest.mark.parametrize("condition", [("--delay", "20ms"), ("--bandwidth", "100KiB")])
@planted_cause
def test_a_way_is_not_taken_for_a_server(binary, server, condition):
    command = [binary, "lab", "tap", "--target", server.address, *condition]
    with subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=clean_environment(),
    ) as tap:
        address = tap.stderr.readline().split("listening on ")[1].split(",")[0]
        data = json.dumps({"payload": "A" * 4_000})
        words = [*ECHO_METHOD, data]
        report = diagnose(binary, address, *words, "--server-pid", server.process.pid)
        tap.send_signal(signal.SIGTERM)
    assert not report["causes"] or report["causes"][0] in ("window", "way"), report


# Words that compress well, as most texts do.
TEXT = " ".join(f"line {number} of a text" for number in range(4_000)).encode()


@planted_cause
def test_a_server_that_compresses_its_responses_is_named(binary):
    with planted(lambda: None, compression=grpc.Compression.Gzip) as address:
        payload = base64.b64encode(TEXT).decode()
        words = [*ECHO_METHOD, json.dumps({"payload": payload}), "--descriptor-set", DESCRIPTORS]
        report = diagnose(binary, address, *words)
    assert_named(report, "compression")
    # grpcio compresses no matter what a client accepts, so that it cannot be tried without.
    assert report["change"]["predicted_gain"] > 1.3, report


# --- a client of others

CLIENT = """
import concurrent.futures, sys, threading, time
import grpc
address, threads, calls, pause, burn, allowed = sys.argv[1], *map(float, sys.argv[2:])
limit = threading.Semaphore(int(allowed))
with grpc.insecure_channel(address) as channel:
    call = channel.unary_unary("/pelton.v1.Echo/Unary")
    def work(_):
        for _ in range(int(calls)):
            with limit:
                call(b"", timeout=60)
            until = time.thread_time() + burn
            while time.thread_time() < until:
                pass
            time.sleep(pause) if pause else None
    with concurrent.futures.ThreadPoolExecutor(int(threads)) as pool:
        list(pool.map(work, range(int(threads))))
"""

FUTURES = """
import sys
import grpc
with grpc.insecure_channel(sys.argv[1]) as channel:
    call = channel.unary_unary("/pelton.v1.Echo/Unary")
    for future in [call.future(b"", timeout=100) for _ in range(int(sys.argv[2]))]:
        future.result()
"""


COMPRESSING = """
import concurrent.futures, sys
import grpc
text = " ".join(f"line {number} of a text" for number in range(4_000)).encode()
prefix = bytes([10, len(text) & 127 | 128, len(text) >> 7 & 127 | 128, len(text) >> 14])
with grpc.insecure_channel(sys.argv[1], compression=grpc.Compression.Gzip) as channel:
    call = channel.unary_unary("/pelton.v1.Echo/Unary")
    # The response has one byte.
    request = prefix + text + bytes([16, 1])
    def work(_):
        for _ in range(int(sys.argv[3])):
            call(request, timeout=60)
    with concurrent.futures.ThreadPoolExecutor(int(sys.argv[2])) as pool:
        list(pool.map(work, range(int(sys.argv[2]))))
"""


def by_client(binary, target, script, folder, *numbers):
    program = folder / "client.py"
    program.write_text(script)
    words = " ".join(map(str, numbers))
    command = f"{sys.executable} {program} {{target}} {words}"
    return diagnose(binary, target, "--client", command, "--client-time", "4s")


# threads, calls of each, pause, CPU between calls, calls that are open at most
@planted_cause
def test_a_client_with_a_limit_of_its_own_is_named(binary, tmp_path):
    with planted(sleep) as address:
        report = by_client(binary, address, CLIENT, tmp_path, 16, 100, 0, 0, 4)
    assert_named(report, "client_in_flight")


@planted_cause
def test_a_lock_in_the_server_is_named_behind_a_client(binary, tmp_path):
    with planted(serial()) as address:
        report = by_client(binary, address, CLIENT, tmp_path, 8, 1000, 0, 0, 8)
    assert_named(report, "server_serial")
    assert len(report["runs"]) == 5, report


@planted_cause
def test_a_limit_on_streams_is_named_behind_a_client(binary, tmp_path):
    with planted(sleep, ("grpc.max_concurrent_streams", 4)) as address:
        report = by_client(binary, address, CLIENT, tmp_path, 16, 1000, 0, 0, 16)
    assert_named(report, "stream_limit")


@planted_cause
def test_a_client_that_pauses_is_named(binary, server, tmp_path):
    report = by_client(binary, server.address, CLIENT, tmp_path, 1, 100, 0.02, 0, 1)
    assert_named(report, "client_pace")


@planted_cause
def test_a_client_without_cpu_left_is_named(binary, server, tmp_path):
    report = by_client(binary, server.address, CLIENT, tmp_path, 4, 100, 0, 0.005, 4)
    assert_named(report, "client_cpu", "client_thread")


@planted_cause
def test_a_client_that_compresses_its_requests_is_named(binary, server, tmp_path):
    report = by_client(binary, server.address, COMPRESSING, tmp_path, 4, 2_000)
    assert_named(report, "compression")
    run = report["runs"][0]
    assert run["compressed_requests"]["ratio"] > 3 and not run["compressed_responses"], run


@planted_cause
def test_a_client_that_piles_calls_up_is_named_beside_the_server(binary, tmp_path):
    with planted(serial()) as address:
        report = by_client(binary, address, FUTURES, tmp_path, 2_000)
    assert_named(report, "server_serial")
    assert report["causes"][1:] == ["client_queue"], report


@planted_cause
def test_one_call_at_a_time_does_not_say_what_a_server_can_do(binary, tmp_path):
    with planted(sleep) as address:
        report = by_client(binary, address, CLIENT, tmp_path, 1, 100, 0, 0, 1)
    assert report["verdict"] == "undecided", report
    assert any("--method" in need for need in report["needs"])


# --- what it may do, and what it says of what cannot be


@pytest.mark.parametrize(
    "words, code, expected",
    [
        (["--target", "127.0.0.1:1"], 3, "127.0.0.1:1"),
        (["--target", "127.0.0.1:1", "--client", "x {target}"], 3, "cannot connect to 127.0.0.1:1"),
        (["--target", "127.0.0.1:1", "--client", "x"], 2, "it has no {target}"),
        (["--target", "127.0.0.1:1", "--method", "a.B/C"], 2, "--data"),
        (["--target", "127.0.0.1:1", "--max-time", "1ms"], 2, "write 1s to 1h"),
        (["--target", "127.0.0.1:1", "--server-pid", "4000000000"], 3, "--server-pid is the"),
        (["--target", "192.0.2.1:1"], 2, "192.0.2.1:1 is on another machine"),
        ([*["--target", "127.0.0.1:1", "--client", "x {target}"], "--yes"], 2, "--yes"),
        (
            [*["--target", "127.0.0.1:1", "--client", "x {target}"], "--token-file", "x"],
            2,
            "--token-file does not go with --client",
        ),
        (
            [*["--target", "127.0.0.1:1", "--client", "x {target}"], "--token-without-tls"],
            2,
            "--token-without-tls does not go with --client",
        ),
        ([*["--target", "127.0.0.1:1", "--client", "x {target}"], *ECHO], 2, "cannot be used with"),
        ([], 2, "--target <ADDRESS>"),
    ],
)
def test_what_cannot_be_is_said_in_one_line_before_any_load(binary, words, code, expected):
    command = [binary, "lab", "diagnose", *map(str, words)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, env=clean_environment()
    )
    assert done.returncode == code, done.stderr
    assert expected in done.stderr, done.stderr
    assert done.stdout == "" and "calls" not in done.stderr.split(expected)[0], done.stderr


def test_a_method_that_may_change_something_is_not_called(binary, server):
    put = ["--method", "pelton.v1.KeyValue/Put", "--data", '{"key": "a2V5", "value": ""}']
    command = [binary, "lab", "diagnose", "--target", server.address, *put]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, env=clean_environment()
    )
    assert done.returncode == 2 and "--repeat-safe" in done.stderr, done.stderr
    for words, expected in [
        (["--method", "pelton.v1.KeyValue/Gett", "--data", "{}"], "Gett"),
        (["--method", "pelton.v1.KeyValue/Get", "--data", '{"kee": 1}'], "kee"),
    ]:
        done = subprocess.run(
            [*command[:5], *words],
            capture_output=True,
            text=True,
            timeout=60,
            env=clean_environment(),
        )
        assert done.returncode == 2 and expected in done.stderr, done.stderr
    report = diagnose(binary, server.address, *put, "--repeat-safe", "--max-rate", 1_000)
    # What it comes to is the machine's matter.
    assert sum(point["succeeded"] for point in report["experiments"]) > 0, report
    assert all(point["failed"] == 0 for point in report["experiments"]), report


def test_the_ceiling_is_said_first_and_ctrl_c_leaves_the_report_so_far(binary, server):
    command = [binary, "lab", "diagnose", "--target", server.address, "--max-rate", "1000000"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean_environment()
    ) as process:
        first = process.stderr.readline()
        assert "at most 1000000 times a second" in first, first
        while "calls/s" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "it was ended before all was tried" in out, out


def test_a_server_that_dies_leaves_a_report_of_what_was_measured(binary):
    with Server(binary) as server:
        words = [*ECHO_METHOD, "{}", "--max-rate", "100000", "--output", "json"]
        command = [binary, "lab", "diagnose", "--target", server.address, *words]
        with subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=clean_environment(),
        ) as process:
            while "calls/s" not in process.stderr.readline():
                assert process.poll() is None
            server.process.kill()
            out, _ = process.communicate(timeout=60)
    assert process.returncode == 0, out
    report = json.loads(out)
    assert any("calls failed" in text for text in report["evidence_against"]), report
    # One or two experiments name nothing, unless they took all of the generator's thread.
    assert set(report["causes"]) <= {"generator"}, report


def test_a_server_that_dies_between_two_runs_of_a_client_leaves_a_report(binary, tmp_path):
    program = tmp_path / "client.py"
    program.write_text(CLIENT)
    command = f"{sys.executable} {program} {{target}} 4 1000000 0 0 4"
    with contextlib.ExitStack() as stack:
        address = stack.enter_context(planted(sleep))
        words = ["--client", command, "--client-time", "3s", "--output", "json"]
        process = subprocess.Popen(
            [binary, "lab", "diagnose", "--target", address, *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=clean_environment(),
        )
        runs = 0
        while runs < 2 and (line := process.stderr.readline()):
            runs += "runs the client" in line
        # The second run goes on; the tap of the third finds nobody.
        stack.close()
        out, err = process.communicate(timeout=100)
    if runs < 2:
        pytest.skip("one run was enough, on a machine with much else to do")
    assert process.returncode == 0, (out, err)
    report = json.loads(out)
    assert len(report["runs"]) >= 1 and report["causes"] == [], report
    said = "\n".join(report["evidence_against"])
    assert "a run of the client could not be made" in said, report
