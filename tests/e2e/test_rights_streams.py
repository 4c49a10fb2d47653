"""Open streams, of every method that has one, when their token is revoked, rotated or expires."""

import time

import pytest
from blob_client import upload
from metrics_page import families, wait_until_calls_add_up
from pelton.v1 import admin_pb2, admin_pb2_grpc, blob_pb2_grpc, echo_pb2, kv_pb2, kv_pb2_grpc
from pelton.v1 import blob_pb2 as blob
from raw import SETTINGS, frame, settings_payload
from rights import (
    PIPE,
    READS,
    REQUESTS,
    UNAUTHENTICATED,
    UNSERVED,
    Caller,
    check_complete,
    code_of,
    needs,
    reflected,
)
from server import Server, open_channel, wait_until

# How many entries and blobs there are, and how large: more than a server keeps for a client that
# does not read.
ENTRIES, ENTRY_BYTES = 100, 200_000
BLOB, BLOB_BYTES = "large", 20_000_000
LISTED, LISTED_NAME_BYTES = 400, 1_000
# A second, and a busy machine: without an end they would wait for ever.
SECONDS = 20
WIDE = {"initial_window_size": 2_000_000}
# Until this token expires, all streams must be open.
EXPIRES_MS = 3_000


class Large:
    """A message of the interop tests, as bytes: many large responses."""

    @staticmethod
    def SerializeToString():
        # response_parameters { size: 200 000 }, a hundred times.
        return b"\x12\x04\x08\xc0\x9a\x0c" * 100


def nothing(_):
    return None


# The first message of a stream that does not end by itself, with a client that reads nothing.
REQUEST_STREAMS = {
    PIPE: lambda _: kv_pb2.PipeRequest(operations=[READS]),
    "pelton.v1.Blob/Upload": lambda _: blob.UploadRequest(
        begin=blob.UploadBegin(name="uploaded", upload_id=b"one")
    ),
    "pelton.v1.Echo/Stream": lambda _: echo_pb2.EchoRequest(delay_ms=1),
    "messaging.GuploadService/Upload": REQUESTS["messaging.GuploadService/Upload"],
    "grpc.reflection.v1.ServerReflection/ServerReflectionInfo": nothing,
    "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": nothing,
    "grpc.testing.TestService/StreamingInputCall": nothing,
    "grpc.testing.TestService/FullDuplexCall": nothing,
    "grpc.testing.TestService/HalfDuplexCall": nothing,
    "Ydb.Debug.V1.DebugService/PingStream": nothing,
    "tkrzw_rpc.DBMService/Stream": REQUESTS["tkrzw_rpc.DBMService/Stream"]["read"],
    "tkrzw_rpc.DBMService/Iterate": REQUESTS["tkrzw_rpc.DBMService/Iterate"]["read"],
    "tkrzw.DBMService/Stream": REQUESTS["tkrzw.DBMService/Stream"]["read"],
    "tkrzw.DBMService/Iterate": REQUESTS["tkrzw.DBMService/Iterate"]["read"],
}
RESPONSE_STREAMS = {
    "pelton.v1.KeyValue/Scan": lambda _: kv_pb2.ScanRequest(),
    "pelton.v1.KeyValue/Watch": lambda _: kv_pb2.WatchRequest(),
    "pelton.v1.Blob/Download": lambda _: blob.DownloadRequest(name=BLOB),
    "pelton.v1.Blob/List": lambda _: blob.ListRequest(),
    "grpc.health.v1.Health/Watch": nothing,
    "grpc.testing.TestService/StreamingOutputCall": lambda _: Large,
}
# They last as long as their work, which a test cannot hold up. The end of calls of any method is in
# crates/server/src/tests/identities.rs.
BRIEF = {"pelton.v1.Admin/ConvertDatabase", "pelton.v1.Admin/Backup"}
# They are refused: the first ones by a server that keeps nothing, or for want of a history.
REPLICATION = ("Copy", "Follow", "Acknowledge", "ReadContent")
BRIEF |= {f"pelton.v1.Replication/{name}" for name in REPLICATION}
BRIEF |= {"tkrzw_rpc.DBMService/Replicate", "tkrzw.DBMService/Replicate"}
# Plain requests that are open: an upload and a download.
PLAIN_STREAMS = {
    "http.Blob/PUT": (("PUT", "/blob/uploaded-too"), False),
    "http.Blob/GET": (("GET", f"/blob/{BLOB}"), True),
    "http.Gupload/upload": (("POST", "/upload"), False),
}
# Calls that have ended, and whose answers wait: more than goes out at once.
ANSWERED = {
    "pelton.v1.KeyValue/Get": lambda _: kv_pb2.GetRequest(key=b"00000"),
    "pelton.v1.KeyValue/Batch": lambda _: kv_pb2.BatchRequest(
        operations=[kv_pb2.Operation(get=kv_pb2.Operation.Get(key=b"00001"))] * 5
    ),
}
# They have no body, in one direction or in both, that could last.
PLAIN_BRIEF = {"http.Blob/HEAD", "http.Blob/DELETE"}


