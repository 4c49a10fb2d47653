"""`pelton lab tap`: other people's clients and servers, with a cause planted in one of them."""

import concurrent.futures
import contextlib
import json
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree

import grpc
import pytest
from certificates import Authority
from environment import clean_environment
from grpc.health.v1 import health_pb2, health_pb2_grpc
from pelton.v1 import echo_pb2, echo_pb2_grpc, kv_pb2, kv_pb2_grpc
from raw import WINDOW_UPDATE, Connection, frame
from server import Server, wait_until

LISTENING = re.compile(r"listening on (\S+), forwarding to (\S+)")


class Tap:
    """A tap that runs until it is told to stop."""

    def __init__(self, binary, target, *words):
        command = [binary, "lab", "tap", "--target", target, "--output", "json", *map(str, words)]
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=clean_environment(),
        )
        line = self.process.stderr.readline()
        found = LISTENING.search(line)
        assert found, line + self.process.stderr.read()
        self.address = found.group(1)
        self.code = None

    def end(self, how=signal.SIGINT):
        self.process.send_signal(how)
        out, self.errors = self.process.communicate(timeout=60)
        self.code = self.process.returncode
        return json.loads(out)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()


def tapped(binary, target, *words, codes=(0,)):
    """Runs a tap that starts its client itself."""
    command = [binary, "lab", "tap", "--target", target, *map(str, words)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=100, env=clean_environment()
    )
    assert done.returncode in codes, (done.returncode, done.stdout, done.stderr)
    return done


@contextlib.contextmanager
def open_channel(address, *options):
    options = [("grpc.use_local_subchannel_pool", 1), *options]
    with grpc.insecure_channel(address, options=options) as channel:
        yield channel


def shares(report):
    return {part["use"]: part["share"] for part in report["time"]}


def gaps(report, use):
    [found] = [part["gaps"] for part in report["time"] if part["use"] == use]
    return found


def server_time(report):
    [found] = [part["times"] for part in report["phases"] if part["phase"] == "server"]
    return found


def ends(report):
    return {part["end"]: part["calls"] for part in report["ends"]}


class SlowEcho(echo_pb2_grpc.EchoServicer):
    """grpcio's server, with a cause planted in it."""

    def __init__(self, pause_s, lock=None):
        self.pause_s, self.lock = pause_s, lock or contextlib.nullcontext()

    def Unary(self, request, context):
        with self.lock:
            time.sleep(self.pause_s)
        return echo_pb2.EchoResponse(payload=request.payload)


@contextlib.contextmanager
def foreign_server(servicer, *options):
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(16), options=options)
    echo_pb2_grpc.add_EchoServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(0).wait()


def call_many(address, threads, calls, *options):
    """Calls in a closed loop, each thread one at a time, on one connection."""
    with open_channel(address, *options) as channel:
        call_all(channel, threads, calls)


def call_all(channel, threads, calls):
    stub = echo_pb2_grpc.EchoStub(channel)

    def work(_):
        for _ in range(calls):
            stub.Unary(echo_pb2.EchoRequest(payload=b"hello"), timeout=30)

    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, range(threads)))


# --- what is named


def settled(seen, expected):
    """A report that has this verdict. Where other things run it is `undecided` more often, and made
    again; another verdict is a failure at once."""
    for _ in range(5):
        report = seen()
        if expected == "undecided" or report["verdict"] != "undecided":
            break
    return report


def test_a_client_that_works_between_its_calls_is_named(binary, server):
    with Tap(binary, server.address) as tap:
        with open_channel(tap.address) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            for _ in range(40):
                stub.Check(health_pb2.HealthCheckRequest(), timeout=10)
                time.sleep(0.05)
        report = tap.end()
    assert report["verdict"] == "client", report
    assert report["calls_begun"] == report["calls_ended"] == 40
    assert shares(report)["no_call"] > 0.6
    assert gaps(report, "no_call")["p50_us"] >= 49_000
    assert [method["method"] for method in report["methods"]] == ["/grpc.health.v1.Health/Check"]
    assert ends(report) == {"OK": 40}
    [connection] = report["connections"]
    for side in ("client_tcp", "server_tcp"):
        # At least a segment each way for a call.
        assert connection[side]["segments_out"] >= 40 and connection[side]["segments_in"] >= 40
        assert 0 < connection[side]["round_trip_us"] < 1_000_000
    assert tap.code == 130


