"""pelton.v1.Blob: every method, every status, restarts and memory."""

import hashlib
import json
import os
import subprocess
import threading
import time

import grpc
import pytest
from blob_client import CODE, begin, chunk, download, end, pattern, stub, upload
from checksum import crc32c
from pelton.v1 import admin_pb2, admin_pb2_grpc
from pelton.v1 import blob_pb2 as pb
from server import Server, expect_status, open_channel, wait_until


@pytest.fixture(scope="module")
def durable(binary, tmp_path_factory):
    folder = tmp_path_factory.mktemp("blobs")
    with Server(binary, "--data", str(folder / "data"), "--blob-quota", "256MiB") as running:
        yield running
        assert running.process.poll() is None, running.log()


@pytest.fixture
def blob(durable):
    with open_channel(durable.address, ("grpc.max_receive_message_length", 8 << 20)) as channel:
        yield stub(channel)


@pytest.fixture
def name(request):
    return f"{request.node.name}/a b/ü"


def test_what_is_uploaded_comes_back(blob, name):
    for size in [0, 1, 1000, 65_536, 65_537, 300_000]:
        data = pattern(size, size)
        answer = upload(
            blob, name, data, 10_000, end(crc32c=crc32c(data)), sums=True, content_type="text/plain"
        )
        assert answer.applied
        assert answer.blob.size_bytes == size
        assert answer.blob.crc32c == crc32c(data)
        assert (answer.blob.name, answer.blob.content_type) == (name, "text/plain")
        description, found = download(blob, name)
        assert found == data
        assert description == answer.blob == blob.Stat(pb.StatRequest(name=name)).blob


def test_checksums_of_the_whole(blob, name):
    data = pattern(7, 100_000)
    sha256 = hashlib.sha256(data).digest()
    answer = upload(
        blob, name, data, ending=end(sha256=sha256, crc32c=crc32c(data)), size_bytes=len(data)
    )
    assert answer.blob.sha256 == sha256
    for wrong in [end(sha256=bytes(32)), end(crc32c=crc32c(data) ^ 1)]:
        expect_status(CODE.DATA_LOSS, lambda: upload(blob, name, data + b"x", ending=wrong))
    assert blob.Stat(pb.StatRequest(name=name)).blob == answer.blob, "what was stored stays"
    assert download(blob, name)[1] == data
    expect_status(
        CODE.INVALID_ARGUMENT, lambda: upload(blob, name, data, ending=end(sha256=b"short")), "32"
    )


def test_a_damaged_chunk_is_noticed_and_the_upload_goes_on(blob, name):
    data = pattern(8, 50_000)
    parts = [data[:20_000], data[20_000:40_000]]

    def requests():
        yield begin(name, upload_id=b"one")
        yield chunk(parts[0], crc32c=crc32c(parts[0]))
        yield chunk(parts[1], crc32c=crc32c(parts[1]) ^ 1)
        yield end()

    expect_status(CODE.DATA_LOSS, lambda: blob.Upload(requests()), "20000")
    asked = pb.StatRequest(name=name, upload_id=b"one")
    wait_until(lambda: blob.Stat(asked).stored_bytes == 20_000)
    assert not blob.Stat(pb.StatRequest(name=name)).found
    expect_status(
        CODE.OUT_OF_RANGE,
        lambda: upload(blob, name, data, upload_id=b"one", offset=19_999),
        "20000",
    )
    answer = upload(
        blob, name, data, upload_id=b"one", offset=20_000, ending=end(crc32c=crc32c(data))
    )
    assert answer.applied
    assert download(blob, name)[1] == data
    assert not blob.Stat(asked).found


def test_an_upload_without_its_end_waits(blob, name):
    data = pattern(9, 30_000)

    def requests():
        yield begin(name, upload_id=b"cut")
        yield chunk(data[:10_000])

    expect_status(CODE.INVALID_ARGUMENT, lambda: blob.Upload(requests()), "10000")
    assert not blob.Stat(pb.StatRequest(name=name)).found
    upload(blob, name, data, upload_id=b"cut", offset=10_000, ending=end(crc32c=crc32c(data)))
    assert download(blob, name)[1] == data


