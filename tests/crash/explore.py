"""Explores what a power loss leaves of a history, on demand: `explore.py --help`."""

import argparse
import collections
import multiprocessing
import os
import pathlib
import random
import sys
import tempfile
import threading

if __name__ == "__main__":
    TESTS = pathlib.Path(__file__).resolve().parent.parent
    sys.path.insert(0, str(TESTS / "support"))
    import stubs

    stubs.generate(TESTS.parent / "proto")

from checker import Checker
from explorer import Explorer
from found import put_files
from recorder import Recorder

WORKERS = 3
# States that are made and not yet checked.
AHEAD = 2 * WORKERS


def explore(explorer, binary, folder, stop_at=None):
    """Has all states checked by several processes; returns the failures, and what was done.

    `stop_at` ends it after so many failures.
    """
    room = threading.Semaphore(AHEAD)
    enough = threading.Event()

    def states():
        for state in explorer.states():
            room.acquire()
            if enough.is_set():
                return
            yield state

    failures, notes = [], collections.Counter()
    checker = Checker(explorer.history, binary, folder)
    context = multiprocessing.get_context("fork")
    with context.Pool(WORKERS, initializer=checker.begin) as pool:
        for verdict in pool.imap_unordered(check, states()):
            room.release()
            notes.update(verdict.notes)
            if verdict.failure:
                failures.append(verdict)
                if stop_at and len(failures) >= stop_at:
                    enough.set()
    return failures, notes


def check(state):
    verdict = Checker.current.check(state)
    if not verdict.failure:
        # Nobody looks at it any more, and it is large.
        state.files = None
    return verdict


def report(explorer, failures, notes, keep=None):
    """Prints what was explored, and the first failures; keeps their files in a folder."""
    figures = explorer.figures
    dropped = f", without syncs of: {explorer.dropped}" if explorer.dropped else ""
    print(f"{figures.states} states, {figures.same} seen before{dropped}")
    for name in ("points", "syncs", "kinds"):
        print(f"  {name}: {dict(getattr(figures, name))}")
    print(f"  checked: {dict(notes)}")
    print(f"  {len(failures)} failures")
    for number, verdict in enumerate(failures[:10]):
        print(f"- {verdict.state.moment}\n{verdict.failure}", flush=True)
        if keep:
            folder = pathlib.Path(keep) / str(number)
            folder.mkdir(parents=True)
            put_files(folder, verdict.state.files)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", default=os.environ.get("PELTON_BINARY"))
    parser.add_argument("--steps", type=int, default=50, help="of each client in the first run")
    parser.add_argument("--states", type=int, default=2_000)
    parser.add_argument("--seed", default=str(random.randrange(1 << 32)))
    parser.add_argument("--drop", help="a class of syncs that are taken for not done, or `all`")
    parser.add_argument("--stop-at", type=int, help="end after so many failures")
    parser.add_argument("--keep", help="a new folder for the files of states that failed")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(options.binary, f"{folder}/recorded", options.seed)
        history = recorder.record(options.steps)
        count = sum(len(run.calls) for run in history.runs)
        print(f"{count} calls, {sum(len(t.steps) for t in history.timelines)} steps", flush=True)
        classes = [options.drop]
        if options.drop == "all":
            classes = Explorer(history, options.seed, 0).classes()
            print(f"classes: {classes}")
        for dropped in classes:
            explorer = Explorer(history, options.seed, options.states, dropped)
            failures, notes = explore(explorer, options.binary, folder, options.stop_at)
            report(explorer, failures, notes, options.keep)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
