"""Blobs over HTTP/2 without gRPC, with curl, with TLS and without."""

import shutil
import subprocess

import pytest
from blob_client import pattern
from server import Server

curl = shutil.which("curl")
pytestmark = pytest.mark.skipif(curl is None, reason="no curl")


class Url(str):
    """An address, and what curl must be told to reach it."""

    def __new__(cls, text, flags):
        url = super().__new__(cls, text)
        url.flags = flags
        return url

    def __add__(self, more):
        return Url(str(self) + more, self.flags)


@pytest.fixture(scope="module")
def running(binary, tmp_path_factory):
    folder = tmp_path_factory.mktemp("http")
    flags = ["--data", str(folder / "data"), "--blob-quota", "20MiB", f"--tls-self-signed={folder / 'tls'}"]
    with Server(binary, *flags, listen=("plain:127.0.0.1:0", "tls:127.0.0.1:0")) as server:
        server.ca = str(folder / "tls" / "ca.pem")
        yield server
        assert server.process.poll() is None, server.log()


@pytest.fixture(params=["plain", "tls"])
def url(running, request):
    if request.param == "plain":
        return Url(f"http://{running.addresses[0]}/blob/", ["--http2-prior-knowledge"])
    return Url(f"https://{running.addresses[1]}/blob/", ["--http2", "--cacert", running.ca])


def request(url, *words, data=b""):
    """Status, headers and body."""
    run = [curl, "-sS", *url.flags, "--noproxy", "*", "-D", "-", "--max-time", "60", *words, url]
    done = subprocess.run(run, input=data, capture_output=True, timeout=90)
    assert done.returncode == 0, done.stderr
    head, _, body = done.stdout.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines[1:] if ": " in line)
    return int(lines[0].split()[1]), headers, body


def test_put_get_head_delete(url, tmp_path):
    data = pattern(1, 3_000_000)
    file = tmp_path / "file"
    file.write_bytes(data)
    status, headers, body = request(url + "a/b%20c", "-T", str(file), "-H", "content-type: text/x")
    assert status == 201 and b"3000000 bytes" in body
    etag = headers["etag"]
    status, headers, body = request(url + "a/b%20c")
    assert (status, body) == (200, data)
    assert headers["content-type"] == "text/x"
    assert headers["content-length"] == "3000000"
    assert headers["etag"] == etag
    status, headers, _ = request(url + "a/b%20c", "-I")
    assert (status, headers["content-length"]) == (200, "3000000")
    status, headers, body = request(url + "a/b%20c", "-r", "65530-65545")
    assert (status, body) == (206, data[65530:65546])
    assert headers["content-range"] == "bytes 65530-65545/3000000"
    assert request(url + "a/b%20c", "-r", "-5")[2] == data[-5:]
    status, headers, _ = request(url + "a/b%20c", "-r", "3000000-")
    assert (status, headers["content-range"]) == (416, "bytes */3000000")
    assert request(url + "a/b%20c", "-H", f"if-none-match: {etag}")[0] == 304
    assert request(url + "a/b%20c", "-T", str(file), "-H", "if-none-match: *")[0] == 412
    assert request(url + "a/b%20c", "-T", str(file), "-H", f"if-match: {etag}")[0] == 201
    assert request(url + "a/b%20c", "-X", "DELETE", "-H", f"if-match: {etag}")[0] == 412
    assert request(url + "a/b%20c", "-X", "DELETE")[0] == 204
    assert request(url + "a/b%20c", "-X", "DELETE")[0] == 404
    assert request(url + "a/b%20c")[0] == 404


def test_what_is_empty_is_there(url):
    assert request(url + "empty", "-X", "PUT")[0] == 201
    status, headers, body = request(url + "empty")
    assert (status, headers["content-length"], body) == (200, "0", b"")


def test_from_a_pipe_and_beyond_the_quota(url, tmp_path):
    data = pattern(2, 500_000)
    assert request(url + "pipe", "-T", "-", data=data)[0] == 201
    assert request(url + "pipe")[2] == data
    large = tmp_path / "large"
    large.write_bytes(bytes(25 << 20))
    # Its length is known, so it is refused before it is read, and the reason is shown; also where it is not known.
    for words in (["-T", str(large)], ["-T", "-"]):
        status, _, body = request(url + "large", *words, data=large.read_bytes() if "-" in words else b"")
        assert status == 507 and b"blob-quota" in body
        assert request(url + "large")[0] == 404
    assert request(url + "pipe")[2] == data


@pytest.mark.parametrize(
    "path, status", [("", 400), ("a/../b", 400), ("%2e%2e", 400), ("a%00", 400), ("%ff", 400), ("a?x=1", 400)]
)
def test_bad_names_are_refused(url, path, status):
    assert request(url + path, "--path-as-is")[0] == status


def test_other_databases_and_methods(url):
    assert request(url + "a?database=nowhere")[0] == 404
    assert request(url + "a", "-X", "POST", "-d", "x")[0] == 404
