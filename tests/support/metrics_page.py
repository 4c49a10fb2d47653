"""The page of metrics of a server that was started with --metrics-listen."""

import http.client
import re

from prometheus_client.parser import text_string_to_metric_families
from server import wait_until


# The labels of the families that only servers in front of a storage engine have, which takes Java:
# tests/gateway/test_gateway_metrics.py compares them with the page of one.
STORE_LABELS = {
    "pelton_store_serving": set(),
    "pelton_store_requests": set(),
    "pelton_store_requests_limit": set(),
    "pelton_store_used_bytes": set(),
    "pelton_store_limit_bytes": set(),
    "pelton_store_failed_total": {"reason"},
    "pelton_store_node_connected": {"node"},
    "pelton_store_node_requests": {"node"},
    "pelton_store_node_requests_limit": {"node"},
}


def metrics_address(server):
    lines = []

    def is_said():
        lines[:] = [
            found.group(1)
            for line in server.lines
            if (found := re.match(r"metrics at http://(\S+)/metrics", line))
        ]
        return lines

    wait_until(is_said, message="the address of the metrics is not said")
    host, port = lines[0].rsplit(":", 1)
    return host, int(port)


def fetch(server, path="/metrics", method="GET"):
    connection = http.client.HTTPConnection(*metrics_address(server), timeout=30)
    connection.request(method, path)
    response = connection.getresponse()
    body = response.read().decode()
    connection.close()
    return response, body


def counter(server, name):
    """The value of a counter or a gauge, by its name and its labels if it has any."""
    _, body = fetch(server)
    return float(re.search(rf"^{re.escape(name)} (\S+)$", body, re.MULTILINE).group(1))


def families(server):
    """All of the page, as Prometheus' own parser reads it."""
    _, body = fetch(server)
    return list(text_string_to_metric_families(body))


def unbalanced_calls(families):
    """The methods of which not each call that was begun has ended, once, and was measured, once; in
    words."""
    begun, ended, measured = {}, {}, {}
    names = ["started_total", "handled_total", "handling_seconds_count"]
    counted = list(zip(names, [begun, ended, measured]))
    for family in families:
        for sample in family.samples:
            for name, counts in counted:
                if sample.name == f"grpc_server_{name}" and sample.value:
                    method = sample.labels["grpc_service"], sample.labels["grpc_method"]
                    counts[method] = counts.get(method, 0) + sample.value
    counts = {
        method: [one.get(method, 0) for one in (begun, ended, measured)]
        for method in {*begun, *ended, *measured}
    }
    return [
        f"{method}: begun, ended and measured {times} times"
        for method, times in counts.items()
        if len(set(times)) != 1
    ]


def assert_calls_add_up(families):
    """Where no call runs, each that was begun has ended, once, and was measured, once."""
    assert unbalanced_calls(families) == []


def wait_until_calls_add_up(server):
    """The same, soon: what ended in a turn of a loop is measured at its end, and a page may be made
    between the two."""

    def unbalanced():
        return unbalanced_calls(families(server))

    wait_until(lambda: not unbalanced(), seconds=10, message=lambda: str(unbalanced()))
