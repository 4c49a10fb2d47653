"""Honest clients, a process of its own: `honest.py ADDRESS SEED SECONDS DATABASE...`.

Each keeps a ledger of what it has written, and compares every answer with it: no call may fail and
no answer be wrong. No call is repeated. Some stay on their connection, some make a new one for each
call. Prints a summary as JSON.
"""

import json
import pathlib
import random
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))

import stubs  # noqa: E402

stubs.generate(ROOT / "proto")

import grpc  # noqa: E402
from blob_client import download, stub, upload  # noqa: E402
from framed_client import FramedConnection, bytes_field, call_frame  # noqa: E402
from grpc_health.v1 import health_pb2, health_pb2_grpc  # noqa: E402
from pelton.v1 import admin_pb2, admin_pb2_grpc, kv_pb2_grpc  # noqa: E402
from pelton.v1 import blob_pb2  # noqa: E402
from pelton.v1 import kv_pb2 as pb  # noqa: E402

# These only end what hangs: no healthy machine needs them, however busy it is.
CALL_SECONDS = 60
OPTIONS = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)]
KEYS = 30


class Wrong(Exception):
    """An answer that does not fit the ledger."""


class Timed:
    """A stub whose calls have a deadline and are measured: time and name."""

    def __init__(self, stub, seconds):
        self.stub, self.seconds = stub, seconds

    def __getattr__(self, name):
        call, seconds = getattr(self.stub, name), self.seconds

        def timed(request):
            begin = time.monotonic()
            answer = call(request, timeout=CALL_SECONDS)
            # A stream is over when its last message is here.
            answer = answer if hasattr(answer, "DESCRIPTOR") else list(answer)
            seconds.append((time.monotonic() - begin, name))
            return answer

        return timed


class Client(threading.Thread):
    """Does one thing after the other until its time is over."""

    def __init__(self, address, seed, end, keeps_connection):
        super().__init__(daemon=True)
        self.address, self.end, self.keeps_connection = address, end, keeps_connection
        self.rng = random.Random(seed)
        self.seconds, self.failures = [], []

    def run(self):
        try:
            while time.monotonic() < self.end:
                with grpc.insecure_channel(self.address, options=OPTIONS) as channel:
                    self.connect(channel)
                    while time.monotonic() < self.end:
                        self.attempt(self.step)
                        time.sleep(0.002)
                        if not self.keeps_connection:
                            break
            with grpc.insecure_channel(self.address, options=OPTIONS) as channel:
                self.connect(channel)
                self.attempt(self.finish)
        except BaseException as failure:  # noqa: B902 - told in the summary
            self.failures.append(repr(failure))

    def attempt(self, what):
        try:
            what()
        except grpc.RpcError as error:
            self.failures.append(f"{self.doing}: {error.code()}: {error.details()}")
            self.is_unsure()
        except Wrong as wrong:
            self.failures.append(f"{self.doing}: {wrong}")
            self.is_unsure()

    def expect(self, found, wanted, what=""):
        if found != wanted:
            raise Wrong(f"{what} is {found!r:.100} instead of {wanted!r:.100}")


