"""The rows of script/bench about databases on Cassandra: a gateway beside the driver called
directly, and one machine's own server beside gateways with one, two and three nodes. They are
measured only if they are named.

Gateway and driver send the same statements to the same node, in turn. The node has one CPU for
itself; on the other one is the gateway with the program that calls it, or the program that calls
the driver. What the gateway takes includes serving gRPC; the other program serves nobody.
"""

import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
JARS = pathlib.Path.home() / ".cache" / "pelton" / "cassandra-5.0.5"
PEER = "cassandra-direct"

DRIVER, NODES = "scale-driver", "scale-nodes"
PROMISES = ("linearizable", "quorum")
METHODS = {"get": "Get", "put": "Put"}
IN_FLIGHT = (1, 32, 256)
# As peers/cassandra-direct has it.
BUCKETS = 256
KEYS = 10_000
# Batches of 100 keys each: nodes on a busy machine do not carry out thousands of conditional writes
# at once in time.
FILL_IN_FLIGHT = 4
THREADS = 2
# The CPU that a gateway may take of that of the driver alone, and the calls that it must bring.
CPU_GOAL, RATE_GOAL = 1.3, 0.9
NODE_COUNTS = (1, 2, 3)


def rows_of(make):
    """The rows, made by the type that script/bench has for them."""
    return [
        make(DRIVER, "a gateway beside the driver", measure_driver),
        make(NODES, "one machine beside nodes", measure_nodes),
    ]


# --------------------------------------------------------------------------------------------------
# Nodes and gateways


def cluster_node():
    """The type that starts nodes for the tests."""
    sys.path.insert(0, str(ROOT / "tests" / "support"))
    from cluster_node import ClusterNode

    return ClusterNode


