"""What no honest client of baidu_std or SRPC does: behaviours for `attackers.py`.

The calls are the unary ones that are found by reflection, with the same requests as over HTTP/2.
"""

import socket
import time

from framed_client import call_frame, gzip, srpc_frame

ECHO = ("example.EchoService", "Echo")
BENCHMARK = ("BenchmarkPB", "echo_pb")
# Of the calls that are sent in one go.
WRITTEN_BYTES = 1 << 20
GZIP = 2


class FramedStock:
    """Frames of whole calls that were made ready, but for their correlation ids."""

    def __init__(self, stock, rng):
        self.rng = rng
        self.calls = []
        for method, _, body in stock.calls:
            if not method.client_streaming and not method.server_streaming:
                service, name = method.path[1:].split("/")
                # Behind the prefix of a message of gRPC.
                self.calls.append((service, name, body[5:]))

    def one(self, number, call=None):
        service, method, body = call or self.rng.choice(self.calls)
        drawn = self.rng.random()
        if drawn < 0.1:
            service, method = ECHO
            return call_frame(service, method, b"\x0a\x01x", bytes(50_000), correlation_id=number)
        meta = {"correlation_id": number}
        if drawn < 0.2:
            body, meta["compress"] = gzip(body), GZIP
        elif drawn < 0.3:
            meta["timeout_ms"] = self.rng.choice([1, 5, 1_000, 60_000])
        elif drawn < 0.35:
            # Nobody can answer that.
            service = self.rng.choice(["nowhere", "", service.rsplit(".", 1)[-1]])
        return call_frame(service, method, body, **meta)

    def many(self, count, call=None):
        pieces, size = [], 0
        for number in range(1, count + 1):
            pieces.append(self.one(number, call))
            size += len(pieces[-1])
            if size > WRITTEN_BYTES:
                break
        return b"".join(pieces)

    def srpc(self, body=b"\x0a\x04data"):
        service, method = BENCHMARK
        if self.rng.random() < 0.5:
            service, method, body = self.rng.choice(self.calls)
        return srpc_frame(service, method, body)


async def framed_unread(world, peer):
    """Asks and reads nothing."""
    await peer.send(world.framed.many(world.rng.choice([1, 20, 200, 1_000])))
    await world.rest(0.5, 4)


async def framed_the_same_again(world, peer):
    """One call many times, all of them unread: what is bounded for each call adds up."""
    call = world.rng.choice([one for one in world.framed.calls if len(one[2]) < 1_000])
    await peer.send(world.framed.many(world.rng.choice([300, 1_000]), call))
    await world.rest(0.5, 4)


async def framed_slow_reader(world, peer):
    """Reads one byte at a time."""
    await peer.send(world.framed.many(world.rng.choice([1, 20, 100])))
    for _ in range(world.rng.choice([30, 300])):
        if world.is_over() or await peer.receive(1, 0.5) == b"":
            return
        await world.rest(0.01, 0.01)


async def framed_slow_writer(world, peer):
    """Writes one byte at a time."""
    data = world.framed.many(3)[:2_000]
    for at in range(min(len(data), world.rng.choice([50, 500]))):
        if world.is_over() or not await peer.send(data[at : at + 1]):
            return
        await world.rest(0.005, 0.005)


async def framed_half_frame(world, peer):
    """Some whole calls, and a part of one that never ends; sometimes the side is ended there."""
    last = world.framed.one(1)
    whole = world.framed.many(world.rng.choice([0, 1, 20]))
    await peer.send(whole + last[: world.rng.randrange(1, len(last))])
    if world.rng.random() < 0.3:
        peer.socket.shutdown(socket.SHUT_WR)
    await world.rest(0.5, 4)


async def framed_closed_at_once(world, peer):
    await peer.send(world.framed.many(world.rng.choice([1, 50, 300])))


async def framed_large_half(world, peer):
    """The head of a request near the largest, and a part of its body."""
    frame = call_frame("pelton.v1.KeyValue", "Put", bytes(3_900_000))
    await peer.send(frame[: world.rng.choice([100, 60_000, 2_000_000])])
    await world.rest(0.5, 4)


async def framed_malformed(world, peer):
    """Frames with bytes that were changed, amid whole ones."""
    data = bytearray(world.framed.many(world.rng.choice([1, 5, 50])))
    for _ in range(world.rng.choice([1, 3, 10])):
        data[world.rng.randrange(min(len(data), 5_000))] = world.rng.randrange(256)
    await peer.send(bytes(data))
    await peer.receive()
    await world.rest(0.1, 2)


async def framed_reads_all(world, peer):
    """An ordinary client, but for what it asks for."""
    await peer.send(world.framed.many(world.rng.choice([1, 5, 20])))
    end = time.monotonic() + 3
    while not world.is_over() and time.monotonic() < end:
        if await peer.receive(seconds=0.3) in (None, b""):
            return


async def srpc_unread(world, peer):
    """Pipelines what SRPC does not pipeline, or asks once; and reads nothing."""
    for _ in range(world.rng.choice([1, 1, 3, 100])):
        if not await peer.send(world.framed.srpc()):
            break
    await world.rest(0.5, 4)


async def srpc_one_by_one(world, peer):
    for _ in range(world.rng.choice([1, 10, 100])):
        if world.is_over() or not await peer.send(world.framed.srpc()):
            return
        if await peer.receive() in (None, b""):
            return


FRAMED_BEHAVIOURS = [
    framed_unread,
    framed_the_same_again,
    framed_slow_reader,
    framed_slow_writer,
    framed_half_frame,
    framed_closed_at_once,
    framed_large_half,
    framed_malformed,
    framed_reads_all,
    srpc_unread,
    srpc_one_by_one,
]
