"""The client by the byte of baidu_std and SRPC against bytes that were seen between brpc's and
SRPC's own programs: what it writes is what their clients wrote, and it reads what their servers
sent. A test with it then says something about these programs."""

import socket
import threading

import pytest
from framed_client import (
    ENOMETHOD,
    FramedConnection,
    baidu_std_frame,
    bytes_field,
    call_frame,
    fields_of,
    last,
    masked_crc32c,
    number_field,
    snappy_literal,
    srpc_frame,
    varint,
)

ECHO = ("example.EchoService", "Echo")
HELLO = bytes_field(1, "hello world")
TYPES = "5000 5800 6200"
SMALLEST = f"505250430000001b0000000e 12020800 1800 2007 {TYPES} 0a0b68656c6c6f20776f726c64"


def hexed(text):
    return bytes.fromhex(text.replace(" ", ""))


class RecordedServer:
    """Sends recorded bytes for each request of a connection, whatever it says."""

    def __init__(self, request, *responses):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.host_port = self.listener.getsockname()
        self.seen = []
        self.thread = threading.Thread(target=self._serve, args=(len(request), responses))
        self.thread.start()

    def _serve(self, size, responses):
        accepted, _ = self.listener.accept()
        with accepted:
            for response in responses:
                self.seen.append(accepted.recv(size, socket.MSG_WAITALL))
                accepted.sendall(response)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.thread.join(30)
        self.listener.close()


def test_requests_are_the_bytes_of_brpcs_clients():
    smallest = hexed("""505250430000002c0000001f 0a1b0a136578616d706c652e4563686f5365727669636512
        044563686f 2007 0a0b68656c6c6f20776f726c64""")
    assert call_frame(*ECHO, HELLO, correlation_id=7).hex() == smallest.hex()
    whole = hexed("""505250430000003a0000002d 0a1d0a136578616d706c652e4563686f53657276696365120445
        63686f1800 1800 20a080808010 5000 5800 6200 0a0b68656c6c6f20776f726c64""")
    fields = fields_of(whole[12 : 12 + 0x2D])
    assert fields_of(fields[1][0]) == {1: [b"example.EchoService"], 2: [b"Echo"], 3: [0]}
    types = {number: values for number, values in fields.items() if number != 1}
    # Compression, correlation id, content type, checksum.
    assert types == {3: [0], 4: [0x20 | 1 << 32], 10: [0], 11: [0], 12: [b""]}
    ours = call_frame(*ECHO, HELLO, correlation_id=types[4][0], log_id=0, compress=0)
    assert whole.startswith(b"PRPC") and ours[12:].startswith(whole[12 : -len(HELLO) - 6])
    assert masked_crc32c(HELLO).hex() == "d38cab46"


def test_requests_are_the_bytes_of_srpcs_clients():
    body = hexed("0a0c48656c6c6f2c207372706321 120431343132")
    expected = (
        hexed("""53525043 00000013 00000014 00000000 0a0f0a074578616d706c6512044563686f
        3800""")
        + body
    )
    assert srpc_frame("Example", "Echo", body).hex() == expected.hex()
    # What its client of baidu_std begins with: no correlation id.
    expected = hexed("50525043 00000025 00000011 0a0f0a074578616d706c6512044563686f") + body
    assert call_frame("Example", "Echo", body, correlation_id=None).hex() == expected.hex()


def test_responses_of_a_brpc_server_are_understood():
    attached = f"""505250430000002400000014 12020800 1800 20a080808010 2803 {TYPES}
        0a0b68656c6c6f20776f726c64 666f6f"""
    text = "[127.0.0.1:8000][E1002]Fail to find method=example.No/Echo"
    meta = bytes_field(2, number_field(1, 1002) + bytes_field(2, text)) + number_field(4, 9)
    request = call_frame(*ECHO, HELLO, correlation_id=7)
    recorded = hexed(SMALLEST), hexed(attached), baidu_std_frame(meta)
    with RecordedServer(request, *recorded) as server:
        with FramedConnection(server) as connection:
            plain = connection.call(*ECHO, HELLO, correlation_id=7)
            assert (plain.error_code, plain.body, plain.attachment) == (0, HELLO, b"")
            connection.send(request)
            found = connection.response()
            assert (found.body, found.attachment) == (HELLO, b"foo")
            connection.send(request)
            failed = connection.response()
            assert (failed.error_code, failed.error_text) == (ENOMETHOD, text)
            assert failed.correlation_id == 9
            assert connection.is_closed()
    assert server.seen == [request] * 3


def test_a_response_for_another_call_is_noticed():
    request = call_frame(*ECHO, HELLO, correlation_id=8)
    with RecordedServer(request, hexed(SMALLEST)) as server:
        with FramedConnection(server) as connection:
            with pytest.raises(AssertionError):
                connection.call(*ECHO, HELLO, correlation_id=8)


def test_the_response_of_srpcs_server_of_baidu_std_has_the_id_minus_1():
    meta = hexed("12020800 20ffffffffffffffffff01 2800")
    fields = fields_of(meta)
    assert last(fields, 4) == 2**64 - 1
    assert varint(-1) == hexed("ffffffffffffffffff01")


def test_responses_of_an_srpc_server_are_understood():
    request = srpc_frame("Example", "Echo", b"")
    fine = "53525043 00000006 00000009 00000000 12020801 3800 0a074869206261636b"
    missing = "53525043 00000006 00000000 00000000 12020802 3800"
    with RecordedServer(request, hexed(fine), hexed(missing)) as server:
        with FramedConnection(server) as connection:
            connection.send(request)
            assert connection.srpc_response()[::2] == (1, hexed("0a074869206261636b"))
            connection.send(request)
            assert connection.srpc_response()[::2] == (2, b"")


def test_snappy_of_literals_alone_is_what_its_format_says():
    assert snappy_literal(b"") == b"\0"
    assert snappy_literal(b"abc") == b"\x03\x08abc"
    assert snappy_literal(b"x" * 61) == b"\x3d\xec" + b"x" * 60 + b"\x00x"
