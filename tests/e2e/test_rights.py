"""Who may do what: every method, found by reflection, for callers with different rights."""

import os
import shutil
import subprocess

import grpc
import pytest
from google.protobuf import descriptor_pb2
from grpc_reflection.v1alpha import reflection_pb2
from metrics_page import counter
from pelton.v1 import admin_pb2, admin_pb2_grpc, kv_pb2, kv_pb2_grpc
from server import Server, expect_status, open_channel

DENIED = grpc.StatusCode.PERMISSION_DENIED
UNKNOWN = grpc.StatusCode.UNAUTHENTICATED
SECONDS = 30

# The right that each method needs for an empty request; `any`: some right, `open`: none.
# A method that is served and not here fails the test.
NEEDS = {
    "pelton.v1.KeyValue/Get": "read",
    "pelton.v1.KeyValue/Put": "write",
    "pelton.v1.KeyValue/Delete": "write",
    "pelton.v1.KeyValue/Append": "write",
    "pelton.v1.KeyValue/Increment": "write",
    # They read, as their operations do, of which an empty request has none.
    "pelton.v1.KeyValue/Batch": "read",
    "pelton.v1.KeyValue/Transact": "read",
    "pelton.v1.KeyValue/Pipe": "read",
    "pelton.v1.KeyValue/Scan": "read",
    "pelton.v1.KeyValue/Count": "read",
    # Not served yet: looked at all the same, and has no request to look at.
    "pelton.v1.KeyValue/Watch": "read anywhere",
    "pelton.v1.Blob/Upload": "write",
    "pelton.v1.Blob/Download": "read",
    "pelton.v1.Blob/Stat": "read",
    "pelton.v1.Blob/List": "read",
    "pelton.v1.Blob/Delete": "write",
    "pelton.v1.Blob/ListUploads": "read",
    "pelton.v1.Blob/DiscardUploads": "write",
    "pelton.v1.Admin/CreateDatabase": "admin",
    "pelton.v1.Admin/ListDatabases": "read anywhere",
    "pelton.v1.Admin/DropDatabase": "admin",
    "pelton.v1.Admin/ConvertDatabase": "admin",
    "pelton.v1.Admin/Statistics": "read server",
    "pelton.v1.Admin/Backup": "admin server",
    "pelton.v1.Admin/Snapshot": "admin server",
    "pelton.v1.Admin/CreateToken": "admin server",
    "pelton.v1.Admin/ListTokens": "admin server",
    "pelton.v1.Admin/RevokeToken": "admin server",
    "pelton.v1.Admin/RotateToken": "admin server",
    "pelton.v1.Admin/SetRole": "admin server",
    "pelton.v1.Admin/ListRoles": "admin server",
    "pelton.v1.Admin/DropRole": "admin server",
    "pelton.v1.Echo/Unary": "any",
    "pelton.v1.Echo/Stream": "any",
    "io.grpc.KeyValueService/Create": "write kvstore",
    "io.grpc.KeyValueService/Retrieve": "read kvstore",
    "io.grpc.KeyValueService/Update": "write kvstore",
    "io.grpc.KeyValueService/Delete": "write kvstore",
    "messaging.GuploadService/Upload": "write gupload",
    "Ydb.Debug.V1.DebugService/PingPlainGrpc": "any ydb-ping",
    "Ydb.Debug.V1.DebugService/PingStream": "any ydb-ping",
}
# Whole services.
SERVICES = {
    "grpc.health.v1.Health": "open",
    "grpc.reflection.v1.ServerReflection": "open",
    "grpc.reflection.v1alpha.ServerReflection": "open",
    "grpc.testing.TestService": "any",
}
# Declared for tests of clients, and never served.
UNSERVED = {"grpc.testing.TestService/UnimplementedCall"}
# Where an empty request is refused for what it is before anybody asks for its database.
REQUESTS = {
    # begin { name: "x" }
    "pelton.v1.Blob/Upload": b"\x0a\x03\x12\x01x",
    # kind: DISK
    "pelton.v1.Admin/ConvertDatabase": b"\x10\x02",
}

