"""The metrics, read by Prometheus' own parser, against what was called."""

import os
import re
import shutil
import socket
import time
from concurrent import futures

import grpc
import pytest
from metrics_page import (
    assert_calls_add_up,
    counter,
    fetch,
    metrics_address,
    wait_until_calls_add_up,
)
from pelton.v1 import admin_pb2, admin_pb2_grpc, echo_pb2, echo_pb2_grpc, kv_pb2_grpc
from pelton.v1 import kv_pb2 as pb
from prometheus_client.parser import text_string_to_metric_families
from raw import DATA, END_STREAM, RST_STREAM, Connection, frame, grpc_message
from server import Server, expect_status, open_channel, wait_until


class Scrape:
    """Families by name, and single samples by name and labels."""

    def __init__(self, server):
        response, body = fetch(server)
        assert response.status == 200
        assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        self.families = {family.name: family for family in text_string_to_metric_families(body)}
        self.body = body

    def value(self, name, **labels):
        found = [
            sample.value
            for family in self.families.values()
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]
        assert len(found) == 1, f"{name} {labels}: {found}"
        return found[0]

    def handled(self, method, code="OK"):
        names = {"grpc_service": "pelton.v1.KeyValue", "grpc_method": method}
        return self.value("grpc_server_handled_total", **names, grpc_code=code)


@pytest.fixture
def measured(binary, tmp_path):
    with Server(
        binary, "--metrics-listen", "0", "--data", str(tmp_path / "data"), "--threads", "2"
    ) as server:
        yield server


def test_counts_are_those_of_the_calls(measured):
    with open_channel(measured.address) as first, open_channel(measured.address) as second:
        kv, other = kv_pb2_grpc.KeyValueStub(first), kv_pb2_grpc.KeyValueStub(second)
        for number in range(30):
            kv.Put(pb.PutRequest(key=b"%d" % number, value=b"x" * 100))
        for number in range(50):
            other.Get(pb.GetRequest(key=b"%d" % number))
        for _ in range(3):
            expect_status(
                grpc.StatusCode.NOT_FOUND,
                lambda: kv.Get(pb.GetRequest(database="nowhere", key=b"k")),
            )
        nowhere = first.unary_unary("/no.such/Method")
        expect_status(grpc.StatusCode.UNIMPLEMENTED, lambda: nowhere(b""))
        list(kv.Scan(pb.ScanRequest()))
        now = Scrape(measured)
        assert now.handled("Put") == 30
        assert now.handled("Get") == 50
        assert now.handled("Get", "NOT_FOUND") == 3
        assert now.handled("Scan") == 1
        assert now.handled("Delete") == 0, "what was never called is there too"
        assert_calls_add_up(now.families.values())
        assert now.value("pelton_refused_calls_total", reason="unknown_method") == 1
        assert now.value("pelton_refused_calls_total", reason="stopping") == 0
        assert now.value("pelton_connections") == 2
        assert now.value("pelton_connections_opened_total") == 2
        assert now.value("pelton_running_calls") == 0
        assert now.value("pelton_received_bytes_total") > 30 * 100
        assert now.value("pelton_sent_bytes_total") > 30 * 100
        samples = now.families["grpc_server_handled"].samples
        kinds = {sample.labels["grpc_method"]: sample.labels["grpc_type"] for sample in samples}
        assert (kinds["Put"], kinds["Scan"], kinds["Pipe"]) == (
            "unary",
            "server_stream",
            "bidi_stream",
        )
    wait_until(lambda: Scrape(measured).value("pelton_connections") == 0)
    assert Scrape(measured).value("pelton_connections_closed_total") == 2


def test_what_the_connection_refuses_counts_with_the_status_that_was_seen(measured):
    put = "/pelton.v1.KeyValue/Put"
    for round in range(1, 3):
        with open_channel(measured.address) as channel:
            large = pb.PutRequest(key=b"k", value=bytes(5 << 20))
            expect_status(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                lambda: kv_pb2_grpc.KeyValueStub(channel).Put(large),
            )
        with Connection(measured.address) as connection:
            stream, head = connection.request(put)
            connection.send(head + frame(DATA, END_STREAM, stream, grpc_message(b"cut short")[:-1]))
            assert connection.wait(stream).grpc_status == 13
            stream, head = connection.request(put)
            connection.send(head + frame(RST_STREAM, 0, stream, (8).to_bytes(4)))
        wait_until(lambda: Scrape(measured).value("pelton_connections") == 0)
        now = Scrape(measured)
        codes = ["RESOURCE_EXHAUSTED", "INTERNAL", "CANCELLED"]
        assert [now.handled("Put", code) for code in codes] == [round] * 3
        wait_until_calls_add_up(measured)


