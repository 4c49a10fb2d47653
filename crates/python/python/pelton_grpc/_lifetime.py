"""What happens at the end of the interpreter, and when the process forks."""

from __future__ import annotations

import atexit
import os

from . import _dispatcher, _native

# How long threads may take to come out of calls that were ended, when the interpreter ends.
EXIT_SECONDS = 2.0


def _exit() -> None:
    # The native half knows all channels, also those that only a call holds.
    _native.close_all()
    _dispatcher.close_all()
    _native.shut_down(EXIT_SECONDS)


def _after_fork_in_child() -> None:
    # The child has none of the threads; the sockets are the parent's.
    _native.forked()
    _dispatcher.begin_all()


atexit.register(_exit)
os.register_at_fork(after_in_child=_after_fork_in_child)
