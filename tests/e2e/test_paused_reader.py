"""A reader of `pelton scan` or `pelton export` that pauses longer than the server waits."""

import json
import subprocess

import pytest
from environment import clean_environment
from metrics_page import counter
from server import Server, wait_until

STALLED = "pelton_connections_stalled_total"
OPENED = "pelton_connections_opened_total"
# More than what the kernel and the windows of HTTP/2 hold for a reader who takes nothing.
VALUES, VALUE_BYTES = 120, 1_000_000
PIPES = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}


@pytest.fixture(scope="module")
def filled(binary, tmp_path_factory):
    flags = ["--write-stall-timeout", "300ms", "--metrics-listen", "127.0.0.1:0"]
    with Server(binary, *flags) as server:
        file = tmp_path_factory.mktemp("filled") / "operations"
        with file.open("w") as operations:
            for number in range(VALUES):
                operation = {"operation": "put", "key": f"key/{number:03}"}
                operations.write(json.dumps({**operation, "value": "v" * VALUE_BYTES}) + "\n")
        run(binary, server, "batch", "--mode", "independent", str(file))
        yield server
        assert server.process.poll() is None, server.log()


def run(binary, server, *arguments):
    command = [binary, *arguments, "--address", server.address]
    done = subprocess.run(command, capture_output=True, timeout=120, env=clean_environment())
    assert done.returncode == 0, done.stderr
    return done.stdout


def read_with_pauses(binary, server, *arguments):
    """What a command prints to a reader who pauses twice, until the server has given it up."""
    command = [binary, *arguments, "--address", server.address]
    before = counter(server, STALLED)
    process = subprocess.Popen(command, **PIPES, env=clean_environment())
    text = b""
    for pause in range(2):
        text += process.stdout.read(4096)
        # A slow machine may have had it closed before.
        is_closed = lambda: counter(server, STALLED) > before + pause  # noqa: B023, E731
        wait_until(is_closed, message="no further connection was closed")
        # What was on its way comes first, then a further connection.
        opened = counter(server, OPENED)
        while counter(server, OPENED) == opened:
            text += process.stdout.read(VALUE_BYTES)
    text += process.stdout.read()
    errors = process.stderr.read()
    assert process.wait(timeout=120) == 0, errors
    return text


RANGES = [
    [],
    ["--reverse"],
    ["--limit", str(VALUES - 2)],
    ["--prefix", "key/", "--start-after", "key/001"],
]


@pytest.mark.parametrize("flags", RANGES)
def test_a_scan_goes_on_where_it_was(binary, filled, flags):
    scan = ["scan", "--output", "json", *flags]
    paused = [json.loads(line) for line in read_with_pauses(binary, filled, *scan).splitlines()]
    expected = [json.loads(line) for line in run(binary, filled, *scan).splitlines()]
    assert [entry["key"] for entry in paused] == [entry["key"] for entry in expected]
    assert paused == expected and len(paused) >= VALUES - 2


@pytest.mark.parametrize("form", ["jsonl", "binary"])
def test_an_export_goes_on_where_it_was(binary, filled, form):
    export = ["export", "--format", form]
    assert read_with_pauses(binary, filled, *export) == run(binary, filled, *export)


def test_a_scan_whose_server_has_gone_says_where_to_go_on(binary):
    with Server(binary, "--metrics-listen", "127.0.0.1:0") as server:
        for number in range(40):
            command = [binary, "put", f"key/{number:03}", "-", "--address", server.address]
            value = b"v" * VALUE_BYTES
            subprocess.run(
                command, input=value, check=True, env=clean_environment(), capture_output=True
            )
        command = [binary, "scan", "--address", server.address]
        process = subprocess.Popen(command, **PIPES, env=clean_environment())
        text = process.stdout.read(4096)
        server.kill()
        text += process.stdout.read()
        errors = process.stderr.read().decode()
        process.wait(timeout=120)
    last = text.decode().splitlines()[-1].split("\t")[0]
    assert process.returncode == 3, errors
    assert "what was printed is incomplete" in errors and "nobody listens" in errors, errors
    assert f"`--start-after {last}` goes on behind it" in errors, errors
