"""The audit trail: who did what that administrates, who was denied, and that nobody can forge a
line of it or fill the log with it."""

import json
import re
import signal
import subprocess

import grpc
import pytest
from pelton.v1 import admin_pb2, admin_pb2_grpc, kv_pb2, kv_pb2_grpc
from server import Server, open_channel, wait_until

GOOD = "pelton_" + "A" * 43
TOKEN = re.compile(r"pelton_[\w-]{43}")
SECONDS = 30
# DENIAL_LINES_PER_CONNECTION and DENIAL_LINES_PER_CALLER of docs/limits.md.
OF_CONNECTION, OF_CALLER = 8, 64


def serve(binary, tmp_path, *flags):
    token = tmp_path / "token"
    token.write_text(GOOD)
    token.chmod(0o600)
    given = ["--admin-token-file", str(token), *flags]
    return Server(binary, *given, listen=["127.0.0.1:0+anonymous=none"])


def lines(server):
    return [line for line in server.log().splitlines() if re.search(r"\baudit\b", line)]


def parsed(line, form):
    """The fields of a line."""
    if form == "json":
        return json.loads(line)
    found = re.findall(r'(\w+)=("(?:[^"\\]|\\.)*"|\S+)', line)
    fields = {name: json.loads(value) if value[0] == '"' else value for name, value in found}
    return fields | {"level": re.search(r"\b(INFO|WARN)\b", line)[0]}


def wait_for_lines(server, count):
    wait_until(lambda: len(lines(server)) >= count, SECONDS, lambda: server.log())
    found = lines(server)
    assert len(found) == count, server.log()
    return found


def header(token):
    return [("authorization", f"Bearer {token}")]


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("level", ["info", "trace"])
def test_what_administrates_has_a_line(binary, tmp_path, form, level):
    with serve(binary, tmp_path, "--log-format", form, "--log-level", level) as server:
        [start] = [parsed(line, form) for line in wait_for_lines(server, 1)]
        expected = {"event": "token", "method": "serve", "on": "admin", "identity": "(operator)"}
        assert expected.items() <= start.items() and "peer" not in start, start
        with open_channel(server.address) as channel:
            admin = admin_pb2_grpc.AdminStub(channel)
            count = 1
            for _ in range(2):
                volatile = admin_pb2.DURABILITY_MODE_VOLATILE
                described = admin_pb2.DatabaseDescription(name="orders", durability=volatile)
                create = admin_pb2.CreateDatabaseRequest(database=described)
                admin.CreateDatabase(create, metadata=header(GOOD))
                made = admin.CreateToken(
                    admin_pb2.CreateTokenRequest(name="ci", rights=["read:orders", "write:a/b"]),
                    metadata=header(GOOD),
                ).token
                with pytest.raises(grpc.RpcError):
                    kv = kv_pb2_grpc.KeyValueStub(channel)
                    kv.Put(kv_pb2.PutRequest(database="orders"), metadata=header(made))
                admin.RevokeToken(admin_pb2.RevokeTokenRequest(name="ci"), metadata=header(GOOD))
                drop = admin_pb2.DropDatabaseRequest(name="orders", confirm_name="orders")
                admin.DropDatabase(drop, metadata=header(GOOD))
                count += 5
                last = [parsed(line, form) for line in wait_for_lines(server, count)[-5:]]
                names = ("event", "method", "on", "outcome")
                seen = [tuple(one.get(name) for name in names) for one in last]
                assert seen == [
                    ("administration", "pelton.v1.Admin/CreateDatabase", "orders", "OK"),
                    ("token", "pelton.v1.Admin/CreateToken", "ci", "OK"),
                    ("denial", "pelton.v1.KeyValue/Put", "orders", "PERMISSION_DENIED"),
                    ("token", "pelton.v1.Admin/RevokeToken", "ci", "OK"),
                    ("administration", "pelton.v1.Admin/DropDatabase", "orders", "OK"),
                ]
                assert last[1]["detail"] == "read:orders,write:a/b"
                assert "write:orders" in last[2]["detail"]
                who = [one["identity"] for one in last]
                assert who == ["admin", "admin", "ci", "admin", "admin"]
                levels = [one["level"] for one in last]
                assert levels == ["INFO", "INFO", "WARN", "INFO", "INFO"]
                assert all(one["peer"].startswith("127.0.0.1:") for one in last)
        assert not TOKEN.search(server.log())
        assert server.stop() == 0


