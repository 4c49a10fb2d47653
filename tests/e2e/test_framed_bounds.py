"""baidu_std and SRPC where something is too large, too slow, too many, or not allowed: what is
bounded, who is refused and with what, and that others go on meanwhile."""

import contextlib
import signal
import socket
import ssl
import struct
import threading
import time
import zlib

from framed_client import (
    ELIMIT,
    ELOGOFF,
    EPERM,
    EREQUEST,
    ERPCAUTH,
    FramedConnection,
    baidu_std_frame,
    baidu_std_meta,
    bytes_field,
    call_frame,
    gzip,
    masked_crc32c,
    number_field,
    snappy_literal,
    srpc_frame,
    varint,
)
from metrics_page import counter, families, wait_until_calls_add_up
from pelton.v1 import echo_pb2, echo_pb2_grpc, kv_pb2
from server import Server, open_channel, wait_until
from test_tokens import CLOSED, OPEN, made, pelton, shown

ECHO = ("example.EchoService", "Echo")
HELLO = bytes_field(1, "hello world")
BENCHMARK = ("BenchmarkPB", "echo_pb", bytes_field(1, b"r"))
KV = "pelton.v1.KeyValue"
GET = kv_pb2.GetRequest(key=b"k").SerializeToString()
MIB = 1 << 20
# HEADER_BLOCK_TIMEOUT_MS, FRAMED_META_BYTES and MAX_MESSAGE_BYTES of docs/limits.md.
HEAD_SECONDS, META_BYTES, MESSAGE_BYTES = 10, 15_360, 16 * MIB


def srpc(connection, *words, **more):
    connection.send(srpc_frame(*words, **more))
    return connection.srpc_response()


def assert_served(server):
    with FramedConnection(server) as connection:
        assert connection.call(*ECHO, HELLO).body == HELLO


# --- too large


def test_a_message_above_the_limit_is_refused_and_the_connection_goes_on(server):
    for kind in ("baidu_std", "SRPC"):
        with FramedConnection(server) as connection:
            for size in (MESSAGE_BYTES + 1, 40 * MIB):
                body = bytes(size)
                if kind == "SRPC":
                    assert srpc(connection, *BENCHMARK[:2], body)[0] == 100
                    assert srpc(connection, *BENCHMARK)[0] == 1
                    continue
                response = connection.call(*ECHO, body)
                assert response.error_code == ELIMIT, response
                assert f"the message has {size} bytes" in response.error_text, response
                assert connection.call(*ECHO, HELLO).body == HELLO
    # As large as a message may be: it is read, and is none.
    with FramedConnection(server) as connection:
        response = connection.call(*ECHO, bytes(MESSAGE_BYTES))
        assert "Fail to parse request" in response.error_text, response


def test_metadata_up_to_the_limit_are_read_and_above_close(server):
    def frame(bytes_more):
        meta = baidu_std_meta(*ECHO, correlation_id=7)
        # A field that nobody knows.
        pad = bytes_more - len(meta) - len(varint(100 << 3 | 2)) - 2
        return baidu_std_frame(meta + bytes_field(100, bytes(pad)), HELLO)

    for _ in range(2):
        with FramedConnection(server) as connection:
            connection.send(frame(META_BYTES))
            assert connection.response().body == HELLO
            connection.send(frame(META_BYTES + 1))
            assert connection.is_closed()
    # SRPC: metadata of which no byte comes.
    for meta_bytes in (META_BYTES + 1, 2**32 - 1):
        with FramedConnection(server) as connection:
            assert srpc(connection, *BENCHMARK)[0] == 1
            connection.send(b"SRPC" + struct.pack(">III", meta_bytes, 0, 0))
            assert connection.is_closed()
    assert_served(server)


def test_too_many_user_fields_are_refused(server):
    with FramedConnection(server) as connection:
        fields = [(f"f{number}", "v") for number in range(1000)]
        response = connection.call(*ECHO, HELLO, user_fields=fields)
        assert response.error_code == EREQUEST and "metadata" in response.error_text, response
        response = connection.call(*ECHO, HELLO, user_fields=fields[:20])
        assert response.body == HELLO, response


