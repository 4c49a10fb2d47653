"""A server under strace: what it asked of the system, in which order, and what the system is made
to answer."""

import os
import re
import subprocess
import time
from dataclasses import dataclass

# With -D the server is the child of whoever starts it, and strace stands aside; with -I2 it can be
# ended before the server.
COMMAND = ["strace", "-D", "-I2", "-f", "-qq"]

LINE = re.compile(r"^(\d+)\s+(.*)$")
CALL = re.compile(r"^(\w+)\((.*)$", re.DOTALL)
RESUMED = re.compile(r"^<\.\.\. \w+ resumed>(.*)$")
RESULT = re.compile(r"\)\s*=\s*(-?\d+)[^=]*$")
DESCRIPTOR = re.compile(r"^\d+<(.*?)>(?:\(deleted\))?(?:,|\)| <unfinished)")
BYTES = re.compile(r'"((?:\\x[0-9a-f]{2})*)"(\.\.\.)?')

# Longer than any write of a test: a shortened one could not be looked through.
STRING_BYTES = 4 << 20


def recording(path, *calls):
    """A command in front of that of a server, to record these system calls with all their bytes."""
    return [
        *COMMAND,
        "-yy",
        "-xx",
        "-s",
        str(STRING_BYTES),
        "-o",
        str(path),
        "-e",
        f"trace={','.join(calls)}",
    ]


def injecting(path, *faults, only_file=None):
    """A command in front of that of a server, for faults such as `fdatasync:error=EIO:when=5`; see
    strace(1)."""
    calls = sorted({fault.split(":")[0] for fault in faults})
    command = [*COMMAND, "-y", "-s", "0", "-o", str(path), "-e", f"trace={','.join(calls)}"]
    if only_file:
        command += ["-P", str(only_file)]
    return command + [word for fault in faults for word in ("-e", f"inject={fault}")]


def tracer_of(process_id):
    """The process id of the strace of a process; 0: there is none."""
    with open(f"/proc/{process_id}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("TracerPid:"))


def wait_for_end(tracer, seconds=30):
    """Until a strace has ended, which it does when what it traces has: then its record is
    complete."""
    deadline = time.monotonic() + seconds
    while os.path.exists(f"/proc/{tracer}"):
        assert time.monotonic() < deadline, "strace does not end"
        time.sleep(0.01)


def works():
    """Whether there is a strace, and it may trace."""
    try:
        return (
            subprocess.run(
                ["strace", "-qq", "-o", os.devnull, "true"], capture_output=True
            ).returncode
            == 0
        )
    except FileNotFoundError:
        return False


@dataclass
class SystemCall:
    """`begin` and `end` are numbers of lines: what has a smaller one was before."""

    name: str
    arguments: str
    begin: int
    end: int = None
    result: int = None

    @property
    def file(self):
        """What its file descriptor stands for: a path, or `TCP:[from->to]`."""
        name = DESCRIPTOR.match(self.arguments).group(1)
        return unescape(name).decode() if name.startswith("\\x") else name

    @property
    def data(self):
        """The bytes that it was given, as far as they were taken."""
        digits, is_cut = BYTES.search(self.arguments).groups()
        assert not is_cut, "strace has shortened the bytes"
        return unescape(digits)[: max(self.result or 0, 0)]


def read_calls(path):
    """All calls of a record whose process has ended, in the order in which they began."""
    calls, unfinished = [], {}
    with open(path) as lines:
        for number, line in enumerate(lines):
            thread, text = LINE.match(line).groups()
            resumed = RESUMED.match(text)
            if resumed:
                end_call(unfinished.pop(thread), resumed.group(1), number)
            elif begun := CALL.match(text):
                call = SystemCall(begun.group(1), begun.group(2), number)
                calls.append(call)
                if text.endswith("<unfinished ...>"):
                    unfinished[thread] = call
                else:
                    end_call(call, call.arguments, number)
    return calls


def unescape(digits):
    return bytes.fromhex(digits.replace("\\x", ""))


def end_call(call, text, number):
    found = RESULT.search(text[-200:])
    call.end = number
    # A call that the end of the process has cut has no result.
    call.result = int(found.group(1)) if found else None
