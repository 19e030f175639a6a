"""What Slurm's own words are taken for."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from slurm_plugin.backend.releases import RELEASES, named
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


def test_the_releases_that_were_tried_are_those_of_the_testbed_s_page() -> None:
    page = (ROOT / "docs/live/testbed.md").read_text()
    tried = re.findall(r"^\| `[^|]+\|[^|]+\| (\d+\.\d+)", page, re.MULTILINE)
    assert sorted(tried) == sorted(named(each) for each, its in RELEASES.items() if its.tried)


def version(text: str) -> Finding:
    return slurm.version(conf(SLURM_VERSION=text))


def clock(asked_s: float, answered_s: float) -> Finding:
    return slurm.clock(conf(), NOON_S + asked_s, NOON_S + answered_s, 60)


def rights(level: str | None, mode: DaemonMode = ENFORCE, user: str = "hetsched") -> Finding:
    return slurm.rights(conf(), user, level, mode)


def denied(enforced: str, associations: str | None, mode: DaemonMode = ENFORCE) -> Finding:
    return slurm.denied(conf(AccountingStorageEnforce=enforced), "daemon", associations, mode)


@pytest.mark.parametrize(
    ("found", "verdict", "words"),
    [
        (version("26.05.5"), "ok", "26.05.5"),
        (version("24.11.0-0rc1"), "ok", "24.11.0-0rc1"),
        (version("25.11.1"), "beware", "tried were 24.11 and 26.05; stay in shadow mode"),
        (version("22.05.8"), "wrong", "upgrade it to 23.11 or later"),
        (version("new"), "beware", "'new'"),
        (clock(0.2, 0.3), "ok", "agree"),
        (clock(-30, 30), "ok", "agree"),
        (clock(10, 11), "beware", "9 s behind"),
        (clock(-11, -10), "beware", "10 s ahead"),
        (clock(-91, -90), "wrong", "90 s ahead, more than slack_s = 60: nothing is held"),
        (clock(90, 91), "beware", "89 s behind"),
        (slurm.clock("data as of Thursday", 0, 1, 60), "beware", "unset SLURM_TIME_FORMAT"),
        (rights("Operator"), "ok", "is Operator"),
        (rights("Administrator"), "ok", "is Administrator"),
        (rights("None"), "wrong", "modify user hetsched set adminlevel=Operator"),
        (rights(""), "wrong", "add user hetsched account=root adminlevel=Operator"),
        (rights("", DaemonMode.SHADOW), "beware", "would be refused"),
        (rights(None), "beware", "slurmdbd was not to be asked"),
        (rights("", user="root"), "beware", "may do everything"),
        (rights("", user="slurm"), "beware", "may do everything"),
        (
            slurm.rights(conf(AccountingStorageType="(null)"), "hetsched", None, ENFORCE),
            "wrong",
            "run the daemon as slurm",
        ),
        (denied("none", ""), "ok", "daemon"),
        (denied("associations,limits", "root"), "ok", "daemon"),
        (denied("associations,limits", ""), "wrong", "sacctmgr add user daemon account=root"),
        (denied("associations,limits", "", DaemonMode.SHADOW), "beware", "would be refused"),
        (denied("associations,limits", None), "beware", "would be refused"),
    ],
    ids=str,
)
def test_what_slurm_says_is_judged_and_told_with_what_to_do(
    found: Finding, verdict: str, words: str
) -> None:
    assert found.verdict.value == verdict
    assert words in str(found)


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
    found = slurm.settings(conf(**changed), SHADOW)
    assert [each.verdict.value for each in found if words in str(each)] == [verdict]


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
    for each in slurm.scripts(conf(), tmp_path / "no", measured=False):
        assert each.verdict.value == "beware"
        assert each.remedy.endswith("on slurmctld's host")


def test_without_a_spool_nobody_misses_the_module(tmp_path: Path) -> None:
    (found,) = slurm.scripts(conf(JobSubmitPlugins="(null)"), tmp_path, measured=False)
    assert found.verdict.value == "ok"
