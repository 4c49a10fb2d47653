"""Clients that do whatever no honest client does, a process of its own: see `arguments`.

Each of some places holds one connection at a time, which behaves badly in one of many ways until it
is closed. All that is drawn comes from the seed; what the server makes of it depends on time too.
"""

import argparse
import asyncio
import json
import pathlib
import random
import socket
import struct
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))

import grpc  # noqa: E402
from framed_attackers import FRAMED_BEHAVIOURS, FramedStock  # noqa: E402
from methods import BLOB, discover, requests  # noqa: E402
from raw import (  # noqa: E402
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    MAX_WINDOW,
    PING,
    PREFACE,
    PRIORITY,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    frame,
    grpc_message,
    literal_block,
    request_block,
    settings_payload,
)

WINDOWS = [0, 0, 1, 100, 65_535, 1 << 20, MAX_WINDOW]
READ_BYTES = 64 * 1024
PLAIN = [
    ("GET", "/"),
    ("GET", f"/blob/{BLOB}"),
    ("GET", f"/blob/{BLOB}"),
    ("HEAD", f"/blob/{BLOB}"),
    ("PUT", "/blob/chaos/1"),
    ("DELETE", "/blob/chaos/1"),
    ("POST", "/upload"),
    ("POST", "/nowhere"),
]
# Below what the server allows: 1 000 at once, 33 a second.
RESETS_AT_ONCE = 600
RESETS_PER_SECOND = 25
CALLS_IN_STOCK = 400
# Of the calls that are sent in one go.
WRITTEN_BYTES = 1 << 20


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("--seed", required=True)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--connections", type=int, default=60)
    return parser.parse_args()


class Stock:
    """Calls that were made ready: the bytes of a head and of the messages, for any stream."""

    def __init__(self, methods, rng):
        self.rng = rng
        self.calls = []
        for _ in range(CALLS_IN_STOCK):
            method = rng.choice(methods)
            fields = []
            if rng.random() < 0.2:
                fields = [("grpc-timeout", rng.choice(["1S", "5m", "60S"]))]
            body = b"".join(grpc_message(part) for part in requests(method, rng))
            self.calls.append((method, request_block(method.path, *fields), body))

    def frames(self, stream, ends=True, part=1.0, call=None):
        """One call, drawn unless it is given; with `part` only so much of its body."""
        _, block, body = call or self.rng.choice(self.calls)
        whole = frame(HEADERS, END_HEADERS, stream, block)
        kept = body[: int(len(body) * part)]
        pieces = [kept[at : at + 16_384] for at in range(0, len(kept), 16_384)] or [b""]
        for piece in pieces[:-1]:
            whole += frame(DATA, 0, stream, piece)
        return whole + frame(DATA, END_STREAM if ends else 0, stream, pieces[-1])

    def many(self, count, first=1, **how):
        """So many calls, or fewer if their bytes are many: not this process is to be busy."""
        pieces, size = [], 0
        for stream in range(first, first + 2 * count, 2):
            pieces.append(self.frames(stream, **how))
            size += len(pieces[-1])
            if size > WRITTEN_BYTES:
                break
        return b"".join(pieces)


