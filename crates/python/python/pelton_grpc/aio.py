"""A `grpc.aio.Channel` with the client of Pelton, for any gRPC server.

    channel = pelton_grpc.aio.insecure_channel("localhost:50051")
"""

from __future__ import annotations

import asyncio
from typing import Any, Callable, Optional, Sequence

from . import _options
from ._aio_calls import StreamStreamCall, StreamUnaryCall, UnaryStreamCall, UnaryUnaryCall
from ._aio_loop import loop_queue
from ._aio_names import EOF, AioRpcError, Metadata, UsageError
from ._aio_names import Channel as ChannelBase
from ._channel import Channel as BlockingChannel
from ._channel import Deserializer, Serializer
from ._channel import insecure_channel as blocking_insecure_channel
from ._channel import secure_channel as blocking_secure_channel
from ._connectivity import PERIOD_SECONDS, STATES
from ._names import ChannelConnectivity
from ._unary import Method

__all__ = [
    "EOF",
    "AioRpcError",
    "Channel",
    "Metadata",
    "UsageError",
    "insecure_channel",
    "secure_channel",
]


class _AioMethod:
    """Makes calls of one method."""

    def __init__(self, method: Method, channel: BlockingChannel) -> None:
        self._method = method
        self._channel = channel

    def _arguments(self, *words: Any) -> tuple[Any, ...]:
        """`Method.arguments`, on a channel that is not closed."""
        if self._channel.is_closed:
            raise UsageError("Channel is closed.")
        return self._method.arguments(*words)


class UnaryUnary(_AioMethod):
    """Makes unary calls."""

    def __call__(
        self,
        request: Any,
        *,
        timeout: Optional[float] = None,
        metadata: Any = None,
        credentials: Any = None,
        wait_for_ready: Optional[bool] = None,
        compression: Any = None,
    ) -> UnaryUnaryCall:
        method = self._method
        data = method.serialize(request)
        words = self._arguments(timeout, metadata, credentials, wait_for_ready, compression)
        native = method.native.begin_unary(data, *words)
        return UnaryUnaryCall(native, loop_queue(), method, timeout)


class UnaryStream(_AioMethod):
    """Makes calls to which the server streams."""

    def __call__(
        self,
        request: Any,
        *,
        timeout: Optional[float] = None,
        metadata: Any = None,
        credentials: Any = None,
        wait_for_ready: Optional[bool] = None,
        compression: Any = None,
    ) -> UnaryStreamCall:
        method = self._method
        data = method.serialize(request)
        words = self._arguments(timeout, metadata, credentials, wait_for_ready, compression)
        native = method.native.begin_stream(data, *words)
        return UnaryStreamCall(native, loop_queue(), method, timeout)


class _StreamingRequests(_AioMethod):
    _call_type: Any = None

    def __call__(
        self,
        request_iterator: Any = None,
        timeout: Optional[float] = None,
        metadata: Any = None,
        credentials: Any = None,
        wait_for_ready: Optional[bool] = None,
        compression: Any = None,
    ) -> Any:
        words = self._arguments(timeout, metadata, credentials, wait_for_ready, compression)
        native = self._method.native.begin_stream(None, *words)
        call = self._call_type(native, loop_queue(), self._method, timeout)
        if request_iterator is not None:
            call._feed_from(request_iterator)
        return call


class StreamUnary(_StreamingRequests):
    """Makes calls that stream to the server."""

    _call_type = StreamUnaryCall


class StreamStream(_StreamingRequests):
    """Makes calls that stream both ways."""

    _call_type = StreamStreamCall


class Channel(ChannelBase):
    """Connections to a target, for the tasks of an event loop: `grpc.aio.Channel`."""

    def __init__(self, channel: BlockingChannel) -> None:
        self._channel = channel

    def _make(
        self, kind: Callable[..., Any], path: str, to_bytes: Serializer, of_bytes: Deserializer
    ) -> Any:
        return kind(self._channel._method(path, to_bytes, of_bytes), self._channel)

    def unary_unary(
        self,
        method: str,
        request_serializer: Serializer = None,
        response_deserializer: Deserializer = None,
        _registered_method: Optional[bool] = False,
    ) -> UnaryUnary:
        return self._make(UnaryUnary, method, request_serializer, response_deserializer)

    def unary_stream(
        self,
        method: str,
        request_serializer: Serializer = None,
        response_deserializer: Deserializer = None,
        _registered_method: Optional[bool] = False,
    ) -> UnaryStream:
        return self._make(UnaryStream, method, request_serializer, response_deserializer)

    def stream_unary(
        self,
        method: str,
        request_serializer: Serializer = None,
        response_deserializer: Deserializer = None,
        _registered_method: Optional[bool] = False,
    ) -> StreamUnary:
        return self._make(StreamUnary, method, request_serializer, response_deserializer)

    def stream_stream(
        self,
        method: str,
        request_serializer: Serializer = None,
        response_deserializer: Deserializer = None,
        _registered_method: Optional[bool] = False,
    ) -> StreamStream:
        return self._make(StreamStream, method, request_serializer, response_deserializer)

    def get_state(self, try_to_connect: bool = False) -> ChannelConnectivity:
        return STATES[self._channel._native.connectivity(try_to_connect)]

    async def wait_for_state_change(self, last_observed_state: ChannelConnectivity) -> None:
        while self.get_state() is last_observed_state:
            await asyncio.sleep(PERIOD_SECONDS)

    async def channel_ready(self) -> None:
        while (state := self.get_state(try_to_connect=True)) is not ChannelConnectivity.READY:
            await self.wait_for_state_change(state)

    async def close(self, grace: Optional[float] = None) -> None:
        self._channel.close()

    async def __aenter__(self) -> Channel:
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()


def insecure_channel(
    target: str,
    options: Optional[Sequence[tuple[str, Any]]] = None,
    compression: Any = None,
    interceptors: Optional[Sequence[Any]] = None,
) -> Channel:
    """A channel without TLS, as `grpc.aio.insecure_channel`."""
    _refuse(interceptors)
    return Channel(blocking_insecure_channel(target, options, compression))


def secure_channel(
    target: str,
    credentials: Any,
    options: Optional[Sequence[tuple[str, Any]]] = None,
    compression: Any = None,
    interceptors: Optional[Sequence[Any]] = None,
) -> Channel:
    """A channel with TLS, as `grpc.aio.secure_channel`."""
    _refuse(interceptors)
    return Channel(blocking_secure_channel(target, credentials, options, compression))


def _refuse(interceptors: Any) -> None:
    if interceptors:
        raise ValueError("pelton_grpc.aio has no interceptors yet: call without them")
