"""HTTP/2 frame by frame, for what no well-behaved client does."""

import socket
import struct
import time

import hpack

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
(
    DATA,
    HEADERS,
    PRIORITY,
    RST_STREAM,
    SETTINGS,
    PUSH_PROMISE,
    PING,
    GOAWAY,
    WINDOW_UPDATE,
    CONTINUATION,
) = range(10)
END_STREAM = ACK = 0x1
END_HEADERS = 0x4
SETTING_IDS = {
    "header_table_size": 1,
    "enable_push": 2,
    "max_concurrent_streams": 3,
    "initial_window_size": 4,
    "max_frame_size": 5,
    "max_header_list_size": 6,
}
MAX_WINDOW = (1 << 31) - 1
# Of a stream and of a connection before anything is said. RFC 9113 section 6.9.2.
FIRST_WINDOW = 65_535


def frame(kind, flags=0, stream=0, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def grpc_message(payload, compressed=0):
    return struct.pack(">BI", compressed, len(payload)) + payload


def settings_payload(**values):
    """Entries of a SETTINGS frame: `settings_payload(initial_window_size=0)`."""
    return b"".join(struct.pack(">HI", SETTING_IDS[name], value) for name, value in values.items())


def literal_block(fields):
    """A header block that uses no table (RFC 7541 section 6.2.2): its bytes fit any stream."""
    block = b""
    for name, value in fields:
        block += b"\x00" + literal_string(name.encode()) + literal_string(value.encode())
    return block


def literal_string(value):
    """RFC 7541 section 5.2, without Huffman coding."""
    length, encoded = len(value), b""
    if length < 127:
        return bytes([length]) + value
    length -= 127
    encoded = b"\x7f"
    while length >= 128:
        encoded += bytes([length % 128 + 128])
        length //= 128
    return encoded + bytes([length]) + value


def request_block(path, *fields):
    """The header block of a gRPC request, the same bytes for every stream."""
    head = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "test")]
    return literal_block([*head, ("te", "trailers"), ("content-type", "application/grpc"), *fields])


class Answer:
    """What came back on one stream."""

    def __init__(self):
        self.interim = []
        self.headers = None
        self.trailers = None
        self.body = b""
        self.ends = 0
        self.resets = []

    @property
    def over(self):
        return self.ends > 0 or bool(self.resets)

    @property
    def grpc_status(self):
        """The status of the call, `None` if there is none."""
        fields = self.trailers or self.headers or {}
        return int(fields["grpc-status"]) if "grpc-status" in fields else None

    @property
    def grpc_message(self):
        return (self.trailers or self.headers or {}).get("grpc-message", "")


