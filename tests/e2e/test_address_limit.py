"""Connections from one address are bounded, and those beyond are refused in their protocol."""

import grpc
from raw import Connection
from server import Server, wait_until


def test_connections_of_an_address_are_bounded(binary):
    flags = ["--max-connections-per-address", "3", "--limit-loopback"]
    with Server(binary, *flags) as server:
        for _ in range(2):
            kept = [Connection(server.address) for _ in range(3)]
            for connection in kept:
                assert connection.wait(connection.unary("/pelton.v1.KeyValue/Get", b"")).grpc_status == 0
            with Connection(server.address) as refused:
                answer = refused.wait(refused.unary("/pelton.v1.KeyValue/Get", b""))
                assert answer.grpc_status == grpc.StatusCode.UNAVAILABLE.value[0]
                refused.wait_closed()
            for connection in kept:
                connection.socket.close()

            def has_room():
                with Connection(server.address) as connection:
                    try:
                        stream = connection.unary("/pelton.v1.KeyValue/Get", b"")
                        return connection.wait(stream).grpc_status == 0
                    except (AssertionError, OSError):
                        return False

            wait_until(has_room, message="places of connections that went are not given to others")
        assert server.stop() == 0
