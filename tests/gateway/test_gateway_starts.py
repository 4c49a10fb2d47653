"""What `pelton store init` makes, and what a start refuses, by one line that says what to do."""

import subprocess
import time

import grpc
import pytest
from cql import CqlConnection, CqlError
from gateway import Gateway, init_keyspace, pelton
from metrics_page import fetch
from pelton.v1 import admin_pb2
from pelton.v1 import kv_pb2 as pb
from ports import free_ports
from server import expect_status
from test_tokens import CLOSED, TOKEN

FAILED, USAGE = 3, 2


def tables(node, keyspace):
    with CqlConnection(node.address) as cql:
        rows = cql.query(
            f"SELECT table_name FROM system_schema.tables WHERE keyspace_name = '{keyspace}'"
        )
    return sorted(name.decode() for (name,) in rows)


def refused(binary, *words, code=FAILED):
    """The one line with which a start ends."""
    begin = time.monotonic()
    said = pelton(binary, "serve", "--listen", "127.0.0.1:0", *words, code=code)
    assert time.monotonic() - begin < 60
    assert len(said.strip().splitlines()) == 1, said
    return said


def place(contact, keyspace):
    return ["--store", "cassandra", "--contact", contact, "--keyspace", keyspace]


def test_a_start_makes_nothing_and_says_what_does(binary, node):
    said = refused(binary, *place(node.address, "never_made"))
    assert "never_made" in said and "pelton store init" in said
    assert tables(node, "never_made") == []


def test_init_makes_the_tables_once_and_a_second_time_changes_nothing(binary, node):
    words = ["--promise", "quorum", "--order", "merged", "--buckets", "7"]
    for others in (words, [], ["--promise", "linearizable"]):
        init_keyspace(binary, node.address, "made_twice", *others)
        assert tables(node, "made_twice") == ["catalogue", "linearizable", "quorum"]
    with Gateway(binary, node.address, "made_twice") as gateway:
        (listed,) = gateway.admin().ListDatabases(admin_pb2.ListDatabasesRequest()).databases
        assert listed.database.promise == admin_pb2.REMOTE_PROMISE_QUORUM
        assert listed.database.order == admin_pb2.REMOTE_ORDER_MERGED
        assert listed.database.buckets == 7


def test_another_schema_is_named_and_stays_as_it_is(binary, node):
    init_keyspace(binary, node.address, "changed")
    with CqlConnection(node.address) as cql:
        cql.query("ALTER TABLE changed.linearizable DROP expires_ms")
        said = refused(binary, *place(node.address, "changed"))
        assert "changed" in said and "expires_ms" in said
        assert "pelton store init" in said
        with pytest.raises(CqlError):
            cql.query("SELECT expires_ms FROM changed.linearizable")
        cql.query("DROP TABLE changed.quorum")
    said = refused(binary, *place(node.address, "changed"))
    assert "quorum" in said
    assert tables(node, "changed") == ["catalogue", "linearizable"]


def test_a_missing_table_is_made_by_init(binary, node):
    init_keyspace(binary, node.address, "half_made")
    with CqlConnection(node.address) as cql:
        cql.query("DROP TABLE half_made.quorum")
    assert "quorum" in refused(binary, *place(node.address, "half_made"))
    init_keyspace(binary, node.address, "half_made")
    with Gateway(binary, node.address, "half_made") as gateway:
        assert gateway.kv().Put(pb.PutRequest(key=b"k")).applied


def test_a_node_that_is_not_there_is_named(binary):
    contact = f"127.0.0.1:{free_ports(1)[0]}"
    said = refused(binary, *place(contact, "usual"))
    assert contact in said
    said = pelton(binary, "store", "init", "--contact", contact, "--keyspace", "usual", code=FAILED)
    assert contact in said


@pytest.mark.parametrize("name", ["Usual", "with-hyphen", "1st", "x" * 49, "a; DROP KEYSPACE b"])
def test_what_is_no_name_of_a_keyspace_is_refused(binary, node, name):
    for words in (["serve", "--store", "cassandra"], ["store", "init"]):
        run = subprocess.run(
            [binary, *words, "--contact", node.address, "--keyspace", name],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert run.returncode in (FAILED, USAGE) and "keyspace" in run.stderr, run.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["--data", "/nonexistent"],
        ["--kind", "disk"],
        ["--durability", "volatile"],
        ["--backup-root", "/nonexistent"],
        ["--keep-log", "1h"],
        ["--blob-quota", "1GiB"],
        ["--replicas-acked", "1"],
    ],
    ids=lambda words: words[0].strip("-"),
)
def test_what_belongs_to_a_data_folder_contradicts(binary, words):
    """Before anything is opened: there is no node at this address."""
    said = pelton(binary, "serve", *place("127.0.0.1:1", "usual"), *words, code=USAGE)
    assert words[0].strip("-") in said and "data folder" in said, said


@pytest.mark.parametrize(
    ("words", "missing"),
    [
        (["--store", "cassandra", "--keyspace", "usual"], "contact"),
        (["--store", "cassandra", "--contact", "127.0.0.1:1"], "keyspace"),
        (["--contact", "127.0.0.1:1", "--keyspace", "usual"], "store"),
    ],
)
def test_what_is_missing_is_named(binary, words, missing):
    assert missing in pelton(binary, "serve", *words, code=USAGE)


def test_the_metrics_say_how_the_store_is(gateway, stub):
    stub.Put(pb.PutRequest(key=b"measured", value=b"value"))
    _, page = fetch(gateway)
    names = [line.split("{")[0].split(" ")[0] for line in page.splitlines() if line[:1] != "#"]
    assert any(name.startswith("pelton_store_") for name in names)


def test_tokens_of_a_gateway(binary, node, keyspace, tmp_path):
    """The token of the administrator comes from a file, as the same for all gateways."""
    token = "pelton_" + "A" * 42 + "E"
    file = tmp_path / "token"
    file.write_text(token)
    file.chmod(0o600)
    words = ["--admin-token-file", str(file)]
    for _ in range(2):
        with Gateway(binary, node.address, keyspace, *words, listen=(CLOSED,)) as closed:
            stub, put = closed.kv(), pb.PutRequest(key=b"by token", value=b"v")
            expect_status(grpc.StatusCode.UNAUTHENTICATED, lambda: stub.Put(put))
            metadata = [("authorization", f"Bearer {token}")]
            assert stub.Put(put, metadata=metadata).applied
            create = admin_pb2.CreateDatabaseRequest(
                database=admin_pb2.DatabaseDescription(name="by-token")
            )
            expect_status(
                grpc.StatusCode.UNAUTHENTICATED, lambda: closed.admin().CreateDatabase(create)
            )
            closed.admin().CreateDatabase(create, metadata=metadata)
            assert not TOKEN.search(closed.log())
