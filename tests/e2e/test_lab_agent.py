"""`pelton lab agent`: what a process does, reported over gRPC to grpcio, and to a diagnosis."""

import concurrent.futures
import contextlib
import json
import math
import os
import pathlib
import resource
import signal
import socket
import stat
import subprocess
import time

import grpc
import pytest
from certificates import Authority
from environment import clean_environment
from pelton.lab.v1 import agent_pb2, agent_pb2_grpc
from server import Server, expect_status, open_channel, wait_until
from test_lab_diagnose import ECHO_METHOD, diagnose

WAIT_SECONDS = 30


def agent(binary, *words):
    command = ["lab", "agent", "--listen", "127.0.0.1:0", *map(str, words)]
    return Server(binary, command=command)


@pytest.fixture
def busy(binary):
    with Server(binary) as server:
        yield server


@contextlib.contextmanager
def stub(address):
    with open_channel(address) as channel:
        yield agent_pb2_grpc.AgentStub(channel)


def load(binary, server, *words):
    command = [binary, "load", "--address", server.address, "--keys", "1000", *words]
    done = subprocess.run(command, env=clean_environment(), stdout=subprocess.DEVNULL, timeout=100)
    assert done.returncode in (0, 1)


def run(binary, *words):
    return subprocess.run(
        [binary, "lab", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=100,
        env=clean_environment(),
    )


def watch(agent_stub, **fields):
    request = agent_pb2.AgentWatchRequest(**fields)
    return agent_stub.Watch(request, timeout=WAIT_SECONDS)


def test_reports_say_what_the_process_and_the_machine_do(binary, busy):
    port = busy.address.rsplit(":", 1)[1]
    with agent(binary, "--server-port", port) as running, stub(running.address) as calls:
        reports = watch(calls, interval_ms=50, cumulative=True)
        first = next(reports)
        load(binary, busy, "--warm-up", "0s", "--duration", "700ms")
        # Some that came meanwhile wait to be read.
        wanted_ns = first.elapsed_ns + 800_000_000
        last = next(report for report in reports if report.elapsed_ns >= wanted_ns)
        reports.cancel()
        assert 50_000_000 <= first.elapsed_ns < last.elapsed_ns
        # A thread that wants a processor on a busy machine waits for most of its time.
        assert last.process.cpus + last.process.waited_for_cpus > 0.02, last
        first = last.threads[0]
        assert first.busy + first.waited > 0.02 and first.name, last
        assert last.threads[0].busy >= last.threads[-1].busy
        assert last.process.HasField("in_sync"), last
        assert last.machine.cpus == os.cpu_count()
        assert 0 <= last.machine.idle <= 1 and 0 <= last.machine.steal <= 1
        assert last.network.tcp_segments_received > 100, last
        assert last.network.HasField("tcp_segments_retransmitted")
        assert last.network.HasField("packets_received") and last.network.HasField("bytes_sent")
        assert last.network.HasField("tcp_unread_bytes"), last
        assert last.network.HasField("tcp_bytes_age_ns"), last
        one, two, _ = (report.elapsed_ns for report, _ in zip(watch(calls, interval_ms=50), "123"))
        assert one + two < last.elapsed_ns, "each is about the time since the one before"
        assert running.process.poll() is None


def test_a_diagnosis_sees_the_server_by_its_agent(binary, busy):
    port = busy.address.rsplit(":", 1)[1]
    with agent(binary, "--server-port", port) as running:
        words = ["--agent", running.address, "--max-rate", "500", "--max-time", "20s"]
        report = diagnose(binary, busy.address, *words)
        servers = [point["server"] for point in report["experiments"]]
        assert servers and all(servers), report
        assert all(server["cpus"] > 0 and server["busiest_thread"] for server in servers), report
        assert all(point["idle"] is not None for point in report["experiments"])
        client = "for i in $(seq 1 200); do %s echo --address {target} hi; done" % binary
        words = ["--agent", running.address, "--client", client, "--client-time", "1s"]
        report = diagnose(binary, busy.address, *words)
        assert report["runs"][0]["server"]["busiest_thread"], report
        # It is looked for anew for each call.
        busy.stop()
        with stub(running.address) as calls:
            gone = grpc.StatusCode.UNAVAILABLE
            expect_status(gone, lambda: next(watch(calls)), port, "is not there")


def test_a_process_that_ends_ends_the_watch(binary, busy):
    with agent(binary, "--server-pid", busy.process.pid) as running:
        with stub(running.address) as calls:
            reports = watch(calls, interval_ms=50)
            assert not next(reports).network.HasField("tcp_unread_bytes"), "it knows no port"
            busy.stop()
            busy.process.wait()
            expect_status(grpc.StatusCode.UNAVAILABLE, lambda: list(reports), "has ended")


def test_a_fifth_watch_and_a_request_out_of_range_are_refused(binary, busy):
    with agent(binary, "--server-pid", busy.process.pid) as running:
        with stub(running.address) as calls:
            for interval_ms in (49, 60_001):
                expect_status(
                    grpc.StatusCode.INVALID_ARGUMENT,
                    lambda: next(watch(calls, interval_ms=interval_ms)),  # noqa: B023
                    "interval_ms",
                )
            four = [watch(calls, interval_ms=50) for _ in range(4)]
            assert all(next(reports).elapsed_ns for reports in four)
            expect_status(grpc.StatusCode.RESOURCE_EXHAUSTED, lambda: next(watch(calls)), "no room")
            four[0].cancel()

            def has_room():
                try:
                    return next(watch(calls, interval_ms=50)).elapsed_ns
                except grpc.RpcError:
                    return False

            wait_until(has_room)


def test_a_token_is_made_and_asked_for(binary, busy, tmp_path):
    path = tmp_path / "agent.token"
    pid = busy.process.pid
    with agent(binary, "--server-pid", pid, "--token-file", path) as running:
        token = path.read_text().strip()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with stub(running.address) as calls:
            expect_status(grpc.StatusCode.UNAUTHENTICATED, lambda: next(watch(calls)), "token")
            bearer = [("authorization", f"Bearer {token}")]
            request = agent_pb2.AgentWatchRequest(interval_ms=50)
            assert next(calls.Watch(request, timeout=WAIT_SECONDS, metadata=bearer)).elapsed_ns
        words = ["diagnose", "--target", busy.address, "--max-rate", "100", "--max-time", "5s"]
        words += ["--agent", running.address]
        done = run(binary, *words)
        assert done.returncode == 3 and "--agent-token-file" in done.stderr, done.stderr
        done = run(binary, *words, "--agent-token-file", path)
        assert done.returncode == 0, done.stderr
        assert token not in running.log() + done.stderr
    # The same token again.
    with agent(binary, "--server-pid", pid, "--token-file", path):
        assert path.read_text().strip() == token


def test_an_agent_speaks_tls(binary, busy, tmp_path):
    authority = Authority(tmp_path)
    certificate, key = authority.sign("agent")
    words = ["--listen-tls-cert", certificate, "--listen-tls-key", key]
    with agent(binary, "--server-pid", busy.process.pid, *words) as running:
        words = ["diagnose", "--target", busy.address, "--max-rate", "100", "--max-time", "5s"]
        words += ["--agent", running.address]
        done = run(binary, *words, "--agent-tls-ca", authority.ca)
        assert done.returncode == 0, done.stderr
        done = run(binary, *words)
        assert done.returncode == 3 and "pelton lab agent" in done.stderr, done.stderr
        # Handshakes that nobody goes on with keep nobody out either.
        host, port = running.address.rsplit(":", 1)
        with contextlib.ExitStack() as silent:
            for _ in range(600):
                one = socket.create_connection((host, int(port)), timeout=WAIT_SECONDS)
                silent.enter_context(one)
            done = run(binary, *words, "--agent-tls-ca", authority.ca)
            assert done.returncode == 0, done.stderr


def test_without_an_agent_nothing_is_loaded(binary, busy):
    # Pelton's server is none: it has no such method.
    expected_words = {"127.0.0.1:1": "nobody listens", busy.address: "the agent refuses"}
    for address, expected in expected_words.items():
        words = ["diagnose", "--target", busy.address, *ECHO_METHOD, "{}", "--agent", address]
        done = run(binary, *words)
        assert done.returncode == 3, done.stderr
        assert expected in done.stderr, done.stderr
        assert not done.stdout


def test_other_machines_need_a_token_or_a_consent(binary, busy):
    words = ["agent", "--server-pid", busy.process.pid, "--listen", "0.0.0.0:0"]
    done = run(binary, *words)
    assert done.returncode == 2, done.stderr
    assert "--token-file" in done.stderr and "--anonymous" in done.stderr
    for wrong in ([], ["--server-pid", "1", "--server-port", "1"]):
        assert run(binary, "agent", *wrong).returncode == 2
    command = ["lab", *map(str, words), "--anonymous"]
    with Server(binary, command=command) as running:
        port = running.address.rsplit(":", 1)[1]
        with stub(f"127.0.0.1:{port}") as calls:
            assert next(watch(calls, interval_ms=50)).elapsed_ns


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_when_it_is_told(binary, busy, number):
    with agent(binary, "--server-pid", busy.process.pid) as running:
        with stub(running.address) as calls:
            reports = watch(calls, interval_ms=50)
            next(reports)
            running.signal(number)
            expect_status(grpc.StatusCode.UNAVAILABLE, lambda: list(reports))
            assert running.wait() == 128 + number


def test_the_proto_file_is_written_for_users(binary, tmp_path):
    subprocess.run([binary, "proto", tmp_path], check=True, capture_output=True)
    written = tmp_path / "pelton" / "lab" / "v1" / "agent.proto"
    ours = pathlib.Path(__file__).resolve().parents[2] / "proto" / "pelton/lab/v1/agent.proto"
    assert written.read_text() == ours.read_text()


def test_silent_connections_do_not_keep_the_holder_of_the_token_out(binary, busy, tmp_path):
    path = tmp_path / "agent.token"
    pid = busy.process.pid
    with agent(binary, "--server-pid", pid, "--token-file", path) as running:
        bearer = [("authorization", f"Bearer {path.read_text().strip()}")]
        host, port = running.address.rsplit(":", 1)
        with contextlib.ExitStack() as silent:
            connect = lambda: silent.enter_context(  # noqa: E731
                socket.create_connection((host, int(port)), timeout=WAIT_SECONDS)
            )
            sockets = [connect() for _ in range(600)]
            with stub(running.address) as calls:
                request = agent_pb2.AgentWatchRequest(interval_ms=50)
                reports = calls.Watch(request, timeout=WAIT_SECONDS, metadata=bearer)
                assert next(reports).elapsed_ns
                sockets += [connect() for _ in range(600)]
                assert all(report.elapsed_ns for report, _ in zip(reports, range(10)))
                # Nobody stays who has no token.
                for one in sockets:
                    with contextlib.suppress(ConnectionError):
                        while one.recv(1 << 16):
                            pass
                assert next(reports).elapsed_ns, "and whoever has it does"


def test_an_agent_without_descriptors_says_so(binary, busy):
    port = busy.address.rsplit(":", 1)[1]
    with agent(binary, "--server-port", port) as running, stub(running.address) as calls:
        reports = watch(calls, interval_ms=50)
        next(reports)
        pid = running.process.pid
        hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]
        # As many as it has: none is left to read with.
        opened = len(os.listdir(f"/proc/{pid}/fd"))
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (opened, hard))
        shortage = grpc.StatusCode.RESOURCE_EXHAUSTED
        expect_status(shortage, lambda: list(reports), "no file descriptor left", "ulimit -n")
        expect_status(shortage, lambda: next(watch(calls)), "no file descriptor left")
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (hard, hard))
        assert next(watch(calls, interval_ms=50)).elapsed_ns


