"""`pelton download` goes on with what an earlier run has left, and finds what has changed
meanwhile."""

import fcntl
import json
import os
import signal
import subprocess

import pytest
from blob_client import pattern, stub, upload
from environment import clean_environment
from pelton.v1 import admin_pb2, admin_pb2_grpc
from pelton.v1 import blob_pb2 as pb
from relay import Faults, Relay
from server import Server, open_channel, wait_until

BYTES = 6 << 20
# In the midst of the content, each time; all that was sent before arrives.
CUT = Faults(cut_bytes=3_000_000, cuts=1, resets=0.0, spread=0.1)


@pytest.fixture(scope="module")
def running(binary, tmp_path_factory):
    with Server(binary, "--data", str(tmp_path_factory.mktemp("resume") / "data")) as server:
        yield server
        assert server.process.poll() is None, server.log()


@pytest.fixture
def blob(running):
    with open_channel(running.address) as channel:
        yield stub(channel)


@pytest.fixture
def name(request):
    return request.node.name


@pytest.fixture
def target(tmp_path):
    return tmp_path / "target"


def content_of(seed):
    part = pattern(seed, 1 << 18)
    return b"".join(bytes([piece]) + part[1:] for piece in range(BYTES >> 18))


def start(binary, address, name, target, *words):
    command = [
        binary,
        "download",
        name,
        "--to",
        str(target),
        "--address",
        address,
        "--output",
        "json",
        *words,
    ]
    environment = clean_environment()
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def fetch(*arguments):
    """The answer, and what was said beside it."""
    process = start(*arguments)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    return json.loads(out), errors


def part_of(target):
    return target.with_name("target.part")


@pytest.fixture
def left(binary, running, blob, name, target):
    """A download that was cut; the content."""
    data = content_of(1)
    upload(blob, name, data, 1 << 20)
    with Relay(running.address, name, CUT) as relay:
        process = start(binary, relay.address, name, target, "--attempts", "1")
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 3 and "are kept" in errors, errors
    assert not target.exists()
    assert 2_000_000 < part_of(target).stat().st_size < BYTES
    return data


def names_in(target):
    return [one.name for one in target.parent.iterdir()]


def test_another_run_goes_on(binary, running, left, name, target):
    answer, errors = fetch(binary, running.address, name, target)
    assert answer["resumed_bytes"] > 2_000_000 and errors == ""
    assert target.read_bytes() == left
    assert names_in(target) == ["target"]


def test_a_damaged_part_is_found(binary, running, left, name, target):
    with open(part_of(target), "r+b") as part:
        part.seek(1_500_000)
        byte = part.read(1)[0]
        part.seek(1_500_000)
        part.write(bytes([byte ^ 4]))
    answer, errors = fetch(binary, running.address, name, target)
    assert answer["resumed_bytes"] == 0 and "is damaged" in errors
    assert target.read_bytes() == left


def test_a_short_part_and_a_spoilt_note_begin_anew(binary, running, left, name, target):
    os.truncate(part_of(target), 1000)
    answer, errors = fetch(binary, running.address, name, target)
    assert answer["resumed_bytes"] == 0 and "is damaged" in errors
    assert target.read_bytes() == left


def test_a_part_of_another_file_is_not_used(binary, running, left, blob, name, target):
    other = content_of(2)
    upload(blob, name + "2", other, 1 << 20)
    answer, _ = fetch(binary, running.address, name + "2", target)
    assert answer["resumed_bytes"] == 0
    assert target.read_bytes() == other


def test_a_replaced_blob_is_not_mixed(binary, running, left, blob, name, target):
    """It has the same size."""
    new = content_of(3)
    upload(blob, name, new, 1 << 20)
    fetch(binary, running.address, name, target)
    assert target.read_bytes() == new


# The polynomial of CRC32C. Added to the bits of a content at any place, it leaves its checksum as
# it was.
POLYNOMIAL = 0x1_1EDC_6F41


