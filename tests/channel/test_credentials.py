"""TLS and credentials of calls over `pelton_grpc`, compared with grpcio's channel."""

import asyncio
import gc
import threading
import time

import grpc
import pelton_grpc
import pelton_grpc.aio
import pytest
from both import MODULES, SECONDS, end_of, failure, outcome, pairs
from certificates import Authority
from pelton.v1 import echo_pb2, echo_pb2_grpc, kv_pb2_grpc
from pelton.v1 import kv_pb2 as pb
from server import Server, wait_until

SECURE = {"grpcio": grpc.secure_channel, "pelton": pelton_grpc.secure_channel}


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def tls_server(binary, authority):
    certificate, key = authority.sign("server")
    words = ["--tls-cert", str(certificate), "--tls-key", str(key), "--interop"]
    with Server(binary, "--threads", "1", *words) as running:
        yield running


@pytest.fixture(scope="module")
def mutual_server(binary, authority):
    certificate, key = authority.sign("mutual")
    words = ["--tls-cert", str(certificate), "--tls-key", str(key)]
    words += ["--client-ca", str(authority.ca)]
    with Server(binary, "--threads", "1", *words) as running:
        yield running


def port_of(server):
    return server.address.rsplit(":", 1)[1]


def echo(channel, **options):
    request = echo_pb2.EchoRequest(payload=b"a")
    return outcome(
        lambda: echo_pb2_grpc.EchoStub(channel).Unary(request, timeout=SECONDS, **options).payload,
        details=False,
    )


def compare(case, server, credentials, **options):
    found = {}
    for name, secure_channel in SECURE.items():
        with secure_channel(f"localhost:{port_of(server)}", credentials, **options) as channel:
            found[name] = case(channel)
    assert found["pelton"] == found["grpcio"]
    return found["pelton"]


def test_tls(tls_server, authority):
    credentials = grpc.ssl_channel_credentials(authority.ca.read_bytes())
    assert compare(echo, tls_server, credentials) == {"returned": b"a"}
    own = pelton_grpc.ssl_channel_credentials(authority.ca.read_bytes())
    with pelton_grpc.secure_channel(f"localhost:{port_of(tls_server)}", own) as channel:
        assert echo(channel) == {"returned": b"a"}


def test_who_is_not_trusted_is_unavailable(tls_server, tmp_path):
    other = Authority(tmp_path / "other")
    credentials = grpc.ssl_channel_credentials(other.ca.read_bytes())
    found = compare(echo, tls_server, credentials)
    assert found["code"] is grpc.StatusCode.UNAVAILABLE


def test_the_name_of_the_server_may_be_another_one(binary, authority):
    certificate, key = authority.sign("named", names="DNS:db.example")
    words = ["--tls-cert", str(certificate), "--tls-key", str(key)]
    credentials = grpc.ssl_channel_credentials(authority.ca.read_bytes())
    named = [("grpc.ssl_target_name_override", "db.example")]
    with Server(binary, "--threads", "1", *words) as server:
        assert compare(echo, server, credentials, options=named) == {"returned": b"a"}
        assert compare(echo, server, credentials)["code"] is grpc.StatusCode.UNAVAILABLE


def test_mutual_tls(mutual_server, authority):
    certificate, key = authority.sign("client")
    pem = authority.ca.read_bytes(), key.read_bytes(), certificate.read_bytes()
    credentials = grpc.ssl_channel_credentials(*pem)
    assert compare(echo, mutual_server, credentials) == {"returned": b"a"}
    without = grpc.ssl_channel_credentials(pem[0])
    assert compare(echo, mutual_server, without)["code"] is grpc.StatusCode.UNAVAILABLE


class Plugin(grpc.AuthMetadataPlugin):
    """Sees what it is asked, and answers on another thread."""

    def __init__(self, name, error=None):
        self.name, self.error, self.asked = name, error, []

    def __call__(self, context, callback):
        self.asked.append((context.service_url, context.method_name))
        answer = ((f"x-grpc-test-echo-{self.name}", "of a plugin"),)
        threading.Timer(0.01, callback, (answer, self.error)).start()


