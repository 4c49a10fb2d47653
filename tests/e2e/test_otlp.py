"""Spans of calls come to a collector: with the right parents, of sampled calls alone, and without
any call that waits for a collector that is away, refuses or hangs."""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import time

import grpc
import pytest
import raw
from blob_client import begin, chunk, end
from certificates import Authority
from collector import CLIENT, ERROR, SERVER, UNSET, Collector, sampled, service
from metrics_page import counter, fetch
from pelton.v1 import blob_pb2_grpc, echo_pb2, echo_pb2_grpc, kv_pb2_grpc
from pelton.v1 import kv_pb2 as pb
from server import Server, expect_status, open_channel, wait_until

TRACE, CALLER = b"\xab" * 16, b"\xcd" * 8
PHASES = {f"pelton.{name}_us" for name in ("queue", "read", "commit", "sync", "send")}


@contextlib.contextmanager
def traced(binary, folder, url, *arguments):
    """A server that exports its spans there, and a channel to it."""
    settings = ["--data", str(folder / "data"), "--metrics-listen", "0", "--otlp-endpoint", url]
    with (
        Server(binary, *settings, "--log-segment", "4MiB", *arguments) as server,
        open_channel(server.address) as channel,
    ):
        yield server, channel


@pytest.fixture
def collector():
    with Collector() as running:
        yield running


def sent(server):
    return counter(server, "pelton_spans_sent_total")


def dropped(server, reason):
    return counter(server, f'pelton_spans_dropped_total{{reason="{reason}"}}')


def expect_part_of_caller(span, method):
    assert (span.name, span.kind) == (f"pelton.v1.{method}", SERVER)
    assert (span.trace, span.parent) == (TRACE, CALLER), span
    assert len(span.id) == 8 and span.id != CALLER
    # Sampled, and the parent is known to be in another process.
    assert span.message.flags == 0x301
    assert span.attributes["rpc.system.name"] == "grpc"
    assert span.attributes["rpc.method"] == span.name
    assert span.attributes["network.peer.address"] == "127.0.0.1"
    assert PHASES <= span.attributes.keys()
    waited = sum(span.attributes[phase] for phase in PHASES)
    assert 0 <= waited <= span.took_us + 1, span
    assert span.resource["service.name"] == "pelton"
    now_ns = time.time_ns()
    assert now_ns - 60e9 < span.message.start_time_unix_nano <= now_ns + 1e9


def test_each_kind_of_call_has_a_span_with_its_caller_as_the_parent(binary, tmp_path, collector):
    with traced(binary, tmp_path, collector.url) as (server, channel):
        kv, blob = kv_pb2_grpc.KeyValueStub(channel), blob_pb2_grpc.BlobStub(channel)
        for round in range(1, 3):
            kv.Put(pb.PutRequest(key=b"k", value=b"v"), metadata=sampled(), timeout=30)
            kv.Get(pb.GetRequest(key=b"k"), metadata=sampled(), timeout=30)
            put = pb.Operation(put=pb.Operation.Put(key=b"b", value=b"v"))
            kv.Batch(pb.BatchRequest(operations=[put]), metadata=sampled(), timeout=30)
            list(kv.Scan(pb.ScanRequest(), metadata=sampled(), timeout=30))
            watch = kv.Watch(pb.WatchRequest(), metadata=sampled(), timeout=30)
            next(watch)
            watch.cancel()
            requests = iter([begin(f"name/{round}"), chunk(b"content"), end()])
            blob.Upload(requests, metadata=sampled(), timeout=30)
            spans = collector.wait_for(6 * round)[-6:]
            by_name = {span.name.removeprefix("pelton.v1."): span for span in spans}
            for method, span in by_name.items():
                expect_part_of_caller(span, method)
            code = "rpc.response.status_code"
            assert {name: span.attributes[code] for name, span in by_name.items()} == {
                **{f"KeyValue/{name}": "OK" for name in ("Put", "Get", "Batch", "Scan")},
                "KeyValue/Watch": "CANCELLED",
                "Blob/Upload": "OK",
            }
            synced = by_name["KeyValue/Put"].attributes
            assert synced["pelton.commit_us"] + synced["pelton.sync_us"] > 0, synced
            assert synced["pelton.database"] == ""
        assert len({span.id for span in collector.spans}) == 12
        wait_until(lambda: sent(server) == 12)
        assert dropped(server, "queue_full") == 0


