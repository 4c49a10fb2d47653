"""The rows of script/bench about writes that last: the server with a log beside a bare log, Redis
and etcd.

Each run of the server has a fresh data folder and leaves its log behind, which says what groups it
wrote and when. A bare log (`peers/bare-log`) then writes groups of just these sizes, in that order,
to the same disk; so both meet about the same weather, and what the server takes longer is its own.
Next to it the same load on Redis (`appendfsync always`) and etcd, where they are installed.
"""

import contextlib
import json
import shutil
import signal
import subprocess
import urllib.request

# Group header and alignment of the log (docs and crates/wal/src/group.rs).
HEADER_BYTES, ALIGN_BYTES = 128, 512

# Log to be read again, about. Where two segments are full a snapshot is made, which would take its
# place.
REPLAY_BYTES, REPLAY_SEGMENT = 400_000_000, "256MiB"

# A record in the log beside its value: with a key of 16 bytes.
RECORD_BYTES = 48

SHOWN_AS = {
    "pelton": "pelton",
    "bare-log": "bare log, the same groups",
    "redis": "Redis, appendfsync always",
    "etcd": "etcd",
}


def etcd_is_there():
    return shutil.which("etcd") is not None


# --------------------------------------------------------------------------------------------------
# Runs


def measure_writes(bench, row):
    """`row.options`: the durability, the generator's command, its options."""
    mode, command, *options = row.options
    synced = mode == "synced"
    for run in range(bench.options.runs):
        sizes = pelton_run(bench, row, mode, command, options, run)
        if synced:
            bare_log_run(bench, row, sizes)
        if synced and command == "put":
            redis_run(bench, row, options)
            etcd_run(bench, row, options)


def pelton_run(bench, row, mode, command, options, run):
    """One run of a fresh server; records it and returns the sizes of its groups."""
    with bench.fresh_folder() as folder:
        process = bench.start("pelton", mode, folder / "data")
        with contextlib.closing(process):
            bench.load(process)
            figures = bench.timed(command, process, *options, seed=run + 1)
            # A clean stop would make a snapshot and remove the log that is read below.
            process.process.kill()
        groups = [] if mode == "volatile" else logged_groups(bench, folder / "data", figures)
    if groups:
        records_per_call = int(dict(zip(options[::2], options[1::2])).get("--records", 1))
        figures |= group_figures(groups, records_per_call)
    bench.record(row, "pelton", figures)
    return [size for _, size, _ in groups]


