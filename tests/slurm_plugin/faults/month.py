"""A month of operation: 30,000 jobs on a Slurm that is made up, and some thousands on a real one.

    python -m tests.slurm_plugin.faults.month docs/live/month.md

writes what came of it as a page. `--jobs`, `--days` and `--real-jobs` make it shorter.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import re
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from string import Template

import numpy as np

from hetsched_core.errors import HetschedError
from hetsched_core.store import Store
from slurm_plugin.api.client import ask
from slurm_plugin.testbed import Testbed, TestbedError, default_cache, fake_nodes, install
from tests.slurm_plugin.clusters import up
from tests.slurm_plugin.faults.month_slurm import (
    STEPS_S,
    Hour,
    entries,
    files_in,
    hours_in,
    rss_kib,
)
from tests.slurm_plugin.faults.site import SETS, Kind, Site, Verdict
from tests.slurm_plugin.jobs import await_hold

HERE = Path(__file__).parent

LOGROTATE = """\
{log} {{
    rotate 40
    copytruncate
    missingok
    notifempty
    nocompress
}}
"""
"""What docs/live/configuration.md says of a log that is a file; how often is up to who calls."""

SIMULATED_OPTIONS = (
    *("--partitions=gpu", "--mode=enforce", "--policy=steady", "--backend=commands"),
    # Ten minutes pass between two cycles: the hold is to last for longer. So there are fewer
    # decisions than at a site, and fewer are kept: what is kept is to be full in some days.
    *("--cycle-s=60", "--slack-s=2400", "--keep-decisions=1000"),
)

REAL_OPTIONS = (
    *("--mode=enforce", "--policy=steady", "--round-s=10", "--cycle-s=0.5", "--grace-s=10"),
    *("--restart-cost-s=1", "--spool-s=2"),
)

KINDS = (
    SETS[0],
    SETS[1],
    Kind("#SBATCH --gpus=1", 1),
    Kind("#SBATCH --cpus-per-task=2", 0),
)
"""Short jobs of a real Slurm: two kinds with a set, a rigid one, and one without GPUs."""

QUESTIONS = ("status", "queue", "nodes", "page")

ASKED_S = 10.0
"""How often the daemon of the made-up month is asked, by the clock on the wall."""

AT_ONCE = 60
"""So many jobs are in the real queue at most, and at most a tenth of all."""

STEPPED_S = 15.0
"""For so long the real daemon's clock is wrong each time."""

MOST_GROWTH_MIB = 1.0
"""By so much memory beside the database may grow with 1,000 jobs, once most caches are full.

What DuckDB keeps of the file in memory grows with the file, up to a limit of its own.
"""

MOST_SLOWER_MS = 3.0
"""By so much the CPU of a cycle may grow with 1,000 jobs that are over, all else being equal."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen of a daemon at a moment; `cpu_s` is what it has used, in all `cycles`."""

    ended: int
    rss_kib: int
    descriptors: int
    threads: int
    database_kib: int
    spool_files: int
    moves_files: int
    cycles: float
    cpu_s: float
    load: float


