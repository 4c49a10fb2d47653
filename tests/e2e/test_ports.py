"""What stands at the port: plain HTTP/2, HTTP/1.1, TLS, garbage; UNIX sockets, several addresses, a
port in use."""

import os
import random
import shutil
import socket
import ssl
import stat
import subprocess

import pytest
from pelton.v1 import kv_pb2 as pb
from pelton.v1 import kv_pb2_grpc
from raw import Connection
from server import Server, open_channel, wait_until


def tls_client_hello():
    """What a TLS client says first."""
    output = ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(
        ssl.MemoryBIO(), output, server_hostname="localhost"
    )
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return output.read()


TLS_CLIENT_HELLO = tls_client_hello()


def talk(address, data, seconds=15):
    """Sends bytes and gives back all that comes until the server closes."""
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=seconds) as connection:
        received = b""
        try:
            connection.sendall(data)
            while piece := connection.recv(65_536):
                received += piece
        except ConnectionResetError:
            pass
        except BrokenPipeError:
            pass
        return received


def test_a_plain_get_says_what_this_is(server):
    with Connection(server.address) as connection:
        answer = connection.wait(connection.get("/"))
        assert answer.headers[":status"] == "200" and b"pelton" in answer.body.lower()


@pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")
def test_curl(server):
    command = [
        "curl",
        "--silent",
        "--show-error",
        "--http2-prior-knowledge",
        "--max-time",
        "10",
        "--noproxy",
        "*",
    ]
    output = ["--output", os.devnull, "--write-out", "%{http_code} %{http_version}"]
    url = f"http://{server.address}"
    for more, expected in [
        ([url + "/"], "200 2"),
        ([url + "/nothing"], "404 2"),
        (["--data", "{}", url + "/x"], "404 2"),
    ]:
        result = subprocess.run([*command, *output, *more], capture_output=True, text=True)
        if "not supported" in result.stderr or "unsupported" in result.stderr.lower():
            pytest.skip("this curl has no HTTP/2")
        assert result.stdout == expected, result.stderr
    body = subprocess.run([*command, url + "/"], capture_output=True, text=True).stdout
    assert "elton" in body


def test_other_requests_are_refused_with_a_body(server):
    with Connection(server.address) as connection:
        missing = connection.wait(connection.get("/no/such/page"))
        assert missing.headers[":status"] == "404" and missing.body
        stream = connection.unary("/pelton.v1.KeyValue/Get", b"{}", content_type="application/json")
        wrong_type = connection.wait(stream)
        assert wrong_type.headers[":status"] == "415" and wrong_type.body
        # The connection lives on.
        assert connection.wait(connection.unary("/pelton.v1.KeyValue/Get", b"")).grpc_status == 0


@pytest.mark.parametrize(
    "greeting",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /a HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
        b"GET / HTTP/1.0\r\n\r\n",
    ],
)
def test_http_1_is_told_what_this_port_is(server, greeting):
    answer = talk(server.address, greeting)
    assert answer.startswith(b"HTTP/1.1 ") and b"HTTP/2" in answer


@pytest.mark.parametrize(
    "garbage",
    [
        TLS_CLIENT_HELLO,
        b"\0" * 100,
        b"\r\n\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"*1\r\n$4\r\nPING\r\n",
    ],
    ids=["tls", "zeros", "line ends", "wrong preface", "ssh", "redis"],
)
def test_a_wrong_greeting_is_closed(server, channel, garbage):
    talk(server.address, garbage)
    kv_pb2_grpc.KeyValueStub(channel).Get(pb.GetRequest(), timeout=10)


def test_garbage_is_closed_and_logged_a_few_times(binary):
    with Server(binary) as server:
        talk(server.address, TLS_CLIENT_HELLO)
        server.wait_for_log("a TLS greeting on a plain port")
        for _ in range(200):
            talk(server.address, TLS_CLIENT_HELLO)
        # Ten lines a minute at most, and a word that more are left out; not one for each.
        server.wait_for_log("left out")
        assert server.stop() == 0
        # All that was said is here now.
        assert sum("TLS" in line or "left out" in line for line in server.lines) <= 12, server.log()
        assert len(server.lines) < 50, server.log()


