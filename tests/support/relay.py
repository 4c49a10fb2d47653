"""A relay that spoils connections: it cuts, delays and damages what goes through it.

What happens to a connection is told by the seed and the connection's number, at places counted in
bytes; so a seed repeats it, but for the sizes in which the kernel hands bytes over. Loopback only.
"""

import contextlib
import dataclasses
import random
import socket
import struct
import threading
import time

READ_BYTES = 64 * 1024
PREFACE_BYTES = 24
FRAME_HEAD_BYTES = 9
MESSAGE_HEAD_BYTES = 5
PADDED = 0x8

# Smaller messages are no chunks: nobody would notice that a name was damaged on the way.
CHUNK_BYTES_MIN = 2000

# What stands before and behind the content in the message of a chunk: the description, tags, the
# checksum.
BEFORE_CONTENT_BYTES = 400
BEHIND_CONTENT_BYTES = 16


@dataclasses.dataclass(frozen=True)
class Faults:
    """What a relay does. Bytes are means: what lies between two faults is drawn anew each time."""

    # Connections are cut after so many bytes, at most so many of them.
    cut_bytes: int = 0
    cuts: int = 0
    # How many of the cuts are resets, as a share: what the peer has not read by then is lost to it.
    resets: float = 0.5
    # What was read is held back for up to this time, and goes on in pieces.
    delay_seconds: float = 0.0
    # One bit is turned after so many bytes, at most so often.
    damage_bytes: int = 0
    damages: int = 0
    # Where: "content": what chunks carry, "chunks": anywhere in their messages, "stream": anywhere,
    # for TLS.
    where: str = "content"
    # How far a distance may be from its mean, as a share of it.
    spread: float = 1.0


class Relay:
    """Use it in a `with` block; `address` is where it listens."""

    def __init__(self, target, seed, faults):
        print(f"relay: seed {seed!r}, {faults}")
        host, port = target.rsplit(":", 1)
        self.target = (host, int(port))
        self.seed, self.faults = seed, faults
        self.cuts = self.damages = self.connections = 0
        # Bytes that went through, by direction.
        self.carried = {"up": 0, "down": 0}
        self.lock = threading.Lock()
        self.sockets, self.threads = set(), []
        self.is_over = False
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.accepting = threading.Thread(target=self._accept, daemon=True)
        self.accepting.start()

    def retarget(self, target):
        """New connections go elsewhere: a server that was started anew."""
        host, port = target.rsplit(":", 1)
        self.target = (host, int(port))

    def _accept(self):
        while not self.is_over:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self.target, timeout=10)
            except OSError:
                reset_at_close(client)
                client.close()
                continue
            server.settimeout(None)
            with self.lock:
                number = self.connections
                self.connections += 1
                self.sockets |= {client, server}
            pair = Pair(client, server)
            for way, source, target in (("up", client, server), ("down", server, client)):
                source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                pump = Pump(self, pair, f"{self.seed}/{number}/{way}", way, source, target)
                thread = threading.Thread(target=pump.run, daemon=True)
                self.threads.append(thread)
                thread.start()

    def take(self, what):
        """Whether one more of these faults may happen."""
        with self.lock:
            done = getattr(self, what)
            if done >= getattr(self.faults, what):
                return False
            setattr(self, what, done + 1)
            return True

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.is_over = True
        # Wakes the thread that accepts.
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.accepting.join(10)
        for one in self.sockets:
            shut(one)
        for thread in self.threads:
            thread.join(10)


def shut(one, how=socket.SHUT_RDWR):
    with contextlib.suppress(OSError):
        one.shutdown(how)


def reset_at_close(one):
    """It will end as connections do that a machine has lost."""
    with contextlib.suppress(OSError):
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


class Pair:
    """The two sockets of a connection. The last of its two threads closes them."""

    def __init__(self, client, server):
        self.sockets = (client, server)
        self.lock = threading.Lock()
        self.threads = 2
        self.is_cut = False

    def cut(self, with_reset):
        self.is_cut = True
        for one in self.sockets:
            if with_reset:
                reset_at_close(one)
                # The other thread wakes, and closes without lingering.
                shut(one, socket.SHUT_RD)
            else:
                # The threads read on until the peers have closed, and throw it away: closing a
                # socket that holds unread bytes, or gets more of them, is a reset too, and takes
                # from the peer what it has not read yet.
                shut(one, socket.SHUT_WR)

    def leave(self):
        with self.lock:
            self.threads -= 1
            is_last = self.threads == 0
        if is_last:
            for one in self.sockets:
                one.close()