@pytest.mark.parametrize("form", ["text", "json"])
def test_changes_of_roles_and_bindings_have_a_line(binary, tmp_path, form):
    role, rights = "operators", ["read:orders", "write:a/b"]
    binding = "san:dns:worker.example"
    with serve(binary, tmp_path, "--log-format", form) as server:
        count = len(wait_for_lines(server, 1))
        with open_channel(server.address) as channel:
            admin = admin_pb2_grpc.AdminStub(channel)
            calls = [
                (admin.SetRole, admin_pb2.SetRoleRequest(name=role, rights=rights)),
                (admin.SetRole, admin_pb2.SetRoleRequest(name=role, rights=["read"])),
                (
                    admin.CreateToken,
                    admin_pb2.CreateTokenRequest(
                        name="worker", rights=[f"role:{role}"], binding=binding
                    ),
                ),
                # In use, and so not dropped.
                (admin.DropRole, admin_pb2.DropRoleRequest(name=role)),
                (admin.RevokeToken, admin_pb2.RevokeTokenRequest(name="worker")),
                (admin.DropRole, admin_pb2.DropRoleRequest(name=role)),
                (admin.ListRoles, admin_pb2.ListRolesRequest()),
            ]
            for _ in range(2):
                for call, request in calls:
                    call.future(request, metadata=header(GOOD)).exception(SECONDS)
                count += len(calls)
                last = [parsed(line, form) for line in wait_for_lines(server, count)[-7:]]
                assert {(one["event"], one["identity"], one["level"]) for one in last} == {
                    ("token", "admin", "INFO")
                }
                names = ("method", "on", "detail", "outcome")
                seen = [tuple(one.get(name) for name in names) for one in last]
                assert [(method.split("/")[1], *rest) for method, *rest in seen] == [
                    ("SetRole", role, "read:orders,write:a/b", "OK"),
                    ("SetRole", role, "read", "OK"),
                    ("CreateToken", "worker", f"role:{role} for {binding}", "OK"),
                    ("DropRole", role, None, "FAILED_PRECONDITION"),
                    ("RevokeToken", "worker", None, "OK"),
                    ("DropRole", role, None, "OK"),
                    ("ListRoles", None, None, "OK"),
                ]


@pytest.mark.parametrize("form", ["text", "json"])
def test_no_name_makes_a_line_or_shows_a_token(binary, tmp_path, form):
    names = ["a\nb", 'x" outcome="OK', "\u2028\u0085audit\u202e", "\x1b[2Jaudit", GOOD, "ä" * 5000]
    with serve(binary, tmp_path, "--log-format", form) as server:
        before = len(wait_for_lines(server, 1))
        with open_channel(server.address) as channel:
            admin = admin_pb2_grpc.AdminStub(channel)
            for number, name in enumerate(names, 1):
                with pytest.raises(grpc.RpcError):
                    request = admin_pb2.RevokeTokenRequest(name=name)
                    admin.RevokeToken(request, metadata=header(GOOD))
                found = wait_for_lines(server, before + number)
                fields = parsed(found[-1], form)
                assert fields["outcome"] != "OK" and len(found[-1]) < 4000, found[-1]
                assert found[-1].isprintable() and fields["event"] == "token", repr(found[-1])
        assert not TOKEN.search(server.log())


