"""What is remembered of jobs, and of their own shapes, whatever Slurm shows of them later."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from hetsched_core.store import IN_MEMORY, Mode, Store
from slurm_plugin.backend import (
    AwayError,
    Enter,
    HostRequest,
    JobState,
    Leave,
    Requeue,
    Resources,
    SlurmJob,
    Terms,
)
from slurm_plugin.daemon import DaemonMode
from slurm_plugin.daemon.jobs.remembered_requests import Requests
from tests.slurm_plugin.backend.fake import FakeBackend
from tests.slurm_plugin.daemon.fake_slurm import (
    HOLD,
    MOVABLE,
    RIGID,
    WAITING,
    Evict,
    Site,
    element,
    entry,
    left,
    node,
    placed,
    places,
    running,
)

TWO = (node("n0"), node("n1"))
TWO_NODES = replace(RIGID.resources, nodes=(2, 2))
THREE_GPUS: dict[str, Any] = {
    "gpus": 3,
    "resources": replace(RIGID.resources, per_job="gres/gpu:3"),
}
CPUS = replace(RIGID, gpus=0, resources=Resources((1, 1), 1, "", "", "", ""))
ARRAY = replace(RIGID, id="7", array="7", unsplit=tuple(range(1000)))
SHAPE = Resources((2, 2), 2, "", "gres/gpu:v100:1", "", "")

EPILOG = "JS1:H4sIAAAAAAAA"
"""What a site's epilog writes over a mark."""


one = partial(element, of=RIGID)
"""An element of array 7."""


class Scripts(FakeBackend):
    """Keeps for which jobs it was asked, and cannot read the script of job 6, or any."""

    def __init__(self, away: bool = False) -> None:
        super().__init__()
        self.away = away
        self.asked: list[str] = []

    def script(self, job: str) -> str:
        self.asked.append(job)
        if self.away:
            raise AwayError("nobody answers")
        return b"\xff".decode() if job == "6" else FakeBackend.script(self, job)


def known(requests: Requests, seen: SlurmJob, script: str = "") -> str:
    """Return the key of a job, which is looked up if it has to be."""
    if requests.of(seen) is None:
        requests.look_up(seen, FakeBackend(scripts={seen.id: script}))
    request = requests.of(seen)
    assert request is not None
    return request.key


def test_a_script_is_asked_for_once_also_where_an_array_has_many_elements() -> None:
    backend = Scripts()
    site = Site(ARRAY, RIGID, WAITING, replace(RIGID, id="8", batch=False), backend=backend)
    site.cycle(3)
    # One with a mark needs none, and `salloc` has none.
    assert sorted(backend.asked) == ["5", "7_0"]
    assert {"7_0", "7_63", "8"} <= set(site.world.jobs)


def test_jobs_whose_scripts_cannot_be_had_now_are_taken_in_later() -> None:
    site = Site(RIGID, WAITING, backend=Scripts(away=True))
    site.cycle()
    assert set(site.world.jobs) == {"1"}


def test_a_script_of_which_nothing_can_be_made_costs_no_other_job_its_place() -> None:
    site = Site(replace(RIGID, id="6"), replace(RIGID, id="9"), backend=Scripts())
    assert list(places(site.cycle())) == ["9"]
    (warning,) = site.report.warnings
    assert "job 6 is left out" in warning


def test_an_id_that_is_handed_out_again_after_a_crash_is_another_job() -> None:
    requests = Requests()
    first = known(requests, RIGID)
    assert requests.of(replace(RIGID, user="bob")) is None
    other = replace(RIGID, submit_s=950.0)
    assert requests.of(other) is None
    assert known(requests, other, "#HETSCHED --gpu-set=2\n") != first
    request = requests.of(other)
    assert request is not None
    assert not request.rigid
    requests.forget_all_but(())
    assert requests.of(other) is None


