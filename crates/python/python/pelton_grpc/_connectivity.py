"""Callbacks that learn of the state of a channel."""

from __future__ import annotations

import threading
from typing import Any, Callable, Optional

from ._dispatcher import run_logged
from ._names import ChannelConnectivity

# How often the state is looked at while there are callbacks.
PERIOD_SECONDS = 0.05

STATES: list[Any] = sorted(ChannelConnectivity, key=lambda state: state.value[0])


class Subscribers:
    """Callbacks of one channel, and the thread that calls them as long as there are any."""

    def __init__(self, native: Any) -> None:
        self._native = native
        # The collector of garbage may end a channel on a thread that is in here.
        self._lock = threading.RLock()
        # Each with the state that it knows.
        self._callbacks: list[list[Any]] = []
        self._connects = False
        self._changed = threading.Event()
        self._thread: Optional[threading.Thread] = None

    def subscribe(self, callback: Callable[[Any], None], connects: bool) -> None:
        with self._lock:
            self._callbacks.append([callback, None])
            self._connects |= connects
            self._changed.set()
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._run, name="pelton-grpc-state", daemon=True
                )
                self._thread.start()

    def unsubscribe(self, callback: Callable[[Any], None]) -> None:
        with self._lock:
            for number, (subscribed, _) in enumerate(self._callbacks):
                if subscribed == callback:
                    del self._callbacks[number]
                    break
            self._changed.set()

    def unsubscribe_all(self) -> None:
        with self._lock:
            self._callbacks.clear()
            self._changed.set()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._callbacks:
                    self._thread = None
                    return
                connects, self._connects = self._connects, False
                self._changed.clear()
            state = STATES[self._native.connectivity(connects)]
            if state is ChannelConnectivity.SHUTDOWN:
                self.unsubscribe_all()
                continue
            for callback in self._take_unaware_of(state):
                run_logged(callback, state)
            self._changed.wait(PERIOD_SECONDS)

    def _take_unaware_of(self, state: Any) -> list[Callable[[Any], None]]:
        with self._lock:
            unaware = [entry for entry in self._callbacks if entry[1] is not state]
            for entry in unaware:
                entry[1] = state
            return [entry[0] for entry in unaware]