def test_random_bytes_hurt_nobody(server, channel):
    random_bytes = random.Random(20_261_120)
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"
    for _ in range(200):
        data = random_bytes.randbytes(random_bytes.randrange(1, 2_000))
        host, port = server.address.rsplit(":", 1)
        with socket.create_connection((host, int(port))) as connection:
            try:
                connection.sendall(random_bytes.choice([b"", preface]) + data)
            except OSError:
                pass
    kv_pb2_grpc.KeyValueStub(channel).Get(pb.GetRequest(), timeout=10)


def test_a_unix_socket(binary, tmp_path):
    path = tmp_path / "pelton.sock"
    with Server(binary, listen=[f"unix:{path}"]) as server:
        assert stat.S_ISSOCK(path.stat().st_mode) and stat.S_IMODE(path.stat().st_mode) == 0o600
        with open_channel(f"unix:{path}") as channel:
            assert (
                kv_pb2_grpc.KeyValueStub(channel)
                .Put(pb.PutRequest(key=b"k", value=b"v"), timeout=10)
                .applied
            )
        assert server.stop() == 0
    assert not path.exists(), "the socket is left behind"


def test_a_socket_left_behind_by_a_crash_is_taken_over(binary, tmp_path):
    path = tmp_path / "pelton.sock"
    with Server(binary, listen=[f"unix:{path}"]):
        pass
    assert path.exists(), "killed servers leave their socket"
    with Server(binary, listen=[f"unix:{path}"]), open_channel(f"unix:{path}") as channel:
        kv_pb2_grpc.KeyValueStub(channel).Get(pb.GetRequest(), timeout=10)


def test_several_addresses_are_one_server(binary, tmp_path):
    unix = f"unix:{tmp_path / 'pelton.sock'}"
    with Server(binary, listen=["127.0.0.1:0", unix, "127.0.0.1:0"]) as server:
        first, second = [address for address in server.addresses if address.startswith("127.")]
        assert first != second
        with open_channel(first) as one, open_channel(unix) as two, open_channel(second) as three:
            stubs = [kv_pb2_grpc.KeyValueStub(channel) for channel in (one, two, three)]
            for n, stub in enumerate(stubs):
                stub.Put(pb.PutRequest(key=b"k", value=b"%d" % n), timeout=10)
                assert all(
                    other.Get(pb.GetRequest(key=b"k"), timeout=10).value == b"%d" % n
                    for other in stubs
                )
        assert server.stop() == 0


def test_a_port_in_use_is_named_with_the_flag(binary, server):
    result = subprocess.run(
        [binary, "serve", "--listen", server.address], capture_output=True, text=True, timeout=20
    )
    assert result.returncode not in (0, -6, 101)
    message = result.stdout + result.stderr
    assert server.address.rsplit(":", 1)[1] in message and "--listen" in message


def test_connections_are_spread_and_limited(binary):
    with Server(binary, "--threads", "2", "--max-connections", "20") as server:
        connections = [Connection(server.address) for _ in range(20)]
        for connection in connections:
            assert (
                connection.wait(connection.unary("/pelton.v1.KeyValue/Get", b"")).grpc_status == 0
            )
        with Connection(server.address) as refused:
            refused.wait_closed()
        connections.pop().socket.close()

        def one_more():
            with Connection(server.address) as connection:
                stream = connection.unary("/pelton.v1.KeyValue/Get", b"")
                try:
                    return connection.wait(stream).grpc_status == 0
                except AssertionError:
                    return False

        wait_until(one_more, message="a place that became free is not given to another")
        for connection in connections:
            connection.socket.close()
