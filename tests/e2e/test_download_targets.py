"""Where `pelton download` puts blobs, which is checked before the first byte."""

import concurrent.futures
import contextlib
import json
import os
import subprocess
import time

import grpc
import pytest
from environment import clean_environment
from pelton.v1 import blob_pb2 as pb
from pelton.v1 import blob_pb2_grpc
from server import Server

NAMES = ["a", "a/b", "a/c/d", "b/c", "/x", "y//z", "n" * 300, "z"]
FETCHED = ["a", "b/c", "z"]
MAKE = ", and nothing was downloaded; `mkdir new` makes it"


@pytest.fixture(scope="module")
def server(binary, tmp_path_factory):
    with Server(binary, "--data", str(tmp_path_factory.mktemp("targets") / "data")) as server:
        for name in NAMES:
            done = pelton(binary, server, "upload", "-", "--name", name, input=name)
            assert done.returncode == 0, done.stderr
        yield server
        assert server.process.poll() is None, server.log()


def pelton(binary, server, *arguments, **options):
    environment = clean_environment()
    command = [binary, *arguments, "--address", server.address]
    options = {"capture_output": True, "text": True, "timeout": 120, **options}
    return subprocess.run(command, env=environment, **options)


def test_a_folder_that_is_not_there_is_named_before_anything_is_fetched(binary, server, tmp_path):
    (tmp_path / "file").write_text("mine")
    for names, to, words in [
        (["z"], "new/", f"there is no folder new/{MAKE}"),
        (["z", "a"], "new", f"there is no folder new{MAKE}"),
        (["z"], "two words/", "`mkdir 'two words'` makes it"),
        (["z"], "file/", "--to file/ is no folder"),
        (["z", "a"], "file", "--to file is no folder"),
        (["--recursive", "b"], "file", "--to file is no folder"),
        (["--recursive", "b"], "file/", "--to file/ is no folder"),
    ]:
        done = pelton(binary, server, "download", *names, "--to", to, cwd=tmp_path)
        assert done.returncode == 2 and words in done.stderr, (names, to, done.stderr)
        assert os.listdir(tmp_path) == ["file"]
    assert (tmp_path / "file").read_text() == "mine"
    (tmp_path / "new").mkdir()
    for number in range(2):
        force = ["--force"] * number
        done = pelton(binary, server, "download", "z", "--to", "new/", *force, cwd=tmp_path)
        assert done.returncode == 0 and (tmp_path / "new" / "z").read_text() == "z", done.stderr


def test_names_that_no_file_can_have_are_left_out(binary, server, tmp_path):
    for form in [[], ["--output", "json"]]:
        folder = tmp_path / f"all{len(form)}"
        done = pelton(binary, server, "download", "--recursive", "", "--to", str(folder), *form)
        assert done.returncode == 3, done.stderr
        files = [path for path in folder.rglob("*") if path.is_file()]
        assert sorted(str(path.relative_to(folder)) for path in files) == FETCHED
        assert all((folder / name).read_text() == name for name in FETCHED)
        *warnings, failure = done.stderr.splitlines()
        if form:
            warnings = [json.loads(line)["warning"] for line in warnings]
            assert json.loads(failure) == {"error": "5 blobs were left out", "exit_code": 3}
        else:
            assert failure == "pelton: 5 blobs were left out"
        for name, why in [
            ("/x", "a part of its name is empty"),
            ("y//z", "a part of its name is empty"),
            ("n" * 300, "has more than 244 bytes"),
            ("a/b", "a is to be a file"),
            ("a/c/d", "a is to be a file"),
        ]:
            about = [line for line in warnings if f"the blob `{name}` cannot" in line]
            assert len(about) == 1 and why in about[0], (name, warnings)


@contextlib.contextmanager
def wrong_server(download):
    """A server of another make in which Download is this function."""

    class Blobs(blob_pb2_grpc.BlobServicer):
        def Download(self, request, context):
            yield from download(context)

    pool = concurrent.futures.ThreadPoolExecutor(4)
    wrong = grpc.server(pool)
    blob_pb2_grpc.add_BlobServicer_to_server(Blobs(), wrong)
    port = wrong.add_insecure_port("127.0.0.1:0")
    wrong.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        wrong.stop(None).wait()
        pool.shutdown()


def download_from(binary, address, folder):
    command = [binary, "download", "k", "--address", address, "--timeout", "1s"]
    command += ["--attempts", "2", "--to", "file"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


def test_an_answer_without_a_blob_is_no_empty_file(binary, tmp_path):
    with wrong_server(lambda context: iter(())) as address:
        done = download_from(binary, address, tmp_path)
    assert done.returncode == 3, done
    assert f"the answer of {address} says nothing of the blob `k`" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_messages_without_bytes_do_not_keep_a_download_alive(binary, tmp_path):
    def empty_ones(context):
        while context.is_active():
            yield pb.DownloadResponse()
            time.sleep(0.01)

    with wrong_server(empty_ones) as address:
        done = download_from(binary, address, tmp_path)
    assert done.returncode == 3, done
    assert "sent nothing for 1s" in done.stderr, done
    assert list(tmp_path.iterdir()) == []
