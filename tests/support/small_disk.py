"""A file system with little room."""

import contextlib
import subprocess

import pytest


@contextlib.contextmanager
def small_disk_at(place, size):
    """Mounts one of this size, such as `1m`, at a folder; skips where nobody may."""
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(place)],
        capture_output=True,
        text=True,
    )
    if mounted.returncode != 0:
        pytest.skip(f"a small disk cannot be mounted: {mounted.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)
