"""A server of baidu_std and of SRPC by the byte, for clients: it reads requests from the published
layouts, and what it sends is decided by a test. It shares no code with the program under test."""

import socket
import struct
import threading

from framed_client import baidu_std_frame, bytes_field, fields_of, last, number_field


class Request:
    """A request, taken apart."""

    def __init__(self, connection, header, meta, payload):
        self.connection = connection
        self.header = header
        self.fields = fields_of(meta)
        names = fields_of(last(self.fields, 1, b""))
        self.names = (last(names, 1, b"").decode(), last(names, 2, b"").decode())
        self.timeout_ms = last(names, 8)
        self.correlation_id = last(self.fields, 4)
        self.authentication = last(self.fields, 7)
        entries = (fields_of(entry) for entry in self.fields.get(9, []) + self.fields.get(8, []))
        self.metadata = [(last(entry, 1), last(entry, 2) or last(entry, 3)) for entry in entries]
        self.body = payload


def response(request, body=b"", code=0, text=None):
    """A response of baidu_std."""
    meta = bytes_field(2, number_field(1, code) + bytes_field(2, text))
    return baidu_std_frame(meta + number_field(4, request.correlation_id), body)


def srpc_response(body=b"", status=1):
    meta = bytes_field(2, number_field(1, status)) + number_field(7, 0)
    return b"SRPC" + struct.pack(">III", len(meta), len(body), 0) + meta + body


class FramedServer:
    """Calls `answer` with a list of the requests that have come on a connection and were not
    answered, and sends what it returns; `None`: nothing yet, `b""`: closes the connection."""

    def __init__(self, answer, protocol=b"PRPC"):
        self.answer = answer
        self.protocol = protocol
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.requests = []
        self.connections = 0
        self.failures = []
        self.threads = [threading.Thread(target=self._accept)]
        self.threads[0].start()

    def _accept(self):
        while True:
            try:
                accepted, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            self.threads.append(
                threading.Thread(target=self._serve, args=(accepted, self.connections))
            )
            self.threads[-1].start()

    def _serve(self, accepted, number):
        with accepted, accepted.makefile("rb") as stream:
            waiting = []
            try:
                while (request := self._read(stream, number)) is not None:
                    self.requests.append(request)
                    waiting.append(request)
                    sent = self.answer(waiting)
                    if sent is not None:
                        waiting.clear()
                        if not sent:
                            return
                        accepted.sendall(sent)
            except ConnectionError:
                pass
            except Exception as error:  # told by the test
                self.failures.append(error)

    def _read(self, stream, number):
        size = 12 if self.protocol == b"PRPC" else 16
        header = stream.read(size)
        if len(header) < size:
            assert not header, header
            return None
        assert header[:4] == self.protocol, header
        first, second = struct.unpack(">II", header[4:12])
        meta_bytes, body_bytes = first, second
        if self.protocol == b"PRPC":
            meta_bytes, body_bytes = second, first - second
        else:
            assert header[12:] == bytes(4), header
        return Request(number, header, stream.read(meta_bytes), stream.read(body_bytes))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for thread in self.threads:
            thread.join(30)
        assert not self.failures, self.failures
