"""Which right each method needs, as docs/method-rights.md has it from the server's own table; a
request for each; and the one rule by which a caller may call it.

A method that is served and has no request here makes the tests fail that use this.
"""

import dataclasses
import itertools
import re

import grpc
import pages
from compat import brpc_echo_pb2, gupload_pb2
from compat import tkrzw_pb2, tkrzw_rpc_pb2
from google.protobuf import descriptor_pb2
from grpc_reflection.v1alpha import reflection_pb2
from pelton.v1 import admin_pb2 as admin
from pelton.v1 import blob_pb2 as blob
from pelton.v1 import kv_pb2 as kv
from raw import END_STREAM, MAX_WINDOW, RST_STREAM, WINDOW_UPDATE, Connection, frame, grpc_message

OK = grpc.StatusCode.OK.value[0]
NOT_FOUND = grpc.StatusCode.NOT_FOUND.value[0]
DENIED = grpc.StatusCode.PERMISSION_DENIED.value[0]
UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED.value[0]
UNIMPLEMENTED = grpc.StatusCode.UNIMPLEMENTED.value[0]
CANCEL = (8).to_bytes(4)

LEVELS = ["read", "write", "admin"]
REQUESTED = "the database of the request"
# Declared for tests of clients, and never served.
UNSERVED = {"grpc.testing.TestService/UnimplementedCall"}
PIPE = "pelton.v1.KeyValue/Pipe"
PLAIN = "http."

# Wrong values of the header `authorization`, by what is wrong with them.
MALFORMED = {
    "nothing": "",
    "a scheme alone": "Bearer",
    "another scheme": "Basic dXNlcjpwYXNz",
    "the prefix alone": "Bearer pelton_",
    "too short": "Bearer pelton_" + "A" * 42,
    "bits left over": "Bearer pelton_" + "A" * 42 + "B",
    "another alphabet": "Bearer pelton_" + "A" * 42 + "+",
    "too long": "Bearer " + "x" * 4000,
}
WRONG = "Bearer pelton_" + "A" * 43


@dataclasses.dataclass(frozen=True)
class Need:
    """What a method needs, from its row."""

    path: str
    rights: tuple[str, ...]
    place: str
    drop_in: str

    @property
    def is_plain(self):
        return self.path.startswith(PLAIN)

    @property
    def names_database(self):
        return self.place == REQUESTED


def needs():
    """All rows, by the path of the method."""
    text = (pages.DOCS / "method-rights.md").read_text()
    found = {}
    for row in re.findall(r"^\| (`.*) \|$", text, re.MULTILINE):
        path, right, place, granted = (cell.strip() for cell in row.split("|"))
        rights = tuple(word.strip("`") for word in right.split(" or "))
        path, granted = path.strip("`"), granted.strip("`").removeprefix("service:")
        found[path] = Need(path, rights, place, granted)
    assert len(found) > 50, found
    return found


def reflected(channel):
    """Every method of every service, by its path: is the request a stream, is the response?"""
    ask = channel.stream_stream(
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
        response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
    )

    def answer(**question):
        questions = iter([reflection_pb2.ServerReflectionRequest(**question)])
        [response] = ask(questions, timeout=30)
        return response

    found = {}
    for service in answer(list_services="").list_services_response.service:
        response = answer(file_containing_symbol=service.name)
        for data in response.file_descriptor_response.file_descriptor_proto:
            file = descriptor_pb2.FileDescriptorProto.FromString(data)
            for one in file.service:
                if f"{file.package}.{one.name}".lstrip(".") != service.name:
                    continue
                for method in one.method:
                    kind = (method.client_streaming, method.server_streaming)
                    found[f"{service.name}/{method.name}"] = kind
    return found


# --- requests

KEY, BLOB = b"k", "images/a"
READS = kv.Operation(get=kv.Operation.Get(key=KEY))
WRITES = kv.Operation(increment=kv.Operation.Increment(key=b"n", delta=1))


def of_key(message, **fields):
    return lambda database: message(database=database, key=KEY, **fields)


