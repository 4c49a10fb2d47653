"""Options of channels, and how they compress."""

from __future__ import annotations

import logging
import sys
from typing import Any, Optional, Sequence

from . import _native, _target
from ._names import Compression

_LOGGER = logging.getLogger("pelton_grpc")

# Options that can ask for what is so in any case, and the value with which they do: there is no
# proxy, no retry by a policy of the service, and no connection that channels share.
_SO_IN_ANY_CASE: dict[str, int] = {
    "grpc.enable_http_proxy": 0,
    "grpc.enable_retries": 0,
    "grpc.use_local_subchannel_pool": 1,
}
# What was named already in a warning of this process.
_warned: set[str] = set()


def warn_once(name: str, text: str) -> None:
    if name not in _warned:
        _warned.add(name)
        _LOGGER.warning("%s", text)


def settings(
    target: str, options: Optional[Sequence[tuple[str, Any]]], name: Optional[str] = None
) -> Any:
    """Returns the settings of a channel for the native half. `name`: for whom the server is to
    answer, if no option says so."""
    _warn_of_gevent()
    values: dict[str, Any] = dict(options or ())
    received = _size(values.pop("grpc.max_receive_message_length", None))
    sent = _size(values.pop("grpc.max_send_message_length", None))
    authority = values.pop("grpc.default_authority", name)
    values.pop("grpc.ssl_target_name_override", None)
    for option, value in values.items():
        if option not in _SO_IN_ANY_CASE or _SO_IN_ANY_CASE[option] != value:
            warn_once(option, f"pelton_grpc has no channel option {option}: it is ignored")
    return _native.ChannelSettings(_target.addresses(target), authority, received, sent)


def _warn_of_gevent() -> None:
    monkey = sys.modules.get("gevent.monkey")
    if monkey is not None and monkey.is_module_patched("threading"):
        text = (
            "pelton_grpc does not know gevent: a call holds up all greenlets of its thread, and a "
            "request that a greenlet makes may never be sent"
        )
        warn_once("gevent", text)


# Messages have a length of four bytes.
_UNLIMITED = (1 << 32) - 1


def _size(value: Optional[int]) -> Optional[int]:
    if value is None:
        return None
    return _UNLIMITED if value < 0 else value


def compresses(compression: Optional[Any]) -> bool:
    """Returns whether messages are compressed."""
    if not compression:
        return False
    if compression == Compression.Deflate:
        text = "pelton_grpc compresses with gzip only: messages are sent without compression"
        warn_once("deflate", text)
        return False
    return True
