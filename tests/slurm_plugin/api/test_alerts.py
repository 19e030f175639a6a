"""The rules for Prometheus: of figures that the daemon exports, each with its part of the page."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.slurm_plugin.api.test_dashboard import EXPORTED, NAME

ROOT = Path(__file__).parents[3]
RULES = ROOT / "slurm_plugin/packaging/alerts.yaml"
CASES = Path(__file__).with_name("alerts.test.yaml")
PAGE = ROOT / "docs/live/alerts.md"
ALERTS = re.findall(r"- alert: (\w+)", RULES.read_text())


def test_rules_are_of_what_is_exported_alone() -> None:
    expressions = "".join(
        re.findall(r"expr: (?:>-)?(.*?)\n {8}(?:for|labels):", RULES.read_text(), re.DOTALL)
    )
    assert set(NAME.findall(expressions)) <= set(EXPORTED)
    assert expressions.count("hetsched_") >= len(ALERTS)


def test_every_alert_has_a_part_of_the_page_that_says_what_to_do() -> None:
    assert re.findall(r"^## (Hetsched\w+)\n\n\w", PAGE.read_text(), re.MULTILINE) == ALERTS
    named = re.findall(r"runbook: docs/live/alerts.md#(\w+)", RULES.read_text())
    assert named == [alert.lower() for alert in ALERTS]


def test_every_alert_has_a_case_in_which_it_comes_and_one_in_which_it_does_not() -> None:
    text = CASES.read_text()
    assert re.findall(r"- \{eval_time: \w+, alertname: (\w+)\}", text) == ALERTS
    assert re.findall(r"\n {8}alertname: (\w+)\n {8}exp_alerts:", text) == ALERTS


@pytest.mark.skipif(shutil.which("promtool") is None, reason="there is no promtool here")
def test_the_cases_hold() -> None:
    done = subprocess.run(["promtool", "test", "rules", CASES], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