def operations(message, field, operation):
    return lambda database: message(database=database, **{field: [operation]})


def reads_or_writes(message, field="operations"):
    return {
        "read": operations(message, field, READS),
        "write": operations(message, field, WRITES),
    }


def of_blob(message, **fields):
    return lambda database: message(database=database, name=BLOB, **fields)


def nothing(_):
    return None


def converted(database):
    kind = admin.DATABASE_KIND_MEMORY
    return admin.ConvertDatabaseRequest(name=database, kind=kind)


def created(database):
    volatile = admin.DURABILITY_MODE_VOLATILE
    described = admin.DatabaseDescription(name=database, durability=volatile)
    return admin.CreateDatabaseRequest(database=described)


# The request of a unary call, or the first one of a stream, for a database; by right where that
# depends on the request.
REQUESTS = {
    "pelton.v1.KeyValue/Get": of_key(kv.GetRequest),
    "pelton.v1.KeyValue/Put": of_key(kv.PutRequest, value=b"v"),
    "pelton.v1.KeyValue/Delete": of_key(kv.DeleteRequest),
    "pelton.v1.KeyValue/Append": of_key(kv.AppendRequest, value=b"v"),
    "pelton.v1.KeyValue/Increment": of_key(kv.IncrementRequest, delta=1),
    "pelton.v1.KeyValue/Batch": reads_or_writes(kv.BatchRequest),
    "pelton.v1.KeyValue/Transact": reads_or_writes(kv.TransactRequest, "when_met"),
    "pelton.v1.KeyValue/Pipe": reads_or_writes(kv.PipeRequest),
    "pelton.v1.KeyValue/Scan": lambda database: kv.ScanRequest(database=database, limit=1),
    "pelton.v1.KeyValue/Count": lambda database: kv.CountRequest(database=database),
    "pelton.v1.KeyValue/Watch": lambda database: kv.WatchRequest(database=database),
    "pelton.v1.Blob/Upload": lambda database: blob.UploadRequest(
        begin=blob.UploadBegin(database=database, name=BLOB)
    ),
    "pelton.v1.Blob/Download": of_blob(blob.DownloadRequest),
    "pelton.v1.Blob/Stat": of_blob(blob.StatRequest),
    "pelton.v1.Blob/List": lambda database: blob.ListRequest(database=database, prefix=BLOB),
    "pelton.v1.Blob/Delete": of_blob(blob.DeleteBlobRequest),
    "pelton.v1.Blob/ListUploads": lambda database: blob.ListUploadsRequest(database=database),
    "pelton.v1.Blob/DiscardUploads": of_blob(blob.DiscardUploadsRequest),
    "pelton.v1.Admin/CreateDatabase": created,
    "pelton.v1.Admin/ListDatabases": nothing,
    "pelton.v1.Admin/DropDatabase": lambda database: admin.DropDatabaseRequest(name=database),
    "pelton.v1.Admin/ConvertDatabase": converted,
    "pelton.v1.Admin/Statistics": nothing,
    "pelton.v1.Admin/Backup": nothing,
    "pelton.v1.Admin/Snapshot": nothing,
    "pelton.v1.Admin/CreateToken": nothing,
    "pelton.v1.Admin/ListTokens": nothing,
    "pelton.v1.Admin/RevokeToken": nothing,
    "pelton.v1.Admin/RotateToken": nothing,
    "pelton.v1.Admin/SetRole": nothing,
    "pelton.v1.Admin/ListRoles": nothing,
    "pelton.v1.Admin/DropRole": nothing,
    "pelton.v1.Admin/ConfirmEpoch": nothing,
    "pelton.v1.Admin/Promote": nothing,
    "pelton.v1.Admin/ForgetReplicas": nothing,
    "pelton.v1.Replication/Copy": nothing,
    "pelton.v1.Replication/Follow": nothing,
    "pelton.v1.Replication/Acknowledge": nothing,
    "pelton.v1.Replication/ReadContent": nothing,
    "pelton.v1.Echo/Unary": nothing,
    "pelton.v1.Echo/Stream": nothing,
    "grpc.health.v1.Health/Check": nothing,
    "grpc.health.v1.Health/List": nothing,
    "grpc.health.v1.Health/Watch": nothing,
    "grpc.reflection.v1.ServerReflection/ServerReflectionInfo": nothing,
    "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": nothing,
    "grpc.testing.TestService/EmptyCall": nothing,
    "grpc.testing.TestService/UnaryCall": nothing,
    "grpc.testing.TestService/CacheableUnaryCall": nothing,
    "grpc.testing.TestService/StreamingOutputCall": nothing,
    "grpc.testing.TestService/StreamingInputCall": nothing,
    "grpc.testing.TestService/FullDuplexCall": nothing,
    "grpc.testing.TestService/HalfDuplexCall": nothing,
    "io.grpc.KeyValueService/Create": nothing,
    "io.grpc.KeyValueService/Retrieve": nothing,
    "io.grpc.KeyValueService/Update": nothing,
    "io.grpc.KeyValueService/Delete": nothing,
    "messaging.GuploadService/Upload": lambda _: gupload_pb2.Chunk(Content=b"x"),
    "Ydb.Debug.V1.DebugService/PingPlainGrpc": nothing,
    "Ydb.Debug.V1.DebugService/PingStream": nothing,
    "example.EchoService/Echo": lambda _: brpc_echo_pb2.EchoRequest(message="x"),
    "BenchmarkPB/echo_pb": nothing,
    "BenchmarkPB/slow_pb": nothing,
}
TKRZW_METHODS = [
    "Echo",
    "Inspect",
    "Get",
    "GetMulti",
    "Set",
    "SetMulti",
    "Remove",
    "RemoveMulti",
    "Append",
    "AppendMulti",
    "CompareExchange",
    "Increment",
    "CompareExchangeMulti",
    "Rekey",
    "PopFirst",
    "PushLast",
    "Count",
    "GetFileSize",
    "Clear",
    "Rebuild",
    "ShouldBeRebuilt",
    "Synchronize",
    "Search",
    "Replicate",
    "ChangeMaster",
]
NOT_BEFORE = {"Rekey", "PopFirst", "PushLast"}
TKRZW_ITERATE = {
    "read": lambda _: tkrzw_rpc_pb2.IterateRequest(),
    "write": lambda _: tkrzw_rpc_pb2.IterateRequest(operation=9),
}


