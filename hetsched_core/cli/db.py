"""`hetsched db`: look into a throughput database, bring measurements in and take tables out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hetsched_core.cli.table import print_table

if TYPE_CHECKING:
    from hetsched_core.store import (
        BandwidthSummary,
        Decision,
        ProfileSummary,
        Store,
        StoredSpeed,
        Summary,
    )

_FILE = click.Path(path_type=Path)

_MOST_NAMED = 5
"""Most differences that are printed for one decision."""


@click.group()
def db() -> None:
    """Look into a throughput database, and move tables in and out.

    Where another process has the file open, each command says which; the daemon's may be looked
    into all the same, as of now, by root and the daemon's user.
    """


@db.command()
@click.argument("file", type=_FILE)
@click.option("--profile", metavar="NAME", help="Show the measured speeds of this profile.")
@click.option("--owner", default="", metavar="USER", help="Whose profile; by default the site's.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
def show(file: Path, profile: str | None, owner: str, as_json: bool) -> None:
    """Print what FILE holds: its profiles on each GPU type, or the speeds of one profile.

    Beside the profiles it prints how fast GPUs of each type average gradients, and whether that was
    measured, is published for the type, or is assumed.
    """
    import json
    from dataclasses import asdict

    from hetsched_core.cli.stores import open_to_read

    if owner and profile is None:
        raise click.UsageError("--owner says whose profile to show: add --profile NAME")
    with open_to_read(file) as store:
        _tell_of_opening(store)
        if profile is not None:
            speeds = _speeds(store, profile, owner)
        else:
            summary, profiles = store.summary(), store.profiles()
            bandwidths = store.bandwidth_sources()
    if profile is not None:
        if as_json:
            named = [dict(zip(_SPEED_COLUMNS, row, strict=True)) for row in speeds]
            document = {"schema": 1, "profile": profile, "owner": owner, "speeds": named}
            click.echo(json.dumps(document, indent=2))
        else:
            print_table(_SPEED_COLUMNS, speeds)
    elif as_json:
        known = [asdict(each) for each in profiles]
        sources = [asdict(each) for each in bandwidths]
        document = {"schema": 1, **asdict(summary), "known": known, "bandwidth_sources": sources}
        click.echo(json.dumps(document, indent=2))
    else:
        _print_profiles(profiles)
        _print_bandwidths(bandwidths)
        _print_summary(file, summary)


@db.command(name="import")
@click.argument("file", type=_FILE)
@click.argument("tables", type=_FILE, nargs=-1, required=True, metavar="TABLE...")
@click.option(
    "--owner",
    default="",
    metavar="USER",
    help="Whose profiles a throughput table of Gavel describes; by default the site's, which "
    "everybody may read. A CSV says so itself.",
)
def import_(file: Path, tables: tuple[Path, ...], owner: str) -> None:
    """Merge measured speeds into FILE, which is made if it is not there.

    A TABLE is a speed.csv that `hetsched db export` wrote, or a throughput table of Gavel; either
    may be compressed with gzip. All are merged, or none if one has a fault. What is imported twice
    counts twice.
    """
    from hetsched_core.store import Mode, Store

    read = {table: _read_table(table, owner) for table in dict.fromkeys(tables)}
    with Store.open(file, Mode.WRITE) as store:
        _tell_of_opening(store)
        store.import_speeds([row for rows in read.values() for row in rows])
    for table, rows in read.items():
        # A speed over several nodes has a row for each.
        measurements = sum(
            row.measurement.speed.count / (row.measurement.node_count if row.node else 1)
            for row in rows
        )
        click.echo(f"{table}: {len(rows)} rows of {measurements:.0f} measurements")


@db.command()
@click.argument("file", type=_FILE)
@click.argument("folder", type=_FILE)
@click.option(
    "--format",
    "form",
    type=click.Choice(["parquet", "csv"]),
    default="parquet",
    show_default=True,
    help="Format of the files; speed.csv can be imported again.",
)
def export(file: Path, folder: Path, form: str) -> None:
    """Write the tables of FILE to FOLDER, one file for each.

    A FOLDER that is not there is made, for its owner alone.
    """
    from hetsched_core.cli.stores import open_to_read
    from hetsched_core.errors import InputError
    from hetsched_core.store import Format

    with open_to_read(file) as store:
        _tell_of_opening(store)
        if folder.exists() and not folder.is_dir():
            raise InputError(f"{folder} is a file; give a folder, which need not exist yet")
        folder.mkdir(0o700, parents=True, exist_ok=True)
        for path in store.export(folder, Format(form)):
            click.echo(path)


@db.command()
@click.argument("file", type=_FILE)
@click.option("--profile", required=True, metavar="NAME", help="Which profile.")
@click.option("--owner", required=True, metavar="USER", help="Whose profile.")
@click.option("--withdraw", is_flag=True, help="Let its owner alone read it again.")
def publish(file: Path, profile: str, owner: str, withdraw: bool) -> None:
    """Let everybody read the speeds of a profile in FILE.

    They answer for other users' profiles of that name, on GPU types of which those know nothing.
    """
    from hetsched_core.errors import InputError
    from hetsched_core.store import Mode, ProfileKey, Store

    key = ProfileKey(profile, owner)
    if not file.exists():
        raise InputError(f"{file} does not exist; name a throughput database")
    with Store.open(file, Mode.WRITE) as store:
        _tell_of_opening(store)
        (store.withdraw if withdraw else store.publish)(key)
    click.echo(f"{key}: read by {'its owner' if withdraw else 'everybody'}")


@db.command()
@click.argument("file", type=_FILE)
def check(file: Path) -> None:
    """Read all of FILE and say whether it is whole and holds together."""
    from hetsched_core.cli.stores import open_to_read
    from hetsched_core.errors import HetschedError

    with open_to_read(file) as store:
        _tell_of_opening(store)
        faults = store.faults()
        measurements = store.summary().measurements
    if faults:
        raise HetschedError(
            f"{file} does not hold together: {'; '.join(faults)}; restore a copy, or move it away "
            "to begin a new one"
        )
    click.echo(f"{file}: whole, {measurements} measurements")


@db.command()
@click.argument("file", type=_FILE)
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
                again = recorded.again()
            except InputError as error:
                left_out += 1
                click.echo(f"decision {number}: {error}")
                continue
            found = differences(recorded.plan, again)
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


def _tell_of_opening(store: Store) -> None:
    """Say what opening a store has met: what was kept of an older one, a log that is unread."""
    if store.kept is not None:
        click.echo(
            f"{store.path} was of an older version and is carried forward; as it was it is kept as "
            f"{store.kept.name}",
            err=True,
        )
    log = store.unread_log
    if log is not None:
        click.echo(
            f"warning: nothing of the {log.stat().st_size} bytes of {log} could be taken in: a "
            "killed writer left them, or they are damaged and changes are missing; restore a copy "
            "if some are",
            err=True,
        )


def _read_table(path: Path, owner: str) -> list[StoredSpeed]:
    """Read a file of either kind."""
    from hetsched_core.store import read_speed_csv, read_speed_tables
    from hetsched_core.traces.gavel import read_throughputs
    from hetsched_core.traces.lines import read_head, read_lines

    with path.open("rb") as file:
        lines = read_lines(file, str(path))
        if read_head(file, 1) == "{":
            tables = read_throughputs("\n".join(lines), str(path))
            # The table has no times: it was measured before the file was written.
            written_s = path.stat().st_mtime
            return list(read_speed_tables(tables, owner, written_s))
        return list(read_speed_csv((f"{line}\n" for line in lines), str(path)))


_SPEED_COLUMNS = ("gpu_type", "node", "nodes", "gpus", "count", "mean", "sd", "last_s")


def _speeds(store: Store, name: str, owner: str) -> list[tuple[str | int | float, ...]]:
    """Return what was measured of a profile: by type first, then by node."""
    from hetsched_core.errors import unknown
    from hetsched_core.store import ProfileKey

    known = store.profiles()
    key = ProfileKey(name, owner)
    types = [each.gpu_type for each in known if each.profile == key]
    if not types:
        whose = f"profile of {owner}" if owner else "profile of the site"
        raise unknown(whose, name, [p.profile.name for p in known if p.profile.owner == owner])
    layers = store.layers([key], types)
    return [
        (
            types[gpu_type],
            layers.nodes[entity] if entity >= 0 else "",
            *numbers,
        )
        for rows in (layers.by_type, layers.by_entity)
        for gpu_type, entity, *numbers in zip(
            rows.gpu_type.tolist(),
            rows.entity.tolist(),
            rows.nodes.tolist(),
            rows.gpus.tolist(),
            rows.count.tolist(),
            rows.mean.tolist(),
            rows.sd.tolist(),
            rows.last_s.tolist(),
            strict=True,
        )
    ]


def _print_profiles(profiles: Sequence[ProfileSummary]) -> None:
    rows = [
        (
            each.profile.name,
            each.profile.owner,
            each.gpu_type,
            "public" if each.published else "owner",
            each.measurements,
            each.entities,
            "yes" if each.profiled else "no",
            "" if each.last_s is None else each.last_s,
        )
        for each in profiles
    ]
    if rows:
        names = ("profile", "owner", "gpu_type", "read_by", "speeds", "nodes", "profiled", "last_s")
        print_table(names, rows)
        click.echo()


def _print_bandwidths(bandwidths: Sequence[BandwidthSummary]) -> None:
    rows = [
        (
            each.gpu_type,
            each.term.value,
            each.parameters_per_s,
            each.source,
            each.runs,
            "" if each.last_s is None else each.last_s,
        )
        for each in bandwidths
    ]
    if rows:
        print_table(("gpu_type", "over", "parameters/s", "source", "runs", "last_s"), rows)
        click.echo()


def _print_summary(file: Path, summary: Summary) -> None:
    click.echo(
        f"{file}: schema {summary.version}, {summary.profiles} profiles, {summary.gpu_types} GPU "
        f"types, {summary.nodes} nodes"
    )
    click.echo(
        f"measurements: {summary.measurements} in {summary.type_rows} rows by type and "
        f"{summary.entity_rows} by node"
    )
    click.echo(
        f"profiled pairs: {summary.profiled}, data times: {summary.data_times}, bandwidths: "
        f"{summary.bandwidths}, GPU types with published rates: {summary.gpu_specs}"
    )
    click.echo(
        f"jobs: {summary.jobs}, of which {summary.left} have left; decisions: "
        f"{summary.decisions}, runs of replays: {summary.runs}, spool files: {summary.spool_files}"
    )
    for reason, lines in summary.rejected:
        click.echo(f"rejected from the spool, {reason}: {lines}")
