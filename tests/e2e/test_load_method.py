"""`pelton load --method` on a server of another make: descriptors, requests and streams."""

import collections
import json
import math
import re

import pytest
from load_target import SERVICE, running
from test_load_framed import run


@pytest.fixture(scope="module")
def module_target(tmp_path_factory):
    with running(tmp_path_factory.mktemp("target")) as target:
        yield target


@pytest.fixture
def target(module_target):
    module_target.requests.clear()
    module_target.calls = 0
    module_target.cancelled = 0
    return module_target


def load(binary, target, method, *words, **more):
    words = ["--method", f"{SERVICE}/{method}", "--connections", "1", *words]
    return run(binary, target.address, *words, **more)


def figures(binary, target, method, *words, **more):
    words = ["--proto", target.proto, "--output", "json", *words]
    return json.loads(load(binary, target, method, *words, **more).stdout)


def usage(binary, target, *words, codes=(2,), method="Ask"):
    done = load(binary, target, method, "--calls", "1", *words, codes=codes)
    assert done.stdout == "" and not target.requests, (done.stdout, target.requests)
    lines = done.stderr.strip().splitlines()
    assert len([line for line in lines if line.startswith("pelton: ")]) == 1, done.stderr
    return done.stderr


# --- descriptors


@pytest.mark.parametrize("form", ["proto", "import path", "descriptor set", "short name"])
def test_what_a_method_takes_comes_from_a_file(binary, target, tmp_path, form):
    words = ["--proto", target.proto]
    method = f"{SERVICE}/Ask"
    if form == "import path":
        alone = tmp_path / "alone.proto"
        alone.write_text(target.proto.read_text())
        words = ["--proto", alone, "--import-path", tmp_path, "--import-path", target.proto.parent]
    elif form == "descriptor set":
        words = ["--descriptor-set", target.descriptor_set]
    elif form == "short name":
        method = "Target/Ask"
    request = '{"name": "n", "inner": {"ids": ["18446744073709551615"]}}'
    words = ["--method", method, "--data", request, "--calls", "20", *words]
    done = run(binary, target.address, *words)
    assert "calls: 20 succeeded, 0 failed" in done.stdout, done.stdout
    assert f"\n{SERVICE}/Ask on " in f"\n{done.stdout}", done.stdout
    assert len(target.requests) == 20
    assert target.requests[0].inner.ids == [2**64 - 1]


def test_descriptors_that_cannot_be_used_are_named_before_any_load(binary, target, tmp_path):
    broken = tmp_path / "broken.proto"
    broken.write_text('syntax = "proto3"; message { }')
    alone = tmp_path / "alone.proto"
    alone.write_text(target.proto.read_text())
    for file, part in ((broken, "broken.proto"), (alone, "parts/inner.proto")):
        said = usage(binary, target, "--data", "{}", "--proto", file, codes=(3,))
        assert "--proto: " in said and "cannot be compiled" in said and part in said, said
    said = usage(binary, target, "--data", "{}", "--proto", tmp_path / "no.proto", codes=(3,))
    assert "no.proto" in said, said
    said = usage(binary, target, "--data", "{}", codes=(3,))
    assert "give --proto FILE or --descriptor-set FILE" in said, said
    said = usage(binary, target, "--data", "{}", "--proto", target.proto, method="Nothing")
    assert "the service has Ask, Watch, Send, Talk" in said, said


def test_flags_that_contradict_each_other_are_usage_errors(binary, target, tmp_path):
    file = tmp_path / "file"
    file.write_text("{}\n")
    proto = ["--proto", target.proto]
    for words, part in (
        (["--data", "{}", *proto, "--descriptor-set", file], "cannot be used with"),
        (["--data", "{}", "--import-path", tmp_path], "--proto"),
        (["--data-file", file, *proto], "required"),
        (["--data-file", file, "--messages", "2"], "required"),
        (["--data", "{}", "--request-file", file, *proto], "cannot be used with"),
        (["--data", "{}", *proto, "--request-order", "random"], "cannot be used with"),
        (["--data", "{}", *proto, "--messages", "2"], "Target/Ask is unary"),
        (["--data", "{}", *proto, "--messages-in-flight", "2"], "both sides stream"),
        (["--data", "{}", *proto, "--rate", "1..2"], "--calls 1 has none"),
        (["--data", "{}", *proto, "--require", "p99"], "is no requirement"),
        (["--data", "{}", *proto, "--require", "rate<5"], "the rate takes > and >="),
        (["--data", "{}", *proto, "--messages", "0"], "--messages"),
    ):
        said = load(binary, target, "Ask", "--calls", "1", *words, codes=(2,))
        assert said.stdout == "" and part in said.stderr, (words, said.stderr)
    words = ["--protocol", "baidu_std", "--data", "{}", *proto]
    assert "only with --protocol grpc" in usage(binary, target, *words, method="Talk")
    assert not target.requests


