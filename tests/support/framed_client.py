"""A client of baidu_std and of SRPC by the byte. It shares no code with the server: frames and
metadata are built here from the published layouts, and responses are taken apart field by field.
"""

import itertools
import socket
import struct
import zlib

from checksum import crc32c

# Of brpc's errno.proto.
ENOSERVICE, ENOMETHOD, EREQUEST, ERPCAUTH, ERPCTIMEDOUT = 1001, 1002, 1003, 1004, 1008
EINTERNAL, ELOGOFF, ELIMIT = 2001, 2003, 2004
# Of Linux.
EPERM = 1


def varint(number):
    """A number as protobuf has it; negative ones as 64 bits in two's complement."""
    number &= 2**64 - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def number_field(number, value):
    return b"" if value is None else varint(number << 3) + varint(value)


def bytes_field(number, value):
    if value is None:
        return b""
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def fields_of(message):
    """The fields of a message, each with a list of its values."""
    found, at = {}, 0

    def take():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        tag = take()
        value = take()
        if tag & 7 == 2:
            value, at = message[at : at + value], at + value
        else:
            assert tag & 7 == 0, f"wire type of field {tag >> 3}"
        found.setdefault(tag >> 3, []).append(value)
    return found


def last(fields, number, default=None):
    return fields.get(number, [default])[-1]


def masked_crc32c(data):
    """As brpc sends it: rotated right by 15, plus a constant, in network byte order."""
    crc = crc32c(data)
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    return struct.pack(">I", masked)


def snappy_literal(data):
    """The snappy format with literals alone: legal, and shorter than no input."""
    out = bytearray(varint(len(data)))
    for at in range(0, len(data), 60):
        part = data[at : at + 60]
        out.append((len(part) - 1) << 2)
        out += part
    return bytes(out)


def gzip(data):
    packer = zlib.compressobj(wbits=31)
    return packer.compress(data) + packer.flush()


def baidu_std_meta(
    service,
    method,
    correlation_id=1,
    attachment_size=None,
    compress=None,
    authentication=None,
    timeout_ms=None,
    checksum=None,
    content_type=None,
    log_id=None,
    user_fields=(),
    extra=b"",
):
    request = (
        bytes_field(1, service)
        + bytes_field(2, method)
        + number_field(3, log_id)
        + number_field(8, timeout_ms)
    )
    meta = (
        bytes_field(1, request)
        + number_field(3, compress)
        + number_field(4, correlation_id)
        + number_field(5, attachment_size)
        + bytes_field(7, authentication)
        + number_field(10, content_type)
    )
    for key, value in user_fields:
        meta += bytes_field(9, bytes_field(1, key) + bytes_field(2, value))
    if checksum is not None:
        meta += number_field(11, 1) + bytes_field(12, checksum)
    return meta + extra


def baidu_std_frame(meta, body=b"", attachment=b""):
    size = len(meta) + len(body) + len(attachment)
    return b"PRPC" + struct.pack(">II", size, len(meta)) + meta + body + attachment


def call_frame(service, method, body=b"", attachment=b"", **meta):
    """A whole request of baidu_std."""
    if attachment:
        meta["attachment_size"] = len(attachment)
    return baidu_std_frame(baidu_std_meta(service, method, **meta), body, attachment)


def srpc_frame(service, method, body=b"", data_type=0, compress=None):
    """A whole request of SRPC."""
    meta = (
        bytes_field(1, bytes_field(1, service) + bytes_field(2, method))
        + number_field(4, compress)
        + number_field(7, data_type)
    )
    return b"SRPC" + struct.pack(">III", len(meta), len(body), 0) + meta + body


class Response:
    """A response of baidu_std, taken apart."""

    def __init__(self, meta, payload):
        self.fields = fields_of(meta)
        result = fields_of(last(self.fields, 2, b""))
        self.error_code = last(result, 1, 0)
        self.error_text = last(result, 2, b"").decode()
        self.correlation_id = last(self.fields, 4)
        attached = last(self.fields, 5, 0)
        assert attached <= len(payload)
        self.body = payload[: len(payload) - attached]
        self.attachment = payload[len(payload) - attached :]
        assert not (self.error_code and payload), "an error has no body"

    def __repr__(self):
        return f"{self.correlation_id}: {self.error_code} {self.error_text!r} {self.body[:80]!r}"


class FramedConnection:
    """A connection on which frames are written as they are wanted."""

    def __init__(self, server, seconds=30):
        self.socket = socket.create_connection(server.host_port, timeout=seconds)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.numbers = itertools.count(1)

    def send(self, data):
        self.socket.sendall(data)

    def read(self, count):
        out = bytearray()
        while len(out) < count:
            part = self.socket.recv(min(count - len(out), 1 << 20))
            if not part:
                raise ConnectionResetError(f"closed behind {len(out)} of {count} bytes")
            out += part
        return bytes(out)

    def response(self):
        """The next response of baidu_std."""
        magic, size, meta_size = struct.unpack(">4sII", self.read(12))
        assert magic == b"PRPC" and meta_size <= size, (magic, size, meta_size)
        meta = self.read(meta_size)
        return Response(meta, self.read(size - meta_size))

    def srpc_response(self):
        """Status, metadata as they came, and message of the next response of SRPC."""
        magic, meta_size, size, reserved = struct.unpack(">4sIII", self.read(16))
        assert (magic, reserved) == (b"SRPC", 0), (magic, reserved)
        meta = self.read(meta_size)
        status = last(fields_of(last(fields_of(meta), 2, b"")), 1, 0)
        return status, meta, self.read(size)

    def call(self, service, method, body=b"", attachment=b"", **meta):
        """One call of baidu_std, and its response."""
        meta.setdefault("correlation_id", next(self.numbers))
        self.send(call_frame(service, method, body, attachment, **meta))
        response = self.response()
        assert response.correlation_id == (meta["correlation_id"] or 0), response
        return response

    def is_closed(self):
        """Whether the peer closes without another byte."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def is_silent(self, seconds=0.5):
        """Whether nothing comes for so long, and the connection stays."""
        self.socket.settimeout(seconds)
        try:
            self.socket.recv(1)
            return False
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(30)

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
