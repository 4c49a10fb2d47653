"""The drop-in services share every port, plain or with TLS; and they may have their original
ones."""

import os
import pathlib
import shutil

import grpc
import pytest
from certificates import Authority
from compat import (
    gupload_pb2,
    gupload_pb2_grpc,
    kvstore_pb2,
    kvstore_pb2_grpc,
    ydb_ping_pb2,
    ydb_ping_pb2_grpc,
)
from server import Server, open_channel, wait_until

# An address of this machine that nobody else uses, so that fixed ports are free.
HOST = f"127.{os.getpid() % 200 + 20}.{os.getpid() // 200 % 256}.7"

# The servers here have no data folder, so nothing that is uploaded could be kept.
DISCARD = "--discard-uploads"


def try_all(channel):
    keys = kvstore_pb2_grpc.KeyValueServiceStub(channel)
    keys.Create(kvstore_pb2.CreateRequest(key=b"k", value=b"v"))
    assert keys.Retrieve(kvstore_pb2.RetrieveRequest(key=b"k")).value == b"v"
    keys.Delete(kvstore_pb2.DeleteRequest(key=b"k"))
    ping = ydb_ping_pb2_grpc.DebugServiceStub(channel)
    assert ping.PingPlainGrpc(ydb_ping_pb2.PlainGrpcRequest(), timeout=10).CallBackTs == 0
    [answer] = ping.PingStream(iter([ydb_ping_pb2.PlainGrpcRequest()]), timeout=10)
    assert answer.CallBackTs > 0
    gupload = gupload_pb2_grpc.GuploadServiceStub(channel)
    assert (
        gupload.Upload(iter([gupload_pb2.Chunk(Content=b"content")]), timeout=10).Code
        == gupload_pb2.Ok
    )


def test_original_ports_are_opened_beside_the_others(binary):
    with Server(binary, DISCARD, f"--original-ports={HOST}") as server:
        wait_until(lambda: len(server.addresses) > 2)
        assert server.addresses[1:] == [f"{HOST}:1313", f"{HOST}:2137"]
        for address in server.addresses:
            with open_channel(address) as channel:
                try_all(channel)


def test_without_a_host_they_are_of_this_machine_only(binary):
    settings = os.popen(f"{binary} config print --original-ports").read()
    assert 'original-ports = "127.0.0.1"' in settings


@pytest.mark.parametrize("host", ["", "127.0.0.1:1", "unix:/x"])
def test_what_is_no_host_is_refused(binary, host):
    with pytest.raises(AssertionError, match="without a port"):
        with Server(binary, f"--original-ports={host}"):
            pass


def test_with_tls(binary, tmp_path):
    folder = tmp_path / "tls"
    with Server(
        binary, DISCARD, f"--tls-self-signed={folder}", f"--original-ports={HOST}"
    ) as server:
        wait_until(lambda: len(server.addresses) > 2)
        credentials = grpc.ssl_channel_credentials((folder / "ca.pem").read_bytes())
        # The original server of gupload speaks TLS if it has a certificate. Its client expects this
        # name.
        named = [("grpc.ssl_target_name_override", "localhost")]
        for address in [server.address, f"{HOST}:1313"]:
            with grpc.secure_channel(address, credentials, named) as channel:
                try_all(channel)
        # The original ping server is plain, and so are its clients.
        with open_channel(f"{HOST}:2137") as channel:
            try_all(channel)


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed")
def test_with_client_certificates(binary, tmp_path):
    authority = Authority(tmp_path)
    certificate, key = map(str, authority.sign("server"))
    flags = ["--tls-cert", certificate, "--tls-key", key, "--client-ca", str(authority.ca)]
    with Server(binary, DISCARD, *flags) as server:
        certificate, key = (pathlib.Path(file).read_bytes() for file in authority.sign("client"))
        roots = pathlib.Path(authority.ca).read_bytes()
        with grpc.secure_channel(
            server.address, grpc.ssl_channel_credentials(roots, key, certificate)
        ) as channel:
            try_all(channel)
        with grpc.secure_channel(server.address, grpc.ssl_channel_credentials(roots)) as channel:
            ping = ydb_ping_pb2_grpc.DebugServiceStub(channel)
            with pytest.raises(grpc.RpcError) as error:
                ping.PingPlainGrpc(ydb_ping_pb2.PlainGrpcRequest(), timeout=10)
            assert error.value.code() == grpc.StatusCode.UNAVAILABLE
