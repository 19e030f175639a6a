"""`hetsched policies`: which policies there are, and what each needs and takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hetsched_core.cli.options import usage_errors

if TYPE_CHECKING:
    from hetsched_core.policy import Policy


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

    For each: where it comes from, how its placements run, whether it can schedule a live cluster,
    what it must know of a job, and its parameters with their defaults. Set a parameter in a replay
    with `--set POLICY.PARAMETER=VALUE`.
    """
    from hetsched_core.policy import policy_names, policy_type

    with usage_errors():
        chosen = {name: policy_type(name) for name in names or policy_names()}
    if check:
        _check(list(chosen))
    elif as_json:
        import json

        described = {name: _described(cls) for name, cls in chosen.items()}
        click.echo(json.dumps({"schema": 1, "policies": described}, indent=2))
    else:
        click.echo("\n\n".join(_text(name, cls) for name, cls in chosen.items()))


def _described(cls: type[Policy]) -> dict[str, object]:
    from hetsched_core.policy import parameters_of

    info = cls.info
    return {
        "summary": info.summary,
        "paper": info.paper or None,
        "model": info.model.value,
        "takes_turns": info.takes_turns,
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


def _check(names: list[str]) -> None:
    from hetsched_core.contract import check_policy
    from hetsched_core.errors import HetschedError
    from hetsched_core.policy import make_policy

    verdicts = [check_policy(make_policy(name)) for name in names]
    click.echo("\n\n".join(map(str, verdicts)))
    broken = [verdict.policy for verdict in verdicts if not verdict.kept]
    if broken:
        raise HetschedError(f"contracts are broken by {', '.join(broken)}")
