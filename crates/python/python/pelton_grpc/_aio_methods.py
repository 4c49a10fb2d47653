"""What makes calls of a method in an event loop, with the interceptors of its channel."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Optional, Sequence

from ._aio_calls import AioCall, UnaryUnaryCall
from ._aio_interceptors import (
    Chain,
    InterceptedStreamStreamCall,
    InterceptedStreamUnaryCall,
    InterceptedUnaryStreamCall,
    InterceptedUnaryUnaryCall,
)
from ._aio_names import ClientCallDetails, Metadata, UsageError
from ._aio_names import StreamStreamMultiCallable as StreamStreamBase
from ._aio_names import StreamUnaryMultiCallable as StreamUnaryBase
from ._aio_names import UnaryStreamMultiCallable as UnaryStreamBase
from ._aio_names import UnaryUnaryMultiCallable as UnaryUnaryBase
from ._aio_streams import StreamStreamCall, StreamUnaryCall, UnaryStreamCall
from ._ended import FailedCall
from ._unary import Method

if TYPE_CHECKING:
    from .aio import Channel


class AioMethod:
    """Makes calls of one method."""

    _call_type: Any
    _intercepted_type: Any
    # Of the interceptors of this kind of call.
    _intercept: str

    def __init__(self, channel: Channel, method: Method, interceptors: Sequence[Any]) -> None:
        # A stub keeps the channel, as that of grpc.aio does.
        self._channel = channel
        self._method = method
        self._interceptors = interceptors

    def _make(
        self,
        request: Any,
        timeout: Optional[float],
        metadata: Any,
        credentials: Any,
        ready: Optional[bool],
        compression: Any,
    ) -> Any:
        if not self._interceptors:
            arguments = (timeout, metadata, credentials, ready, compression)
            return self._begin(self._method, request, arguments)
        if not isinstance(metadata, Metadata):
            metadata = Metadata(*(metadata or ()))
        path = self._method.path.encode()
        details = ClientCallDetails(path, timeout, metadata, credentials, ready)
        chain = Chain(self._interceptors, self._intercept, partial(self._proceed, compression))
        return self._intercepted_type(chain, details, request, self._channel._running)

    def _proceed(self, compression: Any, details: Any, request: Any) -> Any:
        """Begins the call that interceptors have agreed on, perhaps of another method."""
        path = details.method
        path = path.decode() if isinstance(path, bytes) else path
        method = self._method
        if path != method.path:
            method = self._channel._channel._method(path, *method.codecs)
        arguments = (
            details.timeout,
            details.metadata,
            details.credentials,
            details.wait_for_ready,
            compression,
        )
        return self._begin(method, request, arguments)

    def _begin(self, method: Method, request: Any, arguments: tuple[Any, ...]) -> Any:
        if self._channel._running.is_closed:
            raise UsageError("Channel is closed.")
        if arguments[2] is not None and not method.authority.is_secure:
            raise UsageError("Call credentials are only valid on secure channels")
        return self._start(method, request, arguments)

    def _start(self, method: Method, request: Any, arguments: tuple[Any, ...]) -> Any:
        raise NotImplementedError


class _OneRequest(AioMethod):
    def _native_begin(self, method: Method) -> Any:
        raise NotImplementedError

    def _start(self, method: Method, request: Any, arguments: tuple[Any, ...]) -> Any:
        call: AioCall = self._call_type(method, arguments[0], self._channel._running)
        try:
            data = method.serialize(request)
        except FailedCall as error:
            call._refuse(error)
            return call
        call._begin(self._native_begin(method), data, arguments)
        return call


class UnaryUnary(_OneRequest, UnaryUnaryBase):
    """Makes unary calls."""

    _call_type = UnaryUnaryCall
    _intercepted_type = InterceptedUnaryUnaryCall
    _intercept = "intercept_unary_unary"

    def _native_begin(self, method: Method) -> Any:
        return method.native.begin_unary

    def __call__(
        self,
        request: Any,
        *,
        timeout: Optional[float] = None,
        metadata: Any = None,
        credentials: Any = None,
        wait_for_ready: Optional[bool] = None,
        compression: Any = None,
    ) -> Any:
        return self._make(request, timeout, metadata, credentials, wait_for_ready, compression)


class UnaryStream(_OneRequest, UnaryStreamBase):
    """Makes calls to which the server streams."""

    _call_type = UnaryStreamCall
    _intercepted_type = InterceptedUnaryStreamCall
    _intercept = "intercept_unary_stream"

    def _native_begin(self, method: Method) -> Any:
        return method.native.begin_stream

    def __call__(
        self,
        request: Any,
        *,
        timeout: Optional[float] = None,
        metadata: Any = None,
        credentials: Any = None,
        wait_for_ready: Optional[bool] = None,
        compression: Any = None,
    ) -> Any:
        return self._make(request, timeout, metadata, credentials, wait_for_ready, compression)


class _ManyRequests(AioMethod):
    def _start(self, method: Method, request: Any, arguments: tuple[Any, ...]) -> Any:
        call = self._call_type(method, arguments[0], self._channel._running)
        call._begin(method.native.begin_stream, None, arguments)
        if request is not None:
            call._feed_from(request)
        return call

    def __call__(
        self,
        request_iterator: Any = None,
        timeout: Optional[float] = None,
        metadata: Any = None,
        credentials: Any = None,
        wait_for_ready: Optional[bool] = None,
        compression: Any = None,
    ) -> Any:
        return self._make(
            request_iterator, timeout, metadata, credentials, wait_for_ready, compression
        )


class StreamUnary(_ManyRequests, StreamUnaryBase):
    """Makes calls that stream to the server."""

    _call_type = StreamUnaryCall
    _intercepted_type = InterceptedStreamUnaryCall
    _intercept = "intercept_stream_unary"


class StreamStream(_ManyRequests, StreamStreamBase):
    """Makes calls that stream both ways."""

    _call_type = StreamStreamCall
    _intercepted_type = InterceptedStreamStreamCall
    _intercept = "intercept_stream_stream"
