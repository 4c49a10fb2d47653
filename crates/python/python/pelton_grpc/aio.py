"""A `grpc.aio.Channel` with the client of Pelton, for any gRPC server.

    channel = pelton_grpc.aio.insecure_channel("localhost:50051")
"""

from __future__ import annotations

import asyncio
from typing import Any, Optional, Sequence

from ._aio_methods import StreamStream, StreamUnary, UnaryStream, UnaryUnary
from ._aio_names import (
    EOF,
    AioRpcError,
    ClientCallDetails,
    ClientInterceptor,
    Metadata,
    StreamStreamClientInterceptor,
    StreamUnaryClientInterceptor,
    UnaryStreamClientInterceptor,
    UnaryUnaryClientInterceptor,
    UsageError,
)
from ._aio_names import Channel as ChannelBase
from ._aio_running import RunningCalls
from ._channel import Channel as BlockingChannel
from ._channel import Deserializer, Serializer
from ._channel import insecure_channel as blocking_insecure_channel
from ._channel import secure_channel as blocking_secure_channel
from ._connectivity import PERIOD_SECONDS, STATES
from ._names import ChannelConnectivity

__all__ = [
    "EOF",
    "AioRpcError",
    "Channel",
    "ClientCallDetails",
    "ClientInterceptor",
    "Metadata",
    "StreamStreamClientInterceptor",
    "StreamUnaryClientInterceptor",
    "UnaryStreamClientInterceptor",
    "UnaryUnaryClientInterceptor",
    "UsageError",
    "insecure_channel",
    "secure_channel",
]

# An interceptor of several kinds is one of the first of them, as in grpc.aio.
_KINDS = (
    UnaryUnaryClientInterceptor,
    UnaryStreamClientInterceptor,
    StreamUnaryClientInterceptor,
    StreamStreamClientInterceptor,
)


def _by_kind(interceptors: Optional[Sequence[Any]]) -> dict[Any, list[Any]]:
    """Returns the interceptors of each kind of call, in their order."""
    found: dict[Any, list[Any]] = {kind: [] for kind in _KINDS}
    for interceptor in interceptors or ():
        kind = next((kind for kind in _KINDS if isinstance(interceptor, kind)), None)
        if kind is None:
            names = " or ".join(kind.__name__ for kind in _KINDS)
            raise ValueError(f"Interceptor {interceptor} must be {names}.")
        found[kind].append(interceptor)
    return found


class Channel(ChannelBase):
    """Connections to a target, for the tasks of an event loop: `grpc.aio.Channel`."""

    def __init__(
        self, channel: BlockingChannel, interceptors: Optional[Sequence[Any]] = None
    ) -> None:
        self._interceptors = _by_kind(interceptors)
        self._channel = channel
        native = channel._native
        self._running = RunningCalls(
            lambda: STATES[native.connectivity(False)] is ChannelConnectivity.READY
        )

    def unary_unary(
        self,
        method: str,
        request_serializer: Serializer = None,
        response_deserializer: Deserializer = None,
        _registered_method: Optional[bool] = False,
    ) -> UnaryUnary:
        made = self._channel._method(method, request_serializer, response_deserializer)
        return UnaryUnary(self, made, self._interceptors[UnaryUnaryClientInterceptor])

    def unary_stream(
        self,
        method: str,
        request_serializer: Serializer = None,
        response_deserializer: Deserializer = None,
        _registered_method: Optional[bool] = False,
    ) -> UnaryStream:
        made = self._channel._method(method, request_serializer, response_deserializer)
        return UnaryStream(self, made, self._interceptors[UnaryStreamClientInterceptor])

    def stream_unary(
        self,
        method: str,
        request_serializer: Serializer = None,
        response_deserializer: Deserializer = None,
        _registered_method: Optional[bool] = False,
    ) -> StreamUnary:
        made = self._channel._method(method, request_serializer, response_deserializer)
        return StreamUnary(self, made, self._interceptors[StreamUnaryClientInterceptor])

    def stream_stream(
        self,
        method: str,
        request_serializer: Serializer = None,
        response_deserializer: Deserializer = None,
        _registered_method: Optional[bool] = False,
    ) -> StreamStream:
        made = self._channel._method(method, request_serializer, response_deserializer)
        return StreamStream(self, made, self._interceptors[StreamStreamClientInterceptor])

    def get_state(self, try_to_connect: bool = False) -> ChannelConnectivity:
        return STATES[self._channel._native.connectivity(try_to_connect)]

    async def wait_for_state_change(self, last_observed_state: ChannelConnectivity) -> None:
        if self._running.is_closed:
            raise UsageError("Channel is closed.")
        while self.get_state() is last_observed_state:
            await asyncio.sleep(PERIOD_SECONDS)

    async def channel_ready(self) -> None:
        while (state := self.get_state(try_to_connect=True)) is not ChannelConnectivity.READY:
            await self.wait_for_state_change(state)

    async def close(self, grace: Optional[float] = None) -> None:
        """Ends the calls that run, and takes no new ones. They have `grace` seconds to end by
        themselves."""
        if self._running.is_closed:
            return
        if grace is not None and grace < 0:
            raise ValueError(f"grace must be non-negative, got {grace}.")
        try:
            await self._running.close(grace)
        finally:
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
    return Channel(blocking_insecure_channel(target, options, compression), interceptors)


def secure_channel(
    target: str,
    credentials: Any,
    options: Optional[Sequence[tuple[str, Any]]] = None,
    compression: Any = None,
    interceptors: Optional[Sequence[Any]] = None,
) -> Channel:
    """A channel with TLS, as `grpc.aio.secure_channel`."""
    channel = blocking_secure_channel(target, credentials, options, compression)
    return Channel(channel, interceptors)

