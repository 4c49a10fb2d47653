"""Goes through a history, and loses power at its points: makes the states that are left."""

import bisect
import collections
import hashlib
import random
import re
from dataclasses import dataclass, field, replace

from device import Device

# What becomes of data and of names at each sync: when most can be lost, and when least.
AT_SYNCS = {
    "before a sync": [("all", "all"), ("none", "all"), ("all", "none")],
    "sync": [("none", "none")],
}
PLAIN = [("none", "none"), ("none", "all"), ("all", "none"), ("some", "first")]
MIXED = [
    ("all", "all"),
    ("none", "none"),
    ("some", "first"),
    ("first", "all"),
    ("some", "folders"),
    ("lengths", "all"),
    ("some", "some"),
    ("last", "some"),
    ("first", "first"),
]

# Mixed states, at least, as a share of all that are wanted; and times that a history is gone
# through for more of them.
MIXED_SHARE = 0.4
TURNS_MAX = 6

# Syncs by what they are of; see docs/internals/crash-explorer.md.
SYNC_CLASSES = [
    (r"(data|restored)", "data folder"),
    (r"(data|restored)/\d+\.log", "log"),
    (r"(data|restored)/.*\.spare", "spare segment"),
    (r"(data|restored)/segment\.new", "segment in the making"),
    (r"(data|restored)/.*\.snapshot.*", "snapshot"),
    (r"(data|restored)/pelton-data.*", "mark of the data folder"),
    (r"(data|restored)/blobs", "folder of blobs"),
    (r"(data|restored)/blobs/.*", "blob"),
    (r"(data|restored)/trees", "folder of trees"),
    (r"(data|restored)/trees/[^/]*\.new", "folder of a tree in the making"),
    (r"(data|restored)/trees/[^/]*", "folder of a tree"),
    (r"(data|restored)/trees/[^/]*/tables", "folder of tables"),
    (r"(data|restored)/trees/[^/]*/tables/.*", "table"),
    (r"(data|restored)/trees/[^/]*/v\d+", "list of tables"),
    (r"(data|restored)/trees/[^/]*/(current|\.tmp.*)", "pointer to the list of tables"),
    (r"backups", "folder of backups"),
    (r"backups/[^/]*", "folder of a backup"),
    (r"backups/[^/]*/blobs", "folder of blobs of a backup"),
    (r"backups/[^/]*/MANIFEST.*", "manifest of a backup"),
    (r"backups/[^/]*/.*", "file of a backup"),
    (r"\.", "folder above"),
    (r"(data|restored)/.*", "other file"),
]


def class_of_sync(path, name, is_removed):
    """Returns what a sync is of; for a folder, with the kind of one of the names that it covers."""
    if name is None:
        return class_of(path)
    below = name if path == "." else f"{path}/{name}"
    return f"{class_of(path)}: {class_of(below)}{', removed' if is_removed else ''}"


def class_of(path):
    """Returns what lies at a path below the root."""
    for pattern, name in SYNC_CLASSES:
        if re.fullmatch(pattern, path):
            return name
    return f"other: {path}"


@dataclass(frozen=True)
class Moment:
    """A point at which power may be lost: after what `place` has, with one way to lose it."""

    place: int
    what: str
    data: str
    names: str
    seed: str

    def __str__(self):
        lost = f"data {self.data}, names {self.names}"
        return f"place {self.place} ({self.what}), {lost}, seed {self.seed}"


@dataclass
class State:
    moment: Moment
    # Path to bytes, None for a folder.
    files: dict


@dataclass
class Figures:
    """What was explored."""

    points: collections.Counter = field(default_factory=collections.Counter)
    syncs: collections.Counter = field(default_factory=collections.Counter)
    kinds: collections.Counter = field(default_factory=collections.Counter)
    states: int = 0
    same: int = 0


