"""`pelton self-check`: its exit code, and that it leaves nothing behind, however it ends."""

import json
import os
import signal
import subprocess
import time

import pytest
import strace
from server import wait_until

SECONDS = 60


def check(binary, folder, *limits):
    """Exit code, and the facts by their names; the limits are those of prlimit."""
    prefix = ["prlimit", *limits] if limits else []
    words = [*prefix, binary, "self-check", "--data", str(folder), "--output", "json"]
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    done = subprocess.run(words, capture_output=True, timeout=SECONDS, env=environment)
    facts = [json.loads(line) for line in done.stdout.splitlines()]
    return done.returncode, {fact["name"]: fact for fact in facts}


def test_a_machine_without_problems_is_done(binary, tmp_path):
    for _ in range(2):
        code, facts = check(binary, tmp_path)
        assert code == 0, facts
        assert len(facts) == 11
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
    problems = {name for name, fact in facts.items() if fact["judgement"] == "problem"}
    assert problems == {"file system", "sync"}, facts
    assert list(tmp_path.iterdir()) == []


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
