"""A thread of a channel that runs what callers want to have run when calls end."""

from __future__ import annotations

import itertools
import logging
import threading
import weakref
from typing import Any, Callable

from . import _native

_LOGGER = logging.getLogger("pelton_grpc")

# How long the thread waits for something new to wait for before it ends.
IDLE_SECONDS = 1.0

# All of them.
_dispatchers: weakref.WeakSet[Dispatcher] = weakref.WeakSet()


class Dispatcher:
    """However many calls end while its thread is busy, the thread is woken once. There is a thread
    only while it is waited for something, and a moment longer."""

    def __init__(self) -> None:
        self._names = itertools.count()
        self.begin()
        _dispatchers.add(self)

    def begin(self) -> None:
        """Begins anew: in the child of a fork there is neither the thread nor what it waited for,
        and another thread may have held the lock."""
        # A handler of a signal may come in while its thread is in here.
        self._lock = threading.RLock()
        self._queue = _native.ReadyQueue()
        self._waiting: dict[int, Callable[[], None]] = {}
        self._is_running: bool = False

    def when_ended(self, call: Any, run: Callable[[], None]) -> None:
        """Runs something when a call of the native half has ended."""
        with self._lock:
            if not self._is_running:
                # First, since a thread may not be had: then nothing is kept.
                threading.Thread(target=self._run, name="pelton-grpc", daemon=True).start()
                self._is_running = True
            name = next(self._names)
            self._waiting[name] = run
        call.notify(self._queue, name)

    def _run(self) -> None:
        while True:
            names = self._queue.take(None if self._waiting else IDLE_SECONDS)
            if names is None:
                return
            for name in names:
                run_logged(self._waiting.pop(name, None))
            if not names and self._has_ended():
                return

    def _has_ended(self) -> bool:
        with self._lock:
            self._is_running = bool(self._waiting)
            return not self._is_running

    def close(self) -> None:
        self._queue.close()


def close_all() -> None:
    """Ends the threads of all dispatchers: the interpreter ends."""
    for dispatcher in list(_dispatchers):
        dispatcher.close()


def begin_all() -> None:
    """Begins anew in the child of a fork, which has one thread yet."""
    for dispatcher in list(_dispatchers):
        dispatcher.begin()


def run_logged(run: Any, *arguments: Any) -> None:
    """Runs code of others: what it raises, also SystemExit and the like, is reported, and stops
    nothing: it would stop the callbacks of other calls."""
    if run is None:
        return
    try:
        run(*arguments)
    except BaseException:  # noqa: BLE001
        _LOGGER.exception("Exception in callback %r", run)
