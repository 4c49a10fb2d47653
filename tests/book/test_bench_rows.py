"""Rows of script/bench that must not count when what they are about did not happen."""

import collections
import os
import pathlib
import socket
import statistics
import sys
import types

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "script"))
import blob_rows
import client_rows
import framed_rows
import reclaim_rows

FIGURES = {"p50_us": 100, "p99_us": 900, "p999_us": 1_500, "longest_us": 2_000}
DONE = dict.fromkeys(blob_rows.TAIL_COUNTED, 1)


def bench_with(results):
    return types.SimpleNamespace(results=results, options=types.SimpleNamespace(quick=True))


def median(bench, row, subject, key):
    values = [figures[key] for figures in bench.results.get((row, subject), []) if key in figures]
    return statistics.median(values) if values else None


def goal_line(text, value, bound, unit, at_least=False):
    return f"{text}: {value}"


@pytest.mark.parametrize("missing", blob_rows.TAIL_COUNTED)
def test_gets_beside_work_that_never_finished_are_void(missing):
    done = DONE | {missing: 0}
    assert missing in blob_rows.void_reason(FIGURES | done)
    results = {("tail", "alone"): [FIGURES], ("tail", "pelton"): [FIGURES | done | {"void": "so"}]}
    [_, _, alone, beside] = blob_rows.tail_table(bench_with(results), median).splitlines()
    assert "VOID" not in alone and " 900 " in alone
    assert "VOID" in beside and " 900 " not in beside
    assert blob_rows.goals(bench_with(results), median, goal_line) == []


def test_gets_beside_work_that_finished_count():
    assert blob_rows.void_reason(FIGURES | DONE) == ""
    results = {("tail", "alone"): [FIGURES], ("tail", "pelton"): [FIGURES | DONE]}
    assert "VOID" not in blob_rows.tail_table(bench_with(results), median)
    assert len(blob_rows.goals(bench_with(results), median, goal_line)) == 2


def test_gets_go_on_until_all_work_beside_them_has_finished():
    done = dict.fromkeys(blob_rows.TAIL_COUNTED, 0)
    troubles = types.SimpleNamespace(done=done, check=lambda: None)
    longest = iter([30, 10, 20, 99])

    def gets():
        figures = FIGURES | {"longest_us": next(longest)}
        name = next((name for name in done if not done[name]), None)
        done[name] += 1
        return figures

    pieces = blob_rows.gets_beside(gets, troubles)
    assert len(pieces) == 3
    assert blob_rows.worst_of(pieces)["longest_us"] == 30


def test_gets_do_not_wait_for_ever():
    troubles = types.SimpleNamespace(
        done=dict.fromkeys(blob_rows.TAIL_COUNTED, 0), check=lambda: None
    )
    assert len(blob_rows.gets_beside(lambda: FIGURES, troubles)) == blob_rows.TAIL_PIECES


def test_a_drop_that_has_failed_is_void():
    figures = {"p99_us": 900, "longest_us": 3_000, "took_s": 1.0, "freed_s": 2.0}
    good, bad = ("reclaim", "drop-memory"), ("reclaim", "drop-disk")
    results = {
        ("reclaim", "alone"): [figures],
        good: [figures],
        bad: [figures | {"void": "it has failed", "longest_us": 9_000}],
    }
    table = reclaim_rows.table(bench_with(results))
    [void] = [line for line in table.splitlines() if "VOID" in line]
    assert "drop, on disk" in void and "9.0" not in void
    [goal] = reclaim_rows.goals(bench_with(results), goal_line)
    assert goal.endswith(": 3.0")
    assert reclaim_rows.goals(bench_with({bad: results[bad]}), goal_line) == []


CLIENT_ROW = collections.namedtuple("Row", "name text measure options")(
    "client-get", "Get", None, ("get",)
)


def client_bench(cells, missing=()):
    results = {
        (f"client-get-{in_flight}", series): runs for (in_flight, series), runs in cells.items()
    }
    return types.SimpleNamespace(results=results, missing_clients=dict(missing))


def client_page(cells, missing=()):
    return client_rows.section(client_bench(cells, missing), [CLIENT_ROW], "", goal_line)


def rates(*calls_per_s, **more):
    return [{"calls": 1, "failures": 0, "calls_per_s": rate} | more for rate in calls_per_s]


def test_a_client_whose_calls_failed_is_named_and_not_shown():
    good, bad = rates(1_000, 1_100), rates(77_700, 77_700)
    bad[1] |= {"failures": 3, "first_failure": "refused"}
    page = client_page({(1, "cpp-1"): good, (2, "cpp-1"): bad, (2, "go-1"): good})
    assert "77.7" not in page
    assert "- Not shown: gRPC C++, 1 channel, Get, 2 in flight: 3 failures" in page
    assert "refused" in page
    assert "| 2 | – | 1.1 k |" in page


