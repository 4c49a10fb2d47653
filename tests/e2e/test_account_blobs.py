"""Downloads that nobody reads and uploads that nobody goes on with take what they may, no more."""

import struct
import time

import grpc
import pytest
from blob_client import begin, chunk, download, pattern, stub, upload
from flood import MIB, Flood, Honest, judge, status_bytes
from metrics_page import counter
from pelton.v1 import admin_pb2, admin_pb2_grpc
from pelton.v1 import blob_pb2 as pb
from raw import (
    END_HEADERS,
    HEADERS,
    MAX_WINDOW,
    WINDOW_UPDATE,
    Answer,
    Connection,
    frame,
    grpc_message,
    literal_block,
    request_block,
    settings_payload,
)
from server import Server, open_channel, wait_until

DOWNLOAD = "/pelton.v1.Blob/Download"
UPLOAD = "/pelton.v1.Blob/Upload"
CONTENT = pattern(7, 9 * MIB)


@pytest.fixture(params=["memory", "disk"])
def place(request, tmp_path):
    return ["--data", str(tmp_path / "data"), "--kind", request.param]


def running_calls(server):
    with open_channel(server.address) as channel:
        admin = admin_pb2_grpc.AdminStub(channel)
        return admin.Statistics(admin_pb2.StatisticsRequest(), timeout=30).running_calls


def downloads_whole(channel):
    _, data = download(stub(channel), "blob", length_bytes=MIB)
    assert data == CONTENT[:MIB], "a download is not whole"


def assert_all_is_given_back(server, limit_bytes, before_bytes):
    wait_until(lambda: running_calls(server) <= 1, 60, "calls of those who have gone still run")
    wait_until(lambda: server.open_blobs() == 0, 60, "contents are still open")

    # The allocator may keep what peers may hold together, for the next ones: a quarter of the
    # limit.
    kept_bytes = limit_bytes // 4 + 64 * MIB

    def is_small():
        return status_bytes(server.process.pid, "VmRSS") <= before_bytes + kept_bytes

    wait_until(is_small, 60, f"memory is not given back: {before_bytes / MIB:.0f} MiB before")
    begin = time.monotonic()
    assert server.stop() == 0, server.log()
    # The drain timeout, and time for a busy machine.
    assert time.monotonic() - begin < 20, "a stop takes too long"


@pytest.mark.parametrize("chunk_bytes", [4 * MIB, 0])
def test_downloads_that_are_not_read(binary, place, chunk_bytes):
    flags = ["--memory-limit", "128MiB", "--drain-timeout", "3s", *place]
    with Server(binary, *flags) as server:
        with open_channel(server.address) as channel:
            upload(stub(channel), "blob", CONTENT, chunk_bytes=MIB)
        before = status_bytes(server.process.pid, "VmRSS")
        request = pb.DownloadRequest(name="blob", chunk_bytes=chunk_bytes).SerializeToString()
        floods = []
        try:
            with Honest(server.address, call=downloads_whole) as honest:
                for _ in range(4):
                    floods.append(Flood(server.address))
                    floods[-1].calls(DOWNLOAD, request, 100 if chunk_bytes else 400)
                honest.wait_rounds(4)
            judge(server, 128 * MIB, 8, honest)
        finally:
            for flood in floods:
                flood.socket.close()
        assert_all_is_given_back(server, 128 * MIB, before)
        assert "panicked" not in server.log()


@pytest.mark.parametrize("window", [0, 1 << 20])
def test_plain_downloads_that_are_not_read(binary, place, window):
    """GET /blob/NAME has the bounds of Download: shut windows, and a socket that is not read."""
    flags = ["--memory-limit", "128MiB", "--drain-timeout", "3s", *place]
    with Server(binary, *flags) as server:
        with open_channel(server.address) as channel:
            upload(stub(channel), "blob", CONTENT, chunk_bytes=MIB)
        before = status_bytes(server.process.pid, "VmRSS")
        floods = []
        try:
            with Honest(server.address, call=downloads_whole) as honest:
                for _ in range(4):
                    floods.append(Flood(server.address, window=window, connection_window=1 << 30))
                    for _ in range(400):
                        floods[-1].get("/blob/blob")
                honest.wait_rounds(4)
            judge(server, 128 * MIB, 8, honest)
            # One who does not let anything out has cost nothing but his calls.
            peak = status_bytes(server.process.pid, "VmHWM")
            assert window or peak < before + 64 * MIB, f"{peak / MIB:.0f} MiB"
        finally:
            for flood in floods:
                flood.socket.close()
        assert_all_is_given_back(server, 128 * MIB, before)


