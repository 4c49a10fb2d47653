"""Replicate and ChangeMaster of Tkrzw-RPC: followers of the original, a master of the original, and
servers that follow each other."""

import random
import struct
import threading
import time
from concurrent import futures

import grpc
import pytest
from compat import tkrzw_pb2_grpc as before_grpc
from compat import tkrzw_rpc_pb2 as pb
from compat import tkrzw_rpc_pb2_grpc as pb_grpc
from ports import free_ports
from server import Server, expect_status, open_channel, wait_until

SUCCESS, PRECONDITION, INFEASIBLE = 0, 4, 9
NOOP, SET, REMOVE, CLEAR = range(4)

WAIT_SECONDS = 60


def start(binary, *words, address="127.0.0.1:0"):
    return Server(binary, command=["tkrzw-server", "--address", address, *words])


def content(stub, index=0):
    """All records of a database."""
    request = pb.SearchRequest(dbm_index=index, mode="begin", pattern=b"")
    keys = list(stub.Search(request).matched)
    found = stub.GetMulti(pb.GetMultiRequest(dbm_index=index, keys=keys))
    return {record.first: record.second for record in found.records}


def server_attributes(stub):
    records = stub.Inspect(pb.InspectRequest(dbm_index=-1)).records
    return {record.first: record.second for record in records}


class Follower:
    """Folds what a server sends into records, as the original's followers do."""

    def __init__(self, databases=2, server_id=9):
        self.server_id = server_id
        self.databases = [{} for _ in range(databases)]
        self.timestamp = 0
        self.updates = 0

    def begin(self, stub, wait_time):
        request = pb.ReplicateRequest(
            min_timestamp=self.timestamp, server_id=self.server_id, wait_time=wait_time
        )
        call = stub.Replicate(request)
        first = next(call)
        assert (first.op_type, first.status.code) == (NOOP, SUCCESS)
        return first.server_id, call

    def fold(self, response):
        """Returns whether it was an update."""
        assert response.timestamp >= self.timestamp, "time does not go back"
        self.timestamp = response.timestamp
        if response.status.code == INFEASIBLE:
            return False
        assert response.status.code == SUCCESS
        records = self.databases[response.dbm_index]
        if response.op_type == SET:
            records[response.key] = response.value
        elif response.op_type == REMOVE:
            records.pop(response.key, None)
        else:
            assert response.op_type == CLEAR
            records.clear()
        self.updates += 1
        return True

    def catch_up(self, stub):
        """Takes all that there is."""
        _, call = self.begin(stub, 0)
        while self.fold(next(call)):
            pass
        call.cancel()

    def follow_until(self, stub, key):
        """Takes what comes until there is a record with a key in the first database."""
        _, call = self.begin(stub, -1)
        while key not in self.databases[0]:
            self.fold(next(call))
        call.cancel()


def write_something(stub, chance, count):
    """Writes of all kinds, to two databases."""
    keys = [b"%d" % number for number in range(40)]

    def some():
        return chance.choice(keys), b"v%d" % chance.randrange(10**6)

    for _ in range(count):
        index = chance.randrange(2)
        key, value = some()
        kind = chance.randrange(20)
        if kind < 8:
            stub.Set(pb.SetRequest(dbm_index=index, key=key, value=value, overwrite=True))
        elif kind < 11:
            stub.Remove(pb.RemoveRequest(dbm_index=index, key=key))
        elif kind < 13:
            stub.Append(pb.AppendRequest(dbm_index=index, key=key, value=value, delim=b","))
        elif kind < 15:
            stub.Increment(pb.IncrementRequest(dbm_index=index, key=b"n" + key, increment=3))
        elif kind < 17:
            records = [pb.BytesPair(first=key, second=value) for key, value in (some(), some())]
            request = pb.SetMultiRequest(dbm_index=index, records=records, overwrite=True)
            stub.SetMulti(request)
        elif kind < 18:
            request = pb.RekeyRequest(dbm_index=index, old_key=key, new_key=value, overwrite=True)
            stub.Rekey(request)
        elif kind < 19:
            stub.PopFirst(pb.PopFirstRequest(dbm_index=index))
        elif chance.randrange(5) == 0:
            stub.Clear(pb.ClearRequest(dbm_index=index))


