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
import session
from server import Server

HERE = pathlib.Path(__file__).parent
TRANSCRIPTS = sorted(HERE.glob("*.txt"))
SECONDS = 120

# In this order: a pattern, and what stands for it.
CHANGING = [
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", "TIMESTAMP"),
    # As long as the time that it stands for: it is in columns.
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ", "DATE-AND-TO-SECOND-Z"),
    (r"\(process \d+\)", "(process PROCESS)"),
    (r"pelton_[\w-]{43}", "pelton_TOKEN"),
    (r"sport = :\d+", "sport = :PORT"),
    (r"127\.0\.0\.1:\d{5}", "FREE_ADDRESS"),
    (
        r"\b(created_at_ms|(?:previous_)?expires_at_ms|wall_ms|elapsed_ms|now_ms)(\"?: ?)\d+",
        r"\1\2NUMBER",
    ),
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
    code, output, errors = session.typed(command, folder, environment, SECONDS)
    output, errors = (
        normal(text, folder.parent, environment["PELTON_ADDRESS"]) for text in (output, errors)
    )
    lines = [f"$ {command}", *output.splitlines(), *(f"! {line}" for line in errors.splitlines())]
    if code:
        lines.append(f"[{code}]")
    return lines


def play(transcript, binary, folder):
    # Whatever terminal and language the tests run in.
    environment = session.plain_environment(binary) | {
        "COLUMNS": "100",
        "LC_ALL": "C.UTF-8",
        "NO_COLOR": "1",
    }
    place = folder / "work"
    place.mkdir()
    arguments = [
        "--data",
        str(folder / "data"),
        "--backup-root",
        str(folder / "backups"),
        "--threads",
        "2",
        "--memory-limit",
        "1GiB",
    ]
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
    changes = difflib.unified_diff(
        transcript.splitlines(),
        played.splitlines(),
        "the transcript",
        "what was printed",
        n=1,
        lineterm="",
    )
    changes = "\n".join(changes)
    assert not changes, changes


def leaves(binary, *words):
    """The commands that have none below them, as the help lists them: their words."""
    printed = subprocess.run(
        [binary, *words, "--help"], capture_output=True, text=True, check=True
    ).stdout
    listed = re.search(r"^Commands:\n((?:  .*\n|\n)*)", printed, re.MULTILINE)
    if not listed:
        yield words
        return
    for name in re.findall(r"^  ([a-z-]+)", listed[1], re.MULTILINE):
        if name != "help":
            yield from leaves(binary, *words, name)


def test_every_command_is_in_a_transcript(binary):
    played = [
        line for path in TRANSCRIPTS for line in commands(path.read_text()) if "--help" not in line
    ]
    patterns = {words: r"\bpelton " + r" (?:.* )?".join(words) + r"\b" for words in leaves(binary)}
    missing = [
        " ".join(words)
        for words, pattern in patterns.items()
        if not any(re.search(pattern, line) for line in played)
    ]
    assert not missing, missing
