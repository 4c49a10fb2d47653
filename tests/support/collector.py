"""A stand-in for an OpenTelemetry collector: it takes spans by OTLP over gRPC, and keeps them."""

import pathlib
import threading
from concurrent import futures

import grpc
import stubs

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
stubs.generate(ROOT / "crates" / "api" / "proto", ["opentelemetry"])

from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as service  # noqa: E402
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc  # noqa: E402
from opentelemetry.proto.trace.v1 import trace_pb2  # noqa: E402
from server import WAIT_SECONDS, wait_until  # noqa: E402

SERVER, CLIENT = trace_pb2.Span.SPAN_KIND_SERVER, trace_pb2.Span.SPAN_KIND_CLIENT
ERROR, UNSET = trace_pb2.Status.STATUS_CODE_ERROR, trace_pb2.Status.STATUS_CODE_UNSET


def attributes_of(message):
    """The attributes of a span or a resource."""
    return {
        one.key: getattr(one.value, one.value.WhichOneof("value")) for one in message.attributes
    }


def sampled(trace=b"\xab" * 16, span=b"\xcd" * 8, flags="01"):
    """Metadata of a caller that records the trace, or does not."""
    return [("traceparent", f"00-{trace.hex()}-{span.hex()}-{flags}")]


class Span:
    """A span that was exported, and the attributes of the process that it comes from."""

    def __init__(self, span, resource):
        self.message = span
        self.name, self.kind = span.name, span.kind
        self.trace, self.id, self.parent = span.trace_id, span.span_id, span.parent_span_id
        self.attributes = attributes_of(span)
        self.resource = attributes_of(resource)

    @property
    def took_us(self):
        return (self.message.end_time_unix_nano - self.message.start_time_unix_nano) / 1000

    def __repr__(self):
        return f"{self.name} {self.attributes}"


class Collector:
    """Listens on a free port, or on this one. `fail` decides for each export: it may abort the
    call, wait, or return a response of its own."""

    def __init__(self, fail=None, port=0, credentials=None):
        self.spans, self.exports, self.lock = [], 0, threading.Lock()
        # What came with each export.
        self.metadata = []
        self.fail = fail
        self.pool = futures.ThreadPoolExecutor(4)
        # Another process must not be able to take part of what comes.
        self.server = grpc.server(self.pool, options=[("grpc.so_reuseport", 0)])
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(self, self.server)
        if credentials is None:
            self.port = self.server.add_insecure_port(f"127.0.0.1:{port}")
        else:
            self.port = self.server.add_secure_port(f"127.0.0.1:{port}", credentials)
        assert self.port, "the port is taken"
        scheme = "http" if credentials is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self.port}"
        self.server.start()

    def Export(self, request, context):
        with self.lock:
            self.exports += 1
            number = self.exports
            self.metadata.append(dict(context.invocation_metadata()))
        response = self.fail(number, context) if self.fail else None
        with self.lock:
            for resource in request.resource_spans:
                for scope in resource.scope_spans:
                    assert scope.scope.name == "pelton", scope.scope
                    self.spans += [Span(span, resource.resource) for span in scope.spans]
        return response or service.ExportTraceServiceResponse()

    def found(self, **wanted):
        """The spans with these fields, as far as they have come."""
        with self.lock:
            return [
                span
                for span in self.spans
                if all(getattr(span, name) == value for name, value in wanted.items())
            ]

    def wait_for(self, count, seconds=WAIT_SECONDS, **wanted):
        """Returns so many spans with these fields when they have come."""
        wait_until(
            lambda: len(self.found(**wanted)) >= count,
            seconds,
            lambda: f"{count} spans with {wanted} have not come, but {self.spans}",
        )
        spans = self.found(**wanted)
        assert len(spans) == count, spans
        return spans

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.stop(grace=0)
        self.pool.shutdown(wait=False, cancel_futures=True)
