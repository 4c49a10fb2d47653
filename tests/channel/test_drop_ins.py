"""Generated stubs of the drop-in services and of the standard ones over `pelton_grpc`, compared
with grpcio's channel."""

import re

import grpc
import pytest
from both import SECONDS, compare, outcome
from compat import gupload_pb2 as gupload
from compat import gupload_pb2_grpc, kvstore_pb2_grpc, tkrzw_rpc_pb2_grpc, ydb_ping_pb2_grpc
from compat import kvstore_pb2 as kvstore
from compat import tkrzw_rpc_pb2 as tkrzw
from compat import ydb_ping_pb2 as ping
from google.protobuf import descriptor_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from server import Server

CODE = grpc.StatusCode


def test_kvstore(server, prefix):
    def case(channel):
        stub = kvstore_pb2_grpc.KeyValueServiceStub(channel)
        key = prefix + b"key"

        def of(method, request):
            return outcome(lambda: method(request, timeout=SECONDS).SerializeToString())

        found = [
            of(stub.Retrieve, kvstore.RetrieveRequest(key=key)),
            of(stub.Update, kvstore.UpdateRequest(key=key, value=b"u")),
            of(stub.Create, kvstore.CreateRequest(key=key, value=b"v")),
            of(stub.Create, kvstore.CreateRequest(key=key, value=b"w")),
            of(stub.Retrieve, kvstore.RetrieveRequest(key=key)),
            of(stub.Update, kvstore.UpdateRequest(key=key, value=b"\0" * 100_000)),
            of(stub.Retrieve, kvstore.RetrieveRequest(key=key)),
            of(stub.Delete, kvstore.DeleteRequest(key=key)),
            of(stub.Delete, kvstore.DeleteRequest(key=key)),
            of(stub.Create, kvstore.CreateRequest(key=b"k" * 100_000)),
        ]
        futures = [
            stub.Retrieve.future(kvstore.RetrieveRequest(key=key), timeout=SECONDS)
            for _ in range(10)
        ]
        return found, [future.exception(SECONDS).code() for future in futures]

    found, codes = compare(case, server.address)
    assert [each.get("code", CODE.OK) for each in found[:5]] == [
        CODE.NOT_FOUND,
        CODE.NOT_FOUND,
        CODE.OK,
        CODE.ALREADY_EXISTS,
        CODE.OK,
    ]
    assert codes == [CODE.NOT_FOUND] * 10


@pytest.fixture(scope="module")
def uploads(binary, tmp_path_factory):
    """A server that keeps what is uploaded."""
    folder = tmp_path_factory.mktemp("uploads")
    with Server(binary, "--threads", "1", "--data", str(folder / "data")) as running:
        yield running


def test_gupload(server, uploads):
    def refused(channel):
        # A volatile database keeps no blobs.
        upload = gupload_pb2_grpc.GuploadServiceStub(channel).Upload
        chunks = iter([gupload.Chunk(Content=b"a")])
        return outcome(lambda: upload(chunks, timeout=SECONDS))

    assert compare(refused, server.address)["code"] is CODE.FAILED_PRECONDITION

    def case(channel):
        upload = gupload_pb2_grpc.GuploadServiceStub(channel).Upload

        def chunks(count, size):
            return (gupload.Chunk(Content=bytes(size)) for _ in range(count))

        def sent(count, size, **options):
            answer = upload(chunks(count, size), timeout=SECONDS, **options)
            # The name has the time in it.
            return answer.Code, re.sub(r"\d{8}T\S+", "NAME", answer.Message)

        sizes = [(0, 0), (1, 1), (100, 4096), (3, 1 << 20)]
        found = [outcome(lambda: sent(*each)) for each in sizes]  # noqa: B023
        found.append(outcome(lambda: sent(5, 100_000, compression=grpc.Compression.Gzip)))
        found.append(outcome(lambda: sent(1, (4 << 20) + 100)))
        call = upload.future(chunks(10, 10_000), timeout=SECONDS)
        return found, call.result(SECONDS).Code, call.code()

    found, result, code = compare(case, uploads.address)
    assert found[0]["returned"][0] == gupload.Ok == result and code is CODE.OK
    assert found[5]["code"] is not CODE.OK


