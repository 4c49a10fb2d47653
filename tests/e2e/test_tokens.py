"""Tokens: how they are made, changed and taken back, that they survive what a server survives, and
that they are nowhere to be read."""

import base64
import concurrent.futures
import hashlib
import hmac
import os
import pathlib
import queue
import re
import shutil
import stat
import subprocess
import time

import grpc
import pytest
from environment import clean_environment
from pelton.v1 import admin_pb2, admin_pb2_grpc, kv_pb2, kv_pb2_grpc
from raw import DATA, END_STREAM, Connection, frame
from server import Server, open_channel, wait_until

TOKEN = re.compile(r"pelton_[\w-]{43}")
OPEN = "127.0.0.1:0"
CLOSED = "127.0.0.1:0+anonymous=none"


def pelton(binary, address, *words, token=None, code=0, **variables):
    """What a command prints; its standard error is checked for tokens."""
    environment = clean_environment()
    environment |= {"PELTON_ADDRESS": address, **variables}
    if token:
        environment["PELTON_TOKEN"] = token
    run = subprocess.run(
        [binary, *map(str, words)], env=environment, capture_output=True, text=True, timeout=60
    )
    assert run.returncode == code, (words, run.returncode, run.stdout, run.stderr)
    assert not TOKEN.search(run.stderr), run.stderr
    return run.stdout if code == 0 else run.stderr


def get(address, token, key=b"key"):
    """How a Get with this token ends."""
    metadata = [("authorization", f"Bearer {token}")] if token else []
    with open_channel(address) as channel:
        try:
            get = kv_pb2_grpc.KeyValueStub(channel).Get
            get(kv_pb2.GetRequest(key=key), metadata=metadata, timeout=30)
        except grpc.RpcError as error:
            return error.code()
    return grpc.StatusCode.OK


OK = grpc.StatusCode.OK
UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED
DENIED = grpc.StatusCode.PERMISSION_DENIED


def made(text):
    token = text.strip()
    assert TOKEN.fullmatch(token), text
    return token


def shown(server):
    """The administrator's token, as it was shown once."""
    server.wait_for_log("shown this once: pelton_")
    wait_until(lambda: TOKEN.search(server.log()), 30, lambda: "no token is shown")
    return TOKEN.search(server.log())[0]


def files_with(folder, *texts):
    """Files of a folder that have one of these."""
    found = []
    for path in pathlib.Path(folder).rglob("*"):
        content = path.read_bytes() if path.is_file() else b""
        if any(text.encode() in content for text in texts):
            found.append(path.name)
    return found


def test_tokens_survive_kill_9_and_what_was_revoked_stays_revoked(binary, tmp_path):
    data = str(tmp_path / "data")
    flags = ["--data", data, "--threads", "1"]
    revoked, kept = [], None
    with Server(binary, *flags, listen=(OPEN,)) as server:
        kept = made(pelton(binary, server.address, "token", "create", "kept", "--rights", "read"))
    for _ in range(3):
        with Server(binary, *flags, listen=(OPEN,)) as server:
            words = ["token", "create", "ci", "--rights", "write"]
            token = made(pelton(binary, server.address, *words))
            assert get(server.address, token) == OK
            server.kill()
        with Server(binary, *flags, listen=(OPEN,)) as server:
            assert get(server.address, token) == OK
            assert pelton(binary, server.address, "token", "revoke", "ci") == "revoked\n"
            # At once: the command has said so.
            server.kill()
        revoked.append(token)
        with Server(binary, *flags, listen=(OPEN,)) as server:
            listed = pelton(binary, server.address, "token", "list")
            assert [line.split()[0] for line in listed.splitlines()] == ["NAME", "kept"]
            assert get(server.address, kept) == OK
            for one in revoked:
                assert get(server.address, one) == UNAUTHENTICATED
    assert files_with(data, kept, *revoked) == []
    # What is kept of one is its hash under the secret of the folder, and no other.
    text = pathlib.Path(data, "pelton-data").read_text()
    secret = bytes.fromhex(re.search(r"secret (\w{64})", text)[1])
    raw = base64.urlsafe_b64decode(kept.removeprefix("pelton_") + "=")
    contents = [path.read_bytes() for path in pathlib.Path(data).glob("*.log")]
    keyed = hmac.new(secret, raw, hashlib.sha256).digest()
    assert any(keyed in content for content in contents)
    for other in (hashlib.sha256(raw).digest(), raw):
        assert not any(other in content for content in contents)


