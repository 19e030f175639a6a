"""The example dashboard: well-formed, and of nothing but figures that the daemon exports."""

import json
import re
from pathlib import Path

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from slurm_plugin.api.meters import Meters
from slurm_plugin.daemon import CycleReport
from tests.slurm_plugin.api.test_meters import DECISION, PLAN, SNAPSHOT

FILE = Path(__file__).parents[3] / "slurm_plugin/packaging/grafana.json"
DASHBOARD = json.loads(FILE.read_text())
NAME = re.compile(r"\bhetsched_\w+")
LABELS = re.compile(r"by \(([^)]*)\)|\{(\w+)\s*[=!]|label_values\(\w+, (\w+)\)|\{\{(\w+)\}\}")


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
    for each in ("hetsched_changes_total", "hetsched_refused_changes_total"):
        found[each] = {"change"}
    return found


EXPORTED = exported()
EXPRESSIONS = [
    *(target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]),
    *(
        each["query"]["query"]
        for each in DASHBOARD["templating"]["list"]
        if each["type"] == "query"
    ),
]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_every_expression_names_only_what_the_daemon_exports(expression: str) -> None:
    names = NAME.findall(expression)
    assert names
    assert set(names) <= set(EXPORTED)
    assert expression.count("(") == expression.count(")")
    assert expression.count("{") == expression.count("}")


def test_every_label_is_one_of_the_figure() -> None:
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            (name,) = set(NAME.findall(target["expr"]))
            for groups in LABELS.findall(f"{target['expr']} {target['legendFormat']}"):
                for label in filter(None, re.split(r",\s*", "".join(groups))):
                    assert label in EXPORTED[name], (panel["title"], label)


def test_every_figure_that_matters_has_its_place() -> None:
    shown = {name for text in EXPRESSIONS for name in NAME.findall(text)}
    shown = {name.removesuffix("_bucket").removesuffix("_total") for name in shown}
    families = {
        name.removesuffix("_total")
        for name in EXPORTED
        if not re.search("_(bucket|sum|count|created)$", name)
    }
    assert families - shown == {"hetsched_refused_changes"}


def test_the_panels_have_what_grafana_asks_of_them() -> None:
    assert DASHBOARD["schemaVersion"] >= 36
    assert DASHBOARD["uid"] == "hetsched"
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
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
    names = [each["name"] for each in DASHBOARD["templating"]["list"]]
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(DASHBOARD["panels"])))
    assert used == set(names)
    # Nothing is asked by user or job.
    assert not re.search(r"\b(user|job)\b\s*[=)]", "".join(EXPRESSIONS))
