"""Records a history: several runs of the server on one data folder, and what its clients know."""

import os
import pathlib
import subprocess
import time
from dataclasses import dataclass, field

import recording
import strace
from calls import Calls
from found import put_files, read_all
from history import Step, Timeline
from server import Server
from writers import Operator, all_writers, work_together, writer_of

# Small, so that segments change, memtables are flushed and tables merged in a short run.
SETTINGS = [
    *["--log-segment", "64KiB", "--memory-limit", "2MiB", "--disk-cache", "1MiB"],
    *["--keep-log", "0"],
]
SETTINGS += ["--threads", "2"]
DATA, BACKUPS, RESTORED = "data", "backups", "restored"

# How long the record must not grow until the server counts as idle, and the longest wait for it.
IDLE_SECONDS, IDLE_SECONDS_MAX = 0.2, 20

# Each run: its share of the steps, backups, and how it ends.
RUNS = [(1.0, 1, "kill"), (0.4, 1, "stop"), (0.2, 0, "kill")]


@dataclass
class Run:
    """One process: its calls, and what it left below the root."""

    calls: list
    first_place: int
    end_place: int
    left: dict


@dataclass
class History:
    """All that an exploration needs to know of what was done."""

    root: str
    seed: str
    # The files that were there before, all of them durable.
    begin: dict = field(default_factory=dict)
    runs: list = field(default_factory=list)
    timelines: list = field(default_factory=list)
    backups: list = field(default_factory=list)
    # Where a restored folder was reported as complete.
    restored_place: float = float("inf")


def serve_flags(root):
    return ["--data", f"{root}/{DATA}", "--backup-root", f"{root}/{BACKUPS}", *SETTINGS]


class Recorder:
    def __init__(self, binary, folder, seed):
        self.binary, self.folder = binary, pathlib.Path(folder)
        self.root = self.folder / "root"
        self.root.mkdir(parents=True)
        self.history = History(str(self.root), seed)
        self.answers = {}
        self.place = 0

    def record(self, steps, writers=None, runs=RUNS):
        """Records runs of a server, and a restore if they have made a backup."""
        writers = writers or all_writers(self.history.seed)
        operator = Operator(writers)
        for run, (share, backups, ending) in enumerate(runs):
            count = max(1, round(steps * share))

            def work(address, run=run, count=count, backups=backups):
                work_together(writers, operator, address, run, count, backups)

            self.serve(run, ending, work)
        if operator.backups:
            self.restore(operator.backups[-1].name, len(runs))
        history = self.history
        history.timelines = [writer.timeline for writer in writers]
        for timeline in history.timelines:
            timeline.resolve(self.answers)
        history.backups = [(one, self.answers[one.answer]) for one in operator.backups]
        return history

    def record_recovery(self, history, state, steps):
        """Records a start on a state of another history, and some steps on what it has found.

        What is found before the first read may be lost again as far as it was not acknowledged
        before; what is shown is durable.
        """
        put_files(self.root, state.files)
        self.history.begin = state.files
        writers = []

        def work(address):
            calls = Calls(address)
            found = read_all(calls)
            for timeline in history.timelines:
                writers.append(go_on(timeline, found, state.moment.place, self.history.seed))
            work_together(writers, None, address, 1, steps, 0)

        self.serve(1, "kill", work)
        self.history.timelines = [writer.timeline for writer in writers]
        for timeline in self.history.timelines:
            timeline.resolve(self.answers)
        return self.history

    def serve(self, run, ending, work):
        """Records a run of the server, with clients that work meanwhile."""
        record = self.folder / f"record-{run}"
        prefix = recording.command(record)
        with Server(self.binary, *serve_flags(self.root), prefix=prefix) as server:
            tracer = strace.tracer_of(server.process.pid)
            work(server.address)
            assert server.process.poll() is None, server.log()
            if ending == "stop":
                assert server.stop() == 0, server.log()
            else:
                wait_until_idle(record)
                server.kill()
            strace.wait_for_end(tracer)
        self.take(record, run)

    def restore(self, name, run):
        """Records a restore of a backup beside the data folder."""
        record = self.folder / "record-restore"
        words = [self.binary, "restore", f"{self.root}/{BACKUPS}/{name}"]
        words += ["--data", f"{self.root}/{RESTORED}"]
        # Not a child of strace (-D): its end is waited for as that of the record.
        done = subprocess.run([*recording.command(record), *words], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        wait_until_idle(record)
        self.take(record, run)
        self.history.restored_place = self.place - 1

    def take(self, record, run):
        first_place = self.place
        calls, self.place = recording.read(record, first_place)
        answers = recording.Answers()
        answers.add(calls)
        self.answers |= {(run, *key): place for key, place in answers.ends.items()}
        self.history.runs.append(Run(calls, first_place, self.place, files_below(self.root)))
        os.unlink(record)


def go_on(timeline, found, place, seed):
    """Returns a writer that goes on with a database as it was found after a power loss."""
    number = timeline.check(found.get(timeline.name), place)
    first, last = timeline.allowed(place)
    writer = writer_of(timeline.name, f"{seed}/recovered")
    writer.timeline = Timeline(timeline.name, timeline.is_volatile)
    # Until something is shown, it may be as after any of these.
    for step in timeline.steps[first : last + 1]:
        is_first = step is timeline.steps[first]
        writer.timeline.add(Step(step.database, None, is_first, step.uploads))
    writer.database = timeline.steps[number].database
    writer.uploads = dict(timeline.steps[number].uploads)
    return writer


def wait_until_idle(record):
    """Waits until the server asks nothing of the system any more."""
    deadline = time.monotonic() + IDLE_SECONDS_MAX
    size, since = -1, time.monotonic()
    while time.monotonic() < deadline:
        now = os.path.getsize(record)
        if now != size:
            size, since = now, time.monotonic()
        elif time.monotonic() - since > IDLE_SECONDS:
            return
        time.sleep(0.02)


def files_below(root):
    """Returns what is really there: a dict from path to bytes, None for a folder."""
    found = {}
    for folder, folders, files in os.walk(root):
        for name in folders:
            found[os.path.relpath(os.path.join(folder, name), root)] = None
        for name in files:
            path = os.path.join(folder, name)
            found[os.path.relpath(path, root)] = pathlib.Path(path).read_bytes()
    return found