def tkrzw_stream(messages):
    get, set_one = tkrzw_rpc_pb2.GetRequest(), tkrzw_rpc_pb2.SetRequest(key=KEY)
    return {
        "read": lambda _: messages.StreamRequest(get_request=get),
        "write": lambda _: messages.StreamRequest(set_request=set_one),
    }


for package, messages, left_out in (
    ("tkrzw_rpc", tkrzw_rpc_pb2, set()),
    ("tkrzw", tkrzw_pb2, NOT_BEFORE),
):
    names = (name for name in TKRZW_METHODS if name not in left_out)
    REQUESTS |= {f"{package}.DBMService/{name}": nothing for name in names}
    REQUESTS[f"{package}.DBMService/Iterate"] = TKRZW_ITERATE
    REQUESTS[f"{package}.DBMService/Stream"] = tkrzw_stream(messages)
# Plain requests: method and path.
PLAIN_REQUESTS = {
    "http.Blob/PUT": ("PUT", f"/blob/{BLOB}"),
    "http.Blob/GET": ("GET", f"/blob/{BLOB}"),
    "http.Blob/HEAD": ("HEAD", f"/blob/{BLOB}"),
    "http.Blob/DELETE": ("DELETE", f"/blob/{BLOB}"),
    "http.Gupload/upload": ("POST", "/upload"),
}
# With which letters the names of the blobs begin that a request is about; all others: no blobs.
BLOB_NAMES = {
    "pelton.v1.Blob": BLOB,
    "http.Blob": BLOB,
    "messaging.GuploadService": "gupload/",
    "http.Gupload": "gupload/",
    "pelton.v1.Blob/ListUploads": "",
}