def diagnose_without_agent(binary, busy, address, lose):
    """Has `lose` called once the first experiment is over, and returns the report."""
    command = [binary, "lab", "diagnose", "--target", busy.address, "--agent", address]
    command += [*ECHO_METHOD, '{"delay_ms": 5}', "--max-rate", "2000", "--max-in-flight", "8"]
    command += ["--output", "json"]
    process = subprocess.Popen(
        list(map(str, command)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=clean_environment(),
    )
    try:
        for line in process.stderr:
            if "in flight on one connection:" in line:
                break
        lose()
        output, errors = process.communicate(timeout=100)
    finally:
        process.kill()
    assert process.returncode == 0, errors
    return json.loads(output)


def assert_lost(report, address, *words):
    said = "\n".join(report["evidence_against"])
    assert f"the agent at {address}" in said, report
    assert all(word in said for word in words), said
    assert report["agent"]["address"] == address
    assert report["agent"]["lost_after_s"] > 0, report
    assert not any("pelton lab agent" in text for text in report["needs"]), report
    servers = [point["server"] for point in report["experiments"]]
    assert servers[0] and not servers[-1], "what was seen counts"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP])
def test_a_diagnosis_says_that_its_agent_was_lost(binary, busy, number):
    port = busy.address.rsplit(":", 1)[1]
    with agent(binary, "--server-port", port) as running:
        lose = lambda: running.process.send_signal(number)  # noqa: E731
        report = diagnose_without_agent(binary, busy, running.address, lose)
        running.process.send_signal(signal.SIGCONT)
        assert_lost(report, running.address, "stopped answering at second")


