"""What keeps those who change tokens, roles and bindings from harm, and what the holders of tokens
are told."""

import contextlib
import os
import shutil
import subprocess

import pytest
from certificates import Authority
from environment import clean_environment
from server import Server, wait_until
from test_tokens import CLOSED, OPEN, made, pelton

SECONDS = 30


def admin_file(folder):
    path = folder / "admin.token"
    path.write_text("pelton_" + "A" * 43)
    path.chmod(0o600)
    return path


@pytest.fixture
def admin(tmp_path):
    return admin_file(tmp_path)


def run(binary, server, admin, *words, code=0):
    """What a command of the administrator prints, and says."""
    environment = clean_environment()
    environment |= {"PELTON_ADDRESS": server.address, "PELTON_TOKEN_FILE": str(admin)}
    ran = subprocess.run(
        [binary, *map(str, words)], env=environment, capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == code, ran
    return ran.stdout, ran.stderr


@contextlib.contextmanager
def watching(binary, server, token, folder):
    """A watch with the token of a file, and what it says."""
    environment = os.environ | {"PELTON_ADDRESS": server.address}
    told = folder / "watch.err"
    with open(folder / "watch.out", "wb") as out, open(told, "wb") as errors:
        command = [binary, "watch", "--token-file", str(token), "--output", "json"]
        watch = subprocess.Popen(command, env=environment, stdout=out, stderr=errors)
    try:
        out = folder / "watch.out"
        yield watch, lambda: out.read_text(), lambda: told.read_text()
    finally:
        watch.kill()
        watch.wait()


@pytest.mark.parametrize(
    ("useless", "why"),
    [
        (["--uid", "1000"], "the server listens on no UNIX socket"),
        (["--certificate", "san:dns:a.example"], "the server asks for no certificates of clients"),
    ],
)
def test_who_can_show_nothing_is_no_administrator(binary, tmp_path, admin, useless, why):
    data, made_file = tmp_path / "data", tmp_path / "made.token"
    flags = ["--data", str(data), "--init-admin-file", str(made_file)]
    with Server(binary, *flags, listen=[CLOSED]) as server:
        command = ["token", "create", "ops", "--rights", "admin", *useless]
        out, said = run(binary, server, made_file, *command)
        assert out == "bound\n" and "warning: nobody can be ops there" in said and why in said
        listed, _ = run(binary, server, made_file, "token", "list")
        assert "(not shown here)" in listed
        for words in (["revoke", "admin"], ["rotate", "admin", "--expires", "1h"]):
            _, said = run(binary, server, made_file, "token", *words, code=3)
            assert "is the last token with the right admin" in said and '"ops"' in said
            assert "--last-admin" in said
        run(binary, server, made_file, "role", "set", "boss", "--rights", "admin")
        create = ["token", "create", "boss", "--rights", "role:boss", "--to", tmp_path / "boss"]
        run(binary, server, made_file, *create)
        run(binary, server, tmp_path / "boss", "token", "revoke", "admin")
        narrow = ["role", "set", "boss", "--rights", "read"]
        _, said = run(binary, server, tmp_path / "boss", *narrow, code=3)
        assert "nobody would have the right admin any more" in said
        run(binary, server, tmp_path / "boss", "token", "list")
        assert server.stop() == 0


def test_a_token_that_is_kept_is_not_revoked_by_the_next_rotation(binary):
    with Server(binary, listen=[OPEN, CLOSED]) as server:
        address = server.address
        first = made(pelton(binary, address, "token", "create", "ci", "--rights", "read"))
        rotate = ["token", "rotate", "ci", "--keep", "1h"]
        second = made(pelton(binary, address, *rotate))
        for words in (rotate, rotate[:-2]):
            said = pelton(binary, address, *words, code=3)
            assert "kept for another" in said and "write --revoke-kept" in said
            assert "field" not in said
        closed = server.addresses[1]
        for token in (first, second):
            pelton(binary, closed, "get", "a", token=token, code=1)
        third = made(pelton(binary, address, *rotate, "--revoke-kept"))
        for token in (second, third):
            pelton(binary, closed, "get", "a", token=token, code=1)
        assert "not good here" in pelton(binary, closed, "get", "a", token=first, code=3)
        fourth = made(pelton(binary, address, "token", "rotate", "ci", "--keep", "0"))
        pelton(binary, closed, "get", "a", token=fourth, code=1)
        for token in (second, third):
            assert "not good here" in pelton(binary, closed, "get", "a", token=token, code=3)
        assert server.stop() == 0


def test_a_watch_takes_the_token_that_takes_the_place_of_its_own(binary, tmp_path, admin):
    flags = ["--admin-token-file", str(admin)]
    with Server(binary, *flags, listen=[CLOSED]) as server:
        token, other = tmp_path / "live.token", tmp_path / "next.token"
        create = ["token", "create", "live", "--rights", "read", "--to", token]
        run(binary, server, admin, *create)
        with watching(binary, server, token, tmp_path) as (watch, out, told):
            for round in range(2):
                run(binary, server, admin, "put", f"key{round}", "v")

                # The first response may come behind it.
                def seen(key=f"key{round}"):
                    run(binary, server, admin, "put", key, "v")
                    return key in out()

                wait_until(seen, SECONDS, told)
                rotate = ["token", "rotate", "live", "--keep", "2s", "--to", other]
                run(binary, server, admin, *rotate)
                other.replace(token)
                again = "trying again with the token that is in --token-file now"
                wait_until(lambda: told().count(again) == round + 1, SECONDS, told)
            run(binary, server, admin, "put", "last", "v")
            wait_until(lambda: "last" in out(), SECONDS, told)
            # Without another one it ends.
            run(binary, server, admin, "token", "revoke", "live")
            assert watch.wait(SECONDS) == 3, told()
            assert "was revoked or has expired" in told().splitlines()[-1]
        assert server.stop() == 0


def test_a_watch_says_that_its_rights_were_changed(binary, tmp_path, admin):
    flags = ["--admin-token-file", str(admin)]
    with Server(binary, *flags, listen=[CLOSED]) as server:
        token = tmp_path / "live.token"
        run(binary, server, admin, "role", "set", "reader", "--rights", "read")
        create = ["token", "create", "live", "--rights", "role:reader", "--to", token]
        run(binary, server, admin, *create)
        with watching(binary, server, token, tmp_path) as (watch, out, told):

            def seen():
                run(binary, server, admin, "put", "key", "v")
                return "key" in out()

            wait_until(seen, SECONDS, told)
            run(binary, server, admin, "role", "set", "reader", "--rights", "read:orders")
            assert watch.wait(SECONDS) == 3, told()
            assert "rights of this call's token or identity were changed" in told()
        line = [line for line in server.log().splitlines() if "KeyValue/Watch" in line][-1]
        assert 'identity="live"' in line and "were changed" in line
        assert server.stop() == 0


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed")
def test_what_a_client_shows_in_vain_is_named(binary, tmp_path, admin):
    (tmp_path / "own").mkdir()
    (tmp_path / "other").mkdir()
    authority, other = Authority(tmp_path / "own"), Authority(tmp_path / "other", "other")
    own = authority.sign("server")
    flags = ["--tls-cert", own[0], "--tls-key", own[1], "--client-ca", authority.ca]
    flags += ["--client-auth", "optional", "--admin-token-file", admin]
    socket = tmp_path / "socket"
    listen = ["tls:127.0.0.1:0+anonymous=none", f"plain:unix:{socket}+anonymous=none"]
    with Server(binary, *map(str, flags), listen=listen) as server:
        environment = os.environ | {"PELTON_TLS_CA": str(authority.ca)}

        def told(certificate, address=server.address):
            words = ["get", "a", "--address", address]
            if certificate:
                words += ["--tls-cert", certificate[0], "--tls-key", certificate[1]]
            command = [binary, *map(str, words)]
            variables = environment if certificate else os.environ
            ran = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60)
            assert ran.returncode == 3, ran
            return ran.stderr

        foreign = other.sign("foreign")
        said = told(foreign)
        assert f"does not trust the certificate in {foreign[0]} (--tls-cert)" in said
        assert "try again" not in said
        said = told(authority.sign("nobody"))
        assert "the certificate of this connection was seen, and is bound to no name" in said
        lines = server.log().splitlines()
        assert "(sha256:" in [line for line in lines if "was seen" in line][-1]
        said = told(None, f"unix:{socket}")
        assert f"user {os.getuid()}, whose process calls, is bound to no name" in said
        line = [line for line in server.log().splitlines() if "whose process" in line][-1]
        assert f"(uid:{os.getuid()})" in line
        assert server.stop() == 0
