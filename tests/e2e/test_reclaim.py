"""Memory and folders of databases that are converted and dropped: what a conversion takes beside,
and what is given back."""

import pathlib
import re

import pytest
from metrics_page import counter
from pelton.v1 import admin_pb2
from server import Server, open_channel, wait_until
from test_disk import DISK, MEMORY, Stubs

ENTRIES = 250_000
VALUE = b"v" * 200
MIB = 1 << 20
# Beside the entries: what is gathered for a table, its filter, and what the allocator keeps. It is
# about 20 MiB, and was 90 while all that had been gathered stayed in memory, and more with more
# entries.
BESIDE_BYTES = 48 * MIB


class Memory:
    """Of a process, without the system's cache of files."""

    def __init__(self, pid):
        self.folder = pathlib.Path(f"/proc/{pid}")

    def now(self):
        return self.read("VmRSS")

    def reset_peak(self):
        (self.folder / "clear_refs").write_text("5")

    def peak(self):
        return self.read("VmHWM")

    def read(self, name):
        return (
            int(re.search(rf"{name}:\s+(\d+) kB", (self.folder / "status").read_text()).group(1))
            * 1024
        )


@pytest.fixture
def started(binary, tmp_path):
    # The cache of blocks, which a conversion to memory fills, is not what this is about.
    flags = ["--metrics-listen", "0", "--disk-cache", "4MiB"]
    with Server(binary, "--data", str(tmp_path / "data"), *flags) as server:
        channel = open_channel(server.address)
        yield server, Stubs(channel), Memory(server.process.pid)
        channel.close()


def drop(stubs, name):
    stubs.admin.DropDatabase(admin_pb2.DropDatabaseRequest(name=name, confirm_name=name))


def test_a_conversion_to_disk_takes_little_and_gives_back_much(started):
    server, stubs, memory = started
    empty = memory.now()
    stubs.create("large", kind=MEMORY, durability=admin_pb2.DURABILITY_MODE_WRITTEN)
    for start in range(0, ENTRIES, 50_000):
        stubs.fill("large", 50_000, value=VALUE, prefix=b"%03d/" % (start // 50_000))
    for turn in range(2):
        full = memory.now()
        assert full - empty > ENTRIES * 200, f"turn {turn}: the entries are not in memory"
        memory.reset_peak()
        done = stubs.convert("large", DISK)
        assert done.copied_entries == ENTRIES
        took = memory.peak() - full
        print(f"turn {turn}: {full / MIB:.0f} MiB before, {took / MIB:.0f} more meanwhile")
        assert took < BESIDE_BYTES, f"turn {turn}: {took / MIB:.0f} MiB more"
        # What the entries took is given back, soon and by itself.
        bound = empty + BESIDE_BYTES
        wait_until(lambda bound=bound: memory.now() < bound, seconds=60)
        print(f"turn {turn}: {memory.now() / MIB:.0f} MiB afterwards")
        stubs.convert("large", MEMORY)
    drop(stubs, "large")
    wait_until(lambda: memory.now() < empty + BESIDE_BYTES, seconds=60)
    assert counter(server, "pelton_reclaiming_entries") == 0
