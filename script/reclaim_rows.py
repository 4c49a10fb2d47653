"""The row of script/bench about what is in the way of synced writes: a large database that is
dropped or converted.

Puts into a small database go on at a steady rate, in pieces, until that is done and what was there
is freed. What counts is the longest of all Puts, beside the longest with nothing else going on for
as long.
"""

import contextlib
import subprocess
import threading
import time
import urllib.request

import load_rows

ENTRIES, QUICK_ENTRIES = 10_000_000, 200_000
PUT_RATE = 500
PIECE_MS, QUICK_PIECE_MS = 2_000, 500
# What is freed is freed by then, or the run is void.
FREED_SECONDS = 120
GOAL_MS = 20

# No client can clear a database.
ACTIONS = {
    "to-disk": ("convert from memory to disk", ["database", "convert", "--kind", "disk"]),
    "to-memory": ("convert from disk to memory", ["database", "convert", "--kind", "memory"]),
    "drop-memory": ("drop, in memory", ["database", "drop", "--with-content"]),
    "drop-disk": ("drop, on disk", ["database", "drop", "--with-content"]),
}


def measure_reclaim(bench, row):
    """Every action on a database that was filled for it, and a while with none."""
    entries = QUICK_ENTRIES if bench.options.quick else ENTRIES
    with bench.fresh_folder() as folder:
        metrics = f"127.0.0.1:{bench.free_port()}"
        server = bench.start("pelton", "synced", folder / "data", "--metrics-listen", metrics)
        with contextlib.closing(server):
            bench.record(row, "alone", puts_until(bench, server, lambda: True, least_pieces=4))
            for action, (_, arguments) in ACTIONS.items():
                kind = "disk" if action in ("to-memory", "drop-disk") else "memory"
                name = f"large-{action}"
                run(
                    bench,
                    server,
                    "database",
                    "create",
                    name,
                    "--kind",
                    kind,
                    "--durability",
                    "written",
                )
                fill = [
                    "--database",
                    name,
                    "--keys",
                    str(entries),
                    "--batch",
                    "500",
                    "--connections",
                    "2",
                    "--fill",
                ]
                load_rows.load(bench, server, *fill)
                if kind == "disk":
                    time.sleep(1)
                bench.record(
                    row,
                    action,
                    beside(bench, server, metrics, [*arguments[:2], name, *arguments[2:]]),
                )
                if "drop" not in action:
                    run(bench, server, "database", "drop", name, "--with-content")
                    wait_until_freed(metrics)


def run(bench, server, *arguments):
    command = bench.command("pelton", *arguments, "--address", server.address)
    subprocess.run(command, capture_output=True, text=True, check=True)


def beside(bench, server, metrics, arguments):
    """Puts while a command runs, and until what it leaves is freed."""
    outcome = {}

    def act():
        command = bench.command(
            "pelton", *arguments, "--address", server.address, "--timeout", "600s"
        )
        begun = time.monotonic()
        result = subprocess.run(command, capture_output=True, text=True)
        outcome["took_s"] = time.monotonic() - begun
        if result.returncode != 0:
            outcome["void"] = f"it has failed: {result.stderr.strip()}"
        elif not wait_until_freed(metrics):
            outcome["void"] = f"something is not freed after {FREED_SECONDS} s"
        outcome["freed_s"] = time.monotonic() - begun

    acting = threading.Thread(target=act)
    figures = puts_until(
        bench, server, lambda: not acting.is_alive(), least_pieces=2, begin=acting.start
    )
    acting.join()
    return figures | outcome


def puts_until(bench, server, is_over, least_pieces, begin=None):
    """Puts, in pieces, until something is over: the longest of all, and how many there were."""
    length_ms = QUICK_PIECE_MS if bench.options.quick else PIECE_MS
    options = ["--mix", "put=100", "--keys", "1000", "--connections", "1", "--rate", str(PUT_RATE)]
    calls, longest_us, p99_us, pieces = 0, 0, 0, 0
    if begin:
        begin()
    while pieces < least_pieces or not is_over():
        figures = load_rows.load(bench, server, *options, duration_ms=length_ms, warm_up_ms=100)
        calls += figures.get("calls", 0)
        longest_us = max(longest_us, figures["longest_us"])
        p99_us = max(p99_us, figures["p99_us"])
        pieces += 1
    return {"calls": calls, "pieces": pieces, "longest_us": longest_us, "p99_us": p99_us}


def wait_until_freed(metrics):
    """Whether nothing waits to be freed any more, after a while at most."""
    for _ in range(FREED_SECONDS * 10):
        with urllib.request.urlopen(f"http://{metrics}/metrics") as answer:
            page = answer.read().decode()
        values = [
            line.split()[1]
            for line in page.splitlines()
            if line.startswith("pelton_reclaiming_entries ")
        ]
        if values == ["0"]:
            return True
        time.sleep(0.1)
    return False


def void_reason(figures):
    """Why a run says nothing; empty: it does."""
    return figures.get("void", "")


def table(bench):
    if not bench.results.get(("reclaim", "alone")):
        return ""
    entries = QUICK_ENTRIES if bench.options.quick else ENTRIES
    lines = [
        f"| synced Put, {PUT_RATE} a second, beside | p99 µs, worst piece | longest ms | it took "
        "s | freed after s |",
        "|---|---|---|---|---|",
    ]
    shown = {
        "alone": "nothing else",
        **{action: f"{text}: {entries:,} entries" for action, (text, _) in ACTIONS.items()},
    }
    for subject, text in shown.items():
        for figures in bench.results.get(("reclaim", subject), []):
            times = [
                f"{figures[key]:.1f}" if key in figures else "–" for key in ("took_s", "freed_s")
            ]
            cells = [text, f"{figures['p99_us']:.0f}", f"{figures['longest_us'] / 1e3:.1f}", *times]
            if reason := void_reason(figures):
                cells = [text, "VOID", f"VOID: {reason}", *times]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def goals(bench, goal_line):
    results = [bench.results.get(("reclaim", action), []) for action in ACTIONS]
    figures = [one for some in results for one in some if not void_reason(one)]
    if not figures:
        return []
    longest_ms = max(one["longest_us"] for one in figures) / 1e3
    return [
        goal_line(
            "synced Put while a large database is dropped or converted: longest",
            longest_ms,
            GOAL_MS,
            "ms",
        )
    ]