def logged_groups(bench, folder, figures):
    """The groups that the log has of the time of measuring: when, bytes, records."""
    lines = subprocess.run(
        bench.command("pelton", "log", "inspect", "--output", "json", str(folder)),
        stdout=subprocess.PIPE,
        check=True,
    ).stdout
    groups = []
    for line in lines.splitlines():
        group = json.loads(line)
        if (
            "body_bytes" in group
            and figures["from_wall_ms"] <= group["wall_ms"] <= figures["to_wall_ms"]
        ):
            size = HEADER_BYTES + group["body_bytes"]
            groups.append(
                (group["wall_ms"], -(-size // ALIGN_BYTES) * ALIGN_BYTES, group["records"])
            )
    return groups


def group_figures(groups, records_per_call):
    """Segments that are not needed any more are missing in the log, so rates are those of the
    groups that are there."""
    elapsed_s = max(groups[-1][0] - groups[0][0], 1) / 1e3
    records = sum(records for _, _, records in groups)
    return {
        "groups_per_s": len(groups) / elapsed_s,
        "calls_per_group": records / len(groups) / records_per_call,
        "groups_elapsed_s": elapsed_s,
    }


def bare_log_figures(bench, sizes):
    """Groups of these sizes, in this order, written by a bare log: what it says of them."""
    with bench.fresh_folder() as folder:
        command = bench.pinned(bench.command("bare-log", str(folder / "bare")))
        lines = "".join(f"{size}\n" for size in sizes)
        return json.loads(
            subprocess.run(
                command, input=lines, stdout=subprocess.PIPE, text=True, check=True
            ).stdout
        )


def bare_log_run(bench, row, sizes):
    figures = bare_log_figures(bench, sizes)
    pelton = bench.results[row.name, "pelton"][-1]
    figures["server_us"] = figures["own_us_per_group"] / pelton["calls_per_group"]
    figures["calls_per_s"] = figures["groups_per_s"] * pelton["calls_per_group"]
    # How much of the bare log's speed the server keeps.
    pelton["share_of_bare"] = figures["elapsed_s"] / pelton["groups_elapsed_s"]
    bench.record(row, "bare-log", figures)


def redis_run(bench, row, options):
    if not bench.has("redis"):
        return
    shape = dict(zip(options[::2], options[1::2]))
    connections, in_flight = int(shape.get("--connections", 1)), int(shape["--in-flight"])
    calls = max(int(bench.options.duration_ms * min(500, 4 * connections * in_flight)), 500)
    with bench.fresh_folder() as folder:
        with contextlib.closing(bench.start("redis", "always", folder)) as process:
            report = folder / "report"
            port = process.address.split(":")[1]
            arguments = [
                "-p",
                port,
                "-t",
                "set",
                "-d",
                "32",
                "-r",
                str(bench.KEYS),
                "-c",
                str(connections),
                "-P",
                str(in_flight),
                "-n",
                str(calls),
            ]
            program = ["sh", "-c", f"redis-benchmark {' '.join(arguments)} --csv > {report}"]
            figures = bench.probe("meter", None, "--server-pid", str(process.pid), program=program)
            line = report.read_text().splitlines()[-1]
            # "test","rps","avg","min","p50","p95","p99","max", in milliseconds
            numbers = [float(field.strip('"')) for field in line.split(",")[1:]]
    bench.record(
        row,
        "redis",
        {
            "calls_per_s": calls / figures["elapsed_s"],
            "server_us": figures["server_ns"] / 1e3 / calls,
            "p50_us": numbers[3] * 1e3,
            "p99_us": numbers[5] * 1e3,
            "longest_us": numbers[6] * 1e3,
        },
    )


def etcd_run(bench, row, options):
    if not etcd_is_there():
        return
    with bench.fresh_folder() as folder:
        with contextlib.closing(bench.start("etcd", folder)) as process:
            bench.record(row, "etcd", bench.timed("etcd-put", process, *options))


def etcd_command(folder, port, peer_port):
    client, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer_port}"
    urls = [
        "--listen-client-urls",
        client,
        "--advertise-client-urls",
        client,
        "--listen-peer-urls",
        peer,
    ]
    cluster = ["--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}"]
    return ["etcd", "--data-dir", str(folder / "etcd"), "--log-level", "error", *urls, *cluster]


def wait_for_etcd(port):
    for _ in range(200):
        with (
            contextlib.suppress(OSError),
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1) as answer,
        ):
            if json.load(answer).get("health") == "true":
                return
        subprocess.run(["sleep", "0.05"])
    raise SystemExit("script/bench: etcd did not become healthy")


def measure_start(bench, row):
    """With an empty data folder, from the start of the program to the first answer."""
    for _ in range(bench.options.runs):
        with bench.fresh_folder() as folder:
            serve = bench.serve_command("synced", folder / "data")
            bench.record(row, "pelton", bench.probe("start", None, program=serve))


def measure_replay(bench, row):
    """The log of a server that was killed, read by the next one."""
    for run in range(bench.options.runs):
        with bench.fresh_folder() as folder:
            log_bytes = make_log(bench, folder / "data", row.options, run)
            serve = bench.serve_command("synced", folder / "data")
            figures = bench.probe("start", None, program=serve)
        seconds = figures["start_ms"] / 1e3
        bench.record(
            row, "pelton", {"log_mb": log_bytes / 1e6, "replay_mb_per_s": log_bytes / 1e6 / seconds}
        )


