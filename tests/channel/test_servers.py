"""The interoperability service on servers of others, and `pelton.v1.KeyValue` on one of tonic, each
case with grpcio's channel and with ours."""

import os
import pathlib
import shutil
import subprocess
import sys
import zlib

import grpc
import pytest
from both import SECONDS, compare, compare_aio, end_of, of_call, outcome, pairs
from pelton.v1 import kv_pb2 as pb
from pelton.v1 import kv_pb2_grpc
from server import Server

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
INTEROP = ROOT / "script" / "interop"
sys.path.insert(0, str(INTEROP))

from support import Messages  # noqa: E402

CODE = grpc.StatusCode
MESSAGES = Messages()
SERVICE = "/grpc.testing.TestService/"
INITIAL = ("x-grpc-test-echo-initial", "of a test")
TRAILING = ("x-grpc-test-echo-trailing-bin", b"\0\1\xab")


def without(what):
    """Skips a test, but not in CI."""
    if os.environ.get("CI"):
        pytest.fail(f"{what}; in CI nothing is skipped")
    pytest.skip(what)


def grpc_go():
    """The server of grpc-go, where script/interop/run-client keeps it."""
    cache = pathlib.Path(os.environ.get("PELTON_CACHE") or pathlib.Path.home() / ".cache/pelton")
    folder = INTEROP / "grpc-go-server"
    sources = subprocess.run(
        f"cat {folder}/* | cksum | cut -d' ' -f1", shell=True, capture_output=True, text=True
    )
    program = cache / f"grpc-go-interop-server-{sources.stdout.strip()}"
    if not program.exists():
        if not shutil.which("go"):
            without("no server of grpc-go: there is no `go`")
        build = ["go", "build", "-C", str(folder), "-o", str(program), "."]
        if subprocess.run(build).returncode != 0:
            without("no server of grpc-go: go build must work")
    return [str(program)]


@pytest.fixture(scope="module", params=["grpc-go", "grpcio", "pelton"])
def interop(request, binary):
    """A server of the interoperability service."""
    if request.param == "pelton":
        with Server(binary, "--threads", "1", "--interop") as running:
            yield running.address
        return
    words = [sys.executable, str(INTEROP / "server.py")]
    if request.param == "grpc-go":
        words = grpc_go()
    # That of grpcio ends with its standard input.
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        for line in process.stdout:
            if "listening on " in line:
                break
        else:
            pytest.fail(f"the server of {request.param} did not start")
        yield line.split("listening on ")[1].split()[0]
    finally:
        process.kill()
        process.wait()


def method(channel, kind, name, response):
    return getattr(channel, kind)(
        SERVICE + name,
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=response.FromString,
    )


def test_unary_calls(interop):
    def case(channel):
        unary = method(channel, "unary_unary", "UnaryCall", MESSAGES.SimpleResponse)
        large, ended = unary.with_call(
            MESSAGES.large(), timeout=SECONDS, metadata=(INITIAL, TRAILING)
        )
        packed = unary(MESSAGES.large(), timeout=SECONDS, compression=grpc.Compression.Gzip)
        status = MESSAGES.EchoStatus(code=2, message="\t\ntest with whitespace\r\nand ☺\t\n")
        refused = MESSAGES.SimpleRequest(response_status=status)
        missing = method(channel, "unary_unary", "UnimplementedCall", MESSAGES.Empty)
        other = channel.unary_unary("/grpc.testing.None/None")
        future = unary.future(MESSAGES.large(), timeout=SECONDS)
        return (
            len(large.payload.body),
            len(packed.payload.body),
            of_call(ended),
            outcome(lambda: unary(refused, timeout=SECONDS)),
            outcome(lambda: missing(MESSAGES.Empty(), timeout=SECONDS)),
            outcome(lambda: other(b"", timeout=SECONDS)),
            len(future.result(SECONDS).payload.body),
        )

    found = compare(case, interop)
    assert found[:2] == (314159, 314159) and found[2]["initial"] == [INITIAL]
    assert [each["code"] for each in found[3:6]] == [CODE.UNKNOWN] + [CODE.UNIMPLEMENTED] * 2