def test_to_be_queued_again_makes_no_other_job_of_a_job_or_of_an_element() -> None:
    requests, jobs = Requests(), (RIGID, one(0), one(1))
    keys = [known(requests, each) for each in jobs]
    assert len(set(keys)) == 3
    again = [replace(each, submit_s=2000.0, restarts=1) for each in jobs]
    assert [known(requests, each) for each in (*again, *again)] == keys * 2
    # Slurm has crashed, and its next job has that id, too.
    assert requests.of(replace(RIGID, submit_s=3000.0)) is None


@pytest.mark.parametrize("job", [RIGID, CPUS, one(0)], ids=["rigid", "no GPUs", "element"])
def test_a_job_that_a_killed_controller_has_back_as_it_was_before_is_the_same_job(
    job: SlurmJob,
) -> None:
    again = replace(job, submit_s=2000.0, restarts=1)
    # That it was queued again was not saved; and it may be queued again later on.
    for shown in ((job, again, job), (again, job, replace(again, submit_s=2010.0))):
        requests = Requests()
        first = known(requests, shown[0])
        for seen in shown:
            request = requests.of(seen)
            assert request is not None
            assert request.key == first
    assert requests.of(replace(job, user="bob", submit_s=100.0)) is None
    assert requests.of(replace(job, submit_s=3000.0)) is None


def test_a_job_that_comes_back_as_it_was_saved_is_neither_lost_nor_another_one() -> None:
    before = replace(RIGID, submit_s=950.0, restarts=1)
    site = Site(before, nodes=(node("n0", used=4),))
    site.cycle()
    site.see(running(RIGID, "n0"), nodes=(node("n0", used=1),))
    assert site.report.lost == ()
    assert site.world.news.gone == set()


def test_what_was_said_of_a_job_outlives_an_epilog_that_writes_over_its_mark() -> None:
    site = Site(running(MOVABLE, "n0"), policy=Evict())
    assert site.cycle() == [Requeue("1")]
    request = site.world.managed["1"].request
    again = replace(MOVABLE, mark=EPILOG, submit_s=1000.0, restarts=1, begin_s=1120.0)
    assert site.see(placed(again, "n0"), seconds=1) == [left(MOVABLE)]
    assert site.report.lost == ()
    assert site.world.managed["1"].request == request


@pytest.mark.parametrize(
    "more",
    ['"gpu-shapes":"any","elements":2', '"copies":2,"elements":2,"can-checkpoint":true'],
    ids=["gang", "copies"],
)
def test_elements_stay_one_job_when_an_epilog_writes_over_the_mark_of_one(more: str) -> None:
    mark = f'hetsched/2 {{"nonce":"g","gpu-set":"4",{more}}}'
    first, second = (one(at, mark=mark, gpus=4) for at in range(2))
    site = Site(first, second)
    site.cycle()
    site.see(first, replace(second, mark=EPILOG, submit_s=1000.0, restarts=1))
    assert set(site.world.jobs) == {"7"}
    seen = site.world.managed["7"].slurm
    assert len(seen.copies or (seen, *seen.members)) == 2


@pytest.mark.parametrize("mode", DaemonMode)
def test_what_is_kept_of_jobs_goes_with_them_in_every_mode(mode: DaemonMode) -> None:
    with Store.open(IN_MEMORY, Mode.WRITE) as store:
        site = Site(mode=mode)
        site.daemon.keep_in(store)
        for jobs in ((RIGID,), ()):
            site.see(*jobs)
            assert store.remembered().keys() == {job.id for job in jobs}


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("#HETSCHED --gpu-set=two\n", "--gpu-set=two: expected GPU counts"),
        ("#HETSCHED --gpu-set=1 --gpu-types=t4\n", "GPUs of type v100 are asked for"),
    ],
)
def test_of_a_job_with_wrong_options_the_submitted_shape_holds_and_a_warning_is_given_once(
    script: str, says: str
) -> None:
    asks = replace(RIGID.resources, per_job="gres/gpu:v100:1")
    site = Site(replace(RIGID, gpu_types=("v100",), resources=asks))
    site.backend.scripts = {"5": script}
    assert site.cycle() == [Enter("5", HOLD, ("n0",), Leave("5"))]
    (warning,) = site.report.warnings
    assert says in warning
    site.cycle()
    assert site.report.warnings == ()