def test_credentials_of_calls_go_with_them(tls_server, authority):
    channel_plugin, call_plugin, third = Plugin("initial"), Plugin("none"), Plugin("third")
    credentials = grpc.composite_channel_credentials(
        grpc.ssl_channel_credentials(authority.ca.read_bytes()),
        grpc.metadata_call_credentials(channel_plugin),
    )
    of_call = grpc.composite_call_credentials(
        grpc.metadata_call_credentials(call_plugin), grpc.metadata_call_credentials(third)
    )

    def case(channel):
        call = channel.unary_unary("/grpc.testing.TestService/UnaryCall")
        _, ended = call.with_call(b"", timeout=SECONDS)
        stream = channel.stream_stream("/grpc.testing.TestService/FullDuplexCall")
        running = stream(iter([b"\x12\x02\x08\x01"]), credentials=of_call, timeout=SECONDS)
        return ended.initial_metadata(), list(running), running.initial_metadata()

    initial, _, streamed = compare(case, tls_server, credentials)
    assert ("x-grpc-test-echo-initial", "of a plugin") in initial
    assert ("x-grpc-test-echo-initial", "of a plugin") in streamed
    # grpcio first, then ours.
    half = len(channel_plugin.asked) // 2
    assert channel_plugin.asked[:half] == channel_plugin.asked[half:]
    assert len(call_plugin.asked) == len(third.asked) == 2


def test_a_plugin_that_fails_ends_the_call(tls_server, authority):
    class Raises(grpc.AuthMetadataPlugin):
        def __call__(self, context, callback):
            raise RuntimeError("of a plugin")

    for plugin in (Plugin("initial", RuntimeError("of a plugin")), Raises()):
        credentials = grpc.composite_channel_credentials(
            grpc.ssl_channel_credentials(authority.ca.read_bytes()),
            grpc.metadata_call_credentials(plugin),
        )
        found = compare(echo, tls_server, credentials)
        assert found["code"] is grpc.StatusCode.UNAVAILABLE


def test_without_tls_credentials_of_a_call_are_not_sent(server):
    token = grpc.access_token_call_credentials("token")
    codes = []
    for insecure_channel in (grpc.insecure_channel, pelton_grpc.insecure_channel):
        with insecure_channel(server.address) as channel:
            codes.append(echo(channel, credentials=token)["code"])
    assert codes == [grpc.StatusCode.UNAUTHENTICATED] * 2


def test_other_credentials_of_a_channel_are_refused():
    with pytest.raises(ValueError, match="certificates only"):
        pelton_grpc.secure_channel("localhost:1", grpc.local_channel_credentials())


def test_pem_that_is_none_is_told():
    credentials = grpc.ssl_channel_credentials(b"no certificate")
    with pytest.raises(ValueError, match="certificate"):
        pelton_grpc.secure_channel("localhost:1", credentials)


def test_a_token_of_a_server_with_identities(binary, authority, tmp_path):
    certificate, key = authority.sign("tokens")
    words = ["--tls-cert", str(certificate), "--tls-key", str(key)]
    first = tmp_path / "first.token"
    words += ["--data", str(tmp_path / "data"), "--init-admin", "--init-admin-file", str(first)]
    words += ["--kind", "memory"]
    listen = ["127.0.0.1:0+anonymous=none"]
    with Server(binary, "--threads", "1", *words, listen=listen) as server:
        token = grpc.access_token_call_credentials(first.read_text().strip())
        tls = grpc.ssl_channel_credentials(authority.ca.read_bytes())

        def case(channel):
            kv = kv_pb2_grpc.KeyValueStub(channel)
            get = pb.GetRequest(key=b"k")
            with_token = outcome(lambda: kv.Get(get, credentials=token, timeout=SECONDS).found)
            without = outcome(lambda: kv.Get(get, timeout=SECONDS), details=False)
            return with_token, without["code"]

        with_token, code = compare(case, server, tls)
        assert with_token == {"returned": False} and code is grpc.StatusCode.UNAUTHENTICATED


def with_plugin(authority, plugin):
    return grpc.composite_channel_credentials(
        grpc.ssl_channel_credentials(authority.ca.read_bytes()),
        grpc.metadata_call_credentials(plugin),
    )


