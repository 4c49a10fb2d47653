"""Bounds of blobs: downloads that nobody reads, halves of uploads that nobody goes on with, few
file descriptors."""

import shutil
import signal
import subprocess
import time

import grpc
import pytest
from blob_client import CODE, begin, chunk, download, pattern, stub, upload
from pelton.v1 import blob_pb2 as pb
from raw import DATA, END_STREAM, Connection, frame, grpc_message
from server import Server, expect_status, open_channel, wait_until

MIB = 1 << 20
SECONDS = 120
BYTES = 12 * MIB
CHUNK_BYTES = 4 * MIB
UNREAD = 500
PLACES = 1_000
OPTIONS = (("grpc.max_receive_message_length", 8 * MIB),)


def unread_downloads(address, count, name):
    """A connection with downloads of which nothing is read, whatever the server would like to
    send."""
    connection = Connection(address)
    request = grpc_message(
        pb.DownloadRequest(name=name, chunk_bytes=CHUNK_BYTES).SerializeToString()
    )
    for _ in range(count):
        stream, head = connection.request("/pelton.v1.Blob/Download")
        connection.send(head + frame(DATA, END_STREAM, stream, request))
    return connection


def honest_download(address, data):
    with open_channel(address, *OPTIONS) as channel:
        call = pb.DownloadRequest(name="a", chunk_bytes=CHUNK_BYTES)
        parts = [answer.data for answer in stub(channel).Download(call, timeout=SECONDS)]
        assert b"".join(parts) == data


def test_downloads_that_nobody_reads_take_bounded_memory_and_keep_nobody_waiting(binary, tmp_path):
    data = pattern(7, BYTES)
    with Server(binary, "--data", str(tmp_path / "data"), "--memory-limit", "512MiB") as server:
        with open_channel(server.address) as channel:
            upload(stub(channel), "a", data, chunk_bytes=MIB)
        honest_download(server.address, data)
        before = server.resident_bytes()
        for round in range(2):
            held = [unread_downloads(server.address, UNREAD, "a") for _ in range(2)]
            honest_download(server.address, data)
            grown = server.resident_bytes() - before
            assert grown < (512 + 64) * MIB, f"round {round}: {grown >> 20} MiB"
            for connection in held:
                connection.socket.close()
            # What was asked for by the dead is not done.
            honest_download(server.address, data)
        held = [unread_downloads(server.address, UNREAD, "a") for _ in range(2)]
        honest_download(server.address, data)
        server.signal(signal.SIGTERM)
        assert server.wait(SECONDS) == 0, server.log()
        for connection in held:
            connection.socket.close()


def leave_halves(blob, names, data):
    """Begins uploads, and breaks them off when something of each is stored."""
    for name in names:
        expect_status(
            CODE.INVALID_ARGUMENT,
            lambda name=name: blob.Upload(iter([begin(name, upload_id=b"id"), chunk(data)])),
            "field end",
        )


def run(binary, server, *words, code=0):
    done = subprocess.run(
        [binary, *words, "--address", server.address],
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == code, done.stderr
    return done.stdout.splitlines()


def test_halves_of_uploads_make_room_are_listed_and_discarded(binary, tmp_path):
    folder = str(tmp_path / "data")
    with Server(binary, "--data", folder) as server, open_channel(server.address) as channel:
        blob = stub(channel)
        leave_halves(blob, [f"half-{number:04}" for number in range(PLACES + 50)], b"x" * 200)
        assert upload(blob, "whole", b"data").applied
        lines = run(binary, server, "blob", "uploads")
        assert len(lines) == PLACES - 1
        stored, _age, peer, state, upload_id, name = lines[0].split("\t")
        assert (stored, peer, state, upload_id, name) == (
            "200",
            "127.0.0.1",
            "idle",
            "id",
            "half-0051",
        )
        # Whoever goes on with one finds what was stored.
        found = blob.Stat(pb.StatRequest(name="half-0900", upload_id=b"id"))
        assert found.stored_bytes == 200
    with Server(binary, "--data", folder) as server, open_channel(server.address) as channel:
        blob = stub(channel)
        leave_halves(blob, ["late-1", "late-2", "late-3"], b"y")
        lines = run(binary, server, "blob", "uploads")
        assert len(lines) == PLACES
        # After a restart the addresses are not known.
        assert {line.split("\t")[2] for line in lines} == {"-", "127.0.0.1"}
        assert run(binary, server, "blob", "uploads", "--discard", "late-2") == [
            "discarded 1 upload with 1 byte"
        ]
        run(binary, server, "blob", "uploads", "--discard", "late-2", code=1)
        assert run(binary, server, "blob", "uploads", "--idle", "1h") == []
        discarded = run(binary, server, "blob", "uploads", "--discard-all")
        assert discarded == [f"discarded {PLACES - 1} uploads with {(PLACES - 3) * 200 + 2} bytes"]
        assert run(binary, server, "blob", "uploads") == []
        expect_status(
            CODE.OUT_OF_RANGE,
            lambda: blob.Upload(iter([begin("late-1", upload_id=b"id", offset=1)])),
        )


@pytest.mark.skipif(not shutil.which("prlimit"), reason="needs prlimit of util-linux")
@pytest.mark.parametrize("descriptors", [64, 128])
def test_with_few_descriptors_small_calls_are_served_and_uploads_go_on(
    binary, tmp_path, descriptors
):
    limit = ("prlimit", f"--nofile={descriptors}:{descriptors}")
    data = pattern(3, 300_000)
    with Server(binary, "--data", str(tmp_path / "data"), "--threads", "2", prefix=limit) as server:
        with open_channel(server.address) as channel:
            blob = stub(channel)
            leave_halves(blob, ["half"], data[:100_000])
            # Its file is synced and closed behind the call, and keeps a descriptor until then.
            wait_until(lambda: server.open_blobs() == 0, SECONDS)
            with Connection(server.address) as greedy:
                begun = pb.UploadRequest
                for number in range(descriptors):
                    stream, head = greedy.request("/pelton.v1.Blob/Upload")
                    first = begun(begin=pb.UploadBegin(name=f"open-{number}", upload_id=b"id"))
                    greedy.send(
                        head + frame(DATA, 0, stream, grpc_message(first.SerializeToString()))
                    )
                last = greedy.answers[greedy.next_stream - 2]
                deadline = time.monotonic() + SECONDS
                while not last.over:
                    assert time.monotonic() < deadline
                    greedy.read(1)
                assert last.grpc_status == CODE.UNAVAILABLE.value[0], last.grpc_message
                assert "ulimit -n" in last.grpc_message
                # What is stored of another is still there.
                assert (
                    blob.Stat(pb.StatRequest(name="half", upload_id=b"id")).stored_bytes == 100_000
                )
                # More connections than there are descriptors: refused, and the log goes on.
                held = []
                for _ in range(descriptors):
                    try:
                        held.append(Connection(server.address))
                    except OSError:
                        # Closed at once: it is one of too many even to be refused in words.
                        pass
                assert (
                    blob.Stat(pb.StatRequest(name="half", upload_id=b"id")).stored_bytes == 100_000
                )
                for connection in held:
                    connection.socket.close()

            def goes_on():
                try:
                    return upload(blob, "half", data, upload_id=b"id", offset=100_000).applied
                except grpc.RpcError as error:
                    assert error.code() == CODE.UNAVAILABLE, error
                    return False

            wait_until(goes_on, SECONDS)
            assert download(blob, "half")[1] == data
        assert "failed" not in server.log().lower(), server.log()
        server.signal(signal.SIGTERM)
        assert server.wait(SECONDS) == 0, server.log()