class Peer:
    """A connection that is not greeted yet."""

    def __init__(self, world):
        self.loop, self.rng, self.stock = asyncio.get_running_loop(), world.rng, world.stock
        self.address = world.address
        self.socket = socket.socket()
        # Not the address of the honest: what one address may have is shared by all who come from
        # it.
        self.socket.bind(("127.0.0.2", 0))
        self.socket.setblocking(False)
        if self.rng.random() < 0.4:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)

    async def connect(self):
        await asyncio.wait_for(self.loop.sock_connect(self.socket, self.address), 10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    async def send(self, data, seconds=3.0):
        """Sends what the server takes within the time; false if that was not all."""
        try:
            await asyncio.wait_for(self.loop.sock_sendall(self.socket, data), seconds)
            return True
        except TimeoutError:
            return False

    async def receive(self, count=READ_BYTES, seconds=1.0):
        """`None`: nothing came."""
        try:
            return await asyncio.wait_for(self.loop.sock_recv(self.socket, count), seconds)
        except TimeoutError:
            return None

    async def greet(self, window=None):
        window = self.rng.choice(WINDOWS) if window is None else window
        hello = PREFACE + frame(SETTINGS, payload=settings_payload(initial_window_size=window))
        if self.rng.random() < 0.6:
            grown = self.rng.choice([1, 65_535, 1 << 24, MAX_WINDOW - 65_535])
            hello += frame(WINDOW_UPDATE, payload=struct.pack(">I", grown))
        await self.send(hello)
        if await self.receive() and self.rng.random() < 0.9:
            await self.send(frame(SETTINGS, ACK))

    def close(self):
        if self.rng.random() < 0.4:
            # A reset instead of an orderly end.
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


class World:
    def __init__(self, address, rng, stock, end):
        self.address, self.rng, self.stock, self.end = address, rng, stock, end
        self.framed = FramedStock(stock, rng)
        self.counts = {}

    def is_over(self):
        return time.monotonic() >= self.end

    async def rest(self, shortest, longest):
        """Not beyond the end."""
        seconds = self.rng.uniform(shortest, longest)
        await asyncio.sleep(max(0, min(seconds, self.end - time.monotonic())))

    async def place(self):
        while not self.is_over():
            behave = self.rng.choice(BEHAVIOURS)
            counted = self.counts.setdefault(behave.__name__, [0, 0])
            counted[0] += 1
            peer = Peer(self)
            try:
                await peer.connect()
                await behave(self, peer)
            except (OSError, TimeoutError):
                # Closed by the server, as it may.
                counted[1] += 1
            finally:
                peer.close()
            await asyncio.sleep(0.01)


# Behaviours


async def unread(world, peer):
    """Asks and reads nothing."""
    await peer.greet()
    await peer.send(peer.stock.many(world.rng.choice([1, 20, 200, 1_000])))
    await world.rest(0.5, 4)


async def unread_from_many_streams(world, peer):
    await peer.greet(window=0)
    for part in range(16):
        if not await peer.send(peer.stock.many(250, first=1 + 500 * part)):
            break
    await world.rest(0.5, 3)


async def the_same_again(world, peer):
    """One call many times, all of them unread: what is bounded for each call adds up."""
    await peer.greet(window=world.rng.choice([0, 65_535]))
    call = world.rng.choice([one for one in peer.stock.calls if len(one[2]) < 1_000])
    await peer.send(peer.stock.many(world.rng.choice([300, 1_000]), call=call))
    await world.rest(0.5, 4)


async def slow_reader(world, peer):
    """Reads one byte at a time."""
    await peer.greet()
    await peer.send(peer.stock.many(world.rng.choice([1, 20, 100])))
    for _ in range(world.rng.choice([30, 300])):
        if world.is_over() or await peer.receive(1, 0.5) == b"":
            return
        await asyncio.sleep(0.01)


async def slow_writer(world, peer):
    """Writes one byte at a time."""
    hello = PREFACE + frame(SETTINGS)
    data = hello + peer.stock.many(3)[:2_000]
    begin = 0 if world.rng.random() < 0.3 else len(hello)
    await peer.send(data[:begin])
    for at in range(begin, min(len(data), begin + world.rng.choice([50, 500]))):
        if world.is_over() or not await peer.send(data[at : at + 1]):
            return
        await asyncio.sleep(0.005)


async def abandoned(world, peer):
    """Asks, ends its side and goes on holding the connection."""
    await peer.greet()
    await peer.send(peer.stock.many(world.rng.choice([1, 50])))
    if world.rng.random() < 0.5:
        peer.socket.shutdown(socket.SHUT_WR)
    await world.rest(0.5, 4)


async def half_open(world, peer):
    """Calls whose requests never end."""
    await peer.greet()
    part = world.rng.choice([0.0, 0.5, 0.9, 1.0])
    await peer.send(peer.stock.many(world.rng.choice([1, 50, 500]), ends=False, part=part))
    await world.rest(0.5, 4)


async def closed_at_once(world, peer):
    if world.rng.random() < 0.7:
        await peer.greet()
        await peer.send(peer.stock.many(world.rng.choice([1, 50, 300])))


async def resets(world, peer):
    """Begins calls and resets them, below the limits of the server."""
    await peer.greet()
    stream = 1
    code = struct.pack(">I", 8)
    for count in [world.rng.randrange(RESETS_AT_ONCE)] + [RESETS_PER_SECOND // 5] * 20:
        data = b""
        for _ in range(count):
            ends = world.rng.random() < 0.5
            data += peer.stock.frames(stream, ends=ends) + frame(RST_STREAM, 0, stream, code)
            stream += 2
        if world.is_over() or not await peer.send(data):
            return
        while await peer.receive(seconds=0.01):
            pass
        await asyncio.sleep(0.2)


async def half_frame(world, peer):
    await peer.greet()
    whole = peer.stock.many(1)
    await peer.send(whole[: world.rng.randrange(1, min(len(whole), 200))])
    await world.rest(0.5, 4)


async def silent(world, peer):
    await peer.send(PREFACE[: world.rng.randrange(len(PREFACE) + 1)])
    await world.rest(0.5, 4)


async def another_protocol(world, peer):
    first = [
        b"GET / HTTP/1.1\r\nHost: x\r\n",
        b"PRPC" + bytes(8),
        b"\x16\x03\x01\x02\0\x01",
        b"*1\r\n$4\r\nPING\r\n",
    ]
    await peer.send(world.rng.choice(first))
    await peer.receive()
    await world.rest(0.1, 1)


async def plain_requests(world, peer):
    """Requests of HTTP that are no calls: blobs that nobody reads, bodies that never end."""
    await peer.greet()
    data = b""
    for stream in range(1, 2 * world.rng.choice([2, 30, 200]), 2):
        method, path = world.rng.choice(PLAIN)
        head = [(":method", method), (":scheme", "http"), (":path", path), (":authority", "test")]
        data += frame(HEADERS, END_HEADERS, stream, literal_block(head))
        body = bytes(world.rng.choice([0, 100, 16_000])) if method in ("PUT", "POST") else b""
        ends = not body or world.rng.random() < 0.3
        data += frame(DATA, END_STREAM if ends else 0, stream, body)
    await peer.send(data)
    await world.rest(0.5, 4)


async def malformed_frames(world, peer):
    """Frames that mean nothing or are wrong, amid calls."""
    await peer.greet()
    malformed = [
        frame(PING, 0, 0, bytes(8)),
        frame(PRIORITY, 0, 5, bytes(5)),
        frame(0xEE, 0, 0, b"unknown"),
        frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 1)),
        frame(SETTINGS, 0, 0, settings_payload(initial_window_size=world.rng.choice(WINDOWS))),
        frame(DATA, 0, 1, b""),
    ]
    fatal = [
        frame(WINDOW_UPDATE, 0, 0, bytes(4)),
        frame(CONTINUATION, 0, 1, b""),
        frame(DATA, 0, 0, b"x"),
        frame(HEADERS, END_HEADERS, 2, b"\x82"),
        frame(SETTINGS, ACK, 0, b"x"),
        b"\xff" * 9,
    ]
    data = b""
    for number in range(60):
        data += peer.stock.many(1, first=1 + 2 * number) + world.rng.choice(malformed)
    if world.rng.random() < 0.5:
        data += world.rng.choice(fatal)
    await peer.send(data)
    await world.rest(0.1, 2)