def test_what_decompresses_to_more_than_the_limit_takes_no_memory(binary):
    packer = zlib.compressobj(9, wbits=31)
    bomb = b"".join(packer.compress(bytes(MIB)) for _ in range(300)) + packer.flush()
    # Copies its one byte again and again: a copy of 64 bytes takes three.
    copies = 400_000
    snappy_bomb = varint(1 + 64 * copies) + b"\0x" + b"\xfe\x01\0" * copies
    with Server(binary, "--threads", "1") as server:
        assert_served(server)
        before = server.resident_bytes()
        with contextlib.ExitStack() as stack:
            for _ in range(20):
                connection = stack.enter_context(FramedConnection(server))
                for body, kind in ((bomb, 2), (snappy_bomb, 1)):
                    response = connection.call(*ECHO, body, compress=kind)
                    assert response.error_code == ELIMIT, response
                    # Refused by what it announces: nobody looked at what it becomes.
                    assert "Fail to parse" not in response.error_text, response
                for body, kind in ((bomb, 2), (snappy_bomb, 1)):
                    status, _, message = srpc_on_new(server, body, kind)
                    assert status not in (0, 1) and message == b""
        assert server.resident_bytes() - before < 64 * MIB
        assert_served(server)


def srpc_on_new(server, body, kind):
    with FramedConnection(server) as connection:
        return srpc(connection, *BENCHMARK[:2], body, compress=kind)


# --- too slow


def test_a_frame_that_stops_in_its_head_ends_its_connection(server):
    """All at once, and those that are between two calls stay."""
    frames = [call_frame(*ECHO, HELLO), srpc_frame(*BENCHMARK)]
    with contextlib.ExitStack() as stack:
        idle = stack.enter_context(FramedConnection(server))
        assert idle.call(*ECHO, HELLO).body == HELLO
        halves = []
        for whole in frames:
            for count in (4, 5, 11, 15, 20):
                half = stack.enter_context(FramedConnection(server))
                half.send(whole[:count])
                halves.append(half)
                again = stack.enter_context(FramedConnection(server))
                again.send(whole)
                again.response() if whole[:1] == b"P" else again.srpc_response()
                again.send(whole[:count])
                halves.append(again)
        began = time.monotonic()
        while time.monotonic() - began < HEAD_SECONDS / 2:
            assert_served(server)
            time.sleep(0.5)
        assert all(half.is_silent(0.001) for half in halves), "closed too early"
        assert all(half.is_closed() for half in halves)
        assert idle.call(*ECHO, HELLO).body == HELLO


def test_callers_that_read_nothing_share_a_bound(binary):
    """In both protocols, on many connections at once, each of which could hold four megabytes. What
    the server takes for them is what it charges, and that has a bound."""
    flags = ["--threads", "1", "--memory-limit", "512MiB", "--metrics-listen", "127.0.0.1:0"]
    message = echo_pb2.EchoRequest(answer_bytes=3_999_999).SerializeToString()
    frame = b"".join(
        call_frame("pelton.v1.Echo", "Unary", message, correlation_id=number) for number in range(5)
    )
    with Server(binary, *flags) as server:
        # A thread keeps some of what it has freed for what comes next.
        beside = 40 * MIB + 240 * 512 * 1024 * (server.driver == "blocking")
        assert_served(server)
        before = server.resident_bytes()

        def charged():
            return counter(server, "pelton_buffered_bytes")

        with contextlib.ExitStack() as stack:
            for number in range(240):
                connection = stack.enter_context(FramedConnection(server))
                is_srpc = number % 3 == 0
                connection.send(srpc_frame("Echo", "Unary", message) if is_srpc else frame)
            wait_until(lambda: charged() > 30 * MIB, message="nothing waits: this shows nothing")
            for _ in range(20):
                assert_served(server)
                waiting = charged()
                # A quarter of the limit, an eighth of that for small callers, and some of each.
                assert waiting < 200 * MIB
                assert server.resident_bytes() - before < waiting + beside
                time.sleep(0.1)
        wait_until(lambda: charged() == 0, message="what callers that went have left stays")
        assert_served(server)


