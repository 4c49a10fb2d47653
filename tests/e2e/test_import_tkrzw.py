"""`pelton import --tkrzw` from a stand-in of tkrzw_server, which dies in the middle."""

import bisect
import json
import os
import random
import subprocess
from concurrent import futures

import grpc
import pytest
from compat import tkrzw_rpc_pb2 as pb
from compat import tkrzw_rpc_pb2_grpc as pb_grpc
from environment import clean_environment
from ports import free_ports
from server import Server

SUCCESS, NOT_IMPLEMENTED, NOT_FOUND = 0, 3, 7
OP = pb.IterateRequest.OpType

# A million in the long form.
RECORDS = int(os.environ.get("PELTON_IMPORT_RECORDS", "50000"))


class Original(pb_grpc.DBMServiceServicer):
    """Serves what the import calls, of the databases with index 0 and 1."""

    def __init__(self, records, is_ordered):
        self.records = records
        self.is_ordered = is_ordered
        self.keys = sorted(records)
        if not is_ordered:
            random.Random(1).shuffle(self.keys)
        # After so many records every stream ends with an error; `None`: never.
        self.left = None
        self.first_operations = []
        self.steps = 0

    def Count(self, request, context):
        return pb.CountResponse(count=len(self.keys) if request.dbm_index == 1 else 0)

    def Iterate(self, requests, context):
        place, is_first = None, True
        for request in requests:
            operation, code = request.operation, SUCCESS
            if is_first:
                self.first_operations.append((operation, request.key))
                is_first = False
            keys = self.keys if request.dbm_index == 1 else []
            response = pb.IterateResponse()
            if operation == OP.Value("OP_LAST"):
                code = SUCCESS if self.is_ordered else NOT_IMPLEMENTED
            elif operation == OP.Value("OP_FIRST"):
                place = 0
            elif operation == OP.Value("OP_JUMP_UPPER"):
                place = bisect.bisect_right(keys, request.key)
            elif operation == OP.Value("OP_STEP"):
                if self.left == 0:
                    context.abort(grpc.StatusCode.UNAVAILABLE, "it dies")
                if place is None or place >= len(keys):
                    code = NOT_FOUND
                else:
                    self.left = None if self.left is None else self.left - 1
                    self.steps += 1
                    key = keys[place]
                    response = pb.IterateResponse(key=key, value=self.records[key])
                    place += 1
            response.status.code = code
            yield response


@pytest.fixture
def original(request):
    """The stand-in, with so many records and an order or none."""
    records, is_ordered = request.param
    made = {b"%d" % (number * 7919): b"%d" % number for number in range(records)}
    made[b""], made[b"\0\xff"], made[b"long" * 1000] = b"empty", b"", bytes(100_000)
    servicer = Original(made, is_ordered)
    server = grpc.server(futures.ThreadPoolExecutor(8))
    pb_grpc.add_DBMServiceServicer_to_server(servicer, server)
    servicer.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    yield servicer
    server.stop(0)


def run_import(binary, server, original, folder, *words):
    environment = clean_environment()
    command = [binary, "import", "--tkrzw", original.address, "--index", "1"]
    return subprocess.run(
        [*command, "--address", server.address, *words],
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=600,
        env=environment,
    )


def here(binary, server):
    command = [binary, "export", "--address", server.address, "-"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return len([line for line in lines if '"key' in line])


@pytest.mark.parametrize("original", [(RECORDS, True), (RECORDS, False)], indirect=True)
def test_an_import_goes_on_where_the_original_has_died(binary, original, tmp_path):
    count = len(original.records)
    with Server(binary, "--data", str(tmp_path / "data"), "--durability", "written") as server:
        original.left = count // 2
        failed = run_import(binary, server, original, tmp_path)
        assert failed.returncode == 3 and "it dies" in failed.stderr, failed
        [note] = tmp_path.glob("*.note")
        written = json.loads(note.read_text())["records"]
        assert count // 4 < written <= count // 2
        original.left, original.steps = None, 0
        done = run_import(binary, server, original, tmp_path)
        assert done.returncode == 0, done
        said = f"{count} entries written from {original.address} into the default database"
        assert done.stdout.startswith(said)
        # All once more at the end; of the first half nothing is read twice where there is an order.
        again = count - written if original.is_ordered else count
        assert original.steps == again + count
        last = original.first_operations[-2]
        assert last[0] == OP.Value("OP_JUMP_UPPER" if original.is_ordered else "OP_FIRST")
        assert not list(tmp_path.glob("*.note*"))
        assert here(binary, server) == count


@pytest.mark.parametrize("original", [(1_000, True)], indirect=True)
def test_an_import_finds_what_was_changed_meanwhile(binary, original, tmp_path):
    with Server(binary, "--durability", "volatile") as server:
        original.left = 500
        assert run_import(binary, server, original, tmp_path).returncode == 3
        original.left = None
        original.records[b"0"] = b"changed"
        differs = run_import(binary, server, original, tmp_path)
        assert differs.returncode == 3 and "the sides differ" in differs.stderr, differs
        done = run_import(binary, server, original, tmp_path, "--output", "json")
        assert done.returncode == 0, done
        assert json.loads(done.stdout)["entries"] == len(original.records)


@pytest.mark.parametrize("original", [(10, True)], indirect=True)
def test_an_import_into_what_is_not_empty_is_refused(binary, original, tmp_path):
    with Server(binary, "--durability", "volatile") as server:
        put = [binary, "put", "--address", server.address, "key", "value"]
        subprocess.run(put, check=True, capture_output=True)
        refused = run_import(binary, server, original, tmp_path)
        assert refused.returncode == 3 and "nothing was written" in refused.stderr
        assert not list(tmp_path.glob("*.note"))
        other = tmp_path / "other"
        other.write_text("{}")
        refused = run_import(binary, server, original, tmp_path, "--note", str(other))
        assert refused.returncode == 3 and "no note of an import" in refused.stderr


@pytest.mark.parametrize("original", [(10, True)], indirect=True)
def test_another_server_is_no_original(binary, original, tmp_path):
    with Server(binary, "--durability", "volatile") as server:
        original.address = f"127.0.0.1:{free_ports(1)[0]}"
        refused = run_import(binary, server, original, tmp_path)
        assert refused.returncode == 3 and original.address in refused.stderr
        # The flag that is wrong, and not that of the server that is written to.
        assert "--tkrzw says" in refused.stderr and "--address" not in refused.stderr


def test_a_database_that_is_not_there_names_the_flag(binary, tmp_path):
    class Source:
        pass

    words = ["tkrzw-server", "--address", "127.0.0.1:0"]
    with Server(binary, command=words) as from_server:
        source = Source()
        source.address = from_server.address
        refused = run_import(binary, from_server, source, tmp_path)
        assert refused.returncode == 3 and "--index says" in refused.stderr, refused


def test_our_own_server_is_read_as_well(binary, tmp_path):
    """Two of ours: what one has the other gets."""

    class Source:
        pass

    words = ["tkrzw-server", "--address", "127.0.0.1:0", "#dbm=tiny", "#dbm=baby"]
    with Server(binary, command=words) as from_server:
        source = Source()
        source.address = from_server.address
        with grpc.insecure_channel(source.address) as channel:
            stub = pb_grpc.DBMServiceStub(channel)
            for number in range(5_000):
                key = b"%d" % number
                stub.Set(pb.SetRequest(dbm_index=1, key=key, value=key, overwrite=True))
        with Server(binary, "--durability", "volatile") as server:
            done = run_import(binary, server, source, tmp_path)
            assert done.returncode == 0, done
            assert here(binary, server) == 5_000
