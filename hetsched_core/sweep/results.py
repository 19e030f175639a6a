"""What came out of a sweep: a row for each run, means over the seeds, and the page of both."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from hetsched_core.errors import InputError
from hetsched_core.measures.metrics import Measures
from hetsched_core.records.files import replacing
from hetsched_core.report.estimates import CONFIDENCE
from hetsched_core.report.result import read_result
from hetsched_core.report.rows import Row, rows
from hetsched_core.sweep.file import OptionValues
from hetsched_core.sweep.runs import SweepRun

Scalar = str | int | float | None


@dataclass(frozen=True, slots=True)
class SweepResult:
    """The measures of one run."""

    run: SweepRun
    measures: Measures


@dataclass(frozen=True, slots=True)
class SweepGroup:
    """Contenders on one workload under one choice of options; for each seed all their measures."""

    workload: str
    options: OptionValues
    seeds: tuple[Mapping[str, Measures], ...]

    @property
    def title(self) -> str:
        """The workload, and what is varied of the options."""
        varied = (f"{name} = {value}" for name, value in self.options.items())
        return ", ".join((self.workload, *varied))

    @property
    def labels(self) -> tuple[str, ...]:
        """The contenders."""
        return tuple(self.seeds[0])

    @property
    def rows(self) -> tuple[Row, ...]:
        """Measures with means and intervals over the seeds."""
        return rows(self.seeds)


def read_done(run: SweepRun) -> SweepResult | None:
    """Return the result of a run; None if it is still to do, or its file is not whole."""
    try:
        found = read_result(run.result)
    except InputError:
        return None
    measures = found.policies.get(run.contender.policy)
    return None if measures is None else SweepResult(run, measures)


def groups(results: Iterable[SweepResult], varied: Sequence[str]) -> tuple[SweepGroup, ...]:
    """Return the results by workload and options, with the seeds under which all have run.

    Args:
        results: what there is.
        varied: the options that differ between runs.
    """
    found: dict[tuple[str, str], dict[int, dict[str, Measures]]] = {}
    options: dict[tuple[str, str], OptionValues] = {}
    for result in results:
        run = result.run
        chosen = {name: run.options[name] for name in varied}
        key = (run.workload.name, json.dumps(chosen))
        options[key] = chosen
        of_seed = found.setdefault(key, {}).setdefault(run.seed, {})
        of_seed[run.contender.label] = result.measures
    whole = []
    for key, by_seed in found.items():
        most = max(map(len, by_seed.values()))
        seeds = tuple(by_seed[seed] for seed in sorted(by_seed) if len(by_seed[seed]) == most)
        whole.append(SweepGroup(key[0], options[key], seeds))
    return tuple(whole)


def table(results: Iterable[SweepResult]) -> dict[str, list[Scalar]]:
    """Return the results as columns, one row for each run, for a file of columns."""
    columns: dict[str, list[Scalar]] = {
        name: [] for name in ("workload", "policy", "label", "parameters", "options", "seed")
    }
    names = [field.name for field in fields(Measures) if field.name != "plan_s"]
    columns |= {name: [] for name in names}
    columns["plan_mean_s"] = []
    for result in results:
        run, measures = result.run, asdict(result.measures)
        columns["workload"].append(run.workload.name)
        columns["policy"].append(run.contender.policy)
        columns["label"].append(run.contender.label)
        columns["parameters"].append(json.dumps(dict(run.contender.parameters), sort_keys=True))
        columns["options"].append(json.dumps(dict(run.options), sort_keys=True))
        columns["seed"].append(run.seed)
        for name in names:
            columns[name].append(measures[name])
        times = result.measures.plan_s
        columns["plan_mean_s"].append(None if times is None else times.mean)
    return columns


def write_parquet(results: Sequence[SweepResult], path: Path) -> None:
    """Write the results as one Parquet file.

    Raises:
        InputError: the file cannot be written.
    """
    from hetsched_core.store.parquet import write_columns

    write_columns(table(results), path)


def write_page(name: str, groups: Sequence[SweepGroup], runs: int, done: int, path: Path) -> None:
    """Write the page; it appears once it is complete.

    Args:
        name: the sweep's.
        groups: what there is to compare.
        runs: how many runs the sweep has.
        done: how many of them are done.
        path: the file.

    Raises:
        InputError: the file cannot be written.
    """
    environment = Environment(
        loader=ChoiceLoader(
            [
                PackageLoader("hetsched_core.sweep", "template"),
                PackageLoader("hetsched_core.report", "template"),
            ]
        ),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    text = environment.get_template("sweep.html").render(
        name=name,
        groups=groups,
        labels=list(dict.fromkeys(label for group in groups for label in group.labels)),
        runs=runs,
        done=done,
        confidence=f"{CONFIDENCE:.0%}",
    )
    with replacing(path) as file:
        file.write(text)
