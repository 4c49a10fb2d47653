"""Where spans go, and what is said of the process that they come from: by flags, and by the
variables that programs with OpenTelemetry have. What fails is said with what to do about it."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import threading

import grpc
import pytest
from certificates import Authority
from collector import CLIENT, SERVER, Collector, sampled
from pelton.v1 import echo_pb2, echo_pb2_grpc, kv_pb2_grpc
from pelton.v1 import kv_pb2 as pb
from server import Server, expect_status, open_channel, wait_until

SECRET = "s3cret-of-a-customer"
OWN = {"PELTON_OTLP_ENDPOINT": "http://127.0.0.1:4317"}


@contextlib.contextmanager
def serving(binary, *arguments, **variables):
    """A server with these variables, and a stub. It keeps nothing."""
    volatile = {"PELTON_DURABILITY": "volatile"}
    with (
        Server(binary, *arguments, variables=volatile | variables) as server,
        open_channel(server.address) as channel,
    ):
        yield server, kv_pb2_grpc.KeyValueStub(channel)


def get(kv, metadata=None):
    return kv.Get(pb.GetRequest(key=b"k"), metadata=metadata or sampled(), timeout=30)


@pytest.fixture
def collector():
    with Collector() as running:
        yield running


def test_the_variables_of_opentelemetry_say_where_spans_go_and_what_goes_with_them(
    binary, collector
):
    variables = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1",
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": collector.url,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
        "OTEL_EXPORTER_OTLP_HEADERS": f"x-api-key={SECRET}%2C1,x-other=2",
        "OTEL_SERVICE_NAME": "shop-db",
        "OTEL_RESOURCE_ATTRIBUTES": "service.name=other,deployment.environment.name=a%2Cb",
        "OTEL_TRACES_SAMPLER": "parentbased_always_on",
    }
    with serving(binary, **variables) as (server, kv):
        server.wait_for_log(
            f"spans of calls are exported to {collector.url}, with headers of its own, as "
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT says, under the name shop-db: of calls whose "
            "callers trace them, and of this share of the others: 1"
        )
        kv.Get(pb.GetRequest(key=b"k"), timeout=30)
        (span,) = collector.wait_for(1)
        assert span.parent == b""
        resource = span.resource
        assert resource["service.name"] == "shop-db"
        assert resource["deployment.environment.name"] == "a,b"
        assert resource["process.pid"] == server.process.pid
        assert resource["host.name"] == socket.gethostname()
        assert len(resource["service.instance.id"]) == 36
        assert "service.version" in resource
        assert collector.metadata[0]["x-api-key"] == f"{SECRET},1"
        assert collector.metadata[0]["x-other"] == "2"
        assert SECRET not in server.log()


def test_a_flag_is_stronger_than_a_variable_of_opentelemetry(binary, tmp_path, collector):
    headers = tmp_path / "headers"
    headers.write_text(f"# of the shop\nx-api-key={SECRET}\n")
    headers.chmod(0o600)
    flags = ["--otlp-endpoint", collector.url, "--otlp-service-name", "ours", "--otlp-header"]
    flags += ["x-team=shop", "--otlp-header-file", str(headers)]
    flags += ["--otlp-resource-attribute", "host.name=a-host"]
    flags += ["--otlp-resource-attribute", "a=ours", "--log-level", "debug"]
    variables = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1",
        "OTEL_EXPORTER_OTLP_HEADERS": "x-their=1",
        "OTEL_SERVICE_NAME": "theirs",
        "OTEL_RESOURCE_ATTRIBUTES": "a=theirs,b=theirs",
        "OTEL_SDK_DISABLED": "true",
    }
    with serving(binary, *flags, **variables) as (server, kv):
        server.wait_for_log("OTEL_SDK_DISABLED is true, and --otlp-endpoint names a collector")
        server.wait_for_log("as --otlp-endpoint says, under the name ours")
        get(kv)
        (span,) = collector.wait_for(1)
        assert (span.resource["service.name"], span.resource["host.name"]) == ("ours", "a-host")
        assert (span.resource["a"], span.resource["b"]) == ("ours", "theirs")
        metadata = collector.metadata[0]
        assert (metadata["x-api-key"], metadata["x-team"]) == (SECRET, "shop")
        assert "x-their" not in metadata
        assert SECRET not in server.log()


@pytest.mark.parametrize(
    "name, value, said",
    [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf", "spans are exported by grpc alone"),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "localhost:4317", "write http://"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/nowhere/at/all", "cannot read /nowhere/at/all"),
        ("OTEL_SDK_DISABLED", "true", None),
        ("OTEL_TRACES_EXPORTER", "none", None),
    ],
)
def test_what_cannot_be_used_is_said_once_and_nothing_is_exported(binary, name, value, said):
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": "https://127.0.0.1:1", name: value}
    with serving(binary, **variables) as (server, kv):
        get(kv)
        assert server.stop() == 0, server.log()
        assert "spans of calls are exported" not in server.log()
        lines = [line for line in server.log().splitlines() if "OTEL_" in line]
        assert len(lines) == (1 if said else 0), server.log()
        assert all(name in line and said in line and "WARN" in line for line in lines), lines


def test_no_secret_of_a_header_is_printed(binary, tmp_path):
    def run(*words, **variables):
        environment = {"PATH": os.environ["PATH"], **variables}
        return subprocess.run(
            [binary, *words], env=environment, capture_output=True, text=True, timeout=60
        )

    config = tmp_path / "pelton.toml"
    endpoint = "otlp-endpoint = 'http://127.0.0.1:4317'\n"
    for header in (f"'{SECRET}'", f"'x y={SECRET}'", f"'x={SECRET}", f"['x={SECRET}', 7]"):
        config.write_text(f"{endpoint}otlp-header = {header}\n")
        for words in (["config", "check"], ["serve"]):
            done = run(*words, "--config", str(config))
            assert done.returncode != 0, done
            assert "header" in done.stderr or "line 2" in done.stderr, done
            assert SECRET not in done.stdout + done.stderr, done
    config.write_text(f"{endpoint}otlp-header = 'x-key={SECRET}'\n")
    printed = run("config", "print", "--config", str(config))
    assert '# otlp-header = ["x-key=…"]' in printed.stdout, printed
    assert SECRET not in printed.stdout + printed.stderr
    missing = run("config", "check", PELTON_OTLP_HEADER_FILE="/nowhere/at/all", **OWN)
    assert missing.returncode not in (0, 2), missing
    assert "--otlp-header-file: cannot read /nowhere/at/all" in missing.stderr, missing
    warned = run("config", "check", OTEL_RESOURCE_ATTRIBUTES="nonsense", **OWN)
    assert warned.returncode == 0, warned
    assert "OTEL_RESOURCE_ATTRIBUTES is passed over" in warned.stderr, warned
    for words in (["serve", "--help"], ["serve", "--otlp-header", SECRET]):
        done = run(*words, PELTON_OTLP_HEADER=f"x-key={SECRET}")
        assert SECRET not in done.stdout + done.stderr, done


@pytest.mark.parametrize(
    "flags, said",
    [
        (["--otlp-sample", "0.1"], "otlp-endpoint is not given"),
        (["--otlp-header", "a=b"], "otlp-endpoint is not given"),
        (["--otlp-endpoint", "http://a:1", "--otlp-endpoint", "http://b:1"], "multiple times"),
    ],
)
def test_flags_that_do_not_go_together_are_refused_in_one_line(binary, flags, said):
    done = subprocess.run([binary, "serve", *flags], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2, done
    assert said in done.stderr.splitlines()[0], done


def test_a_name_without_a_collector_is_warned_of(binary):
    with serving(binary, "--otlp-service-name", "shop") as (server, _):
        server.wait_for_log("otlp-service-name and otlp-resource-attribute say")


@contextlib.contextmanager
def saying(reply):
    """A port where each connection gets these bytes once it has said something, and is closed."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(16)

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection:
                        connection.recv(4096)
                        connection.sendall(reply)
                        connection.shutdown(socket.SHUT_WR)
                        while connection.recv(4096):
                            pass

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def failing_line(binary, url, *flags):
    """What the log says of exports to a URL."""
    with serving(binary, "--otlp-endpoint", url, *flags) as (server, kv):
        get(kv)
        server.wait_for_log("spans cannot be exported to")
        (line,) = [line for line in server.log().splitlines() if "cannot be exported" in line]
        return line


