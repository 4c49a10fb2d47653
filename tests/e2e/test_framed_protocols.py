"""baidu_std and SRPC on the port that serves gRPC, as brpc's and SRPC's own programs exchange them:
the bytes below were seen between these."""

import re
import signal
import socket
import struct
import threading
import time
from pathlib import Path

import pytest
from framed_client import (
    ELIMIT,
    ELOGOFF,
    ENOMETHOD,
    ENOSERVICE,
    EPERM,
    EREQUEST,
    ERPCAUTH,
    ERPCTIMEDOUT,
    FramedConnection,
    baidu_std_frame,
    baidu_std_meta,
    bytes_field,
    call_frame,
    fields_of,
    gzip,
    masked_crc32c,
    number_field,
    snappy_literal,
    srpc_frame,
)
from metrics_page import assert_calls_add_up, families, wait_until_calls_add_up
from pelton.v1 import kv_pb2, kv_pb2_grpc
from server import Server, open_channel, wait_until
from test_tokens import CLOSED, OPEN, made, pelton, shown

ECHO = ("example.EchoService", "Echo")
HELLO = bytes_field(1, "hello world")
BOOK = Path(__file__).resolve().parents[2] / "docs"
KV = "pelton.v1.KeyValue"


def hexed(text):
    return bytes.fromhex(text.replace(" ", ""))


@pytest.fixture
def connection(server):
    with FramedConnection(server) as opened:
        yield opened


def put(connection, key, value, service=KV, **meta):
    body = kv_pb2.PutRequest(key=key, value=value).SerializeToString()
    return connection.call(service, "Put", body, **meta)


def get(connection, key, service=KV, **meta):
    response = connection.call(
        service, "Get", kv_pb2.GetRequest(key=key).SerializeToString(), **meta
    )
    assert response.error_code == 0, response
    return kv_pb2.GetResponse.FromString(response.body)


# --- baidu_std: bytes of real clients, and what a real server sent back

FROM_ITS_CLIENT = """505250430000003a0000002d
    0a1d0a136578616d706c652e4563686f5365727669636512044563686f
    1800 1800 202080808010 5000 5800 6200 0a0b68656c6c6f20776f726c64"""
SMALLEST = """505250430000002c0000001f 0a1b0a136578616d706c652e4563686f5365727669636512044563686f
    2007 0a0b68656c6c6f20776f726c64"""
SMALLEST_RESPONSE = """505250430000001b0000000e 1202080018002007 5000 5800 6200
    0a0b68656c6c6f20776f726c64"""


def test_the_frame_in_the_book_is_a_call(connection):
    lines = (BOOK / "migrate.md").read_text().splitlines()
    first = next(at for at, line in enumerate(lines) if line.startswith("    50525043"))
    digits = (re.match(r" +([0-9a-f ]*[0-9a-f])  ", line) for line in lines[first : first + 5])
    frame = hexed("".join(found[1] for found in digits))
    assert len(frame) == 47
    connection.send(frame)
    response = connection.response()
    assert (response.correlation_id, response.error_code) == (1, 0), response
    assert response.body == bytes_field(1, "hi")


def test_the_smallest_request_gets_the_bytes_that_brpc_sends(connection):
    for _ in range(2):
        connection.send(hexed(SMALLEST))
        expected = hexed(SMALLEST_RESPONSE)
        assert connection.read(len(expected)).hex() == expected.hex()


def test_metadata_of_brpcs_own_client_are_understood(connection):
    meta = hexed("""0a1d0a136578616d706c652e4563686f5365727669636512044563686f1800 1800
        20a080808010 5000 5800 6200""")
    for attachment, size in ((b"", b""), (b"foo", hexed("2803"))):
        connection.send(baidu_std_frame(meta + size, HELLO, attachment))
        response = connection.response()
        assert (response.error_code, response.body) == (0, HELLO), response
        assert response.attachment == attachment
        assert response.correlation_id == fields_of(meta)[4][0]


def test_a_request_in_single_bytes_is_a_request(connection):
    for byte in hexed(SMALLEST):
        connection.send(bytes([byte]))
        time.sleep(0.002)
    assert connection.response().body == HELLO


def test_a_short_service_name_is_accepted(connection):
    for service in ("example.EchoService", "EchoService"):
        assert connection.call(service, "Echo", HELLO).body == HELLO


def test_without_a_correlation_id_responses_come_in_order_with_id_0(connection):
    bodies = [bytes_field(1, f"number {number}") for number in range(50)]
    connection.send(b"".join(call_frame(*ECHO, body, correlation_id=None) for body in bodies))
    for body in bodies:
        response = connection.response()
        assert (response.body, response.correlation_id) == (body, 0), response