@pytest.mark.parametrize("storage", ["folder", "volatile"])
def test_each_state_of_a_token_twice(binary, tmp_path, storage):
    place = ["--durability", "volatile"]
    if storage == "folder":
        place = ["--data", str(tmp_path / "data")]
    with Server(binary, *place, listen=(OPEN,)) as server:

        def run(*words, **more):
            return pelton(binary, server.address, "token", *words, **more)

        for _ in range(2):
            first = made(run("create", "ci", "--rights", "read"))
            assert "already" in run("create", "ci", "--rights", "read", code=3)
            second = made(run("rotate", "ci", "--keep", "1h"))
            assert [get(server.address, one) for one in (first, second)] == [OK, OK]
            third = made(run("rotate", "ci", "--revoke-kept"))
            states = [get(server.address, one) for one in (first, second, third)]
            assert states == [UNAUTHENTICATED, UNAUTHENTICATED, OK]
            run("revoke", "ci")
            assert get(server.address, third) == UNAUTHENTICATED
            assert "no token" in run("revoke", "ci", code=1)
            assert "no token" in run("rotate", "ci", code=1)
            short = made(run("create", "short", "--rights", "read", "--expires", "300ms"))
            is_over = lambda: get(server.address, short) == UNAUTHENTICATED  # noqa: B023, E731
            wait_until(is_over, 30, lambda: "it does not expire")
            assert "(expired)" in run("list")
            assert "expired" in run("rotate", "short", code=3)
            again = made(run("rotate", "short", "--expires", "1h"))
            assert get(server.address, again) == OK
            run("revoke", "short")
        assert len(run("list").splitlines()) == 1
        assert not TOKEN.search(server.log())


def test_rights_hold_where_they_were_given(binary):
    with Server(binary, "--init-admin", listen=(CLOSED,)) as server:
        admin = shown(server)
        assert get(server.address, None) == UNAUTHENTICATED

        def run(*words, **more):
            return pelton(binary, server.address, *words, token=admin, **more)

        run("database", "create", "orders", "--durability", "volatile")
        shop = made(run("token", "create", "shop", "--rights", "write:orders"))
        pelton(binary, server.address, "put", "k", "v", "--database", "orders", token=shop)
        assert get(server.address, shop) == DENIED
        told = pelton(binary, server.address, "token", "list", token=shop, code=3)
        assert "PERMISSION_DENIED" in told
        assert "last" in run("token", "revoke", "admin", code=3)
        run("token", "revoke", "admin", "--last-admin")
        assert "UNAUTHENTICATED" in run("token", "list", code=3)
        pelton(binary, server.address, "put", "k", "v", "--database", "orders", token=shop)


@pytest.mark.parametrize("how", ["revoke", "rotate", "expire"])
def test_an_open_stream_ends_with_its_token(binary, how):
    """Twice, and the stream of somebody else goes on."""
    with Server(binary, listen=(OPEN,)) as server:

        def run(*words):
            return pelton(binary, server.address, "token", *words)

        def pipe(channel, token):
            """A stream that has had one answer, and the queue of its requests."""
            requests = queue.SimpleQueue()
            metadata = [("authorization", f"Bearer {token}")]
            stub = kv_pb2_grpc.KeyValueStub(channel)
            stream = stub.Pipe(iter(requests.get, None), metadata=metadata)
            operation = kv_pb2.Operation(get=kv_pb2.Operation.Get(key=b"key"))
            requests.put(kv_pb2.PipeRequest(operations=[operation]))
            next(stream)
            return stream, requests

        other = made(run("create", "other", "--rights", "write"))
        for number in range(2):
            expires = ["--expires", "1500ms"] if how == "expire" else []
            token = made(run("create", f"ci-{number}", "--rights", "write", *expires))
            with open_channel(server.address) as channel, open_channel(server.address) as others:
                kept, kept_requests = pipe(others, other)
                stream, requests = pipe(channel, token)
                if how != "expire":
                    run(how, f"ci-{number}")
                begun = time.monotonic()
                with pytest.raises(grpc.RpcError) as ended:
                    next(stream)
                assert ended.value.code() == UNAUTHENTICATED
                # A second, and a busy machine; without the end it would wait for ever.
                assert time.monotonic() - begun < 20
                requests.put(None)
                kept_requests.put(kv_pb2.PipeRequest(operations=[]))
                kept_requests.put(None)
                # Another identity's stream goes on to its own end.
                list(kept)
                assert kept.code() == OK