@pytest.mark.parametrize(
    ("asks", "says"),
    [
        ({"het_job": "5"}, "places no heterogeneous jobs"),
        ({"het_job": "5", "gpus": 0}, "places no heterogeneous jobs"),
        ({"cron": True}, "what a scrontab starts"),
        ({"gpus": 2, "pinned": ("n0",), "resources": TWO_NODES}, "names 1 of the 2 nodes"),
        ({"gpu_types": ("a100", "v100")}, "GPUs of a100 and v100 at once"),
    ],
)
def test_what_can_be_placed_in_no_way_waits_with_a_sentence(
    asks: dict[str, Any], says: str
) -> None:
    site = Site(replace(RIGID, **asks))
    assert site.cycle() == []
    assert says in str(site.blocked("5"))


# -- a job's own shape -----------------------------------------------------------------------------

OWN = replace(WAITING, asked=HostRequest(8, memory_mb_per_node=4000), cpus=8)


def types_and_cpus(requests: Requests, seen: SlurmJob) -> tuple[frozenset[str] | None, int]:
    """What a job accepts, and its CPUs by GPU."""
    assert requests.of(seen) is not None
    requests.edited(seen, OWN)
    request = requests.of(seen)
    assert request is not None
    return request.gpu_types, request.own.cpus


def test_the_shape_of_a_run_is_neither_an_edit_of_its_user_s_nor_what_it_asks_for() -> None:
    requests = Requests()
    assert types_and_cpus(requests, OWN) == (None, 8)
    for seen in (placed(OWN, "n0"), running(OWN, "n0")):
        given = replace(seen, resources=SHAPE, cpus=16)
        assert types_and_cpus(requests, given) == (None, 8)
        # As a daemon sees it first that knows nothing of those before it.
        assert types_and_cpus(Requests(), given)[0] is None
    assert types_and_cpus(requests, replace(OWN, cpus=4)) == (None, 4)
    # Slurm started it by itself, and its user named the type.
    own = Resources((1, 0), 1, "gres/gpu:v100:1", "", "", "")
    by_itself = replace(running(OWN, "n0"), reservation="")
    assert types_and_cpus(Requests(), by_itself)[0] is None
    assert types_and_cpus(Requests(), replace(by_itself, resources=own))[0] == frozenset({"v100"})


@pytest.mark.parametrize("job", [WAITING, RIGID, CPUS], ids=["elastic", "rigid", "no GPUs"])
@pytest.mark.parametrize("named", [(), ("n0", "n1")], ids=["any node", "named"])
@pytest.mark.parametrize("restarts", [0, 1])
def test_the_next_daemon_gives_a_job_its_own_shape_back_also_where_the_hold_has_ended(
    job: SlurmJob, named: tuple[str, ...], restarts: int
) -> None:
    # Slurm lets what waits out of a reservation that has ended, and leaves it as it was placed.
    job = replace(job, pinned=named, restarts=restarts)
    given = replace(placed(job, "n1"), reservation="")
    if job.mark:
        given = replace(given, resources=SHAPE, asked=HostRequest(9), time_limit_s=6000.0)
    back = replace(left(WAITING), nodes=named) if job.mark else Leave(job.id, named)
    full = tuple(replace(each, gpus_used=(("v100", 4),), cpus_used=32) for each in TWO)
    with Store.open(IN_MEMORY, Mode.WRITE) as store:
        first = Site(job, nodes=TWO)
        first.daemon.keep_in(store)
        first.cycle()
        site = Site(given, nodes=full)
        site.daemon.keep_in(store)
        assert site.cycle() == [back]
        site.backend.calls.clear()
        site.daemon.let_go()
        assert back in site.backend.calls
        assert site.see(job) == []


