"""The runs of a sweep: what each is given, its name, and which are still to do."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from hetsched_core.policy.from_file import file_and_class
from hetsched_core.sweep.file import PATHS, Contender, OptionValues, Sweep, SweepWorkload, Value
from hetsched_core.values.text import to_text

_NAME = 16
"""Characters of a digest that name a run."""


@dataclass(frozen=True, slots=True)
class SweepRun:
    """One replay: one contender on one workload, under one choice of options and one seed."""

    workload: SweepWorkload
    contender: Contender
    options: OptionValues
    seed: int
    folder: Path

    @property
    def name(self) -> str:
        """A digest of all that decides what comes out, the contents of the files included."""
        return _short(
            {
                "logs": [digest(log) for log in self.workload.logs],
                "generated": dict(self.workload.generated),
                "read": self._read(),
                "policy": self.contender.policy,
                **self._policy_file(),
                "parameters": dict(self.contender.parameters),
                "options": dict(self.options),
                "seed": self.seed,
            }
        )

    @property
    def result(self) -> Path:
        """Where its result file is when it is done."""
        return self.folder / "runs" / f"{self.name}.json"

    @property
    def generated(self) -> Path:
        """Where its workload is, if that is generated; named by what it is generated from."""
        given = {"generated": dict(self.workload.generated), "read": self._read()}
        name = f"{self.workload.name}-{_short(given)}-{self.seed}.jsonl"
        return self.folder / "workloads" / name

    def _read(self) -> dict[str, Value]:
        """Return how the workload is read, files by what is in them."""
        return {
            key: digest(Path(str(value))) if key in PATHS else value
            for key, value in self.workload.options.items()
        }

    def _policy_file(self) -> dict[str, Value]:
        """Return what is in the file that the policy comes from; {} if it is a registered one."""
        file, cls = file_and_class(self.contender.source)
        return {} if file is None else {"file": digest(file), "class": cls or ""}

    def generate_arguments(self) -> list[str]:
        """Return the arguments of `hetsched workload generate`; [] if there are files."""
        if not self.workload.generated:
            return []
        return [*generate_arguments(self.workload, self.seed), str(self.generated)]

    def replay_arguments(self) -> list[str]:
        """Return the arguments of `hetsched replay`."""
        logs = [str(log) for log in self.workload.logs] or [str(self.generated)]
        policy = self.contender.policy
        return [
            *logs,
            f"--policy={self.contender.source}",
            *(f"--set={policy}.{k}={to_text(v)}" for k, v in self.contender.parameters.items()),
            *_arguments({**self.options, **self.workload.options, "seed": self.seed}),
            f"--json={self.result}",
        ]


def generate_arguments(workload: SweepWorkload, seed: int) -> list[str]:
    """Return the options of `hetsched workload generate` that draw a workload."""
    cluster = {"cluster": workload.options["cluster"]}
    return _arguments({**workload.generated, **cluster, "seed": seed})


def runs_of(sweep: Sweep, folder: Path) -> Iterator[SweepRun]:
    """Yield all runs; their results go under `folder`."""
    for workload in sweep.workloads:
        for options in sweep.options:
            for seed in workload.seeds:
                for contender in sweep.contenders:
                    yield SweepRun(workload, contender, options, seed, folder)


def _arguments(given: OptionValues) -> list[str]:
    """Write options as a command line has them; a flag that is false is left out."""
    found = []
    for key, value in given.items():
        option = f"--{key.replace('_', '-')}"
        if value is True:
            found.append(option)
        elif value is not False:
            found.append(f"{option}={to_text(value)}")
    return found


def _short(given: object) -> str:
    text = json.dumps(given, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_NAME]


@lru_cache(maxsize=1024)
def digest(path: Path) -> str:
    """Return a digest of what is in a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
