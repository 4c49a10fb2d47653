"""messaging.GuploadService, as clients of gupload see it."""

import pathlib
import shutil
import signal
import subprocess
import sys
from concurrent import futures

import grpc
import pytest
from blob_client import CODE, pattern, stub
from certificates import Authority
from compat import gupload_pb2 as pb
from compat import gupload_pb2_grpc
from gupload_client import (
    CHUNK_BYTES,
    LARGE,
    HeldUpload,
    blob_files,
    content,
    curl,
    kept,
    name_in,
    post,
    send,
    send_when_there_is_room,
)
from gupload_client import keeping, uploads  # noqa: F401 (fixtures)
from pelton.v1 import blob_pb2
from server import Server, expect_status, open_channel, wait_until

GZIP = grpc.Compression.Gzip


def test_content_is_kept_under_the_name_that_is_told(uploads):
    for size, chunk_bytes in [(0, 1), (1, 1), (1000, 16), (300_000, 4096), (3_000_000, 2 << 20)]:
        data = pattern(size, size)
        name = send(uploads, data, chunk_bytes)
        assert content(uploads, name) == data
        description = stub(uploads).Stat(blob_pb2.StatRequest(name=name)).blob
        assert (description.size_bytes, description.content_type) == (size, "")


def test_chunks_of_4_mib(uploads):
    """Such a message is larger than 4 MiB by what is around its content."""
    data = pattern(1, 3 * CHUNK_BYTES)
    assert len(pb.Chunk(Content=data[:CHUNK_BYTES]).SerializeToString()) > CHUNK_BYTES
    assert content(uploads, send(uploads, data, CHUNK_BYTES)) == data


def test_gzip(uploads):
    for data in [pattern(2, 1_000_000), bytes(2 * CHUNK_BYTES)]:
        for chunk_bytes in [4096, CHUNK_BYTES]:
            assert content(uploads, send(uploads, data, chunk_bytes, compression=GZIP)) == data


def test_names_are_unique_and_in_the_order_of_time(uploads):
    names = [send(uploads, b"x") for _ in range(30)]
    assert names == sorted(set(names))
    assert [name for name in kept(uploads) if name in names] == names


def test_empty_chunks_and_unknown_fields(uploads):
    upload = uploads.stream_unary("/messaging.GuploadService/Upload")
    first, empty, strange = b"\x0a\x03one", b"", b"\x10\x01\x0a\x03two"
    answer = pb.UploadStatus.FromString(upload(iter([empty, first, empty, strange])))
    assert content(uploads, name_in(answer)) == b"onetwo"


@pytest.mark.parametrize("discard", [False, True])
def test_what_is_refused_leaves_nothing(binary, tmp_path, discard):
    folder = tmp_path / "data"
    flags = [
        "--data",
        str(folder),
        "--blob-quota",
        "10MiB",
        *(["--discard-uploads"] if discard else []),
    ]
    with Server(binary, *flags) as server, open_channel(server.address) as channel:
        upload = channel.stream_unary("/messaging.GuploadService/Upload")
        good = pb.Chunk(Content=b"good").SerializeToString()
        for bad in [b"\x0a\x05abc", b"\x08\x01", b"\xff"]:
            expect_status(CODE.INVALID_ARGUMENT, lambda bad=bad: upload(iter([good, bad])), "Chunk")
        large = pb.Chunk(Content=bytes(CHUNK_BYTES + 1)).SerializeToString()
        expect_status(CODE.RESOURCE_EXHAUSTED, lambda: upload(iter([good, large])), CHUNK_BYTES)
        huge = pb.Chunk(Content=bytes(20 << 20)).SerializeToString()
        expect_status(CODE.RESOURCE_EXHAUSTED, lambda: upload(iter([huge])))
        unknown = channel.stream_unary("/messaging.GuploadService/Download")
        expect_status(CODE.UNIMPLEMENTED, lambda: unknown(iter([good])))
        if not discard:
            expect_status(
                CODE.RESOURCE_EXHAUSTED,
                lambda: send(channel, bytes(11 << 20), 65_536),
                "blob-quota",
            )
            # What was stored of it does not count against the quota any more.
            wait_until(lambda: blob_files(folder) == [])
            name = send_when_there_is_room(channel, bytes(9 << 20))
            assert kept(channel) == [name]
        else:
            assert kept(channel) == []


