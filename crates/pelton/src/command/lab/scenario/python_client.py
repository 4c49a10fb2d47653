"""A client of gRPC's C core, or of pelton_grpc, in a closed loop: the flags and the line of JSON of
those in peers/. With --method create it starts calls without a bound on how many are under way."""

import argparse
import asyncio
import json
import os
import sys
import threading
import time

METHOD = "/Ydb.Debug.V1.DebugService/PingPlainGrpc"
CREATE = "/io.grpc.KeyValueService/Create"
VALUE_BYTES = 64 << 10
# What can be filled at least: with less, a few calls that wait are enough.
MEMORY_LEAST = 64 << 20
# Calls that are started between two looks at the memory.
AT_ONCE = 16
# Of the loop that measures; the rest of a run's time is the client's start and end.
CONNECT_TIMEOUT_S = 10


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--address", required=True)
    parser.add_argument("--module", choices=["grpc", "pelton_grpc"], default="grpc")
    parser.add_argument("--method", choices=["ping", "create"], default="ping")
    parser.add_argument("--memory-limit", type=int, default=512 << 20, help="for create, in bytes")
    parser.add_argument("--in-flight", type=int, default=1)
    parser.add_argument("--channels", type=int, default=1)
    channel_args = ["same", "distinct", "local-pool"]
    parser.add_argument("--channel-args", choices=channel_args, default="same")
    parser.add_argument("--warm-up", type=float, default=0.5)
    parser.add_argument("--seconds", type=float, default=2)
    return parser.parse_args()


def import_module(options):
    """What has the channels, as `grpc` and as `grpc.aio`."""
    if options.module == "grpc":
        import grpc
        import grpc.aio as aio

        return grpc, aio, f"grpcio {grpc.__version__}"
    import pelton_grpc
    import pelton_grpc.aio as aio

    return pelton_grpc, aio, "pelton_grpc"


def channel_options(options, number):
    # Newer grpcio gives each channel a pool of its own unless it is told otherwise.
    if options.module == "pelton_grpc":
        return []
    shared = [("grpc.use_local_subchannel_pool", 0)]
    return {
        "same": shared,
        "distinct": [*shared, ("pelton.channel", number)],
        "local-pool": [("grpc.use_local_subchannel_pool", 1)],
    }[options.channel_args]


class Loop:
    def __init__(self, error_type):
        self.error_type = error_type
        self.begin = self.end = float("inf")
        self.latencies = []
        self.failures = 0
        self.first_failure = None

    async def call_again_and_again(self, call):
        while (sent := time.perf_counter()) < self.end:
            try:
                await call(b"")
            except self.error_type as error:
                self.failures += 1
                self.first_failure = self.first_failure or str(error.code())
                if self.failures > 100:
                    return
                continue
            now = time.perf_counter()
            if self.begin <= now < self.end:
                self.latencies.append(now - sent)


async def run(options, module, aio):
    channels = [
        aio.insecure_channel(options.address, options=channel_options(options, number))
        for number in range(options.channels)
    ]
    for channel in channels:
        await asyncio.wait_for(channel.channel_ready(), CONNECT_TIMEOUT_S)
    loop = Loop(module.RpcError)
    loop.begin = time.perf_counter() + options.warm_up
    loop.end = loop.begin + options.seconds
    tasks = []
    for number in range(options.in_flight):
        call = channels[number % options.channels].unary_unary(METHOD)
        tasks.append(asyncio.ensure_future(loop.call_again_and_again(call)))
    await asyncio.sleep(options.warm_up)
    before = time.process_time()
    await asyncio.sleep(options.seconds)
    own_s = time.process_time() - before
    await asyncio.gather(*tasks)
    for channel in channels:
        await channel.close()
    return loop, own_s


def report(options, client, loop, own_s):
    latencies = sorted(loop.latencies)
    calls = len(latencies)

    def percentile_us(share):
        return latencies[min(int(share * calls), calls - 1)] * 1e6 if calls else None

    return {
        "client": client,
        "method": options.method,
        "in_flight": options.in_flight,
        "channels": options.channels,
        "channel_args": options.channel_args,
        "calls": calls,
        "failures": loop.failures,
        "first_failure": loop.first_failure,
        "elapsed_s": options.seconds,
        "calls_per_s": calls / options.seconds,
        "p50_us": percentile_us(0.5),
        "p99_us": percentile_us(0.99),
        "max_us": percentile_us(1),
        "own_us": own_s * 1e6 / calls if calls else None,
    }


