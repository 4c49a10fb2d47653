"""A node of a cluster of several, on 127.0.0.1 and the addresses behind it."""

import contextlib
import pathlib
import socket
import time

from cassandra_node import LOGBACK, START_SECONDS, YAML, CassandraNode

# A commit log in small pieces: a full disk is noticed after a few writes.
MORE_YAML = """
commitlog_segment_size: 1MiB
commitlog_total_space: 32MiB
"""

# Nodes of a cluster at most: any of them may be away while another one starts.
SEEDS = 3


class ClusterNode(CassandraNode):
    """One of several nodes."""

    def __init__(self, jars, folder, number, ports):
        self.jars, self.folder = jars, pathlib.Path(folder)
        self.host, (storage, self.port) = f"127.0.0.{number}", ports
        text = YAML.format(folder=folder, storage=storage, native=self.port)
        own = text.replace("_address: 127.0.0.1", f"_address: {self.host}")
        # A seed starts also if no other one answers in the fifth of a second that the tests give
        # them.
        seeds = ",".join(f"127.0.0.{one}:{storage}" for one in range(1, SEEDS + 1))
        own = own.replace(f"'127.0.0.1:{storage}'", f"'{seeds}'")
        (self.folder / "cassandra.yaml").write_text(own + MORE_YAML)
        (self.folder / "logback.xml").write_text(LOGBACK)
        self.process = None
        self.start()

    @property
    def address(self):
        return f"{self.host}:{self.port}"

    def listens(self):
        with socket.socket() as probe:
            probe.settimeout(1)
            return probe.connect_ex((self.host, self.port)) == 0

    def wait_until_it_listens(self):
        deadline = time.monotonic() + START_SECONDS
        while not self.listens():
            assert self.process.poll() is None, f"node {self.host} ended:\n{self.log()}"
            assert time.monotonic() < deadline, f"node {self.host} did not start:\n{self.log()}"
            time.sleep(0.2)

    def fill_disk(self):
        """Leaves no byte free on the disk of its folder."""
        with contextlib.suppress(OSError), open(self.folder / "junk", "wb", buffering=0) as junk:
            while True:
                junk.write(bytes(1 << 16))

    def empty_disk(self):
        (self.folder / "junk").unlink()