def test_a_client_that_could_not_be_built_is_named():
    page = client_page(
        {(1, "pelton-1"): rates(1)}, {"grpc-go-client": "there is no `protoc`"}.items()
    )
    [line] = [line for line in page.splitlines() if "Missing" in line]
    assert "grpc-go-client" in line and "there is no `protoc`" in line
    assert client_page({}) == ""


def test_shares_are_of_one_run_each():
    # The machine was half as fast in the second and third run.
    cells = {
        (1, "pelton-1"): rates(100_000, 50_000, 50_000),
        (2, "pelton-1"): rates(150_000, 75_000, 60_000),
        (4, "pelton-1"): rates(150_000, 60_000, 60_000),
    }
    page = client_page(cells)
    assert "| 2 | 75.0 k × 1.50 |" in page
    assert "| 4 | 60.0 k × 1.00 |" in page
    assert "| 75.0 k, 2 | – | 1.00, 4 |" in page


@pytest.mark.parametrize(
    "output, errors, failure",
    [
        ("", "no connection", "no connection"),
        ("", "", "it printed no result"),
        ('{"calls": 5, "failures": 0, "misses": 5}', "", "the key was not found"),
        ('{"calls": 0, "failures": 0}', "", "no call ended"),
        ('{"calls": 5, "failures": 1, "first_failure": "refused"}', "", "refused"),
    ],
)
def test_a_client_that_did_not_do_its_work_has_failures(output, errors, failure):
    figures = client_rows.result_of(output, errors)
    assert figures["failures"] > 0 and figures["first_failure"] == failure
    assert client_rows.result_of('{"calls": 5, "failures": 0}', "")["failures"] == 0


def test_connections_and_their_segments_are_counted():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        before = client_rows.look_at_sockets(port)
        if before is None:
            pytest.skip("the kernel of this machine tells nothing of its sockets")
        clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(3)]
        accepted = [listener.accept()[0] for _ in clients]
        for _ in range(5):
            clients[0].send(b"calls")
            assert accepted[0].recv(100) == b"calls"
        after = client_rows.look_at_sockets(port)
        assert (before.connections, after.connections) == (0, 3)
        assert after.segments - before.segments == 5
        for one in clients + accepted:
            one.close()


def test_calls_of_a_segment_are_those_of_the_time_between_the_looks():
    looks = [client_rows.SocketSample(10.0, 1, 100), client_rows.SocketSample(10.5, 1, 350)]
    figures = client_rows.socket_figures(looks, {"calls_per_s": 1_000.0})
    assert figures == {"open_connections": 1, "calls_per_segment": 2.0}
    assert client_rows.socket_figures([None, None], {"calls_per_s": 1_000.0}) == {}


def test_of_several_runs_the_quietest_counts(monkeypatch):
    def quietest(*runs, quick=False):
        left = [{"failures": 0, "calls_per_s": rate, "others_share": share} for rate, share in runs]
        monkeypatch.setattr(client_rows, "client_figures", lambda *_: left.pop(0))
        bench = types.SimpleNamespace(options=types.SimpleNamespace(quick=quick))
        return client_rows.quietest_run(bench, None, None, "get", 1)["calls_per_s"], len(left)

    assert quietest((1, 0.5), (2, 0.2), (3, 0.4), (4, 0.0)) == (2, 1)
    assert quietest((1, 0.5), (2, 0.0), (3, 0.0)) == (2, 1)
    assert quietest((1, 0.5), (2, 0.0), quick=True) == (1, 1)


def test_what_others_take_is_a_share_of_both_processors():
    looks = [client_rows.Processors(5.0, 100.0, 50.0), client_rows.Processors(6.0, 101.5, 51.1)]
    assert client_rows.processor_figures(looks)["others_share"] == pytest.approx(0.2)
    mine = client_rows.look_at_processors([os.getpid()])
    assert 0 < mine.own_s < mine.busy_s


def test_framed_protocols_are_compared_with_the_first_series_and_void_runs_are_named():
    row_type = collections.namedtuple("Row", "name text measure options")
    rows = framed_rows.rows_of(row_type)
    eight = rows[-1]
    one = {"calls_per_s": 200.0, "server_us": 2.0, "mean_us": 7.5, "void": True}
    other = {"calls_per_s": 100.0, "server_us": 3.0, "mean_us": 9.0}
    names = [series.name for series in eight.options[1]]
    results = {(eight.name, names[0]): [one, one], (eight.name, names[1]): [other]}
    lines = framed_rows.section(bench_with(results), rows, "- a machine").splitlines()
    first, second = (line for line in lines if line.startswith(("| baidu_std |", "| gRPC |")))
    assert first.endswith("| 1.00 | 1.00 |") and second.endswith("| 0.50 | 1.50 |")
    assert "| 200 | 8 |" in first and "| – |" in first
    assert "- 8 × 100, baidu_std: the generator was the limit in 2 of 2 runs" in lines
    assert not framed_rows.section(bench_with({}), rows, "- a machine")
