"""What is answered about jobs as squeue shows them: elements of arrays, and what is in no plan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from hetsched_core.errors import InputError
from hetsched_core.policy import make_policy
from hetsched_core.store import IN_MEMORY, Mode, Store
from slurm_plugin.api.answers import Peer
from slurm_plugin.backend import Resources, SlurmJob, SlurmSite
from slurm_plugin.cli.ask import _print_why
from slurm_plugin.daemon import DaemonMode
from slurm_plugin.daemon.settings import JobSelection
from tests.slurm_plugin.daemon.fake_slurm import RIGID, WAITING, Clock, element, placed, running
from tests.slurm_plugin.daemon.test_journal import CONFIGURATION, ROOT, Bench, bench_on

NO_GPUS = replace(RIGID, id="8", gpus=0, resources=Resources((1, 0), 1, "", "", "", ""))


@pytest.fixture
def bench() -> Iterator[Bench]:
    """A daemon with a node of four GPUs, and those who ask it."""
    with Store.open(IN_MEMORY, Mode.WRITE) as store:
        found = bench_on(store, Clock())
        yield found
        found.telemetry.close()


def sentences(bench: Bench, job: str, peer: Peer = ROOT) -> list[str]:
    return [reason["sentence"] for reason in bench.ask("why", job, peer)["reasons"]]


def array(elements: int, throttle: int = 0, **more: Any) -> SlurmJob:
    """An array none of which runs yet, as Slurm keeps it."""
    # Of a long one only the first elements are told.
    unsplit = tuple(range(min(elements, 1000)))
    return replace(RIGID, id="7", array="7", unsplit=unsplit, throttle=throttle, gpus=4, **more)


def test_an_element_is_asked_about_as_squeue_shows_it(bench: Bench) -> None:
    bench.cycle(array(10_000))
    assert bench.ask("why", "7_3")["job"] == "7_3"
    assert sentences(bench, "7_3")[0].startswith("behind: jobs ahead of it in the queue go first")
    assert bench.ask("when", "7_3")["job"] == "7_3"


def test_an_array_stands_for_its_first_element_that_waits(bench: Bench) -> None:
    one = element(0, of=RIGID, gpus=4)
    rest = replace(array(3), id="9", unsplit=(1, 2))
    bench.cycle(one, rest)
    assert bench.ask("why", "7")["job"] == "7_0"
    bench.cycle(replace(running(one, "n0"), gpus=4), rest)
    assert bench.ask("why", "7")["job"] == "7_1"
    bench.cycle(replace(running(one, "n0"), gpus=4))
    assert bench.ask("why", "7")["job"] == "7_0"


def test_an_element_that_is_no_candidate_yet_waits_behind_its_own_array(bench: Bench) -> None:
    bench.cycle(array(10_000))
    behind = "behind: jobs ahead of it in the queue go first (7_0, 7_1, 7_2): "
    of = behind + "the elements of its array, of which at most "
    assert sentences(bench, "7_64") == [of + "64 wait for a place at a time"]
    assert sentences(bench, "7_9000") == sentences(bench, "7_64")
    assert bench.ask("when", "7_9000")["why_none"] == of + "64 wait for a place at a time"
    bench.cycle(array(500, throttle=4))
    assert bench.ask("why", "7_3")["slurm"] == RIGID.reason
    assert sentences(bench, "7_4") == [of + "4 run at a time"]
    last = replace(array(1, throttle=1), id="7_3", unsplit=(), element=3)
    bench.cycle(replace(running(replace(last, id="7_2"), "n0"), gpus=4), last)
    behind = "behind: jobs ahead of it in the queue go first (7_2): the elements of its array"
    assert sentences(bench, "7_3") == [f"{behind}, of which at most 1 run at a time"]
    bench.cycle(array(500, throttle=4))
    for question in ("explain", "history"):
        with pytest.raises(InputError, match="of which at most 4 run at a time"):
            bench.ask(question, "7_400")
    for none in ("7_500", "7_x", "70_1"):
        with pytest.raises(InputError, match="no active job"):
            bench.ask("why", none)


def test_a_job_without_gpus_passes_in_slurm_s_order_and_is_told_so(bench: Bench) -> None:
    bench.cycle(NO_GPUS)
    (said,) = sentences(bench, "8")
    assert said.startswith("not yet: no policy is asked about it: it asks for no GPUs")
    assert bench.ask("when", "8")["why_none"] == said
    bench.cycle(running(NO_GPUS, "n0", gpus=0))
    with pytest.raises(InputError, match="no active job '8'"):
        bench.ask("why", "8")


def test_what_slurm_places_elsewhere_is_said_to_be_slurm_s(bench: Bench) -> None:
    bench.cycle(
        replace(RIGID, id="1", reservation="lecture"),
        replace(RIGID, id="2", partition="cpu", partitions=("cpu",)),
    )
    assert sentences(bench, "1")[0].endswith(
        "for the reservation lecture, in which Slurm places it"
    )
    assert sentences(bench, "2")[0].endswith("it may run on no managed node; Slurm places it")


def test_a_heterogeneous_job_is_refused_with_a_sentence(bench: Bench) -> None:
    bench.cycle(replace(RIGID, het_job="5"))
    assert any("hetsched places no heterogeneous jobs" in said for said in sentences(bench, "5"))


def test_in_a_pilot_jobs_without_a_requirement_set_are_slurm_s(bench: Bench) -> None:
    pilot = replace(CONFIGURATION, jobs=JobSelection.MARKED)
    bench.daemon.adopt(make_policy("fifo"), pilot, DaemonMode.ENFORCE)
    bench.cycle(RIGID, WAITING)
    (said,) = sentences(bench, "5")
    assert said.endswith(
        'it has no requirement set, and under jobs = "marked" Slurm places it on other nodes'
    )
    assert bench.ask("why", "1")["job"] == "1"


def test_a_job_whose_script_was_not_read_yet_says_so(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slurm_plugin.daemon.daemon._LOOK_UP_S", -1.0)
    bench.cycle(RIGID)
    assert sentences(bench, "5")[0].endswith("has not been read yet; ask again in a moment")
    monkeypatch.undo()
    bench.cycle(RIGID)
    assert bench.ask("why", "5")["state"] in ("PL", "PD")
    assert "not been read" not in str(sentences(bench, "5"))


def test_what_is_in_no_plan_is_private_as_all_else_is(bench: Bench) -> None:
    bench.backend.where = SlurmSite(30.0, {"gpu": None}, private_jobs=True)
    bench.cycle(NO_GPUS, array(500, throttle=4))
    for job in ("8", "7_4"):
        assert sentences(bench, job, Peer("ann"))
    for question in ("why", "when", "explain", "history"):
        for job in ("8", "7_4", "7"):
            # Not even whether it is an array, nor which element is next.
            with pytest.raises(
                InputError, match=f"(no active job|nothing is known of a job) '{job}'"
            ):
                bench.ask(question, job, Peer("bob"))


def test_slurm_s_own_word_is_quoted_and_what_it_means_of_what_waits_for_a_place(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    waits, enters = replace(RIGID, id="6", gpus=4), replace(placed(RIGID, "n0"), reason="Licenses")
    bench.cycle(RIGID, waits)
    bench.cycle(enters, waits)
    _print_why(bench.ask("why", "6"))
    of_all = "ReqNodeNotAvail, Reserved for maintenance, as of all that wait for a place\n"
    assert f"  Slurm says {of_all}" in capsys.readouterr().out
    _print_why(bench.ask("why", "5"))
    assert "  Slurm says Licenses\n" in capsys.readouterr().out
    again = replace(RIGID, restarts=1, begin_s=1100.0, reason="BeginTime")
    later = replace(again, id="9", restarts=0)
    for job, words in (again, ", as of all that it has just"), (later, "\n"):
        bench.cycle(job, waits)
        _print_why(bench.ask("why", job.id))
        assert f"  Slurm says BeginTime{words}" in capsys.readouterr().out
    bench.cycle(running(RIGID, "n0"), waits)
    _print_why(bench.ask("why", "5"))
    assert "Slurm says" not in capsys.readouterr().out
