"""Chunks of uploads are stored as they come: cut anywhere, in any form, abandoned half-way; with
the bare bytes of a client that does what it likes."""

import random

import pytest
from blob_client import CODE, begin, chunk, download, end, pattern, stub, upload
from checksum import crc32c
from pelton.v1 import admin_pb2, admin_pb2_grpc
from pelton.v1 import blob_pb2 as pb
from pelton.v1 import kv_pb2, kv_pb2_grpc
from raw import DATA, END_STREAM, RST_STREAM, PacedConnection, frame, grpc_message
from server import Server, open_channel, wait_until

KIB, MIB = 1 << 10, 1 << 20
UPLOAD = "/pelton.v1.Blob/Upload"
OK, INVALID_ARGUMENT, DATA_LOSS = 0, 3, 15


@pytest.fixture(scope="module")
def running(binary, tmp_path_factory):
    with Server(binary, "--data", str(tmp_path_factory.mktemp("parts") / "data")) as server:
        yield server
        assert server.process.poll() is None, server.log()


@pytest.fixture
def blob(running):
    with open_channel(running.address) as channel:
        yield stub(channel)


def varint(number):
    out = bytearray()
    while number >= 128:
        out.append(number % 128 + 128)
        number //= 128
    return bytes([*out, number])


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def checksum(data):
    return b"\x15" + crc32c(data).to_bytes(4, "little")


# The same chunk, in forms that a decoder has to take.
FORMS = {
    "as encoders do": lambda data: field(2, field(1, data) + checksum(data)),
    "without a checksum": lambda data: field(2, field(1, data)),
    "the checksum first": lambda data: field(2, checksum(data) + field(1, data)),
    "something unknown first": lambda data: field(2, field(9, b"new") + field(1, data)),
    "something unknown behind": lambda data: (
        field(2, field(1, data) + field(9, b"new")) + field(8, b"later")
    ),
    "an end that was thought better of": lambda data: field(3, b"") + field(2, field(1, data)),
}


def long_varint(number):
    """Of five bytes, whatever it is."""
    return bytes([number >> shift & 0x7F | 0x80 for shift in (0, 7, 14, 21)] + [number >> 28])


FORMS["a long length"] = lambda data: (
    b"\x12" + long_varint(len(data) + 6) + b"\x0a" + long_varint(len(data)) + data
)


class Uploading:
    """An upload over a connection of its own, which keeps within the windows."""

    def __init__(self, address, name, cut=lambda: 16_384, **fields):
        self.connection = PacedConnection(address)
        self.cut = cut
        self.stream, head = self.connection.request(UPLOAD)
        self.connection.send(head)
        self.message(begin(name, **fields).SerializeToString())

    def message(self, payload, only=None):
        """Sends a message, or its first bytes."""
        data = grpc_message(payload)[:only]
        while data:
            count = min(self.cut(), len(data), self.connection.room(self.stream))
            if count == 0:
                assert self.connection.read(30), "the windows stay shut"
                continue
            self.connection.send(frame(DATA, 0, self.stream, data[:count]))
            self.connection.spend(self.stream, count)
            data = data[count:]

    def end(self):
        self.connection.send(
            frame(DATA, END_STREAM, self.stream, grpc_message(end().SerializeToString()))
        )
        return self.connection.wait(self.stream)

    def close(self):
        self.connection.socket.close()


def test_every_form_of_a_chunk_is_stored_wherever_it_is_cut(running, blob):
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    for form, encode in FORMS.items():
        for longest in (1, 7, 3_000, 16_384):
            # No flood of small frames where a message is gathered.
            size = min(longest * 12, 150_000)
            count = 1 if longest == 1 else 3
            datas = [draw.randbytes(draw.randrange(1, size + 2)) for _ in range(count)]
            uploading = Uploading(running.address, "form", lambda: draw.randint(1, longest))
            for data in datas:
                uploading.message(encode(data))
            answer = uploading.end()
            assert answer.grpc_status == OK, f"{form}, {longest}: {answer.grpc_message}"
            _, found = download(blob, "form")
            assert found == b"".join(datas), f"{form}, {longest}"
            uploading.close()


