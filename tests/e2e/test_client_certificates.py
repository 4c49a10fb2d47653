"""Certificates of clients, and users of UNIX sockets, as identities."""

import contextlib
import os
import pathlib
import queue
import shutil
import signal
import subprocess
import time

import grpc
import pytest
from certificates import Authority
from environment import clean_environment
from pelton.v1 import kv_pb2, kv_pb2_grpc
from server import Server, open_channel, wait_until

pytestmark = pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed")

OK = grpc.StatusCode.OK
UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED
DENIED = grpc.StatusCode.PERMISSION_DENIED
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
# What the network sees, on loopback; and where tests make tokens.
CLOSED = "127.0.0.1:0+anonymous=none"
ADMIN = "plain:127.0.0.1:0"


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def identity(authority):
    """Certificate and key of the server."""
    return authority.sign("server")


def start(binary, identity, authority, *more, listen=(CLOSED, ADMIN)):
    flags = ["--tls-cert", identity[0], "--tls-key", identity[1], "--client-ca", authority.ca]
    return Server(binary, *map(str, flags), *more, listen=listen)


def pelton(binary, address, *words, code=0):
    """What a command prints."""
    environment = clean_environment()
    environment["PELTON_ADDRESS"] = address
    run = subprocess.run(
        [binary, *map(str, words)], env=environment, capture_output=True, text=True, timeout=60
    )
    assert run.returncode == code, (words, run.returncode, run.stdout, run.stderr)
    return run.stdout if code == 0 else run.stderr


def token(binary, server, *words, code=0):
    """A command about tokens, on the address where everybody may."""
    return pelton(binary, server.addresses[-1], "token", *words, code=code)


def bind(binary, server, name, certificate, right="write"):
    words = ["create", name, "--rights", right, "--certificate", certificate]
    assert token(binary, server, *words) == "bound\n"


@contextlib.contextmanager
def secure(server, authority, client=None):
    read = lambda path: pathlib.Path(path).read_bytes()  # noqa: E731
    pair = (read(client[1]), read(client[0])) if client else (None, None)
    credentials = grpc.ssl_channel_credentials(read(authority.ca), *pair)
    options = [("grpc.use_local_subchannel_pool", 1)]
    with grpc.secure_channel(server.address, credentials, options=options) as channel:
        yield channel


def code_of(call):
    try:
        call()
    except grpc.RpcError as error:
        return error.code()
    return OK


def get(channel, bearer=None):
    metadata = [("authorization", f"Bearer {bearer}")] if bearer else []
    stub = kv_pb2_grpc.KeyValueStub(channel)
    request = kv_pb2.GetRequest(key=b"k")
    return code_of(lambda: stub.Get(request, metadata=metadata, timeout=30))


def get_as(server, authority, client, bearer=None):
    """How a Get ends over a connection of its own."""
    with secure(server, authority, client) as channel:
        return get(channel, bearer)


def test_names_of_certificates_stand_for_identities(binary, identity, authority):
    worker = authority.sign("worker", names="DNS:worker.example,IP:10.0.0.1")
    spiffe = authority.sign("spiffe", names="URI:spiffe://example/ns/a")
    mail = authority.sign("mail", names="email:Ops@example.com")
    plain = authority.sign("plain", names=None)
    wildcard = authority.sign("wildcard", names="DNS:*.example")
    with start(binary, identity, authority) as server:
        for _ in range(2):
            for client in (worker, spiffe, mail, plain, wildcard):
                assert get_as(server, authority, client) == UNAUTHENTICATED
            bind(binary, server, "worker", "san:dns:Worker.EXAMPLE")
            bind(binary, server, "spiffe", "san:uri:spiffe://example/ns/a", "read:other")
            bind(binary, server, "mail", "san:email:Ops@EXAMPLE.com")
            bind(binary, server, "plain", f"sha256:{authority.fingerprint(plain[0])}")
            assert get_as(server, authority, worker) == OK
            assert get_as(server, authority, spiffe) == DENIED
            assert get_as(server, authority, mail) == OK
            assert get_as(server, authority, plain) == OK
            assert get_as(server, authority, wildcard) == UNAUTHENTICATED
            listed = token(binary, server, "list").splitlines()
            assert [line.split()[0] for line in listed[1:]] == ["mail", "plain", "spiffe", "worker"]
            assert "san:dns:worker.example" in listed[-1]
            for name in ("worker", "spiffe", "mail", "plain"):
                assert token(binary, server, "revoke", name) == "revoked\n"


