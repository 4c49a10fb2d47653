"""Replicas between machines: the log of the leader comes over TLS, to who is believed and has the
right."""

import shutil
import signal
import subprocess

import pytest
from certificates import Authority
from pelton.v1 import kv_pb2, kv_pb2_grpc
from support.ports import free_ports
from support.relay import Faults, Relay
from support.server import Server, open_channel, wait_until
from test_replicas import blobs, catch_up, entries, free_port, statistics
from test_replicas_acked import serves

pytestmark = pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed")


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("stranger"), "nobody's authority")


def secure_leader(binary, tmp_path, identity, ca, port):
    """A leader that asks for certificates and tokens where replicas come, and is open to the test
    elsewhere."""
    tls = ("--tls-cert", str(identity[0]), "--tls-key", str(identity[1]), "--client-ca", str(ca))
    listen = (f"plain:127.0.0.1:{free_port()}", f"127.0.0.1:{port}+anonymous=none")
    admin = ("--init-admin-file", str(tmp_path / "admin"))
    data = ("--data", str(tmp_path / "leader"))
    return Server(binary, *data, *tls, *(admin if not (tmp_path / "admin").exists() else ()),
                  listen=listen)  # fmt: skip


def put(server, prefix, count, size):
    with open_channel(server.address) as channel:
        store = kv_pb2_grpc.KeyValueStub(channel)
        for number in range(count):
            key = b"%s/%d" % (prefix, number)
            store.Put(kv_pb2.PutRequest(key=key, value=b"v" * size), timeout=30)


def flags(tmp_path, address, ca, own):
    return (
        "--data", str(tmp_path / "replica"), "--follow", address, "--follow-tls-ca", str(ca),
        "--follow-tls-cert", str(own[0]), "--follow-tls-key", str(own[1]),
        "--follow-token-file", str(tmp_path / "admin"),
    )  # fmt: skip


def test_a_replica_follows_over_tls_with_certificates_and_goes_on_when_they_change(
    binary, tmp_path, authority
):
    port = free_port()
    identity = [tmp_path / "leader.pem", tmp_path / "leader.key"]

    def renew(name):
        for new, path in zip(authority.sign(name), identity):
            shutil.copy(new, path)

    renew("first")
    own = authority.sign("replica")
    with secure_leader(binary, tmp_path, identity, authority.ca, port) as leader:
        put(leader, b"before", 20, 20_000)
        content = tmp_path / "content"
        content.write_bytes(b"c" * 300_000)
        upload = [binary, "upload", "--address", leader.address, content, "--name"]
        subprocess.run([*upload, "before"], check=True, stdout=subprocess.DEVNULL, timeout=60)
        faults = Faults(cut_bytes=300_000, cuts=6, delay_seconds=0.002)
        with Relay(f"127.0.0.1:{port}", 17, faults) as relay:
            at = f"localhost:{relay.address.rsplit(':', 1)[1]}"
            with Server(binary, *flags(tmp_path, at, authority.ca, own)) as replica:
                put(leader, b"behind", 40, 20_000)
                subprocess.run(
                    [*upload, "behind"], check=True, stdout=subprocess.DEVNULL, timeout=60
                )
                catch_up(leader, replica)
                assert entries(leader) == entries(replica)
                assert blobs(binary, leader) == blobs(binary, replica)
                assert relay.cuts > 0
                # Its certificate is another one: connections that are there go on, new ones too.
                renew("second")
                leader.signal(signal.SIGHUP)
                put(leader, b"later", 5, 100)
                catch_up(leader, replica)
                relay.faults = Faults()
                leader.kill()
                again = secure_leader(binary, tmp_path, identity, authority.ca, port)
                with again:
                    put(again, b"last", 5, 100)
                    catch_up(again, replica)
                    assert entries(again) == entries(replica)
                    assert "takes a new copy" not in replica.log()


