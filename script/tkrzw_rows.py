"""The rows of script/bench about Tkrzw-RPC: the table that its author has published, with our two
drivers in the places of his two servers, and what the goals for it are about. They are measured
only if they are named."""

import collections
import contextlib
import os
import statistics
import subprocess

# Of a key and of a value in the published table, in bytes.
VALUE_BYTES = 8
KEYS_IN_ORDER = ("--key-form", "digits", "--keys", "1000000", "--value-bytes", str(VALUE_BYTES))
# As many as no run writes: all keys are new.
NEW_KEYS = ("--keys", "90000000", "--value-bytes", str(VALUE_BYTES))

CLIENTS = (1, 2, 4)
Driver = collections.namedtuple("Driver", "name text threads flags")
# The author's synchronous server had four threads.
DRIVERS = [
    Driver("sync", "sync", 4, ("--threads", "4")),
    *(
        Driver(f"async{count}", f"async {count}", count, ("--async", "--threads", str(count)))
        for count in (1, 2, 4)
    ),
]
# What is called, with the probe's words, and how many records a call has.
Kind = collections.namedtuple("Kind", "name text words records")
KINDS = [
    Kind("echo", "Echo", ("tkrzw-echo", "--value-bytes", str(VALUE_BYTES)), 1),
    Kind("set", "Set", ("tkrzw-set", *KEYS_IN_ORDER), 1),
    Kind("stream", "Set, stream", ("tkrzw-stream", *KEYS_IN_ORDER), 1),
    Kind("multi10", "Set, batch of 10", ("tkrzw-multi", "--records", "10", *KEYS_IN_ORDER), 10),
    Kind("multi100", "Set, batch of 100", ("tkrzw-multi", "--records", "100", *KEYS_IN_ORDER), 100),
    Kind(
        "silent",
        "Set, stream without answers",
        ("tkrzw-stream", "--omit-responses", *KEYS_IN_ORDER),
        1,
    ),
]

# Without answers no client waits for one: what more of them would show is the generator.
SILENT_CLIENTS = (1,)

# The same shape for each, so that they can be compared: one connection × 100 in flight.
USUAL = ("--keys", "100000", "--value-bytes", "32")
ONE_BY_ONE = ("--connections", "1", "--in-flight", "100")
BATCH = ("tkrzw-multi", "--records", "100", "--in-flight", "4", *NEW_KEYS)
Cost = collections.namedtuple(
    "Cost", "name text server words records is_scanned", defaults=(1, False)
)
COSTS = [
    Cost("put", "Put of `pelton.v1`", "pelton", ("put", *USUAL, *ONE_BY_ONE)),
    Cost("set", "Set", "tkrzw", ("tkrzw-set", *USUAL, *ONE_BY_ONE)),
    Cost("stream", "Set, stream", "tkrzw", ("tkrzw-stream", *USUAL, *ONE_BY_ONE)),
    Cost(
        "silent",
        "Set, stream without answers",
        "tkrzw",
        ("tkrzw-stream", *USUAL, "--omit-responses"),
    ),
    *(
        Cost(name, text, "tkrzw", (*BATCH, "--key-form", form), 100, is_scanned)
        for name, text, form, is_scanned in (
            ("new", "SetMulti of 100 new keys, in order", "digits", False),
            ("new-random", "the same, in no order", "spread", False),
            ("new-scanned", "new keys in order, after a scan", "digits", True),
            ("new-random-scanned", "the same, in no order", "spread", True),
        )
    ),
]


def server_cpus():
    """The server has one CPU, and the generator one."""
    return 1 if os.cpu_count() < 3 else os.cpu_count() - 1


@contextlib.contextmanager
def tkrzw_server(bench, *words):
    command = bench.command("pelton", "tkrzw-server", "--address", "127.0.0.1:0", *words)
    with contextlib.closing(bench.start_command("tkrzw-server", command)) as process:
        yield process


def measure_table(bench, row):
    """All cells of a driver against one server, the drivers in turn."""
    for run in range(bench.options.runs):
        for driver in DRIVERS:
            with tkrzw_server(bench, *driver.flags) as process:
                for kind in KINDS:
                    for clients in SILENT_CLIENTS if kind.name == "silent" else CLIENTS:
                        command, *words = kind.words
                        shape = ("--connections", str(clients), "--in-flight", "1")
                        figures = bench.timed(command, process, *words, *shape, seed=run + 1)
                        cell = f"{driver.name}-{kind.name}-{clients}"
                        bench.record(row, cell, per_record(figures, kind.records))


def measure_costs(bench, row):
    """Server CPU, each with a server of its own: new keys are new."""
    for run in range(bench.options.runs):
        for cost in COSTS:
            command, *words = cost.words
            with contextlib.ExitStack() as stack:
                if cost.server == "pelton":
                    process = stack.enter_context(contextlib.closing(bench.start("pelton")))
                else:
                    server = tkrzw_server(bench, "--async", "#dbm=tree")
                    process = stack.enter_context(server)
                if cost.is_scanned:
                    put_in_order(bench, process)
                figures = bench.timed(command, process, *words, seed=run + 1)
            bench.record(row, cost.name, per_record(figures, cost.records))


