"""Transact and Pipe, as a Python client meets them."""

import queue
import threading

import grpc
import pytest
from pelton.v1 import admin_pb2, admin_pb2_grpc
from pelton.v1 import kv_pb2 as pb
from server import expect_status

# The same for databases of both kinds.
pytestmark = pytest.mark.parametrize("server", ["memory", "disk"], indirect=True)


def put(key, value, **condition):
    return pb.Operation(put=pb.Operation.Put(key=key, value=value, **condition))


def get(key):
    return pb.Operation(get=pb.Operation.Get(key=key))


def increment(key):
    return pb.Operation(increment=pb.Operation.Increment(key=key, delta=1))


# --- Transact
# --------------------------------------------------------------------------------------------------


def test_a_transaction_takes_the_list_that_its_comparisons_choose(kv, prefix):
    request = pb.TransactRequest(
        comparisons=[pb.Comparison(key=prefix, exists=False)],
        when_met=[put(prefix, b"first"), get(prefix)],
        when_unmet=[get(prefix)],
    )
    first = kv.Transact(request)
    assert first.met and first.batch.applied
    assert first.batch.results[1].get.value == b"first"
    second = kv.Transact(request)
    assert not second.met and second.unmet_comparison == 0
    assert [result.get.value for result in second.batch.results] == [b"first"]
    assert second.batch.results[0].get.version == first.batch.sequence


