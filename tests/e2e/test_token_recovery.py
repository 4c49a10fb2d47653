"""Nobody is locked out: by a rotation whose token is lost, by a start that was cut off, or by the
loss of the file with the secret of the data folder."""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import time

import pytest
from environment import clean_environment
from server import Server, wait_until
from test_tokens import CLOSED, OK, OPEN, TOKEN, UNAUTHENTICATED, get, made, pelton


def rotate(binary, address, token, *words, output=None, **more):
    """A rotation of `admin` with its own token, whose output goes elsewhere."""
    environment = clean_environment() | {"PELTON_ADDRESS": address, "PELTON_TOKEN": token}
    command = [binary, "token", "rotate", "admin", *map(str, words)]
    return subprocess.run(
        command, env=environment, stdout=output, stderr=subprocess.PIPE, timeout=60, **more
    )


@contextlib.contextmanager
def only_admin(binary, tmp_path):
    """A server with one administrator, and its token."""
    file = tmp_path / "admin.token"
    with Server(binary, "--init-admin-file", str(file), listen=(CLOSED,)) as server:
        yield server, made(file.read_text())


def test_whoever_rotates_its_own_token_has_an_hour(binary, tmp_path):
    with only_admin(binary, tmp_path) as (server, token):
        for _ in range(2):
            told = rotate(binary, server.address, token, output=subprocess.PIPE)
            second = made(told.stdout.decode())
            assert b"the one before is good until" in told.stderr
            assert [get(server.address, one) for one in (token, second)] == [OK, OK]
            # It was lost: the one before makes another one, and is not the one that goes.
            told = rotate(binary, server.address, token, output=subprocess.PIPE)
            third = made(told.stdout.decode())
            states = [get(server.address, one) for one in (token, second, third)]
            assert states == [OK, UNAUTHENTICATED, OK]
            # And at once where that is said.
            told = rotate(binary, server.address, third, "--keep", "0", output=subprocess.PIPE)
            assert told.returncode == 0, told
            fourth = made(told.stdout.decode())
            states = [get(server.address, one) for one in (token, third, fourth)]
            assert states == [UNAUTHENTICATED, UNAUTHENTICATED, OK]
            token = fourth


def test_a_place_that_takes_no_token_is_found_before_it_is_made(binary, tmp_path):
    """Also with `--keep 0`, which leaves no way back."""
    there = tmp_path / "there"
    there.write_text("mine\n")
    small = 'ulimit -f 0; exec "$@"'
    with only_admin(binary, tmp_path) as (server, token):
        for _ in range(2):
            for place in (there, tmp_path / "missing/file", tmp_path):
                words = ["--keep", "0", "--to", place]
                assert rotate(binary, server.address, token, *words).returncode == 3
                assert get(server.address, token) == OK
            # No room in the file, and then on standard output.
            environment = os.environ | {"PELTON_ADDRESS": server.address, "PELTON_TOKEN": token}
            words = [binary, "token", "rotate", "admin", "--keep", "0"]
            to = tmp_path / "to"
            command = ["sh", "-c", small, "sh", *words, "--to", str(to)]
            assert subprocess.run(command, env=environment, capture_output=True).returncode == 3
            assert get(server.address, token) == OK and not to.exists()
            with open(tmp_path / "output", "w") as output:
                command = ["sh", "-c", small, "sh", *words]
                told = subprocess.run(
                    command, env=environment, stdout=output, stderr=subprocess.PIPE
                )
            assert told.returncode == 3 and b"no token was made" in told.stderr, told
            assert get(server.address, token) == OK
            # Nobody reads the pipe any more.
            reader, writer = os.pipe()
            os.close(reader)
            told = rotate(binary, server.address, token, "--keep", "0", output=writer)
            os.close(writer)
            assert told.returncode == 3 and b"no token was made" in told.stderr, told
            assert get(server.address, token) == OK
        assert there.read_text() == "mine\n"
        # A device that is full.
        for words in ([], ["--keep", "0"]):
            with open("/dev/full", "w") as output:
                told = rotate(binary, server.address, token, *words, output=output)
            assert told.returncode == 3 and b"no token was made" in told.stderr, told
            assert get(server.address, token) == OK


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_does_not_lose_the_token(binary, tmp_path, number):
    """The first one comes while the call runs, or before or after that."""
    with only_admin(binary, tmp_path) as (server, token):
        for turn in range(12):
            to = tmp_path / f"token-{turn}"
            environment = os.environ | {"PELTON_ADDRESS": server.address, "PELTON_TOKEN": token}
            command = [binary, "token", "rotate", "admin", "--keep", "0", "--to", str(to)]
            process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE)
            if turn % 3:
                # From here on it is about to call.
                wait_until(lambda: to.exists() or process.poll() is not None)  # noqa: B023
            time.sleep(turn / 2000)
            process.send_signal(number)
            _, told = process.communicate(timeout=60)
            if to.exists() and TOKEN.search(to.read_text()):
                assert get(server.address, token) == UNAUTHENTICATED, told
                token = made(to.read_text())
            assert get(server.address, token) == OK, (turn, process.returncode, told)


