"""Wall clocks that a test sets, one for each server, as if it ran on a machine of its own."""

import mmap
import pathlib
import shutil
import subprocess

import pytest

SOURCE = pathlib.Path(__file__).with_name("settable_clock.c")


def build(folder):
    """Builds what goes between a server and its clock; skips without a C compiler."""
    compiler = shutil.which("cc")
    if not compiler:
        pytest.skip("there is no C compiler")
    library = pathlib.Path(folder) / "settable_clock.so"
    command = [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", library, SOURCE]
    subprocess.run(command, check=True, timeout=60)
    return library


class SettableClock:
    """The wall clock of a server that is started with its `variables`; it begins right."""

    def __init__(self, library, path):
        self.path = pathlib.Path(path)
        self.path.write_bytes(bytes(8))
        self.variables = {"LD_PRELOAD": str(library), "SETTABLE_CLOCK": str(self.path)}
        with open(self.path, "r+b") as file:
            self.shared = mmap.mmap(file.fileno(), 8)

    def set_ahead(self, seconds):
        """Sets it so far ahead of the right time, or back where that is negative."""
        # One store of eight bytes: a server that reads meanwhile sees the one or the other.
        memoryview(self.shared).cast("q")[0] = round(seconds * 1e9)