class Explorer:
    """Makes the states of a history. `dropped` is a class of syncs that are taken for not done."""

    def __init__(self, history, seed, states, dropped=None):
        self.history, self.seed, self.wanted = history, seed, states
        self.dropped = dropped
        self.figures = Figures()
        self.answers = sorted(place for line in history.timelines for place in line.places if place)

    def is_dropped(self, *what):
        return self.dropped is not None and class_of_sync(*what) == self.dropped

    def classes(self):
        """Returns all classes of syncs that the history has."""
        for _ in self.all_points():
            pass
        return sorted(self.figures.syncs)

    def points(self):
        """Yields (place, what, device) at each point; the device is as it is there.

        Where a class of syncs is dropped, only points at which that makes a difference.
        """
        for point in self.all_points():
            if self.dropped is None or point[2].has_withheld():
                yield point

    def all_points(self):
        device = Device(self.history.root, self.is_dropped)
        device.load(self.history.begin)
        answers = iter([*self.answers, float("inf")])
        next_answer = next(answers)
        for run in self.history.runs:
            for place, call, is_end in edges(run):
                while next_answer < place:
                    yield next_answer, "answer", device
                    next_answer = next(answers)
                if not is_end:
                    if device.is_sync(call):
                        yield place - 1, "before a sync", device
                    device.begin(call)
                    continue
                what = device.end(call)
                if isinstance(what, tuple):
                    self.figures.syncs.update({class_of_sync(*one) for one in what[1]})
                    yield place, "sync", device
                elif what:
                    yield place, what, device
            device.process_ended()
            check_end(device, run)

    def states(self):
        """Yields distinct states: those at each sync, and mixed ones until there are enough.

        Which points and mixtures are taken beside those at syncs is drawn from the seed. Where a
        class of syncs is dropped, points are drawn too.
        """
        count = sum(1 for _ in self.points())
        self.figures = Figures()
        self.seen = set()
        for turn in range(TURNS_MAX):
            missing = self.wanted - self.figures.states
            if turn > 0 and missing <= 0 or count == 0:
                return
            source = random.Random(f"{self.seed}/points/{turn}")
            share = max(missing, MIXED_SHARE * self.wanted if turn == 0 else 0) / count
            for number, (place, what, device) in enumerate(self.points()):
                self.figures.points[what] += turn == 0
                ways = source.sample(MIXED, min(len(MIXED), rounded(share, source)))
                if self.dropped:
                    ways = PLAIN if source.random() < share / len(PLAIN) else []
                elif turn == 0:
                    ways = AT_SYNCS.get(what, []) + ways
                seed = f"{self.seed}/{turn}/{number}"
                yield from self.new_states(Moment(place, what, "", "", seed), ways, device)

    def new_states(self, moment, ways, device):
        """Yields the states at one point that were not seen before.

        A state that was seen, where the same answers had been sent, shows nothing new.
        """
        answers = bisect.bisect_right(self.answers, moment.place)
        for data, names in ways:
            one = replace(moment, data=data, names=names, seed=f"{moment.seed}/{data}/{names}")
            state = device.state(data, names, one.seed)
            digest = digest_of(state)
            if (digest, answers) in self.seen:
                self.figures.same += 1
                continue
            self.seen.add((digest, answers))
            self.figures.kinds[f"{data}/{names}"] += 1
            self.figures.states += 1
            yield State(one, {path: have and have.bytes for path, have in state.items()})


def rounded(number, source):
    """Rounds up or down, so that the mean is the number."""
    whole = int(number)
    return whole + (source.random() < number - whole)


def edges(run):
    """Returns the beginnings and ends of a run's calls, in order."""
    found = []
    for call in run.calls:
        found.append((call.begin, 0, call, False))
        if call.end is not None:
            found.append((call.end, 1, call, True))
    found.sort(key=lambda edge: edge[:2])
    return [(place, call, is_end) for place, _, call, is_end in found]


def check_end(device, run):
    """The model must have what the run has really left: else the record or the model is wrong."""
    whole = device.whole()
    assert whole.keys() == run.left.keys(), f"names differ: {whole.keys() ^ run.left.keys()}"
    for path, content in whole.items():
        if content is not None and content.bytes != run.left[path]:
            raise AssertionError(f"the model of {path} is not what the run has left")


def digest_of(state):
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted(state):
        digest.update(path.encode() + b"\0")
        digest.update(state[path].digest if state[path] else b"folder")
    return digest.hexdigest()
