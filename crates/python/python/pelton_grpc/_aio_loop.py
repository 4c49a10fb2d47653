"""How an event loop of asyncio learns of what happens to calls."""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
import weakref
from typing import Callable, Iterable

from . import _native


class LoopQueue:
    """What calls wait for in one event loop. However much happens while the loop is busy, it is
    woken once."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.pid = os.getpid()
        self.native = _native.ReadyQueue(True)
        self._names = itertools.count()
        self._waiting: dict[int, Callable[[], None]] = {}
        loop.add_reader(self.native.fileno(), self._run_ready)

    def name(self, run: Callable[[], None]) -> int:
        """Returns a name; whenever it is told, something runs in the loop."""
        name = next(self._names)
        self._waiting[name] = run
        return name

    def forget(self, name: int) -> None:
        self._waiting.pop(name, None)

    def _run_ready(self) -> None:
        self._run_all(self.native.take_polled())

    def _run_all(self, names: Iterable[int]) -> None:
        left = iter(names)
        try:
            for name in left:
                run = self._waiting.get(name)
                if run is not None:
                    run()
        finally:
            # What one raises, such as SystemExit, ends or leaves the loop. If that goes on, the
            # others are told.
            rest = list(left)
            if rest:
                self.loop.call_soon(self._run_all, rest)


# Of each thread that runs a loop: the queue of the last one.
_local = threading.local()


def loop_queue() -> LoopQueue:
    """The queue of the event loop that runs."""
    loop = asyncio.get_running_loop()
    queue = getattr(_local, "queue", None)
    if queue is None or queue.loop is not loop or queue.pid != os.getpid():
        queue = _local.queue = LoopQueue(loop)
    return queue


class Changes:
    """Wakes those tasks that wait for a change of one call."""

    def __init__(self, queue: LoopQueue) -> None:
        self.queue = queue
        own = weakref.WeakMethod(self.wake)

        def wake() -> None:
            run = own()
            if run is not None:
                run()

        self.name = queue.name(wake)
        self._tasks: list[asyncio.Future[None]] = []
        weakref.finalize(self, queue.forget, self.name)

    def wake(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            if not task.done():
                task.set_result(None)

    def next(self) -> asyncio.Future[None]:
        """What ends with the next change."""
        task = self.queue.loop.create_future()
        self._tasks.append(task)
        return task
