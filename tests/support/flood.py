"""Clients that ask for much and take little: many calls on a connection for a few bytes each."""

import struct
import threading
import time

import grpc
from pelton.v1 import kv_pb2 as pb
from pelton.v1 import kv_pb2_grpc
from raw import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    MAX_WINDOW,
    SETTINGS,
    WINDOW_UPDATE,
    Answer,
    Connection,
    frame,
    grpc_message,
    request_block,
    settings_payload,
)
from server import open_channel

MIB = 1 << 20
# What a server may have in memory beside its limit (issue 11, "How it is proved").
BESIDE_LIMIT_BYTES = 64 * MIB
PER_CONNECTION_BYTES = 128 * 1024
CALLS_PER_WRITE = 200


class Flood(Connection):
    """One connection with many calls. Counts the bytes of answers instead of keeping them.

    `window` is what each stream of the server may send ahead; the connection's own window is as
    small as the protocol has it (65 535 bytes) unless `connection_window` opens it.
    """

    def __init__(self, address, window=0, connection_window=None, receive_buffer=None, source=None):
        settings = settings_payload(initial_window_size=window)
        super().__init__(address, settings, receive_buffer=receive_buffer, source=source)
        self.greeted = False
        self.data_bytes = 0
        if connection_window:
            grown = min(connection_window, MAX_WINDOW) - 65_535
            self.send(frame(WINDOW_UPDATE, payload=struct.pack(">I", grown)))
        deadline = time.monotonic() + 30
        while not self.greeted:
            assert time.monotonic() < deadline and not self.closed, "the server does not greet"
            self.read(1)

    def take(self, kind, flags, stream, payload):
        if kind == SETTINGS:
            self.greeted = True
        if kind == DATA:
            self.data_bytes += len(payload)
            payload = b""
        super().take(kind, flags, stream, payload)

    def calls(self, path, message, count, *fields, end=True, seconds=30):
        """Begins `count` calls with one message each, or with the bytes of `message(number)`.

        Returns their streams: fewer if the server does not read them in time.
        """
        block = request_block(path, *fields)
        make = message if callable(message) else lambda _, body=grpc_message(message): body
        streams = []
        while len(streams) < count and not self.closed:
            written = min(CALLS_PER_WRITE, count - len(streams))
            some = range(self.next_stream, self.next_stream + 2 * written, 2)
            self.next_stream += 2 * written
            at = len(streams)
            data = b"".join(
                call_frames(stream, block, make(at + number), end)
                for number, stream in enumerate(some)
            )
            for stream in some:
                self.answers[stream] = Answer()
            streams += some
            self.socket.settimeout(seconds)
            try:
                self.socket.sendall(data)
            except TimeoutError:
                break
            except OSError:
                self.closed = True
        return streams

    def poll(self, seconds=0.0):
        """Takes what has come, and what comes within the time."""
        deadline = time.monotonic() + seconds
        while not self.closed:
            came = self.read(deadline - time.monotonic())
            if not came and time.monotonic() >= deadline:
                return

    def ended(self):
        """How many calls the server has ended."""
        return sum(answer.over for answer in self.answers.values())

    def statuses(self):
        """How many calls ended with which status; a reset counts as the negative of its code."""
        counts = {}
        for answer in self.answers.values():
            if answer.over:
                status = answer.grpc_status if not answer.resets else -answer.resets[0]
                counts[status] = counts.get(status, 0) + 1
        return counts


def call_frames(stream, block, body, end):
    head = frame(HEADERS, END_HEADERS | (END_STREAM if end and not body else 0), stream, block)
    while len(body) > 16_384:
        head += frame(DATA, 0, stream, body[:16_384])
        body = body[16_384:]
    return head + (frame(DATA, END_STREAM if end else 0, stream, body) if body else b"")


class Honest(threading.Thread):
    """Ordinary clients: each call must succeed, with the right answer, without retries.

    One stays on its connection, the other makes a new one for each round: a newcomer.
    """

    def __init__(self, address, database="", call=None, metadata=()):
        super().__init__(daemon=True)
        self.address, self.database = address, database
        self.metadata = metadata
        # A call beside the usual ones: a function of the channel that raises if it fails.
        self.call = call
        self.seconds, self.failures = [], []
        self.is_over = threading.Event()
        self.rounds = 0

    def run(self):
        with open_channel(self.address) as kept:
            while not self.is_over.is_set():
                self.round(kept)
                with open_channel(self.address) as fresh:
                    self.round(fresh)
                self.rounds += 1
                time.sleep(0.005)

    def round(self, channel):
        kv = kv_pb2_grpc.KeyValueStub(channel)
        key, value = b"honest/%d" % (self.rounds % 8), b"%d" % self.rounds
        try:
            begin = time.monotonic()
            put = pb.PutRequest(database=self.database, key=key, value=value)
            kv.Put(put, timeout=30, metadata=self.metadata)
            self.seconds.append(time.monotonic() - begin)
            begin = time.monotonic()
            get = pb.GetRequest(database=self.database, key=key)
            found = kv.Get(get, timeout=30, metadata=self.metadata)
            self.seconds.append(time.monotonic() - begin)
            assert found.value == value, f"{found.value!r} is not {value!r}"
            if self.call:
                self.call(channel)
        except (grpc.RpcError, AssertionError) as failure:
            self.failures.append(failure)
            time.sleep(0.05)

    def wait_rounds(self, count, seconds=60):
        """Until so many more rounds were made."""
        wanted, deadline = self.rounds + count, time.monotonic() + seconds
        while self.rounds < wanted:
            assert time.monotonic() < deadline, f"{self.rounds} of {wanted} rounds of honest calls"
            assert len(self.failures) < 100, self.told()
            time.sleep(0.01)

    def told(self):
        texts = set()
        for one in self.failures:
            texts.add(one.details() if isinstance(one, grpc.RpcError) else str(one))
        count, rounds = len(self.failures), 2 * self.rounds
        return f"{count} of {rounds} honest rounds failed: {sorted(texts)[:5]}"

    def percentile_ms(self, percent=99):
        ordered = sorted(self.seconds) or [0.0]
        return 1000 * ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]

    def __enter__(self):
        self.start()
        self.wait_rounds(5)
        return self

    def __exit__(self, *_):
        self.is_over.set()
        self.join(70)

    def problems(self):
        print(f"p99 of {len(self.seconds)} honest calls: {self.percentile_ms():.1f} ms")
        if self.is_alive():
            return ["an honest call does not end"]
        return [self.told()] if self.failures else []


def status_bytes(process_id, name):
    """A line of /proc/PID/status, such as VmHWM (the most that was resident), in bytes."""
    with open(f"/proc/{process_id}/status") as status:
        for line in status:
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024
    raise AssertionError(f"there is no {name}: the process has ended")


def judge(server, limit_bytes, connections, honest=None):
    """The process lives, its memory was always within its bound, and honest calls succeeded."""
    code = server.process.poll()
    assert code is None, f"the server has ended ({code}):\n{server.log()}"
    peak = status_bytes(server.process.pid, "VmHWM")
    allowed = limit_bytes + BESIDE_LIMIT_BYTES + connections * PER_CONNECTION_BYTES
    if "disk" in server.process.args:
        # Sixteen threads read from the device, a piece of 4 MiB each.
        allowed += 16 * 4 * MIB
    said = f"{peak / MIB:.0f} MiB were resident, {allowed / MIB:.0f} MiB are allowed"
    print(said)
    problems = honest.problems() if honest else []
    if peak > allowed:
        problems.append(said)
    assert not problems, "; ".join(problems)