def test_reading_one_download_beside_many_that_are_not_read_on_a_connection(binary, place):
    """What a client leaves unread on some streams does not stop it on those that it reads."""
    # By itself grpcio lets windows grow until it has taken all of the 300 downloads, read or not:
    # then the one that is read has a three hundredth of the connection.
    small_windows = [("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 64 * 1024)]
    with Server(binary, "--memory-limit", "128MiB", "--drain-timeout", "3s", *place) as server:
        with open_channel(server.address, *small_windows) as channel:
            upload(stub(channel), "blob", CONTENT, chunk_bytes=MIB)
            request = pb.DownloadRequest(name="blob", chunk_bytes=2_000_000)
            unread = [stub(channel).Download(request) for _ in range(300)]
            for _ in range(2):
                read = stub(channel).Download(request, timeout=60)
                assert b"".join(one.data for one in read) == CONTENT
            for call in unread:
                call.cancel()
        judge(server, 128 * MIB, 2)


def test_downloads_of_grpcio_that_are_not_read(binary, place):
    with Server(binary, "--memory-limit", "128MiB", "--drain-timeout", "3s", *place) as server:
        with open_channel(server.address) as channel:
            upload(stub(channel), "blob", CONTENT, chunk_bytes=MIB)
        before = status_bytes(server.process.pid, "VmRSS")
        with Honest(server.address, call=downloads_whole) as honest:
            with open_channel(server.address) as channel:
                request = pb.DownloadRequest(name="blob")
                calls = [stub(channel).Download(request) for _ in range(400)]
                honest.wait_rounds(4)
                for call in calls:
                    call.cancel()
        judge(server, 128 * MIB, 4, honest)
        assert_all_is_given_back(server, 128 * MIB, before)


def test_downloads_by_many_who_read_are_whole(binary, place):
    """More than may be read ahead at once: they wait for each other, and all end well."""
    with Server(binary, "--memory-limit", "64MiB", *place) as server:
        with open_channel(server.address) as channel:
            upload(stub(channel), "blob", CONTENT, chunk_bytes=MIB)
            request = pb.DownloadRequest(name="blob", chunk_bytes=2_000_000)
            for call in [stub(channel).Download(request) for _ in range(40)]:
                assert b"".join(one.data for one in call) == CONTENT
        judge(server, 64 * MIB, 2)
        assert server.stop() == 0


def test_a_stop_while_downloads_are_not_read(binary, place):
    with Server(binary, "--memory-limit", "128MiB", "--drain-timeout", "3s", *place) as server:
        with open_channel(server.address) as channel:
            upload(stub(channel), "blob", CONTENT, chunk_bytes=MIB)
        request = pb.DownloadRequest(name="blob", chunk_bytes=4 * MIB).SerializeToString()
        floods = [Flood(server.address) for _ in range(4)]
        try:
            for flood in floods:
                flood.calls(DOWNLOAD, request, 100)
            begin = time.monotonic()
            assert server.stop() == 0, server.log()
            assert time.monotonic() - begin < 20, "a stop takes too long"
        finally:
            for flood in floods:
                flood.socket.close()


HALVES = 10_000
CONNECTIONS = 40
STREAMS = 4_096


def test_half_uploads_of_those_who_have_gone(binary, tmp_path):
    """10 000 uploads that nobody goes on with: others can upload, also after a restart."""
    flags = ["--data", str(tmp_path / "data"), "--memory-limit", "256MiB"]
    with Server(binary, *flags) as server:
        leave_half_uploads(server)
        assert_uploads(server, "first")
        judge(server, 256 * MIB, 8)
        assert server.stop() == 0
    with Server(binary, *flags) as server:
        assert_uploads(server, "second")
        with open_channel(server.address) as channel:
            assert download(stub(channel), "honest/first/2")[1] == CONTENT[:100_000]
        assert server.stop() == 0


def leave_half_uploads(server):
    """Begins them, sends a little of each, and goes."""

    def body(number):
        parts = [begin(f"half/{number}", upload_id=b"half/%d" % number), chunk(b"x" * 100)]
        return b"".join(grpc_message(part.SerializeToString()) for part in parts)

    for at in range(0, HALVES, 1000):
        with Flood(server.address, window=65_535, connection_window=MIB) as flood:
            flood.calls(UPLOAD, lambda number, at=at: body(at + number), 1000, end=False)
            # Where so many are too many, some are refused; what is not is stored by then.
            flood.poll(0.3)
            if at == 0:
                wait_until(lambda: unfinished_uploads(server) > 0)


def unfinished_uploads(server):
    with open_channel(server.address) as channel:
        admin = admin_pb2_grpc.AdminStub(channel)
        return admin.Statistics(admin_pb2.StatisticsRequest()).databases[0].unfinished_uploads


def open_uploads(channel):
    return [one for one in stub(channel).ListUploads(pb.ListUploadsRequest()).uploads if one.open]


def assert_uploads(server, name):
    """Somebody else uploads, with an id and without."""
    print(f"{unfinished_uploads(server)} unfinished uploads")
    with open_channel(server.address) as channel:
        # Those who have gone come from the same address: their uploads are open until the server
        # has seen that.
        wait_until(lambda: not open_uploads(channel), 60, "uploads of those who have gone are open")
        for number in range(3):
            blob = f"honest/{name}/{number}"
            fields = {"upload_id": blob.encode()} if number == 1 else {}
            try:
                assert upload(stub(channel), blob, CONTENT[:100_000], **fields).applied
            except grpc.RpcError as error:
                raise AssertionError(f"{error.code()}: {error.details()}") from None


def plain_puts(number):
    """The head of a PUT of a blob whose content never comes."""
    path = f"/blob/empty/{number}"
    fields = [(":method", "PUT"), (":scheme", "http"), (":path", path), (":authority", "test")]
    return literal_block(fields)


def gupload_calls(_):
    """The same of an upload to gupload."""
    return request_block("/messaging.GuploadService/Upload")


@pytest.mark.parametrize("head", [plain_puts, gupload_calls])
def test_uploads_that_bring_nothing(binary, tmp_path, head):
    """40 connections with all the streams that they may have, each with an upload that has begun:
    one address has half of the places, the others are refused, and newcomers are served."""
    limit_bytes = 64 * MIB
    flags = ["--data", str(tmp_path / "data"), "--memory-limit", "64MiB"]
    with Server(binary, *flags) as server:
        before_bytes = status_bytes(server.process.pid, "VmRSS")
        floods, running = [], []
        try:
            with Honest(server.address) as honest:
                for at in range(CONNECTIONS):
                    floods.append(Flood(server.address))
                    begin_streams(floods[-1], head, at)
                    floods[-1].poll(0.01)
                    running.append(running_calls(server))
                honest.wait_rounds(10)
                # A busy machine takes a while to answer all of them.
                give_up = time.monotonic() + 20
                while (now := running_calls(server)) > 500 + 3 and time.monotonic() < give_up:
                    for flood in floods:
                        flood.poll(0.01)
                running.append(now)
            # Calls that are refused run until their answers are sent, and whoever reads none of his
            # may be closed, with the uploads that he has: in the end there may be few. Beside these
            # there are the calls of the honest client, and the question.
            assert max(running) >= 100 and running[-1] <= 500 + 3, running
        finally:
            for flood in floods:
                flood.socket.close()
        judge(server, limit_bytes, CONNECTIONS + 4, honest)
        with open_channel(server.address) as channel:
            wait_until(lambda: not open_uploads(channel), 60, "uploads of the others are open")
            assert upload(stub(channel), "behind", CONTENT[:100_000]).applied
        assert_all_is_given_back(server, limit_bytes, before_bytes)


def begin_streams(flood, head, at):
    streams = range(flood.next_stream, flood.next_stream + 2 * STREAMS, 2)
    frames = [frame(HEADERS, END_HEADERS, one, head(STREAMS * at + one)) for one in streams]
    flood.next_stream = streams.stop
    flood.answers |= {one: Answer() for one in streams}
    flood.socket.settimeout(10)
    try:
        flood.socket.sendall(b"".join(frames))
    except OSError:
        # The server reads no more of it, or has closed it to make room.
        pass


def test_a_client_alone_that_reads_late(binary, place):
    """It holds what all may hold, and does not read for a while: that hurts nobody, so it goes
    on."""
    wide = settings_payload(initial_window_size=MAX_WINDOW)
    flags = ["--memory-limit", "2MiB", "--metrics-listen", "0", *place]
    with Server(binary, *flags) as server:
        with open_channel(server.address) as channel:
            upload(stub(channel), "blob", CONTENT, chunk_bytes=MIB)
        with Connection(server.address, settings=wide, receive_buffer=MIB // 4) as client:
            client.send(frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", MAX_WINDOW - 65_535)))
            for _ in range(2):
                request = pb.DownloadRequest(name="blob").SerializeToString()
                streams = [client.unary(DOWNLOAD, request) for _ in range(4)]
                # Longer than a server that needs the memory would wait for it.
                time.sleep(5)
                for stream in streams:
                    answer = client.wait(stream, 60)
                    assert answer.grpc_status == 0, answer.grpc_message
                    assert len(answer.body) > len(CONTENT)
        assert counter(server, "pelton_connections_evicted_total") == 0
