"""The cases about compression, frame by frame: no client shows the compressed flag of each message,
nor lets its user choose it for each message."""

import gzip
import struct
import sys

import support
from support import ROOT, SECONDS_MAX, SERVICE, expect_equal

sys.path.insert(0, str(ROOT / "tests" / "support"))
import raw  # noqa: E402

MESSAGES = support.Messages()
INITIAL_WINDOW_SIZE = 0x4
FRAME_BYTES_MAX = 16384
WINDOW_BYTES = 65535
# For what the server sends: more than any case needs, so that it never waits.
OWN_WINDOW_BYTES = 1 << 24

INVALID_ARGUMENT = 3


class Connection(raw.Connection):
    """A connection that keeps to the server's windows."""

    def __init__(self, address):
        self.windows = {0: WINDOW_BYTES}
        self.stream_window = WINDOW_BYTES
        super().__init__(
            address, settings=struct.pack(">HI", INITIAL_WINDOW_SIZE, OWN_WINDOW_BYTES)
        )
        self.send(raw.frame(raw.WINDOW_UPDATE, payload=struct.pack(">I", OWN_WINDOW_BYTES)))

    def take(self, kind, flags, stream, payload):
        super().take(kind, flags, stream, payload)
        if kind == raw.WINDOW_UPDATE:
            self.windows[stream] = self.window(stream) + int.from_bytes(payload)
        elif kind == raw.SETTINGS and not flags & raw.ACK:
            for name, value in struct.iter_unpack(">HI", payload):
                if name == INITIAL_WINDOW_SIZE:
                    grown = value - self.stream_window
                    self.stream_window = value
                    for open_stream in self.windows.keys() - {0}:
                        self.windows[open_stream] += grown

    def window(self, stream):
        return self.windows.setdefault(stream, self.stream_window)

    def send_messages(self, stream, messages):
        """Sends messages as far as windows allow, and the end; stops early if the call is over."""
        data = b"".join(messages)
        while data and not self.answers[stream].over:
            room = min(self.window(0), self.window(stream), FRAME_BYTES_MAX)
            if room <= 0:
                assert self.read(SECONDS_MAX), "the server gives no window back"
                continue
            piece, data = data[:room], data[room:]
            self.windows[0] -= len(piece)
            self.windows[stream] -= len(piece)
            self.send(raw.frame(raw.DATA, 0 if data else raw.END_STREAM, stream, piece))

    def call(self, method, *messages):
        """Makes a call with these framed messages and waits for its end."""
        fields = (("grpc-encoding", "gzip"), ("grpc-accept-encoding", "identity,gzip"))
        stream, head = self.request(SERVICE + method, *fields)
        self.send(head)
        self.send_messages(stream, messages)
        return self.wait(stream, SECONDS_MAX)


def plain(message):
    return raw.grpc_message(message.SerializeToString())


def compressed(message):
    return raw.grpc_message(gzip.compress(message.SerializeToString()), compressed=1)


def received(answer, message_class):
    """The messages of an answer that ended well: whether each was compressed, and what it says."""
    expect_equal(answer.grpc_status, 0, f"status ({answer.grpc_message})")
    messages, rest = [], answer.body
    while rest:
        flag, length = struct.unpack(">BI", rest[:5])
        body, rest = rest[5 : 5 + length], rest[5 + length :]
        if flag:
            expect_equal(answer.headers.get("grpc-encoding"), "gzip", "grpc-encoding of the answer")
            body = gzip.decompress(body)
        messages.append((flag == 1, message_class.FromString(body)))
    return messages


def call(method, *messages):
    with Connection(sys.argv[1]) as connection:
        return connection.call(method, *messages)


def client_compressed_unary():
    yes, no = (
        MESSAGES.large(expect_compressed=MESSAGES.BoolValue(value=value)) for value in (True, False)
    )
    expect_equal(call("UnaryCall", plain(yes)).grpc_status, INVALID_ARGUMENT, "status of the probe")
    for request in (compressed(yes), plain(no)):
        [(_, response)] = received(call("UnaryCall", request), MESSAGES.SimpleResponse)
        expect_equal(response.payload.body == bytes(314159), True, "zeros come back")


def server_compressed_unary():
    for wanted in (True, False):
        request = MESSAGES.large(response_compressed=MESSAGES.BoolValue(value=wanted))
        [(was_compressed, response)] = received(
            call("UnaryCall", plain(request)), MESSAGES.SimpleResponse
        )
        expect_equal(was_compressed, wanted, "compressed flag")
        expect_equal(response.payload.body == bytes(314159), True, "zeros come back")


def client_compressed_streaming():
    def request(size, expect_compressed):
        return MESSAGES.StreamingInputCallRequest(
            payload=MESSAGES.payload(size),
            expect_compressed=MESSAGES.BoolValue(value=expect_compressed),
        )

    probe = call("StreamingInputCall", plain(request(27182, True)))
    expect_equal(probe.grpc_status, INVALID_ARGUMENT, "status of the probe")
    answer = call(
        "StreamingInputCall", compressed(request(27182, True)), plain(request(45904, False))
    )
    [(_, response)] = received(answer, MESSAGES.StreamingInputCallResponse)
    expect_equal(response.aggregated_payload_size, 73086, "sum")


def server_compressed_streaming():
    wanted = [(31415, True), (92653, False)]
    request = MESSAGES.StreamingOutputCallRequest(
        response_parameters=[
            MESSAGES.ResponseParameters(
                size=size, compressed=MESSAGES.BoolValue(value=is_compressed)
            )
            for size, is_compressed in wanted
        ]
    )
    responses = received(
        call("StreamingOutputCall", plain(request)), MESSAGES.StreamingOutputCallResponse
    )
    found = [(len(response.payload.body), was_compressed) for was_compressed, response in responses]
    expect_equal(found, wanted, "sizes and compressed flags")


support.run(
    "frames",
    [
        client_compressed_unary,
        server_compressed_unary,
        client_compressed_streaming,
        server_compressed_streaming,
    ],
)
