"""Which nodes a `--constraint` allows, by their features.

Slurm reads an expression from left to right: `a|b&c` is `(a|b)&c`, and `,` is `&`. Of `[a|b]` all
nodes of a run are to have the same one. (A job with a list of nodes is not held to that by
slurmctld, so we do.) Seen on Slurm 26.05 and in https://slurm.schedmd.com/sbatch.html#OPT_constraint.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache

_TOKEN = re.compile(r"[^\s&|,()\[\]*]+|[&|,()\[\]]")

NodeSets = tuple[frozenset[str], ...]
"""Sets of nodes of which a run may use one."""


class _UnreadableError(Exception):
    """The expression is of a kind that only Slurm can tell."""


def nodes_with(expression: str, features: Mapping[str, frozenset[str]]) -> NodeSets | None:
    """Return the sets of nodes of which a run may use one, None for what only Slurm can tell.

    Counts (`a*2`) are of that kind: with a list of nodes, slurmctld refuses even lists that have
    them. So are several brackets, and brackets beside `|`.

    Args:
        expression: as users write it; "" allows all nodes.
        features: node -> its active features.
    """
    return _nodes_with(expression, tuple(sorted(features.items())))


@lru_cache(maxsize=1024)
def _nodes_with(
    expression: str, features: tuple[tuple[str, frozenset[str]], ...]
) -> NodeSets | None:
    everywhere = frozenset(name for name, _ in features)
    if not expression:
        return (everywhere,)
    tokens = _TOKEN.findall(expression)
    if "".join(tokens) != expression:
        return None
    having = {token: frozenset(name for name, has in features if token in has) for token in tokens}
    try:
        reader = _Reader(iter([*tokens, ""]), having)
        found = reader.expression("")
    except _UnreadableError:
        return None
    if reader.one_of is None:
        return (found,)
    return tuple(found & each for each in reader.one_of)


class _Reader:
    """Reads tokens one by one; `one_of` are the sets of its bracket, None without one."""

    def __init__(self, tokens: Iterator[str], having: Mapping[str, frozenset[str]]) -> None:
        self._tokens = tokens
        self._having = having
        self.one_of: NodeSets | None = None

    def expression(self, end: str) -> frozenset[str]:
        """Read until `end`, which is read too."""
        found = self._operand(outermost=not end)
        while (operator := next(self._tokens)) != end:
            if operator in {"&", ","}:
                found &= self._operand(outermost=not end)
            elif operator == "|" and self.one_of is None:
                found |= self._operand(outermost=False)
            else:
                raise _UnreadableError
        return found

    def _operand(self, *, outermost: bool) -> frozenset[str]:
        token = next(self._tokens)
        if token == "(":
            return self.expression(")")
        if token == "[" and outermost and self.one_of is None:
            self.one_of = tuple(self._alternatives())
            return frozenset().union(*self.one_of)
        if token in {"", "&", "|", ",", ")", "[", "]"}:
            raise _UnreadableError
        return self._having[token]

    def _alternatives(self) -> Iterator[frozenset[str]]:
        separator = "|"
        while separator == "|":
            yield self._operand(outermost=False)
            separator = next(self._tokens)
        if separator != "]":
            raise _UnreadableError
