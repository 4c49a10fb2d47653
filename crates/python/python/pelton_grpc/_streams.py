"""Calls that stream in one or both directions."""

from __future__ import annotations

import logging
import threading
import weakref
from typing import Any, Callable, Iterator, Optional

from ._ended import Ended, EndedCall, FailedCall
from ._names import (
    StatusCode,
    StreamStreamMultiCallable,
    StreamUnaryMultiCallable,
    UnaryStreamMultiCallable,
)
from ._unary import Method, RunningCall
from ._unbegun import UnbegunCall

_LOGGER = logging.getLogger("pelton_grpc")


class RunningStream(RunningCall):
    """A streaming call that has begun, and an iterator of its responses. Who drops it cancels
    it."""

    def __init__(self, native: Any, method: Method, timeout: Optional[float]) -> None:
        super().__init__(native, method, timeout)
        self._receive = native.receive

    def _wait(self, timeout: Optional[float] = None) -> Optional[Ended]:
        if self._ended is not None:
            return self._ended
        outcome = self._native.end(timeout)
        return None if outcome is None else self._note_end(outcome)

    def _note_end(self, outcome: Any) -> Ended:
        """Takes the end that the native half reports, unless this side has ended the call before
        for a reason of its own."""
        self._end_locally(Ended(outcome))
        assert self._ended is not None, "it has just been set"
        return self._ended

    def __iter__(self) -> RunningStream:
        return self

    def __next__(self) -> Any:
        message = self._receive()
        if type(message) is bytes:
            try:
                return self._method.deserialize(message)
            except FailedCall as error:
                self._abort(error.code(), error.details())
                raise
        ended = self._note_end(message)
        if ended.code is StatusCode.OK:
            raise StopIteration
        raise FailedCall(ended)

    def next(self) -> Any:
        return self.__next__()

    def _abort(self, code: StatusCode, details: str) -> None:
        """Ends the call with a status of this side."""
        self._end_locally(Ended.local(code, details))
        self._native.cancel()

    def __del__(self) -> None:
        native = getattr(self, "_native", None)
        if native is not None:
            native.cancel()


class StreamedUnary(RunningStream):
    """A call that streams to the server, and whose one response comes later. Its end is known when
    the response was taken: that may not be one."""

    def __init__(self, native: Any, method: Method, timeout: Optional[float]) -> None:
        super().__init__(native, method, timeout)
        # A handler of a signal may ask for the result that its thread is about to take.
        self._taking = threading.RLock()
        self._value: Any = None

    def _wait(self, timeout: Optional[float] = None) -> Optional[Ended]:
        if self._ended is not None:
            return self._ended
        outcome = self._native.end(timeout)
        if outcome is None:
            return None
        ended = Ended(outcome)
        with self._taking:
            if self._ended is None and ended.code is StatusCode.OK:
                ended = self._take_response() or ended
            self._end_locally(ended)
        return self._ended

    def _take_response(self) -> Optional[Ended]:
        """Takes the response of a call that has ended, so that nothing is waited for. Returns how
        the call has failed nevertheless, if it has."""
        first, second = self._receive(), None
        if type(first) is bytes:
            second = self._receive()
        if type(first) is not bytes or type(second) is bytes:
            self._native.cancel()
            count = "none" if type(first) is not bytes else "more than one"
            details = f"the answer makes no sense: it has {count} of the one message expected"
            return Ended.local(StatusCode.INTERNAL, details)
        try:
            self._value = self._method.deserialize(first)
        except FailedCall as error:
            return Ended.local(error.code(), error.details())
        return None

    def _response(self) -> Any:
        return self._value


def _feed(
    native: Any,
    method: Method,
    abort: Callable[[StatusCode, str], None],
    requests: Iterator[Any],
) -> None:
    """Sends requests as long as the call goes on."""
    while True:
        try:
            request = next(requests)
        except StopIteration:
            native.finish()
            return
        except Exception:
            _LOGGER.exception("Exception iterating requests!")
            abort(StatusCode.UNKNOWN, "Exception iterating requests!")
            return
        try:
            unsent = native.send(method.serialize(request))
        except FailedCall as error:
            abort(error.code(), error.details())
            return
        except TypeError:
            _LOGGER.exception("Exception serializing message!")
            abort(StatusCode.INTERNAL, "Exception serializing request!")
            return
        if unsent is not None:
            if unsent:
                abort(StatusCode.RESOURCE_EXHAUSTED, unsent)
            return


