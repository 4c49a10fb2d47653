"""A process that opens connections and sends a recorded TLS client hello on each, and no more.

`python hello_flood.py PORT HELD`: keeps the last HELD connections open. Ends with its input.
"""

import collections
import select
import socket
import ssl
import struct
import sys

# Closes with a reset, so that no port stays in TIME_WAIT.
RESET = struct.pack("ii", 1, 0)


def client_hello():
    context = ssl.create_default_context()
    context.set_alpn_protocols(["h2"])
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    session = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    try:
        session.do_handshake()
    except ssl.SSLWantReadError:
        pass
    return outgoing.read()


def flood(port, held_count):
    hello, held = client_hello(), collections.deque()
    while not select.select([sys.stdin], [], [], 0)[0]:
        connection = socket.socket()
        connection.settimeout(1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        try:
            connection.connect(("127.0.0.1", port))
            connection.send(hello)
        except OSError:
            pass
        held.append(connection)
        if len(held) > held_count:
            held.popleft().close()


if __name__ == "__main__":
    flood(int(sys.argv[1]), int(sys.argv[2]))
