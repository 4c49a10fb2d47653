"""Ports for servers that must be told one: those that start again where they were, and those of a
page's examples."""

import pathlib
import random
import socket


def free_ports(count):
    """From below the range out of which the kernel takes ports for outgoing connections. One of
    that range could be taken while the server is away: even by a client that tries to reach it, and
    so connects to itself."""
    free = []
    for port in random.SystemRandom().sample(candidates(), 200):
        if len(free) == count:
            break
        if is_free(port):
            free.append(port)
    assert len(free) == count, "nearly all ports are in use"
    return free


def is_free(port):
    with socket.socket() as probe:
        # As servers do: what is left of closed connections is no hindrance.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def candidates():
    first_outgoing = int(
        pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0]
    )
    # Where that range begins with the first port that anybody may use, there is no better choice
    # than within it.
    return (
        range(max(1024, first_outgoing - 12_000), first_outgoing)
        if first_outgoing > 4_000
        else range(10_000, 60_000)
    )