def test_requests_of_plain_http_are_counted_as_calls_are(measured):
    def handled(method, code="OK"):
        names = {"grpc_service": "http.Blob", "grpc_method": method}
        return Scrape(measured).value("grpc_server_handled_total", **names, grpc_code=code)

    with Connection(measured.address) as connection:
        for status in ["404", "404"]:
            answer = connection.wait(connection.get("/blob/nothing"))
            assert answer.headers[":status"] == status
    wait_until(lambda: handled("GET", "NOT_FOUND") == 2)
    assert handled("PUT") == 0, "what was never asked for is there too"
    assert_calls_add_up(Scrape(measured).families.values())


def total_handled(scrape):
    """Calls that have ended, by status."""
    totals = {}
    for sample in scrape.families["grpc_server_handled"].samples:
        if sample.name == "grpc_server_handled_total":
            code = sample.labels["grpc_code"]
            totals[code] = totals.get(code, 0) + sample.value
    return {code: int(calls) for code, calls in totals.items() if calls}


def chaos(server, expected):
    """Calls that end in every way, each of which has surely begun; notes how they end."""

    def count(code):
        expected[code] = expected.get(code, 0) + 1

    with open_channel(server.address) as channel:
        kv, echo = kv_pb2_grpc.KeyValueStub(channel), echo_pb2_grpc.EchoStub(channel)
        for number in range(20):
            kv.Put(pb.PutRequest(key=b"%d" % number, value=b"x" * 100_000))
            count("OK")
        for _ in range(3):
            expect_status(
                grpc.StatusCode.NOT_FOUND,
                lambda: kv.Get(pb.GetRequest(database="nowhere", key=b"k")),
            )
            count("NOT_FOUND")
            expect_status(
                grpc.StatusCode.RESOURCE_EXHAUSTED, lambda: kv.Put(pb.PutRequest(key=b"k" * 70_000))
            )
            count("RESOURCE_EXHAUSTED")
        for _ in range(4):
            # A first message came: the call had begun.
            scan = kv.Scan(pb.ScanRequest())
            next(scan)
            stream = echo.Stream(
                iter([echo_pb2.EchoRequest(payload=b"x"), echo_pb2.EchoRequest(delay_ms=60_000)])
            )
            next(stream)
            stream.cancel()
            count("CANCELLED")
            assert sum(1 for _ in scan) >= 0
            count("OK")
        # Left in the midst, with their connection.
        left = [
            echo.Stream(
                iter([echo_pb2.EchoRequest(payload=b"x"), echo_pb2.EchoRequest(delay_ms=60_000)])
            )
            for _ in range(5)
        ]
        for stream in left:
            next(stream)
            count("CANCELLED")
    # Half a request, and gone.
    host, port = server.address.rsplit(":", 1)
    for begun in (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0", b"PRI * HT", b""):
        with socket.create_connection((host, int(port)), timeout=10) as raw:
            raw.sendall(begun)


def test_counters_add_up_and_return_to_zero(measured):
    expected = {}
    for _ in range(2):
        chaos(measured, expected)
        wait_until(lambda: Scrape(measured).value("pelton_connections") == 0)
        wait_until(lambda: total_handled(Scrape(measured)) == expected)
        now = Scrape(measured)
        assert now.value("pelton_running_calls") == 0
        assert now.value("pelton_buffered_bytes") == 0
        assert now.value("pelton_connections_opened_total") == now.value(
            "pelton_connections_closed_total"
        )
        for state in ("input", "output"):
            assert now.value("pelton_socket_buffers", state=state) == 0, state
        took = [
            sample
            for sample in now.families["grpc_server_handling_seconds"].samples
            if sample.name.endswith("_count")
        ]
        assert sum(sample.value for sample in took) == sum(expected.values()), (
            "each call has one duration"
        )
        assert_calls_add_up(now.families.values())


def test_durations_are_those_of_the_calls(measured):
    with open_channel(measured.address) as channel:
        echo = echo_pb2_grpc.EchoStub(channel)

        def seconds_of(delay_ms):
            begin = time.monotonic()
            echo.Unary(echo_pb2.EchoRequest(delay_ms=delay_ms))
            return time.monotonic() - begin

        seconds = sum(map(seconds_of, [20, 20, 70]))
        with futures.ThreadPoolExecutor(10) as threads:
            seconds += sum(threads.map(seconds_of, [0] * 200))
    now = Scrape(measured)
    name = "grpc_server_handling_seconds"
    assert now.value(f"{name}_count", grpc_service="pelton.v1.Echo", grpc_method="Unary") == 203
    # At most what the client has seen; at least what was asked for.
    assert 0.110 <= now.value(f"{name}_sum", grpc_method="Unary") <= seconds
    buckets = {
        float(sample.labels["le"]): sample.value
        for sample in now.families[name].samples
        if sample.name.endswith("_bucket") and sample.labels["grpc_method"] == "Unary"
    }
    counts = [buckets[bound] for bound in sorted(buckets)]
    assert counts == sorted(counts) and counts[-1] == 203, "they add up"
    assert buckets[0.016384] <= 200, "no call with a delay is below it"


def test_the_log_and_the_databases_are_shown(measured):
    with open_channel(measured.address) as channel:
        kv, admin = kv_pb2_grpc.KeyValueStub(channel), admin_pb2_grpc.AdminStub(channel)
        description = admin_pb2.DatabaseDescription(
            name='quote"d', durability=admin_pb2.DURABILITY_MODE_VOLATILE
        )
        created = True
        try:
            admin.CreateDatabase(admin_pb2.CreateDatabaseRequest(database=description))
        except grpc.RpcError:
            created = False  # names are restricted: one less to escape
        before = Scrape(measured)
        for number in range(20):
            kv.Put(pb.PutRequest(key=b"%03d" % number, value=b"x" * 97))
        after = Scrape(measured)
        statistics = admin.Statistics(admin_pb2.StatisticsRequest())

        def grown(name):
            return after.value(name) - before.value(name)

        # Each waited for the one before: a group and a sync for each.
        assert grown("pelton_log_groups_total") == grown("pelton_log_records_total") == 20
        assert grown("pelton_log_syncs_total") >= 20
        assert grown("pelton_log_sync_duration_seconds_count") == 20
        assert grown("pelton_log_sync_duration_seconds_sum") > 0
        assert grown("pelton_log_bytes_total") >= 20 * 512
        assert after.value("pelton_log_durable_sequence") == after.value(
            "pelton_log_written_sequence"
        )
        assert after.value("pelton_log_durable_sequence") == statistics.log.durable_sequence
        assert after.value("pelton_log_failed") == after.value("pelton_log_full") == 0
        assert after.value("pelton_database_entries", database="") == 20
        assert after.value("pelton_database_content_bytes", database="") == 20 * 100
        assert not created or after.value("pelton_database_entries", database='quote"d') == 0
        assert after.value("pelton_data_memory_bytes") == statistics.memory_bytes
        assert after.value("pelton_data_memory_limit_bytes") == statistics.memory_limit_bytes
        assert before.value("pelton_snapshots_total") == 0
        admin.Snapshot(admin_pb2.SnapshotRequest())
        # The caller may hear of it before the committer counts it.
        wait_until(lambda: Scrape(measured).value("pelton_snapshots_total") == 1)
        done = Scrape(measured)
        assert done.value("pelton_snapshot_sequence") == after.value("pelton_log_durable_sequence")
        assert done.value("pelton_snapshot_bytes") > 20 * 100


def test_what_is_written_is_ahead_of_what_is_durable_until_it_is_synced(binary, tmp_path):
    folder = ["--data", str(tmp_path / "data"), "--durability", "interval=10s"]
    with (
        Server(binary, "--metrics-listen", "0", *folder) as server,
        open_channel(server.address) as channel,
    ):
        kv = kv_pb2_grpc.KeyValueStub(channel)
        before = Scrape(server).value("pelton_log_durable_sequence")
        put = kv.Put(pb.PutRequest(key=b"k", value=b"v"))
        now = Scrape(server)
        assert now.value("pelton_log_written_sequence") == put.version
        assert now.value("pelton_log_durable_sequence") == before < put.version


def test_room_and_backups_are_those_of_the_folders(binary, tmp_path):
    """Read anew at each scrape; a folder that is gone is left out, and all else is there."""
    root = tmp_path / "backups"
    folders = ["--data", str(tmp_path / "data"), "--backup-root", str(root)]
    with Server(binary, "--metrics-listen", "0", *folders) as server:
        room = os.statvfs(root)
        now = Scrape(server)
        for folder in ("data", "backup-root"):
            total = now.value("pelton_folder_total_bytes", folder=folder)
            assert total == room.f_blocks * room.f_frsize
            free = now.value("pelton_folder_free_bytes", folder=folder)
            assert 0 < free <= total
        assert now.value("pelton_newest_backup_seconds") == 0
        with open_channel(server.address) as channel:
            admin = admin_pb2_grpc.AdminStub(channel)
            for name in ("first", "second"):
                begun = int(time.time())
                list(admin.Backup(admin_pb2.BackupRequest(name=name)))
                made = Scrape(server).value("pelton_newest_backup_seconds")
                assert begun <= made <= time.time()
        # What is no backup does not count.
        (root / "unfinished").mkdir()
        assert Scrape(server).value("pelton_newest_backup_seconds") == made
        shutil.rmtree(root)
        gone = Scrape(server).body
        assert 'pelton_folder_free_bytes{folder="data"}' in gone
        assert '"backup-root"' not in gone and "newest_backup" not in gone


def test_a_server_without_a_data_folder_shows_what_it_has(binary):
    """No figures of a log that is not there, and those of memory return to where they were."""
    with Server(binary, "--metrics-listen", "0") as server, open_channel(server.address) as channel:
        kv, admin = kv_pb2_grpc.KeyValueStub(channel), admin_pb2_grpc.AdminStub(channel)
        absent = ("pelton_log_", "pelton_snapshot", "pelton_blob_", "pelton_folder_")
        present = ("pelton_reclaiming_entries", "pelton_readers", "pelton_reader_jobs_waiting")
        before = counter(server, "pelton_data_memory_bytes")
        gone = admin_pb2.DatabaseDescription(
            name="gone", durability=admin_pb2.DURABILITY_MODE_VOLATILE
        )
        for _ in range(2):
            admin.CreateDatabase(admin_pb2.CreateDatabaseRequest(database=gone))
            for start in range(0, 20_000, 1_000):
                puts = [
                    pb.Operation.Put(key=b"%d" % number, value=b"v" * 50)
                    for number in range(start, start + 1_000)
                ]
                kv.Batch(
                    pb.BatchRequest(
                        database="gone", operations=[pb.Operation(put=put) for put in puts]
                    )
                )
            assert counter(server, "pelton_data_memory_bytes") > before + 20_000 * 50
            admin.DropDatabase(admin_pb2.DropDatabaseRequest(name="gone", confirm_name="gone"))
            # It is freed elsewhere, and not counted there: it is neither shown as waiting nor as
            # used.
            wait_until(lambda: counter(server, "pelton_data_memory_bytes") == before)
            names = [
                sample.name
                for family in Scrape(server).families.values()
                for sample in family.samples
            ]
            assert not [name for name in names if name.startswith(absent)]
            assert [counter(server, name) for name in present] == [0, 0, 0]
            blobs = [name for name in names if name.startswith("pelton_database_blob")]
            assert [Scrape(server).value(name, database="") for name in blobs] == [0] * len(blobs)


def test_the_process_is_shown(measured):
    now = Scrape(measured)
    assert abs(now.value("process_resident_memory_bytes") / measured.resident_bytes() - 1) < 0.5
    assert 0 < now.value("process_cpu_seconds_total") < 60
    assert abs(now.value("process_start_time_seconds") - time.time()) < 60
    assert now.value("pelton_build_info") == 1


def test_every_family_is_described_by_the_rules(measured):
    families = Scrape(measured).families.values()
    assert len(families) > 40
    for family in families:
        assert family.documentation, family.name
        assert family.type in ("counter", "gauge", "histogram"), family.name
        assert re.match(r"(pelton|grpc_server|process)_[a-z_]+$", family.name), family.name
        assert not re.search(r"_(ms|ns|us|kib|mib|seconds_total_seconds)$", family.name), (
            "base units"
        )
        # The parser takes `_total` off the names of counters.
        totals = [sample.name.endswith("_total") for sample in family.samples]
        assert all(totals) if family.type == "counter" else not any(totals), family.name


def test_what_is_no_scrape_is_told_so(measured):
    assert fetch(measured, "/")[0].status == 200
    assert fetch(measured, "/nothing")[0].status == 404
    assert fetch(measured, method="POST")[0].status == 405
    assert fetch(measured, method="HEAD")[1] == ""
    # Opened and left: they hold up nobody else.
    idle = [socket.create_connection(metrics_address(measured)) for _ in range(3)]
    assert Scrape(measured).value("pelton_build_info") == 1
    for one in idle:
        one.close()


def test_without_the_flag_nothing_is_served(server):
    assert "metrics at" not in server.log()


def test_an_address_in_use_is_refused(binary, measured):
    host, port = metrics_address(measured)
    with pytest.raises(AssertionError, match="--metrics-listen says where"):
        Server(binary, "--metrics-listen", f"{host}:{port}")


def test_those_who_watch_are_counted_and_none_is_left(binary):
    with Server(binary, "--metrics-listen", "0") as server, open_channel(server.address) as channel:
        kv = kv_pb2_grpc.KeyValueStub(channel)
        for _ in range(2):
            calls = [kv.Watch(pb.WatchRequest()) for _ in range(3)]
            for call in calls:
                next(call)
            assert counter(server, "pelton_waiting_calls") == len(calls)
            assert counter(server, "pelton_watched_databases") == 1
            before = counter(server, "pelton_watched_bytes")
            kv.Put(pb.PutRequest(key=b"key", value=bytes(1_000)))
            assert before + 1_000 <= counter(server, "pelton_watched_bytes") < before + 2_000
            for call in calls:
                call.cancel()
            wait_until(lambda: counter(server, "pelton_waiting_calls") == 0)