def test_a_call_that_is_not_sampled_has_no_span(binary, tmp_path, collector):
    with traced(binary, tmp_path, collector.url) as (server, channel):
        kv = kv_pb2_grpc.KeyValueStub(channel)
        for metadata in (
            [],
            sampled(flags="00"),
            [("traceparent", "nonsense")],
            sampled(trace=b"\0" * 16),
            sampled(span=b"\0" * 8),
        ):
            kv.Get(pb.GetRequest(key=b"k"), metadata=metadata, timeout=30)
        # What comes later has come: nothing before it will.
        kv.Get(pb.GetRequest(key=b"k"), metadata=sampled(), timeout=30)
        assert len(collector.wait_for(1)) == 1
        assert sent(server) + counter(server, "pelton_spans_queued") == 1


def test_a_share_of_calls_without_a_trace_begins_one(binary, tmp_path, collector):
    with traced(binary, tmp_path, collector.url, "--otlp-sample", "1") as (_, channel):
        kv = kv_pb2_grpc.KeyValueStub(channel)
        for _ in range(3):
            kv.Get(pb.GetRequest(key=b"k"), timeout=30)
        kv.Get(pb.GetRequest(key=b"k"), metadata=sampled(flags="00"), timeout=30)
        spans = collector.wait_for(3)
        assert {span.parent for span in spans} == {b""}
        assert len({span.trace for span in spans}) == 3


def test_a_span_says_how_the_call_ended_and_what_it_was_about(binary, tmp_path, collector):
    name = ["--otlp-service-name", "shop-db"]
    with traced(binary, tmp_path, collector.url, *name) as (_, channel):
        kv, echo = kv_pb2_grpc.KeyValueStub(channel), echo_pb2_grpc.EchoStub(channel)
        get = pb.GetRequest(database="nowhere", key=b"secret")
        expect_status(
            grpc.StatusCode.NOT_FOUND, lambda: kv.Get(get, metadata=sampled(), timeout=30)
        )
        expect_status(
            grpc.StatusCode.DEADLINE_EXCEEDED,
            lambda: echo.Unary(
                echo_pb2.EchoRequest(delay_ms=20_000), metadata=sampled(), timeout=0.2
            ),
        )
        not_found, late = sorted(collector.wait_for(2), key=lambda span: span.took_us)
        assert not_found.attributes["rpc.response.status_code"] == "NOT_FOUND"
        assert not_found.attributes["pelton.database"] == "nowhere"
        # The caller was wrong, and not the server.
        assert not_found.message.status.code == UNSET
        assert "secret" not in str(not_found.message)
        # Which of the two ends first, the server by the deadline or the client, is open.
        code = late.attributes["rpc.response.status_code"]
        assert code in ("DEADLINE_EXCEEDED", "CANCELLED"), late
        assert (late.message.status.code == ERROR) == (code == "DEADLINE_EXCEEDED")
        assert late.took_us >= 150_000
        assert {span.resource["service.name"] for span in (not_found, late)} == {"shop-db"}


def test_a_request_that_is_cut_has_the_status_that_its_caller_got(binary, tmp_path, collector):
    with traced(binary, tmp_path, collector.url) as (_, channel):
        kv = kv_pb2_grpc.KeyValueStub(channel)
        put = pb.PutRequest(key=b"k", value=b"v" * (17 << 20))
        expect_status(
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            lambda: kv.Put(put, metadata=sampled(), timeout=60),
        )
        (span,) = collector.wait_for(1)
        assert span.attributes["rpc.response.status_code"] == "RESOURCE_EXHAUSTED"


