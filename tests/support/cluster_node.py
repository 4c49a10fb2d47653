"""A node of a cluster of several, on 127.0.0.1 and the addresses behind it."""

import contextlib

from cassandra_node import CassandraNode

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
        self.host = f"127.0.0.{number}"
        super().__init__(jars, folder, ports)

    def yaml(self, storage):
        text = super().yaml(storage).replace("_address: 127.0.0.1", f"_address: {self.host}")
        # A seed starts also if no other one answers in the fifth of a second that the tests give
        # them.
        seeds = ",".join(f"127.0.0.{one}:{storage}" for one in range(1, SEEDS + 1))
        return text.replace(f"'127.0.0.1:{storage}'", f"'{seeds}'") + MORE_YAML

    def fill_disk(self):
        """Leaves no byte free on the disk of its folder."""
        with contextlib.suppress(OSError), open(self.folder / "junk", "wb", buffering=0) as junk:
            while True:
                junk.write(bytes(1 << 16))

    def empty_disk(self):
        (self.folder / "junk").unlink()