# --- requests


def test_a_request_is_filled_in_anew_for_each_call(binary, target):
    request = """{"name": "user-{{counter}}", "number": {{random -3 3}},
                  "raw": "{{utf8}}k{{random_text 5}}", "inner": {"ids": [7, {{counter}}]}}"""
    words = ["--data", request, "--calls", "300", "--threads", "3", "--connections", "3"]
    words = ["--proto", target.proto, "--output", "json", *words]
    method = ["--method", f"{SERVICE}/Ask"]
    found = json.loads(run(binary, target.address, *method, *words).stdout)
    assert (found["succeeded"], found["failures"]) == (300, 0), found
    names = {request.name for request in target.requests}
    assert len(names) == 300, "no two requests have the same number"
    for sent in target.requests:
        number = int(re.fullmatch(r"user-(\d+)", sent.name)[1])
        assert list(sent.inner.ids) == [7, number]
        assert re.fullmatch(rb"k[A-Za-z0-9]{5}", sent.raw), sent.raw
    assert {sent.number for sent in target.requests} == set(range(-3, 4))
    assert len({sent.raw for sent in target.requests}) > 290
    # The same seed sends the same.
    first = sorted(sent.raw for sent in target.requests)
    target.requests.clear()
    run(binary, target.address, *method, *words)
    assert sorted(sent.raw for sent in target.requests) == first


def test_a_file_has_many_requests(binary, target, tmp_path):
    file = tmp_path / "requests"
    lines = ['\ufeff{"name": "a"}', "", '{"name": "b{{counter}}"}', '  {"name": "c"}  ']
    file.write_text("\n".join(lines), encoding="utf-8")
    words = ["--request-file", file, "--in-flight", "1", "--calls"]
    found = figures(binary, target, "Ask", *words, "7")
    assert found["what"] == f"{SERVICE}/Ask, 3 requests"
    names = [sent.name for sent in target.requests]
    assert names == ["a", "b1", "c", "a", "b4", "c", "a"]
    target.requests.clear()
    figures(binary, target, "Ask", *words, "300", "--request-order", "random")
    counts = collections.Counter(sent.name[0] for sent in target.requests)
    assert set(counts) == set("abc") and min(counts.values()) > 50, counts


def test_requests_that_do_not_fit_are_named_before_any_load(binary, target, tmp_path):
    proto = ["--proto", target.proto]
    file = tmp_path / "requests"
    for text, part in (
        ('{"name": "a"}\n{"nome": "b"}\n', "--request-file, line 2: the request is no load.target"),
        ('{"name": "a"}\n\n{"number": {{random 0 2147483648}}}', "line 3: "),
        ("\n \n", "has no request; write the JSON of one on each line"),
        ("hello", "line 1: "),
    ):
        file.write_text(text)
        said = usage(binary, target, *proto, "--request-file", file)
        assert part in said, said
    for data, part in (
        ('{"number": {{uuid}}}', "number is int32, which {{uuid}} does not fit"),
        ('{"name": "{{count}}"}', "`{{count}}` is nothing that can be filled in"),
        ('{"raw": "k{{counter}}"}', "begin it with {{utf8}}"),
    ):
        said = usage(binary, target, *proto, "--data", data)
        assert part in said, said
    said = usage(binary, target, *proto, "--request-file", tmp_path / "none", codes=(3,))
    assert "--request-file" in said and "none" in said, said


# --- streams


def test_responses_of_a_server_stream_are_measured_by_first_and_gap(binary, target):
    words = ["--data", '{"name": "x", "number": 5}', "--calls", "40", "--in-flight", "2"]
    found = figures(binary, target, "Watch", *words)
    assert (found["succeeded"], found["failures"]) == (40, 0), found
    assert (found["messages_sent"], found["messages_received"]) == (40, 200), found
    assert 0 < found["first_message_p50_us"] <= found["max_us"], found
    assert found["between_messages_max_us"] is not None and found["response_p50_us"] is None
    assert found["what"] == f"{SERVICE}/Watch, responses stream"
    done = load(binary, target, "Watch", "--proto", target.proto, *words)
    assert re.search(r"\nmessages: 40 sent, \d+/s; 200 received, \d+/s\n", done.stdout), done.stdout
    assert "\nfirst message " in done.stdout and "\nbetween " in done.stdout


