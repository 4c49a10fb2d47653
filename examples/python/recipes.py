"""A client that makes many calls at once: connections, calls in flight, deadlines, message size.

See docs/recipes.md.

    recipes.py                                   tries each recipe
    recipes.py CONNECTIONS IN-FLIGHT CALLS       measures
"""

import asyncio
import itertools
import os
import sys
import time

import grpc
from pelton.v1 import admin_pb2, admin_pb2_grpc, echo_pb2, echo_pb2_grpc, kv_pb2, kv_pb2_grpc

ADDRESS = os.environ.get("PELTON_ADDRESS", "127.0.0.1:1978")


class Pool:
    """Spreads calls over several connections, and makes only so many at a time."""

    def __init__(self, address, connections, in_flight, max_message_bytes=4 << 20):
        options = [
            # Channels with the same options share one connection otherwise.
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.max_receive_message_length", max_message_bytes),
            # Notices a peer that is gone without a word while calls wait for it.
            ("grpc.keepalive_time_ms", 30_000),
        ]
        self.channels = [grpc.aio.insecure_channel(address, options) for _ in range(connections)]
        stores = [kv_pb2_grpc.KeyValueStub(channel) for channel in self.channels]
        self.stores = itertools.cycle(stores)
        self.free = asyncio.Semaphore(in_flight)

    async def get(self, key, seconds=10.0):
        async with self.free:
            # Begins when the call does, not when it is queued.
            return await next(self.stores).Get(kv_pb2.GetRequest(key=key), timeout=seconds)

    async def close(self):
        for channel in self.channels:
            await channel.close()


async def many(pool, calls):
    """So many Gets; their latencies in seconds, sorted."""

    async def one():
        begin = time.perf_counter()
        await pool.get(b"greeting")
        return time.perf_counter() - begin

    # Tasks are made as places become free: a million of them would be a queue of their own.
    latencies, running = [], set()
    for _ in range(calls):
        if len(running) >= 1000:
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            latencies += [task.result() for task in done]
        running.add(asyncio.create_task(one()))
    latencies += await asyncio.gather(*running)
    return sorted(latencies)


async def status_of(call):
    try:
        await call
        return "OK"
    except grpc.RpcError as error:
        return error.code().name


async def try_recipes():
    pool = Pool(ADDRESS, connections=4, in_flight=64)
    store = kv_pb2_grpc.KeyValueStub(pool.channels[0])
    await store.Put(kv_pb2.PutRequest(key=b"greeting", value=b"hello"), timeout=10)
    print(len(await many(pool, 2000)), "answers")
    admin = admin_pb2_grpc.AdminStub(pool.channels[0])
    statistics = await admin.Statistics(admin_pb2.StatisticsRequest(), timeout=10)
    print(statistics.open_connections, "connections")

    echo = echo_pb2_grpc.EchoStub(pool.channels[0])
    slow = echo.Unary(echo_pb2.EchoRequest(delay_ms=10_000), timeout=0.1)
    print("no answer in 100 ms:", await status_of(slow))

    await store.Put(kv_pb2.PutRequest(key=b"large", value=bytes(5_000_000)), timeout=10)
    print("5 MB:", await status_of(pool.get(b"large")))
    await pool.close()
    pool = Pool(ADDRESS, connections=1, in_flight=64, max_message_bytes=9 << 20)
    print("5 MB with a higher limit:", await status_of(pool.get(b"large")))
    await pool.close()


async def measure(connections, in_flight, calls):
    pool = Pool(ADDRESS, connections, in_flight)
    await many(pool, 500)
    begin, cpu = time.perf_counter(), time.process_time()
    latencies = await many(pool, calls)
    seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
    await pool.close()
    p50, p99 = (latencies[int(calls * share)] * 1e6 for share in (0.5, 0.99))
    latencies = f"p50 {p50:.0f} µs, p99 {p99:.0f} µs"
    print(f"{calls / seconds:.0f} calls/s, {latencies}, {cpu / calls * 1e6:.1f} µs of CPU per call")


if __name__ == "__main__":
    asyncio.run(measure(*map(int, sys.argv[1:])) if sys.argv[1:] else try_recipes())
