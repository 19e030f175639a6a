"""`hetsched replay`: run a Slurm log through several policies and compare them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from hetsched_core.cli.group import say_error
from hetsched_core.cli.inputs import FILE, LOG, read_options, site_option, text_of, workload_options
from hetsched_core.cli.options import COSTS, Seconds, claim_outputs, costs, usage_errors

if TYPE_CHECKING:
    from hetsched_core.policy import Policy, PolicyInfo
    from hetsched_core.replay.replay import Outcomes, PolicyReplay
    from hetsched_core.report.result import Result
    from hetsched_core.simulate import SimulationSettings
    from hetsched_core.traces.load import ReplayInputs
    from hetsched_core.types import Job

_SHOWN = 12
"""How many assumptions the terminal shows; the result file has all."""


@click.command()
@click.argument("logs", metavar="LOG...", nargs=-1, type=LOG)
@click.option(
    "--recorded",
    type=FILE,
    metavar="DATABASE",
    help="Instead of a LOG: make the decisions again that a daemon recorded, and tell which come "
    "out otherwise. Takes no other option.",
)
@click.option(
    "--policy",
    "names",
    multiple=True,
    default=("slurm,fifo,srtf,las",),
    show_default="slurm,fifo,srtf,las",
    help="Policies to compare, separated by commas: names that `hetsched policies` lists, or "
    "FILE.py:CLASS for one of your own.",
)
@click.option(
    "--set",
    "parameters",
    metavar="POLICY.NAME=VALUE",
    multiple=True,
    help="Set a parameter of a policy; may be given several times.",
)
@workload_options
@site_option
@costs
@click.option(
    "--placement-blind", is_flag=True, help="Pretend that spreading over nodes costs nothing."
)
@click.option(
    "--hide-sizes",
    is_flag=True,
    help="Tell no policy how much work a job is: what past jobs took stands in.",
)
@click.option(
    "--estimates",
    type=click.Choice(["truth", "learned"]),
    default="truth",
    show_default=True,
    help="The speeds that policies plan with: the true ones, or those learned from what has run.",
)
@click.option(
    "--node-spread",
    metavar="NAME",
    help="Let nodes of one GPU type differ as much as was measured: longhorn-resnet, for example.",
)
@click.option(
    "--warm-up",
    type=Seconds(0, 1e9),
    default=0.0,
    show_default=True,
    help="Seconds: jobs that are submitted so soon after the first do not count in the measures.",
)
@click.option(
    "--drain",
    type=Seconds(0, 1e9),
    default=0.0,
    show_default=True,
    help="Seconds: nor do those that are submitted so shortly before the last.",
)
@click.option(
    "--accounts",
    "tell_accounts",
    is_flag=True,
    help="Print what each account had and was due, also where the site gives no shares.",
)
@click.option("--json", "json_file", type=FILE, help="Write the results to this file.")
@click.option(
    "--run-log",
    "run_logs",
    type=FILE,
    metavar="DIR",
    help="Write what happened under each policy into this folder.",
)
@click.option(
    "--report",
    "report_folder",
    type=FILE,
    metavar="DIR",
    help="Write the comparison with its figures into this folder, as one HTML file.",
)
@click.option(
    "--seeds",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Repeat everything with N seeds, from --seed on: the report gives intervals.",
)
@click.option(
    "--rejects",
    type=FILE,
    help="List here every line that cannot be read, and every job that cannot be used or run.",
)
def replay(
    logs: tuple[Path, ...],
    recorded: Path | None,
    names: tuple[str, ...],
    parameters: tuple[str, ...],
    placement_blind: bool,
    hide_sizes: bool,
    estimates: str,
    node_spread: str | None,
    warm_up: float,
    drain: float,
    tell_accounts: bool,
    json_file: Path | None,
    run_logs: Path | None,
    report_folder: Path | None,
    seeds: int,
    rejects: Path | None,
    site: tuple[Path, ...],
    **inputs: Any,
) -> None:
    """Run the jobs of LOG through several policies and compare what becomes of them.

    LOG is what `sacct -P` or `sacct --json` printed, a workload of hetsched's own, a published
    trace (Philly, Helios, Acme, PAI, openb, Sia), or a trace of Gavel's with its throughput table;
    several files of one kind make one workload. LOG of - is the standard input.

    A policy that fails is named on standard error and left out; an interrupt keeps what the
    policies before it came to.

    Exit codes: 0 done, 1 a file cannot be used or a policy failed, 2 wrong usage, 130 interrupted.
    """
    if recorded is not None:
        from hetsched_core.cli.db import repeat_recorded

        _require_alone("recorded")
        repeat_recorded(recorded)
        return
    if not logs:
        raise click.UsageError("give a LOG, or --recorded DATABASE")
    from dataclasses import replace
    from functools import partial
    from time import perf_counter

    from hetsched_core.cli.progress import progress
    from hetsched_core.cli.replay_report import require_report, write_report
    from hetsched_core.measures.metrics import Counted
    from hetsched_core.policy import failure
    from hetsched_core.replay.replay import (
        EstimateSource,
        Outcomes,
        counting,
        with_learning,
        with_node_spread,
        without_sizes,
    )
    from hetsched_core.replay.replay import replay as run_each
    from hetsched_core.report.history import History
    from hetsched_core.report.result import write_result
    from hetsched_core.simulate import SimulationSettings
    from hetsched_core.throughput.node_spread import node_spread as find_node_spread
    from hetsched_core.traces.load import load_workload
    from hetsched_core.traces.slurm_site import read_site

    with usage_errors():
        wanted = _wanted(names)
        policies = _policies(wanted, parameters)
        spread = None if node_spread is None else find_node_spread(node_spread)
    source, counted = EstimateSource(estimates), Counted(warm_up, drain)
    given_costs = {name: inputs.pop(name) for name in COSTS}
    settings = SimulationSettings(**given_costs, seed=inputs["seed"])
    _refuse_lost_seeds(seeds, logs, json_file, report_folder)
    if report_folder is not None:
        require_report()
    read = (*logs, *site, inputs["cluster"], inputs["rules"])
    given = (path for path in read if path is not None)
    claim_outputs(
        given,
        {"--json": json_file, "--rejects": rejects},
        {"--run-log": run_logs, "--report": report_folder},
    )
    reject = click.get_current_context().with_resource(_rejects_into(rejects))
    cluster, options = read_options(**inputs)
    zone = options.sacct.zone
    said = read_site(((str(path), text_of(path)) for path in site), zone) if site else None

    def load(seed: int, on_reject: Callable[[str], None]) -> ReplayInputs:
        loaded = load_workload(logs, cluster, replace(options, seed=seed), said, on_reject)
        if placement_blind:
            loaded = replace(loaded, speeds=loaded.speeds.placement_blind())
        if hide_sizes:
            loaded = without_sizes(loaded)
        if spread is not None:
            loaded = with_node_spread(loaded, spread, seed)
        loaded = counting(loaded, counted)
        return with_learning(loaded) if source is EstimateSource.LEARNED else loaded

    chosen = {
        "cluster": str(inputs["cluster"]) if inputs["cluster"] else None,
        **given_costs,
        "placement_blind": placement_blind,
        **({"hide_sizes": True} if hide_sizes else {}),
        "estimates": estimates,
        "node_spread": node_spread,
        **({"warm_up": warm_up, "drain": drain} if warm_up or drain else {}),
        "elastic": inputs["elastic"],
        "types": inputs["types"],
        "seed": inputs["seed"],
        "seeds": seeds,
        "tz": inputs["tz"],
        **({"site": list(map(str, site))} if site else {}),
    }
    loaded = load(settings.seed, reject)
    _tell_input(loaded)
    outcomes = Outcomes(policies)
    histories: dict[str, History] = {}
    never: dict[str, str] = {}
    interrupted = False

    def failed(name: str, error: Exception) -> None:
        outcomes.leave_out(name, failure(policies[name], error))
        say_error(f"policy {name!r} failed and is left out: {outcomes.left_out[name]}")

    run = partial(
        run_each, estimates=source, counted=counted, stopwatch=perf_counter, failed=failed
    )
    try:
        with progress("jobs", seeds * len(policies) * len(loaded.workload.submissions)) as ended:
            for one in run(loaded, policies, settings, ended=ended):
                if run_logs is not None:
                    _write_run_log(one, run_logs)
                if report_folder is not None:
                    histories[one.name] = History.of(one.name, one.log, one.use)
                never.update(
                    (r.job.id, _asks(r.job)) for r in one.log.jobs if r.end_state == "never"
                )
                outcomes.add(one)
                if json_file is not None:
                    # What has ended is kept, whatever ends the command.
                    write_result(outcomes.result(loaded, logs, chosen), json_file)
            _run_in_other_order(loaded, outcomes, run, settings)
            for seed in range(settings.seed + 1, settings.seed + seeds):
                again = load(seed, lambda _: None)
                others = run(again, outcomes.done, replace(settings, seed=seed), ended=ended)
                outcomes.other_seeds[seed] = {one.name: one.measures for one in others}
    except KeyboardInterrupt:
        interrupted = True
        for name in [n for n in policies if n not in outcomes.measures | outcomes.left_out]:
            outcomes.leave_out(name, "the replay was interrupted")
    done = outcomes.done
    infos = {name: policy.info for name, policy in done.items()}
    if done:
        result = outcomes.result(loaded, logs, chosen)
        _tell_result(result, infos, tell_accounts)
    _warn_of_never(never)
    for job, asks in never.items():
        reject(f"job {job}: can never run here: {asks}")
    if done and json_file is not None:
        write_result(result, json_file)
    if done and report_folder is not None:
        from hetsched_core.report.history import LoggedHistory

        drawn = [histories[name] for name in done]
        logged_history = LoggedHistory.of(loaded.workload.submissions)
        write_report(result, infos, drawn, logged_history, report_folder)
    if interrupted:
        raise KeyboardInterrupt
    if len(done) < len(wanted):
        click.get_current_context().exit(1)


def _run_in_other_order(
    loaded: ReplayInputs,
    outcomes: Outcomes,
    run: Callable[..., Iterator[PolicyReplay]],
    settings: SimulationSettings,
) -> None:
    """Run the site's own policy once more where the order of the GPU types may matter to it."""
    from hetsched_core.replay.replay import in_other_order
    from hetsched_core.report.result import SITE_POLICY

    policy = outcomes.done.get(SITE_POLICY)
    again = in_other_order(loaded) if policy is not None and len(outcomes.policies) > 1 else None
    if again is not None:
        for one in run(again, {SITE_POLICY: policy}, settings):
            outcomes.reordered = one.measures


