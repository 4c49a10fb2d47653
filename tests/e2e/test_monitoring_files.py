"""What packaging/monitoring has for Grafana and Prometheus can be read, and asks for nothing that
servers do not have."""

import json
import pathlib
import re

import pytest
import yaml
from metrics_page import families
from server import Server

FOLDER = pathlib.Path(__file__).parents[2] / "packaging" / "monitoring"
NAME = re.compile(r"\b(?:pelton|grpc|process)_[a-z_]+[a-z](?=[{\[\s)/*-]|$)")
BY = re.compile(r"\b(?:by|on) \(([^)]*)\)")
SHOWN = re.compile(r"{{ ?(?:\$labels\.)?([a-z_]+)(?: |}})")
# What Prometheus adds, and buckets have.
EXTERNAL = {"instance", "job", "le"}


def rules():
    content = yaml.safe_load((FOLDER / "alerts.yaml").read_text())
    assert list(content) == ["groups"]
    return [rule for group in content["groups"] for rule in group["rules"]]


def dashboard():
    return json.loads((FOLDER / "dashboard.json").read_text())


def targets():
    panels = [panel for panel in dashboard()["panels"] if panel["type"] != "row"]
    return [target for panel in panels for target in panel["targets"]]


@pytest.fixture(scope="module")
def page(binary, tmp_path_factory):
    """Names and labels of all that servers of each kind have."""
    folder = tmp_path_factory.mktemp("monitored")
    names, labels = set(), set()
    common = ["--metrics-listen", "127.0.0.1:0", "--threads", "1", "--log-segment", "4MiB"]
    own = [f"--tls-self-signed={folder / 'tls'}", "--blob-quota", "1GiB"]
    data = [["--data", str(folder / name)] for name in ("own", "leader", "replica")]
    with (
        Server(binary, *common, *own, *data[0]) as with_tls,
        Server(binary, *common, *data[1]) as leader,
        Server(binary, *common, *data[2], "--follow", leader.address) as replica,
    ):
        for server in (with_tls, leader, replica):
            for family in families(server):
                for sample in family.samples:
                    names.add(sample.name)
                    labels.update(sample.labels)
    return names, labels


def expressions():
    return [rule["expr"] for rule in rules()] + [target["expr"] for target in targets()]


@pytest.mark.parametrize("expression", expressions())
def test_each_metric_is_on_the_page_of_a_server(page, expression):
    names, labels = page
    asked = {name for name in NAME.findall(expression) if name not in labels}
    assert asked or expression.startswith("up{"), expression
    assert asked - names == set()
    grouped = {label.strip() for found in BY.findall(expression) for label in found.split(",")}
    assert grouped - labels - EXTERNAL == set()


def test_what_is_shown_of_labels_exists(page):
    _, labels = page
    texts = [text for rule in rules() for text in rule["annotations"].values()]
    texts += [target["legendFormat"] for target in targets()]
    shown = {label for text in texts for label in SHOWN.findall(text)}
    assert shown - labels - EXTERNAL - {"value"} == set()


def test_rules_have_what_prometheus_wants():
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names) > 10
    for rule in rules():
        assert set(rule) - {"for"} == {"alert", "expr", "labels", "annotations"}, rule
        assert set(rule["annotations"]) == {"summary", "description"}, rule
        assert rule["labels"]["severity"] in ("critical", "warning"), rule
        assert rule["expr"].count("(") == rule["expr"].count(")"), rule


def test_panels_have_numbers_of_their_own_and_do_not_overlap():
    panels = dashboard()["panels"]
    numbers = [panel["id"] for panel in panels]
    assert len(set(numbers)) == len(numbers)
    cells = set()
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24, panel["title"]
        taken = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not taken & cells, panel["title"]
        cells |= taken


def test_what_the_page_of_operations_alerts_on_is_among_the_rules():
    page = (FOLDER.parents[1] / "docs" / "operations.md").read_text()
    table = page[page.index("| alert on |") : page.index("| names | what |")]
    alerted = set(NAME.findall(" ".join(re.findall(r"^\| `(.*?)`", table, re.MULTILINE))))
    asked = {name for rule in rules() for name in NAME.findall(rule["expr"])}
    assert len(alerted) > 10
    assert alerted - asked == set()
