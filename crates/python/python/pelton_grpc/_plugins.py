"""How plugins are asked for the metadata of calls: they may take as long as they like, and answer
on any thread."""

from __future__ import annotations

import os
import queue
import threading
from typing import Any, Callable, Optional

from ._dispatcher import run_logged
from ._ended import FailedCall, failed_call
from ._names import StatusCode

# What a plugin calls: metadata, the number of a status, and its details.
Callback = Callable[[Any, int, Any], None]
Plugin = Callable[[bytes, bytes, Callback], None]

# Plugins that are asked at the same time. One that does not return keeps its thread; the calls that
# wait for others end at their deadlines.
MOST_THREADS = 32
# How long a thread waits for another plugin before it ends.
IDLE_SECONDS = 30.0

_INTERNAL: int = StatusCode.INTERNAL.value[0]


class PluginThreads:
    """Threads in which plugins are asked. They are made when they are needed, and do not keep the
    interpreter from ending, whatever a plugin waits for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tasks: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._threads = 0
        # How many wait for a task; below zero, how many tasks wait for one of them.
        self._free = 0

    def run(self, task: Callable[[], None]) -> None:
        with self._lock:
            self._free -= 1
            is_needed = self._free < 0 and self._threads < MOST_THREADS
            if is_needed:
                # Where no thread can be had, nothing is kept.
                self._free += 1
                self._start()
                self._threads += 1
        self._tasks.put(task)

    def _start(self) -> None:
        threading.Thread(target=self._run, name="pelton-grpc-plugin", daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                task = self._tasks.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                if self._may_end():
                    return
                continue
            run_logged(task)
            with self._lock:
                self._free += 1

    def _may_end(self) -> bool:
        with self._lock:
            # None: a task is on the way to this one.
            if self._free <= 0:
                return False
            self._free -= 1
            self._threads -= 1
            return True


_threads = PluginThreads()


def _after_fork_in_child() -> None:
    # The child has none of the threads.
    global _threads
    _threads = PluginThreads()


os.register_at_fork(after_in_child=_after_fork_in_child)


class Question:
    """What plugins are asked for one call: the URL of its service, and its method."""

    __slots__ = ("url", "method", "plugins")

    def __init__(self, url: str, method: str, plugins: list[Plugin]) -> None:
        self.url = url.encode()
        self.method = method.encode()
        self.plugins = plugins

    def is_answered_at_once(self) -> bool:
        """Returns whether all that are asked are known to answer without waiting for anything."""
        return all(map(answers_at_once, self.plugins))

    def ask(self, plugin: Plugin, callback: Callback) -> None:
        """Asks one plugin; the callback is called once or not at all, on any thread."""
        if answers_at_once(plugin):
            run_logged(self._call, plugin, callback)
        else:
            _threads.run(lambda: self._call(plugin, callback))

    def _call(self, plugin: Plugin, callback: Callback) -> None:
        try:
            plugin(self.url, self.method, callback)
        except Exception as error:
            callback((), _INTERNAL, str(error))
            raise


def answers_at_once(plugin: Any) -> bool:
    """Returns whether a plugin is that of `grpc.access_token_call_credentials`, which has what it
    answers: with a thread for it a call would cost several times as much."""
    inner = getattr(plugin, "_metadata_plugin", None)
    kind = type(inner)
    return (kind.__module__, kind.__name__) == ("grpc._auth", "AccessTokenAuthMetadataPlugin")


def taken(answer: tuple[Any, int, Any]) -> list[Any]:
    """Returns the metadata that a plugin has answered, or raises the error of a call that has
    none."""
    metadata, code, details = answer
    if code == 0:
        return list(metadata or ())
    text = details.decode("utf-8", "replace") if isinstance(details, bytes) else details
    raise failed_call(
        StatusCode.UNAVAILABLE, f"Getting metadata from plugin failed with error: {text}"
    )


def too_late() -> FailedCall:
    """Returns the error of a call whose deadline has passed while a plugin was asked."""
    return failed_call(
        StatusCode.DEADLINE_EXCEEDED,
        "Deadline Exceeded: while the credentials of the call were waited for",
    )


class Answer:
    """What one plugin answers, for a thread that waits for it."""

    def __init__(self) -> None:
        self._has_come = threading.Event()
        self._answer: Optional[tuple[Any, int, Any]] = None

    def callback(self, metadata: Any, code: int, details: Any) -> None:
        if self._answer is None:
            self._answer = (metadata, code, details)
            self._has_come.set()

    def wait(self, timeout: Optional[float]) -> list[Any]:
        self._has_come.wait(timeout)
        if self._answer is None:
            raise too_late()
        return taken(self._answer)
