"""Histories of single keys: whether they are linearizable.

A history is what clients saw of one key: operations, each with its begin and its end. It is
linearizable if each operation can be given one moment between its begin and its end, so that done
one after the other at these moments they return what they returned (Herlihy and Wing,
"Linearizability: A Correctness Condition for Concurrent Objects", 1990).

The search goes through the ends in their order and keeps every configuration that explains what
has ended so far: the entry, and the operations that have taken effect although they have not ended.
An operation takes effect no earlier than it must, just before one ends (Lowe, "Testing for
linearizability", 2017). Of an operation with an unknown outcome it is known when it began, and
perhaps by when it has happened or never will: it takes effect at most once.

Entries of a key are independent of those of others, so that each key is looked at by itself.
"""

import itertools
import math
from dataclasses import dataclass

# Configurations that are kept at most. Histories of some clients have a handful; so many only come
# of one with very many outcomes unknown at once.
CONFIGURATIONS = 50_000

# Operations that are shown around the one that cannot be explained.
SHOWN = 8


class Violation(AssertionError):
    """A history is not linearizable; the text says at which operation that is seen."""


class Undecided(AssertionError):
    """A history has more configurations than are looked at."""


@dataclass(frozen=True)
class Entry:
    """A key that is there. `version` is None as long as nobody has seen that of a write whose
    outcome is unknown. `value` is a number for those who count, else anything."""

    value: object
    version: int | None = None


# A key that is not there is the entry None.


@dataclass(frozen=True)
class Operation:
    """What a client did to one key, and what it was told.

    | request | outcome |
    |---|---|
    | ("get",) | Entry or None |
    | ("put", value) | version |
    | ("put_if_version", value, version) | (whether it applied, version); 0: only if absent |
    | ("delete",) | version of what was there, 0: nothing |
    | ("increment", delta) | Entry: the number after it, and its version |
    """

    begin: float
    # None: the outcome is unknown.
    end: float | None
    request: tuple
    outcome: object = None
    # Of an unknown outcome: from then on it has happened, or never will.
    latest: float = math.inf

    @property
    def is_unknown(self):
        return self.end is None

    @property
    def observes(self):
        """Whether it depends on what was there before it."""
        return self.request[0] != "put"


IMPOSSIBLE = object()


def step(entry, operation):
    """The entry after an operation, or IMPOSSIBLE."""
    kind = operation.request[0]
    if operation.is_unknown:
        return unknown_step(entry, operation.request)
    outcome = operation.outcome
    if kind == "get":
        return outcome if agrees(entry, outcome) else IMPOSSIBLE
    if kind == "put":
        return Entry(operation.request[1], outcome)
    if kind == "delete":
        return None if has_version(entry, outcome) else IMPOSSIBLE
    if kind == "increment":
        [_, delta] = operation.request
        return outcome if incremented(entry, delta) == outcome.value else IMPOSSIBLE
    _, value, expected = operation.request
    applied, version = outcome
    if applied:
        return Entry(value, version) if has_version(entry, expected) else IMPOSSIBLE
    if version == expected or not has_version(entry, version):
        return IMPOSSIBLE
    return entry and Entry(entry.value, version)


def unknown_step(entry, request):
    """The same of one whose outcome is unknown. Without an effect it is as if it never was, and so
    it is impossible then."""
    kind = request[0]
    if kind == "put":
        return Entry(request[1])
    if kind == "delete":
        return IMPOSSIBLE if entry is None else None
    if kind == "increment":
        number = incremented(entry, request[1])
        return IMPOSSIBLE if number is None else Entry(number)
    if kind == "put_if_version":
        _, value, expected = request
        return Entry(value) if has_version(entry, expected) else IMPOSSIBLE
    return IMPOSSIBLE


def agrees(entry, seen):
    if entry is None or seen is None:
        return entry is seen
    return entry.value == seen.value and has_version(entry, seen.version)


def has_version(entry, version):
    """Whether it may have that version; 0: it is not there."""
    if entry is None or version == 0:
        return entry is None and version == 0
    return entry.version is None or entry.version == version


def incremented(entry, delta):
    number = 0 if entry is None else entry.value
    return number + delta if isinstance(number, int) else None


