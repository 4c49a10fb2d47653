"""What a page of a report must be: whole, by itself, and for every screen."""

import html.parser
import re
import shutil
import subprocess
import xml.etree.ElementTree

import pytest

# Elements without an end.
VOID = {"meta"}
# Attributes that make a browser ask for something.
ASKING = {"src", "href", "xlink:href", "srcset", "data", "action", "poster", "background"}
NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)


class Page(html.parser.HTMLParser):
    """A page whose elements are all closed in order."""

    def __init__(self, text):
        super().__init__()
        self.open, self.count, self.words = [], {}, []
        self.feed(text)
        self.close()
        assert self.open == [], f"not closed: {self.open}"

    def handle_starttag(self, tag, attributes):
        self.count[tag] = self.count.get(tag, 0) + 1
        asking = [name for name, _ in attributes if name in ASKING or name.startswith("on")]
        assert not asking, f"<{tag}> has {asking}"
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        self.open.pop()

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> within {self.open}"
        self.open.pop()

    def handle_data(self, data):
        self.words.append(data)


def check(text):
    """Checks a page, and returns it."""
    assert text.startswith("<!doctype html>")
    assert not re.search(r"://|url\(|@import|<script|<link|<iframe", text)
    for part in ('name="viewport"', "prefers-color-scheme: dark", "@media print"):
        assert part in text, part
    for picture in re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL):
        # Stricter than any browser.
        root = xml.etree.ElementTree.fromstring(picture)
        assert root.get("viewBox") and root.get("width") is None
        for number in re.findall(r'="(-?[\w.]+)"', picture):
            assert number not in ("NaN", "inf", "-inf"), picture
    return Page(text)


def need_browser():
    """Skips the rest of a test where there is no browser to draw a page with."""
    if CHROMIUM is None:
        pytest.skip(f"the page is whole, but nothing has drawn it: no {', '.join(NAMES)} in PATH")


def browse(path, width):
    """What a browser makes of a page, and what its console said."""
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu"]
    command += [f"--window-size={width},900", "--enable-logging=stderr"]
    command += ["--virtual-time-budget=2000", "--dump-dom", f"file://{path}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    console = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
    return done.stdout, console
