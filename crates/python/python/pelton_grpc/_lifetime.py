"""What happens at the end of the interpreter, and when the process forks."""

from __future__ import annotations

import atexit
import os
from importlib import import_module

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


def _is_main_interpreter() -> bool:
    # The module has had two names.
    for name in ("_interpreters", "_xxsubinterpreters"):
        try:
            interpreters = import_module(name)
        except ImportError:
            continue
        # They are numbers, or tuples that begin with one.
        return bool(interpreters.get_current() == interpreters.get_main())
    return True


if not _is_main_interpreter():
    # The native half exists once in a process: the end of this interpreter would end the calls of
    # all.
    raise ImportError("pelton_grpc cannot be imported in a subinterpreter")

atexit.register(_exit)
os.register_at_fork(after_in_child=_after_fork_in_child)
