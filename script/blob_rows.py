"""The rows of script/bench about blobs.

Uploads in chunks of many sizes and downloads, each beside a copy of the same file over bare TCP
(`peers/transfer`) between the same two CPUs, kept and synced on the other side just like the blob;
the same with a relay in between that delays; and how long Gets wait while all that is heavy goes
on.
"""

import contextlib
import itertools
import os
import random
import shutil
import subprocess
import sys
import threading
import time

import load_rows

# The file of a full run and of a quick one, in MiB; where a chunk is smaller than
# `SMALL_CHUNK_BYTES`, a part of it.
FILE_MIB, QUICK_FILE_MIB = 1024, 64
SMALL_CHUNK_BYTES, SMALL_FILE_SHARE = 1 << 12, 32
# Uploads of the long table: two, for a spread, since each takes as long as the disk.
UPLOAD_RUNS, BLOB_RUNS = 2, 3
POWERS = range(4, 22)
BLOB_CHUNKS = {"64KiB": 1 << 16, "256KiB": 1 << 18, "1MiB": 1 << 20, "4MiB": 4 << 20}
# One way; the other way takes as long.
DELAY_US = 2_500
# What of the file the rows with delay move, so that they take seconds.
BLOB_FILE_SHARE = 4
GOAL_SHARE = 0.8

MIB = 1 << 20


# --------------------------------------------------------------------------------------------------
# Files and programs


def file_mib(bench):
    return bench.options.file_mib or (QUICK_FILE_MIB if bench.options.quick else FILE_MIB)


def make_file(path, size_bytes):
    """Text that gzip makes a third of, like logs."""
    numbers = random.Random(1)
    lines = (
        f'{{"id": {number}, "visitor": "{numbers.getrandbits(64):016x}", "path": '
        f'"/shop/{numbers.randrange(1000)}", "took_ms": {numbers.random():.3f}}}\n'
        for number in itertools.count()
    )
    block = bytearray()
    while len(block) < min(size_bytes, 4 * MIB):
        block += next(lines).encode()
    with path.open("wb") as file:
        for start in range(0, size_bytes, len(block)):
            file.write(block[: size_bytes - start])
    return path


class Meter:
    """Wall time of a program on the generator's CPU, and what it and a server used meanwhile."""

    def __init__(self, bench, pid):
        self.bench = bench
        self.pid = pid

    def run(self, command, size_bytes):
        line = ["taskset", "--cpu-list", self.bench.GENERATOR_CPU, *command]
        server_ns, begin = process_ns(self.pid), time.monotonic()
        program = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        errors = program.stderr.read()
        _, status, used = os.wait4(program.pid, 0)
        elapsed_s = time.monotonic() - begin
        program.returncode = os.waitstatus_to_exitcode(status)
        if program.returncode != 0:
            sys.exit(f"script/bench: {' '.join(line)}: {errors.decode()}")
        gib = size_bytes / (1 << 30)
        return {
            "mb_per_s": size_bytes / elapsed_s / 1e6,
            "server_s_per_gib": (process_ns(self.pid) - server_ns) / 1e9 / gib,
            "client_s_per_gib": (used.ru_utime + used.ru_stime) / gib,
        }


def process_ns(pid):
    """CPU time of a process, in nanoseconds, also of threads that have ended: by the clock that
    clock_getcpuclockid(3) names."""
    return time.clock_gettime_ns((~pid << 3) | 2)


def pelton(bench, command, process, *arguments):
    return bench.command("pelton", command, *arguments, "--address", process.address)


def transfer_server(bench, stack, folder):
    """The other side of bare copies."""
    folder.mkdir()
    return stack.enter_context(
        contextlib.closing(bench.start_program("transfer", "serve", "--folder", str(folder)))
    )


def forget(bench, process, name, *trust):
    """Removes a blob, so that no later upload pays for it."""
    subprocess.run(
        pelton(bench, "blob", process, "delete", name, *trust),
        stdout=subprocess.DEVNULL,
        check=True,
    )
    os.sync()


# --------------------------------------------------------------------------------------------------
# upload: all sizes of chunks


