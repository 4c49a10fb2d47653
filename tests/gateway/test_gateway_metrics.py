"""What a gateway says of its storage engine: metrics, status, the picture of `pelton top`."""

import json
import re

import grpc
from gateway import Gateway, pelton
from metrics_page import STORE_LABELS, counter, families
from pelton.v1 import kv_pb2 as pb


def test_each_family_of_the_engine_is_there_with_its_labels(gateway):
    found = {}
    for family in families(gateway):
        for sample in family.samples:
            if sample.name.startswith("pelton_store_"):
                found.setdefault(sample.name, set()).update(sample.labels)
    assert found == STORE_LABELS


def test_what_is_under_way_is_bounded_and_comes_back_to_zero(gateway, stub, node):
    for _ in range(2):
        calls = [stub.Put.future(pb.PutRequest(key=b"metrics-%d" % one)) for one in range(50)]
        assert all(call.result().applied for call in calls)
        assert counter(gateway, "pelton_store_requests") == 0
        assert counter(gateway, "pelton_store_used_bytes") == 0
    assert counter(gateway, "pelton_store_serving") == 1
    assert counter(gateway, "pelton_store_requests_limit") == 16_384
    assert counter(gateway, "pelton_store_limit_bytes") >= 32 << 20
    name = f'{{node="{node.address}"}}'
    assert counter(gateway, "pelton_store_node_connected" + name) == 1
    assert counter(gateway, "pelton_store_node_requests_limit" + name) == 512


def test_a_start_says_which_engine_it_has(gateway, node, keyspace):
    said = rf"storing on cassandra \(CQL at {node.address}, keyspace {keyspace}\), \d+ databases?;"
    assert re.search(said, gateway.log()), gateway.log()


def test_commands_show_what_has_a_meaning(binary, gateway):
    place = ["--address", gateway.address]
    said = pelton(binary, "status", *place)
    assert "is SERVING" in said and ", on a storage engine; buffers:" in said
    assert "log:" not in said and "history:" not in said
    first, *_ = pelton(binary, "database", "list", "--output", "json", *place).splitlines()
    database = json.loads(first)
    assert database["kind"] == "remote" and database["promise"] == "linearizable"
    listed = pelton(binary, "database", "list", *place)
    assert re.search(r"^\(default\) +remote ", listed, re.MULTILINE), listed
    assert "remote, linearizable" in pelton(binary, "top", "--count", "1", *place)


def test_a_gateway_stops_while_the_node_is_frozen(binary, node, keyspace):
    with Gateway(binary, node.address, keyspace, "--drain-timeout", "2s") as running:
        stub = running.kv()
        assert stub.Put(pb.PutRequest(key=b"frozen")).applied
        node.freeze()
        try:
            call = stub.Put.future(pb.PutRequest(key=b"frozen", value=b"never"))
            running.stop()
            assert call.code() in (grpc.StatusCode.UNKNOWN, grpc.StatusCode.UNAVAILABLE)
        finally:
            node.thaw()
