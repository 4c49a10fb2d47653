"""The rows of script/bench about Python: pelton_grpc beside grpcio, against one Pelton server. They
are measured only if they are named.

Blocking calls from threads, and futures in flight, in one run, the channels in turn. The server has
one CPU, the client the other: with the interpreter's lock a client in Python has no use for more.
"""

import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

NAME = "python"
ROOT = pathlib.Path(__file__).resolve().parent.parent
CLIENT = ROOT / "peers" / "python-client" / "client.py"
CHANNELS = {"grpcio": "grpcio", "pelton": "`pelton_grpc`"}
# What the client is told, and how a table names it.
SHAPES = {
    ("--threads", "1"): "1 thread",
    ("--threads", "32"): "32 threads",
    ("--futures", "100"): "100 futures, each begun in the callback of one before",
    ("--windows", "100"): "100 futures at once, their results in turn",
    ("--tasks", "100"): "100 tasks of asyncio",
}
# Of the issue: of the CPU of grpcio at most so much, and so many times its calls.
CPU_GOAL, RATE_GOAL, ONE_GOAL = 1 / 3, 3, 1


def rows_of(make):
    """The rows, made by the type that script/bench has for them."""
    return [make(NAME, "channels of Python", measure_python)]


def interpreter(bench):
    """The Python of the tests, and a folder with the wheel."""
    folder = tempfile.mkdtemp(prefix="pelton-wheel-")
    bench.stack.callback(shutil.rmtree, folder, ignore_errors=True)
    built = subprocess.run(
        [ROOT / "script" / "wheel", f"{folder}/dist"], stdout=subprocess.PIPE, text=True, check=True
    )
    python = os.environ.get("PELTON_PYTHON") or sys.executable
    install = [python, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder]
    subprocess.run([*install, built.stdout.strip()], check=True)
    return python, folder


def measure_python(bench, row):
    python, folder = interpreter(bench)
    server = bench.running("pelton")
    seconds = str(max(bench.options.duration_ms / 1e3, 1))
    for _ in range(bench.options.runs):
        for shape in SHAPES:
            for channel in CHANNELS:
                words = ["--channel", channel, "--address", server.address, "--seconds", seconds]
                line = ["taskset", "--cpu-list", bench.GENERATOR_CPU, python, CLIENT]
                ran = subprocess.run(
                    [*line, *words, *shape],
                    stdout=subprocess.PIPE,
                    text=True,
                    check=True,
                    env={"PYTHONPATH": folder, "PATH": "/usr/bin:/bin"},
                )
                bench.record(row, f"{channel} {' '.join(shape)}", json.loads(ran.stdout))


def middle(bench, channel, shape, key):
    cell = bench.results[NAME, f"{channel} {' '.join(shape)}"]
    return statistics.median(figures[key] for figures in cell)


def section(bench, conditions, goal_line):
    """The chapter, of what was measured of it; empty if nothing was."""
    if not any(key[0] == NAME for key in bench.results):
        return ""
    lines = [
        "| calls | grpcio, calls/s | `pelton_grpc` | times | grpcio, CPU µs a call | "
        "`pelton_grpc` | share |",
        "|---|---|---|---|---|---|---|",
    ]
    goals = ["| goal | bound | measured | met |", "|---|---|---|---|"]
    for shape, text in SHAPES.items():
        rates = [middle(bench, channel, shape, "calls_per_s") for channel in CHANNELS]
        times = [middle(bench, channel, shape, "cpu_us") for channel in CHANNELS]
        rate, share = rates[1] / rates[0], times[1] / times[0]
        counts = [f"{each:,.0f}".replace(",", " ") for each in rates]
        lines.append(
            f"| {text} | {counts[0]} | {counts[1]} | {rate:.1f} | {times[0]:.1f} | "
            f"{times[1]:.1f} | {share:.2f} |"
        )
        is_one = shape == ("--threads", "1")
        bound = ONE_GOAL if is_one else RATE_GOAL
        goals.append(goal_line(f"{text}: calls/s of grpcio's", rate, bound, "×", at_least=True))
        if not is_one:
            goals.append(goal_line(f"{text}: share of grpcio's CPU", share, CPU_GOAL, ""))
    return "\n\n".join([conditions, "\n".join(lines), "\n".join(goals)])