def measure_uploads(bench, row):
    size_bytes = file_mib(bench) * MIB
    with bench.fresh_folder() as folder, contextlib.ExitStack() as stack:
        files = {
            False: make_file(folder / "file", size_bytes),
            True: make_file(folder / "small", size_bytes // SMALL_FILE_SHARE),
        }
        ways, plain = upload_ways(bench, stack, folder)
        bare = transfer_server(bench, stack, folder / "bare")
        # Once for nothing: threads begin, files are in the cache.
        subprocess.run(
            pelton(bench, "upload", plain, str(files[True]), "--name", "warm"),
            stdout=subprocess.DEVNULL,
            check=True,
        )
        for _ in range(min(bench.options.runs, UPLOAD_RUNS)):
            for is_small, file in files.items():
                measure_bare(bench, row, folder, bare, file, is_small)
            for power in POWERS:
                file = files[1 << power < SMALL_CHUNK_BYTES]
                for way, (process, trust, command) in ways.items():
                    fetch_memory(folder, file.stat().st_size)
                    figures = Meter(bench, process.pid).run(
                        command(file, 1 << power), file.stat().st_size
                    )
                    if trust is not None:
                        forget(bench, process, "file", *trust)
                    bench.record(row, f"{way} {power}", figures)


def measure_bare(bench, row, folder, bare, file, is_small):
    """A copy that is kept, one that is thrown away, and what the disk takes without any network."""
    size_bytes = file.stat().st_size
    put = bench.command("transfer", "put", str(file), "--address", bare.address)
    write = bench.command("transfer", "write", str(file), "--to", str(folder / "written"))
    for subject, command in (("kept", put), ("discarded", [*put, "--discard"]), ("disk", write)):
        os.sync()
        fetch_memory(folder, size_bytes)
        bench.record(
            row,
            f"{subject} {'small' if is_small else 'file'}",
            Meter(bench, bare.pid).run(command, size_bytes),
        )
    (folder / "written").unlink()
    (folder / "bare" / file.name).unlink()


WAYS = {
    "grpc": "gRPC",
    "tls": "gRPC, TLS",
    "gzip": "gRPC, gzip",
    "http2": "HTTP/2",
    "gupload": "gupload, discarded",
    "gupload-http2": "/upload, discarded",
}


def upload_ways(bench, stack, folder):
    """For each way its server, the flags that believe it, or None where nothing is kept, and the
    command that uploads."""
    certificates = folder / "tls"
    made = bench.command(
        "pelton",
        "serve",
        f"--tls-self-signed={certificates}",
        "--listen",
        "127.0.0.1:0",
        "--durability",
        "volatile",
    )
    bench.start_command("pelton", made).close()
    tls = [
        "--tls-cert",
        str(certificates / "certificate.pem"),
        "--tls-key",
        str(certificates / "key.pem"),
    ]
    trust = ["--tls-ca", str(certificates / "ca.pem")]
    plain = stack.enter_context(
        contextlib.closing(bench.start("pelton", "written", folder / "plain"))
    )
    secure = stack.enter_context(
        contextlib.closing(bench.start("pelton", "written", folder / "secure", *tls))
    )
    # As gupload's own server does.
    discarding = stack.enter_context(
        contextlib.closing(bench.start("pelton", "written", folder / "none", "--discard-uploads"))
    )

    def grpc(process, *flags):
        return lambda file, chunk_bytes: pelton(
            bench,
            "upload",
            process,
            str(file),
            "--name",
            "file",
            "--chunk-size",
            str(chunk_bytes),
            *flags,
        )

    def http2(process, command, path):
        line = [command, "--path", path, "--address", process.address, "--write-bytes"]
        return lambda file, write_bytes: bench.command(
            "transfer", *line, str(write_bytes), str(file)
        )

    ways = {
        "grpc": (plain, [], grpc(plain)),
        "tls": (secure, trust, grpc(secure, *trust)),
        "gzip": (plain, [], grpc(plain, "--compress")),
        "http2": (plain, [], http2(plain, "http-put", "/blob/file")),
        "gupload": (
            discarding,
            None,
            http2(discarding, "grpc-put", "/messaging.GuploadService/Upload"),
        ),
        "gupload-http2": (discarding, None, http2(discarding, "http-put", "/upload")),
    }
    return ways, plain


# --------------------------------------------------------------------------------------------------
# blob: upload and download, near and far


def measure_blobs(bench, row):
    with bench.fresh_folder() as folder, contextlib.ExitStack() as stack:
        file = make_file(folder / "file", file_mib(bench) * MIB // BLOB_FILE_SHARE)
        server = stack.enter_context(
            contextlib.closing(bench.start("pelton", "written", folder / "data"))
        )
        bare = transfer_server(bench, stack, folder / "bare")
        places = {
            "near": (server, bare),
            "far": tuple(relayed(bench, stack, process) for process in (server, bare)),
        }
        for _ in range(min(bench.options.runs, BLOB_RUNS)):
            for place, (to_server, to_bare) in places.items():
                measure_transfers(bench, row, place, folder, file, to_server, to_bare)


def relayed(bench, stack, process):
    """The same server through a delay. The relay may use any CPU: it takes part in the bare copy
    just so."""
    command = bench.command(
        "transfer", "relay", "--address", process.address, "--delay-us", str(DELAY_US)
    )
    relay = stack.enter_context(
        contextlib.closing(bench.start_command("relay", command, pinned=False))
    )
    return Far(relay.address, process.pid)


def fetch_memory(folder, size_bytes):
    """A virtual machine may have given memory back that was free for seconds. Getting it again
    takes three times as long as writing the file that needs it, and hits whoever comes first: so it
    is fetched before anything is measured."""
    path = folder / "memory"
    block = bytes(MIB)
    with path.open("wb") as file:
        for _ in range(0, size_bytes, MIB):
            file.write(block)
    path.unlink()


class Far:
    """A server at the address of a relay."""

    def __init__(self, address, pid):
        self.address = address
        self.pid = pid


def measure_transfers(bench, row, place, folder, file, server, bare):
    size_bytes = file.stat().st_size
    got = folder / "got"

    def measure(subject, process, command):
        os.sync()
        fetch_memory(folder, size_bytes)
        bench.record(row, f"{subject} {place}", Meter(bench, process.pid).run(command, size_bytes))
        got.unlink(missing_ok=True)

    measure("put", bare, bench.command("transfer", "put", str(file), "--address", bare.address))
    measure(
        "get",
        bare,
        bench.command("transfer", "get", "file", "--to", str(got), "--address", bare.address),
    )
    for chunk in BLOB_CHUNKS:
        sized = ["--chunk-size", chunk]
        measure(f"upload {chunk}", server, pelton(bench, "upload", server, str(file), *sized))
        measure(
            f"download {chunk}",
            server,
            pelton(bench, "download", server, "file", "--to", str(got), *sized),
        )
        forget(bench, server, "file")


# --------------------------------------------------------------------------------------------------
# tail: Gets while all that is heavy goes on

TAIL_RATE = 5_000
TAIL_KEYS, QUICK_TAIL_KEYS = 1_000_000, 100_000
TAIL_SECONDS, QUICK_TAIL_SECONDS = 10, 2
TAIL_UPLOADS = 4
# Each of TAIL_SECONDS, until an upload, a scan and a backup have finished.
TAIL_PIECES = 30
TAIL_LATENCIES = ("p50_us", "p99_us", "p999_us", "longest_us")
TAIL_COUNTED = ("uploads", "scans", "backups")


def measure_tail(bench, row):
    quick = bench.options.quick
    keys = QUICK_TAIL_KEYS if quick else TAIL_KEYS
    length_ms = 1_000 * (QUICK_TAIL_SECONDS if quick else TAIL_SECONDS)
    with bench.fresh_folder() as folder, contextlib.ExitStack() as stack:
        file = make_file(folder / "file", file_mib(bench) * MIB)
        server = bench.start(
            "pelton", "synced", folder / "data", "--backup-root", str(folder / "backups")
        )
        stack.enter_context(contextlib.closing(server))
        bench.load(server, keys, "--value-bytes", "100", "--connections", "8")

        def gets():
            load = ["--keys", str(keys), "--connections", "8", "--rate", str(TAIL_RATE)]
            return load_rows.load(bench, server, *load, duration_ms=length_ms)

        bench.record(row, "alone", gets())
        with contextlib.closing(Troubles(bench, server, folder, file)) as troubles:
            pieces = gets_beside(gets, troubles)
            figures = worst_of(pieces) | troubles.done
        if reason := void_reason(figures):
            figures["void"] = reason
        bench.record(row, "pelton", figures)


def gets_beside(gets, troubles):
    """Gets, in pieces, until everything beside them was done once, but not for ever."""
    pieces = []
    while len(pieces) < TAIL_PIECES and (not pieces or not all(troubles.done.values())):
        pieces.append(gets())
        troubles.check()
    return pieces


def worst_of(pieces):
    """One set of figures of several runs: of each latency the worst."""
    latencies = {
        key: max(piece[key] for piece in pieces)
        for key in TAIL_LATENCIES
        if all(key in piece for piece in pieces)
    }
    return pieces[-1] | latencies


def void_reason(figures):
    """Why a run says nothing of Gets beside other work: some of that was never done. Empty: it says
    something."""
    missing = [name for name in TAIL_COUNTED if not figures.get(name)]
    return f"no {' and no '.join(missing)} finished meanwhile" if missing else ""


class Troubles:
    """Four uploads, a scan, a backup, each begun again when it is done, and a reader that does not
    read. They share the generator's CPU and give way to it, so that what Gets wait for is the
    server."""

    def __init__(self, bench, server, folder, file):
        self.bench, self.server, self.folder, self.file = bench, server, folder, file
        self.done = dict.fromkeys(TAIL_COUNTED, 0)
        self.failures = []
        self.is_over = threading.Event()
        self.running = set()
        self.lock = threading.Lock()
        # Its output is a pipe that nobody reads: soon it reads no more itself.
        self.deaf = self.begin(pelton(bench, "scan", server), stdout=subprocess.PIPE)
        loops = [lambda number=number: self.upload(number) for number in range(TAIL_UPLOADS)] + [
            self.scan,
            self.back_up,
        ]
        self.threads = [threading.Thread(target=loop) for loop in loops]
        for thread in self.threads:
            thread.start()

    def begin(self, command, **more):
        line = ["taskset", "--cpu-list", self.bench.GENERATOR_CPU, "chrt", "--idle", "0", *command]
        program = subprocess.Popen(
            line, stderr=subprocess.PIPE, **{"stdout": subprocess.DEVNULL, **more}
        )
        with self.lock:
            self.running.add(program)
        return program

    def run(self, command, counted):
        program = self.begin(command)
        _, errors = program.communicate()
        with self.lock:
            self.running.discard(program)
            if self.is_over.is_set():
                return
            if program.returncode == 0:
                self.done[counted] += 1
            else:
                self.failures.append(f"{' '.join(command)}: {errors.decode()}")
                self.is_over.set()

    def upload(self, number):
        while not self.is_over.is_set():
            self.run(
                pelton(
                    self.bench, "upload", self.server, str(self.file), "--name", f"file-{number}"
                ),
                "uploads",
            )

    def scan(self):
        while not self.is_over.is_set():
            self.run(pelton(self.bench, "scan", self.server), "scans")

    def back_up(self):
        for number in itertools.count():
            if self.is_over.is_set():
                return
            self.run(
                pelton(self.bench, "backup", self.server, f"backup-{number}", "--timeout", "300s"),
                "backups",
            )
            shutil.rmtree(self.folder / "backups" / f"backup-{number}", ignore_errors=True)

    def check(self):
        if self.failures:
            sys.exit(f"script/bench: {self.failures[0]}")
        if self.deaf.poll() is not None:
            sys.exit("script/bench: the reader that does not read has ended")

    def close(self):
        with self.lock:
            self.is_over.set()
            for program in self.running:
                program.terminate()
        for thread in self.threads:
            thread.join()
        self.deaf.communicate()


# --------------------------------------------------------------------------------------------------
# The page


def tables(bench, median, spread):
    parts = [
        upload_table(bench, median, spread),
        blob_table(bench, median, spread),
        tail_table(bench, median),
    ]
    return "\n\n".join(part for part in parts if part)


def upload_table(bench, median, spread):
    if not bench.results.get(("upload", f"grpc {POWERS[0]}")):
        return ""
    head = [
        "chunk",
        "file",
        *(f"{way} MB/s" for way in WAYS.values()),
        "bare copy, kept",
        "bare copy, discarded",
        "disk alone",
    ]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    cpu_head = ["chunk", *(f"{way}: server, client" for way in WAYS.values()), "bare copy, kept"]
    cpu_lines = [f"| CPU s/GiB, {' | '.join(cpu_head)} |", "|---" * len(cpu_head) + "|"]
    for power in POWERS:
        is_small = 1 << power < SMALL_CHUNK_BYTES
        kind = "small" if is_small else "file"
        size = file_mib(bench) / (SMALL_FILE_SHARE if is_small else 1)
        subjects = [
            *(f"{way} {power}" for way in WAYS),
            f"kept {kind}",
            f"discarded {kind}",
            f"disk {kind}",
        ]
        speeds = [spread(bench, "upload", subject, "mb_per_s", 0) for subject in subjects]
        lines.append(f"| 2^{power} | {size:g} MiB | {' | '.join(speeds)} |")
        cpu = [cpu_pair(bench, "upload", subject, median) for subject in subjects[: len(WAYS) + 1]]
        cpu_lines.append(f"| 2^{power} | {' | '.join(cpu)} |")
    return "\n".join([*lines, "", *cpu_lines])


def cpu_pair(bench, row, subject, median):
    return ", ".join(
        f"{median(bench, row, subject, key):.2f}"
        for key in ("server_s_per_gib", "client_s_per_gib")
    )


def blob_subjects():
    for place in ("near", "far"):
        for what, copy in (("upload", "put"), ("download", "get")):
            yield place, what, copy, f"{copy} {place}", "bare copy"
            for chunk in BLOB_CHUNKS:
                yield place, what, copy, f"{what} {chunk} {place}", chunk


PLACES = {"near": "", "far": ", 5 ms of round trip"}


def blob_table(bench, median, spread):
    if not bench.results.get(("blob", "put near")):
        return ""
    lines = [
        "| blob | chunk | MB/s | share of a bare copy | server CPU s/GiB | client CPU s/GiB |",
        "|---|---|---|---|---|---|",
    ]
    for place, what, copy, subject, shown in blob_subjects():
        rate, bare = (
            median(bench, "blob", name, "mb_per_s") for name in (subject, f"{copy} {place}")
        )
        cpu = [
            spread(bench, "blob", subject, key, 2)
            for key in ("server_s_per_gib", "client_s_per_gib")
        ]
        cells = [
            f"{what}{PLACES[place]}",
            shown,
            spread(bench, "blob", subject, "mb_per_s", 0),
            f"{rate / bare:.2f}",
            *cpu,
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


TAIL_SHOWN = {
    "alone": "nothing else",
    "pelton": "4 uploads, a scan, a backup, a reader that does not read",
}


def is_tail_void(bench, subject):
    return any(figures.get("void") for figures in bench.results.get(("tail", subject), []))


def tail_table(bench, median):
    if not bench.results.get(("tail", "pelton")):
        return ""
    lines = [
        f"| Get, {TAIL_RATE} a second, beside | p50 µs | p99 µs | p99.9 µs | longest ms | "
        "meanwhile done |",
        "|---|---|---|---|---|---|",
    ]
    for subject, shown in TAIL_SHOWN.items():
        latencies = [
            f"{median(bench, 'tail', subject, key):.0f}" for key in ("p50_us", "p99_us", "p999_us")
        ]
        longest = f"{median(bench, 'tail', subject, 'longest_us') / 1e3:.1f}"
        counts = [(name, median(bench, "tail", subject, name)) for name in TAIL_COUNTED]
        done = ", ".join(f"{count:.0f} {name}" for name, count in counts if count is not None)
        if is_tail_void(bench, subject):
            latencies, longest, done = ["VOID"] * 3, "VOID", f"VOID: {done}"
        lines.append(f"| {' | '.join([shown, *latencies, longest, done or '–'])} |")
    return "\n".join(lines)


def goals(bench, median, goal_line):
    lines = []
    if bench.results.get(("blob", "put near")):
        for place, far in PLACES.items():
            for what, copy in (("upload", "put"), ("download", "get")):
                bare = median(bench, "blob", f"{copy} {place}", "mb_per_s")
                least = min(
                    median(bench, "blob", f"{what} {chunk} {place}", "mb_per_s")
                    for chunk in BLOB_CHUNKS
                )
                text = (
                    f"{what} of a blob{far}, the slowest size of chunks from 64 KiB on: share of "
                    "a bare TCP copy"
                )
                lines.append(goal_line(text, least / bare, GOAL_SHARE, "", at_least=True))
    if bench.results.get(("tail", "pelton")) and not is_tail_void(bench, "pelton"):
        lines.append(
            goal_line(
                "Get beside uploads, scan, backup and a reader that does not read: p99",
                median(bench, "tail", "pelton", "p99_us") / 1e3,
                2,
                "ms",
            )
        )
        lines.append(
            goal_line(
                "the same: longest", median(bench, "tail", "pelton", "longest_us") / 1e3, 20, "ms"
            )
        )
    return lines