def test_without_a_folder_nothing_can_be_kept(server, channel):
    expect_status(CODE.FAILED_PRECONDITION, lambda: send(channel, b"x"), "--discard-uploads")


def test_many_uploads_at_once(keeping):
    def upload(number):
        data = pattern(number, 200_000 + 100_000 * number)
        with open_channel(keeping.address) as channel:
            names = [send(channel, data, [1000, 65_536, CHUNK_BYTES][number % 3]) for _ in range(2)]
            for name in names:
                assert content(channel, name) == data
            return names

    with futures.ThreadPoolExecutor(16) as pool:
        names = [name for names in pool.map(upload, range(16)) for name in names]
    assert len(set(names)) == 32


def test_many_uploads_on_one_connection(uploads):
    def upload(number):
        data = pattern(number, 1_000_000)
        assert content(uploads, send(uploads, data, 10_000)) == data

    # With a thread per connection one upload follows the other, and while one is under way the
    # others wait.
    with futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(upload, range(8)))


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_what_was_answered_is_there_after_a_restart(binary, tmp_path, end):
    flags = ["--data", str(tmp_path / "data")]
    expected = {}
    for life in range(3):
        with Server(binary, *flags) as server, open_channel(server.address) as channel:
            assert kept(channel) == sorted(expected)
            for name, data in expected.items():
                assert content(channel, name) == data
            for number in range(4):
                data = pattern(life * 10 + number, 700_000)
                expected[send(channel, data)] = data
            server.signal(end)
            server.wait()
    assert len(expected) == 12
    assert len(blob_files(tmp_path / "data")) == 12


def test_an_upload_that_is_cut_leaves_nothing(binary, tmp_path):
    folder = tmp_path / "data"
    with Server(binary, "--data", str(folder)) as server, open_channel(server.address) as channel:
        # Cancelled; and beyond its deadline.
        for options, how, code in [
            ({}, "cancel", CODE.CANCELLED),
            ({"timeout": 2}, None, CODE.DEADLINE_EXCEEDED),
        ]:
            upload = HeldUpload([bytes(65_536)] * 40)
            call = upload.begin(channel, **options)
            if how:
                wait_until(lambda: len(blob_files(folder)) == 1)
                call.cancel()
                with pytest.raises(grpc.FutureCancelledError):
                    call.result(20)
            else:
                assert call.exception(20).code() == code
            upload.go_on.set()
            wait_until(lambda: blob_files(folder) == [])
            assert kept(channel) == []


PROGRAM = """
import sys, time
sys.path[:0] = {path!r}
import grpc
from compat import gupload_pb2, gupload_pb2_grpc

def chunks():
    for _ in range(100):
        yield gupload_pb2.Chunk(Content=bytes(65_536))
    print("sent", flush=True)
    time.sleep(60)

with grpc.insecure_channel({address!r}) as channel:
    gupload_pb2_grpc.GuploadServiceStub(channel).Upload(chunks())
"""


def test_a_client_that_is_killed_leaves_nothing(binary, tmp_path):
    folder = tmp_path / "data"
    with Server(binary, "--data", str(folder)) as server, open_channel(server.address) as channel:
        program = PROGRAM.format(path=sys.path, address=server.address)
        client = subprocess.Popen(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
        )
        try:
            assert client.stdout.readline() == "sent\n"
            wait_until(lambda: len(blob_files(folder)) == 1)
            assert kept(channel) == []
        finally:
            client.kill()
            client.wait(20)
            client.stdout.close()
        wait_until(lambda: blob_files(folder) == [])
        assert kept(channel) == []


def test_a_server_that_is_killed_leaves_nothing(binary, tmp_path):
    folder = tmp_path / "data"
    with Server(binary, "--data", str(folder)) as server, open_channel(server.address) as channel:
        upload = HeldUpload([bytes(65_536)] * 40)
        call = upload.begin(channel)
        wait_until(lambda: len(blob_files(folder)) == 1)
        server.kill()
        assert call.exception(20).code() == CODE.UNAVAILABLE
        upload.go_on.set()
    with Server(binary, "--data", str(folder)) as server, open_channel(server.address) as channel:
        assert kept(channel) == []
        assert blob_files(folder) == []
        assert content(channel, send(channel, b"after")) == b"after"