def test_a_plugin_that_fails_ends_futures_and_streams_that_have_begun(tls_server, authority):
    def case(channel):
        future = channel.unary_unary("/pelton.v1.Echo/Unary").future(b"", timeout=SECONDS)
        called = threading.Event()
        future.add_done_callback(lambda _: called.set())
        assert called.wait(SECONDS)
        found = [failure(future.exception(SECONDS), False)["code"], future.cancelled()]
        for kind, requests in (
            ("unary_stream", b""),
            ("stream_unary", [b""]),
            ("stream_stream", [b""]),
        ):
            method = getattr(channel, kind)("/pelton.v1.Echo/Stream")
            begin = method.future if kind == "stream_unary" else method
            call = begin(iter(requests) if type(requests) is list else requests, timeout=SECONDS)
            found.append((call.code(), pairs(call.initial_metadata()), call.done()))
            waits = call.result if kind == "stream_unary" else lambda call=call: next(call)
            found.append(outcome(waits, details=False)["code"])
        return found

    plugin = Plugin("initial", RuntimeError("of a plugin"))
    found = compare(case, tls_server, with_plugin(authority, plugin))
    assert found[0] is found[-1] is grpc.StatusCode.UNAVAILABLE


def delayed(ms):
    return echo_pb2.EchoRequest(payload=b"a", delay_ms=ms)


def test_a_plugin_and_its_call_have_the_timeout_once(tls_server, authority):
    """Each of them takes more than half of it."""
    pauses = threading.Event()

    class Slow(grpc.AuthMetadataPlugin):
        def __call__(self, context, callback):
            pauses.wait(0.6)
            callback((), None)

    def case(channel):
        unary = echo_pb2_grpc.EchoStub(channel).Unary
        return outcome(lambda: unary(delayed(600), timeout=1.0), details=False)["code"]

    found = compare(case, tls_server, with_plugin(authority, Slow()))
    assert found is grpc.StatusCode.DEADLINE_EXCEEDED


class Never(grpc.AuthMetadataPlugin):
    """Does not answer; it returns, or not either before it is released."""

    def __init__(self, returns):
        self.returns, self.released, self.asked = returns, threading.Event(), 0

    def __call__(self, context, callback):
        self.asked += 1
        if not self.returns:
            self.released.wait(SECONDS)


@pytest.mark.parametrize("returns", [True, False])
def test_a_plugin_that_does_not_answer_ends_calls_at_their_deadline(tls_server, authority, returns):
    def case(channel):
        unary = echo_pb2_grpc.EchoStub(channel).Unary
        return outcome(lambda: unary(delayed(0), timeout=0.3), details=False)["code"]

    plugin = Never(returns)
    try:
        found = compare(case, tls_server, with_plugin(authority, plugin))
    finally:
        plugin.released.set()
    assert found is grpc.StatusCode.DEADLINE_EXCEEDED and plugin.asked == 2


# In an event loop.


def compare_aio(case, server, credentials):
    found = {}
    for name, module in MODULES.items():

        async def main(module=module):
            address = f"localhost:{port_of(server)}"
            async with module.secure_channel(address, credentials) as channel:
                return await asyncio.wait_for(case(channel), 2 * SECONDS)

        found[name] = asyncio.run(main())
    assert found["pelton"] == found["grpcio"]
    return found["pelton"]


def test_credentials_of_calls_in_an_event_loop(tls_server, authority):
    third = grpc.metadata_call_credentials(Plugin("third"))

    async def case(channel):
        unary = channel.unary_unary("/grpc.testing.TestService/UnaryCall")
        call = unary(b"", timeout=SECONDS, metadata=(("x-a", "b"),))
        found = [await call, pairs(await call.initial_metadata())]
        stream = channel.stream_stream("/grpc.testing.TestService/FullDuplexCall")
        for requests in ([b"\x12\x02\x08\x01"] * 3, None):
            call = stream(requests, timeout=SECONDS, credentials=third)
            if requests is None:
                await call.write(b"\x12\x02\x08\x01")
                await call.done_writing()
            responses = len([response async for response in call])
            found.append((pairs(await call.initial_metadata()), responses, await call.code()))
        upload = channel.stream_unary("/grpc.testing.TestService/StreamingInputCall")
        found.append(await upload([b"\x0a\x05\x12\x03abc"] * 3, timeout=SECONDS))
        return found

    found = compare_aio(case, tls_server, with_plugin(authority, Plugin("initial")))
    assert found[1] == [("x-grpc-test-echo-initial", "of a plugin")] and found[2][1] == 3


