"""Calls of many methods on one connection, whose frames come in any order, in any size, and end
anywhere: each has the answer that it would have alone, what was acknowledged is there, and nothing
is held afterwards.

PELTON_SEED repeats a run; PELTON_INTERLEAVED_ROUNDS (4) is how many connections it has.
"""

import gzip
import os
import random

import metrics_page
import pytest
from blob_client import begin, end, stub, upload
from checksum import crc32c
from pelton.v1 import blob_pb2 as pb
from pelton.v1 import kv_pb2, kv_pb2_grpc
from raw import (
    DATA,
    END_STREAM,
    FIRST_WINDOW,
    MAX_WINDOW,
    RST_STREAM,
    WINDOW_UPDATE,
    PacedConnection,
    frame,
    grpc_message,
    settings_payload,
)
from server import Server, open_channel, wait_until

SEED = os.environ.get("PELTON_SEED", str(random.randrange(1 << 32)))
ROUNDS = int(os.environ.get("PELTON_INTERLEAVED_ROUNDS", "4"))
CALLS = 60
AT_ONCE = 12
KIB, MIB = 1 << 10, 1 << 20
CANCEL = (8).to_bytes(4)
KV, BLOB = "/pelton.v1.KeyValue/", "/pelton.v1.Blob/"
# Of which values are parts: to make up and to compare costs nothing.
POOL = random.Random(1).randbytes(6 * MIB)


class Known:
    """What is expected to be stored."""

    def __init__(self):
        self.values, self.blobs = {}, {}
        # What a call that was abandoned may have stored, or not.
        self.perhaps_values, self.perhaps_blobs = {}, {}
        # Uploads that can be gone on with: their names and all of their content.
        self.uploads = {}


class Call:
    """What is sent for one call, and how its answer is checked."""

    def __init__(self, kind, path, messages, check, fields=()):
        self.kind, self.path, self.check, self.fields = kind, path, check, fields
        self.data = b"".join(messages)
        self.at = 0
        # Where it is abandoned, and whether by a reset or by an end in the midst.
        self.abandoned = None
        self.stream = None