def _require_alone(name: str) -> None:
    """Refuse an option that stands beside others, or beside arguments."""
    context = click.get_current_context()
    given = [
        known.opts[0]
        for known in context.command.params
        if (known.name or name) not in (name, "help")
        and context.get_parameter_source(known.name or name) is ParameterSource.COMMANDLINE
    ]
    if given:
        raise click.UsageError(f"--{name} stands alone: leave out {', '.join(given)}")


def _wanted(names: tuple[str, ...]) -> list[str]:
    """Return what --policy asks for, word by word."""
    from hetsched_core.errors import InputError

    wanted = [name.strip() for part in names for name in part.split(",") if name.strip()]
    if not wanted:
        raise InputError("--policy names no policy; `hetsched policies` lists them")
    _require_distinct(wanted)
    return wanted


def _require_distinct(names: list[str]) -> None:
    from hetsched_core.errors import InputError

    twice = [name for at, name in enumerate(names) if name in names[:at]]
    if twice:
        raise InputError(
            f"--policy names {twice[0]} twice; name each policy once, and give one of your own "
            "another name in its info"
        )


def _policies(wanted: list[str], parameters: tuple[str, ...]) -> dict[str, Policy]:
    """Return the policies asked for that can be loaded, with their parameters set."""
    from hetsched_core.cli.policies import usable
    from hetsched_core.errors import InputError
    from hetsched_core.policy import find_policy

    found = list(usable(wanted, find_policy).values())
    names = [name for name, _ in found]
    _require_distinct(names)
    settings: dict[str, dict[str, str]] = {name: {} for name in names}
    for text in parameters:
        policy, dot, rest = text.partition(".")
        key, equals, value = rest.partition("=")
        if not (dot and equals) or policy not in settings:
            raise InputError(
                f"--set {text!r} is not POLICY.NAME=VALUE for one of the policies compared: "
                f"{', '.join(names)}"
            )
        settings[policy][key] = value
    types = dict(found)
    return usable(names, lambda name: _policy(types[name], name, settings[name]))


