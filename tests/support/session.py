"""Runs the examples of a page as a reader would type them.

Each block marked `sh` is a piece of one shell session: they run in order, in one folder, with
`pelton` on the PATH. A block marked `text` that follows one directly is what it prints on standard
output; `...` stands for any lines if it is alone on one, and for anything within a line. A command
that ends with `&` goes on in the background, and the next one is run at once, as when the block is
pasted. To run beside servers of yours, ports are replaced by free ones.
"""

import os
import re
import signal
import subprocess

from environment import clean_environment
from ports import free_ports

MARK = "---- end of block ----"
# What the pages write: the server, its metrics, a second server, a third one.
PORTS = ("1978", "9178", "1979", "1980")
SECONDS = 240


def examples(blocks):
    """Pairs of a block of commands and what it prints (None = not said)."""
    found = []
    for position, block in enumerate(blocks):
        if block.language == "sh":
            following = blocks[position + 1] if position + 1 < len(blocks) else None
            found.append(
                (block, following.content if following and following.language == "text" else None)
            )
    return found


def matches(expected, printed):
    def line_pattern(line):
        if line.strip() == "...":
            return r"(?:.*\n)*"
        return ".*".join(re.escape(piece) for piece in line.split("...")) + "\n"

    pattern = "".join(line_pattern(line) for line in expected.splitlines())
    return re.fullmatch(pattern, printed) is not None


def translated(text, ports):
    return re.sub(r"(?<!\d)(" + "|".join(ports) + r")(?!\d)", lambda found: ports[found[0]], text)


def script(pieces, ports):
    lines = [
        "set -euo pipefail",
        # What runs in the background ends with the session, by its own number.
        "trap 'for job in $(jobs -p); do kill $job 2>/dev/null || true; done; wait' EXIT",
    ]
    for block, _ in pieces:
        lines.extend(translated(block.content, ports).splitlines())
        lines.append(f"echo '{MARK}'")
    return "\n".join(lines)


def plain_environment(binary, path=()):
    """That of the caller without its settings of Pelton, and with `pelton` on the PATH."""
    environment = clean_environment()
    environment["PATH"] = os.pathsep.join([os.path.dirname(binary), *path, environment["PATH"]])
    return environment


def typed(commands, folder, environment, seconds=SECONDS):
    """Exit code, output and errors of a shell with these commands. None of its processes outlives
    it."""
    shell = subprocess.Popen(
        ["bash", "-c", commands],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, errors = shell.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(shell.pid, signal.SIGKILL)
        output, errors = shell.communicate()
        errors += f"\nit did not end within {seconds} s"
    return shell.returncode, output, errors


def run(blocks, folder, binary, path=(), variables=None):
    """Runs the examples among `blocks` in `folder`, and compares what they print with what the page
    says."""
    pieces = examples(blocks)
    assert pieces, "there is no block marked `sh`"
    ports = dict(zip(PORTS, map(str, free_ports(len(PORTS)))))
    environment = plain_environment(binary, path) | {
        "PELTON_LISTEN": f"127.0.0.1:{ports['1978']}",
        "PELTON_ADDRESS": f"127.0.0.1:{ports['1978']}",
    }
    environment |= variables or {}
    code, output, errors = typed(script(pieces, ports), folder, environment)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", output)  # Maven resets the colours of what is no terminal
    printed = translated(plain, {free: written for written, free in ports.items()}).split(
        MARK + "\n"
    )
    at = pieces[min(len(printed), len(pieces)) - 1][0].line
    assert code == 0, f"exit code {code} in the block of line {at}\n{output}\n{errors}"
    for (block, expected), shown in zip(pieces, printed):
        if expected is not None:
            wrong = (
                f"line {block.line}:\n{block.content}\nprints\n{shown}\nbut the page "
                f"says\n{expected}"
            )
            assert matches(expected, shown), wrong
