"""Short ways to ask a node over HTTP, and to read its metrics as Prometheus does."""

import json
import urllib.request
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from raftline.chaos.rig import Rig

Samples = dict[str, list[tuple[dict[str, str], float]]]


def ask(url: str, method: str, path: str, body: Any = None) -> Any:
    """Return the JSON of an answer."""
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(f"{url}{path}", data, method=method)
    with urllib.request.urlopen(asked, timeout=20) as reply:
        return json.load(reply)


def scrape(url: str) -> Samples:
    """Return the samples of a node by name."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=20) as reply:
        text = reply.read().decode()
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def total(rig: Rig, name: str, **labels: str) -> float:
    """Return the sum of a metric over the nodes that run, of rows with these labels."""
    return sum(
        value
        for node in rig.running()
        for row, value in scrape(rig.node(node).http).get(name, [])
        if labels.items() <= row.items()
    )
