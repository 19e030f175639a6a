"""`hetsched policies`: which policies there are, and what each needs and takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

import click

from hetsched_core.cli.group import say_error
from hetsched_core.cli.options import usage_errors

if TYPE_CHECKING:
    from hetsched_core.policy import Policy

_Loaded = TypeVar("_Loaded")


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
@click.option(
    "--check",
    is_flag=True,
    help="Run the contract suite on the policies, as for a policy of your own.",
)
def policies(names: tuple[str, ...], as_json: bool, check: bool) -> None:
    """List the scheduling policies: all, or those named.

    NAME is one of them, or FILE.py:CLASS for one of your own that is not installed.
    One that cannot be loaded is named on standard error and left out.

    For each: where it comes from, how its placements run, whether it can schedule a live cluster,
    what it must know of a job, and its parameters with their defaults. Set a parameter in a replay
    with `--set POLICY.PARAMETER=VALUE`.
    """
    from hetsched_core.policy import find_policy, policy_names

    with usage_errors():
        loaded = usable(names or policy_names(), find_policy)
    chosen = dict(loaded.values())
    if check:
        _check(chosen)
    elif as_json:
        import json

        described = {name: _described(cls) for name, cls in chosen.items()}
        click.echo(json.dumps({"schema": 1, "policies": described}, indent=2))
    else:
        click.echo("\n\n".join(_text(name, cls) for name, cls in chosen.items()))
    if len(loaded) < len(set(names)):
        click.get_current_context().exit(1)


def usable(words: Iterable[str], load: Callable[[str], _Loaded]) -> dict[str, _Loaded]:
    """Return what can be loaded of the policies that somebody asked for, by what was asked for.

    One that is broken is named on standard error, in one line.

    Raises:
        PolicyLoadError: all of them are.
    """
    from hetsched_core.policy.registry import PolicyLoadError

    found: dict[str, _Loaded] = {}
    broken = []
    for word in words:
        try:
            found[word] = load(word)
        except PolicyLoadError as error:
            broken.append(error)
    if broken and not found:
        raise PolicyLoadError("; ".join(map(str, broken)))
    for each in broken:
        say_error(f"{each}; it is left out")
    return found


def _described(cls: type[Policy]) -> dict[str, object]:
    from hetsched_core.policy import parameters_of

    info = cls.info
    return {
        "summary": info.summary,
        "paper": info.paper or None,
        "model": info.model.value,
        "takes_turns": info.takes_turns,
        "keeps_limits": info.keeps_limits,
        "live": info.live,
        "replay_only": info.replay_only or None,
        "knows": sorted(word.value for word in info.knows),
        "parameters": {
            p.name: {"default": p.default, "choices": list(p.choices), "doc": p.doc}
            for p in parameters_of(cls)
        },
    }


def _text(name: str, cls: type[Policy]) -> str:
    from hetsched_core.policy import parameters_of

    info = cls.info
    lines = [
        f"{name}: {info.summary}",
        f"  paper       {info.paper or '- (common practice)'}",
        f"  execution   {info.model.value}",
        f"  live        {'yes' if info.live else 'no: ' + info.replay_only}",
        f"  must know   {', '.join(sorted(info.knows)) or 'nothing of a job that is not measured'}",
    ]
    if info.takes_turns:
        lines.append("  equal jobs  take turns, which change when a round starts")
    found = parameters_of(cls)
    for parameter in found:
        choices = f" ({'|'.join(parameter.choices)})" if parameter.choices else ""
        lines.append(f"  {parameter.name}={parameter.default}{choices}  {parameter.doc}")
    if not found:
        lines.append("  parameters  none")
    return "\n".join(lines)


def _check(chosen: dict[str, type[Policy]]) -> None:
    from hetsched_core.contract import check_policy
    from hetsched_core.errors import HetschedError
    from hetsched_core.policy import policy_of

    verdicts = [check_policy(policy_of(cls, name)) for name, cls in chosen.items()]
    click.echo("\n\n".join(map(str, verdicts)))
    broken = [verdict.policy for verdict in verdicts if not verdict.kept]
    if broken:
        raise HetschedError(f"contracts are broken by {', '.join(broken)}")
