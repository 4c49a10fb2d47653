"""`pelton lab scenario`: published experiments, in runs so short that they show only that all of it
works. What a claim becomes of which figures is tested beside the code."""

import glob
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

import pytest
from environment import clean_environment
from server import wait_until


def scenario(binary, *words, codes=(0,)):
    command = [binary, "lab", "scenario", *map(str, words)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, env=clean_environment()
    )
    assert done.returncode in codes, (done.returncode, done.stdout, done.stderr)
    return done


def measured(binary, *words):
    return json.loads(scenario(binary, *words, "--quick", "--output", "json").stdout)


def names(report):
    return {run["run"] for run in report["runs"]}


def assert_all_were_run(report):
    """On a machine with much else to do no call may end in a tenth of a second; nothing else keeps
    a run from being one."""
    idle = {one["run"] for one in report["not_run"] if "none ended" in one["why"]}
    assert [one for one in report["not_run"] if one["run"] not in idle] == []
    return idle


def verdict(report, words):
    [claim] = [claim for claim in report["claims"] if words in claim["claim"]]
    return claim["verdict"], claim["figures"]


def children_of(process):
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat") as file:
                fields = file.read().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == process:
            found.append(int(entry))
    return found


def test_calls_in_flight(binary):
    # Sleeping one after the other or together: half a second tells, in one of a few runs on a
    # machine with much else to do.
    for _ in range(5):
        report = measured(binary, "in-flight", "--seed", "5", "--python", sys.executable)
        idle = assert_all_were_run(report)
        rates = {run["run"]: run["client_figures"]["all_calls_per_s"] for run in report["runs"]}
        if not idle and rates["no lock, 100 in flight"] > 2 * rates["lock, 100 in flight"]:
            break
    assert idle == set() and len(names(report)) == len(report["runs"]) == 6
    assert rates["no lock, 100 in flight"] > 2 * rates["lock, 100 in flight"]
    assert f"{rates['no lock, 100 in flight']:.0f}" in verdict(report, "without the lock")[1]
    [unbounded] = [run for run in report["runs"] if run["run"].endswith("without a bound")]
    figures = unbounded["client_figures"]
    # On a machine with much else to do it may not be full before its time is over.
    assert figures["waiting"] > 100 and figures["memory_limit_bytes"] == 96 << 20
    assert verdict(report, "the unbounded client fails")[0] != "cannot-be-seen"
    for run in report["runs"]:
        assert run["client_peak_bytes"] > 1 << 20
        assert run["client_cpu_s"] > 0
        assert run["server_cpu_s"] > 0
        assert run["client_figures"]["all_calls_per_s"] > 0


def test_connection_modes(binary):
    report = measured(binary, "connection-modes", "--rounds", "2", "--seed", "6")
    idle = assert_all_were_run(report)
    assert len(report["runs"]) == 2 * len(names(report)) or idle
    limited = [run for run in report["runs"] if run["run"].endswith("few packets")]
    assert len(limited) == 8 or idle
    for run in limited:
        assert run["relay_figures"]["calls_ended"] >= run["client_figures"]["calls"]
    assert verdict(report, "a physical machine")[0] == "cannot-be-seen"


def test_channels_of_grpcio(binary):
    report = measured(binary, "channels", "--python", sys.executable, "--seed", "7")
    # Its wheel is not in this Python; tests/channel has one that has it.
    of_wheel = [one for one in report["not_run"] if one["run"].startswith("pelton_grpc")]
    assert len(of_wheel) == 4
    assert all("there is no pelton_grpc" in one["why"] for one in of_wheel)
    report["not_run"] = [one for one in report["not_run"] if one not in of_wheel]
    idle = assert_all_were_run(report)
    foreign = [run for run in report["runs"] if run["run"].startswith("gRPC")]
    assert foreign
    for run in foreign:
        assert run["client_figures"]["client"].startswith("grpcio ")
        assert run["client_figures"]["calls"] > 0
    # 200 ms with 4 places on a connection of which each call takes a part of a millisecond.
    watched = [run for run in foreign if run["run"].endswith("watched")]
    assert [len(run["relay_figures"]["connections"]) for run in watched] == [1] or idle


def test_server_modes(binary):
    report = measured(binary, "server-modes", "--seed", "8")
    idle = assert_all_were_run(report)
    assert len(names(report) | idle) == 62
    # A hundred records in a call: over all runs together that tells, however short they are.
    rates = {"Set": 0, "Set batch 100": 0}
    for run in report["runs"]:
        kind = run["run"].split(",")[0]
        if kind in rates:
            rates[kind] += run["client_figures"]["calls_per_s"]
    assert rates["Set batch 100"] * 100 > rates["Set"] > 0
    assert verdict(report, "batches are worth most")[0] in ("reproduced", "not-reproduced") or idle
    for run in report["runs"]:
        assert run["client_figures"]["failures"] == 0


