"""Every method, found by reflection, for callers with and without tokens of every kind."""

import itertools

import pytest
from blob_client import upload
from metrics_page import fetch
from pelton.v1 import admin_pb2, admin_pb2_grpc, blob_pb2, blob_pb2_grpc, kv_pb2, kv_pb2_grpc
from rights import (
    BLOB,
    DENIED,
    MALFORMED,
    OK,
    UNAUTHENTICATED,
    WRONG,
    Caller,
    calls,
    check_complete,
    code_of,
    is_allowed,
    needs,
    reflected,
    unslowed_callers,
)
from server import Server, open_channel, wait_until

RIGHTS = [
    "read",
    "write",
    "admin",
    "read:default",
    "write:default",
    "admin:default",
    "read:other",
    "write:other",
    "admin:other",
    "read:default/images/",
    "write:default/images/",
    "write:default/videos/",
    "write:default/",
    "write:other/images/",
    "service:kvstore",
    "service:gupload",
    "service:ydb-ping",
    "service:brpc-echo",
    "service:srpc-benchmark",
    "service:tkrzw",
]
# No longer good, by how that came.
GONE = ["revoked", "rotated", "expired"]
# The database that has none is the default one.
DATABASES = ["", "other"]
OPEN, CLOSED = "127.0.0.1:0", "127.0.0.1:0+anonymous=none"


@pytest.fixture(scope="module")
def running(binary, tmp_path_factory):
    """A server with an address for everybody and one for those with tokens, which `headers` has."""
    folder = tmp_path_factory.mktemp("rights")
    flags = ["--interop", "--threads", "2", "--data", str(folder / "data")]
    flags += ["--metrics-listen", "127.0.0.1:0"]
    with Server(binary, *flags, listen=[OPEN, CLOSED]) as server:
        with open_channel(server.address) as channel:
            server.headers = {rights: header(make(channel, rights)) for rights in RIGHTS}
            server.headers |= {state: header(gone(channel, state)) for state in GONE}
            create(channel, "other")
            check_complete(reflected(channel), needs())
        yield server
        assert server.process.poll() is None, server.log()


def header(token):
    return f"Bearer {token}"


def make(channel, rights, name=None, **fields):
    name = name or rights.translate(str.maketrans(":/", "--"))
    request = admin_pb2.CreateTokenRequest(name=name, rights=[rights], **fields)
    return admin_pb2_grpc.AdminStub(channel).CreateToken(request).token


def gone(channel, state):
    """A token with every right that is good no longer."""
    admin = admin_pb2_grpc.AdminStub(channel)
    fields = {"expires_after_ms": 1} if state == "expired" else {}
    token = make(channel, "admin", state, **fields)
    if state == "revoked":
        admin.RevokeToken(admin_pb2.RevokeTokenRequest(name=state))
    elif state == "rotated":
        admin.RotateToken(admin_pb2.RotateTokenRequest(name=state))
    else:
        is_over = lambda: any(  # noqa: E731
            one.name == state and one.expired
            for one in admin.ListTokens(admin_pb2.ListTokensRequest()).tokens
        )
        wait_until(is_over)
    return token


def create(channel, name):
    described = admin_pb2.DatabaseDescription(
        name=name, durability=admin_pb2.DURABILITY_MODE_VOLATILE
    )
    request = admin_pb2.CreateDatabaseRequest(database=described)
    admin_pb2_grpc.AdminStub(channel).CreateDatabase(request)


def each_call():
    """Every method with every right it can need, in every database that it can name."""
    for need, right, request in calls(needs()):
        for database in DATABASES if need.names_database else DATABASES[:1]:
            yield need, right, request, database


