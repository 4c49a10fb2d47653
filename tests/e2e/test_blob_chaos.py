"""Uploads and downloads over connections that are cut, delayed and damaged: what is stored and what
is handed out is right, or not there.

PELTON_CHAOS_ROUNDS (1) is how often, PELTON_SEED repeats the choices of an earlier run.
"""

import os
import random
import shutil
import subprocess
import time

import grpc
import pytest
from blob_client import CODE, begin, chunk, end, pattern, stub
from checksum import crc32c
from certificates import Authority
from environment import clean_environment
from pelton.v1 import blob_pb2 as pb
from relay import Faults, Relay
from server import Server, open_channel

SEED = os.environ.get("PELTON_SEED", str(random.randrange(1 << 32)))
ROUNDS = range(int(os.environ.get("PELTON_CHAOS_ROUNDS", "1")))
BYTES = 6 << 20
PYTHON_BYTES = 1 << 20
TRANSPORTS = ["plain", "tls"] if shutil.which("openssl") else ["plain"]

CUTS = Faults(cut_bytes=1_500_000, cuts=8, delay_seconds=0.01)
CONTENT = Faults(damage_bytes=2_000_000, damages=5, delay_seconds=0.002)
CHUNKS = Faults(damage_bytes=1_000_000, damages=6, where="chunks", cut_bytes=3_000_000, cuts=3)
# Over TLS each of these ends a connection.
STREAM = Faults(damage_bytes=2_000_000, damages=6, where="stream", delay_seconds=0.002)


class Place:
    """A server with a plain port and one with TLS."""

    def __init__(self, server, ca):
        self.server, self.ca = server, ca
        addresses = server.addresses
        self.addresses = {"tls": addresses[0], "plain": addresses[-1]}

    def flags(self, transport):
        return ["--tls-ca", str(self.ca)] if transport == "tls" else []

    def open(self, transport, address):
        if transport == "plain":
            return open_channel(address)
        credentials = grpc.ssl_channel_credentials(self.ca.read_bytes())
        return grpc.secure_channel(
            address, credentials, options=[("grpc.use_local_subchannel_pool", 1)]
        )

    def relay(self, transport, seed, faults):
        return Relay(self.addresses[transport], seed, faults)


@pytest.fixture(scope="module")
def place(binary, tmp_path_factory):
    folder = tmp_path_factory.mktemp("chaos")
    flags, listen, ca = [], ("127.0.0.1:0",), None
    if "tls" in TRANSPORTS:
        authority = Authority(folder / "authority")
        certificate, key = authority.sign("server")
        flags = ["--tls-cert", str(certificate), "--tls-key", str(key)]
        listen, ca = ("127.0.0.1:0", "plain:127.0.0.1:0"), authority.ca
    with Server(binary, "--data", str(folder / "data"), *flags, listen=listen) as running:
        yield Place(running, ca)
        assert running.process.poll() is None, running.log()


@pytest.fixture
def blob(place):
    """Without a relay between."""
    with open_channel(place.addresses["plain"]) as channel:
        yield stub(channel)


@pytest.fixture(params=TRANSPORTS)
def transport(request):
    return request.param


@pytest.fixture(params=ROUNDS)
def seed(request):
    return f"{SEED}/{request.node.name}"


@pytest.fixture
def name(request):
    return request.node.name


def content_of(seed, count=BYTES):
    part = pattern(random.Random(seed).randrange(1, 1 << 32), 1 << 18)
    return b"".join(bytes([number & 0xFF]) + part[1:] for number in range(count >> 18))


def start(binary, place, transport, relay, *words):
    """A command through a relay."""
    command = [
        binary,
        *words,
        "--address",
        relay.address,
        "--chunk-size",
        "64KiB",
        "--attempts",
        "20",
    ]
    command += place.flags(transport)
    environment = clean_environment()
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment)


def stored(blob, name):
    """The content under a name, from the server itself; `None` if there is none."""
    try:
        return b"".join(
            one.data for one in blob.Download(pb.DownloadRequest(name=name), timeout=60)
        )
    except grpc.RpcError as error:
        assert error.code() == CODE.NOT_FOUND, error
        return None


def upload_file(binary, place, transport, relay, blob, name, file, size_bytes):
    """The exit code of an upload, while which nobody sees a part of it."""
    client = start(binary, place, transport, relay, "upload", str(file), "--name", name)
    while client.poll() is None:
        seen = blob.Stat(pb.StatRequest(name=name))
        assert not seen.found or seen.blob.size_bytes == size_bytes
        time.sleep(0.02)
    _, errors = client.communicate(timeout=60)
    return client.returncode, errors


# --------------------------------------------------------------------------------------------------
# The command line


def test_an_upload_over_connections_that_are_cut(
    binary, place, blob, transport, seed, name, tmp_path
):
    data, file = content_of(seed), tmp_path / "file"
    file.write_bytes(data)
    with place.relay(transport, seed, CUTS) as relay:
        code, errors = upload_file(binary, place, transport, relay, blob, name, file, len(data))
        assert relay.cuts > 0
    assert code == 0, errors
    assert stored(blob, name) == data


