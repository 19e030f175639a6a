"""The page: what the daemon tells for it, and how it is made, written and served."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from click.testing import CliRunner

from hetsched_core.errors import HetschedError, InputError
from hetsched_core.policies.fifo import Fifo
from hetsched_core.types import JobView, Plan, Reason, ReasonCode, Reservation, Snapshot
from slurm_plugin.api import page as telling
from slurm_plugin.api.answers import Peer
from slurm_plugin.api.page_maker import PageMaker, serve_page
from slurm_plugin.api.publisher import Publisher
from slurm_plugin.api.server import AnswerServer
from slurm_plugin.cli.page import page
from slurm_plugin.daemon.jobs.managed import to_begin_later
from slurm_plugin.daemon.jobs.request import NO_MARK, own_of, request_of
from slurm_plugin.daemon.process.configuration import DaemonConfiguration
from tests.hetsched_core.report.parsed import Page
from tests.hetsched_core.worlds import cluster_of, held, on, snapshot_of, view
from tests.slurm_plugin.backend.fake import PENDING

CONFIGURATION = DaemonConfiguration(partitions=frozenset({"gpu"}), database=Path("x"))
CLUSTER = cluster_of(n0=("a100", 4), n1=("t4", 4), n2=("t4", 4))
ROOT = Peer("root", admin=True)
SLEEPER = replace(PENDING, id="9", submit_s=500.0, begin_s=87_000.0)
LATER = to_begin_later(SLEEPER, request_of("x", NO_MARK, SLEEPER, own_of(SLEEPER, NO_MARK)))
HOSTILE = "</td><script>alert('x')</script>"


def named(job: JobView) -> JobView:
    return replace(job, job=replace(job.job, user="eve", name=HOSTILE, partition="gpu"))


def busy(now: float = 1000.0) -> tuple[Snapshot, Plan]:
    snapshot = snapshot_of(
        CLUSTER,
        [
            named(view("1", held(on(n1=2, n2=2)), counts=(4,))),
            named(view("2", counts=(8,), submit_s=1.0)),
            named(view("3", counts=(4,), submit_s=2.0)),
        ],
        now=now,
        nodes={"n0": {"foreign_gpus": 1}},
    )
    plan = Fifo().plan(snapshot)
    promise = Reservation("2", on(n1=4, n2=4), now + 60, now + 90)
    return snapshot, replace(plan, reservations=(promise,))


def publisher_of(configuration: DaemonConfiguration = CONFIGURATION) -> Publisher:
    publisher = Publisher(configuration, 50.0)
    for now in (880.0, 940.0, 1000.0):
        publisher.publish(*busy(now), 7, plan_took_s=0.02)
    return publisher


@pytest.fixture
def server(path: Path) -> Iterator[AnswerServer]:
    server = AnswerServer(path, publisher_of().answer)
    yield server
    server.close()


@pytest.mark.usefixtures("server")
def test_over_the_socket_comes_what_was_published(path: Path) -> None:
    maker = PageMaker(path, UTC, 0.0)
    seen = Page(maker.fresh())
    types, waiting, running = seen.tables
    assert types[1][:6] == ["a100", "4", "0", "1", "0", "3"]
    assert types[2][:6] == ["t4", "8", "4", "0", "0", "4"]
    assert running[1][:6] == ["1", "eve", HOSTILE, "gpu", "4", "n[1-2]"]
    assert waiting[1][0] == "2"
    assert waiting[1][6] == "in 60.0\N{NO-BREAK SPACE}s"
    assert waiting[1][7] == "no_room"
    assert "script" not in {tag for tag, _ in seen.elements}
    assert {given.get("id") for _, given in seen.elements} >= {"f-gpus", "f-jobs", "f-plans"}


def told_of(snapshot: Snapshot, **more: Any) -> dict[str, Any]:
    """What the page is told of a snapshot under fifo."""
    publisher = Publisher(CONFIGURATION, 0.0)
    publisher.publish(snapshot, Fifo().plan(snapshot), 1, **more)
    return dict(publisher.answer({"ask": "page"}, ROOT)["page"])


@pytest.mark.parametrize(
    ("job", "reason", "where"),
    [
        (view("1", counts=(8,)), "shadow", "to start on n[1-2]"),
        (view("1", held(on(n1=4, n2=4), begun=False), counts=(8,)), "placed", "placed on n[1-2]"),
    ],
)
def test_a_job_that_is_to_start_or_is_placed_waits_and_says_where(
    job: JobView, reason: str, where: str
) -> None:
    said = told_of(snapshot_of(CLUSTER, [job], now=5.0))
    assert (said["running_jobs"], said["waiting_jobs"], said["longest_wait_s"]) == (0, 1, 5.0)
    assert said["reasons"] == {reason: 1}
    (row,) = said["waiting"]
    assert row["reason"] == where
    assert not row.keys() & {"gpus", "where"}


def test_the_reasons_add_up_and_jobs_that_are_to_begin_later_come_last() -> None:
    publisher = Publisher(CONFIGURATION, 50.0)
    runs = view("1", held(on(n1=4)), counts=(4,))
    starts, waits = view("2", counts=(4,), submit_s=1.0), view("3", counts=(8,), submit_s=2.0)
    blocked = Reason(ReasonCode.QUOTA, detail="MaxGRESPerAccount")
    limited = view("4", counts=(1,), submit_s=3.0, blocked=blocked)
    planned = snapshot_of(CLUSTER, [runs, starts, waits, limited], now=5.0)
    plan = Fifo().plan(planned)
    # These have come since.
    new = (view("5", submit_s=4.0), view("6", submit_s=4.0, blocked=blocked))
    now = snapshot_of(CLUSTER, [runs, starts, waits, limited, *new], now=6.0)
    publisher.publish(now, plan, 1, later={"9": LATER})
    said = publisher.answer({"ask": "page"}, ROOT)["page"]
    assert said["reasons"] == {"quota": 2, "shadow": 1, "no_room": 1, "new": 1, "begin": 1}
    assert sum(said["reasons"].values()) == said["waiting_jobs"] == 6
    assert said["longest_wait_s"] == 6.0
    last = said["waiting"][-1]
    assert (last["job"], last.get("waited_s", 0.0), last["user"]) == ("9", 0.0, "ann")
    assert last["reason"] == "begin, from 1970-01-02T00:10:00Z on"


def test_a_page_is_figured_out_once_for_all_who_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    publisher, asked = publisher_of(), []

    def figured(*given: object) -> object:
        asked.append(given)
        return telling.live_state(*given)  # type: ignore[arg-type]

    monkeypatch.setattr("slurm_plugin.api.publisher.live_state", figured)
    first = publisher.answer({"ask": "page"}, ROOT)
    assert publisher.answer({"ask": "page"}, Peer("eve")) == first
    assert len(asked) == 1
    publisher.publish(*busy(1060.0), 8)
    assert publisher.answer({"ask": "page"}, ROOT)["at_s"] == 1060.0
    assert len(asked) == 2


def test_where_jobs_are_private_nobody_s_are_told_whoever_asks() -> None:
    private = replace(CONFIGURATION, private_jobs=True)
    said = publisher_of(private).answer({"ask": "page"}, ROOT)
    assert "eve" not in str(said)
    assert (said["page"]["running_jobs"], said["page"]["waiting_jobs"]) == (1, 2)
    assert (said["page"]["running"], said["page"]["waiting"]) == ([], [])
    assert not said["page"].keys() & {"accounts", "longest_wait_s"}


def test_accounts_are_told_with_what_is_due_to_them_where_there_are_several_users(
    path: Path,
) -> None:
    assert "accounts" not in told_of(busy()[0])
    snapshot, _ = busy()
    eve, bob = (
        replace(job, job=replace(job.job, account=account, user=user))
        for job, account, user in zip(
            snapshot.by_submission(), ("bio", HOSTILE), ("eve", "bob"), strict=False
        )
    )
    publisher = publisher_of()
    several = replace(snapshot, jobs=snapshot.jobs.update({eve.id: eve, bob.id: bob}))
    publisher.publish(several, Fifo().plan(several), 8)
    with closing(AnswerServer(path.with_name("other"), publisher.answer)):
        seen = Page(PageMaker(path.with_name("other"), UTC, 0.0).fresh())
    accounts = next(table for table in seen.tables if "due" in table[0])
    assert accounts[1] == ["bio", "", "1", "", "4", "1.3", "1", "0"]
    assert [HOSTILE, "bob", "1", "", "0", "1.3", "0", "1"] in accounts
    assert "script" not in {tag for tag, _ in seen.elements}


def test_an_answer_is_bounded_and_counts_all() -> None:
    jobs = [view(f"{at}", counts=(4,), submit_s=float(at)) for at in range(900)]
    said = told_of(snapshot_of(CLUSTER, jobs, now=1000.0))
    assert said["waiting_jobs"] == 900
    assert [job["job"] for job in said["waiting"]] == [str(at) for at in range(telling.MOST_ROWS)]


@pytest.mark.usefixtures("server")
def test_the_command_writes_a_whole_file(path: Path, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    done = CliRunner().invoke(
        page, ["--out", str(file), "--socket", str(path), "--tz", "Asia/Tokyo"]
    )
    assert done.exit_code == 0, done.output
    assert "(Asia/Tokyo)" in Page(file.read_text()).text
    assert not [g for _, g in Page(file.read_text()).elements if g.get("http-equiv") == "refresh"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "either a file"),
        (("--out", "x", "--serve", "127.0.0.1:1"), "either a file"),
        (("--out", "x", "--tz", "Mars/X"), "unknown time zone 'Mars/X'"),
        (("--serve", "nonsense"), "--serve nonsense: expected HOST:PORT"),
    ],
)
def test_a_wrong_command_line_ends_with_2(words: tuple[str, ...], says: str) -> None:
    done = CliRunner().invoke(page, words)
    assert done.exit_code == 2
    assert says in done.output


def test_without_a_daemon_the_command_writes_nothing(path: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(page, ["--out", str(tmp_path / "page.html"), "--socket", str(path)])
    assert isinstance(done.exception, HetschedError)
    assert not list(tmp_path.iterdir())


def test_written_again_and_again_it_says_when_the_daemon_is_gone(path: Path) -> None:
    now = 0.0
    maker = PageMaker(path, UTC, 60.0, clock=lambda: now)
    assert "No answer yet" in maker.page()
    server = AnswerServer(path, publisher_of().answer)
    assert "No answer yet" in maker.page()  # not made anew before it is due
    now = 60.0
    assert "3 running" not in maker.page()
    assert "1 running, 2 waiting" in maker.page()
    server.close()
    now = 120.0
    text = Page(maker.page()).text
    assert "this is what it told last: no daemon answers" in text
    assert "1 running, 2 waiting" in text


def test_another_version_s_answer_is_told_in_one_line(path: Path) -> None:
    server = AnswerServer(path, lambda *_: {"page": {"at_s": 1.0}})
    try:
        with pytest.raises(HetschedError, match="another version of hetsched"):
            PageMaker(path, UTC, 0.0).fresh()
    finally:
        server.close()


@pytest.mark.usefixtures("server")
def test_it_is_served_to_browsers_until_interrupted(path: Path, free: str) -> None:
    # Tests that run in the background of a shell have interrupts ignored, and so have children.
    run = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from hetsched_core.cli import main; sys.exit(main())"
    )
    command = [sys.executable, "-c", run, "page", "--serve", free]
    command += ["--socket", str(path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as served:
        assert served.stderr is not None
        try:
            assert served.stderr.readline() == f"http://{free}/\n"
            with urlopen(f"http://{free}/", timeout=30) as answer:
                assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
                assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")
                assert "Python" not in answer.headers["Server"]
                assert "1 running, 2 waiting" in answer.read().decode()
            with urlopen(Request(f"http://{free}/", method="HEAD"), timeout=30) as answer:
                assert answer.read() == b""
            for wrong in ("/x", "/../etc/passwd", "/?q=<script>"):
                with pytest.raises(HTTPError, match="404") as refused:
                    urlopen(f"http://{free}{wrong}", timeout=30)
                assert b"<script>" not in refused.value.read()
        finally:
            served.send_signal(signal.SIGINT)
        assert served.wait(30) == 130


def test_what_is_no_address_is_refused(path: Path) -> None:
    with pytest.raises(InputError, match=r"expected HOST:PORT, such as 127\.0\.0\.1:9755"):
        serve_page("9755", PageMaker(path, UTC, 60.0), print)