def _feed_beside(call: RunningStream, requests: Any) -> None:
    """The iterator may wait for what the server sends: it has a thread of its own."""
    reference = weakref.ref(call)

    def abort(code: StatusCode, details: str) -> None:
        running = reference()
        if running is not None:
            running._abort(code, details)

    # Without the call: whoever drops it cancels it, whatever the iterator waits for.
    arguments = (call._native, call._method, abort, iter(requests))
    feeder = threading.Thread(
        target=_feed, args=arguments, name="pelton-grpc-requests", daemon=True
    )
    feeder.start()


class _StreamMethod:
    __slots__ = ("_method",)

    def __init__(self, method: Method) -> None:
        self._method = method

    def _begin(
        self,
        request: Optional[bytes],
        timeout: Optional[float],
        metadata: Any,
        credentials: Any,
        wait_for_ready: Optional[bool],
        compression: Any,
    ) -> Any:
        method = self._method
        try:
            words = method.arguments(timeout, metadata, credentials, wait_for_ready, compression)
        except FailedCall as error:
            return UnbegunCall.refused(error)
        return method.native.begin_stream(request, *words)


class UnaryStream(_StreamMethod, UnaryStreamMultiCallable):
    """Makes calls to which the server streams."""

    def __call__(
        self,
        request: Any,
        timeout: Optional[float] = None,
        metadata: Any = None,
        credentials: Any = None,
        wait_for_ready: Optional[bool] = None,
        compression: Any = None,
    ) -> RunningStream:
        data = self._method.serialize(request)
        native = self._begin(
            data, timeout, metadata, credentials, wait_for_ready, compression
        )
        return RunningStream(native, self._method, timeout)


class StreamUnary(_StreamMethod, StreamUnaryMultiCallable):
    """Makes calls that stream to the server."""

    def __call__(
        self,
        request_iterator: Any,
        timeout: Optional[float] = None,
        metadata: Any = None,
        credentials: Any = None,
        wait_for_ready: Optional[bool] = None,
        compression: Any = None,
    ) -> Any:
        response, _call = self.with_call(
            request_iterator, timeout, metadata, credentials, wait_for_ready, compression
        )
        return response

    def with_call(
        self,
        request_iterator: Any,
        timeout: Optional[float] = None,
        metadata: Any = None,
        credentials: Any = None,
        wait_for_ready: Optional[bool] = None,
        compression: Any = None,
    ) -> tuple[Any, Any]:
        call = self.future(
            request_iterator, timeout, metadata, credentials, wait_for_ready, compression
        )
        response = call.result()
        return response, EndedCall(call._end(), response)

    def future(
        self,
        request_iterator: Any,
        timeout: Optional[float] = None,
        metadata: Any = None,
        credentials: Any = None,
        wait_for_ready: Optional[bool] = None,
        compression: Any = None,
    ) -> StreamedUnary:
        native = self._begin(
            None, timeout, metadata, credentials, wait_for_ready, compression
        )
        call = StreamedUnary(native, self._method, timeout)
        _feed_beside(call, request_iterator)
        return call


class StreamStream(_StreamMethod, StreamStreamMultiCallable):
    """Makes calls that stream both ways."""

    def __call__(
        self,
        request_iterator: Any,
        timeout: Optional[float] = None,
        metadata: Any = None,
        credentials: Any = None,
        wait_for_ready: Optional[bool] = None,
        compression: Any = None,
    ) -> RunningStream:
        native = self._begin(
            None, timeout, metadata, credentials, wait_for_ready, compression
        )
        call = RunningStream(native, self._method, timeout)
        _feed_beside(call, request_iterator)
        return call