def test_a_stream_without_end_is_cancelled_after_so_many_responses(binary, target):
    words = ["--data", '{"number": -1}', "--calls", "10", "--messages", "3", "--in-flight", "2"]
    found = figures(binary, target, "Watch", *words)
    assert (found["succeeded"], found["failures"], found["unfinished"]) == (10, 0, 0), found
    assert found["messages_received"] == 30, found
    assert target.calls == 10


@pytest.mark.parametrize("mode", ["multiplexed", "exclusive", "short"])
def test_requests_of_a_client_stream_are_sent_to_the_last(binary, target, mode):
    words = ["--data", '{"name": "n{{counter}}"}', "--calls", "6", "--messages", "50"]
    found = figures(binary, target, "Send", *words, "--mode", mode)
    assert (found["succeeded"], found["failures"]) == (6, 0), found
    assert (found["messages_sent"], found["messages_received"]) == (300, 6), found
    assert sorted(int(sent.name[1:]) for sent in target.requests) == list(range(300))
    assert target.calls == 6


def test_large_requests_of_a_client_stream_wait_for_room(binary, target):
    words = ["--data", '{"raw": "{{random_bytes 100000}}"}', "--calls", "2", "--messages", "60"]
    found = figures(binary, target, "Send", *words)
    assert (found["succeeded"], found["messages_sent"]) == (2, 120), found
    assert all(len(sent.raw) == 100_000 for sent in target.requests)


@pytest.mark.parametrize("in_flight", [1, 4])
def test_each_request_of_both_sides_has_its_response(binary, target, in_flight):
    words = ["--data", '{"name": "x"}', "--calls", "20", "--messages", "30"]
    found = figures(binary, target, "Talk", *words, "--messages-in-flight", in_flight)
    assert (found["succeeded"], found["failures"]) == (20, 0), found
    assert (found["messages_sent"], found["messages_received"]) == (600, 600), found
    assert 0 < found["response_p50_us"] <= found["response_max_us"] <= found["max_us"], found
    assert found["first_message_p50_us"] is None
    assert (target.calls, len(target.requests)) == (20, 600)
    text = f"{SERVICE}/Talk, both stream, 30 in each call, {in_flight} at a time"
    assert found["what"] == text


def test_a_stream_that_fails_is_counted_by_its_status(binary, target, tmp_path):
    file = tmp_path / "requests"
    file.write_text('{"name": "ok"}\n{"name": "ok"}\n{"name": "fail"}\n')
    words = ["--request-file", file, "--messages", "3", "--in-flight", "1", "--calls", "4"]
    done = load(binary, target, "Talk", "--proto", target.proto, *words, codes=(3,))
    assert "calls: 0 succeeded, 4 failed" in done.stdout, done.stdout
    assert "failed: 4 × UNAVAILABLE" in done.stdout and "as it was asked to" in done.stdout


def test_streams_go_on_a_pelton_server_by_reflection(binary, server):
    words = ["--method", "pelton.v1.Echo/Stream", "--data", '{"payload": "AAE="}']
    words += ["--calls", "100", "--messages", "20", "--messages-in-flight", "5"]
    found = json.loads(run(binary, server.address, "--output", "json", *words).stdout)
    assert (found["succeeded"], found["failures"]) == (100, 0), found
    assert (found["messages_sent"], found["messages_received"]) == (2000, 2000), found


# --- rates, requirements, histograms


def test_steps_of_the_rate_are_reported_by_themselves(binary, server):
    words = ["--keys", "100", "--rate", "200,1000", "--arrivals", "fixed", "--duration", "2s"]
    found = json.loads(run(binary, server.address, "--output", "json", *words).stdout)
    assert (found["rate"], found["rate_profile"], found["due"]) == (600, "200,1000", 1200), found
    first, second = found["rate_parts"]
    assert (first["from_s"], first["rate"]) == (0, 200), first
    assert (second["from_s"], second["rate"]) == (1, 1000), second
    assert first["p50_us"] > 0 and second["uncorrected_p99_us"] > 0, found["rate_parts"]
    text = run(binary, server.address, *words).stdout
    assert "open loop, 200,1000 calls/s at equal distances" in text, text
    assert re.search(r"\nfrom \(s\) .*uncorr. p99", text.replace("\n ", "\n")), text
    assert re.search(r"\n +1\.00 +1000 ", text), text