def test_pipelined_calls_are_told_apart_by_their_ids(connection):
    for _ in range(2):
        frames = [
            call_frame(*ECHO, bytes_field(1, f"{number}"), correlation_id=number << 40 | 1)
            for number in range(1, 301)
        ]
        connection.send(b"".join(frames))
        seen = {}
        for _ in frames:
            response = connection.response()
            assert response.error_code == 0
            seen[response.correlation_id] = response.body
        assert seen == {number << 40 | 1: bytes_field(1, f"{number}") for number in range(1, 301)}


def test_a_slow_call_is_overtaken(connection):
    slow = call_frame("BenchmarkPB", "slow_pb", bytes_field(1, b"r"), correlation_id=1)
    connection.send(slow + call_frame(*ECHO, HELLO, correlation_id=2))
    first, second = connection.response(), connection.response()
    assert (first.correlation_id, first.body) == (2, HELLO)
    assert (second.correlation_id, second.error_code, second.body) == (1, 0, b"")


@pytest.mark.parametrize("size", [0, 1, 100_000, 3_000_000])
def test_an_attachment_comes_back(connection, size):
    attachment = bytes(number * 7 & 0xFF for number in range(size))
    for _ in range(2):
        response = connection.call(*ECHO, HELLO, attachment)
        assert response.body == HELLO and response.attachment == attachment


def test_compressed_messages_get_an_uncompressed_response(connection):
    for pack, kind in ((snappy_literal, 1), (gzip, 2)):
        for text in ("hello world", "x" * 300_000):
            body = bytes_field(1, text)
            response = connection.call(*ECHO, pack(body), b"foo", compress=kind)
            assert response.error_code == 0, response
            assert response.body == body and response.attachment == b"foo"
            assert response.fields.get(3, [0])[-1] == 0


@pytest.mark.parametrize("kind", [3, 4, 99, -1])
def test_other_compression_is_refused(connection, kind):
    for _ in range(2):
        response = connection.call(*ECHO, HELLO, compress=kind)
        assert response.error_code == EREQUEST and "compress" in response.error_text, response
    assert connection.call(*ECHO, HELLO).body == HELLO


def test_what_cannot_be_decompressed_is_refused(connection):
    for kind in (1, 2):
        for body in (b"", b"\xff" * 40, gzip(HELLO)[:-6], snappy_literal(HELLO)[:-3]):
            response = connection.call(*ECHO, body, compress=kind)
            assert response.error_code == EREQUEST, (kind, body, response)
    assert connection.call(*ECHO, HELLO).body == HELLO


def test_a_checksum_is_verified(connection):
    assert masked_crc32c(HELLO).hex() == "d38cab46"
    right, wrong = masked_crc32c(HELLO), masked_crc32c(HELLO + b"x")
    response = connection.call(*ECHO, HELLO, b"foo", checksum=right)
    assert (response.body, response.attachment) == (HELLO, b"foo")
    # Type 0, and the value as it came.
    assert (response.fields.get(11, [0])[-1], response.fields[12][-1]) == (0, right)
    for checksum in (wrong, b"", b"123", b"12345"):
        response = connection.call(*ECHO, HELLO, checksum=checksum)
        assert response.error_code == EREQUEST and "checksum" in response.error_text, response
    whole = masked_crc32c(HELLO + b"foo")
    for extra, code in ((number_field(13, 1), 0), (b"", EREQUEST)):
        response = connection.call(*ECHO, HELLO, b"foo", checksum=whole, extra=extra)
        assert response.error_code == code, response


def test_unknown_services_and_methods_have_brpcs_errors(connection):
    for service, method in (("example.No", "Echo"), ("example.EchoService", "No"), ("x", "")):
        response = connection.call(service, method, HELLO)
        assert response.error_code == ENOMETHOD, response
        assert f"Fail to find method={service}/{method}" in response.error_text
    assert connection.call(*ECHO, HELLO).body == HELLO


def test_metadata_without_a_request_have_brpcs_error(connection):
    for meta in (number_field(4, 5), hexed("12020800") + number_field(4, 5)):
        connection.send(baidu_std_frame(meta, HELLO))
        response = connection.response()
        assert (response.error_code, response.correlation_id) == (ENOSERVICE, 5), response
        assert "Fail to find service=" in response.error_text


def test_what_is_no_message_is_refused(connection):
    for body in (HELLO[:-3], b"", b"\xff", number_field(1, 3)):
        response = connection.call(*ECHO, body)
        assert response.error_code == EREQUEST, (body, response)
        assert connection.call(*ECHO, HELLO).body == HELLO


