"""Prometheus' own checker on what is in deploy/, and on the metrics of a real node."""

import json
import re
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

import raftline
from tests.cluster.conftest import MakeRig

ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yml"
DASHBOARDS = sorted((ROOT / "deploy" / "grafana").glob("*.json"))
CONFIGS = sorted((ROOT / "deploy").rglob("prometheus.yml"))


@pytest.fixture(scope="module")
def promtool() -> str:
    command = [sys.executable, str(ROOT / "scripts" / "install_promtool.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    if done.returncode != 0:
        pytest.skip("promtool is not here and cannot be unpacked")
    return done.stdout.strip()


def run(promtool: str, *words: str | Path, text: str | None = None) -> str:
    """Run it; what it complains of fails the test."""
    command = [promtool, *map(str, words)]
    done = subprocess.run(
        command, input=text, capture_output=True, text=True, timeout=60, check=False
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    return said


def test_alert_rules_are_sound(promtool: str) -> None:
    count = sum(len(group["rules"]) for group in yaml.safe_load(ALERTS.read_text())["groups"])
    assert f"SUCCESS: {count} rules found" in run(promtool, "check", "rules", "--lint=all", ALERTS)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.parent.name)
def test_configurations_are_sound(promtool: str, path: Path) -> None:
    assert "SUCCESS" in run(promtool, "check", "config", "--syntax-only", path)


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_every_panel_asks_in_sound_promql(promtool: str, path: Path, tmp_path: Path) -> None:
    panels = json.loads(path.read_text())["panels"]
    asked = [target["expr"] for panel in panels for target in panel.get("targets", [])]
    rules = [
        {"record": f"panel:{number}", "expr": plain(expr)} for number, expr in enumerate(asked)
    ]
    file = tmp_path / "panels.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    assert len(rules) > 20
    run(promtool, "check", "rules", file)


def plain(expr: str) -> str:
    """Put something in place of Grafana's variables."""
    expr = expr.replace("$__rate_interval", "1m").replace("$__range", "1h")
    return re.sub(r"\$\{?\w+\}?", ".+", expr)


def test_a_wrong_expression_is_noticed(promtool: str, tmp_path: Path) -> None:
    file = tmp_path / "wrong.yml"
    wrong = {"record": "a:b", "expr": "sum by (topic (raftline_ready)"}
    file.write_text(yaml.safe_dump({"groups": [{"name": "wrong", "rules": [wrong]}]}))
    with pytest.raises(AssertionError, match="could not parse expression"):
        run(promtool, "check", "rules", file)


def series(name: str, values: str) -> dict[str, str]:
    return {"series": name, "values": values}


CASES: dict[str, tuple[list[dict[str, str]], str, int]] = {
    # alert: its series, a time at which it is to fire, how often
    "RaftlineNodeDown": ([series('up{job="raftline",instance="a"}', "0x20")], "5m", 1),
    "RaftlineNodeNotReady": (
        [
            series('raftline_ready{job="raftline",instance="a"}', "0x20"),
            series('raftline_ready{job="raftline",instance="b"}', "1x20"),
        ],
        "5m",
        1,
    ),
    "RaftlineWithoutLeader": (
        [series('raftline_shards_leaderless{job="raftline",instance="a"}', "2x20")],
        "5m",
        1,
    ),
    "RaftlineUnderReplicated": (
        [series('raftline_shards_under_replicated{job="raftline",instance="a"}', "1x20")],
        "4m",  # not yet: it is to last for five minutes
        0,
    ),
}


@pytest.mark.parametrize("alert", CASES)
def test_an_alert_fires_when_it_should(promtool: str, tmp_path: Path, alert: str) -> None:
    rows, moment, times = CASES[alert]
    (rule,) = [
        rule
        for group in yaml.safe_load(ALERTS.read_text())["groups"]
        for rule in group["rules"]
        if rule["alert"] == alert
    ]
    (tmp_path / "alerts.yml").write_text(ALERTS.read_text())
    asked = f'count(ALERTS{{alertname="{alert}",alertstate="firing"}}) or vector(0)'
    test: dict[str, Any] = {
        "rule_files": ["alerts.yml"],
        "evaluation_interval": "30s",
        "tests": [
            {
                "interval": "30s",
                "input_series": rows,
                "promql_expr_test": [
                    {"expr": asked, "eval_time": moment, "exp_samples": [{"value": times}]}
                ],
            }
        ],
    }
    file = tmp_path / "test.yml"
    file.write_text(yaml.safe_dump(test))
    assert rule["for"]
    run(promtool, "test", "rules", file)


def test_the_page_of_a_node_is_sound(promtool: str, make_rig: MakeRig) -> None:
    rig = make_rig(nodes=1)
    node = rig.node(rig.names[0])
    with raftline.connect(node.http) as line:
        line.send_many("orders", [b"x"] * 20)
        line.flush()
        line.ack_many(line.receive_many("orders", group="g", count=20, wait="1s"), wait=True)
        line.send_now("orders", b"later", delay="1h")
    with urllib.request.urlopen(f"{node.http}/metrics", timeout=10) as reply:
        page = reply.read().decode()
    assert "raftline_group_settled_messages_total" in page
    run(promtool, "check", "metrics", text=page)