def test_what_cannot_be_bound_is_refused(binary, identity, authority):
    words = ["create", "x", "--rights", "read"]
    with start(binary, identity, authority) as server:
        bind(binary, server, "worker", "san:dns:worker.example")
        for binding, told in [
            ("san:dns:*.example", "patterns match nobody"),
            ("san:dns:a b", "is no name of a host"),
            ("sha256:12", "64 hexadecimal digits"),
            ("worker.example", "is none of"),
            ("uid:1", "--uid"),
        ]:
            refused = token(binary, server, *words, "--certificate", binding, code=2)
            assert told in refused, refused
        assert "is no number" in token(binary, server, *words, "--uid", "root", code=2)
        assert "namespaces" in token(binary, server, *words, "--uid", "65534", code=2)
        same = [*words, "--certificate", "san:dns:WORKER.example"]
        assert '"worker" is bound to it already' in token(binary, server, *same, code=3)
        rotated = token(binary, server, "rotate", "worker", code=3)
        assert "bound to san:dns:worker.example" in rotated


def test_a_certificate_for_several_identities_stands_for_none(binary, identity, authority):
    both = authority.sign("both", names="DNS:one.example,DNS:two.example")
    with start(binary, identity, authority) as server:
        for _ in range(2):
            bind(binary, server, "one", "san:dns:one.example")
            assert get_as(server, authority, both) == OK
            bind(binary, server, "two", "san:dns:two.example")
            assert get_as(server, authority, both) == UNAUTHENTICATED
            # Both are the caller's own.
            both_names = r"more than one identity, \"one\", \"two\""
            wait_until(lambda: both_names in server.log(), 30, server.log)
            token(binary, server, "revoke", "one")
            assert get_as(server, authority, both) == OK
            token(binary, server, "revoke", "two")


def test_certificates_are_optional_where_that_is_said(binary, identity, authority, tmp_path):
    stranger = Authority(tmp_path / "stranger", "nobody's authority")
    known = authority.sign("known", names="DNS:known.example")
    old = authority.sign("old", end="20210101000000Z")
    flags = ["--client-auth", "optional"]
    listen = ("127.0.0.1:0+anonymous=read:public", ADMIN)
    with start(binary, identity, authority, *flags, listen=listen) as server:
        bind(binary, server, "known", "san:dns:known.example", "read")
        for round in range(2):
            assert get_as(server, authority, None) == DENIED
            assert get_as(server, authority, known) == OK
            for bad in (stranger.sign("x"), old):
                assert get_as(server, authority, bad) == UNAVAILABLE
            wait_until(lambda: server.log().count("closed a TLS connection") >= 2 + 2 * round)
        server.wait_for_log("unknown issuer", "expired")


def test_a_token_decides_on_a_connection_with_a_certificate(binary, identity, authority):
    client = authority.sign("client", names="DNS:client.example")
    with start(binary, identity, authority) as server:
        bind(binary, server, "client", "san:dns:client.example", "read")
        few = token(binary, server, "create", "few", "--rights", "read:other").strip()
        for _ in range(2):
            with secure(server, authority, client) as channel:
                assert [get(channel), get(channel, few), get(channel)] == [OK, DENIED, OK]
                assert get(channel, "pelton_" + "A" * 43) == UNAUTHENTICATED


@contextlib.contextmanager
def pipe(channel):
    """A stream that has had one answer."""
    requests = queue.SimpleQueue()
    stream = kv_pb2_grpc.KeyValueStub(channel).Pipe(iter(requests.get, None), timeout=90)
    operation = kv_pb2.Operation(get=kv_pb2.Operation.Get(key=b"key"))
    requests.put(kv_pb2.PipeRequest(operations=[operation]))
    next(stream)
    yield stream
    requests.put(None)


def in_seconds(count):
    return time.strftime("%Y%m%d%H%M%SZ", time.gmtime(time.time() + count))


@pytest.mark.parametrize("how", ["revoke", "expire", "certificate"])
def test_an_open_stream_ends_with_what_proves_it(binary, identity, authority, how):
    """Twice, and the stream of somebody else goes on."""
    other = authority.sign(f"other-{how}", names="DNS:other.example")
    with start(binary, identity, authority) as server:
        bind(binary, server, "other", "san:dns:other.example")
        for number in range(2):
            # Both stay good long enough on a busy machine to begin with.
            end = in_seconds(8) if how == "certificate" else "20900101000000Z"
            client = authority.sign(f"{how}-{number}", end=end, names="DNS:client.example")
            expires = ["--expires", "4s"] if how == "expire" else []
            words = ["create", "client", "--rights", "write", *expires]
            token(binary, server, *words, "--certificate", "san:dns:client.example")
            with (
                secure(server, authority, client) as channel,
                secure(server, authority, other) as others,
                pipe(others) as kept,
                pipe(channel) as stream,
            ):
                if how == "revoke":
                    token(binary, server, "revoke", "client")
                begun = time.monotonic()
                with pytest.raises(grpc.RpcError) as ended:
                    next(stream)
                assert ended.value.code() == UNAUTHENTICATED
                # A busy machine; without the end it would wait for ever.
                assert time.monotonic() - begun < 30
                assert get(channel) == UNAUTHENTICATED
                assert get(others) == OK and kept.is_active()
            if how != "revoke":
                token(binary, server, "revoke", "client")


