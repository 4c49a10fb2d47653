"""The test service of the interoperability cases as a grpcio server, on a free port of the loopback
interface.

What `grpc.testing` asks a server to do, apart from checking that requests came compressed, which
grpcio does not show. Prints where it listens, and ends when its standard input does.
"""

import concurrent.futures
import sys
import time

import grpc

import support

MESSAGES = support.Messages()
INITIAL = "x-grpc-test-echo-initial"
TRAILING = "x-grpc-test-echo-trailing-bin"


def echo_metadata(context):
    sent = dict(context.invocation_metadata())
    if INITIAL in sent:
        context.send_initial_metadata(((INITIAL, sent[INITIAL]),))
    if TRAILING in sent:
        context.set_trailing_metadata(((TRAILING, sent[TRAILING]),))


def end_as_asked(request, context):
    """Ends the call if the request asks for a status."""
    if request.HasField("response_status"):
        codes = {code.value[0]: code for code in grpc.StatusCode}
        context.abort(codes[request.response_status.code], request.response_status.message)


def empty_call(_request, _context):
    return MESSAGES.Empty()


def unary_call(request, context):
    if request.response_compressed.value:
        context.set_compression(grpc.Compression.Gzip)
    echo_metadata(context)
    end_as_asked(request, context)
    return MESSAGES.SimpleResponse(payload=MESSAGES.payload(request.response_size))


def streaming_input_call(requests, _context):
    total = sum(len(request.payload.body) for request in requests)
    return MESSAGES.StreamingInputCallResponse(aggregated_payload_size=total)


def responses(request, context):
    for wanted in request.response_parameters:
        time.sleep(wanted.interval_us / 1e6)
        if not wanted.compressed.value:
            context.disable_next_message_compression()
        yield MESSAGES.StreamingOutputCallResponse(payload=MESSAGES.payload(wanted.size))


def streaming_output_call(request, context):
    context.set_compression(grpc.Compression.Gzip)
    echo_metadata(context)
    yield from responses(request, context)


def full_duplex_call(requests, context):
    context.set_compression(grpc.Compression.Gzip)
    echo_metadata(context)
    for request in requests:
        end_as_asked(request, context)
        yield from responses(request, context)


def handler(kind, behaviour, request):
    return getattr(grpc, f"{kind}_rpc_method_handler")(
        behaviour,
        request_deserializer=request.FromString,
        response_serializer=lambda message: message.SerializeToString(),
    )


def main():
    service = grpc.method_handlers_generic_handler(
        support.SERVICE.strip("/"),
        {
            "EmptyCall": handler("unary_unary", empty_call, MESSAGES.Empty),
            "UnaryCall": handler("unary_unary", unary_call, MESSAGES.SimpleRequest),
            "StreamingInputCall": handler(
                "stream_unary", streaming_input_call, MESSAGES.StreamingInputCallRequest
            ),
            "StreamingOutputCall": handler(
                "unary_stream", streaming_output_call, MESSAGES.StreamingOutputCallRequest
            ),
            "FullDuplexCall": handler(
                "stream_stream", full_duplex_call, MESSAGES.StreamingOutputCallRequest
            ),
        },
    )
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(max_workers=8))
    server.add_generic_rpc_handlers((service,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(f"listening on 127.0.0.1:{port}", flush=True)
    sys.stdin.read()
    server.stop(0)


main()