# --- too many


def test_connections_above_the_limit_are_refused_and_places_are_given_back(binary):
    flags = ["--max-connections-per-address", "3", "--limit-loopback"]
    with Server(binary, *flags) as server:
        for _ in range(3):
            with contextlib.ExitStack() as stack:
                kept = open_all(server, stack, 3)
                with FramedConnection(server) as refused:
                    refused.send(call_frame(*ECHO, HELLO))
                    try:
                        assert refused.response().error_code != 0
                        refused.socket.shutdown(socket.SHUT_WR)
                        assert refused.is_closed()
                    except ConnectionError:
                        # Closed without a response, which no client takes for one.
                        pass
                for connection in kept:
                    assert connection.call(*ECHO, HELLO).body == HELLO
        assert server.stop() == 0


def open_all(server, stack, count):
    """As many connections, each with a call that was served. Those of the round before may still be
    being closed."""
    kept = []

    def are_served():
        with contextlib.ExitStack() as own:
            for _ in range(count):
                connection = own.enter_context(FramedConnection(server))
                try:
                    if connection.call(*ECHO, HELLO).error_code:
                        return False
                except (AssertionError, OSError):
                    return False
                kept.append(connection)
            stack.enter_context(own.pop_all())
        return True

    wait_until(are_served, message="places of connections that went are not given to others")
    return kept[-count:]


def test_idle_connections_make_room_for_newcomers(binary):
    """In both protocols, those that have been idle for longest. Those of gRPC can be asked whether
    their peers are there, and stay."""
    with Server(binary, "--max-connections", "8") as server, contextlib.ExitStack() as stack:
        echo = echo_pb2_grpc.EchoStub(stack.enter_context(open_channel(server.address)))
        assert echo.Unary(echo_pb2.EchoRequest(payload=b"1")).payload == b"1"
        old = []
        for number in range(7):
            connection = stack.enter_context(FramedConnection(server))
            if number % 2:
                assert srpc(connection, *BENCHMARK)[0] == 1
            elif number % 4 == 0:
                # Its response is made behind the look at the connection.
                assert connection.call(KV, "Get", GET).error_code == 0
            else:
                assert connection.call(*ECHO, HELLO).body == HELLO
            old.append(connection)
        for _ in range(2):
            open_all(server, stack, 1)
        assert old[0].is_closed() and old[1].is_closed()
        assert old[6].call(*ECHO, HELLO).body == HELLO
        assert echo.Unary(echo_pb2.EchoRequest(payload=b"2")).payload == b"2"


# --- not allowed


def test_a_token_that_expires_ends_what_its_connection_may(binary, tmp_path):
    flags = ["--data", str(tmp_path / "data"), "--init-admin"]
    with Server(binary, *flags, listen=(OPEN, CLOSED)) as server:
        admin, closed = shown(server), server.addresses[1]
        words = ["token", "create", "short", "--rights", "read", "--expires", "1500ms"]
        server.addresses.reverse()
        with FramedConnection(server) as connection:
            short = made(pelton(binary, closed, *words, token=admin))
            response = connection.call(KV, "Get", GET, authentication=short)
            assert response.error_code in (0, ERPCAUTH), response

            def is_over():
                return connection.call(KV, "Get", GET).error_code == ERPCAUTH

            wait_until(is_over, message="it does not expire")
            # Another token on the same connection takes its place.
            response = connection.call(KV, "Get", GET, authentication=admin)
            assert response.error_code == 0, response


