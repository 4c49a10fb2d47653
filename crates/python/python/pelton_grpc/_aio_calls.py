"""Calls of asyncio."""

from __future__ import annotations

import asyncio
import time
import weakref
from typing import Any, AsyncIterator, Callable, Generator, Optional

from ._aio_loop import Changes, LoopQueue
from ._aio_names import EOF, AioRpcError, Metadata, UsageError, bases
from ._dispatcher import run_logged
from ._ended import Ended, FailedCall
from ._names import StatusCode
from ._unary import Method

_CANCELLED = "Locally cancelled by application!"
_UNAWAITED = "the call takes its requests from an iterator: nothing else can write"


class AioCall:
    """A call that has begun, and its end."""

    def __init__(self, native: Any, queue: LoopQueue, method: Method, timeout: Any) -> None:
        self._native = native
        self._queue = queue
        self._method = method
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._ended: Optional[Ended] = None
        self._callbacks: list[Callable[[Any], None]] = []
        self._waiters: list[asyncio.Future[None]] = []
        own = weakref.ref(self)

        def end() -> None:
            call = own()
            queue.forget(name)
            if call is not None:
                call._note_native_end()

        name = queue.name(end)
        native.notify(queue.native, name)

    def __del__(self) -> None:
        native = getattr(self, "_native", None)
        if native is not None:
            native.cancel()

    def _take_end(self) -> Ended:
        """Takes how the call has ended from the native half, which knows."""
        raise NotImplementedError

    def _note_native_end(self) -> None:
        if self._ended is None:
            self._finish(self._take_end())

    def _finish(self, ended: Ended) -> None:
        if self._ended is not None:
            return
        self._ended = ended
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
        for callback in self._callbacks:
            run_logged(callback, self)
        self._callbacks.clear()

    def _abort(self, code: StatusCode, details: str, is_cancelled: bool = False) -> None:
        self._finish(Ended.local(code, details, is_cancelled))
        self._native.cancel()

    def _waiter(self) -> asyncio.Future[None]:
        """What ends with the call, for one task: one that is cancelled costs others nothing."""
        waiter = self._queue.loop.create_future()
        self._waiters.append(waiter)
        return waiter

    async def _end(self) -> Ended:
        if self._ended is None:
            await self._waiter()
        assert self._ended is not None, "it has ended"
        return self._ended

    def _raise_if_failed(self) -> None:
        ended = self._ended
        assert ended is not None, "it has ended"
        if ended.is_cancelled:
            raise asyncio.CancelledError()
        if ended.code is not StatusCode.OK:
            raise aio_error(ended)

    def cancel(self) -> bool:
        if self._ended is not None:
            return False
        self._abort(StatusCode.CANCELLED, _CANCELLED, is_cancelled=True)
        return True

    def cancelled(self) -> bool:
        return self._ended is not None and self._ended.code is StatusCode.CANCELLED

    def done(self) -> bool:
        return self._ended is not None

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        if self._ended is not None:
            callback(self)
        else:
            self._callbacks.append(callback)

    def time_remaining(self) -> Optional[float]:
        if self._deadline is None:
            return None
        return max(self._deadline - time.monotonic(), 0)

    async def initial_metadata(self) -> Any:
        return Metadata(*(await self._end()).initial_metadata())

    async def trailing_metadata(self) -> Any:
        return Metadata(*(await self._end()).trailing_metadata())

    async def code(self) -> StatusCode:
        return (await self._end()).code

    async def details(self) -> str:
        return (await self._end()).details

    async def debug_error_string(self) -> str:
        ended = await self._end()
        return f"{ended.code.name}: {ended.details}"

    async def wait_for_connection(self) -> None:
        """Waits until the server has begun to answer, or the call has ended."""
        await self.initial_metadata()
        if self._ended is not None:
            self._raise_if_failed()


def aio_error(ended: Ended) -> Exception:
    initial = Metadata(*ended.initial_metadata())
    trailing = Metadata(*ended.trailing_metadata())
    text = f"{ended.code.name}: {ended.details}"
    return AioRpcError(ended.code, initial, trailing, ended.details, text)


