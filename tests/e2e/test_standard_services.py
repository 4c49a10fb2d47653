"""grpc.health.v1 and reflection in both versions, with the usual clients."""

import grpc
import pytest
from flood import Flood, Honest
from google.protobuf import descriptor_pb2, descriptor_pool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2
from pelton.v1 import echo_pb2, kv_pb2
from raw import MAX_WINDOW, grpc_message
from server import Server, expect_status, wait_until

# As many as fit into the window with which a stream begins.
QUESTIONS = 5_000
SERVING = health_pb2.HealthCheckResponse.SERVING


@pytest.fixture
def health(channel):
    return health_pb2_grpc.HealthStub(channel)


@pytest.mark.parametrize("service", ["", "pelton.v1.KeyValue"])
def test_check(health, service):
    assert health.Check(health_pb2.HealthCheckRequest(service=service)).status == SERVING


def test_check_of_an_unknown_service(health):
    expect_status(
        grpc.StatusCode.NOT_FOUND,
        lambda: health.Check(health_pb2.HealthCheckRequest(service="no.such.Service")),
    )


def test_watch(health):
    call = health.Watch(health_pb2.HealthCheckRequest(service=""))
    assert next(call).status == SERVING
    unknown = health.Watch(health_pb2.HealthCheckRequest(service="no.such.Service"))
    assert next(unknown).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
    call.cancel()
    unknown.cancel()


def test_many_watches_at_once(health):
    calls = [health.Watch(health_pb2.HealthCheckRequest()) for _ in range(300)]
    assert all(next(call).status == SERVING for call in calls)
    for call in calls:
        call.cancel()


VERSIONS = ["v1", "v1alpha"]


@pytest.fixture
def reflect(channel, request):
    """Asks one question; the messages of both versions are the same."""
    call = channel.stream_stream(
        f"/grpc.reflection.{request.param}.ServerReflection/ServerReflectionInfo",
        request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
        response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
    )

    def ask(**question):
        [answer] = call(iter([reflection_pb2.ServerReflectionRequest(**question)]), timeout=10)
        return answer

    return ask


@pytest.mark.parametrize("reflect", VERSIONS, indirect=True)
def test_reflection_lists_the_services(reflect):
    names = {service.name for service in reflect(list_services="").list_services_response.service}
    assert {
        "pelton.v1.KeyValue",
        "pelton.v1.Replication",
        "pelton.v1.Echo",
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
    } <= names


def test_questions_without_end_keep_nobody_waiting(binary):
    """8 connections ask for all services again and again, and get each answer; others are served in
    between."""
    question = reflection_pb2.ServerReflectionRequest(list_services="").SerializeToString()
    questions = grpc_message(question) * QUESTIONS
    windows = {"window": MAX_WINDOW, "connection_window": MAX_WINDOW}
    path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
    with Server(binary, "--threads", "1") as server:
        floods = [Flood(server.address, **windows) for _ in range(8)]
        with Honest(server.address) as honest:
            for _ in range(2):
                for flood in floods:
                    flood.calls(path, lambda _: questions, 1)
                honest.wait_rounds(10)
                for flood in floods:
                    is_over = lambda flood=flood: flood.ended() == len(flood.answers)  # noqa: E731
                    wait_until(lambda: flood.poll(0.1) or is_over(), 60)  # noqa: B023
        for flood in floods:
            assert flood.statuses() == {0: 2}
            flood.socket.close()
        one = floods[0].data_bytes // (2 * QUESTIONS)
        assert one > 100 and [flood.data_bytes for flood in floods] == [2 * QUESTIONS * one] * 8
        assert not honest.problems()


def normal(file):
    """A description without what compilers may add or leave out: comments, and JSON names."""
    plain = descriptor_pb2.FileDescriptorProto()
    plain.CopyFrom(file)
    plain.ClearField("source_code_info")
    messages = list(plain.message_type)
    while messages:
        message = messages.pop()
        messages += message.nested_type
        for field in message.field:
            field.ClearField("json_name")
    return plain


def test_every_listed_service_is_described(channel):
    pool = {}

    def files(answer):
        assert not answer.HasField("error_response"), answer.error_response.error_message
        for data in answer.file_descriptor_response.file_descriptor_proto:
            file = descriptor_pb2.FileDescriptorProto.FromString(data)
            pool[file.name] = file
            yield file

    call = channel.stream_stream(
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
        response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
    )

    def ask(**question):
        [answer] = call(iter([reflection_pb2.ServerReflectionRequest(**question)]), timeout=10)
        return answer

    for service in ask(list_services="").list_services_response.service:
        wanted = list(files(ask(file_containing_symbol=service.name)))
        while wanted:
            for name in wanted.pop().dependency:
                if name not in pool:
                    wanted += files(ask(file_by_filename=name))

    # They fit together, and say what the .proto files say.
    built = descriptor_pool.DescriptorPool()

    def add(name):
        for dependency in pool[name].dependency:
            add(dependency)
        built.Add(pool[name])

    for name in pool:
        add(name)
    for file in [kv_pb2.DESCRIPTOR, echo_pb2.DESCRIPTOR]:
        ours = descriptor_pb2.FileDescriptorProto()
        file.CopyToProto(ours)
        assert normal(pool[ours.name]) == normal(ours)


@pytest.mark.parametrize("reflect", VERSIONS, indirect=True)
def test_reflection_answers_all_questions(reflect):
    assert reflect(
        file_by_filename="pelton/v1/kv.proto"
    ).file_descriptor_response.file_descriptor_proto
    for symbol in [
        "pelton.v1.KeyValue",
        "pelton.v1.KeyValue.Get",
        "pelton.v1.GetRequest",
        "pelton.v1.Direction",
    ]:
        assert reflect(
            file_containing_symbol=symbol
        ).file_descriptor_response.file_descriptor_proto, symbol
    for question in [{"file_by_filename": "no.proto"}, {"file_containing_symbol": "no.Symbol"}]:
        assert reflect(**question).error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]
