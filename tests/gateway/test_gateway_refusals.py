"""What a gateway lacks: each call ends at once with a status, the reason, and what to use."""

import grpc
import pytest
from compat import gupload_pb2, gupload_pb2_grpc
from gateway import make_database
from pelton.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    blob_pb2,
    blob_pb2_grpc,
    replication_pb2,
    replication_pb2_grpc,
)
from pelton.v1 import kv_pb2 as pb
from server import expect_status

UNIMPLEMENTED = grpc.StatusCode.UNIMPLEMENTED
SECONDS = 20
UPLOAD = blob_pb2.UploadRequest(begin=blob_pb2.UploadBegin(name="b"))


def blob(channel):
    return blob_pb2_grpc.BlobStub(channel)


def admin_of(channel):
    return admin_pb2_grpc.AdminStub(channel)


def replication(channel):
    return replication_pb2_grpc.ReplicationStub(channel)


def convert(channel):
    kind = admin_pb2.DATABASE_KIND_DISK
    request = admin_pb2.ConvertDatabaseRequest(name="kept", kind=kind)
    return list(admin_of(channel).ConvertDatabase(request, timeout=SECONDS))


CALLS = {
    "Upload": (
        lambda channel: blob(channel).Upload(iter([UPLOAD]), timeout=SECONDS),
        ["has no blobs", "4000000 bytes", "data folder"],
    ),
    "Download": (
        lambda channel: list(
            blob(channel).Download(blob_pb2.DownloadRequest(name="b"), timeout=SECONDS)
        ),
        ["has no blobs"],
    ),
    "Stat": (
        lambda channel: blob(channel).Stat(blob_pb2.StatRequest(name="b"), timeout=SECONDS),
        ["has no blobs"],
    ),
    "List": (
        lambda channel: list(blob(channel).List(blob_pb2.ListRequest(), timeout=SECONDS)),
        ["has no blobs"],
    ),
    "DeleteBlob": (
        lambda channel: blob(channel).Delete(blob_pb2.DeleteBlobRequest(name="b"), timeout=SECONDS),
        ["has no blobs"],
    ),
    "ListUploads": (
        lambda channel: blob(channel).ListUploads(blob_pb2.ListUploadsRequest(), timeout=SECONDS),
        ["has no blobs"],
    ),
    "Backup": (
        lambda channel: list(
            admin_of(channel).Backup(admin_pb2.BackupRequest(name="b"), timeout=SECONDS)
        ),
        ["not backed up", "`pelton export`"],
    ),
    "Snapshot": (
        lambda channel: admin_of(channel).Snapshot(admin_pb2.SnapshotRequest(), timeout=SECONDS),
        ["not backed up", "snapshots"],
    ),
    "ConvertDatabase": (convert, ["cannot be converted", "export"]),
    "Copy": (
        lambda channel: list(
            replication(channel).Copy(replication_pb2.CopyRequest(), timeout=SECONDS)
        ),
        ["has no replicas", "another server beside it"],
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_what_a_gateway_lacks_says_what_to_use(gateway, admin, stub, name):
    call, words = CALLS[name]
    listed = admin.ListDatabases(admin_pb2.ListDatabasesRequest()).databases
    if "kept" not in {one.database.name for one in listed}:
        make_database(admin, "kept")
        stub.Put(pb.PutRequest(database="kept", key=b"k", value=b"v"))
    for _ in range(2):
        expect_status(UNIMPLEMENTED, lambda: call(gateway.channel()), *words)
    assert stub.Get(pb.GetRequest(database="kept", key=b"k")).value == b"v"


def test_changes_cannot_be_watched(stub):
    watch = lambda: list(stub.Watch(pb.WatchRequest(), timeout=SECONDS))
    expect_status(UNIMPLEMENTED, watch, "cannot be watched", "scan it")


def test_uploads_of_the_drop_in_service_are_refused(gateway):
    """A client of gupload gets a status, and does not wait."""
    chunks = [gupload_pb2.Chunk(Content=b"content")]
    upload = gupload_pb2_grpc.GuploadServiceStub(gateway.channel()).Upload
    with pytest.raises(grpc.RpcError) as error:
        upload(iter(chunks), timeout=SECONDS)
    assert error.value.code() in (UNIMPLEMENTED, grpc.StatusCode.FAILED_PRECONDITION)
    assert error.value.details()


def test_the_default_database_is_not_dropped(admin):
    drop = admin_pb2.DropDatabaseRequest(name="")
    with pytest.raises(grpc.RpcError) as error:
        admin.DropDatabase(drop)
    assert error.value.code() in (
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.INVALID_ARGUMENT,
    )


def test_no_promotion_and_no_replicas_to_forget(gateway):
    admin = admin_of(gateway.channel())
    for call in (
        lambda: admin.Promote(admin_pb2.PromoteRequest(), timeout=SECONDS),
        lambda: admin.ForgetReplicas(admin_pb2.ForgetReplicasRequest(), timeout=SECONDS),
    ):
        with pytest.raises(grpc.RpcError) as error:
            call()
        assert error.value.code() in (
            UNIMPLEMENTED,
            grpc.StatusCode.FAILED_PRECONDITION,
            grpc.StatusCode.INVALID_ARGUMENT,
        )
        assert error.value.details()
