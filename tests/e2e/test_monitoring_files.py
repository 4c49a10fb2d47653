"""What packaging/monitoring has for Grafana and Prometheus can be read, and asks for nothing that
servers do not have."""

import json
import pathlib
import re
import subprocess

import pytest
import toolchains
import yaml
from metrics_page import STORE_LABELS, families
from server import Server

ROOT = pathlib.Path(__file__).parents[2]
FOLDER = ROOT / "packaging" / "monitoring"
RULES = FOLDER / "alerts.yaml"
CASES = ROOT / "tests" / "monitoring" / "alert_cases.yaml"
OPERATIONS = ROOT / "docs" / "operations.md"
NAME = re.compile(r"\b(?:pelton|grpc|process)_[a-z_]+[a-z](?=[{\[\s)/*-]|$)")
BY = re.compile(r"\b(?:by|on) \(([^)]*)\)")
SHOWN = re.compile(r"{{ ?(?:\$labels\.)?([a-z_]+)(?: |}})")
# What Prometheus adds, and buckets have.
EXTERNAL = {"instance", "job", "le"}


def rules():
    content = yaml.safe_load(RULES.read_text())
    assert list(content) == ["groups"]
    return [rule for group in content["groups"] for rule in group["rules"]]


def dashboard():
    return json.loads((FOLDER / "dashboard.json").read_text())


def targets():
    panels = [panel for panel in dashboard()["panels"] if panel["type"] != "row"]
    return [target for panel in panels for target in panel["targets"]]


@pytest.fixture(scope="module")
def page(binary, tmp_path_factory):
    """Of all that servers of each kind have, the names, the labels, and the labels of each."""
    folder = tmp_path_factory.mktemp("monitored")
    names, labels, labels_of = set(), set(), {}
    common = ["--metrics-listen", "127.0.0.1:0", "--threads", "1", "--log-segment", "4MiB"]
    own = [f"--tls-self-signed={folder / 'tls'}", "--blob-quota", "1GiB"]
    # Nobody listens there: the spans have metrics all the same.
    own += ["--otlp-endpoint", "http://127.0.0.1:1", "--backup-root", str(folder / "backups")]
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
                    labels_of.setdefault(sample.name, set()).update(sample.labels)
    for name, of_name in STORE_LABELS.items():
        names.add(name)
        labels.update(of_name)
        labels_of[name] = of_name
    return names, labels, labels_of


def expressions():
    return [rule["expr"] for rule in rules()] + [target["expr"] for target in targets()]


@pytest.mark.parametrize("expression", expressions())
def test_each_metric_is_on_the_page_of_a_server(page, expression):
    names, labels, _ = page
    asked = {name for name in NAME.findall(expression) if name not in labels}
    assert asked or expression.startswith("up{"), expression
    assert asked - names == set()
    grouped = {label.strip() for found in BY.findall(expression) for label in found.split(",")}
    assert grouped - labels - EXTERNAL == set()


def test_what_is_shown_of_labels_exists(page):
    _, labels, _ = page
    texts = [text for rule in rules() for text in rule["annotations"].values()]
    texts += [target["legendFormat"] for target in targets()]
    shown = {label for text in texts for label in SHOWN.findall(text)}
    assert shown - labels - EXTERNAL - {"value"} == set()


def labels_left(expression, labels_of):
    """The labels that a result has: those that it is grouped by, or all of its metrics."""
    if grouped := re.search(r"\b(?:sum|min|max|count) by \(([^)]*)\)", expression):
        return {label.strip() for label in grouped[1].split(",")}
    if re.match(r"(?:sum|min|max|count)\(", expression):
        return set()
    of_metrics = (labels_of.get(name, set()) for name in NAME.findall(expression))
    return set().union({"instance", "job"}, *of_metrics)


def test_what_is_shown_of_labels_is_left_by_the_expression(page):
    _, _, labels_of = page
    shown = [(rule["expr"], text) for rule in rules() for text in rule["annotations"].values()]
    shown += [(target["expr"], target["legendFormat"]) for target in targets()]
    for expression, text in shown:
        missing = set(SHOWN.findall(text)) - {"value"} - labels_left(expression, labels_of)
        assert not missing, (expression, text)


def test_counters_are_shown_as_rates_and_gauges_as_they_are():
    is_counter = re.compile(r".*_(?:total|bucket|sum|count)$").match
    for expression in expressions():
        rates = set(re.findall(r"\b(?:rate|increase)\((\w+)", expression))
        assert all(map(is_counter, rates)), expression
    for target in targets():
        rates = set(re.findall(r"\brate\((\w+)", target["expr"]))
        names = re.findall(r"\b(?:pelton|grpc|process)_\w+", target["expr"])
        assert set(filter(is_counter, names)) == rates, target["expr"]