def test_an_upload_of_what_is_there_leaves_nothing_unfinished(
    binary, place, blob, transport, seed, name, tmp_path
):
    """Sent to its end when the connection was cut: the same content as before, but an upload that
    must be gone on with."""
    data, file = content_of(seed, 1 << 19), tmp_path / "file"
    file.write_bytes(data)
    upload_here(blob, name, data)
    version = blob.Stat(pb.StatRequest(name=name)).blob.version
    with place.relay(transport, seed, Faults(cut_bytes=300_000, cuts=1, spread=0)) as relay:
        code, errors = upload_file(binary, place, transport, relay, blob, name, file, len(data))
        assert relay.cuts == 1
    assert code == 0, errors
    assert blob.Stat(pb.StatRequest(name=name)).blob.version > version
    assert stored(blob, name) == data


def test_a_download_over_connections_that_are_cut(
    binary, place, blob, transport, seed, name, tmp_path
):
    data, file = content_of(seed), tmp_path / "file"
    upload_here(blob, name, data)
    with place.relay(transport, seed, CUTS) as relay:
        client = start(binary, place, transport, relay, "download", name, "--to", str(file))
        while client.poll() is None:
            assert not file.exists() or file.stat().st_size == len(data)
            time.sleep(0.02)
        _, errors = client.communicate(timeout=60)
        assert relay.cuts > 0
    assert client.returncode == 0, errors
    assert file.read_bytes() == data
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def faults_of(transport):
    return CONTENT if transport == "plain" else STREAM


def test_an_upload_over_connections_that_damage(
    binary, place, blob, transport, seed, name, tmp_path
):
    """What is damaged is sent again, until all is there."""
    data, file = content_of(seed), tmp_path / "file"
    file.write_bytes(data)
    with place.relay(transport, seed, faults_of(transport)) as relay:
        code, errors = upload_file(binary, place, transport, relay, blob, name, file, len(data))
        assert relay.damages > 0 and relay.connections > 1, "damage ends a stream"
    assert code == 0, errors
    assert stored(blob, name) == data


def test_a_download_over_connections_that_damage(
    binary, place, blob, transport, seed, name, tmp_path
):
    data, file = content_of(seed), tmp_path / "file"
    upload_here(blob, name, data)
    with place.relay(transport, seed, faults_of(transport)) as relay:
        client = start(binary, place, transport, relay, "download", name, "--to", str(file))
        _, errors = client.communicate(timeout=60)
        assert relay.damages > 0 and relay.connections > 1, "damage ends a stream"
    assert client.returncode == 0, errors
    assert file.read_bytes() == data


def test_a_download_notices_damage_where_it_is(binary, place, blob, seed, name, tmp_path):
    """What came before it is not fetched again: the checksum of the whole would tell only at the
    end, and not where."""
    data, file = content_of(seed, 32 << 20), tmp_path / "file"
    upload_here(blob, name, data)
    with place.relay("plain", seed, Faults(damage_bytes=24 << 20, damages=1, spread=0.0)) as relay:
        client = start(binary, place, "plain", relay, "download", name, "--to", str(file))
        _, errors = client.communicate(timeout=60)
        assert relay.damages == 1
        assert relay.carried["down"] < len(data) * 5 // 4, relay.carried
    assert client.returncode == 0, errors
    assert file.read_bytes() == data


def test_an_upload_with_damage_anywhere_in_its_chunks(binary, place, blob, seed, name, tmp_path):
    """Damage of what stands around the content may end the command: then nothing is there."""
    data, file = content_of(seed), tmp_path / "file"
    file.write_bytes(data)
    with place.relay("plain", seed, CHUNKS) as relay:
        code, errors = upload_file(binary, place, "plain", relay, blob, name, file, len(data))
    found = stored(blob, name)
    assert found == data if code == 0 else found is None, errors


def test_a_download_with_damage_anywhere_in_its_chunks(binary, place, blob, seed, name, tmp_path):
    data, file = content_of(seed), tmp_path / "file"
    upload_here(blob, name, data)
    with place.relay("plain", seed, CHUNKS) as relay:
        client = start(binary, place, "plain", relay, "download", name, "--to", str(file))
        _, errors = client.communicate(timeout=60)
    assert file.read_bytes() == data if client.returncode == 0 else not file.exists(), errors


# --------------------------------------------------------------------------------------------------
# A program


def upload_here(blob, name, data):
    def requests():
        yield begin(name, size_bytes=len(data))
        for at in range(0, len(data), 1 << 18):
            yield chunk(data[at : at + (1 << 18)])
        yield end()

    assert blob.Upload(requests(), timeout=60).applied


