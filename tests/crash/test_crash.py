"""The real binary after a power loss at each sync of a recorded history, and at others.

PELTON_CRASH_STATES is how many states are looked at (2000 at least), PELTON_CRASH_STEPS how long
the recorded history is, and PELTON_CRASH_SEED repeats the choices of an earlier run. What is
explored, and what is not, is in docs/internals/crash-explorer.md.
"""

import os
import random

import pytest
from explore import explore, report
from explorer import Explorer, class_of
from recorder import Recorder
from writers import LargeBlobs, Writer

STATES = int(os.environ.get("PELTON_CRASH_STATES", "2000"))
STEPS = int(os.environ.get("PELTON_CRASH_STEPS", "24"))
SEED = os.environ.get("PELTON_CRASH_SEED", str(random.randrange(1 << 32)))

# States from which a recovery is recorded and interrupted, and states of each.
RECOVERIES, RECOVERY_STATES = 3, 60

# Classes of syncs without which acknowledged operations are lost, or a start is refused. The others
# are in the table of docs/internals/crash-explorer.md, with the reason why nothing is lost.
NEEDED = [
    "log",
    "data folder: log",
    "data folder: snapshot",
    "table",
    "pointer to the list of tables",
    "blob",
    "folder of blobs: blob",
]
DROPPED_STATES = 150

# Each has some 20 MB of files.
LARGE_STATES = 40


@pytest.fixture(scope="module")
def history(binary, tmp_path_factory):
    print(f"PELTON_CRASH_SEED={SEED}")
    recorder = Recorder(binary, tmp_path_factory.mktemp("recorded") / "history", SEED)
    return recorder.record(STEPS)


def explored(history, binary, folder, states):
    explorer = Explorer(history, SEED, states)
    failures, notes = explore(explorer, binary, folder)
    report(explorer, failures, notes)
    assert not failures, f"{failures[0].state.moment}: {failures[0].failure}"
    assert explorer.figures.states >= states
    return explorer.figures, notes


def test_the_history_has_all_that_a_disk_sees(history):
    """A history in which nothing happens proves nothing."""
    calls = [call for run in history.runs for call in run.calls]
    root = history.root + "/"
    paths = [call.descriptor_name for call in calls if "sync" in call.name]
    inside = [path.removeprefix(root) for path in paths if path.startswith(root)]
    classes = {class_of(path) for path in inside}
    for needed in ("log", "snapshot", "table", "blob", "manifest of a backup", "folder of trees"):
        assert needed in classes, f"no sync of: {needed}"
    removed = [path for call in calls if "unlink" in call.name for path in call.paths]
    assert any("/tables/" in path for path in removed), "no table was merged into another"
    assert any(path.endswith(".snapshot") for path in removed), "no snapshot was replaced"
    assert any("/blobs/" in path for path in removed), "no blob was replaced"
    renamed = [call.paths for call in calls if call.name == "rename"]
    assert any(two[0].endswith(".new") and "/trees/" in two[1] for two in renamed), "no new tree"
    assert len({path for path in inside if class_of(path) == "log"}) > 10, "few segments"


def test_nothing_acknowledged_is_lost(history, binary, tmp_path):
    figures, notes = explored(history, binary, str(tmp_path), max(2_000, STATES))
    assert figures.states >= 2_000
    for needed in ("second starts", "backups restored", "restores cut short", "restored folders"):
        assert notes[needed] > 0, f"no {needed}"


def test_a_recovery_that_is_interrupted_loses_nothing(history, binary, tmp_path):
    explorer = Explorer(history, f"{SEED}/recoveries", 40)
    states = list(explorer.states())
    source = random.Random(f"{SEED}/recoveries")
    for number, state in enumerate(source.sample(states, RECOVERIES)):
        print(f"recovery from {state.moment}")
        folder = tmp_path / str(number)
        recorded = Recorder(binary, folder, SEED).record_recovery(history, state, 2)
        explored(recorded, binary, str(tmp_path), RECOVERY_STATES)


def test_a_large_upload_goes_on_from_what_was_synced(binary, tmp_path):
    recorder = Recorder(binary, tmp_path / "recorded", SEED)
    writers = [Writer("", SEED), LargeBlobs("large", SEED)]
    history = recorder.record(1, writers, [(1.0, 0, "kill")])
    _, notes = explored(history, binary, str(tmp_path), LARGE_STATES)
    # Set back is one that was told as stored before its sync; or it was sealed, and the commit of
    # its description was lost: then the start removes it.
    assert notes["uploads gone on with"] + notes["uploads set back"] > 0


@pytest.mark.parametrize("dropped", NEEDED)
def test_a_sync_that_is_not_done_is_noticed(history, binary, tmp_path, dropped):
    explorer = Explorer(history, SEED, DROPPED_STATES, dropped)
    failures, _ = explore(explorer, binary, str(tmp_path), stop_at=1)
    print(f"without syncs of {dropped}: found after {explorer.figures.states} states")
    assert failures, f"nobody notices that there are no syncs of: {dropped}"
