"""What a site knows about its jobs that a log does not say (docs/formats/rules.md)."""

from __future__ import annotations

import tomllib
from collections.abc import Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from hetsched_core.errors import InputError, unknown
from hetsched_core.types import RequirementSet

SCHEMA = "hetsched-rules/1"

PATTERN_KEYS = ("job_name", "partition", "account", "user")
_RESULT_KEYS = ("profile", "gpu_types", "requirements")


@dataclass(frozen=True, slots=True)
class Rule:
    """What holds for every job that matches.

    A job matches if each of the four texts matches one of its patterns; no patterns match
    everything. In a pattern `*` stands for any text, `?` for one character, `[...]` for one of
    several; case counts. What the rule leaves open (empty or None) the log decides.
    """

    job_name: tuple[str, ...] = ()
    partition: tuple[str, ...] = ()
    account: tuple[str, ...] = ()
    user: tuple[str, ...] = ()
    profile: str = ""
    gpu_types: frozenset[str] = frozenset()
    requirements: RequirementSet | None = None

    @property
    def patterns(self) -> str:
        """The patterns in words, such as `job_name train* or fit?, user ann`."""
        given = ((key, getattr(self, key)) for key in PATTERN_KEYS)
        return ", ".join(f"{key} {' or '.join(texts)}" for key, texts in given if texts) or "any"

    def matches(self, *, job_name: str, partition: str, account: str, user: str) -> bool:
        """Whether a job with these texts matches."""
        return all(
            not patterns or any(fnmatchcase(text, pattern) for pattern in patterns)
            for text, patterns in (
                (job_name, self.job_name),
                (partition, self.partition),
                (account, self.account),
                (user, self.user),
            )
        )


NO_RULE = Rule()
"""For a job that no rule matches: the log decides everything."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules in order; the first one that a job matches counts, and no other."""

    rules: tuple[Rule, ...] = ()

    def find(self, *, job_name: str, partition: str, account: str, user: str) -> Rule:
        """Return the rule for a job with these texts, `NO_RULE` where none matches."""
        for rule in self.rules:
            if rule.matches(job_name=job_name, partition=partition, account=account, user=user):
                return rule
        return NO_RULE


def read_rules(path: Path, profiles: Collection[str]) -> Rules:
    """Read a rules file; `profiles` are the names that a rule may use.

    Raises:
        InputError: The file cannot be read or is not of this format; the message names the rule.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: not text in UTF-8") from None
    return parse_rules(text, profiles, str(path))


def parse_rules(text: str, profiles: Collection[str], source: str = "rules.toml") -> Rules:
    """Read the text of a rules file; `source` names it in messages.

    Raises:
        InputError: The text is not of this format; the message names the rule.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{source}: not valid TOML: {error}") from None
    if document.get("schema") != SCHEMA:
        raise InputError(
            f"{source}: schema is {document.get('schema')!r}; a rules file has the line "
            f'schema = "{SCHEMA}"'
        )
    entries = document.get("rules")
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise InputError(
            f"{source}: rules is {entries!r:.60}; expected one [[rules]] table or more"
        )
    for key in document:
        if key not in ("schema", "rules"):
            raise InputError(f"{source}: {unknown('key', key, ('schema', 'rules'))}")
    return Rules(
        tuple(
            _rule(f"{source}: rule {number}", entry, profiles)
            for number, entry in enumerate(entries, 1)
        )
    )


def _rule(where: str, entry: dict[str, object], profiles: Collection[str]) -> Rule:
    for key in entry:
        if key not in PATTERN_KEYS + _RESULT_KEYS:
            raise InputError(f"{where}: {unknown('key', key, PATTERN_KEYS + _RESULT_KEYS)}")
    if not any(key in entry for key in _RESULT_KEYS):
        raise InputError(f"{where}: it decides nothing; give one of {', '.join(_RESULT_KEYS)}")
    patterns = {key: _texts(where, key, entry.get(key, [])) for key in PATTERN_KEYS}
    profile = entry.get("profile", "")
    if not isinstance(profile, str):
        raise InputError(f"{where}: profile is {profile!r}; expected text in quotes")
    if profile and profile not in profiles:
        raise InputError(f"{where}: {unknown('profile', profile, profiles)}")
    return Rule(
        **patterns,
        profile=profile,
        gpu_types=frozenset(
            name.lower() for name in _texts(where, "gpu_types", entry.get("gpu_types", []))
        ),
        requirements=_requirements(where, entry.get("requirements")),
    )


def _texts(where: str, key: str, value: object) -> tuple[str, ...]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) and text for text in texts):
        raise InputError(f'{where}: {key} is {value!r}; expected "text" or ["text", "text"]')
    return tuple(texts)


def _requirements(where: str, value: object) -> RequirementSet | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise InputError(
            f'{where}: requirements is {value!r}; expected text such as "1,2,4" or "2-16"'
        )
    try:
        return RequirementSet.parse(value)
    except InputError as error:
        raise InputError(f"{where}: requirements: {error}") from None