def test_a_second_stream_takes_over(blob, name):
    data = pattern(10, 40_000)
    sent, go_on = threading.Event(), threading.Event()

    def first():
        yield begin(name, upload_id=b"x")
        yield chunk(data[:10_000])
        sent.set()
        go_on.wait(20)
        yield chunk(data[10_000:])

    call = blob.Upload.future(first())
    assert sent.wait(10)
    asked = pb.StatRequest(name=name, upload_id=b"x")
    wait_until(lambda: blob.Stat(asked).stored_bytes == 10_000)
    answer = upload(
        blob, name, data, upload_id=b"x", offset=10_000, ending=end(crc32c=crc32c(data))
    )
    assert answer.applied
    assert call.exception(10).code() == CODE.ABORTED
    go_on.set()


def test_versions_are_conditions(blob, name):
    first = upload(blob, name, b"one", if_version=0)
    assert first.applied
    refused = upload(blob, name, b"two", if_version=0)
    assert not refused.applied and refused.blob == first.blob
    refused = upload(blob, name, b"two", if_version=first.blob.version + 1)
    assert not refused.applied
    second = upload(blob, name, b"two", if_version=first.blob.version)
    assert second.applied and second.blob.version > first.blob.version
    expect_status(
        CODE.ABORTED,
        lambda: download(blob, name, if_version=first.blob.version),
        second.blob.version,
    )
    assert download(blob, name, if_version=second.blob.version)[1] == b"two"
    kept = blob.Delete(pb.DeleteBlobRequest(name=name, if_version=first.blob.version))
    assert (kept.deleted, kept.version) == (False, second.blob.version)
    gone = blob.Delete(pb.DeleteBlobRequest(name=name, if_version=second.blob.version))
    assert (gone.deleted, gone.version) == (True, second.blob.version)
    gone = blob.Delete(pb.DeleteBlobRequest(name=name))
    assert (gone.deleted, gone.version) == (False, 0)
    assert not upload(blob, name, b"three", if_version=5).HasField("blob")


def test_ranges_and_chunks(blob, name):
    data = pattern(11, 300_000)
    upload(blob, name, data)
    for offset, length in [
        (0, 1),
        (65_535, 2),
        (299_999, 5),
        (100, 0),
        (300_000, 0),
        (131_072, 65_536),
    ]:
        end_of_range = len(data) if length == 0 else offset + length
        for chunk_bytes in [0, 1000, 65_536, 4 << 20]:
            fields = {"offset": offset, "length_bytes": length, "chunk_bytes": chunk_bytes}
            description, found = download(blob, name, **fields)
            assert found == data[offset:end_of_range], fields
            assert description.size_bytes == len(data)
    expect_status(CODE.OUT_OF_RANGE, lambda: download(blob, name, offset=300_001), 300_000)
    expect_status(
        CODE.INVALID_ARGUMENT, lambda: download(blob, name, chunk_bytes=(4 << 20) + 1), 4_194_304
    )
    expect_status(CODE.INVALID_ARGUMENT, lambda: download(blob, name, if_version=0))
    expect_status(CODE.NOT_FOUND, lambda: download(blob, name + "x"))


def test_chunks_of_4_mib(blob, name):
    data = pattern(12, 9 << 20)
    answer = upload(blob, name, data, 4 << 20)
    assert answer.blob.size_bytes == len(data)
    found = b"".join(
        one.data for one in blob.Download(pb.DownloadRequest(name=name, chunk_bytes=4 << 20))
    )
    assert found == data
    expect_status(
        CODE.RESOURCE_EXHAUSTED, lambda: upload(blob, name, data, (4 << 20) + 1), 4_194_304
    )


