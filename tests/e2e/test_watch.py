"""Watch: what is committed in a range of keys, in order, whole, and from where it was left."""

import random
import threading
import time

import grpc
import pytest
from pelton.v1 import admin_pb2, admin_pb2_grpc, kv_pb2_grpc
from pelton.v1 import kv_pb2 as pb
from server import Server, open_channel, wait_until

SET, DELETE = pb.WatchResponse.CHANGE_KIND_SET, pb.WatchResponse.CHANGE_KIND_DELETE
EXPIRE, CLEAR = pb.WatchResponse.CHANGE_KIND_EXPIRE, pb.WatchResponse.CHANGE_KIND_CLEAR
SECONDS = 30


@pytest.fixture(scope="module", params=["volatile", "memory", "disk"])
def server(binary, request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    place = {
        "volatile": [],
        "memory": ["--data", str(folder / "pelton")],
        "disk": ["--data", str(folder / "pelton"), "--kind", "disk"],
    }[request.param]
    with Server(binary, "--threads", "2", *place) as running:
        running.kind = request.param
        yield running
        assert running.process.poll() is None, running.log()


@pytest.fixture
def kv(server):
    with open_channel(server.address) as channel:
        yield kv_pb2_grpc.KeyValueStub(channel)


@pytest.fixture
def database(server):
    """An empty one of the same kind, and volatile as the default one is."""
    name = f"watched-{random.getrandbits(40):x}"
    with open_channel(server.address) as channel:
        admin = admin_pb2_grpc.AdminStub(channel)
        create(admin, name, server)
        yield name


def create(admin, name, server):
    described = admin_pb2.DatabaseDescription(name=name)
    if server.kind == "disk":
        described.kind = admin_pb2.DATABASE_KIND_DISK
    if server.kind == "volatile":
        described.durability = admin_pb2.DURABILITY_MODE_VOLATILE
    assert admin.CreateDatabase(admin_pb2.CreateDatabaseRequest(database=described)).created


class Watching:
    """A watcher that reads all the time, from the moment on at which it is there."""

    def __init__(self, kv, **request):
        self.responses, self.error = [], None
        self.call = kv.Watch(pb.WatchRequest(**request))
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()
        wait_until(lambda: self.responses or self.error, message=lambda: str(self.error))

    def read(self):
        try:
            for response in self.call:
                self.responses.append(response)
        except grpc.RpcError as error:
            self.error = error

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.call.cancel()
        self.thread.join(SECONDS)

    @property
    def commits(self):
        return [commit for response in self.responses for commit in response.commits]

    @property
    def changes(self):
        return [change for commit in self.commits for change in commit.changes]

    @property
    def point(self):
        return self.responses[-1].resume

    def until(self, sequence):
        """Waits until everything up to a commit has been told."""
        wait_until(
            lambda: self.error or self.point.sequence >= sequence,
            message=lambda: f"{sequence}: {self.responses[-1:]} {self.error}",
        )
        assert self.error is None, self.error
        return self

    def ended(self):
        wait_until(lambda: self.error, message=lambda: str(self.responses[-3:]))
        return self.error.code(), self.error.details()


def put_in(key, value=b""):
    return pb.Operation(put=pb.Operation.Put(key=key, value=value))


def delete_in(key):
    return pb.Operation(delete=pb.Operation.Delete(key=key))


def batch(kv, database, *operations):
    answer = kv.Batch(pb.BatchRequest(database=database, operations=operations), timeout=SECONDS)
    assert answer.applied
    return answer.sequence


def kinds(watching):
    return [change.kind for change in watching.changes]


def shown(changes):
    return [(change.kind, change.entry.key, change.entry.value) for change in changes]


def test_each_commit_comes_once_whole_and_in_order(kv, database):
    with Watching(kv, database=database) as watching:
        assert watching.responses[0].resume.history_id and not watching.commits
        began_ms = time.time() * 1_000
        for turn in range(2):
            value = b"%d" % turn
            put = kv.Put(pb.PutRequest(database=database, key=b"a", value=value))
            both = batch(kv, database, put_in(b"b", value), put_in(b"c", value * 3_000))
            added = kv.Increment(pb.IncrementRequest(database=database, key=b"n", delta=2))
            longer = kv.Append(pb.AppendRequest(database=database, key=b"a", value=b"+"))
            same = batch(kv, database, put_in(b"d", b"1"), put_in(b"d", b"2"), delete_in(b"b"))
            kv.Delete(pb.DeleteRequest(database=database, key=b"c"))
            nothing = kv.Delete(pb.DeleteRequest(database=database, key=b"c"))
            wait_until(lambda n=6 * turn + 6: len(watching.commits) == n)
            commits = watching.commits[-6:]
            number = (2 * turn + 2).to_bytes(8, "big")
            assert [shown(commit.changes) for commit in commits] == [
                [(SET, b"a", value)],
                [(SET, b"b", value), (SET, b"c", value * 3_000)],
                [(SET, b"n", number)],
                [(SET, b"a", value + b"+")],
                [(SET, b"d", b"2"), (DELETE, b"b", b"")],
                [(DELETE, b"c", b"")],
            ], turn
            versions = [put.version, both, added.version, longer.version, same]
            assert [commit.sequence for commit in commits[:-1]] == versions
            assert commits[-1].sequence > same and not nothing.deleted
            for commit in commits:
                assert commit.at_ms >= began_ms - 1_000 and not commit.continued
                for change in commit.changes:
                    assert change.entry.version == (commit.sequence if change.kind == SET else 0)
                    assert not change.HasField("previous") and not change.value_left_out
        assert len(watching.commits) == 12


def test_a_range_and_a_prefix_leave_the_rest_out(kv, database):
    ranges = [
        ({"range": pb.KeyRange(start=b"b", end=b"d")}, [b"b", b"b\xff", b"c"]),
        ({"range": pb.KeyRange(start=b"b\xff")}, [b"b\xff", b"c", b"d"]),
        ({"prefix": b"b"}, [b"b", b"b\xff"]),
        ({"prefix": b""}, [b"", b"a", b"b", b"b\xff", b"c", b"d"]),
        ({}, [b"", b"a", b"b", b"b\xff", b"c", b"d"]),
    ]
    keys = [b"", b"a", b"b", b"b\xff", b"c", b"d"]
    watchers = [Watching(kv, database=database, **keys) for keys, _ in ranges]
    for turn in range(2):
        last = batch(kv, database, *map(put_in, keys))
        for key in keys:
            last = kv.Put(pb.PutRequest(database=database, key=key)).version
        # Behind the range of some: they are told where they stand all the same, in time.
        for watching, (_, expected) in zip(watchers, ranges, strict=True):
            count = 2 * (turn + 1) * len(expected)
            wait_until(lambda w=watching, n=count: len(w.changes) == n)
            found = [change.entry.key for change in watching.changes]
            assert found[-2 * len(expected) :] == expected * 2
            assert watching.point.sequence <= last
    for watching in watchers:
        watching.__exit__()


def test_values_are_left_out_if_nobody_wants_them(kv, database):
    with Watching(kv, database=database, keys_only=True) as watching:
        put = pb.PutRequest(database=database, key=b"k", value=b"v" * 99, time_to_live_ms=600_000)
        version = kv.Put(put).version
        watching.until(version)
        [change] = watching.changes
        assert (change.kind, change.entry.key, change.entry.value) == (SET, b"k", b"")
        assert change.entry.version == version and change.entry.expires_at_ms > 0
        assert not change.value_left_out


def test_what_was_there_before_is_told_to_those_who_ask(kv, database):
    with (
        Watching(kv, database=database, with_previous=True) as watching,
        Watching(kv, database=database) as other,
    ):
        first = kv.Put(pb.PutRequest(database=database, key=b"k", value=b"1")).version
        second = kv.Put(pb.PutRequest(database=database, key=b"k", value=b"2" * 5_000)).version
        kv.Delete(pb.DeleteRequest(database=database, key=b"k"))
        again = kv.Put(pb.PutRequest(database=database, key=b"k", value=b"3")).version
        watching.until(again)
        previous = [
            (one.previous.version, one.previous.value) if one.HasField("previous") else None
            for one in watching.changes
        ]
        assert previous == [None, (first, b"1"), (second, b"2" * 5_000), None]
        assert all(change.previous.key == b"" for change in watching.changes)
        other.until(again)
        sequences = [commit.sequence for commit in other.commits]
        assert [sequences[0], sequences[1], sequences[3]] == [first, second, again]
        assert not any(change.HasField("previous") for change in other.changes)


def test_a_watcher_goes_on_where_it_was_cut_off(kv, database):
    with Watching(kv, database=database) as watching:
        first = watching.point
        versions = [
            kv.Put(pb.PutRequest(database=database, key=b"%d" % n)).version for n in range(10)
        ]
        watching.until(versions[-1])
        points = [first.sequence, *versions]
    for began, sequence in enumerate(points):
        for history_id in (first.history_id, b""):
            point = pb.ResumePoint(history_id=history_id, sequence=sequence)
            with Watching(kv, database=database, resume=point) as again:
                again.until(versions[-1])
                assert [commit.sequence for commit in again.commits] == versions[began:]


def test_from_the_sequence_of_a_read_nothing_is_missed(kv, database):
    """What another database commits in between is no matter."""
    with Watching(kv, database=database) as watching:
        for turn in range(2):
            version = kv.Put(pb.PutRequest(database=database, key=b"k%d" % turn)).version
            kv.Put(pb.PutRequest(key=b"elsewhere"))
            [page] = kv.Scan(pb.ScanRequest(database=database))
            point = pb.ResumePoint(history_id=page.history_id, sequence=page.sequence)
            assert page.sequence >= version
            with Watching(kv, database=database, resume=point) as from_page:
                late = kv.Put(pb.PutRequest(database=database, key=b"late")).version
                from_page.until(late)
                assert [commit.sequence for commit in from_page.commits] == [late]
                watching.until(late)
        assert len(watching.commits) == 4


@pytest.mark.parametrize("turn", range(2))
def test_a_point_from_which_changes_are_missing_is_refused(server, kv, database, turn):
    """A database in a folder has them in its log, from when it was made on."""
    before = kv.Put(pb.PutRequest(database=database, key=b"before")).version
    now = kv.Put(pb.PutRequest(database=database, key=b"now")).version
    if server.kind != "volatile":
        with Watching(kv, database=database, resume=pb.ResumePoint(sequence=before)) as watching:
            watching.until(now)
            assert [change.entry.key for change in watching.changes] == [b"now"]
        before -= 2
    points = [
        (pb.ResumePoint(sequence=before), "not all there any more"),
        (pb.ResumePoint(sequence=now + 1), "ahead of the last commit"),
        (pb.ResumePoint(sequence=2**64 - 1), "ahead of the last commit"),
        (pb.ResumePoint(history_id=b"12345678", sequence=now), "another history"),
    ]
    for point, words in points:
        with Watching(kv, database=database, resume=point) as watching:
            code, details = watching.ended()
            assert code == grpc.StatusCode.OUT_OF_RANGE and words in details, details
    with Watching(kv, database=database, resume=pb.ResumePoint(sequence=now)) as watching:
        assert watching.point.sequence == now


def test_what_is_wrong_with_a_request_is_said(kv, database):
    requests = [
        (pb.WatchRequest(database="no-such-one"), grpc.StatusCode.NOT_FOUND, "no-such-one"),
        (
            pb.WatchRequest(database=database, max_answer_bytes=131_071),
            grpc.StatusCode.INVALID_ARGUMENT,
            "max_answer_bytes",
        ),
        (
            pb.WatchRequest(database=database, max_answer_bytes=(64 << 20) + 1),
            grpc.StatusCode.INVALID_ARGUMENT,
            "max_answer_bytes",
        ),
        (
            pb.WatchRequest(database=database, range=pb.KeyRange(start=b"b", end=b"a")),
            grpc.StatusCode.INVALID_ARGUMENT,
            "range",
        ),
        (
            pb.WatchRequest(database=database, resume=pb.ResumePoint(history_id=b"short")),
            grpc.StatusCode.INVALID_ARGUMENT,
            "history_id",
        ),
    ]
    for request, code, words in requests:
        with pytest.raises(grpc.RpcError) as refused:
            next(kv.Watch(request, timeout=SECONDS))
        assert refused.value.code() == code and words in refused.value.details(), request


def test_what_expires_is_told_apart_from_what_is_deleted(server, kv, database):
    if server.kind == "disk":
        pytest.skip("a database on disk is swept once a minute")
    with Watching(kv, database=database) as watching:
        for turn in range(2):
            key = b"short-lived-%d" % turn
            kv.Put(pb.PutRequest(database=database, key=key, value=b"v", time_to_live_ms=50))
            wait_until(lambda n=2 * turn + 2: len(watching.changes) == n)
            assert shown(watching.changes[-2:]) == [(SET, key, b"v"), (EXPIRE, key, b"")]
            wait_until(lambda: watching.point.sequence >= watching.commits[-1].sequence)


def test_a_database_that_is_dropped_ends_those_who_watch_it(server, kv, database):
    with open_channel(server.address) as channel:
        admin = admin_pb2_grpc.AdminStub(channel)
        with Watching(kv, database=database) as watching, Watching(kv) as other:
            admin.DropDatabase(admin_pb2.DropDatabaseRequest(name=database, confirm_name=database))
            code, details = watching.ended()
            assert code == grpc.StatusCode.NOT_FOUND, details
            last = kv.Put(pb.PutRequest(key=b"still-here")).version
            other.until(last)
        # One that takes its name is another one.
        create(admin, database, server)
        with Watching(kv, database=database) as watching:
            last = kv.Put(pb.PutRequest(database=database, key=b"k")).version
            watching.until(last)
            assert len(watching.commits) == 1


def test_a_database_that_is_converted_goes_on_with_those_who_watch_it(server, kv, database):
    if server.kind == "volatile":
        pytest.skip("only a database with a log is converted")
    kinds = [admin_pb2.DATABASE_KIND_DISK, admin_pb2.DATABASE_KIND_MEMORY]
    if server.kind == "disk":
        kinds.reverse()
    with open_channel(server.address) as channel, Watching(kv, database=database) as watching:
        admin = admin_pb2_grpc.AdminStub(channel)
        versions = []
        for kind in kinds:
            put = pb.PutRequest(database=database, key=b"k", value=b"%d" % kind)
            versions.append(kv.Put(put).version)
            request = admin_pb2.ConvertDatabaseRequest(name=database, kind=kind)
            assert list(admin.ConvertDatabase(request))
            versions.append(kv.Put(put).version)
            watching.until(versions[-1])
            point = pb.ResumePoint(sequence=versions[-2])
            with Watching(kv, database=database, resume=point) as again:
                again.until(versions[-1])
                assert [commit.sequence for commit in again.commits] == versions[-1:]
        assert [commit.sequence for commit in watching.commits] == versions


def test_a_commit_that_does_not_fit_comes_without_its_largest_values(kv, database):
    with (
        Watching(kv, database=database, max_answer_bytes=131_072) as narrow,
        Watching(kv, database=database) as wide,
    ):
        for _ in range(2):
            sizes = {b"a": 60_000, b"b": 90_000, b"c": 10, b"d": 40_000}
            last = batch(kv, database, *(put_in(key, key * size) for key, size in sizes.items()))
            wide.until(last), narrow.until(last)
            assert shown(wide.commits[-1].changes) == [
                (SET, key, key * size) for key, size in sizes.items()
            ]
            changes = narrow.commits[-1].changes
            assert [change.value_left_out for change in changes] == [False, True, False, False]
            assert [len(change.entry.value) for change in changes] == [60_000, 0, 10, 40_000]
            assert all(change.entry.version == last for change in changes)
        assert all(response.ByteSize() <= 131_072 for response in narrow.responses)


def test_a_commit_whose_keys_do_not_fit_comes_in_parts(kv, database):
    keys = [b"%03d" % n + b"k" * 20_000 for n in range(20)]
    with Watching(kv, database=database, max_answer_bytes=131_072) as watching:
        for turn in range(2):
            before = watching.point
            told = len(watching.responses)
            last = batch(kv, database, *(put_in(key, b"%d" % turn) for key in keys))
            watching.until(last)
            parts = [response.commits[0] for response in watching.responses[told:]]
            assert len(parts) > 2
            assert [part.continued for part in parts] == [True] * (len(parts) - 1) + [False]
            assert {part.sequence for part in parts} == {last}
            assert [change.entry.key for part in parts for change in part.changes] == keys
            points = [response.resume.sequence for response in watching.responses[told:]]
            assert points == [before.sequence] * (len(parts) - 1) + [last]
        assert all(response.ByteSize() <= 131_072 for response in watching.responses)


def folded(commits):
    """What is there after some commits."""
    entries = {}
    for commit in commits:
        for change in commit.changes:
            if change.kind == SET:
                entries[change.entry.key] = (change.entry.value, change.entry.version)
            else:
                # One that a commit has put and deleted may not have been there before.
                entries.pop(change.entry.key, None)
    return entries


def test_the_changes_put_together_are_what_a_scan_shows(kv, database):
    """Also of a watcher that is cut off and goes on, again and again, while others write."""
    seed = random.getrandbits(32)
    print("seed", seed)
    rng = random.Random(seed)
    stop = threading.Event()

    def write(rng):
        while not stop.is_set():
            key = lambda: b"%d" % rng.randrange(50)  # noqa: E731
            operations = [
                put_in(key(), rng.randbytes(rng.choice([0, 10, 3_000])))
                if rng.random() < 0.7
                else delete_in(key())
                for _ in range(rng.choice([1, 1, 5]))
            ]
            batch(kv, database, *operations)

    with Watching(kv, database=database) as watching:
        point, pieces = watching.point, []
        writers = [
            threading.Thread(target=write, args=(random.Random(rng.random()),)) for _ in range(3)
        ]
        for writer in writers:
            writer.start()
        for _ in range(20):
            with Watching(kv, database=database, resume=point) as again:
                enough = len(again.commits) + rng.choice([0, 1, 20])
                wait_until(lambda w=again, n=enough: len(w.commits) >= n)
            pieces += again.commits
            point = again.point
        stop.set()
        for writer in writers:
            writer.join()
        last = kv.Put(pb.PutRequest(database=database, key=b"last")).version
        watching.until(last)
        with Watching(kv, database=database, resume=point) as again:
            again.until(last)
        pieces += again.commits
    entries = [e for page in kv.Scan(pb.ScanRequest(database=database)) for e in page.entries]
    scanned = {entry.key: (entry.value, entry.version) for entry in entries}
    sequences = [commit.sequence for commit in watching.commits]
    assert sequences == sorted(set(sequences))
    assert [commit.sequence for commit in pieces] == sequences
    assert folded(watching.commits) == folded(pieces) == scanned


def test_who_does_not_read_loses_its_place_and_holds_nothing(binary):
    with (
        Server(binary, "--threads", "2", "--memory-limit", "64MiB") as server,
        open_channel(server.address) as channel,
    ):
        kv = kv_pb2_grpc.KeyValueStub(channel)
        for _ in range(2):
            slow = [kv.Watch(pb.WatchRequest()) for _ in range(20)]
            firsts = [next(call) for call in slow]
            value = bytes(100_000)
            for n in range(300):
                kv.Put(pb.PutRequest(key=b"%d" % (n % 10), value=value))
            assert server.resident_bytes() < 200 << 20
            for call, first in zip(slow, firsts, strict=True):
                with pytest.raises(grpc.RpcError) as lost:
                    for response in call:
                        first = response
                assert lost.value.code() == grpc.StatusCode.OUT_OF_RANGE
                words = f"behind sequence {first.resume.sequence} are not all there"
                assert words in lost.value.details()


@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_who_does_not_read_goes_on_from_the_log_and_holds_nothing(binary, tmp_path, kind):
    """Where the database has one."""
    options = ["--data", str(tmp_path / "pelton"), "--kind", kind, "--disk-cache", "1MiB"]
    with (
        Server(binary, "--threads", "2", "--memory-limit", "64MiB", *options) as server,
        open_channel(server.address) as channel,
    ):
        kv = kv_pb2_grpc.KeyValueStub(channel)
        for _ in range(2):
            slow = [kv.Watch(pb.WatchRequest()) for _ in range(20)]
            for call in slow:
                next(call)
            value = bytes(100_000)
            versions = [
                kv.Put(pb.PutRequest(key=b"%d" % (n % 10), value=value)).version for n in range(300)
            ]
            assert server.resident_bytes() < 250 << 20
            for call in slow:
                told = []
                for response in call:
                    told += [commit.sequence for commit in response.commits]
                    if told[-1:] == versions[-1:]:
                        break
                assert told == versions
                call.cancel()
            assert server.resident_bytes() < 250 << 20


@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_what_is_told_behind_a_point_is_the_same_after_a_restart(binary, tmp_path, kind):
    """Also after one that nobody asked for; to whoever asks, in the form that they ask for."""
    forms = [
        {},
        {"keys_only": True},
        {"prefix": b"b"},
        {"range": pb.KeyRange(start=b"0", end=b"a9")},
        {"max_answer_bytes": 131_072},
    ]
    options = ["--threads", "2", "--data", str(tmp_path / "pelton"), "--kind", kind]
    options += ["--log-segment", "64KiB"]
    with Server(binary, *options) as server:
        with open_channel(server.address) as channel:
            kv = kv_pb2_grpc.KeyValueStub(channel)
            watching = [Watching(kv, **form) for form in forms]
            for turn in range(3):
                large = [put_in(b"%03d" % n, bytes(20_000)) for n in range(10)]
                long = [put_in(b"%03d" % n + b"k" * 20_000) for n in range(10)]
                batch(kv, "", put_in(b"a", b"%d" % turn), put_in(b"b", b"%d" % turn))
                batch(kv, "", *large)
                batch(kv, "", delete_in(b"a"), put_in(b"bb", b"x"), delete_in(b"b"))
                kv.Put(pb.PutRequest(key=b"b-expires", time_to_live_ms=1))
                batch(kv, "", *long)
                if kind == "memory":
                    expired = lambda n=turn + 1: kinds(watching[0]).count(EXPIRE) == n  # noqa: E731
                    wait_until(expired, message="it expires")
                last = batch(kv, "", put_in(b"last"))
            for one in watching:
                one.until(last)
        heard = [[commit for commit in one.commits if commit.sequence <= last] for one in watching]
        points = [one.responses[0].resume for one in watching]
        assert all(commits for commits in heard)
        server.stop()
    for _ in range(2):
        with (
            Server(binary, *options) as server,
            open_channel(server.address) as channel,
        ):
            kv = kv_pb2_grpc.KeyValueStub(channel)
            for form, commits, point in zip(forms, heard, points, strict=True):
                with Watching(kv, resume=point, **form) as again:
                    again.until(last)
                    told = [one for one in again.commits if one.sequence <= last]
                    assert told == commits, form
            server.kill()


def test_a_stop_ends_those_who_watch_at_once(binary):
    with Server(binary, "--threads", "2", "--drain-timeout", "20s") as server:
        with open_channel(server.address) as channel:
            kv = kv_pb2_grpc.KeyValueStub(channel)
            with Watching(kv) as watching:
                began = time.monotonic()
                server.stop()
                assert time.monotonic() - began < 10
                assert watching.ended()[0] == grpc.StatusCode.UNAVAILABLE
