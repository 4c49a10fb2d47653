"""Who may do what: every method, found by reflection, for callers with different rights."""

import shutil
import subprocess

import grpc
import pytest
from metrics_page import counter
from pelton.v1 import admin_pb2, admin_pb2_grpc, kv_pb2, kv_pb2_grpc
from rights import (
    MALFORMED,
    WRONG,
    Caller,
    calls,
    check_complete,
    code_of,
    is_allowed,
    needs,
    reflected,
)
from environment import clean_environment
from server import Server, expect_status, open_channel

DENIED = grpc.StatusCode.PERMISSION_DENIED
UNKNOWN = grpc.StatusCode.UNAUTHENTICATED

# What callers without a token may do, each at an address of its own.
RIGHTS = [
    "none",
    "read",
    "write",
    "admin",
    "read:default",
    "write:default",
    "admin:default",
    "admin:other",
    "write:default/images/",
    "service:kvstore",
    "service:gupload",
    "service:ydb-ping",
    "service:brpc-echo",
    "service:srpc-benchmark",
    "service:tkrzw",
]


@pytest.fixture(scope="module")
def running(binary):
    listen = [f"127.0.0.1:0+anonymous={rights}" for rights in RIGHTS]
    with Server(binary, "--interop", "--threads", "2", listen=listen) as server:
        yield server
        assert server.process.poll() is None, server.log()


def address(running, rights):
    return running.addresses[RIGHTS.index(rights)]


@pytest.mark.parametrize("rights", RIGHTS)
def test_every_method_is_for_those_who_have_its_right(running, rights):
    """The same for those with tokens: test_rights_table.py."""
    with open_channel(address(running, rights)) as channel:
        check_complete(reflected(channel), needs())
    refused = UNKNOWN if rights == "none" else DENIED
    with Caller(address(running, rights)) as caller:
        for need, right, request in calls(needs()):
            code = code_of(need, caller.call(need, request))
            if is_allowed(rights, need, right, ""):
                assert code not in (DENIED.value[0], UNKNOWN.value[0]), (need.path, code)
            else:
                assert code == refused.value[0], (need.path, code)


@pytest.mark.parametrize("rights", ["none", "admin"])
def test_a_header_that_is_no_token_is_never_passed_over(running, rights):
    """With a client that is not raw frames."""
    with open_channel(address(running, rights)) as channel:
        get = kv_pb2_grpc.KeyValueStub(channel).Get
        twice = [("authorization", "Bearer a"), ("authorization", "Bearer b")]
        values = [*MALFORMED.values(), WRONG]
        for metadata in [*([("authorization", value)] for value in values), twice]:
            call = lambda: get(kv_pb2.GetRequest(key=b"k"), metadata=metadata)  # noqa: B023, E731
            expect_status(UNKNOWN, call)


def test_a_refusal_does_not_tell_what_there_is(running):
    with open_channel(address(running, "admin")) as channel:
        admin = admin_pb2_grpc.AdminStub(channel)
        for name in ("other", "there"):
            durability = admin_pb2.DURABILITY_MODE_VOLATILE
            described = admin_pb2.DatabaseDescription(name=name, durability=durability)
            admin.CreateDatabase(admin_pb2.CreateDatabaseRequest(database=described))
        kv_pb2_grpc.KeyValueStub(channel).Put(
            kv_pb2.PutRequest(database="there", key=b"k", value=b"v")
        )
    with open_channel(address(running, "admin:other")) as channel:
        kv = kv_pb2_grpc.KeyValueStub(channel)
        admin = admin_pb2_grpc.AdminStub(channel)
        told = set()
        for name, key in (("there", b"k"), ("there", b"none"), ("gone!", b"k")):
            for call in (
                lambda: kv.Get(kv_pb2.GetRequest(database=name, key=key)),  # noqa: B023
                lambda: admin.DropDatabase(admin_pb2.DropDatabaseRequest(name=name)),  # noqa: B023
            ):
                with pytest.raises(grpc.RpcError) as error:
                    call()
                assert error.value.code() == DENIED
                told.add(error.value.details().replace(name, "NAME"))
        assert len(told) == 2, told
        # What it may read, and nothing else.
        listed = admin.ListDatabases(admin_pb2.ListDatabasesRequest())
        assert [one.database.name for one in listed.databases] == ["other"]


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl")
def test_plain_requests_get_the_statuses_of_http(running):
    def status(rights, *words):
        run = ["curl", "-sS", "--http2-prior-knowledge", "--noproxy", "*"]
        run += ["-o", "/dev/null", "-D", "-"]
        url = f"http://{address(running, rights)}/blob/images/a"
        done = subprocess.run([*run, *words, url], capture_output=True, timeout=60, text=True)
        assert done.returncode == 0, done.stderr
        head = done.stdout.lower()
        return int(head.split()[1]), "www-authenticate: bearer" in head

    put = ["-X", "PUT", "--data", "x"]
    for _ in range(2):
        assert status("none") == (401, True)
        assert status("none", *put) == (401, True)
        assert status("read", *put) == (403, False)
        assert status("service:gupload") == (403, False)
        assert status("admin", "-H", "authorization: Bearer x") == (401, True)
        # There is no data folder, and so no blobs: they were asked for.
        for rights in ("read", "write:default/images/"):
            assert status(rights)[0] == 409, rights
        assert status("write:default/images/", *put)[0] == 409


