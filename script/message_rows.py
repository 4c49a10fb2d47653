"""The rows of script/bench about large messages, and about more threads.

Large Puts, from 64 KiB to 16 MiB and from 1 to 128 in flight: beside the volatile ones a copy of as
many bytes over bare TCP (`peers/transfer`, thrown away on the other side), beside the synced ones a
bare log with the same groups, and both of these one after the other, as one CPU has to receive the
bytes before it can write them. And what a Get and a synced Put cost the server with more threads on
the same CPU: what the threads share and write for each call shows there first, although a single
CPU cannot show what it costs when its cache lines move.
"""

import contextlib
import os
import subprocess
import time

import durable_rows
import load_rows

KIB, MIB = 1 << 10, 1 << 20
SIZES = {
    "64 KiB": 64 * KIB,
    "256 KiB": 256 * KIB,
    "1 MiB": MIB,
    "3 MiB": 3 * MIB,
    "10 MiB": 10 * MIB,
    "16 MiB": 16 * MIB,
}
# Connections × in flight on each.
SHAPES = {"1 × 1": (1, 1), "1 × 16": (1, 16), "8 × 1": (8, 1), "8 × 16": (8, 16)}
QUICK_SIZES, QUICK_SHAPES = ("64 KiB", "1 MiB"), ("8 × 16",)
MAX_VALUE = "16MiB"
# Values that a run overwrites again and again: all of them fit into memory.
KEYS = 32
# A run is as long as this at least, and as all that is in flight takes several times at this speed:
# few of the largest messages end within a short one.
LEAST_MS = 3_000
LEAST_MB_PER_S, TIMES = 300, 3
# Before synced ones: the log of large values grows to 2 GiB before its files are used again.
SYNCED_WARM_UP_MS = 12_000
RUNS = 3
GOAL = 0.6
COPY_BYTES = 1 << 30

THREADS = (1, 2, 4, 16)


def name_of(row, size, shape):
    return f"{row.name}-{size}-{shape}".replace(" ", "")


def runs(bench):
    return min(bench.options.runs, RUNS)


def copy_figures(bench, process, file, size_bytes):
    """The speed of bare TCP: one connection, each byte read and thrown away."""
    command = [
        "taskset",
        "--cpu-list",
        bench.GENERATOR_CPU,
        *bench.command("transfer", "put", str(file), "--discard", "--address", process.address),
    ]
    before = time.monotonic()
    subprocess.run(command, check=True)
    return {"mb_per_s": size_bytes / (time.monotonic() - before) / 1e6}


def put_figures(bench, process, size_bytes, connections, in_flight, seed, warm_up_ms=None):
    options = [
        "--mix",
        "put=100",
        "--keys",
        str(KEYS),
        "--value-size",
        str(size_bytes),
        "--threads",
        "1",
        "--seed",
        str(seed),
    ]
    options += ["--connections", str(connections), "--in-flight", str(in_flight)]
    least_ms = (
        bench.options.duration_ms
        if bench.options.quick
        else max(bench.options.duration_ms, LEAST_MS)
    )
    least_ms = max(
        least_ms, TIMES * connections * in_flight * size_bytes // (LEAST_MB_PER_S * 1000)
    )
    figures = load_rows.load(bench, process, *options, duration_ms=least_ms, warm_up_ms=warm_up_ms)
    figures["mb_per_s"] = figures["calls_per_s"] * size_bytes / 1e6
    return figures


def cells(bench):
    quick = bench.options.quick
    sizes = {size: SIZES[size] for size in QUICK_SIZES} if quick else SIZES
    shapes = {shape: SHAPES[shape] for shape in QUICK_SHAPES} if quick else SHAPES
    return [
        (size, size_bytes, shape, counts)
        for size, size_bytes in sizes.items()
        for shape, counts in shapes.items()
    ]


@contextlib.contextmanager
def bare_copy(bench):
    """A function that measures the copy anew each time, beside whatever is measured."""
    size_bytes = COPY_BYTES // 16 if bench.options.quick else COPY_BYTES
    file = bench.folder / "copied"
    with open(file, "wb") as filled:
        filled.truncate(size_bytes)
    with contextlib.closing(
        bench.start_program("transfer", "serve", "--folder", str(bench.folder))
    ) as process:
        yield lambda: copy_figures(bench, process, file, size_bytes)


def measure_volatile(bench, row):
    with contextlib.ExitStack() as stack:
        copy = stack.enter_context(bare_copy(bench))
        process = stack.enter_context(
            contextlib.closing(bench.start("pelton", "volatile", None, "--max-value", MAX_VALUE))
        )
        for run in range(runs(bench)):
            for size, value_bytes, shape, counts in cells(bench):
                copied = copy()
                figures = put_figures(bench, process, value_bytes, *counts, seed=run + 1)
                figures["share_of_bare"] = figures["mb_per_s"] / copied["mb_per_s"]
                bench.record(row._replace(name=name_of(row, size, shape)), "bare", copied)
                bench.record(row._replace(name=name_of(row, size, shape)), "pelton", figures)


def measure_synced(bench, row):
    """One server for all cells of a run: its log has been around before the first one, so its files
    are used again, as on any server that has run for a while."""
    with bare_copy(bench) as copy:
        for run in range(runs(bench)):
            with bench.fresh_folder() as folder:
                data = folder / "data"
                server = bench.start("pelton", "synced", data, "--max-value", MAX_VALUE)
                with contextlib.closing(server) as process:
                    go_round(bench, process)
                    for size, value_bytes, shape, counts in cells(bench):
                        cell = row._replace(name=name_of(row, size, shape))
                        synced_cell(bench, cell, process, data, value_bytes, counts, run, copy)


