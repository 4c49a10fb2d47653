"""A running `pelton serve`, and channels to it."""

import os
import queue
import re
import signal
import subprocess
import threading
import time

import grpc

# These only end what hangs: no healthy machine needs them, however busy it is.
START_SECONDS = 60
STOP_SECONDS = 30
WAIT_SECONDS = 30


class Server:
    """Starts a server on a free port of the loopback interface, or where the arguments say.

    `prefix` is a command that runs it, and `variables` are settings in its environment. With none
    to `listen`, these say where, and `count` how many addresses that are. With a `command` that is
    run instead, with the words given and no settings. Ends it by its process id when the `with`
    block ends, however that comes about.
    """

    def __init__(
        self,
        binary,
        *arguments,
        listen=("127.0.0.1:0",),
        prefix=(),
        variables=(),
        count=None,
        command=None,
    ):
        self.lines = []
        self.addresses = []
        self.ready = queue.Queue()
        listens = [word for address in listen for word in ("--listen", address)]
        # Settings of the caller's environment must not leak in.
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PELTON_", "OTEL_"))
        }
        # The same tests for both drivers. With a thread per connection, a number of threads is a
        # number of connections: what tests say about event loops does not fit.
        self.driver = os.environ.get("PELTON_TEST_DRIVER", "event-loop")
        environment["PELTON_DRIVER"] = self.driver
        if self.driver == "blocking":
            arguments = without_threads(arguments)
        environment |= dict(variables)
        # What is not about durability must not leave a data folder behind.
        own = {"--data", "--durability", "--config", "--store"}
        if not own & set(arguments) and not variables:
            environment["PELTON_DURABILITY"] = "volatile"
        self.process = subprocess.Popen(
            [*prefix, binary, *(command or ["serve", *listens, *arguments])],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            text=True,
        )
        self.reader = threading.Thread(target=self._read, args=(count or len(listen),), daemon=True)
        self.reader.start()
        try:
            ready = self.ready.get(timeout=START_SECONDS)
        except queue.Empty:
            ready = False
        if not ready:
            self.kill()
            raise AssertionError(f"the server did not start:\n{self.log()}")

    def _read(self, count):
        for line in self.process.stdout:
            self.lines.append(line)
            found = re.search(r"listening on (\S+)", line)
            if found:
                self.addresses.append(found.group(1).rstrip(",;"))
                if len(self.addresses) == count:
                    self.ready.put(True)
        self.ready.put(False)

    @property
    def address(self):
        return self.addresses[0]

    @property
    def host_port(self):
        host, port = self.address.rsplit(":", 1)
        return host, int(port)

    def log(self):
        """What was read of it so far: the last lines may still be on their way. See
        `wait_for_log`."""
        return "".join(self.lines)

    def wait_for_log(self, *words):
        """What the server has said comes here a moment later, so that only waiting for it can prove
        that it is said."""
        for word in words:
            wait_until(
                lambda: word in self.log(),
                WAIT_SECONDS,
                lambda: f"{word!r} is not in the log:\n{self.log()}",
            )  # noqa: B023

    def resident_bytes(self):
        with open(f"/proc/{self.process.pid}/status") as status:
            for line in status:
                if line.startswith("VmRSS:"):
                    return int(line.split()[1]) * 1024
        raise AssertionError("no VmRSS")

    def open_blobs(self):
        """Descriptors of blobs and uploads that it has open."""
        folder, count = f"/proc/{self.process.pid}/fd", 0
        for name in os.listdir(folder):
            try:
                count += "/blobs/" in os.readlink(f"{folder}/{name}")
            except OSError:
                # Closed meanwhile.
                pass
        return count

    def signal(self, number):
        self.process.send_signal(number)

    def wait(self, seconds=STOP_SECONDS):
        """The exit code."""
        code = self.process.wait(seconds)
        self.reader.join(seconds)
        return code

    def stop(self):
        self.signal(signal.SIGTERM)
        return self.wait()

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.reader.join(5)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()
        self.process.stdout.close()


def without_threads(arguments):
    arguments = list(arguments)
    if "--threads" in arguments:
        at = arguments.index("--threads")
        del arguments[at : at + 2]
    return arguments


def open_channel(address, *options):
    """A channel with a connection of its own: channels of one process share connections
    otherwise."""
    return grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1), *options])


def catches(process, signals):
    """Whether a process has handlers of its own for these signals: `SigCgt` in proc(5)."""
    with open(f"/proc/{process.pid}/status") as status:
        caught = next(int(line.split()[1], 16) for line in status if line.startswith("SigCgt:"))
    return all(caught & (1 << (number - 1)) for number in signals)


def wait_until(condition, seconds=WAIT_SECONDS, message="it did not happen in time"):
    """Looks again and again until `condition()` is true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, message() if callable(message) else message
        time.sleep(0.01)


def expect_status(code, call, *words):
    """Calls, expects that status, and each of `words` in its message; digits may be grouped
    there."""
    try:
        call()
    except grpc.RpcError as error:
        assert error.code() == code, f"{error.code()}: {error.details()}"
        plain = re.sub(r"(?<=\d)[ _,\u202f](?=\d{3})", "", error.details())
        for word in words:
            assert str(word) in plain, f"{word!r} is not in {error.details()!r}"
        return error
    raise AssertionError(f"the call succeeded instead of ending with {code}")