def put_in_order(bench, process):
    """Has a database with a few keys scanned: from then on it keeps its keys in order."""
    bench.probe("put", process, "--keys", "1000", "--calls", "1000")
    command = bench.command("pelton", "scan", "--address", process.address, "--limit", "1")
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def per_record(figures, records):
    """The figures of records, of which a call may have several."""
    return {
        **figures,
        "records_per_s": figures["calls_per_s"] * records,
        "server_us": figures["server_us"] / records,
        "own_us": figures["own_us"] / records,
    }


TABLE_TEXT = (
    f"Keys and values of {VALUE_BYTES} bytes, a database in memory, each client one call at a "
    "time: records a second for each driver with its threads × clients. The table is that of the "
    "author of Tkrzw-RPC (2021, four CPUs); sync is our blocking driver with `--threads 4`, async "
    "the event loop. In brackets: more threads could compute than the server has CPUs here "
    f"({server_cpus()}), so that such a cell shows what they cost each other."
)
COST_TEXT = (
    "What a record costs the server, with 100 in flight on one connection, of batches four; stream "
    "without answers: as fast as they go. A database in memory keeps its keys in order from the "
    "first scan on, and before that not at all: the last two rows are those that were scanned."
)


def rows_of(make):
    """The rows, made by the type that script/bench has for them."""
    return [
        make("tkrzw-table", "the published table", measure_table),
        make("tkrzw-costs", "server CPU", measure_costs),
    ]


def middle(bench, row, cell, key):
    found = [figures[key] for figures in bench.results.get((row, cell), [])]
    return statistics.median(found) if found else None


def is_shown(driver, clients):
    """Whether as much can compute at once as with so many CPUs as there are threads."""
    return min(driver.threads, clients) <= server_cpus()


def rate(bench, driver, kind, clients):
    return middle(bench, "tkrzw-table", f"{driver.name}-{kind.name}-{clients}", "records_per_s")


def marked(text, driver, clients):
    return text if is_shown(driver, clients) else f"({text})"


def shown(value, driver, clients):
    if value is None:
        return "–"
    return marked(f"{value:,.0f}".replace(",", " "), driver, clients)


def percent(value, of, driver, clients):
    return "–" if not value or not of else marked(f"{100 * value / of:.0f} %", driver, clients)


def published_table(bench):
    columns = [(driver, clients) for driver in DRIVERS for clients in CLIENTS]
    head = " | ".join(f"{driver.text} × {clients}" for driver, clients in columns)
    lines = [f"| records a second | {head} |", f"|---|{'---|' * len(columns)}"]
    for kind in KINDS:
        cells = [shown(rate(bench, one, kind, clients), one, clients) for one, clients in columns]
        lines.append(f"| {kind.text} | {' | '.join(cells)} |")
    sync, columns = DRIVERS[0], columns[len(CLIENTS) :]
    head = " | ".join(f"{driver.text} × {clients}" for driver, clients in columns)
    lines += ["", f"| of sync | {head} |", f"|---|{'---|' * len(columns)}"]
    for kind in KINDS:
        cells = []
        for driver, clients in columns:
            of = rate(bench, sync, kind, clients)
            cells.append(percent(rate(bench, driver, kind, clients), of, driver, clients))
        lines.append(f"| {kind.text} | {' | '.join(cells)} |")
    return "\n".join(lines)


def cost_table(bench):
    lines = [
        "| call | server CPU, µs a record | records/s | generator CPU, µs a record |",
        "|---|---|---|---|",
    ]
    for cost in COSTS:
        runs = bench.results.get(("tkrzw-costs", cost.name), [])
        values = [figures["server_us"] for figures in runs]
        if values:
            spread = f"{statistics.median(values):.2f} ({min(values):.2f}–{max(values):.2f})"
            per_second = middle(bench, "tkrzw-costs", cost.name, "records_per_s")
            own = middle(bench, "tkrzw-costs", cost.name, "own_us")
            thousands = f"{per_second / 1e3:,.0f} k".replace(",", " ")
            lines.append(f"| {cost.text} | {spread} | {thousands} | {own:.2f} |")
    return "\n".join(lines)


def goal_table(bench, goal_line):
    def us(name):
        return middle(bench, "tkrzw-costs", name, "server_us")

    if None in [us(cost.name) for cost in COSTS]:
        return ""
    checks = [
        ("Set: share of a Put of our own", us("set") / us("put"), 1.2),
        ("streamed Set without answers: share of a unary one", us("silent") / us("set"), 0.5),
        (
            "record of a batch of 100 new keys in order: share of the same after a scan",
            us("new") / us("new-scanned"),
            1 / 3,
        ),
        ("the same of keys in no order", us("new-random") / us("new-random-scanned"), 1 / 3),
    ]
    lines = ["| goal, server CPU | at most | measured | met |", "|---|---|---|---|"]
    return "\n".join(lines + [goal_line(text, value, bound, "") for text, value, bound in checks])


def section(bench, rows, conditions, goal_line):
    """The chapter, of what was measured of it; empty if nothing was."""
    names = {key[0] for key in bench.results}
    parts = []
    if "tkrzw-table" in names:
        parts += [TABLE_TEXT, published_table(bench)]
    if "tkrzw-costs" in names:
        parts += [COST_TEXT, cost_table(bench), goal_table(bench, goal_line)]
    return "\n\n".join(part for part in (conditions, *parts) if part) if parts else ""