def test_what_to_do_about_a_port_that_speaks_something_else(binary):
    http = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"
    with saying(http) as port:
        line = failing_line(binary, f"http://127.0.0.1:{port}")
        assert "OTLP over HTTP" in line and "4317" in line, line
    # A fatal alert of TLS: unexpected_message.
    with saying(b"\x15\x03\x01\x00\x02\x02\x0a") as port:
        line = failing_line(binary, f"http://127.0.0.1:{port}")
        assert "use https:// and not http:// in --otlp-endpoint" in line, line
    with saying(b"") as port:
        line = failing_line(binary, f"http://127.0.0.1:{port}")
        assert "where the collector speaks TLS, use https://" in line, line
    with saying(http) as port:
        line = failing_line(binary, f"https://127.0.0.1:{port}")
        assert "use http:// and not https://" in line, line
    with Collector() as plain:
        line = failing_line(binary, plain.url.replace("http:", "https:"))
        assert "use http:// and not https://" in line, line


def test_what_to_do_about_a_collector_that_is_not_there(binary):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        line = failing_line(binary, f"http://127.0.0.1:{taken.getsockname()[1]}")
        assert "start the collector, or correct host and port in --otlp-endpoint" in line, line
    line = failing_line(binary, "http://nowhere.invalid:4317")
    assert "correct the name of the host in --otlp-endpoint" in line, line


