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
from lanes import LAST_DATABASES, Gone, lanes_of_client  # noqa: E402
from model import NEVER, Entry, Wrong  # noqa: E402
from pelton.v1 import admin_pb2_grpc, kv_pb2_grpc  # noqa: E402
from pelton.v1 import kv_pb2 as pb  # noqa: E402


class Client:
    def __init__(self, number, seed):
        self.lanes = lanes_of_client(number, seed)
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
        for lane in self.lanes:
            lane.connect(kv, admin)
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
        for lane in self.lanes:
            versions += lane.check(found)
        if found:
            raise Wrong(f"keys that nobody has written: {list(found)[:20]}")
        self.rounds += 1
        put = pb.PutRequest(key=b"rounds/%d" % self.number, value=b"%d" % self.rounds)
        versions.append(kv.Put(put, timeout=15).version)
        default = sum(
            len(space.entries)
            for lane in self.lanes
            for space in lane.spaces
            if space.database == ""
        )
        return {
            "keys": sum(lane.count() for lane in self.lanes),
            "default_keys": default + 1,
            "versions": versions,
        }

    def load(self):
        """Writes until the server is gone."""
        for lane in self.lanes:
            lane.begin()
        threads = [
            threading.Thread(target=run_lane, args=(lane,), daemon=True) for lane in self.lanes
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        failures = [lane.failure for lane in self.lanes if lane.failure]
        failures += [
            f"{lane} still waits although the server is gone"
            for lane, thread in zip(self.lanes, threads)
            if thread.is_alive()
        ]
        if failures:
            raise Wrong("\n".join(failures))
        return {
            "acknowledged": {lane.name: lane.acknowledged for lane in self.lanes},
            "versions": sorted({version for lane in self.lanes for version in lane.versions}),
            "shared": [pair for lane in self.lanes for pair in lane.shared],
        }


def scan(kv, database, prefix):
    for page in kv.Scan(pb.ScanRequest(database=database, prefix=prefix), timeout=60):
        for entry in page.entries:
            yield entry.key, Entry(entry.value, entry.version, entry.expires_at_ms or NEVER)


def run_lane(lane):
    try:
        lane.run()
    except Gone:
        pass
    except BaseException:  # noqa: B902 - the answer carries it
        lane.failure = f"{lane}: {traceback.format_exc()}"


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
