"""What a client knows of what it has written, and so what must be there after a crash."""

from collections import deque
from typing import NamedTuple

NEVER = 0
# An answer does not say when an entry expires: it does, and a later read will say when.
SOME_TIME = -1


class Wrong(AssertionError):
    """The server does not have what it had acknowledged, or has what it must not have."""


class Entry(NamedTuple):
    value: bytes
    # 0: an answer did not say it; a later read will.
    version: int = 0
    expires_at_ms: int = NEVER


class Space:
    """The keys of one writer: in one database, under one prefix, and nobody else writes them."""

    def __init__(self, database, prefix):
        self.database = database
        self.prefix = prefix
        # What was acknowledged.
        self.entries = {}
        # Commits that were sent, in this order, and not acknowledged. Each is a dict: the new entry
        # of a key, or `None` where it is removed. A crash may keep none of them, the first few, or
        # all.
        self.under_way = deque()
        self.highest_version = 0

    def send(self, commit):
        self.under_way.append(commit)

    def acknowledge(self, version=0):
        """The first commit under way took effect."""
        for key, entry in self.under_way.popleft().items():
            if entry is None:
                self.entries.pop(key, None)
            else:
                self.entries[key] = entry._replace(version=version)
        self.expect_above(version)
        self.highest_version = max(self.highest_version, version)

    def refuse(self):
        """The first commit under way did nothing."""
        self.under_way.popleft()

    def expect_above(self, version):
        if version and version <= self.highest_version:
            raise Wrong(f"{self}: version {version} was given out after {self.highest_version}")

    def check(self, found):
        """Compares all keys that were found after a restart with all that must be there. Gives back
        the versions of commits that were not acknowledged and are there all the same."""
        touched = {key for commit in self.under_way for key in commit}
        for key in (self.entries.keys() | found.keys()) - touched:
            self.check_entry(key, self.entries.get(key), found.get(key))
        versions = self.check_touched(touched, found)
        self.entries = found
        self.under_way.clear()
        self.highest_version = max([self.highest_version, *versions])
        return versions

    def check_entry(self, key, expected, entry):
        if not fits(expected, entry):
            raise Wrong(
                f"{self}: {key!r} was acknowledged as {brief(expected)}, and is {brief(entry)} "
                "after the restart"
            )

    def check_touched(self, touched, found):
        """The keys of commits under way must be as after the first few of them."""
        expected = {key: self.entries.get(key) for key in touched}
        writers = {}
        attempts = [(dict(expected), {})]
        for number, commit in enumerate(self.under_way):
            expected.update(commit)
            writers.update(dict.fromkeys(commit, number))
            attempts.append((dict(expected), dict(writers)))
        for expected, writers in attempts:
            if all(fits(expected[key], found.get(key)) for key in touched):
                versions = self.versions_of(writers, found)
                if versions is not None:
                    return versions
        lines = [
            f"  {key!r}: acknowledged {brief(self.entries.get(key))}, found {brief(found.get(key))}"
            for key in sorted(touched)[:20]
        ]
        raise Wrong(
            f"{self}: what is there is not what was acknowledged and the first few of "
            f"{len(self.under_way)} commits"
            " that were under way:\n" + "\n".join(lines)
        )

    def versions_of(self, writers, found):
        """The version of each commit that is there; `None` if they cannot be those of commits in
        this order."""
        versions = {}
        for key, number in writers.items():
            if (
                key in found
                and versions.setdefault(number, found[key].version) != found[key].version
            ):
                return None
        in_order = [versions[number] for number in sorted(versions)]
        rising = all(low < high for low, high in zip([self.highest_version, *in_order], in_order))
        return in_order if rising else None

    def __str__(self):
        return f"database {self.database!r}, {self.prefix!r}"


def fits(expected, found):
    """Whether an entry is what it must be, as far as that is known."""
    if expected is None or found is None:
        return expected is found
    if expected.value != found.value or expected.version not in (0, found.version):
        return False
    return (
        found.expires_at_ms > 0
        if expected.expires_at_ms == SOME_TIME
        else found.expires_at_ms == expected.expires_at_ms
    )


def brief(entry):
    if entry is None:
        return "absent"
    value = (
        entry.value
        if len(entry.value) <= 60
        else entry.value[:40] + b"... %d bytes" % len(entry.value)
    )
    return f"{value!r} (version {entry.version or 'not known'}, expires {entry.expires_at_ms})"