def test_listeners_of_the_network_want_a_word(binary):
    environment = clean_environment()
    for _ in range(2):
        done = subprocess.run(
            [binary, "serve", "--durability", "volatile", "--listen", "0.0.0.0:0"],
            capture_output=True,
            timeout=60,
            text=True,
            env=environment,
        )
        assert done.returncode != 0
        assert "--init-admin" in done.stderr and "0.0.0.0:0+anonymous=" in done.stderr, done.stderr
    with Server(binary, listen=["0.0.0.0:0+anonymous=read:default,service:kvstore"]) as server:
        port = server.address.rsplit(":", 1)[1]
        with open_channel(f"127.0.0.1:{port}") as channel:
            kv = kv_pb2_grpc.KeyValueStub(channel)
            kv.Get(kv_pb2.GetRequest(key=b"k"))
            expect_status(DENIED, lambda: kv.Put(kv_pb2.PutRequest(key=b"k")))
        server.wait_for_log("`read:default` there, without a token", "drop-in service kvstore")


def test_refused_calls_are_counted(binary):
    flags = ["--metrics-listen", "127.0.0.1:0"]
    with Server(binary, *flags, listen=["127.0.0.1:0+anonymous=read"]) as server:
        with open_channel(server.address) as channel:
            kv = kv_pb2_grpc.KeyValueStub(channel)
            for count in (1, 2):
                expect_status(DENIED, lambda: kv.Put(kv_pb2.PutRequest(key=b"k")))
                wrong = [("authorization", WRONG)]
                expect_status(UNKNOWN, lambda: kv.Get(kv_pb2.GetRequest(), metadata=wrong))
                for reason in ("permission_denied", "token_wrong"):
                    name = f'pelton_refused_calls_total{{reason="{reason}"}}'
                    assert counter(server, name) == count, reason


@pytest.mark.parametrize("driver", ["event-loop", "blocking"])
def test_what_is_denied_by_its_request_is_counted(binary, driver):
    """The method could be called, and the right holds in another database."""
    name = 'pelton_refused_calls_total{reason="permission_denied"}'
    flags = ["--metrics-listen", "127.0.0.1:0", "--driver", driver]
    listen = ["127.0.0.1:0+anonymous=read:orders"]
    with Server(binary, *flags, listen=listen) as server, open_channel(server.address) as channel:
        kv = kv_pb2_grpc.KeyValueStub(channel)
        get = kv_pb2.GetRequest(database="other", key=b"k")
        scan = kv_pb2.ScanRequest(database="other")
        for count in (3, 6):
            expect_status(DENIED, lambda: kv.Get(get))
            expect_status(DENIED, lambda: list(kv.Scan(scan)))
            # Known before it begins.
            expect_status(DENIED, lambda: kv.Put(kv_pb2.PutRequest(key=b"k")))
            assert counter(server, name) == count
        assert counter(server, "pelton_running_calls") == 0