class Mixer:
    def __init__(self, draw, address, known, tag):
        self.draw, self.address, self.known, self.tag = draw, address, known, tag
        settings = settings_payload(initial_window_size=MAX_WINDOW, max_frame_size=1 << 20)
        self.connection = PacedConnection(address, settings=settings)
        self.connection.send(frame(WINDOW_UPDATE, 0, 0, (MAX_WINDOW - FIRST_WINDOW).to_bytes(4)))
        self.number = 0

    # What a call can be

    def some(self, most):
        """Bytes of any size, small ones as often as large ones."""
        size = int(2 ** self.draw.uniform(0, most.bit_length() - 1))
        at = self.draw.randrange(len(POOL) - size)
        return POOL[at : at + size]

    def message(self, payload, gzipped):
        if gzipped and self.draw.random() < 0.7:
            return grpc_message(gzip.compress(payload, 1), compressed=1)
        return grpc_message(payload)

    def new_call(self):
        self.number += 1
        gzipped = self.draw.random() < 0.15
        encoding = [("grpc-encoding", "gzip")] if gzipped else []
        make = self.draw.choice(
            [
                self.put,
                self.put,
                self.get,
                self.batch,
                self.pipe,
                self.upload,
                self.upload,
                self.upload,
                self.resume,
            ]
        )

        def wrap(message):
            return self.message(
                message if isinstance(message, bytes) else message.SerializeToString(), gzipped
            )

        call = make(wrap)
        call.fields = encoding
        if self.draw.random() < 0.2:
            call.abandoned = self.draw.randrange(1, len(call.data) + 1), self.draw.random() < 0.7
        return call

    def put(self, wrap):
        key, value = f"{self.tag}/{self.number}".encode(), self.some(2 * MIB)
        self.known.perhaps_values[key] = value

        def check(answer):
            assert kv_pb2.PutResponse.FromString(answer[5:]).applied
            self.known.values[key] = self.known.perhaps_values.pop(key)

        return Call("Put", KV + "Put", [wrap(kv_pb2.PutRequest(key=key, value=value))], check)

    def get(self, wrap):
        key = self.draw.choice(list(self.known.values) or [b"none"])
        expected = self.known.values.get(key)

        def check(answer):
            found = kv_pb2.GetResponse.FromString(answer[5:])
            assert (found.value if found.found else None) == expected, key

        return Call("Get", KV + "Get", [wrap(kv_pb2.GetRequest(key=key))], check)

    def batch(self, wrap):
        keys = [
            f"{self.tag}/{self.number}/{index}".encode()
            for index in range(self.draw.randrange(1, 6))
        ]
        values = {key: self.some(400 * KIB) for key in keys}
        self.known.perhaps_values |= values
        operations = [
            kv_pb2.Operation(put=kv_pb2.Operation.Put(key=key, value=value))
            for key, value in values.items()
        ]

        def check(answer):
            assert len(kv_pb2.BatchResponse.FromString(answer[5:]).results) == len(keys)
            for key in keys:
                self.known.values[key] = self.known.perhaps_values.pop(key)

        return Call(
            "Batch", KV + "Batch", [wrap(kv_pb2.BatchRequest(operations=operations))], check
        )

    def pipe(self, wrap):
        values = {
            f"{self.tag}/{self.number}/{index}".encode(): self.some(200 * KIB)
            for index in range(self.draw.randrange(1, 8))
        }
        self.known.perhaps_values |= values
        operation = lambda key: kv_pb2.Operation(
            put=kv_pb2.Operation.Put(key=key, value=values[key])
        )
        messages = [wrap(kv_pb2.PipeRequest(operations=[operation(key)])) for key in values]

        def check(_answer):
            for key in values:
                self.known.values[key] = self.known.perhaps_values.pop(key)

        return Call("Pipe", KV + "Pipe", messages, check)

    def chunks(self, content, wrap):
        at = 0
        while at < len(content):
            size = int(2 ** self.draw.uniform(0, 20))
            data = content[at : at + size]
            at += size
            sums = (
                {"crc32c": crc32c(data)} if len(data) < 20_000 and self.draw.random() < 0.5 else {}
            )
            if self.draw.random() < 0.8:
                yield wrap(pb.UploadRequest(chunk=pb.UploadChunk(data=data, **sums)))
            else:
                # Field 8 behind it, which nobody knows.
                yield wrap(
                    pb.UploadRequest(chunk=pb.UploadChunk(data=data, **sums)).SerializeToString()
                    + b"\x42\x05later"
                )

    def uploading(self, name, content, wrap, offset=0, **fields):
        first = begin(name, offset=offset, **fields)
        messages = [wrap(first), *self.chunks(content[offset:], wrap), wrap(end())]
        self.known.perhaps_blobs[name] = content

        def check(answer):
            assert pb.UploadResponse.FromString(answer[5:]).blob.size_bytes == len(content)
            self.known.blobs[name] = self.known.perhaps_blobs.pop(name)
            self.known.uploads.pop(name, None)

        return Call("Upload", BLOB + "Upload", messages, check)

    def upload(self, wrap):
        name, content = f"{self.tag}/{self.number}", self.some(3 * MIB)
        if self.draw.random() < 0.5:
            return self.uploading(name, content, wrap)
        self.known.uploads[name] = content
        return self.uploading(name, content, wrap, upload_id=name.encode())

    def resume(self, wrap):
        """One that was abandoned, in an earlier round or on this connection."""
        names = [name for name in self.known.uploads if not name.startswith(self.tag)]
        if not names:
            return self.upload(wrap)
        name = self.draw.choice(names)
        content = self.known.uploads.pop(name)
        with open_channel(self.address) as channel:
            stat = stub(channel).Stat(pb.StatRequest(name=name, upload_id=name.encode()))
        assert stat.stored_bytes <= len(content)
        return self.uploading(
            name, content, wrap, offset=stat.stored_bytes, upload_id=name.encode()
        )

    # How it is sent

    def run(self, is_cut):
        running, left = [], CALLS
        while running or left:
            if is_cut and left < CALLS // 3:
                return
            if left and len(running) < AT_ONCE and self.draw.random() < 0.3:
                call = self.new_call()
                call.stream, head = self.connection.request(call.path, *call.fields)
                self.connection.send(head)
                running.append(call)
                left -= 1
            able = [
                call
                for call in running
                if self.connection.room(call.stream) > 0 or call.at == len(call.data)
            ]
            if not able:
                if running:
                    assert self.connection.read(30), (
                        f"the windows stay shut: {[call.kind for call in running]}"
                    )
                continue
            call = self.draw.choice(able)
            if self.send_some(call):
                running.remove(call)
            if self.draw.random() < 0.1:
                self.connection.read(0)
        self.connection.read(0.2)

    def send_some(self, call):
        """Sends a frame of it; whether that was the last one and its answer is there."""
        size = int(2 ** self.draw.uniform(0, 14))
        stop = call.abandoned[0] if call.abandoned else len(call.data)
        part = call.data[
            call.at : min(call.at + size, stop, call.at + self.connection.room(call.stream))
        ]
        call.at += len(part)
        self.connection.spend(call.stream, len(part))
        is_over = call.at == stop
        is_ended = is_over and not (call.abandoned and call.abandoned[1])
        self.connection.send(frame(DATA, END_STREAM if is_ended else 0, call.stream, part))
        if is_over and call.abandoned:
            if call.abandoned[1]:
                self.connection.send(frame(RST_STREAM, 0, call.stream, CANCEL))
        elif is_over:
            answer = self.connection.wait(call.stream, 60)
            assert answer.grpc_status == 0, (
                f"{call.kind} on stream {call.stream}: {answer.grpc_status} {answer.grpc_message}"
            )
            call.check(answer.body)
        return is_over


