"""What all end-to-end tests share: generated stubs, and servers."""

import os
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))

import stubs  # noqa: E402

# Tests of commands, of what servers do at a start, and of memory between calls, for which the
# driver of the server makes no difference: script/test runs them once, beside the others with each
# driver.
ONCE = """
    backup blob_resume clock_jumps download_targets import_tkrzw interrupted lab_agent
    lab_diagnose lab_diagnose_go lab_pages lab_scenario lab_sweep lab_tap load load_framed
    load_gupload load_method load_mix load_tkrzw memory_pieces messages monitoring_files
    package_scripts packaging profiles promote replica_conditions replica_faults replicas_tls
    self_check slips_with_tokens terminal tkrzw_replication_tls token_recovery top
"""
ONCE_FILES = [f"e2e/test_{name}.py" for name in ONCE.split()]
if os.environ.get("PELTON_TEST_PART") == "drivers":
    collect_ignore = ONCE_FILES
elif os.environ.get("PELTON_TEST_PART") == "once":
    here = pathlib.Path(__file__).resolve().parent
    every_file = [str(path.relative_to(here)) for path in here.glob("e2e/test_*.py")]
    collect_ignore = sorted(set(every_file) - set(ONCE_FILES))

# The proto files of the repository are compiled anew for every run, so that the tests speak what
# users speak.
stubs.generate(ROOT / "proto")

from pelton.v1 import echo_pb2_grpc, kv_pb2_grpc  # noqa: E402
from server import Server, open_channel  # noqa: E402


@pytest.fixture(scope="session")
def binary():
    """The program under test."""
    path = os.environ.get("PELTON_BINARY", str(ROOT / "target" / "release" / "pelton"))
    assert os.access(path, os.X_OK), f"there is no program at {path}: build it, or run script/test"
    return path


@pytest.fixture(scope="session")
def server(binary, request, tmp_path_factory):
    """A server for all tests that leave it as it was: each uses keys of its own. Its default
    database is in memory and volatile, or for tests that ask for it on disk and synced."""
    kind = getattr(request, "param", "memory")
    folder = tmp_path_factory.mktemp("data")
    place = ["--data", str(folder / "pelton"), "--kind", "disk"] if kind == "disk" else []
    with Server(binary, "--threads", "2", "--interop", *place) as running:
        running.kind = kind
        yield running
        # A server that died or was restarted meanwhile would make the tests before look good.
        assert running.process.poll() is None, running.log()


@pytest.fixture
def channel(server):
    with open_channel(server.address) as opened:
        yield opened


@pytest.fixture
def kv(channel):
    return kv_pb2_grpc.KeyValueStub(channel)


@pytest.fixture
def echo(channel):
    return echo_pb2_grpc.EchoStub(channel)


@pytest.fixture
def prefix(request):
    """Keys of one test begin with this."""
    return request.node.nodeid.encode() + b"/"
