"""The public names of grpcio where it is installed, so that what catches its errors catches ours;
where it is not, classes of the same names."""

from __future__ import annotations

import enum
from typing import Any

__all__ = [
    "CODES",
    "HAS_GRPCIO",
    "Call",
    "ChannelBase",
    "ChannelConnectivity",
    "Compression",
    "Future",
    "FutureCancelledError",
    "FutureTimeoutError",
    "RpcError",
    "StatusCode",
    "StreamStreamMultiCallable",
    "StreamUnaryMultiCallable",
    "UnaryStreamMultiCallable",
    "UnaryUnaryMultiCallable",
]

try:
    from grpc import (
        Call,
        ChannelConnectivity,
        Compression,
        Future,
        FutureCancelledError,
        FutureTimeoutError,
        RpcError,
        StatusCode,
        StreamStreamMultiCallable,
        StreamUnaryMultiCallable,
        UnaryStreamMultiCallable,
        UnaryUnaryMultiCallable,
    )
    from grpc import Channel as ChannelBase

    HAS_GRPCIO = True
except ImportError:
    HAS_GRPCIO = False

    class StatusCode(enum.Enum):  # type: ignore[no-redef]
        """The statuses of gRPC: a number and a text each."""

        OK = (0, "ok")
        CANCELLED = (1, "cancelled")
        UNKNOWN = (2, "unknown")
        INVALID_ARGUMENT = (3, "invalid argument")
        DEADLINE_EXCEEDED = (4, "deadline exceeded")
        NOT_FOUND = (5, "not found")
        ALREADY_EXISTS = (6, "already exists")
        PERMISSION_DENIED = (7, "permission denied")
        RESOURCE_EXHAUSTED = (8, "resource exhausted")
        FAILED_PRECONDITION = (9, "failed precondition")
        ABORTED = (10, "aborted")
        OUT_OF_RANGE = (11, "out of range")
        UNIMPLEMENTED = (12, "unimplemented")
        INTERNAL = (13, "internal")
        UNAVAILABLE = (14, "unavailable")
        DATA_LOSS = (15, "data loss")
        UNAUTHENTICATED = (16, "unauthenticated")

    class ChannelConnectivity(enum.Enum):  # type: ignore[no-redef]
        """The states of a channel."""

        IDLE = (0, "idle")
        CONNECTING = (1, "connecting")
        READY = (2, "ready")
        TRANSIENT_FAILURE = (3, "transient failure")
        SHUTDOWN = (4, "shutdown")

    class Compression(enum.IntEnum):  # type: ignore[no-redef]
        """How messages are compressed."""

        NoCompression = 0
        Deflate = 1
        Gzip = 2

    class RpcError(Exception):  # type: ignore[no-redef]
        """A call has ended with another status than OK."""

    class FutureTimeoutError(Exception):  # type: ignore[no-redef]
        """What a future stands for has not happened in time."""

    class FutureCancelledError(Exception):  # type: ignore[no-redef]
        """What a future stands for was cancelled."""

    class Call:  # type: ignore[no-redef]
        """A call, for `isinstance`."""

    class Future:  # type: ignore[no-redef]
        """What has a result later, for `isinstance`."""

    class ChannelBase:  # type: ignore[no-redef]
        """A channel, for `isinstance`."""

    class UnaryUnaryMultiCallable:  # type: ignore[no-redef]
        """Makes unary calls, for `isinstance`."""

    class UnaryStreamMultiCallable:  # type: ignore[no-redef]
        """Makes calls to which the server streams, for `isinstance`."""

    class StreamUnaryMultiCallable:  # type: ignore[no-redef]
        """Makes calls that stream to the server, for `isinstance`."""

    class StreamStreamMultiCallable:  # type: ignore[no-redef]
        """Makes calls that stream both ways, for `isinstance`."""


CODES: list[Any] = sorted(StatusCode, key=lambda code: code.value[0])