def test_a_ramp_of_the_rate_has_as_many_calls_as_its_mean(binary, server):
    words = ["--keys", "100", "--rate", "0..1000", "--arrivals", "fixed", "--duration", "2s"]
    found = json.loads(run(binary, server.address, "--output", "json", *words).stdout)
    assert found["due"] in (999, 1000, 1001), found
    assert [part["rate"] for part in found["rate_parts"]][::7] == [62.5, 937.5], found


def test_a_requirement_decides_the_exit_code(binary, target, tmp_path):
    file = tmp_path / "requests"
    file.write_text('{"name": "ok"}\n' * 19 + '{"name": "fail"}\n')
    words = ["--proto", target.proto, "--request-file", file, "--in-flight", "1", "--calls", "40"]
    done = load(binary, target, "Ask", *words, "--require", "p99<1h", codes=(2,))
    assert "its bound is no time; write 300us, 2ms or 1s" in done.stderr, done.stderr
    done = load(binary, target, "Ask", *words, "--require", "p99 < 60s, errors<1%", codes=(1,))
    lines = done.stdout.splitlines()
    assert re.fullmatch(r"required: p99<60s: met, [\d.]+ µs", lines[-2]), done.stdout
    assert lines[-1] == "required: errors<1%: MISSED, 5.000 %", done.stdout
    more = ["--require", "errors<=2", "--require", "rate>0.001"]
    found = figures(binary, target, "Ask", *words[2:], *more)
    assert found["requirements_met"] is True, found
    assert found["requirements"].startswith("errors<=2: met, 2; rate>0.001: met, "), found
    if not found["void"]:
        # Failed calls within what may fail are no miss.
        load(binary, target, "Ask", *words, "--require", "errors<10%", codes=(0,))
    assert figures(binary, target, "Ask", *words[2:])["requirements_met"] is None


def test_latencies_are_saved_and_added_up(binary, server, tmp_path):
    files = [tmp_path / name for name in ("one", "two")]
    for file in files:
        words = ["--keys", "100", "--rate", "2000", "--calls", "500", "--histogram", file]
        run(binary, server.address, *words)
    text = files[0].read_text()
    assert re.search(r"^#\[StartTime: \d+\.\d+ \(seconds since epoch\)\]$", text, re.MULTILINE)
    assert re.search(r"^\d+\.\d+,[\d.]+,[\d.]+,HISTFAA", text, re.MULTILINE), text
    assert "\nTag=uncorrected," in text
    done = histogram(binary, *files)
    assert done.stdout.splitlines()[0].split()[:3] == ["latency", "(µs)", "mean"], done.stdout
    assert done.stdout.rstrip().endswith("values: latency 1000, uncorrected 1000"), done.stdout
    latency, uncorrected = map(
        json.loads, histogram(binary, *files, "--output", "json").stdout.splitlines()
    )
    assert (latency["histogram"], latency["values"]) == ("latency", 1000)
    assert (uncorrected["histogram"], uncorrected["values"]) == ("uncorrected", 1000)
    assert 0 < latency["p50_us"] <= latency["p99_us"] <= latency["max_us"] < math.inf


def histogram(binary, *words, codes=(0,)):
    import subprocess

    command = [binary, "lab", "histogram", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode in codes, done.stderr
    return done


def test_files_that_are_no_histograms_are_named(binary, server, tmp_path):
    file = tmp_path / "file"
    file.write_text("hello\n")
    said = histogram(binary, file, codes=(3,)).stderr
    assert str(file) in said and "byte 0 begins a line that is none" in said, said
    said = histogram(binary, tmp_path / "none", codes=(3,)).stderr
    assert "none" in said, said
    nowhere = tmp_path / "no-folder" / "file"
    done = run(binary, server.address, "--keys", "10", "--histogram", nowhere, codes=(3,))
    assert "--histogram: cannot write" in done.stderr and done.stdout == "", done


def test_littles_law_is_checked_in_each_report(binary, server):
    words = ["--keys", "100", "--connections", "2", "--in-flight", "4", "--duration", "1s"]
    found = json.loads(run(binary, server.address, "--output", "json", *words).stdout)
    assert found["counted_in_flight"] > 0 and found["rate_times_latency"] > 0, found
    assert found["counted_in_flight"] <= 8, found
    text = run(binary, server.address, *words).stdout
    assert re.search(r"\nLittle's law: [\d.]+ calls in flight were counted, rate × ", text), text
