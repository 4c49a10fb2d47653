"""How calls of asyncio begin and end, and those that cannot, compared with the channel of
grpc.aio."""

import asyncio
import gc
from concurrent import futures

import grpc
import pelton_grpc.aio
import pytest
from both import MODULES, SECONDS, compare_aio, end_of, run_aio
from pelton.v1 import echo_pb2, echo_pb2_grpc

BOTH = pytest.mark.parametrize("module", MODULES.values(), ids=MODULES)
CODE = grpc.StatusCode
MISSING = "/none.None/None"


def echo_of(channel):
    return echo_pb2_grpc.EchoStub(channel)


def request(payload=b"a", **fields):
    return echo_pb2.EchoRequest(payload=payload, **fields)


def test_a_connection_is_waited_for(server):
    async def case(channel):
        found = []
        # Nothing was sent yet, so the server has not responded.
        stream = echo_of(channel).Stream(timeout=SECONDS)
        await stream.wait_for_connection()
        found.append(stream.done())
        upload = channel.stream_unary("/grpc.testing.TestService/StreamingInputCall")()
        await upload.wait_for_connection()
        found.append(upload.done())
        unary = echo_of(channel).Unary(request(), timeout=SECONDS)
        await unary.wait_for_connection()
        found.append(unary.done())
        missing = channel.unary_unary(MISSING)(b"", timeout=SECONDS)
        found.append(await end_of(missing.wait_for_connection()))
        missing = channel.unary_stream(MISSING)(b"", timeout=SECONDS)
        found.append(await end_of(missing.wait_for_connection()))
        return found

    found = compare_aio(case, server.address)
    assert found[:3] == [False, False, True] and found[3][0] is CODE.UNIMPLEMENTED


def test_no_connection_is_raised(server):
    async def case(channel):
        calls = [
            channel.unary_unary(MISSING)(b"", timeout=SECONDS),
            channel.unary_stream(MISSING)(b"", timeout=SECONDS),
            channel.stream_unary(MISSING)(timeout=SECONDS),
            channel.stream_stream(MISSING)(timeout=SECONDS),
        ]
        return [await end_of(call.wait_for_connection(), details=False) for call in calls]

    assert compare_aio(case, "127.0.0.1:1") == [(CODE.UNAVAILABLE, True)] * 4


def test_the_initial_metadata_of_a_unary_call_come_with_its_end(server):
    async def case(channel):
        call = echo_of(channel).Unary(request(delay_ms=100), timeout=SECONDS)
        await call.initial_metadata()
        return call.done()

    assert compare_aio(case, server.address) is True


def test_a_request_that_is_not_bytes(server):
    async def case(channel):
        found = []
        for kind in ("unary_unary", "unary_stream"):
            call = getattr(channel, kind)("/pelton.v1.Echo/Unary")("text", timeout=SECONDS)
            found.append(await end_of(call if kind == "unary_unary" else call.read()))
        for kind in ("stream_unary", "stream_stream"):
            written = getattr(channel, kind)("/pelton.v1.Echo/Stream")(timeout=SECONDS)
            found.append(await end_of(written.write("text")))
            fed = getattr(channel, kind)("/pelton.v1.Echo/Stream")(["text"], timeout=SECONDS)
            found.append(await fed.code())
        return found

    found = compare_aio(case, server.address)
    assert found == [TypeError] * 3 + [CODE.CANCELLED, TypeError, CODE.CANCELLED]


def test_what_cannot_be_encoded_is_raised_where_the_call_is_waited_for(server):
    def fails(_):
        raise RuntimeError("of a serializer")

    async def main(channel):
        found = []
        for kind in ("unary_unary", "unary_stream"):
            method = getattr(channel, kind)("/pelton.v1.Echo/Unary", request_serializer=fails)
            call = method(b"", timeout=SECONDS)
            found.append(await end_of(call if kind == "unary_unary" else call.read()))
        return found

    # grpc.aio raises a TypeError of its own.
    assert (
        run_aio(main, pelton_grpc.aio, server.address)
        == [(CODE.INTERNAL, "Exception serializing request!")] * 2
    )


