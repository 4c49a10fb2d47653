"""Calls of asyncio that stream in one or both directions."""

from __future__ import annotations

import asyncio
import logging
import weakref
from typing import Any, AsyncIterator, Callable, Generator, Optional

from ._aio_calls import FINISHED, UNAWAITED, AioCall
from ._aio_loop import Changes
from ._aio_names import EOF, Metadata, UsageError, bases
from ._aio_running import RunningCalls
from ._connectivity import PERIOD_SECONDS
from ._ended import Ended, FailedCall
from ._names import StatusCode
from ._unary import Method

_LOGGER = logging.getLogger("pelton_grpc")

# Returns a call, unless it was dropped.
CallReference = Callable[[], Optional["StreamSide"]]


class StreamSide(AioCall):
    """A call with a stream in one direction or both."""

    def __init__(self, method: Method, timeout: Optional[float], running: RunningCalls) -> None:
        super().__init__(method, timeout, running)
        self._received = Changes(self._queue)
        self._sent = Changes(self._queue)
        self._feeder: Optional[asyncio.Task[None]] = None
        self._iterator: Optional[AsyncIterator[Any]] = None
        self._is_finished = False

    def _take_end(self) -> Ended:
        return Ended(self._native.end(0))

    def _begin_with(self, native: Any) -> None:
        super()._begin_with(native)
        # What was tried before goes on.
        if self._is_finished:
            native.finish()
        self._sent.wake()
        self._received.wake()

    def _finish(self, ended: Ended) -> None:
        super()._finish(ended)
        self._sent.wake()
        self._received.wake()
        if self._feeder is not None and self._feeder is not asyncio.current_task(self._queue.loop):
            self._feeder.cancel()

    async def initial_metadata(self) -> Any:
        while True:
            changes = self._received
            pairs = self._native.poll_initial_metadata(self._queue.native, changes.name)
            if pairs is not None:
                return Metadata(*pairs)
            await changes.wait()

    async def _receive(self) -> Any:
        """The next response, or EOF; raises how the call has failed."""
        changes = self._received
        while True:
            if self._ended is not None and self._ended.is_cancelled:
                raise asyncio.CancelledError()
            message = self._native.poll_receive(self._queue.native, changes.name)
            if type(message) is bytes:
                return self._deserialize(message)
            if message is not None:
                self._finish(Ended(message))
                self._raise_if_failed()
                return EOF
            try:
                await changes.wait()
            except asyncio.CancelledError:
                self.cancel()
                raise

    def _deserialize(self, message: bytes) -> Any:
        try:
            return self._method.deserialize(message)
        except FailedCall as error:
            self._abort(error.code(), error.details())
            self._raise_if_failed()

    # What sends.

    def _feed_from(self, requests: Any) -> None:
        self._feeder = self._queue.loop.create_task(feed(weakref.ref(self), requests))

    def _tasks(self) -> list[Optional[asyncio.Task[None]]]:
        return [*super()._tasks(), self._feeder]

    async def write(self, request: Any) -> None:
        self._check_writes()
        if self._ended is not None:
            self._raise_if_failed()
        if self._ended is not None or self._is_finished:
            raise asyncio.InvalidStateError(FINISHED)
        try:
            await send(lambda: self, request)
        except asyncio.CancelledError:
            self.cancel()
            raise
        if self._ended is not None:
            self._raise_if_failed()

    async def done_writing(self) -> None:
        self._check_writes()
        self._finish_requests()

    def _finish_requests(self) -> None:
        self._is_finished = True
        self._native.finish()

    def _check_writes(self) -> None:
        if self._feeder is not None:
            raise UsageError(UNAWAITED)

    def _encode(self, request: Any) -> bytes:
        """Returns a request as bytes; if there are none, the call has ended."""
        try:
            return self._method.serialize(request)
        except FailedCall as error:
            self._abort(error.code(), error.details())
            return b""

    def _try_send(self, data: bytes) -> Optional[bool]:
        """Returns whether a request was sent, or `None` if there is no room yet."""
        try:
            sent = self._native.poll_send(data, self._queue.native, self._sent.name)
        except ValueError as error:
            self._abort(StatusCode.RESOURCE_EXHAUSTED, str(error))
            return False
        # It has ended, which is noted here in a moment.
        return None if sent is False and self._ended is None else sent

    # What receives.

    async def _responses(self) -> AsyncIterator[Any]:
        while (response := await self._receive()) is not EOF:
            yield response

    def __aiter__(self) -> AsyncIterator[Any]:
        if self._iterator is None:
            self._iterator = self._responses()
        return self._iterator

    async def read(self) -> Any:
        return await self._receive()


