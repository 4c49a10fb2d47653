"""Interceptors of asyncio, compared with the channel of grpc.aio."""

import asyncio
import gc
import subprocess
import sys

import grpc
import pelton_grpc.aio
import pytest
from both import MODULES, SECONDS, compare_aio, end_of, pairs, run_aio
from pelton.v1 import echo_pb2

ECHO = "/pelton.v1.Echo/Unary"
STREAM = "/pelton.v1.Echo/Stream"
INPUT = "/grpc.testing.TestService/StreamingInputCall"
OUTPUT = "/grpc.testing.TestService/StreamingOutputCall"
CODE = grpc.StatusCode
CALLS = {
    "unary_unary": grpc.aio.UnaryUnaryCall,
    "unary_stream": grpc.aio.UnaryStreamCall,
    "stream_unary": grpc.aio.StreamUnaryCall,
    "stream_stream": grpc.aio.StreamStreamCall,
}
BASES = {
    "unary_unary": grpc.aio.UnaryUnaryClientInterceptor,
    "unary_stream": grpc.aio.UnaryStreamClientInterceptor,
    "stream_unary": grpc.aio.StreamUnaryClientInterceptor,
    "stream_stream": grpc.aio.StreamStreamClientInterceptor,
}


def interceptor(kind, intercept):
    """An interceptor of one kind of call: a coroutine of `continuation, details, request`."""

    async def method(self, continuation, details, request):
        return await intercept(continuation, details, request)

    return type("Interceptor", (BASES[kind],), {f"intercept_{kind}": method})()


def each_kind(intercept):
    return [interceptor(kind, intercept) for kind in BASES]


def message(payload=b"a", **fields):
    return echo_pb2.EchoRequest(payload=payload, **fields).SerializeToString()


async def call_all(channel, **options):
    """A call of each kind, and what it brings."""
    found = []
    call = channel.unary_unary(ECHO)(message(), timeout=SECONDS, **options)
    assert isinstance(call, CALLS["unary_unary"])
    found.append((await call, await call.code(), call.done(), call.cancelled()))
    call = channel.unary_stream(OUTPUT)(b"\x12\x02\x08\x03" * 2, timeout=SECONDS, **options)
    assert isinstance(call, CALLS["unary_stream"])
    found.append(([response async for response in call], await call.code()))
    call = channel.unary_stream(OUTPUT)(b"\x12\x02\x08\x03", timeout=SECONDS, **options)
    found.append((await call.read(), await call.read() is grpc.aio.EOF))
    call = channel.stream_unary(INPUT)([b"\x0a\x05\x12\x03abc"] * 3, timeout=SECONDS, **options)
    assert isinstance(call, CALLS["stream_unary"])
    found.append((await call, await call.code()))
    call = channel.stream_unary(INPUT)(timeout=SECONDS, **options)
    await call.write(b"\x0a\x05\x12\x03abc")
    await call.done_writing()
    found.append(await call)
    call = channel.stream_stream(STREAM)([message(b"1"), message(b"2")], timeout=SECONDS, **options)
    assert isinstance(call, CALLS["stream_stream"])
    found.append(([response async for response in call], await call.details()))
    call = channel.stream_stream(STREAM)(timeout=SECONDS, **options)
    for _ in range(5):
        await call.write(message(b"3"))
        found.append(await call.read())
    await call.done_writing()
    found.append((await call.read() is grpc.aio.EOF, await call.code()))
    return found


def test_interceptors_of_each_kind_see_calls_in_their_order(server):
    seen = []

    def passing(name):
        async def intercept(continuation, details, request):
            seen.append((name, details.method, details.timeout, list(details.metadata)))
            details.metadata.add("x-of", name)
            call = await continuation(details, request)
            seen.append((name, [kind for kind, of in CALLS.items() if isinstance(call, of)]))
            return call

        return each_kind(intercept)

    async def case(channel):
        seen.clear()
        found = await call_all(channel, metadata=(("x-a", "b"),))
        return found, list(seen)

    found, noted = compare_aio(case, server.address, interceptors=passing("1") + passing("2"))
    assert len(noted) == 7 * 4
    assert noted[0] == ("1", ECHO.encode(), SECONDS, [("x-a", "b")])
    assert noted[1] == ("2", ECHO.encode(), SECONDS, [("x-a", "b"), ("x-of", "1")])
    assert run_aio(call_all, pelton_grpc.aio, server.address) == found


