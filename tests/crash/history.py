"""What clients of a recorded run know, and so what must be there after a power loss.

A *writer* owns one database, and has one call under way at a time. After each acknowledged step it
notes how the database must be. After a power loss the database must be as it was after one of its
steps: the last acknowledged one, or the one under way; where less is promised, an earlier one.
"""

import bisect
from dataclasses import dataclass, field
from typing import NamedTuple

NEVER = 0
# An answer does not say when an entry expires, only that it does.
SOME_TIME = -1


class Wrong(AssertionError):
    """The server does not have what was acknowledged, or has what nobody wrote."""


class Entry(NamedTuple):
    value: bytes
    version: int
    expires_at_ms: int = NEVER


class Blob(NamedTuple):
    content: bytes
    version: int


@dataclass(frozen=True)
class Database:
    """A database as it must be, or as it was found."""

    kind: int
    entries: dict = field(default_factory=dict)
    blobs: dict = field(default_factory=dict)


@dataclass(frozen=True)
class Step:
    """The database after a step, and the answer that acknowledged it: run, port and stream."""

    database: Database | None
    answer: tuple | None
    # Whether the answer promises that a power loss takes nothing back, as far as it goes.
    is_synced: bool = True
    # Uploads that are stored in part: name and content by id.
    uploads: dict = field(default_factory=dict)


class Timeline:
    """The steps of a writer, and where each was acknowledged."""

    def __init__(self, name, is_volatile=False):
        self.name, self.is_volatile = name, is_volatile
        self.steps = []
        self.places = []
        # The highest version that was given out up to each step.
        self.highest = []

    def add(self, step):
        entries = step.database.entries.values() if step.database else ()
        before = self.highest[-1:]
        self.highest.append(max([0, *before, *(entry.version for entry in entries)]))
        self.steps.append(step)

    def resolve(self, ends):
        """Finds the place of each answer, and gives up nothing: each must have been sent."""
        self.places = [0 if step.answer is None else ends[step.answer] for step in self.steps]
        assert self.places == sorted(self.places), f"{self.name}: answers out of order"

    def allowed(self, place):
        """Returns the first and last number of a step after which the database may be."""
        last = bisect.bisect_right(self.places, place) - 1
        first = last
        while not self.steps[first].is_synced:
            first -= 1
        return first, min(last + 1, len(self.steps) - 1)

    def highest_version(self, place):
        """Returns the highest version that an answer before `place` has told."""
        return self.highest[bisect.bisect_right(self.places, place) - 1]

    def check(self, found, place):
        """Compares a database that was found after a power loss behind `place`."""
        first, last = self.allowed(place)
        differences = []
        # The latest first: that is what is nearly always there.
        for number in range(last, first - 1, -1):
            difference = compare(self.steps[number].database, found, self.is_volatile)
            if difference is None:
                return number
            differences.append(f"  as after step {number}: {difference}")
        raise Wrong(
            f"database {self.name!r} is not as it was after any of the steps {first} to {last}:\n"
            + "\n".join(differences[:6])
        )


def compare(expected, found, is_volatile=False):
    """Returns the first difference between two databases, None if there is none."""
    if expected is None or found is None:
        if expected is found:
            return None
        return "it must not exist, and does" if expected is None else "it does not exist"
    if expected.kind != found.kind:
        return f"its kind is {found.kind} instead of {expected.kind}"
    entries = {} if is_volatile else expected.entries
    if entries.keys() != found.entries.keys():
        return f"missing {brief(entries, found.entries)}, too many {brief(found.entries, entries)}"
    for key, entry in entries.items():
        if not fits(entry, found.entries[key]):
            return f"{key!r} is {shown(found.entries[key])} instead of {shown(entry)}"
    if expected.blobs.keys() != found.blobs.keys():
        return f"blobs are {sorted(found.blobs)} instead of {sorted(expected.blobs)}"
    for name, blob in expected.blobs.items():
        has = found.blobs[name]
        if has.content != blob.content:
            lengths = f"{len(has.content)} bytes instead of {len(blob.content)}"
            return f"blob {name} has other content ({lengths})"
        if has.version != blob.version:
            return f"blob {name} has version {has.version} instead of {blob.version}"
    return None


def fits(expected, found):
    if expected.value != found.value or expected.version != found.version:
        return False
    if expected.expires_at_ms == SOME_TIME:
        return found.expires_at_ms > 0
    return found.expires_at_ms == expected.expires_at_ms


def brief(one, other):
    keys = sorted(one.keys() - other.keys())
    return f"{len(keys)} ({', '.join(map(repr, keys[:3]))})" if keys else "none"


def shown(entry):
    value = entry.value if len(entry.value) <= 40 else entry.value[:30] + b"..."
    return f"{value!r} ({len(entry.value)} bytes, version {entry.version})"