def check(known, address):
    """Everything is as it was acknowledged; what was not is there as a whole, or not at all."""
    with open_channel(address) as channel:
        keyvalue, blob = kv_pb2_grpc.KeyValueStub(channel), stub(channel)
        for key, value in known.values.items():
            found = keyvalue.Get(kv_pb2.GetRequest(key=key), timeout=30)
            assert found.found and found.value == value, key
        for key, value in known.perhaps_values.items():
            found = keyvalue.Get(kv_pb2.GetRequest(key=key), timeout=30)
            assert not found.found or found.value == value, key
        for name, content in known.blobs.items():
            answers = blob.Download(pb.DownloadRequest(name=name), timeout=60)
            assert b"".join(answer.data for answer in answers) == content, name
        for name, content in known.perhaps_blobs.items():
            stat = blob.Stat(pb.StatRequest(name=name))
            assert not stat.found or stat.blob.size_bytes == len(content), name


@pytest.mark.parametrize("durability", ["written", "synced"])
def test_calls_of_all_methods_interleaved_on_one_connection(binary, tmp_path, durability):
    print(f"PELTON_SEED={SEED}")
    draw = random.Random(f"{SEED} {durability}")
    known = Known()
    place = [
        "--data",
        str(tmp_path / "data"),
        "--durability",
        durability,
        "--metrics-listen",
        "127.0.0.1:0",
    ]
    with Server(binary, *place) as server:
        for round in range(ROUNDS):
            mixer = Mixer(draw, server.address, known, f"{round}")
            mixer.run(is_cut=draw.random() < 0.4)
            mixer.connection.socket.close()
            # What a closed connection had sent is done, or given up.
            wait_until(
                lambda: metrics_page.counter(server, "pelton_running_calls") == 0,
                message="calls stay",
            )
            check(known, server.address)
        wait_until(
            lambda: metrics_page.counter(server, "pelton_buffered_bytes") == 0,
            message="something stays in the account",
        )
        wait_until(
            lambda: metrics_page.counter(server, "pelton_connections") == 0,
            message="connections stay",
        )
        metrics_page.wait_until_calls_add_up(server)
        # Those that nobody went on with can still be completed.
        with open_channel(server.address) as channel:
            for name, content in known.uploads.items():
                stat = stub(channel).Stat(pb.StatRequest(name=name, upload_id=name.encode()))
                upload(
                    stub(channel), name, content, upload_id=name.encode(), offset=stat.stored_bytes
                )
                known.blobs[name] = content
                known.perhaps_blobs.pop(name, None)
        check(known, server.address)
        assert server.stop() == 0, server.log()