def test_a_stop_waits_for_an_upload(binary, tmp_path):
    folder = tmp_path / "data"
    with Server(binary, "--data", str(folder)) as server, open_channel(server.address) as channel:
        upload = HeldUpload([b"before "], [b"after"])
        call = upload.begin(channel)
        wait_until(lambda: len(blob_files(folder)) == 1)
        server.signal(signal.SIGTERM)
        wait_until(lambda: "stopping" in server.log() or "drain" in server.log())
        upload.go_on.set()
        name = name_in(call.result(20))
        assert server.wait() == 0
    with Server(binary, "--data", str(folder)) as server, open_channel(server.address) as channel:
        assert content(channel, name) == b"before after"


# --- --discard-uploads
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", [["--durability", "volatile"], ["--data"]])
def test_what_is_discarded_is_nowhere(binary, tmp_path, place):
    folder = tmp_path / "data"
    flags = ["--data", str(folder)] if place == ["--data"] else place
    with (
        Server(binary, *flags, "--discard-uploads") as server,
        open_channel(server.address) as channel,
    ):
        server.wait_for_log("thrown away")
        service = gupload_pb2_grpc.GuploadServiceStub(channel)
        before = server.resident_bytes()
        chunk = pb.Chunk(Content=bytes(CHUNK_BYTES))
        for count in [0, 1, 100]:
            answer = service.Upload(iter([chunk] * count))
            assert (answer.Code, answer.Message) == (pb.Ok, "received, and thrown away")
        assert service.Upload(iter([chunk]), compression=GZIP).Code == pb.Ok
        # A few messages of 4 MiB, and what is freed and not given back yet.
        assert server.resident_bytes() - before < 160 << 20, "400 MiB have come"
        if curl:
            assert post(f"http://{server.address}/upload", data=bytes(1 << 20)) == (
                200,
                {"content-length": "0"},
                b"",
            )
        if flags[0] == "--data":
            assert kept(channel) == []
            assert blob_files(folder) == []


# --- TLS
# --------------------------------------------------------------------------------------------------


def read(path):
    return pathlib.Path(path).read_bytes()


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed")
@pytest.mark.skipif(curl is None, reason="no curl")
def test_over_tls_with_and_without_client_certificates(binary, tmp_path):
    authority = Authority(tmp_path / "authority")
    certificate, key = map(str, authority.sign("server"))
    data = pattern(5, CHUNK_BYTES)
    for asks_for_certificate in [False, True]:
        flags = [
            "--tls-cert",
            certificate,
            "--tls-key",
            key,
            "--data",
            str(tmp_path / f"data-{asks_for_certificate}"),
        ]
        if asks_for_certificate:
            flags += ["--client-ca", str(authority.ca)]
        client_certificate, client_key = authority.sign(f"client-{asks_for_certificate}")
        with Server(binary, *flags) as server:
            # As the original client: it expects the name localhost, whatever the address.
            options = [("grpc.ssl_target_name_override", "localhost"), LARGE]
            own = grpc.ssl_channel_credentials(
                read(authority.ca), read(client_key), read(client_certificate)
            )
            with grpc.secure_channel(server.address, own, options) as channel:
                assert content(channel, send(channel, data, CHUNK_BYTES)) == data
                assert content(channel, send(channel, data, CHUNK_BYTES, compression=GZIP)) == data
                words = [
                    "--cacert",
                    str(authority.ca),
                    "--cert",
                    str(client_certificate),
                    "--key",
                    str(client_key),
                ]
                url = f"https://localhost:{server.host_port[1]}/upload"
                status, headers, _ = post(url, *words, data=data, plain=False)
                assert status == 200
                assert content(channel, headers["location"].removeprefix("/blob/")) == data
            without = grpc.ssl_channel_credentials(read(authority.ca))
            with grpc.secure_channel(server.address, without, options) as channel:
                if asks_for_certificate:
                    expect_status(CODE.UNAVAILABLE, lambda: send(channel, b"x"))
                else:
                    assert content(channel, send(channel, data)) == data
            with open_channel(server.address) as channel:
                expect_status(CODE.UNAVAILABLE, lambda: send(channel, b"x"))
