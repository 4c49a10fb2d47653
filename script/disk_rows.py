"""The rows of script/bench about databases on disk.

Puts of new random keys for a minute, beside the engine under such a database writing the same
records with no log, no sync and no server (`peers/bare-tree`); and Gets of what is in the cache,
beside Gets from memory in the same shape.
"""

import contextlib
import json
import os
import pathlib
import resource
import subprocess
import time

import load_rows

# Never the same key twice, but for one in millions.
NEW_KEYS = 10**12
# More than a memtable holds, so that most of it is read from tables.
STORED_KEYS = 1_000_000
READ_KEYS = 10_000
# For flushes and compactions after the puts, at most.
SETTLE_SECONDS = 60
MISSING = "- No rows of databases on disk: there could be none"
PUT_SECONDS, QUICK_PUT_SECONDS = 60, 2


def create_database(bench, process):
    """A database of kind disk; whether there can be one."""
    command = bench.command(
        "pelton", "database", "create", "disk", "--kind", "disk", "--address", process.address
    )
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0 and not any(note.startswith(MISSING) for note in bench.notes):
        bench.notes.append(f"{MISSING}: {result.stderr.strip()}")
    return result.returncode == 0


def settle(process):
    """Waits until what was written is flushed and merged, so that a call is not charged with
    that."""

    def ticks():
        fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    for _ in range(SETTLE_SECONDS):
        before = ticks()
        time.sleep(1)
        if ticks() - before <= 0.02 * os.sysconf("SC_CLK_TCK"):
            return


def run_bare_tree(bench, seconds):
    """The engine alone; its figures, named as those of a server."""
    with bench.fresh_folder() as folder:
        command = bench.pinned(
            bench.command("bare-tree", str(folder / "tree"), "--seconds", str(seconds))
        )
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        bare = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    bare["calls_per_s"] = bare["records_per_s"]
    bare["server_us"] = (
        (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        * 1e6
        / bare["records"]
    )
    return bare


def measure_puts(bench, row):
    """One run, since it is long."""
    seconds = QUICK_PUT_SECONDS if bench.options.quick else PUT_SECONDS
    with (
        bench.fresh_folder() as folder,
        contextlib.closing(bench.start("pelton", "synced", folder / "data")) as process,
    ):
        if not create_database(bench, process):
            return
        load = ["--database", "disk", "--mix", "put=100", "--keys", str(NEW_KEYS), *row.options]
        figures = load_rows.load(bench, process, *load, duration_ms=1_000 * seconds)
    bare = run_bare_tree(bench, seconds)
    figures["share_of_engine"] = figures["calls_per_s"] / bare["records_per_s"]
    bench.record(row, "pelton", figures)
    bench.record(row, "bare-tree", bare)


def measure_gets(bench, row):
    """From disk and from memory in turns, on one server."""
    with (
        bench.fresh_folder() as folder,
        contextlib.closing(bench.start("pelton", "written", folder / "data")) as process,
    ):
        if not create_database(bench, process):
            return
        databases = {"disk": "pelton", "": "memory"}
        for database in databases:
            fill = ["--database", database, "--keys", str(STORED_KEYS), "--fill"]
            load_rows.load(bench, process, *fill, *row.options)
        settle(process)
        for run in range(bench.options.runs):
            for database, subject in databases.items():
                load = [
                    "--database",
                    database,
                    "--keys",
                    str(READ_KEYS),
                    "--seed",
                    str(run + 1),
                    *row.options,
                ]
                bench.record(row, subject, load_rows.load(bench, process, *load))


SHOWN_AS = {
    "pelton": "pelton, on disk",
    "memory": "pelton, in memory",
    "bare-tree": "the engine alone, no log",
}


def table(bench, rows, median, spread, thousands):
    lines = [
        "| load | server | calls/s | server CPU µs per call | p50 µs | p99 µs | p99.9 µs | "
        "longest ms |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        for subject, shown in SHOWN_AS.items():
            if not bench.results.get((row.name, subject)):
                continue
            latencies = [
                median(bench, row.name, subject, key) for key in ("p50_us", "p99_us", "p999_us")
            ]
            longest_us = max(figures["longest_us"] for figures in bench.results[row.name, subject])
            cells = [
                row.text,
                shown,
                thousands(median(bench, row.name, subject, "calls_per_s")),
                spread(bench, row.name, subject, "server_us", 2),
                *("–" if value is None else f"{value:.0f}" for value in latencies),
                f"{longest_us / 1e3:.1f}",
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) if len(lines) > 2 else ""


def goals(bench, median, goal_line):
    lines = []
    share = median(bench, "disk-put", "pelton", "share_of_engine")
    if share is not None:
        lines.append(
            goal_line(
                "durable Put, database on disk, new random keys: share of the engine alone",
                share,
                0.8,
                "",
                at_least=True,
            )
        )
        lines.append(
            goal_line(
                "the same: p99.9", median(bench, "disk-put", "pelton", "p999_us") / 1e3, 20, "ms"
            )
        )
        lines.append(
            goal_line(
                "the same: longest of all calls",
                median(bench, "disk-put", "pelton", "longest_us") / 1e3,
                100,
                "ms",
            )
        )
    disk, memory = (
        median(bench, "disk-get", subject, "server_us") for subject in ("pelton", "memory")
    )
    if disk is not None and memory is not None:
        lines.append(
            goal_line(
                "Get from disk, in the cache, 64 in flight: server CPU above that from memory",
                disk - memory,
                6,
                "µs",
            )
        )
    return lines