def twin_of(data, at):
    """Another content with the same size and the same CRC32C."""
    bits = [number for number in range(33) if POLYNOMIAL >> (32 - number) & 1]
    twin = bytearray(data)
    for bit in bits:
        twin[at + bit // 8] ^= 1 << bit % 8
    return bytes(twin)


def test_a_blob_of_which_only_the_version_is_new_is_fetched_anew(
    binary, running, left, blob, name, target
):
    """The same size, the same checksum, and the same bytes behind what is there: what is there is
    of the old one."""
    new = twin_of(left, 100_000)
    old_blob = blob.Stat(pb.StatRequest(name=name)).blob
    new_blob = upload(blob, name, new, 1 << 20).blob
    assert new != left and new[1_000_000:] == left[1_000_000:]
    assert (new_blob.size_bytes, new_blob.crc32c) == (old_blob.size_bytes, old_blob.crc32c)
    assert new_blob.version > old_blob.version
    # One attempt to be told, one to fetch.
    answer, _ = fetch(binary, running.address, name, target, "--attempts", "2")
    assert target.read_bytes() == new
    assert (answer["version"], answer["resumed_bytes"]) == (new_blob.version, 0)
    assert names_in(target) == ["target"]


def test_a_smaller_blob_is_not_mixed(binary, running, left, blob, name, target):
    upload(blob, name, b"small")
    fetch(binary, running.address, name, target)
    assert target.read_bytes() == b"small"


def test_another_server_with_the_same_version_is_not_mixed(
    binary, left, name, target, tmp_path_factory, running, blob
):
    version = blob.Stat(pb.StatRequest(name=name)).blob.version
    new = content_of(4)
    with (
        Server(binary, "--data", str(tmp_path_factory.mktemp("other") / "data")) as other,
        open_channel(other.address) as channel,
    ):
        there = stub(channel)
        while upload(there, name, b"x").blob.version < version - 1:
            pass
        assert upload(there, name, new, 1 << 20).blob.version == version
        fetch(binary, other.address, name, target)
    assert target.read_bytes() == new


def test_of_a_blob_that_is_gone_nothing_is_left(binary, running, left, blob, name, target):
    blob.Delete(pb.DeleteBlobRequest(name=name))
    process = start(binary, running.address, name, target)
    _, errors = process.communicate(timeout=60)
    assert process.returncode != 0 and "no blob" in errors, errors
    assert names_in(target) == []


def test_two_at_once_are_refused(binary, running, left, name, target):
    with open(part_of(target), "rb") as part:
        fcntl.flock(part, fcntl.LOCK_EX)
        process = start(binary, running.address, name, target)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 3 and "another download" in errors, errors
    assert fetch(binary, running.address, name, target)[0]["resumed_bytes"] > 2_000_000
    assert target.read_bytes() == left


def test_an_interrupted_one_is_kept(binary, running, blob, name, target):
    data = content_of(5)
    upload(blob, name, data, 1 << 20)
    with Relay(running.address, name, Faults(delay_seconds=0.2)) as relay:
        process = start(binary, relay.address, name, target, "--chunk-size", "64KiB")
        wait_until(lambda: part_of(target).exists() and part_of(target).stat().st_size > 200_000)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130 and "interrupted" in errors and "are kept" in errors, errors
    assert fetch(binary, running.address, name, target)[0]["resumed_bytes"] > 200_000
    assert target.read_bytes() == data


def test_an_interrupted_upload_says_how_to_go_on(binary, running, blob, name, target):
    data = content_of(6)
    target.write_bytes(data)
    environment = clean_environment()

    def upload_to(address):
        command = [
            binary,
            "upload",
            str(target),
            "--name",
            name,
            "--address",
            address,
            "--chunk-size",
            "64KiB",
        ]
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )

    def unfinished():
        with open_channel(running.address) as channel:
            databases = (
                admin_pb2_grpc.AdminStub(channel)
                .ListDatabases(admin_pb2.ListDatabasesRequest())
                .databases
            )
        return sum(database.unfinished_uploads for database in databases)

    before = unfinished()
    with Relay(running.address, name, Faults(delay_seconds=0.2)) as relay:
        process = upload_to(relay.address)
        wait_until(lambda: unfinished() > before)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130 and "interrupted" in errors, errors
    assert "the same command goes on from there" in errors and "--keep-uploads" in errors, errors
    process = upload_to(running.address)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert f"{name}: {len(data)} bytes" in out


def test_an_upload_replaces_only_what_it_may(binary, running, name, tmp_path):
    environment = clean_environment()

    def run(*words):
        command = [
            binary,
            "upload",
            *map(str, words),
            "--address",
            running.address,
            "--output",
            "json",
        ]
        return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)

    one, other = tmp_path / "one" / name, tmp_path / "other" / name
    for file in (one, other):
        file.parent.mkdir()
        file.write_text(str(file))
    both = run(one, other)
    assert both.returncode == 2 and "would both be the blob" in both.stderr, both
    first = json.loads(run(one, "--if-absent").stdout)
    refused = run(other, "--if-absent")
    assert refused.returncode == 1 and "nothing stored" in refused.stderr, refused
    assert run(other, "--if-version", first["version"] + 1000).returncode == 1
    second = run(other, "--if-version", first["version"])
    assert second.returncode == 0 and json.loads(second.stdout)["version"] > first["version"], (
        second
    )


@pytest.mark.parametrize("change", ["truncated", "grown", "rewritten"])
def test_a_file_that_is_changed_while_it_is_uploaded_is_not_stored(
    binary, running, blob, name, tmp_path, change
):
    name = name.replace("[", "-").replace("]", "")
    path = tmp_path / "file"
    path.write_bytes(content_of(7))
    command = [binary, "upload", str(path), "--name", name, "--address", running.address]
    environment = clean_environment()
    # It has opened the file, and waits for the server.
    running.process.send_signal(signal.SIGSTOP)
    try:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        wait_until(lambda: str(path) in opened_by(process), 30, "the file is not opened")
        if change == "truncated":
            os.truncate(path, BYTES // 2)
        elif change == "grown":
            with path.open("ab") as file:
                file.write(b"more")
        else:
            path.write_bytes(content_of(8))
    finally:
        running.process.send_signal(signal.SIGCONT)
    out, errors = process.communicate(timeout=60)
    assert process.returncode not in (0, None), out
    assert "was changed while it was uploaded" in errors and "nothing was stored" in errors, errors
    assert not blob.Stat(pb.StatRequest(name=name)).found
    again = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
    assert again.returncode == 0, again.stderr
    assert blob.Stat(pb.StatRequest(name=name)).blob.size_bytes == path.stat().st_size


def opened_by(process):
    """The files that a process has open."""
    folder = f"/proc/{process.pid}/fd"
    try:
        return [os.readlink(f"{folder}/{number}") for number in os.listdir(folder)]
    except OSError:
        return []
