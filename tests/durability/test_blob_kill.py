"""Kill -9 of the server and of the command line in the midst of uploads and downloads: what is
stored, and what is in a file under its name, is whole.

PELTON_BLOB_KILL_ROUNDS says how many rounds (6), PELTON_KILL_SEED repeats the choices of an earlier
run; not its moments.
"""

import json
import os
import random
import subprocess
import time

import grpc
import pytest
from blob_client import CODE, pattern, stub
from pelton.v1 import blob_pb2 as pb
from ports import free_ports
from server import Server, open_channel

BYTES = 12 << 20
SEED = os.environ.get("PELTON_KILL_SEED", str(random.randrange(1 << 32)))
ROUNDS = int(os.environ.get("PELTON_BLOB_KILL_ROUNDS", "6"))
KILLS = 3
SECONDS = 60
DRIVERS = [["--driver", "event-loop", "--threads", "2"], ["--driver", "blocking"]]


def content_of(number):
    part = pattern(number, 1 << 18)
    return b"".join(bytes([piece]) + part[1:] for piece in range(BYTES >> 18))


class Place:
    """A server that is killed and started anew, and the command line."""

    def __init__(self, binary, folder, choose):
        self.binary, self.folder, self.choose = binary, folder, choose
        self.listen = f"127.0.0.1:{free_ports(1)[0]}"
        self.kills = {"server": 0, "client": 0}
        self.start_server()

    def start_server(self):
        flags = ["--data", str(self.folder / "data"), *self.choose.choice(DRIVERS)]
        self.server = Server(self.binary, *flags, listen=(self.listen,))

    def kill_server(self):
        assert self.server.process.poll() is None, self.server.log()
        self.server.kill()
        self.start_server()
        self.kills["server"] += 1

    def start(self, *words):
        command = [
            self.binary,
            *words,
            "--address",
            self.listen,
            "--attempts",
            "50",
            "--chunk-size",
            "64KiB",
            "--output",
            "json",
        ]
        return self.run(command)

    def run(self, command):
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def kill_client(self, client):
        client.kill()
        client.communicate()
        self.kills["client"] += 1

    def end(self, client):
        """What a command has answered. One that began while there was no server has ended at once,
        and is given again."""
        out, errors = client.communicate(timeout=SECONDS)
        for _ in range(3):
            if client.returncode != 3 or "nobody listens there" not in errors:
                break
            client = self.run(client.args)
            out, errors = client.communicate(timeout=SECONDS)
        assert client.returncode == 0, errors
        return json.loads(out)

    def stored(self, name):
        """The content under a name; `None` if there is none."""
        with open_channel(self.listen) as channel:
            try:
                parts = stub(channel).Download(pb.DownloadRequest(name=name), timeout=SECONDS)
                return b"".join(one.data for one in parts)
            except grpc.RpcError as error:
                assert error.code() == CODE.NOT_FOUND, error
                return None

    def wait(self, client, size_of, begin=0):
        """Until a command has moved some bytes, or all of them and a moment more, or has ended."""
        at_end = self.choose.random() < 0.3
        bytes_moved = BYTES if at_end else self.choose.randrange(begin, BYTES)
        deadline = time.monotonic() + SECONDS
        while client.poll() is None and size_of() < bytes_moved:
            assert time.monotonic() < deadline
            time.sleep(0.0005)
        time.sleep(self.choose.uniform(0, 0.02 if at_end else 0.002))


@pytest.fixture
def place(binary, tmp_path):
    print(f"PELTON_KILL_SEED={SEED}")
    place = Place(binary, tmp_path, random.Random(SEED))
    yield place
    print(f"killed: {place.kills}")
    place.server.kill()


def newest_bytes(folder):
    """How much content the newest upload has stored."""
    try:
        return max(folder.glob("*.blob")).stat().st_size
    except (ValueError, FileNotFoundError):
        return 0


def test_an_upload_is_whole_or_not_there_whoever_is_killed(place, tmp_path):
    source, blobs, choose = tmp_path / "blob", tmp_path / "data" / "blobs", place.choose
    before = None
    for number in range(ROUNDS):
        data = content_of(number + 1)
        source.write_bytes(data)
        files = len(list(blobs.glob("*.blob"))) if blobs.exists() else 0
        client = place.start("upload", str(source))
        for _ in range(KILLS):
            # The file of this upload is the newest once there are more of them.
            count = lambda: len(list(blobs.glob("*.blob")))  # noqa: E731
            size = lambda: newest_bytes(blobs) if count() > files else 0  # noqa: E731
            place.wait(client, size)
            if choose.random() < 0.5:
                place.kill_server()
            else:
                place.kill_client(client)
                client = place.start("upload", str(source))
            assert place.stored("blob") in (before, data), "neither the old content nor the new one"
        answer = place.end(client)
        assert answer["size_bytes"] == BYTES
        # What was acknowledged is there, whatever happens now.
        place.kill_server()
        assert place.stored("blob") == data
        before = data
    assert place.server.stop() == 0, place.server.log()
    assert len(list(blobs.glob("*.blob"))) == 1, "what was replaced is gone"


def test_a_download_is_whole_or_not_there_whoever_is_killed(place, tmp_path):
    source, target, choose = tmp_path / "blob", tmp_path / "target", place.choose
    part = tmp_path / "target.part"
    data = content_of(99)
    source.write_bytes(data)
    place.end(place.start("upload", str(source)))
    fetch = ["download", "blob", "--to", str(target)]

    def size():
        try:
            return part.stat().st_size
        except FileNotFoundError:
            return 0

    def told_bytes():
        """How much of it the file beside says is there."""
        try:
            return json.loads((tmp_path / "target.part.state").read_bytes().split(b"\n")[0])[
                "bytes"
            ]
        except (FileNotFoundError, ValueError):
            return 0

    resumed = 0
    for _ in range(ROUNDS):
        client, told = place.start(*fetch), 0
        for _ in range(KILLS):
            before = size()
            place.wait(client, size, begin=min(before, BYTES - 1))
            if choose.random() < 0.4:
                place.kill_server()
                continue
            place.kill_client(client)
            if target.exists():
                # Killed behind the last step.
                assert target.read_bytes() == data
                target.unlink()
            told = told_bytes()
            client = place.start(*fetch)
        assert place.end(client)["resumed_bytes"] == told
        resumed += told > 0
        assert target.read_bytes() == data
        target.unlink()
        assert sorted(one.name for one in tmp_path.iterdir() if one.name.startswith("target")) == []
    print(f"{resumed} of {ROUNDS} rounds ended with a run that went on")
