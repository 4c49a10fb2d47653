"""The rows of script/bench whose load comes from `pelton load`: what the generator itself costs, an
open loop at half of what the server can do, and many more keys than the usual."""

import contextlib
import json
import subprocess
import sys

MANY_KEYS = 5_000_000

# An open loop at so much of what a closed one reached.
SHARE_OF_CAPACITY = 0.5

# The first turns of both programs touch memory for the first time. What came due meanwhile,
# thousands of calls, then waits for tens of milliseconds until it is worked off, and an open loop
# counts that.
OPEN_WARM_UP_MS = 500


def load(bench, process, *options, duration_ms=None, warm_up_ms=None):
    """One run of `pelton load` on the generator's CPU; its figures, named as those of the other
    generator."""
    warm_up_ms = warm_up_ms or bench.options.warm_up_ms
    times = ["--warm-up", f"{warm_up_ms}ms"]
    # A run of so many calls has no other end.
    if "--calls" not in options:
        times += ["--duration", f"{duration_ms or bench.options.duration_ms}ms"]
    target = ["--address", process.address, "--server-pid", str(process.pid)]
    # Into the default one, unless a row says where.
    database = [] if "--database" in options else ["--database="]
    line = [
        "taskset",
        "--cpu-list",
        bench.GENERATOR_CPU,
        *bench.command("pelton", "load", *target, *times, *database, "--output", "json", *options),
    ]
    result = subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    # Exit code 1 with a result: the generator was the limit.
    if result.returncode not in (0, 1) or not result.stdout:
        sys.exit(f"script/bench: {' '.join(line)}: {result.stderr}")
    figures = {key: value for key, value in json.loads(result.stdout).items() if value is not None}
    if figures["failures"]:
        sys.exit(
            f"script/bench: {figures['failures']} calls failed: {' '.join(line)}: "
            f"{figures.get('first_failure')}"
        )
    figures["longest_us"] = figures["max_us"]
    return figures


def measure_generator(bench, row):
    """What a call costs `pelton load` itself."""
    process = bench.running("pelton")
    for run in range(bench.options.runs):
        bench.record(
            row,
            "pelton",
            load(bench, process, "--keys", str(bench.KEYS), "--seed", str(run + 1), *row.options),
        )


def measure_half_capacity(bench, row):
    """A closed loop says what the server can do, an open one at half of that how long visitors
    wait."""
    process = bench.running("pelton")
    for run in range(bench.options.runs):
        common = ["--keys", str(bench.KEYS), "--seed", str(run + 1)]
        capacity = load(bench, process, *common, *row.options)["calls_per_s"]
        rate = ["--rate", f"{capacity * SHARE_OF_CAPACITY:.0f}"]
        warm_up_ms = max(bench.options.warm_up_ms, OPEN_WARM_UP_MS)
        figures = load(bench, process, *common, "--connections", "8", *rate, warm_up_ms=warm_up_ms)
        figures["p99_of_p50"] = figures["p99_us"] / figures["p50_us"]
        bench.record(row, "pelton", figures)


def measure_five_million(bench, row):
    """The shapes of the usual rows, by the usual generator. All of them share one server."""
    with contextlib.closing(bench.start("pelton")) as process:
        bench.load(process, MANY_KEYS)
        for run in range(bench.options.runs):
            for shown, options in SHAPES.items():
                figures = bench.timed("get", process, "--keys", str(MANY_KEYS), *options, seed=run)
                bench.record(row._replace(name=f"{row.name}-{shown}"), "pelton", figures)


def shape(connections, in_flight, *more):
    return ("--connections", str(connections), "--in-flight", str(in_flight), *more)


SHAPES = {
    "1 × 100": shape(1, 100),
    "8 × 100": shape(8, 100),
    "64 × 10": shape(64, 10),
    "8 × 100, spelled out": shape(8, 100, "--vary", "literal"),
}

# What the generator's rows send: the end of the row's name, the text, the options.
GENERATOR_SHAPES = [
    ("8x100", "Get, 8 × 100", shape(8, 100)),
    ("1x100", "Get, 1 × 100", shape(1, 100)),
    ("64x10", "Get, 64 × 10", shape(64, 10)),
    ("put-8x100", "Put, 8 × 100", shape(8, 100, "--mix", "put=100")),
]


def goals(bench, median, goal_line):
    """Lines of the table of goals."""
    lines = []

    def goal(text, value, most, unit):
        if value is not None:
            lines.append(goal_line(text, value, most, unit))

    for name, text, _ in GENERATOR_SHAPES:
        goal(
            f"`pelton load` itself, {text}",
            median(bench, f"load-{name}", "pelton", "own_us"),
            0.5,
            "µs",
        )
    goal(
        "Get at half of capacity, open loop: p99 as a multiple of p50",
        median(bench, "half", "pelton", "p99_of_p50"),
        5,
        "",
    )
    p99_us = median(bench, "half", "pelton", "p99_us")
    goal("the same: p99", None if p99_us is None else p99_us / 1e3, 1, "ms")
    return lines


def notes(bench, rows):
    """Runs in which the generator was the limit."""
    lines = []
    for row in rows:
        reasons = {
            figures["void_reasons"]
            for figures in bench.results.get((row.name, "pelton"), [])
            if figures.get("void")
        }
        if reasons and row.name == "half":
            lines.append(
                f"- {row.text}: in some runs the generator was the limit, so that the latency is "
                f"its own: {'; '.join(sorted(reasons))}"
            )
    return lines
