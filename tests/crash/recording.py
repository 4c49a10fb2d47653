"""The file system calls of a run, read from the record of strace.

A record has the calls that change what lies below one folder (the *root*), the syncs there, and
what was sent to clients. A *place* is a number of a line, counted through all runs of a history:
what has a smaller one was before.
"""

import os
import re
from collections import defaultdict
from dataclasses import dataclass, field

# Longer than any write of a run: a shortened one could not be made again.
STRING_BYTES = 16 << 20

# All calls that change a file, a name or what a descriptor stands for. Those that the model of the
# device does not know are recorded too, so that they are found and not passed over.
CALLS = (
    "open openat openat2 creat close dup dup2 dup3 fcntl lseek write writev pwrite64 pwritev"
    " pwritev2 ftruncate truncate fallocate copy_file_range sendfile splice rename renameat"
    " renameat2 link linkat symlink symlinkat unlink unlinkat mkdir mkdirat rmdir fsync fdatasync"
    " sync_file_range sync syncfs mmap sendto sendmsg io_uring_setup"
).split()

WITH_DATA = {"write", "writev", "pwrite64", "pwritev", "pwritev2", "sendto", "sendmsg"}

COMMAND = ["strace", "-D", "-I2", "-f", "-qq", "-yy", "-xx", "-s", str(STRING_BYTES)]

STRING = re.compile(r'"((?:\\x[0-9a-f]{2})*)"(\.\.\.)?')
DESCRIPTOR = re.compile(r"^(\d+)<(.*?)>(?:\(deleted\))?(?=[,) ]|$)")
FOLDER_AND_NAME = re.compile(r'(AT_FDCWD|\d+)(?:<([^>]*)>)?, "((?:\\x[0-9a-f]{2})*)"')
PEER_PORT = re.compile(r"->[^\]]*:(\d+)\]")


def command(path):
    """Returns the words in front of a command that record it."""
    return [*COMMAND, "-o", str(path), "-e", f"trace={','.join(CALLS)}"]


@dataclass
class Call:
    """One system call; `end` and `result` are None where the end of the process has cut it."""

    name: str
    arguments: str
    begin: int
    end: int | None = None
    result: int | None = None
    # The bytes that it was given; of several pieces, all together.
    data: bytes | None = None

    def finish(self, text, place):
        """Takes the rest of the call's text, which has its result."""
        result = text.rpartition(" = ")[2].split("<")[0].split()
        word = result[0] if result else "?"
        self.end = place
        self.result = None if word == "?" else int(word, 0)

    @property
    def descriptor(self):
        found = DESCRIPTOR.match(self.arguments)
        return int(found.group(1)) if found else None

    @property
    def descriptor_name(self):
        """Returns what the descriptor stands for: a path, or `TCP:[from->to]`."""
        found = DESCRIPTOR.match(self.arguments)
        return text_of(found.group(2)) if found else ""

    @property
    def numbers(self):
        """Returns the plain numbers among the arguments behind the last string or descriptor."""
        tail = re.split(r'["\]>]', self.arguments.partition(" <unfinished")[0])[-1]
        tail = tail.rpartition(" = ")[0] or tail
        return [int(word, 0) for word in re.findall(r"(?<![\w.])(?:0x[0-9a-f]+|\d+)", tail)]

    @property
    def paths(self):
        """Returns the absolute paths that it names, in their order."""
        if not self.name.endswith(("at", "at2")):
            return [text_of(digits) for digits, _ in STRING.findall(self.arguments)]
        pairs = FOLDER_AND_NAME.findall(self.arguments)
        return [os.path.join(text_of(folder), text_of(name)) for _, folder, name in pairs]


def take_data(arguments):
    """Separates the bytes of a call from its other arguments."""
    pieces = arguments.split('"')
    data = b"".join(map(unescape, pieces[1::2]))
    assert not any(piece.startswith("...") for piece in pieces[2::2]), "bytes were cut"
    return data, '""'.join(pieces[0::2])


def unescape(digits):
    return bytes.fromhex(digits.replace("\\x", ""))


def text_of(name):
    return unescape(name).decode() if name.startswith("\\x") else name


def read(path, first_place):
    """Returns all calls of a record, in the order in which they began, and the place behind it."""
    calls, unfinished, place = [], {}, first_place
    with open(path) as lines:
        for place, line in enumerate(lines, first_place):
            thread, _, text = line.rstrip("\n").partition(" ")
            text = text.lstrip()
            if text.startswith("<... "):
                unfinished.pop(thread).finish(text, place)
            elif text[:1].islower():
                name, _, arguments = text.partition("(")
                data = None
                if name in WITH_DATA:
                    data, arguments = take_data(arguments)
                call = Call(name, arguments, place, data=data)
                calls.append(call)
                if text.endswith("<unfinished ...>"):
                    unfinished[thread] = call
                else:
                    call.finish(arguments, place)
    return calls, place + 1


@dataclass
class Answers:
    """Where each answer of a run was sent: `ends[port, stream]` is the place of its last frame."""

    ends: dict = field(default_factory=dict)

    def add(self, calls):
        """Reads the frames that were sent to each client, found by its port."""
        outputs = defaultdict(list)
        for call in calls:
            if call.name in ("sendto", "write", "writev", "sendmsg") and (call.result or 0) > 0:
                port = PEER_PORT.search(call.arguments[:200])
                if port:
                    outputs[int(port.group(1))].append(call)
        for port, sends in outputs.items():
            self.add_connection(port, sends)

    def add_connection(self, port, sends):
        output, begins = bytearray(), []
        for call in sends:
            data = call.data[: call.result]
            begins += [call.begin] * len(data)
            output += data
        position = 0
        while position + 9 <= len(output):
            length = int.from_bytes(output[position : position + 3])
            kind, flags = output[position + 3], output[position + 4]
            stream = int.from_bytes(output[position + 5 : position + 9])
            if kind in (0, 1) and flags & 1:
                self.ends[port, stream] = begins[position]
            position += 9 + length
