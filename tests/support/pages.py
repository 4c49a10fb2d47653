"""The parts of a page of documentation that tests look at: fenced blocks, headings, links."""

import dataclasses
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DOCS = ROOT / "docs"


@dataclasses.dataclass
class Block:
    """What stands between two fences."""

    language: str
    content: str
    line: int
    # From a comment directly before it, `<!-- from examples/python/tour.py -->`: the file it is an
    # excerpt of.
    source: str | None


def blocks(text):
    found, opened = [], None
    lines = text.splitlines(keepends=True)
    for number, line in enumerate(lines):
        fence = re.fullmatch(r"```([\w,]*)\n?", line)
        if fence and opened is None:
            mark = re.fullmatch(r"<!-- from (\S+) -->\n", lines[number - 1]) if number else None
            opened = Block(fence[1], "", number + 1, mark and mark[1])
        elif fence:
            found.append(opened)
            opened = None
        elif opened is not None:
            opened.content += line
    assert opened is None, f"the block of line {opened.line} has no end"
    return found


def without_blocks(text):
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def section(text, title):
    """What stands under a heading, up to the next one of its depth or above."""
    found, depth, in_block = "", None, False
    for line in text.splitlines(keepends=True):
        heading = None if in_block else re.match(r"(#+) +(.*)", line)
        in_block ^= line.startswith("```")
        if heading and depth is not None and len(heading[1]) <= depth:
            break
        if heading and depth is None and heading[2].strip() == title:
            depth = len(heading[1])
        if depth is not None:
            found += line
    return found


def anchors(text):
    """The names that headings get on the sites that show Markdown."""
    titles = re.findall(r"^#+ +(.*)$", without_blocks(text), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-") for title in titles}


def links(text):
    """Targets of links, those to the web left out."""
    targets = re.findall(r"\]\(([^)\s]+)\)", without_blocks(text))
    return [target for target in targets if not re.match(r"[a-z]+:", target)]


def commands(text):
    """Commands of `pelton` that are written within a line, or indented, and not run."""
    text = without_blocks(text)
    found = re.findall(r"`(pelton [^`]+)`", text) + re.findall(r"^    (pelton .*)$", text, re.M)
    # Up to what a shell would take for itself.
    return [re.split(r" [|&>;#]", " ".join(command.split()))[0] for command in found]


def commands_and_flags(cli):
    """The flags of each command, by what docs/cli.md has of it."""
    shared = set(re.findall(r"^\| `(--?[\w-]+)", section(cli, "Common flags"), re.M))
    found = {}
    for title in re.findall(r"^## pelton (.*)$", cli, re.M):
        text = section(cli, f"pelton {title}")
        found[title] = shared | set(re.findall(r"^\| `(--?[\w-]+)", text, re.M))
        other = re.search(r"Takes all flags of \[pelton ([^\]]+)\]", text)
        found[title] |= found[other[1]] if other else set()
    return found
