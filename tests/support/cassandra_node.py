"""A node of Apache Cassandra on the loopback interface, as a process of its own.

The jars of `cassandra-all` are in the folder that PELTON_CASSANDRA_JARS names: `script/test
cassandra` brings them there.
"""

import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time

from ports import free_ports

# A node takes some 10 seconds on an idle machine, and minutes beside compilers.
START_SECONDS = 400

# What it has acknowledged is on its disk (`batch`): it is killed, and there is no other node.
YAML = """
cluster_name: pelton
num_tokens: 1
auto_bootstrap: false
partitioner: org.apache.cassandra.dht.Murmur3Partitioner
data_file_directories: [{folder}/data]
commitlog_directory: {folder}/commitlog
saved_caches_directory: {folder}/saved_caches
hints_directory: {folder}/hints
cdc_raw_directory: {folder}/cdc_raw
commitlog_sync: batch
seed_provider:
  - class_name: org.apache.cassandra.locator.SimpleSeedProvider
    parameters: [{{seeds: '127.0.0.1:{storage}'}}]
listen_address: 127.0.0.1
rpc_address: 127.0.0.1
storage_port: {storage}
native_transport_port: {native}
endpoint_snitch: SimpleSnitch
auto_snapshot: false
paxos_variant: v2
"""

LOGBACK = """
<configuration>
  <appender name='OUT' class='ch.qos.logback.core.ConsoleAppender'>
    <encoder><pattern>%-5level %d{HH:mm:ss.SSS} %logger{20} %msg%n</pattern></encoder>
  </appender>
  <root level='WARN'><appender-ref ref='OUT'/></root>
</configuration>
"""

# What a node of version 5 takes from Java 17.
EXPORTS = """
    java.base/jdk.internal.misc java.base/jdk.internal.ref java.base/sun.nio.ch
    java.management.rmi/com.sun.jmx.remote.internal.rmi java.rmi/sun.rmi.registry
    java.rmi/sun.rmi.server java.rmi/sun.rmi.transport.tcp java.sql/java.sql
""".split()
OPENS = """
    java.base/java.io java.base/java.lang java.base/java.lang.module java.base/java.lang.reflect
    java.base/java.nio java.base/java.util java.base/java.util.concurrent
    java.base/java.util.concurrent.atomic java.base/jdk.internal.loader
    java.base/jdk.internal.math java.base/jdk.internal.module java.base/jdk.internal.ref
    java.base/jdk.internal.reflect java.base/jdk.internal.util.jar java.base/sun.nio.ch
    jdk.management/com.sun.management.internal
""".split()


def jars_or_skip():
    """The folder with the jars. Where there is none, or no Java, the test is skipped, but never in
    CI."""
    jars = os.environ.get("PELTON_CASSANDRA_JARS")
    if jars and shutil.which("java"):
        return jars
    # Not for all users of this file: script/bench starts nodes, too.
    import pytest

    word = "PELTON_CASSANDRA_JARS names no folder" if not jars else "there is no java"
    if os.environ.get("CI"):
        pytest.fail(f"{word}; in CI nothing is skipped")
    pytest.skip(f"{word}: `script/test cassandra` has what a node of Cassandra takes")


class CassandraNode:
    """Ends the node by its process id when the `with` block ends, however that comes about."""

    host = "127.0.0.1"

    def __init__(self, jars, folder, ports=None):
        """`ports`: those for other nodes, and for CQL; free ones unless they are given."""
        self.jars, self.folder = jars, pathlib.Path(folder)
        storage, self.port = ports or free_ports(2)
        (self.folder / "cassandra.yaml").write_text(self.yaml(storage))
        (self.folder / "logback.xml").write_text(LOGBACK)
        self.process = None
        self.start()

    def yaml(self, storage):
        """Its settings."""
        return YAML.format(folder=self.folder, storage=storage, native=self.port)

    @property
    def address(self):
        return f"{self.host}:{self.port}"

    def start(self):
        """Starts it, with what it has on disk, and waits until it takes connections."""
        words = ["java", "-Xms512M", "-Xmx512M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        words += [f"--add-exports={one}=ALL-UNNAMED" for one in EXPORTS]
        words += [f"--add-opens={one}=ALL-UNNAMED" for one in OPENS]
        settings = {
            "jdk.attach.allowAttachSelf": "true",
            "io.netty.tryReflectionSetAccessible": "true",
            "cassandra-foreground": "yes",
            "cassandra.ring_delay_ms": 100,
            "cassandra.skip_wait_for_gossip_to_settle": 0,
            "cassandra.superuser_setup_delay_ms": 0,
            "cassandra.available_processors": 2,
            "cassandra.consistent.rangemovement": "false",
            "cassandra.config": f"file://{self.folder}/cassandra.yaml",
            "cassandra.storagedir": self.folder,
            "cassandra.logdir": self.folder,
            "logback.configurationFile": f"file://{self.folder}/logback.xml",
        }
        words += [f"-D{name}={value}" for name, value in settings.items()]
        words += ["-cp", f"{self.jars}/*", "org.apache.cassandra.service.CassandraDaemon"]
        with open(self.folder / "node.log", "ab") as log:
            self.process = subprocess.Popen(
                words, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        try:
            self.wait_until_it_listens()
        except BaseException:
            self.kill()
            raise

    def wait_until_it_listens(self):
        deadline = time.monotonic() + START_SECONDS
        while not self.listens():
            assert self.process.poll() is None, f"node {self.host} ended:\n{self.log()}"
            assert time.monotonic() < deadline, f"node {self.host} did not start:\n{self.log()}"
            time.sleep(0.1)

    def listens(self):
        with socket.socket() as probe:
            probe.settimeout(1)
            return probe.connect_ex((self.host, self.port)) == 0

    def log(self):
        """The end of its log."""
        lines = (self.folder / "node.log").read_text(errors="replace").splitlines()
        return "\n".join(lines[-40:])

    def freeze(self):
        """It answers nothing, and its connections stay."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self):
        self.process.send_signal(signal.SIGCONT)

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()
