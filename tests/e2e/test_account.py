"""What a call can make the server hold is charged to an account before it exists.

Many who ask for much and read nothing end neither the process nor anybody's calls, and memory stays
within its bound.
"""

import gzip
import threading
import time
from concurrent import futures

import grpc
import pytest
from flood import MIB, Flood, Honest, judge, status_bytes
from metrics_page import counter
from pelton.v1 import admin_pb2, admin_pb2_grpc, echo_pb2, kv_pb2_grpc
from pelton.v1 import kv_pb2 as pb
from raw import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    MAX_WINDOW,
    Answer,
    frame,
    grpc_message,
    literal_block,
)
from server import Server, expect_status, open_channel, wait_until

SCAN = "/pelton.v1.KeyValue/Scan"
GET = "/pelton.v1.KeyValue/Get"
ECHO = "/pelton.v1.Echo/Unary"
BATCH = "/pelton.v1.KeyValue/Batch"
STATISTICS = "/pelton.v1.Admin/Statistics"
TOO_MUCH = grpc.StatusCode.RESOURCE_EXHAUSTED
LARGE = b"0123456789" * 390_000


@pytest.fixture(params=["memory", "disk"])
def place(request, tmp_path):
    """Flags of a server whose default database is in memory, or on disk."""
    if request.param == "memory":
        return []
    flags = ["--data", str(tmp_path / "data"), "--kind", "disk", "--durability", "written"]
    # The cache of blocks comes beside the memory limit.
    return flags + ["--disk-cache", "8MiB"]


def put(server, entries):
    with open_channel(server.address) as channel:
        kv = kv_pb2_grpc.KeyValueStub(channel)
        for key, value in entries:
            kv.Put(pb.PutRequest(key=key, value=value))


def operation_get(key):
    return pb.Operation(get=pb.Operation.Get(key=key))


def batch_of(keys):
    return pb.BatchRequest(operations=[operation_get(key) for key in keys]).SerializeToString()


def large_batch(count=15):
    operations = [operation_get(b"large")] * count
    return pb.BatchRequest(operations=operations, max_answer_bytes=64 * MIB)


def running_calls(server):
    with open_channel(server.address) as channel:
        admin = admin_pb2_grpc.AdminStub(channel)
        return admin.Statistics(admin_pb2.StatisticsRequest(), timeout=30).running_calls


def assert_all_is_given_back(server, limit_bytes):
    """After the attackers have gone none of their calls runs, and a stop is a clean one."""
    # The question itself is a running call.
    wait_until(lambda: running_calls(server) <= 1, 60, "calls of those who have gone still run")
    wait_until(
        lambda: status_bytes(server.process.pid, "VmRSS") <= limit_bytes + 64 * MIB,
        60,
        "memory is not given back",
    )
    assert server.stop() == 0, server.log()


SCANNED = [(b"scan/%03d" % number, bytes([number]) * 25_000) for number in range(100)]


def scans_whole(channel):
    call = kv_pb2_grpc.KeyValueStub(channel).Scan(pb.ScanRequest(prefix=b"scan/"), timeout=120)
    found = [(entry.key, entry.value) for page in call for entry in page.entries]
    assert found == SCANNED, "a scan is not whole"


def test_many_scans_that_are_read(binary, place):
    """300 Scans of 2.5 MB on one channel, more than one connection may have unsent, all whole."""
    with Server(binary, "--memory-limit", "128MiB", *place) as server:
        put(server, SCANNED)
        with open_channel(server.address) as channel:
            kv = kv_pb2_grpc.KeyValueStub(channel)
            calls = [kv.Scan(pb.ScanRequest(prefix=b"scan/"), timeout=240) for _ in range(300)]
            with futures.ThreadPoolExecutor(16) as threads:
                whole = list(threads.map(is_whole, calls))
        judge(server, 128 * MIB, 2)
        assert all(whole), f"{whole.count(False)} scans are not whole"
        assert server.stop() == 0


def is_whole(call):
    try:
        found = [(entry.key, entry.value) for page in call for entry in page.entries]
    except grpc.RpcError as error:
        print(error.code(), error.details())
        return False
    return found == SCANNED


