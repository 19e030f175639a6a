"""The result file: what is written is read back, its page defines it, bad files are named."""

import dataclasses
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched_core.errors import HetschedError, InputError
from hetsched_core.measures.accounts import AccountMeasures
from hetsched_core.measures.logged import Closeness, LoggedMeasures
from hetsched_core.measures.metrics import Measures, PlanTimes
from hetsched_core.measures.widths import WidthMeasures
from hetsched_core.report.result import Result, ResultInput, read_result, to_json, write_result

PAGE = Path(__file__).parents[3] / "docs/formats/result.md"
REQUIRED = (
    "jobs completed failed never makespan_s avg_jct_s p50_jct_s p99_jct_s avg_wait_s "
    "max_latency_ratio avg_fragments ftf_max ftf_unfair_share gpu_utilisation lost_gpu_s "
    "restarts preemptions rounds plans plan_s wall_s"
)


def page_example() -> str:
    block = re.search(r"```json\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert block is not None
    return block[1]


def page_keys(heading: str) -> list[str]:
    section = PAGE.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)


@pytest.fixture
def example(tmp_path: Path) -> Result:
    path = tmp_path / "example.json"
    path.write_text(page_example())
    return read_result(path)


numbers = st.floats(allow_nan=False, min_value=-1e300, max_value=1e300)
count = st.integers(0, 2**53)


def of_numbers(type_: type[Any]) -> st.SearchStrategy[Any]:
    """Any numbers in the fields of a dataclass."""
    kinds = {
        "int": count,
        "float": numbers,
        "float | None": st.none() | numbers,
        "int | None": st.none() | count,
        "str": texts,
        "PlanTimes | None": st.none() | st.builds(PlanTimes, numbers, numbers, numbers),
    }
    return st.builds(type_, **{f.name: kinds[str(f.type)] for f in dataclasses.fields(type_)})


texts = st.text(max_size=8)
measures = of_numbers(Measures)
settings_ = st.dictionaries(texts, st.none() | st.booleans() | count | numbers | texts, max_size=3)


results = st.builds(
    Result,
    st.builds(
        ResultInput,
        st.lists(texts, max_size=2).map(tuple),
        texts,
        count,
        st.dictionaries(texts, count, max_size=3),
        count,
        st.dictionaries(texts, count, max_size=3),
        settings_,
        st.dictionaries(texts, settings_, max_size=2),
        st.lists(texts, max_size=2).map(tuple),
    ),
    st.dictionaries(texts, measures, max_size=3),
    st.dictionaries(count, st.dictionaries(texts, measures, max_size=2), max_size=2),
    st.none() | of_numbers(LoggedMeasures),
    st.dictionaries(texts, of_numbers(Closeness), max_size=2),
    st.dictionaries(texts, st.lists(of_numbers(AccountMeasures), max_size=2).map(tuple)),
    st.none() | measures,
    st.dictionaries(texts, st.lists(of_numbers(WidthMeasures), max_size=2).map(tuple)),
)


@pytest.fixture(scope="module")
def a_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("results") / "result.json"


@given(result=results)
def test_a_result_reads_back_exactly_as_it_was_written(a_path: Path, result: Result) -> None:
    write_result(result, a_path)
    read = read_result(a_path)
    assert read == result
    assert list(read.policies) == list(result.policies)


@pytest.mark.parametrize(
    ("key", "left"),
    [
        ("other_seeds", {}),
        ("logged", {"logged": None}),
        ("closeness", {"closeness": {}}),
        ("accounts", {"accounts": {}}),
        ("widths", {"widths": {}}),
    ],
)
def test_further_seeds_and_the_log_are_optional(
    tmp_path: Path, example: Result, key: str, left: dict[str, object]
) -> None:
    path = tmp_path / "one.json"
    path.write_text(changed(key, ...))
    assert read_result(path) == dataclasses.replace(example, **left)  # type: ignore[arg-type]
    path.write_text(changed("other_seeds", {"7": json.loads(page_example())["policies"]}))
    assert read_result(path).by_seed == (example.policies, example.policies)