def insist(work, codes, attempts=60):
    """Until it succeeds; every failure must be one of these."""
    for attempt in range(attempts):
        try:
            return work(attempt)
        except grpc.RpcError as error:
            assert error.code() in codes, error
            time.sleep(0.02)
    raise AssertionError("too many attempts")


# What a connection ends with that is cut, and a chunk that is damaged.
BROKEN = {CODE.UNAVAILABLE, CODE.INTERNAL, CODE.CANCELLED, CODE.UNKNOWN}
DAMAGED = {CODE.DATA_LOSS, CODE.OUT_OF_RANGE}


def chunks_of(data, offset, chunk_bytes=64 * 1024):
    for at in range(offset, len(data), chunk_bytes):
        part = data[at : at + chunk_bytes]
        yield chunk(part, crc32c=crc32c(part))


def upload_and_resume(channel_of, blob, name, data):
    """As a program would: asks for the place, goes on from there."""
    asked, whole = pb.StatRequest(name=name, upload_id=b"of this test"), crc32c(data)

    def attempt(_):
        seen = blob.Stat(pb.StatRequest(name=name))
        assert not seen.found or seen.blob.crc32c == whole
        with channel_of() as channel:
            offset = stub(channel).Stat(asked, timeout=20).stored_bytes
            if seen.found:
                return seen.blob

            def requests():
                yield begin(name, upload_id=asked.upload_id, offset=offset, size_bytes=len(data))
                yield from chunks_of(data, offset)
                yield end(crc32c=whole)

            return stub(channel).Upload(requests(), timeout=20).blob

    return insist(attempt, BROKEN | DAMAGED)


@pytest.mark.parametrize("fault", ["cut", "damage"])
def test_a_program_resumes_its_upload(place, blob, transport, seed, name, fault):
    data = content_of(seed, PYTHON_BYTES)
    faults = Faults(cut_bytes=400_000, cuts=6, delay_seconds=0.005)
    if fault == "damage":
        faults = Faults(
            damage_bytes=400_000, damages=6, where="content" if transport == "plain" else "stream"
        )
    with place.relay(transport, seed, faults) as relay:
        described = upload_and_resume(
            lambda: place.open(transport, relay.address), blob, name, data
        )
    assert described.crc32c == crc32c(data)
    assert stored(blob, name) == data


@pytest.mark.parametrize("fault", ["cut", "damage"])
def test_a_program_resumes_its_download(place, blob, transport, seed, name, fault):
    data = content_of(seed, PYTHON_BYTES)
    upload_here(blob, name, data)
    version = blob.Stat(pb.StatRequest(name=name)).blob.version
    faults = Faults(cut_bytes=400_000, cuts=6, delay_seconds=0.005)
    if fault == "damage":
        faults = Faults(
            damage_bytes=400_000, damages=6, where="content" if transport == "plain" else "stream"
        )
    have = bytearray()

    def attempt(_):
        with place.open(transport, relay.address) as channel:
            asked = pb.DownloadRequest(
                name=name, offset=len(have), chunk_bytes=65_536, if_version=version
            )
            call = stub(channel).Download(asked, timeout=20)
            for one in call:
                if one.crc32c != crc32c(one.data):
                    call.cancel()
                    spoilt.append(len(have))
                    raise grpc.RpcError("damaged")
                have.extend(one.data)

    spoilt = []

    def until_sound(number):
        try:
            attempt(number)
        except grpc.RpcError as error:
            if not hasattr(error, "code"):
                return until_sound(number)
            raise

    with place.relay(transport, seed, faults) as relay:
        insist(until_sound, BROKEN)
        if fault == "damage" and transport == "plain":
            assert len(spoilt) > 0 or relay.damages == 0, "each damage is noticed by its checksum"
    assert bytes(have) == data


def test_a_damaged_chunk_is_found_at_once_and_what_came_before_it_stays(place, blob, seed, name):
    data = content_of(seed, PYTHON_BYTES)
    with place.relay("plain", seed, Faults(damage_bytes=300_000, damages=1)) as relay:
        with place.open("plain", relay.address) as channel:

            def requests():
                yield begin(name, upload_id=b"id")
                yield from chunks_of(data, 0)
                # No end: only a checksum of a chunk can tell.

            with pytest.raises(grpc.RpcError) as failed:
                stub(channel).Upload(requests(), timeout=20)
        damages = relay.damages
    at = blob.Stat(pb.StatRequest(name=name, upload_id=b"id")).stored_bytes
    assert not blob.Stat(pb.StatRequest(name=name)).found
    if damages:
        assert failed.value.code() == CODE.DATA_LOSS, failed.value
        assert at % 65_536 == 0 and at < len(data)
    else:
        assert failed.value.code() == CODE.INVALID_ARGUMENT, failed.value
        assert at == len(data)

    def rest():
        yield begin(name, upload_id=b"id", offset=at)
        yield from chunks_of(data, at)
        yield end(crc32c=crc32c(data))

    assert blob.Upload(rest(), timeout=20).applied
    assert stored(blob, name) == data
