"""Credentials of calls in an event loop, which goes on while plugins are asked."""

from __future__ import annotations

import asyncio
from typing import Any, Optional

from ._credentials import TimeLeft
from ._plugins import Plugin, Question, taken, too_late


async def metadata_of(
    question: Question, metadata: Any, timeout: Optional[float]
) -> tuple[list[Any], Optional[float]]:
    """Returns the metadata of a call, with those of the credentials, and what is left of its
    timeout. Waits for the plugins, and not longer than the timeout."""
    left = TimeLeft(timeout)
    all_metadata = list(metadata or ())
    for plugin in question.plugins:
        try:
            answer = await asyncio.wait_for(asked(question, plugin), left.seconds())
        except asyncio.TimeoutError:
            raise too_late() from None
        all_metadata += taken(answer)
    return all_metadata, left.seconds()


def asked(question: Question, plugin: Plugin) -> asyncio.Future[tuple[Any, int, Any]]:
    """Asks one plugin, which may answer on any thread."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[tuple[Any, int, Any]] = loop.create_future()

    def take(answer: tuple[Any, int, Any]) -> None:
        if not future.done():
            future.set_result(answer)

    def callback(metadata: Any, code: int, details: Any) -> None:
        if loop.is_closed():
            return
        try:
            loop.call_soon_threadsafe(take, (metadata, code, details))
        except RuntimeError:
            # It was closed at this moment: nobody waits any more.
            pass

    question.ask(plugin, callback)
    return future
