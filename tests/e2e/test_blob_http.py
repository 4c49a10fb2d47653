"""Blobs over HTTP/2 without gRPC, with curl, with TLS and without."""

import shutil
import subprocess

import pytest
from blob_client import pattern
from raw import DATA, END_STREAM, Connection, frame
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
    flags = [
        "--data",
        str(folder / "data"),
        "--blob-quota",
        "20MiB",
        f"--tls-self-signed={folder / 'tls'}",
    ]
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
    status, missing, body = request(url + "a/b%20c")
    assert (status, int(missing["content-length"])) == (404, len(body)) and body
    # What HEAD says is what GET would bring (RFC 9110 section 9.3.2).
    status, headers, body = request(url + "a/b%20c", "-I")
    assert (status, headers["content-length"]) == (404, missing["content-length"])


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
    # Its length is known, so it is refused before it is read, and the reason is shown; also where
    # it is not known.
    for words in (["-T", str(large)], ["-T", "-"]):
        status, _, body = request(
            url + "large", *words, data=large.read_bytes() if "-" in words else b""
        )
        assert status == 507 and b"blob-quota" in body
        assert request(url + "large")[0] == 404
    assert request(url + "pipe")[2] == data


@pytest.mark.parametrize(
    "path, status",
    [("", 400), ("a/../b", 400), ("%2e%2e", 400), ("a%00", 400), ("%ff", 400), ("a?x=1", 400)],
)
def test_bad_names_are_refused(url, path, status):
    assert request(url + path, "--path-as-is")[0] == status


def test_conditions(url):
    assert request(url + "kept", "-T", "-", data=b"0123456789")[0] == 201
    _, headers, _ = request(url + "kept", "-I")
    etag = headers["etag"]
    for list in (etag, f"W/{etag}", f'"x", {etag}', "*"):
        assert request(url + "kept", "-H", f"if-none-match: {list}")[::2] == (304, b""), list
    assert request(url + "kept", "-H", 'if-none-match: "1", W/"x"')[::2] == (200, b"0123456789")
    assert request(url + "kept", "-H", 'if-match: "1"')[0] == 412
    assert request(url + "kept", "-H", f'if-match: "1", {etag}')[0] == 200
    # A part goes only to whom has the rest of just this version.
    part = ["-r", "2-3", "-H"]
    assert request(url + "kept", *part, f"if-range: {etag}")[::2] == (206, b"23")
    for other in ('"1"', f"W/{etag}", "Sat, 21 Nov 2026 00:00:00 GMT"):
        assert request(url + "kept", *part, f"if-range: {other}")[::2] == (200, b"0123456789"), (
            other
        )


@pytest.mark.parametrize(
    "words",
    [
        ["-H", "content-range: bytes 5-9/10"],
        ["-H", "content-encoding: gzip"],
        ["-H", 'if-none-match: "1"'],
        ["-H", "if-match: *"],
        ["-H", 'if-match: "x"'],
    ],
)
def test_what_cannot_be_kept_to_replaces_nothing(url, words):
    assert request(url + "there", "-T", "-", data=b"0123456789")[0] == 201
    assert request(url + "there", "-T", "-", *words, data=b"56789")[0] == 400
    assert request(url + "there")[2] == b"0123456789"


def test_an_upload_resumed_by_curl_replaces_nothing(url, tmp_path):
    file = tmp_path / "file"
    file.write_bytes(b"0123456789")
    assert request(url + "there", "-T", str(file))[0] == 201
    assert request(url + "there", "-T", str(file), "-C", "5")[0] == 400
    assert request(url + "there")[2] == b"0123456789"


def test_who_waits_to_send_the_body_is_told_to_go_on(running):
    fields = [("expect", "100-continue"), ("content-length", "3")]
    with Connection(running.addresses[0]) as connection:
        stream, head = connection.request("/blob/waited", *fields, method="PUT", content_type=None)
        connection.send(head)
        answer = connection.answers[stream]
        while not answer.interim:
            assert connection.read(10), "no word to go on"
        connection.send(frame(DATA, END_STREAM, stream, b"abc"))
        connection.wait(stream)
        assert (answer.interim, answer.headers[":status"]) == (["100"], "201")
        # What is wrong already is said at once instead.
        stream, head = connection.request("/blob/a/../b", *fields, method="PUT", content_type=None)
        connection.send(head)
        answer = connection.wait(stream)
        assert (answer.interim, answer.headers[":status"]) == ([], "400")


def test_other_databases_and_methods(url):
    assert request(url + "a?database=nowhere")[0] == 404
    status, headers, _ = request(url + "a", "-X", "POST", "-d", "x")
    assert (status, headers["allow"]) == (405, "put, get, head, delete")
