"""Databases that are cleared, after a power loss: recorded of the example `clears` of pelton-store,
since no call of the server clears a database yet; the server starts on what is left.

PELTON_CLEARS is that program, PELTON_CRASH_SEED repeats the choices of an earlier run.
"""

import os
import random
import subprocess

import pytest
import recording
import strace
from conftest import ROOT
from explore import explore, report
from explorer import Explorer
from history import Database, Entry, Step, Timeline
from recorder import DATA, Recorder, wait_until_idle
from writers import DISK, MEMORY

SEED = os.environ.get("PELTON_CRASH_SEED", str(random.randrange(1 << 32)))
PROGRAM = os.environ.get("PELTON_CLEARS", str(ROOT / "target" / "debug" / "examples" / "clears"))
STATES, STEPS = 250, 40
KINDS = {"memory": MEMORY, "disk": DISK}


class Clears:
    """Gives commands to the program, one at a time, and notes what they leave."""

    def __init__(self, process):
        self.process = process
        self.count = 0
        self.timelines = {name: Timeline(name) for name in ["", *KINDS]}
        for name, timeline in self.timelines.items():
            timeline.add(Step(Database(MEMORY) if name == "" else None, None))

    def ask(self, name, database, *words):
        """Gives a command; `database` returns how the database is after it, by its sequence."""
        self.process.stdin.write(" ".join(words) + "\n")
        self.process.stdin.flush()
        sequence = int(self.process.stdout.readline())
        self.timelines[name].add(Step(database(sequence), (0, "stdout", self.count)))
        self.count += 1

    def run(self, source):
        for name, kind in KINDS.items():
            self.ask(name, lambda _, kind=kind: Database(kind), "create", name, name)
        for number in range(STEPS):
            name = source.choice(list(KINDS))
            last = self.timelines[name].steps[-1].database
            if number % 10 == 9:
                self.ask(name, lambda _, last=last: Database(last.kind), "clear", name)
                continue
            key, text, count = f"key{source.randrange(20)}", f"{number}.", source.randrange(9_000)

            def put(sequence, last=last, key=key, text=text, count=count):
                entry = Entry((text * count).encode(), sequence)
                return Database(last.kind, last.entries | {key.encode(): entry})

            self.ask(name, put, "put", name, key, text, str(count))


@pytest.fixture
def history(tmp_path):
    assert os.access(PROGRAM, os.X_OK), f"there is no program at {PROGRAM}: run script/test crash"
    print(f"PELTON_CRASH_SEED={SEED}")
    recorder = Recorder(None, tmp_path / "recorded", SEED)
    record = recorder.folder / "record"
    process = subprocess.Popen(
        [*recording.command(record), PROGRAM, str(recorder.root / DATA)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        tracer = strace.tracer_of(process.pid)
        clears = Clears(process)
        clears.run(random.Random(f"{SEED}/clears"))
        wait_until_idle(record)
        process.kill()
    strace.wait_for_end(tracer)
    recorder.take(record, 0)
    calls = recorder.history.runs[0].calls
    answers = [one for one in calls if one.name == "write" and one.descriptor == 1]
    ends = {(0, "stdout", number): one.begin for number, one in enumerate(answers)}
    recorder.history.timelines = list(clears.timelines.values())
    for timeline in recorder.history.timelines:
        timeline.resolve(ends)
    return recorder.history


def test_a_clear_is_done_or_not(history, binary, tmp_path):
    explorer = Explorer(history, SEED, STATES)
    failures, notes = explore(explorer, binary, str(tmp_path))
    report(explorer, failures, notes)
    assert not failures, f"{failures[0].state.moment}: {failures[0].failure}"
    assert explorer.figures.states >= STATES
