"""Ctrl-C and SIGTERM while a command waits for a server that is silent, or for its reader."""

import contextlib
import json
import os
import signal
import subprocess

import pytest
from environment import clean_environment
from server import Server, catches, wait_until

MAY_BE_DONE = "interrupted; the server may have done it all the same"
WRITES = [
    ["put", "k", "v"],
    ["delete", "k"],
    ["append", "k", "v"],
    ["incr", "n"],
    ["database", "create", "made"],
    ["database", "drop", "made"],
    ["batch", "OPERATIONS"],
    ["transact", "TRANSACTION"],
]
READS = [
    ["get", "k"],
    ["count"],
    ["status"],
    ["blob", "list"],
    ["blob", "stat", "b"],
    ["database", "list"],
]
SCANS = [["scan"], ["ls"]]
SMALL = ["--keys", "100", "--connections", "1"]


@pytest.fixture
def silent(binary):
    """A server that is stopped: the kernel accepts connections for it, and nothing comes back."""
    with Server(binary) as server:
        server.signal(signal.SIGSTOP)
        yield server
        server.signal(signal.SIGCONT)


def without_variables():
    return clean_environment()


def start(binary, server, *arguments):
    environment = without_variables()
    # The tests may run below nohup themselves.
    command = ["env", "--default-signal=HUP", binary, *arguments, "--address", server.address]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, env=environment, text=True, **pipes)


def wait_until_sent(process, server):
    """Waits until the request of a command lies with the server, which reads nothing."""
    listening = int(server.address.rsplit(":", 1)[1])

    def is_sent():
        assert process.poll() is None, process.communicate()
        files = f"/proc/{process.pid}/fd"
        held = set()
        for name in os.listdir(files):
            # The command may close one at any time.
            with contextlib.suppress(FileNotFoundError):
                held.add(os.readlink(f"{files}/{name}"))
        with open("/proc/net/tcp") as table:
            rows = [line.split() for line in table.readlines()[1:]]
        port = lambda address: int(address.split(":")[1], 16)  # noqa: E731
        ours = {port(row[1]) for row in rows if f"socket:[{row[9]}]" in held}
        theirs = [row for row in rows if port(row[1]) == listening and port(row[2]) in ours]
        waiting = [row[4].split(":")[1] for row in theirs]
        # More than the preface and the settings of a client.
        return any(int(count, 16) > 100 for count in waiting)

    wait_until(is_sent)


def interrupted(process, number, *, json_output=False):
    process.send_signal(number)
    # Nobody reads meanwhile.
    process.wait(timeout=60)
    printed, errors = process.stdout.read(), process.stderr.read()
    assert process.returncode == 128 + number, errors
    if not json_output:
        return printed, errors.removeprefix("pelton: ").strip()
    failure = json.loads(errors)
    assert failure["exit_code"] == 128 + number, failure
    return printed, failure["error"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_every_command_says_what_it_was_interrupted_in(binary, silent, number, tmp_path):
    operations, transaction = tmp_path / "operations", tmp_path / "transaction"
    operations.write_text('{"operation": "put", "key": "k", "value": "v"}\n')
    transaction.write_text('{"when_met": [{"operation": "put", "key": "k", "value": "v"}]}')
    files = {"OPERATIONS": str(operations), "TRANSACTION": str(transaction)}
    expected = {MAY_BE_DONE: WRITES, "interrupted": READS}
    expected["interrupted after at least 0 entries; what was printed is incomplete"] = SCANS
    # The server accepts many connections, each with its request: they are looked at one by one.
    for text, commands in expected.items():
        for arguments in commands:
            arguments = [files.get(word, word) for word in arguments]
            for form in [[], ["--output", "json"]]:
                process = start(binary, silent, *arguments, *form)
                wait_until_sent(process, silent)
                printed, error = interrupted(process, number, json_output=bool(form))
                assert (printed, error) == ("", text), arguments


def test_what_waits_for_its_input_is_interrupted_too(binary):
    with Server(binary) as server:
        environment = without_variables()
        for number in [signal.SIGINT, signal.SIGTERM]:
            command = [binary, "put", "k", "-", "--address", server.address]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            process = subprocess.Popen(command, env=environment, text=True, **pipes)

            wait_until(lambda: catches(process, [signal.SIGINT, signal.SIGTERM]))
            process.send_signal(number)
            # Its input stays open.
            assert process.wait(timeout=60) == 128 + number
            assert process.stderr.read() == "pelton: interrupted\n"
            process.communicate()


def test_a_scan_whose_reader_waits_ends_at_once(binary):
    with Server(binary) as server:
        for number in range(4):
            done = start(binary, server, "put", f"k{number}", "v" * 100_000)
            assert done.wait(timeout=60) == 0
        for number in [signal.SIGINT, signal.SIGTERM]:
            process = start(binary, server, "scan")
            # More than a pipe holds.
            assert process.stdout.read(10)
            printed, error = interrupted(process, number)
            assert error == "interrupted after at least 0 entries; what was printed is incomplete"
            assert "v" in printed and len(printed) < 400_000


def databases(binary, server):
    process = start(binary, server, "database", "list", "--output", "json")
    printed, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    return [json.loads(line)["name"] for line in printed.splitlines()]


def test_a_load_that_loses_its_terminal_removes_its_database(binary):
    with Server(binary) as server:
        for _ in range(2):
            process = start(binary, server, "load", "--duration", "60s", *SMALL)
            wait_until(lambda: any(name.startswith("load-") for name in databases(binary, server)))
            process.send_signal(signal.SIGHUP)
            process.communicate(timeout=60)
            assert process.returncode == 128 + signal.SIGHUP
            assert databases(binary, server) == [""]


def test_a_load_below_nohup_outlives_its_terminal(binary):
    with Server(binary) as server:
        command = ["nohup", binary, "load", "--duration", "2s", "--warm-up", "0s", *SMALL]
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE}
        command += ["--address", server.address]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL, **pipes)
        wait_until(lambda: any(name.startswith("load-") for name in databases(binary, server)))
        process.send_signal(signal.SIGHUP)
        process.communicate(timeout=60)
        assert process.returncode in (0, 1), "it has measured to its end"
        assert databases(binary, server) == [""]