def test_a_transfer_between_two_keys_is_never_half_done(kv, prefix):
    """Many callers compare and swap the same two keys; what is taken from one is given to the
    other."""
    one, other = prefix + b"one", prefix + b"other"
    kv.Batch(pb.BatchRequest(operations=[put(one, b"\0\0\0\0\0\0\0\x64"), put(other, b"\0" * 8)]))

    def transfer():
        done = 0
        while done < 20:
            entry = kv.Get(pb.GetRequest(key=one))
            answer = kv.Transact(
                pb.TransactRequest(
                    comparisons=[pb.Comparison(key=one, version=entry.version)],
                    when_met=[
                        pb.Operation(increment=pb.Operation.Increment(key=one, delta=-1)),
                        pb.Operation(increment=pb.Operation.Increment(key=other, delta=1)),
                    ],
                )
            )
            done += answer.met

    threads = [threading.Thread(target=transfer) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    read = kv.Batch(pb.BatchRequest(operations=[get(one), get(other)]))
    assert [int.from_bytes(result.get.value, "big") for result in read.results] == [20, 80]


def test_a_wrong_transaction_says_what_is_wrong(kv, prefix):
    error = expect_status(
        grpc.StatusCode.INVALID_ARGUMENT,
        lambda: kv.Transact(pb.TransactRequest(comparisons=[pb.Comparison(key=prefix)])),
    )
    assert "comparisons[0]" in error.details()


# --- Pipe
# --------------------------------------------------------------------------------------------------


def test_batches_are_answered_in_order_and_see_those_before_them(kv, prefix):
    count = 2_000
    requests = (pb.PipeRequest(operations=[increment(prefix), get(prefix)]) for _ in range(count))
    answers = list(kv.Pipe(requests, timeout=60))
    assert [answer.batch_number for answer in answers] == list(range(1, count + 1))
    assert [answer.done for answer in answers] == list(range(1, count + 1))
    for number, answer in enumerate(answers, 1):
        counted, read = answer.batch.results
        assert counted.increment.value == number
        assert int.from_bytes(read.get.value, "big") == number


def test_a_batch_of_reads_sees_the_write_before_it(kv, prefix):
    def requests():
        for number in range(500):
            yield pb.PipeRequest(operations=[put(prefix, b"%d" % number)])
            yield pb.PipeRequest(operations=[get(prefix)])

    answers = list(kv.Pipe(requests(), timeout=60))
    read = [answer.batch.results[0].get.value for answer in answers[1::2]]
    assert read == [b"%d" % number for number in range(500)]


def test_only_failures_are_answered_if_asked_for(kv, prefix):
    count = 1_000
    wrong = range(100, count, 100)

    def requests():
        for number in range(count):
            condition = {"if_version": 1 << 60} if number in wrong else {}
            yield pb.PipeRequest(
                mode=pb.BATCH_MODE_INDEPENDENT,
                answers=pb.PIPE_ANSWERS_FAILURES_ONLY,
                operations=[
                    put(prefix + b"%d" % number, b"x"),
                    put(prefix + b"%d" % number, b"y", **condition),
                ],
            )

    answers = list(kv.Pipe(requests(), timeout=60))
    failed = [answer for answer in answers if answer.batch_number]
    assert [answer.batch_number for answer in failed] == [number + 1 for number in wrong]
    for answer in failed:
        assert list(answer.result_indexes) == [1]
        assert not answer.batch.results[0].put.applied
    assert answers[-1].done == count
    assert len(answers) < count / 4
    assert kv.Count(pb.CountRequest(prefix=prefix)).count == count


def test_an_idle_pipe_says_soon_what_is_done(kv, prefix):
    requests = queue.Queue()
    answers = kv.Pipe(iter(requests.get, None), timeout=60)
    requests.put(
        pb.PipeRequest(answers=pb.PIPE_ANSWERS_FAILURES_ONLY, operations=[put(prefix, b"1")])
    )
    assert next(answers) == pb.PipeResponse(done=1)
    requests.put(pb.PipeRequest(operations=[put(prefix, b"2")]))
    requests.put(pb.PipeRequest())
    assert next(answers) == pb.PipeResponse(done=2)
    requests.put(None)
    assert list(answers) == []


def test_a_refused_batch_keeps_its_place_and_hinders_nobody(kv, prefix):
    requests = [
        pb.PipeRequest(operations=[put(prefix, b"1")]),
        pb.PipeRequest(operations=[put(prefix, b"2"), pb.Operation()]),
        pb.PipeRequest(operations=[put(b"k" * 65_536, b"3")]),
        pb.PipeRequest(operations=[get(prefix)]),
    ]
    answers = list(kv.Pipe(iter(requests), timeout=60))
    codes = [answer.failure.code for answer in answers]
    assert codes == [
        0,
        grpc.StatusCode.INVALID_ARGUMENT.value[0],
        grpc.StatusCode.RESOURCE_EXHAUSTED.value[0],
        0,
    ]
    assert answers[3].batch.results[0].get.value == b"1"


def test_a_message_that_breaks_the_rules_ends_the_call(kv, prefix):
    requests = [
        pb.PipeRequest(operations=[put(prefix, b"1")]),
        pb.PipeRequest(database="another"),
        pb.PipeRequest(operations=[put(prefix, b"2")]),
    ]
    answers = []

    def call():
        for answer in kv.Pipe(iter(requests), timeout=60):
            answers.append(answer)

    error = expect_status(grpc.StatusCode.INVALID_ARGUMENT, call)
    assert "database" in error.details()
    assert [answer.batch_number for answer in answers] == [1]
    assert kv.Get(pb.GetRequest(key=prefix)).value == b"1"


def test_the_batch_after_a_drop_ends_the_call(server, channel, kv):
    admin = admin_pb2_grpc.AdminStub(channel)
    description = admin_pb2.DatabaseDescription(name="piped")
    if server.kind == "disk":
        description.kind = admin_pb2.DATABASE_KIND_DISK
    else:
        description.durability = admin_pb2.DURABILITY_MODE_VOLATILE
    for _ in range(2):
        create = admin_pb2.CreateDatabaseRequest(database=description)
        assert admin.CreateDatabase(create).created
        requests = queue.Queue()
        answers = kv.Pipe(iter(requests.get, None), timeout=60)
        requests.put(pb.PipeRequest(database="piped", operations=[put(b"k", b"1")]))
        assert next(answers).batch.applied
        drop = admin_pb2.DropDatabaseRequest(name="piped", confirm_name="piped")
        assert admin.DropDatabase(drop).dropped
        # Nothing is under way: the call waits for its caller, who may ask what is done.
        requests.put(pb.PipeRequest())
        assert next(answers).done == 1
        requests.put(pb.PipeRequest(operations=[put(b"k", b"2")]))
        expect_status(grpc.StatusCode.NOT_FOUND, lambda: next(answers))
        requests.put(None)


def test_a_caller_that_does_not_read_is_slowed_down_and_loses_nothing(kv, prefix):
    """Answers of 40 MB in all, which nobody reads until everything that can be sent is sent."""
    value = bytes(100_000)
    kv.Put(pb.PutRequest(key=prefix, value=value))
    sent = []

    def requests():
        for number in range(400):
            sent.append(number)
            yield pb.PipeRequest(operations=[get(prefix)], max_answer_bytes=200_000)

    answers = kv.Pipe(requests(), timeout=120)
    first = next(answers)
    before = -1
    while before != len(sent):
        before = len(sent)
        threading.Event().wait(0.5)
    rest = list(answers)
    assert len(rest) == 399 and len(sent) == 400
    assert all(answer.batch.results[0].get.value == value for answer in [first, *rest])


def test_a_cancelled_pipe_leaves_a_server_that_goes_on(kv, prefix):
    for _ in range(20):
        stop = threading.Event()

        def requests():
            while not stop.is_set():
                yield pb.PipeRequest(operations=[increment(prefix)])

        answers = kv.Pipe(requests(), timeout=60)
        for _ in range(10):
            next(answers)
        answers.cancel()
        stop.set()
    counted = kv.Get(pb.GetRequest(key=prefix))
    assert int.from_bytes(counted.value, "big") >= 200