def test_what_cannot_be_undone_is_refused(running, blob):
    data = pattern(1, 50_000)
    wrong = field(2, field(1, data) + b"\x15" + bytes(4))
    cases = {
        "a checksum that does not fit": (wrong, DATA_LOSS),
        "data twice": (field(2, field(1, data) + field(1, b"other")), INVALID_ARGUMENT),
        "two chunks": (field(2, field(1, data)) + field(2, field(1, b"other")), INVALID_ARGUMENT),
        "a length beyond the message": (
            b"\x12" + varint(99_999) + field(1, data),
            INVALID_ARGUMENT,
        ),
        "a length beyond the chunk": (
            b"\x12" + varint(60_000) + b"\x0a" + varint(70_000) + data,
            INVALID_ARGUMENT,
        ),
        "a group that does not end": (field(2, field(1, data) + b"\x4b"), INVALID_ARGUMENT),
    }
    for case, (message, status) in cases.items():
        for round in range(2):
            upload_id = f"{case} {round}".encode()
            uploading = Uploading(running.address, "refused", upload_id=upload_id, offset=0)
            good = pattern(2, 30_000)
            uploading.message(chunk(good).SerializeToString())
            stat = pb.StatRequest(name="refused", upload_id=upload_id)
            has_good = lambda stat=stat: blob.Stat(stat).stored_bytes == len(good)
            wait_until(has_good, message=f"{case}: what fits is not stored")
            uploading.message(message)
            answer = uploading.connection.wait(uploading.stream)
            assert answer.grpc_status == status, (
                f"{case}, round {round}: {answer.grpc_status} {answer.grpc_message}"
            )
            uploading.close()
            # What came before it stays, and nothing of it.
            wait_until(has_good, message=f"{case}: something else is stored")
            whole = good + data
            response = upload(blob, "refused", whole, upload_id=upload_id, offset=len(good))
            assert response.blob.size_bytes == len(whole)
            assert download(blob, "refused")[1] == whole, case


def test_half_chunks_take_little_memory_and_leave_nothing(running, blob):
    def unfinished():
        with open_channel(running.address) as channel:
            [database] = (
                admin_pb2_grpc.AdminStub(channel)
                .Statistics(admin_pb2.StatisticsRequest())
                .databases
            )
            return database.unfinished_uploads

    data = pattern(3, 300 * KIB)
    # Of the largest chunk that there may be.
    message = field(2, field(1, data + bytes(4 * MIB - len(data))))
    sent_bytes = len(grpc_message(message)) - 4 * MIB + len(data)
    for round in range(2):
        before = running.resident_bytes()
        held = []
        for number in range(60):
            uploading = Uploading(running.address, f"half-{number}")
            uploading.message(message, only=sent_bytes)
            held.append(uploading)
        assert unfinished() == 60
        grown = running.resident_bytes() - before
        # Their connections, with buffers, what waits to be stored, and what a heap that is used for
        # the first time takes: far less than the chunks of which half came.
        assert grown < 60 * MIB, f"round {round}: {grown >> 10} KiB"
        response = upload(blob, "honest", data, chunk_bytes=100_000)
        assert response.applied
        for number, uploading in enumerate(held):
            if number % 2:
                uploading.connection.send(frame(RST_STREAM, 0, uploading.stream, (8).to_bytes(4)))
            uploading.close()
        wait_until(lambda: unfinished() == 0, message="something of them stays")


def test_an_upload_that_is_taken_over_in_the_midst_of_a_chunk(running, blob):
    whole = pattern(4, 2 * MIB)
    for round in range(2):
        name = f"taken-{round}"
        first = Uploading(running.address, name, upload_id=b"id")
        first.message(chunk(whole[: 400 * KIB]).SerializeToString())
        # Half of the next one, which the server has seen when it lets the rest come.
        first.message(chunk(whole[400 * KIB :]).SerializeToString(), only=900 * KIB)
        stat = pb.StatRequest(name=name, upload_id=b"id")
        wait_until(
            lambda stat=stat: blob.Stat(stat).stored_bytes == 400 * KIB,
            message="the first chunk is not stored",
        )
        # All of it, from where the whole chunks end.
        response = upload(
            blob, name, whole, chunk_bytes=MIB, sums=False, upload_id=b"id", offset=400 * KIB
        )
        assert response.blob.size_bytes == len(whole)
        assert download(blob, name)[1] == whole
        assert first.connection.wait(first.stream).grpc_status == CODE.ABORTED.value[0]
        first.close()


def test_what_follows_an_upload_on_its_connection_comes_whole(running):
    value = pattern(5, 300 * KIB)
    with open_channel(running.address) as channel:
        blob, keyvalue = stub(channel), kv_pb2_grpc.KeyValueStub(channel)
        for round in range(3):
            upload(blob, "before", value, chunk_bytes=150 * KIB)
            key = f"large {round}".encode()
            keyvalue.Put(kv_pb2.PutRequest(key=key, value=value), timeout=30)
            assert keyvalue.Get(kv_pb2.GetRequest(key=key), timeout=30).value == value
            operation = kv_pb2.Operation(put=kv_pb2.Operation.Put(key=key, value=value[: 40 * KIB]))
            answer = keyvalue.Batch(kv_pb2.BatchRequest(operations=[operation] * 3), timeout=30)
            assert len(answer.results) == 3
