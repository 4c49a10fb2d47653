"""How an event loop of asyncio learns of what happens to calls."""

from __future__ import annotations

import asyncio
import contextlib
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

    def is_of(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Returns whether it is that of a loop, in this process."""
        return self.loop is loop and self.pid == os.getpid()

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
# By the identity of its loop, each queue that is in use: the loop keeps it as long as it is open.
_queues: weakref.WeakValueDictionary[int, LoopQueue] = weakref.WeakValueDictionary()


def loop_queue() -> LoopQueue:
    """The queue of the event loop that runs."""
    loop = asyncio.get_running_loop()
    queue: LoopQueue | None = getattr(_local, "queue", None)
    if queue is None or not queue.is_of(loop):
        queue = _queues.get(id(loop))
        if queue is None or not queue.is_of(loop):
            queue = _queues[id(loop)] = LoopQueue(loop)
        _local.queue = queue
    return queue


class Waiters:
    """Tasks of one event loop that wait for the same thing. One that is cancelled leaves nothing
    behind, and costs the others nothing."""

    __slots__ = ("_loop", "_futures")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._futures: list[asyncio.Future[None]] = []

    def __len__(self) -> int:
        return len(self._futures)

    def wake(self) -> None:
        futures, self._futures = self._futures, []
        for future in futures:
            if not future.done():
                future.set_result(None)

    async def wait(self) -> None:
        """Waits until the next `wake`."""
        future = self._loop.create_future()
        self._futures.append(future)
        try:
            await future
        except asyncio.CancelledError:
            # It has been taken out already if it was woken in the same turn of the loop.
            with contextlib.suppress(ValueError):
                self._futures.remove(future)
            raise


class Changes(Waiters):
    """Tasks that wait for a change of one call, which the native half tells the queue of."""

    __slots__ = ("name", "__weakref__")

    def __init__(self, queue: LoopQueue) -> None:
        super().__init__(queue.loop)
        own = weakref.WeakMethod(self.wake)

        def wake() -> None:
            run = own()
            if run is not None:
                run()

        self.name = queue.name(wake)
        weakref.finalize(self, queue.forget, self.name)