class Liar(agent_pb2_grpc.AgentServicer):
    """An agent whose figures are possible until `change` is set."""

    def __init__(self):
        self.change = None

    def Watch(self, request, context):
        begin = time.monotonic_ns()
        while context.is_active():
            time.sleep(0.05)
            report = agent_pb2.AgentReport(elapsed_ns=time.monotonic_ns() - begin)
            report.process.cpus = 0.5
            report.machine.cpus = 2
            report.machine.idle = 0.5
            report.threads.add(name="t", busy=0.5)
            if self.change:
                self.change(report)
            yield report


@contextlib.contextmanager
def lying():
    liar = Liar()
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(8))
    agent_pb2_grpc.add_AgentServicer_to_server(liar, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield liar, f"127.0.0.1:{port}"
    finally:
        server.stop(None)


def too_many_cpus(report):
    report.process.cpus = 500


def no_number(report):
    report.machine.steal = math.nan


def negative_zero(report):
    report.process.in_sync = -0.0


def time_that_runs_back(report):
    report.elapsed_ns = max(1, 100_000_000 - report.elapsed_ns)


def time_that_has_not_passed(report):
    report.elapsed_ns += 1_000_000_000


IMPOSSIBLE = {
    too_many_cpus: "process.cpus is 500",
    no_number: "machine.steal is NaN",
    negative_zero: "process.in_sync is -0",
}


@pytest.mark.parametrize("change", IMPOSSIBLE)
def test_impossible_figures_are_not_believed(binary, busy, change):
    with lying() as (liar, address):
        liar.change = change
        words = ["diagnose", "--target", busy.address, "--agent", address]
        done = run(binary, *words)
        assert done.returncode == 3 and not done.stdout, done
        expected = f"the agent at {address} answers impossible figures: {IMPOSSIBLE[change]}"
        assert expected in done.stderr, done.stderr
        assert "start `pelton lab agent" not in done.stderr, "there is one"


def test_an_agent_that_begins_to_report_the_impossible_is_lost(binary, busy):
    for change in (too_many_cpus, time_that_runs_back, time_that_has_not_passed):
        with lying() as (liar, address):

            def lose(liar=liar, change=change):
                liar.change = change

            report = diagnose_without_agent(binary, busy, address, lose)
            assert_lost(report, address, "answers impossible figures", "was not believed")