def test_lists(blob, request):
    prefix = request.node.name
    names = sorted([f"{prefix}/{number:03}" for number in range(700)] + [f"{prefix}/é"])
    for one in names:
        upload(blob, one, one.encode())

    def listed(**fields):
        pages = list(blob.List(pb.ListRequest(**fields)))
        assert [page.last for page in pages] == [False] * (len(pages) - 1) + [True]
        return [(one.name, one.size_bytes) for page in pages for one in page.blobs]

    expected = [(one, len(one.encode())) for one in names]
    assert listed(prefix=prefix) == expected
    assert listed(prefix=prefix, limit=10) == expected[:10]
    assert listed(prefix=prefix, start_after=names[9]) == expected[10:]
    assert listed(prefix=prefix + "/01") == expected[10:20]
    assert listed(prefix=prefix + "nothing") == []
    wrong = pb.ListRequest(prefix="b", start_after="a")
    expect_status(CODE.INVALID_ARGUMENT, lambda: list(blob.List(wrong)))


@pytest.mark.parametrize("bad", ["", "..", "a/../b", "a/.", "a\nb", "a\x00b", "x" * 1025])
def test_bad_names_are_refused(blob, bad):
    expect_status(CODE.INVALID_ARGUMENT, lambda: upload(blob, bad, b"data"), "name")
    expect_status(CODE.INVALID_ARGUMENT, lambda: download(blob, bad), "name")
    expect_status(CODE.INVALID_ARGUMENT, lambda: blob.Stat(pb.StatRequest(name=bad)), "name")
    expect_status(
        CODE.INVALID_ARGUMENT, lambda: blob.Delete(pb.DeleteBlobRequest(name=bad)), "name"
    )


@pytest.mark.parametrize(
    "requests, word",
    [
        ([chunk(b"data")], "begin"),
        ([end()], "begin"),
        ([begin("a"), begin("a")], "begin"),
        ([begin("a"), end(), chunk(b"x")], None),
        ([pb.UploadRequest()], "part"),
        ([begin("a", upload_id=b"x" * 65)], "upload_id"),
        ([begin("a", offset=1)], "offset"),
        ([begin("a", content_type="a\nb")], "content_type"),
        ([begin("a", size_bytes=1), chunk(b"xx"), end()], "announced"),
        ([begin("a", size_bytes=3), chunk(b"xx"), end()], "announced"),
    ],
)
def test_uploads_out_of_order_are_refused(blob, requests, word):
    if word is None:
        # Answered at the end, or refused for what follows it: both are right.
        try:
            blob.Upload(iter(requests))
        except grpc.RpcError as error:
            assert error.code() == CODE.INVALID_ARGUMENT
        return
    expect_status(CODE.INVALID_ARGUMENT, lambda: blob.Upload(iter(requests)), word)


def test_no_upload_is_no_request(blob):
    with pytest.raises(grpc.RpcError) as error:
        blob.Upload(iter([]))
    assert error.value.code() == CODE.UNIMPLEMENTED


def test_a_quota_and_databases(blob, durable, name):
    announced = begin(name, size_bytes=300 << 20)
    expect_status(
        CODE.RESOURCE_EXHAUSTED, lambda: blob.Upload(iter([announced])), "blob-quota", 256 << 20
    )
    expect_status(CODE.NOT_FOUND, lambda: upload(blob, name, b"x", database="nowhere"))
    with open_channel(durable.address) as channel:
        admin = admin_pb2_grpc.AdminStub(channel)
        for database, mode in [
            ("other", admin_pb2.DURABILITY_MODE_WRITTEN),
            ("cache", admin_pb2.DURABILITY_MODE_VOLATILE),
        ]:
            description = admin_pb2.DatabaseDescription(name=database, durability=mode)
            admin.CreateDatabase(admin_pb2.CreateDatabaseRequest(database=description))
        expect_status(
            CODE.FAILED_PRECONDITION, lambda: upload(blob, name, b"x", database="cache"), "volatile"
        )
        upload(blob, name, b"there", database="other")
        assert download(blob, name, database="other")[1] == b"there"
        assert not blob.Stat(pb.StatRequest(name=name)).found
        full = admin_pb2.DropDatabaseRequest(name="other")
        expect_status(
            CODE.INVALID_ARGUMENT, lambda: admin.DropDatabase(full), "1 blob with 5 bytes"
        )
        confirmed = admin_pb2.DropDatabaseRequest(name="other", confirm_name="other")
        assert admin.DropDatabase(confirmed).dropped
    expect_status(CODE.NOT_FOUND, lambda: download(blob, name, database="other"))
    # Nobody finds the hidden index.
    for hidden in [".blobs", "blobs"]:
        expect_status(
            CODE.NOT_FOUND, lambda hidden=hidden: upload(blob, name, b"x", database=hidden)
        )