@pytest.mark.parametrize("unread", [False, True])
def test_a_job_goes_back_to_its_own_shape_and_not_to_the_one_that_it_was_given(
    unread: bool,
) -> None:
    own = replace(WAITING, asked=HostRequest(2), cpus=2, pinned=("n0", "n1"))
    site = Site(own, nodes=TWO)
    back = replace(left(own), nodes=("n0", "n1"), terms=Terms(10, 2, None, 2))
    assert site.cycle() == [replace(entry(own, "n0", cpus=2), otherwise=back)]
    given = replace(placed(own, "n0"), resources=SHAPE, asked=HostRequest(9), time_limit_s=6000.0)
    if unread:
        # Its record cannot be read for a moment.
        site.show()
        site.backend.state = replace(site.backend.state, unread={"job 1": "it cannot be read"})
        site.cycle()
    site.show(given, nodes=(node("n0", used=4), node("n1", used=4)) if unread else TWO)
    assert site.until_called(40)[1] == [back]


@pytest.mark.parametrize("job", [RIGID, replace(RIGID, restarts=1), CPUS])
def test_what_the_user_of_a_waiting_job_changes_is_what_it_asks_for(job: SlurmJob) -> None:
    full = tuple(replace(node(name, used=4), cpus_used=32) for name in ("n0", "n1"))
    other = replace(job, pinned=("n1",))
    site = Site(job, nodes=full)
    site.cycle()
    assert site.see(other) == []
    back = Leave("5", ("n1",))
    assert site.see(other, nodes=TWO) == [Enter("5", HOLD, ("n1",), back, due=job.restarts > 0)]
    if job.gpus:
        site.see(replace(job, **THREE_GPUS), nodes=full)
        assert list(site.world.jobs["5"].job.requirements) == [3]


def test_what_is_changed_of_one_element_is_not_changed_of_the_others() -> None:
    array, first = replace(ARRAY, unsplit=(1, 2)), one(0)
    full = (node("n0", used=4),)
    with Store.open(IN_MEMORY, Mode.WRITE) as store:
        site, again = Site(array, first, nodes=full), Site(nodes=full)
        site.daemon.keep_in(store)
        site.cycle()
        wide = replace(first, **THREE_GPUS)
        site.see(array, wide)
        again.daemon.keep_in(store)
        runs = running(one(1), "n0")
        for each in (again, site):
            each.see(replace(array, unsplit=(2, 3)), wide, runs)
            found = {job: known.request.own.gpus for job, known in each.world.managed.items()}
            assert found == {"7_0": 3, "7_1": 1, "7_2": 1, "7_3": 1}


def test_a_refused_placement_gives_back_the_order_of_the_partitions_too() -> None:
    own = ("elsewhere", "gpu")
    for job in (WAITING, RIGID, CPUS):
        (change,) = Site(replace(job, partitions=own)).cycle()
        assert isinstance(change, Enter)
        assert (change.partitions, change.otherwise.partitions) == (("gpu", "elsewhere"), own)


def test_a_job_without_gpus_that_a_daemon_placed_gets_its_own_nodes_from_the_next_one() -> None:
    job = replace(CPUS, pinned=("n0", "n1"), resources=Resources((2, 2), 2, "", "", "", ""))
    with Store.open(IN_MEMORY, Mode.WRITE) as store:
        for shown in (job, placed(job, "n0", "n1")):
            site = Site(shown, nodes=TWO)
            site.daemon.keep_in(store)
            calls = site.cycle()
    assert calls == [Leave("5", ("n0", "n1"))]


def test_a_job_whose_launch_met_a_dead_node_is_the_same_job_and_keeps_its_nodes() -> None:
    asks = replace(RIGID, pinned=("n1",))
    requests = Requests()
    first = known(requests, asks)
    ran = replace(running(asks, "n1"), restarts=0)
    # Slurm counts the restart while the job still ends, and gives it a new time of submission then.
    ends = replace(ran, state=JobState.COMPLETING, restarts=1)
    again = replace(asks, submit_s=asks.submit_s + 90.0, restarts=1)
    for seen in (ran, ends, again):
        assert known(requests, seen) == first
    request = requests.of(again)
    assert request is not None
    assert request.own.nodes == ("n1",)
