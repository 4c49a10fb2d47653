"""`pelton lab diagnose` of services and clients of grpc-go, in which a cause is planted, of two
causes at once, and of services that have none. What `test_lab_diagnose.py` says holds here, too."""

import contextlib
import os
import pathlib
import shutil
import subprocess
import sys

import pytest
from server import Server
from test_lab_diagnose import ECHO, assert_named, diagnose, echo_of, planted, planted_cause, sleep

PEER = pathlib.Path(__file__).resolve().parents[2] / "peers" / "planted-go"


@pytest.fixture(scope="module")
def peer(tmp_path_factory):
    """The program of grpc-go."""
    if not shutil.which("go"):
        pytest.skip("there is no `go`")
    program = tmp_path_factory.mktemp("planted-go") / "planted-go"
    subprocess.run(["go", "build", "-C", str(PEER), "-o", str(program), "."], check=True)
    return program


@contextlib.contextmanager
def go_process(peer, *flags, threads=None):
    """A server of grpc-go with these flags: its process, and its address."""
    environment = dict(os.environ)
    if threads:
        environment["GOMAXPROCS"] = str(threads)
    command = [peer, *map(str, flags)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as server:
        try:
            yield server, server.stdout.readline().split("listening on ")[1].strip()
        finally:
            server.kill()


@contextlib.contextmanager
def go_server(peer, *flags, threads=None):
    """The address of such a server."""
    with go_process(peer, *flags, threads=threads) as (_, address):
        yield address


def by_go_client(binary, peer, target, *flags):
    """Diagnoses a client of grpc-go with these flags."""
    words = " ".join(map(str, flags))
    command = f"{peer} -call {{target}} {words}"
    return diagnose(binary, target, "--client", command, "--client-time", "4s")


def assert_of_the_way(report, *others):
    """What is named, if anything is, is the way, or one of these."""
    of_way = {"way", "window", "bandwidth", "packets_per_second", *others}
    assert set(report["causes"]) <= of_way, report
    assert report["causes"] or (report["verdict"] == "undecided" and report["needs"]), report


# --- our own generator as the client


@planted_cause
@pytest.mark.parametrize(
    "flags, causes",
    [
        (["-lock", "-pause", "15ms"], ["server_serial"]),
        (["-pool", 4, "-pause", "15ms"], ["server_pool"]),
        (["-streams", 4, "-pause", "15ms"], ["stream_limit"]),
        (["-hashes", 2_000], ["server_cpu", "server_thread"]),
    ],
    ids=["lock", "pool", "streams", "cpu"],
)
def test_a_cause_in_a_server_of_go_is_named(binary, peer, flags, causes):
    with go_server(peer, *flags) as address:
        report = diagnose(binary, address, *ECHO)
    assert_named(report, *causes)


@planted_cause
def test_a_server_of_go_on_one_cpu_is_named(binary, peer):
    with go_server(peer, "-hashes", 500, threads=1) as address:
        report = diagnose(binary, address, *ECHO)
    assert_named(report, "server_cpu", "server_thread")


@planted_cause
def test_a_window_of_a_server_of_go_is_named(binary, peer):
    """Requests of 60 kB, and a window that one of them fills, on a way of 10 ms."""
    with go_server(peer, "-window", 65_535) as server:
        command = ["lab", "tap", "--target", server, "--delay", "10ms"]
        with Server(binary, command=command) as tap:
            report = diagnose(binary, tap.address, *echo_of(60_000))
    assert_named(report, "window")


@planted_cause
@pytest.mark.parametrize("flags", [["-lock", "-pause", "15ms"], ["-pool", 4, "-pause", "15ms"]])
def test_a_limit_on_streams_that_holds_nothing_back_is_not_named(binary, peer, flags):
    """It is above what the lock or the pool lets be worked on."""
    with go_server(peer, "-streams", 8, *flags) as address:
        report = diagnose(binary, address, *ECHO)
    assert_named(report, "server_serial" if "-lock" in flags else "server_pool")


@contextlib.contextmanager
def control_group(controller, setting, value, process):
    """Puts a process into a control group of its own, of version 1, with this setting."""
    group = pathlib.Path("/sys/fs/cgroup") / controller / f"pelton-planted-{process.pid}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group of version 1 can be made: {error}")
    try:
        try:
            (group / setting).write_text(value)
        except OSError as error:
            pytest.skip(f"{setting} cannot be {value}: {error}")
        (group / "cgroup.procs").write_text(str(process.pid))
        yield
    finally:
        process.kill()
        process.wait()
        group.rmdir()


@planted_cause
def test_a_quota_of_a_server_is_named(binary, peer):
    """A fifth of a CPU, of which it could use two."""
    with go_process(peer, "-hashes", 500) as (process, address):
        with control_group("cpu", "cpu.cfs_quota_us", "20000", process):
            report = diagnose(binary, address, *ECHO)
    assert_named(report, "cpu_quota")


@planted_cause
def test_syncs_of_a_slow_disk_are_named(binary, peer, tmp_path):
    """A disk that takes 50 writes a second from this server."""
    device = os.stat(tmp_path).st_dev
    disk = f"{os.major(device)}:{os.minor(device)} 50"
    with go_process(peer, "-sync", tmp_path / "log") as (process, address):
        with control_group("blkio", "blkio.throttle.write_iops_device", disk, process):
            report = diagnose(binary, address, *ECHO)
    assert_named(report, "disk_sync")


