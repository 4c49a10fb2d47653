"""Runs the commands of every page of docs/, in a folder with a copy of examples/, as a reader would
type them."""

import shutil

import pages
import pytest
import session
import toolchains

# Pages that are one session under each of some headings, so that a missing toolchain leaves out its
# own part only.
PARTS = {"recipes.md": ["In Python", "In Go", "In Java", "In C++"]}
# Pages that need a node of Cassandra: tests/gateway runs them.
ELSEWHERE = {"scale-out.md"}
# What a page or a part of it needs beside `pelton`, Python and a shell.
NEEDS = {
    "curl.md": [toolchains.curl_http2],
    "go.md": [toolchains.go, toolchains.protoc],
    "grpcurl.md": [toolchains.go, toolchains.grpcurl],
    "java.md": [toolchains.java],
    "rust.md": [toolchains.rust],
    "measuring.md": [toolchains.protoc],
    "tls.md": [toolchains.go],
    "operations.md": [toolchains.curl],
    "In Go": [toolchains.go, toolchains.protoc],
    "In Java": [toolchains.java],
    "In C++": [toolchains.protoc, toolchains.cpp],
}


def sessions():
    for page in sorted(pages.DOCS.glob("*.md")):
        if page.name in ELSEWHERE:
            continue
        text = page.read_text()
        parts = PARTS.get(page.name)
        count = len(session.examples(pages.blocks(text)))
        if parts:
            pieces = [(title, pages.blocks(pages.section(text, title))) for title in parts]
            assert sum(len(session.examples(blocks)) for _, blocks in pieces) == count, (
                "a block stands in no part"
            )
            for title, blocks in pieces:
                yield pytest.param(title, blocks, id=f"{page.name}: {title}")
        elif count:
            yield pytest.param(page.name, pages.blocks(text), id=page.name)


@pytest.mark.parametrize("title, blocks", list(sessions()))
def test_the_examples_of(title, blocks, binary, tmp_path):
    tools = tmp_path / "tools"
    tools.mkdir()
    variables = {}
    for need in NEEDS.get(title, []):
        variables |= need(tools)
    folder = tmp_path / "work"
    folder.mkdir()
    # Without what a reader may have made there.
    ignored = shutil.ignore_patterns("gen", "target", "env", "proto", "rust")
    shutil.copytree(pages.ROOT / "examples", folder / "examples", ignore=ignored)
    # Cargo finds the crates of this repository from where it is, and compiles them once.
    (folder / "examples" / "rust").symlink_to(pages.ROOT / "examples" / "rust")
    session.run(blocks, folder, binary, path=[str(tools)], variables=variables)
