"""A cluster of nodes of Cassandra on 127.0.0.1 and the addresses behind it, with gateways to it,
and what befalls them.

A node is cut off by a route that leads nowhere: what is sent to it is lost, and its connections
stay. That takes a network of its own, and a small disk takes mounts: `script/test cluster` runs the
tests in namespaces where that is allowed, and says so by PELTON_OWN_NETWORK.
"""

import contextlib
import os
import subprocess
import time

import grpc
from cluster_node import ClusterNode
from gateway import QUORUM, Gateway, make_database, pelton
from grpc_health.v1 import health_pb2, health_pb2_grpc
from pelton.v1 import kv_pb2
from ports import free_ports
from server import wait_until

NODES = GATEWAYS = 3
KEYSPACE = "cluster"
QUORUM_DATABASE = "quorum"
STORE_TIMEOUT = "5s"
MEMORY = "512MiB"
DISK_SIZE = "300m"

# Until all gateways serve again after a fault. A node takes half a minute to start on two busy
# cores; this only ends what hangs.
RECOVERY_SECONDS = 180


class Machines:
    """The nodes and the gateways."""

    def __init__(self, binary, jars, folder):
        self.binary, self.jars, self.folder = binary, jars, folder
        self.stack = contextlib.ExitStack()
        self.nodes, self.gateways = [], []
        # Addresses of gateways, which stay when one is started again.
        self.listens = [f"127.0.0.1:{port}" for port in free_ports(GATEWAYS)]
        self.has_own_network = os.environ.get("PELTON_OWN_NETWORK") == "1"
        self.has_small_disk = False

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            self.stack = stack
            ports = free_ports(2)
            for number in range(1, NODES + 1):
                place = self.folder / f"node-{number}"
                place.mkdir()
                if number == NODES:
                    self.has_small_disk = self.mount_small_disk(place)
                node = ClusterNode(self.jars, place, number, ports)
                self.nodes.append(stack.enter_context(node))
            self.init_keyspace()
            for number in range(GATEWAYS):
                self.gateways.append(None)
                self.start_gateway(number)
            make_database(self.gateways[0].admin(), QUORUM_DATABASE, QUORUM)
            # Until all gateways have heard of it.
            self.wait_until_all_serve()
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *words):
        for gateway in self.gateways:
            gateway.__exit__(*words)
        self.stack.close()

    def init_keyspace(self):
        contact = ",".join(node.address for node in self.nodes)
        place = ["--contact", contact, "--keyspace", KEYSPACE, "--replicas", NODES]
        pelton(self.binary, "store", "init", *place)

    def mount_small_disk(self, place):
        """Returns whether there is one. Only in namespaces of our own: nothing is left behind."""
        if not self.has_own_network:
            return False
        options = ["-t", "tmpfs", "-o", f"size={DISK_SIZE}", "none", str(place)]
        mounted = subprocess.run(["mount", *options], capture_output=True).returncode == 0
        if mounted:
            self.stack.callback(subprocess.run, ["umount", "--lazy", str(place)], check=False)
        return mounted

    def start_gateway(self, number):
        contact = ",".join(node.address for node in self.nodes)
        words = ["--store-timeout", STORE_TIMEOUT, "--memory-limit", MEMORY]
        listen = (self.listens[number],)
        self.gateways[number] = Gateway(self.binary, contact, KEYSPACE, *words, listen=listen)

    # ----------------------------------------------------------------------------------------------
    # Faults

    def faults(self):
        """Those that are possible here, by name."""
        faults = {
            "kill of a node": self.kill_of_a_node,
            "frozen node": self.frozen_node,
            "kill of a gateway": self.kill_of_a_gateway,
        }
        if self.has_own_network:
            faults["node cut off"] = self.node_cut_off
        if self.has_small_disk:
            faults["full disk"] = self.full_disk
        return faults

    def kill_of_a_node(self, random):
        node = random.choice(self.nodes)
        node.kill()
        time.sleep(8)
        node.start()

    def frozen_node(self, random):
        node = random.choice(self.nodes)
        node.freeze()
        try:
            time.sleep(30)
        finally:
            node.thaw()

    def kill_of_a_gateway(self, random):
        number = random.randrange(GATEWAYS)
        self.gateways[number].kill()
        self.gateways[number].__exit__()
        time.sleep(2)
        self.start_gateway(number)

    def node_cut_off(self, random):
        # The address of the first one is that of the gateways, too.
        node = random.choice(self.nodes[1:])
        with cut_off(node.host):
            time.sleep(15)

    def full_disk(self, _):
        node = self.nodes[-1]
        node.fill_disk()
        time.sleep(15)
        was_noticed = not node.listens()
        print(f"  the node {'has stopped' if was_noticed else 'goes on'} with its disk full")
        node.kill()
        node.empty_disk()
        node.start()

    @contextlib.contextmanager
    def all_nodes_frozen(self):
        for node in self.nodes:
            node.freeze()
        try:
            yield
        finally:
            for node in self.nodes:
                node.thaw()

    # ----------------------------------------------------------------------------------------------
    # Looking

    def health(self, number):
        with open_health(self.listens[number]) as stub:
            return stub.Check(health_pb2.HealthCheckRequest(), timeout=10).status

    def all_have_health(self, status):
        return all(self.health(number) == status for number in range(GATEWAYS))

    def wait_for_health(self, status, seconds):
        wait_until(
            lambda: self.all_have_health(status),
            seconds,
            lambda: f"not all gateways become {status}: {self.logs()}",
        )

    def wait_until_all_serve(self):
        """All gateways are serving, and write."""
        deadline = time.monotonic() + RECOVERY_SECONDS
        self.wait_for_health(health_pb2.HealthCheckResponse.SERVING, RECOVERY_SECONDS)
        for gateway in self.gateways:
            stub = gateway.kv()
            for database in ("", QUORUM_DATABASE):
                request = kv_pb2.PutRequest(database=database, key=b"is it well?", value=b"yes")
                while not is_put(stub, request):
                    assert time.monotonic() < deadline, f"writes do not come back: {self.logs()}"
                    time.sleep(0.2)

    def logs(self):
        nodes = [f"{node.host}: {node.log()[-1500:]}" for node in self.nodes]
        gateways = [gateway.log()[-1500:] for gateway in self.gateways]
        return "\n".join([*nodes, *gateways])

    def assert_alive(self):
        for gateway in self.gateways:
            assert gateway.process.poll() is None, gateway.log()


def is_put(stub, request):
    try:
        return stub.Put(request, timeout=10).applied
    except grpc.RpcError:
        return False


@contextlib.contextmanager
def open_health(address):
    with grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        yield health_pb2_grpc.HealthStub(channel)


@contextlib.contextmanager
def cut_off(host):
    """What is sent to a host is lost."""
    route = ["blackhole", f"{host}/32", "table", "local"]
    subprocess.run(["ip", "route", "add", *route], check=True)
    try:
        yield
    finally:
        subprocess.run(["ip", "route", "del", *route], check=True)
