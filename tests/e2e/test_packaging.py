"""What packaging/ says of the first token, with its own settings and commands."""

import re
import shlex
import subprocess

import grpc
import pytest
from environment import clean_environment
from pages import ROOT
from pelton.v1 import kv_pb2, kv_pb2_grpc
from server import Server, open_channel

PACKAGING = ROOT / "packaging"
TOKEN = re.compile(r"pelton_[\w-]{43}")
OK = grpc.StatusCode.OK
UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED


def get(address, token=None):
    """How a Get ends."""
    metadata = [("authorization", f"Bearer {token}")] if token else []
    port = address.rsplit(":", 1)[1]
    with open_channel(f"127.0.0.1:{port}") as channel:
        try:
            call = kv_pb2_grpc.KeyValueStub(channel).Get
            call(kv_pb2.GetRequest(key=b"k"), metadata=metadata, timeout=30)
        except grpc.RpcError as error:
            return error.code()
    return OK


def plain_environment():
    return clean_environment()


def run(binary, command, code=0):
    """Runs a command of a text, which names the program as users do; returns what it prints."""
    words = shlex.split(command)
    assert words[0] == "pelton", command
    done = subprocess.run(
        [binary, *words[1:]], capture_output=True, text=True, timeout=60, env=plain_environment()
    )
    assert done.returncode == code, (command, done.stdout, done.stderr)
    return done.stdout


def container(folder):
    """The variables of the image, with its volume and its ports somewhere else."""
    text = (PACKAGING / "Containerfile").read_text()
    words = shlex.split(re.search(r"^ENV (.*)$", text, re.MULTILINE)[1])
    variables = dict(word.split("=", 1) for word in words)
    assert variables["PELTON_LISTEN"].startswith("0.0.0.0:1978+")
    ports = {":1978": ":0", ":9178": ":0", "/data": str(folder)}
    for name, value in variables.items():
        for old, new in ports.items():
            value = value.replace(old, new)
        variables[name] = value
    return text, variables


def test_the_first_token_in_a_container(binary, tmp_path):
    text, variables = container(tmp_path)
    command = re.search(r"^# podman exec pelton (pelton token create .*)$", text, re.MULTILINE)[1]
    health = re.search(r"^HEALTHCHECK .*CMD \[(.*)\]$", text, re.MULTILINE)[1]
    tokens = []
    for _ in range(2):
        with Server(binary, listen=(), variables=variables, count=2) as server:
            run(binary, health.replace('", "', " ").strip('"').replace("/usr/bin/", "", 1)
                .replace("/data", str(tmp_path)))  # fmt: skip
            assert get(server.address) == UNAUTHENTICATED
            if not tokens:
                made = run(binary, command.replace("/data", str(tmp_path)))
                tokens += TOKEN.findall(made)
            assert len(tokens) == 1 and get(server.address, tokens[0]) == OK
            assert not TOKEN.search(server.log())
            assert server.stop() == 0


def test_a_secret_of_the_container_is_the_first_token(binary, tmp_path):
    text, variables = container(tmp_path)
    assert "PELTON_ADMIN_TOKEN_FILE=/run/secrets/" in text
    secret = tmp_path / "secret"
    token = "pelton_" + "A" * 42 + "E"
    secret.write_text(token + "\n")
    variables["PELTON_ADMIN_TOKEN_FILE"] = str(secret)
    for _ in range(2):
        with Server(binary, listen=(), variables=variables, count=2) as server:
            assert get(server.address) == UNAUTHENTICATED
            assert get(server.address, token) == OK
            assert token not in server.log()
            assert server.stop() == 0


def test_the_credential_of_the_unit_is_the_first_token(binary, tmp_path):
    unit = (PACKAGING / "pelton.service").read_text()
    settings = (PACKAGING / "pelton.toml").read_text()
    name = re.search(r"^#LoadCredential=admin-token:\S+$", unit, re.MULTILINE)
    line = re.search(r'^#(admin-token-file = "/run/credentials/pelton.service/admin-token")$',
                     settings, re.MULTILINE)  # fmt: skip
    assert name and line
    token = "pelton_" + "B" * 42 + "E"
    (tmp_path / "admin-token").write_text(token)
    (tmp_path / "admin-token").chmod(0o400)
    settings = settings.replace(line[0], line[1])
    for old, new in {
        "/run/credentials/pelton.service": str(tmp_path),
        "/var/lib/pelton": str(tmp_path),
        "127.0.0.1:1978": "0.0.0.0:0",
        ":9178": ":0",
    }.items():
        settings = settings.replace(old, new)
    file = tmp_path / "pelton.toml"
    file.write_text(settings)
    run(binary, f"pelton config check --config {file}")
    for _ in range(2):
        with Server(binary, "--config", str(file), listen=(), count=1) as server:
            assert get(server.address) == UNAUTHENTICATED
            assert get(server.address, token) == OK
            assert token not in server.log()
            assert server.stop() == 0


@pytest.mark.parametrize("storage", ["folder", "a folder that is there", "volatile"])
def test_both_flags_that_a_refused_start_names_mend_it(binary, tmp_path, storage):
    """They are taken out of the message, and run."""
    for number in range(2):
        place = ["--durability", "volatile"]
        if storage != "volatile":
            place = ["--data", str(tmp_path / f"data-{number}")]
        if storage == "a folder that is there":
            with Server(binary, *place) as server:
                assert server.stop() == 0
        refused = subprocess.run(
            [binary, "serve", "--listen", "0.0.0.0:0", *place],
            capture_output=True, text=True, timeout=60, env=plain_environment(),
        )  # fmt: skip
        assert refused.returncode != 0
        flags = re.findall(r"^ +(--.*)$", refused.stderr, re.MULTILINE)
        assert len(flags) == 2, refused.stderr
        by_token, by_word = (shlex.split(flag) for flag in flags)
        by_token = ["--listen", "0.0.0.0:0", *by_token]
        # The one with the word first: it makes no token, and the other one needs none to be there.
        with Server(binary, *by_word, *place, listen=(), count=1) as server:
            assert get(server.address) == OK
            assert server.stop() == 0
        with Server(binary, *by_token, *place, listen=(), count=1) as server:
            assert get(server.address) == UNAUTHENTICATED
            server.wait_for_log("shown this once: pelton_")
            assert get(server.address, TOKEN.search(server.log())[0]) == OK
            assert server.stop() == 0
        if storage == "volatile":
            continue
        # Now there is a token, and the start that was refused works.
        with Server(binary, *place, listen=["0.0.0.0:0"]) as server:
            assert get(server.address) == UNAUTHENTICATED
            assert server.stop() == 0
