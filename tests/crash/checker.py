"""Starts the server on a state after a power loss, and compares what it has with the history."""

import collections
import hashlib
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import traceback
from dataclasses import dataclass

from calls import Calls, Refused
from environment import clean_environment
from found import put_files, read_all, resume
from history import Blob, Database, Entry, Wrong, compare
from pelton.v1 import kv_pb2 as pb
from recorder import BACKUPS, DATA, RESTORED, SETTINGS

SECONDS = 60
# One state in so many is gone on with: writes, a clean stop, a second start.
SECOND_TIME = 6
MANIFEST = "MANIFEST"


@dataclass
class Verdict:
    """What became of a state: a failure, or None, and what was done to see it."""

    state: object
    failure: str | None
    notes: dict


class Started:
    """A server on a data folder; ended by its process id."""

    def __init__(self, binary, *words):
        environment = clean_environment()
        environment["PELTON_DRIVER"] = os.environ.get("PELTON_TEST_DRIVER", "event-loop")
        self.process = subprocess.Popen(
            [binary, "serve", "--listen", "127.0.0.1:0", *words, *SETTINGS],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
        )
        self.calls = None

    def __enter__(self):
        try:
            for line in self.process.stdout:
                found = re.search(rb"listening on (\S+)", line)
                if found:
                    self.calls = Calls(found.group(1).decode())
                    return self
            code = self.process.wait(SECONDS)
            said = self.process.stderr.read().decode()
            raise Wrong(f"the start is refused, exit code {code}:\n{said}")
        except BaseException:
            self.__exit__(None)
            raise

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        _, errors = self.process.communicate(timeout=SECONDS)
        if self.process.returncode != 0:
            raise Wrong(f"a stop ended with {self.process.returncode}:\n{errors.decode()}")

    def __exit__(self, _, error=None, __=None):
        if self.calls:
            self.calls.socket.close()
        ended = self.process.poll()
        if ended is None:
            self.process.kill()
        self.process.wait()
        if error is not None and not self.process.stderr.closed:
            said = self.process.stderr.read().decode()
            error.add_note(f"the server (exit code {ended}) said:\n{said}")
        self.process.stdout.close()
        self.process.stderr.close()


