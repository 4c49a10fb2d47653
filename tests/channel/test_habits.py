"""What programs do with channels and errors besides calling."""

import asyncio
import subprocess
import sys

import grpc
import pelton_grpc
import pytest
from both import INSECURE, MODULES, SECONDS, compare, end_of, outcome, run_aio
from pelton.v1 import kv_pb2, kv_pb2_grpc

ECHO = "/pelton.v1.Echo/Unary"
BOTH = pytest.mark.parametrize("insecure_channel", INSECURE.values(), ids=INSECURE)


@BOTH
def test_an_error_is_printed_as_programs_look_for_it(server, insecure_channel):
    with insecure_channel(server.address) as channel:
        with pytest.raises(grpc.RpcError) as failed:
            channel.unary_unary("/none.None/Nothing")(b"", timeout=SECONDS)
    for text in (str(failed.value), repr(failed.value)):
        assert " of RPC that terminated with:\n\tstatus = StatusCode.UNIMPLEMENTED\n" in text
        assert f'\n\tdetails = "{failed.value.details()}"\n' in text
        assert "\n\tdebug_error_string = " in text


@pytest.mark.parametrize("path", ["none.None/Nothing", "/none.None/N\u00f6thing"])
def test_the_path_of_no_method_is_not_implemented(server, path):
    def case(channel):
        return outcome(lambda: channel.unary_unary(path)(b"", timeout=SECONDS), details=False)

    assert compare(case, server.address)["code"] == grpc.StatusCode.UNIMPLEMENTED


# What a gateway has received, and hands on.
@pytest.mark.parametrize(
    "pair",
    [
        ("x-request-id", None),
        ("content-type", "text/plain"),
        ("te", "trailers"),
        ("x-a", "b"),
        pytest.param(("a", "b\n"), id="a line end"),
        pytest.param(("a", "\tb"), id="a tab"),
    ],
)
def test_metadata_that_are_handed_on(server, pair):
    def case(channel):
        kv = kv_pb2_grpc.KeyValueStub(channel)
        request = kv_pb2.GetRequest(key=b"none")
        found = outcome(lambda: kv.Get(request, metadata=[pair], timeout=SECONDS).found, False)
        return found if "returned" in found else found["code"]

    compare(case, server.address)


@pytest.mark.parametrize("name", ["connection", "host", "content-length", "grpc-timeout"])
def test_what_a_call_says_by_itself_is_not_sent(server, name):
    with pelton_grpc.insecure_channel(server.address) as channel:
        call = channel.unary_unary(ECHO)
        assert call(b"", metadata=[(name, "1")], timeout=SECONDS) == b""


class _Aside(BaseException):
    pass


@pytest.mark.parametrize("raised", [_Aside, asyncio.CancelledError])
@pytest.mark.parametrize("module", MODULES.values(), ids=MODULES)
def test_what_a_deserializer_raises_comes_out_of_await(server, module, raised):
    def deserialize(_):
        raise raised()

    async def case(channel):
        call = channel.unary_unary(ECHO, response_deserializer=deserialize)
        try:
            await asyncio.wait_for(call(b"", timeout=SECONDS), SECONDS)
        except raised:
            return "raised"

    assert run_aio(case, module, server.address) == "raised"


def test_a_channel_closes_though_a_serializer_has_raised_and_somebody_holds_that(server):
    def serialize(_):
        raise _Aside()

    held = []

    async def case(channel):
        running = channel.unary_unary("/pelton.v1.Echo/Unary")(b"\x18\x90\x4e")
        try:
            await channel.unary_unary(ECHO, request_serializer=serialize)(b"")
        except _Aside as error:
            held.append(error)
        await channel.close()
        return await end_of(running)

    assert run_aio(case, MODULES["pelton"], server.address) == "cancelled"
    assert held


IN_A_SUBINTERPRETER = """
import sys, time
import grpc, pelton_grpc
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
channel = pelton_grpc.insecure_channel(sys.argv[1])
call = channel.unary_unary("/pelton.v1.Echo/Unary")
assert call(b"", timeout=30) == b""
other = interpreters.create()
script = '''
try:
    import pelton_grpc
except ImportError:
    pass
else:
    raise AssertionError("it was imported")
'''
interpreters.run_string(other, script)
interpreters.destroy(other)
assert call(b"", timeout=30) == b""
print("done")
"""


def test_the_end_of_a_subinterpreter_ends_no_calls(server):
    pytest.importorskip("_xxsubinterpreters" if sys.version_info < (3, 13) else "_interpreters")
    command = [sys.executable, "-c", IN_A_SUBINTERPRETER, server.address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.stdout == "done\n", done.stderr


def test_it_has_a_version():
    assert pelton_grpc.__version__.count(".") == 2


@pytest.mark.parametrize("text", ["nf: ", " nf", "nf"])
def test_a_status_may_have_space_at_its_ends(text):
    """Of a server of grpcio, which sends them as they are; and many trailing metadata."""

    class Failing(grpc.GenericRpcHandler):
        def service(self, _):
            def fail(_, context):
                context.set_trailing_metadata(
                    [("x-%d" % number, "v") for number in range(150)] + [("foo", "bar ")]
                )
                context.abort(grpc.StatusCode.NOT_FOUND, text)

            return grpc.unary_unary_rpc_method_handler(fail)

    from concurrent.futures import ThreadPoolExecutor

    server = grpc.server(ThreadPoolExecutor(2), handlers=[Failing()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()

    def case(channel):
        found = outcome(lambda: channel.unary_unary("/a/b")(b"", timeout=SECONDS))
        trailing = {key: value.strip() for key, value in found["trailing"]}
        return found["code"], found["details"], trailing

    code, details, trailing = compare(case, f"127.0.0.1:{port}")
    server.stop(0)
    assert (code, details, len(trailing)) == (grpc.StatusCode.NOT_FOUND, text, 151)
