"""Dashboard, Prometheus and the page about them name metrics that really are there."""

import json
import re
import time
from urllib.request import urlopen

import pytest
import yaml

from serve.http.metrics import Metrics, prometheus_text
from tests.docs.pages import ROOT

FOLDER = ROOT / "docs" / "grafana"
DASHBOARD = json.loads((FOLDER / "dashboard.json").read_text())
QUERIES = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
_NAME = re.compile(r"\b(?:biovl|ray)_\w+")


def families(text: str) -> set[str]:
    """Return the names that a text of Prometheus's declares, a histogram's three among them."""
    found = set()
    for name, kind in re.findall(r"^# TYPE (\S+) (\S+)", text, re.MULTILINE):
        parts = ("_bucket", "_sum", "_count") if kind == "histogram" else ()
        found |= {name, *(name + part for part in parts)}
    return found


@pytest.fixture(scope="module")
def of_service() -> set[str]:
    return families(prometheus_text([Metrics("one").snapshot()]).decode())


def named(prefix: str, *texts: str) -> set[str]:
    return {name for text in texts for name in _NAME.findall(text) if name.startswith(prefix)}


def test_the_dashboard_asks_the_service_for_what_it_exports(of_service: set[str]) -> None:
    asked = named("biovl_", *QUERIES)
    assert len(asked) > 5
    assert asked <= of_service


def test_the_page_lists_all_that_the_service_exports(of_service: set[str]) -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    listed = set(re.findall(r"^\| `(biovl_\w+)`", page, re.MULTILINE))
    assert listed == {n for n in of_service if not re.search(r"_(?:bucket|sum|count)$", n)}


@pytest.mark.ray
def test_the_dashboard_asks_ray_for_what_it_exports(ray_session: None) -> None:
    import ray
    from ray.dashboard.modules.reporter.reporter_agent import METRICS_GAUGES

    @ray.remote
    def task() -> None: ...

    ray.get(task.remote())
    asked = named("ray_", *QUERIES)
    assert len(asked) > 5
    # Nodes without a GPU say nothing of any; these are the names that others use.
    there = {f"ray_{name}" for name in METRICS_GAUGES if "gpus" in name}
    port = ray.nodes()[0]["MetricsExportPort"]
    until = time.monotonic() + 600
    while not asked <= there and time.monotonic() < until:
        # A node reports once a minute here, and what it exports of all processes is long.
        time.sleep(3)
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=600) as answer:
            there |= families(answer.read().decode())
    assert asked <= there


def test_prometheus_asks_the_service_where_it_is_served() -> None:
    config = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    (target,) = config["scrape_configs"][0]["static_configs"][0]["targets"]
    service = yaml.safe_load((ROOT / "serve" / "config.yaml").read_text())
    assert target.rpartition(":")[2] == str(service["http_options"]["port"])