class Checker:
    """Checks states of one history; each process has one."""

    current = None

    def __init__(self, history, binary, folder):
        self.history, self.binary = history, binary
        self.folder = folder

    def begin(self):
        """In the process that checks."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        Checker.current = self
        # In memory where there is room: what is synced there costs nothing.
        base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else self.folder
        self.place = pathlib.Path(base) / f"pelton-crash-{os.getpid()}"
        self.checked_backups = set()

    def check(self, state):
        notes = collections.Counter()
        try:
            self.place.mkdir()
            put_files(self.place, state.files)
            self.check_data(state, notes)
            self.check_backups(state, notes)
            self.check_restored(state, notes)
            failure = None
        except BaseException as error:  # noqa: B902 - the verdict carries it
            is_known = isinstance(error, (Wrong, Refused))
            failure = str(error) if is_known else traceback.format_exc()
        finally:
            shutil.rmtree(self.place, ignore_errors=True)
        return Verdict(state, failure, notes)

    def check_data(self, state, notes):
        words = ["--data", str(self.place / DATA)]
        chance = random.Random(f"{state.moment.seed}/second")
        with Started(self.binary, *words) as server:
            found = read_all(server.calls)
            place = state.moment.place
            numbers = self.compare(found, place)
            notes["starts"] += 1
            if chance.randrange(SECOND_TIME):
                return
            written = self.go_on(server.calls, found, numbers, place, notes)
            server.stop()
        with Started(self.binary, *words) as server:
            again = read_all(server.calls)
            self.compare_second(found, again, written)
            notes["second starts"] += 1

    def compare(self, found, place):
        """Compares each database, and returns the step after which each one is."""
        found = dict(found)
        numbers = {}
        for timeline in self.history.timelines:
            database = found.pop(timeline.name, None)
            numbers[timeline.name] = timeline.check(database, place)
        if found:
            raise Wrong(f"databases that nobody has made: {sorted(found)}")
        return numbers

    def go_on(self, calls, found, numbers, place, notes):
        """Resumes uploads, and writes a key into each database; returns what there must be."""
        written = {}
        for timeline in self.history.timelines:
            name = timeline.name
            database = found.get(name)
            if database is None:
                continue
            entries, blobs = dict(database.entries), dict(database.blobs)
            uploads = timeline.steps[numbers[name]].uploads
            for upload_id, (blob_name, content, stored) in uploads.items():
                version, offset = resume(calls, name, upload_id, blob_name, content)
                notes["uploads gone on with" if offset >= stored else "uploads set back"] += 1
                blobs[blob_name] = Blob(content, version)
            request = pb.PutRequest(database=name, key=b"second", value=b"time")
            version = calls.call("KeyValue/Put", request)[0].version
            highest = timeline.highest_version(place)
            highest = max([highest, *(entry.version for entry in entries.values())])
            if version <= highest:
                raise Wrong(f"{name!r}: version {version} was given out after {highest}")
            entries[b"second"] = Entry(b"time", version)
            entries = {} if timeline.is_volatile else entries
            written[name] = Database(database.kind, entries, blobs)
        return written

    def compare_second(self, found, again, written):
        if again.keys() != found.keys():
            raise Wrong(f"second start: databases are {sorted(again)}, not {sorted(found)}")
        for name, database in written.items():
            difference = compare(database, again[name])
            if difference:
                raise Wrong(f"second start, database {name!r}: {difference}")

    # Backups

    def check_backups(self, state, notes):
        """What looks like a backup is a whole one, and what was acknowledged is there."""
        for backup, place in self.history.backups:
            prefix = f"{BACKUPS}/{backup.name}/"
            files = {p: c for p, c in state.files.items() if p.startswith(prefix)}
            is_there = prefix + MANIFEST in files
            if not is_there and place <= state.moment.place:
                raise Wrong(f"backup {backup.name} was acknowledged and is not there")
            digest = digest_of(files)
            if not is_there or digest in self.checked_backups:
                continue
            target = self.place / "of-backup"
            self.restore(self.place / BACKUPS / backup.name, target)
            with Started(self.binary, "--data", str(target)) as server:
                self.compare_backup(backup, read_all(server.calls))
            self.checked_backups.add(digest)
            notes["backups restored"] += 1

    def restore(self, source, target):
        words = [self.binary, "restore", str(source), "--data", str(target)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS)
        if done.returncode:
            raise Wrong(f"the backup {source.name} cannot be restored: {done.stderr}")

    def compare_backup(self, backup, found):
        for timeline in self.history.timelines:
            first, last = backup.steps[timeline.name]
            database = found.get(timeline.name)
            steps = timeline.steps[first : last + 1]
            differences = [compare(s.database, database, timeline.is_volatile) for s in steps]
            if None not in differences:
                raise Wrong(
                    f"backup {backup.name}: {timeline.name!r} is as after none of the steps"
                    f" {first} to {last}: {differences[-1]}"
                )

    def check_restored(self, state, notes):
        """A folder that was being restored is complete, or no server takes it for one of ours."""
        if not self.history.backups:
            # Of a recovery, which restores nothing: what lies beside the data was judged before.
            return
        is_complete = self.history.restored_place <= state.moment.place
        if not (self.place / RESTORED).exists():
            if is_complete:
                raise Wrong("a restored folder is not there")
            return
        files = {p: c for p, c in state.files.items() if p.startswith(RESTORED + "/")}
        has_mark = f"{RESTORED}/pelton-data" in files
        if is_complete and not has_mark:
            raise Wrong("a restored folder has no mark")
        if not has_mark:
            notes["restores cut short"] += 1
            return
        backup = self.history.backups[-1][0]
        with Started(self.binary, "--data", str(self.place / RESTORED)) as server:
            self.compare_backup(backup, read_all(server.calls))
        notes["restored folders"] += 1


def digest_of(files):
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted(files):
        digest.update(path.encode() + b"\0" + (files[path] or b"") + b"\0")
    return digest.digest()