def test_the_first_administrator_is_made_once(binary, tmp_path):
    flags = ["--data", str(tmp_path / "data"), "--init-admin"]
    with Server(binary, *flags, listen=(CLOSED,)) as server:
        token = shown(server)
        assert get(server.address, token) == OK
        server.kill()
    for _ in range(2):
        with Server(binary, *flags, listen=(CLOSED,)) as server:
            server.wait_for_log("there is an administrator's token already")
            assert not TOKEN.search(server.log())
            assert get(server.address, token) == OK
            assert server.stop() == 0


def test_the_first_administrators_token_goes_into_a_file_of_its_own(binary, tmp_path):
    file = tmp_path / "admin.token"
    flags = ["--data", str(tmp_path / "data"), "--init-admin-file", str(file)]
    with Server(binary, *flags, listen=(CLOSED,)) as server:
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        token = made(file.read_text())
        assert get(server.address, token) == OK
        server.wait_for_log(str(file))
        assert not TOKEN.search(server.log())
        assert server.stop() == 0
    # The next start neither needs it nor makes it.
    file.unlink()
    with Server(binary, *flags, listen=(CLOSED,)) as server:
        assert get(server.address, token) == OK
        assert not file.exists()
    # The token of another server is none of this one, however often it is started.
    file.write_text(token + "\n")
    file.chmod(0o600)
    for _ in range(2):
        refused = ["--data", str(tmp_path / "refused"), "--init-admin-file", str(file)]
        with pytest.raises(AssertionError, match="not of this data folder"):
            Server(binary, *refused, listen=(CLOSED,))
    # A file that is there stays as it is, and there is no token that nobody knows.
    file.write_text("mine\n")
    other = ["--data", str(tmp_path / "other"), "--init-admin-file", str(file)]
    with pytest.raises(AssertionError, match="init-admin-file"):
        Server(binary, *other, listen=(CLOSED,))
    assert file.read_text() == "mine\n"
    file.unlink()
    with Server(binary, *other, listen=(CLOSED,)) as server:
        assert get(server.address, made(file.read_text())) == OK


def test_a_secret_manager_gives_the_first_administrators_token(binary, tmp_path):
    given = tmp_path / "given"
    flags = ["--data", str(tmp_path / "data"), "--admin-token-file", str(given)]
    given.write_text("no token\n")
    with pytest.raises(AssertionError, match="has no token"):
        Server(binary, *flags, listen=(CLOSED,))
    token = "pelton_" + "A" * 42 + "E"
    given.write_text(token + "\n")
    for _ in range(2):
        with Server(binary, *flags, listen=(CLOSED,)) as server:
            assert get(server.address, token) == OK
            assert token not in server.log()
            assert server.stop() == 0
    # Another one does not take its place: whoever changes a variable is not an administrator.
    given.write_text("pelton_" + "B" * 42 + "E\n")
    with Server(binary, *flags, listen=(CLOSED,)) as server:
        server.wait_for_log("there is an administrator's token already")
        assert get(server.address, token) == OK