def test_who_has_no_token_may_what_the_listener_says(binary, tmp_path):
    flags = ["--data", str(tmp_path / "data"), "--init-admin"]
    echo = "127.0.0.1:0+anonymous=service:brpc-echo"
    benchmark = "127.0.0.1:0+anonymous=service:srpc-benchmark"
    with Server(binary, *flags, listen=(echo, benchmark)) as server:
        shown(server)
        for _ in range(2):
            for allowed in ("echo", "benchmark"):
                with FramedConnection(server) as connection:
                    for _ in range(2):
                        code = connection.call(*ECHO, HELLO).error_code
                        assert (code == 0) == (allowed == "echo"), code
                        code = connection.call(*BENCHMARK).error_code
                        assert (code == 0) == (allowed == "benchmark"), code
                        assert connection.call(KV, "Get", GET).error_code == EPERM
                with FramedConnection(server) as connection:
                    # SRPC has no place for a token, and no status for one that is missing.
                    assert srpc(connection, KV, "Get", GET)[0] == 100
                    assert srpc(connection, *BENCHMARK)[0] == (1 if allowed == "benchmark" else 100)
                server.addresses.reverse()


def test_a_caller_without_rights_is_not_told_which_methods_have_streams(binary, tmp_path):
    flags = ["--data", str(tmp_path / "data"), "--init-admin"]
    with Server(binary, *flags, listen=(CLOSED,)) as server:
        shown(server)
        with FramedConnection(server) as connection:
            for name in ("Get", "Pipe", "Get", "Scan"):
                assert connection.call(KV, name, GET).error_code == ERPCAUTH, name
        with FramedConnection(server) as connection:
            for name in ("Get", "Pipe"):
                assert srpc(connection, KV, name, GET)[0] == 100, name


def test_two_proofs_of_who_calls_are_none(binary, tmp_path):
    """Authentication data, of the request or of one before it, and an entry of the user fields:
    who of two is meant is not guessed, whichever has the right."""
    flags = ["--data", str(tmp_path / "data"), "--init-admin"]
    with Server(binary, *flags, listen=(OPEN, CLOSED)) as server:
        admin, closed = shown(server), server.addresses[1]
        words = ["token", "create", "none", "--rights", "read:nothing"]
        weak = made(pelton(binary, closed, *words, token=admin))
        server.addresses.reverse()
        field = [("authorization", f"Bearer {admin}")]
        weak_field = [("authorization", f"Bearer {weak}")]
        for first, field_of_second in ((weak, field), (admin, weak_field), (admin, field)):
            with FramedConnection(server) as connection:
                for proof in (first, None):
                    more = {"authentication": proof, "user_fields": field_of_second}
                    code = connection.call(KV, "Get", GET, **more).error_code
                    assert code == ERPCAUTH, (proof, code)
        with FramedConnection(server) as connection:
            for fields, expected in ((field, 0), (weak_field, EPERM), ((), ERPCAUTH)):
                response = connection.call(KV, "Get", GET, user_fields=fields)
                assert response.error_code == expected, response


# --- what else a frame may say


def test_srpcs_statuses_of_what_it_does_not_take(server):
    name, method, message = BENCHMARK
    with FramedConnection(server) as connection:
        for _ in range(2):
            for pack, kind in ((snappy_literal, 1), (gzip, 2)):
                large = bytes_field(1, b"r" * 300_000)
                assert srpc(connection, name, method, pack(message), compress=kind)[0] == 1
                assert srpc(connection, name, method, pack(large), compress=kind)[0] == 1
                assert srpc(connection, name, method, b"\xff" * 40, compress=kind)[0] == 10
            for kind in (3, 4, 99):
                assert srpc(connection, name, method, message, compress=kind)[0] == 8
            for data_type in (1, 2):
                assert srpc(connection, name, method, b"{}", data_type=data_type)[0] == 22
            assert srpc(connection, name, method, message, data_type=-1)[0] == 1


def test_a_checksum_may_cover_the_attachment(server):
    body, attachment = HELLO, b"foo"
    covers = number_field(13, 1)
    with FramedConnection(server) as connection:
        for summed, fine in ((body + attachment, True), (body, False), (b"", False)):
            response = connection.call(
                *ECHO, body, attachment, checksum=masked_crc32c(summed), extra=covers
            )
            assert (response.error_code == 0) == fine, (summed, response)
            assert not fine or response.attachment == attachment


