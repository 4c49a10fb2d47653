"""The rows of script/bench about clients: gRPC C++, grpc-go and tonic beside Pelton's, all of them
against one Pelton server.

A closed loop of small unary calls, from one in flight to 4096, over one channel and over several.
gRPC C++ folds channels with the same arguments into one connection, so that there are two kinds of
several. The server has one CPU, each client the other. The clients are in peers/, with one set of
flags and one form of result; `pelton load` is Pelton's.
"""

import collections
import contextlib
import json
import os
import pathlib
import shutil
import socket
import statistics
import struct
import subprocess
import time

IN_FLIGHT = [1 << power for power in range(13)]
# Two for a share, and as many as end some calls in the shortest run on a busy machine too.
QUICK_IN_FLIGHT = (1, 2, 64)
CHANNELS = 8
GOAL = 0.97
# With so many in flight the CPU time a call of a pool is compared with that of `pelton load`, and
# the calls a second of two threads with those of one.
COMPARED_IN_FLIGHT = 128
CPU_GOAL = 1.3
TWO_THREADS_GOAL = 0.9
# Beyond its own time, a client takes so long at most to connect and to let its last calls end.
EXTRA_S = 30
# When the sockets are looked at, in parts of the measured time: within it, whatever time a client
# takes to start.
LOOKED_AT = (0.25, 0.75)

# A run beside which other programs took more of both CPUs than this is done again, so often at
# most, and the quietest one counts.
QUIET_SHARE = 0.05
TRIES = 3

PING = "Ydb.Debug.V1.DebugService/PingPlainGrpc"
TITLES = {"get": "Get", "ping": "Ping"}

# One column of the tables. Those with the same `program` are one client; `more` are flags of its
# own, and it is not measured with more than `most` calls in flight.
Series = collections.namedtuple(
    "Series", "name text program channels args more most", defaults=[(), IN_FLIGHT[-1]]
)
FUTURES = ("--face", "futures")
TWO_THREADS = (*FUTURES, "--threads", "2")
BLOCKING = ("--face", "blocking")
SERIES = [
    Series("pelton-1", "`pelton load`, 1 connection", "pelton", 1, None),
    Series("pelton-8", "`pelton load`, 8 connections", "pelton", CHANNELS, None),
    Series("pool-local", "`LocalPool`", "pool-client", 1, "same", ("--face", "local")),
    Series("pool-futures", "`SharedPool`, futures", "pool-client", 1, "same", FUTURES),
    Series("pool-two", "the same, 2 threads", "pool-client", 1, "same", TWO_THREADS),
    Series("pool-blocking", "`SharedPool`, threads", "pool-client", 1, "same", BLOCKING, 64),
    Series("cpp-1", "gRPC C++, 1 channel", "grpc-cpp-client", 1, "same"),
    Series("cpp-same", "gRPC C++, 8, same arguments", "grpc-cpp-client", CHANNELS, "same"),
    Series("cpp-distinct", "gRPC C++, 8, distinct", "grpc-cpp-client", CHANNELS, "distinct"),
    Series("go-1", "grpc-go, 1 channel", "grpc-go-client", 1, "same"),
    Series("go-8", "grpc-go, 8", "grpc-go-client", CHANNELS, "distinct"),
    Series("tonic-1", "tonic, 1 channel", "tonic-client", 1, "same"),
    Series("tonic-8", "tonic, 8", "tonic-client", CHANNELS, "distinct"),
]


# --------------------------------------------------------------------------------------------------
# Programs


def build_peers(root, target):
    """Builds the clients; their paths, and why the others are missing."""
    paths, missing = {}, {}
    for name in dict.fromkeys(series.program for series in SERIES if series.program != "pelton"):
        command, path = build_command(root / "peers" / name, target / "peers", name)
        if shutil.which(command[0]) is None:
            missing[name] = f"there is no `{command[0]}`"
            continue
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode == 0:
            paths[name] = str(path)
        else:
            lines = result.stderr.strip().splitlines()
            missing[name] = next((line for line in lines if line), "its build failed")
    return paths, missing


