"""Runs what README.md shows under the heading "Examples".

Each block marked `sh` is a piece of one shell session: they run in order, in one empty folder, with `pelton` on the PATH.
A block marked `text` that follows one directly is what it prints; `...` alone on a line stands for any lines. A command
that ends with `&` goes on in the background. To run beside a server of yours, the port 1978 is replaced by a free one.
"""

import os
import pathlib
import re
import socket
import subprocess

import pytest

README = pathlib.Path(__file__).resolve().parent.parent.parent / "README.md"
MARK = "---- end of block ----"


def blocks():
    """Pairs of a block of commands and what it prints (None = not said)."""
    text = README.read_text()
    sections = re.split(r"^(#+) +(.*)$", text, flags=re.MULTILINE)
    found, depth = [], None
    for level, title, body in zip(sections[1::3], sections[2::3], sections[3::3]):
        if title.strip() == "Examples":
            depth = len(level)
        elif depth is not None and len(level) <= depth:
            break
        if depth is not None:
            fences = re.findall(r"^```(\w*)\n(.*?)^```$", body, flags=re.MULTILINE | re.DOTALL)
            for position, (language, content) in enumerate(fences):
                if language == "sh":
                    following = fences[position + 1] if position + 1 < len(fences) else ("", "")
                    found.append((content, following[1] if following[0] == "text" else None))
    return found


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def matches(expected, printed):
    pattern = "".join(r"(?:.*\n)*" if line.strip() == "..." else re.escape(line) + "\n" for line in expected.splitlines())
    return re.fullmatch(pattern, printed) is not None


def test_the_examples_of_the_readme(binary, tmp_path):
    examples = blocks()
    assert examples, "README.md shows nothing under the heading Examples"
    port = str(free_port())
    # A server needs a moment until it listens: a person would not type that fast.
    session = [
        "set -euo pipefail",
        # What runs in the background ends with the session, by its own number.
        "trap 'for job in $(jobs -p); do kill $job 2>/dev/null || true; done; wait' EXIT",
        "listening() { (exec 3<>/dev/tcp/127.0.0.1/%s) 2>/dev/null; }" % port,
        "settle() { for _ in $(seq 200); do listening && return; sleep 0.05; done; return 1; }",
    ]
    for commands, _ in examples:
        session.append(commands.replace("1978", port))
        if re.search(r"(?<!&)&\s*(#.*)?$", commands, flags=re.MULTILINE):
            session.append("settle")
        session.append(f"echo '{MARK}'")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PELTON_")}
    environment |= {
        "PATH": f"{os.path.dirname(binary)}:{environment['PATH']}",
        "PELTON_LISTEN": f"127.0.0.1:{port}",
        "PELTON_ADDRESS": f"127.0.0.1:{port}",
    }
    result = subprocess.run(
        ["bash", "-c", "\n".join(session)],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, f"{result.stdout}\n{result.stderr}"
    printed = result.stdout.replace(port, "1978").split(MARK + "\n")
    for (commands, expected), output in zip(examples, printed):
        if expected is not None:
            assert matches(expected, output), f"{commands}\nprints\n{output}\nbut README.md says\n{expected}"