# What callers without a token may do, each at an address of its own.
RIGHTS = [
    "none",
    "read",
    "write",
    "admin",
    "read:default",
    "write:default",
    "admin:default",
    "admin:other",
    "write:default/images/",
    "service:kvstore",
    "service:gupload",
    "service:ydb-ping",
]
LEVELS = ["read", "write", "admin"]
WRONG = [
    "",
    "Bearer",
    "Bearer pelton_",
    "Bearer pelton_" + "A" * 43,
    "bearer pelton_" + "A" * 42 + "B",
    "Basic dXNlcjpwYXNz",
    "Bearer " + "x" * 4000,
]


@pytest.fixture(scope="module")
def running(binary):
    listen = [f"127.0.0.1:0+anonymous={rights}" for rights in RIGHTS]
    with Server(binary, "--interop", "--threads", "2", listen=listen) as server:
        yield server
        assert server.process.poll() is None, server.log()


def address(running, rights):
    return running.addresses[RIGHTS.index(rights)]


def methods(channel):
    """Every method of every service, by its path: is the request a stream, is the response?"""
    ask = channel.stream_stream(
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
        response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
    )

    def answer(**question):
        questions = iter([reflection_pb2.ServerReflectionRequest(**question)])
        [response] = ask(questions, timeout=SECONDS)
        return response

    found = {}
    for service in answer(list_services="").list_services_response.service:
        response = answer(file_containing_symbol=service.name)
        for data in response.file_descriptor_response.file_descriptor_proto:
            file = descriptor_pb2.FileDescriptorProto.FromString(data)
            for one in file.service:
                if f"{file.package}.{one.name}" != service.name:
                    continue
                for method in one.method:
                    kind = (method.client_streaming, method.server_streaming)
                    found[f"{service.name}/{method.name}"] = kind
    return found


def code_of(channel, path, kind, metadata=()):
    """How a call with an empty request ends; `OK` too if it goes on."""
    request = REQUESTS.get(path, b"")
    takes_stream, returns_stream = kind
    make = {
        (False, False): channel.unary_unary,
        (False, True): channel.unary_stream,
        (True, False): channel.stream_unary,
        (True, True): channel.stream_stream,
    }[(takes_stream, returns_stream)]
    given = iter([request]) if takes_stream else request
    try:
        call = make(f"/{path}")(given, timeout=SECONDS, metadata=metadata)
        if returns_stream:
            next(call, None)
            call.cancel()
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def need_of(path):
    service = path.split("/")[0]
    return SERVICES.get(service) or NEEDS[path]


def is_allowed(rights, need):
    """Whether somebody with a right may do what needs one, of the default database."""
    level, _, where = need.partition(" ")
    kind, _, place = rights.partition(":")
    if level == "open":
        return True
    if kind in ("none", "service"):
        return place != "" and place == where
    if level == "any":
        return True
    if LEVELS.index(kind) < LEVELS.index(level):
        return False
    if where == "server":
        return place == ""
    return where == "anywhere" or place in ("", "default")


@pytest.mark.parametrize("rights", RIGHTS)
def test_every_method_is_for_those_who_have_its_right(running, rights):
    with open_channel(address(running, rights)) as channel:
        found = methods(channel)
        assert set(NEEDS) <= set(found), "a method is gone"
        for path, kind in found.items():
            if path in UNSERVED:
                continue
            code = code_of(channel, path, kind)
            refused = UNKNOWN if rights == "none" else DENIED
            if is_allowed(rights, need_of(path)):
                assert code not in (DENIED, UNKNOWN), (path, code)
            else:
                assert code == refused, (path, code)


@pytest.mark.parametrize("rights", ["none", "admin"])
def test_a_header_that_is_no_token_is_never_passed_over(running, rights):
    with open_channel(address(running, rights)) as channel:
        for path, kind in methods(channel).items():
            if path in UNSERVED:
                continue
            # Of one connection, some are refused at once, and the others slowed.
            with open_channel(address(running, rights)) as other:
                for value in WRONG[:1] + WRONG[4:5]:
                    code = code_of(other, path, kind, [("authorization", value)])
                    assert code == UNKNOWN, (path, value, code)
        get = ("pelton.v1.KeyValue/Get", (False, False))
        for value in WRONG:
            assert code_of(channel, *get, [("authorization", value)]) == UNKNOWN, value
        twice = [("authorization", "Bearer a"), ("authorization", "Bearer b")]
        assert code_of(channel, *get, twice) == UNKNOWN