def unit_of(expression):
    """The unit in which a result is, by the names of its metrics; `None`: it is a number."""
    if " / " in expression or "process_cpu_seconds_total" in expression:
        return "percentunit"
    if "* 1000" in expression:
        return "dateTimeFromNow"
    for end, unit in (
        (r"_bytes\b", "bytes"),
        (r"_bytes_total\b", "Bps"),
        (r"_milliseconds\b", "ms"),
        (r"_seconds(?:_bucket)?\b", "s"),
    ):
        if re.search(end, expression):
            return unit
    return None


def test_panels_have_the_units_of_their_metrics():
    units = {"percentunit", "dateTimeFromNow", "bytes", "Bps", "ms", "s"}
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", []):
            unit = panel["fieldConfig"]["defaults"]["unit"]
            assert unit_of(target["expr"]) == (unit if unit in units else None), panel["title"]


def test_rules_have_what_prometheus_wants():
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names) > 10
    for rule in rules():
        assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}, rule
        assert set(rule["annotations"]) == {"summary", "description", "runbook"}, rule
        assert rule["labels"]["severity"] in ("critical", "warning"), rule
        assert rule["expr"].count("(") == rule["expr"].count(")"), rule


def test_somebody_is_woken_where_nothing_can_be_written_or_reached():
    critical = {rule["alert"] for rule in rules() if rule["labels"]["severity"] == "critical"}
    assert critical == {
        "PeltonDown",
        "PeltonCertificateEndsSoon",
        "PeltonLogFailed",
        "PeltonLogFull",
        "PeltonLogNotReady",
        "PeltonRoomNearlyUsed",
        "PeltonStoreNotServing",
        "PeltonDatabaseFailing",
        "PeltonReplicasLate",
        "PeltonReplicaBlocked",
    }


def anchors(page):
    """What links to the headings of a page end with."""
    for heading in re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE):
        yield re.sub(r"[^a-z0-9 _-]", "", heading.lower()).replace(" ", "-")


def test_each_rule_names_a_heading_that_exists():
    known = {f"docs/operations.md#{anchor}" for anchor in anchors(OPERATIONS)}
    assert {rule["annotations"]["runbook"] for rule in rules()} - known == set()


def test_each_rule_has_a_case_in_which_it_fires_and_a_moment_before():
    cases = {case["name"]: case for case in yaml.safe_load(CASES.read_text())["tests"]}
    assert set(cases) == {rule["alert"] for rule in rules()}
    for name, case in cases.items():
        fired = [
            {sample["labels"] for sample in moment.get("exp_samples", [])}
            for moment in case["promql_expr_test"]
        ]
        own = f'{{alertname="{name}"}}'
        assert own not in fired[0], name
        assert any(own in labels for labels in fired), name


def test_rules_fire_when_they_should_by_the_program_of_prometheus():
    program = toolchains.promtool()
    for words in (["check", "rules", RULES], ["test", "rules", CASES]):
        done = subprocess.run([program, *words], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "SUCCESS" in done.stdout


def test_what_panels_ask_for_is_understood_by_the_program_of_prometheus(tmp_path):
    program = toolchains.promtool()
    asked = [target["expr"].replace("$__rate_interval", "5m") for target in targets()]
    recorded = [{"record": f"panel:{at}", "expr": expr} for at, expr in enumerate(asked)]
    file = tmp_path / "panels.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": recorded}]}))
    words = [program, "check", "rules", file]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(asked)} rules found" in done.stdout


def test_each_panel_has_a_unit_and_is_of_the_servers_that_were_chosen():
    for panel in dashboard()["panels"]:
        if panel["type"] == "row":
            continue
        assert panel["description"] and panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        names = [target["legendFormat"] for target in panel["targets"]]
        assert panel["type"] == "stat" or all(names), panel["title"]
        for target in panel["targets"]:
            metrics = len(re.findall(r"\b(?:pelton|grpc_server|process)_\w+", target["expr"]))
            chosen = target["expr"].count('{job=~"$job",instance=~"$instance"')
            assert chosen >= 1 and chosen == metrics, target["expr"]


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
    page = OPERATIONS.read_text()
    table = page[page.index("| alert on |") : page.index("| names | what |")]
    alerted = set(NAME.findall(" ".join(re.findall(r"^\| `(.*?)`", table, re.MULTILINE))))
    asked = {name for rule in rules() for name in NAME.findall(rule["expr"])}
    assert len(alerted) > 10
    # What is compared with another metric is named on the page by the one that it is about.
    compared = {
        "pelton_build_info",
        "pelton_log_durable_sequence",
    }
    assert alerted - asked == set()
    assert asked - alerted - compared == set()
