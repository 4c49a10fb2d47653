"""What commands say where something is not so, and that it leads on."""

import json
import subprocess

import pytest
from environment import clean_environment
from server import Server


@pytest.fixture(scope="module")
def server(binary, tmp_path_factory):
    with Server(binary, "--data", str(tmp_path_factory.mktemp("messages") / "data")) as server:
        yield server
        assert server.process.poll() is None, server.log()


def pelton(binary, *arguments, input=None, **variables):
    environment = clean_environment()
    options = {"input": input} if input is not None else {"stdin": subprocess.DEVNULL}
    options["env"] = {**environment, **variables}
    command = [binary, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **options)


def test_a_value_that_is_another_one_is_called_that(binary, server):
    at = ["--address", server.address]
    assert pelton(binary, "put", "cas", "2", *at).returncode == 0
    assert pelton(binary, "incr", "number", *at).returncode == 0
    for words in ["put cas 3", "append cas 3", "delete cas", "incr number"]:
        for _ in range(2):
            done = pelton(binary, *words.split(), "--if-value", "1", *at)
            assert done.returncode == 1, done.stderr
            assert "has another value, version " in done.stderr, done.stderr
    for operation in ["put", "append", "delete"]:
        fields = {"operation": operation, "key": "cas", "if_value": "1"}
        if operation != "delete":
            fields["value"] = "3"
        done = pelton(binary, "batch", "--mode", "independent", *at, input=json.dumps(fields))
        assert done.returncode == 1, done.stderr
        assert "the key has another value, version " in done.stdout, done.stdout
    done = pelton(binary, "put", "cas", "3", "--if-absent", *at)
    assert done.returncode == 1 and "is there with version " in done.stderr, done.stderr
    done = pelton(binary, "put", "missing", "3", "--if-value", "1", *at)
    assert done.returncode == 1 and "`missing` is not there" in done.stderr, done.stderr


def test_a_key_that_looks_like_a_pattern_leads_to_the_prefix(binary, server):
    at = ["--address", server.address]
    for words, tip in [
        (["get", "k*"], "`pelton scan --prefix k`"),
        (["delete", "k*"], "`pelton delete --prefix k`"),
    ]:
        done = pelton(binary, *words, *at)
        assert done.returncode == 1, done.stderr
        assert "there are no wildcards" in done.stderr and tip in done.stderr, done.stderr
    assert "wildcards" not in pelton(binary, "get", "k", *at).stderr


def test_the_variable_that_asks_for_tls_is_named(binary, tmp_path):
    authority = tmp_path / "ca.pem"
    made = ["serve", "--tls-self-signed=" + str(tmp_path / "made")]
    made += ["--listen", "127.0.0.1:0", "--durability", "volatile"]
    environment = clean_environment()
    options = {"stdout": subprocess.PIPE, "text": True, "env": environment}
    with subprocess.Popen([binary, *made], **options) as process:
        for line in process.stdout:
            if line.startswith("storing"):
                break
        process.terminate()
    authority.write_text((tmp_path / "made" / "ca.pem").read_text())
    with Server(binary) as server:
        get = ["get", "k", "--address", server.address]
        for _ in range(2):
            done = pelton(binary, *get, PELTON_TLS_CA=str(authority))
            assert done.returncode == 3, done.stderr
            tip = "PELTON_TLS_CA asks for TLS: `PELTON_TLS_CA= pelton …` connects plain"
            assert tip in done.stderr, done.stderr
        done = pelton(binary, *get, "--tls-ca", str(authority))
        assert "without --tls the connection is plain" in done.stderr, done.stderr
        assert pelton(binary, *get, PELTON_TLS_CA="").returncode == 1


def test_the_log_verified_names_a_database_by_its_name(binary, tmp_path):
    data = str(tmp_path / "data")
    with Server(binary, "--data", data) as server:
        create = ["database", "create", "disk2", "--kind", "disk"]
        done = pelton(binary, *create, "--address", server.address)
        assert done.returncode == 0, done.stderr
        server.stop()
    done = pelton(binary, "log", "verify", data, "--output", "json")
    found = json.loads(done.stdout)["databases_on_disk"]
    assert [one["database"] for one in found] == ["disk2"], done.stdout


def test_an_empty_path_in_the_file_is_refused_by_the_check(binary, tmp_path):
    file = tmp_path / "empty.toml"
    for name in ["data", "backup-root"]:
        file.write_text(f'{name} = ""\n')
        for command in [["config", "check"], ["serve"]]:
            done = pelton(binary, *command, "--config", str(file))
            assert done.returncode == 2, done.stderr
            assert "write a path, or leave the setting out" in done.stderr, done.stderr