def test_many_scans_that_are_not_read(binary, place):
    with Server(binary, "--memory-limit", "128MiB", *place) as server:
        put(server, SCANNED)
        with Honest(server.address, call=scans_whole) as honest:
            with open_channel(server.address) as channel:
                kv = kv_pb2_grpc.KeyValueStub(channel)
                calls = [kv.Scan(pb.ScanRequest(prefix=b"scan/")) for _ in range(255)]
                honest.wait_rounds(20)
                for call in calls:
                    call.cancel()
        judge(server, 128 * MIB, 4, honest)
        assert_all_is_given_back(server, 128 * MIB)


def test_many_scans_without_a_window(binary, place):
    with Server(binary, "--memory-limit", "128MiB", *place) as server:
        put(server, [(b"large", b"v" * 100_000)])
        with Honest(server.address) as honest, Flood(server.address) as flood:
            flood.calls(SCAN, pb.ScanRequest(prefix=b"large").SerializeToString(), 700)
            honest.wait_rounds(20)
            flood.poll()
        judge(server, 128 * MIB, 4, honest)
        assert_all_is_given_back(server, 128 * MIB)


def test_scans_of_long_keys_that_are_not_read(binary, place):
    """What each of 50 000 scans keeps to go on from, a key of 64 kB, is memory too."""
    with Server(binary, "--memory-limit", "128MiB", *place) as server:
        put(server, [(b"k%03d" % number + b"k" * 65_000, b"v") for number in range(20)])
        request = pb.ScanRequest(prefix=b"k", keys_only=True).SerializeToString()
        floods = []
        try:
            with Honest(server.address) as honest:
                for _ in range(100):
                    floods.append(
                        Flood(
                            server.address, MIB, connection_window=MAX_WINDOW, receive_buffer=4096
                        )
                    )
                    floods[-1].calls(SCAN, request, 500, seconds=1)
                honest.wait_rounds(20)
        finally:
            for flood in floods:
                flood.socket.close()
        judge(server, 128 * MIB, 104, honest)
        assert_all_is_given_back(server, 128 * MIB)


def test_one_value_for_readers_that_do_not_read(binary, place):
    """A value that is shared is charged once: 1400 unread answers of 3.9 MB keep nobody out."""
    with Server(binary, "--memory-limit", "256MiB", *place) as server:
        put(server, [(b"large", LARGE)])
        floods = []
        try:
            with Honest(server.address) as honest:
                for _ in range(70):
                    floods.append(Flood(server.address))
                    floods[-1].calls(GET, pb.GetRequest(key=b"large").SerializeToString(), 20)
                honest.wait_rounds(30)
        finally:
            for flood in floods:
                flood.poll()
                flood.socket.close()
        judge(server, 256 * MIB, 73, honest)
        assert_all_is_given_back(server, 256 * MIB)


def test_large_batches_that_are_not_read(binary, place):
    with Server(binary, "--memory-limit", "128MiB", *place) as server:
        put(server, [(b"large", LARGE)])
        request = large_batch()
        with Honest(server.address) as honest, Flood(server.address) as flood:
            flood.calls(BATCH, request.SerializeToString(), 20)
            honest.wait_rounds(20)
        judge(server, 128 * MIB, 4, honest)
        assert_all_is_given_back(server, 128 * MIB)


def test_large_batches_that_are_read_are_whole(binary, place):
    """Values in memory are shared; those from a disk are the answer's own, and an answer may have
    an eighth."""
    count = 4 if place else 15
    with Server(binary, "--memory-limit", "128MiB", *place) as server:
        put(server, [(b"large", LARGE)])
        request = large_batch(count)
        with open_channel(server.address, ("grpc.max_receive_message_length", -1)) as channel:
            kv = kv_pb2_grpc.KeyValueStub(channel)
            with futures.ThreadPoolExecutor(4) as threads:
                for answer in threads.map(lambda _: kv.Batch(request, timeout=120), range(8)):
                    values = [result.get.value == LARGE for result in answer.results]
                    assert values == [True] * count
            if place:
                with pytest.raises(grpc.RpcError) as refused:
                    kv.Batch(large_batch(count + 1))
                assert refused.value.code() == TOO_MUCH
                assert "16777216 bytes" in refused.value.details()
                assert "--memory-limit" in refused.value.details()
        judge(server, 128 * MIB, 2)


