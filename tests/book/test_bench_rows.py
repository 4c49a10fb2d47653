"""Rows of script/bench that must not count when what they are about did not happen."""

import pathlib
import statistics
import sys
import types

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "script"))
import blob_rows
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