def test_without_a_folder_there_are_no_blobs(server):
    with open_channel(server.address) as channel:
        expect_status(CODE.FAILED_PRECONDITION, lambda: upload(stub(channel), "a", b"x"), "--data")
        expect_status(CODE.FAILED_PRECONDITION, lambda: download(stub(channel), "a"), "--data")


def test_a_download_stays_what_it_was_while_the_blob_is_replaced_and_deleted(blob, name):
    data = pattern(13, 8 << 20)
    upload(blob, name, data, 1 << 20)
    call = blob.Download(pb.DownloadRequest(name=name, chunk_bytes=65_536))
    parts = [next(call).data]
    upload(blob, name, b"new")
    blob.Delete(pb.DeleteBlobRequest(name=name))
    parts += [one.data for one in call]
    assert b"".join(parts) == data
    assert not blob.Stat(pb.StatRequest(name=name)).found


def test_restarts_keep_blobs_and_uploads(binary, tmp_path):
    flags = ["--data", str(tmp_path / "data")]
    data = pattern(14, 5 << 20)
    asked = pb.StatRequest(name="part", upload_id=b"id")
    stored, is_stopped = 0, False
    for life in range(6):
        with Server(binary, *flags) as server, open_channel(server.address) as channel:
            blob = stub(channel)
            if life > 0:
                assert download(blob, "whole")[1] == data
                found = blob.Stat(asked).stored_bytes
                # A kill may take what was not durable yet.
                assert found == stored if is_stopped else found <= stored
                stored = found
                assert not blob.Stat(pb.StatRequest(name="part")).found
            else:
                upload(blob, "whole", data)

            def requests():
                yield begin("part", upload_id=b"id", offset=stored)
                for at in range(stored, stored + 700_000, 50_000):
                    yield chunk(data[at : at + 50_000])

            expect_status(CODE.INVALID_ARGUMENT, lambda: blob.Upload(requests()))
            stored += 700_000
            wait_until(lambda: blob.Stat(asked).stored_bytes == stored)
            is_stopped = life % 2 == 1
            if is_stopped:
                assert server.stop() == 0
    with Server(binary, *flags) as server, open_channel(server.address) as channel:
        blob = stub(channel)
        at = blob.Stat(asked).stored_bytes
        assert at == stored
        upload(blob, "part", data, upload_id=b"id", offset=at, ending=end(crc32c=crc32c(data)))
        assert download(blob, "part")[1] == data


def test_backups_have_blobs(binary, tmp_path):
    flags = ["--data", str(tmp_path / "data"), "--backup-root", str(tmp_path / "backups")]
    data = {f"b{number}": pattern(number + 20, 200_000) for number in range(5)}
    with Server(binary, *flags) as server, open_channel(server.address) as channel:
        for one, content in data.items():
            upload(stub(channel), one, content)
        admin = admin_pb2_grpc.AdminStub(channel)
        last = list(admin.Backup(admin_pb2.BackupRequest(name="one")))[-1]
        assert last.complete
        for one in data:
            upload(stub(channel), one, b"later")
    run = [binary, "restore", last.path, "--verify-only", "--output", "json"]
    done = subprocess.run(run, capture_output=True, text=True, timeout=60)
    # As many bytes as were written, their contents among them.
    assert json.loads(done.stdout)["bytes"] == last.written_bytes > 1_000_000
    run = [binary, "restore", last.path, "--data", str(tmp_path / "restored")]
    assert subprocess.run(run, timeout=60).returncode == 0
    with (
        Server(binary, "--data", str(tmp_path / "restored")) as server,
        open_channel(server.address) as channel,
    ):
        for one, content in data.items():
            assert download(stub(channel), one)[1] == content


