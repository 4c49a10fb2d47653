"""Every method that a server has, learned by reflection, and requests for them.

Methods that nobody has heard of get requests filled at random by their descriptors, so that new
methods are attacked as soon as they exist. The databases named here are the attackers'.
"""

import dataclasses

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import FieldDescriptor
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

KEYS = 40
# The default database is in memory, this one on disk; both have something large in them.
ON_DISK = "attacked-disk"
ATTACKED = ["", ON_DISK]
# What they make and drop.
MADE = [f"chaos-{number}" for number in range(4)]
DATABASES = [*ATTACKED, *ATTACKED, *MADE, "nowhere"]
LARGE_KEY = b"chaos/large"
BLOB = "chaos/blob"
VALUE_BYTES = [0, 1, 30, 1_000, 20_000, 50_000]
NUMBERS = [0, 1, 2, 7, 100, 5_000, 65_536, 1 << 20, 4 << 20, 64 << 20, (1 << 31) - 1]
# Values that grow without end must grow slowly: where memory is full, honest writes are refused.
GROWN_BYTES = 30
DEPTH = 4


@dataclasses.dataclass(frozen=True)
class Method:
    path: str
    input: type
    client_streaming: bool
    server_streaming: bool


def discover(channel):
    database = ProtoReflectionDescriptorDatabase(channel)
    pool = descriptor_pool.DescriptorPool(database)
    found = []
    for service in database.get_services():
        for method in pool.FindServiceByName(service).methods:
            found.append(
                Method(
                    f"/{service}/{method.name}",
                    message_factory.GetMessageClass(method.input_type),
                    method.client_streaming,
                    method.server_streaming,
                )
            )
    assert len(found) > 10, found
    return sorted(found, key=lambda method: method.path)


def requests(method, rng):
    """The serialized messages of one call."""
    known = KNOWN.get(method.path)
    if known and rng.random() < 0.6:
        return [part.SerializeToString() for part in known(method.input, rng)]
    count = rng.choice([0, 1, 1, 2, 5, 30]) if method.client_streaming else 1
    # Partial: fields that are required may be missing.
    return [filled(method.input(), rng).SerializePartialToString() for _ in range(count)]


def key(rng):
    return b"chaos/%d" % rng.randrange(KEYS)


def filled(message, rng, depth=0):
    """Fills a message at random; at most one field of each oneof."""
    chosen = {rng.choice(one.fields).name for one in message.DESCRIPTOR.oneofs}
    for field in message.DESCRIPTOR.fields:
        in_oneof = field.containing_oneof is not None
        if (in_oneof and field.name not in chosen) or rng.random() < 0.2:
            continue
        if field.is_repeated:
            fill_repeated(message, field, rng, depth)
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            if depth < DEPTH:
                part = getattr(message, field.name)
                part.SetInParent()
                filled(part, rng, depth + 1)
        else:
            setattr(message, field.name, scalar(message, field, rng))
    return message


def fill_repeated(message, field, rng, depth):
    values = getattr(message, field.name)
    for _ in range(rng.choice([0, 1, 3, 20]) if depth < DEPTH else 0):
        if field.type != FieldDescriptor.TYPE_MESSAGE:
            values.append(scalar(message, field, rng))
        elif not field.message_type.GetOptions().map_entry:
            filled(values.add(), rng, depth + 1)


def scalar(message, field, rng):
    kind = field.cpp_type
    if kind == FieldDescriptor.CPPTYPE_ENUM:
        return rng.choice(field.enum_type.values).number
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return rng.random() < 0.5
    if kind in (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE):
        return rng.random()
    if field.type == FieldDescriptor.TYPE_BYTES:
        return some_bytes(message, field, rng)
    if field.type == FieldDescriptor.TYPE_STRING:
        return some_text(message, field, rng)
    if field.name == "delay_ms":
        return rng.choice([0, 10, 500, 3_000])
    return rng.choice(NUMBERS) if rng.random() < 0.8 else 0


