"""Targets as gRPC writes them (gRPC documentation, "gRPC Name Resolution")."""

from __future__ import annotations

import re
from typing import Union

# The port of a target without one, as for gRPC's own clients.
DEFAULT_PORT = 443


def addresses(target: Union[str, bytes]) -> list[str]:
    """Returns the addresses of a target in the form of the native half, which says what is wrong
    with one that it does not know."""
    if isinstance(target, bytes):
        target = target.decode()
    scheme, colon, rest = target.partition(":")
    if colon and scheme in ("dns", "ipv4", "ipv6", "unix"):
        if rest.startswith("//"):
            # An authority, which is a server of names, and a path.
            rest = rest[2:].partition("/")[2] if scheme != "unix" else rest[2:]
        if scheme == "unix":
            return [f"unix:{rest}"]
        parts = rest.split(",") if scheme in ("ipv4", "ipv6") else [rest]
        return [_with_port(part.lstrip("/")) for part in parts]
    return [_with_port(target)]


def authority(target: Union[str, bytes]) -> str:
    """Returns the host of a target, with its port if that is not the usual one of TLS."""
    first = addresses(target)[0]
    return "localhost" if first.startswith("unix:") else re.sub(":443$", "", first)


def _with_port(host: str) -> str:
    is_ipv6_only = host.count(":") > 1 and not host.startswith("[") and "/" not in host
    if is_ipv6_only:
        return f"[{host}]:{DEFAULT_PORT}"
    has_port = ":" in host.rpartition("]")[2]
    return host if has_port or not host else f"{host}:{DEFAULT_PORT}"