class Pairs(Client):
    """Keys and values of one database."""

    def __init__(self, address, seed, end, keeps_connection, database, prefix):
        super().__init__(address, seed, end, keeps_connection)
        self.database, self.prefix = database, prefix
        self.ledger = {}
        self.number = 0

    def connect(self, channel):
        self.kv = Timed(kv_pb2_grpc.KeyValueStub(channel), self.seconds)

    def is_unsure(self):
        """Nothing is known of what a failed call has done."""
        self.ledger = None

    def read_anew(self):
        self.doing = f"reading anew in {self.database}"
        found = self.kv.Scan(pb.ScanRequest(database=self.database, prefix=self.prefix))
        self.ledger = {entry.key: entry.value for page in found for entry in page.entries}

    def step(self):
        if self.ledger is None:
            self.read_anew()
        key = self.prefix + b"%02d" % self.rng.randrange(KEYS)
        steps = [self.put, self.get, self.get, self.delete, self.append, self.increment]
        steps += [self.batch, self.transact, self.scan, self.count, self.pipe]
        step = self.rng.choice(steps)
        self.doing = f"{step.__name__} in {self.database}"
        step(key)

    def value(self):
        self.number += 1
        return b"%d/" % self.number + bytes(self.rng.choice([0, 10, 1000, 20_000]))

    def put(self, key):
        value = self.value()
        request = pb.PutRequest(database=self.database, key=key, value=value, return_previous=True)
        answer = self.kv.Put(request)
        self.expect(answer.applied, True)
        self.expect(answer.previous.value, self.ledger.get(key, b""), "the previous value")
        self.ledger[key] = value

    def get(self, key):
        answer = self.kv.Get(pb.GetRequest(database=self.database, key=key))
        self.expect(answer.found, key in self.ledger, "found")
        self.expect(answer.value, self.ledger.get(key, b""), "the value")

    def delete(self, key):
        answer = self.kv.Delete(pb.DeleteRequest(database=self.database, key=key))
        self.expect(answer.deleted, key in self.ledger, "deleted")
        self.ledger.pop(key, None)

    def append(self, key):
        if len(self.ledger.get(key, b"")) > 100_000:
            return self.delete(key)
        answer = self.kv.Append(pb.AppendRequest(database=self.database, key=key, value=b"more"))
        self.ledger[key] = self.ledger.get(key, b"") + b"more"
        self.expect(answer.length, len(self.ledger[key]), "the length")

    def increment(self, _):
        key = self.prefix + b"number"
        answer = self.kv.Increment(pb.IncrementRequest(database=self.database, key=key, delta=3))
        number = int.from_bytes(self.ledger.get(key, bytes(8))) + 3
        self.ledger[key] = number.to_bytes(8)
        self.expect(answer.value, number, "the number")

    def batch_of(self, message):
        """Puts and Gets, and what the Gets must find."""
        found = []
        for _ in range(self.rng.choice([1, 5, 20])):
            key = self.prefix + b"%02d" % self.rng.randrange(KEYS)
            if self.rng.random() < 0.5:
                self.ledger[key] = self.value()
                put = pb.Operation.Put(key=key, value=self.ledger[key])
                message.operations.add(put=put)
                found.append(None)
            else:
                message.operations.add(get=pb.Operation.Get(key=key))
                found.append(self.ledger.get(key, b""))
        return found

    def compare(self, results, found):
        self.expect(len(results), len(found), "the number of results")
        values = [result.get.value for result in results]
        values = [None if wanted is None else value for value, wanted in zip(values, found)]
        self.expect(values, found, "what was read")

    def batch(self, _):
        request = pb.BatchRequest(database=self.database)
        found = self.batch_of(request)
        self.compare(self.kv.Batch(request).results, found)

    def transact(self, key):
        comparison = pb.Comparison(key=key, exists=key in self.ledger)
        value = self.value()
        put = pb.Operation(put=pb.Operation.Put(key=key, value=value))
        request = pb.TransactRequest(
            database=self.database, comparisons=[comparison], when_met=[put]
        )
        self.expect(self.kv.Transact(request).met, True, "met")
        self.ledger[key] = value

    def scan(self, _):
        pages = self.kv.Scan(pb.ScanRequest(database=self.database, prefix=self.prefix))
        found = [(entry.key, entry.value) for page in pages for entry in page.entries]
        self.expect(found, sorted(self.ledger.items()), "the scan")

    def count(self, _):
        answer = self.kv.Count(pb.CountRequest(database=self.database, prefix=self.prefix))
        self.expect(answer.count, len(self.ledger), "the count")

    def pipe(self, _):
        requests, wanted = [], []
        for _ in range(5):
            requests.append(pb.PipeRequest(database=self.database))
            wanted.append(self.batch_of(requests[-1]))
        answers = self.kv.Pipe(iter(requests))
        self.expect(len(answers), len(wanted), "the number of answers")
        for answer, found in zip(answers, wanted):
            self.compare(answer.batch.results, found)

    def finish(self):
        if self.ledger is None:
            self.read_anew()
        self.doing = "the last scan"
        self.scan(b"")


class Blobs(Client):
    """Blobs of one database."""

    def __init__(self, address, seed, end, keeps_connection, database, prefix):
        super().__init__(address, seed, end, keeps_connection)
        self.database, self.prefix = database, prefix
        self.ledger = {}

    def connect(self, channel):
        self.stub = Timed(stub(channel), self.seconds)

    def is_unsure(self):
        self.ledger = {}
        self.prefix += "+"

    def step(self):
        name = f"{self.prefix}{self.rng.randrange(4)}"
        steps = [self.upload, self.download, self.download, self.stat, self.delete, self.list]
        step = self.rng.choice(steps)
        self.doing = f"{step.__name__} of a blob"
        step(name)

    def upload(self, name):
        data = self.rng.randbytes(self.rng.choice([0, 1000, 300_000]))
        upload_id = self.rng.randbytes(16)
        answer = upload(self.stub, name, data, upload_id=upload_id, database=self.database)
        self.expect(answer.applied, True, "applied")
        self.ledger[name] = data

    def download(self, name):
        if name not in self.ledger:
            return
        _, data = download(self.stub, name, database=self.database)
        self.expect(data, self.ledger[name], "the content")

    def stat(self, name):
        answer = self.stub.Stat(blob_pb2.StatRequest(database=self.database, name=name))
        self.expect(answer.found, name in self.ledger, "found")
        self.expect(answer.blob.size_bytes, len(self.ledger.get(name, b"")), "the size")

    def delete(self, name):
        request = blob_pb2.DeleteBlobRequest(database=self.database, name=name)
        answer = self.stub.Delete(request)
        self.expect(answer.deleted, name in self.ledger, "deleted")
        self.ledger.pop(name, None)

    def list(self, _):
        lists = self.stub.List(blob_pb2.ListRequest(database=self.database, prefix=self.prefix))
        found = [blob.name for one in lists for blob in one.blobs]
        self.expect(found, sorted(self.ledger), "the list")

    def finish(self):
        self.doing = "the last list"
        self.list("")
        for name in self.ledger:
            self.download(name)


