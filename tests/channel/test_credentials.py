"""TLS and credentials of calls over `pelton_grpc`, compared with grpcio's channel."""

import threading

import grpc
import pelton_grpc
import pytest
from both import SECONDS, outcome
from certificates import Authority
from pelton.v1 import echo_pb2, echo_pb2_grpc, kv_pb2_grpc
from pelton.v1 import kv_pb2 as pb
from server import Server

SECURE = {"grpcio": grpc.secure_channel, "pelton": pelton_grpc.secure_channel}


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def tls_server(binary, authority):
    certificate, key = authority.sign("server")
    words = ["--tls-cert", str(certificate), "--tls-key", str(key), "--interop"]
    with Server(binary, "--threads", "1", *words) as running:
        yield running


@pytest.fixture(scope="module")
def mutual_server(binary, authority):
    certificate, key = authority.sign("mutual")
    words = ["--tls-cert", str(certificate), "--tls-key", str(key)]
    words += ["--client-ca", str(authority.ca)]
    with Server(binary, "--threads", "1", *words) as running:
        yield running


def port_of(server):
    return server.address.rsplit(":", 1)[1]


def echo(channel, **options):
    request = echo_pb2.EchoRequest(payload=b"a")
    return outcome(
        lambda: echo_pb2_grpc.EchoStub(channel).Unary(request, timeout=SECONDS, **options).payload,
        details=False,
    )


def compare(case, server, credentials, **options):
    found = {}
    for name, secure_channel in SECURE.items():
        with secure_channel(f"localhost:{port_of(server)}", credentials, **options) as channel:
            found[name] = case(channel)
    assert found["pelton"] == found["grpcio"]
    return found["pelton"]


def test_tls(tls_server, authority):
    credentials = grpc.ssl_channel_credentials(authority.ca.read_bytes())
    assert compare(echo, tls_server, credentials) == {"returned": b"a"}
    own = pelton_grpc.ssl_channel_credentials(authority.ca.read_bytes())
    with pelton_grpc.secure_channel(f"localhost:{port_of(tls_server)}", own) as channel:
        assert echo(channel) == {"returned": b"a"}


def test_who_is_not_trusted_is_unavailable(tls_server, tmp_path):
    other = Authority(tmp_path / "other")
    credentials = grpc.ssl_channel_credentials(other.ca.read_bytes())
    found = compare(echo, tls_server, credentials)
    assert found["code"] is grpc.StatusCode.UNAVAILABLE


def test_the_name_of_the_server_may_be_another_one(binary, authority):
    certificate, key = authority.sign("named", names="DNS:db.example")
    words = ["--tls-cert", str(certificate), "--tls-key", str(key)]
    credentials = grpc.ssl_channel_credentials(authority.ca.read_bytes())
    named = [("grpc.ssl_target_name_override", "db.example")]
    with Server(binary, "--threads", "1", *words) as server:
        assert compare(echo, server, credentials, options=named) == {"returned": b"a"}
        assert compare(echo, server, credentials)["code"] is grpc.StatusCode.UNAVAILABLE


def test_mutual_tls(mutual_server, authority):
    certificate, key = authority.sign("client")
    pem = authority.ca.read_bytes(), key.read_bytes(), certificate.read_bytes()
    credentials = grpc.ssl_channel_credentials(*pem)
    assert compare(echo, mutual_server, credentials) == {"returned": b"a"}
    without = grpc.ssl_channel_credentials(pem[0])
    assert compare(echo, mutual_server, without)["code"] is grpc.StatusCode.UNAVAILABLE


class Plugin(grpc.AuthMetadataPlugin):
    """Sees what it is asked, and answers on another thread."""

    def __init__(self, name, error=None):
        self.name, self.error, self.asked = name, error, []

    def __call__(self, context, callback):
        self.asked.append((context.service_url, context.method_name))
        answer = ((f"x-grpc-test-echo-{self.name}", "of a plugin"),)
        threading.Timer(0.01, callback, (answer, self.error)).start()


