"""What happens at the end of the interpreter, and when the process forks."""

from __future__ import annotations

import atexit
import os
import weakref
from typing import Any

from . import _native
from ._dispatcher import Dispatcher

# How long threads may take to come out of calls that were ended, when the interpreter ends.
EXIT_SECONDS = 2.0

_channels: weakref.WeakSet[Any] = weakref.WeakSet()
_dispatcher = Dispatcher()


def dispatcher() -> Dispatcher:
    """The dispatcher of this process."""
    return _dispatcher


def register(channel: Any) -> None:
    """A channel that is closed at the end of the interpreter, if it still exists."""
    _channels.add(channel)


def _exit() -> None:
    for channel in list(_channels):
        channel.close()
    _dispatcher.close()
    _native.shut_down(EXIT_SECONDS)


def _after_fork_in_child() -> None:
    # The child has none of the threads; the sockets are the parent's.
    global _dispatcher
    _native.forked()
    _dispatcher = Dispatcher()


atexit.register(_exit)
os.register_at_fork(after_in_child=_after_fork_in_child)