def test_calls_are_counted_by_method_and_code(binary):
    """Under the full name of the service, whichever name it was called by."""
    flags = ["--threads", "1", "--metrics-listen", "127.0.0.1:0"]
    with Server(binary, *flags) as server:
        for round in (1, 2):
            with FramedConnection(server) as connection:
                for service in ("example.EchoService", "EchoService", "EchoService"):
                    assert connection.call(service, "Echo", HELLO).error_code == 0
                # No message, damaged on its way, and not compressed as it says.
                for damaged in ({}, {"checksum": b"1234"}, {"compress": 2}):
                    assert connection.call(*ECHO, b"\xff", **damaged).error_code == EREQUEST
                assert connection.call(KV, "Get", GET).error_code == 0
            with FramedConnection(server) as connection:
                assert srpc(connection, "KeyValue", "Get", GET)[0] == 1
                assert srpc(connection, *BENCHMARK)[0] == 1
                assert srpc(connection, *BENCHMARK[:2], b"\xff")[0] == 12
            wait_until_calls_add_up(server)
            assert handled(server) == {
                ("example.EchoService", "Echo", "OK"): 3 * round,
                ("example.EchoService", "Echo", "INVALID_ARGUMENT"): 3 * round,
                (KV, "Get", "OK"): 2 * round,
                ("BenchmarkPB", "echo_pb", "OK"): round,
                ("BenchmarkPB", "echo_pb", "INVALID_ARGUMENT"): round,
            }


def handled(server):
    counts = {}
    for family in families(server):
        for sample in family.samples:
            if sample.name == "grpc_server_handled_total" and sample.value:
                labels = sample.labels
                name = labels["grpc_service"], labels["grpc_method"], labels["grpc_code"]
                counts[name] = counts.get(name, 0) + sample.value
    return counts


class TlsConnection(FramedConnection):
    def __init__(self, server, authority, protocols=None):
        super().__init__(server)
        context = ssl.create_default_context(cafile=authority)
        if protocols:
            context.set_alpn_protocols(protocols)
        self.socket = context.wrap_socket(self.socket, server_hostname="localhost")


def test_both_go_over_tls(binary, tmp_path):
    with Server(binary, f"--tls-self-signed={tmp_path}", listen=["tls:127.0.0.1:0"]) as server:
        authority = str(tmp_path / "ca.pem")
        for _ in range(2):
            with TlsConnection(server, authority) as connection:
                connection.send(call_frame(*ECHO, HELLO, b"a" * 1_000_000, correlation_id=7))
                response = connection.response()
                assert (response.body, len(response.attachment)) == (HELLO, 1_000_000)
                assert connection.call(*ECHO, HELLO).body == HELLO
            with TlsConnection(server, authority) as connection:
                assert srpc(connection, *BENCHMARK)[0] == 1


# --- the end of the server


def test_a_stop_ends_idle_and_half_sent_connections_and_serves_running_srpc_calls(binary):
    for _ in range(5):
        with Server(binary, "--threads", "1") as server, contextlib.ExitStack() as stack:
            idle, half, slow = (stack.enter_context(FramedConnection(server)) for _ in range(3))
            assert idle.call(*ECHO, HELLO).body == HELLO
            assert half.call(*ECHO, HELLO).body == HELLO
            half.send(call_frame(*ECHO, HELLO)[:30])
            assert srpc(slow, *BENCHMARK)[0] == 1
            slow.send(srpc_frame("BenchmarkPB", "slow_pb", b""))
            server.signal(signal.SIGTERM)
            assert slow.srpc_response()[0] in (1, 103)
            assert all(connection.is_closed() for connection in (idle, half, slow))
            assert server.wait() == 0


def test_calls_that_come_while_the_server_stops_are_refused_or_done(binary):
    with Server(binary, "--threads", "1") as server, FramedConnection(server) as connection:
        done, codes = threading.Event(), set()

        def call():
            with contextlib.suppress(ConnectionError):
                while True:
                    codes.add(connection.call(*ECHO, HELLO).error_code)
                    done.set()

        thread = threading.Thread(target=call)
        thread.start()
        assert done.wait(30)
        server.signal(signal.SIGTERM)
        thread.join(30)
        assert not thread.is_alive() and 0 in codes and codes <= {0, ELOGOFF}, codes
        assert server.wait() == 0
