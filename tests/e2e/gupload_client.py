"""What the tests of gupload share: uploads as its client makes them, and looks at what is kept."""

import os
import pathlib
import re
import shutil
import subprocess
import threading

import grpc
import pytest
from blob_client import CODE, download, stub
from compat import gupload_pb2 as pb
from compat import gupload_pb2_grpc
from pelton.v1 import blob_pb2
from server import Server, open_channel, wait_until

curl = shutil.which("curl")

NAME = r"gupload/\d{8}T\d{6}\.\d{3}Z-\d{8}-[0-9a-f]{16}"
CHUNK_BYTES = 4 << 20
# For downloads of chunks of that size.
LARGE = ("grpc.max_receive_message_length", 8 << 20)


@pytest.fixture(scope="module")
def keeping(binary, tmp_path_factory):
    """A server that keeps what is uploaded."""
    folder = tmp_path_factory.mktemp("gupload")
    with Server(binary, "--data", str(folder / "data"), "--blob-quota", "512MiB") as running:
        yield running
        assert running.process.poll() is None, running.log()


@pytest.fixture
def uploads(keeping):
    """A channel to it."""
    with open_channel(keeping.address, LARGE) as channel:
        yield channel


class HeldUpload:
    """An upload that stops in its midst, until it is told to go on."""

    def __init__(self, before, after=()):
        self.before, self.after = before, after
        self.has_stopped, self.go_on = threading.Event(), threading.Event()

    def begin(self, channel, **options):
        """The call, when all that comes before the stop was taken from here."""
        call = gupload_pb2_grpc.GuploadServiceStub(channel).Upload.future(self._chunks(), **options)
        assert self.has_stopped.wait(20)
        return call

    def _chunks(self):
        yield from (pb.Chunk(Content=content) for content in self.before)
        self.has_stopped.set()
        self.go_on.wait(60)
        yield from (pb.Chunk(Content=content) for content in self.after)


def send(channel, data, chunk_bytes=4096, **options):
    """Uploads as the original client does; the name under which it is kept."""
    chunks = (
        pb.Chunk(Content=data[at : at + chunk_bytes]) for at in range(0, len(data), chunk_bytes)
    )
    return name_in(
        gupload_pb2_grpc.GuploadServiceStub(channel).Upload(chunks, timeout=120, **options)
    )


def send_when_there_is_room(channel, data, chunk_bytes=65_536):
    """What is refused leaves its room soon, but perhaps after it was answered."""
    names = []

    def sent():
        try:
            names.append(send(channel, data, chunk_bytes))
        except grpc.RpcError as error:
            assert error.code() == CODE.RESOURCE_EXHAUSTED, error.details()
        return names

    wait_until(sent)
    return names[0]


def name_in(answer):
    assert answer.Code == pb.Ok
    found = re.search(f"{NAME}$", answer.Message)
    assert found, answer.Message
    return found.group()


def kept(channel):
    """The names of what is there."""
    pages = stub(channel).List(blob_pb2.ListRequest(prefix="gupload/"))
    return [one.name for page in pages for one in page.blobs]


def content(channel, name):
    return download(stub(channel), name)[1]


def blob_files(data):
    return sorted(os.listdir(pathlib.Path(data) / "blobs"))


def post(url, *words, data=b"", plain=True):
    """Status, headers and body."""
    version = "--http2-prior-knowledge" if plain else "--http2"
    run = [curl, "-sS", version, "-D", "-", "--max-time", "60", *words, url]
    run += [] if "-T" in words else ["--data-binary", "@-"]
    done = subprocess.run(run, input=data, capture_output=True, timeout=90)
    assert done.returncode == 0, done.stderr
    head, _, body = done.stdout.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0].startswith("HTTP/2 ")
    return (
        int(lines[0].split()[1]),
        dict(line.split(": ", 1) for line in lines[1:] if ": " in line),
        body,
    )


def located(answer):
    status, headers, body = answer
    assert (status, body, headers["content-length"]) == (200, b"", "0")
    name = headers["location"].removeprefix("/blob/")
    assert re.fullmatch(NAME, name), name
    return name


def located_content(channel, answer):
    return content(channel, located(answer))
