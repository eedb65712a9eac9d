"""Dashboards and alerts ask only for metrics that are there, by labels they have."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from raftline.model import errors
from raftline.telemetry.metrics import COUNTER, HISTOGRAM, METRICS

DEPLOY = Path(__file__).parents[2] / "deploy"
DASHBOARDS = sorted((DEPLOY / "grafana").glob("*.json"))
ALERTS = DEPLOY / "prometheus" / "alerts.yml"
OF_SCRAPES = {"job", "instance"}  # labels that Prometheus adds
NAME = re.compile(r"\b((?:raftline|process)_[a-z_]+)(\{[^}]*\})?(\[)?")
MATCH = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*"([^"]*)"')
GROUPED = re.compile(r"\b(?:by|without)\s*\(([^)]*)\)")
SUFFIX = re.compile(r"_(bucket|sum|count)$")


def complaints(expr: str) -> Iterator[str]:
    """Say what is wrong with the names in an expression."""
    known: set[str] = set(OF_SCRAPES)
    for name, selector, ranged in NAME.findall(expr):
        base = name if name in METRICS else SUFFIX.sub("", name)
        metric = METRICS.get(base)
        if metric is None or (base != name and metric.kind != HISTOGRAM):
            yield f"there is no metric {name}"
            continue
        labels = {*metric.labels, *OF_SCRAPES, *(["le"] if metric.kind == HISTOGRAM else [])}
        known |= labels
        for label, value in MATCH.findall(selector):
            if label not in labels:
                yield f"{name} has no label {label}"
            if label == "code":
                yield from (f"no error is {c}" for c in value.split("|") if c not in codes())
        if metric.kind == COUNTER and not ranged:
            yield f"{name} is a counter: ask for its rate"
    for group in GROUPED.findall(expr):
        for label in filter(None, map(str.strip, group.split(","))):
            if label not in known:
                yield f"nothing in {expr} has a label {label}"


def codes() -> set[str]:
    return {
        kind.code
        for kind in vars(errors).values()
        if isinstance(kind, type) and hasattr(kind, "code")
    }


def expressions(dashboard: dict[str, Any]) -> list[tuple[str, str]]:
    found = [
        (panel["title"], target["expr"])
        for panel in dashboard["panels"]
        for target in panel.get("targets", [])
    ]
    for variable in dashboard["templating"]["list"]:
        asked = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable.get("definition", ""))
        if asked:
            found.append((variable["name"], f"sum by ({asked[2]}) (rate({asked[1]}[1m]))"))
    return found


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_dashboards_ask_for_what_is_there(path: Path) -> None:
    dashboard = json.loads(path.read_text())
    asked = expressions(dashboard)
    assert len(asked) > 20
    wrong = [f"{title}: {c}" for title, expr in asked for c in complaints(expr)]
    assert not wrong, "\n".join(wrong)


def test_panels_have_their_own_places() -> None:
    for path in DASHBOARDS:
        panels = json.loads(path.read_text())["panels"]
        assert len({panel["id"] for panel in panels}) == len(panels)
        taken: set[tuple[int, int]] = set()
        for panel in panels:
            at = panel["gridPos"]
            cells = {
                (x, y)
                for x in range(at["x"], at["x"] + at["w"])
                for y in range(at["y"], at["y"] + at["h"])
            }
            assert at["x"] + at["w"] <= 24
            assert not cells & taken, panel["title"]
            taken |= cells


def alerts() -> list[dict[str, Any]]:
    return [
        rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]
    ]


@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: rule["alert"])
def test_alerts_ask_for_what_is_there(rule: dict[str, Any]) -> None:
    assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert set(rule["annotations"]) == {"summary", "description"}
    assert re.fullmatch(r"\d+[sm]", rule["for"])
    assert not list(complaints(rule["expr"]))
    named = {"value"} | set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
    grouped = GROUPED.findall(rule["expr"])
    if grouped:
        assert named - {"value"} <= {label.strip() for label in grouped[0].split(",")}


def test_alerts_have_names_of_their_own() -> None:
    names = [rule["alert"] for rule in alerts()]
    assert len(set(names)) == len(names) >= 15


@pytest.mark.parametrize(
    "expr",
    [
        "raftline_no_such_thing",
        'raftline_ready{topic="a"}',
        "raftline_requests_total > 5",
        "raftline_ready_bucket",
        "sum by (group) (raftline_ready)",
        'rate(raftline_requests_refused_total{code="nonsense"}[1m])',
    ],
)
def test_a_wrong_expression_is_noticed(expr: str) -> None:
    assert list(complaints(expr))
