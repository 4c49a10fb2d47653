"""The calls of a channel of asyncio that have not ended, for its `close`."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from typing import Any, Callable, Optional


class RunningCalls:
    """Calls that run. It holds none of them: one that nobody holds is cancelled."""

    def __init__(self, has_connection: Callable[[], bool]) -> None:
        self.is_closed = False
        # Whether the channel has a connection.
        self.has_connection = has_connection
        # Each call puts itself in and takes itself out.
        self.calls: set[weakref.ref[Any]] = set()

    async def close(self, grace: Optional[float]) -> None:
        """Waits until all have ended, `grace` seconds at most, and cancels those that are left. No
        new ones begin meanwhile."""
        self.is_closed = True
        calls = [call for call in (reference() for reference in list(self.calls)) if call]
        try:
            if grace and calls:
                await wait_for_ends(calls, grace)
        finally:
            for call in calls:
                call.cancel()
            self.calls.clear()


async def wait_for_ends(calls: list[Any], grace: float) -> None:
    waits = [asyncio.ensure_future(wait_for_end(call)) for call in calls]
    _, left = await asyncio.wait(waits, timeout=grace)
    for wait in left:
        wait.cancel()


async def wait_for_end(call: Any) -> None:
    # How it has ended concerns whoever holds it.
    with contextlib.suppress(Exception):
        await call.code()