@dataclass(slots=True)
class Log:
    """What a daemon's log has told, over all its rotations; `wrong` are lines of its own faults."""

    rotations: int = 0
    events: Counter[str] = field(default_factory=Counter)
    decisions: list[int] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    @property
    def lost(self) -> int:
        """How many decisions are in no file."""
        numbers = set(self.decisions)
        return max(numbers, default=0) - min(numbers, default=1) + 1 - len(numbers)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a part of the month; `wrong` is what ought not to be, in words."""

    seen: tuple[Seen, ...]
    log: Log
    rows: dict[str, int]
    seconds: float
    wrong: tuple[str, ...]


# -- the log ---------------------------------------------------------------------------------------


def rotate(log: Path) -> None:
    """Rotate a log by logrotate, as docs/live/configuration.md has it."""
    config = log.with_name("logrotate.conf")
    config.write_text(LOGROTATE.format(log=log))
    config.chmod(0o644)
    state = log.with_name("logrotate.state")
    subprocess.run(["logrotate", "--force", f"--state={state}", config], check=True)


def copy_and_truncate(log: Path) -> None:
    """Do to a log what logrotate does, where there is none."""
    number = len(list(log.parent.glob(f"{log.name}.*"))) + 1
    log.with_name(f"{log.name}.{number}").write_bytes(log.read_bytes())
    os.truncate(log, 0)


def log_of(path: Path) -> Log:
    """Read a log with all that was rotated away."""
    found = Log()
    rotated = [each for each in path.parent.glob(f"{path.name}.*") if each.suffix[1:].isdecimal()]
    found.rotations = len(rotated)
    for each in (path, *rotated):
        for line in each.read_text().splitlines():
            event = re.search(r" event=(\w+)", line)
            if not event:
                continue
            found.events[event[1]] += 1
            if number := re.search(r" event=decision number=(\d+)", line):
                found.decisions.append(int(number[1]))
            if event[1] in ("invalid_plan", "history", "spool_fails"):
                found.wrong.append(line)
    return found


# -- the made-up Slurm -----------------------------------------------------------------------------


def simulated(
    folder: Path,
    jobs: int,
    days: float,
    turn: Callable[[Path], None],
    nodes: int = 64,
    patience_s: float = 3000.0,
) -> tuple[Outcome, tuple[Hour, ...]]:
    """Run a daemon through a month of a made-up Slurm, or as much of it as passes in `patience_s`.

    `turn` rotates its log.
    """
    clock, log = clock_in(folder), folder / "daemon.log"
    (folder / "spool").mkdir()
    words = [sys.executable, "-m", "tests.slurm_plugin.faults.month_slurm"]
    words += [f"--jobs={jobs}", f"--days={days}", f"--folder={folder}", f"--nodes={nodes}", "--"]
    words += [*SIMULATED_OPTIONS, f"--database={folder}/daemon.duckdb"]
    words += [f"--spool={folder}/spool", f"--socket={folder}/hetschedd.sock"]
    begun = asked = time.monotonic()
    rotated = 0
    # A month in which Oslo's clocks are set back an hour. It is to come, so that files, whose times
    # nothing sets off, are old by the daemon's clock.
    since_s = datetime(datetime.now(UTC).year + 1, 10, 10, tzinfo=UTC).timestamp()
    clock.write_bytes(struct.pack("l", round(since_s - time.time())))
    variables = {"LD_PRELOAD": str(folder / "clock.so"), "CLOCK_OFFSET": str(clock)}
    with log.open("a") as file:
        daemon = subprocess.Popen(
            words, env=os.environ | variables | {"TZ": "Europe/Oslo"}, stderr=file
        )
    try:
        while daemon.poll() is None:
            time.sleep(0.5)
            if time.monotonic() - begun > patience_s:
                daemon.terminate()
                daemon.wait(120)
            thirtieth = max((int(30 * hour.day / days) for hour in hours_in(folder)), default=0)
            if thirtieth > rotated:
                rotated = thirtieth
                turn(log)
            if time.monotonic() > asked + ASKED_S:
                asked = time.monotonic()
                questions(folder / "hetschedd.sock")
    finally:
        if daemon.poll() is None:
            daemon.kill()
        code = daemon.wait()
    hours = tuple(hours_in(folder))
    wrong = [f"the daemon ended with {code}"] if code else []
    if not hours or hours[-1].ended < 0.98 * hours[-1].submitted - 100:
        wrong.append(f"jobs are left: {hours[-1:]}")
    rows, told = rows_in(folder / "daemon.duckdb"), log_of(log)
    moments = tuple(
        Seen(
            *(each.ended, each.rss_kib, each.descriptors, each.threads, each.database_kib),
            *(each.spool_files, each.moves_files),
            *(float(each.cycles), each.cpu_ms * each.cycles / 1000, each.load),
        )
        for each in hours
    )
    took_s = time.monotonic() - begun
    return Outcome(moments, told, rows, took_s, (*wrong, *told.wrong)), hours


def questions(socket: Path) -> None:
    """Ask a daemon what users, the page and Prometheus ask all the time."""
    for question in QUESTIONS:
        with suppress(HetschedError):
            ask(socket, question)


def rows_in(path: Path) -> dict[str, int]:
    """Return how many rows each table of a database has that has any."""
    with Store.open(path) as store, store.transaction() as transaction:
        tables = transaction.rows("SELECT table_name FROM duckdb_tables() ORDER BY 1")
        counts = {
            name: int(transaction.rows(f"SELECT count(*) FROM {name}")[0][0]) for (name,) in tables
        }
    return {name: count for name, count in counts.items() if count}


def clock_in(folder: Path) -> Path:
    """Build `clock.so` in a folder, and return the file by which it sets a process's clock off."""
    source, offset = HERE / "clock.c", folder / "offset"
    command = ["gcc", "-O2", "-fPIC", "-shared", "-o", f"{folder}/clock.so", str(source)]
    subprocess.run(command, check=True)
    offset.write_bytes(struct.pack("l", 0))
    return offset