def make_log(bench, folder, options, run):
    """A log of REPLAY_BYTES, or a small one where runs are very short; how many bytes it has."""
    value_bytes, *options = options
    process = bench.start("pelton", "written", folder, "--log-segment", REPLAY_SEGMENT)
    try:
        records = (
            100_000 if bench.options.quick else REPLAY_BYTES // (RECORD_BYTES + int(value_bytes))
        )
        size = ["--records", "100", "--value-bytes", value_bytes, "--calls", str(records // 100)]
        bench.probe("batch", process, *size, "--in-flight", "16", "--seed", str(run + 1), *options)
    finally:
        process.process.send_signal(signal.SIGKILL)
        process.process.wait()
    everything = {"from_wall_ms": 0, "to_wall_ms": 1 << 63}
    return sum(size for _, size, _ in logged_groups(bench, folder, everything))


# --------------------------------------------------------------------------------------------------
# The page


def table(bench, rows, median, spread, thousands):
    lines = [
        "| load | server | calls/s | server CPU µs per call | p50 µs | p99 µs | p99.9 µs | "
        "longest ms | groups/s | calls in a group |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        for subject, shown in SHOWN_AS.items():
            if not bench.results.get((row.name, subject)):
                continue
            # A bare log knows groups, not calls.
            prefix = "group_" if subject == "bare-log" else ""
            latencies = [
                number(median(bench, row.name, subject, prefix + key))
                for key in ("p50_us", "p99_us", "p999_us")
            ]
            longest = longest_us(bench, row.name, subject)
            cells = [
                row.text,
                shown,
                thousands(median(bench, row.name, subject, "calls_per_s")),
                spread(bench, row.name, subject, "server_us", 2),
                *latencies,
                "–" if longest is None else f"{longest / 1e3:.1f}",
                number(median(bench, row.name, subject, "groups_per_s")),
                number(median(bench, row.name, subject, "calls_per_group")),
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) if len(lines) > 2 else ""


def number(value):
    return "–" if value is None else f"{value:.0f}"


def longest_us(bench, row, subject):
    """Of all runs, since what is looked for is rare."""
    key = "group_longest_us" if subject == "bare-log" else "longest_us"
    found = [figures[key] for figures in bench.results.get((row, subject), []) if key in figures]
    return max(found, default=None)


def goals(bench, median):
    """Lines of the table of goals: text, what was asked, what was measured, whether it was met."""
    lines = []

    def goal(text, value, bound, unit, at_least):
        if value is not None:
            met = value >= bound if at_least else value <= bound
            lines.append(
                f"| {text} | {'at least ' if at_least else ''}{bound:g}{unit} | {value:.2f}{unit} "
                f"| {'yes' if met else 'no'} |"
            )

    goal(
        "durable Put, 8 × 128: share of a bare log with the same groups",
        median(bench, "durable-8x128", "pelton", "share_of_bare"),
        0.6,
        "",
        True,
    )
    longest = longest_us(bench, "durable-8x128", "pelton")
    goal(
        "the same: longest of all calls",
        None if longest is None else longest / 1e3,
        20,
        " ms",
        False,
    )
    goal(
        "start to first answer, durable, empty folder",
        median(bench, "durable-start", "pelton", "start_ms"),
        50,
        " ms",
        False,
    )
    for name, text in REPLAYS.items():
        goal(
            f"replay, {text}", median(bench, name, "pelton", "replay_mb_per_s"), 200, " MB/s", True
        )
    return lines


REPLAYS = {
    "replay-overwrites": "100 000 keys, 32-byte values, written again and again",
    "replay-new-keys": "new keys, 100-byte values",
}


def notes(bench, rows, median):
    """What the table does not say."""
    if not any(bench.results.get((row.name, "pelton")) for row in rows):
        return []
    lines = []
    for row in rows:
        share = median(bench, row.name, "pelton", "share_of_bare")
        if share is not None:
            spread = [figures["share_of_bare"] for figures in bench.results[row.name, "pelton"]]
            lines.append(
                f"- {row.text}: {share:.2f} ({min(spread):.2f}–{max(spread):.2f}) of the speed of "
                "a bare log with the same groups"
            )
    for name, what in (("redis", "redis-server and redis-benchmark are"), ("etcd", "etcd is")):
        if not (bench.has(name) if name == "redis" else etcd_is_there()):
            lines.append(f"- {what} not installed: its rows are missing.")
    return lines


MODES = ("synced", "interval=100ms", "written", "volatile")


def mode_table(bench, median, spread, thousands):
    """What each durability costs; empty unless all of it was measured."""
    lines = [
        "| durability | one Put in flight: p50 µs | server CPU µs | 8 × 128 in flight: Puts/s | "
        "server CPU µs | p99 ms |",
        "|---|---|---|---|---|---|",
    ]
    for mode in MODES:
        name = "durable" if mode == "synced" else mode.split("=")[0]
        one, many = f"{name}-one", f"{name}-8x128"
        rate = median(bench, many, "pelton", "calls_per_s")
        if rate is None or median(bench, one, "pelton", "p50_us") is None:
            return ""
        p99 = median(bench, many, "pelton", "p99_us") / 1e3
        cells = [
            f"`{mode}`",
            spread(bench, one, "pelton", "p50_us", 0),
            spread(bench, one, "pelton", "server_us", 0),
            thousands(rate),
            spread(bench, many, "pelton", "server_us", 2),
            f"{p99:.1f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
