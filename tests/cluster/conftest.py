"""Three nodes of Cassandra and three gateways, for all tests here. Where no node can be started,
all of them are skipped with a word; in CI they fail."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "gateway"))

from cassandra_node import jars_or_skip  # noqa: E402
from machines import Machines  # noqa: E402


@pytest.fixture(scope="session")
def machines(binary, tmp_path_factory):
    jars = jars_or_skip()
    with Machines(binary, jars, tmp_path_factory.mktemp("cluster")) as running:
        yield running