def test_many_uploads_at_once_take_little_memory(binary, tmp_path):
    """The bound does not depend on the size: PELTON_BLOB_BYTES and PELTON_BLOB_UPLOADS make it
    larger. Fewer uploads would be charged with the windows that all of them share."""
    uploads = int(os.environ.get("PELTON_BLOB_UPLOADS", "100"))
    size = int(os.environ.get("PELTON_BLOB_BYTES", str(8 << 20)))
    part = pattern(99, 256 * 1024)
    with Server(binary, "--data", str(tmp_path / "data")) as server:
        before = server.resident_bytes()
        highest = [before]
        failures = []

        def one(number):
            def requests():
                yield begin(f"b{number}", size_bytes=size)
                for _ in range(size // len(part)):
                    yield chunk(part)
                yield end()

            try:
                with open_channel(server.address) as channel:
                    assert stub(channel).Upload(requests()).applied
            except BaseException as failure:  # noqa: B902 - the test looks at it
                failures.append(failure)

        threads = [threading.Thread(target=one, args=(number,)) for number in range(uploads)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            highest.append(server.resident_bytes())
            threads[0].join(0.02)
            for thread in threads:
                thread.join(0.002)
        assert not failures, failures[0]
        grown = max(highest) - before
        print(f"{uploads} uploads of {size} bytes: {grown / uploads / 2**20:.2f} MiB each")
        assert grown <= uploads * 2 * 2**20


def test_of_several_files_the_one_that_fails_is_named(binary, durable, tmp_path):
    for name in ("few", "fewer", "larger than the quota"):
        (tmp_path / name).write_bytes(pattern(len(name), 1000))
    with open(tmp_path / "larger than the quota", "ab") as file:
        file.truncate(300 << 20)
    files = [str(tmp_path / name) for name in ("few", "larger than the quota", "fewer")]
    run = [
        binary,
        "upload",
        "--address",
        durable.address,
        "--prefix",
        "several/",
        "--parallel",
        "1",
        *files,
    ]
    done = subprocess.run(run, capture_output=True, text=True, timeout=60)
    assert done.returncode == 3
    # What was stored before is said; nothing more was begun.
    assert done.stdout.startswith("several/few: 1000 bytes") and len(done.stdout.splitlines()) == 1
    assert done.stderr.startswith(f"pelton: {files[1]}: ") and "--blob-quota" in done.stderr
    run = [
        binary,
        "download",
        "--address",
        durable.address,
        "--parallel",
        "1",
        "--force",
        "--to",
        str(tmp_path),
    ]
    # What is missing keeps nothing from coming, and is named.
    run += ["several/not", "several/few", "several/neither"]
    done = subprocess.run(run, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    first, second = done.stderr.splitlines()
    assert first.startswith("pelton: several/not: ") and "there is no blob" in first
    assert second.startswith("pelton: several/neither: ")
    assert "1000 bytes" in done.stdout
    # Another failure leaves out the rest, and says what.
    run[run.index("several/not")] = "../bad"
    done = subprocess.run(run, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.startswith("pelton: ../bad: ")
    assert "not begun: several/few, several/neither" in done.stderr


def test_what_a_pipe_brings_late_is_stored(binary, durable):
    """Later than a server waits for the first bytes of a connection, or for an acknowledgement."""

    def start(*arguments):
        command = [binary, *arguments, "--address", durable.address]
        pipes = dict.fromkeys(["stdin", "stdout", "stderr"], subprocess.PIPE)
        return subprocess.Popen(command, **pipes)

    assert start("put", "late", "value").wait(60) == 0
    exported, _ = start("export").communicate(timeout=60)
    silent = start("upload", "-", "--name", "silent")
    paused = start("upload", "-", "--name", "paused")
    imported = start("import")
    paused.stdin.write(b"begin, ")
    paused.stdin.flush()
    time.sleep(12)
    for process, rest in [(silent, b"all"), (paused, b"end"), (imported, exported)]:
        _, errors = process.communicate(rest, timeout=60)
        assert process.returncode == 0, errors.decode()
    with open_channel(durable.address) as channel:
        assert download(stub(channel), "silent")[1] == b"all"
        assert download(stub(channel), "paused")[1] == b"begin, end"