@pytest.mark.parametrize("module", MODULES.values(), ids=MODULES)
def test_an_event_loop_goes_on_while_plugins_are_asked(tls_server, authority, module):
    class Blocks(grpc.AuthMetadataPlugin):
        def __call__(self, context, callback):
            assert turned.wait(SECONDS), "the event loop stands"
            callback((), None)

    turned = threading.Event()

    async def main():
        credentials = with_plugin(authority, Blocks())
        address = f"localhost:{port_of(tls_server)}"
        async with module.secure_channel(address, credentials) as channel:
            unary = echo_pb2_grpc.EchoStub(channel).Unary
            calls = [unary(delayed(0), timeout=SECONDS) for _ in range(100)]
            await asyncio.sleep(0.05)
            turned.set()
            assert [(await call).payload for call in calls] == [b"a"] * 100

    asyncio.run(main())


def test_plugins_that_fail_and_that_do_not_answer_in_an_event_loop(tls_server, authority):
    async def case(channel):
        found = []
        for kind in ("unary_unary", "unary_stream", "stream_unary", "stream_stream"):
            path = "/pelton.v1.Echo/Unary"
            requests = b"" if kind.startswith("unary") else [b""]
            call = getattr(channel, kind)(path)(requests, timeout=0.5)
            waits = call if kind.endswith("unary") else call.read()
            found.append((await end_of(waits, details=False), await call.code(), call.done()))
            found.append(pairs(await call.initial_metadata()))
        return found

    failing = Plugin("initial", RuntimeError("of a plugin"))
    found = compare_aio(case, tls_server, with_plugin(authority, failing))
    assert found[0][1] is grpc.StatusCode.UNAVAILABLE
    never = Never(returns=False)
    try:
        found = compare_aio(case, tls_server, with_plugin(authority, never))
    finally:
        never.released.set()
    assert found[0][1] is grpc.StatusCode.DEADLINE_EXCEEDED


def test_calls_that_are_cancelled_or_dropped_while_plugins_are_asked(tls_server, authority):
    never = Never(returns=False)

    async def case(channel):
        unary = channel.unary_unary("/pelton.v1.Echo/Unary")
        unary(b"")
        call = unary(b"")
        await asyncio.sleep(0.1)
        found = call.cancel(), await end_of(call), await call.code()
        stream = channel.stream_stream("/pelton.v1.Echo/Stream")([b""])
        reading = asyncio.ensure_future(stream.read())
        await asyncio.sleep(0.1)
        reading.cancel()
        found += (await end_of(reading), await stream.code())
        gc.collect()
        return found

    try:
        found = compare_aio(case, tls_server, with_plugin(authority, never))
    finally:
        never.released.set()
    assert found[1] == found[3] == "cancelled"


def test_in_an_event_loop_credentials_of_a_call_need_tls(server):
    token = grpc.access_token_call_credentials("token")

    async def main(module):
        async with module.insecure_channel(server.address) as channel:
            with pytest.raises(grpc.aio.UsageError, match="secure channels"):
                channel.unary_unary("/pelton.v1.Echo/Unary")(b"", credentials=token)

    for module in MODULES.values():
        asyncio.run(main(module))


def test_plugins_are_asked_on_a_bounded_number_of_threads_which_end(monkeypatch):
    from pelton_grpc import _plugins

    monkeypatch.setattr(_plugins, "IDLE_SECONDS", 0.05)
    most = _plugins.MOST_THREADS
    threads, begun = _plugins.PluginThreads(), []
    for _ in range(2):
        released = threading.Event()

        def blocks(released=released):
            begun.append(None)
            released.wait(SECONDS)

        for _ in range(3 * most):
            threads.run(blocks)
        wait_until(lambda: len(begun) == most, SECONDS)
        time.sleep(0.1)
        assert len(begun) == threads._threads == most
        released.set()
        wait_until(lambda: len(begun) == 3 * most and threads._threads == 0, SECONDS)
        assert threads._free == 0
        begun.clear()
