"""What is submitted from Python: whatever could not run is refused, and named."""

from __future__ import annotations

import json
import math
import runpy
from collections import UserDict
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from job_wrappers import tensor_file
from job_wrappers.executor import Work
from job_wrappers.pool import result, search, submit
from job_wrappers.pool.asked import SCHEMA
from slurm_plugin.pool import create
from slurm_plugin.pool.folder import FOLDERS, Pool
from slurm_plugin.pool.records import Result
from tests.job_wrappers.worlds import ROOT


def takes_a_rate(rate: float) -> Work:
    raise NotImplementedError(rate)


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
        ({"name": "-x"}, "name is '-x'; expected .* the first of them a letter or digit"),
        ({"name": "x" * 300}, "at most 200"),
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


def test_a_search_of_which_one_name_is_taken_by_another_leaves_none(pool: Pool) -> None:
    submit(pool.path, "module:function", rounds=5, name="s-001")
    with pytest.raises(ValueError, match=r"training 's-001' already, .*; nothing was added"):
        search(pool.path, "module:function", [{"rate": 1.0}] * 3, rounds=5, name="s")
    assert pool.names("trainings") == {"s-001"}


def test_a_script_that_was_interrupted_may_be_run_again(pool: Pool) -> None:
    def script() -> list[str]:
        choices: list[dict[str, Any]] = [{"rate": (1.0, 2)}, {"rate": 0.5}]
        return search(pool.path, "module:function", choices, rounds=5, name="s")

    assert script() == ["s-000", "s-001"]
    before = pool.training("s-000")
    (pool.path / "trainings" / "s-001.json").unlink()
    assert script() == ["s-000", "s-001"]
    assert pool.training("s-000") == before
    assert pool.training("s-001").arguments == {"rate": 0.5}


def test_what_is_as_by_default_need_not_stand_in_the_file_of_the_same_training(pool: Pool) -> None:
    path = pool.path / "trainings" / "x.json"
    said = {"schema": SCHEMA, "name": "x", "make": "module:function", "rounds": 5, "submit_s": 1.0}
    path.write_text(json.dumps({**said, "key": "function"}))
    submit(pool.path, "module:function", rounds=5, name="x")
    others: list[dict[str, Any]] = [{"rounds": 6}, {"seed": 1}, {"arguments": {"rate": 1.0}}]
    for other in others:
        values = {"rounds": 5, "name": "x", **other}
        with pytest.raises(ValueError, match="has a training 'x' already, and another one"):
            submit(pool.path, "module:function", **values)
    assert pool.training("x").submit_s == 1.0


def test_a_name_that_is_taken_meanwhile_ends_a_search_which_tells_what_it_has_added(
    pool: Pool,
) -> None:
    # Another host is shown it before it can read it.
    (pool.path / "trainings" / "s-001.json").symlink_to("nowhere")
    with pytest.raises(ValueError, match=r"'s-001' already; .*; 1 were added before, s-000 to s-0"):
        search(pool.path, "module:function", [{}] * 3, rounds=5, name="s")
    assert pool.training("s-000").group == "s"


def test_a_pool_that_would_have_too_many_trainings_gets_none(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("job_wrappers.pool.asked.MOST_TRAININGS", 3)
    search(pool.path, "module:function", [{}] * 2, rounds=5, name="s")
    with pytest.raises(ValueError, match="has 2 trainings, and 3 are the most; nothing was added"):
        search(pool.path, "module:function", [{}] * 2, rounds=5, name="t")
    assert search(pool.path, "module:function", [{}] * 3, rounds=5, name="s")[2] == "s-002"
    # What is there is no addition.
    search(pool.path, "module:function", [{}] * 3, rounds=5, name="s")


def test_who_submits_to_a_pool_that_was_stopped_is_warned(pool: Pool) -> None:
    pool.stop()
    with pytest.warns(UserWarning, match="what is submitted waits; once it has ended, `hetsched"):
        submit(pool.path, "module:function", rounds=5)


def test_arguments_that_the_function_does_not_take_are_refused(pool: Pool) -> None:
    for choice, why in (
        ({"rat": 1.0}, "missing a required argument: 'rate'"),
        ({"rate": 1, "x": 2}, "'x'"),
    ):
        with pytest.raises(ValueError, match=why):
            search(pool.path, takes_a_rate, [{"rate": 1.0}, choice], rounds=5)
    assert not pool.names("trainings")
    search(pool.path, takes_a_rate, [{"rate": 1.0}], rounds=5, name="s")
    assert pool.names("trainings") == {"s-000"}


def test_a_result_tells_where_its_weights_are_and_what_was_tried(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit(pool.path, "module:function", rounds=5, name="x", arguments={"rate": 0.5})
    assert result(pool.path, "x") is None
    with pytest.raises(ValueError, match="has no training 'typo'; `hetsched pool status"):
        result(pool.path, "typo")
    state = pool.state("x", 5)
    state.parent.mkdir()
    tensor_file.write(state, {"round": 5}, {"weight": 1.5})
    pool.end("x", Result(SCHEMA, "", "rounds/x/round-000005.state", (2.0,), 1.0, 2.0, 5))
    monkeypatch.chdir(pool.path)
    found = result(".", "x")
    assert found is not None
    assert (found["arguments"], found["losses"]) == ({"rate": 0.5}, [2.0])
    monkeypatch.chdir("/")
    assert tensor_file.read(found["state"])[1] == {"weight": 1.5}


def test_the_page_s_lines_find_the_best_rate_and_its_weights(
    tmp_path: Path, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three have ended, the one with the least loss as failed; the others go on."""
    page = (ROOT / "docs" / "live" / "pool.md").read_text()
    (tmp_path / "best.py").write_text(page.split("```python\n")[2].partition("```")[0])
    choices = [{"rate": n / 10} for n in range(20)]
    search(pool.path, "module:function", choices, rounds=5, name="rates")
    for name, loss, failed in (
        ("rates-003", 2.0, ""),
        ("rates-007", 1.0, ""),
        ("rates-009", 0.5, "x"),
    ):
        state = pool.state(name, 5)
        state.parent.mkdir()
        tensor_file.write(state, {"round": 5}, {"model": {"weight": loss}, "optimizer": {}})
        where = str(state.relative_to(pool.path))
        pool.end(name, Result(SCHEMA, failed, where, (9.0, loss), 1.0, 2.0, 5))
    monkeypatch.chdir(tmp_path)
    found = runpy.run_path("best.py")
    assert found["best"]["arguments"] == {"rate": 0.7}
    assert found["weights"] == {"weight": 1.0}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"state": 7}'])
def test_a_damaged_result_is_named(text: str, pool: Pool) -> None:
    submit(pool.path, "module:function", rounds=5, name="x")
    (pool.path / "results" / "x.json").write_text(text)
    with pytest.raises(ValueError, match=r"results/x\.json is damaged"):
        result(pool.path, "x")


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
