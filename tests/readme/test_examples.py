"""Runs what README.md shows under the heading "Examples"."""

import pages
import session

README = pages.ROOT / "README.md"


def test_the_examples_of_the_readme(binary, tmp_path):
    session.run(pages.blocks(pages.section(README.read_text(), "Examples")), tmp_path, binary)