def test_ping(server):
    def case(channel):
        stub = ydb_ping_pb2_grpc.DebugServiceStub(channel)
        request = ping.PlainGrpcRequest()
        plain = [stub.PingPlainGrpc(request, timeout=SECONDS) for _ in range(10)]
        times = [answer.CallBackTs for answer in stub.PingStream(iter([request] * 100))]
        bad = channel.stream_stream("/Ydb.Debug.V1.DebugService/PingStream")
        refused = outcome(lambda: list(bad(iter([b"\xff"]), timeout=SECONDS)))
        return plain, len(times), times == sorted(times), refused

    found = compare(case, server.address)
    assert found[1:3] == (100, True)


@pytest.fixture(scope="module")
def tkrzw_server(binary):
    words = ["tkrzw-server", "--address", "127.0.0.1:0", "--async", "--threads", "1", "#dbm=baby"]
    with Server(binary, command=words) as running:
        yield running


def test_tkrzw(tkrzw_server):
    def case(channel):
        stub = tkrzw_rpc_pb2_grpc.DBMServiceStub(channel)
        stub.Clear(tkrzw.ClearRequest(), timeout=SECONDS)
        set_one = tkrzw.SetRequest(key=b"a", value=b"1")
        op = tkrzw.IterateRequest
        found = [
            stub.Echo(tkrzw.EchoRequest(message="hello"), timeout=SECONDS).echo,
            stub.Set(set_one, timeout=SECONDS).status.code,
            stub.Set(set_one, timeout=SECONDS).status.code,
            stub.Get(tkrzw.GetRequest(key=b"a"), timeout=SECONDS).value,
            stub.Get(tkrzw.GetRequest(key=b"none"), timeout=SECONDS).status.code,
            stub.Increment(tkrzw.IncrementRequest(key=b"n", increment=5), timeout=SECONDS).current,
            stub.Count(tkrzw.CountRequest(), timeout=SECONDS).count,
        ]
        # The status of what is wrong with the request is that of gRPC.
        beyond = tkrzw.InspectRequest(dbm_index=7)
        found.append(outcome(lambda: stub.Inspect(beyond, timeout=SECONDS)))
        gets = [tkrzw.StreamRequest(get_request=tkrzw.GetRequest(key=b"a"))] * 50
        answers = stub.Stream(iter(gets), timeout=SECONDS)
        found.append([answer.get_response.value for answer in answers])
        steps = [op(operation=op.OP_FIRST)]
        steps += [op(operation=op.OP_GET), op(operation=op.OP_NEXT)] * 3
        answers = stub.Iterate(iter(steps), timeout=SECONDS)
        found.append([(answer.status.code, answer.key, answer.value) for answer in answers])
        bad = [tkrzw.StreamRequest()]
        found.append(outcome(lambda: list(stub.Stream(iter(bad), timeout=SECONDS))))
        return found

    found = compare(case, tkrzw_server.address)
    assert found[3] == b"1" and found[7]["code"] is CODE.INVALID_ARGUMENT
    assert found[8] == [b"1"] * 50 and len(found[9]) == 7


def test_health_is_watched(server):
    def case(channel):
        stub = health_pb2_grpc.HealthStub(channel)
        found = []
        for service in ("", "pelton.v1.KeyValue", "none"):
            call = stub.Watch(health_pb2.HealthCheckRequest(service=service))
            found.append(next(call).status)
            found.append((call.is_active(), call.cancel(), call.code(), call.details()))
        return found

    status = health_pb2.HealthCheckResponse
    found = compare(case, server.address)
    assert found[::2] == [status.SERVING, status.SERVING, status.SERVICE_UNKNOWN]
    assert found[1][2] is CODE.CANCELLED


def test_reflection(server):
    def case(channel):
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        ask = reflection_pb2.ServerReflectionRequest
        questions = [
            ask(list_services=""),
            ask(file_containing_symbol="pelton.v1.KeyValue"),
            ask(file_by_filename="grpc/health/v1/health.proto"),
            ask(file_containing_symbol="none.None"),
            ask(),
        ]
        answers = list(stub.ServerReflectionInfo(iter(questions), timeout=SECONDS))
        return [answer.SerializeToString(deterministic=True) for answer in answers]

    found = [
        reflection_pb2.ServerReflectionResponse.FromString(data)
        for data in compare(case, server.address)
    ]
    names = {service.name for service in found[0].list_services_response.service}
    assert {"pelton.v1.KeyValue", "grpc.health.v1.Health"} <= names
    [file] = [
        descriptor_pb2.FileDescriptorProto.FromString(data)
        for data in found[2].file_descriptor_response.file_descriptor_proto
    ]
    assert file.package == "grpc.health.v1"
    assert found[3].error_response.error_code == CODE.NOT_FOUND.value[0]
