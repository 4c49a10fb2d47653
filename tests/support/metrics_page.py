"""The page of metrics of a server that was started with --metrics-listen."""

import http.client
import re

from server import wait_until


def metrics_address(server):
    lines = []

    def is_said():
        lines[:] = [found.group(1) for line in server.lines if (found := re.match(r"metrics at http://(\S+)/metrics", line))]
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
