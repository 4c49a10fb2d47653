"""`pelton export` and `pelton import`: from a server of one machine to a gateway and back."""

import json
import random
import signal
import subprocess

import pytest
from gateway import HASH, LINEARIZABLE, MERGED, QUORUM, make_database, pelton
from pelton.v1 import kv_pb2 as pb
from server import Server, open_channel, wait_until

COUNT = 20_000
EXPIRY_MS = 1_900_000_000_000


def entries(count):
    """Entries as JSON: text, bytes, empty values, some large ones, some that expire in years."""
    numbers = random.Random(1)
    for number in range(count):
        entry = {"key": f"key/{number:06d}", "value": f"value {number}"}
        if number % 10 == 0:
            entry["value"] = numbers.randbytes(60).hex()
            entry["value_encoding"] = "hex"
        if number % 100 == 1:
            entry["value"] = ""
        if number % 100 == 2:
            entry["expires_at_ms"] = EXPIRY_MS + number
        if number % 1_000 == 3:
            entry["value"] = "v" * 50_000
        yield json.dumps(entry)


@pytest.fixture(scope="module")
def source(binary, tmp_path_factory):
    """An export of a server with a data folder."""
    folder = tmp_path_factory.mktemp("export")
    given = folder / "given.jsonl"
    given.write_text("\n".join(entries(COUNT)) + "\n")
    exported = folder / "source.jsonl"
    with Server(binary, "--data", str(folder / "data"), "--durability", "written") as server:
        pelton(binary, "import", given, PELTON_ADDRESS=server.address)
        pelton(binary, "export", exported, PELTON_ADDRESS=server.address)
    return exported


# An import says how long an entry lives from then on: what it takes shifts the expiry.
EXPIRY_SHIFT_MS = 600_000


def without_versions(export):
    """Its lines in order, but for versions, which name commits of their own database, and with
    expiries that agree to some minutes."""
    lines = []
    for line in export.read_text().splitlines():
        entry = json.loads(line)
        entry.pop("version", None)
        if expires_ms := entry.pop("expires_at_ms", None):
            assert abs(expires_ms - EXPIRY_MS) < EXPIRY_SHIFT_MS
            entry["expires"] = True
        lines.append(json.dumps(entry, sort_keys=True))
    return lines


@pytest.mark.parametrize("form", ["json", "binary"])
def test_there_and_back_all_is_equal(binary, gateway, admin, source, tmp_path, form):
    database, order = f"round-trip-{form}", MERGED if form == "json" else HASH
    make_database(admin, database, QUORUM, order)
    place = {"PELTON_ADDRESS": gateway.address, "PELTON_DATABASE": database}
    pelton(binary, "import", source, **place)
    back = tmp_path / "back"
    words = ["--format", "binary"] if form == "binary" else []
    pelton(binary, "export", back, *words, **place)
    again = tmp_path / "again.jsonl"
    with Server(binary, "--data", str(tmp_path / "data"), "--durability", "written") as server:
        pelton(binary, "import", back, PELTON_ADDRESS=server.address)
        pelton(binary, "export", again, PELTON_ADDRESS=server.address)
    assert without_versions(again) == without_versions(source)
    if form == "json":
        # Keys in order: the export of the gateway is that of the other server but for versions.
        assert without_versions(back) == without_versions(source)


def test_an_import_that_is_killed_is_repeated(binary, gateway, admin, stub, source, tmp_path):
    make_database(admin, "repeated", LINEARIZABLE)
    some = tmp_path / "some.jsonl"
    lines = source.read_text().splitlines()
    some.write_text("\n".join(lines[1:1_001]) + "\n")
    place = {"PELTON_ADDRESS": gateway.address, "PELTON_DATABASE": "repeated"}
    count = lambda: stub.Count(pb.CountRequest(database="repeated")).count
    words = [binary, "import", str(some), "--database", "repeated", "--address", gateway.address]
    interrupted = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: count() > 0 or interrupted.poll() is not None)
    interrupted.send_signal(signal.SIGKILL)
    interrupted.wait()
    for _ in range(2):
        pelton(binary, "import", some, **place)
        assert count() == 1_000
    back = tmp_path / "back.jsonl"
    pelton(binary, "export", back, **place)
    assert sorted(without_versions(back)[1:-1]) == sorted(without_versions(some))


def test_keys_that_a_gateway_does_not_take_are_named(binary, gateway, admin, tmp_path):
    make_database(admin, "too-long")
    export = tmp_path / "long.jsonl"
    with (
        Server(binary, "--data", str(tmp_path / "data")) as server,
        open_channel(server.address) as channel,
    ):
        from pelton.v1 import kv_pb2_grpc

        kv_pb2_grpc.KeyValueStub(channel).Put(pb.PutRequest(key=b"k" * 65_001, value=b"v"))
        pelton(binary, "export", export, PELTON_ADDRESS=server.address)
    said = pelton(
        binary,
        "import",
        export,
        code=3,
        PELTON_ADDRESS=gateway.address,
        PELTON_DATABASE="too-long",
    )
    assert "65" in said and "000" in said, said