def test_the_page_defines_every_key_in_its_order() -> None:
    assert page_keys("Input") == [field.name for field in dataclasses.fields(ResultInput)]
    assert page_keys("Measures") == [field.name for field in dataclasses.fields(Measures)]
    assert page_keys("Closeness") == [field.name for field in dataclasses.fields(Closeness)]
    assert page_keys("Accounts") == [field.name for field in dataclasses.fields(AccountMeasures)]
    assert page_keys("Widths") == [field.name for field in dataclasses.fields(WidthMeasures)]
    told = PAGE.read_text().partition("\n## Logged\n")[2].partition("\n## ")[0]
    assert {field.name for field in dataclasses.fields(LoggedMeasures)} <= set(
        re.findall(r"`(\w+)`", told)
    )


def test_no_key_that_users_rely_on_has_gone() -> None:
    assert {field.name for field in dataclasses.fields(Measures)} >= set(REQUIRED.split())
    assert {field.name for field in dataclasses.fields(PlanTimes)} == {"mean", "p95", "max"}


def test_keys_of_a_later_version_are_passed_over(tmp_path: Path, example: Result) -> None:
    later = json.loads(page_example())
    later["made_by"] = "later"
    later["input"]["energy"] = {"kwh": 1}
    later["policies"]["las"]["carbon"] = 1.5
    later["policies"]["las"]["plan_s"]["p99"] = 1.5
    path = tmp_path / "later.json"
    path.write_text(json.dumps(later))
    assert read_result(path) == example


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_measure_that_is_not_finite_is_never_written(
    tmp_path: Path, example: Result, value: float
) -> None:
    las = example.policies["las"]
    for broken, key in (
        (dataclasses.replace(las, avg_jct_s=value), "avg_jct_s"),
        (dataclasses.replace(las, plan_s=PlanTimes(0.1, value, 0.2)), r"plan_s\.p95"),
    ):
        with pytest.raises(HetschedError, match=f"policy 'las': measure {key} is "):
            write_result(Result(example.input, {"las": broken}), tmp_path / "result.json")
    (row, *_) = example.accounts["las"]
    accounts = {"las": (dataclasses.replace(row, due_gpu_s=value),)}
    with pytest.raises(HetschedError, match="policy 'las': measure due_gpu_s is "):
        to_json(dataclasses.replace(example, accounts=accounts))
    assert not (tmp_path / "result.json").exists()


def test_settings_that_json_cannot_hold_become_text(example: Result) -> None:
    given = dataclasses.replace(
        example.input, settings={"checkpoint_s": math.inf, "logs": (Path("a"), None)}
    )
    written = json.loads(to_json(Result(given, {})))
    assert written["input"]["settings"] == {"checkpoint_s": "inf", "logs": ["a", None]}


def changed(path: str, value: Any) -> str:
    """The documented example with one value replaced; `...` leaves it out."""
    whole = json.loads(page_example())
    *parents, last = path.split(".")
    at = whole
    for key in parents:
        at = at[key]
    if value is ...:
        del at[last]
    else:
        at[last] = value
    return json.dumps(whole)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is not valid JSON"),
        (page_example()[:200], "is not valid JSON"),
        (page_example().replace("0.75", "NaN"), "NaN is no number"),
        ("[]", r"the file: \[\] is no JSON object"),
        (changed("schema", 2), "schema is 2; this version reads 1"),
        (changed("input.jobs", ...), r"input\.jobs: missing"),
        (changed("input.jobs", 1.5), r"input\.jobs: 1\.5 is not a whole number"),
        (changed("policies", []), r"policies: \[\] is no JSON object"),
        (changed("other_seeds", {"x": {}}), r"other_seeds\.x: 'x' is not a whole number"),
        (changed("policies.las.jobs", ...), r"policies\.las\.jobs: missing"),
        (changed("accounts.las", {}), r"accounts\.las: {} is no JSON list"),
        (changed("widths.las", {}), r"widths\.las: {} is no JSON list"),
        (changed("policies.las.avg_jct_s", "x"), r"policies\.las\.avg_jct_s"),
        (changed("policies.las.plan_s.p95", ...), r"policies\.las\.plan_s\.p95: missing"),
        (changed("logged", 3), r"logged: 3 is no JSON object"),
        (changed("closeness.las.waited", 0.5), r"closeness\.las\.waited: 0\.5 is not a whole"),
    ],
)
def test_a_file_that_is_no_result_is_named_with_what_is_wrong(
    tmp_path: Path, text: str, why: str
) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(InputError, match=rf"bad\.json.*{why}"):
        read_result(path)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read .*absent\.json: No such file"):
        read_result(tmp_path / "absent.json")
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match=r"binary\.json is not text in UTF-8"):
        read_result(tmp_path / "binary.json")
