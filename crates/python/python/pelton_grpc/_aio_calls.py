"""Calls of asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import time
import weakref
from functools import partial
from typing import Any, Callable, Generator, Optional

from ._aio_credentials import metadata_of
from ._aio_loop import LoopQueue, loop_queue
from ._aio_names import AioRpcError, Metadata, bases
from ._aio_running import RunningCalls
from ._dispatcher import run_logged
from ._ended import Ended, FailedCall
from ._names import StatusCode
from ._plugins import Question
from ._unary import Method
from ._unbegun import UnbegunCall

CANCELLED = "Locally cancelled by application!"
FINISHED = "RPC already finished."
UNAWAITED = "the call takes its requests from an iterator: nothing else can write"

# Makes the native half of a call, of a request and what `Method.arguments` returns.
Begin = Callable[..., Any]


class AioCall:
    """A call that has begun, and its end."""

    def __init__(self, method: Method, timeout: Optional[float], running: RunningCalls) -> None:
        # The native half, once it has begun.
        self._native: Any = None
        self._queue: LoopQueue = loop_queue()
        self._method = method
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._ended: Optional[Ended] = None
        # Of what it was given and cannot use, such as a request that is not bytes.
        self._raised: Optional[BaseException] = None
        self._callbacks: list[Callable[[Any], None]] = []
        self._waiters: list[asyncio.Future[None]] = []
        self._beginning: Optional[asyncio.Task[None]] = None
        self._running = running
        self._own = weakref.ref(self)
        running.calls.add(self._own)

    def _begin(self, begin: Begin, data: Optional[bytes], arguments: tuple[Any, ...]) -> None:
        """Begins the call, at once or, if plugins are asked for its credentials, when they have
        answered. `begin` returns the native half; `data` is its request, if it has one, and
        `arguments` are those of `Method.arguments`."""
        method = self._method
        credentials = arguments[2]
        try:
            if credentials is not None or method.plugins:
                question = method.authority.question(method.path, credentials)
                if not question.is_answered_at_once():
                    return self._begin_later(partial(begin, data), arguments, question)
            self._begin_with(begin(data, *method.arguments(*arguments)))
        except FailedCall as error:
            self._refuse(error)
        except Exception as error:  # noqa: BLE001
            self._native = UnbegunCall()
            self._fail(error)

    def _refuse(self, error: FailedCall) -> None:
        """Ends the call before it could begin."""
        self._native = UnbegunCall()
        self._abort(error.code(), error.details())

    def _begin_later(self, begin: Begin, arguments: tuple[Any, ...], question: Question) -> None:
        self._native = UnbegunCall()
        beginning = begin_answered(self._own, begin, arguments, question)
        self._beginning = self._queue.loop.create_task(beginning)

    def _begin_with(self, native: Any) -> None:
        own, queue = self._own, self._queue
        self._native = native

        def end() -> None:
            call = own()
            queue.forget(name)
            if call is not None:
                call._note_native_end()

        name = queue.name(end)
        native.notify(queue.native, name)

    def _fail(self, error: Exception) -> None:
        """Ends the call, since it was given what cannot be used: whoever waits for it is told."""
        self._raised = error
        self._abort(StatusCode.INTERNAL, f"{type(error).__name__}: {error}")

    def __del__(self) -> None:
        native = getattr(self, "_native", None)
        if native is not None:
            native.cancel()
            self._running.calls.discard(self._own)
            for task in self._tasks():
                # This may be another thread, and the loop closed.
                if task is not None and not task.done():
                    with contextlib.suppress(RuntimeError):
                        self._queue.loop.call_soon_threadsafe(task.cancel)

    def _tasks(self) -> list[Optional[asyncio.Task[None]]]:
        """Returns what runs for the call, and not without it."""
        return [self._beginning]

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
        self._running.calls.discard(self._own)
        if self._beginning is not None:
            self._beginning.cancel()
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
        for callback in self._callbacks:
            run_logged(callback, self)
        self._callbacks.clear()

    def _abort(self, code: StatusCode, details: str, is_cancelled: bool = False) -> None:
        self._finish(Ended.local(code, details, is_cancelled))
        if self._native is not None:
            self._native.cancel()

    def _waiter(self) -> asyncio.Future[None]:
        """What ends with the call, for one task: one that is cancelled costs others nothing, and
        takes it out again."""
        waiter = self._queue.loop.create_future()
        self._waiters.append(waiter)
        return waiter

    async def _end(self) -> Ended:
        if self._ended is None:
            waiter = self._waiter()
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)
                raise
        assert self._ended is not None, "it has ended"
        return self._ended

    def _raise_if_failed(self) -> None:
        ended = self._ended
        assert ended is not None, "it has ended"
        if self._raised is not None:
            raise self._raised
        if ended.is_cancelled:
            raise asyncio.CancelledError()
        if ended.code is not StatusCode.OK:
            raise aio_error(ended)

    def cancel(self) -> bool:
        if self._ended is not None:
            return False
        self._abort(StatusCode.CANCELLED, CANCELLED, is_cancelled=True)
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
        """Waits until the call has ended, as that of grpc.aio does for a unary call; raises how it
        has failed."""
        await self._end()
        self._raise_if_failed()


async def begin_answered(
    own: weakref.ref[AioCall], begin: Begin, arguments: tuple[Any, ...], question: Question
) -> None:
    """Begins a call when its plugins have answered, if somebody holds it still."""
    timeout, metadata, _, ready, compression = arguments
    try:
        metadata, timeout = await metadata_of(question, metadata, timeout)
        failed = None
    except FailedCall as error:
        failed = error
    call = own()
    if call is None or call.done():
        return
    # It ends by itself.
    call._beginning = None
    if failed is not None:
        return call._abort(failed.code(), failed.details())
    try:
        native = begin(*call._method.arguments_with(timeout, metadata, ready, compression))
    except Exception as error:  # noqa: BLE001
        return call._fail(error)
    call._begin_with(native)


def aio_error(ended: Ended) -> AioRpcError:
    initial = Metadata(*ended.initial_metadata())
    trailing = Metadata(*ended.trailing_metadata())
    text = f"{ended.code.name}: {ended.details}"
    return AioRpcError(ended.code, initial, trailing, ended.details, text)


class UnaryUnaryCall(AioCall, *bases("UnaryUnaryCall")):  # type: ignore[misc]
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
            except (KeyboardInterrupt, SystemExit):
                # The event loop ends with them.
                raise
            except BaseException as error:  # noqa: BLE001
                # Whoever waits for the call is told, and not the event loop.
                self._raised = error
                return Ended.local(StatusCode.INTERNAL, f"{type(error).__name__}: {error}")
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
