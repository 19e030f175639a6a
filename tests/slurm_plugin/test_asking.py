"""The commands that ask the daemon over its socket, as text and JSON; the database meanwhile."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hetsched_core.cli.group import hetsched
from hetsched_core.store import Mode, Store
from slurm_plugin.api.server import AnswerServer
from tests.slurm_plugin.daemon.fake_slurm import Clock
from tests.slurm_plugin.daemon.test_journal import Bench, bench_on, job, running


@dataclass
class Site:
    """A daemon that answers on a socket, with a database in a file."""

    bench: Bench
    database: Path
    environment: dict[str, str]

    def run(self, *words: str) -> Result:
        return CliRunner().invoke(hetsched, list(words), env=self.environment)

    def says(self, *words: str) -> str:
        """Return what a command prints; it must not fail."""
        done = self.run(*words)
        assert done.exit_code == 0, done.output
        return done.stdout


@pytest.fixture
def site(short_folder: Path) -> Iterator[Site]:
    """Two jobs ended, one that runs, and one that waits."""
    database = short_folder / "daemon.duckdb"
    with Store.open(database, Mode.WRITE) as store:
        # `shadow report` counts its days from now.
        bench = bench_on(store, Clock(time.time() - 5000.0))
        first, second, third, fourth = (
            replace(
                job(number, user),
                submit_s=bench.clock.now - 10,
                begin_s=bench.clock.now - 10,
            )
            for number, user in ((1, "ann"), (2, "bob"), (3, "ann"), (4, "bob"))
        )
        bench.cycle(first, second, third, fourth)
        for now, after in ((first, (second, third, fourth)), (second, (third, fourth))):
            run = running(now, bench.clock.now)
            bench.cycle(run, *after)
            bench.cycle(run, *after, seconds=300)
            bench.cycle(*after)
        bench.cycle(running(third, bench.clock.now), fourth)
        bench.ask("when", "4")
        bench.cycle(running(third, bench.clock.now - 1), fourth)
        server = AnswerServer(short_folder / "s", bench.telemetry.publisher.answer)
        try:
            yield Site(bench, database, {"HETSCHED_SOCKET": str(short_folder / "s")})
        finally:
            server.close()
            bench.telemetry.close()


def test_the_queue_has_squeues_columns_and_letters(site: Site) -> None:
    lines = site.says("queue").splitlines()
    assert lines[0].split() == [
        *("JOBID", "PARTITION", "NAME", "USER", "ST", "TIME", "GPUS", "NODES"),
        "NODELIST(REASON)",
    ]
    assert lines[1].split() == ["3", "gpu", "job", "ann", "R", "0:02", "4", "1", "n0:4"]
    assert lines[2].split()[4] == "PD"
    assert lines[2].endswith("(no_room)")
    (runs, waits) = json.loads(site.says("queue", "--json"))["jobs"]
    assert (runs["nodes"], waits["nodes"]) == ({"n0": 4}, None)


def test_what_was_seen_a_while_ago_is_told_with_its_age(site: Site) -> None:
    site.bench.clock.now = time.time() - 26
    site.bench.cycle(job(5), seconds=0)
    assert re.search("as seen 2[67] s ago", site.run("status").stderr)
    site.bench.clock.now = time.time()
    site.bench.cycle(job(5), seconds=0)
    assert "as seen" not in site.run("status").output


def test_long_names_are_cut_in_tables_and_whole_in_json(site: Site) -> None:
    name = "n" * 300
    site.bench.cycle(replace(job(8, "bob"), name=name))
    assert f"  {'n' * 29}...  " in site.says("queue")
    assert max(map(len, site.says("queue").splitlines())) < 140
    assert f"job 8 ({'n' * 29}...) of bob" in site.says("history", "8")
    assert any(row["name"] == name for row in json.loads(site.says("queue", "--json"))["jobs"])


def test_a_database_that_is_not_there_is_asked_for_by_the_setting_that_names_it(
    site: Site, tmp_path: Path
) -> None:
    gone = str(tmp_path / "nope.db")
    for words in ("shadow report", "db show", "db check", "db repeat", "replay --recorded"):
        done = site.run(*words.split(), gone)
        assert done.exit_code == 1, words
        assert "nope.db does not exist" in str(done.exception)
        assert "its setting 'database'" in str(done.exception)
        assert "import" not in str(done.exception)


def test_a_shadow_report_looks_at_its_options_first(site: Site, tmp_path: Path) -> None:
    gone = str(tmp_path / "nope.db")
    assert site.run("shadow", "report", gone, "--days", "nan").exit_code == 2
    assert site.run("shadow", "report", gone, "--policy=las", "--set=x").exit_code == 2
    done = site.run("shadow", "report", gone, "--policy", "nosuch")
    assert "unknown policy 'nosuch'" in str(done.exception)


def test_the_database_tells_how_many_jobs_it_remembers(site: Site) -> None:
    assert "jobs: 4, of which 2 have left" in site.says("db", "show", str(site.database))


def test_when_tells_a_range_in_time_and_from_now(site: Site) -> None:
    text = site.says("when", "4")
    assert text.startswith("job 4: starts between 20")
    assert "from 24 futures" in text
    said = json.loads(site.says("when", "4", "--json"))
    assert said["range"]["low_s"] < said["range"]["high_s"]
    assert "job 3: no range: it has its GPUs" in site.says("when", "3")
    done = site.run("when", "77")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "no active job '77'" in str(done.exception)


def test_history_tells_what_happened_in_order(site: Site) -> None:
    text = site.says("history", "2")
    assert text.startswith("job 2 (job) of bob in gpu, 4 GPUs, 0 restarts")
    words = [line.split()[2] for line in text.splitlines()[2:6]]
    assert words == ["came", "waits", "planned", "runs"]
    events = json.loads(site.says("history", "2", "--json"))["jobs"][0]["events"]
    assert [each["event"] for each in events] == [*words, "left"]
    assert "told 20" in site.says("history", "4")


def test_nothing_that_others_have_typed_is_obeyed_by_a_terminal(site: Site) -> None:
    hostile = "evil\x1b]0;x\x07\u202e\r\nroot"
    named = replace(job(8, "bob"), name=hostile)
    site.bench.cycle(named)
    site.bench.daemon.world.refused("8", f"place: {hostile}", site.bench.clock.now)
    site.bench.cycle(named)
    for words in ("queue", "history 8", "why 8", "when 8", "plan --explain 8"):
        said = site.says(*words.split())
        assert "evil?]0;x????root" in said, words
        assert all(line.isprintable() for line in said.split("\n"))


def test_plan_tells_what_decides_and_what_there_was_to_choose_from(site: Site) -> None:
    text = site.says("plan", "--explain", "4")
    assert "waits" in text.splitlines()[0]
    assert "constraint: the job that holds GPUs leaves too little room" in text
    assert "no room now" in text
    assert "proven" not in text
    said = json.loads(site.says("plan", "--explain", "3", "--json"))
    assert said["chosen"] == {"n0": 4}
    assert [option["verdict"] for option in said["options"]] == ["held"]
    assert said["decided_by"].startswith("score: fifo lets it keep")


def test_the_database_is_looked_into_while_the_daemon_writes_it(site: Site) -> None:
    file = str(site.database)
    decisions = site.bench.daemon.decisions
    assert decisions >= 3
    assert json.loads(site.says("db", "show", file, "--json"))["decisions"] == decisions
    assert f"{decisions} decisions come out the same, 0 otherwise" in site.says(
        "db", "repeat", file
    )
    assert site.says("replay", "--recorded", file) == site.says("db", "repeat", file)
    assert "whole" in site.says("db", "check", file)
    folder = site.database.parent / "tables"
    site.database.chmod(0o600)
    assert "job_event.csv" in site.says("db", "export", file, str(folder), "--format", "csv")
    # Everybody's names are in it.
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    # And it goes on to write.
    site.bench.cycle(job(9))
    assert site.bench.store.events("9")


def test_who_holds_another_database_gives_no_copy_of_this_one(site: Site, tmp_path: Path) -> None:
    with Store.open(tmp_path / "other", Mode.WRITE):
        done = site.run("db", "show", str(tmp_path / "other"))
    assert done.exit_code == 1
    assert "is open in" in str(done.exception)


def test_recorded_stands_alone(site: Site) -> None:
    done = site.run("replay", "--recorded", str(site.database), "--policy", "fifo")
    assert done.exit_code == 2
    assert "--recorded stands alone: leave out --policy" in done.output
    assert site.run("replay").exit_code == 2


def test_a_shadow_report_sets_what_slurm_did_beside_the_policy(site: Site) -> None:
    file = str(site.database)
    said = json.loads(site.says("shadow", "report", file, "--json"))
    assert (said["policy"], said["jobs"], said["left_out"]) == ("fifo", 2, 2)
    assert {user["user"] for user in said["users"]} == {"ann", "bob"}
    # Each ran for 300 s on all GPUs, one after the other, here and there.
    for side in (said["before"], said["after"]):
        assert side["mean_completion_s"] == pytest.approx(460.0, abs=15.0)
        assert side["mean_wait_s"] == pytest.approx(155.0, abs=15.0)
    assert (said["sooner"], said["later"], said["moves"]) == (0, 0, 0)
    text = site.says("shadow", "report", file, "--policy", "las", "--days", "2")
    assert "under las" in text
    assert "assumed: A job's work is what it told" in text
    done = site.run("shadow", "report", file, "--days", "0.00001")
    assert "name more days" in str(done.exception)
