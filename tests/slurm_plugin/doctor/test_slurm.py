"""What Slurm's own words are taken for."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from slurm_plugin.daemon.finding import Finding
from slurm_plugin.daemon.process.configuration import DaemonConfiguration
from slurm_plugin.daemon.settings import DaemonMode
from slurm_plugin.doctor import slurm
from slurm_plugin.submit import JOB_SUBMIT, MODULE

ROOT = Path(__file__).resolve().parents[3]
SHADOW = DaemonConfiguration(partitions=frozenset({"gpu"}))
ENFORCE = DaemonMode.ENFORCE
NOON_S = 1_790_856_000.0
"""2026-10-01T12:00:00Z."""

USUAL = {
    "AccountingStorageEnforce": "none",
    "AccountingStorageType": "accounting_storage/slurmdbd",
    "AccountingStorageTRES": "cpu,mem,gres/gpu,gres/gpu:a100",
    "JobSubmitPlugins": "lua",
    "MaxArraySize": "1001",
    "PriorityType": "priority/multifactor",
    "PriorityWeightFairShare": "1000",
    "RequeueExit": "99",
    "SlurmctldHost[0]": "head(10.0.0.1)",
    "SlurmctldTimeout": "120 sec",
    "SlurmUser": "slurm(64030)",
    "SLURM_VERSION": "26.05.5",
}


def conf(**changed: str) -> str:
    """What `scontrol show config` prints of a good site, but for what is given."""
    lines = [f"{name:<23} = {value}" for name, value in {**USUAL, **changed}.items()]
    return "\n".join(["Configuration data as of 2026-10-01T12:00:00", *lines])


def told(found: Finding) -> tuple[str, str]:
    """How it stands, and all that is said."""
    return found.verdict.value, str(found)


@pytest.mark.parametrize(
    ("version", "verdict", "words"),
    [
        ("26.05.5", "ok", "26.05.5"),
        ("24.11.0-0rc1", "ok", "24.11.0-0rc1"),
        ("25.11.1", "beware", "seen were 24.11 and 26.05; stay in shadow mode"),
        ("22.05.8", "wrong", "upgrade it to 23.11 or later"),
        ("new", "beware", "'new'"),
    ],
)
def test_a_release_is_known_too_old_or_new_to_us(version: str, verdict: str, words: str) -> None:
    found, said = told(slurm.version(conf(SLURM_VERSION=version)))
    assert found == verdict
    assert words in said


def test_the_releases_that_were_seen_are_those_of_the_testbed_s_page() -> None:
    page = (ROOT / "docs/live/testbed.md").read_text()
    seen = re.findall(r"^\| `[^|]+\|[^|]+\| (\d+\.\d+)", page, re.MULTILINE)
    assert tuple(sorted(seen)) == slurm.SEEN


@pytest.mark.parametrize(
    ("asked_s", "answered_s", "verdict", "words"),
    [
        (NOON_S + 0.2, NOON_S + 0.3, "ok", "agree"),
        (NOON_S - 30, NOON_S + 30, "ok", "agree"),
        (NOON_S + 10, NOON_S + 11, "beware", "9 s behind"),
        (NOON_S - 11, NOON_S - 10, "beware", "10 s ahead"),
        (NOON_S - 91, NOON_S - 90, "wrong", "90 s ahead, more than slack_s = 60: nothing is held"),
        (NOON_S + 90, NOON_S + 91, "beware", "89 s behind"),
    ],
)
def test_clocks_are_compared_as_closely_as_a_second_allows(
    asked_s: float, answered_s: float, verdict: str, words: str
) -> None:
    found, said = told(slurm.clock(conf(), asked_s, answered_s, 60))
    assert found == verdict
    assert words in said


def test_a_slurm_that_tells_times_in_another_form_is_told() -> None:
    assert told(slurm.clock("data as of Thursday", 0, 1, 60))[0] == "beware"


@pytest.mark.parametrize(
    ("user", "level", "mode", "verdict", "words"),
    [
        ("hetsched", "Operator", ENFORCE, "ok", "is Operator"),
        ("hetsched", "Administrator", ENFORCE, "ok", "is Administrator"),
        ("hetsched", "None", ENFORCE, "wrong", "modify user hetsched set adminlevel=Operator"),
        ("hetsched", "", ENFORCE, "wrong", "add user hetsched account=root adminlevel=Operator"),
        ("hetsched", "", DaemonMode.SHADOW, "beware", "would be refused"),
        ("hetsched", None, ENFORCE, "beware", "slurmdbd was not to be asked"),
        ("root", "", ENFORCE, "beware", "may do everything"),
        ("slurm", "", ENFORCE, "beware", "may do everything"),
    ],
)
def test_the_daemon_s_user_needs_a_level_and_no_more(
    user: str, level: str | None, mode: DaemonMode, verdict: str, words: str
) -> None:
    found, said = told(slurm.rights(conf(), user, level, mode))
    assert found == verdict
    assert words in said


def test_without_accounting_nobody_has_a_level() -> None:
    text = conf(AccountingStorageType="(null)")
    found, said = told(slurm.rights(text, "hetsched", None, ENFORCE))
    assert found == "wrong"
    assert "run the daemon as slurm" in said


@pytest.mark.parametrize(
    ("enforced", "associations", "mode", "verdict"),
    [
        ("none", "", ENFORCE, "ok"),
        ("associations,limits", "root", ENFORCE, "ok"),
        ("associations,limits", "", ENFORCE, "wrong"),
        ("associations,limits", "", DaemonMode.SHADOW, "beware"),
        ("associations,limits", None, ENFORCE, "beware"),
    ],
)
def test_the_one_whom_the_reservation_leaves_out_needs_an_association_where_they_are_enforced(
    enforced: str, associations: str | None, mode: DaemonMode, verdict: str
) -> None:
    text = conf(AccountingStorageEnforce=enforced)
    assert slurm.denied(text, "daemon", associations, mode).verdict.value == verdict


def test_nothing_is_to_be_said_of_a_site_that_is_set_up_as_the_guide_has_it() -> None:
    assert {each.verdict.value for each in slurm.settings(conf(), SHADOW)} == {"ok"}


@pytest.mark.parametrize(
    ("changed", "verdict", "words"),
    [
        ({"AccountingStorageTRES": "cpu,mem"}, "wrong", "name gres/gpu"),
        ({"PriorityType": "priority/basic"}, "ok", "all accounts count alike"),
        ({"PriorityWeightFairShare": "0"}, "ok", "all accounts count alike"),
        ({"RequeueExit": "(null)"}, "ok", "set 99 if"),
        ({"MaxArraySize": "10"}, "beware", "raise it to 16"),
        ({"SlurmctldHost[1]": "spare(10.0.0.2)"}, "beware", "set slack_s = 150 at least"),
    ],
)
def test_a_setting_that_the_guide_asks_for_is_told_with_what_to_do(
    changed: dict[str, str], verdict: str, words: str
) -> None:
    said = [told(each) for each in slurm.settings(conf(**changed), SHADOW)]
    assert [found for found, text in said if words in text] == [verdict]


def test_a_slack_that_outlasts_a_take_over_is_good() -> None:
    text = conf(**{"SlurmctldHost[1]": "spare(10.0.0.2)"})
    found = slurm.settings(text, replace(SHADOW, slack_s=150))
    assert {each.verdict.value for each in found} == {"ok"}


def as_installed(folder: Path) -> None:
    pass


def lacking(folder: Path) -> None:
    (folder / "hetsched.lua").unlink()


def of_another_version(folder: Path) -> None:
    (folder / "hetsched.lua").write_text("-- older")


def of_the_site_s_own(folder: Path) -> None:
    (folder / "job_submit.lua").write_text("return slurm.SUCCESS")


def without_script(folder: Path) -> None:
    (folder / "job_submit.lua").unlink()


@pytest.mark.parametrize(
    ("spoil", "changed", "expected"),
    [
        (as_installed, {}, ["ok", "ok"]),
        (as_installed, {"JobSubmitPlugins": "(null)"}, ["beware"]),
        (as_installed, {"CliFilterPlugins": "lua"}, ["ok", "wrong", "ok"]),
        (lacking, {}, ["ok", "wrong"]),
        (of_another_version, {}, ["ok", "beware"]),
        (of_the_site_s_own, {}, ["ok", "beware"]),
        (without_script, {}, ["wrong", "beware"]),
    ],
)
def test_scripts_that_slurm_conf_names_lie_beside_it_and_call_this_version(
    tmp_path: Path,
    spoil: Callable[[Path], None],
    changed: dict[str, str],
    expected: list[str],
) -> None:
    for each in (MODULE, JOB_SUBMIT):
        (tmp_path / each.name).write_bytes(each.read_bytes())
    spoil(tmp_path)
    found = slurm.scripts(conf(**changed), tmp_path, measured=True)
    assert [each.verdict.value for each in found] == expected


def test_scripts_on_another_host_are_to_be_looked_for_there(tmp_path: Path) -> None:
    said = [told(each) for each in slurm.scripts(conf(), tmp_path / "no", measured=False)]
    assert [found for found, _ in said] == ["beware", "beware"]
    assert all("on slurmctld's host" in text for _, text in said)


def test_without_a_spool_nobody_misses_the_module(tmp_path: Path) -> None:
    (found,) = slurm.scripts(conf(JobSubmitPlugins="(null)"), tmp_path, measured=False)
    assert told(found)[0] == "ok"
