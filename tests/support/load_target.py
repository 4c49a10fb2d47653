"""A server of another make with a method of each of the four kinds, for `pelton load`.

It keeps the requests that came, and answers with their names.
"""

import concurrent.futures
import contextlib
import importlib
import pathlib
import sys
import threading
import time

import grpc
from grpc_tools import protoc

PROTO = """
syntax = "proto3";
package load.target;
import "parts/inner.proto";
service Target {
  rpc Ask(Request) returns (Response);
  rpc Watch(Request) returns (stream Response);
  rpc Send(stream Request) returns (Response);
  rpc Talk(stream Request) returns (stream Response);
}
message Request { string name = 1; int32 number = 2; bytes raw = 3; Inner inner = 4; }
message Response { string name = 1; }
"""
INNER = 'syntax = "proto3"; package load.target; message Inner { repeated uint64 ids = 1; }'
SERVICE = "load.target.Target"


def write_protos(folder):
    """The .proto file of the service, beside it a folder with the one that it imports."""
    folder = pathlib.Path(folder)
    (folder / "parts").mkdir(parents=True)
    (folder / "parts" / "inner.proto").write_text(INNER)
    (folder / "load_target.proto").write_text(PROTO)
    return folder / "load_target.proto"


class Target:
    """The server. It fails each request of the name `fail`, and a stream of responses has as many
    as the request's number, or no end if that is negative."""

    def __init__(self, folder):
        self.proto = write_protos(pathlib.Path(folder) / "protos")
        self.descriptor_set = pathlib.Path(folder) / "target.pb"
        made = pathlib.Path(folder) / "made"
        made.mkdir()
        command = ["protoc", f"-I{self.proto.parent}", f"--python_out={made}"]
        command += ["--include_imports", f"--descriptor_set_out={self.descriptor_set}"]
        assert protoc.main([*command, str(self.proto), "parts/inner.proto"]) == 0
        sys.path.insert(0, str(made))
        try:
            for name in ("parts.inner_pb2", "parts", "load_target_pb2"):
                sys.modules.pop(name, None)
            # A second test has the same descriptors, which the pool takes.
            self.messages = importlib.import_module("load_target_pb2")
        finally:
            sys.path.remove(str(made))
        self.lock = threading.Lock()
        self.requests = []
        self.calls = 0
        self.cancelled = 0
        pool = concurrent.futures.ThreadPoolExecutor(max_workers=16)
        self.server = grpc.server(pool)
        self.server.add_generic_rpc_handlers([self.handler()])
        self.address = "127.0.0.1:%d" % self.server.add_insecure_port("127.0.0.1:0")
        self.server.start()

    def handler(self):
        shared = {
            "request_deserializer": self.messages.Request.FromString,
            "response_serializer": self.messages.Response.SerializeToString,
        }
        methods = {
            "Ask": grpc.unary_unary_rpc_method_handler(self.ask, **shared),
            "Watch": grpc.unary_stream_rpc_method_handler(self.watch, **shared),
            "Send": grpc.stream_unary_rpc_method_handler(self.send, **shared),
            "Talk": grpc.stream_stream_rpc_method_handler(self.talk, **shared),
        }
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    def keep(self, request, context):
        with self.lock:
            self.requests.append(request)
        if request.name == "fail":
            context.abort(grpc.StatusCode.UNAVAILABLE, "as it was asked to")
        return self.messages.Response(name=request.name)

    def count_call(self):
        with self.lock:
            self.calls += 1

    def ask(self, request, context):
        self.count_call()
        return self.keep(request, context)

    def watch(self, request, context):
        self.count_call()
        response = self.keep(request, context)
        sent = 0
        while sent != request.number:
            if not context.is_active():
                with self.lock:
                    self.cancelled += 1
                return
            sent += 1
            yield response
            if request.number < 0:
                time.sleep(0.001)

    def send(self, requests, context):
        self.count_call()
        response = self.messages.Response(name="none")
        for request in requests:
            response = self.keep(request, context)
        return response

    def talk(self, requests, context):
        self.count_call()
        for request in requests:
            yield self.keep(request, context)

    def close(self):
        self.server.stop(None).wait(20)


@contextlib.contextmanager
def running(folder):
    target = Target(folder)
    try:
        yield target
    finally:
        target.close()
