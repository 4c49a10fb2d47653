"""A `grpc.Channel` with the client of Pelton, for any gRPC server.

    channel = pelton_grpc.insecure_channel("localhost:50051")

takes the place of `grpc.insecure_channel`; generated stubs take it as they take that one.
"""

from . import _native
from ._channel import Channel, insecure_channel, secure_channel
from ._credentials import ssl_channel_credentials
from ._names import (
    Call,
    ChannelConnectivity,
    Compression,
    Future,
    FutureCancelledError,
    FutureTimeoutError,
    RpcError,
    StatusCode,
)

__version__ = _native.__version__

__all__ = [
    "Call",
    "Channel",
    "ChannelConnectivity",
    "Compression",
    "Future",
    "FutureCancelledError",
    "FutureTimeoutError",
    "RpcError",
    "StatusCode",
    "insecure_channel",
    "secure_channel",
    "ssl_channel_credentials",
]