def test_an_attachment_longer_than_the_frame_is_refused(connection):
    for size in (14, 100, -1):
        response = connection.call(*ECHO, HELLO, attachment_size=size)
        assert response.error_code == EREQUEST, response
        assert f"attachment_size={size} is larger than request_size=13" in response.error_text
    assert connection.call(*ECHO, HELLO).body == HELLO


def test_what_is_not_supported_is_named(connection):
    stream = bytes_field(8, number_field(1, 1))
    chunk = bytes_field(6, number_field(1, 1) + number_field(2, 1))
    for meta, word in (
        ({"content_type": 1}, "content_type"),
        ({"extra": stream}, "stream"),
        ({"extra": chunk}, "chunk"),
    ):
        for _ in range(2):
            response = connection.call(*ECHO, HELLO, **meta)
            assert response.error_code == EREQUEST and word in response.error_text, response
    for method in ("Scan", "Pipe"):
        response = connection.call(KV, method)
        assert response.error_code == ENOMETHOD and "gRPC" in response.error_text, response
    assert connection.call(*ECHO, HELLO).body == HELLO


def test_the_whole_key_value_api_is_served_by_long_and_short_names(server, connection, prefix):
    for service in (KV, "KeyValue"):
        key = prefix + service.encode()
        assert put(connection, key, b"value", service).error_code == 0
        assert get(connection, key, service).value == b"value"
        with open_channel(server.address) as channel:
            kv = kv_pb2_grpc.KeyValueStub(channel)
            assert kv.Get(kv_pb2.GetRequest(key=key)).value == b"value"
            kv.Put(kv_pb2.PutRequest(key=key, value=b"by gRPC"))
        assert get(connection, key, service).value == b"by gRPC"
    for service in ("grpc.health.v1.Health", "Health"):
        response = connection.call(service, "Check")
        assert (response.error_code, response.body) == (0, hexed("0801"))


def test_statuses_of_the_api_have_codes_and_texts(connection):
    body = kv_pb2.GetRequest(database="nosuch", key=b"k").SerializeToString()
    response = connection.call(KV, "Get", body)
    assert response.error_code != 0 and "nosuch" in response.error_text, response
    body = kv_pb2.PutRequest(key=b"k" * 70_000).SerializeToString()
    response = connection.call(KV, "Put", body)
    assert response.error_code == ELIMIT and "65535" in response.error_text, response


def test_a_deadline_of_the_caller_holds(connection):
    response = connection.call("BenchmarkPB", "slow_pb", bytes_field(1, b"r"), timeout_ms=1)
    assert response.error_code == ERPCTIMEDOUT, response
    response = connection.call("BenchmarkPB", "slow_pb", bytes_field(1, b"r"), timeout_ms=10_000)
    assert response.error_code == 0, response


# --- lies, and what is no frame


@pytest.mark.parametrize(
    "data",
    [
        b"XRPC" + bytes(40),
        b"PRPX" + bytes(40),
        # Metadata longer than the frame.
        b"PRPC" + struct.pack(">II", 10, 11) + bytes(20),
        # 65 MiB, of which nothing comes.
        b"PRPC" + struct.pack(">II", 65 << 20, 20),
        # Metadata of 2 GiB.
        b"PRPC" + struct.pack(">II", 2**31, 2**31 - 1),
        # Metadata that are no message.
        baidu_std_frame(b"\xff\xff\xff", HELLO),
        baidu_std_frame(bytes_field(1, b"\x0a\xff")),
    ],
)
def test_what_is_no_frame_closes_the_connection(server, data):
    for _ in range(2):
        with FramedConnection(server) as connection:
            connection.send(data)
            assert connection.is_closed()
        # After a good call too.
        with FramedConnection(server) as connection:
            assert connection.call(*ECHO, HELLO).body == HELLO
            connection.send(data)
            assert connection.is_closed()
    with FramedConnection(server) as connection:
        assert connection.call(*ECHO, HELLO).body == HELLO


def test_half_a_frame_and_then_the_end(server):
    whole = hexed(FROM_ITS_CLIENT)
    for count in range(1, len(whole)):
        with FramedConnection(server) as connection:
            connection.send(whole[:count])
            connection.socket.shutdown(socket.SHUT_WR)
            assert connection.is_closed(), count


