"""What can be said of the pages without running anything: links, excerpts, and that nothing is left
out."""

import os
import re
import textwrap

import pages
import pytest

INTERNALS = sorted(pages.DOCS.glob("internals/*.md"))
USER_PAGES = [
    *pages.DOCS.glob("*.md"),
    *pages.ROOT.glob("*.md"),
    *pages.ROOT.glob("packaging/*.md"),
]
PAGES = sorted([*USER_PAGES, *INTERNALS])
EXAMPLES = pages.ROOT / "examples"
SHOWN = [
    page for page in sorted(USER_PAGES) if page.name not in ("ARCHITECTURE.md", "CHANGELOG.md")
]
# What the examples make when they are run where they are, and what no human writes.
MADE = {"gen", "target", "env", "proto", "pelton", "go.sum", "Cargo.lock", ".gitignore"}


def name(path):
    return str(path.relative_to(pages.ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_leads_somewhere(page):
    for target in pages.links(page.read_text()):
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{name(page)} links to {target}, which is not there"
        if anchor:
            assert anchor in pages.anchors(file.read_text()), (
                f"{name(page)} links to {target}: there is no such heading"
            )


def test_every_page_stands_in_the_table_of_contents():
    contents = pages.DOCS / "README.md"
    linked = {
        (pages.DOCS / target.partition("#")[0]).resolve()
        for target in pages.links(contents.read_text())
    }
    for page in pages.DOCS.glob("*.md"):
        assert page == contents or page in linked, f"docs/README.md does not name {page.name}"


def test_architecture_names_every_internal_page():
    contents = pages.ROOT / "ARCHITECTURE.md"
    linked = {
        (pages.ROOT / target.partition("#")[0]).resolve()
        for target in pages.links(contents.read_text())
    }
    assert INTERNALS
    for page in INTERNALS:
        assert page in linked, f"ARCHITECTURE.md does not name {name(page)}"


def test_architecture_stays_short():
    lines = (pages.ROOT / "ARCHITECTURE.md").read_text().splitlines()
    assert len(lines) <= 350 and max(map(len, lines)) <= 100, "move details to docs/internals"


@pytest.mark.parametrize("page", SHOWN, ids=name)
def test_what_is_shown_is_run_or_is_an_excerpt_of_what_is(page):
    """A block is `sh`, which test_chapters.py runs, or `text`, what that prints, or literally in a
    program. Those of client.md are doctests of its crate."""
    blocks = pages.blocks(page.read_text())
    for block in blocks:
        where = f"{name(page)}, line {block.line}"
        if block.source is None:
            if page.name == "client.md" and block.language.startswith("rust"):
                continue
            assert block.language in ("sh", "text"), (
                f"{where}: name the program that this is an excerpt of"
            )
            continue
        source = (pages.ROOT / block.source).resolve()
        assert EXAMPLES in source.parents, f"{where}: programs are in examples/"
        assert is_excerpt(block.content, source.read_text()), (
            f"{where}: this is not in {block.source}"
        )


@pytest.mark.parametrize("page", SHOWN, ids=name)
def test_a_server_in_the_background_is_waited_for(page):
    """What is pasted after it must not come too early, on a machine however slow."""
    for block in pages.blocks(page.read_text()):
        assert unawaited(block.content) == [], (
            f"{name(page)}, line {block.line}: write `pelton status --wait 10s` next"
        )


def unawaited(commands):
    """The servers in the background behind which something else stands than the command that waits
    for them."""
    lines = commands.replace("\\\n", " ").splitlines()
    found = []
    for line, *following in (lines[at : at + 3] for at in range(len(lines))):
        if re.match(r"pelton serve\b.*(?<!&)&", line):
            following = [command for command in following if command != "server=$!"]
            if (
                not line.endswith("&")
                or not following
                or not following[0].startswith("pelton status --wait ")
            ):
                found.append(line)
    return found


def test_a_server_that_is_not_waited_for_is_noticed():
    wait = "pelton status --wait 10s"
    assert unawaited(f"pelton serve &\n{wait}\npelton get a\n") == []
    assert unawaited(f"pelton serve \\\n  --pin 0 > log 2>&1 &\nserver=$!\n{wait}") == []
    assert unawaited("pelton serve --data x || echo no\npelton get a\n") == []
    for commands in (
        "pelton serve &",
        "pelton serve &\npelton get a",
        f"pelton serve & sleep 1\n{wait}",
    ):
        assert len(unawaited(commands)) == 1, commands


def is_excerpt(excerpt, text):
    """Whether whole lines of `text` are `excerpt`, indented or not."""
    excerpt = excerpt.strip("\n").splitlines()
    lines = text.splitlines()
    for start in range(len(lines) - len(excerpt) + 1):
        piece = textwrap.dedent("\n".join(lines[start : start + len(excerpt)]))
        if piece == "\n".join(excerpt):
            return True
    return False


def test_excerpts_are_told_from_what_is_none():
    program = "def a():\n    one()\n\n    two()\n"
    assert is_excerpt("one()\n\ntwo()\n", program)
    assert is_excerpt("def a():\n    one()\n", program)
    assert not is_excerpt("one()\ntwo()\n", program)
    assert not is_excerpt("one(1)\n", program)


# What is written within a line is not run: `pelton get --database NAME KEY`.
COMMANDS = pages.commands_and_flags((pages.DOCS / "cli.md").read_text())


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_within_a_line_have_flags_that_there_are(page):
    for command in pages.commands(page.read_text()):
        assert wrong_flags(command) == [], f"{name(page)}: `{command}`"


def wrong_flags(command):
    """The flags of a command that it does not have."""
    words = command.split()[1:]
    names = [word for word in words[:3] if re.fullmatch(r"[a-z-]+", word) and word[0] != "-"]
    while names and " ".join(names) not in COMMANDS:
        names.pop()
    known = COMMANDS.get(" ".join(names), set()) | {"--help", "--version", "-h", "-V", "-"}
    if "--" in words:
        words = words[: words.index("--")]
    flags = [re.match(r"-[\w-]*", word) for word in words]
    return [flag[0] for flag in flags if flag and flag[0] not in known]


def test_a_flag_that_there_is_not_is_noticed():
    assert wrong_flags("pelton get --database orders KEY") == []
    assert wrong_flags("pelton blob list --prefix=a/ --address H:P") == []
    assert wrong_flags("pelton put -- -k v") == []
    assert wrong_flags("pelton get -d orders KEY") == ["-d"]
    assert wrong_flags("pelton blob list --recursive x") == ["--recursive"]
    assert pages.commands("`a` and `pelton get\n-d x`, or\n\n    pelton put -d x | sh -c y\n") == [
        "pelton get -d x",
        "pelton put -d x",
    ]


def test_no_program_is_forgotten():
    """Each file of a program is shown by a page, so that it is also run: see test_chapters.py."""
    text = "".join(page.read_text() for page in PAGES)
    for folder, folders, files in os.walk(EXAMPLES):
        folders[:] = set(folders) - MADE
        for file in set(files) - MADE:
            relative = os.path.relpath(os.path.join(folder, file), pages.ROOT)
            assert relative in text, f"no page mentions {relative}"
