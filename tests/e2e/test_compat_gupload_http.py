"""POST /upload of gupload over plain HTTP/2, with curl. Over TLS: test_compat_gupload.py."""

import subprocess
import threading

import pytest
from blob_client import pattern
from gupload_client import blob_files, curl, kept, located_content, post, send_when_there_is_room
from gupload_client import keeping, uploads  # noqa: F401 (fixtures)
from server import Server, open_channel, wait_until

pytestmark = pytest.mark.skipif(curl is None, reason="no curl")


@pytest.fixture
def url(keeping):
    return f"http://{keeping.address}/upload"


def test_plain_requests_are_kept(url, uploads, tmp_path):
    for size in [0, 1, 65_536, 3_000_000]:
        data = pattern(size + 1, size)
        assert located_content(uploads, post(url, data=data)) == data
    file = tmp_path / "file"
    file.write_bytes(data)
    # A stream whose length nobody knows; and another method.
    assert located_content(uploads, post(url, "-X", "POST", "-T", "-", data=data)) == data
    assert located_content(uploads, post(f"{url}?any=thing", "-X", "PUT", data=data)) == data
    run = subprocess.run(
        [curl, "-sS", "--http2-prior-knowledge", "-T", str(file), url],
        capture_output=True,
        timeout=60,
    )
    assert (run.returncode, run.stdout) == (0, b"")


def test_who_only_looks_leaves_nothing(url, uploads):
    before = kept(uploads)
    look = lambda *words: subprocess.run(
        [curl, "-sS", "--http2-prior-knowledge", "-o", "-", "-w", "%{http_code}",
         "--max-time", "20", *words],
        capture_output=True, timeout=60, text=True,
    ).stdout  # fmt: skip
    assert look(url) == "200"
    assert look("-X", "OPTIONS", url) == "200"
    assert look("-I", url).endswith("200")
    assert look("-X", "POST", url + "/").endswith("404")
    assert look("-X", "POST", url + "s").endswith("404")
    assert kept(uploads) == before


def test_plain_requests_beyond_the_quota(binary, tmp_path):
    folder = tmp_path / "data"
    with (
        Server(binary, "--data", str(folder), "--blob-quota", "1MiB") as server,
        open_channel(server.address) as channel,
    ):
        url = f"http://{server.address}/upload"
        # Refused before all was read: curl may see the end of the stream before the answer.
        for words in [[], ["-T", "-"]]:
            run = [
                curl,
                "-sS",
                "--http2-prior-knowledge",
                "-w",
                "%{http_code}",
                "--max-time",
                "60",
                "-X",
                "POST",
            ]
            run += words or ["--data-binary", "@-"]
            done = subprocess.run(
                [*run, url], input=bytes(5 << 20), capture_output=True, timeout=90
            )
            assert done.returncode == 92 or (
                b"blob-quota" in done.stdout and done.stdout.endswith(b"507")
            ), done
            wait_until(lambda: blob_files(folder) == [])
            assert kept(channel) == []
        send_when_there_is_room(channel, bytes(600_000))
        data = pattern(3, 400_000)
        assert located_content(channel, post(url, data=data)) == data


def test_a_plain_request_that_is_cut_leaves_nothing(binary, tmp_path):
    folder = tmp_path / "data"
    with Server(binary, "--data", str(folder)) as server, open_channel(server.address) as channel:
        run = [
            curl,
            "-sS",
            "--http2-prior-knowledge",
            "-X",
            "POST",
            "-T",
            "-",
            f"http://{server.address}/upload",
        ]
        client = subprocess.Popen(
            run, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            client.stdin.write(bytes(1 << 20))
            client.stdin.flush()
            wait_until(lambda: len(blob_files(folder)) == 1)
        finally:
            client.kill()
            client.wait(20)
            client.stdin.close()
        wait_until(lambda: blob_files(folder) == [])
        assert kept(channel) == []


def test_without_a_folder_plain_requests_are_refused(server):
    # Without a body: curl may see the end of a stream that is refused before it has sent all, and
    # say nothing else.
    status, _, body = post(f"http://{server.address}/upload")
    assert status == 409 and b"--discard-uploads" in body


@pytest.mark.parametrize("discard", [False, True])
def test_a_body_is_never_gathered(binary, tmp_path, discard):
    size = 300 << 20
    file = tmp_path / "file"
    with open(file, "wb") as out:
        out.truncate(size)
    flags = ["--discard-uploads"] if discard else []
    with Server(binary, "--data", str(tmp_path / "data"), *flags) as server:
        before, highest, is_over = server.resident_bytes(), [0], threading.Event()

        def watch():
            while not is_over.wait(0.01):
                highest[0] = max(highest[0], server.resident_bytes())

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            # Not with --data-binary, which reads all of it into curl's memory.
            run = [
                curl,
                "-sS",
                "--http2-prior-knowledge",
                "-X",
                "POST",
                "-T",
                str(file),
                "-w",
                "%{http_code}",
            ]
            done = subprocess.run(
                [*run, f"http://{server.address}/upload"], capture_output=True, timeout=120
            )
        finally:
            is_over.set()
            watcher.join(20)
        assert done.stdout == b"200", done
        # Windows, buffers and freed memory, half of the body at most.
        assert highest[0] - before < 150 << 20