def test_a_replica_that_is_not_believed_or_does_not_believe_says_so_and_takes_nothing(
    binary, tmp_path, authority, stranger
):
    port = free_port()
    own, foreign = authority.sign("replica-2"), stranger.sign("replica-2")
    identity = authority.sign("leader-2")
    with secure_leader(binary, tmp_path, identity, authority.ca, port) as leader:
        put(leader, b"k", 3, 100)
        at = f"localhost:{port}"
        for ca, shown, words in (
            (stranger.ca, own, "the peer's certificate was signed by nobody who is trusted here"),
            (authority.ca, foreign, "UnknownCA"),
        ):
            with subprocess.Popen(
                [binary, "serve", "--listen", "127.0.0.1:0", *flags(tmp_path, at, ca, shown)],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            ) as process:
                lines = (line for line in process.stdout if "could be taken" in line)
                assert words in next(lines)
                process.kill()
        assert statistics(leader).followers == 0
        with Server(binary, *flags(tmp_path, at, authority.ca, own)) as replica:
            catch_up(leader, replica)
            assert entries(leader) == entries(replica)
            wait_until(lambda: statistics(leader).followers == 1)
            # The leader is another one, whom nobody has vouched for.
            leader.kill()
            with secure_leader(binary, tmp_path, foreign, authority.ca, port) as imposter:
                put(imposter, b"k", 5, 100)
                replica.wait_for_log("cannot be followed")
                wait_until(lambda: "certificate" in statistics(replica).replica.problem)
                assert statistics(imposter).followers == 0
                assert entries(imposter) != entries(replica)


