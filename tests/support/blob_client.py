"""What the tests of blobs share: uploads in chunks, checksums, downloads."""

import zlib

import grpc
from checksum import crc32c
from pelton.v1 import blob_pb2 as pb
from pelton.v1 import blob_pb2_grpc


def begin(name, **fields):
    return pb.UploadRequest(begin=pb.UploadBegin(name=name, **fields))


def chunk(data, **fields):
    return pb.UploadRequest(chunk=pb.UploadChunk(data=data, **fields))


def end(**fields):
    return pb.UploadRequest(end=pb.UploadEnd(**fields))


def upload(blob, name, data, chunk_bytes=64 * 1024, ending=None, sums=False, **fields):
    """Uploads `data` from `offset` on."""
    offset = fields.get("offset", 0)

    def requests():
        yield begin(name, **fields)
        for at in range(offset, len(data), chunk_bytes):
            part = data[at : at + chunk_bytes]
            yield chunk(part, crc32c=crc32c(part)) if sums else chunk(part)
        yield ending or end()

    return blob.Upload(requests())


def download(blob, name, **fields):
    """The description and the data of a download."""
    description, parts = None, []
    for response in blob.Download(pb.DownloadRequest(name=name, **fields)):
        if response.HasField("blob"):
            assert not parts, "only in the first message"
            description = response.blob
        if response.data and len(response.data) < 100_000:
            assert response.crc32c == crc32c(response.data)
        parts.append(response.data)
    return description, b"".join(parts)


def stub(channel):
    return blob_pb2_grpc.BlobStub(channel)


def pattern(seed, count):
    """Bytes that look random, the same for the same seed."""
    out, state = bytearray(), seed or 1
    while len(out) < count:
        state = zlib.crc32(state.to_bytes(8, "little")) | (state & 0xFFFF) << 32
        out += state.to_bytes(6, "little")
    return bytes(out[:count])


CODE = grpc.StatusCode
