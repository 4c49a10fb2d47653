"""Calls of asyncio over `pelton_grpc.aio`, compared with the channel of grpc.aio."""

import asyncio
import gc

import grpc
import pelton_grpc.aio
import pytest
from both import MODULES, SECONDS, pairs, run_aio
from both import compare_aio as compare
from pelton.v1 import echo_pb2, echo_pb2_grpc, kv_pb2_grpc
from pelton.v1 import kv_pb2 as pb

BOTH = pytest.mark.parametrize("module", MODULES.values(), ids=MODULES)
ECHO = "/pelton.v1.Echo/Unary"


def echo_of(channel):
    return echo_pb2_grpc.EchoStub(channel)


def request(payload=b"a", **fields):
    return echo_pb2.EchoRequest(payload=payload, **fields)


async def of_call(call):
    return (
        await call.code(),
        await call.details(),
        pairs(await call.initial_metadata()),
        pairs(await call.trailing_metadata()),
        call.done(),
        call.cancelled(),
    )


async def failure(waited, details=True):
    try:
        return await waited
    except grpc.aio.AioRpcError as error:
        text = error.details() if details else bool(error.details())
        metadata = pairs(error.initial_metadata()), pairs(error.trailing_metadata())
        return error.code(), text, *metadata


def test_unary_calls(server):
    async def case(channel):
        call = echo_of(channel).Unary(request(), timeout=SECONDS)
        assert isinstance(call, grpc.aio.UnaryUnaryCall)
        called = []
        call.add_done_callback(called.append)
        answers = [(await call).payload, (await call).payload]
        missing = channel.unary_unary("/none.None/None")(b"", timeout=SECONDS)
        failed = await failure(missing)
        await asyncio.sleep(0)
        return answers, await of_call(call), called == [call], failed, await of_call(missing)

    found = compare(case, server.address)
    assert found[0] == [b"a", b"a"] and found[3][0] is grpc.StatusCode.UNIMPLEMENTED


def test_many_at_once(server):
    async def case(channel):
        unary = echo_of(channel).Unary
        calls = [unary(request(b"%d" % number), timeout=SECONDS) for number in range(500)]
        return [answer.payload for answer in await asyncio.gather(*calls)]

    assert compare(case, server.address) == [b"%d" % number for number in range(500)]


def test_a_deadline(server):
    async def case(channel):
        call = echo_of(channel).Unary(request(delay_ms=30_000), timeout=0.1)
        stream = echo_of(channel).Stream(iter([request(delay_ms=30_000)]), timeout=0.1)
        return (await failure(call, False))[0], (await failure(stream.read(), False))[0]

    assert compare(case, server.address) == (grpc.StatusCode.DEADLINE_EXCEEDED,) * 2


def test_a_call_is_cancelled_with_its_task_and_by_itself(server):
    async def case(channel):
        found = []
        for ends in ("task", "call"):
            call = echo_of(channel).Unary(request(delay_ms=30_000))

            async def wait(call=call):
                return await call

            task = asyncio.ensure_future(wait())
            await asyncio.sleep(0.05)
            found.append((task if ends == "task" else call).cancel())
            with pytest.raises(asyncio.CancelledError):
                await task
            found.append((call.cancelled(), call.done(), await call.code(), call.cancel()))
        return found

    assert compare(case, server.address)[1][2] is grpc.StatusCode.CANCELLED


def test_a_server_streams(server, prefix):
    async def case(channel):
        kv = kv_pb2_grpc.KeyValueStub(channel)
        for number in range(40):
            await kv.Put(pb.PutRequest(key=prefix + b"%03d" % number, value=bytes(50_000)))
        call = kv.Scan(pb.ScanRequest(prefix=prefix), timeout=SECONDS)
        keys = [entry.key async for page in call for entry in page.entries]
        other, read = kv.Scan(pb.ScanRequest(prefix=prefix), timeout=SECONDS), []
        while (page := await other.read()) is not grpc.aio.EOF:
            read += [entry.key for entry in page.entries]
        return keys, keys == read, await of_call(call), await other.read() is grpc.aio.EOF

    assert len(compare(case, server.address)[0]) == 40


def test_both_sides_stream(server):
    async def case(channel):
        async def asynchronous():
            for number in range(100):
                yield request(b"%d" % number)
                if number % 10 == 0:
                    await asyncio.sleep(0)

        found = []
        plain = [request(b"%d" % number) for number in range(100)]
        for requests in (plain, iter(plain), asynchronous()):
            call = echo_of(channel).Stream(requests, timeout=SECONDS)
            found.append([answer.payload async for answer in call])
        written = echo_of(channel).Stream(timeout=SECONDS)
        for number in range(20):
            await written.write(request(b"%d" % number))
            found.append((await written.read()).payload)
        await written.done_writing()
        return found, await written.read() is grpc.aio.EOF, await of_call(written)

    assert len(compare(case, server.address)[0]) == 23


