"""What goes wrong with the folder of one database on disk concerns that database alone."""

import grpc
import pytest
from metrics_page import fetch
from pelton.v1 import kv_pb2 as pb
from server import Server, open_channel, wait_until
from test_disk import Stubs, put


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "data"


def failing(server, name):
    _, page = fetch(server)
    return f'pelton_database_failing{{database="{name}"}} 1' in page


def put_one(stubs, database, key, value=b"v"):
    request = pb.BatchRequest(database=database, operations=[put(key, value)])
    return stubs.kv.Batch(request, timeout=20).applied


def get_one(stubs, database, key):
    return stubs.kv.Get(pb.GetRequest(database=database, key=key), timeout=20)


def test_a_folder_that_cannot_be_made_stops_no_other_database(binary, folder):
    flags = ["--data", str(folder), "--metrics-listen", "0"]
    with Server(binary, *flags) as server:
        channel = open_channel(server.address)
        stubs = Stubs(channel)
        stubs.create("good")
        assert put_one(stubs, "good", b"before")
        in_the_way = []
        for turn in range(2):
            name = f"bad-{turn}"
            # Databases are numbered, and their folders named by number and commit: plain files
            # where one will be made.
            for number in range(2, 6):
                for sequence in range(1, 200):
                    path = folder / "trees" / f"{number}-{sequence}.new"
                    if not path.exists():
                        path.write_text("in the way")
                        in_the_way.append(path)
            stubs.create(name)
            wait_until(
                lambda name=name: f"the database `{name}`" in server.log(), message=server.log
            )
            assert failing(server, name) and not failing(server, "good")

            # It goes on itself, in memory, and so do all others.
            for database in (name, "good", ""):
                key = b"while %d" % turn
                assert put_one(stubs, database, key)
                assert get_one(stubs, database, key).value == b"v"
            with pytest.raises(grpc.RpcError) as refused:
                stubs.create("one-more")
            assert refused.value.code() == grpc.StatusCode.UNAVAILABLE
            assert "folder" in refused.value.details()

            for path in in_the_way:
                path.unlink()
            in_the_way.clear()
            wait_until(lambda name=name: not failing(server, name))
            assert put_one(stubs, name, b"afterwards")
        assert "writes are refused" not in server.log()
        channel.close()
    with Server(binary, *flags) as server:
        channel = open_channel(server.address)
        stubs = Stubs(channel)
        for turn in range(2):
            for key in (b"while %d" % turn, b"afterwards"):
                assert get_one(stubs, f"bad-{turn}", key).value == b"v"
        channel.close()
