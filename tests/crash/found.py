"""What a server has: all databases with their entries and blobs; and files of a state."""

from history import Blob, Database, Entry, Wrong
from pelton.v1 import admin_pb2 as admin
from pelton.v1 import blob_pb2
from pelton.v1 import kv_pb2 as pb
from raw import END_STREAM

CHUNK_BYTES = 1 << 20


def read_all(calls):
    """Reads all databases with all their entries and blobs."""
    request = admin.ListDatabasesRequest()
    databases = calls.call("Admin/ListDatabases", request)[0].databases
    begun = []
    for one in databases:
        name = one.database.name
        scan = calls.begin("KeyValue/Scan", pb.ScanRequest(database=name))
        has_blobs = one.database.durability != admin.DURABILITY_MODE_VOLATILE
        blobs = has_blobs and calls.begin("Blob/List", blob_pb2.ListRequest(database=name))
        begun.append((name, one.database.kind, scan, blobs))
    found = {}
    for name, kind, scan, blobs in begun:
        entries = {
            entry.key: Entry(entry.value, entry.version, entry.expires_at_ms)
            for page in calls.messages("KeyValue/Scan", scan)
            for entry in page.entries
        }
        pages = calls.messages("Blob/List", blobs) if blobs else []
        described = [blob for page in pages for blob in page.blobs]
        found[name] = Database(kind, entries, read_blobs(calls, name, described))
    return found


def read_blobs(calls, database, described):
    requests = [blob_pb2.DownloadRequest(database=database, name=one.name) for one in described]
    begun = [calls.begin("Blob/Download", request) for request in requests]
    return {
        one.name: Blob(b"".join(m.data for m in calls.messages("Blob/Download", s)), one.version)
        for one, s in zip(described, begun)
    }


def resume(calls, database, upload_id, name, content):
    """Goes on with an upload from where the server has it.

    Returns the blob's version, and from where it went on.
    """
    request = blob_pb2.StatRequest(database=database, name=name, upload_id=upload_id)
    offset = calls.call("Blob/Stat", request)[0].stored_bytes
    if offset > len(content):
        raise Wrong(f"{offset} bytes of upload {upload_id} are stored, of {len(content)}")
    stream = calls.begin("Blob/Upload")
    begin = blob_pb2.UploadBegin(database=database, name=name, upload_id=upload_id, offset=offset)
    calls.send_message(stream, blob_pb2.UploadRequest(begin=begin))
    for at in range(offset, len(content), CHUNK_BYTES):
        chunk = blob_pb2.UploadChunk(data=content[at : at + CHUNK_BYTES])
        calls.send_message(stream, blob_pb2.UploadRequest(chunk=chunk))
    ending = blob_pb2.UploadRequest(end=blob_pb2.UploadEnd())
    calls.send_message(stream, ending, END_STREAM)
    return calls.messages("Blob/Upload", stream)[-1].blob.version, offset


def put_files(folder, files):
    """Makes the files of a state in a folder that is there."""
    for path in sorted(files):
        if files[path] is None:
            (folder / path).mkdir()
        else:
            (folder / path).write_bytes(files[path])