def some_bytes(message, field, rng):
    names = message.DESCRIPTOR.fields_by_name
    if field.name in ("key", "start", "end", "prefix", "start_after"):
        writes = "value" in names or "delta" in names
        return LARGE_KEY if not writes and rng.random() < 0.3 else key(rng)
    if field.name == "value" and "Append" in message.DESCRIPTOR.name:
        return bytes(rng.randrange(GROWN_BYTES))
    if field.name == "upload_id":
        return b"chaos-%d" % rng.randrange(50)
    return bytes(rng.choice(VALUE_BYTES))


def some_text(message, field, rng):
    kind = message.DESCRIPTOR.name
    if field.name == "database":
        return rng.choice(DATABASES)
    if field.name == "name" and kind in ("DownloadRequest", "StatRequest"):
        return rng.choice([BLOB, BLOB, "chaos/1"])
    if field.name in ("name", "confirm_name") and "Blob" not in kind and "Upload" not in kind:
        return rng.choice([*MADE, *MADE, "", "nowhere"])
    return rng.choice(["chaos/%d" % rng.randrange(5), "x", "pelton.v1.KeyValue", ""])


# What asks for as much as it can


def scan(message, rng):
    yield message(database=rng.choice(ATTACKED), keys_only=rng.random() < 0.2)


def get(message, rng):
    yield message(database=rng.choice(ATTACKED), key=LARGE_KEY)


def batch(message, rng):
    request = message(database=rng.choice(ATTACKED), max_answer_bytes=64 << 20)
    for _ in range(rng.choice([1, 3, 15])):
        request.operations.add().get.key = LARGE_KEY
    yield request


def long_batch(message, rng):
    request = message(database=rng.choice(ATTACKED))
    for _ in range(2_000):
        request.operations.add().get.key = key(rng)
    yield request


def reads(message, rng):
    yield from (batch if rng.random() < 0.6 else long_batch)(message, rng)


def transact(message, rng):
    request = message(database=rng.choice(ATTACKED), max_answer_bytes=64 << 20)
    for _ in range(rng.choice([1, 10])):
        request.when_met.add().get.key = LARGE_KEY
    yield request


def pipe(message, rng):
    for _ in range(rng.choice([1, 10, 50])):
        for request in reads(message, rng):
            # The database of a Pipe is that of its first message.
            request.database = ""
            yield request


def download(message, rng):
    yield message(name=BLOB, chunk_bytes=rng.choice([0, 1, 65_536, 1 << 20, 4 << 20]))


def upload(message, rng):
    begin = message()
    begin.begin.name = "chaos/%d" % rng.randrange(5)
    if rng.random() < 0.7:
        begin.begin.upload_id = b"chaos-%d" % rng.randrange(100_000)
    yield begin
    for _ in range(rng.choice([0, 1, 5])):
        part = message()
        part.chunk.data = bytes(rng.choice([0, 100, 65_536, 500_000]))
        yield part
    if rng.random() < 0.4:
        last = message()
        last.end.SetInParent()
        yield last


def echo(message, rng):
    for _ in range(rng.choice([1, 1, 5])):
        yield message(answer_bytes=4_000_000, delay_ms=rng.choice([0, 0, 100, 2_000]))


def interop_answers(message, rng):
    request = message()
    for _ in range(rng.choice([1, 5, 100])):
        request.response_parameters.add(size=rng.choice([1, 65_536, 3_900_000]))
    yield request


KV, BLOBS = "/pelton.v1.KeyValue/", "/pelton.v1.Blob/"
KNOWN = {
    KV + "Scan": scan,
    KV + "Get": get,
    KV + "Batch": reads,
    KV + "Transact": transact,
    KV + "Pipe": pipe,
    BLOBS + "Download": download,
    BLOBS + "Upload": upload,
    "/pelton.v1.Echo/Unary": echo,
    "/pelton.v1.Echo/Stream": echo,
    "/grpc.testing.TestService/StreamingOutputCall": interop_answers,
    "/grpc.testing.TestService/FullDuplexCall": interop_answers,
    "/grpc.testing.TestService/HalfDuplexCall": interop_answers,
}
