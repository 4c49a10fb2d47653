"""The rows of script/bench about `pelton lab tap`: what it costs those whom it looks at. They are
measured only if they are named."""

import contextlib
import json
import socket
import statistics
import subprocess
import time

import load_rows

# Connections × in flight.
SHAPES = ((1, 1), (1, 16), (1, 100), (8, 16))


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class RunningTap:
    """A tap before a server, as the generator sees a server: with an address and a process."""

    def __init__(self, bench, server):
        port = free_port()
        self.address, self.pid = f"127.0.0.1:{port}", server.pid
        words = ["--listen", self.address, "--target", server.address, "--output", "json"]
        command = bench.command("pelton", "lab", "tap", *words)
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.wait(port)

    def wait(self, port):
        until = time.monotonic() + 10
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                return
            if time.monotonic() > until:
                raise SystemExit("script/bench: the tap does not listen")
            time.sleep(0.01)

    def end(self):
        """Its report."""
        self.process.terminate()
        out, _ = self.process.communicate(timeout=30)
        return json.loads(out)


def measure_tap(bench, row):
    """The same load with and without it, in turn."""
    server = bench.running("pelton")
    for run in range(bench.options.runs):
        for connections, in_flight in SHAPES:
            shape = ("--connections", str(connections), "--in-flight", str(in_flight))
            options = ("--keys", str(bench.KEYS), "--seed", str(run + 1), *shape)
            cell = f"{connections}×{in_flight}"
            bench.record(row, f"{cell} without", load_rows.load(bench, server, *options))
            tap = RunningTap(bench, server)
            figures = load_rows.load(bench, tap, *options)
            report = tap.end()
            figures["tap_us"] = report["tap"]["cpu_us_per_call"]
            figures["forward_us"] = report["tap"]["forward"]["p50_us"]
            bench.record(row, f"{cell} through", figures)


TEXT = (
    "Get by `pelton load` with and without `pelton lab tap` in between, in turn; the median of the "
    "runs. The tap has one thread, on whatever CPU is free, and shares both CPUs of a machine that "
    "has two with the server and the generator."
)


def rows_of(make):
    """The rows, made by the type that script/bench has for them."""
    return [make("tap", "what the tap costs", measure_tap)]


def middle(bench, cell, key):
    return statistics.median(figures[key] for figures in bench.results["tap", cell])


def section(bench, conditions):
    """The chapter, of what was measured of it; empty if nothing was."""
    if not any(key[0] == "tap" for key in bench.results):
        return ""
    lines = [
        "| connections × in flight | calls/s without | through the tap | share | "
        "p50 without, µs | through the tap | CPU of the tap, µs a call | read to write, µs |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for connections, in_flight in SHAPES:
        cell = f"{connections}×{in_flight}"
        rates = [middle(bench, f"{cell} {way}", "calls_per_s") for way in ("without", "through")]
        waits = [middle(bench, f"{cell} {way}", "p50_us") for way in ("without", "through")]
        own = [middle(bench, f"{cell} through", key) for key in ("tap_us", "forward_us")]
        lines.append(
            f"| {connections} × {in_flight} | {rates[0] / 1e3:.0f} k | {rates[1] / 1e3:.0f} k | "
            f"{rates[1] / rates[0]:.2f} | {waits[0]:.0f} | {waits[1]:.0f} | {own[0]:.1f} | "
            f"{own[1]:.1f} |"
        )
    return "\n\n".join([conditions, TEXT, "\n".join(lines)])
