"""`pelton load tkrzw`: against the server, and against one of another make."""

import collections
import contextlib
import json
import subprocess
import threading
from concurrent import futures

import grpc
import html_page
import pytest
from compat import tkrzw_rpc_pb2 as pb
from compat import tkrzw_rpc_pb2_grpc as pb_grpc
from environment import clean_environment
from server import Server, open_channel

SHORT = ["--duration", "300ms", "--warm-up", "0s"]
NO_RECORD = 7
NO_SPACE = 4


def load(binary, address, *words, codes=(0, 1), **variables):
    # A generator that shares its CPUs may be the limit, and then the run is void: code 1.
    done = subprocess.run(
        [binary, "load", "tkrzw", "--address", address, *map(str, words)],
        env=clean_environment() | variables,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode in codes, (words, done.returncode, done.stdout, done.stderr)
    return done


def figures(binary, address, *words, **more):
    keys = ["--keys", 1_000] if {"get", "set"} & set(words) else []
    words = [*SHORT, *keys, *words, "--output", "json"]
    found = json.loads(load(binary, address, *words, **more).stdout)
    assert (found["failures"], found["first_failure"]) == (0, None)
    assert found["succeeded"] > 0
    return found


class ForeignServer(pb_grpc.DBMServiceServicer):
    """The service on Python's gRPC: keeps what came, and has no record."""

    def __init__(self):
        self.lock = threading.Lock()
        self.calls = collections.Counter()
        self.keys = collections.Counter()
        self.unanswered = 0
        self.answers_all = False
        self.refuses = False

    def note(self, method, keys=()):
        with self.lock:
            self.calls[method] += 1
            self.keys.update(keys)

    def Echo(self, request, context):
        self.note("Echo")
        return pb.EchoResponse(echo=request.message)

    def Get(self, request, context):
        self.note("Get", [request.key])
        return pb.GetResponse(status=pb.StatusProto(code=NO_RECORD))

    def set_response(self):
        code = NO_SPACE if self.refuses else 0
        return pb.SetResponse(status=pb.StatusProto(code=code, message="no space left"))

    def Set(self, request, context):
        assert request.overwrite
        self.note("Set", [request.key])
        return self.set_response()

    def SetMulti(self, request, context):
        self.note("SetMulti", [record.first for record in request.records])
        return pb.SetMultiResponse()

    def GetMulti(self, request, context):
        self.note("GetMulti", request.keys)
        return pb.GetMultiResponse(status=pb.StatusProto(code=NO_RECORD))

    def Stream(self, requests, context):
        self.note("Stream")
        for request in requests:
            with self.lock:
                self.keys[request.set_request.key] += 1
                self.unanswered += request.omit_response
            if not request.omit_response or self.answers_all:
                yield pb.StreamResponse(set_response=self.set_response())


@contextlib.contextmanager
def serving():
    service = ForeignServer()
    server = grpc.server(futures.ThreadPoolExecutor(8))
    pb_grpc.add_DBMServiceServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield service, f"127.0.0.1:{port}"
    finally:
        server.stop(0).wait()


@pytest.mark.parametrize("operation", ["echo", "get", "set"])
def test_each_operation_is_called_by_itself(binary, operation):
    with serving() as (service, address):
        found = figures(binary, address, "--operation", operation)
        method = operation.capitalize()
        assert list(service.calls) == [method]
        assert service.calls[method] >= found["succeeded"]
        assert found["misses"] == (found["succeeded"] if operation == "get" else 0)
        assert all(len(key) == 8 and key.isdigit() for key in service.keys)


def test_several_records_go_in_a_call(binary):
    with serving() as (service, address):
        found = figures(binary, address, "--operation", "set", "--records", 10)
        assert sum(service.keys.values()) == 10 * service.calls["SetMulti"]
        assert found["records_per_s"] == pytest.approx(10 * found["calls_per_s"], rel=1e-3)
        figures(binary, address, "--operation", "get", "--records", 10, "--connections", 2)
        assert service.calls["GetMulti"] > 0
        keys = sorted(service.keys)
        assert (keys[0], keys[-1]) >= (b"00000000", b"00000000") and int(keys[-1]) < 1000


def test_messages_of_a_stream_are_calls(binary):
    words = ["--operation", "set", "--stream", "--in-flight", 4, "--connections", 2]
    with serving() as (service, address):
        found = figures(binary, address, *words)
        assert (service.calls["Stream"], service.unanswered) == (2, 0)
        assert sum(service.keys.values()) >= found["succeeded"]


def test_a_stream_without_responses_ends_when_all_is_done(binary):
    words = ["--operation", "set", "--stream", "--omit-responses", "--messages", 50]
    with serving() as (service, address):
        found = figures(binary, address, *words)
        assert service.unanswered == sum(service.keys.values())
        assert service.unanswered >= 50 * found["succeeded"]
        assert found["messages_received"] == 0
        assert found["messages_sent"] >= 50 * found["succeeded"]
        assert found["records_per_s"] == pytest.approx(50 * found["calls_per_s"], rel=1e-3)
        service.answers_all = True
        done = load(binary, address, *SHORT, *words, codes=(3,))
        assert "no call to" in done.stderr and "failed" in done.stdout
        assert "--messages" not in done.stderr


@pytest.mark.parametrize("more", [[], ["--stream"]])
def test_what_was_refused_is_told_in_the_words_of_the_server(binary, more):
    with serving() as (service, address):
        service.refuses = True
        words = [*SHORT, "--operation", "set", *more]
        done = load(binary, address, *words, codes=(3,))
        assert "status 4 of Tkrzw: no space left" in done.stdout
        assert "without effect" in done.stdout


def test_streams_without_responses_say_what_is_not_seen(binary):
    words = ["--operation", "set", "--stream", "--omit-responses"]
    with serving() as (service, address):
        service.refuses = True
        done = load(binary, address, *SHORT, *words, "--messages", 50)
        assert "those that were refused are not seen" in done.stdout
        done = load(binary, address, *SHORT, *words, "--messages", 1 << 40, codes=(3,))
        assert "fewer --messages end a stream earlier" in done.stderr


def test_records_are_those_of_the_server(binary, tmp_path):
    page = tmp_path / "page.html"
    command = ["tkrzw-server", "--address", "127.0.0.1:0", "--async", "#dbm=tree", "#dbm=hash"]
    with Server(binary, command=command) as server, open_channel(server.address) as channel:
        stub = pb_grpc.DBMServiceStub(channel)

        def count(index):
            return stub.Count(pb.CountRequest(dbm_index=index)).count

        words = ["--operation", "get", "--fill", "--in-flight", 16]
        words += ["--index", 1, "--value-size", 20]
        found = figures(binary, server.address, *words, "--html", page)
        assert (count(0), count(1), found["misses"]) == (0, 1000, 0)
        got = stub.Get(pb.GetRequest(dbm_index=1, key=b"00000999"))
        assert got.value == b"v" * 20
        drawn = html_page.check(page.read_text())
        assert drawn.count["svg"] >= 4
        for more in ([], ["--records", 10], ["--stream"], ["--stream", "--omit-responses"]):
            found = figures(binary, server.address, "--operation", "set", *more)
            assert found["machine"]["cpus_allowed"] > 0
            stub.Clear(pb.ClearRequest(dbm_index=0))
        figures(binary, server.address, "--stream", "--in-flight", 8)
        assert (count(0), count(1)) == (0, 1000)


@pytest.mark.parametrize(
    "words, text",
    [
        (["--records", "2"], "--records goes only with --operation get and set"),
        (["--fill"], "--fill goes only with --operation get and set"),
        (["--index", "1"], "--index goes only with --operation get and set"),
        (["--keys", "5"], "--keys goes only with --operation get and set"),
        (["--key-size", "5"], "--key-size goes only with --operation get and set"),
        (["--distribution", "zipf"], "--distribution goes only with --operation get and set"),
        (
            ["--operation", "set", "--records", "1000", "--value-size", "16MiB"],
            "do not fit into a message of gRPC",
        ),
        (["--operation", "set", "--keys", "101", "--key-size", "2"], "do not fit into 2 digits"),
        (["--omit-responses"], "--stream"),
        (["--messages", "5"], "--omit-responses"),
        (["--stream", "--records", "2"], "cannot be used with"),
        (["--threads", "2"], "--threads 2 is more than --connections 1"),
        (["--duration", "0s"], "--duration 0 measures nothing"),
        (["--records", "0"], "--records"),
    ],
)
def test_what_cannot_be_is_said_before_any_load(binary, words, text):
    done = load(binary, "127.0.0.1:1", *words, codes=(2,))
    assert text in done.stderr and done.stdout == ""


def test_the_token_of_the_environment_is_not_sent(binary):
    with serving() as (_, address):
        done = load(binary, address, *SHORT, PELTON_TOKEN="plt_secret")
    assert "is not sent with load tkrzw" in done.stderr