@pytest.mark.parametrize("lock", [None, threading.Lock()], ids=["slow", "serial"])
def test_a_server_of_others_that_is_slow_is_named(binary, lock):
    # Far longer than what client, server and tap do for a call, on a busy machine too.
    with foreign_server(SlowEcho(0.05, lock)) as address:
        with Tap(binary, address) as tap:
            call_many(tap.address, 8, 12)
            report = tap.end(signal.SIGTERM)
    assert report["verdict"] == "server", report
    assert ends(report) == {"OK": 96}
    # A lock lets one call through at a time: with twice as many open each takes twice as long.
    assert server_time(report)["p50_us"] >= (200_000 if lock else 50_000)
    assert tap.code == 143


@pytest.mark.parametrize(
    "lock, alone, expected",
    [(None, 64, "connection"), (threading.Lock(), 64, "server"), (None, 0, "undecided")],
    ids=["limit", "serial", "never fewer"],
)
def test_a_limit_on_streams_is_told_from_a_server_that_has_no_more_to_give(
    binary, lock, alone, expected
):
    def seen():
        with Tap(binary, address, "--stream-limit", 2) as tap:
            with open_channel(tap.address) as channel:
                call_all(channel, 1, alone)
                call_all(channel, 12, 20)
            return tap.end()

    with foreign_server(SlowEcho(0.02, lock)) as address:
        report = settled(seen, expected)
    [connection] = [one for one in report["connections"] if one["calls"]]
    assert (connection["limit"], connection["most_open"]) == (2, 2)
    assert connection["at_limit_share"] > 0.5
    assert report["verdict"] == expected, report
    assert shares(report)["server_at_limit"] > 0.5


def test_a_server_that_hangs_is_named_though_no_call_ended(binary):
    with foreign_server(SlowEcho(4)) as address:
        with Tap(binary, address) as tap:
            with open_channel(tap.address) as channel:
                stub = echo_pb2_grpc.EchoStub(channel)
                waiting = stub.Unary.future(echo_pb2.EchoRequest(payload=b"x"), timeout=30)
                time.sleep(1)
                assert not waiting.done()
                report = tap.end()
    assert (report["verdict"], report["calls_begun"], report["calls_ended"]) == ("server", 1, 0)


def test_a_larger_table_of_header_fields_is_followed(binary):
    sizes = [
        ("grpc.http2.hpack_table_size.encoder", 65_536),
        ("grpc.http2.hpack_table_size.decoder", 65_536),
    ]
    with foreign_server(SlowEcho(0), *sizes) as address:
        with Tap(binary, address) as tap:
            with open_channel(tap.address, *sizes) as channel:
                stub = echo_pb2_grpc.EchoStub(channel)
                for number in range(300):
                    # More than the usual table holds.
                    metadata = [(f"header-{number % 150}", "v" * 60)]
                    stub.Unary(echo_pb2.EchoRequest(payload=b"x"), metadata=metadata, timeout=20)
            report = tap.end()
    assert ends(report) == {"OK": 300}, report
    assert [one["unreadable"] for one in report["connections"]] == [None]


def test_a_long_way_is_the_networks_fault(binary, server):
    with Tap(binary, server.address, "--delay", "50ms") as tap:
        call_many(tap.address, 1, 20)
        report = tap.end()
    assert report["verdict"] == "network", report
    assert server_time(report)["p50_us"] >= 49_900
    assert any("--delay" in text for text in report["evidence_for"])


def test_a_stream_in_both_directions_on_one_machine_has_no_long_way(binary, server):
    with Tap(binary, server.address) as tap:
        with open_channel(tap.address) as channel:
            requests = (echo_pb2.EchoRequest(payload=b"x") for _ in range(100))
            for _ in echo_pb2_grpc.EchoStub(channel).Stream(requests, timeout=20):
                pass
        report = tap.end()
    assert report["verdict"] != "network", report


def test_a_client_that_opens_its_window_late_is_told_from_a_slow_server(binary, server):
    with open_channel(server.address) as channel:
        put = kv_pb2.PutRequest(key=b"large", value=bytes(200_000))
        kv_pb2_grpc.KeyValueStub(channel).Put(put)
    get = kv_pb2.GetRequest(key=b"large").SerializeToString()
    with Tap(binary, server.address) as tap:
        with Connection(tap.address) as connection:
            for _ in range(3):
                stream = connection.unary("/pelton.v1.KeyValue/Get", get)
                while not connection.answers[stream].over:
                    # It looks again only when nothing has come for a while.
                    if not connection.read(0.02):
                        opened = window_update(stream, 40_000) + window_update(0, 40_000)
                        connection.send(opened)
        report = tap.end()
    assert report["verdict"] == "connection", report
    assert shares(report)["client_window"] > 0.8
    assert "client's flow-control window" in report["sentence"]


