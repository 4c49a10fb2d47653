"""A client of the kill rounds, a process of its own: `client.py NUMBER SEED`, commands and answers
as JSON lines.

`check` compares what the server has with all that was ever acknowledged; `load` writes in many ways
at once until the server is gone. What was acknowledged is remembered from round to round.
"""

import json
import pathlib
import sys
import threading
import traceback

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))

import stubs  # noqa: E402

stubs.generate(ROOT / "proto")

import grpc  # noqa: E402
from model import NEVER, Entry, Wrong  # noqa: E402
from pelton.v1 import admin_pb2_grpc, kv_pb2_grpc  # noqa: E402
from pelton.v1 import kv_pb2 as pb  # noqa: E402
from writers import LAST_DATABASES, Gone, writers_of_client  # noqa: E402


class Client:
    def __init__(self, number, seed):
        self.writers = writers_of_client(number, seed)
        self.number = number
        self.rounds = 0
        self.channel = None

    def connect(self, address):
        if self.channel:
            self.channel.close()
        self.channel = grpc.insecure_channel(
            address, options=[("grpc.use_local_subchannel_pool", 1)]
        )
        kv, admin = kv_pb2_grpc.KeyValueStub(self.channel), admin_pb2_grpc.AdminStub(self.channel)
        for writer in self.writers:
            writer.connect(kv, admin)
        return kv

    def check(self, address):
        """Looks at every key that this client has ever written, and writes one."""
        kv = self.connect(address)
        found = {}
        for database in LAST_DATABASES:
            found.update(
                {(database, key): entry for key, entry in scan(kv, database, b"%d/" % self.number)}
            )
        versions = []
        for writer in self.writers:
            versions += writer.check(found)
        if found:
            raise Wrong(f"keys that nobody has written: {list(found)[:20]}")
        self.rounds += 1
        put = pb.PutRequest(key=b"rounds/%d" % self.number, value=b"%d" % self.rounds)
        versions.append(kv.Put(put, timeout=15).version)
        default = sum(
            len(space.entries)
            for writer in self.writers
            for space in writer.spaces
            if space.database == ""
        )
        return {
            "keys": sum(writer.count() for writer in self.writers),
            "default_keys": default + 1,
            "versions": versions,
        }

    def load(self):
        """Writes until the server is gone."""
        for writer in self.writers:
            writer.begin()
        threads = [
            threading.Thread(target=run_writer, args=(writer,), daemon=True)
            for writer in self.writers
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        failures = [writer.failure for writer in self.writers if writer.failure]
        failures += [
            f"{writer} still waits although the server is gone"
            for writer, thread in zip(self.writers, threads)
            if thread.is_alive()
        ]
        if failures:
            raise Wrong("\n".join(failures))
        return {
            "acknowledged": {writer.name: writer.acknowledged for writer in self.writers},
            "versions": sorted({version for writer in self.writers for version in writer.versions}),
            "shared": [pair for writer in self.writers for pair in writer.shared],
        }


def scan(kv, database, prefix):
    for page in kv.Scan(pb.ScanRequest(database=database, prefix=prefix), timeout=60):
        for entry in page.entries:
            yield entry.key, Entry(entry.value, entry.version, entry.expires_at_ms or NEVER)


def run_writer(writer):
    try:
        writer.run()
    except Gone:
        pass
    except BaseException:  # noqa: B902 - the answer carries it
        writer.failure = f"{writer}: {traceback.format_exc()}"


def main():
    client = Client(int(sys.argv[1]), sys.argv[2])
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer = getattr(client, command.pop("do"))(**command)
        except BaseException as failure:  # noqa: B902 - the test looks at it
            answer = {
                "failure": str(failure) if isinstance(failure, Wrong) else traceback.format_exc()
            }
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