def test_stalled_statistics(binary, tmp_path):
    with Server(binary, "--memory-limit", "128MiB", "--data", str(tmp_path / "data")) as server:
        with open_channel(server.address) as channel:
            admin = admin_pb2_grpc.AdminStub(channel)

            def create(number):
                database = admin_pb2.DatabaseDescription(
                    name=f"database-with-a-long-name-{number:04}-{'x' * 150}",
                    durability=admin_pb2.DURABILITY_MODE_VOLATILE,
                )
                request = admin_pb2.CreateDatabaseRequest(database=database)
                assert admin.CreateDatabase(request).created

            with futures.ThreadPoolExecutor(16) as threads:
                list(threads.map(create, range(999)))
        floods = []
        try:
            with Honest(server.address) as honest:
                for _ in range(4):
                    floods.append(Flood(server.address))
                    floods[-1].calls(STATISTICS, b"", 4000)
                honest.wait_rounds(20)
        finally:
            for flood in floods:
                flood.socket.close()
        judge(server, 128 * MIB, 8, honest)
        assert_all_is_given_back(server, 128 * MIB)


def test_appends_to_many_large_values_are_refused_beforehand(binary, place):
    """What one commit would rewrite is bounded by name: Appends to six values copy 23 MB."""
    with Server(binary, *place) as server, open_channel(server.address) as channel:
        kv = kv_pb2_grpc.KeyValueStub(channel)
        keys = [b"large/%d" % number for number in range(6)]
        put(server, [(key, LARGE) for key in keys])
        appends = [pb.Operation(append=pb.Operation.Append(key=key, value=b"+")) for key in keys]
        for mode in [pb.BATCH_MODE_ATOMIC, pb.BATCH_MODE_INDEPENDENT]:
            request = pb.BatchRequest(operations=appends, mode=mode)
            with Honest(server.address) as honest:
                failed = expect_status(TOO_MUCH, lambda: kv.Batch(request), "bytes")  # noqa: B023
                print(failed.details())
                honest.wait_rounds(2)
            for key in keys:
                assert kv.Get(pb.GetRequest(key=key)).value == LARGE, "something was applied"
        batches = [pb.PipeRequest(operations=appends[:count]) for count in (6, 1)]
        answers = list(kv.Pipe(iter(batches)))
        assert answers[0].failure.code == TOO_MUCH.value[0], answers[0]
        assert kv.Get(pb.GetRequest(key=keys[0])).value == LARGE + b"+"
        expect_status(TOO_MUCH, lambda: kv.Transact(pb.TransactRequest(when_met=appends)), "bytes")
        # Many to one value copy it once, and many to small values are fine.
        assert kv.Batch(pb.BatchRequest(operations=appends[1:2] * 10_000)).applied
        small = pb.Operation(append=pb.Operation.Append(key=b"small", value=b"+"))
        assert kv.Batch(pb.BatchRequest(operations=[small] * 1_000)).applied
        assert kv.Get(pb.GetRequest(key=b"small")).value == b"+" * 1_000


def append(number):
    request = pb.AppendRequest(key=b"large/%d" % (number % 16), value=b"+")
    return grpc_message(request.SerializeToString())


