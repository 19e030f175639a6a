"""What a site knows about its jobs that a log does not say (docs/formats/rules.md)."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Annotated

from hetsched_core.errors import InputError, unknown
from hetsched_core.traces.cluster_file import TypesByName
from hetsched_core.traces.node_types import NodeTypes
from hetsched_core.traces.sacct import LoggedAllocation
from hetsched_core.types import RequirementSet
from hetsched_core.values.records import Form, quoted, read_toml, tables

SCHEMA = "hetsched-rules/1"

PATTERN_KEYS = ("job_name", "partition", "account", "user")


def _texts(value: object) -> tuple[str, ...]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) and text for text in texts):
        raise ValueError
    return tuple(texts)


_TEXTS = '"text" or ["text", "text"]'
_Patterns = Annotated[tuple[str, ...], Form(_TEXTS, _texts)]
_Profile = Annotated[str, Form("text in quotes", quoted)]
_GpuTypes = Annotated[
    frozenset[str], Form(_TEXTS, lambda value: frozenset(map(str.lower, _texts(value))))
]
_Requirements = Annotated[
    RequirementSet | None,
    Form('text such as "1,2,4" or "2-16"', lambda value: RequirementSet.parse(quoted(value))),
]


@dataclass(frozen=True, slots=True)
class Rule:
    """What holds for every job that matches.

    A job matches if each of the four texts matches one of its patterns; no patterns match
    everything. In a pattern `*` stands for any text, `?` for one character, `[...]` for one of
    several; case counts. What the rule leaves open (empty or None) the log decides.
    """

    job_name: _Patterns = ()
    partition: _Patterns = ()
    account: _Patterns = ()
    user: _Patterns = ()
    profile: _Profile = ""
    gpu_types: _GpuTypes = frozenset()
    requirements: _Requirements = None

    @property
    def patterns(self) -> str:
        """The patterns in words, such as `job_name train* or fit?, user ann`."""
        given = ((key, getattr(self, key)) for key in PATTERN_KEYS)
        return ", ".join(f"{key} {' or '.join(texts)}" for key, texts in given if texts) or "any"

    def matches(self, **texts: str) -> bool:
        """Whether a job with these texts, by `PATTERN_KEYS`, matches."""
        return all(
            not (patterns := getattr(self, key))
            or any(fnmatchcase(text, pattern) for pattern in patterns)
            for key, text in texts.items()
        )


NO_RULE = Rule()
"""For a job that no rule matches: the log decides everything."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules in order; the first one that a job matches counts, and no other.

    `partition_types` are the types of GPUs that a log leaves untyped, by partition.
    """

    rules: tuple[Rule, ...] = ()
    partition_types: NodeTypes = field(default_factory=NodeTypes)

    def find(self, **texts: str) -> Rule:
        """Return the rule for a job with these texts, `NO_RULE` where none matches."""
        return next((rule for rule in self.rules if rule.matches(**texts)), NO_RULE)

    def typed(self, run: LoggedAllocation) -> LoggedAllocation:
        """Return the allocation with the type of its partition if its GPUs have none."""
        if not self.partition_types.rules or any(name for name, _ in run.gpus):
            return run
        gpu_type = _type_on(self.partition_types, run.partition)
        return run if gpu_type is None else replace(run, gpus=((gpu_type, run.gpu_count),))

    def require(self, profiles: Collection[str], source: str) -> None:
        """Refuse rules that name other profiles than these.

        Raises:
            InputError: the message names the rule, in the file `source`.
        """
        for at, rule in enumerate(self.rules, 1):
            if rule.profile and rule.profile not in profiles:
                wrong = unknown("profile", rule.profile, profiles)
                raise InputError(f"{source}: rules {at}: {wrong}")


@lru_cache(maxsize=1024)
def _type_on(types: NodeTypes, partition: str) -> str | None:
    return types.type_on(partition)


def read_rules(path: Path) -> Rules:
    """Read a rules file.

    Raises:
        InputError: The file cannot be read or is not of this format; the message names the rule.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: not text in UTF-8") from None
    return parse_rules(text, str(path))


def parse_rules(text: str, source: str = "rules.toml") -> Rules:
    """Read the text of a rules file; `source` names it in messages.

    Raises:
        InputError: The text is not of this format; the message names the rule.
    """
    said: _Document = read_toml(text, source, _Document, SCHEMA)
    if not (said.rules or said.partition_types.rules):
        raise InputError(
            f"{source}: rules is missing; expected one or more [[rules]] tables, or a table "
            "[partition_types]"
        )
    for at, rule in enumerate(said.rules, 1):
        if not (rule.profile or rule.gpu_types or rule.requirements):
            raise InputError(
                f"{source}: rules {at}: it decides nothing; give one of profile, gpu_types, "
                "requirements"
            )
    return Rules(said.rules, said.partition_types)


@dataclass(frozen=True, slots=True)
class _Document:
    schema: str
    rules: Annotated[tuple[Rule, ...], tables("rules", Rule, "one or more ")] = ()
    partition_types: TypesByName = field(default_factory=NodeTypes)
