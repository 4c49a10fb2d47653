"""Profiles: servers by name in a file of the user."""

import os
import subprocess

import pytest
from server import Server

PROFILES = """
[default]
address = "{open}"

[closed]
address = "{closed}"
token-file = "admin.token"
database = ""

[nobody]
address = "{closed}"
"""


@pytest.fixture(scope="module")
def servers(binary, tmp_path_factory):
    folder = tmp_path_factory.mktemp("profiles")
    token = folder / "home" / ".config" / "pelton" / "admin.token"
    token.parent.mkdir(parents=True)
    flags = ["--data", str(folder / "data"), "--init-admin-file", str(token)]
    listen = ["127.0.0.1:0+anonymous=none"]
    with Server(binary) as free, Server(binary, *flags, listen=listen) as closed:
        text = PROFILES.format(open=free.address, closed=closed.address)
        token.with_name("client.toml").write_text(text)
        yield folder / "home", free, closed
        assert free.stop() == 0 and closed.stop() == 0


def pelton(binary, home, *words, code=0, **variables):
    """What a command of this user says."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("PELTON_") and name != "XDG_CONFIG_HOME"
    }
    environment |= {"HOME": str(home), **variables}
    run = subprocess.run(
        [binary, *words], env=environment, capture_output=True, text=True, timeout=60
    )
    assert run.returncode == code, (words, run.returncode, run.stdout, run.stderr)
    return run.stdout if code == 0 else run.stderr


def test_a_profile_says_where_the_server_is_and_who_calls(binary, servers):
    home, free, closed = servers
    for _ in range(2):
        pelton(binary, home, "put", "key", "free")
        pelton(binary, home, "put", "key", "closed", "--profile", "closed")
        assert pelton(binary, home, "get", "key") == "free"
        assert pelton(binary, home, "get", "key", PELTON_PROFILE="closed") == "closed"
    # A flag and a variable go before a profile, but for what they do not say.
    words = ["get", "key", "--profile", "nobody"]
    assert pelton(binary, home, *words, "--address", free.address) == "free"
    assert pelton(binary, home, *words, PELTON_ADDRESS=free.address) == "free"
    # A profile does not take over what is in another one.
    said = pelton(binary, home, "get", "key", "--profile", "nobody", code=3)
    assert "UNAUTHENTICATED" in said or "token" in said


def test_the_token_of_a_profile_that_is_not_named_goes_to_no_other_server(binary, servers):
    home, free, closed = servers
    text = (home / ".config" / "pelton" / "client.toml").read_text()
    own = home / "own.toml"
    token = home / ".config" / "pelton" / "admin.token"
    own.write_text(
        text.replace("[default]", "[other]")
        + f'\n[default]\naddress = "{free.address}"\ntoken-file = "{token}"\n'
    )
    variables = {"PELTON_CLIENT_CONFIG": str(own)}
    words = ["get", "key", "--address", closed.address]
    said = pelton(binary, home, *words, code=3, **variables)
    assert "UNAUTHENTICATED" in said or "token" in said


def test_a_profile_that_is_not_there_is_wrong_usage(binary, servers):
    home, _, _ = servers
    said = pelton(binary, home, "get", "key", "--profile", "live", code=2)
    assert "no profile `live`, but closed, default, nobody" in said
    said = pelton(binary, home / "nowhere", "get", "key", "--profile", "live", code=2)
    assert "there is no file" in said
    said = pelton(binary, home, "status", code=3, PELTON_CLIENT_CONFIG=str(home / "missing"))
    assert "cannot read the profiles" in said
    # Neither servers nor help have profiles.
    pelton(binary, home, "get", "--help", PELTON_CLIENT_CONFIG=str(home / "missing"))
    pelton(binary, home, "config", "print", PELTON_CLIENT_CONFIG=str(home / "missing"))


def test_the_token_of_a_named_profile_goes_to_its_address_only(binary, servers):
    home, free, closed = servers
    words = ["get", "key", "--profile", "closed"]
    left_out = f"is for {closed.address}, and is not sent to {free.address}"
    free_token = home / "other.token"
    free_token.write_text("pelton_" + "A" * 43)
    free_token.chmod(0o600)
    for given in [{"PELTON_ADDRESS": free.address}, {}]:
        flags = [] if given else ["--address", free.address]
        said = subprocess.run(
            [binary, *words, *flags],
            env={**os.environ, "HOME": str(home), **given},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (said.returncode, said.stdout) == (0, "free"), said
        assert left_out in said.stderr
        # One that is given for it is another thing.
        other = ["--token-file", str(free_token)]
        said = pelton(binary, home, *words, *flags, *other, code=3, **given)
        assert "not sent to" not in said and "the token is not good here" in said
    # The same address is no other one.
    again = pelton(binary, home, *words, "--address", closed.address)
    assert again == "closed"


def test_a_token_in_a_variable_is_stronger_than_that_of_a_profile(binary, servers):
    home, _, closed = servers
    words = ["get", "key", "--profile", "closed"]
    assert pelton(binary, home, *words) == "closed"
    said = pelton(binary, home, *words, code=3, PELTON_TOKEN="pelton_" + "A" * 43)
    assert "the token is not good here" in said
    token = (home / ".config" / "pelton" / "admin.token").read_text().strip()
    words[-1] = "nobody"
    assert pelton(binary, home, *words, PELTON_TOKEN=token) == "closed"


def test_a_bad_value_in_a_profile_is_said_with_profile_and_file(binary, servers):
    home, free, _ = servers
    own = home / "bad.toml"
    own.write_text(f'[default]\naddress = "{free.address}"\ntimeout = "5"\n')
    said = pelton(binary, home, "get", "key", code=2, PELTON_CLIENT_CONFIG=str(own))
    assert f"{own}: profile `default`: invalid value '5' for '--timeout" in said