@pytest.mark.parametrize("how", ["given", "file"])
def test_no_start_makes_a_revoked_token_of_the_first_administrator_anew(binary, tmp_path, how):
    """Where nobody is left who can administrate, a start would make what it is given."""
    file = tmp_path / "admin.token"
    flag = {"given": "--admin-token-file", "file": "--init-admin-file"}[how]
    flags = ["--data", str(tmp_path / "data"), flag, str(file)]
    if how == "given":
        file.write_text("pelton_" + "A" * 42 + "E\n")
        file.chmod(0o600)
    revoke = ["token", "revoke", "admin", "--last-admin"]
    with Server(binary, *flags, listen=(CLOSED,)) as server:
        first = made(file.read_text())
        rotate = ["token", "rotate", "admin", "--keep", "0"]
        second = made(pelton(binary, server.address, *rotate, token=first))
        pelton(binary, server.address, *revoke, token=second)
        assert server.stop() == 0
    for token in (first, second, first):
        file.write_text(f"{token}\n")
        with Server(binary, *flags, listen=(CLOSED,)) as server:
            server.wait_for_log("not made anew")
            assert get(server.address, token) == UNAUTHENTICATED
            server.kill()
    # Another one is made, and revoked as well.
    if how == "given":
        file.write_text("pelton_" + "B" * 42 + "E\n")
    else:
        file.unlink()
    with Server(binary, *flags, listen=(CLOSED,)) as server:
        third = made(file.read_text())
        assert third not in (first, second)
        assert get(server.address, third) == OK
        pelton(binary, server.address, *revoke, token=third)
    for token in (first, third):
        file.write_text(f"{token}\n")
        with Server(binary, *flags, listen=(CLOSED,)) as server:
            assert get(server.address, token) == UNAUTHENTICATED


def test_a_group_that_is_cut_at_a_start_is_told(binary, tmp_path):
    """Nothing tells a torn group from one that the disk has changed, with a revocation in it."""
    data = tmp_path / "data"
    for _ in range(2):
        with Server(binary, "--data", str(data), listen=(OPEN,)) as server:
            create = ["token", "create", "one", "--rights", "read"]
            token = made(pelton(binary, server.address, *create))
            pelton(binary, server.address, "token", "revoke", "one")
            assert get(server.address, token) == UNAUTHENTICATED
            server.kill()
        # Behind the last file with groups there may be one that was prepared.
        log = max(path for path in data.glob("*.log") if b"PeltnLog" in path.read_bytes())
        content = bytearray(log.read_bytes())
        last = content.rindex(b"PeltnLog")
        content[last + 130] ^= 1
        log.write_bytes(content)
        with Server(binary, "--data", str(data), listen=(OPEN,)) as server:
            server.wait_for_log("was not whole, and was cut", "token list")
            told = server.log().split("was cut: ")[1].split(". ")[0]
            assert f"{log.name}" in told and "records" in told, told
            if get(server.address, token) == OK:
                pelton(binary, server.address, "token", "revoke", "one")
            assert server.stop() == 0


