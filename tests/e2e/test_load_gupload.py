"""`pelton load gupload`: uploads to the server, and to one of another make."""

import contextlib
import json
import pathlib
import signal
import socket
import subprocess
from concurrent import futures

import grpc
import pytest
from compat import gupload_pb2 as pb
from compat import gupload_pb2_grpc
from environment import clean_environment
from gupload_client import content, kept
from gupload_client import keeping, uploads  # noqa: F401 (fixtures)
from relay import Faults, Relay
from server import Server, wait_until


def command(binary, address, *words):
    return [binary, "load", "gupload", "--address", address, *map(str, words)]


def load(binary, address, *words, codes=(0,), **variables):
    done = subprocess.run(
        command(binary, address, *words),
        env=clean_environment() | variables,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode in codes, (words, done.returncode, done.stdout, done.stderr)
    return done


def figures(binary, address, *words, **more):
    return json.loads(load(binary, address, "--output", "json", *words, **more).stdout)


def assert_measured(found, uploads, file_bytes):
    assert (found["calls"], found["failures"], found["first_failure"]) == (uploads, 0, None)
    assert len(found["sent_ns"]) == len(found["answered_ns"]) == uploads
    for sent, answered in zip(found["sent_ns"], found["answered_ns"], strict=True):
        assert 0 < sent <= answered
    assert found["file_bytes"] == file_bytes
    per_s = file_bytes / found["answered_ms"] / 1e3
    assert found["mb_per_s"] == pytest.approx(per_s, rel=1e-6)


class ForeignServer(gupload_pb2_grpc.GuploadServiceServicer):
    """gupload's service on Python's gRPC: keeps the chunks of each upload."""

    def __init__(self):
        self.uploads = []
        self.codes = []
        self.server = grpc.server(futures.ThreadPoolExecutor(2))
        gupload_pb2_grpc.add_GuploadServiceServicer_to_server(self, self.server)
        self.address = "127.0.0.1:%d" % self.server.add_insecure_port("127.0.0.1:0")
        self.server.start()

    def Upload(self, request_iterator, context):
        chunks = [chunk.Content for chunk in request_iterator]
        self.uploads.append(chunks)
        code = self.codes.pop(0) if self.codes else pb.Ok
        return pb.UploadStatus(Message="as it was told", Code=code)

    def close(self):
        self.server.stop(None).wait()


@pytest.fixture
def foreign():
    with contextlib.closing(ForeignServer()) as server:
        yield server


@pytest.mark.parametrize("chunk_bytes", [16, 1000, 65_536, 1 << 20, (4 << 20) - 9])
def test_a_foreign_server_gets_the_same_file_in_chunks_each_time(binary, foreign, chunk_bytes):
    file_bytes = 100_001 if chunk_bytes < 1000 else 5_000_001
    words = ["--size", file_bytes, "--chunk-size", chunk_bytes, "--uploads", 2, "--warm-up", 1]
    found = figures(binary, foreign.address, *words)
    assert_measured(found, 2, file_bytes)
    assert (found["way"], found["tls"], found["chunk_bytes"]) == ("grpc", False, chunk_bytes)
    assert found["server_cpu_percent"] is None
    assert len(foreign.uploads) == 3
    whole = b"".join(foreign.uploads[0])
    assert len(whole) == file_bytes
    lines = whole.splitlines()[:-1]
    assert all(json.loads(line)["id"] == number for number, line in enumerate(lines[:1000]))
    for chunks in foreign.uploads:
        assert b"".join(chunks) == whole
        assert {len(chunk) for chunk in chunks[:-1]} <= {chunk_bytes}


def test_messages_are_compressed_if_that_is_asked_for(binary, foreign):
    words = ["--size", "1MiB", "--uploads", 1, "--warm-up", 0]
    for compressed, least, most in [([], 1 << 20, 2 << 20), (["--compress"], 1 << 18, 1 << 19)]:
        with Relay(foreign.address, 1, Faults()) as relay:
            found = figures(binary, relay.address, *words, *compressed)
            assert_measured(found, 1, 1 << 20)
            assert found["way"] == ("grpc-gzip" if compressed else "grpc")
        assert least < relay.carried["up"] < most
    assert foreign.uploads[0] == foreign.uploads[1]
    assert len(b"".join(foreign.uploads[0])) == 1 << 20


def test_an_answer_that_is_no_success_ends_it(binary, foreign):
    foreign.codes = [pb.Failed]
    done = load(binary, foreign.address, "--size", 100, codes=(3,))
    assert not done.stdout
    assert f"messaging.GuploadService/Upload on {foreign.address}: " in done.stderr
    assert "as it was told" in done.stderr
    assert len(foreign.uploads) == 1
    # What was measured before is printed.
    foreign.codes = [pb.Ok, pb.Ok, pb.Ok, pb.Failed]
    done = load(binary, foreign.address, "--size", 100, "--output", "json", codes=(1,))
    found = json.loads(done.stdout)
    assert (found["calls"], found["failures"]) == (2, 1)
    assert "as it was told" in found["first_failure"]


@pytest.mark.parametrize("way", [(), ("--compress",), ("--http2",)])
def test_content_is_kept_whatever_the_way(binary, keeping, uploads, way):
    before = set(kept(uploads))
    words = ["--size", 3_000_000, "--chunk-size", 5000, "--uploads", 1, *way]
    assert_measured(figures(binary, keeping.address, *words), 1, 3_000_000)
    new = sorted(set(kept(uploads)) - before)
    assert len(new) == 2
    first, second = (content(uploads, name) for name in new)
    assert first == second
    assert len(first) == 3_000_000
    assert first.startswith(b'{"id": 0, ')


def test_tls_and_the_cpu_of_the_server(binary, tmp_path):
    folder = tmp_path / "tls"
    flags = ["--discard-uploads", "--durability", "volatile", f"--tls-self-signed={folder}"]
    with Server(binary, *flags) as server:
        for way in ("--http2", "--compress"):
            words = ["--size", "2MiB", "--uploads", 2, "--server-pid", server.process.pid, way]
            trust = ["--tls-ca", folder / "ca.pem"]
            found = figures(binary, server.address, *words, *trust)
            assert_measured(found, 2, 2 << 20)
            assert found["tls"] is True
            assert found["server_cpu_percent"] > 0 and found["own_cpu_percent"] > 0
        done = load(binary, server.address, "--size", 100, codes=(3,))
        assert "TLS" in done.stderr


def test_the_text_and_the_csv(binary, keeping):
    words = ["--size", "64KiB", "--chunk-size", "1KiB", "--uploads", 3, "--http2"]
    text = load(binary, keeping.address, *words).stdout.splitlines()
    assert text[0] == (
        f"gupload on {keeping.address}: 3 uploads over plain HTTP/2, 0.1 MiB in chunks of 1024 "
        "bytes, 1 upload before that"
    )
    assert text[1].startswith("to the last send: median ")
    assert text[2].startswith("to the answer:    median ")
    csv = load(binary, keeping.address, *words, "--output", "csv").stdout.splitlines()
    assert len(csv) == 2
    row = dict(zip(csv[0].split(","), csv[1].split(","), strict=True))
    assert (row["calls"], row["way"], row["server_s_per_gib"]) == ("3", "http2", "")


def test_a_server_that_keeps_nothing_says_so(binary, server):
    """Without a folder and without --discard-uploads, over either protocol."""
    for way in ([], ["--http2"]):
        done = load(binary, server.address, "--size", 100, *way, codes=(3,))
        assert "--discard-uploads" in done.stderr, done.stderr
        # Refused before all of it was sent.
        done = load(binary, server.address, "--size", "64MiB", *way, codes=(3,))
        assert not done.stdout


def test_wrong_usage_and_nobody_there(binary):
    for words, expected in [
        (["--compress", "--http2"], "cannot be used with"),
        (["--size", "0"], "write a size from 1"),
        (["--chunk-size", "5MiB"], "write a size from 1 to 4MiB"),
        (["--uploads", "0"], "--uploads"),
        (["--deadline", "0s"], "--deadline"),
    ]:
        done = load(binary, "127.0.0.1:1", *words, codes=(2,))
        assert expected in done.stderr, done.stderr
        assert not done.stdout
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = "127.0.0.1:%d" % free.getsockname()[1]
    done = load(binary, address, codes=(3,))
    assert address in done.stderr
    done = load(binary, address, "--server-pid", 4_000_000_000, codes=(3,))
    assert "4000000000" in done.stderr and "--server-pid" in done.stderr


def test_the_token_of_the_environment_stays_here(binary, foreign):
    done = load(binary, foreign.address, "--size", 100, PELTON_TOKEN="pelton-secret")
    assert "is not sent with load gupload" in done.stderr


@pytest.mark.parametrize("way", [(), ("--http2",)])
def test_a_server_that_stalls_is_given_up(binary, way):
    with Server(binary, "--discard-uploads", "--durability", "volatile") as server:
        server.signal(signal.SIGSTOP)
        try:
            words = ["--size", "64MiB", "--deadline", "300ms", "--timeout", "20s", *way]
            done = load(binary, server.address, *words, codes=(3,))
            assert not done.stdout and server.address in done.stderr
        finally:
            server.signal(signal.SIGCONT)


def cpu_ticks(process):
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


def test_an_interruption_prints_what_was_measured(binary):
    with Server(binary, "--discard-uploads", "--durability", "volatile") as server:
        words = ["--size", "1MiB", "--uploads", "100000", "--output", "json"]
        process = subprocess.Popen(
            command(binary, server.address, *words, "--server-pid", server.process.pid),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=clean_environment(),
        )
        # Far more than the upload that is not measured takes.
        before = cpu_ticks(server.process)
        wait_until(lambda: cpu_ticks(server.process) > before + 20)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
        assert process.returncode == 130
        found = json.loads(out)
        assert_measured(found, found["calls"], 1 << 20)
        assert 0 < found["calls"] < 100_000
