"""The example dashboard: well-formed, and of nothing but figures that the daemon exports."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from slurm_plugin.api.meters import Meters
from slurm_plugin.daemon import CycleReport
from tests.slurm_plugin.api.test_meters import DECISION, PLAN, SNAPSHOT

DASHBOARD = Path(__file__).parents[3] / "slurm_plugin/packaging/grafana.json"
NAME = re.compile(r"\bhetsched_\w+")
LABELS = re.compile(r"by \(([^)]*)\)|\{(\w+)\s*[=!]|label_values\(\w+, (\w+)\)|\{\{(\w+)\}\}")


@pytest.fixture(scope="module")
def dashboard() -> dict[str, Any]:
    return dict(json.loads(DASHBOARD.read_text()))


@pytest.fixture(scope="module")
def exported() -> dict[str, set[str]]:
    """Every sample that is served after a cycle, with its labels."""
    meters = Meters()
    meters.note(CycleReport(DECISION), SNAPSHOT, PLAN)
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(generate_latest(meters.registry).decode()):
        found.setdefault(family.name, set())
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    # Only once something has changed in Slurm.
    found["hetsched_changes_total"] = {"change"}
    return found


def expressions(dashboard: dict[str, Any]) -> list[str]:
    panels = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    variables = [
        each["query"]["query"]
        for each in dashboard["templating"]["list"]
        if each["type"] == "query"
    ]
    return [*panels, *variables]


def test_every_expression_names_only_what_the_daemon_exports(
    dashboard: dict[str, Any], exported: dict[str, set[str]]
) -> None:
    for expression in expressions(dashboard):
        names = NAME.findall(expression)
        assert names, expression
        assert set(names) <= set(exported), expression
        assert expression.count("(") == expression.count(")")
        assert expression.count("{") == expression.count("}")


def test_every_label_is_one_of_the_figure(
    dashboard: dict[str, Any], exported: dict[str, set[str]]
) -> None:
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            (name,) = set(NAME.findall(target["expr"]))
            for groups in LABELS.findall(f"{target['expr']} {target['legendFormat']}"):
                for label in filter(None, re.split(r",\s*", "".join(groups))):
                    assert label in exported[name], (panel["title"], label)


def test_every_figure_that_matters_has_its_place(
    dashboard: dict[str, Any], exported: dict[str, set[str]]
) -> None:
    shown = {name for text in expressions(dashboard) for name in NAME.findall(text)}
    shown = {name.removesuffix("_bucket").removesuffix("_total") for name in shown}
    families = {
        name.removesuffix("_total")
        for name in exported
        if not re.search("_(bucket|sum|count|created)$", name)
    }
    assert families - shown == {"hetsched_refused_changes"}


def test_the_panels_have_what_grafana_asks_of_them(dashboard: dict[str, Any]) -> None:
    assert dashboard["schemaVersion"] >= 36
    assert dashboard["uid"] == "hetsched"
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        assert panel["type"] in {"timeseries", "stat"}
        assert panel["title"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        assert all(x < 24 for x, _ in cells)
        taken |= cells
        refs = [target["refId"] for target in panel["targets"]]
        assert len(set(refs)) == len(refs)
    names = [each["name"] for each in dashboard["templating"]["list"]]
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(dashboard["panels"])))
    assert used == set(names)
    # Nothing is asked by user or job.
    assert not re.search(r"\b(user|job)\b\s*[=)]", "".join(expressions(dashboard)))