class Pump:
    """Carries the bytes of one direction."""

    def __init__(self, relay, pair, seed, way, source, target):
        self.relay, self.pair, self.way, self.source, self.target = relay, pair, way, source, target
        self.faults, self.random = relay.faults, random.Random(seed)
        self.cut_left = self._gap(self.faults.cut_bytes)
        self.damage_left = self._gap(self.faults.damage_bytes)
        self.finder = (
            EveryByte() if self.faults.where == "stream" else ChunkFinder(way, self.faults.where)
        )

    def _gap(self, mean):
        spread = self.faults.spread
        return int(self.random.uniform(mean * (1 - spread), mean * (1 + spread))) if mean else None

    def run(self):
        try:
            while data := self.source.recv(READ_BYTES):
                if not self.pair.is_cut:
                    self._forward(bytearray(data))
            if not self.pair.is_cut:
                self.target.shutdown(socket.SHUT_WR)
        except OSError:
            if not self.pair.is_cut:
                shut(self.source)
                shut(self.target)
        finally:
            self.pair.leave()

    def _forward(self, data):
        if self.damage_left is not None:
            self._damage(data)
        is_cut = self.cut_left is not None and len(data) > self.cut_left and self.relay.take("cuts")
        if is_cut:
            del data[self.cut_left :]
        elif self.cut_left is not None:
            self.cut_left = max(0, self.cut_left - len(data))
        self._send(data)
        if is_cut:
            self.pair.cut(with_reset=self.random.random() < self.faults.resets)

    def _damage(self, data):
        for begin, end in self.finder.places(bytes(data)):
            at = begin + self.damage_left
            while at < end:
                if not self.relay.take("damages"):
                    self.damage_left = None
                    return
                data[at] ^= 1 << self.random.randrange(8)
                at += 1 + self._gap(self.faults.damage_bytes)
            self.damage_left = at - end

    def _send(self, data):
        while data:
            piece = data
            if self.faults.delay_seconds and self.random.random() < 0.2:
                piece = data[: self.random.randint(1, len(data))]
                time.sleep(self.random.uniform(0, self.faults.delay_seconds))
            self.target.sendall(piece)
            with self.relay.lock:
                self.relay.carried[self.way] += len(piece)
            data = data[len(piece) :]


class EveryByte:
    """All of it, but for the greetings."""

    def __init__(self):
        self.seen = 0

    def places(self, data):
        begin = max(0, 8000 - self.seen)
        self.seen += len(data)
        return [(begin, len(data))] if begin < len(data) else []


class ChunkFinder:
    """Follows frames of HTTP/2 and messages of gRPC, and says where chunks are."""

    def __init__(self, way, where):
        self.skip = PREFACE_BYTES if way == "up" else 0
        self.where = where
        self.head = bytearray()
        self.payload_left = 0
        self.is_data, self.stream = False, 0
        self.messages = {}

    def places(self, data):
        """Ranges of `data`."""
        at, found = 0, []
        while at < len(data):
            if self.skip:
                count = min(self.skip, len(data) - at)
                self.skip -= count
            elif self.payload_left:
                count = min(self.payload_left, len(data) - at)
                if self.is_data:
                    message = self.messages.setdefault(self.stream, Message(self.where))
                    found += message.places(data[at : at + count], at)
                self.payload_left -= count
            else:
                count = min(FRAME_HEAD_BYTES - len(self.head), len(data) - at)
                self.head += data[at : at + count]
                self._begin_frame()
            at += count
        return found

    def _begin_frame(self):
        if len(self.head) < FRAME_HEAD_BYTES:
            return
        self.payload_left = int.from_bytes(self.head[:3], "big")
        # None of our clients pads.
        self.is_data = self.head[3] == 0 and not self.head[4] & PADDED
        self.stream = int.from_bytes(self.head[5:], "big")
        self.head.clear()


class Message:
    """The messages of one stream, one behind the other."""

    def __init__(self, where):
        self.where = where
        self.head = bytearray()
        self.at = self.length = 0

    def places(self, data, base):
        at, found = 0, []
        while at < len(data):
            if self.at == self.length:
                count = min(MESSAGE_HEAD_BYTES - len(self.head), len(data) - at)
                self.head += data[at : at + count]
                if len(self.head) == MESSAGE_HEAD_BYTES:
                    self.at, self.length = 0, int.from_bytes(self.head[1:], "big")
                    self.head.clear()
            else:
                count = min(self.length - self.at, len(data) - at)
                begin, end = self._eligible()
                begin, end = max(begin, self.at), min(end, self.at + count)
                if begin < end:
                    found.append((base + at + begin - self.at, base + at + end - self.at))
                self.at += count
            at += count
        return found

    def _eligible(self):
        if self.length < CHUNK_BYTES_MIN:
            return 0, 0
        if self.where == "chunks":
            return 0, self.length
        return BEFORE_CONTENT_BYTES, self.length - BEHIND_CONTENT_BYTES