def run(binary, server, *words, **variables):
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PELTON_", "OTEL_", "TRACE"))
    }
    return subprocess.run(
        [binary, *words, "--address", server.address],
        env=environment | variables,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_the_spans_of_a_command_are_the_parents_of_those_of_the_server(binary, tmp_path, collector):
    content = tmp_path / "content"
    content.write_bytes(b"x" * 1000)
    parent = f"00-{TRACE.hex()}-{CALLER.hex()}-01"
    variables = {"PELTON_OTLP_ENDPOINT": collector.url, "TRACEPARENT": parent}
    with traced(binary, tmp_path, collector.url) as (server, _):
        for words, method, code in (
            (["put", "k", "v"], "KeyValue/Put", "OK"),
            (["get", "k"], "KeyValue/Get", "OK"),
            (["scan"], "KeyValue/Scan", "OK"),
            (["get", "k", "--database", "no"], "KeyValue/Get", "NOT_FOUND"),
            (["upload", str(content)], "Blob/Upload", "OK"),
        ):
            with collector.lock:
                collector.spans.clear()
            done = run(binary, server, *words, **variables)
            assert (done.returncode == 0) == (code == "OK"), done
            name = f"pelton.v1.{method}"
            (client,) = collector.wait_for(1, kind=CLIENT, name=name)
            (served,) = collector.wait_for(1, kind=SERVER, name=name)
            assert (client.trace, client.parent) == (TRACE, CALLER)
            assert (served.trace, served.parent) == (TRACE, client.id), words
            assert client.resource["service.name"] == "pelton-client"
            assert client.attributes["server.address"] == "127.0.0.1"
            for span in (client, served):
                assert span.attributes["rpc.response.status_code"] == code, words
            # The clock is one and the same here, to the microsecond.
            assert client.message.start_time_unix_nano <= served.message.start_time_unix_nano + 1e6


def test_a_command_without_a_collector_passes_its_parent_on(binary, tmp_path, collector):
    parent = f"00-{TRACE.hex()}-{CALLER.hex()}-01"
    with traced(binary, tmp_path, collector.url) as (server, _):
        assert run(binary, server, "get", "k", TRACEPARENT="nonsense").returncode == 1
        assert run(binary, server, "get", "k", TRACEPARENT=parent).returncode == 1
        (served,) = collector.wait_for(1)
        expect_part_of_caller(served, "KeyValue/Get")


def test_a_command_says_that_its_spans_were_lost_and_does_what_it_was_asked_for(binary, tmp_path):
    with (
        dead_port() as port,
        Server(binary) as server,
    ):
        url = f"http://127.0.0.1:{port}"
        begun = time.monotonic()
        done = run(binary, server, "put", "k", "v", PELTON_OTLP_ENDPOINT=url)
        assert done.returncode == 0, done
        assert f"spans of its calls (1) cannot be exported to {url}: " in done.stderr, done
        assert "correct host and port in PELTON_OTLP_ENDPOINT" in done.stderr, done
        assert time.monotonic() - begun < 20
        done = run(binary, server, "put", "k", "v", PELTON_OTLP_ENDPOINT="localhost:4317")
        assert done.returncode == 2, done
        assert "write http://HOST:4317" in done.stderr, done
    with hanging_port() as port, Server(binary) as server:
        url = f"http://127.0.0.1:{port}"
        done = run(binary, server, "put", "k", "v", PELTON_OTLP_ENDPOINT=url)
        assert done.returncode == 0, done
        said = f"spans of its calls (1) were not taken by {url} within 1 s of its end"
        assert said in done.stderr, done


@contextlib.contextmanager
def dead_port():
    """A port on which nobody listens, and which nobody else gets."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@contextlib.contextmanager
def hanging_port():
    """A port that takes connections and never says anything."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(16)
        yield listener.getsockname()[1]


def call_many(channel, count, database="d" * 200):
    """Calls that are all traced, some at once."""
    kv = kv_pb2_grpc.KeyValueStub(channel)
    request = pb.GetRequest(database=database, key=b"k")
    for _ in range(count // 100):
        calls = [kv.Get.future(request, metadata=sampled(), timeout=60) for _ in range(100)]
        for call in calls:
            assert call.exception().code() == grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize("kind", ["dead", "hanging", "refusing", "rejecting"])
def test_a_collector_that_does_not_take_spans_costs_no_call_and_does_not_delay_the_end(
    binary, tmp_path, kind
):
    def fail(_, context):
        if kind == "refusing":
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "these spans\nare not wanted")
        partial = service.ExportTracePartialSuccess(rejected_spans=1 << 40, error_message="no")
        return service.ExportTraceServiceResponse(partial_success=partial)

    with contextlib.ExitStack() as stack:
        if kind == "dead":
            port = stack.enter_context(dead_port())
        elif kind == "hanging":
            port = stack.enter_context(hanging_port())
        else:
            port = stack.enter_context(Collector(fail)).port
        url = f"http://127.0.0.1:{port}"
        server, channel = stack.enter_context(traced(binary, tmp_path, url))
        call_many(channel, 1000)
        before = server.resident_bytes()
        call_many(channel, 9000)
        reason = {"refusing": "export_failed", "rejecting": "rejected"}.get(kind, "queue_full")
        wait_until(lambda: dropped(server, reason) > 0)
        if kind in ("dead", "hanging"):
            # 2048 wait and 512 are under way, of 10 000 that there were.
            assert dropped(server, "queue_full") >= 10_000 - 2048 - 5 * 512
            assert counter(server, "pelton_spans_queued") <= 2048 + 512
        assert sent(server) == 0
        assert server.resident_bytes() - before < 32 << 20
        if kind == "refusing":
            server.wait_for_log("these spans\\nare not wanted")
        elif kind == "rejecting":
            server.wait_for_log("refuses 512 spans of an export: no")
        elif kind == "dead":
            server.wait_for_log(f"spans cannot be exported to {url}")
        begun = time.monotonic()
        assert server.stop() == 0, server.log()
        assert time.monotonic() - begun < 20
        assert server.log().count("cannot be exported") <= 1, server.log()
        if kind in ("dead", "hanging"):
            why = {
                "dead": f"cannot connect to 127.0.0.1:{port}: nobody listens there",
                "hanging": "the collector did not take them within 3 s",
            }[kind]
            assert f"spans were dropped at the end: {why}\n" in server.log(), server.log()


@pytest.mark.parametrize("drain_ms, signals", [(1500, 1), (30_000, 2)])
def test_draining_or_a_second_signal_ends_the_last_export(binary, tmp_path, drain_ms, signals):
    with hanging_port() as port:
        url = f"http://127.0.0.1:{port}"
        drain = ["--drain-timeout", f"{drain_ms}ms"]
        with traced(binary, tmp_path, url, *drain) as (server, channel):
            kv = kv_pb2_grpc.KeyValueStub(channel)
            kv.Get(pb.GetRequest(key=b"k"), metadata=sampled(), timeout=30)
            channel.close()
            server.process.send_signal(signal.SIGTERM)
            server.wait_for_log("draining")
            if signals == 2:
                # The loops have ended then, or it hurries them.
                time.sleep(1)
                server.process.send_signal(signal.SIGINT)
            server.process.wait(timeout=30)
            [said] = re.findall("1 spans were dropped at the end: (.*)", server.log())
            if signals == 2:
                assert said == "a further signal asked to end at once"
            else:
                within = re.fullmatch("the collector did not take them within (.*) s", said)
                assert 0.25 <= float(within[1]) <= 1.5


def test_spans_are_exported_again_when_the_collector_is_back(binary, tmp_path):
    with Collector() as first:
        port, url = first.port, first.url
        stack = contextlib.ExitStack()
        server, channel = stack.enter_context(traced(binary, tmp_path, url))
        kv = kv_pb2_grpc.KeyValueStub(channel)
        kv.Get(pb.GetRequest(key=b"1"), metadata=sampled(), timeout=30)
        first.wait_for(1)
    with stack:
        kv.Get(pb.GetRequest(key=b"2"), metadata=sampled(), timeout=30)
        server.wait_for_log("cannot be exported")
        with Collector(port=port) as second:
            second.wait_for(1)
            server.wait_for_log("are exported to", "again; 0 were dropped meanwhile")
        wait_until(lambda: sent(server) == 2)


def test_an_export_is_retried_as_the_collector_asks(binary, tmp_path):
    def fail(number, context):
        if number == 1:
            # google.rpc.Status with RetryInfo: a quarter of a second.
            delay = b"\x0a\x05\x10\x80\xe5\x9a\x77"
            kind = b"type.googleapis.com/google.rpc.RetryInfo"
            detail = b"\x0a" + bytes([len(kind)]) + kind + b"\x12" + bytes([len(delay)]) + delay
            details = b"\x08\x08\x1a" + bytes([len(detail)]) + detail
            context.set_trailing_metadata([("grpc-status-details-bin", details)])
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "busy")
        if number == 3:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "without a pause: for good")

    with Collector(fail) as collector, traced(binary, tmp_path, collector.url) as (server, channel):
        kv = kv_pb2_grpc.KeyValueStub(channel)
        kv.Get(pb.GetRequest(key=b"1"), metadata=sampled(), timeout=30)
        collector.wait_for(1)
        assert collector.exports == 2
        kv.Get(pb.GetRequest(key=b"2"), metadata=sampled(), timeout=30)
        wait_until(lambda: dropped(server, "export_failed") == 1)
        assert sent(server) == 1


