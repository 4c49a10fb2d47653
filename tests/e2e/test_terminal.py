"""What a person sees in a terminal while something goes on, and that nobody else sees it."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios

import pytest
from server import Server

MIB = 1 << 20
# What moves the cursor or removes what stands there, and ends what stands in a line.
CONTROL = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]|\r|\n")


@pytest.fixture(scope="module")
def server(binary, tmp_path_factory):
    with Server(binary, "--data", str(tmp_path_factory.mktemp("terminal") / "data")) as server:
        yield server
        assert server.process.poll() is None, server.log()


def in_terminal(columns, *command, code=0):
    """What a command writes to a terminal of so many columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {**os.environ, "TERM": "xterm"}
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, env=environment
    )
    os.close(theirs)
    written = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # what a terminal says whose other side is closed
            break
        if not piece:
            break
        written += piece
    os.close(ours)
    assert process.wait(timeout=60) == code, written
    return written


def lines(written):
    return [line.decode().rstrip() for line in CONTROL.split(written) if line.strip()]


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    file = tmp_path_factory.mktemp("file") / "file"
    file.write_bytes(os.urandom(16 * MIB))
    return file


@pytest.mark.parametrize("columns", [30, 40, 80, 200])
def test_transfers_fit_into_a_line(binary, server, file, columns, tmp_path):
    uploading = [binary, "upload", str(file), "--address", server.address, "--chunk-size", "16KiB"]
    downloading = [
        binary,
        "download",
        "file",
        "--address",
        server.address,
        "--to",
        str(tmp_path / "copy"),
    ]
    for command, word in ((uploading, "uploading"), (downloading, "downloading")):
        written = in_terminal(columns, *command)
        live = [line for line in lines(written) if line.startswith(word)]
        assert live, written
        assert max(len(line) for line in live) <= columns, live
        last = live[-1]
        assert re.search(r"\d+m?s? left$", last), last
        if columns >= 80:
            assert re.search(rf"{word} \[[=> ]+\] [\d.]+ \w+/16\.00 MiB, [\d.]+ \w+/s, ", last), (
                last
            )
        else:
            assert re.search(rf"{word} \d+%, ", last), last
        assert b"CRC32C" in written


@pytest.mark.parametrize("columns", [30, 80])
def test_a_load_says_how_far_it_is(binary, server, columns):
    words = ["load", "--keys", "10", "--duration", "400ms", "--warm-up", "200ms", "--rate", "100"]
    # It may be void on a busy machine.
    command = ["sh", "-c", '"$@" || test $? = 1', "sh", binary, *words, "--address", server.address]
    live = [
        line for line in lines(in_terminal(columns, *command)) if re.match(r" +\d+\.\d s, ", line)
    ]
    assert max(len(line) for line in live) <= columns, live
    assert any(line.endswith(" s, warming up, 1 s left") for line in live), live
    measuring = [line for line in live if "measuring, 1 s left" in line]
    assert measuring, live
    if columns >= 80:
        # With 100 calls a second the first look may come before the first call.
        so_far = r": \d+ calls/s, p50 [\d.]+ [µm]?s, p99 [\d.]+ [µm]?s, 0 failed$"
        assert re.search(so_far, measuring[-1]), live


def test_a_load_of_a_number_of_calls_says_how_long_it_still_takes(binary, server):
    words = ["load", "--keys", "10", "--calls", "400", "--warm-up", "0s", "--rate", "1000"]
    command = ["sh", "-c", '"$@" || test $? = 1', "sh", binary, *words, "--address", server.address]
    live = lines(in_terminal(100, *command))
    measuring = [line for line in live if "measuring" in line]
    assert any(" s left: " in line for line in measuring), live
    # One line is drawn anew: nothing of it is left above the report.
    assert not any("measuring" in line for line in live[live.index(measuring[-1]) + 1 :])


def test_nothing_is_shown_where_nobody_looks(binary, server, file):
    done = subprocess.run(
        [binary, "upload", str(file), "--address", server.address], capture_output=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_what_is_no_text_does_not_come_to_a_terminal(binary, server, file):
    for value in (b"\x1b[2J", b"\x00\x01", b"\xff"):
        put = [binary, "put", "bytes", "--address", server.address]
        subprocess.run(put, input=value, check=True, timeout=60, capture_output=True)
        get = [binary, "get", "bytes", "--address", server.address]
        written = in_terminal(80, *get, code=2)
        assert value not in written and b"is no text" in written and b"--output json" in written, (
            written
        )
        assert subprocess.run(get, capture_output=True, timeout=60).stdout == value
        assert b'"value"' in in_terminal(80, *get, "--output", "json")
    increment = [binary, "incr", "number", "7", "--address", server.address]
    subprocess.run(increment, check=True, timeout=60, capture_output=True)
    written = in_terminal(80, binary, "get", "number", "--address", server.address, code=2)
    assert b"--number prints it as a number (7)" in written, written
    subprocess.run(
        [binary, "put", "text", "Gr\u00fc\u00dfe", "--address", server.address],
        check=True,
        timeout=60,
    )
    assert "Gr\u00fc\u00dfe\r\n".encode() in in_terminal(
        80, binary, "get", "text", "--address", server.address
    )
    subprocess.run(
        [binary, "upload", str(file), "--address", server.address],
        check=True,
        timeout=60,
        capture_output=True,
    )
    written = in_terminal(
        80, binary, "download", "file", "--to", "-", "--address", server.address, code=2
    )
    assert b"the blob `file`, 16777216 bytes, is no text" in written, written
    assert b"--output json" not in written and len(written) < 2000, written
    written = in_terminal(
        80, binary, "export", "--format", "binary", "--address", server.address, code=2
    )
    assert b"--format jsonl" in written and len(written) < 2000, written