class Outcomes:
    """What became of calls; told by threads of the channel."""

    def __init__(self):
        self.lock = threading.Lock()
        self.succeeded = self.refused = 0
        self.first_failure = None

    def note(self, future):
        code = future.code()
        with self.lock:
            if code.name == "OK":
                self.succeeded += 1
            else:
                self.refused += 1
                self.first_failure = self.first_failure or str(code)


def field(number, content):
    """A field of a message: its tag, its length and its bytes."""
    length, out = len(content), bytearray([number << 3 | 2])
    while length > 0x7F:
        out.append(length & 0x7F | 0x80)
        length >>= 7
    out.append(length)
    return bytes(out) + content


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def number_in(path):
    """The number in a file; None: there is no file, or no number in it, such as `max`."""
    try:
        with open(path) as file:
            return int(file.read())
    except (OSError, ValueError):
        return None


def groups_of(lines, root="/sys/fs/cgroup"):
    """The control groups that bound this process's memory, up to the top: their folders, and the
    names of the files with the limit and with what is used."""
    for line in lines:
        _, controllers, path = line.rstrip("\n").split(":", 2)
        if controllers == "":
            folder, names = root, ("memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            folder = os.path.join(root, "memory")
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes")
        else:
            continue
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for count in range(len(parts), -1, -1):
            yield os.path.join(folder, *parts[:count]), names


def free_bytes():
    with open("/proc/meminfo") as file:
        lines = dict(line.split(":") for line in file)
    free = [int(lines["MemAvailable"].split()[0]) << 10]
    with open("/proc/self/cgroup") as file:
        groups = list(groups_of(file))
    for folder, names in groups:
        limit, used = (number_in(os.path.join(folder, name)) for name in names)
        if limit is not None and used is not None:
            free.append(max(limit - used, 0))
    return min(free)


def run_unbounded(options, module):
    """Starts Creates as fast as it can until the memory or the time is used up."""
    limit = min(options.memory_limit, free_bytes() // 2)
    if limit < MEMORY_LEAST:
        least = MEMORY_LEAST >> 20
        sys.exit(f"only {limit >> 20} MiB of memory may be filled here, and it takes {least} MiB")
    channel = module.insecure_channel(options.address)
    module.channel_ready_future(channel).result(CONNECT_TIMEOUT_S)
    create, outcomes = channel.unary_unary(CREATE), Outcomes()
    # What the interpreter and the channel take is none of the calls'.
    before_calls = resident_bytes()
    value, started, full_s, held = os.urandom(VALUE_BYTES), 0, None, 0
    before, begin = time.process_time(), time.perf_counter()
    while (elapsed := time.perf_counter() - begin) < options.seconds:
        held = resident_bytes() - before_calls
        if held >= limit:
            full_s = full_s or elapsed
            # Nothing more is started; what a second brings is known from the first answer on.
            if outcomes.succeeded:
                break
            time.sleep(0.01)
            continue
        for _ in range(AT_ONCE):
            started += 1
            future = create.future(field(1, b"unbounded-%d" % started) + field(2, value))
            future.add_done_callback(outcomes.note)
    own_s = time.process_time() - before
    calls = outcomes.succeeded
    return {
        "method": options.method,
        "calls": calls,
        "failures": 0,
        "refused": outcomes.refused,
        "first_failure": outcomes.first_failure,
        "waiting": started - calls - outcomes.refused,
        "memory_limit_bytes": limit,
        "resident_bytes": held,
        "full_s": full_s,
        "elapsed_s": elapsed,
        "calls_per_s": calls / elapsed,
        "all_calls_per_s": calls / elapsed,
        "own_cpu_ms_per_s": own_s * 1e3 / elapsed,
    }


def main():
    options = parse()
    module, aio, client = import_module(options)
    if options.method == "create":
        print(json.dumps({"client": client, **run_unbounded(options, module)}), flush=True)
        # To cancel thousands of calls would take longer than the run.
        os._exit(0)
    loop, own_s = asyncio.run(run(options, module, aio))
    print(json.dumps(report(options, client, loop, own_s)))
    sys.exit(1 if loop.failures else 0)


main()