@pytest.mark.parametrize("words", [["--async", "--threads", "2"], ["--threads", "2"]])
@pytest.mark.parametrize("stubs", [pb_grpc, before_grpc])
def test_a_follower_that_folds_the_stream_has_what_the_server_has(binary, tmp_path, words, stubs):
    [port] = free_ports(1)
    paths = [f"{tmp_path}/a.tkt", "#dbm=tiny"]
    words = [*paths, "--ulog_prefix", f"{tmp_path}/ulog", "--server_id", "3", *words]
    chance = random.Random(7)
    print("seed 7")
    early, late = Follower(), Follower()
    for round in range(3):
        # Each ends by SIGKILL.
        with start(binary, *words, address=f"127.0.0.1:{port}") as server:
            with open_channel(server.address) as channel:
                stub, followed = pb_grpc.DBMServiceStub(channel), stubs.DBMServiceStub(channel)
                mark = b"end %d" % round
                with futures.ThreadPoolExecutor(1) as pool:
                    following = pool.submit(early.follow_until, followed, mark)
                    write_something(stub, chance, 300)
                    stub.Set(pb.SetRequest(key=mark, value=b"", overwrite=True))
                    following.result(WAIT_SECONDS)
                late.catch_up(followed)
                expected = [content(stub, 0), content(stub, 1)]
                assert early.databases == expected
                assert late.databases == expected
                assert abs(early.timestamp / 1000 - time.time()) < 3600, "it is in milliseconds"
                server_id, call = early.begin(followed, 0)
                call.cancel()
                assert server_id == 3
    # Everything once more, and nothing.
    with start(binary, *words) as server, open_channel(server.address) as channel:
        stub = stubs.DBMServiceStub(channel)
        again, none = Follower(), Follower()
        again.catch_up(stub)
        assert again.databases == late.databases
        none.timestamp = late.timestamp + 10**6
        none.catch_up(stub)
        assert none.updates == 0


def test_who_waits_is_told_the_time_and_ends_once_at_a_stop(binary, tmp_path):
    words = [f"{tmp_path}/a.tkh", "--ulog_prefix", "x"]
    for mode in ([], ["--async"]):
        with start(binary, *words, *mode) as server, open_channel(server.address) as channel:
            stub = pb_grpc.DBMServiceStub(channel)
            follower = Follower(1)
            _, waiting = follower.begin(stub, 0.05)
            # With a thread per connection, one is enough for all of these.
            calls = [Follower(1).begin(stub, -1)[1] for _ in range(12)]
            for number in range(3):
                assert stub.Set(pb.SetRequest(key=b"%d" % number)).status.code in (SUCCESS, 10)
                while not follower.fold(next(waiting)):
                    pass
            assert not follower.fold(next(waiting)) and not follower.fold(next(waiting))
            for call in calls:
                assert next(call).op_type == SET
            calls.append(waiting)

            def end(call):
                with pytest.raises(grpc.RpcError) as error:
                    for _ in call:
                        pass
                return error.value.code()

            with futures.ThreadPoolExecutor(len(calls)) as pool:
                ends = [pool.submit(end, call) for call in calls]
                assert server.stop() == 0, server.log()
                codes = {one.result(WAIT_SECONDS) for one in ends}
            assert codes == {grpc.StatusCode.UNAVAILABLE}


def test_who_may_not_follow_is_told_why(binary, tmp_path):
    with start(binary) as server, open_channel(server.address) as channel:
        stub = pb_grpc.DBMServiceStub(channel)
        expect_status(
            grpc.StatusCode.FAILED_PRECONDITION,
            lambda: next(stub.Replicate(pb.ReplicateRequest(server_id=2))),
            "disabled update logging",
        )
    with start(binary, "--ulog_prefix", f"{tmp_path}/u") as server:
        with open_channel(server.address) as channel:
            stub = pb_grpc.DBMServiceStub(channel)
            expect_status(
                grpc.StatusCode.INVALID_ARGUMENT,
                lambda: next(stub.Replicate(pb.ReplicateRequest(server_id=1))),
                "self server ID",
            )
    with start(binary, "--read_only") as server, open_channel(server.address) as channel:
        stub = pb_grpc.DBMServiceStub(channel)
        changed = stub.ChangeMaster(pb.ChangeMasterRequest(master="127.0.0.1:1"))
        assert changed.status.code == PRECONDITION


