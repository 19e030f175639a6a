"""Policies by name: those of the project, and those that a third party has installed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hetsched_core.errors import HetschedError, InputError, UnknownNameError
from hetsched_core.policies.fifo import Fifo
from hetsched_core.policy import (
    make_policy,
    parameters_of,
    policy_names,
    policy_type,
    settings_of,
)
from hetsched_core.policy.registry import PolicyLoadError

MODULE = """
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, Optional

from hetsched_core.policies.fifo import Fifo
from hetsched_core.policy import PolicyInfo, parameter
from hetsched_core.types import Plan, Snapshot


class Order(StrEnum):
    WIDEST = "widest"
    NARROWEST = "narrowest"


@dataclass(frozen=True)
class Tunable:
    info: ClassVar[PolicyInfo] = PolicyInfo(name="tunable", summary="for tests", paper="")
    order: Order = parameter(Order.WIDEST, "which jobs go first")
    weight: float = parameter(1.5, "how much width counts")
    window: int = parameter(10, "jobs to look at")
    strict: bool = parameter(False, "whether nobody may overtake")
    note: str = parameter("", "a word for the log")
    most: int | None = parameter(None, "jobs to place at most")
    second: Optional[Order] = parameter(None, "which of equals go first")
    _cache: dict = field(default_factory=dict, init=False, repr=False, compare=False)

    def plan(self, snapshot: Snapshot) -> Plan:
        return Fifo().plan(snapshot)


@dataclass(frozen=True)
class Listing(Tunable):
    sizes: list[int] = parameter((1, 2), "a list is no text")


@dataclass(frozen=True)
class Either(Tunable):
    size: int | str | None = parameter(None, "which of the two is '1'?")


class NoDataclass:
    pass


@dataclass(frozen=True)
class NoInfo:
    pass
"""

ENTRY_POINTS = """
[hetsched.policies]
tunable = third_party_policies:Tunable
no-dataclass = third_party_policies:NoDataclass
no-info = third_party_policies:NoInfo
listing = third_party_policies:Listing
either = third_party_policies:Either
no-attribute = third_party_policies:Missing
no-module = third_party_that_does_not_exist:Policy
raises = third_party_that_raises:Policy
"""


@pytest.fixture
def third_party(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a package of policies, some of them broken, as pip would leave it behind."""
    (tmp_path / "third_party_policies.py").write_text(MODULE)
    (tmp_path / "third_party_that_raises.py").write_text("raise RuntimeError('no licence')\n")
    metadata = tmp_path / "third_party_policies-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: third-party-policies\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("third_party_policies", "third_party_that_raises"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def test_the_projects_policies_are_found_in_order_and_by_class() -> None:
    assert {"fifo", "las", "sjf", "srtf"} <= set(policy_names())
    assert list(policy_names()) == sorted(policy_names())
    assert policy_type("fifo") is Fifo
    assert make_policy("fifo") == Fifo()
    assert make_policy("fifo").info is Fifo.info


@pytest.mark.parametrize("name", policy_names())
def test_a_policy_has_the_name_it_gives_itself_and_is_made_of_the_text_it_lists(name: str) -> None:
    cls = policy_type(name)
    assert cls.info.name == name
    listed = {p.name: p.default for p in parameters_of(cls)}
    policy = make_policy(name, listed)
    assert policy == make_policy(name)
    assert settings_of(policy) == listed


def test_an_unknown_policy_is_refused_with_a_suggestion_and_the_valid_names() -> None:
    with pytest.raises(UnknownNameError) as refused:
        policy_type("fifoo")
    assert "unknown policy 'fifoo': did you mean 'fifo'? valid: " in str(refused.value)
    assert all(name in str(refused.value) for name in policy_names())


@pytest.mark.usefixtures("third_party")
def test_an_installed_policy_is_listed_and_made_with_its_parameters() -> None:
    assert "tunable" in policy_names()
    defaults = {
        "order": "widest",
        "weight": "1.5",
        "window": "10",
        "strict": "false",
        "note": "",
        "most": "none",
        "second": "none",
    }
    others = {
        "order": "narrowest",
        # Some weights are limits: a policy that cannot take one says so itself.
        "weight": "inf",
        "window": "3",
        "strict": "true",
        "note": "x y",
        "most": "7",
        "second": "widest",
    }
    assert settings_of(make_policy("tunable", others)) == others
    assert settings_of(make_policy("tunable", {"window": "3"})) == defaults | {"window": "3"}
    assert make_policy("tunable", defaults) == make_policy("tunable")
    assert make_policy("tunable", {"most": "7"}) != make_policy("tunable")


@pytest.mark.usefixtures("third_party")
def test_parameters_are_listed_with_default_choices_and_meaning_and_nothing_else_is() -> None:
    listed = [(p.name, p.default, p.choices, p.doc) for p in parameters_of(policy_type("tunable"))]
    assert listed == [
        ("order", "widest", ("widest", "narrowest"), "which jobs go first"),
        ("weight", "1.5", (), "how much width counts"),
        ("window", "10", (), "jobs to look at"),
        ("strict", "false", ("true", "false"), "whether nobody may overtake"),
        ("note", "", (), "a word for the log"),
        ("most", "none", (), "jobs to place at most"),
        ("second", "none", ("widest", "narrowest", "none"), "which of equals go first"),
    ]


@pytest.mark.usefixtures("third_party")
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"windows": "3"}, ["parameter of policy 'tunable'", "'windows'", "did you mean 'window'"]),
        ({"_cache": "3"}, ["parameter of policy 'tunable'", "'_cache'"]),
        ({"order": "widst"}, ["value of tunable.order", "did you mean 'widest'", "narrowest"]),
        ({"strict": "yes"}, ["value of tunable.strict", "'yes'", "false, true"]),
        ({"window": "three"}, ["tunable.window='three' is not a whole number"]),
        ({"window": "3.5"}, ["tunable.window='3.5' is not a whole number"]),
        ({"weight": "heavy"}, ["tunable.weight='heavy' is not a number"]),
        ({"weight": "nan"}, ["tunable.weight='nan'"]),
        ({"weight": "none"}, ["tunable.weight='none' is not a number"]),
        ({"most": "few"}, ["tunable.most='few' is not a whole number, such as 5, or 'none'"]),
        ({"second": "non"}, ["value of tunable.second", "did you mean 'none'", "widest"]),
    ],
)
def test_a_wrong_setting_is_refused_with_the_value_and_what_is_valid(
    settings: dict[str, str], words: list[str]
) -> None:
    with pytest.raises(InputError) as refused:
        make_policy("tunable", settings)
    for word in words:
        assert word in str(refused.value)


@pytest.mark.usefixtures("third_party")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no-module", "No module named 'third_party_that_does_not_exist'"),
        ("no-attribute", "has no attribute 'Missing'"),
        ("raises", "no licence"),
        ("no-dataclass", "is no dataclass with an `info`"),
        ("no-info", "is no dataclass with an `info`"),
        ("listing", "parameter 'sizes' of policy 'listing' (third_party_policies:Listing) is a"),
        ("either", "parameter 'size' of policy 'either' (third_party_policies:Either) is a"),
    ],
)
def test_a_broken_package_is_named_and_breaks_no_other_policy(name: str, words: str) -> None:
    assert name in policy_names()
    with pytest.raises(PolicyLoadError) as refused:
        policy_type(name)
    assert isinstance(refused.value, HetschedError)
    assert f"policy {name!r}" in str(refused.value)
    assert words in str(refused.value)
    assert make_policy("tunable").info.name == "tunable"
