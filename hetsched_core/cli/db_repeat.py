"""`hetsched db repeat`: make recorded decisions again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from hetsched_core.store import Decision, Store

_MOST_NAMED = 5


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--after", default=0, metavar="NUMBER", help="Leave out decisions up to this one.")
def repeat(file: Path, after: int) -> None:
    """Make the decisions in FILE again, and tell which come out otherwise.

    Each is asked of its policy with all that the policy was told then. Exits with 1 if any differs.
    """
    repeat_recorded(file, after)


def repeat_recorded(file: Path, after: int = 0) -> None:
    """Make the decisions in a store again, those with a number above `after`.

    Raises:
        HetschedError: some come out otherwise.
    """
    from hetsched_core.cli.stores import open_to_read
    from hetsched_core.errors import HetschedError, InputError
    from hetsched_core.records.decision_record import differences, read_decision

    same = other = left_out = 0
    with open_to_read(file) as store:
        for number, decision in _decisions(store, after):
            try:
                recorded = read_decision(decision.document)
            except InputError as error:
                left_out += 1
                click.echo(f"decision {number}: {error}")
                continue
            found = differences(recorded.plan, recorded.again())
            if not found:
                same += 1
                continue
            other += 1
            more = f" and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
            click.echo(f"decision {number} differs in {', '.join(found[:_MOST_NAMED])}{more}")
    said = f"{same} decisions come out the same, {other} otherwise, {left_out} cannot be made again"
    if other:
        raise HetschedError(f"{file}: {said}")
    click.echo(f"{file}: {said}")


def _decisions(store: Store, after: int) -> Iterator[tuple[int, Decision]]:
    """Yield decisions with their numbers, a few in memory at a time."""
    while found := store.decisions(after, most=50):
        yield from found
        after = found[-1][0]
