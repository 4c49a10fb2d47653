"""One thread that runs what callers want to have run when calls end."""

from __future__ import annotations

import itertools
import logging
import threading
from typing import Any, Callable

from . import _native

_LOGGER = logging.getLogger("pelton_grpc")


class Dispatcher:
    """However many calls end while its thread is busy, the thread is woken once."""

    def __init__(self) -> None:
        self._queue = _native.ReadyQueue()
        self._names = itertools.count()
        self._waiting: dict[int, Callable[[], None]] = {}
        self._lock = threading.Lock()
        self._is_running = False

    def when_ended(self, call: Any, run: Callable[[], None]) -> None:
        """Runs something when a call of the native half has ended."""
        # First, since a thread may not be had: then nothing is kept.
        self._start()
        name = next(self._names)
        self._waiting[name] = run
        call.notify(self._queue, name)

    def _start(self) -> None:
        if self._is_running:
            return
        with self._lock:
            if not self._is_running:
                threading.Thread(target=self._run, name="pelton-grpc", daemon=True).start()
                self._is_running = True

    def _run(self) -> None:
        while True:
            names = self._queue.take()
            if names is None:
                return
            for name in names:
                run_logged(self._waiting.pop(name, None))

    def close(self) -> None:
        self._queue.close()


def run_logged(run: Any, *arguments: Any) -> None:
    """Runs code of others: what it raises, also SystemExit and the like, is reported, and stops
    nothing: on the one thread for all channels it would stop the callbacks of the others."""
    if run is None:
        return
    try:
        run(*arguments)
    except BaseException:  # noqa: BLE001
        _LOGGER.exception("Exception in callback %r", run)