@pytest.fixture(scope="module")
def running(binary, tmp_path_factory):
    folder = tmp_path_factory.mktemp("streams")
    flags = ["--interop", "--threads", "2", "--data", str(folder / "data")]
    flags += ["--metrics-listen", "127.0.0.1:0"]
    listen = ["127.0.0.1:0", "127.0.0.1:0+anonymous=none"]
    with Server(binary, *flags, listen=listen) as server:
        with open_channel(server.address) as channel:
            fill(channel)
            server.kinds = reflected(channel)
        check_complete(server.kinds, needs())
        yield server
        assert server.process.poll() is None, server.log()


def fill(channel):
    kv, blobs = kv_pb2_grpc.KeyValueStub(channel), blob_pb2_grpc.BlobStub(channel)
    for number in range(ENTRIES):
        kv.Put(kv_pb2.PutRequest(key=b"%05d" % number, value=bytes(ENTRY_BYTES)))
    upload(blobs, BLOB, bytes(BLOB_BYTES))
    for number in range(LISTED):
        upload(blobs, f"{number:0{LISTED_NAME_BYTES}}", b"")


def streams(kinds):
    """Each stream that can be held open: its row, its request, and whether that is all."""
    table = needs()
    for path, (takes_stream, returns_stream) in kinds.items():
        if not (takes_stream or returns_stream) or path in UNSERVED | BRIEF:
            continue
        known = REQUEST_STREAMS if takes_stream else RESPONSE_STREAMS
        assert path in known, f"{path}: say how a stream of it is held open"
        yield table[path], known[path], not takes_stream
    plain = {path for path in table if table[path].is_plain}
    assert plain == PLAIN_STREAMS.keys() | PLAIN_BRIEF
    for path, (request, ends) in PLAIN_STREAMS.items():
        yield table[path], request, ends


class Streams:
    """A stream of every kind, on a connection that lets the server send no content."""

    def __init__(self, server, token):
        window = settings_payload(initial_window_size=0)
        self.caller = Caller(server.addresses[1], f"Bearer {token}", settings=window)
        self.open = {
            self.caller.begin(need, request, "", ends): need
            for need, request, ends in streams(server.kinds)
        }
        wait_until(lambda: running_calls(server) >= len(self.open), message="not all have begun")
        table = needs()
        for path, request in ANSWERED.items():
            stream = self.caller.begin(table[path], request, "")
            self.open[stream] = table[path]
            while not self.answer(stream).headers:
                assert self.caller.connection.read(SECONDS), path

    def read_ends(self):
        """All streams end although the client takes no content: what waits for it is dropped."""
        for stream, need in self.open.items():
            answer = self.caller.connection.wait(stream, SECONDS)
            # A plain response whose head is sent can only be cut.
            is_cut = need.is_plain and answer.resets
            code = code_of(need, answer) if need.is_plain else answer.grpc_status
            assert is_cut or code == UNAUTHENTICATED, (need.path, code)
            assert not answer.body, (need.path, len(answer.body))
        # Nothing comes behind the end either, when the client takes content again.
        self.caller.connection.send(frame(SETTINGS, payload=settings_payload(**WIDE)))
        while self.caller.connection.read(0.2):
            pass
        assert not any(self.answer(stream).body for stream in self.open)

    def assert_all_open(self):
        while self.caller.connection.read(0.05):
            pass
        ended = [need.path for stream, need in self.open.items() if self.answer(stream).over]
        assert ended == []

    def answer(self, stream):
        return self.caller.connection.answers[stream]


def running_calls(server):
    """Calls that run."""
    page = families(server)
    samples = [sample for family in page for sample in family.samples]
    return sum(one.value for one in samples if one.name == "pelton_running_calls")


def seconds_until(condition):
    begin = time.monotonic()
    wait_until(condition, SECONDS, "calls go on")
    return time.monotonic() - begin


@pytest.mark.parametrize("how", ["revoke", "rotate", "expire"])
def test_every_open_stream_ends_with_its_token(running, how):
    with open_channel(running.address) as channel:
        admin = admin_pb2_grpc.AdminStub(channel)
        for turn in range(2):
            fields = {"expires_after_ms": EXPIRES_MS} if how == "expire" else {}
            name = f"{how}-{turn}"
            request = admin_pb2.CreateTokenRequest(name=name, rights=["admin"], **fields)
            made = admin.CreateToken(request)
            streams = Streams(running, made.token)
            streams.assert_all_open()
            if how == "revoke":
                admin.RevokeToken(admin_pb2.RevokeTokenRequest(name=name))
            elif how == "rotate":
                admin.RotateToken(admin_pb2.RotateTokenRequest(name=name))
            else:
                at_ms = made.description.expires_at_ms
                while time.time() * 1000 < at_ms:
                    streams.caller.connection.read(at_ms / 1000 - time.time())
            took = seconds_until(lambda: running_calls(running) == 0)
            print(f"{how}: {len(streams.open)} streams ended after {took * 1000:.0f} ms")
            streams.read_ends()
            streams.caller.connection.socket.close()
            wait_until_calls_add_up(running)