def test_credentials_of_calls_go_with_them(tls_server, authority):
    channel_plugin, call_plugin, third = Plugin("initial"), Plugin("none"), Plugin("third")
    credentials = grpc.composite_channel_credentials(
        grpc.ssl_channel_credentials(authority.ca.read_bytes()),
        grpc.metadata_call_credentials(channel_plugin),
    )
    of_call = grpc.composite_call_credentials(
        grpc.metadata_call_credentials(call_plugin), grpc.metadata_call_credentials(third)
    )

    def case(channel):
        call = channel.unary_unary("/grpc.testing.TestService/UnaryCall")
        _, ended = call.with_call(b"", timeout=SECONDS)
        stream = channel.stream_stream("/grpc.testing.TestService/FullDuplexCall")
        running = stream(iter([b"\x12\x02\x08\x01"]), credentials=of_call, timeout=SECONDS)
        return ended.initial_metadata(), list(running), running.initial_metadata()

    initial, _, streamed = compare(case, tls_server, credentials)
    assert ("x-grpc-test-echo-initial", "of a plugin") in initial
    assert ("x-grpc-test-echo-initial", "of a plugin") in streamed
    # grpcio first, then ours.
    half = len(channel_plugin.asked) // 2
    assert channel_plugin.asked[:half] == channel_plugin.asked[half:]
    assert len(call_plugin.asked) == len(third.asked) == 2


def test_a_plugin_that_fails_ends_the_call(tls_server, authority):
    class Raises(grpc.AuthMetadataPlugin):
        def __call__(self, context, callback):
            raise RuntimeError("of a plugin")

    for plugin in (Plugin("initial", RuntimeError("of a plugin")), Raises()):
        credentials = grpc.composite_channel_credentials(
            grpc.ssl_channel_credentials(authority.ca.read_bytes()),
            grpc.metadata_call_credentials(plugin),
        )
        found = compare(echo, tls_server, credentials)
        assert found["code"] is grpc.StatusCode.UNAVAILABLE


def test_without_tls_credentials_of_a_call_are_not_sent(server):
    token = grpc.access_token_call_credentials("token")
    codes = []
    for insecure_channel in (grpc.insecure_channel, pelton_grpc.insecure_channel):
        with insecure_channel(server.address) as channel:
            codes.append(echo(channel, credentials=token)["code"])
    assert codes == [grpc.StatusCode.UNAUTHENTICATED] * 2


def test_other_credentials_of_a_channel_are_refused():
    with pytest.raises(ValueError, match="certificates only"):
        pelton_grpc.secure_channel("localhost:1", grpc.local_channel_credentials())


def test_pem_that_is_none_is_told():
    credentials = grpc.ssl_channel_credentials(b"no certificate")
    with pytest.raises(ValueError, match="certificate"):
        pelton_grpc.secure_channel("localhost:1", credentials)


def test_a_token_of_a_server_with_identities(binary, authority, tmp_path):
    certificate, key = authority.sign("tokens")
    words = ["--tls-cert", str(certificate), "--tls-key", str(key)]
    first = tmp_path / "first.token"
    words += ["--data", str(tmp_path / "data"), "--init-admin", "--init-admin-file", str(first)]
    words += ["--kind", "memory"]
    listen = ["127.0.0.1:0+anonymous=none"]
    with Server(binary, "--threads", "1", *words, listen=listen) as server:
        token = grpc.access_token_call_credentials(first.read_text().strip())
        tls = grpc.ssl_channel_credentials(authority.ca.read_bytes())

        def case(channel):
            kv = kv_pb2_grpc.KeyValueStub(channel)
            get = pb.GetRequest(key=b"k")
            with_token = outcome(lambda: kv.Get(get, credentials=token, timeout=SECONDS).found)
            without = outcome(lambda: kv.Get(get, timeout=SECONDS), details=False)
            return with_token, without["code"]

        with_token, code = compare(case, server, tls)
        assert with_token == {"returned": False} and code is grpc.StatusCode.UNAUTHENTICATED
