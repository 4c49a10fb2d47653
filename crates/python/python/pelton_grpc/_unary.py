"""Unary calls."""

from __future__ import annotations

import logging
import threading
import time
import types
from typing import Any, Callable, Optional

from ._credentials import CallAuthority
from ._dispatcher import Dispatcher, run_logged
from ._ended import Ended, EndedCall, FailedCall, Metadatum, failed_call, with_names
from ._names import (
    Call,
    Future,
    FutureCancelledError,
    FutureTimeoutError,
    StatusCode,
    UnaryUnaryMultiCallable,
)
from ._options import compresses
from ._unbegun import UnbegunCall

_LOGGER = logging.getLogger("pelton_grpc")


class Method:
    """What all calls of a method have in common."""

    __slots__ = (
        "native",
        "path",
        "compress",
        "authority",
        "plugins",
        "dispatcher",
        "_serializer",
        "_deserializer",
    )

    def __init__(
        self,
        native: Any,
        path: str,
        compress: bool,
        authority: CallAuthority,
        dispatcher: Dispatcher,
        serializer: Optional[Callable[[Any], bytes]],
        deserializer: Optional[Callable[[bytes], Any]],
    ) -> None:
        self.native = native
        self.path = path
        self.compress = compress
        self.authority = authority
        self.plugins = authority.plugins
        self.dispatcher = dispatcher
        self._serializer = serializer
        self._deserializer = deserializer

    @property
    def codecs(self) -> tuple[Any, Any]:
        """What makes bytes of requests, and responses of bytes."""
        return self._serializer, self._deserializer

    def serialize(self, request: Any) -> bytes:
        """Returns a request as bytes, or raises the error of a call that cannot be made."""
        if self._serializer is None:
            data: bytes = request
            return data
        made: Optional[bytes] = None
        try:
            made = self._serializer(request)
        except Exception:
            _LOGGER.exception("Exception serializing message!")
        if made is None:
            raise failed_call(StatusCode.INTERNAL, "Exception serializing request!")
        return made

    def deserialize(self, response: bytes) -> Any:
        """Returns a response, or raises the error of a call whose response cannot be read."""
        if self._deserializer is None:
            return response
        try:
            value = self._deserializer(response)
        except Exception:
            _LOGGER.exception("Exception deserializing message!")
            value = None
        if value is None:
            raise failed_call(StatusCode.INTERNAL, "Exception deserializing response!")
        return value

    def arguments(
        self,
        timeout: Optional[float],
        metadata: Any,
        credentials: Any,
        ready: Optional[bool],
        compression: Any,
    ) -> tuple[Optional[float], Any, bool, bool]:
        """Returns what the native half wants to know of a call, in its order: the timeout, the
        metadata with those of the credentials, whether it waits for a connection, and whether its
        messages are compressed. Waits for the plugins of the credentials."""
        if credentials is not None or self.plugins:
            metadata, timeout = self.authority.metadata(
                self.path, metadata, credentials, timeout
            )
        return self.arguments_with(timeout, metadata, ready, compression)

    def arguments_with(
        self, timeout: Optional[float], metadata: Any, ready: Optional[bool], compression: Any
    ) -> tuple[Optional[float], Any, bool, bool]:
        """The same where the metadata have those of the credentials."""
        compress = self.compress if compression is None else compresses(compression)
        return timeout, metadata, bool(ready), compress


class UnaryUnary(UnaryUnaryMultiCallable):
    """Makes unary calls."""

    __slots__ = ("_method", "_native_unary")

    def __init__(self, method: Method) -> None:
        self._method = method
        self._native_unary = method.native.unary

    def __call__(
        self,
        request: Any,
        timeout: Optional[float] = None,
        metadata: Any = None,
        credentials: Any = None,
        wait_for_ready: Optional[bool] = None,
        compression: Any = None,
    ) -> Any:
        method = self._method
        answer = self._native_unary(
            method.serialize(request),
            *method.arguments(timeout, metadata, credentials, wait_for_ready, compression),
        )
        if type(answer) is bytes:
            return method.deserialize(answer)
        raise FailedCall(Ended(answer))

    def with_call(
        self,
        request: Any,
        timeout: Optional[float] = None,
        metadata: Any = None,
        credentials: Any = None,
        wait_for_ready: Optional[bool] = None,
        compression: Any = None,
    ) -> tuple[Any, Any]:
        method = self._method
        outcome = self._native_unary(
            method.serialize(request),
            *method.arguments(timeout, metadata, credentials, wait_for_ready, compression),
            True,
        )
        ended = Ended(outcome)
        if ended.code is not StatusCode.OK:
            raise FailedCall(ended)
        response = method.deserialize(outcome.response)
        return response, EndedCall(ended, response)

    def future(
        self,
        request: Any,
        timeout: Optional[float] = None,
        metadata: Any = None,
        credentials: Any = None,
        wait_for_ready: Optional[bool] = None,
        compression: Any = None,
    ) -> RunningUnary:
        method = self._method
        data = method.serialize(request)
        try:
            words = method.arguments(timeout, metadata, credentials, wait_for_ready, compression)
        except FailedCall as error:
            return RunningUnary(UnbegunCall.refused(error), method, timeout)
        native = method.native.begin_unary(data, *words)
        return RunningUnary(native, method, timeout)