def test_mutated_frames_never_hurt_others(server):
    import random

    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    frames = [
        hexed(SMALLEST),
        call_frame(*ECHO, gzip(HELLO), b"foo", compress=2, checksum=masked_crc32c(gzip(HELLO))),
        call_frame(*ECHO, snappy_literal(HELLO), compress=1),
        call_frame(KV, "Get", kv_pb2.GetRequest(key=b"k").SerializeToString()),
        srpc_frame("BenchmarkPB", "echo_pb", bytes_field(1, b"r" * 32)),
    ]
    for _ in range(1500):
        data = bytearray(rng.choice(frames))
        for _ in range(rng.randrange(1, 4)):
            place = rng.randrange(4, len(data))
            data[place] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
        with FramedConnection(server) as connection:
            connection.send(bytes(data) + data[: rng.randrange(len(data))])
    with FramedConnection(server) as connection:
        assert connection.call(*ECHO, HELLO).body == HELLO


# --- SRPC


def srpc_call(connection, *words, **more):
    connection.send(srpc_frame(*words, **more))
    return connection.srpc_response()


def test_srpcs_benchmark_is_served(server):
    for method in ("echo_pb", "slow_pb"):
        with FramedConnection(server) as connection:
            for _ in range(20):
                status, meta, body = srpc_call(
                    connection, "BenchmarkPB", method, bytes_field(1, b"r" * 32)
                )
                assert (status, meta, body) == (1, hexed("12020801 3800"), b"")


def test_srpc_serves_the_api(server, prefix):
    with FramedConnection(server) as connection:
        body = kv_pb2.PutRequest(key=prefix, value=b"value").SerializeToString()
        assert srpc_call(connection, KV, "Put", body)[0] == 1
        body = kv_pb2.GetRequest(key=prefix).SerializeToString()
        status, _, body = srpc_call(connection, "KeyValue", "Get", body)
        assert status == 1 and kv_pb2.GetResponse.FromString(body).value == b"value"


def test_srpcs_errors_have_its_statuses(server):
    body = bytes_field(1, b"r")
    with FramedConnection(server) as connection:
        for _ in range(2):
            for service, method, message, expected in (
                ("No", "echo_pb", body, "12020802 3800"),
                ("BenchmarkPB", "no", body, "12020803 3800"),
                ("BenchmarkPB", "echo_pb", b"\xff", "1202080c 3800"),
            ):
                _, meta, answer = srpc_call(connection, service, method, message)
                assert (meta.hex(), answer) == (hexed(expected).hex(), b"")
        connection.send(b"SRPC" + struct.pack(">III", 2, 0, 0) + b"\xff\xff")
        assert connection.srpc_response()[1] == hexed("12020804")


def test_srpc_without_types_gets_the_same(server):
    with FramedConnection(server) as connection:
        meta = bytes_field(1, bytes_field(1, "BenchmarkPB") + bytes_field(2, "echo_pb"))
        for extra in (b"", number_field(4, 0)):
            body = bytes_field(1, b"r")
            head = struct.pack(">III", len(meta + extra), len(body), 0)
            connection.send(b"SRPC" + head + meta + extra + body)
            assert connection.srpc_response()[0] == 1


def test_a_second_srpc_request_before_the_response_closes(server):
    for _ in range(2):
        with FramedConnection(server) as connection:
            frame = srpc_frame("BenchmarkPB", "slow_pb", bytes_field(1, b"r"))
            connection.send(frame + frame)
            assert connection.is_closed()


# --- what holds for all protocols


def test_calls_are_counted(binary):
    with Server(binary, "--threads", "1", "--metrics-listen", "127.0.0.1:0") as server:
        with FramedConnection(server) as connection:
            for _ in range(3):
                assert connection.call(*ECHO, HELLO).body == HELLO
            connection.call(*ECHO, b"\xff")
            connection.call("example.No", "Echo", HELLO)
        wait_until_calls_add_up(server)
        found = families(server)
        assert_calls_add_up(found)
        text = str(found)
        assert "example.EchoService" in text or "EchoService" in text