def test_a_refusal_does_not_tell_what_there_is(running):
    with open_channel(address(running, "admin")) as channel:
        admin = admin_pb2_grpc.AdminStub(channel)
        for name in ("other", "there"):
            durability = admin_pb2.DURABILITY_MODE_VOLATILE
            described = admin_pb2.DatabaseDescription(name=name, durability=durability)
            admin.CreateDatabase(admin_pb2.CreateDatabaseRequest(database=described))
        kv_pb2_grpc.KeyValueStub(channel).Put(
            kv_pb2.PutRequest(database="there", key=b"k", value=b"v")
        )
    with open_channel(address(running, "admin:other")) as channel:
        kv = kv_pb2_grpc.KeyValueStub(channel)
        admin = admin_pb2_grpc.AdminStub(channel)
        told = set()
        for name, key in (("there", b"k"), ("there", b"none"), ("gone!", b"k")):
            for call in (
                lambda: kv.Get(kv_pb2.GetRequest(database=name, key=key)),  # noqa: B023
                lambda: admin.DropDatabase(admin_pb2.DropDatabaseRequest(name=name)),  # noqa: B023
            ):
                with pytest.raises(grpc.RpcError) as error:
                    call()
                assert error.value.code() == DENIED
                told.add(error.value.details().replace(name, "NAME"))
        assert len(told) == 2, told
        # What it may read, and nothing else.
        listed = admin.ListDatabases(admin_pb2.ListDatabasesRequest())
        assert [one.database.name for one in listed.databases] == ["other"]


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl")
def test_plain_requests_get_the_statuses_of_http(running):
    def status(rights, *words):
        run = ["curl", "-sS", "--http2-prior-knowledge", "--noproxy", "*"]
        run += ["-o", "/dev/null", "-D", "-"]
        url = f"http://{address(running, rights)}/blob/images/a"
        done = subprocess.run([*run, *words, url], capture_output=True, timeout=60, text=True)
        assert done.returncode == 0, done.stderr
        head = done.stdout.lower()
        return int(head.split()[1]), "www-authenticate: bearer" in head

    put = ["-X", "PUT", "--data", "x"]
    for _ in range(2):
        assert status("none") == (401, True)
        assert status("none", *put) == (401, True)
        assert status("read", *put) == (403, False)
        assert status("service:gupload") == (403, False)
        assert status("admin", "-H", "authorization: Bearer x") == (401, True)
        # There is no data folder, and so no blobs: they were asked for.
        for rights in ("read", "write:default/images/"):
            assert status(rights)[0] == 409, rights
        assert status("write:default/images/", *put)[0] == 409


def test_listeners_of_the_network_want_a_word(binary):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PELTON_")}
    for _ in range(2):
        done = subprocess.run(
            [binary, "serve", "--durability", "volatile", "--listen", "0.0.0.0:0"],
            capture_output=True,
            timeout=60,
            text=True,
            env=environment,
        )
        assert done.returncode != 0
        assert "--init-admin" in done.stderr and "0.0.0.0:0+anonymous=" in done.stderr, done.stderr
    with Server(binary, listen=["0.0.0.0:0+anonymous=read:default,service:kvstore"]) as server:
        port = server.address.rsplit(":", 1)[1]
        with open_channel(f"127.0.0.1:{port}") as channel:
            kv = kv_pb2_grpc.KeyValueStub(channel)
            kv.Get(kv_pb2.GetRequest(key=b"k"))
            expect_status(DENIED, lambda: kv.Put(kv_pb2.PutRequest(key=b"k")))
        server.wait_for_log("`read:default` there, without a token", "drop-in service kvstore")


def test_refused_calls_are_counted(binary):
    flags = ["--metrics-listen", "127.0.0.1:0"]
    with Server(binary, *flags, listen=["127.0.0.1:0+anonymous=read"]) as server:
        with open_channel(server.address) as channel:
            kv = kv_pb2_grpc.KeyValueStub(channel)
            for count in (1, 2):
                expect_status(DENIED, lambda: kv.Put(kv_pb2.PutRequest(key=b"k")))
                wrong = [("authorization", WRONG[4])]
                expect_status(UNKNOWN, lambda: kv.Get(kv_pb2.GetRequest(), metadata=wrong))
                for reason in ("permission_denied", "token_wrong"):
                    name = f'pelton_refused_calls_total{{reason="{reason}"}}'
                    assert counter(server, name) == count, reason
