"""`pelton lab sweep` and `pelton lab compare`, with real servers."""

import json
import os
import random
import signal
import subprocess

import html_page
import pytest
from environment import clean_environment
from server import Server, wait_until

SMALL = ["--keys", "100", "--connections", "1"]
SHORT = ["--duration", "100ms", "--warm-up", "0s"]
SECONDS = 120


def command(binary, server, *words):
    address = getattr(server, "address", server)
    return [binary, "lab", "sweep", "--address", address, *SMALL, *map(str, words)]


def run(words, codes=(0,)):
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=SECONDS, env=clean_environment()
    )
    assert done.returncode in codes, (done.returncode, done.stdout, done.stderr)
    return done


def start(words):
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(words, env=clean_environment(), text=True, **pipes)


def databases(binary, server):
    words = [binary, "database", "list", "--address", server.address, "--output", "json"]
    return [json.loads(line)["name"] for line in run(words).stdout.splitlines()]


def test_every_cell_is_measured_and_shown(binary, server, tmp_path):
    page = tmp_path / "sweep.html"
    words = ["--over", "in-flight=1,2,4", "--runs", 2, *SHORT, "--html", page, "--output", "json"]
    done = run(command(binary, server, *words, "--server-pid", server.process.pid))
    report = json.loads(done.stdout)
    assert (report["runs_made"], report["runs_planned"], report["ended_early"]) == (6, 6, None)
    assert [cell["parameters"] for cell in report["cells"]] == [
        [{"name": "in-flight", "value": value}] for value in ("1", "2", "4")
    ]
    for cell in report["cells"]:
        calls = cell["calls_per_s"]
        assert cell["runs"] == 2 and cell["failures"] == 0
        assert 0 < calls["least"] <= calls["median"] <= calls["most"]
        assert cell["server_us"]["median"] > 0 and cell["p99_us"]["median"] > 0
    machine = report["machine"]
    assert machine["cpus_allowed"] == len(os.sched_getaffinity(0))
    assert machine["kernel"] == os.uname().release and "loopback" in machine["way"]
    assert len(report["knees"]) == 1 and report["knees"][0]["along"] == "in-flight"
    assert "run 6 of 6" in done.stderr
    drawn = html_page.check(page.read_text())
    assert drawn.count["svg"] == 4 and drawn.count["tr"] == 4
    assert databases(binary, server) == [""], "what a run made is removed"


def test_pairs_of_parameters_are_drawn_as_fields(binary, server, tmp_path):
    page = tmp_path / "pairs.html"
    words = ["--over", "mode=multiplexed,exclusive", "--over", "batch=1..4", "--runs", 1, *SHORT]
    text = run(command(binary, server, *words, "--html", page, "--output", "text")).stdout
    head = next(line for line in text.splitlines() if "spread" in line and "mode" in line)
    assert head.split()[:3] == ["mode", "batch", "records/s"]
    assert "knee at mode=exclusive: " in text and "6 of 6 runs were made" in text
    drawn = html_page.check(page.read_text())
    assert drawn.count["svg"] == 5 and drawn.count["rect"] >= 12


def test_any_service_can_be_swept(binary, server):
    words = [binary, "lab", "sweep", "--address", server.address, "--connections", "1"]
    words += ["--method", "grpc.health.v1.Health/Check", "--data", "{}", *SHORT, "--runs", "1"]
    csv = run([*words, "--over", "in-flight=1,8", "--output", "csv"]).stdout.splitlines()
    assert len(csv) == 3 and csv[0].startswith("in-flight,calls_per_s_median,")
    assert [line.split(",")[0] for line in csv[1:]] == ["1", "8"]


def test_the_relay_makes_delays_and_limits(binary, server):
    words = ["--over", "delay=0ms,20ms", "--in-flight", 4, "--runs", 1, *SHORT, "--output", "json"]
    report = json.loads(run(command(binary, server, *words)).stdout)
    fast, slow = (cell["p50_us"]["median"] for cell in report["cells"])
    # What is slow here is more than the delay.
    assert slow >= 20_000 and fast < slow
    words = ["--over", "stream-limit=1,8", "--over", "in-flight=8", "--runs", 1, *SHORT]
    save = run(command(binary, server, *words, "--output", "json")).stdout
    assert json.loads(save)["runs_made"] == 2
    relays = subprocess.run(["ps", "-eo", "ppid,args"], capture_output=True, text=True).stdout
    own = [line for line in relays.splitlines() if server.address in line and "lab tap" in line]
    assert own == [], "each relay ends with its run"