def test_appends_to_large_values_on_disk_without_a_pause(binary, tmp_path):
    """Each rewrites 3.9 MB: in the log, a memtable, and tables. What is not counted for the limit
    stays within what databases on disk may need."""
    flags = ["--data", str(tmp_path / "data"), "--kind", "disk", "--durability", "written"]
    flags += ["--memory-limit", "64MiB", "--disk-cache", "8MiB"]
    with Server(binary, *flags) as server:
        put(server, [(b"large/%d" % number, LARGE) for number in range(16)])
        floods = [Flood(server.address, window=1 << 20) for _ in range(4)]
        for _ in range(2):
            for flood in floods:
                assert len(flood.calls("/pelton.v1.KeyValue/Append", append, 30)) == 30
            for flood in floods:
                is_over = lambda flood=flood: flood.ended() == len(flood.answers)  # noqa: E731
                wait_until(lambda: flood.poll(0.1) or is_over(), 120)  # noqa: B023
        for flood in floods:
            # Where the device is slow, memory is full at times.
            assert set(flood.statuses()) <= {0, TOO_MUCH.value[0]}
            flood.socket.close()
        # Where machine and device are busy, memtables wait to be written out: 126 to 199 MiB were
        # seen in all.
        waiting_bytes = 32 * MIB
        judge(server, 64 * MIB + waiting_bytes, 4)
        assert_all_is_given_back(server, 64 * MIB)


def test_calls_of_every_size_at_once_by_one_who_does_not_read(binary):
    """One address holds all it can get over many connections; new callers are served all the
    same."""
    with Server(binary, "--memory-limit", "96MiB") as server:
        put(server, SCANNED + [(b"large", LARGE)])
        requests = [
            (SCAN, pb.ScanRequest(prefix=b"scan/").SerializeToString()),
            (GET, pb.GetRequest(key=b"large").SerializeToString()),
            (BATCH, batch_of([b"large"])),
            (BATCH, batch_of([key for key, _ in SCANNED])),
        ]
        floods = []
        try:
            with Honest(server.address) as honest:
                for number in range(40):
                    floods.append(Flood(server.address))
                    path, message = requests[number % len(requests)]
                    floods[-1].calls(path, message, 100)
                honest.wait_rounds(30)
        finally:
            for flood in floods:
                flood.socket.close()
        judge(server, 96 * MIB, 44, honest)
        assert_all_is_given_back(server, 96 * MIB)


def test_half_requests_of_many_who_go_on_with_none(binary):
    """Messages that were begun and not ended are charged as they come, and keep out nobody."""
    with Server(binary, "--memory-limit", "96MiB", "--metrics-listen", "0") as server:
        message = pb.PutRequest(key=b"half", value=b"v" * 60_000).SerializeToString()
        floods = []
        try:
            with Honest(server.address) as honest:
                threads = []
                for _ in range(20):
                    floods.append(Flood(server.address))
                    # All of each message but its end: none of it is ever free to go.
                    work = (floods[-1], message, 400)
                    threads.append(threading.Thread(target=begin_halves, args=work, daemon=True))
                    threads[-1].start()
                honest.wait_rounds(30)
                for thread in threads:
                    thread.join(60)
                # Some were closed to make room, and it is shown how many.
                evicted = lambda: counter(server, "pelton_connections_evicted_total")  # noqa: E731
                wait_until(lambda: evicted() > 0, 60, "nobody was closed to make room")
                assert evicted() <= len(floods)
        finally:
            for flood in floods:
                flood.socket.close()
        judge(server, 96 * MIB, 24, honest)
        assert_all_is_given_back(server, 96 * MIB)


def begin_halves(flood, message, count):
    """Each message claims to be longer than what is sent of it."""
    body = b"\0" + (len(message) + 10).to_bytes(4) + message
    flood.calls("/pelton.v1.KeyValue/Put", lambda _: body, count, end=False, seconds=5)


def puts_medium(seconds):
    """Puts more than a window lets through, each within that time."""

    def put_one(channel):
        kv = kv_pb2_grpc.KeyValueStub(channel)
        for size in (300_000, 3_900_000):
            begin = time.monotonic()
            kv.Put(pb.PutRequest(key=b"medium", value=bytes(size)), timeout=30)
            took = time.monotonic() - begin
            assert took < seconds, f"a Put of {size} bytes took {took:.1f} s"

    return put_one