def first_words(binary, *arguments):
    """What a server says that is to end by itself."""
    ended = subprocess.run(
        [binary, "serve", "--listen", "127.0.0.1:0", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
    )
    assert ended.returncode != 0, ended.stdout
    return ended.stdout


def token(binary, leader, tmp_path, *words):
    """Something about tokens, over the leader's own address."""
    admin = ("--token-file", str(tmp_path / "admin"))
    subprocess.run(
        [binary, "token", *words, "--address", leader.address, *admin],
        stdout=subprocess.DEVNULL,
        check=True,
        timeout=30,
    )


def test_a_start_without_tls_or_with_a_token_that_is_none_says_what_to_use(
    binary, tmp_path, authority
):
    port = free_port()
    identity, own = authority.sign("leader-3"), authority.sign("replica-3")
    with secure_leader(binary, tmp_path, identity, authority.ca, port) as leader:
        at = f"localhost:{port}"
        follow = ("--data", str(tmp_path / "replica"), "--follow", at)
        said = first_words(binary, *follow)
        assert "the server speaks TLS" in said and "--follow-tls" in said, said
        tls = (
            "--follow-tls-ca", str(authority.ca), "--follow-tls-cert", str(own[0]),
            "--follow-tls-key", str(own[1]),
        )  # fmt: skip
        said = first_words(binary, *follow, *tls)
        assert "UNAUTHENTICATED" in said and "--follow-token-file" in said, said
        wrong = tmp_path / "wrong"
        wrong.write_text("pelton_" + "A" * 43)
        wrong.chmod(0o600)
        said = first_words(binary, *follow, *tls, "--follow-token-file", str(wrong))
        assert "UNAUTHENTICATED" in said and "--follow-token-file" in said, said
        reader = tmp_path / "reader"
        token(binary, leader, tmp_path, "create", "reader", "--rights", "read", "--to", str(reader))
        said = first_words(binary, *follow, *tls, "--follow-token-file", str(reader))
        assert "PERMISSION_DENIED" in said and "`admin`" in said, said
        assert statistics(leader).followers == 0


def test_a_replica_whose_token_is_revoked_serves_on_and_follows_with_another_one(
    binary, tmp_path, authority
):
    port = free_port()
    identity, own = authority.sign("leader-4"), authority.sign("replica-4")
    with secure_leader(binary, tmp_path, identity, authority.ca, port) as leader:
        put(leader, b"k", 3, 100)
        for number in range(2):
            file = tmp_path / f"token-{number}"
            name = f"replica-{number}"
            token(binary, leader, tmp_path, "create", name, "--rights", "admin", "--to", str(file))
            words = [*flags(tmp_path, f"localhost:{port}", authority.ca, own)[:-1], str(file)]
            with Server(binary, *words) as replica:
                put(leader, b"%d" % number, 3, 100)
                catch_up(leader, replica)
                there = entries(leader)
                assert entries(replica) == there
                token(binary, leader, tmp_path, "revoke", name)
                wait_until(lambda: not statistics(replica).replica.connected)  # noqa: B023
                put(leader, b"later/%d" % number, 1, 100)
                replica.wait_for_log("cannot be followed")
                wait_until(
                    lambda: "UNAUTHENTICATED" in statistics(replica).replica.problem  # noqa: B023
                )
                assert entries(replica) == there, "what it has it serves"


def secure_replica(binary, tmp_path, name, authority, leader_port, port, *arguments):
    """A replica that is followed and promoted over TLS by who has the leader's token, and open to
    the test elsewhere."""
    identity, own = authority.sign(f"{name}-server"), authority.sign(name)
    return Server(
        binary, "--data", str(tmp_path / name), "--follow", f"localhost:{leader_port}",
        "--follow-tls-ca", str(authority.ca), "--follow-tls-cert", str(own[0]),
        "--follow-tls-key", str(own[1]), "--follow-token-file", str(tmp_path / "admin"),
        "--tls-cert", str(identity[0]), "--tls-key", str(identity[1]), "--client-ca",
        str(authority.ca), *arguments,
        listen=(f"plain:127.0.0.1:{free_port()}", f"127.0.0.1:{port}+anonymous=none"),
    )  # fmt: skip


def test_a_replica_is_promoted_and_followed_over_tls_with_the_tokens_of_the_leader(
    binary, tmp_path, authority
):
    leader_port, one_port, two_port = free_ports(3)
    acked = ("--replicas-acked", "1", "--replicas-acked-timeout", "60s")
    admin = ("--init-admin-file", str(tmp_path / "admin"))
    identity, own = authority.sign("leader-5"), authority.sign("operator")
    leader = Server(
        binary, "--data", str(tmp_path / "leader"), *admin, *acked, "--tls-cert",
        str(identity[0]), "--tls-key", str(identity[1]), "--client-ca", str(authority.ca),
        listen=(f"plain:127.0.0.1:{free_port()}", f"127.0.0.1:{leader_port}+anonymous=none"),
    )  # fmt: skip
    one = secure_replica(binary, tmp_path, "one", authority, leader_port, one_port, *acked)
    two = secure_replica(binary, tmp_path, "two", authority, leader_port, two_port, *acked)

    def promote(*words):
        return subprocess.run(
            [binary, "promote", "--address", f"localhost:{one_port}", "--timeout", "60s",
             "--tls-ca", authority.ca, "--tls-cert", own[0], "--tls-key", own[1], *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
        )  # fmt: skip

    try:
        wait_until(lambda: len(statistics(leader).acknowledged.followers) == 2)
        put(leader, b"k", 20, 100)
        catch_up(leader, one)
        catch_up(leader, two)
        there = entries(leader)
        leader.kill()
        confirm = ("--confirm", f"localhost:{two_port}")
        refused = promote(*confirm)
        assert refused.returncode != 0 and "UNAUTHENTICATED" in refused.stdout, refused.stdout
        told = promote("--token-file", tmp_path / "admin", *confirm)
        # It serves when somebody follows it.
        two.kill()
        two = secure_replica(binary, tmp_path, "two", authority, one_port, two_port, *acked)
        assert "was promoted" in told.stdout, told.stdout
        serves(one)
        put(one, b"later", 3, 100)
        catch_up(one, two)
        assert entries(one) == entries(two)
        assert set(there) <= set(entries(two))
        assert "new copy" not in two.log()
    finally:
        for server in (leader, one, two):
            server.kill()