async def window_by_window(world, peer):
    """Reads, but opens windows by a byte at a time, and changes its mind about their size."""
    await peer.greet(window=0)
    count = world.rng.choice([1, 20, 200])
    await peer.send(peer.stock.many(count))
    for _ in range(30):
        if world.is_over():
            return
        updates = [
            frame(WINDOW_UPDATE, 0, 1 + 2 * world.rng.randrange(count), struct.pack(">I", 1))
            for _ in range(8)
        ]
        await peer.send(b"".join(updates))
        await peer.receive(seconds=0.05)


async def reads_all(world, peer):
    """An ordinary client, but for what it asks for."""
    await peer.greet(window=MAX_WINDOW)
    await peer.send(frame(WINDOW_UPDATE, payload=struct.pack(">I", 1 << 30)))
    await peer.send(peer.stock.many(world.rng.choice([1, 5, 20])))
    seconds = time.monotonic() + 3
    while not world.is_over() and time.monotonic() < seconds:
        if await peer.receive(seconds=0.3) in (None, b""):
            return


BEHAVIOURS = [
    unread,
    unread,
    unread_from_many_streams,
    the_same_again,
    the_same_again,
    slow_reader,
    slow_writer,
    abandoned,
    half_open,
    closed_at_once,
    resets,
    half_frame,
    silent,
    another_protocol,
    plain_requests,
    malformed_frames,
    window_by_window,
    reads_all,
    *FRAMED_BEHAVIOURS,
]


async def attack(options, methods):
    rng = random.Random(options.seed)
    host, port = options.address.rsplit(":", 1)
    stock = Stock(methods, rng)
    world = World((host, int(port)), rng, stock, time.monotonic() + options.seconds)
    await asyncio.gather(*(world.place() for _ in range(options.connections)))
    return world.counts


def main():
    options = arguments()
    with grpc.insecure_channel(options.address) as channel:
        methods = discover(channel)
    counts = asyncio.run(attack(options, methods))
    print(json.dumps({"methods": len(methods), "behaviours": counts}))


if __name__ == "__main__":
    main()
