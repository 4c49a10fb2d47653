"""Channels."""

from __future__ import annotations

from typing import Any, Callable, Optional, Sequence

from . import _lifetime, _native, _options, _target  # noqa: F401 (_lifetime acts at the end)
from ._connectivity import Subscribers
from ._credentials import CallAuthority, default_roots, unpack
from ._dispatcher import Dispatcher
from ._names import ChannelBase
from ._streams import StreamStream, StreamUnary, UnaryStream
from ._unary import Method, UnaryUnary

Serializer = Optional[Callable[[Any], bytes]]
Deserializer = Optional[Callable[[bytes], Any]]


class Channel(ChannelBase):
    """Connections to a target, for any number of threads: `grpc.Channel`."""

    def __init__(
        self, settings: Any, compression: Any, authority: Optional[CallAuthority] = None
    ) -> None:
        self._native = _native.NativeChannel(settings)
        self._compress = _options.compresses(compression)
        self._authority = authority or CallAuthority("", False, [])
        self._dispatcher = Dispatcher()
        self._subscribers = Subscribers(self._native)
        self.is_closed = False

    def _method(self, path: Any, serializer: Serializer, deserializer: Deserializer) -> Method:
        path = path.decode() if isinstance(path, bytes) else path
        native = _native.NativeMethod(self._native, path)
        return Method(
            native,
            path,
            self._compress,
            self._authority,
            self._dispatcher,
            serializer,
            deserializer,
        )

    def unary_unary(
        self,
        method: str,
        request_serializer: Serializer = None,
        response_deserializer: Deserializer = None,
        _registered_method: Optional[bool] = False,
    ) -> UnaryUnary:
        return UnaryUnary(self._method(method, request_serializer, response_deserializer))

    def unary_stream(
        self,
        method: str,
        request_serializer: Serializer = None,
        response_deserializer: Deserializer = None,
        _registered_method: Optional[bool] = False,
    ) -> UnaryStream:
        return UnaryStream(self._method(method, request_serializer, response_deserializer))

    def stream_unary(
        self,
        method: str,
        request_serializer: Serializer = None,
        response_deserializer: Deserializer = None,
        _registered_method: Optional[bool] = False,
    ) -> StreamUnary:
        return StreamUnary(self._method(method, request_serializer, response_deserializer))

    def stream_stream(
        self,
        method: str,
        request_serializer: Serializer = None,
        response_deserializer: Deserializer = None,
        _registered_method: Optional[bool] = False,
    ) -> StreamStream:
        return StreamStream(self._method(method, request_serializer, response_deserializer))

    def subscribe(
        self, callback: Callable[[Any], None], try_to_connect: Optional[bool] = False
    ) -> None:
        self._subscribers.subscribe(callback, bool(try_to_connect))

    def unsubscribe(self, callback: Callable[[Any], None]) -> None:
        self._subscribers.unsubscribe(callback)

    def close(self) -> None:
        self.is_closed = True
        self._subscribers.unsubscribe_all()
        self._native.close()

    def __del__(self) -> None:
        # Stubs go on without it; its callbacks do not.
        subscribers = getattr(self, "_subscribers", None)
        if subscribers is not None:
            subscribers.unsubscribe_all()

    def __enter__(self) -> Channel:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def insecure_channel(
    target: str,
    options: Optional[Sequence[tuple[str, Any]]] = None,
    compression: Any = None,
) -> Channel:
    """A channel without TLS, as `grpc.insecure_channel`."""
    return Channel(_options.settings(target, options), compression)


def secure_channel(
    target: str,
    credentials: Any,
    options: Optional[Sequence[tuple[str, Any]]] = None,
    compression: Any = None,
) -> Channel:
    """A channel with TLS, as `grpc.secure_channel`. `credentials` are those of grpcio, or made by
    `pelton_grpc.ssl_channel_credentials`."""
    ssl, plugins = unpack(credentials)
    name = dict(options or ()).get("grpc.ssl_target_name_override")
    settings = _options.settings(target, options, name)
    settings = settings.with_tls(
        ssl.root_certificates or default_roots(), ssl.private_key, ssl.certificate_chain, name
    )
    return Channel(settings, compression, CallAuthority(_target.authority(target), True, plugins))
