"""The rows of script/bench about baidu_std and SRPC: an echo of 32 bytes by `pelton load`, over one
connection or many, beside the same over gRPC. They are measured only if they are named."""

import collections
import statistics

import load_rows

BYTES = 32
PARALLEL = (64, 128, 256, 512, 1024)

# What a server of ours allows at once on a connection of gRPC by default.
STREAMS = 100

# Calls of a run that has a new connection for each, and the time before it: each leaves a port that
# is not used again for a minute, and where few are left the system takes long to find one.
SHORT_CALLS = 2_000
SHORT_WARM_UP_MS = 20

Series = collections.namedtuple("Series", "name text options")


def single(parallel):
    return ("--mode", "single", "--connections", "1", "--in-flight", str(parallel))


def pooled(parallel):
    return ("--mode", "pooled", "--connections", str(parallel))


def short(parallel):
    return ("--mode", "short", "--connections", str(parallel), "--calls", str(SHORT_CALLS))


def streams(parallel):
    connections = -(-parallel // STREAMS)
    in_flight = -(-parallel // connections)
    return ("--mode", "single", "--connections", str(connections), "--in-flight", str(in_flight))


def eight(_):
    return ("--mode", "single", "--connections", "8", "--in-flight", "100")


SERIES = [
    Series("baidu_std-single", "baidu_std, `single`", ("baidu_std", single)),
    Series("baidu_std-pooled", "baidu_std, `pooled`", ("baidu_std", pooled)),
    Series("baidu_std-short", "baidu_std, `short`", ("baidu_std", short)),
    Series("srpc-pooled", "SRPC, `pooled`", ("srpc", pooled)),
    Series("grpc-single", "gRPC, as few connections as take them", ("grpc", streams)),
    Series("grpc-pooled", "gRPC, `pooled`", ("grpc", pooled)),
]
EIGHT_SERIES = [
    Series("baidu_std-8x100", "baidu_std", ("baidu_std", eight)),
    Series("grpc-8x100", "gRPC", ("grpc", eight)),
]


def measure(bench, row):
    """Each series in turn, against one server."""
    parallel, series = row.options
    process = bench.running("pelton")
    for _ in range(bench.options.runs):
        for one in series:
            protocol, options = one.options
            words = ("--protocol", protocol, "--echo", str(BYTES), *options(parallel))
            warm_up_ms = SHORT_WARM_UP_MS if options is short else None
            figures = load_rows.load(bench, process, *words, warm_up_ms=warm_up_ms)
            bench.record(row, one.name, figures)


def rows_of(make):
    """The rows, made by the type that script/bench has for them."""
    rows = [
        make(f"framed-{parallel}", f"{parallel} in parallel", measure, (parallel, SERIES))
        for parallel in PARALLEL
    ]
    return [*rows, make("framed-8x100", "8 × 100", measure, (800, EIGHT_SERIES))]


FIGURES = [
    ("calls/s", "calls_per_s", 0),
    ("mean, µs", "mean_us", 0),
    ("p99, µs", "p99_us", 0),
    ("server CPU, µs", "server_us", 2),
    ("generator CPU, µs", "own_us", 2),
    ("TCP segments out", "segments_out_per_call", 3),
    ("TCP segments in", "segments_in_per_call", 3),
]


def middle(bench, row, series, key):
    cell = bench.results.get((row.name, series.name), [])
    found = [figures[key] for figures in cell if figures.get(key) is not None]
    return statistics.median(found) if found else None


def shown(value, digits):
    return "–" if value is None else f"{value:,.{digits}f}".replace(",", " ")


def ratio(one, other, digits=2):
    return "–" if not one or not other else f"{one / other:.{digits}f}"


def table(bench, row):
    """A line for each series; the first one is what the others are compared with."""
    _, series = row.options
    first = middle(bench, row, series[0], "calls_per_s")
    first_cpu = middle(bench, row, series[0], "server_us")
    names = " | ".join(name for name, _, _ in FIGURES)
    lines = [
        f"| {row.text} | {names} | calls/s by the first | server CPU by the first |",
        f"|---|{'---|' * (len(FIGURES) + 2)}",
    ]
    for one in series:
        cells = [shown(middle(bench, row, one, key), digits) for _, key, digits in FIGURES]
        cells.append(ratio(middle(bench, row, one, "calls_per_s"), first))
        cells.append(ratio(middle(bench, row, one, "server_us"), first_cpu))
        lines.append(f"| {one.text} | {' | '.join(cells)} |")
    return "\n".join(lines)


def void_lines(bench, rows):
    """Runs in which the generator was the limit: their rates are its own."""
    lines = []
    for row in rows:
        for one in row.options[1]:
            cell = bench.results.get((row.name, one.name), [])
            count = sum(bool(figures.get("void")) for figures in cell)
            if count:
                lines.append(
                    f"- {row.text}, {one.text}: the generator was the limit in {count} of "
                    f"{len(cell)} runs"
                )
    return lines


def section(bench, rows, conditions):
    """The chapter, of what was measured of it; empty if nothing was."""
    rows = [row for row in rows if any(key[0] == row.name for key in bench.results)]
    if not rows:
        return ""
    head = (
        f"{conditions}\n\nEcho of {BYTES} bytes by `pelton load`, over one connection (`single`), "
        "one for each call at a time (`pooled`) and one for each call (`short`). Segments and CPU "
        "times are those of a call."
    )
    tables = [table(bench, row) for row in rows]
    notes = "\n".join(void_lines(bench, rows))
    return "\n\n".join(part for part in (head, *tables, notes) if part)