def test_a_signal_at_the_very_start_does_not_lose_the_token(binary, tmp_path):
    """Nobody reads the words of the program for a while: one that has decided to end cannot end
    yet, and must not rotate the token meanwhile."""
    with only_admin(binary, tmp_path) as (server, token):
        for turn in range(80):
            environment = os.environ | {"PELTON_ADDRESS": server.address, "PELTON_TOKEN": token}
            to = tmp_path / f"token-{turn}"
            command = [binary, "token", "rotate", "admin", "--keep", "0", "--to", str(to)]
            words, full = full_pipe()
            process = subprocess.Popen(command, env=environment, stderr=full)
            os.close(full)
            while not to.exists():
                # It is about to note signals.
                assert process.poll() is None
            process.send_signal(signal.SIGINT)
            time.sleep(0.02)
            with open(words, "rb") as reader:
                told = reader.read().lstrip(b"x")
            code = process.wait(timeout=60)
            if to.exists() and TOKEN.search(to.read_text()):
                token = made(to.read_text())
            assert get(server.address, token) == OK, (turn, code, told)


def full_pipe():
    """Both ends of a pipe that takes nothing more until somebody reads."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, b"x" * 4096)
    os.set_blocking(writer, True)
    return reader, writer


def test_the_last_administrator_that_lasts_stays(binary, tmp_path):
    with only_admin(binary, tmp_path) as (server, token):

        def run(*words, **more):
            return pelton(binary, server.address, "token", *words, token=token, **more)

        for _ in range(2):
            run("create", "soon", "--rights", "admin", "--expires", "1h")
            for words in (["revoke", "admin"], ["rotate", "admin", "--expires", "1h"]):
                told = run(*words, code=3)
                assert "does not expire" in told and "--last-admin" in told, told
                assert get(server.address, token) == OK
            other = made(run("create", "other", "--rights", "admin"))
            run("revoke", "admin")
            token = other
            run("revoke", "soon")
            told = run("create", "admin", "--rights", "admin")
            token = made(told)
            run("revoke", "other")


def test_a_first_start_may_be_cut_off_anywhere(binary, tmp_path):
    """Whatever it has left of its file, the next one ends with a token that is good in it."""
    file = tmp_path / "admin.token"
    given = "pelton_" + "A" * 42 + "E"
    for number, left in enumerate(["", "no token yet", "\0" * 51, given, given + "\n"] * 2):
        data = tmp_path / f"data-{number}"
        # The folder is older than its token.
        Server(binary, "--data", str(data), listen=(OPEN,)).stop()
        file.touch(mode=0o600)
        file.write_text(left)
        flags = ["--data", str(data), "--init-admin-file", str(file)]
        for _ in range(2):
            with Server(binary, *flags, listen=(CLOSED,)) as server:
                token = made(file.read_text())
                assert get(server.address, token) == OK
                assert (token == given) == (given in left)
                assert not TOKEN.search(server.log())
                server.kill()
        file.unlink()
    # What others can read, or is none of ours, is left alone.
    for mode, left in ((0o644, ""), (0o644, given), (0o600, "mine\n"), (0o600, "\0" * 60)):
        data = tmp_path / "refused"
        file.touch(mode=mode)
        file.chmod(mode)
        file.write_text(left)
        with pytest.raises(AssertionError, match="something of this name already"):
            Server(binary, "--data", str(data), "--init-admin-file", str(file), listen=(CLOSED,))
        assert file.read_text() == left
        file.unlink()
    link = tmp_path / "link"
    link.symlink_to(file)
    with pytest.raises(AssertionError, match="init-admin-file"):
        Server(binary, "--data", str(tmp_path / "refused"), "--init-admin-file", str(link))
    assert not file.exists()


def test_a_first_start_that_is_killed_leaves_one_that_works(binary, tmp_path):
    file, found = tmp_path / "admin.token", 0
    for turn in range(12):
        data = tmp_path / f"data-{turn}"
        file.unlink(missing_ok=True)
        command = [binary, "serve", "--listen", CLOSED, "--data", data, "--init-admin-file", file]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if turn % 2:
            wait_until(file.exists)
        time.sleep(turn / 2000)
        process.kill()
        process.wait()
        found += file.exists()
        flags = ["--data", str(data), "--init-admin-file", str(file)]
        with Server(binary, *flags, listen=(CLOSED,)) as server:
            assert get(server.address, made(file.read_text())) == OK
    assert found > 2


def damage(folder):
    path = pathlib.Path(folder, "pelton-data")
    path.write_text(path.read_text().replace("secret ", "secret 0"))


@pytest.mark.parametrize("how", ["damaged", "of another folder"])
def test_a_lost_secret_makes_all_tokens_invalid_and_says_so(binary, tmp_path, how):
    data = tmp_path / "data"
    flags = ["--data", str(data)]
    with Server(binary, *flags, listen=(OPEN,)) as server:
        tokens = {}
        for name, rights in (("admin", "admin"), ("boss", "admin"), ("shop", "read")):
            words = ["token", "create", name, "--rights", rights]
            tokens[name] = made(pelton(binary, server.address, *words))
        pelton(binary, server.address, "token", "create", "me", "--rights", "read", "--uid", "7")
        pelton(binary, server.address, "put", "key", "value")
        assert server.stop() == 0
    for turn in range(2):
        if how == "damaged":
            damage(data)
        else:
            other = tmp_path / f"other-{turn}"
            with Server(binary, "--data", str(other), listen=(OPEN,)) as server:
                assert server.stop() == 0
            shutil.copy(other / "pelton-data", data / "pelton-data")
        for _ in range(2):
            with pytest.raises(AssertionError, match="tokens become invalid"):
                Server(binary, *flags, listen=(CLOSED,))
        file = tmp_path / f"new-{turn}.token"
        accepting = [*flags, "--accept-loss", "--init-admin-file", str(file)]
        with Server(binary, *accepting, listen=(CLOSED,)) as server:
            server.wait_for_log("tokens have become invalid")
            admin = made(file.read_text())
            assert get(server.address, admin) == OK
            for token in tokens.values():
                assert get(server.address, token) == UNAUTHENTICATED

            def run(*words, **more):
                return pelton(binary, server.address, *words, token=admin, **more)  # noqa: B023

            listed = run("token", "list").splitlines()
            invalid = [line.split()[0] for line in listed if "(invalid)" in line]
            assert invalid == ["boss", "shop"], listed
            assert run("get", "key") == "value"
            # It is the only one that is usable.
            assert "last token" in run("token", "revoke", "admin", code=3)
            for name in ("boss", "shop"):
                rotated = made(run("token", "rotate", name, "--keep", "1h"))
                assert get(server.address, rotated) == OK
                assert get(server.address, tokens[name]) == UNAUTHENTICATED
                tokens[name] = rotated
            tokens["admin"] = admin
            server.kill()
        with Server(binary, *flags, listen=(CLOSED,)) as server:
            for token in tokens.values():
                assert get(server.address, token) == OK
            assert "invalid" not in server.log()
            assert server.stop() == 0


def test_a_token_of_others_named_admin_stays(binary, tmp_path):
    data = ["--data", str(tmp_path / "data")]
    file = tmp_path / "admin.token"
    with Server(binary, *data, listen=(OPEN,)) as server:
        words = ["token", "create", "admin", "--rights", "read"]
        reader = made(pelton(binary, server.address, *words))
    for _ in range(2):
        with pytest.raises(AssertionError, match="without the right admin"):
            Server(binary, *data, "--init-admin-file", str(file), listen=(CLOSED,))
        assert not file.exists()
    with Server(binary, *data, listen=(OPEN,)) as server:
        assert get(server.address, reader) == OK
        pelton(binary, server.address, "token", "revoke", "admin")
    with Server(binary, *data, "--init-admin-file", str(file), listen=(CLOSED,)) as server:
        assert get(server.address, made(file.read_text())) == OK


def test_one_source_of_the_first_token_is_enough(binary, tmp_path):
    token = {"PELTON_ADMIN_TOKEN": "pelton_" + "A" * 42 + "E", "PELTON_DURABILITY": "volatile"}
    for flags in (["--init-admin"], ["--init-admin-file", str(tmp_path / "file")]):
        with pytest.raises(AssertionError, match="take one of the two"):
            Server(binary, *flags, listen=(CLOSED,), variables=token)
    assert not (tmp_path / "file").exists()


@pytest.mark.parametrize("flags", [[], ["--init-admin"]])
def test_a_full_pipe_does_not_keep_a_server_from_ending(binary, tmp_path, flags):
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, b"x" * 4096)
    os.set_blocking(writer, True)
    command = [binary, "serve", "--listen", CLOSED, "--data", tmp_path / "data", *flags]
    with open(tmp_path / "log", "w") as log:
        process = subprocess.Popen(command, stdout=writer, stderr=log)
    try:
        if flags:
            assert process.wait(60) == 3
            assert "does not take" in (tmp_path / "log").read_text()
        else:
            time.sleep(1)
            process.terminate()
            assert process.wait(60) in (0, -signal.SIGTERM, 143), process.returncode
    finally:
        process.kill()
        process.wait()
        os.close(reader)
        os.close(writer)


def test_no_token_is_printed_that_nobody_reads(binary, tmp_path):
    """A start whose pipe has no reader makes none, so that the next one can."""
    data = tmp_path / "data"
    command = [binary, "serve", "--listen", CLOSED, "--data", data, "--init-admin"]
    for _ in range(2):
        reader, writer = os.pipe()
        os.close(reader)
        run = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, timeout=60)
        os.close(writer)
        assert run.returncode == 3, run
    file = tmp_path / "file"
    flags = ["--data", str(data), "--init-admin-file", str(file)]
    with Server(binary, *flags, listen=(CLOSED,)) as server:
        assert get(server.address, made(file.read_text())) == OK


def test_a_right_in_a_database_that_is_not_there_is_pointed_out(binary, tmp_path):
    listen = "127.0.0.1:0+anonymous=admin,read:nosuch,write:there/x/"
    for turn in range(2):
        data = ["--data", str(tmp_path / "data")]
        with Server(binary, *data, listen=(listen,)) as server:
            server.wait_for_log("a right in the database `nosuch`")
            if turn == 0:
                server.wait_for_log("a right in the database `there`")
                pelton(binary, server.address, "database", "create", "there")
            for name, number in (("ghost", 1), ("there", 0)):
                words = ["token", "create", name, "--rights", f"read:{name}", "--to"]
                told = told_by(binary, server.address, *words, str(tmp_path / name))
                assert told.count("there is no database") == number, told
                pelton(binary, server.address, "token", "revoke", name)
                (tmp_path / name).unlink()
            assert server.stop() == 0
            assert ("database `there`" in server.log()) == (turn == 0)


def told_by(binary, address, *words):
    """What a command says on standard error."""
    environment = os.environ | {"PELTON_ADDRESS": address}
    done = subprocess.run([binary, *words], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done
    return done.stderr


def test_a_server_is_waited_for_with_a_token_that_is_not_good(binary):
    wrong = "pelton_" + "A" * 42 + "E"
    with Server(binary, listen=(CLOSED,)) as server:
        for _ in range(2):
            told = pelton(binary, server.address, "status", "--wait", "10s", token=wrong)
            assert "SERVING" in told
            assert get(server.address, wrong) == UNAUTHENTICATED
