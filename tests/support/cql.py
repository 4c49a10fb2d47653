"""The little of CQL's binary protocol, version 4, that tests take: statements without values, and
their rows as bytes. It shares nothing with the driver of the program."""

import socket
import struct

ERROR, STARTUP, READY, QUERY, RESULT = 0x00, 0x01, 0x02, 0x07, 0x08
ONE = 0x0001
ROWS = 0x0002
# Of a frame: its body begins with warnings.
WARNINGS = 0x08
# Of the metadata of rows.
GLOBAL_TABLE = 0x0001
# Types of columns that have further types in them: a list, a map, a set.
LIST, MAP, SET = 0x20, 0x21, 0x22
SECONDS = 60


class CqlError(Exception):
    """What the node says."""


class CqlConnection:
    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=SECONDS)
        version = string("CQL_VERSION") + string("3.0.0")
        opcode, _ = self.call(STARTUP, struct.pack(">H", 1) + version)
        assert opcode == READY, opcode

    def query(self, statement):
        """The rows, each a tuple of bytes, or None for null. No rows: an empty list."""
        text = statement.encode()
        body = struct.pack(">i", len(text)) + text + struct.pack(">HB", ONE, 0)
        _, answer = self.call(QUERY, body)
        return rows(answer)

    def call(self, opcode, body):
        self.socket.sendall(struct.pack(">BBhBi", 4, 0, 0, opcode, len(body)) + body)
        _, flags, _, opcode, length = struct.unpack(">BBhBi", self.read(9))
        answer = self.read(length)
        if flags & WARNINGS:
            answer = without_warnings(answer)
        if opcode == ERROR:
            (size,) = struct.unpack_from(">H", answer, 4)
            raise CqlError(answer[6 : 6 + size].decode())
        return opcode, answer

    def read(self, count):
        data = b""
        while len(data) < count:
            piece = self.socket.recv(count - len(data))
            if not piece:
                raise ConnectionError("the node closed the connection")
            data += piece
        return data

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()


def string(text):
    data = text.encode()
    return struct.pack(">H", len(data)) + data


def without_warnings(answer):
    reader = Reader(answer)
    for _ in range(reader.number(">H")):
        reader.string()
    return answer[reader.at :]


def rows(answer):
    reader = Reader(answer)
    if reader.number(">i") != ROWS:
        return []
    flags, columns = reader.number(">i"), reader.number(">i")
    assert flags in (0, GLOBAL_TABLE), "one page, with its metadata"
    if flags == GLOBAL_TABLE:
        reader.string(), reader.string()
    for _ in range(columns):
        if flags != GLOBAL_TABLE:
            reader.string(), reader.string()
        reader.string()
        reader.skip_type()
    return [tuple(reader.bytes() for _ in range(columns)) for _ in range(reader.number(">i"))]


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def number(self, form):
        (value,) = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return value

    def string(self):
        return self.take(self.number(">H"))

    def bytes(self):
        length = self.number(">i")
        return None if length < 0 else self.take(length)

    def take(self, count):
        self.at += count
        return self.data[self.at - count : self.at]

    def skip_type(self):
        kind = self.number(">H")
        assert kind != 0, "no custom types"
        for _ in range({LIST: 1, SET: 1, MAP: 2}.get(kind, 0)):
            self.skip_type()