def test_a_connection_ends_when_its_authority_is_taken_away(binary, identity, authority, tmp_path):
    """Twice, and that of another authority goes on; also where somebody else is bound to its name
    meanwhile."""
    other = Authority(tmp_path / "other", "another authority")
    client = other.sign("client", names="DNS:client.example")
    kept = authority.sign("kept", names="DNS:kept.example")
    authorities = tmp_path / "authorities.pem"
    both = authority.ca.read_text() + other.ca.read_text()
    authorities.write_text(both)
    flags = ["--tls-cert", identity[0], "--tls-key", identity[1], "--client-ca", authorities]
    with Server(binary, *map(str, flags), listen=(CLOSED, ADMIN)) as server:
        bind(binary, server, "client", "san:dns:client.example")
        bind(binary, server, "kept", "san:dns:kept.example")
        issued = token(binary, server, "create", "bearer", "--rights", "read").split()
        bearer = next(word for word in issued if word.startswith("pelton_"))
        for number in range(2):
            with (
                secure(server, authority, client) as channel,
                secure(server, authority, client) as idle,
                secure(server, authority, kept) as others,
                pipe(others) as goes_on,
                pipe(channel) as stream,
            ):
                assert get(idle) == OK and get(idle, bearer) == OK
                authorities.write_text(authority.ca.read_text())
                server.signal(signal.SIGHUP)
                with pytest.raises(grpc.RpcError) as ended:
                    next(stream)
                assert ended.value.code() == UNAUTHENTICATED
                assert "does not trust the certificate" in ended.value.details()
                # A client connects again by itself, and is refused in the handshake.
                for _ in range(2):
                    assert get(channel) in (UNAUTHENTICATED, UNAVAILABLE)
                    assert get(idle) in (UNAUTHENTICATED, UNAVAILABLE)
                wait_until(lambda: get(idle, bearer) == UNAVAILABLE)
                assert get(others) == OK and goes_on.is_active()
            name = f"heir-{number}"
            token(binary, server, "revoke", "client" if number == 0 else "heir-0")
            bind(binary, server, name, "san:dns:client.example")
            authorities.write_text(both)
            server.signal(signal.SIGHUP)
            wait_until(lambda: get_as(server, authority, client) == OK)
    # Each time one was taken away.
    assert server.log().count("connections whose certificate it has signed are ended") == 2


def processor_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_authorities_that_a_client_makes_up_cost_little_when_its_own_is_taken_away(
    binary, identity, authority, tmp_path
):
    """A chain may hold certificates that anybody can make; path building would try each order of
    those with one name, for more than 0.1 s each time."""
    other = Authority(tmp_path / "other", "another authority")
    certificate, key = other.sign("client", names="DNS:client.example")
    made_up = [Authority(tmp_path / f"made-up-{n}", "another authority").ca for n in range(10)]
    chain = tmp_path / "chain.pem"
    chain.write_text("".join(path.read_text() for path in [certificate, *made_up]))
    authorities = tmp_path / "authorities.pem"
    authorities.write_text(authority.ca.read_text() + other.ca.read_text())
    flags = ["--tls-cert", identity[0], "--tls-key", identity[1], "--client-ca", authorities]
    with (
        Server(binary, *map(str, flags), listen=(CLOSED, ADMIN)) as server,
        contextlib.ExitStack() as open_ones,
    ):
        bind(binary, server, "client", "san:dns:client.example")
        streams = []
        for _ in range(60):
            channel = open_ones.enter_context(secure(server, authority, (chain, key)))
            streams.append(open_ones.enter_context(pipe(channel)))
        authorities.write_text(authority.ca.read_text())
        before = processor_seconds(server.process.pid)
        server.signal(signal.SIGHUP)
        for stream in streams:
            with pytest.raises(grpc.RpcError) as ended:
                next(stream)
            assert ended.value.code() == UNAUTHENTICATED
        assert processor_seconds(server.process.pid) - before < 2


