"""`pelton top`: in a terminal, without one, and for programs."""

import contextlib
import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time

import pytest
from environment import clean_environment
from pelton.v1 import kv_pb2, kv_pb2_grpc
from server import Server, open_channel

ENTER, LEAVE = b"\x1b[?1049h\x1b[?25l\x1b[?7l", b"\x1b[?7h\x1b[?25h\x1b[?1049l"


def environment():
    kept = clean_environment()
    return {**kept, "PELTON_CLIENT_CONFIG": "/dev/null"}


def top(binary, server, *words, codes=(0,)):
    command = [binary, "top", "--address", server.address, "--every", "100ms", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment())
    assert done.returncode in codes, (done.returncode, done.stdout, done.stderr)
    return done


def puts(server, count):
    with open_channel(server.address) as channel:
        kv = kv_pb2_grpc.KeyValueStub(channel)
        for number in range(count):
            kv.Put(kv_pb2.PutRequest(key=b"%d" % number, value=b"v"))


def test_pictures_one_after_the_other(binary, tmp_path):
    with Server(binary, "--data", str(tmp_path / "data")) as server:
        puts(server, 20)
        text = top(binary, server, "--count", "2").stdout
    pictures = text.split("\n\npelton ")
    assert len(pictures) == 2, text
    for picture in pictures:
        assert f"at {server.address}: up " in picture
        assert "pelton.v1.KeyValue/Put" in picture
        assert "records/s" in picture
        assert "(default) (memory, synced" in picture
    assert "\x1b" not in text


def test_lines_for_programs(binary):
    with Server(binary, "--durability", "volatile") as server:
        command = [binary, "top", "--address", server.address, "--every", "100ms"]
        process = subprocess.Popen(
            [*command, "--output", "json"], stdout=subprocess.PIPE, text=True, env=environment()
        )
        first = json.loads(process.stdout.readline())
        puts(server, 200)
        calls, put = 0, {"calls": 0}
        # However long they have taken.
        while put["calls"] < 200:
            line = json.loads(process.stdout.readline())
            methods = {row["method"]: row for row in line["figures"]["methods"]}
            put = methods.get("pelton.v1.KeyValue/Put", {"calls": 0, "calls_per_s": 0})
            calls += put["calls_per_s"] * line["seconds"]
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert process.wait(timeout=60) == 130
    assert first["round_trip_us"] > 0
    # What each line shows adds up to what was called.
    assert round(calls) == 200
    assert put["calls"] == 200
    assert line["figures"]["databases"][0]["entries"] == 200


def test_so_many_lines_and_no_more(binary):
    with Server(binary, "--durability", "volatile") as server:
        lines = top(binary, server, "--count", "3", "--output", "json").stdout.splitlines()
    assert len(lines) == 3


@contextlib.contextmanager
def terminal(binary, server, rows=20, columns=70):
    """The command in a terminal of its own: its process and the terminal's other side."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    before = termios.tcgetattr(theirs)
    command = [binary, "top", "--address", server.address, "--every", "100ms"]
    process = subprocess.Popen(
        command,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment(),
        start_new_session=True,
    )
    try:
        yield process, ours
        # Modes and keys; speeds are another matter.
        after = termios.tcgetattr(theirs)
        assert (after[3], after[6]) == (before[3], before[6]), "the terminal is as it was"
    finally:
        process.kill()
        process.wait()
        os.close(ours)
        os.close(theirs)


def read_until(ours, mark, seen=b"", seconds=20):
    end = time.monotonic() + seconds
    while mark not in seen:
        assert time.monotonic() < end, seen
        if select.select([ours], [], [], 0.1)[0]:
            seen += os.read(ours, 65536)
    return seen


@pytest.mark.parametrize("how", ["q", signal.SIGINT, signal.SIGTERM])
def test_in_a_terminal(binary, how):
    with Server(binary, "--durability", "volatile") as server:
        puts(server, 3)
        with terminal(binary, server) as (process, ours):
            seen = read_until(ours, b"q ends")
            assert seen.startswith(ENTER)
            # A second picture takes the place of the first.
            seen = read_until(ours, b"q ends", seen.split(b"q ends", 1)[1])
            assert seen.count(b"\x1b[H") >= 1
            pictures = seen.split(b"\x1b[H")
            lines = pictures[-1].replace(b"\x1b[K", b"").replace(b"\x1b[J", b"").split(b"\r\n")
            assert len(lines) <= 20
            assert all(len(line.decode()) <= 70 for line in lines), lines
            if how == "q":
                os.write(ours, b"xq")
            else:
                process.send_signal(how)
            read_until(ours, LEAVE)
            assert process.wait(timeout=20) == (0 if how == "q" else 128 + how)


def test_a_server_that_goes_ends_it_with_a_word(binary):
    with Server(binary, "--durability", "volatile") as server:
        with terminal(binary, server) as (process, ours):
            read_until(ours, b"q ends")
            server.process.kill()
            server.process.wait()
            seen = read_until(ours, LEAVE)
            seen = read_until(ours, server.address.encode(), seen.split(LEAVE, 1)[1])
            assert process.wait(timeout=20) == 3


@pytest.mark.parametrize("how", ["q", signal.SIGINT])
def test_a_server_that_does_not_answer_keeps_nobody_in_it(binary, how):
    with Server(binary, "--durability", "volatile") as server:
        with terminal(binary, server, rows=10, columns=40) as (process, ours):
            seen = read_until(ours, b"q ends")
            server.process.send_signal(signal.SIGSTOP)
            try:
                # Until it waits for an answer.
                time.sleep(0.5)
                if how == "q":
                    os.write(ours, b"q")
                else:
                    process.send_signal(how)
                # Far less than its --timeout.
                read_until(ours, LEAVE, seconds=8)
                assert process.wait(timeout=20) == (0 if how == "q" else 128 + how)
            finally:
                server.process.send_signal(signal.SIGCONT)
    picture = seen.split(b"\x1b[H")[-1].replace(b"\x1b[K", b"").replace(b"\x1b[J", b"")
    lines = picture.split(b"\r\n")
    assert len(lines) <= 10 and all(len(line.decode()) <= 40 for line in lines), lines


def test_ctrl_z_does_not_leave_its_screen_behind(binary):
    with Server(binary, "--durability", "volatile") as server:
        with terminal(binary, server) as (process, ours):
            read_until(ours, b"q ends")
            os.write(ours, b"\x1aq")
            read_until(ours, LEAVE)
            assert process.wait(timeout=20) == 0


def test_a_reader_that_goes_ends_it(binary):
    with Server(binary, "--durability", "volatile") as server:
        command = [binary, "top", "--address", server.address, "--every", "100ms"]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
        )
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(timeout=60) == 0
        assert process.stderr.read() == ""


def test_what_is_refused(binary):
    with Server(binary, "--durability", "volatile") as server:
        for words, text in [
            (("--every", "10ms"), "from 100ms"),
            (("--every", "2h"), "to 1h"),
            (("--count", "0"), "--count"),
        ]:
            command = [binary, "top", "--address", server.address, *words]
            done = subprocess.run(command, capture_output=True, text=True, env=environment())
            assert done.returncode == 2
            assert text in done.stderr