@pytest.fixture(scope="module")
def responding():
    """A server with a stream of as many responses as the request has bytes."""

    def respond(requests, _):
        for _ in range(sum(len(request) for request in requests)):
            yield b"r"

    class Any(grpc.GenericRpcHandler):
        def service(self, details):
            return grpc.stream_stream_rpc_method_handler(respond)

    server = grpc.server(futures.ThreadPoolExecutor(4), handlers=[Any()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(0)


def test_one_response_for_a_stream_of_requests(responding):
    async def case(channel):
        call = channel.stream_unary("/any/Any")([b"1"], timeout=SECONDS)
        return await end_of(call), await call.code()

    assert compare_aio(case, responding) == (("returned", b"r"), CODE.OK)


@pytest.mark.parametrize("count", [0, 2, 3])
def test_another_number_of_responses_is_an_error(responding, count):
    """With grpc.aio none is `None`, and with several the call goes on until its deadline."""

    async def case(channel):
        found = []
        for kind, requests in (("stream_unary", [bytes(count)]), ("unary_unary", bytes(count))):
            call = getattr(channel, kind)("/any/Any")(requests, timeout=SECONDS)
            found += [await end_of(call), await end_of(call), await call.code()]
        return found

    words = "no message" if count == 0 else "more than one message"
    error = CODE.INTERNAL, f"the answer makes no sense: it has {words}"
    assert run_aio(case, pelton_grpc.aio, responding) == [error, error, CODE.INTERNAL] * 2


@pytest.mark.parametrize("kind", ["stream_unary", "stream_stream"])
def test_an_iterator_of_requests_that_raises_cancels_the_call(server, kind):
    def plain():
        yield request().SerializeToString()
        raise RuntimeError("of an iterator")

    async def asynchronous():
        yield request().SerializeToString()
        raise RuntimeError("of an iterator")

    async def case(channel):
        found = []
        for requests in (plain(), asynchronous()):
            call = getattr(channel, kind)("/pelton.v1.Echo/Stream")(requests, timeout=SECONDS)
            found.append((await call.code(), await call.details(), call.cancelled()))
            found.append(await end_of(call if kind == "stream_unary" else call.read()))
        return found

    found = compare_aio(case, server.address)
    assert found[0][0] is CODE.CANCELLED and found[1] == "cancelled"


def test_waiters_that_are_cancelled_leave_nothing(server):
    async def case(channel):
        unary = echo_of(channel).Unary(request(delay_ms=30_000))
        stream = echo_of(channel).Stream()
        for wait in (unary.code, stream.code, stream.initial_metadata):
            for _ in range(100):
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(wait(), 0.0001)
        await asyncio.sleep(0)
        left = len(unary._waiters), len(stream._waiters), len(stream._received)
        assert not stream.done() and not unary.done()
        return left

    assert run_aio(case, pelton_grpc.aio, server.address) == (0, 0, 0)


def test_loops_in_turns_have_one_queue_each(server):
    from pelton_grpc._aio_loop import loop_queue

    loops = [asyncio.new_event_loop() for _ in range(2)]

    async def call():
        async with pelton_grpc.aio.insecure_channel(server.address) as channel:
            await echo_of(channel).Unary(request(), timeout=SECONDS)
        return loop_queue()

    queues = [[loop.run_until_complete(call()) for loop in loops] for _ in range(3)]
    assert queues[0] == queues[1] == queues[2] and queues[0][0] is not queues[0][1]
    for loop in loops:
        loop.close()


@BOTH
def test_a_closed_channel_does_not_become_ready(server, module):
    async def main():
        channel = module.insecure_channel("127.0.0.1:1")
        waiting = asyncio.ensure_future(channel.channel_ready())
        await asyncio.sleep(0.2)
        await channel.close()
        for waits in (waiting, channel.channel_ready()):
            with pytest.raises(grpc.aio.UsageError):
                await asyncio.wait_for(waits, SECONDS)
        await channel.close()

    asyncio.run(main())


@BOTH
def test_calls_have_the_grace_of_close(server, module):
    async def main():
        channel = module.insecure_channel(server.address)
        unary = echo_of(channel).Unary
        await unary(request(), timeout=SECONDS)
        short, long = unary(request(delay_ms=300)), unary(request(delay_ms=30_000))
        stream = echo_of(channel).Stream()
        await stream.write(request())
        assert (await stream.read()).payload == b"a"
        closing = asyncio.ensure_future(channel.close(grace=2.0))
        await asyncio.sleep(0.05)
        with pytest.raises(grpc.aio.UsageError):
            await unary(request())
        # What runs goes on meanwhile.
        await stream.write(request(b"b"))
        assert (await stream.read()).payload == b"b"
        assert (await short).payload == b"a" and not closing.done()
        await closing
        found = await end_of(long), await long.code(), await long.details(), long.cancelled()
        assert found == ("cancelled", CODE.CANCELLED, "Locally cancelled by application!", True)
        assert await stream.code() is CODE.CANCELLED

    asyncio.run(main())


@BOTH
def test_close_does_not_use_up_its_grace(server, module):
    async def main():
        channel = module.insecure_channel(server.address)
        call = echo_of(channel).Unary(request(delay_ms=100))
        await asyncio.wait_for(channel.close(grace=1000.0), SECONDS)
        assert (await call).payload == b"a"
        with pytest.raises(ValueError):
            await module.insecure_channel(server.address).close(grace=-1.0)

    asyncio.run(main())


def test_calls_that_have_ended_are_forgotten(server):
    async def case(channel):
        echo = echo_of(channel)
        for _ in range(20):
            await echo.Unary(request(), timeout=SECONDS)
            cancelled = echo.Stream()
            cancelled.cancel()
            dropped = echo.Unary(request(delay_ms=30_000))
            del dropped
        gc.collect()
        return len(channel._running.calls)

    assert run_aio(case, pelton_grpc.aio, server.address) == 0


def test_a_stream_that_is_dropped_while_a_request_waits_for_room_is_cancelled(server):
    async def case(channel):
        taken = []

        async def many():
            while True:
                taken.append(None)
                yield request(bytes(100_000), delay_ms=30_000)

        call = echo_of(channel).Stream(many())
        before = -1
        while before != len(taken) or not taken:
            before = len(taken)
            await asyncio.sleep(0.2)
        del call
        for _ in range(3):
            gc.collect()
            await asyncio.sleep(0.05)
        tasks = [task for task in asyncio.all_tasks() if "feed" in repr(task)]
        return len(channel._running.calls), tasks

    assert run_aio(case, pelton_grpc.aio, server.address) == (0, [])