@pytest.mark.parametrize(("connections", "streams", "sent"), [(200, 1, 60_000), (10, 900, 100)])
def test_messages_that_stand_still_keep_no_large_ones_out(binary, connections, streams, sent):
    """Each claims 4 MB, brings some of it, and a byte now and then, for which it had a turn."""
    body = b"\0" + (4_000_000).to_bytes(4) + bytes(sent)
    with Server(binary, "--memory-limit", "64MiB", "--metrics-listen", "0") as server:
        with Honest(server.address, call=puts_medium(10)) as honest:
            for _ in range(2):
                floods = [Flood(server.address) for _ in range(connections)]
                for flood in floods:
                    flood.calls(PUT, lambda _: body, streams, end=False, seconds=5)
                stop = threading.Event()
                work = (floods, streams, stop)
                thread = threading.Thread(target=send_bytes, args=work, daemon=True)
                thread.start()
                honest.wait_rounds(10)
                stop.set()
                thread.join(60)
                for flood in floods:
                    flood.socket.close()
        judge(server, 64 * MIB, connections + 4, honest)
        buffered = lambda: counter(server, "pelton_buffered_bytes")  # noqa: E731
        wait_until(lambda: buffered() == 0, 30, "something stays charged")
        assert_all_is_given_back(server, 64 * MIB)


def send_bytes(floods, streams, stop):
    """One byte on a stream of each, again and again."""
    round_number = 0
    while not stop.wait(0.2):
        stream = 1 + 2 * (round_number % streams)
        round_number += 1
        for flood in floods:
            flood.poll()
            flood.send_quietly(frame(DATA, 0, stream, b"\0"))


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/"), ("GET", "/none"), ("GET", "/blob/none"), ("POST", GET)]
)
def test_plain_answers_that_are_not_read(binary, method, path):
    """150 connections with 1000 requests each and shut windows: what is held of them is bounded."""
    head = [(":method", method), (":scheme", "http"), (":path", path), (":authority", "test")]
    block = literal_block(head)
    with Server(binary, "--memory-limit", "64MiB", "--metrics-listen", "0") as server:
        with Honest(server.address) as honest:
            for _ in range(2):
                floods = [Flood(server.address) for _ in range(150)]
                for flood in floods:
                    flood.answers = {stream: Answer() for stream in range(1, 2_001, 2)}
                    whole = END_HEADERS | END_STREAM
                    heads = [frame(HEADERS, whole, stream, block) for stream in flood.answers]
                    flood.send_quietly(b"".join(heads))
                honest.wait_rounds(20)
                charged = counter(server, "pelton_buffered_bytes")
                assert charged < 48 * MIB, f"{charged / MIB:.0f} MiB are charged"
                for flood in floods:
                    flood.socket.close()
        judge(server, 64 * MIB, 154, honest)
        buffered = lambda: counter(server, "pelton_buffered_bytes")  # noqa: E731
        wait_until(lambda: buffered() == 0, 30, "something stays charged")
        assert_all_is_given_back(server, 64 * MIB)


PUT = "/pelton.v1.KeyValue/Put"
PIPE = "/pelton.v1.KeyValue/Pipe"


def bomb(size):
    """A Put whose value is `size` zeros, a thousandth of that when compressed, as a gRPC
    message."""
    request = pb.PutRequest(key=b"bomb", value=bytes(size)).SerializeToString()
    return grpc_message(gzip.compress(request, 9), compressed=1)


def test_small_messages_that_become_large(binary):
    """200 connections send messages of 15 KiB that become 16 MiB, again and again."""
    body = bomb((16 << 20) - 64)
    with Server(binary, "--memory-limit", "128MiB") as server:
        floods = []
        try:
            with Honest(server.address) as honest:
                for _ in range(200):
                    floods.append(Flood(server.address))
                    floods[-1].calls(PUT, lambda _: body, 3, ("grpc-encoding", "gzip"))
                honest.wait_rounds(30)

                def ended():
                    for flood in floods:
                        flood.poll()
                    return sum(flood.ended() for flood in floods)

                # They are dealt with too, one after the other, and go on to be.
                for _ in range(2):
                    goal = ended() + 10
                    have_ended = lambda: ended() >= goal  # noqa: B023, E731
                    wait_until(have_ended, 120, "bombs are not dealt with")
        finally:
            for flood in floods:
                flood.socket.close()
        judge(server, 128 * MIB, 204, honest)
        assert_all_is_given_back(server, 128 * MIB)


