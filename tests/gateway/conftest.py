"""A node of Cassandra, and gateways to it. Where there is no node to start, all tests here are
skipped with a word; in CI they fail."""

import pathlib
import sys

import pytest

# What gateways share with a server of one machine is proved by the same tests.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))

from cassandra_node import CassandraNode, jars_or_skip  # noqa: E402
from gateway import Gateway, init_keyspace  # noqa: E402

# These stop the node, so that they come last.
LAST = "test_gateway_faults.py"


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: item.path.name == LAST)


@pytest.fixture(scope="session")
def node(tmp_path_factory):
    jars = jars_or_skip()
    with CassandraNode(jars, tmp_path_factory.mktemp("cassandra")) as running:
        yield running


@pytest.fixture(scope="session")
def keyspace(binary, node):
    """A keyspace that is made ready as most are: linearizable, by hash, with the usual number of
    buckets."""
    init_keyspace(binary, node.address, "usual")
    return "usual"


@pytest.fixture(scope="session")
def gateway(binary, node, keyspace):
    """A gateway for all tests that leave it as it was: each has databases or keys of its own."""
    with Gateway(binary, node.address, keyspace, "--metrics-listen", "127.0.0.1:0") as running:
        yield running
        assert running.process.poll() is None, running.log()


@pytest.fixture(scope="session")
def other(binary, node, keyspace):
    """Another gateway on the same keyspace, with the other driver."""
    variables = {"PELTON_DRIVER": "blocking"}
    with Gateway(binary, node.address, keyspace, variables=variables) as running:
        yield running
        assert running.process.poll() is None, running.log()


@pytest.fixture(scope="session")
def server(binary, node):
    """A gateway whose default database has one bucket, and its keys in order: it behaves as one of
    a server with a data folder does, and takes the same tests."""
    init_keyspace(binary, node.address, "one_bucket", "--order", "merged", "--buckets", "1")
    with Gateway(binary, node.address, "one_bucket") as running:
        running.kind = "remote"
        yield running
        assert running.process.poll() is None, running.log()


@pytest.fixture(scope="module")
def stub(gateway):
    """The calls of `pelton.v1.KeyValue`."""
    return gateway.kv()


@pytest.fixture(scope="module")
def admin(gateway):
    return gateway.admin()
