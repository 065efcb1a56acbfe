"""What the pages show for Prometheus and Grafana uses series that exist, and the URLs and settings work."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.test import Client, override_settings
from prometheus_client import generate_latest

from django_pgqueue import conf
from django_pgqueue.metrics import registry
from tests.support.factories import JobFactory, JobStatFactory, WorkerFactory

from .shop import DOCS, EXAMPLES, setting

pytestmark = pytest.mark.django_db(databases=["default", "other"])

DASHBOARD: dict[str, Any] = json.loads((DOCS / "_static/monitoring/grafana-dashboard.json").read_text())
ALERTS = yaml.safe_load((EXAMPLES / "monitoring/alerts.yaml").read_text())
PANELS = [(panel["title"], target["expr"]) for panel in DASHBOARD["panels"] for target in panel["targets"]]
RULES = [(rule["alert"], rule["expr"]) for group in ALERTS["groups"] for rule in group["rules"]]
VARIABLES = [
    (variable["name"], variable["query"]["query"])
    for variable in DASHBOARD["templating"]["list"]
    if variable["type"] == "query"
]


@pytest.fixture(name="labels")
def _labels() -> dict[str, set[str]]:
    """The labels of each series of a scrape."""
    JobFactory.create()
    JobStatFactory.create()
    lines = generate_latest(registry(["default"])).decode().splitlines()
    found: dict[str, set[str]] = {}
    for line in lines:
        if match := re.match(r"(\w+)\{(.*)\} ", line):
            found[match[1]] = {"le", *re.findall(r"(\w+)=", match[2])}
    return found


@pytest.mark.parametrize(("name", "query"), [*PANELS, *RULES, *VARIABLES])
def test_every_query_uses_series_and_labels_that_exist(
    name: str, query: str, labels: dict[str, set[str]]
) -> None:
    used = re.findall(r"(pgqueue_\w+)(?:\{([^}]*)\})?", query)
    assert used, name
    for series, matchers in used:
        assert series in labels
        assert set(re.findall(r"(\w+)\s*[=!]", matchers or "")) <= labels[series]
    for group in re.findall(r"\b(?:by|on) \(([^)]*)\)", query):
        assert {each.strip() for each in group.split(",")} <= set().union(*(labels[each] for each, _ in used))


def test_the_panels_fill_rows_and_do_not_overlap() -> None:
    cells: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        of_panel = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & of_panel
        cells |= of_panel
        assert panel["description"].endswith(".")
    assert max(x for x, _ in cells) == 23
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_the_page_lists_every_series(labels: dict[str, set[str]]) -> None:
    listed = set(re.findall(r"^\| `(pgqueue_\w+)`", (DOCS / "howto/monitoring.md").read_text(), re.MULTILINE))
    assert listed == {re.sub(r"_(bucket|count|sum)$", "", series) for series in labels}


def test_the_urls_and_the_settings(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setenv("MONITORING_TOKEN", "an example, not a secret")
    WorkerFactory.create_batch(2)
    with override_settings(ROOT_URLCONF="shop.monitoring_urls", **setting("monitoring")):
        assert conf.problems() == []
        assert client.get("/queue/health/?database=default", REMOTE_ADDR="192.0.2.1").status_code == 401
        headers = {"Authorization": "Bearer an example, not a secret"}
        far: dict[str, Any] = {"headers": headers, "REMOTE_ADDR": "192.0.2.1"}
        answer = client.get("/queue/health/?database=default", **far)
        assert (answer.status_code, answer.content[:17]) == (200, b"default: healthy:")
        assert b"pgqueue_up" in client.get("/queue/metrics/", **far).content
        assert client.get("/queue/metrics/", REMOTE_ADDR="10.20.0.7").status_code == 200
    monkeypatch.delenv("MONITORING_TOKEN")
    with override_settings(**setting("monitoring")):
        assert conf.current().monitoring_token is None


def test_the_scrape_asks_for_the_url() -> None:
    (job,) = yaml.safe_load((EXAMPLES / "monitoring/prometheus.yaml").read_text())["scrape_configs"]
    assert job["metrics_path"] == "/queue/metrics/"
    script = Path(EXAMPLES / "monitoring/uptime.sh")
    assert stat.S_IMODE(script.stat().st_mode) & stat.S_IXUSR