def check_complete(found, table):
    """The table and the requests are for those methods that there are."""
    served = set(found) - UNSERVED
    assert {path for path in table if not table[path].is_plain} == served
    assert set(REQUESTS) == served, "a method has no request in tests/support/rights.py"
    assert set(PLAIN_REQUESTS) == {path for path in table if table[path].is_plain}


def calls(table):
    """Each method with each right that it can need: its row, the right, and its request."""
    for path, need in table.items():
        if need.is_plain:
            yield need, need.rights[0], PLAIN_REQUESTS[path]
            continue
        request = REQUESTS[path]
        if len(need.rights) == 1:
            yield need, need.rights[0], request
            continue
        assert set(request) == set(need.rights), path
        for right in need.rights:
            yield need, right, request[right]


# --- the rule


def is_allowed(rights, need, right, database):
    """Whether somebody with a right may do what needs one, in a database."""
    level, _, scope = rights.partition(":")
    if right == "none":
        return True
    if level in ("none", "service"):
        return bool(scope) and need.drop_in == scope
    if right == "any":
        return True
    if LEVELS.index(level) < LEVELS.index(right):
        return False
    if need.place == "the whole server":
        return not scope
    if not scope or need.place.startswith("any database"):
        return True
    name, has_prefix, prefix = scope.partition("/")
    if name != (database if need.names_database and database else "default"):
        return False
    service = need.path.rsplit("/", 1)[0]
    names = BLOB_NAMES.get(need.path, BLOB_NAMES.get(service))
    return not has_prefix or (names is not None and names.startswith(prefix))


# --- calls


class Caller:
    """A connection of somebody, who sends this header `authorization`, or none."""

    def __init__(self, address, authorization=None, settings=b"", source=None):
        self.fields = [] if authorization is None else [("authorization", authorization)]
        self.connection = Connection(address, settings=settings, source=source)
        room = (MAX_WINDOW - 65_535).to_bytes(4)
        self.connection.send(frame(WINDOW_UPDATE, payload=room))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.connection.__exit__()

    def begin(self, need, request, database, ends=True):
        """Sends a request; its stream. With `ends`, nothing follows it."""
        flags = END_STREAM if ends else 0
        if need.is_plain:
            method, path = request
            path += f"?database={database}" if need.names_database and database else ""
            fields = [*self.fields, ("content-length", "0")] if ends else self.fields
            stream, head = self.connection.request(
                path, *fields, method=method, content_type=None, end=ends
            )
            self.connection.send(head)
            return stream
        message = request(database)
        data = grpc_message(message.SerializeToString() if message else b"")
        stream, head = self.connection.request(f"/{need.path}", *self.fields)
        self.connection.send(head + frame(0, flags, stream, data))
        return stream

    def call(self, need, request, database=""):
        """The answer to a request. A stream that goes on is given up at its first message."""
        stream = self.begin(need, request, database)
        answer = self.connection.answers[stream]
        while not (answer.over or answer.body):
            assert self.connection.read(30), f"{need.path} does not end"
        if not answer.over:
            self.connection.send(frame(RST_STREAM, stream=stream, payload=CANCEL))
        return answer


# Of which each address of this machine has some.
CALLERS = itertools.count()


def unslowed_callers(address, *authorizations):
    """One caller after the other, each for one call with wrong tokens, which are refused at once as
    long as a connection and an address have not sent many."""
    for number in CALLERS:
        with Caller(address, source=f"127.0.1.{1 + number // 16 % 250}") as caller:
            caller.fields = [("authorization", value) for value in authorizations]
            for _ in range(8):
                yield caller


def code_of(need, answer):
    """The status of an answer; that of plain requests in the words of gRPC."""
    if need.is_plain:
        assert answer.headers, answer.resets
        status = int(answer.headers[":status"])
        return {401: UNAUTHENTICATED, 403: DENIED}.get(status, OK)
    if need.path == PIPE and answer.body:
        # Its stream goes on: a batch has a status of its own.
        return kv.PipeResponse.FromString(answer.body[5:]).failure.code
    # One that goes on, or that was answered before its end.
    return OK if answer.grpc_status is None else answer.grpc_status