@pytest.mark.parametrize(("connections", "streams"), [(10, 4), (60, 1)])
def test_small_messages_whose_large_responses_nobody_takes(binary, connections, streams):
    """16 MB come back of each 16 kB: those of a connection, and those of many, are not all made."""
    payload = echo_pb2.EchoRequest(payload=bytes(16_000_000)).SerializeToString()
    body = grpc_message(gzip.compress(payload, 9), compressed=1)
    with Server(binary, "--memory-limit", "64MiB", "--metrics-listen", "0") as server:
        with Honest(server.address, call=puts_medium(10)) as honest:
            for _ in range(2):
                floods = [Flood(server.address) for _ in range(connections)]
                for flood in floods:
                    flood.calls(ECHO, lambda _: body, streams, ("grpc-encoding", "gzip"))
                honest.wait_rounds(10)
                for flood in floods:
                    flood.socket.close()
        judge(server, 64 * MIB, connections + 4, honest)
        buffered = lambda: counter(server, "pelton_buffered_bytes")  # noqa: E731
        wait_until(lambda: buffered() == 0, 30, "something stays charged")
        assert_all_is_given_back(server, 64 * MIB)


def test_large_compressed_messages_among_them(binary):
    """Who sends an honest one, compressed, has it stored whole while others send bombs."""
    body, value = bomb(3_900_000), bytes(range(256)) * 15_000
    with Server(binary, "--memory-limit", "256MiB") as server:
        floods = []

        def put_compressed(channel):
            kv = kv_pb2_grpc.KeyValueStub(channel)
            request = pb.PutRequest(key=b"honest", value=value)
            kv.Put(request, timeout=60, compression=grpc.Compression.Gzip)
            assert kv.Get(pb.GetRequest(key=b"honest"), timeout=60).value == value

        try:
            with Honest(server.address, call=put_compressed) as honest:
                for _ in range(2):
                    for _ in range(20):
                        floods.append(Flood(server.address))
                        floods[-1].calls(PUT, lambda _: body, 10, ("grpc-encoding", "gzip"))
                    honest.wait_rounds(5)
        finally:
            for flood in floods:
                flood.socket.close()
        judge(server, 256 * MIB, 44, honest)
        assert_all_is_given_back(server, 256 * MIB)


def test_streams_that_are_opened_and_do_nothing(binary):
    """140 connections with all the streams that they may have: charged, and not all that there
    are."""
    with Server(binary, "--memory-limit", "128MiB", "--metrics-listen", "0") as server:
        floods = []
        try:
            with Honest(server.address, call=many_calls) as honest:
                for _ in range(2):
                    for _ in range(70):
                        floods.append(Flood(server.address))
                        floods[-1].calls(PIPE, lambda _: b"", 4_096, end=False, seconds=5)
                    honest.wait_rounds(10)
                evicted = lambda: counter(server, "pelton_connections_evicted_total")  # noqa: E731
                wait_until(lambda: evicted() > 0, 60, "nobody was closed to make room")
        finally:
            for flood in floods:
                flood.socket.close()
        judge(server, 128 * MIB, 144, honest)
        assert_all_is_given_back(server, 128 * MIB)


def many_calls(channel):
    """More calls at once than are always free."""
    kv = kv_pb2_grpc.KeyValueStub(channel)
    calls = [kv.Get.future(pb.GetRequest(key=b"honest/0"), timeout=30) for _ in range(100)]
    for call in calls:
        call.result()


def test_long_reads_of_one_connection(binary, place):
    """A thousand Scans, and reads of large values that nobody takes: others are served in
    between."""
    with Server(binary, "--memory-limit", "256MiB", *place) as server:
        put(server, SCANNED + [(b"large", LARGE)])
        scan = pb.ScanRequest(prefix=b"scan/").SerializeToString()
        get = pb.GetRequest(key=b"large").SerializeToString()
        stop = threading.Event()
        floods = [Flood(server.address, window=1 << 20, connection_window=1 << 30)]
        floods += [Flood(server.address) for _ in range(4)]

        def take():
            while not stop.is_set():
                floods[0].read(0.05)

        thread = threading.Thread(target=take, daemon=True)
        try:
            with Honest(server.address) as honest:
                for _ in range(2):
                    floods[0].calls(SCAN, scan, 1_000)
                    for flood in floods[1:]:
                        flood.calls(GET, get, 500)
                    if not thread.is_alive():
                        thread.start()
                    honest.wait_rounds(25)
        finally:
            stop.set()
            thread.join(60)
            for flood in floods:
                flood.socket.close()
        judge(server, 256 * MIB, 9, honest)
        assert_all_is_given_back(server, 256 * MIB)


