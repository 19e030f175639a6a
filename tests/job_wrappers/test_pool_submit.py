"""What is submitted from Python: whatever could not run is refused, and named."""

from __future__ import annotations

import math
from collections import UserDict
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from job_wrappers.pool import search, submit
from job_wrappers.pool.folder import FOLDERS
from slurm_plugin.pool import create
from slurm_plugin.pool.folder import Pool


@pytest.fixture
def pool(tmp_path: Path) -> Pool:
    return create(tmp_path / "pool", "hlas", {})


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"rounds": 1e3}, "rounds is 1000.0; expected a whole number from 1 to 999999"),
        ({"rounds": True}, "rounds is True; expected a whole number"),
        ({"rounds": 10**6}, "rounds is 1000000; expected a whole number from 1 to 999999"),
        ({"scale": 0}, "scale is 0; expected a whole number from 1 to 1000"),
        ({"scale": 1001}, "scale is 1001; expected"),
        ({"seed": 0.5}, "seed is 0.5; expected a whole number"),
        ({"seed": 2**63}, "seed is 9223372036854775808; expected a whole number"),
        ({"weight": math.nan}, "weight is nan; expected a number above 0"),
        ({"weight": "2"}, "weight is '2'; expected a number above 0"),
        ({"weight": 0}, "weight is 0; expected a number above 0"),
        ({"name": 7}, "name is 7; expected text"),
        ({"name": "a/b"}, "expected letters, digits and . _ -"),
        ({"group": 7}, "group is 7; expected text"),
        ({"key": 7}, "key is 7; expected text"),
        ({"arguments": {"rate": math.nan}}, "arguments is {'rate': nan}; expected JSON values"),
        ({"arguments": {"rate": {1, 2}}}, "expected JSON values by keyword"),
        ({"arguments": {1: 2}}, "expected JSON values by keyword, which is text"),
        ({"arguments": [1]}, "arguments is \\[1\\]; expected JSON values by keyword"),
        ({"arguments": {"text": "x" * (1 << 20)}}, "bytes; 1048576 are the most: leave what is"),
    ],
)
def test_what_could_not_run_is_refused_and_named(
    wrong: dict[str, Any], why: str, pool: Pool
) -> None:
    values: dict[str, Any] = {"rounds": 1, "name": "x", **wrong}
    with pytest.raises(ValueError, match=why):
        submit(pool.path, "module:function", **values)
    assert not list((pool.path / "trainings").iterdir())


def test_a_search_of_which_one_choice_is_no_good_leaves_none(pool: Pool) -> None:
    choices = [{"rate": 1.0}, {"rate": math.inf}]
    with pytest.raises(ValueError, match=r"training 's-001': arguments is {'rate': inf}"):
        search(pool.path, "module:function", choices, rounds=5, name="s")
    assert not list((pool.path / "trainings").iterdir())


@pytest.mark.parametrize("mapping", [MappingProxyType, UserDict])
def test_arguments_may_be_of_any_mapping(mapping: Callable[..., Any], pool: Pool) -> None:
    arguments = mapping({"rate": 0.5})
    submit(pool.path, "module:function", rounds=1, name="x", arguments=arguments)
    search(pool.path, "module:function", [arguments], rounds=1, name="s")
    assert [pool.training(name).arguments for name in ("x", "s-000")] == [{"rate": 0.5}] * 2


def test_no_key_is_the_function_s_name_of_a_search_too(pool: Pool) -> None:
    submit(pool.path, "module:function", rounds=1, name="x", key="")
    search(pool.path, "module:function", [{}], rounds=1, name="s", key="")
    assert [pool.training(name).key for name in ("x", "s-000")] == ["function"] * 2


def test_what_is_at_the_limits_is_read_by_the_scheduler(pool: Pool) -> None:
    values: dict[str, Any] = {"rounds": 999_999, "scale": 1000, "seed": -(2**63), "weight": 1}
    submit(pool.path, "module:function", name="x", **values, arguments={"a": [1, None, {"b": "c"}]})
    found = pool.training("x")
    assert (found.rounds, found.scale, found.seed, found.weight) == (999_999, 1000, -(2**63), 1.0)
    assert (found.key, found.arguments) == ("function", {"a": [1, None, {"b": "c"}]})
    assert sorted(path.name for path in pool.path.iterdir()) == sorted((*FOLDERS, "pool.json"))