def test_streams(interop):
    sizes = (31415, 9, 2653, 58979)

    def case(channel):
        output = method(
            channel, "unary_stream", "StreamingOutputCall", MESSAGES.StreamingOutputCallResponse
        )
        received = output(MESSAGES.wanted(*sizes), timeout=SECONDS, metadata=(INITIAL,))
        found = [[len(message.payload.body) for message in received], received.code()]
        taken = method(
            channel, "stream_unary", "StreamingInputCall", MESSAGES.StreamingInputCallResponse
        )
        inputs = [
            MESSAGES.StreamingInputCallRequest(payload=MESSAGES.payload(size)) for size in sizes
        ]
        found.append(taken(iter(inputs), timeout=SECONDS).aggregated_payload_size)
        duplex = method(
            channel, "stream_stream", "FullDuplexCall", MESSAGES.StreamingOutputCallResponse
        )
        requests = [MESSAGES.wanted(size, payload=MESSAGES.payload(1000)) for size in sizes]
        call = duplex(iter(requests), timeout=SECONDS, metadata=(INITIAL, TRAILING))
        found.append([len(message.payload.body) for message in call])
        found += [pairs(call.initial_metadata()), pairs(call.trailing_metadata()), call.code()]
        found.append(list(duplex(iter([]), timeout=SECONDS)))
        status = MESSAGES.EchoStatus(code=2, message="of a test")
        refused = MESSAGES.StreamingOutputCallRequest(response_status=status)
        found.append(outcome(lambda: list(duplex(iter([refused]), timeout=SECONDS))))
        return found

    found = compare(case, interop)
    assert found[0] == found[3] == list(sizes) and found[2] == sum(sizes)
    assert found[4] == [INITIAL] and found[5] == [TRAILING]


def test_deadlines_and_cancelling(interop):
    def case(channel):
        duplex = method(
            channel, "stream_stream", "FullDuplexCall", MESSAGES.StreamingOutputCallResponse
        )
        slow = MESSAGES.wanted(1)
        slow.response_parameters[0].interval_us = 30_000_000
        late = outcome(lambda: list(duplex(iter([slow]), timeout=0.2)), details=False)
        call = duplex(iter([MESSAGES.wanted(5), slow]), timeout=SECONDS)
        first = len(next(call).payload.body)
        # grpc-go resets the stream at the deadline, which grpcio may see before its own.
        is_late = late["code"] in (CODE.DEADLINE_EXCEEDED, CODE.CANCELLED)
        return is_late, first, call.cancel(), call.code(), call.details()

    found = compare(case, interop)
    assert found == (True, 5, True, CODE.CANCELLED, "Locally cancelled by application!")


def test_in_an_event_loop(interop):
    async def case(channel):
        unary = method(channel, "unary_unary", "UnaryCall", MESSAGES.SimpleResponse)
        found = [len((await unary(MESSAGES.large(), timeout=SECONDS)).payload.body)]
        duplex = method(
            channel, "stream_stream", "FullDuplexCall", MESSAGES.StreamingOutputCallResponse
        )
        call = duplex(timeout=SECONDS, metadata=(INITIAL, TRAILING))
        for size in (1, 1000, 100_000):
            await call.write(MESSAGES.wanted(size))
            found.append(len((await call.read()).payload.body))
        await call.done_writing()
        found += [await call.read() is grpc.aio.EOF, await call.code()]
        found += [pairs(await call.initial_metadata()), pairs(await call.trailing_metadata())]
        missing = method(channel, "unary_unary", "UnimplementedCall", MESSAGES.Empty)
        found.append(await end_of(missing(MESSAGES.Empty(), timeout=SECONDS)))
        return found

    found = compare_aio(case, interop)
    assert found[:4] == [314159, 1, 1000, 100_000] and found[6:8] == [[INITIAL], [TRAILING]]


@pytest.fixture(scope="module")
def tonic(binary):
    """`pelton.v1.KeyValue` as tonic serves it: peers/tonic-kv, which the stage `channel` builds."""
    program = os.environ.get("PELTON_TONIC_KV")
    if not program:
        without("no server of tonic: PELTON_TONIC_KV names none")
    with Server(program, command=["--listen", "127.0.0.1:0", "--preload", "10"]) as running:
        yield running.address


def test_a_server_of_tonic(tonic):
    def case(channel):
        kv = kv_pb2_grpc.KeyValueStub(channel)
        get, put = pb.GetRequest(key=b"key-000000000001"), pb.PutRequest(key=b"k", value=b"v")
        found = [
            zlib.crc32(kv.Get(get, timeout=SECONDS).value),
            kv.Get(pb.GetRequest(key=b"none"), timeout=SECONDS).found,
            kv.Put(put, timeout=SECONDS).applied,
            kv.Get(pb.GetRequest(key=b"k"), timeout=SECONDS).value,
        ]
        unusual = pb.PutRequest(key=b"k", value=b"v", database="other")
        found.append(outcome(lambda: kv.Put(unusual, timeout=SECONDS)))
        found.append(outcome(lambda: kv.Delete(pb.DeleteRequest(key=b"k"), timeout=SECONDS)))
        found.append(outcome(lambda: list(kv.Scan(pb.ScanRequest(), timeout=SECONDS))))
        large = pb.PutRequest(key=b"large", value=bytes(5 << 20))
        found.append(outcome(lambda: kv.Put(large, timeout=SECONDS)))
        futures = [kv.Get.future(get, timeout=SECONDS) for _ in range(300)]
        found.append({future.result(SECONDS).value for future in futures})
        return found

    found = compare(case, tonic)
    assert found[1:4] == [False, True, b"v"] and len(found[8]) == 1
    assert found[5]["code"] is CODE.UNIMPLEMENTED
