"""`pelton self-check`: its exit code, and that it leaves nothing behind, however it ends."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import pytest
import strace
from server import Server, wait_until

SECONDS = 60


def check(binary, folder, *limits, prefix=()):
    """Exit code, and the facts by their names; the limits are those of prlimit."""
    prefix = ["prlimit", *limits] if limits else [*prefix]
    words = [*prefix, binary, "self-check", "--data", str(folder), "--output", "json"]
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    done = subprocess.run(words, capture_output=True, timeout=SECONDS, env=environment)
    facts = [json.loads(line) for line in done.stdout.splitlines()]
    return done.returncode, {fact["name"]: fact for fact in facts}


def problems(facts):
    return {name for name, fact in facts.items() if fact["judgement"] == "problem"}


def test_a_machine_without_problems_is_done(binary, tmp_path):
    for _ in range(2):
        code, facts = check(binary, tmp_path)
        assert code == 0, facts
        assert len(facts) == 14
        assert facts["sync"]["value"].startswith("median "), facts["sync"]
        assert list(tmp_path.iterdir()) == []


def test_too_few_descriptors_are_a_problem(binary, tmp_path):
    code, facts = check(binary, tmp_path, "--nofile=30:30")
    assert code == 1
    assert facts["descriptors"]["judgement"] == "problem", facts
    assert "ulimit" in facts["descriptors"]["advice"]


def test_a_limit_on_address_space_is_a_problem_where_a_server_does_not_start(binary, tmp_path):
    code, facts = check(binary, tmp_path, f"--as={400 << 20}:{400 << 20}")
    assert code == 1
    assert facts["memory"]["judgement"] == "problem", facts
    assert "ulimit -v" in facts["memory"]["advice"]


def test_a_folder_that_is_nowhere_is_a_problem_and_is_not_made(binary, tmp_path):
    code, facts = check(binary, tmp_path / "no" / "such")
    assert code == 1
    assert problems(facts) == {"data folder", "file system", "sync"}, facts
    assert "mkdir -p" in facts["data folder"]["advice"]
    assert list(tmp_path.iterdir()) == []


def test_numbers_are_numbers(binary, tmp_path):
    code, facts = check(binary, tmp_path, "--nofile=300:400", f"--fsize={1 << 30}")
    assert code == 0, facts
    numbers = {name: fact["numbers"] for name, fact in facts.items()}
    assert numbers["user"] == {"user_id": os.geteuid()}
    descriptors = numbers["descriptors"]
    assert (descriptors["soft_limit"], descriptors["hard_limit"]) == (300, 400)
    assert f"needs {descriptors['needed']} at least" in facts["descriptors"]["value"]
    assert 0 < descriptors["connections"] < 400
    assert numbers["file size"] == {"limit_bytes": 1 << 30}
    sync = numbers["sync"]
    assert 0 < sync["median_us"] <= sync["longest_us"] and 1 <= sync["syncs"] <= 64
    room = os.statvfs(tmp_path)
    assert 0 < numbers["free room"]["free_bytes"] <= room.f_blocks * room.f_frsize
    assert numbers["cpu"]["usable_cpus"] == len(os.sched_getaffinity(0))
    for fact in numbers.values():
        assert all(isinstance(one, int | float | None) for one in fact.values()), fact


def test_with_one_descriptor_less_than_is_said_no_server_starts(binary, tmp_path):
    """The same number in the check, in the server's refusal, and in truth."""
    _, facts = check(binary, tmp_path)
    cpus = len(os.sched_getaffinity(0))
    needed = facts["descriptors"]["numbers"]["needed"]
    assert needed == 36 + 2 * cpus + 2
    folder = tmp_path / "data"
    words = [binary, "serve", "--listen", "127.0.0.1:0", "--metrics-listen", "0"]
    words += ["--threads", str(cpus), "--driver", "event-loop", "--data", str(folder)]
    few = ["prlimit", f"--nofile={needed - 1}:{needed - 1}"]
    refused = subprocess.run([*few, *words], capture_output=True, text=True, timeout=SECONDS)
    assert refused.returncode == 3
    assert f"needs {needed}" in refused.stderr, refused.stderr
    code, facts = check(binary, tmp_path, f"--nofile={needed - 1}:{needed - 1}")
    assert (code, problems(facts)) == (1, {"descriptors"})
    code, facts = check(binary, tmp_path, f"--nofile={needed}:{needed}")
    assert (code, problems(facts)) == (0, set()), facts