def build_command(project, built, name):
    if (project / "Makefile").exists():
        out = built / name
        return ["make", "--silent", "-C", str(project), f"OUT={out}"], out / name
    options = ["--quiet", "--locked", "--release", "--target-dir", str(built)]
    manifest = ["--manifest-path", str(project / "Cargo.toml")]
    return ["cargo", "build", *options, *manifest], built / "release" / name


def client_command(bench, process, series, method, in_flight):
    """A client with so many calls in flight, over all of its channels."""
    channels = min(series.channels, in_flight)
    seconds = bench.options.duration_ms / 1e3
    warm_up = bench.options.warm_up_ms / 1e3
    shared = ["--address", process.address, "--server-pid", str(process.pid)]
    if series.program != "pelton":
        shape = ["--method", method, "--in-flight", str(in_flight), "--channels", str(channels)]
        times = ["--warm-up", str(warm_up), "--seconds", str(seconds)]
        more = ["--channel-args", series.args, "--keys", str(bench.KEYS), *series.more]
        return bench.command(series.program, *shared, *shape, *times, *more)
    shape = ["--connections", str(channels), "--in-flight", str(in_flight // channels)]
    times = ["--warm-up", f"{warm_up}s", "--duration", f"{seconds}s"]
    what = ["--database=", "--keys", str(bench.KEYS)]
    if method == "ping":
        what = ["--method", PING, "--data-file", "/dev/null"]
    more = ["--threads", "1", "--output", "json"]
    return bench.command("pelton", "load", *shared, *shape, *times, *what, *more)


# --------------------------------------------------------------------------------------------------
# Measuring


def need_peers(bench):
    if not hasattr(bench, "missing_clients"):
        paths, bench.missing_clients = build_peers(bench.ROOT, bench.target_folder())
        bench.paths |= paths


def measure_clients(bench, row):
    """The clients in turn, for each number in flight, in each run."""
    [method] = row.options
    need_peers(bench)
    with contextlib.closing(bench.start("pelton")) as process:
        bench.pelton_load(process, "--fill", "--calls", "1000", "--warm-up", "0s")
        for _ in range(bench.options.runs):
            for in_flight in QUICK_IN_FLIGHT if bench.options.quick else IN_FLIGHT:
                for series in SERIES:
                    if bench.has(series.program) and in_flight <= series.most:
                        figures = quietest_run(bench, process, series, method, in_flight)
                        bench.record(cell_row(row, in_flight), series.name, figures)


def cell_row(row, in_flight):
    return row._replace(name=f"{row.name}-{in_flight}")


def quietest_run(bench, process, series, method, in_flight):
    """The figures of one run, or of the quietest of some; of the first that has failures."""
    quietest = None
    for _ in range(1 if bench.options.quick else TRIES):
        figures = client_figures(bench, process, series, method, in_flight)
        share = figures.get("others_share", 0)
        failed = bool(figures.get("failures"))
        if quietest is None or share < quietest["others_share"] or failed:
            quietest = {"others_share": share} | figures
        if share <= QUIET_SHARE or failed:
            break
    return quietest


def client_figures(bench, process, series, method, in_flight):
    """One run of one client; failures are among its figures."""
    command = client_command(bench, process, series, method, in_flight)
    line = ["taskset", "--cpu-list", bench.GENERATOR_CPU, *command]
    port = int(process.address.rsplit(":", 1)[1])
    seconds = bench.options.duration_ms / 1e3
    begun = time.monotonic() + bench.options.warm_up_ms / 1e3
    client = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    looks = []
    for part in LOOKED_AT:
        time.sleep(max(0, begun + part * seconds - time.monotonic()))
        looks.append((look_at_sockets(port), look_at_processors([client.pid, process.pid])))
    try:
        output, errors = client.communicate(timeout=seconds + EXTRA_S)
    except subprocess.TimeoutExpired:
        client.kill()
        client.communicate()
        return {"failures": 1, "first_failure": "it did not end"}
    figures = result_of(output, errors)
    sockets, processors = zip(*looks, strict=True)
    return figures | socket_figures(sockets, figures) | processor_figures(processors)


def result_of(output, errors):
    """What a client printed: calls that ended with an error, and keys that were not found, are
    failures alike."""
    try:
        figures = {key: value for key, value in json.loads(output).items() if value is not None}
    except ValueError:
        return {"failures": 1, "first_failure": errors.strip() or "it printed no result"}
    if figures.get("misses"):
        figures["failures"] = figures.get("failures", 0) + figures["misses"]
        figures["first_failure"] = "the key was not found"
    if not figures.get("calls") and not figures.get("failures"):
        figures |= {"failures": 1, "first_failure": "no call ended"}
    return figures


# What the kernel knows of the sockets of a server. `segments` are those with data that came in:
# over loopback one for each send of the client, unless it was longer than 64 KiB.
SocketSample = collections.namedtuple("SocketSample", "at connections segments")

SOCK_DIAG, SOCK_DIAG_BY_FAMILY, DUMP, DONE, ERROR = 4, 20, 0x301, 3, 2
ESTABLISHED, INET_DIAG_INFO = 1, 2
# Within struct inet_diag_msg and struct tcp_info of linux/inet_diag.h and linux/tcp.h.
LOCAL_PORT_AT, DIAG_BYTES, DATA_SEGS_IN_AT = 4, 72, 152


def look_at_sockets(port):
    """Counts the connections to a port of this machine, by netlink; None where there is no such
    thing."""
    connections = segments = 0
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, SOCK_DIAG) as kernel:
            asked = struct.pack(
                "=BBBxI48x",
                socket.AF_INET,
                socket.IPPROTO_TCP,
                1 << (INET_DIAG_INFO - 1),
                1 << ESTABLISHED,
            )
            head = struct.pack("=IHHII", 16 + len(asked), SOCK_DIAG_BY_FAMILY, DUMP, 1, 0)
            kernel.send(head + asked)
            for message in messages_from(kernel):
                if struct.unpack_from("!H", message, LOCAL_PORT_AT)[0] == port:
                    connections += 1
                    segments += data_segments_in(message)
    except OSError:
        return None
    return SocketSample(time.monotonic(), connections, segments)


def messages_from(kernel):
    """The messages of a dump, each without its head."""
    while True:
        data = kernel.recv(1 << 18)
        at = 0
        while at < len(data):
            length, kind = struct.unpack_from("=IH", data, at)
            if kind == DONE:
                return
            if kind == ERROR:
                raise OSError("the kernel knows nothing of its sockets")
            yield data[at + 16 : at + length]
            at += (length + 3) & ~3


def data_segments_in(message):
    at = DIAG_BYTES
    while at + 4 <= len(message):
        length, kind = struct.unpack_from("=HH", message, at)
        if kind == INET_DIAG_INFO and length >= 4 + DATA_SEGS_IN_AT + 4:
            return struct.unpack_from("=I", message, at + 4 + DATA_SEGS_IN_AT)[0]
        at += max((length + 3) & ~3, 4)
    return 0


def socket_figures(looks, figures):
    """Connections while it ran, and how many calls a segment brought."""
    if None in looks or "calls_per_s" not in figures:
        return {}
    first, last = looks
    found = {"open_connections": last.connections}
    if last.segments > first.segments:
        calls = figures["calls_per_s"] * (last.at - first.at)
        found["calls_per_segment"] = calls / (last.segments - first.segments)
    return found


# CPU seconds of the whole machine, lost ones included, and of some processes.
Processors = collections.namedtuple("Processors", "at busy_s own_s")
IDLE_COLUMNS = (3, 4)


def look_at_processors(pids):
    columns = pathlib.Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
    busy = sum(int(ticks) for at, ticks in enumerate(columns) if at not in IDLE_COLUMNS)
    tasks = [path for pid in pids for path in pathlib.Path(f"/proc/{pid}/task").glob("*")]
    own_ns = sum(map(task_ns, tasks))
    return Processors(time.monotonic(), busy / os.sysconf("SC_CLK_TCK"), own_ns / 1e9)


def task_ns(path):
    """CPU time of a thread, of none any more if it has ended."""
    with contextlib.suppress(OSError):
        return int((path / "schedstat").read_text().split()[0])
    return 0


def processor_figures(looks):
    """What others than the client and the server took, as a share of two CPUs."""
    first, last = looks
    others_s = (last.busy_s - first.busy_s) - (last.own_s - first.own_s)
    return {"others_share": max(0, others_s / (last.at - first.at) / 2)}


# --------------------------------------------------------------------------------------------------
# The page


def section(bench, rows, conditions, goal_line):
    """All of it; nothing, if no client was measured."""
    measured = [row for row in rows if any(name in bench.results for name in names_of(row))]
    if not measured:
        return ""
    parts = ["\n".join([conditions, *client_lines(bench), *failure_lines(bench, measured)])]
    for row in measured:
        title = TITLES[row.options[0]]
        parts.append(summary_table(bench, row, title))
        parts += [matrix(bench, row, f"{title}: {text}", show) for text, show in MATRICES.items()]
    if goals := [goal for row in measured for goal in goal_lines(bench, row, goal_line)]:
        parts.append("\n".join(["| goal | bound | measured | met |", "|---|---|---|---|", *goals]))
    return "\n\n".join(parts)


def names_of(row):
    return [(cell_row(row, n).name, series.name) for n in IN_FLIGHT for series in SERIES]


def client_lines(bench):
    versions = {
        figures["client"]
        for (row, _), cell in bench.results.items()
        if row.startswith("client-")
        for figures in cell
        if "client" in figures and figures["client"] != "Pelton"
    }
    lines = [f"- Other clients: {', '.join(sorted(versions)) or 'none'}"]
    shares = [
        figures["others_share"]
        for cell in bench.results.values()
        for figures in cell
        if "others_share" in figures
    ]
    if shares:
        lines.append(
            "- Beside client and server, other programs took "
            f"{statistics.median(shares) * 100:.0f} % of both CPUs (median; at most "
            f"{max(shares) * 100:.0f} %); runs with more than {QUIET_SHARE * 100:.0f} % were done "
            f"again, up to {TRIES} times in all, and the quietest one counts"
        )
    for name, reason in getattr(bench, "missing_clients", {}).items():
        lines.append(f"- Missing: `{name}`, which could not be built here: {reason}")
    return lines


def failure_lines(bench, rows):
    """Cells that are not shown since calls failed."""
    lines = []
    for row in rows:
        for in_flight in IN_FLIGHT:
            for series in SERIES:
                cell = bench.results.get((cell_row(row, in_flight).name, series.name), [])
                failed = [figures for figures in cell if figures.get("failures")]
                if failed:
                    lines.append(
                        f"- Not shown: {series.text}, {TITLES[row.options[0]]}, {in_flight} in "
                        f"flight: {failed[0]['failures']} failures in a run, first: "
                        f"{failed[0].get('first_failure')}"
                    )
    return lines


def good_cell(bench, row, in_flight, series):
    """The runs of a cell, or none of them if calls failed in any."""
    cell = bench.results.get((cell_row(row, in_flight).name, series.name), [])
    return [] if any(figures.get("failures") for figures in cell) else cell


def middle(bench, row, in_flight, series, key):
    found = [
        figures[key] for figures in good_cell(bench, row, in_flight, series) if key in figures
    ]
    return statistics.median(found) if found else None


def share_of_half(bench, row, in_flight, series):
    """Calls a second as a share of those with half as many in flight: of each run, then their
    median."""
    fewer = good_cell(bench, row, in_flight // 2, series)
    more = good_cell(bench, row, in_flight, series)
    shares = [
        one["calls_per_s"] / half["calls_per_s"] for half, one in zip(fewer, more, strict=False)
    ]
    return statistics.median(shares) if shares else None


def columns(bench, row):
    """The series that were measured."""
    names = {name for key, name in names_of(row) if (key, name) in bench.results}
    return [series for series in SERIES if series.name in names]


def matrix(bench, row, title, show):
    """A row for each number in flight, a column for each series."""
    shown = columns(bench, row)
    lines = [
        f"| {title} | {' | '.join(series.text for series in shown)} |",
        f"|---|{'---|' * len(shown)}",
    ]
    for in_flight in IN_FLIGHT:
        cells = [show(bench, row, in_flight, series) or "–" for series in shown]
        if set(cells) != {"–"}:
            lines.append(f"| {in_flight} | {' | '.join(cells)} |")
    return "\n".join(lines)


def show_rate(bench, row, in_flight, series):
    rate = middle(bench, row, in_flight, series, "calls_per_s")
    share = share_of_half(bench, row, in_flight, series)
    if rate is None:
        return None
    return thousands(rate) if share is None else f"{thousands(rate)} × {share:.2f}"


def thousands(rate):
    return f"{rate / 1e3:,.{0 if rate >= 1e5 else 1}f} k".replace(",", " ")


def pair_of(first, second, digits):
    def show(bench, row, in_flight, series):
        found = [middle(bench, row, in_flight, series, key) for key in (first, second)]
        if found[0] is None:
            return None
        return " / ".join("–" if value is None else f"{value:.{digits}f}" for value in found)

    return show


def show_sockets(bench, row, in_flight, series):
    connections = middle(bench, row, in_flight, series, "open_connections")
    calls = middle(bench, row, in_flight, series, "calls_per_segment")
    if connections is None:
        return None
    return f"{connections:.0f} / {'–' if calls is None else f'{calls:.1f}'}"


MATRICES = {
    "calls/s × their share of those at half as many in flight": show_rate,
    "p50 / p99, µs": pair_of("p50_us", "p99_us", 0),
    "CPU of the client / of the server, µs per call": pair_of("own_us", "server_us", 2),
    "connections really open / calls per TCP segment of the client": show_sockets,
}


def summary_table(bench, row, title):
    """Each series in a line: where it is best, and what is left of that with the most in flight."""
    lines = [
        f"| {title} | connections | calls/s with 1 in flight | most calls/s, in flight "
        "| calls/s with 4096 | least share of those at half as many, in flight |",
        "|---|---|---|---|---|---|",
    ]
    for series in columns(bench, row):
        rates = {n: middle(bench, row, n, series, "calls_per_s") for n in IN_FLIGHT}
        rates = {n: rate for n, rate in rates.items() if rate is not None}
        if not rates:
            continue
        best = max(rates, key=rates.get)
        connections = middle(bench, row, max(rates), series, "open_connections")
        cells = [
            series.text,
            "–" if connections is None else f"{connections:.0f}",
            thousands(rates[1]) if 1 in rates else "–",
            f"{thousands(rates[best])}, {best}",
            thousands(rates[4096]) if 4096 in rates else "–",
            least_share_text(bench, row, series),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def least_share(bench, row, series):
    """The smallest share and its number in flight, or None."""
    shares = [(share_of_half(bench, row, n, series), n) for n in IN_FLIGHT[1:]]
    shares = [(share, n) for share, n in shares if share is not None]
    return min(shares) if shares else None


def least_share_text(bench, row, series):
    least = least_share(bench, row, series)
    return "–" if least is None else f"{least[0]:.2f}, {least[1]}"


def goal_lines(bench, row, goal_line):
    """Those of Pelton's pools; that more in flight bring no less is for `doubling_rows`."""
    named = {series.name: series for series in SERIES}
    title = TITLES[row.options[0]]
    lines = []
    compared = f"{title}, {COMPARED_IN_FLIGHT} in flight"

    def ratio(name, other, key):
        figures = [middle(bench, row, COMPARED_IN_FLIGHT, named[it], key) for it in (name, other)]
        return None if None in figures else figures[0] / figures[1]

    for name in ("pool-local", "pool-futures"):
        if cpu := ratio(name, "pelton-1", "own_us"):
            text = f"{compared}, {named[name].text}: CPU a call, of that of `pelton load`"
            lines.append(goal_line(text, cpu, CPU_GOAL, ""))
    if rate := ratio("pool-two", "pool-futures", "calls_per_s"):
        text = f"{compared}, `SharedPool` on one CPU: calls/s of 2 threads, of those of 1"
        lines.append(goal_line(text, rate, TWO_THREADS_GOAL, "", at_least=True))
    return lines