class Asker(Client):
    """What belongs to no database."""

    def connect(self, channel):
        self.admin = Timed(admin_pb2_grpc.AdminStub(channel), self.seconds)
        self.health = Timed(health_pb2_grpc.HealthStub(channel), self.seconds)

    def is_unsure(self):
        pass

    def step(self):
        self.doing = "statistics and health"
        self.expect(self.health.Check(health_pb2.HealthCheckRequest()).status, 1, "health")
        databases = self.admin.Statistics(admin_pb2.StatisticsRequest()).databases
        self.expect(databases[0].database.name, "", "the name of the default database")

    def finish(self):
        self.step()


class FramedPairs(Pairs):
    """Keys and values of one database over baidu_std, and echoes: three calls are on their way at
    once."""

    def run(self):
        self.doing = f"calls over baidu_std in {self.database}"
        try:
            while time.monotonic() < self.end:
                with FramedConnection(self, CALL_SECONDS) as self.connection:
                    while time.monotonic() < self.end:
                        self.step()
                        time.sleep(0.002)
                        if not self.keeps_connection:
                            break
        except BaseException as failure:  # noqa: B902 - told in the summary
            self.failures.append(f"{self.doing}: {failure!r}")

    @property
    def host_port(self):
        host, port = self.address.rsplit(":", 1)
        return host, int(port)

    def step(self):
        """Echo, Put and Get leave together, and their responses come in any order. Put and Get are
        of different keys: which of them is done first is not said."""
        key = self.prefix + b"%02d" % self.rng.randrange(KEYS)
        other = self.prefix + b"%02d" % ((int(key[-2:]) + 1) % KEYS)
        value = self.value()
        put = pb.PutRequest(database=self.database, key=key, value=value)
        get = pb.GetRequest(database=self.database, key=other)
        begin, first = time.monotonic(), 3 * self.number
        service = "pelton.v1.KeyValue"
        self.connection.send(
            call_frame(
                "example.EchoService",
                "Echo",
                bytes_field(1, value),
                b"attached",
                correlation_id=first,
            )
            + call_frame(service, "Put", put.SerializeToString(), correlation_id=first + 1)
            + call_frame("KeyValue", "Get", get.SerializeToString(), correlation_id=first + 2)
        )
        responses = {}
        for _ in range(3):
            response = self.connection.response()
            self.seconds.append((time.monotonic() - begin, "baidu_std"))
            self.expect(response.error_code, 0, f"the error code of {response}")
            responses[response.correlation_id] = response
        self.expect(sorted(responses), [first, first + 1, first + 2], "correlation ids")
        self.expect(responses[first].body, bytes_field(1, value), "the echo")
        self.expect(responses[first].attachment, b"attached", "the attachment")
        self.expect(pb.PutResponse.FromString(responses[first + 1].body).applied, True, "applied")
        found = pb.GetResponse.FromString(responses[first + 2].body)
        self.expect(found.value, self.ledger.get(other, b""), "the value")
        self.ledger[key] = value


def percentile(seconds, percent):
    ordered = sorted(seconds) or [0.0]
    return round(1000 * ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))], 2)


def main():
    address, seed, seconds, *databases = sys.argv[1:]
    end = time.monotonic() + float(seconds)
    clients = []
    for number, database in enumerate(databases):
        for keeps in (True, False):
            prefix = f"{seed}/{number}/{keeps}/".encode()
            clients.append(Pairs(address, prefix, end, keeps, database, prefix))
            prefix = f"{seed}/framed/{number}/{keeps}/".encode()
            clients.append(FramedPairs(address, prefix, end, keeps, database, prefix))
    clients.append(Blobs(address, seed, end, True, databases[-1], f"honest/{seed}/"))
    clients.append(Asker(address, seed, end, False))
    for client in clients:
        client.start()
    for client in clients:
        client.join(float(seconds) + 3 * CALL_SECONDS)
        if client.is_alive():
            client.failures.append(f"{client.doing}: it does not end")
    measured = [one for client in clients for one in client.seconds]
    taken = [seconds for seconds, _ in measured]
    summary = {
        "calls": len(taken),
        "failures": [one for client in clients for one in client.failures],
        "p50_ms": percentile(taken, 50),
        "p99_ms": percentile(taken, 99),
        "longest_ms": percentile(taken, 100),
        "longest": max(measured, default=(0, "none"))[1],
    }
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