def go_round(bench, process):
    """Has as much written as the log keeps of large values, several times."""
    warm_up_ms = bench.options.warm_up_ms if bench.options.quick else SYNCED_WARM_UP_MS
    put_figures(bench, process, MIB, 8, 4, seed=99, warm_up_ms=warm_up_ms)


def synced_cell(bench, row, process, data, value_bytes, counts, run, copy):
    """One size and shape, then its groups on a bare log, and the copy."""
    from_ms = time.time() * 1e3 + bench.options.warm_up_ms
    figures = put_figures(bench, process, value_bytes, *counts, seed=run + 1)
    # As much of it as the log still has.
    figures |= {"from_wall_ms": from_ms, "to_wall_ms": time.time() * 1e3}
    with linked_log(bench, data) as linked:
        groups = durable_rows.logged_groups(bench, linked, figures)
    if len(groups) < 2:
        return
    elapsed_s = max(groups[-1][0] - groups[0][0], 1) / 1e3
    # The moments are those at which a group was begun: the last one's time is not among them.
    sizes = [size_bytes for _, size_bytes, _ in groups[:-1]]
    log_mb_per_s = sum(sizes) / durable_rows.bare_log_figures(bench, sizes)["elapsed_s"] / 1e6
    copy_mb_per_s = copy()["mb_per_s"]
    both_mb_per_s = 1 / (1 / log_mb_per_s + 1 / copy_mb_per_s)
    logged_mb_per_s = sum(sizes) / elapsed_s / 1e6
    figures["share_of_bare"] = logged_mb_per_s / log_mb_per_s
    figures["share_of_both"] = logged_mb_per_s / both_mb_per_s
    bench.record(row, "pelton", figures)
    bench.record(row, "bare", {"mb_per_s": log_mb_per_s, "copy_mb_per_s": copy_mb_per_s})


@contextlib.contextmanager
def linked_log(bench, data):
    """The files of a log that is in use, under other names: its folder is the server's."""
    with bench.fresh_folder() as folder:
        linked = folder / "linked"
        linked.mkdir()
        for file in sorted(data.iterdir()):
            if file.suffix in (".log", ".snapshot") or file.name == "pelton-data":
                # A snapshot that ends just now renames files.
                with contextlib.suppress(FileNotFoundError):
                    os.link(file, linked / file.name)
        yield linked


def measure_threads(bench, row):
    """Get and synced Put, 16 connections × 16 in flight, the server with more threads and always on
    its one CPU."""
    for run in range(runs(bench)):
        for threads in THREADS:
            for what in ("get", "put"):
                with bench.fresh_folder() as folder:
                    command = bench.serve_command("synced", folder / "data")
                    command[command.index("--threads") + 1] = str(threads)
                    with contextlib.closing(bench.start_command("pelton", command)) as process:
                        bench.load(process)
                        figures = bench.timed(
                            what,
                            process,
                            "--keys",
                            str(bench.KEYS),
                            "--connections",
                            "16",
                            "--in-flight",
                            "16",
                            seed=run + 1,
                        )
                bench.record(row._replace(name=f"{row.name}-{what}-{threads}"), "pelton", figures)


# --------------------------------------------------------------------------------------------------
# The page


def tables(bench, rows, median, spread):
    parts = [
        message_table(bench, row, median, spread) for row in rows if row.name.startswith("large-")
    ]
    parts += [threads_table(bench, row, median, spread) for row in rows if row.name == "threads"]
    return "\n\n".join(part for part in parts if part)


def message_table(bench, row, median, spread):
    lines = [f"| {row.text} | {' | '.join(SHAPES)} |", f"|---|{'---|' * len(SHAPES)}"]
    for size in SIZES:
        shown = []
        for shape in SHAPES:
            name = name_of(row, size, shape)
            speed, *shares = (
                median(bench, name, "pelton", key)
                for key in ("mb_per_s", "share_of_bare", "share_of_both")
            )
            shares = " / ".join(f"{share:.2f}" for share in shares if share is not None)
            shown.append(f"{speed:.0f} MB/s, {shares}" if shares else "–")
        if set(shown) != {"–"}:
            lines.append(f"| {size} | {' | '.join(shown)} |")
    return "\n".join(lines) if len(lines) > 2 else ""


def threads_table(bench, row, median, spread):
    lines = [
        f"| {row.text} | {' | '.join(f'{threads} threads' for threads in THREADS)} |",
        f"|---|{'---|' * len(THREADS)}",
    ]
    for what, text in (("get", "Get"), ("put", "synced Put")):
        names = [f"{row.name}-{what}-{threads}" for threads in THREADS]
        if median(bench, names[0], "pelton", "server_us") is not None:
            lines.append(
                f"| {text} | "
                f"{' | '.join(spread(bench, name, 'pelton', 'server_us', 2) for name in names)} |"
            )
    return "\n".join(lines) if len(lines) > 2 else ""


def goals(bench, rows, median, goal_line):
    lines = []
    for row in rows:
        for key, beside in (("share_of_bare", ""), ("share_of_both", ", both in turn")):
            shares = [
                median(bench, name_of(row, size, shape), "pelton", key)
                for size in SIZES
                for shape in SHAPES
            ]
            shares = [share for share in shares if share is not None]
            if shares:
                lines.append(
                    goal_line(
                        f"{row.text}{beside}: least of all cells",
                        min(shares),
                        GOAL,
                        "",
                        at_least=True,
                    )
                )
    return lines