class Connection:
    """One connection, greeted, whose frames the test writes itself."""

    def __init__(self, address, settings=b"", greet=True, receive_buffer=None, source=None):
        if address.startswith("unix:"):
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.connect(address.removeprefix("unix:"))
        else:
            host, port = address.rsplit(":", 1)
            self.socket = socket.socket()
            if receive_buffer:
                # Before connecting: the kernel's window follows from it.
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
            if source:
                # An address of this machine from which it comes.
                self.socket.bind((source, 0))
            self.socket.connect((host, int(port)))
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.encoder = hpack.Encoder()
        self.decoder = hpack.Decoder()
        self.answers = {}
        self.goaways = []
        self.closed = False
        self.input = b""
        self.next_stream = 1
        if greet:
            self.send(PREFACE + frame(SETTINGS, payload=settings))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    def request(self, path, *fields, method="POST", content_type="application/grpc", end=False):
        """Frames of a request's head, and its stream."""
        stream = self.next_stream
        self.next_stream += 2
        head = [(":method", method), (":scheme", "http"), (":path", path), (":authority", "test")]
        if content_type:
            head += [("te", "trailers"), ("content-type", content_type)]
        block = self.encoder.encode(head + list(fields))
        self.answers[stream] = Answer()
        return stream, frame(HEADERS, END_HEADERS | (END_STREAM if end else 0), stream, block)

    def unary(self, path, payload, *fields, **options):
        """Sends a whole unary call; its stream."""
        stream, head = self.request(path, *fields, **options)
        self.send(head + frame(DATA, END_STREAM, stream, grpc_message(payload)))
        return stream

    def get(self, path):
        """Sends a plain GET; its stream."""
        stream, head = self.request(path, method="GET", content_type=None, end=True)
        self.send(head)
        return stream

    def read(self, seconds):
        """Takes what comes within that time; false when nothing came or the connection is
        closed."""
        if self.closed:
            return False
        self.socket.settimeout(max(seconds, 0.001))
        try:
            data = self.socket.recv(1 << 20)
        except TimeoutError:
            return False
        except ConnectionResetError:
            data = b""
        if not data:
            self.closed = True
            return False
        self.input += data
        while len(self.input) >= 9:
            length = int.from_bytes(self.input[:3])
            if len(self.input) < 9 + length:
                break
            kind, flags, stream = struct.unpack(">BBI", self.input[3:9])
            payload, self.input = self.input[9 : 9 + length], self.input[9 + length :]
            self.take(kind, flags, stream, payload)
        return True

    def take(self, kind, flags, stream, payload):
        answer = self.answers.get(stream)
        if kind == HEADERS:
            assert flags & END_HEADERS, "the server splits header blocks"
            fields = dict(self.decoder.decode(payload))
            if fields.get(":status", "").startswith("1"):
                answer.interim.append(fields[":status"])
            elif answer.headers is None:
                answer.headers = fields
            else:
                assert flags & END_STREAM, "trailers that do not end the stream"
                answer.trailers = fields
        elif kind == DATA:
            answer.body += payload
        elif kind == RST_STREAM:
            answer.resets.append(int.from_bytes(payload))
        elif kind == GOAWAY:
            self.goaways.append(struct.unpack(">II", payload[:8]) + (payload[8:],))
        elif kind == SETTINGS and not flags & ACK:
            self.send_quietly(frame(SETTINGS, ACK))
        elif kind == PING and not flags & ACK:
            self.send_quietly(frame(PING, ACK, 0, payload))
        if kind in (HEADERS, DATA) and flags & END_STREAM:
            answer.ends += 1

    def send_quietly(self, data):
        try:
            self.send(data)
        except OSError:
            pass

    def wait(self, stream, seconds=30):
        """The answer on `stream`, whole."""
        answer = self.answers[stream]
        deadline = time.monotonic() + seconds
        while not answer.over:
            left = deadline - time.monotonic()
            assert left > 0 and not self.closed, (
                f"stream {stream} has not ended (connection closed: {self.closed}, GOAWAY: "
                f"{self.goaways})"
            )
            self.read(left)
        return answer

    def wait_closed(self, seconds=30):
        """Takes all that comes until the server closes."""
        deadline = time.monotonic() + seconds
        while not self.closed:
            left = deadline - time.monotonic()
            assert left > 0, "the server does not close the connection"
            self.read(left)


class PacedConnection(Connection):
    """A connection that knows how much the server's windows let it send. RFC 9113 section 6.9."""

    def __init__(self, address, **options):
        self.first_window = self.shared_window = FIRST_WINDOW
        self.windows = {}
        super().__init__(address, **options)

    def request(self, path, *fields, **options):
        stream, head = super().request(path, *fields, **options)
        self.windows[stream] = self.first_window
        return stream, head

    def room(self, stream):
        """Bytes that may be sent on the stream now."""
        return min(self.shared_window, self.windows[stream])

    def spend(self, stream, count):
        """Takes what is sent from both windows."""
        self.shared_window -= count
        self.windows[stream] -= count

    def take(self, kind, flags, stream, payload):
        if kind == WINDOW_UPDATE:
            increment = int.from_bytes(payload)
            if stream == 0:
                self.shared_window += increment
            elif stream in self.windows:
                self.windows[stream] += increment
        elif kind == SETTINGS and not flags & ACK:
            for at in range(0, len(payload), 6):
                identifier, value = struct.unpack(">HI", payload[at : at + 6])
                if identifier == SETTING_IDS["initial_window_size"]:
                    grown = value - self.first_window
                    self.windows = {one: room + grown for one, room in self.windows.items()}
                    self.first_window = value
        super().take(kind, flags, stream, payload)