def test_a_token_that_was_taken_for_a_name_is_in_no_line(binary, tmp_path):
    with serve(binary, tmp_path, "--log-level", "trace") as server:
        with open_channel(server.address) as channel:
            admin = admin_pb2_grpc.AdminStub(channel)
            kv = kv_pb2_grpc.KeyValueStub(channel)
            for round in (1, 2):
                for call, request in (
                    (admin.RevokeToken, admin_pb2.RevokeTokenRequest(name=GOOD)),
                    (admin.DropRole, admin_pb2.DropRoleRequest(name=GOOD)),
                    (admin.DropDatabase, admin_pb2.DropDatabaseRequest(name=GOOD)),
                    (kv.Get, kv_pb2.GetRequest(database=GOOD, key=b"k")),
                    (channel.unary_unary(f"/{GOOD}/Get"), b""),
                ):
                    call.future(request, metadata=header(GOOD)).exception(SECONDS)
                log = server.log
                refused = "refused pelton.v1.KeyValue/Get"
                wait_until(lambda: log().count(refused) == round, SECONDS, log)
                wait_until(lambda: log().count("there is no such method") == round, SECONDS, log)
        assert not TOKEN.search(server.log()), TOKEN.search(server.log())


def test_denials_do_not_fill_the_log_and_are_counted(binary, tmp_path):
    def put(channel):
        kv = kv_pb2_grpc.KeyValueStub(channel)
        return kv.Put.future(kv_pb2.PutRequest(key=b"k"), timeout=SECONDS)

    with serve(binary, tmp_path, "--log-level", "info") as server:
        wait_for_lines(server, 1)
        for round in (1, 2):
            with open_channel(server.address) as channel:
                calls = [put(channel) for _ in range(500)]
                assert {call.code() for call in calls} == {grpc.StatusCode.UNAUTHENTICATED}
            wait_for_lines(server, 1 + round * OF_CONNECTION)
        # The next connection says how many had none.
        with open_channel(server.address) as channel:
            put(channel).exception()
            last = parsed(wait_for_lines(server, 2 + 2 * OF_CONNECTION)[-1], "text")
            assert int(last["suppressed"]) == 500 - OF_CONNECTION, last
            # What administrates has its line all the same.
            admin = admin_pb2_grpc.AdminStub(channel)
            admin.ListTokens(admin_pb2.ListTokensRequest(), metadata=header(GOOD))
            last = parsed(wait_for_lines(server, 3 + 2 * OF_CONNECTION)[-1], "text")
            assert last["method"] == "pelton.v1.Admin/ListTokens"
        # However many connections there are.
        for _ in range(40):
            with open_channel(server.address) as channel:
                calls = [put(channel) for _ in range(20)]
                assert all(call.exception() for call in calls)
        assert len(lines(server)) < 3 + 2 * OF_CONNECTION + 2 * OF_CALLER, len(lines(server))


def test_a_change_by_the_command_line_has_a_line(binary, tmp_path):
    with serve(binary, tmp_path) as server:
        words = ["database", "create", "orders", "--address", server.address]
        words += ["--token-file", str(tmp_path / "token"), "--durability", "volatile"]
        subprocess.run([binary, *words], check=True, capture_output=True, timeout=SECONDS)
        created = parsed(wait_for_lines(server, 2)[-1], "text")
        assert (created["on"], created["identity"]) == ("orders", "admin")


def test_the_level_of_the_log_leaves_no_line_out(binary, tmp_path):
    config = tmp_path / "pelton.toml"
    config.write_text('log-level = "info"\n')
    flags = ["--config", str(config), "--data", str(tmp_path / "data")]
    with serve(binary, tmp_path, *flags) as server:
        with open_channel(server.address) as channel:
            admin = admin_pb2_grpc.AdminStub(channel)
            for round in (1, 2):
                config.write_text('log-level = "error"\n')
                server.signal(signal.SIGHUP)
                admin.ListTokens(admin_pb2.ListTokensRequest(), metadata=header(GOOD))
                wait_for_lines(server, 1 + round)