def test_what_an_interceptor_changes_is_sent(server):
    sent = ("x-grpc-test-echo-initial", "of an interceptor")

    async def change(continuation, details, request):
        metadata = grpc.aio.Metadata(sent)
        details = details._replace(metadata=metadata, method=details.method.replace(b"/no", b""))
        return await continuation(details, request)

    async def case(channel):
        call = channel.unary_unary("/no/grpc.testing.TestService/UnaryCall")(b"", timeout=SECONDS)
        await call
        stream = channel.stream_stream("/no/grpc.testing.TestService/FullDuplexCall")
        streamed = stream([b"\x12\x02\x08\x01"], timeout=SECONDS)
        messages = [response async for response in streamed]
        return pairs(await call.initial_metadata()), len(messages), await streamed.code()

    found = compare_aio(case, server.address, interceptors=each_kind(change))
    assert found == ([sent], 1, CODE.OK)


def test_an_interceptor_may_answer_itself_and_change_what_comes(server):
    async def answer(continuation, details, request):
        return b"of an interceptor"

    async def doubled(continuation, details, request):
        call = await continuation(details, request)

        async def responses():
            async for response in call:
                yield response
                yield response

        return responses()

    async def case(channel):
        call = channel.unary_unary(ECHO)(message(), timeout=SECONDS)
        found = [await call, await call.code(), call.done(), await call.initial_metadata()]
        for kind, first in (("unary_stream", b"\x12\x02\x08\x03"), ("stream_stream", [message()])):
            path = OUTPUT if kind == "unary_stream" else STREAM
            stream = getattr(channel, kind)(path)(first, timeout=SECONDS)
            found.append(len([response async for response in stream]))
            found.append((await stream.code(), stream.done()))
        return found

    interceptors = [interceptor("unary_unary", answer)]
    interceptors += [interceptor(kind, doubled) for kind in ("unary_stream", "stream_stream")]
    found = compare_aio(case, server.address, interceptors=interceptors)
    assert found[0] == b"of an interceptor" and found[4] == found[6] == 2


def test_calls_that_fail_and_interceptors_that_raise(server):
    async def awaits(continuation, details, request):
        call = await continuation(details, request)
        await call
        return call

    async def raises(continuation, details, request):
        raise RuntimeError("of an interceptor")

    async def of(call):
        return await end_of(call, details=False), call.done(), call.cancelled()

    async def case(channel):
        missing = channel.unary_unary("/none.None/None")(b"", timeout=SECONDS)
        told = []
        missing.add_done_callback(lambda call: told.append(call is missing))
        found = [await of(missing), await missing.code()]
        late = channel.unary_unary(ECHO)(message(delay_ms=30_000), timeout=0.2)
        found.append(await of(late))
        found.append(await of(channel.stream_unary(INPUT)([], timeout=SECONDS)))
        await asyncio.sleep(0)
        return found, told

    chain = [interceptor("unary_unary", awaits), interceptor("stream_unary", raises)]
    found, told = compare_aio(case, server.address, interceptors=chain)
    assert found[1] is CODE.UNIMPLEMENTED and found[2][0][0] is CODE.DEADLINE_EXCEEDED
    assert found[3][0] is RuntimeError and told == [True]


@pytest.mark.parametrize("where", ["in the interceptor", "in the call"])
def test_an_intercepted_call_is_cancelled(server, where):
    async def waits(continuation, details, request):
        if where == "in the interceptor":
            await asyncio.sleep(60)
        return await continuation(details, request)

    async def case(channel):
        found = []
        for by in ("task", "call"):
            call = channel.unary_unary(ECHO)(message(delay_ms=30_000))

            async def wait(call=call):
                return await call

            task = asyncio.ensure_future(wait())
            await asyncio.sleep(0.1)
            found.append((task if by == "task" else call).cancel())
            found.append(await end_of(task))
            found.append((call.cancelled(), call.done(), await call.code(), call.cancel()))
            with pytest.raises(asyncio.CancelledError):
                await call
        return found

    found = compare_aio(case, server.address, interceptors=[interceptor("unary_unary", waits)])
    assert found[2] == (True, True, CODE.CANCELLED, False)