@pytest.mark.parametrize("rights", RIGHTS)
def test_a_token_is_good_for_what_its_right_says(running, rights):
    with Caller(running.addresses[1], running.headers[rights]) as caller:
        for need, right, request, database in each_call():
            code = code_of(need, caller.call(need, request, database))
            case = (need.path, right, database, code)
            if not is_allowed(rights, need, right, database):
                assert code == DENIED, case
            else:
                assert code not in (DENIED, UNAUTHENTICATED), case


def test_without_a_token_only_what_is_open_is_served(running):
    with Caller(running.addresses[1]) as caller:
        for need, right, request, database in each_call():
            code = code_of(need, caller.call(need, request, database))
            assert code == (OK if right == "none" else UNAUTHENTICATED), (need.path, code)


@pytest.mark.parametrize("state", [*GONE, "wrong", *MALFORMED])
def test_a_token_that_is_not_good_opens_nothing(running, state):
    """Not even what is open without one, and wherever callers without one may do everything."""
    value = running.headers.get(state) or {"wrong": WRONG, **MALFORMED}[state]
    for address in running.addresses:
        check_refused(address, value)


def check_refused(address, *authorizations):
    """Every method, with these headers."""
    callers = unslowed_callers(address, *authorizations)
    for caller, (need, _, request, database) in zip(callers, each_call(), strict=False):
        code = code_of(need, caller.call(need, request, database))
        assert code == UNAUTHENTICATED, (need.path, code)


def test_two_headers_are_none(running):
    for first, second in itertools.product([running.headers["admin"], WRONG], repeat=2):
        check_refused(running.addresses[0], first, second)


def words_of(answer):
    """All of an answer that its caller sees."""
    fields = [sorted((fields or {}).items()) for fields in (answer.headers, answer.trailers)]
    return repr((fields, answer.body, answer.resets))


def test_a_refusal_is_the_same_whatever_there_is(running):
    """Byte for byte but for the caller's own words: with and without the database, the key and the
    blob, for callers who have rights elsewhere, none, or a token that is not good."""
    with open_channel(running.address) as channel:
        admin, kv, blobs = (
            stub(channel)
            for stub in (admin_pb2_grpc.AdminStub, kv_pb2_grpc.KeyValueStub, blob_pb2_grpc.BlobStub)
        )
        create(channel, "there")
        for database in ("", "there"):
            kv.Put(kv_pb2.PutRequest(database=database, key=b"k", value=b"v"))
        upload(blobs, BLOB, b"content")
        seen = refusals(running, ["there", "gone1"])
        assert len(seen) > 100
        # The same calls where neither key nor blob nor database is.
        admin.DropDatabase(admin_pb2.DropDatabaseRequest(name="there", confirm_name="there"))
        assert kv.Delete(kv_pb2.DeleteRequest(key=b"k")).deleted
        assert blobs.Delete(blob_pb2.DeleteBlobRequest(name=BLOB)).deleted
        assert refusals(running, ["there", "gone1"]) == seen


def refusals(running, names):
    """What callers see who may not: the same for all these names."""
    seen = {}
    callers = ["admin:other", "write:default/videos/", "service:kvstore", "revoked", None]
    for rights in callers:
        value = running.headers[rights] if rights else None
        callers = unslowed_callers(running.addresses[1], *([value] if value else []))
        for need, right, request in calls(needs()):
            if not need.names_database:
                continue
            told = set()
            for name in names:
                answer = next(callers).call(need, request, name)
                assert code_of(need, answer) in (DENIED, UNAUTHENTICATED), (need.path, rights)
                told.add(words_of(answer).replace(name, "NAME"))
            assert len(told) == 1, (need.path, rights, told)
            default = words_of(next(callers).call(need, request, ""))
            seen[rights, need.path, right] = (told.pop(), default)
    return seen


def test_the_metrics_address_needs_no_token(running):
    for _ in range(2):
        response, body = fetch(running)
        assert response.status == 200
        # Whatever was sent as a token by these tests is nowhere.
        assert "pelton_refused_calls_total" in body
        assert not any(value.split()[-1] in body for value in running.headers.values())