class RunningCall(Call, Future):
    """A call that runs while its caller goes on, and has one response or none."""

    def __init__(self, native: Any, method: Method, timeout: Optional[float]) -> None:
        self._native = native
        self._method = method
        self._deadline = None if timeout is None else time.monotonic() + timeout
        # A handler of a signal may cancel the call while its thread is at it.
        self._lock = threading.RLock()
        self._ended: Optional[Ended] = None
        self._callbacks: Optional[list[Callable[[], None]]] = []

    def _wait(self, timeout: Optional[float] = None) -> Optional[Ended]:
        """Returns how the call has ended, or `None` if it has not in time."""
        raise NotImplementedError

    def _end(self) -> Ended:
        ended = self._wait()
        assert ended is not None, "it waits for ever"
        return ended

    def code(self) -> StatusCode:
        return self._end().code

    def details(self) -> str:
        return self._end().details

    def debug_error_string(self) -> str:
        return f"{self.code().name}: {self.details()}"

    def initial_metadata(self) -> tuple[Metadatum, ...]:
        return with_names(self._native.initial_metadata())

    def trailing_metadata(self) -> tuple[Metadatum, ...]:
        return self._end().trailing_metadata()

    def is_active(self) -> bool:
        return not self.done()

    def running(self) -> bool:
        return not self.done()

    def done(self) -> bool:
        return self._wait(0) is not None

    def time_remaining(self) -> Optional[float]:
        if self._deadline is None:
            return None
        return max(self._deadline - time.monotonic(), 0)

    def cancel(self) -> bool:
        details = "Locally cancelled by application!"
        # Who waits for the end finds this one.
        with self._lock:
            if self._ended is not None or not self._native.cancel():
                return False
            self._ended = Ended.local(StatusCode.CANCELLED, details, is_cancelled=True)
        return True

    def _end_locally(self, ended: Ended) -> None:
        with self._lock:
            if self._ended is None:
                self._ended = ended

    def cancelled(self) -> bool:
        ended = self._wait(0)
        return ended is not None and ended.is_cancelled

    def add_callback(self, callback: Callable[[], None]) -> bool:
        if self.done():
            return False
        with self._lock:
            if self._callbacks is None:
                return False
            is_first = not self._callbacks
            self._callbacks.append(callback)
        if is_first:
            self._method.dispatcher.when_ended(self._native, self._run_callbacks)
        return True

    def add_done_callback(self, fn: Callable[[Any], None]) -> None:
        if not self.add_callback(lambda: fn(self)):
            fn(self)

    def _run_callbacks(self) -> None:
        self._wait()
        with self._lock:
            callbacks, self._callbacks = self._callbacks or [], None
        for callback in callbacks:
            run_logged(callback)

    def _in_time(self, timeout: Optional[float]) -> Ended:
        ended = self._ended or self._wait(timeout)
        if ended is None:
            raise FutureTimeoutError()
        if ended.is_cancelled:
            raise FutureCancelledError()
        return ended

    def _response(self) -> Any:
        return None

    def result(self, timeout: Optional[float] = None) -> Any:
        ended = self._in_time(timeout)
        if ended.code is StatusCode.OK:
            return self._response()
        raise FailedCall(ended)

    def exception(self, timeout: Optional[float] = None) -> Optional[Exception]:
        ended = self._in_time(timeout)
        return None if ended.code is StatusCode.OK else FailedCall(ended)

    def traceback(self, timeout: Optional[float] = None) -> Optional[types.TracebackType]:
        error = self.exception(timeout)
        return error.traceback() if isinstance(error, FailedCall) else None

    def __repr__(self) -> str:
        ended = self._wait(0)
        if ended is None:
            return f"<{type(self).__name__} object>"
        return repr(FailedCall(ended) if ended.code is not StatusCode.OK else EndedCall(ended))

    __str__ = __repr__


class RunningUnary(RunningCall):
    """A unary call that runs while its caller goes on."""

    _received: Any = None

    def _wait(self, timeout: Optional[float] = None) -> Optional[Ended]:
        if self._ended is not None:
            return self._ended
        outcome = self._native.result(timeout)
        if outcome is None:
            return None
        ended, received = Ended(outcome), None
        if ended.code is StatusCode.OK:
            try:
                received = self._method.deserialize(outcome.response)
            except FailedCall as error:
                ended = Ended.local(error.code(), error.details())
        with self._lock:
            if self._ended is None:
                self._received, self._ended = received, ended
        return self._ended

    def _response(self) -> Any:
        return self._received