@pytest.mark.parametrize("module", MODULES.values(), ids=MODULES)
def test_close_ends_calls_whose_interceptors_wait(server, module):
    waiting = []

    async def waits(continuation, details, request):
        waiting.append(request)
        if len(waiting) == 1:
            await asyncio.sleep(60)
        return await continuation(details, request)

    async def main():
        channel = module.insecure_channel(
            server.address, interceptors=[interceptor("unary_unary", waits)]
        )
        call = channel.unary_unary(ECHO)(message())
        await asyncio.sleep(0.05)
        await channel.close()
        assert await end_of(call) == "cancelled"
        late = channel.unary_unary(ECHO)(message())
        with pytest.raises(grpc.aio.UsageError):
            await late

    asyncio.run(main())


def test_what_is_no_interceptor_is_refused(server):
    for module in MODULES.values():

        async def main(module=module):
            module.insecure_channel(server.address, interceptors=[object()])

        with pytest.raises(ValueError, match="UnaryUnaryClientInterceptor"):
            asyncio.run(main())


def test_an_interceptor_of_several_kinds_is_one_of_the_first(server):
    seen = []

    async def intercept(continuation, details, request):
        seen.append(details.method)
        return await continuation(details, request)

    kinds = {f"intercept_{kind}": lambda self, *words: intercept(*words) for kind in BASES}
    both = type("Both", tuple(BASES.values()), kinds)()

    async def case(channel):
        seen.clear()
        await call_all(channel)
        return list(seen)

    assert compare_aio(case, server.address, interceptors=[both]) == [ECHO.encode()]


def test_intercepted_calls_that_are_dropped_are_cancelled_and_forgotten(server):
    async def passes(continuation, details, request):
        return await continuation(details, request)

    async def case(channel):
        for _ in range(20):
            channel.unary_unary(ECHO)(message(delay_ms=30_000))
            call = channel.stream_stream(STREAM)([message()])
            await call.read()
            del call
            await asyncio.sleep(0)
        for _ in range(3):
            gc.collect()
            await asyncio.sleep(0.05)
        return len(channel._running.calls)

    chain = each_kind(passes)
    assert run_aio(case, pelton_grpc.aio, server.address, interceptors=chain) == 0


WITHOUT_GRPCIO = """
import asyncio, sys
sys.modules["grpc"] = None
from pelton_grpc import aio

class Sees(aio.UnaryUnaryClientInterceptor):
    async def intercept_unary_unary(self, continuation, details, request):
        sent = aio.Metadata(*details.metadata, ("x-grpc-test-echo-initial", "a"))
        return await continuation(details._replace(metadata=sent), request)

async def main():
    async with aio.insecure_channel(sys.argv[1], interceptors=[Sees()]) as channel:
        call = channel.unary_unary("/grpc.testing.TestService/UnaryCall")(b"", timeout=30)
        await call
        print(("x-grpc-test-echo-initial", "a") in await call.initial_metadata())
        try:
            await channel.unary_unary("/none.None/None")(b"", timeout=30)
        except aio.AioRpcError as error:
            print(error.code().name)
        stream = channel.stream_stream("/pelton.v1.Echo/Stream")()
        await stream.wait_for_connection()
        await stream.write(b"")
        await stream.done_writing()
        print(await stream.read(), await stream.read() is aio.EOF)

asyncio.run(main())
"""


def test_without_grpcio_there_are_classes_of_the_same_names(server):
    words = [sys.executable, "-c", WITHOUT_GRPCIO, server.address]
    done = subprocess.run(words, capture_output=True, text=True, timeout=2 * SECONDS)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["True", "UNIMPLEMENTED", "b'' True"]