def test_a_client_streams(server):
    async def case(channel):
        call = channel.stream_unary("/grpc.testing.TestService/StreamingInputCall")
        iterated = call(iter([b"\x0a\x05\x12\x03abc"] * 3), timeout=SECONDS)
        written = call(timeout=SECONDS)
        await written.write(b"\x0a\x05\x12\x03abc")
        await written.done_writing()
        missing = channel.stream_unary("/none.None/None")(iter([b""]), timeout=SECONDS)
        return await iterated, await of_call(iterated), await written, (await failure(missing))[0]

    assert compare(case, server.address)[0] == b"\x08\x09"


def test_metadata_both_ways_and_before_the_first_message(server):
    sent = (("x-grpc-test-echo-initial", "a"), ("x-grpc-test-echo-trailing-bin", b"\0\1"))

    async def case(channel):
        stream = channel.stream_stream("/grpc.testing.TestService/FullDuplexCall")
        call = stream(metadata=sent, timeout=SECONDS)
        await call.write(b"\x12\x02\x08\x01")
        initial = pairs(await call.initial_metadata())
        await call.done_writing()
        messages = [message async for message in call]
        return initial, len(messages), pairs(await call.trailing_metadata())

    assert compare(case, server.address) == ([sent[0]], 1, [sent[1]])


def test_a_stream_that_is_cancelled_and_one_whose_iterator_raises(server):
    async def case(channel):
        call = echo_of(channel).Stream()
        await call.write(request())
        first = (await call.read()).payload
        cancelled = call.cancel(), call.cancel(), await call.code()
        with pytest.raises(asyncio.CancelledError):
            await call.read()

        async def never():
            yield request()
            await asyncio.sleep(60)

        dropped = echo_of(channel).Stream(never())
        await dropped.read()
        reading = asyncio.ensure_future(dropped.read())
        await asyncio.sleep(0.05)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        return first, cancelled, await dropped.code()

    assert compare(case, server.address)[2] is grpc.StatusCode.CANCELLED


def test_backpressure(server):
    async def case(channel):
        call = echo_of(channel).Stream(timeout=SECONDS)
        written = 0

        async def write():
            nonlocal written
            for _ in range(300):
                await call.write(request(bytes(100_000)))
                written += 1
            await call.done_writing()

        writing = asyncio.ensure_future(write())
        await asyncio.sleep(0.5)
        stands = written < 300
        sizes = [len(answer.payload) async for answer in call]
        await writing
        return stands, sizes == [100_000] * 300

    assert compare(case, server.address) == (True, True)


@BOTH
def test_a_closed_channel_and_no_server(server, module):
    async def main():
        channel = module.insecure_channel(server.address)
        await asyncio.wait_for(channel.channel_ready(), SECONDS)
        assert channel.get_state() is grpc.ChannelConnectivity.READY
        unary = echo_of(channel).Unary
        running = unary(request(delay_ms=30_000))
        await asyncio.sleep(0.1)
        await channel.close()
        assert await running.code() is grpc.StatusCode.CANCELLED
        with pytest.raises(grpc.aio.UsageError):
            await unary(request())
        async with module.insecure_channel("127.0.0.1:1") as nowhere:
            found = await failure(echo_of(nowhere).Unary(request(), timeout=SECONDS), False)
            assert found[0] is grpc.StatusCode.UNAVAILABLE

    asyncio.run(main())


def test_loops_one_after_the_other_leave_nothing(server):
    import os

    async def case(channel):
        return (await echo_of(channel).Unary(request(), timeout=SECONDS)).payload

    for _ in range(3):
        run_aio(case, pelton_grpc.aio, server.address)
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        assert run_aio(case, pelton_grpc.aio, server.address) == b"a"
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before + 4


def test_calls_that_are_dropped_are_cancelled_and_forgotten(server):
    async def case(channel):
        from pelton_grpc._aio_loop import loop_queue

        for _ in range(50):
            echo_of(channel).Unary(request(delay_ms=30_000))
            call = echo_of(channel).Stream(iter([request()]))
            await call.read()
            del call
        gc.collect()
        await echo_of(channel).Unary(request(), timeout=SECONDS)
        await asyncio.sleep(0.1)
        gc.collect()
        return len(loop_queue()._waiting)

    assert run_aio(case, pelton_grpc.aio, server.address) < 5


def test_what_one_raises_leaves_the_others_of_a_queue_awake():
    async def main():
        from pelton_grpc._aio_loop import LoopQueue

        queue, told = LoopQueue(asyncio.get_running_loop()), []

        def raises():
            raise RuntimeError("of one")

        for _ in range(2):
            names = [queue.name(raises), queue.name(lambda: told.append(1)), queue.name(raises)]
            names.append(queue.name(lambda: told.append(2)))
            with pytest.raises(RuntimeError):
                queue._run_all(names)
            # What is left raises too, and what follows that is told all the same.
            asyncio.get_running_loop().set_exception_handler(lambda *_: None)
            for _ in range(3):
                await asyncio.sleep(0)
            assert told == [1, 2]
            told.clear()

    asyncio.run(main())