class Master(pb_grpc.DBMServiceServicer):
    """A stand-in of the original as a master: sends updates, and the time when there are none."""

    def __init__(self, server_id):
        self.server_id = server_id
        # Of (timestamp, index, operation, key, value), in order.
        self.updates = []
        self.requests = []
        self.streams = 0
        # After so many updates every stream ends with an error; `None`: never.
        self.left = None
        self.server = grpc.server(futures.ThreadPoolExecutor(8))
        pb_grpc.add_DBMServiceServicer_to_server(self, self.server)
        self.address = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        self.server.start()

    def Replicate(self, request, context):
        self.requests.append(request)
        self.streams += 1
        context.add_callback(self.note_end)
        yield pb.ReplicateResponse(op_type=NOOP, server_id=self.server_id)
        sent = 0
        while context.is_active():
            for timestamp, index, operation, key, value in self.updates[sent:]:
                sent += 1
                if timestamp < request.min_timestamp:
                    continue
                if self.left is not None:
                    if self.left == 0:
                        context.abort(grpc.StatusCode.UNAVAILABLE, "it dies")
                    self.left -= 1
                yield pb.ReplicateResponse(
                    timestamp=timestamp,
                    server_id=self.server_id,
                    dbm_index=index,
                    op_type=operation,
                    key=key,
                    value=value,
                )
            time.sleep(0.02)
            now = max(request.min_timestamp, self.last_timestamp())
            yield pb.ReplicateResponse(status=pb.StatusProto(code=INFEASIBLE), timestamp=now)

    def note_end(self):
        self.streams -= 1

    def last_timestamp(self):
        return self.updates[-1][0] if self.updates else 0

    def add(self, chance, count, first_timestamp):
        """Adds updates, several of one time."""
        for number in range(count):
            key, value = b"%d" % chance.randrange(60), b"%d" % chance.randrange(10**9)
            operation = chance.choices((SET, REMOVE, CLEAR, NOOP), (80, 18, 1, 1))[0]
            update = (first_timestamp + number // 7, chance.randrange(2), operation, key, value)
            self.updates.append(update)

    def folded(self):
        databases = [{}, {}]
        for _, index, operation, key, value in self.updates:
            if operation == SET:
                databases[index][key] = value
            elif operation == REMOVE:
                databases[index].pop(key, None)
            elif operation == CLEAR:
                databases[index].clear()
        return databases

    def wait_for_followers(self, count):
        wait_until(lambda: self.streams == count, WAIT_SECONDS, lambda: self.streams)


@pytest.fixture
def masters():
    made = [Master(4), Master(6)]
    yield made
    for master in made:
        master.server.stop(0)


def wait_until_same(stub, expected):
    def found():
        return [content(stub, index) for index in range(len(expected))]

    wait_until(lambda: found() == expected, WAIT_SECONDS, lambda: (found(), expected))


def test_a_master_is_followed_where_it_and_the_server_have_died(binary, masters, tmp_path):
    [master, _] = masters
    chance = random.Random(3)
    print("seed 3")
    master.add(chance, 3_000, 1_000)
    [port] = free_ports(1)
    words = [f"{tmp_path}/a.tkt", f"{tmp_path}/b.tkh", "--server_id", "2"]
    words += ["--repl_master", master.address, "--repl_wait", "0.5"]
    master.left = 700
    with start(binary, *words, address=f"127.0.0.1:{port}") as server:
        server.wait_for_log("it dies")
        assert [(one.min_timestamp, one.server_id) for one in master.requests[:1]] == [(0, 2)]
        assert master.requests[0].wait_time == 0.5
        # Each time a few more, until the server dies too.
        reached = []
        for _ in range(3):
            before = len(master.requests)
            master.left = 300
            wait_until(lambda: len(master.requests) > before, WAIT_SECONDS)  # noqa: B023
            reached.append(master.requests[-1].min_timestamp)
        assert reached == sorted(reached) and 0 < reached[0] <= 1_200, reached
    master.left = None
    asked = len(master.requests)
    with start(binary, *words, address=f"127.0.0.1:{port}") as server:
        with open_channel(server.address) as channel:
            stub = pb_grpc.DBMServiceStub(channel)
            wait_until_same(stub, master.folded())
            # It is said once that it goes well, not with each message, and not at the start.
            assert "is followed again" not in server.log()
            master.left = 0
            master.add(chance, 1, master.last_timestamp())
            server.wait_for_log("it dies")
            master.left = None
            server.wait_for_log(f"the master {master.address} is followed again")
            master.add(chance, 500, master.last_timestamp())
            wait_until_same(stub, master.folded())
            last = master.last_timestamp()
            attributes = server_attributes(stub)
            wait_until(
                lambda: server_attributes(stub)["repl_max_timestamp"] == str(last),
                WAIT_SECONDS,
                lambda: (attributes, last),
            )
            assert attributes["repl_master"] == master.address
            assert (attributes["repl_connected"], attributes["repl_problem"]) == ("true", "")
            assert server.log().count("is followed again") == 1
            # When it is kept, a start asks for no more than the last updates.
            file = tmp_path / "a.tkt.pelton" / "pelton-tkrzw-timestamp"
            wait_until(lambda: file.read_text() == f"{last}\n", WAIT_SECONDS)
    assert master.requests[asked].min_timestamp <= reached[-1] + 300
    asked = len(master.requests)
    with start(binary, *words) as server:
        wait_until(lambda: len(master.requests) > asked, WAIT_SECONDS)
        assert master.requests[asked].min_timestamp == last
        with open_channel(server.address) as channel:
            wait_until_same(pb_grpc.DBMServiceStub(channel), master.folded())


def test_what_is_in_memory_is_followed_from_the_beginning(binary, masters, tmp_path):
    [master, _] = masters
    master.add(random.Random(5), 300, 1_000)
    file = tmp_path / "ts"
    words = ["#dbm=tiny", "#dbm=baby", "--server_id", "2", "--repl_ts_file", str(file)]
    for _ in range(2):
        with start(binary, *words, "--repl_master", master.address) as server:
            with open_channel(server.address) as channel:
                wait_until_same(pb_grpc.DBMServiceStub(channel), master.folded())
            last = master.last_timestamp()
            wait_until(lambda: file.exists() and file.read_text() == f"{last}\n", WAIT_SECONDS)
    assert {request.min_timestamp for request in master.requests} == {0}
    # What has a path goes on where the file says.
    words = [f"{tmp_path}/a.tkt", f"{tmp_path}/b.tkh", "--server_id", "2"]
    words += ["--repl_ts_file", str(file), "--repl_ts_skew", "-7"]
    asked = len(master.requests)
    with start(binary, *words, "--repl_master", master.address):
        wait_until(lambda: len(master.requests) > asked, WAIT_SECONDS)
    assert master.requests[asked].min_timestamp == last - 7


def test_another_master_is_followed_and_none(binary, masters, tmp_path):
    [first, second] = masters
    chance = random.Random(4)
    first.add(chance, 100, 1_000)
    second.updates = [(5_000, 0, SET, b"of second", b"1")]
    words = [f"{tmp_path}/a.tkt", f"{tmp_path}/b.tkh", "--server_id", "2"]
    with start(binary, *words) as server, open_channel(server.address) as channel:
        stub = pb_grpc.DBMServiceStub(channel)

        def change(master, skew=0):
            request = pb.ChangeMasterRequest(master=master, timestamp_skew=skew)
            assert stub.ChangeMaster(request).status.code == SUCCESS

        assert "repl_master" not in server_attributes(stub)
        change(first.address)
        wait_until_same(stub, first.folded())
        last = first.last_timestamp()
        wait_until(lambda: server_attributes(stub)["repl_max_timestamp"] == str(last), WAIT_SECONDS)
        change(second.address, 30)
        first.wait_for_followers(0)
        wait_until(lambda: content(stub).get(b"of second") == b"1", WAIT_SECONDS)
        assert second.requests[0].min_timestamp == last + 30
        first.updates.append((9_000, 0, SET, b"too late", b"1"))
        change("")
        second.wait_for_followers(0)
        attributes = server_attributes(stub)
        assert "repl_master" not in attributes and attributes["repl_max_timestamp"] == "5000"
        assert b"too late" not in content(stub)
        # Far back, and no further than the beginning.
        change(first.address, -(10**6))
        wait_until(lambda: b"too late" in content(stub), WAIT_SECONDS)
        assert first.requests[-1].min_timestamp == 0
        change("nowhere")
        wait_until(lambda: server_attributes(stub)["repl_problem"] != "", WAIT_SECONDS)
        assert server_attributes(stub)["repl_connected"] == "false"
        # It has the number of this server.
        first.server_id = 2
        change(first.address)
        server.wait_for_log("--server_id of its own")


def test_a_master_that_lets_nobody_follow_says_what_to_do(binary, tmp_path):
    with start(binary) as closed, start(binary, "--ulog_prefix", f"{tmp_path}/u") as same:
        for master, words in [
            (closed, "--ulog_prefix in its command line"),
            (same, "--server_id of its own"),
        ]:
            with start(binary, "--repl_master", master.address) as server:
                server.wait_for_log(words)
                assert "followed again" not in server.log()


def fill(stub, prefix, stop):
    """Writes until it is told to stop, over what dies and comes back; returns how many."""
    count = 0
    while not stop.is_set():
        try:
            request = pb.SetRequest(key=b"%s %d" % (prefix, count % 500), overwrite=True)
            request.value = struct.pack(">q", count)
            stub.Set(request, wait_for_ready=True, timeout=WAIT_SECONDS)
            if count % 7 == 0:
                key = b"%s %d" % (prefix, (count + 250) % 500)
                stub.Remove(pb.RemoveRequest(key=key), wait_for_ready=True, timeout=WAIT_SECONDS)
            count += 1
        except grpc.RpcError:
            pass
        time.sleep(0.001)
    return count


def test_a_server_follows_another_through_the_deaths_of_both(binary, tmp_path):
    ports = free_ports(2)
    leader, follower = (f"127.0.0.1:{port}" for port in ports)
    of_leader = [f"{tmp_path}/m.tkt", "--ulog_prefix", f"{tmp_path}/ulog", "--async"]
    of_follower = [f"{tmp_path}/f.tkt", "--repl_master", leader, "--server_id", "2"]
    running = {
        leader: start(binary, *of_leader, address=leader),
        follower: start(binary, *of_follower, address=follower),
    }
    stop = threading.Event()
    try:
        with open_channel(leader) as channel, futures.ThreadPoolExecutor(1) as pool:
            stub = pb_grpc.DBMServiceStub(channel)
            filling = pool.submit(fill, stub, b"k", stop)
            for turn in range(4):
                time.sleep(0.7)
                which, words = [(leader, of_leader), (follower, of_follower)][turn % 2]
                running[which].kill()
                running[which] = start(binary, *words, address=which)
            stop.set()
            assert filling.result(WAIT_SECONDS) > 100
            expected = content(stub)
            with open_channel(follower) as other:
                wait_until_same(pb_grpc.DBMServiceStub(other), [expected])
        assert "from timestamp 0 " not in running[follower].log()
    finally:
        stop.set()
        for server in running.values():
            server.kill()


def test_two_masters_follow_each_other_and_send_nothing_back(binary, tmp_path):
    ports = free_ports(2)
    addresses = [f"127.0.0.1:{port}" for port in ports]

    def words(number):
        path, log = f"{tmp_path}/{number}.tkh", f"{tmp_path}/log{number}"
        of_master = ["--repl_master", addresses[1 - number]]
        return [path, "--ulog_prefix", log, "--server_id", str(number + 1), *of_master]

    servers = [start(binary, *words(number), address=addresses[number]) for number in (0, 1)]
    try:
        channels = [open_channel(address) for address in addresses]
        stubs = [pb_grpc.DBMServiceStub(channel) for channel in channels]
        for number in range(200):
            key = b"%d" % number
            stubs[number % 2].Set(pb.SetRequest(key=key, value=key, overwrite=True))
        expected = {b"%d" % number: b"%d" % number for number in range(200)}
        for stub in stubs:
            wait_until_same(stub, [expected])
        for _ in range(2):
            for stub in stubs:
                # Whatever is sent back and forth would become more.
                follower = Follower(1)
                follower.catch_up(stub)
                assert (follower.databases, follower.updates) == ([expected], 200)
            time.sleep(0.5)
        # Each gets of the other what the other has made.
        for number, stub in enumerate(stubs):
            follower = Follower(1, server_id=2 - number)
            follower.catch_up(stub)
            assert follower.updates == 100
        for channel in channels:
            channel.close()
    finally:
        for server in servers:
            server.kill()
