"""Calls of asyncio that interceptors make, change, or answer themselves."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from typing import Any, AsyncIterator, Callable, Generator, Optional, Sequence

from ._aio_calls import CANCELLED, FINISHED, UNAWAITED
from ._aio_names import EOF, AioRpcError, UsageError, bases
from ._aio_running import RunningCalls
from ._dispatcher import run_logged
from ._names import StatusCode


class Chain:
    """Interceptors of one kind of call, the first one outermost, and what makes the call."""

    def __init__(
        self, interceptors: Sequence[Any], intercept: str, make: Callable[[Any, Any], Any]
    ) -> None:
        self._intercepts = [getattr(each, intercept) for each in interceptors]
        self._make = make
        # What was made last, whatever the interceptors have returned.
        self.made: Any = None

    async def run(self, details: Any, request: Any, wrap: Callable[[Any, Any], Any]) -> Any:
        """Returns the call. `wrap` makes one of what an interceptor has returned."""
        return await self._proceed(0, wrap, details, request)

    async def _proceed(
        self, depth: int, wrap: Callable[[Any, Any], Any], details: Any, request: Any
    ) -> Any:
        if depth == len(self._intercepts):
            self.made = self._make(details, request)
            return self.made

        async def continuation(details: Any, request: Any) -> Any:
            return await self._proceed(depth + 1, wrap, details, request)

        returned = await self._intercepts[depth](continuation, details, request)
        return wrap(returned, self.made)


class InterceptedCall:
    """A call that exists when its interceptors have returned it; what is asked of it before waits
    for that."""

    def __init__(self, chain: Chain, details: Any, request: Any, running: RunningCalls) -> None:
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[Any] = self._loop.create_task(
            chain.run(details, request, self._wrap)
        )
        self._callbacks: Optional[list[Callable[[Any], None]]] = []
        own = weakref.ref(self, running.calls.discard)
        running.calls.add(own)

        def returned(_: Any) -> None:
            call = own()
            if call is not None:
                call._add_callbacks_to_call()

        self._task.add_done_callback(returned)

    @staticmethod
    def _wrap(returned: Any, made: Any) -> Any:
        """Makes a call of what an interceptor has returned."""
        return returned

    def __del__(self) -> None:
        task = getattr(self, "_task", None)
        # The call that it has returned is cancelled when it goes itself.
        if task is not None and not task.done():
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(task.cancel)

    def _add_callbacks_to_call(self) -> None:
        callbacks, self._callbacks = self._callbacks or [], None
        for callback in callbacks:
            self.add_done_callback(callback)

    def _call(self) -> Any:
        """Returns the call, or `None` if the interceptors have not returned one."""
        has_call = self._task.done() and not self._task.cancelled() and not self._task.exception()
        return self._task.result() if has_call else None

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        if not self._task.done():
            if self._callbacks is not None:
                self._callbacks.append(callback)
            return
        call = self._call()
        if call is None or call.done():
            run_logged(callback, self)
        else:
            call.add_done_callback(lambda _: callback(self))

    def cancel(self) -> bool:
        if not self._task.done():
            return self._task.cancel()
        call = self._call()
        return call is not None and call.cancel()

    def cancelled(self) -> bool:
        if not self._task.done():
            return False
        call = self._call()
        if call is not None:
            return bool(call.cancelled())
        if self._task.cancelled():
            return True
        error = self._task.exception()
        return isinstance(error, AioRpcError) and error.code() is StatusCode.CANCELLED

    def done(self) -> bool:
        if not self._task.done():
            return False
        call = self._call()
        return call is None or call.done()

    def time_remaining(self) -> Optional[float]:
        call = self._call()
        return None if call is None else call.time_remaining()

    async def _ask(self, name: str, if_cancelled: Any) -> Any:
        """Asks the call for something, or the error for which there is none."""
        # A task that waits and is cancelled leaves the call alone.
        await asyncio.wait([self._task])
        if self._task.cancelled():
            return if_cancelled
        error = self._task.exception()
        if isinstance(error, AioRpcError):
            return getattr(error, name)()
        return await getattr(self._task.result(), name)()

    async def initial_metadata(self) -> Any:
        return await self._ask("initial_metadata", None)

    async def trailing_metadata(self) -> Any:
        return await self._ask("trailing_metadata", None)

    async def code(self) -> Any:
        return await self._ask("code", StatusCode.CANCELLED)

    async def details(self) -> Any:
        return await self._ask("details", CANCELLED)

    async def debug_error_string(self) -> Any:
        return await self._ask("debug_error_string", "")

    async def wait_for_connection(self) -> None:
        call = await self._task
        await call.wait_for_connection()


class _OneResponse(InterceptedCall):
    def __await__(self) -> Generator[Any, None, Any]:
        call = yield from self._task.__await__()
        return (yield from call.__await__())


class _ManyResponses(InterceptedCall):
    _iterator: Optional[AsyncIterator[Any]] = None

    async def _responses(self) -> AsyncIterator[Any]:
        call = await self._task
        async for response in call:
            yield response

    def __aiter__(self) -> AsyncIterator[Any]:
        if self._iterator is None:
            self._iterator = self._responses()
        return self._iterator

    async def read(self) -> Any:
        async for response in self.__aiter__():
            return response
        return EOF


class WrittenRequests:
    """An iterator of what is written, for interceptors, which take iterators only. There is room
    for one request."""

    _END = object()

    def __init__(self) -> None:
        self._requests: asyncio.Queue[Any] = asyncio.Queue(maxsize=1)
        self.is_finished = False

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        request = await self._requests.get()
        if request is self._END:
            raise StopAsyncIteration
        return request

    async def put(self, request: Any, call: Any) -> None:
        """Waits until there is room, or the call has ended."""
        putting = asyncio.ensure_future(self._requests.put(request))
        end = asyncio.ensure_future(call.code())
        try:
            await asyncio.wait([putting, end], return_when=asyncio.FIRST_COMPLETED)
        finally:
            putting.cancel()
            end.cancel()

    async def finish(self, call: Any) -> None:
        if not self.is_finished:
            self.is_finished = True
            await self.put(self._END, call)


class _ManyRequests(InterceptedCall):
    def __init__(self, chain: Chain, details: Any, request: Any, running: RunningCalls) -> None:
        self._written = WrittenRequests() if request is None else None
        super().__init__(chain, details, self._written if request is None else request, running)

    async def _writable(self) -> tuple[WrittenRequests, Any]:
        if self._written is None:
            raise UsageError(UNAWAITED)
        try:
            return self._written, await asyncio.shield(self._task)
        except (asyncio.CancelledError, AioRpcError):
            if not self._task.done():
                raise
            raise asyncio.InvalidStateError(FINISHED) from None

    async def write(self, request: Any) -> None:
        written, call = await self._writable()
        if call.done() or written.is_finished:
            raise asyncio.InvalidStateError(FINISHED)
        await written.put(request, call)
        if call.done():
            raise asyncio.InvalidStateError(FINISHED)

    async def done_writing(self) -> None:
        written, call = await self._writable()
        await written.finish(call)


class InterceptedUnaryUnaryCall(_OneResponse, *bases("UnaryUnaryCall")):  # type: ignore[misc]
    """A unary call with interceptors."""

    @staticmethod
    def _wrap(returned: Any, made: Any) -> Any:
        return returned if hasattr(returned, "wait_for_connection") else Answer(returned)


class InterceptedUnaryStreamCall(_ManyResponses, *bases("UnaryStreamCall")):  # type: ignore[misc]
    """A call to which the server streams, with interceptors."""

    @staticmethod
    def _wrap(returned: Any, made: Any) -> Any:
        is_call = hasattr(returned, "wait_for_connection")
        return returned if is_call else UnaryStreamAnswers(returned, made)


class InterceptedStreamUnaryCall(
    _ManyRequests, _OneResponse, *bases("StreamUnaryCall")  # type: ignore[misc]
):
    """A call that streams to the server, with interceptors."""


class InterceptedStreamStreamCall(
    _ManyRequests, _ManyResponses, *bases("StreamStreamCall")  # type: ignore[misc]
):
    """A call that streams both ways, with interceptors."""

    @staticmethod
    def _wrap(returned: Any, made: Any) -> Any:
        is_call = hasattr(returned, "wait_for_connection")
        return returned if is_call else StreamStreamAnswers(returned, made)


class NoCall:
    """A call that was not made, as an interceptor has answered in its place: it has ended with
    OK."""

    def cancel(self) -> bool:
        return False

    def cancelled(self) -> bool:
        return False

    def done(self) -> bool:
        return True

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        run_logged(callback, self)

    def time_remaining(self) -> Optional[float]:
        return None

    async def initial_metadata(self) -> Any:
        return None

    async def trailing_metadata(self) -> Any:
        return None

    async def code(self) -> StatusCode:
        return StatusCode.OK

    async def details(self) -> str:
        return ""

    async def debug_error_string(self) -> Optional[str]:
        return None

    async def wait_for_connection(self) -> None:
        pass


class Answer(NoCall, *bases("UnaryUnaryCall")):  # type: ignore[misc]
    """The response that an interceptor has in the place of a unary call."""

    def __init__(self, response: Any) -> None:
        self._response = response

    def __await__(self) -> Generator[Any, None, Any]:
        return self._response
        yield


class Answers:
    """Responses that an interceptor has made, perhaps of those of the call; the rest is that of the
    call."""

    def __init__(self, responses: Any, made: Any) -> None:
        self._iterator: AsyncIterator[Any] = responses.__aiter__()
        self._made = NoCall() if made is None else made

    def __getattr__(self, name: str) -> Any:
        return getattr(self._made, name)

    def __aiter__(self) -> AsyncIterator[Any]:
        return self._iterator

    async def read(self) -> Any:
        async for response in self._iterator:
            return response
        return EOF


class UnaryStreamAnswers(Answers):
    """Those of a call to which the server streams."""


class StreamStreamAnswers(Answers):
    """Those of a call that streams both ways."""


for _base in bases("UnaryStreamCall"):
    _base.register(UnaryStreamAnswers)
for _base in bases("StreamStreamCall"):
    _base.register(StreamStreamAnswers)