def test_tokens_and_rights(binary, tmp_path):
    flags = ["--data", str(tmp_path / "data"), "--init-admin"]
    with Server(binary, *flags, listen=(OPEN.split("+")[0], CLOSED)) as server:
        admin = shown(server)
        closed = server.addresses[1]
        words = ["token", "create", "reader", "--rights", "read"]
        reader = made(pelton(binary, closed, *words, token=admin))
        server.addresses.reverse()
        for form in ("Bearer {}", "{}"):
            with FramedConnection(server) as connection:
                for authentication, writes, reads in (
                    (None, ERPCAUTH, ERPCAUTH),
                    (form.format("pelton_" + "A" * 43), ERPCAUTH, ERPCAUTH),
                    (form.format(reader), EPERM, 0),
                    (form.format(admin), 0, 0),
                ):
                    code = put(connection, b"k", b"v", authentication=authentication).error_code
                    assert code == writes, (form, authentication, code)
                    body = kv_pb2.GetRequest(key=b"k").SerializeToString()
                    response = connection.call(KV, "Get", body, authentication=authentication)
                    assert response.error_code == reads, (form, authentication, response)
        # brpc sends it with the first request of a connection alone.
        with FramedConnection(server) as connection:
            assert put(connection, b"k", b"v", authentication=admin).error_code == 0
            assert put(connection, b"k", b"v").error_code == 0
            pelton(binary, closed, "token", "create", "spare", "--rights", "admin", token=admin)
        with FramedConnection(server) as connection:
            assert get(connection, b"k", authentication=reader).value == b"v"
            pelton(binary, closed, "token", "revoke", "reader", token=admin)
            body = kv_pb2.GetRequest(key=b"k").SerializeToString()
            assert connection.call(KV, "Get", body).error_code == ERPCAUTH


def test_a_stop_ends_each_call_once(binary):
    with Server(binary, "--threads", "1") as server:
        with FramedConnection(server) as connection:
            assert connection.call(*ECHO, HELLO).body == HELLO
            for number in range(20):
                body = bytes_field(1, b"r")
                frame = call_frame("BenchmarkPB", "slow_pb", body, correlation_id=number)
                connection.send(frame)
            wait_until_begun = connection.response()
            server.signal(signal.SIGTERM)
            codes = [wait_until_begun.error_code]
            codes += [connection.response().error_code for _ in range(19)]
            assert set(codes) <= {0, ELOGOFF}, codes
            assert connection.is_closed()
        assert server.wait() == 0


def test_unread_responses_are_bounded(binary):
    with Server(binary, "--threads", "1") as server:
        with FramedConnection(server) as connection:
            frame = call_frame(*ECHO, HELLO, b"a" * 200_000)
            before = server.resident_bytes()
            connection.socket.settimeout(2)
            sent = 0
            try:
                for _ in range(5_000):
                    connection.socket.sendall(frame)
                    sent += 1
            except TimeoutError:
                pass
            assert sent < 1_000, "it goes on reading"
            assert server.resident_bytes() - before < 64 << 20
            with FramedConnection(server) as other:
                assert other.call(*ECHO, HELLO).body == HELLO


def test_many_half_bodies_are_bounded(binary):
    with Server(binary, "--threads", "1", "--memory-limit", "512MiB") as server:
        before = server.resident_bytes()
        held = []
        meta = baidu_std_meta(*ECHO)
        head = b"PRPC" + struct.pack(">II", len(meta) + (8 << 20), len(meta)) + meta
        for _ in range(100):
            connection = FramedConnection(server)
            connection.send(head)
            held.append(connection)
        part = bytes(1 << 20)
        for connection in held:
            connection.socket.settimeout(0.05)
            for _ in range(7):
                try:
                    connection.socket.send(part)
                except TimeoutError:
                    break
        assert server.resident_bytes() - before < 400 << 20
        with FramedConnection(server) as other:
            assert other.call(*ECHO, HELLO).body == HELLO
        for connection in held:
            connection.close()
        with FramedConnection(server) as other:
            assert other.call(*ECHO, HELLO, b"a" * 3_000_000).error_code == 0


def test_grpc_and_the_others_share_a_port(server, prefix):
    stop = threading.Event()
    counts = {"baidu_std": 0, "SRPC": 0, "gRPC": 0}

    def by_baidu_std():
        with FramedConnection(server) as connection:
            while not stop.is_set():
                assert connection.call(*ECHO, HELLO).body == HELLO
                counts["baidu_std"] += 1

    def by_srpc():
        with FramedConnection(server) as connection:
            while not stop.is_set():
                body = bytes_field(1, b"r")
                assert srpc_call(connection, "BenchmarkPB", "echo_pb", body)[0] == 1
                counts["SRPC"] += 1

    def by_grpc():
        with open_channel(server.address) as channel:
            kv = kv_pb2_grpc.KeyValueStub(channel)
            while not stop.is_set():
                kv.Put(kv_pb2.PutRequest(key=prefix, value=b"v"))
                counts["gRPC"] += 1

    threads = [threading.Thread(target=one) for one in (by_baidu_std, by_srpc, by_grpc)]
    for thread in threads:
        thread.start()
    wait_until(lambda: all(count >= 100 for count in counts.values()), 60, lambda: str(counts))
    stop.set()
    for thread in threads:
        thread.join(30)
    assert not re.search("panicked|internal error", server.log())
