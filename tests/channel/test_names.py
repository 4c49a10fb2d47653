"""Names of servers that are not known, that come to stand for others, and a resolver that says
nothing."""

import contextlib
import socket
import subprocess
import sys
import textwrap

import pytest
from scripts import PROLOGUE, finish
from server import Server

HOSTS = "127.0.0.1 localhost\n"


@pytest.fixture
def hosts(tmp_path):
    """A file of names, and what runs a program that sees it as /etc/hosts."""
    file = tmp_path / "hosts"
    file.write_text(HOSTS)
    mount = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"']
    if subprocess.run([*mount, file, "true"], stderr=subprocess.DEVNULL).returncode != 0:
        pytest.skip("this process may not mount another /etc/hosts")
    return file, [*mount, str(file)]


def run_with_names(mount, script, target):
    command = [*mount, sys.executable, "-X", "faulthandler", "-c"]
    process = subprocess.Popen(
        [*command, PROLOGUE + textwrap.dedent(script), target],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    return process


def go_on(process):
    process.stdin.write("\n")
    process.stdin.flush()


def test_a_call_that_waits_until_its_server_is_ready_waits_for_its_name(server, hosts):
    file, mount = hosts
    script = """
        try:
            echo(b"", timeout=0.5, wait_for_ready=True)
        except pelton_grpc.RpcError as error:
            print(error.code().name, flush=True)
        try:
            echo(b"", timeout=20)
        except pelton_grpc.RpcError as error:
            print(error.code().name, flush=True)
        threading.Timer(0.5, lambda: print("waits", flush=True)).start()
        print(echo(b"", timeout=30, wait_for_ready=True), list(stream(iter([b""]))), flush=True)
    """
    port = server.address.rsplit(":", 1)[1]
    process = run_with_names(mount, script, f"db.invalid:{port}")
    lines = [process.stdout.readline() for _ in range(3)]
    assert lines == ["DEADLINE_EXCEEDED\n", "UNAVAILABLE\n", "waits\n"]
    file.write_text(HOSTS + "127.0.0.1 db.invalid\n")
    code, out, err = finish(process)
    assert (code, out) == (0, "b'' [b'']\n"), err


def test_a_server_that_has_moved_is_found_again(binary, hosts):
    file, mount = hosts
    script = """
        print(echo(b""), flush=True)
        sys.stdin.readline()
        until = time.monotonic() + 60
        while time.monotonic() < until:
            try:
                print(echo(b"", timeout=5), flush=True)
                break
            except pelton_grpc.RpcError as error:
                assert error.code().name == "UNAVAILABLE", error
                time.sleep(0.1)
    """
    file.write_text(HOSTS + "127.0.0.1 db.invalid\n")
    with Server(binary, "--threads", "1", listen=["127.0.0.1:0"]) as first:
        port = first.address.rsplit(":", 1)[1]
        process = run_with_names(mount, script, f"db.invalid:{port}")
        assert process.stdout.readline() == "b''\n"
    file.write_text(HOSTS + "127.0.0.2 db.invalid\n")
    with Server(binary, "--threads", "1", listen=[f"127.0.0.2:{port}"]):
        go_on(process)
        code, out, err = finish(process)
        assert (code, out) == (0, "b''\n"), err


def test_calls_that_wait_go_where_the_name_leads_by_then(binary, hosts):
    file, mount = hosts
    script = """
        print(echo(b""), flush=True)
        sys.stdin.readline()
        # Until its connection is known to be gone: a pool that was just used looks later.
        time.sleep(3)
        def block():
            print(echo(b"", wait_for_ready=True), flush=True)
        blocked = threading.Thread(target=block)
        blocked.start()
        waiting = [echo.future(b"", wait_for_ready=True) for _ in range(3)]
        waiting.append(stream(iter([b""]), wait_for_ready=True))
        time.sleep(0.5)
        print("waits", not any(call.done() for call in waiting), flush=True)
        blocked.join()
        print([call.result() for call in waiting[:3]], list(waiting[3]))
        tasks = os.listdir("/proc/self/task")
        names = [open(f"/proc/self/task/{task}/comm").read() for task in tasks]
        print(names.count("pelton-pool\\n"))
    """
    file.write_text(HOSTS + "127.0.0.1 db.invalid\n")
    with Server(binary, "--threads", "1", listen=["127.0.0.1:0"]) as first:
        port = first.address.rsplit(":", 1)[1]
        process = run_with_names(mount, script, f"db.invalid:{port}")
        assert process.stdout.readline() == "b''\n"
    go_on(process)
    assert process.stdout.readline() == "waits True\n"
    file.write_text(HOSTS + "127.0.0.2 db.invalid\n")
    with Server(binary, "--threads", "1", listen=[f"127.0.0.2:{port}"]):
        code, out, err = finish(process)
        assert (code, out) == (0, "b''\n[b'', b'', b''] [b'']\n1\n"), err


def test_calls_that_wait_for_a_name_end_with_their_channel(hosts):
    script = """
        ended = []
        def block(call):
            try:
                call()
            except pelton_grpc.RpcError as error:
                ended.append(error.code().name)
        calls = [
            lambda: echo(b"", wait_for_ready=True),
            lambda: next(stream(iter([b""]), wait_for_ready=True)),
        ]
        future = echo.future(b"", wait_for_ready=True)
        threads = [threading.Thread(target=block, args=(call,)) for call in calls]
        for thread in threads:
            thread.start()
        time.sleep(0.3)
        channel.close()
        for thread in threads:
            thread.join()
        print(ended, future.code().name)
    """
    _, mount = hosts
    code, out, err = finish(run_with_names(mount, script, "db.invalid:1"))
    assert (code, out) == (0, "['CANCELLED', 'CANCELLED'] CANCELLED\n"), err


@pytest.fixture
def silent_resolver(tmp_path):
    """What runs a program that asks a resolver which says nothing."""
    with contextlib.ExitStack() as stack:
        silent = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        try:
            silent.bind(("127.0.0.77", 53))
        except OSError:
            pytest.skip("this process may not bind port 53")
        configuration = tmp_path / "resolv.conf"
        configuration.write_text("nameserver 127.0.0.77\noptions timeout:20 attempts:2\n")
        mount = 'mount --bind "$0" "$(realpath /etc/resolv.conf)" && exec "$@"'
        command = ["unshare", "--mount", "sh", "-c", mount, str(configuration)]
        if subprocess.run([*command, "true"], stderr=subprocess.DEVNULL).returncode != 0:
            pytest.skip("this process may not mount another /etc/resolv.conf")
        yield silent, command


def test_nobody_waits_longer_for_a_resolver_than_its_deadline(silent_resolver):
    silent, command = silent_resolver
    script = """
        import asyncio
        def code(call):
            try:
                call()
            except pelton_grpc.RpcError as error:
                return error.code().name
        print(code(lambda: echo(b"", timeout=0.3)), echo.future(b"", timeout=0.3).code().name)
        print(code(lambda: next(stream(iter([]), timeout=0.3))))
        # Nor is a loop held up.
        async def main():
            async with pelton_grpc.aio.insecure_channel(sys.argv[1]) as channel:
                call = channel.unary_unary("/pelton.v1.Echo/Unary")(b"", timeout=20)
                await asyncio.sleep(0.1)
                print("the loop goes on", call.done())
                call.cancel()
        import pelton_grpc.aio
        asyncio.run(main())
        # Nor the end.
    """
    process = run_with_names(command, script, "db.example.com:1")
    code, out, err = finish(process)
    expected = "DEADLINE_EXCEEDED DEADLINE_EXCEEDED\nDEADLINE_EXCEEDED\nthe loop goes on False\n"
    assert (code, out) == (0, expected), err
    silent.settimeout(5)
    assert silent.recv(512), "it was asked"
