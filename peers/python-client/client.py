"""Unary calls of a generated stub from Python, for a time, over the channel of grpcio or over
pelton_grpc. Prints a line of JSON: calls, calls a second, and CPU time of this process a call.

    client.py --channel grpcio|pelton --address HOST:PORT [--threads N | --futures N |
        --windows N | --tasks N] [--seconds S]
"""

import argparse
import asyncio
import json
import resource
import threading
import time

import grpc


def get_call(channel):
    """`pelton.v1.KeyValue/Get` as a generated stub has it, with bytes in the place of messages: the
    messages are the same work for both."""
    path = "/pelton.v1.KeyValue/Get"
    return channel.unary_unary(path, request_serializer=bytes, response_deserializer=bytes)


class Run:
    """Counts the calls that end, from when they are measured until the end."""

    def __init__(self):
        self.is_over = False
        self.counts = []

    def count(self):
        return sum(count[0] for count in self.counts)

    def counter(self):
        self.counts.append([0])
        return self.counts[-1]


def call_in_threads(run, call, request, count):
    def work(counter):
        while not run.is_over:
            call(request, timeout=60)
            counter[0] += 1

    threads = [threading.Thread(target=work, args=(run.counter(),)) for _ in range(count)]
    for thread in threads:
        thread.start()
    return lambda: [thread.join() for thread in threads]


def call_futures(run, call, request, count):
    """Always as many in flight: the next one begins in the callback of the one before."""
    counter, left = run.counter(), threading.Semaphore(0)

    def begin():
        call.future(request, timeout=60).add_done_callback(ended)

    def ended(future):
        future.result()
        counter[0] += 1
        if run.is_over:
            left.release()
        else:
            begin()

    for _ in range(count):
        begin()
    return lambda: [left.acquire() for _ in range(count)]


def call_windows(run, call, request, count):
    """As many at once, whose results are taken one after the other."""

    def work(counter):
        while not run.is_over:
            futures = [call.future(request, timeout=60) for _ in range(count)]
            for future in futures:
                future.result()
                counter[0] += 1

    thread = threading.Thread(target=work, args=(run.counter(),))
    thread.start()
    return thread.join


def call_in_tasks(run, options, request, count):
    """Tasks of one event loop, in a thread of its own."""

    async def work(call, counter):
        while not run.is_over:
            await call(request, timeout=60)
            counter[0] += 1

    async def work_all():
        if options.channel == "pelton":
            from pelton_grpc import aio
        else:
            from grpc import aio
        async with aio.insecure_channel(options.address) as channel:
            call = get_call(channel)
            await asyncio.gather(*(work(call, run.counter()) for _ in range(count)))

    thread = threading.Thread(target=asyncio.run, args=(work_all(),))
    thread.start()
    return thread.join


def cpu_s():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--channel", choices=["grpcio", "pelton"], required=True)
    arguments.add_argument("--address", required=True)
    arguments.add_argument("--threads", type=int)
    arguments.add_argument("--futures", type=int)
    arguments.add_argument("--windows", type=int)
    arguments.add_argument("--tasks", type=int)
    arguments.add_argument("--seconds", type=float, default=3)
    options = arguments.parse_args()
    if options.channel == "pelton":
        import pelton_grpc

        insecure_channel = pelton_grpc.insecure_channel
    else:
        insecure_channel = grpc.insecure_channel
    run = Run()
    with insecure_channel(options.address) as channel:
        call, request = get_call(channel), b"\x12\x10" + b"k" * 16
        call(request, timeout=60)
        if options.futures:
            join = call_futures(run, call, request, options.futures)
        elif options.tasks:
            join = call_in_tasks(run, options, request, options.tasks)
        elif options.windows:
            join = call_windows(run, call, request, options.windows)
        else:
            join = call_in_threads(run, call, request, options.threads or 1)
        time.sleep(min(1, options.seconds / 4))
        begun, begun_cpu, before = time.monotonic(), cpu_s(), run.count()
        time.sleep(options.seconds)
        passed, used, calls = time.monotonic() - begun, cpu_s() - begun_cpu, run.count() - before
        run.is_over = True
        join()
    figures = {"calls": calls, "calls_per_s": calls / passed, "cpu_us": used * 1e6 / max(calls, 1)}
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