class UnaryUnaryCall(AioCall, *bases("UnaryUnaryCall")):
    """A unary call."""

    _response: Any = None

    def _take_end(self) -> Ended:
        outcome = self._native.result(0)
        ended = Ended(outcome)
        if ended.code is StatusCode.OK:
            try:
                self._response = self._method.deserialize(outcome.response)
            except FailedCall as error:
                return Ended.local(error.code(), error.details())
        return ended

    def __await__(self) -> Generator[Any, None, Any]:
        if self._ended is None:
            try:
                yield from self._waiter()
            except asyncio.CancelledError:
                self.cancel()
                raise
        self._raise_if_failed()
        return self._response


class StreamSide(AioCall):
    """A call with a stream in one direction or both."""

    def __init__(self, native: Any, queue: LoopQueue, method: Method, timeout: Any) -> None:
        super().__init__(native, queue, method, timeout)
        self._received = Changes(queue)
        self._sent = Changes(queue)
        self._feeder: Optional[asyncio.Task[None]] = None
        self._iterator: Optional[AsyncIterator[Any]] = None
        self._is_finished = False

    def _take_end(self) -> Ended:
        return Ended(self._native.end(0))

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
            await changes.next()

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
                await changes.next()
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

    async def _write(self, request: Any) -> None:
        try:
            data = self._method.serialize(request)
        except FailedCall as error:
            return self._abort(error.code(), error.details())
        changes = self._sent
        while self._ended is None:
            try:
                sent = self._native.poll_send(data, self._queue.native, changes.name)
            except ValueError as error:
                return self._abort(StatusCode.RESOURCE_EXHAUSTED, str(error))
            if sent:
                return None
            await (changes.next() if sent is None else self._end())
        return None

    async def write(self, request: Any) -> None:
        self._check_writes()
        if self._ended is not None:
            self._raise_if_failed()
        if self._ended is not None or self._is_finished:
            raise asyncio.InvalidStateError("RPC already finished.")
        try:
            await self._write(request)
        except asyncio.CancelledError:
            self.cancel()
            raise
        if self._ended is not None:
            self._raise_if_failed()

    async def done_writing(self) -> None:
        self._check_writes()
        self._is_finished = True
        self._native.finish()

    def _check_writes(self) -> None:
        if self._feeder is not None:
            raise UsageError(_UNAWAITED)

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


async def feed(reference: Any, requests: Any) -> None:
    """Sends requests as long as the call is held by somebody and goes on."""
    try:
        if hasattr(requests, "__aiter__"):
            async for request in requests:
                if not await fed(reference, request):
                    return
        else:
            for request in requests:
                if not await fed(reference, request):
                    return
    except asyncio.CancelledError:
        raise
    except Exception as error:  # noqa: BLE001
        run_logged(raised, error)
        call = reference()
        if call is not None:
            call._abort(StatusCode.UNKNOWN, "Exception iterating requests!")
        return
    call = reference()
    if call is not None:
        call._native.finish()


def raised(error: Exception) -> None:
    raise error


async def fed(reference: Any, request: Any) -> bool:
    call = reference()
    if call is None or call.done():
        return False
    await call._write(request)
    return not call.done()


class UnaryStreamCall(StreamSide, *bases("UnaryStreamCall")):
    """A call to which the server streams."""


class StreamUnaryCall(StreamSide, *bases("StreamUnaryCall")):
    """A call that streams to the server."""

    _response: Any = None
    _is_received = False

    def __await__(self) -> Generator[Any, None, Any]:
        return self._await_response().__await__()

    async def _await_response(self) -> Any:
        if not self._is_received:
            response = await self._receive()
            if response is not EOF:
                self._response = response
                await self._receive()
            self._is_received = True
        await self._end()
        self._raise_if_failed()
        return self._response


class StreamStreamCall(StreamSide, *bases("StreamStreamCall")):
    """A call that streams both ways."""