def window_update(stream, count):
    return frame(WINDOW_UPDATE, stream=stream, payload=count.to_bytes(4, "big"))


def test_nothing_is_named_where_nothing_was_seen(binary, server):
    with Tap(binary, server.address) as tap:
        report = tap.end()
    assert report["verdict"] == "nothing seen"
    assert tap.code == 130
    done = tapped(binary, server.address, "--duration", "300ms", "--", "sleep", "60", codes=(1,))
    assert done.stdout.startswith("nothing seen: no call came through the tap")
    assert "the command sleep was ended" in done.stderr


# --- the client as a command


def test_the_users_own_client_is_started_with_the_taps_address(binary, server, tmp_path):
    page, picture = tmp_path / "calls.html", tmp_path / "calls.svg"
    words = ["--", binary, "load", "--address", "{target}", "--keys", "100"]
    words += ["--connections", "2", "--in-flight", "4", "--calls", "2000", "--warm-up", "0s"]
    done = tapped(binary, server.address, "--timeline", page, *words)
    assert "calls: 2000 succeeded" in done.stderr
    assert re.search(r"^/pelton.v1.KeyValue/Get: 2000 calls, 0 failed", done.stdout, re.M)
    assert re.search(r"^the tap itself: .* of CPU a call", done.stdout, re.M)
    tapped(binary, server.address, "--timeline", picture, *words)
    drawn = xml.etree.ElementTree.parse(picture).getroot()
    bars = [one for one in drawn.iter() if one.tag.endswith("rect")]
    assert len(bars) > 500
    assert all(float(bar.get("width")) > 0 for bar in bars)
    text = page.read_text()
    assert done.stdout.splitlines()[0] in text
    assert "<svg" in text and "<script" not in text
    # It asks nobody for anything.
    assert not re.search(r"(src|href)=|@import|url\(", text)


def test_a_client_that_fails_is_told_and_one_that_does_not_exist_too(binary, server):
    words = ["--", "sh", "-c", f"{binary} echo --address {{target}} x && exit 7"]
    done = tapped(binary, server.address, *words, codes=(1,))
    assert "the command sh ended with exit status: 7" in done.stderr
    assert "Echo/Unary: 1 calls" in done.stdout
    # What it has started ends with it, and it can say its last words.
    words = ["--duration", "500ms", "--", "sh", "-c", "trap 'echo bye; exit' TERM; sleep 77 & wait"]
    done = tapped(binary, server.address, *words, codes=(1,))
    assert "bye" in done.stderr and "the command sh was ended" in done.stderr
    wait_until(lambda: subprocess.run(["pgrep", "-f", "^sleep 77$"]).returncode == 1, 20)
    done = tapped(binary, server.address, "--", "sleep 1", codes=(3,))
    assert "words of their own" in done.stderr
    done = tapped(binary, server.address, "--", "no-such-command", codes=(3,))
    assert "the command no-such-command cannot be started" in done.stderr
    assert done.stdout == ""


def test_calls_of_baidu_std_are_followed(binary, server):
    words = ["--output", "json", "--", binary, "load", "--address", "{target}", "--protocol"]
    words += ["baidu_std", "--echo", "32", "--calls", "500", "--connections", "2", "--warm-up"]
    words += ["0s", "--in-flight", "8"]
    report = json.loads(tapped(binary, server.address, *words).stdout)
    assert [m["method"] for m in report["methods"]] == ["example.EchoService/Echo"]
    assert report["methods"][0]["calls"] >= 500
    assert all(name == "error 0" for name in ends(report))


