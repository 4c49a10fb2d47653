"""Connections from one address are bounded, and those beyond are refused in their protocol."""

import contextlib

import grpc
from raw import Connection
from server import Server, wait_until

GET = "/pelton.v1.KeyValue/Get"
ALLOWED = 3


def test_connections_of_an_address_are_bounded(binary):
    flags = ["--max-connections-per-address", str(ALLOWED), "--limit-loopback"]
    with Server(binary, *flags) as server:
        for _ in range(3):
            # In later rounds: the places of connections that went are given to others.
            with served_connections(server):
                with Connection(server.address) as refused:
                    answer = refused.wait(refused.unary(GET, b""))
                    assert answer.grpc_status == grpc.StatusCode.UNAVAILABLE.value[0]
                    refused.wait_closed()
        assert server.stop() == 0


def served_connections(server):
    """As many as are allowed, open at once. Those of the round before may still be being closed."""
    kept = []

    def are_served():
        with contextlib.ExitStack() as stack:
            for _ in range(ALLOWED):
                connection = stack.enter_context(Connection(server.address))
                try:
                    if connection.wait(connection.unary(GET, b"")).grpc_status != 0:
                        return False
                except (AssertionError, OSError):
                    return False
            kept.append(stack.pop_all())
        return True

    wait_until(are_served, message="places of connections that went are not given to others")
    return kept[0]
