"""The row of script/bench about calls in flight: n and twice as many, one after the other.

The goal of Pelton's client is that more calls in flight never bring less. In a table that takes an
hour, two neighbours are far apart in time, and a machine that others share is not the same for
both. Here they follow each other, again and again, and the median of their shares counts.
"""

import contextlib
import statistics

import client_rows

NAME = "doubling"
SERIES = ("pelton-1", "pool-local", "pool-futures")
PAIRS = 9


def rows_of(row_type):
    return [row_type(NAME, "Get, n and 2n in flight in turn", measure_pairs, ("get",))]


def steps(bench):
    return client_rows.IN_FLIGHT[:1] if bench.options.quick else client_rows.IN_FLIGHT[:-1]


def all_series():
    return [series for series in client_rows.SERIES if series.name in SERIES]


def measure_pairs(bench, row):
    """Both of a pair, for each number in flight and each client."""
    [method] = row.options
    client_rows.need_peers(bench)
    with contextlib.closing(bench.start("pelton")) as process:
        bench.pelton_load(process, "--fill", "--calls", "1000", "--warm-up", "0s")
        for _ in range(1 if bench.options.quick else PAIRS):
            for in_flight in steps(bench):
                for series in all_series():
                    if bench.has(series.program):
                        pair = [
                            client_rows.client_figures(bench, process, series, method, count)
                            for count in (in_flight, 2 * in_flight)
                        ]
                        bench.record(cell_row(row, in_flight), series.name, figures_of(pair))


def cell_row(row, in_flight):
    return row._replace(name=f"{NAME}-{in_flight}")


def figures_of(pair):
    fewer, more = pair
    if any("calls_per_s" not in figures or figures.get("failures") for figures in pair):
        return {"failures": 1}
    return {
        "calls_per_s": more["calls_per_s"],
        "share": more["calls_per_s"] / fewer["calls_per_s"],
    }


def shares(bench, in_flight, series):
    cell = bench.results.get((f"{NAME}-{in_flight}", series.name), [])
    return [figures["share"] for figures in cell if "share" in figures]


def section(bench, conditions, goal_line):
    """All of it; nothing, if nothing was measured."""
    shown = [series for series in all_series() if shares(bench, 1, series)]
    if not shown:
        return ""
    lines = [
        f"| from n to 2n in flight | {' | '.join(series.text for series in shown)} |",
        f"|---|{'---|' * len(shown)}",
    ]
    least = {series.name: [] for series in shown}
    for in_flight in steps(bench):
        cells = []
        for series in shown:
            found = shares(bench, in_flight, series)
            least[series.name].append(statistics.median(found))
            cells.append(f"× {statistics.median(found):.2f} ({min(found):.2f}–{max(found):.2f})")
        lines.append(f"| {in_flight} to {2 * in_flight} | {' | '.join(cells)} |")
    goals = ["| goal | bound | measured | met |", "|---|---|---|---|"]
    for series in shown:
        text = f"Get, {series.text}: least share of the calls/s at half as many"
        value = min(least[series.name])
        goals.append(goal_line(text, value, client_rows.GOAL, "", at_least=True))
    return "\n\n".join([conditions, "\n".join(lines), "\n".join(goals)])