def test_an_authority_is_taken_away_also_where_the_key_is_broken(
    binary, identity, authority, tmp_path
):
    other = Authority(tmp_path / "other", "another authority")
    client = other.sign("client", names="DNS:client.example")
    authorities, key = tmp_path / "authorities.pem", tmp_path / "server.key"
    both = authority.ca.read_text() + other.ca.read_text()
    good_key = pathlib.Path(identity[1]).read_text()
    flags = ["--tls-cert", identity[0], "--tls-key", key, "--client-ca", authorities]
    authorities.write_text(both)
    key.write_text(good_key)
    with Server(binary, *map(str, flags), listen=(CLOSED, ADMIN)) as server:
        bind(binary, server, "client", "san:dns:client.example")
        for _ in range(2):
            assert get_as(server, authority, client) == OK
            with secure(server, authority, client) as channel, pipe(channel) as stream:
                key.write_text("no key\n")
                authorities.write_text(authority.ca.read_text())
                server.signal(signal.SIGHUP)
                with pytest.raises(grpc.RpcError) as ended:
                    next(stream)
                assert ended.value.code() == UNAUTHENTICATED
            assert get_as(server, authority, client) == UNAVAILABLE
            # And the other way round.
            key.write_text(good_key)
            authorities.write_text("nobody\n")
            server.signal(signal.SIGHUP)
            server.wait_for_log("the authorities of clients in use stay")
            assert get_as(server, authority, client) == UNAVAILABLE
            authorities.write_text(both)
            server.signal(signal.SIGHUP)
            wait_until(lambda: get_as(server, authority, client) == OK)
        server.wait_for_log("the certificate in use stays")


def test_a_self_signed_certificate_is_known_by_its_fingerprint_and_signs_for_nobody(
    binary, identity, authority, tmp_path
):
    own = Authority(tmp_path / "own")
    alice = own.self_signed("alice", "basicConstraints=critical,CA:FALSE")
    bob = own.self_signed("bob", "basicConstraints=critical,CA:FALSE")
    both = tmp_path / "both.pem"
    both.write_text(authority.ca.read_text() + alice[0].read_text())
    flags = ["--tls-cert", identity[0], "--tls-key", identity[1], "--client-ca", both]
    with Server(binary, *map(str, flags), listen=(CLOSED, ADMIN)) as server:
        for one in (alice, bob):
            fingerprint = own.fingerprint(one[0])
            bind(binary, server, one[0].stem, f"sha256:{fingerprint}")
        bind(binary, server, "victim", "san:dns:victim.example")
        assert get_as(server, authority, alice) == OK
        # Nobody has given this one to the server.
        assert get_as(server, authority, bob) == UNAVAILABLE
        server.wait_for_log("unknown issuer")
        forger = Authority(tmp_path / "forger")
        shutil.copy(alice[0], forger.ca)
        shutil.copy(alice[1], forger.folder / "ca.key")
        forged = forger.sign("forged", names="DNS:victim.example")
        assert get_as(server, authority, forged) == UNAVAILABLE


def test_users_of_a_unix_socket_stand_for_identities(binary, tmp_path):
    path = f"unix:{tmp_path}/socket"
    with Server(binary, listen=(f"{path}+anonymous=read:public", "127.0.0.1:0")) as server:
        user = os.getuid()

        def asked():
            with open_channel(path) as channel:
                return get(channel)

        for _ in range(2):
            assert asked() == DENIED
            words = ["create", "me", "--rights", "read", "--uid", user]
            assert token(binary, server, *words) == "bound\n"
            assert asked() == OK
            assert f"uid:{user}" in token(binary, server, "list")
            token(binary, server, "revoke", "me")
            # Others are not this user.
            token(binary, server, "create", "you", "--rights", "read", "--uid", user + 1)
            assert asked() == DENIED
            token(binary, server, "revoke", "you")


def test_bindings_survive_a_restart(binary, identity, authority, tmp_path):
    client = authority.sign("lasting", names="DNS:lasting.example")
    flags = ["--data", str(tmp_path / "data")]
    with start(binary, identity, authority, *flags) as server:
        bind(binary, server, "lasting", "san:dns:lasting.example")
        server.kill()
    for _ in range(2):
        with start(binary, identity, authority, *flags) as server:
            assert get_as(server, authority, client) == OK
            server.kill()
    with start(binary, identity, authority, *flags) as server:
        token(binary, server, "revoke", "lasting")
        server.kill()
    with start(binary, identity, authority, *flags) as server:
        assert get_as(server, authority, client) == UNAUTHENTICATED