@pytest.mark.parametrize(
    "code, said",
    [
        (grpc.StatusCode.UNAUTHENTICATED, "--otlp-header NAME=VALUE"),
        (grpc.StatusCode.PERMISSION_DENIED, "--otlp-header NAME=VALUE"),
        (grpc.StatusCode.UNIMPLEMENTED, "takes no traces over gRPC"),
    ],
)
def test_what_to_do_about_a_collector_that_refuses(binary, code, said):
    with Collector(lambda _, context: context.abort(code, "no")) as collector:
        line = failing_line(binary, collector.url)
        assert said in line, line


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed")
def test_what_to_do_about_a_certificate_and_about_tls_that_was_left_out(binary, tmp_path):
    authority = Authority(tmp_path / "authority")
    certificate, key = authority.sign("collector")
    pair = (key.read_bytes(), certificate.read_bytes())
    credentials = grpc.ssl_server_credentials([pair])
    with Collector(credentials=credentials) as collector:
        line = failing_line(binary, collector.url)
        assert "in --otlp-ca" in line, line
        line = failing_line(binary, collector.url.replace("https:", "http:"))
        assert "use https://" in line, line
        # By the variable it is believed.
        variables = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_EXPORTER_OTLP_CERTIFICATE": str(authority.ca),
        }
        with serving(binary, **variables) as (_, kv):
            get(kv)
            collector.wait_for(1)


def test_tracestate_is_kept_and_a_malformed_one_is_dropped(binary, collector):
    with serving(binary, "--otlp-endpoint", collector.url) as (_, kv):
        for number, (state, expected) in enumerate(
            [("rojo=00f067aa0ba902b7,congo=t61", None), ("no list", ""), (None, "")], start=1
        ):
            own = [("tracestate", state)] if state else []
            get(kv, sampled() + own)
            span = collector.wait_for(number)[-1]
            assert span.message.trace_state == (state if expected is None else expected)