@pytest.mark.skipif(not shutil.which("curl"), reason="no curl")
def test_a_call_over_plain_http_has_a_span_that_is_none_of_grpc(binary, tmp_path, collector):
    ((name, value),) = sampled()
    with traced(binary, tmp_path, collector.url) as (server, _):
        words = ["curl", "-sS", "--http2-prior-knowledge", "--noproxy", "*", "--max-time", "60"]
        words += ["-T", "-", "-H", f"{name}: {value}", f"http://{server.address}/blob/name"]
        subprocess.run(words, input=b"content", capture_output=True, check=True, timeout=90)
        (span,) = collector.wait_for(1)
        assert (span.name, span.trace, span.parent) == ("http.Blob/PUT", TRACE, CALLER)
        assert not [name for name in span.attributes if name.startswith("rpc.")], span
        assert PHASES <= span.attributes.keys()


def test_an_answer_that_is_not_taken_is_a_wait_of_the_span(binary, tmp_path, collector):
    with traced(binary, tmp_path, collector.url) as (server, channel):
        kv = kv_pb2_grpc.KeyValueStub(channel)
        kv.Put(pb.PutRequest(key=b"large", value=b"v" * 100_000), timeout=30)
        settings = raw.settings_payload(initial_window_size=1_000)
        request = pb.GetRequest(key=b"large").SerializeToString()
        with raw.Connection(server.address, settings) as connection:
            connection.unary("/pelton.v1.KeyValue/Get", request, *sampled())
            time.sleep(0.3)
            assert collector.spans == []
        (span,) = collector.wait_for(1)
        waited = {phase: span.attributes[phase] for phase in PHASES}
        assert waited.pop("pelton.send_us") >= 200_000, span
        assert max(waited.values()) < 200_000, span