def test_a_sweep_goes_on_where_it_was_killed(binary, server, tmp_path):
    path = tmp_path / "sweep.jsonl"
    words = ["--over", "in-flight=1,2,4", "--runs", 3, "--duration", "300ms", "--warm-up", "0s"]
    words += ["--save", path, "--order-seed", 5]
    process = start(command(binary, server, *words))
    try:
        wait_until(lambda: path.exists() and len(path.read_text().splitlines()) >= 4, SECONDS)
    finally:
        process.kill()
        process.communicate()
    # However many runs it made until then, three are whole.
    whole = "".join(path.read_text().splitlines(keepends=True)[:4])
    path.write_text(whole + '{"cell":["1"],"ru')
    done = run(command(binary, server, *words, "--resume", "--output", "json"))
    report = json.loads(done.stdout)
    assert report["runs_made"] == 9 and [cell["runs"] for cell in report["cells"]] == [3, 3, 3]
    again = path.read_text()
    assert again.startswith(whole) and len(again.splitlines()) == 10
    assert f"run {len(whole.splitlines())} of 9" in done.stderr
    # All is there: nothing is measured again.
    done = run(command(binary, server, *words, "--resume"))
    assert "run " not in done.stderr and path.read_text() == again
    other = run(command(binary, server, *words, "--resume", "--value-size", 64), codes=(2,))
    assert "is of another sweep" in other.stderr and "--value-size 64" in other.stderr
    plain = run(command(binary, server, *words), codes=(2,))
    assert "--resume goes on" in plain.stderr and path.read_text() == again
    for name in databases(binary, server):
        # That of the run that was killed.
        if name:
            run([binary, "database", "drop", name, "--with-content", "--address", server.address])


def test_a_budget_ends_a_sweep_that_is_gone_on_with_after_a_whole_round(binary, server, tmp_path):
    path = tmp_path / "sweep.jsonl"
    words = ["--over", "in-flight=1,2,4", "--duration", "200ms", "--warm-up", "0s", "--save", path]
    process = start(command(binary, server, *words, "--budget", "30s"))
    try:
        wait_until(lambda: path.exists() and len(path.read_text().splitlines()) >= 5, SECONDS)
    finally:
        process.kill()
        process.communicate()
    # A whole round, and one run of the next.
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:5]))
    words += ["--resume", "--budget", "100ms", "--output", "json"]
    report = json.loads(run(command(binary, server, *words)).stdout)
    assert report["runs_made"] == 6, report["ended_early"]
    assert "no room for more than 2 of 10 rounds" in report["ended_early"]
    for name in filter(None, databases(binary, server)):
        run([binary, "database", "drop", name, "--with-content", "--address", server.address])


def test_files_that_are_damaged_are_refused_with_the_line(binary, server, tmp_path):
    path = tmp_path / "sweep.jsonl"
    words = ["--over", "in-flight=1,2", "--runs", 1, *SHORT, "--save", path]
    run(command(binary, server, *words))
    whole = path.read_bytes()
    head, first, second = whole.splitlines(keepends=True)
    longest = str(2**63)
    for damaged, expected in [
        (head + first + second + first, "line 4 is damaged: its run is there twice"),
        (head + first.replace(b'"run":0', b'"run":7'), "line 2 is damaged: the sweep has no run"),
        (head + b"\xff" + first + second, "line 2 is damaged: it is no text"),
        (head[:-9] + b"\n" + first, "none of a sweep"),
    ]:
        path.write_bytes(damaged)
        done = run(command(binary, server, *words, "--resume"), codes=(3,))
        assert expected in done.stderr and done.stdout == "" and path.read_bytes() == damaged
    # Times that nobody can wait for are no end of the program.
    path.write_bytes(head.replace(b'"warm_up_ms":0', b'"warm_up_ms":' + longest.encode()) + first)
    process = start(command(binary, server, *words, "--resume"))
    try:
        line = process.stderr.readline()
        assert line.startswith("pelton lab sweep: run 2 of 2"), line
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=SECONDS)
    finally:
        process.kill()
    assert process.returncode == 130


