"""Wrong tokens are counted and slowed, and nobody is locked out by those of others."""

import grpc
import pytest
from metrics_page import counter
from pelton.v1 import kv_pb2, kv_pb2_grpc
from server import Server, open_channel, wait_until

UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED
GOOD = "pelton_" + "A" * 43
SECONDS = 60
# WRONG_TOKENS_AT_ONCE, WRONG_TOKENS_AT_ONCE_PER_ADDRESS and WAITING_REFUSALS of docs/limits.md.
AT_ONCE, AT_ONCE_PER_ADDRESS, WAITING = 16, 256, 64


@pytest.fixture
def server(binary, tmp_path):
    token = tmp_path / "token"
    token.write_text(GOOD)
    token.chmod(0o600)
    flags = ["--admin-token-file", str(token), "--metrics-listen", "127.0.0.1:0"]
    with Server(binary, *flags, listen=["127.0.0.1:0+anonymous=none"]) as running:
        yield running
        assert running.stop() == 0, running.log()


def header(token):
    return [("authorization", f"Bearer {token}")]


def wrong(number):
    return header("pelton_" + f"{number:042}" + "A")


def get(channel, metadata):
    call = kv_pb2_grpc.KeyValueStub(channel).Get
    return call.future(kv_pb2.GetRequest(key=b"k"), metadata=metadata, timeout=SECONDS)


def refused(server, reason):
    return counter(server, f'pelton_refused_calls_total{{reason="{reason}"}}')


def running(server):
    return counter(server, "pelton_running_calls")


def test_a_connection_that_sends_wrong_tokens_waits_and_a_good_one_is_served(server):
    with open_channel(server.address) as channel, open_channel(server.address) as other:
        assert not get(channel, header(GOOD)).result().found
        for round in (1, 2):
            sent = [get(channel, wrong(number)) for number in range(AT_ONCE + 32)]
            # They wait for some seconds, and others on their connection and beside it do not.
            wait_until(lambda: running(server) > 0)
            for _ in range(3):
                assert not get(channel, header(GOOD)).result().found
                assert not get(other, header(GOOD)).result().found
            assert not all(call.done() for call in sent), "none waits"
            assert {call.code() for call in sent} == {UNAUTHENTICATED}
            assert refused(server, "token_wrong") == round * len(sent)
        assert running(server) == 0
        # Without a token nothing was looked up, and nothing waits.
        without = [get(channel, []) for _ in range(200)]
        assert {call.code() for call in without} == {UNAUTHENTICATED}
        assert refused(server, "token_missing") == len(without)


def test_a_call_that_waits_for_its_refusal_ends_with_its_caller(server):
    for _ in range(2):
        with open_channel(server.address) as channel:
            sent = [get(channel, wrong(number)) for number in range(AT_ONCE + 40)]
            wait_until(lambda: running(server) > 0)
            sent[-1].cancel()
        wait_until(lambda: running(server) == 0)


def test_a_connection_that_begins_with_wrong_tokens_is_slowed_and_not_ended(server):
    with open_channel(server.address) as good:
        for _ in range(2):
            with open_channel(server.address) as channel:
                sent = [get(channel, wrong(number)) for number in range(AT_ONCE + 2 * WAITING)]
                wait_until(lambda: running(server) > WAITING)
                # Who comes with a good token through the same proxy is served meanwhile.
                assert not get(channel, header(GOOD)).result().found
                assert not all(call.done() for call in sent), "none waits"
                assert {call.code() for call in sent} == {UNAUTHENTICATED}
            assert not get(good, header(GOOD)).result().found
        assert running(server) == 0


def test_many_connections_of_an_address_are_slowed_and_a_new_one_with_a_good_token_is_not(server):
    count = 0
    while count < AT_ONCE_PER_ADDRESS:
        with open_channel(server.address) as channel:
            sent = [get(channel, wrong(number)) for number in range(AT_ONCE)]
            assert {call.code() for call in sent} == {UNAUTHENTICATED}
        count += len(sent)
    for _ in range(2):
        with open_channel(server.address) as channel, open_channel(server.address) as good:
            sent = [get(channel, wrong(number)) for number in range(32)]
            wait_until(lambda: running(server) > 0)
            assert not get(good, header(GOOD)).result().found
            assert not all(call.done() for call in sent), "none waits"
            assert {call.code() for call in sent} == {UNAUTHENTICATED}


def test_whether_a_token_ever_was_one_is_not_told(server):
    told = set()
    for number in range(3):
        with open_channel(server.address) as channel:
            told.add(get(channel, wrong(number)).details())
    assert len(told) == 1, told