def test_exports_share_a_connection(binary, tmp_path):
    peers = []
    with (
        Collector(lambda _, context: peers.append(context.peer())) as collector,
        traced(binary, tmp_path, collector.url) as (_, channel),
    ):
        kv = kv_pb2_grpc.KeyValueStub(channel)
        for count in range(1, 4):
            kv.Get(pb.GetRequest(key=b"k"), metadata=sampled(), timeout=30)
            collector.wait_for(count)
    assert len(peers) == 3 and len(set(peers)) == 1, peers


def test_what_is_queued_at_the_end_is_exported(binary, tmp_path, collector):
    with traced(binary, tmp_path, collector.url) as (server, channel):
        kv = kv_pb2_grpc.KeyValueStub(channel)
        watch = kv.Watch(pb.WatchRequest(), metadata=sampled(), timeout=30)
        next(watch)
        for _ in range(20):
            kv.Get(pb.GetRequest(key=b"k"), metadata=sampled(), timeout=30)
        assert server.stop() == 0, server.log()
        assert "spans were dropped" not in server.log()
    collector.wait_for(21, seconds=1)
    (watched,) = collector.found(name="pelton.v1.KeyValue/Watch")
    assert watched.attributes["rpc.response.status_code"] == "UNAVAILABLE"
    assert watched.message.status.code == ERROR


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed")
def test_spans_go_over_tls_to_a_collector_that_is_believed(binary, tmp_path):
    authority = Authority(tmp_path / "authority")
    certificate, key = authority.sign("collector")
    pair = (key.read_bytes(), certificate.read_bytes())
    credentials = grpc.ssl_server_credentials([pair])
    with Collector(credentials=credentials) as collector:
        ca = ["--otlp-ca", str(authority.ca)]
        with traced(binary, tmp_path, collector.url, *ca) as (server, channel):
            kv = kv_pb2_grpc.KeyValueStub(channel)
            kv.Get(pb.GetRequest(key=b"k"), metadata=sampled(), timeout=30)
            collector.wait_for(1)
            assert server.stop() == 0
        with traced(binary, tmp_path, collector.url) as (server, channel):
            kv = kv_pb2_grpc.KeyValueStub(channel)
            kv.Get(pb.GetRequest(key=b"k"), metadata=sampled(), timeout=30)
            server.wait_for_log("cannot be exported", "certificate")
        assert len(collector.spans) == 1


def test_without_an_endpoint_there_are_no_spans_and_no_metrics_of_them(binary, tmp_path):
    with Server(binary, "--metrics-listen", "0") as server, open_channel(server.address) as channel:
        kv_pb2_grpc.KeyValueStub(channel).Get(
            pb.GetRequest(key=b"k"), metadata=sampled(), timeout=30
        )
        assert "pelton_spans" not in fetch(server)[1]
