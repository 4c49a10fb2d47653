"""Pages of the reports of the lab and of loads: each of them is whole by itself, and a browser
draws it, narrow and wide, without a complaint."""

import json
import subprocess

import html_page
import pytest
from environment import clean_environment

SWEEP = ["--keys", 50, "--connections", 1, "--runs", 1, "--duration", "100ms", "--warm-up", "0s"]
LOAD = ["--keys", 50, "--connections", 2, "--in-flight", 4, "--calls", 500, "--warm-up", "0s"]


def results(path, rate):
    """Runs as `pelton load --output json` prints them."""
    line = {"calls_per_s": rate, "p50_us": 1e6 / rate, "p99_us": 3e6 / rate, "succeeded": 1000}
    line |= {"what": "get=100", "own_us": 0.5, "void": False}
    path.write_text(f"{json.dumps(line)}\n" * 3)
    return path


def sweep(binary, server, folder, page, *over):
    return ["lab", "sweep", "--address", server.address, *SWEEP, *over, "--html", page]


def fields(binary, server, folder, page):
    over = ["--over", "mode=multiplexed,exclusive", "--over", "batch=1,2"]
    return sweep(binary, server, folder, page, *over)


def lines(binary, server, folder, page):
    return sweep(binary, server, folder, page, "--over", "in-flight=1,2,4")


def compared(binary, server, folder, page):
    one, other = results(folder / "one", 1e5), results(folder / "other", 1.1e5)
    return ["lab", "compare", one, other, "--html", page]


def tapped(binary, server, folder, page):
    client = ["--", binary, "load", "--address", "{target}", *LOAD]
    return ["lab", "tap", "--target", server.address, "--timeline", page, *client]


def diagnosed(binary, server, folder, page):
    return ["lab", "diagnose", "--target", server.address, "--max-rate", 500, "--html", page]


def client_diagnosed(binary, server, folder, page):
    client = f"{binary} echo --address {{target}} hello"
    command = ["lab", "diagnose", "--target", server.address, "--client", client]
    return [*command, "--client-time", "1s", "--html", page]


def sizes_of_chunks(binary, server, folder, page):
    return ["lab", "scenario", "chunk-size", "--quick", "--html", page]


def loaded(binary, server, folder, page):
    command = ["load", "--address", server.address, *LOAD, "--rate", 2000]
    return [*command, "--require", "p99<600s", "--html", page]


def partly_failed(binary, server, folder, page):
    # A method that is not there.
    method = ["--method", "pelton.v1.Echo/None", "--data-file", "/dev/null"]
    command = ["load", "--address", server.address, *method, "--duration", "300ms"]
    return [*command, "--warm-up", "0s", "--html", page]


def loaded_as_in_an_article(binary, server, folder, page):
    command = ["load", "kvstore", "--address", server.address, "--duration", "1s"]
    return [*command, "--value-mean", "100", "--html", page]


# What makes the page, how many pictures it has, and what is drawn in them at least.
PAGES = [
    (lines, 4, {"polyline": 4}),
    (fields, 5, {"rect": 8}),
    (compared, 4, {"polyline": 4}),
    (tapped, 1, {"rect": 100}),
    (diagnosed, 3, {"polyline": 3}),
    (client_diagnosed, 2, {"polyline": 3}),
    (sizes_of_chunks, 6, {"polyline": 10, "rect": 50}),
    (loaded, 4, {"polyline": 8}),
    (partly_failed, 2, {"polyline": 2}),
    (loaded_as_in_an_article, 4, {"polyline": 6}),
]
# Of these no call succeeds.
FAILING = {partly_failed}


@pytest.mark.parametrize("make, pictures, parts", PAGES, ids=[page[0].__name__ for page in PAGES])
def test_a_page_needs_nothing_and_is_drawn(binary, server, tmp_path, make, pictures, parts):
    page = tmp_path / "page.html"
    words = [binary, *make(binary, server, tmp_path, page)]
    words = list(map(str, words))
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=200, env=clean_environment()
    )
    assert done.returncode in ((3,) if make in FAILING else (0, 1)), done.stderr
    drawn = html_page.check(page.read_text())
    assert drawn.count["svg"] >= pictures, drawn.count
    assert all(drawn.count.get(tag, 0) >= most for tag, most in parts.items()), drawn.count
    html_page.need_browser()
    for width in (360, 1280):
        dom, console = html_page.browse(page, width)
        assert console == []
        assert dom.count("<svg") == drawn.count["svg"]


def test_a_page_that_cannot_be_kept_is_said_before_any_load(binary, server):
    for words in (
        ["lab", "diagnose", "--target", server.address],
        ["lab", "scenario", "in-flight", "--quick"],
        ["load", "--address", server.address],
        ["load", "tkrzw", "--address", server.address],
    ):
        command = [binary, *words, "--html", "/proc/no/page.html"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 3 and done.stdout == "", done
        assert "--html: cannot write /proc/no/page.html" in done.stderr
        assert len(done.stderr.splitlines()) == 1, done.stderr