# --------------------------------------------------------------------------------------------------
# The search

# Begins before ends before unknown outcomes that are over, if they are at one moment: then the
# operations overlap.
BEGIN, END, OVER = 0, 1, 2


def events(operations):
    """Moments in their order, each with what happens and the number of the operation."""
    moments = []
    for number, operation in enumerate(operations):
        moments.append((operation.begin, BEGIN, number))
        if not operation.is_unknown:
            moments.append((operation.end, END, number))
        elif operation.latest < math.inf:
            moments.append((max(operation.begin, operation.latest), OVER, number))
    return sorted(moments)


def check(operations, initial=None):
    """Raises a Violation if the history of a key that begins with an entry is not linearizable."""
    operations = list(operations)
    check_versions(operations)
    # An entry, and the numbers of operations that have taken effect and are still pending.
    configurations = {(initial, frozenset())}
    pending = set()
    for _, what, number in events(operations):
        if what == BEGIN:
            pending.add(number)
            continue
        # An operation of unknown outcome has happened by now, or never will.
        after = configurations if what == OVER else set()
        for configuration in configurations:
            after = after | ended(operations, pending, configuration, number)
            if len(after) > CONFIGURATIONS:
                raise Undecided(f"more than {CONFIGURATIONS} configurations")
        if not after:
            raise Violation(explained(operations, configurations, number))
        pending.discard(number)
        configurations = {(entry, done - {number}) for entry, done in after}


def ended(operations, pending, configuration, ending):
    """The configurations after one, once an operation that ends has taken effect, with any others
    that are pending before it."""
    if ending in configuration[1]:
        return {configuration}
    reached = set()
    seen, stack = set(), [(*configuration, False)]
    while stack:
        entry, done, must_observe = stack.pop()
        for number in candidates(operations, pending - done, must_observe):
            operation = operations[number]
            following = step(entry, operation)
            if following is IMPOSSIBLE:
                continue
            if number == ending:
                reached.add((following, done | {number}))
                continue
            # A write of unknown outcome that nobody sees before the next write may as well not have
            # happened.
            reachable = (following, done | {number}, operation.is_unknown)
            if reachable not in seen:
                seen.add(reachable)
                stack.append(reachable)
    return reached


def candidates(operations, pending, must_observe):
    """Which may take effect next. Of equal ones with unknown outcomes the one that is over first:
    the others would do the same."""
    unknown = {}
    for number in pending:
        operation = operations[number]
        if must_observe and not operation.observes:
            continue
        if not operation.is_unknown:
            yield number
            continue
        key = operation.request
        rank = (operation.latest, number)
        unknown[key] = min(unknown.get(key, rank), rank)
    for _, number in unknown.values():
        yield number


def check_versions(operations):
    """No two writes of a key have one version."""
    written = {}
    for operation in operations:
        version = written_version(operation)
        if version is None:
            continue
        if version in written:
            raise Violation(
                f"two writes have one version:\n{shown(written[version])}\n{shown(operation)}"
            )
        written[version] = operation


def written_version(operation):
    """The version that it wrote, if that is known."""
    kind, outcome = operation.request[0], operation.outcome
    if operation.is_unknown or kind in ("get", "delete"):
        return None
    if kind == "put":
        return outcome
    if kind == "increment":
        return outcome.version
    applied, version = outcome
    return version if applied else None


# --------------------------------------------------------------------------------------------------
# Texts


def explained(operations, configurations, number):
    ending = operations[number]
    entries = {str(entry) for entry, _ in configurations}
    around = [
        operation
        for operation in sorted(operations, key=lambda one: one.begin)
        if operation.begin <= ending.end and (operation.is_unknown or operation is not ending)
    ]
    return "\n".join(
        [
            "not linearizable: no order explains",
            shown(ending),
            "before it the entry was one of:",
            *itertools.islice(sorted(entries), SHOWN),
            "operations before it:",
            *(shown(operation) for operation in around[-SHOWN:]),
        ]
    )


def shown(operation):
    end = "unknown" if operation.is_unknown else f"{operation.end:.4f}"
    return f"  {operation.begin:.4f} to {end}: {operation.request} → {operation.outcome}"
