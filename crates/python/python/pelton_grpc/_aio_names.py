"""The public names of grpc.aio where grpcio is installed; where it is not, our own."""

from __future__ import annotations

from typing import Any, NamedTuple, Optional

from ._names import HAS_GRPCIO, RpcError

__all__ = [
    "EOF",
    "AioRpcError",
    "Channel",
    "ClientCallDetails",
    "ClientInterceptor",
    "Metadata",
    "StreamStreamClientInterceptor",
    "StreamStreamMultiCallable",
    "StreamUnaryClientInterceptor",
    "StreamUnaryMultiCallable",
    "UnaryStreamClientInterceptor",
    "UnaryStreamMultiCallable",
    "UnaryUnaryClientInterceptor",
    "UnaryUnaryMultiCallable",
    "UsageError",
    "bases",
]

if HAS_GRPCIO:
    from grpc import aio
    from grpc.aio import (
        EOF,
        AioRpcError,
        Channel,
        ClientCallDetails,
        ClientInterceptor,
        Metadata,
        StreamStreamClientInterceptor,
        StreamStreamMultiCallable,
        StreamUnaryClientInterceptor,
        StreamUnaryMultiCallable,
        UnaryStreamClientInterceptor,
        UnaryStreamMultiCallable,
        UnaryUnaryClientInterceptor,
        UnaryUnaryMultiCallable,
        UsageError,
    )

    def bases(name: str) -> tuple[Any, ...]:
        """The class of grpc.aio with this name, for `isinstance`."""
        return (getattr(aio, name),)

else:

    class _Eof:
        def __bool__(self) -> bool:
            return False

        def __repr__(self) -> str:
            return "<grpc.aio.EOF>"

    EOF = _Eof()

    class UsageError(Exception):  # type: ignore[no-redef]
        """A call is used in a way for which it was not made."""

    class Channel:  # type: ignore[no-redef]
        """A channel, for `isinstance`."""

    class UnaryUnaryMultiCallable:  # type: ignore[no-redef]
        """Makes unary calls, for `isinstance`."""

    class UnaryStreamMultiCallable:  # type: ignore[no-redef]
        """Makes calls to which the server streams, for `isinstance`."""

    class StreamUnaryMultiCallable:  # type: ignore[no-redef]
        """Makes calls that stream to the server, for `isinstance`."""

    class StreamStreamMultiCallable:  # type: ignore[no-redef]
        """Makes calls that stream both ways, for `isinstance`."""

    class ClientCallDetails(NamedTuple):  # type: ignore[no-redef]
        """What an interceptor learns of a call, and may change with `_replace`."""

        method: bytes
        timeout: Optional[float]
        metadata: Any
        credentials: Any
        wait_for_ready: Optional[bool]

    class ClientInterceptor:  # type: ignore[no-redef]
        """Sees calls before they are made."""

    class UnaryUnaryClientInterceptor(ClientInterceptor):  # type: ignore[no-redef]
        """Has a coroutine `intercept_unary_unary(continuation, details, request)`."""

    class UnaryStreamClientInterceptor(ClientInterceptor):  # type: ignore[no-redef]
        """Has a coroutine `intercept_unary_stream(continuation, details, request)`."""

    class StreamUnaryClientInterceptor(ClientInterceptor):  # type: ignore[no-redef]
        """Has a coroutine `intercept_stream_unary(continuation, details, requests)`."""

    class StreamStreamClientInterceptor(ClientInterceptor):  # type: ignore[no-redef]
        """Has a coroutine `intercept_stream_stream(continuation, details, requests)`."""

    class Metadata(tuple):  # type: ignore[no-redef,type-arg]
        """Pairs of keys and values."""

        def __new__(cls, *pairs: Any) -> Metadata:
            return super().__new__(cls, pairs)

    class AioRpcError(RpcError):  # type: ignore[no-redef]
        """A call has ended with another status than OK."""

        def __init__(
            self,
            code: Any,
            initial_metadata: Any = None,
            trailing_metadata: Any = None,
            details: Any = None,
            debug_error_string: Any = None,
        ) -> None:
            super().__init__(code, initial_metadata, trailing_metadata, details, debug_error_string)

        def code(self) -> Any:
            return self.args[0]

        def initial_metadata(self) -> Any:
            return self.args[1]

        def trailing_metadata(self) -> Any:
            return self.args[2]

        def details(self) -> Any:
            return self.args[3]

        def debug_error_string(self) -> Any:
            return self.args[4]

    def bases(name: str) -> tuple[Any, ...]:
        return ()