def test_a_file_is_written_by_one_sweep_at_a_time(binary, server, tmp_path):
    path = tmp_path / "sweep.jsonl"
    words = ["--over", "in-flight=1,2", "--runs", 50, *SHORT, "--save", path]
    process = start(command(binary, server, *words))
    try:
        wait_until(lambda: path.exists() and len(path.read_text().splitlines()) >= 2, SECONDS)
        other = run(command(binary, server, *words, "--resume"), codes=(2,))
        assert "another sweep writes" in other.stderr
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=SECONDS)
    finally:
        process.kill()


def test_a_page_is_drawn_though_nobody_reads_the_report(binary, server, tmp_path):
    page = tmp_path / "sweep.html"
    words = ["--over", "in-flight=1,2", "--runs", 1, *SHORT, "--html", page]
    process = start(command(binary, server, *words))
    process.stdout.close()
    try:
        process.stderr.read()
        assert process.wait(timeout=SECONDS) == 0
    finally:
        process.kill()
    assert html_page.check(page.read_text()).count["svg"] == 4


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_a_full_disk_is_told_with_what_was_measured(binary, server, tmp_path):
    words = ["--over", "in-flight=1,2", "--runs", 1, *SHORT]
    page = tmp_path / "page.html"
    page.symlink_to("/dev/full")
    done = run(command(binary, server, *words, "--html", page), codes=(3,))
    assert "--html: cannot write" in done.stderr and "in-flight  calls/s" in done.stdout


def test_ctrl_c_prints_what_was_measured(binary, server, tmp_path):
    path = tmp_path / "sweep.jsonl"
    words = ["--over", "in-flight=1,2", "--runs", 50, *SHORT, "--save", path, "--output", "json"]
    process = start(command(binary, server, *words))
    try:
        wait_until(lambda: path.exists() and len(path.read_text().splitlines()) >= 3, SECONDS)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
    report = json.loads(output)
    assert process.returncode == 130
    assert 2 <= report["runs_made"] < 100 and report["ended_early"].startswith("interrupted after")
    assert report["runs_made"] == len(path.read_text().splitlines()) - 1
    assert databases(binary, server) == [""]


def test_a_target_that_dies_leaves_a_report(binary, tmp_path):
    path, page = tmp_path / "sweep.jsonl", tmp_path / "sweep.html"
    words = ["--over", "in-flight=1,2", "--runs", 50, *SHORT, "--save", path, "--html", page]
    with Server(binary) as server:
        process = start(command(binary, server, *words))
        try:
            wait_until(lambda: path.exists() and len(path.read_text().splitlines()) >= 3, SECONDS)
            server.kill()
            output, errors = process.communicate(timeout=SECONDS)
        finally:
            process.kill()
    assert process.returncode == 1, errors
    assert "ENDED EARLY: " in output and server.address in output
    assert "in-flight  calls/s" in output and html_page.check(page.read_text()).count["svg"] == 4


@pytest.mark.parametrize(
    "words, expected",
    [
        (["--over", "speed=1"], "`speed` cannot be swept"),
        (["--over", "in-flight=1,2", "--in-flight", "3"], "--in-flight is swept, and given"),
        (["--over", "in-flight=1", "--over", "in-flight=2"], "`in-flight` is swept twice"),
        (["--over", "threads=1,2"], "that is so at threads=2"),
        (["--over", "in-flight=1", "--calls", "5"], "--calls does not go with a sweep"),
        (["--over", "in-flight=1", "--histogram", "x"], "--histogram does not go with a sweep"),
        (["--over", "in-flight=1", "--require", "p99<1s"], "--require does not go with a sweep"),
        (["--over", "delay=1ms", "--tls"], "does not go with TLS"),
        (["--over", "in-flight=1", "--resume"], "--save"),
        (["--over", "in-flight=1", "--mode", "short", "--pipe"], "that is so at in-flight=1"),
    ],
)
def test_contradictions_are_told_before_any_load(binary, words, expected):
    # Nobody listens there.
    done = run(command(binary, "127.0.0.1:1", *words), codes=(2,))
    assert expected in done.stderr and done.stdout == ""


