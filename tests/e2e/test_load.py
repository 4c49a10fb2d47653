"""The bytes of `pelton load`, read by somebody else's HPACK decoder and frame by frame."""

import collections
import os
import re
import socket
import struct
import subprocess
import threading

import hpack
from raw import (
    ACK,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PING,
    PREFACE,
    SETTINGS,
    frame,
    grpc_message,
)

ANSWER = [(":status", "200"), ("content-type", "application/grpc")]
TRAILERS = [("grpc-status", "0")]
REQUEST = b"a request of some bytes"


class Recorder:
    """A server for one connection that answers every call, and keeps what came."""

    def __init__(self, goaway_after=None):
        self.goaway_after = goaway_after
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.heads = []
        self.bodies = collections.defaultdict(bytes)
        self.ended = []
        self.failure = None
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        try:
            peer, _ = self.listener.accept()
            with peer, peer.makefile("rb") as stream:
                self.serve(peer, stream)
        except Exception as error:  # told by the test
            self.failure = error

    def serve(self, peer, stream):
        assert stream.read(len(PREFACE)) == PREFACE
        peer.sendall(frame(SETTINGS))
        decoder, encoder = hpack.Decoder(), hpack.Encoder()
        while head := stream.read(9):
            length, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
            number, payload = int.from_bytes(head[5:], "big"), stream.read(length)
            if kind == HEADERS:
                assert flags & END_HEADERS
                self.heads.append((number, decoder.decode(payload)))
            elif kind == DATA:
                self.bodies[number] += payload
                if flags & END_STREAM:
                    self.ended.append(number)
                    if len(self.ended) == self.goaway_after:
                        peer.sendall(frame(GOAWAY, 0, 0, self.complaint(number)))
                        return
                    peer.sendall(self.answer(encoder, number))
            elif kind == SETTINGS and not flags & ACK:
                peer.sendall(frame(SETTINGS, ACK))
            elif kind == PING and not flags & ACK:
                peer.sendall(frame(PING, ACK, 0, payload))

    @staticmethod
    def complaint(number):
        """The last stream, ENHANCE_YOUR_CALM, and why."""
        return struct.pack(">II", number, 11) + b"too many resets"

    @staticmethod
    def answer(encoder, number):
        return (
            frame(HEADERS, END_HEADERS, number, encoder.encode(ANSWER))
            + frame(DATA, 0, number, grpc_message(b"answer"))
            + frame(HEADERS, END_HEADERS | END_STREAM, number, encoder.encode(TRAILERS))
        )

    def close(self):
        self.thread.join(20)
        self.listener.close()


def test_every_head_is_what_was_asked_for(binary, tmp_path):
    request = tmp_path / "request"
    request.write_bytes(REQUEST)
    recorder = Recorder()
    command = [
        binary,
        "load",
        "--address",
        recorder.address,
        "--method",
        "some.package.Service/Method",
        "--data-file",
        str(request),
    ]
    command += [
        "--connections",
        "1",
        "--in-flight",
        "20",
        "--calls",
        "500",
        "--warm-up",
        "0s",
        "--deadline",
        "30s",
    ]
    command += [
        "--metadata",
        "x-tenant=blue",
        "--metadata",
        "x-trace=random",
        "--authority",
        "somebody.example",
    ]
    # The token of a Pelton server is not for this one: the heads below have no `authorization`.
    with_token = os.environ | {"PELTON_TOKEN": "pelton_" + 43 * "A"}
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, env=with_token)
    recorder.close()
    assert recorder.failure is None, recorder.failure
    assert "calls: 500 succeeded, 0 failed" in result.stdout, result.stdout + result.stderr

    numbers = [number for number, _ in recorder.heads]
    assert numbers == list(range(1, 1001, 2)), "streams are opened in order, each once"
    assert sorted(recorder.ended) == numbers
    traces = set()
    for number, fields in recorder.heads:
        names = [name for name, _ in fields]
        assert len(names) == len(set(names)), fields
        first_plain = next(at for at, name in enumerate(names) if not name.startswith(":"))
        assert all(not name.startswith(":") for name in names[first_plain:]), (
            "pseudo-headers stand first"
        )
        values = dict(fields)
        traces.add(values.pop("x-trace"))
        timeout = values.pop("grpc-timeout")
        assert re.fullmatch(r"\d{1,8}[mu]", timeout), timeout
        assert values.pop("user-agent").startswith("grpc-rust-pelton/")
        assert values.pop("grpc-accept-encoding")
        assert values == {
            ":method": "POST",
            ":scheme": "http",
            ":path": "/some.package.Service/Method",
            ":authority": "somebody.example",
            "te": "trailers",
            "content-type": "application/grpc",
            "x-tenant": "blue",
        }
        assert recorder.bodies[number] == grpc_message(REQUEST)
    assert len(traces) == 500, "another value in each call"
    assert all(re.fullmatch(r"[0-9a-f]{32}", trace) for trace in traces)


def test_the_reason_of_a_server_that_ends_a_connection_is_told(binary, tmp_path):
    request = tmp_path / "request"
    request.write_bytes(REQUEST)
    recorder = Recorder(goaway_after=20)
    command = [binary, "load", "--address", recorder.address, "--connections", "1"]
    command += ["--method", "a.B/C", "--data-file", str(request), "--in-flight", "1"]
    command += ["--duration", "1s", "--warm-up", "0s"]
    load = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    recorder.close()
    out, err = load.communicate(timeout=60)
    assert "too many resets (EnhanceYourCalm)" in out, out + err
    assert "stopping" not in out, out