# --- services that have more to give

NOISE = """
import time
while True:
    until = time.monotonic() + 0.005
    while time.monotonic() < until:
        pass
    time.sleep(0.02)
"""


@contextlib.contextmanager
def noise(is_there):
    """Another program, which takes a fifth of a CPU."""
    if not is_there:
        yield
        return
    with subprocess.Popen([sys.executable, "-c", NOISE]) as other:
        try:
            yield
        finally:
            other.kill()


@contextlib.contextmanager
def healthy(binary, peer, kind):
    """A service that answers much more than it will be asked, and what it is asked."""
    if kind == "go":
        with go_server(peer) as address:
            yield address, ECHO
    elif kind == "go, 5 ms a call":
        with go_server(peer, "-pause", "5ms") as address:
            yield address, ECHO
    elif kind == "grpcio":
        with planted(sleep) as address:
            yield address, ECHO
    else:
        with Server(binary) as server:
            yield server.address, ECHO if kind == "pelton, echo" else []


@planted_cause
@pytest.mark.parametrize("is_noisy", [False, True], ids=["quiet", "noise"])
@pytest.mark.parametrize("kind", ["go", "go, 5 ms a call", "grpcio", "pelton", "pelton, echo"])
def test_a_healthy_pair_is_not_blamed(binary, peer, kind, is_noisy):
    with healthy(binary, peer, kind) as (address, words), noise(is_noisy):
        report = diagnose(binary, address, *words, "--max-rate", 400)
    assert report["causes"] == [], report
    assert report["verdict"] in ("no limit found", "undecided"), report


# --- a client of grpc-go


@planted_cause
def test_the_calls_that_a_client_of_go_keeps_open_are_named(binary, peer):
    with go_server(peer, "-pause", "15ms") as address:
        report = by_go_client(binary, peer, address, "-in-flight", 4, "-calls", 2_000)
    assert_named(report, "client_in_flight")


@planted_cause
def test_a_client_of_go_that_pauses_is_named(binary, peer, server):
    flags = ["-in-flight", 1, "-calls", 200, "-pause", "20ms"]
    report = by_go_client(binary, peer, server.address, *flags)
    assert_named(report, "client_pace")


@planted_cause
def test_a_client_of_go_without_cpu_left_is_named(binary, peer, server):
    flags = ["-in-flight", 4, "-calls", 2_000, "-hashes", 2_000]
    report = by_go_client(binary, peer, server.address, *flags)
    assert_named(report, "client_cpu", "client_thread")


@planted_cause
def test_a_lock_behind_a_client_of_go_is_named(binary, peer):
    with go_server(peer, "-lock", "-pause", "15ms") as address:
        report = by_go_client(binary, peer, address, "-in-flight", 8, "-calls", 2_000)
    assert_named(report, "server_serial")


@planted_cause
def test_a_window_behind_a_client_of_go_is_named(binary, peer):
    """Requests of 60 kB, and a window that one of them fills, on a way of 10 ms."""
    flags = ["-in-flight", 8, "-calls", 4_000, "-payload", 60_000]
    with go_server(peer, "-window", 65_535) as server:
        command = ["lab", "tap", "--target", server, "--delay", "10ms"]
        with Server(binary, command=command) as tap:
            report = by_go_client(binary, peer, tap.address, *flags)
    assert_named(report, "window")


@planted_cause
@pytest.mark.parametrize("bandwidth", ["400KiB", "40KiB"])
def test_a_full_way_behind_a_client_of_go_is_not_taken_for_its_server(binary, peer, bandwidth):
    """Nobody can make a client's requests larger, so that it may stay undecided."""
    flags = ["-in-flight", 16, "-calls", 2_000, "-payload", 2_000]
    with go_server(peer) as server:
        command = ["lab", "tap", "--target", server, "--bandwidth", bandwidth]
        with Server(binary, command=command) as tap:
            report = by_go_client(binary, peer, tap.address, *flags)
    assert_of_the_way(report)


@planted_cause
def test_counted_packets_behind_a_client_of_go_are_not_taken_for_its_server(binary, peer):
    flags = ["-in-flight", 16, "-calls", 4_000]
    with go_server(peer) as server:
        command = ["lab", "tap", "--target", server, "--packets-per-second", "400"]
        with Server(binary, command=command) as tap:
            report = by_go_client(binary, peer, tap.address, *flags)
    assert_of_the_way(report)


@planted_cause
def test_a_longer_way_behind_a_client_of_go_is_not_taken_for_its_server(binary, peer):
    """More calls in flight would hide it, and so may be named as well."""
    flags = ["-in-flight", 4, "-calls", 2_000]
    with go_server(peer) as server:
        command = ["lab", "tap", "--target", server, "--delay", "20ms"]
        with Server(binary, command=command) as tap:
            report = by_go_client(binary, peer, tap.address, *flags)
    assert_of_the_way(report, "client_in_flight")


@planted_cause
def test_two_causes_at_once_behind_a_client_of_go_are_named(binary, peer):
    """A lock, and a queue of calls that waits for it."""
    with go_server(peer, "-lock", "-pause", "15ms") as address:
        report = by_go_client(binary, peer, address, "-in-flight", 2_000, "-calls", 2_000)
    assert_named(report, "server_serial")
    assert report["causes"][1:] == ["client_queue"], report
