"""What is told of blobs: statistics, `pelton status`, metrics, and contents that are missing at a
start."""

import json
import subprocess

from blob_client import CODE, begin, chunk, download, stub, upload
from metrics_page import fetch
from pelton.v1 import admin_pb2, admin_pb2_grpc
from pelton.v1 import blob_pb2 as pb
from server import Server, expect_status, open_channel, wait_until


def status_of(binary, server):
    words = [binary, "status", "--address", server.address]
    text = subprocess.run(words, capture_output=True, text=True, timeout=30, check=True).stdout
    out = subprocess.run(
        [*words, "--output", "json"], capture_output=True, text=True, timeout=30, check=True
    ).stdout
    return text, json.loads(out)


def test_blobs_are_counted_everywhere(binary, tmp_path):
    flags = [
        "--data",
        str(tmp_path / "data"),
        "--blob-quota",
        "20MiB",
        "--metrics-listen",
        "127.0.0.1:0",
    ]
    with Server(binary, *flags) as server, open_channel(server.address) as channel:
        blob, admin = stub(channel), admin_pb2_grpc.AdminStub(channel)
        for name, data in [("a", b"x" * 1000), ("b", b""), ("a", b"y" * 500)]:
            upload(blob, name, data)
        unfinished = [begin("c", upload_id=b"id"), chunk(b"z" * 200)]
        expect_status(CODE.INVALID_ARGUMENT, lambda: blob.Upload(iter(unfinished)))
        asked = admin_pb2.StatisticsRequest()
        # What was replaced goes in its own time.
        wait_until(lambda: admin.Statistics(asked).databases[0].blob_bytes == 700)
        figures = admin.Statistics(asked)
        one = figures.databases[0]
        assert (one.blobs, one.unfinished_uploads, figures.blob_quota_bytes) == (2, 1, 20 << 20)
        text, fields = status_of(binary, server)
        assert "blobs: 2 with 700 B; unfinished uploads: 1; quota of each database: 20 MiB" in text
        names = ["blobs", "blob_bytes", "unfinished_uploads", "blob_quota_bytes"]
        assert [fields[name] for name in names] == [2, 700, 1, 20 << 20]
        _, page = fetch(server)
        for line in [
            'pelton_database_blobs{database=""} 2',
            'pelton_database_blob_bytes{database=""} 700',
            'pelton_database_unfinished_uploads{database=""} 1',
            f"pelton_blob_quota_bytes {20 << 20}",
        ]:
            assert line in page.splitlines(), page
        blob.Delete(pb.DeleteBlobRequest(name="b"))
        assert admin.Statistics(asked).databases[0].blobs == 1
        description = admin_pb2.DatabaseDescription(name="other")
        admin.CreateDatabase(admin_pb2.CreateDatabaseRequest(database=description))
        upload(blob, "empty", b"", database="other")
        drop = admin_pb2.DropDatabaseRequest(name="other")
        expect_status(
            CODE.INVALID_ARGUMENT, lambda: admin.DropDatabase(drop), "1 blob with 0 bytes"
        )


def test_missing_contents_are_said_at_a_start(binary, tmp_path):
    flags = ["--data", str(tmp_path / "data")]
    with Server(binary, *flags) as server, open_channel(server.address) as channel:
        for name in ("gone", "there"):
            upload(stub(channel), name, name.encode())
        assert server.stop() == 0
    min((tmp_path / "data" / "blobs").glob("*.blob")).unlink()
    with Server(binary, *flags) as server, open_channel(server.address) as channel:
        server.wait_for_log("blobs have no content")
        line = next(line for line in server.log().splitlines() if "blobs have no content" in line)
        assert "ERROR" in line and '["gone"]' in line and "restore a backup" in line
        expect_status(CODE.DATA_LOSS, lambda: download(stub(channel), "gone"))
        assert download(stub(channel), "there")[1] == b"there"