def conditional_puts(numbers):
    """A Batch that is refused for what each of its keys has, and writes nothing."""
    request = pb.BatchRequest(mode=pb.BATCH_MODE_ATOMIC)
    for number in numbers:
        put = request.operations.add().put
        put.key, put.if_version = b"large/%d" % number, 1 << 60
    return request.SerializeToString()


def test_writes_that_must_know_large_values(binary, tmp_path):
    """What is on disk is read before a write is decided: in parts, where it is much."""
    flags = ["--data", str(tmp_path / "data"), "--kind", "disk", "--durability", "written"]
    flags += ["--memory-limit", "128MiB", "--disk-cache", "8MiB"]
    with Server(binary, *flags) as server:
        put(server, [(b"large/%d" % number, LARGE) for number in range(24)])
        for _ in range(2):
            with Honest(server.address) as honest:
                floods = [Flood(server.address, window=1 << 20) for _ in range(12)]
                for at, flood in enumerate(floods):
                    message = conditional_puts((at + 2 * step) % 24 for step in range(12))
                    assert len(flood.calls(BATCH, message, 8)) == 8
                honest.wait_rounds(10)
                for flood in floods:
                    wait_until(lambda: flood.poll(0.1) or flood.ended() == 8, 120)
                    assert flood.statuses() == {0: 8}
                    flood.socket.close()
            judge(server, 128 * MIB, 14, honest)
        assert_all_is_given_back(server, 128 * MIB)


def test_large_values_that_others_must_know_hold_up_no_small_writes(binary, tmp_path):
    """Hundreds of writes wait until a large value was read for each of them; those of others are
    done meanwhile, whether they must know something or not."""
    flags = ["--data", str(tmp_path / "data"), "--kind", "disk", "--durability", "written"]
    flags += ["--memory-limit", "64MiB", "--disk-cache", "8MiB"]
    with Server(binary, *flags) as server:
        put(server, [(b"large/%d" % number, LARGE) for number in range(16)])
        assert server.stop() == 0, server.log()
    with Server(binary, *flags) as server, open_channel(server.address) as channel:
        kv = kv_pb2_grpc.KeyValueStub(channel)
        for round in range(2):
            floods = [Flood(server.address, window=1 << 20) for _ in range(4)]
            for flood in floods:
                assert len(flood.calls("/pelton.v1.KeyValue/Put", unmet_put, 100)) == 100
            for number in range(20):
                kv.Put(pb.PutRequest(key=b"small", value=b"%d" % number), timeout=60)
                request = pb.IncrementRequest(key=b"count", delta=1)
                assert kv.Increment(request, timeout=60).value == 20 * round + number + 1
            for flood in floods:
                flood.poll(0.01)
            assert sum(flood.ended() for flood in floods) < 400, "small writes waited for all"
            for flood in floods:
                wait_until(lambda flood=flood: flood.poll(0.1) or flood.ended() == 100, 120)
                assert flood.statuses() == {0: 100}
                flood.socket.close()
        # Unlike reads of values for responses, these have no room beside it.
        peak = status_bytes(server.process.pid, "VmHWM")
        assert peak <= 128 * MIB + 5 * 128 * 1024, f"{peak / MIB:.0f} MiB were resident"
        assert_all_is_given_back(server, 64 * MIB)


def unmet_put(number):
    """A Put that is refused for what its key has."""
    request = pb.PutRequest(key=b"large/%d" % (number % 16), value=b"x", if_version=1 << 60)
    return grpc_message(request.SerializeToString())