def _policy(cls: type[Policy], name: str, settings: dict[str, str]) -> Policy:
    """Make a policy; what is wrong with a parameter came from --set."""
    from hetsched_core.errors import InputError
    from hetsched_core.policy import policy_of

    try:
        return policy_of(cls, name, settings)
    except InputError as error:
        if not settings:
            raise
        raise InputError(f"--set for {name}: {error}") from None


def _refuse_lost_seeds(
    seeds: int, logs: tuple[Path, ...], json_file: Path | None, report_folder: Path | None
) -> None:
    """Further seeds are for a report or a result file, and need input that can be read again."""
    from hetsched_core.errors import InputError

    if seeds == 1:
        return
    if json_file is None and report_folder is None:
        raise click.UsageError(
            f"--seeds {seeds} is for a report or a result file: add --report DIR or --json FILE"
        )
    for log in logs:
        if log.exists() and not log.is_file():
            raise InputError(
                f"--seeds {seeds} reads {log} {seeds} times, and it is no regular file: save what "
                "it gives to a file first"
            )


def _tell_input(loaded: ReplayInputs) -> None:
    """Say on standard error what was read and what was assumed."""
    from hetsched_core.traces.sacct import Doubt
    from hetsched_core.traces.sacct.report import counted

    for report in loaded.reports:
        click.echo(str(report), err=True)
        for doubt in filter(report.doubts.get, Doubt):
            seen = report.doubts[doubt]
            lines = ", ".join(map(str, seen.first))
            first = "the first: " if seen.count > len(seen.first) else "number "
            found = counted(seen.count, report.form)
            click.echo(f"  in doubt: {found}: {doubt} ({first}{lines})", err=True)
    gpus = ", ".join(f"{count} {kind}" for kind, count in loaded.cluster.gpus_by_type().items())
    click.echo(
        f"{len(loaded.workload.submissions)} jobs on {loaded.cluster.name}: "
        f"{len(loaded.cluster)} nodes, {gpus}",
        err=True,
    )
    for reason, count in loaded.workload.rejections():
        click.echo(f"  not used: {count} jobs: {reason}", err=True)
    assumptions = loaded.workload.assumptions
    for assumption in assumptions[:_SHOWN]:
        click.echo(f"  assumed: {assumption}", err=True)
    if len(assumptions) > _SHOWN:
        more = len(assumptions) - _SHOWN
        click.echo(f"  assumed: {more} things more; --json FILE lists them all", err=True)