# --- TLS, and what cannot be


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed")
def test_tls_ends_in_the_tap_and_begins_again(binary, tmp_path):
    authority = Authority(tmp_path)
    server_identity, tap_identity = authority.sign("server"), authority.sign("tap")
    flags = ["--tls-cert", server_identity[0], "--tls-key", server_identity[1]]
    with Server(binary, *map(str, flags), listen=("127.0.0.1:0",)) as server:
        words = ["--tls-ca", authority.ca, "--listen-tls-cert", tap_identity[0]]
        with Tap(binary, server.address, *words, "--listen-tls-key", tap_identity[1]) as tap:
            with open(authority.ca, "rb") as file:
                credentials = grpc.ssl_channel_credentials(file.read())
            with grpc.secure_channel(tap.address, credentials) as channel:
                stub = kv_pb2_grpc.KeyValueStub(channel)
                value = bytes(range(256)) * 4_000
                for number in range(5):
                    key = b"%d" % number
                    stub.Put(kv_pb2.PutRequest(key=key, value=value), timeout=20)
                    assert stub.Get(kv_pb2.GetRequest(key=key), timeout=20).value == value
            report = tap.end()
    assert ends(report) == {"OK": 10}, report
    assert report["failed_connections"] == []
    # Without the flags bytes go through all the same, and nothing is read of them.
    with Server(binary, *map(str, flags), listen=("127.0.0.1:0",)) as server:
        with Tap(binary, server.address) as tap:
            with grpc.secure_channel(tap.address, credentials) as channel:
                health_pb2_grpc.HealthStub(channel).Check(
                    health_pb2.HealthCheckRequest(), timeout=20
                )
            report = tap.end()
    assert report["verdict"] == "nothing seen"
    assert "it speaks TLS; --listen-tls-cert" in report["sentence"]
    # A server that the tap may not believe.
    with Server(binary, *map(str, flags), listen=("127.0.0.1:0",)) as server:
        words = ["--tls", "--", binary, "echo", "--address", "{target}", "x"]
        done = tapped(binary, server.address, *words, codes=(1,))
    assert done.stdout.startswith("nothing seen: no call succeeded: ")
    assert "certificate" in done.stdout.splitlines()[0], done.stdout


@pytest.mark.parametrize(
    "words", [("--bandwidth", "200KiB"), ("--packets-per-second", "200")], ids=["bytes", "packets"]
)
def test_a_thin_way_is_the_networks_fault(binary, server, words):
    with Tap(binary, server.address, *words) as tap:
        with open_channel(tap.address) as channel:
            stub = echo_pb2_grpc.EchoStub(channel)
            for _ in range(20):
                stub.Unary(echo_pb2.EchoRequest(payload=bytes(8_000)), timeout=30)
        report = tap.end()
    assert report["verdict"] == "network", report
    assert shares(report)["shaped"] > 0.5


@pytest.mark.parametrize(
    "words, code, expected",
    [
        (["--target", "127.0.0.1:1"], 3, "cannot connect to 127.0.0.1:1"),
        (["--target", "127.0.0.1"], 2, "such as 127.0.0.1:1978"),
        ([], 2, "--target <ADDRESS>"),
        (["--target", "127.0.0.1:1", "--timeline", "a.png"], 2, "end in .html (a page) or .svg"),
        (["--target", "127.0.0.1:1", "--bandwidth", "0"], 2, "nothing would ever arrive"),
        (["--target", "127.0.0.1:1", "--listen-tls-cert", "x"], 2, "--listen-tls-key"),
    ],
)
def test_what_cannot_be_is_said_in_one_line_before_anything(binary, words, code, expected):
    done = subprocess.run(
        [binary, "lab", "tap", *words],
        capture_output=True,
        text=True,
        timeout=60,
        env=clean_environment(),
    )
    assert done.returncode == code, done.stderr
    assert expected in done.stderr
    assert done.stdout == ""


def test_a_server_that_dies_leaves_a_report_of_what_was_seen(binary):
    with Server(binary) as server:
        with Tap(binary, server.address) as tap:
            call_many(tap.address, 1, 5)
            with open_channel(tap.address) as channel:
                stub = echo_pb2_grpc.EchoStub(channel)
                stub.Unary(echo_pb2.EchoRequest(payload=b"x"), timeout=10)
                server.process.kill()
                server.process.wait()
                with pytest.raises(grpc.RpcError):
                    stub.Unary(echo_pb2.EchoRequest(payload=b"x"), timeout=2)
            report = tap.end()
    assert ends(report)["OK"] == 6, report
    assert report["calls_begun"] == report["calls_ended"]


def test_a_page_in_a_place_that_cannot_be_written_is_told_before_anything(binary, server):
    words = ["--timeline", "/proc/no/calls.svg", "--", sys.executable, "-c", "print('began')"]
    done = tapped(binary, server.address, *words, codes=(3,))
    assert done.stdout == "" and "began" not in done.stderr
    assert "--timeline: cannot write /proc/no/calls.svg" in done.stderr
