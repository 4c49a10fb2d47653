"""Tokens that somebody has taken for a name or a file: no message repeats one."""

import json
import re
import subprocess

import pytest
from environment import clean_environment
from server import Server

TOKEN = "pelton_" + "A1b2-_" * 7 + "A"


@pytest.fixture(scope="module")
def server(binary, tmp_path_factory):
    folder = tmp_path_factory.mktemp("slips")
    token = folder / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    given = ["--admin-token-file", str(token)]
    with Server(binary, *given, listen=["127.0.0.1:0+anonymous=none"]) as server:
        server.token_file = token
        yield server
        assert server.stop() == 0
        assert TOKEN not in server.log()


def pelton(binary, home, *words, **variables):
    environment = clean_environment()
    environment |= {"HOME": str(home), "XDG_CONFIG_HOME": str(home), **variables}
    return subprocess.run(
        [binary, *words], env=environment, capture_output=True, text=True, timeout=60, cwd=home
    )


FILE = "this is a token, not the name of a file"
NAME = "this is a token, not its name"
# What is written, the exit code, and a part of what is said.
SLIPS = [
    (["get", "a", "--token-file", TOKEN], 2, f"--token-file: {FILE}: PELTON_TOKEN takes it, or"),
    (["token", "create", TOKEN, "--rights", "read"], 2, NAME),
    (["token", "create", "n", "--rights", f"read:{TOKEN}"], 2, "a token stands where"),
    (["token", "create", "n", "--rights", f"role:{TOKEN}"], 2, "a token stands where"),
    (["token", "create", "n", "--rights", "read", "--to", TOKEN], 2, FILE),
    (["token", "create", "n", "--rights", "read", "--certificate", TOKEN], 2, "is none of"),
    (["token", "revoke", TOKEN], 1, "there is no token `pelton_…`"),
    (["token", "rotate", TOKEN], 1, "there is no token `pelton_…`"),
    (["role", "set", TOKEN, "--rights", "read"], 2, NAME),
    (["role", "drop", TOKEN], 1, "there is no role `pelton_…`"),
    (["get", "a", "--profile", TOKEN], 2, NAME),
    (["get", "a", "--database", TOKEN], 3, "pelton_…"),
    (["get", TOKEN], 1, "pelton_…"),
    (["get", "a", TOKEN], 2, "unexpected argument 'pelton_…'"),
    (["get", "a", f"--{TOKEN}"], 2, "pelton_…"),
    ([TOKEN], 2, "pelton_…"),
    (["get", "a", "--address", TOKEN], 2, "pelton_…"),
    (["get", "a", "--tls-ca", TOKEN], 3, "pelton_…"),
    (["export", f"{TOKEN}/x"], 3, "pelton_…"),
    (["serve", "--config", TOKEN], 3, "pelton_…"),
    (["serve", "--data", "d", "--admin-token-file", TOKEN], 2, "PELTON_ADMIN_TOKEN takes it"),
    (["serve", "--data", "d", "--init-admin-file", TOKEN], 3, FILE),
]


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("slip", SLIPS, ids=lambda slip: " ".join(slip[0]).replace(TOKEN, "T"))
def test_a_token_in_the_place_of_a_name_is_not_repeated(binary, server, tmp_path, slip, form):
    words, code, expected = slip
    variables = {} if words[0] == "serve" else {"PELTON_OUTPUT": form}
    if words[0] != "serve" and "--address" not in words:
        variables["PELTON_ADDRESS"] = server.address
    if "--token-file" not in words and words[0] != "serve":
        variables["PELTON_TOKEN_FILE"] = str(server.token_file)
    ran = pelton(binary, tmp_path, *words, **variables)
    assert ran.returncode == code, ran
    assert TOKEN not in ran.stdout + ran.stderr
    # Nor a half of it.
    assert not re.search(r"pelton_[\w-]", ran.stdout + ran.stderr), ran
    said = " ".join(ran.stderr.split())
    if variables.get("PELTON_OUTPUT") == "json":
        objects = [json.loads(line) for line in ran.stderr.splitlines()]
        said = " ".join(json.dumps(one, ensure_ascii=False) for one in objects)
        if code == 1 and words[0] == "get":
            return
    assert expected in said, ran
    assert not (tmp_path / TOKEN).exists()


def test_a_token_in_the_variable_of_a_file_is_not_repeated(binary, server, tmp_path):
    ran = pelton(
        binary, tmp_path, "get", "a", PELTON_TOKEN_FILE=TOKEN, PELTON_ADDRESS=server.address
    )
    assert (ran.returncode, TOKEN in ran.stderr) == (2, False), ran
    assert f"{FILE}: PELTON_TOKEN takes it, or put it into a file" in ran.stderr


@pytest.mark.parametrize(
    "line", [f'token-file = "{TOKEN}"', f"token = {TOKEN}", f'token = "{TOKEN}"', f"{TOKEN} = 1"]
)
def test_a_token_in_a_file_of_profiles_is_not_repeated(binary, server, tmp_path, line):
    profiles = tmp_path / "client.toml"
    profiles.write_text(f"[default]\n{line}\n")
    ran = pelton(binary, tmp_path, "get", "a", PELTON_CLIENT_CONFIG=str(profiles))
    assert (ran.returncode, TOKEN in ran.stderr) == (2, False), ran
    assert "client.toml" in ran.stderr