async def feed(reference: CallReference, requests: Any) -> None:
    """Sends requests as long as the call is held by somebody and goes on."""
    try:
        if hasattr(requests, "__aiter__"):
            async for request in requests:
                if not await send(reference, request):
                    return
        else:
            for request in requests:
                if not await send(reference, request):
                    return
    except BaseException as error:
        call = reference()
        if call is not None:
            call.cancel()
        if not isinstance(error, Exception):
            raise
        _LOGGER.exception("Exception iterating requests!")
        return
    call = reference()
    if call is not None:
        call._finish_requests()


async def send(reference: CallReference, request: Any) -> bool:
    """Sends a request when there is room. Returns whether the call goes on. While it waits, it does
    not hold the call: one that is dropped is cancelled."""
    call = reference()
    if call is None or call.done():
        return False
    data = call._encode(request)
    while call is not None and not call.done():
        changes = call._sent
        sent = call._try_send(data)
        if sent is not None:
            return sent
        del call
        await changes.wait()
        call = reference()
    return False


class UnaryStreamCall(StreamSide, *bases("UnaryStreamCall")):  # type: ignore[misc]
    """A call to which the server streams."""

    async def wait_for_connection(self) -> None:
        """Waits until the server has begun to respond, as that of grpc.aio does; raises how the
        call has failed."""
        await self.initial_metadata()
        # There are none where it has ended at once, of which the loop may not know yet.
        outcome = self._native.end(0)
        if outcome is not None:
            self._finish(Ended(outcome))
        if self._ended is not None:
            self._raise_if_failed()


class StreamedRequests(StreamSide):
    """A call that streams to the server."""

    async def wait_for_connection(self) -> None:
        """Waits until the channel has a connection; raises how the call has failed."""
        while self._ended is None and not self._running.has_connection():
            end = asyncio.ensure_future(self._end())
            try:
                await asyncio.wait([end], timeout=PERIOD_SECONDS)
            finally:
                end.cancel()
        if self._ended is not None:
            self._raise_if_failed()


class StreamUnaryCall(StreamedRequests, *bases("StreamUnaryCall")):  # type: ignore[misc]
    """A call that streams to the server."""

    _response: Any = None
    _has_response = False
    _is_received = False

    def __await__(self) -> Generator[Any, None, Any]:
        return self._await_response().__await__()

    async def _await_response(self) -> Any:
        while not self._is_received:
            response = await self._receive()
            if response is EOF or self._has_response:
                self._is_received = True
                self._check_count(response is EOF)
            else:
                self._has_response, self._response = True, response
        try:
            await self._end()
        except asyncio.CancelledError:
            self.cancel()
            raise
        self._raise_if_failed()
        return self._response

    def _check_count(self, is_all: bool) -> None:
        """Ends the call with an error unless there was one response."""
        if is_all and self._has_response:
            return
        count = "no message" if is_all else "more than one message"
        details = f"the answer makes no sense: it has {count}"
        self._abort(StatusCode.INTERNAL, details)
        # Also if the server has ended it with OK.
        self._ended = Ended.local(StatusCode.INTERNAL, details)


class StreamStreamCall(StreamedRequests, *bases("StreamStreamCall")):  # type: ignore[misc]
    """A call that streams both ways."""