def _asks(job: Job) -> str:
    """Say what a job asks for, as far as it can keep it from ever running."""
    types = f" of {'/'.join(sorted(job.gpu_types))}" if job.gpu_types is not None else ""
    per_gpu = f"{job.cpus_per_gpu:.3g} CPUs and {job.memory_mb_per_gpu:.0f} MiB a GPU"
    return f"{job.requirements} GPUs{types}, {per_gpu}"


def _warn_of_never(never: dict[str, str]) -> None:
    if never:
        job, asks = next(iter(never.items()))
        click.echo(
            f"warning: {len(never)} jobs can never run on this cluster: too large for it, or of a "
            f"GPU type that it does not have (the first: {job}, which asks for {asks}); "
            "--rejects FILE lists them",
            err=True,
        )


@contextmanager
def _rejects_into(path: Path | None) -> Iterator[Callable[[str], None]]:
    """Write what it is told into a file, if one is given, also where the command fails."""
    from hetsched_core.records.files import replacing

    found: list[str] = []
    try:
        yield found.append
    finally:
        if path is not None:
            with replacing(path) as file:
                file.writelines(f"{reject}\n" for reject in found)


def _tell_result(result: Result, infos: Mapping[str, PolicyInfo], accounts: bool) -> None:
    """Print the comparison: in colour on a terminal, else as plain text.

    Accounts are in it where they were given unlike shares, or where they are asked for.
    """
    from rich.console import Console

    from hetsched_core.report.table import account_table, closeness_table, comparison, show
    from hetsched_core.report.verdict import verdict

    show(comparison(result.policies, result.logged), Console())
    if result.closeness:
        click.echo()
        show(closeness_table(result.closeness), Console())
    if sentences := verdict(result, infos):
        click.echo()
    for sentence in sentences:
        click.echo(f"verdict: {sentence}")
    unlike = any(one.shares != 1 for rows in result.accounts.values() for one in rows)
    table = account_table(result.accounts, result.policies) if accounts or unlike else None
    if table is not None:
        click.echo()
        show(table, Console())


def _write_run_log(one: PolicyReplay, folder: Path) -> None:
    from hetsched_core.records.runlog_file import write_run_log

    folder.mkdir(parents=True, exist_ok=True)
    write_run_log(one.log, folder / f"{one.name}.jsonl")
