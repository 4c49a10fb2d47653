"""Programs that use a channel, each in a process of its own."""

import os
import signal
import subprocess
import sys
import textwrap

from both import SECONDS

PROLOGUE = """
import os, signal, sys, threading, time
import pelton_grpc
channel = pelton_grpc.insecure_channel(sys.argv[1])
echo = channel.unary_unary("/pelton.v1.Echo/Unary")
stream = channel.stream_stream("/pelton.v1.Echo/Stream")
# delay_ms = 30000
SLOW = b"\\x18\\xb0\\xea\\x01"
"""


def start(script, server, *words):
    command = [sys.executable, "-X", "faulthandler", "-c", PROLOGUE + textwrap.dedent(script)]
    return subprocess.Popen(
        [*command, server.address, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finish(process):
    """Its exit code and what it has written."""
    try:
        out, err = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        # With its children, which have its output open.
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        raise AssertionError(f"it hangs:\n{out}\n{err}") from None
    return process.returncode, out, err


def run(script, server, *words):
    code, out, err = finish(start(script, server, *words))
    assert code == 0, err
    return out.split("\n")[:-1], err
