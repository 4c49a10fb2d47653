"""Sizes: what is too large is refused by a status that names the limit, what was given, and changes
nothing."""

import grpc
import pytest
from pelton.v1 import kv_pb2 as pb
from server import Server, expect_status, open_channel
from pelton.v1 import kv_pb2_grpc

TOO_MUCH = grpc.StatusCode.RESOURCE_EXHAUSTED


def test_the_longest_key(kv):
    key = b"k" * 65_536
    for call in [
        lambda: kv.Put(pb.PutRequest(key=key)),
        lambda: kv.Append(pb.AppendRequest(key=key)),
        lambda: kv.Increment(pb.IncrementRequest(key=key)),
    ]:
        expect_status(TOO_MUCH, call, "key", 65_535, 65_536)


def test_the_largest_value_can_be_read_by_a_default_client(kv, prefix):
    value = b"0123456789" * 400_000
    kv.Put(pb.PutRequest(key=prefix, value=value))
    assert kv.Get(pb.GetRequest(key=prefix)).value == value
    [page] = [page for page in kv.Scan(pb.ScanRequest(prefix=prefix)) if page.entries]
    assert page.entries[0].value == value
    expect_status(
        TOO_MUCH,
        lambda: kv.Put(pb.PutRequest(key=prefix, value=value + b"1")),
        "value",
        4_000_000,
        4_000_001,
    )
    assert kv.Get(pb.GetRequest(key=prefix)).value == value
    kv.Delete(pb.DeleteRequest(key=prefix))


def test_the_largest_request(kv, prefix):
    # Four values of 3.9 MB fit into 16 MiB, five do not.
    operations = [
        pb.Operation(put=pb.Operation.Put(key=prefix + b"%d" % n, value=b"v" * 3_900_000))
        for n in range(5)
    ]
    assert kv.Batch(pb.BatchRequest(operations=operations[:4])).applied
    expect_status(TOO_MUCH, lambda: kv.Batch(pb.BatchRequest(operations=operations)), 16 << 20)
    assert not kv.Get(pb.GetRequest(key=prefix + b"4")).found
    for n in range(4):
        kv.Delete(pb.DeleteRequest(key=prefix + b"%d" % n))


def test_the_largest_request_counts_after_decompression(channel, prefix):
    put = channel.unary_unary("/pelton.v1.KeyValue/Put")
    bomb = pb.PutRequest(key=prefix, value=bytes(64 << 20)).SerializeToString()
    expect_status(TOO_MUCH, lambda: put(bomb, compression=grpc.Compression.Gzip), 16 << 20)


def test_the_longest_batch(kv, prefix):
    operation = pb.Operation(get=pb.Operation.Get(key=prefix))
    assert len(kv.Batch(pb.BatchRequest(operations=[operation] * 10_000)).results) == 10_000
    expect_status(
        TOO_MUCH, lambda: kv.Batch(pb.BatchRequest(operations=[operation] * 10_001)), 10_000, 10_001
    )


def test_a_larger_value_by_flag(binary):
    with Server(binary, "--max-value", "20MiB") as server:
        with open_channel(server.address, ("grpc.max_receive_message_length", -1)) as channel:
            kv = kv_pb2_grpc.KeyValueStub(channel)
            value = b"v" * (20 << 20)
            assert kv.Put(pb.PutRequest(key=b"k", value=value)).applied
            assert kv.Get(pb.GetRequest(key=b"k")).value == value
            expect_status(
                TOO_MUCH, lambda: kv.Put(pb.PutRequest(key=b"k", value=value + b"v")), 20 << 20
            )


@pytest.mark.parametrize("limit_mib", [64])
def test_the_memory_limit_refuses_what_grows_and_nothing_else(binary, limit_mib):
    value = b"v" * 1_000_000
    with (
        Server(binary, "--memory-limit", f"{limit_mib}MiB") as server,
        open_channel(server.address) as channel,
    ):
        kv = kv_pb2_grpc.KeyValueStub(channel)
        stored = 0
        with pytest.raises(grpc.RpcError) as error:
            while stored < 2 * limit_mib:
                kv.Put(pb.PutRequest(key=b"%d" % stored, value=value))
                stored += 1
        assert error.value.code() == TOO_MUCH
        assert "memory" in error.value.details()
        assert limit_mib / 2 < stored <= limit_mib * 1.05, "the limit is far from what was stored"

        # Small entries fill up what large values have left over.
        def put_small():
            for n in range(2_000_000 // 10_000):
                operations = [
                    pb.Operation(
                        put=pb.Operation.Put(key=b"small %d %d" % (n, m), value=b"v" * 100)
                    )
                    for m in range(10_000)
                ]
                kv.Batch(pb.BatchRequest(operations=operations))

        expect_status(TOO_MUCH, put_small, "memory")
        # Reads, and writes that do not grow, go on.
        assert kv.Get(pb.GetRequest(key=b"0")).value == value
        assert kv.Count(pb.CountRequest(prefix=b"small")).exact
        assert (
            sum(len(page.entries) for page in kv.Scan(pb.ScanRequest(keys_only=True, limit=10)))
            == 10
        )
        expect_status(TOO_MUCH, lambda: kv.Put(pb.PutRequest(key=b"one more", value=value)))
        for n in range(10):
            assert kv.Delete(pb.DeleteRequest(key=b"%d" % n)).deleted
        # What was freed can be used again.
        for n in range(8):
            assert kv.Put(pb.PutRequest(key=b"again %d" % n, value=value)).applied
        assert server.resident_bytes() < 2 * (limit_mib << 20) + (100 << 20)


def test_metadata_up_to_the_limit(kv, prefix):
    for metadata in [
        [("x-large", "v" * 8_000)],
        [(f"x-{n}", "v") for n in range(40)],
        [("x-bin", bytes(range(256)))],
    ]:
        assert not kv.Get(pb.GetRequest(key=prefix), metadata=metadata).found


@pytest.mark.parametrize(
    "metadata", [[("x-large", "v" * 20_000)], [(f"x-{n}", "v") for n in range(80)]]
)
def test_metadata_beyond_the_limit_fails_the_call_and_not_the_server(server, kv, metadata):
    with open_channel(server.address) as channel, pytest.raises(grpc.RpcError):
        kv_pb2_grpc.KeyValueStub(channel).Get(pb.GetRequest(), metadata=metadata, timeout=10)
    kv.Get(pb.GetRequest())
