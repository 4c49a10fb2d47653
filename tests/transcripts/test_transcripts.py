"""What every command prints, on both outputs and with its exit code, is what the transcripts say: a change of it is seen in review.

A transcript is a session in one folder, with a server whose address the commands know. `## ` begins a heading, and `$ ` a command
that bash runs; behind it stands what it printed. Lines of standard error begin with `! `, and `[3]` is an exit code that is not 0.
What differs from run to run (times, rates, addresses, ids) is replaced by a word in capitals. UPDATE_TRANSCRIPTS=1 writes them anew.
"""

import difflib
import os
import pathlib
import re
import subprocess

import pytest
from server import Server

HERE = pathlib.Path(__file__).parent
TRANSCRIPTS = sorted(HERE.glob("*.txt"))
SECONDS = 120

# In this order: a pattern, and what stands for it.
CHANGING = [
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", "TIMESTAMP"),
    (r"sport = :\d+", "sport = :PORT"),
    (r"127\.0\.0\.1:\d{5}", "FREE_ADDRESS"),
    (r"\b(created_at_ms|expires_at_ms|wall_ms|elapsed_ms|now_ms)(\"?: ?)\d+", r"\1\2NUMBER"),
    (r"\b[0-9a-f]{32}\b", "ID32"),
    (r"\b[0-9a-f]{16}\b", "ID16"),
    # What was measured has a fraction; what is written in messages and defaults has none.
    (r"(?<![\w.])\d+\.\d+(?:ns|µs|ms|s)\b", "TIME"),
    (r"(?<=round trip: )\d+(?:ns|µs|ms)", "TIME"),
    (r"^\d+(?:ns|µs|ms) there and back", "TIME there and back"),
]


def normal(text, folder, address):
    # As the program says it, without the links in it.
    for place in (folder.resolve(), folder):
        text = text.replace(str(place), "FOLDER")
    text = text.replace(address, "ADDRESS")
    for pattern, word in CHANGING:
        text = re.sub(pattern, word, text, flags=re.MULTILINE)
    return text


def commands(text):
    return [line[2:] for line in text.splitlines() if line.startswith("$ ")]


def run(command, folder, environment):
    """What a transcript says of a command and what it printed."""
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS
    )
    address = environment["PELTON_ADDRESS"]
    lines = [f"$ {command}", *normal(done.stdout, folder.parent, address).splitlines()]
    lines += [f"! {line}" for line in normal(done.stderr, folder.parent, address).splitlines()]
    if done.returncode:
        lines.append(f"[{done.returncode}]")
    return lines


def play(transcript, binary, folder):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PELTON_")}
    environment["PATH"] = os.pathsep.join([os.path.dirname(binary), environment["PATH"]])
    # Whatever terminal and language the tests run in.
    environment |= {"COLUMNS": "100", "LC_ALL": "C.UTF-8", "NO_COLOR": "1"}
    place = folder / "work"
    place.mkdir()
    arguments = ["--data", str(folder / "data"), "--backup-root", str(folder / "backups"), "--threads", "2", "--memory-limit", "1GiB"]
    with Server(binary, *arguments) as server:
        environment["PELTON_ADDRESS"] = server.address
        played = []
        for line in transcript.splitlines():
            if line.startswith("## "):
                played += [""] * bool(played) + [line]
            elif line.startswith("$ "):
                played += run(line[2:], place, environment)
    return "\n".join(played) + "\n"


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_commands_print_what_the_transcript_says(path, binary, tmp_path):
    transcript = path.read_text()
    played = play(transcript, binary, tmp_path)
    if os.environ.get("UPDATE_TRANSCRIPTS") == "1":
        path.write_text(played)
        transcript = played
    changes = difflib.unified_diff(transcript.splitlines(), played.splitlines(), "the transcript", "what was printed", n=1, lineterm="")
    changes = "\n".join(changes)
    assert not changes, changes


def subcommands(binary, *words):
    """All commands, as their help lists them."""
    printed = subprocess.run([binary, *words, "--help"], capture_output=True, text=True, check=True).stdout
    listed = re.search(r"^Commands:\n((?:  .*\n|\n)*)", printed, re.MULTILINE)
    names = re.findall(r"^  ([a-z]+)", listed[1], re.MULTILINE) if listed else []
    yield words
    for name in names:
        if name != "help":
            yield from subcommands(binary, *words, name)


def test_every_command_is_in_a_transcript(binary):
    played = [line for path in TRANSCRIPTS for line in commands(path.read_text())]
    missing = []
    for words in subcommands(binary):
        if words:
            pattern = r"\bpelton " + r" (?:.* )?".join(words) + r"\b"
            if not any(re.search(pattern, line) and "--help" not in line for line in played) and not list(subcommands(binary, *words))[1:]:
                missing.append(" ".join(words))
    assert not missing, missing