@pytest.mark.parametrize("words", [["--data", "@-"], ["--data-file", "-"], ["--request-file", "-"]])
def test_standard_input_is_not_read_again_for_each_run(binary, words):
    call = [binary, "lab", "sweep", "--address", "127.0.0.1:1", "--over", "in-flight=1,2"]
    call += ["--method", "a.B/C", *words]
    pipes = {"capture_output": True, "text": True, "timeout": SECONDS, "env": clean_environment()}
    done = subprocess.run(call, input="{}", check=False, **pipes)
    assert done.returncode == 2 and "standard input can be read once" in done.stderr, done.stderr


def test_a_server_that_is_not_there_is_one_line(binary, tmp_path):
    words = ["--over", "in-flight=1,2", "--save", tmp_path / "sweep.jsonl"]
    done = run(command(binary, "127.0.0.1:1", *words, "--timeout", "1s"), codes=(3,))
    assert "127.0.0.1:1" in done.stderr and "in-flight=" in done.stderr and done.stdout == ""


def results(path, factor, seed, runs=8, **fields):
    """Runs as `pelton load --output json` prints them, that take `factor` times as long."""
    noise = random.Random(seed)
    lines = []
    for _ in range(runs):
        slow = factor * (1 + noise.gauss(0, 0.01))
        line = {"calls_per_s": 1e5 / slow, "p50_us": 100 * slow, "p99_us": 300 * slow}
        line |= {"succeeded": 1000, "what": "get=100", "own_us": 0.5, "void": False} | fields
        lines.append(json.dumps(line) + "\n")
    path.write_text("".join(lines))
    return path


def test_what_became_worse_is_a_miss(binary, tmp_path):
    old = results(tmp_path / "old", 1, 1)
    slower = results(tmp_path / "slower", 1.07, 2)
    page = tmp_path / "page.html"
    done = run([binary, "lab", "compare", old, slower, "--html", page], codes=(1,))
    assert done.stdout.startswith("worse: calls/s "), done.stdout
    assert html_page.check(page.read_text()).count["svg"] == 4
    better = run([binary, "lab", "compare", slower, old, "--output", "json"])
    assert json.loads(better.stdout)["verdict"] == "better"
    same = run([binary, "lab", "compare", old, old])
    assert same.stdout.startswith("no difference beyond the noise")


def test_too_few_runs_are_a_miss_too(binary, tmp_path):
    old = results(tmp_path / "old", 1, 1, runs=3)
    slower = results(tmp_path / "slower", 2, 2, runs=3)
    done = run([binary, "lab", "compare", old, slower], codes=(1,))
    assert done.stdout.startswith("undecided: ") and " runs of each side" in done.stdout


def test_results_that_cannot_be_compared_are_refused(binary, tmp_path):
    old = results(tmp_path / "old", 1, 1)
    other = results(tmp_path / "other", 1, 1, in_flight=7)
    void = results(tmp_path / "void", 1, 1, void=True)
    notes = tmp_path / "notes"
    notes.write_text("my notes\n")
    for words, code, expected in [
        ([old, other], 2, "no cell in common"),
        ([old, void], 2, "no cell in common that has runs which are not void"),
        ([old, notes], 3, "line 1 is no result"),
        ([old, tmp_path / "nothing"], 3, "cannot be read"),
    ]:
        done = run([binary, "lab", "compare", *words], codes=(code,))
        assert expected in done.stderr and done.stdout == "", done.stderr


def test_sweeps_of_one_server_are_compared_cell_by_cell(binary, server, tmp_path):
    words = ["--over", "in-flight=1,2", "--runs", 3, *SHORT, "--save"]
    for name in ("a", "b"):
        run(command(binary, server, *words, tmp_path / name))
    words = [binary, "lab", "compare", tmp_path / "a", tmp_path / "b", "--output", "json"]
    done = run(words, codes=(0, 1, 2))
    if done.returncode == 2:
        # The generator was the limit in all of them: so it is on a busy machine.
        assert "not void" in done.stderr
        return
    report = json.loads(done.stdout)
    assert {one["cell"] for one in report["differences"]} <= {None, "in-flight=1", "in-flight=2"}
    assert any("one side was measured after the other" in note for note in report["notes"])