@contextlib.contextmanager
def on_cpus(cpus):
    """What is started meanwhile has these CPUs."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextlib.contextmanager
def running_nodes(bench, count, cpus):
    jars = pathlib.Path(os.environ.get("PELTON_CASSANDRA_JARS", JARS))
    if not jars.is_dir():
        sys.exit("script/bench: no jars of Cassandra: `script/test cassandra` brings them")
    start = cluster_node()
    ports = (bench.free_port(), bench.free_port())
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(bench.fresh_folder())
        nodes = []
        for number in range(1, count + 1):
            place = folder / str(number)
            place.mkdir()
            with on_cpus(cpus):
                nodes.append(stack.enter_context(start(jars, place, number, ports)))
        yield nodes


@contextlib.contextmanager
def running_gateway(bench, nodes, promise, pinned):
    """A gateway to a keyspace of its own, with the usual keys."""
    contact = ",".join(node.address for node in nodes)
    place = ["--contact", contact, "--keyspace", f"bench_{promise}"]
    shape = ["--replicas", str(len(nodes)), "--promise", promise, "--buckets", str(BUCKETS)]
    subprocess.run(
        bench.command("pelton", "store", "init", *place, *shape),
        check=True,
        stdout=subprocess.DEVNULL,
    )
    serve = ["serve", "--listen", "127.0.0.1:0", "--threads", "1", "--store", "cassandra", *place]
    serve += ["--store-timeout", "60s"]
    process = bench.start_command("pelton", bench.command("pelton", *serve), pinned)
    with contextlib.closing(process):
        fill = ("--fill", "--calls", str(KEYS), "--warm-up", "0s")
        load(bench, process, FILL_IN_FLIGHT, *fill, cpu=all_cpus())
        yield process


def all_cpus():
    return ",".join(map(str, sorted(os.sched_getaffinity(0))))


# --------------------------------------------------------------------------------------------------
# Measuring


def load(bench, process, in_flight, *words, cpu):
    """One run of `pelton load` on one connection; its figures."""
    line = ["taskset", "--cpu-list", cpu, bench.paths["pelton"], "load", "--database="]
    line += ["--address", process.address, "--server-pid", str(process.pid), "--keys", str(KEYS)]
    line += ["--threads", "1", "--connections", "1", "--in-flight", str(in_flight)]
    return figures_of([*line, "--output", "json", *words])


def direct(bench, node, face, in_flight, *, cpu):
    """One run of the driver alone."""
    seconds, warm_up = bench.options.duration_ms / 1e3, bench.options.warm_up_ms / 1e3
    line = ["taskset", "--cpu-list", cpu, bench.paths[PEER], "--address", node.address]
    line += ["--face", face, "--in-flight", str(in_flight), "--keys", str(KEYS)]
    line += ["--threads", str(THREADS), "--warm-up", str(warm_up), "--seconds", str(seconds)]
    return figures_of(line)


def figures_of(line):
    result = subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    figures = json.loads(result.stdout) if result.stdout else {"failures": result.stderr}
    if figures.get("failures") or figures.get("failed"):
        words = " ".join(map(str, line))
        sys.exit(f"script/bench: calls failed: {words}: {result.stdout}{result.stderr}")
    return figures


def need_peer(bench):
    if PEER in bench.paths:
        return
    target = bench.target_folder() / "peers"
    manifest = ROOT / "peers" / PEER / "Cargo.toml"
    build = ["cargo", "build", "--quiet", "--locked", "--release", "--target-dir", str(target)]
    subprocess.run([*build, "--manifest-path", str(manifest)], check=True)
    bench.paths[PEER] = str(target / "release" / PEER)


def measure_driver(bench, row):
    """Pairs of runs, each time in the other order."""
    need_peer(bench)
    own, other = ("0", "1")
    with running_nodes(bench, 1, {int(other)}) as [node]:
        for promise in PROMISES:
            with running_gateway(bench, [node], promise, pinned=True) as process:
                for run in range(bench.options.runs):
                    for method in METHODS:
                        for in_flight in IN_FLIGHT:
                            shape = (promise, method, in_flight)
                            pair = measure_pair(bench, process, node, shape, run, own)
                            bench.record(row, cell(*shape), pair)


def measure_pair(bench, process, node, shape, run, cpu):
    promise, method, in_flight = shape
    words = ("--mix", f"{method}=100", "--seed", str(run + 1), *bench.pelton_lengths())
    measures = [
        ("gateway", lambda: load(bench, process, in_flight, *words, cpu=cpu)),
        ("driver", lambda: direct(bench, node, f"{promise}-{method}", in_flight, cpu=cpu)),
    ]
    pair = {name: measure() for name, measure in measures[:: -1 if run % 2 else 1]}
    gateway, driver = pair["gateway"], pair["driver"]
    return {
        "calls_per_s": gateway["calls_per_s"],
        "driver_calls_per_s": driver["calls_per_s"],
        "rate": gateway["calls_per_s"] / driver["calls_per_s"],
        "server_us": gateway["server_us"],
        "driver_us": driver["own_us"],
        "cpu": gateway["server_us"] / driver["own_us"],
        "p50_us": gateway["p50_us"],
        "driver_p50_us": driver["p50_us"],
    }


def measure_nodes(bench, row):
    """Each server in turn, on all CPUs, with the program that calls it."""
    for name, flags in OWN_SERVERS.items():
        with bench.fresh_folder() as folder:
            command = bench.serve_command("synced", folder / "data", *flags)
            process = bench.start_command("pelton", command, pinned=False)
            with contextlib.closing(process):
                fill = ("--fill", "--calls", str(KEYS), "--warm-up", "0s")
                load(bench, process, FILL_IN_FLIGHT, *fill, cpu=all_cpus())
                measure_one(bench, row, name, process)
    for count in NODE_COUNTS:
        with running_nodes(bench, count, os.sched_getaffinity(0)) as nodes:
            for promise in PROMISES:
                with running_gateway(bench, nodes, promise, pinned=False) as process:
                    measure_one(bench, row, f"{count}-{promise}", process)


def measure_one(bench, row, name, process):
    for run in range(bench.options.runs):
        for method in METHODS:
            for in_flight in IN_FLIGHT:
                words = ("--mix", f"{method}=100", "--seed", str(run + 1), *bench.pelton_lengths())
                figures = load(bench, process, in_flight, *words, cpu=all_cpus())
                bench.record(row, f"{name}-{method}-{in_flight}", figures)


OWN_SERVERS = {"memory": (), "disk": ("--kind", "disk")}
SERVER_TEXTS = {
    "memory": "own server, memory, `synced`",
    "disk": "own server, disk, `synced`",
} | {
    f"{count}-{promise}": f"gateway, {count} node{'s' if count > 1 else ''}, `{promise}`"
    for promise in PROMISES
    for count in NODE_COUNTS
}


# --------------------------------------------------------------------------------------------------
# The page


def cell(promise, method, in_flight):
    return f"{promise}-{method}-{in_flight}"


def values(bench, row, name, key):
    return [figures[key] for figures in bench.results.get((row, name), []) if key in figures]


def shown(found, digits=0):
    """`median (smallest–largest)`."""
    if not found:
        return "–"
    texts = [
        f"{value:,.{digits}f}".replace(",", " ")
        for value in (statistics.median(found), min(found), max(found))
    ]
    return f"{texts[0]} ({texts[1]}–{texts[2]})"


DRIVER_TEXT = (
    "One gateway to one node (one event loop, two threads of the driver) beside a program that "
    "sends the same statements by the same driver, with the policies that it has by default, on "
    "two threads. In each pair of runs one follows the other. The node has CPU 1; gateway and "
    "generator, or the program, have CPU 0. The CPU of the gateway includes serving gRPC: it reads "
    "requests from a socket and writes responses to it, while the program serves nobody. What the "
    "generator takes is not counted. 10 000 keys. The node has 512 MiB of heap and syncs its "
    "commit log before it acknowledges a write."
)
NODES_TEXT = (
    "All on the two CPUs of one machine: the nodes share them with each other, the gateway and the "
    "generator. More nodes bring no more CPU here, and each write is carried out by all of them; "
    "so this shows what replication costs, and not what more machines bring. Calls a second:"
)


def driver_table(bench):
    lines = [
        "| promise, call, in flight | gateway, calls/s | driver, calls/s | share | "
        "gateway, CPU µs | driver, CPU µs | times | p50 µs, gateway / driver |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for promise in PROMISES:
        for method, text in METHODS.items():
            for in_flight in IN_FLIGHT:
                name = cell(promise, method, in_flight)

                def of(key, digits=0, name=name):
                    return shown(values(bench, DRIVER, name, key), digits)

                waits = [
                    statistics.median(values(bench, DRIVER, name, key) or [0])
                    for key in ("p50_us", "driver_p50_us")
                ]
                lines.append(
                    f"| `{promise}`, {text}, {in_flight} | {of('calls_per_s')} | "
                    f"{of('driver_calls_per_s')} | {of('rate', 2)} | {of('server_us')} | "
                    f"{of('driver_us')} | {of('cpu', 2)} | {waits[0]:.0f} / {waits[1]:.0f} |"
                )
    return "\n".join(lines)


def driver_goals(bench, goal_line):
    lines = ["| goal | bound | measured | met |", "|---|---|---|---|"]
    for promise in PROMISES:
        for method, text in METHODS.items():
            for in_flight in IN_FLIGHT:
                name = cell(promise, method, in_flight)
                if not (rates := values(bench, DRIVER, name, "rate")):
                    continue
                times = statistics.median(values(bench, DRIVER, name, "cpu"))
                of = f"`{promise}`, {text}, {in_flight} in flight"
                lines.append(goal_line(f"{of}: CPU of the driver's", times, CPU_GOAL, "×"))
                rate = statistics.median(rates)
                lines.append(goal_line(f"{of}: its calls/s", rate, RATE_GOAL, "×", at_least=True))
    return "\n".join(lines)


def nodes_table(bench):
    columns = [(method, in_flight) for method in METHODS for in_flight in IN_FLIGHT]
    head = " | ".join(f"{METHODS[method]}, {in_flight} in flight" for method, in_flight in columns)
    lines = [f"| server | {head} |", f"|---|{'---|' * len(columns)}"]
    for name, text in SERVER_TEXTS.items():
        cells = [
            shown(values(bench, NODES, f"{name}-{method}-{in_flight}", "calls_per_s"))
            for method, in_flight in columns
        ]
        lines.append(f"| {text} | {' | '.join(cells)} |")
    return "\n".join(lines)


def section(bench, conditions, goal_line):
    """The chapter, of what was measured of it; empty if nothing was."""
    names = {key[0] for key in bench.results}
    parts = []
    if DRIVER in names:
        parts += [DRIVER_TEXT, driver_table(bench), driver_goals(bench, goal_line)]
    if NODES in names:
        parts += [NODES_TEXT, nodes_table(bench)]
    return "\n\n".join([conditions, *parts]) if parts else ""
