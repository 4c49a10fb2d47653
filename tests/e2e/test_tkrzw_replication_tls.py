"""Followers and masters of Tkrzw-RPC where TLS, certificates and tokens are asked for."""

import random
import shutil
from concurrent import futures

import grpc
import pytest
from certificates import Authority
from compat import tkrzw_rpc_pb2 as pb
from compat import tkrzw_rpc_pb2_grpc as pb_grpc
from server import expect_status, open_channel, wait_until
from test_tkrzw_replication import (
    SUCCESS,
    WAIT_SECONDS,
    Follower,
    content,
    server_attributes,
    start,
    write_something,
)

pytestmark = pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed")

UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("stranger"), "nobody's authority")


def start_with_auth(binary, authority, *words):
    certificate, key = authority.sign("server")
    auth = f"ssl:key={key},cert={certificate},root={authority.ca}"
    return start(binary, *words, "--auth", auth)


def secure_channel(server, authority, identity=None):
    certificate, key = identity or (None, None)
    credentials = grpc.ssl_channel_credentials(
        authority.ca.read_bytes(),
        key and key.read_bytes(),
        certificate and certificate.read_bytes(),
    )
    options = [("grpc.use_local_subchannel_pool", 1)]
    return grpc.secure_channel(server.address, credentials, options=options)


def wait_for_problem(stub, *words):
    """Waits until Inspect says why no master is followed."""

    def problem():
        return server_attributes(stub).get("repl_problem", "")

    wait_until(lambda: all(word in problem() for word in words), WAIT_SECONDS, problem)
    assert "\n" not in problem()
    assert server_attributes(stub)["repl_connected"] == "false"


def change(stub, master):
    assert stub.ChangeMaster(pb.ChangeMasterRequest(master=master)).status.code == SUCCESS


@pytest.mark.parametrize("mode", [["--async"], []])
def test_a_follower_with_a_certificate_has_what_a_server_with_auth_has(
    binary, tmp_path, authority, stranger, mode
):
    words = [f"{tmp_path}/a.tkt", "#dbm=tiny", "--ulog_prefix", f"{tmp_path}/ulog", *mode]
    identity = authority.sign("follower")
    with start_with_auth(binary, authority, *words) as server:
        with secure_channel(server, authority, identity) as channel:
            stub = pb_grpc.DBMServiceStub(channel)
            chance = random.Random(11)
            for _ in range(2):
                write_something(stub, chance, 200)
                follower = Follower()
                follower.catch_up(stub)
                assert follower.databases == [content(stub, 0), content(stub, 1)]
                assert follower.updates > 0
            # The request is carried out over TLS too, and what it says is another matter.
            change(stub, "127.0.0.1:1")
            wait_for_problem(stub, "nobody listens there")
        for shown in (None, stranger.sign("follower")):
            with secure_channel(server, authority, shown) as channel:
                stub = pb_grpc.DBMServiceStub(channel)
                request = pb.ReplicateRequest(server_id=9)
                expect_status(
                    grpc.StatusCode.UNAVAILABLE, lambda: next(stub.Replicate(request, timeout=30))
                )
        with open_channel(server.address) as channel:
            stub = pb_grpc.DBMServiceStub(channel)
            expect_status(
                grpc.StatusCode.UNAVAILABLE, lambda: next(stub.Replicate(request, timeout=30))
            )


def test_a_master_with_tls_or_a_token_is_refused_with_what_to_use(binary, tmp_path, authority):
    of_master = ["#dbm=tiny", "--ulog_prefix", f"{tmp_path}/ulog"]
    secure = start_with_auth(binary, authority, *of_master, "--data", f"{tmp_path}/secure")
    closed = start(binary, *of_master, "--data", f"{tmp_path}/closed", "--anonymous", "none")
    opened = start(binary, *of_master, "--data", f"{tmp_path}/open", "--anonymous", "service:tkrzw")
    words = [f"{tmp_path}/f.tkh", "--server_id", "2"]
    with secure, closed, opened, start(binary, *words) as server:
        with open_channel(server.address) as channel, open_channel(opened.address) as other:
            stub, of_opened = pb_grpc.DBMServiceStub(channel), pb_grpc.DBMServiceStub(other)
            of_opened.Set(pb.SetRequest(key=b"k", value=b"v", overwrite=True))
            for master, said in [
                (secure, ("it speaks TLS", "TLS tunnel", "pelton serve --follow")),
                (closed, ("token", "--anonymous service:tkrzw")),
            ]:
                change(stub, master.address)
                wait_for_problem(stub, *said)
                server.wait_for_log(f"the master {master.address} cannot be followed", *said)
                assert content(stub) == {}
            # As the second one says, and with what the first one says in its place.
            change(stub, opened.address)
            wait_until(lambda: content(stub) == {b"k": b"v"}, WAIT_SECONDS)
            assert server_attributes(stub)["repl_problem"] == ""
        with open_channel(closed.address) as channel:
            stub = pb_grpc.DBMServiceStub(channel)
            for call in (
                lambda: next(stub.Replicate(pb.ReplicateRequest(server_id=9), timeout=30)),
                lambda: stub.ChangeMaster(pb.ChangeMasterRequest(master=""), timeout=30),
            ):
                expect_status(UNAUTHENTICATED, call)


def test_a_master_of_another_program_that_speaks_tls_is_not_followed(binary, tmp_path, authority):
    certificate, key = authority.sign("master")
    pair = [(key.read_bytes(), certificate.read_bytes())]
    master = grpc.server(futures.ThreadPoolExecutor(2))
    port = master.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials(pair))
    master.start()
    try:
        words = [f"{tmp_path}/f.tkh", "--server_id", "2", "--repl_master", f"127.0.0.1:{port}"]
        with start(binary, *words) as server:
            server.wait_for_log(f"the master 127.0.0.1:{port} cannot be followed")
            with open_channel(server.address) as channel:
                stub = pb_grpc.DBMServiceStub(channel)
                wait_for_problem(stub, "connection")
                # The server serves on.
                stub.Set(pb.SetRequest(key=b"k", value=b"v", overwrite=True))
                assert content(stub) == {b"k": b"v"}
    finally:
        master.stop(0)