def test_sizes_of_chunks(binary, tmp_path):
    before = set(glob.glob(f"{tempfile.gettempdir()}/pelton-scenario-*"))
    csv = tmp_path / "sizes.csv"
    report = measured(binary, "chunk-size", "--seed", "9", "--csv", csv)
    assert report["machine"]["cpus"] >= 1 and report["machine"]["way"].startswith("loopback")
    assert report["not_run"] == []
    assert len(names(report)) == 50
    assert len(report["claims"]) == 7
    assert "cannot-be-seen" not in {claim["verdict"] for claim in report["claims"]}
    by_file = {}
    for run in report["runs"]:
        figures = run["client_figures"]
        line, shift = run["run"].rsplit(", 2^", 1)
        assert figures["chunk_bytes"] == 1 << int(shift)
        assert figures["tls"] == line.endswith("TLS")
        assert figures["way"].startswith("http2" if "HTTP" in line else "grpc")
        assert figures["server_cpu_percent"] is not None
        clock = "answered_ns" if "HTTP" in line else "sent_ns"
        file = tmp_path / f"sizes.{line.lower().replace('/', '').replace(', ', '-')}.csv"
        by_file.setdefault(file, []).extend((int(shift), ns) for ns in figures[clock])
    assert set(tmp_path.iterdir()) == set(by_file)
    for file, expected in by_file.items():
        lines = [tuple(map(int, line.split(","))) for line in file.read_text().splitlines()]
        assert sorted(lines) == sorted(expected)
        assert [shift for shift, _ in lines] == sorted(shift for shift, _ in lines)
    after = set(glob.glob(f"{tempfile.gettempdir()}/pelton-scenario-*"))
    assert after <= before, "the folder of the certificates is removed"


def test_without_a_client_of_grpc_the_others_run(binary):
    python = "/nonexistent/python"
    done = scenario(binary, "channels", "--quick", "--python", python)
    assert "a client need not have this bottleneck" in done.stdout
    assert f"there is no client of gRPC ({python}: No such file" in done.stdout
    assert "--grpc-client with one of peers/" in done.stdout
    assert "cannot be seen here, because there is no client of gRPC" in done.stdout
    assert "Pelton, 1 × 128" in done.stdout


def test_a_client_of_grpc_that_is_no_program_is_refused_before_any_load(binary, tmp_path):
    text = tmp_path / "client.txt"
    text.write_text("no program")
    for client, why in [
        ("/nonexistent/client", "No such file"),
        (tmp_path, "this is no file; give the program itself"),
        (text, "it may not be run; make it executable"),
    ]:
        done = scenario(binary, "channels", "--quick", "--grpc-client", client, codes=(2,))
        assert f"--grpc-client {client}: {why}" in done.stderr
        assert not done.stdout


def test_a_client_that_prints_nothing_is_named(binary):
    done = scenario(binary, "channels", "--quick", "--grpc-client", "/bin/false")
    assert "the client printed no result: it ended with exit status: 1" in done.stdout


def test_what_the_user_has_set_changes_nothing(binary, tmp_path):
    """A scenario is the same everywhere, and sends nobody's token."""
    profile = tmp_path / "client.toml"
    profile.write_text('[default]\naddress = "127.0.0.1:1"\n')
    own = {
        "PELTON_ADDRESS": "127.0.0.1:1",
        "PELTON_TOKEN": "none",
        "PELTON_DATA": str(tmp_path / "data"),
        "PELTON_CLIENT_CONFIG": str(profile),
        "PELTON_THREADS": "nonsense",
    }
    command = [binary, "lab", "scenario", "in-flight", "--quick", "--python", sys.executable]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=100, env={**clean_environment(), **own}
    )
    assert done.returncode == 0, done.stderr
    assert "not run" not in done.stdout
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_shows_what_there_is_and_leaves_nobody(binary, how):
    command = [binary, "lab", "scenario", "connection-modes", "--output", "json"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean_environment()
    )
    children = set()
    end = time.monotonic() + 60
    # Four programs: a server and a client of two runs, so that one at least is whole.
    while len(children) < 4 and time.monotonic() < end:
        children.update(children_of(process.pid))
        time.sleep(0.01)
    process.send_signal(how)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + how
    report = json.loads(out)
    whys = {run["why"] for run in report["not_run"]}
    assert "it was interrupted" in whys
    assert report["runs"] or any("none ended" in why for why in whys)
    assert not [child for child in children if os.path.exists(f"/proc/{child}")]


def test_what_was_started_ends_with_a_scenario_that_is_killed(binary):
    command = [binary, "lab", "scenario", "connection-modes"]
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, env=clean_environment(), **pipes)
    children = []
    wait_until(lambda: children.extend(children_of(process.pid)) or len(children) >= 2, 60)
    process.kill()
    process.wait()

    def is_server_gone(child):
        try:
            with open(f"/proc/{child}/cmdline") as file:
                return "serve" not in file.read().split("\0")
        except OSError:
            return True

    # A client ends with its load.
    wait_until(lambda: all(map(is_server_gone, children)), 60)


def test_an_unknown_name_and_contradicting_flags_are_refused_at_once(binary):
    for words, text in [
        (("nothing",), "possible values: channels, in-flight, connection-modes, server-modes"),
        (("channels", "--csv", "a.csv"), "--csv is of the scenario chunk-size"),
        (("channels", "--quick", "--full"), "cannot be used with"),
        (("channels", "--rounds", "0"), "--rounds"),
        # Both are needed for channels, and none of them where no client is of their kind.
        (("channels", "--python", "a", "--grpc-client", "/nonexistent"), "No such file"),
        (("in-flight", "--grpc-client", "b"), "--grpc-client: this scenario has no run of such"),
        (("chunk-size", "--python", "a"), "--python: this scenario has no run of such a client"),
    ]:
        done = scenario(binary, *words, codes=(2,))
        assert text in done.stderr, done.stderr
        assert not done.stdout