def test_a_command_passes_tracestate_on_and_takes_no_collector_of_other_programs(binary, collector):
    trace, span = b"\xab" * 16, b"\xcd" * 8
    variables = {
        "PATH": os.environ["PATH"],
        "TRACEPARENT": f"00-{trace.hex()}-{span.hex()}-01",
        "TRACESTATE": "a=1",
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1",
        "OTEL_EXPORTER_OTLP_HEADERS": "x-key=1",
        "OTEL_RESOURCE_ATTRIBUTES": "team=shop",
    }

    def run(server, **more):
        words = [binary, "put", "k", "v", "--address", server.address]
        done = subprocess.run(
            words, env=variables | more, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0 and not done.stderr, done

    with serving(binary, "--otlp-endpoint", collector.url) as (server, _):
        run(server)
        (served,) = collector.wait_for(1)
        assert (served.parent, served.message.trace_state) == (span, "a=1")
        collector.spans.clear()
        run(server, PELTON_OTLP_ENDPOINT=collector.url)
        (client,) = collector.wait_for(1, kind=CLIENT)
        (served,) = collector.wait_for(1, kind=SERVER)
        assert (served.parent, served.message.trace_state) == (client.id, "a=1")
        assert client.message.trace_state == "a=1"
        assert client.resource["team"] == "shop"
        assert any(metadata.get("x-key") == "1" for metadata in collector.metadata)


def test_calls_that_are_refused_have_spans_and_health_checks_begin_no_trace(binary, collector):
    flags = ["--otlp-endpoint", collector.url, "--otlp-sample", "1"]
    listen = ["127.0.0.1:0+anonymous=none"]
    volatile = {"PELTON_DURABILITY": "volatile"}
    with (
        Server(binary, *flags, "--init-admin", listen=listen, variables=volatile) as server,
        open_channel(server.address) as channel,
    ):
        kv = kv_pb2_grpc.KeyValueStub(channel)
        nothing = channel.unary_unary("/a.B/C")
        for _ in range(2):
            expect_status(grpc.StatusCode.UNAUTHENTICATED, lambda: get(kv))
            expect_status(
                grpc.StatusCode.UNIMPLEMENTED,
                lambda: nothing(b"", metadata=sampled(), timeout=30),
            )
        health = channel.unary_unary("/grpc.health.v1.Health/Check")
        health(b"", timeout=30)
        health(b"", metadata=sampled(), timeout=30)
        spans = collector.wait_for(5)
        codes = [span.attributes["rpc.response.status_code"] for span in spans]
        assert sorted(codes) == ["OK"] + ["UNAUTHENTICATED"] * 2 + ["UNIMPLEMENTED"] * 2
        (unknown, _) = [span for span in spans if span.name == "_OTHER"]
        assert unknown.attributes["rpc.method_original"] == "a.B/C"
        assert {span.parent for span in spans} == {b"\xcd" * 8}


@pytest.mark.parametrize("is_exported", [True, False])
def test_a_slow_call_names_its_trace(binary, collector, is_exported):
    flags = ["--slow-call", "50ms", "--log-format", "json"]
    flags += ["--otlp-endpoint", collector.url] if is_exported else []
    with serving(binary, *flags) as (server, _), open_channel(server.address) as channel:
        echo = echo_pb2_grpc.EchoStub(channel)
        for metadata in (sampled(), sampled(flags="00")):
            echo.Unary(echo_pb2.EchoRequest(delay_ms=60), metadata=metadata, timeout=30)
        wait_until(lambda: server.log().count('"slow call"') == 2, message=server.log)
        lines = [json.loads(line) for line in server.log().splitlines() if '"slow call"' in line]
        traced, untraced = lines
        assert "trace_id" not in untraced and "span_id" not in untraced, untraced
        assert traced["trace_id"] == "ab" * 16, traced
        # That of the caller, where the server makes none.
        span = collector.wait_for(1)[0].id.hex() if is_exported else "cd" * 8
        assert traced["span_id"] == span, traced