def test_a_token_that_nobody_would_see_is_not_made(binary, tmp_path):
    data = tmp_path / "data"
    log = (tmp_path / "server.log").open("w")
    run = subprocess.run(
        [binary, "serve", "--listen", OPEN, "--data", data, "--init-admin"],
        stdout=log,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    assert run.returncode == 3 and "--init-admin-file" in run.stderr
    assert not TOKEN.search((tmp_path / "server.log").read_text() + run.stderr)


def test_a_backup_has_no_tokens_and_a_restored_folder_none(binary, tmp_path):
    data, backups, restored = (str(tmp_path / name) for name in ("data", "backups", "restored"))
    with Server(binary, "--data", data, "--backup-root", backups, listen=(OPEN,)) as server:
        words = ["token", "create", "an-odd-name", "--rights", "read"]
        token = made(pelton(binary, server.address, *words))
        pelton(binary, server.address, "put", "key", "value")
        pelton(binary, server.address, "backup", "one")
        assert get(server.address, token) == OK
    assert files_with(data, "an-odd-name") != []
    assert files_with(backups, "an-odd-name", token) == []
    pelton(binary, "127.0.0.1:1", "restore", f"{backups}/one", "--data", restored)
    with Server(binary, "--data", restored, listen=(OPEN,)) as server:
        assert get(server.address, token) == UNAUTHENTICATED
        assert len(pelton(binary, server.address, "token", "list").splitlines()) == 1
        assert pelton(binary, server.address, "get", "key") == "value"


def test_a_token_goes_to_no_other_machine_without_tls(binary, tmp_path):
    token = "pelton_" + "A" * 43
    file = tmp_path / "token"
    file.write_text(token)
    file.chmod(0o644)
    for words in (["get", "k"], ["load", "--duration", "1s"]):
        flags = ["--token-file", file, "--timeout", "1s"]
        told = pelton(binary, "192.0.2.1:1", *words, *flags, code=3)
        assert "without TLS" in told and "--token-without-tls" in told
        assert "chmod 600" in told
    file.chmod(0o600)
    words = ["get", "k", "--timeout", "100ms", "--token-without-tls"]
    told = pelton(binary, "192.0.2.1:1", *words, token=token, code=3)
    assert "without TLS" not in told


def test_a_load_brings_its_token(binary):
    with Server(binary, "--init-admin", listen=(CLOSED,)) as server:
        token = shown(server)
        words = ["load", "--address", server.address, "--connections", "1", "--calls", "100"]
        command = [binary, *words, "--warm-up", "0s", "--keys", "10"]
        environment = os.environ | {"PELTON_TOKEN": token}
        # What a busy machine made void has another exit code, and its calls are good all the same.
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        assert "100 succeeded, 0 failed" in done.stdout, (done.stdout, done.stderr)
        assert "UNAUTHENTICATED" in pelton(binary, server.address, *words, code=3)


def test_changes_of_tokens_at_the_same_time_each_take_effect(binary, tmp_path):
    """By admin_pb2 as it is: each of many connections makes and revokes tokens of its own."""
    with Server(binary, "--data", str(tmp_path / "data"), listen=(OPEN,)) as server:

        def work(number):
            with open_channel(server.address) as channel:
                admin = admin_pb2_grpc.AdminStub(channel)
                for turn in range(5):
                    name = f"worker-{number}-{turn}"
                    request = admin_pb2.CreateTokenRequest(name=name, rights=["read"])
                    admin.CreateToken(request, timeout=60)
                    if turn % 2:
                        admin.RevokeToken(admin_pb2.RevokeTokenRequest(name=name), timeout=60)

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(8)))
        with open_channel(server.address) as channel:
            listed = admin_pb2_grpc.AdminStub(channel).ListTokens(admin_pb2.ListTokensRequest())
            tokens = listed.tokens
        expected = sorted(f"worker-{number}-{turn}" for number in range(8) for turn in (0, 2, 4))
        assert [token.name for token in tokens] == expected


def test_no_token_is_an_argument(binary):
    """A look at every flag of every command."""
    assert shutil.which(binary) or os.path.exists(binary)
    for words in (["get"], ["load"], ["token", "create"], ["serve"]):
        text = subprocess.run([binary, *words, "--help"], capture_output=True, text=True).stdout
        assert "--token-file" in text or "--admin-token-file" in text
        assert not re.search(r"--(admin-)?token[ =<]", text)


