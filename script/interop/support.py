"""What both sets of cases share: the messages of grpc.testing, and running a table of cases."""

import pathlib
import sys
import time
import traceback

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

ROOT = pathlib.Path(__file__).resolve().parents[2]

SERVICE = "/grpc.testing.TestService/"
SECONDS_MAX = 30


def load_messages():
    """The message classes of grpc.testing by name, made from the descriptors that the server itself
    is built with."""
    pool = descriptor_pool.DescriptorPool()
    described = descriptor_pb2.FileDescriptorSet.FromString(
        (ROOT / "crates/service/src/descriptor_set.bin").read_bytes()
    )
    for file in described.file:
        pool.Add(file)
    messages = {}
    for name in ("empty", "messages"):
        for descriptor in pool.FindFileByName(
            f"grpc/testing/{name}.proto"
        ).message_types_by_name.values():
            messages[descriptor.name] = message_factory.GetMessageClass(descriptor)
    return messages


class Messages:
    """`messages.SimpleRequest` and so on."""

    def __init__(self):
        self.__dict__.update(load_messages())

    def payload(self, size):
        return self.Payload(body=bytes(size))

    def large(self, **fields):
        """The request of large_unary, with further fields."""
        return self.SimpleRequest(response_size=314159, payload=self.payload(271828), **fields)

    def wanted(self, *sizes, **fields):
        """A streaming request that asks for messages of these sizes."""
        parameters = [self.ResponseParameters(size=size) for size in sizes]
        return self.StreamingOutputCallRequest(response_parameters=parameters, **fields)


def expect(is_true, what):
    if not is_true:
        raise AssertionError(what)


def expect_equal(found, expected, what):
    expect(found == expected, f"{what}: expected {expected!r}, found {found!r}")


def run(client, cases):
    """Runs all cases, a line for each, and ends the process: with 1 if one has failed."""
    failed = False
    for case in cases:
        begin = time.monotonic()
        trouble = ""
        try:
            case()
        except Exception:
            trouble = traceback.format_exc()
            failed = True
        status = "FAILED" if trouble else "ok"
        print(f"{status:6} {client:8} {case.__name__} ({time.monotonic() - begin:.2f} s)")
        for line in trouble.splitlines():
            print(f"       {line}")
    sys.exit(1 if failed else 0)