# -- the real Slurm --------------------------------------------------------------------------------


@dataclass(slots=True)
class RealMonth:
    """What happens on a real Slurm while short jobs come and go."""

    site: Site
    jobs: int
    offset: Path
    turn: Callable[[Path], None]
    metrics: str
    seen: list[Seen] = field(default_factory=list)
    happened: Counter[str] = field(default_factory=Counter)
    _right_at_s: float = float("inf")

    def run(self, patience_s: float) -> Outcome:
        """Go through the month; what has not been submitted after `patience_s` is left out."""
        begun, site = time.monotonic(), self.site
        due = sorted(self._due())
        submitted = 0
        while submitted < self.jobs and time.monotonic() - begun < patience_s:
            room = min(AT_ONCE, self.jobs // 10) - len(site.queue())
            for _ in range(min(room, self.jobs - submitted)):
                site.submit(KINDS)
                submitted += 1
            while due and due[0][0] * self.jobs <= submitted:
                _, what, about = due.pop(0)
                self._happen(what, about)
            self._look(submitted)
        self._happen("clock", 0)
        site.await_all(600)
        self._look(submitted)
        site.stop_daemon()
        verdict: Verdict = site.verdict()
        log = log_of(site.folder / "daemon.log")
        rows = rows_in(site.folder / "daemon.duckdb")
        self.happened["jobs"] = verdict.jobs
        self.happened["finished"] = verdict.finished
        self.happened["runs"] = verdict.runs
        took_s, wrong = time.monotonic() - begun, (*verdict.wrong, *log.wrong)
        return Outcome(tuple(self.seen), log, rows, took_s, wrong)

    def _due(self) -> Iterator[tuple[float, str, int]]:
        """Yield after which part of the jobs what happens."""
        yield from (((at + 0.5) / 30, "rotation", 0) for at in range(30))
        yield from (((at + 0.3) / 4, "upkeep", at) for at in range(4))
        yield from (((at + 0.6) / 4, "restart", at) for at in range(4))
        yield from (((at + 0.8) / 5, "clock", seconds) for at, seconds in enumerate(STEPS_S))

    def _happen(self, what: str, about: int) -> None:
        cluster = self.site.cluster
        self.happened[what] += 1
        match what:
            case "rotation":
                self.turn(self.site.folder / "daemon.log")
            case "upkeep":
                words = f"ReservationName=upkeep{about} StartTime=now+5 Duration=00:01:00"
                words += " Nodes=n[0-7] Flags=MAINT,IGNORE_JOBS Users=root"
                with suppress(TestbedError):
                    cluster.command("scontrol", "create", "reservation", *words.split())
            case "restart":
                cluster.stop_controller()
                cluster.start_controller()
            case _:
                self._set_clock(about)

    def _set_clock(self, seconds: int) -> None:
        with self.offset.open("r+b", buffering=0) as file:
            file.write(struct.pack("l", seconds))
        self._right_at_s = time.monotonic() + STEPPED_S if seconds else float("inf")

    def _look(self, submitted: int) -> None:
        if time.monotonic() > self._right_at_s:
            self._set_clock(0)
        site = self.site
        assert site.daemon is not None
        assert site.daemon.poll() is None, site.log[-3000:]
        questions(site.folder / "hetschedd.sock")
        process, files = site.daemon.pid, Path(f"/proc/{site.daemon.pid}")
        fields = (files / "stat").read_text().rpartition(")")[2].split()
        with urllib.request.urlopen(f"http://{self.metrics}/metrics", timeout=60) as answer:
            told = re.search(r"^hetsched_cycles_total (\S+)", answer.read().decode(), re.MULTILINE)
        spool, moves = files_in(site.folder / "spool")
        self.seen.append(
            Seen(
                submitted - len(site.queue()),
                rss_kib(process),
                entries(files / "fd"),
                entries(files / "task"),
                sum(each.stat().st_size >> 10 for each in site.folder.glob("daemon.duckdb*")),
                *(spool, moves),
                float(told[1]) if told else 0.0,
                (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"),
                os.getloadavg()[0],
            )
        )


@contextmanager
def zone(text: str) -> Iterator[None]:
    """Have what is started meanwhile in a time zone; this process and all commands stay in UTC."""
    os.environ["TZ"] = text
    try:
        yield
    finally:
        os.environ["TZ"] = "UTC"


def changing_zone(spring_s: float, autumn_s: float) -> str:
    """Return a zone in which summer begins, and ends, at these times, seconds UTC, of one year."""

    def rule(at_s: float, local_s: float) -> str:
        day = datetime.fromtimestamp(at_s, UTC)
        local = day + timedelta(seconds=local_s)
        since = local - datetime(day.year, day.month, day.day, tzinfo=UTC)
        return f"{day.timetuple().tm_yday - 1}/{since.total_seconds() // 3600:.0f}:{local:%M:%S}"

    return f"WIN0SUM-1,{rule(spring_s, 0)},{rule(autumn_s, 3600)}"


def real(
    folder: Path,
    jobs: int,
    turn: Callable[[Path], None],
    nodes: int = 64,
    patience_s: float = 1500.0,
    summer_s: tuple[float, float] = (100.0, 220.0),
) -> tuple[Outcome, Counter[str]]:
    """Run a daemon on a real Slurm, with short jobs, through what a month brings.

    `summer_s` is after how many seconds the clocks on the wall are set on an hour, and back.
    """
    offset = clock_in(folder)
    begun_s = time.time()
    spring_s, autumn_s = (begun_s + each for each in summer_s)
    port = random.SystemRandom().randrange(20_000, 30_000)
    with zone(changing_zone(spring_s, autumn_s)):
        started = up(install(default_cache()), fake_nodes(nodes))
        cluster: Testbed = started.__enter__()
    try:
        options = (*REAL_OPTIONS, f"--metrics=127.0.0.1:{port}")
        site = Site(cluster, folder, options, random.Random(1), samples=(50.0, 150.0))
        site.preload = str(folder / "clock.so")
        with zone(changing_zone(spring_s, autumn_s)):
            os.environ["CLOCK_OFFSET"] = str(offset)
            site.start_daemon()
        await_hold(cluster)
        month = RealMonth(site, jobs, offset, turn, f"127.0.0.1:{port}")
        try:
            outcome = month.run(patience_s)
        finally:
            site.close()
        month.happened["summer"] = sum(at_s < time.time() for at_s in (spring_s, autumn_s))
        return outcome, month.happened
    finally:
        started.__exit__(None, None, None)


# -- what has to hold ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Growth:
    """How resident memory grew with jobs, by least squares: MiB for 1,000 of them, and the fit.

    `r2` is which part of its changes that line explains, `from_mib` and `to_mib` its two ends.
    """

    mib: float
    r2: float
    from_mib: float
    to_mib: float


def growth(seen: Sequence[Seen], *, without_database: bool = False) -> Growth:
    """Fit memory in the second half: in the first one tables and caches fill."""
    warm = seen[len(seen) // 2 :]
    jobs = np.array([each.ended for each in warm], dtype=float) / 1000
    beside = [each.rss_kib - each.database_kib * without_database for each in warm]
    mib = np.array(beside) / 1024
    if len(warm) < 3 or jobs[-1] == jobs[0]:
        return Growth(0.0, 0.0, mib[0], mib[-1])
    slope, base = np.polyfit(jobs, mib, 1)
    spread = float(((mib - mib.mean()) ** 2).sum())
    left = float(((mib - base - slope * jobs) ** 2).sum())
    ends = base + slope * jobs[[0, -1]]
    return Growth(float(slope), 1 - left / spread if spread else 0.0, ends[0], ends[1])


def parts_of(seen: Sequence[Seen], parts: int) -> Iterator[Sequence[Seen]]:
    """Yield what was seen in each part of a run."""
    for at in range(parts):
        if part := seen[len(seen) * at // parts : len(seen) * (at + 1) // parts]:
            yield part


def slower_ms(hours: Sequence[Hour]) -> tuple[float, float]:
    """Return by how much the CPU of a cycle grew with 1,000 jobs that were over, and the fit's R².

    By least squares, beside what goes with the jobs that there are and with the machine's load.
    """
    # In the first hours all is loaded and compiled.
    warm = [hour for hour in hours[len(hours) // 20 :] if hour.cycles]
    causes = [(1.0, h.ended / 1000, h.load, h.running, h.waiting) for h in warm]
    took = np.array([hour.cpu_ms for hour in warm])
    found, *_ = np.linalg.lstsq(np.array(causes), took, rcond=None)
    spread = float(((took - took.mean()) ** 2).sum())
    left = float(((took - np.array(causes) @ found) ** 2).sum())
    return float(found[1]), 1 - left / spread if spread else 0.0


def grown(seen: Sequence[Seen], hours: Sequence[Hour]) -> Iterator[str]:
    """Say what has grown in the made-up month that ought not to."""
    warm = seen[len(seen) // 2 :]
    found = growth(seen, without_database=True)
    if found.mib > MOST_GROWTH_MIB:
        yield f"memory beside the database grows by {found.mib:.2f} MiB for 1,000 jobs"
    for name in ("descriptors", "threads"):
        first, last = (getattr(warm[at], name) for at in (0, -1))
        if last > first + 2:
            yield f"{first} {name} at first, {last} in the end"
    slower, _ = slower_ms(hours)
    if slower > MOST_SLOWER_MS:
        yield f"a cycle takes {slower:.1f} ms more of a CPU for each 1,000 jobs that are over"


# -- the page --------------------------------------------------------------------------------------

_COLUMNS = (
    *("jobs ended", "memory, MiB", "descriptors", "threads", "database, MiB"),
    *("users' files in the spool", "the daemon's", "CPU of a cycle, ms", "load"),
)


def table(parts: Sequence[tuple[str, Sequence[Seen]]], cpu_ms: Sequence[float], first: str) -> str:
    """Return a row for each part: how things stood at its end, and the most files in it."""
    rows = [f"| {' | '.join((first, *_COLUMNS))} |", f"|{' --- |' * (len(_COLUMNS) + 1)}"]
    for (name, part), ms in zip(parts, cpu_ms, strict=True):
        last = part[-1]
        files = [max(getattr(each, at) for each in part) for at in ("spool_files", "moves_files")]
        load = sum(each.load for each in part) / len(part)
        shown = ["-" if number < 0 else f"{number:,}" for number in files]
        rows.append(
            f"| {name} | {last.ended:,} | {last.rss_kib / 1024:.0f} | {last.descriptors} | "
            f"{last.threads} | {last.database_kib / 1024:.0f} | {shown[0]} | {shown[1]} | "
            f"{ms:.1f} | {load:.1f} |"
        )
    return "\n".join(rows)


def cpu_by_hour(parts: Sequence[Sequence[Seen]]) -> list[float]:
    """Return the CPU of a cycle in each part, ms: each moment tells of the cycles of its hour."""
    return [
        1000 * sum(each.cpu_s for each in part) / max(1.0, sum(each.cycles for each in part))
        for part in parts
    ]


def cpu_in_all(parts: Sequence[Sequence[Seen]]) -> list[float]:
    """Return the same where each moment tells of all cycles so far."""
    ends = [parts[0][0], *(part[-1] for part in parts)]
    return [
        1000 * (after.cpu_s - before.cpu_s) / max(1.0, after.cycles - before.cycles)
        for before, after in itertools.pairwise(ends)
    ]


def _told(log: Log, rows: dict[str, int]) -> str:
    words = ", ".join(f"`{event}` {count:,}" for event, count in log.events.most_common())
    kept = ", ".join(f"`{name}` {count:,}" for name, count in rows.items())
    lost = f"{log.lost} of {len(set(log.decisions)) + log.lost:,} decisions are in none of them"
    return (
        f"The log was rotated {log.rotations} times, and goes on in its file; {lost}. In all it "
        f"has {words}. Rows in the database in the end: {kept}."
    )


def _fit(outcome: Outcome) -> str:
    whole, beside = (growth(outcome.seen, without_database=each) for each in (False, True))
    return (
        f"Memory in the second half, by least squares: {whole.mib:+.2f} MiB for 1,000 jobs, from "
        f"{whole.from_mib:.0f} to {whole.to_mib:.0f} MiB (R² {whole.r2:.2f}); without the size of "
        f"the database {beside.mib:+.2f} MiB, from {beside.from_mib:.0f} to "
        f"{beside.to_mib:.0f} MiB (R² {beside.r2:.2f})."
    )


def days(seen: Sequence[Hour], outcome: Outcome) -> list[tuple[str, Sequence[Seen]]]:
    """Return what was seen of each third day, or of each hour where there are few."""
    long = seen[-1].day >= 6
    parts: dict[int, list[Seen]] = {}
    for hour, moment in zip(seen, outcome.seen, strict=True):
        parts.setdefault(int(hour.day // 3 if long else hour.day * 24 // 3), []).append(moment)
    return [(f"{3 * at + 3}", part) for at, part in parts.items()]


def page(
    hours: Sequence[Hour],
    all_days: float,
    made_up: Outcome,
    happened: Counter[str],
    live: Outcome,
) -> str:
    """Return the page about both parts; `happened` counts what did in the real one."""
    by_day = days(hours, made_up)
    by_tenth = [(f"{at + 1}", part) for at, part in enumerate(parts_of(live.seen, 10))]
    template = Template((HERE / "month_page.txt").read_text())
    wrong = [*made_up.wrong, *live.wrong]
    slower, slower_r2 = slower_ms(hours)
    return template.substitute(
        today=f"{datetime.now(UTC):%Y-%m-%d}",
        days=f"{min(hours[-1].day, all_days):.0f}",
        all_days=f"{all_days:g}",
        jobs=f"{made_up.seen[-1].ended:,}",
        minutes=f"{made_up.seconds / 60:.0f}",
        cycles=f"{sum(hour.cycles for hour in hours):,}",
        made_up=table(by_day, cpu_by_hour([part for _, part in by_day]), "until day"),
        made_up_fit=_fit(made_up),
        slower=f"{slower:+.2f}",
        slower_r2=f"{slower_r2:.2f}",
        made_up_told=_told(made_up.log, made_up.rows),
        live_jobs=f"{happened['jobs']:,}",
        live_finished=f"{happened['finished']:,}",
        live_runs=f"{happened['runs']:,}",
        live_minutes=f"{live.seconds / 60:.0f}",
        restarts=happened["restart"],
        upkeep=happened["upkeep"],
        clocks=happened["clock"] - 1,
        summer=happened["summer"],
        live=table(by_tenth, cpu_in_all([part for _, part in by_tenth]), "tenth"),
        live_fit=_fit(live),
        live_told=_told(live.log, live.rows),
        wrong="\n".join(f"- {each}" for each in wrong) or "Nothing was wrong.",
    )


def main() -> int:
    """Go through a month; 0 if nothing was wrong."""
    parser = argparse.ArgumentParser(prog="month", description=(__doc__ or "").strip())
    parser.add_argument("page", type=Path, help="where to write the page")
    parser.add_argument("--jobs", type=int, default=30_000, help="made up (default 30,000)")
    parser.add_argument("--days", type=float, default=30.0, help="made up (default 30)")
    parser.add_argument("--real-jobs", type=int, default=3000, help="(default 3,000)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hs-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        for part in ("made-up", "real"):
            (folder / part).mkdir()
        made_up, hours = simulated(folder / "made-up", given.jobs, given.days, rotate)
        live, happened = real(folder / "real", given.real_jobs, rotate)
    found = [*grown(made_up.seen, hours)]
    made_up = replace(made_up, wrong=(*made_up.wrong, *found))
    given.page.write_text(page(hours, given.days, made_up, happened, live))
    for outcome in (made_up, live):
        for words in outcome.wrong:
            sys.stdout.write(f"wrong: {words}\n")
    return 1 if made_up.wrong or live.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