def test_a_role_changes_for_all_that_have_it(binary, tmp_path):
    """Less ends streams, more does not; twice, with a restart between."""
    flags = ["--data", str(tmp_path / "data")]
    token = None
    for _ in range(2):
        with Server(binary, *flags, listen=(OPEN,)) as server:

            def run(*words, **more):
                return pelton(binary, server.address, *words, **more)  # noqa: B023

            if token is None:
                assert "no role" in run("token", "create", "a", "--rights", "role:dev", code=3)
                assert run("role", "set", "dev", "--rights", "write") == "created\n"
                token = made(run("token", "create", "ci", "--rights", "read:other,role:dev"))
            assert run("role", "list").splitlines()[1].split() == ["dev", "1", "write"]
            assert "read:other,role:dev" in run("token", "list")
            run("put", "k", "v", token=token)
            with open_channel(server.address) as channel:
                requests = queue.SimpleQueue()
                metadata = [("authorization", f"Bearer {token}")]
                stub = kv_pb2_grpc.KeyValueStub(channel)
                stream = stub.Pipe(iter(requests.get, None), metadata=metadata)
                operation = kv_pb2.Operation(get=kv_pb2.Operation.Get(key=b"key"))
                requests.put(kv_pb2.PipeRequest(operations=[operation]))
                next(stream)
                assert run("role", "set", "dev", "--rights", "admin") == "changed\n"
                run("token", "list", token=token)
                requests.put(kv_pb2.PipeRequest(operations=[operation]))
                next(stream)
                run("role", "set", "dev", "--rights", "read")
                with pytest.raises(grpc.RpcError) as ended:
                    next(stream)
                assert ended.value.code() == UNAUTHENTICATED
                requests.put(None)
            assert get(server.address, token) == OK
            assert "PERMISSION_DENIED" in run("put", "k", "v", token=token, code=3)
            assert 'in use by "ci"' in run("role", "drop", "dev", code=3)
            run("role", "set", "dev", "--rights", "write")
            server.kill()
    with Server(binary, *flags, listen=(OPEN,)) as server:
        pelton(binary, server.address, "token", "revoke", "ci")
        assert pelton(binary, server.address, "role", "drop", "dev") == "dropped\n"
        assert "no role" in pelton(binary, server.address, "role", "drop", "dev", code=1)
    with pytest.raises(AssertionError, match="only tokens have roles"):
        Server(binary, listen=("127.0.0.1:0+anonymous=role:dev",))


@pytest.mark.parametrize("form", ["text", "json"])
def test_no_token_is_in_a_log_at_trace_level(binary, tmp_path, form):
    """After all that tokens go through: made, used, wrong, refused, rotated and revoked, over gRPC
    and plain HTTP/2; nor in a list of processes."""
    flags = ["--log-level", "trace", "--log-format", form, "--data", str(tmp_path / "data")]
    given = "pelton_" + "C" * 42 + "E"
    secret = tmp_path / "given"
    secret.write_text(given)
    flags += ["--admin-token-file", str(secret)]
    with Server(binary, *flags, listen=(CLOSED,)) as server:
        words = []

        def run(*command, token=given, **more):
            told = pelton(binary, server.address, *command, token=token, **more)
            words.append("" if command[1] in ("create", "rotate") else told)
            return told

        wrong = "pelton_" + "D" * 42 + "E"
        tokens = [given, wrong]
        for turn in range(2):
            tokens.append(made(run("token", "create", "ci", "--rights", "read")))
            tokens.append(made(run("token", "rotate", "ci", "--keep", "1h")))
            for token in tokens:
                run("put", "k", "v", token=token, code=0 if token == given else 3)
                run("get", "k", token=token, code=0 if get(server.address, token) == OK else 3)
            run("token", "list")
            run("token", "revoke", "ci")
            for authorization in (f"Bearer {tokens[-1]}", f"Basic {tokens[-1]}", tokens[-1] * 9):
                words.append(plain(server.address, authorization))
        for text in words:
            assert not any(token.removeprefix("pelton_") in text for token in tokens), text
        file = tmp_path / "token"
        file.write_text(given)
        file.chmod(0o600)
        command = [binary, "load", "--address", server.address, "--token-file", str(file)]
        load = subprocess.Popen([*command, "--duration", "1s"], stdout=subprocess.DEVNULL)
        for process in (load, server.process):
            line = pathlib.Path(f"/proc/{process.pid}/cmdline").read_bytes()
            assert not any(token.encode() in line for token in tokens), line
        load.wait(60)
        assert server.stop() == 0
        log = server.log()
    assert len(log.splitlines()) > 20, "it is a log at trace level"
    for token in tokens:
        assert token.removeprefix("pelton_") not in log


def plain(address, authorization):
    """What a plain request gets."""
    fields = [("authorization", authorization)]
    with Connection(address) as connection:
        stream, head = connection.request("/blob/a", *fields, method="GET", content_type=None)
        connection.send(head + frame(DATA, END_STREAM, stream))
        answer = connection.wait(stream)
        return repr((answer.headers, answer.trailers, answer.body))