def test_a_limit_on_the_size_of_files_is_a_problem_where_a_server_does_not_start(binary, tmp_path):
    """It ends no process, and is named where nothing can be written at all."""
    for limit in (0, 4096, (64 << 20) - 1):
        code, facts = check(binary, tmp_path, f"--fsize={limit}:{limit}")
        assert code == 1
        assert facts["file size"]["judgement"] == "problem", facts
        assert "LimitFSIZE=" in facts["file size"]["advice"]
        is_measured = facts["sync"]["judgement"] != "problem"
        assert is_measured or "LimitFSIZE=" in facts["sync"]["advice"], facts["sync"]
        assert list(tmp_path.iterdir()) == []


def test_files_of_others_in_the_data_folder_are_a_problem(binary, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    for _ in range(2):
        code, facts = check(binary, tmp_path)
        assert (code, problems(facts)) == (1, {"data folder"}), facts
        assert "not empty (there is notes.txt)" in facts["data folder"]["advice"]
        assert [one.name for one in tmp_path.iterdir()] == ["notes.txt"]


def test_the_folder_of_a_server_is_fine_while_it_runs_and_after(binary, tmp_path):
    folder = tmp_path / "data"
    with Server(binary, "--data", str(folder), "--log-segment", "4MiB"):
        running = check(binary, folder)
    for code, facts in (running, check(binary, folder)):
        assert code == 0, facts
        assert facts["data folder"]["value"].endswith(", of a server")


@pytest.fixture
def open_folder():
    """A folder to which other users get, as they do not to those of pytest."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        folder.chmod(0o755)
        yield folder


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_who_may_not_write_is_told_whose_folder_it_is_and_what_to_do(binary, open_folder):
    program = open_folder / "pelton"
    shutil.copy2(binary, program)
    folder = open_folder / "data"
    folder.mkdir(mode=0o700)
    as_nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]

    def advice(data):
        code, facts = check(program, data, prefix=as_nobody)
        assert (code, problems(facts)) == (1, {"data folder"}), facts
        return facts["data folder"]["advice"]

    for data in (folder, folder / "deeper"):
        whose = f"{folder} belongs to root with mode 0700, and this is nobody: choose a folder"
        assert whose in advice(data)
    folder.chmod(0o755)
    for data in (folder, folder / "deeper"):
        assert "with mode 0755, and this is nobody: make a folder" in advice(data)
        assert f"`install -d -o nobody -m 700 {data}`" in advice(data)
    os.chown(folder, 4242, 4242)
    assert f"`runuser -u 4242 -- pelton self-check --data {folder}`" in advice(folder)
    assert f"`chown -R nobody: {folder}`" in advice(folder)
    folder.chmod(0o700)
    assert "belongs to 4242" in advice(folder) and "chown" not in advice(folder)
    os.chown(folder, 65534, 65534)
    code, facts = check(program, folder, prefix=as_nobody)
    assert (code, problems(facts)) == (0, set()), facts
    assert facts["user"]["judgement"] == "ok"


# Shows what it is asked for, as that of systemd does.
SHOW = """#!/bin/sh
echo "$@" >> {folder}/asked
for name in $(echo "$2" | sed 's/^--property=//' | tr , ' '); do
    grep "^$name=" {folder}/shown
done
exit $(cat {folder}/code)
"""

RUN = r"""#!{python}
import os, sys
words = sys.argv[1:]
open("{folder}/run", "a").write("\n".join(words) + "\n")
at = words.index("--")
limits = [word for word in words[:at] if "LimitNOFILE=" in word]
limit = limits[0].split("=")[2]
os.execvp("prlimit", ["prlimit", "--nofile=" + limit, *words[at + 1 :]])
"""


@pytest.fixture
def systemd(tmp_path):
    """A folder for PATH with programs in the place of systemd's, and what they note."""
    folder = tmp_path / "systemd"
    folder.mkdir()
    for name, text in (("systemctl", SHOW), ("systemd-run", RUN)):
        program = folder / name
        program.write_text(text.format(folder=folder, python=sys.executable))
        program.chmod(0o755)
    (folder / "code").write_text("0")
    return folder


def check_service(binary, systemd, *words):
    environment = {"PATH": f"{systemd}:{os.environ['PATH']}"}
    words = [binary, "self-check", "--output", "json", *words]
    return subprocess.run(words, capture_output=True, text=True, env=environment, timeout=SECONDS)


def test_a_service_is_looked_at_with_its_user_limits_and_folder(binary, systemd, tmp_path):
    settings = tmp_path / "pelton.toml"
    settings.write_text('data = "data"\n')
    unit = [
        "LoadState=loaded",
        "User=pelton",
        "LimitNOFILE=400",
        "LimitNOFILESoft=300",
        "ProtectSystem=strict",
        "StateDirectory=pelton",
        f"WorkingDirectory={tmp_path}",
        f"ExecStart={{ path=/p ; argv[]=/p serve --config {settings} ; flags= }}",
    ]
    (systemd / "shown").write_text("\n".join(unit) + "\n")
    done = check_service(binary, systemd, "--service")
    assert done.returncode == 0, done.stderr
    facts = {fact["name"]: fact for fact in map(json.loads, done.stdout.splitlines())}
    assert facts["descriptors"]["numbers"]["hard_limit"] == 400
    assert facts["data folder"]["value"].startswith(f"{tmp_path}/data ")
    words = (systemd / "run").read_text().splitlines()
    for word in (
        "--property=User=pelton",
        "--property=LimitNOFILE=300:400",
        "--property=ProtectSystem=strict",
        "--property=ReadWritePaths=-/var/lib/pelton",
    ):
        assert word in words
    assert (systemd / "asked").read_text().rstrip().endswith("-- pelton")
    # Its name, another folder, and a problem.
    (systemd / "shown").write_text("LoadState=loaded\nLimitNOFILE=30\n")
    done = check_service(binary, systemd, "--service", "other", "--data", str(tmp_path))
    assert done.returncode == 1, done.stderr
    assert (systemd / "asked").read_text().rstrip().endswith("-- other")


def test_a_service_that_cannot_be_looked_at_is_a_failure_with_what_to_do(binary, systemd):
    def failure(path=systemd):
        done = check_service(binary, path, "--service")
        assert (done.returncode, done.stdout) == (3, ""), done
        return done.stderr

    (systemd / "shown").write_text("LoadState=not-found\n")
    assert "no unit pelton (not-found)" in failure()
    (systemd / "code").write_text("1")
    assert "needs a systemd that runs" in failure()
    (systemd / "code").write_text("0")
    (systemd / "shown").write_text("LoadState=loaded\n")
    (systemd / "systemd-run").write_text("#!/bin/sh\nexit 203\n")
    assert "the user of the service may not run" in failure()
    for name in ("systemctl", "systemd-run"):
        (systemd / name).unlink()
    done = subprocess.run(
        [binary, "self-check", "--service"],
        capture_output=True,
        text=True,
        env={"PATH": str(systemd)},
        timeout=SECONDS,
    )
    assert done.returncode == 3
    assert "runuser -u USER" in done.stderr


@pytest.mark.skipif(not strace.works(), reason="no strace, or it may not trace processes here")
def test_who_has_had_enough_finds_nothing_left_behind(binary, tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    prefix = strace.injecting(tmp_path / "strace", "fdatasync:delay_enter=200000")
    for _ in range(2):
        words = [*prefix, binary, "self-check", "--data", str(folder)]
        checking = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        wait_until(lambda: any(folder.iterdir()))
        time.sleep(0.05)
        checking.send_signal(signal.SIGINT)
        _, errors = checking.communicate(timeout=SECONDS)
        assert checking.returncode == 130
        assert b"nothing was left behind" in errors
        assert list(folder.iterdir()) == []


@pytest.mark.skipif(not strace.works(), reason="no strace, or it may not trace processes here")
def test_a_slow_device_is_measured_for_a_bounded_time(binary, tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    prefix = strace.injecting(tmp_path / "strace", "fdatasync:delay_enter=100000")
    words = [*prefix, binary, "self-check", "--data", str(folder), "--output", "json"]
    done = subprocess.run(words, capture_output=True, timeout=SECONDS)
    facts = {fact["name"]: fact for fact in map(json.loads, done.stdout.splitlines())}
    assert done.returncode == 0
    assert facts["sync"]["judgement"] == "note", facts["sync"]
    assert list(folder.iterdir()) == []
