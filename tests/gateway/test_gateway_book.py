"""Runs the commands of docs/scale-out.md as a reader would type them, on the node of the tests."""

import pages
import session

# What the page says of it.
NODE = "127.0.0.1:9042"


def test_the_examples_of_scaling_out(binary, node, tmp_path):
    text = (pages.DOCS / "scale-out.md").read_text()
    assert NODE in text
    session.run(pages.blocks(text.replace(NODE, node.address)), tmp_path, binary)
