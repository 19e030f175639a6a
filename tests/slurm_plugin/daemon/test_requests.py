"""What is remembered of jobs, whatever Slurm shows of them later."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from hetsched_core.policy import make_policy
from hetsched_core.store import IN_MEMORY, Store
from hetsched_core.store import Mode as StoreMode
from slurm_plugin.backend import Asked, AwayError, Enter, Leave, Requeue, Resources, SlurmJob, Terms
from slurm_plugin.daemon import Mode
from slurm_plugin.daemon.requests import Requests
from tests.slurm_plugin.backend.fake import FakeBackend
from tests.slurm_plugin.daemon.fake_slurm import (
    HOLD,
    MOVABLE,
    RIGID,
    WAITING,
    Clock,
    Evict,
    daemon_of,
    entry,
    left,
    node,
    placed,
    running,
    state,
)

TWO_NODES = replace(RIGID.resources, nodes=(2, 2))

EPILOG = "JS1:H4sIAAAAAAAA"
"""What a site's epilog writes over a mark."""


@dataclass(slots=True)
class Scripts(FakeBackend):
    """Keeps for which jobs it was asked."""

    asked: list[str] = field(default_factory=list)

    def script(self, job: str) -> str:
        self.asked.append(job)
        return FakeBackend.script(self, job)


def known(requests: Requests, seen: SlurmJob, backend: FakeBackend | None = None) -> str:
    """Return the key of a job, which is looked up if it has to be."""
    if requests.of(seen) is None:
        requests.look_up(seen, backend or FakeBackend())
    request = requests.of(seen)
    assert request is not None
    return request.key


def test_a_script_is_asked_for_once_also_where_an_array_has_many_elements() -> None:
    array = replace(RIGID, id="7", array="7", unsplit=tuple(range(1000)))
    backend = Scripts(state(array, RIGID, WAITING, replace(RIGID, id="8", batch=False)))
    daemon = daemon_of(backend, Clock())
    for _ in range(3):
        daemon.cycle()
    # One with a mark needs none, and `salloc` has none.
    assert sorted(backend.asked) == ["5", "7_0"]
    assert {"7_0", "7_63", "8"} <= set(daemon.world.jobs)


def test_jobs_whose_scripts_cannot_be_had_now_are_taken_in_later() -> None:
    class Away(FakeBackend):
        def script(self, job: str) -> str:
            raise AwayError("nobody answers")

    backend = Away(state(RIGID, WAITING))
    daemon = daemon_of(backend, Clock())
    daemon.cycle()
    assert set(daemon.world.jobs) == {"1"}


def test_a_script_of_which_nothing_can_be_made_costs_no_other_job_its_place() -> None:
    class Odd(FakeBackend):
        def script(self, job: str) -> str:
            return b"\xff".decode() if job == "5" else ""

    backend = Odd(state(RIGID, replace(RIGID, id="6")))
    (warning,) = daemon_of(backend, Clock()).cycle().warnings
    assert "job 5 is left out" in warning
    assert [change.job for change in backend.calls] == ["6"]


def test_an_id_that_is_handed_out_again_after_a_crash_is_another_job() -> None:
    requests = Requests()
    first = known(requests, RIGID)
    assert requests.of(replace(RIGID, user="bob")) is None
    other = replace(RIGID, submit_s=950.0)
    assert requests.of(other) is None
    assert known(requests, other, FakeBackend(scripts={"5": "#HETSCHED --gpu-set=2\n"})) != first
    request = requests.of(other)
    assert request is not None
    assert not request.rigid
    requests.forget_all_but(())
    assert requests.of(other) is None


def test_to_be_queued_again_makes_no_other_job_of_a_job_or_of_an_element() -> None:
    requests = Requests()
    keys = [known(requests, each) for each in (RIGID, one(0), one(1))]
    assert len(set(keys)) == 3
    again = [replace(each, submit_s=2000.0, restarts=1) for each in (RIGID, one(0), one(1))]
    for at, each in enumerate(again):
        assert known(requests, each) == keys[at]
        assert known(requests, each) == keys[at]
    # Slurm has crashed, and its next job has that id, too.
    assert requests.of(replace(RIGID, submit_s=3000.0)) is None


def one(number: int, **more: object) -> SlurmJob:
    """An element of array 7."""
    return replace(RIGID, id=f"7_{number}", array="", element=number, **more)  # type: ignore[arg-type]


def test_what_was_said_of_a_job_outlives_an_epilog_that_writes_over_its_mark() -> None:
    backend, clock = FakeBackend(state(running(MOVABLE, "n0"))), Clock()
    daemon = daemon_of(backend, clock, Evict())
    daemon.cycle()
    assert backend.calls == [Requeue("1")]
    request = daemon.world.managed["1"].request
    again = replace(MOVABLE, mark=EPILOG, submit_s=clock.now, restarts=1, begin_s=clock.now + 120)
    backend.state = state(placed(again, "n0"))
    clock.now += 1
    assert daemon.cycle().lost == ()
    assert daemon.world.managed["1"].request == request
    assert backend.calls[1:] == [left(MOVABLE)]


@pytest.mark.parametrize(
    "more",
    ['"gpu-shapes":"any","elements":2', '"copies":2,"elements":2,"can-checkpoint":true'],
    ids=["gang", "copies"],
)
def test_elements_stay_one_job_when_an_epilog_writes_over_the_mark_of_one(more: str) -> None:
    mark = f'hetsched/2 {{"nonce":"g","gpu-set":"4",{more}}}'
    elements = [replace(one(at), array="7", mark=mark, gpus=4) for at in range(2)]
    backend = FakeBackend(state(*elements))
    daemon = daemon_of(backend, Clock())
    daemon.cycle()
    ended = replace(elements[1], mark=EPILOG, submit_s=1000.0, restarts=1)
    backend.state = state(elements[0], ended)
    daemon.cycle()
    assert set(daemon.world.jobs) == {"7"}
    seen = daemon.world.managed["7"].slurm
    assert len(seen.copies or (seen, *seen.members)) == 2


def test_a_job_goes_back_to_its_own_shape_and_not_to_the_one_that_it_was_given() -> None:
    own = replace(WAITING, asked=Asked(2), cpus=2, pinned=("n0", "n1"))
    backend, clock = FakeBackend(state(own, nodes=(node("n0"), node("n1")))), Clock()
    daemon = daemon_of(backend, clock)
    daemon.cycle()
    back = replace(left(own), nodes=("n0", "n1"), terms=Terms(10, 2, None, 2))
    assert backend.calls == [replace(entry(own, "n0", cpus=2), otherwise=back)]
    shape = Resources((1, 1), 1, "", "gres/gpu:v100:1", "", "")
    given = replace(placed(own, "n0"), resources=shape, asked=Asked(9), time_limit_s=6000.0)
    backend.state = state(given, nodes=(node("n0"), node("n1")))
    for _ in range(40):
        clock.now += 1
        daemon.cycle()
    assert backend.calls[1:2] == [back]


def test_what_the_user_of_a_waiting_job_changes_is_what_it_asks_for() -> None:
    backend = FakeBackend(state(RIGID))
    daemon = daemon_of(backend, Clock(), make_policy("sjf"))
    daemon.cycle()
    wider = replace(RIGID, gpus=3, resources=replace(RIGID.resources, per_job="gres/gpu:3"))
    backend.state = state(wider)
    daemon.cycle()
    assert list(daemon.world.jobs["5"].job.requirements) == [3]


@pytest.mark.parametrize("mode", Mode)
def test_what_is_kept_of_jobs_goes_with_them_in_every_mode(mode: Mode) -> None:
    with Store.open(IN_MEMORY, StoreMode.WRITE) as store:
        backend = FakeBackend(state(RIGID))
        daemon = daemon_of(backend, Clock(), mode=mode)
        daemon.keep_in(store)
        for seen, kept in ((state(RIGID), {"5"}), (state(), set())):
            backend.state = seen
            daemon.cycle()
            assert store.remembered().keys() == kept


def test_what_is_changed_of_one_element_is_not_changed_of_the_others() -> None:
    array = replace(RIGID, id="7", array="7", unsplit=(1, 2))
    first = replace(one(0), array="7")
    full = (node("n0", used=4),)
    with Store.open(IN_MEMORY, StoreMode.WRITE) as store:
        backend = FakeBackend(state(array, first, nodes=full))
        daemon = daemon_of(backend, Clock())
        daemon.keep_in(store)
        daemon.cycle()
        wide = replace(first, gpus=3, resources=replace(RIGID.resources, per_job="gres/gpu:3"))
        backend.state = state(array, wide, nodes=full)
        daemon.cycle()
        again = daemon_of(backend, Clock())
        again.keep_in(store)
        runs = replace(running(one(1), "n0"), array="7")
        for each in (again, daemon):
            backend.state = state(replace(array, unsplit=(2, 3)), wide, runs, nodes=full)
            each.cycle()
            found = {job: known.request.own.gpus for job, known in each.world.managed.items()}
            assert found == {"7_0": 3, "7_1": 1, "7_2": 1, "7_3": 1}


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
    job = replace(RIGID, gpu_types=("v100",), resources=asks)
    backend = FakeBackend(state(job), scripts={"5": script})
    daemon = daemon_of(backend, Clock())
    (warning,) = daemon.cycle().warnings
    assert says in warning
    assert backend.calls == [Enter("5", HOLD, ("n0",), Leave("5"))]
    assert daemon.cycle().warnings == ()


@pytest.mark.parametrize(
    ("asks", "says"),
    [
        ({"het_job": "5"}, "places no heterogeneous jobs"),
        ({"het_job": "5", "gpus": 0}, "places no heterogeneous jobs"),
        ({"gpus": 2, "pinned": ("n0",), "resources": TWO_NODES}, "names 1 of the 2 nodes"),
        ({"gpu_types": ("a100", "v100")}, "GPUs of a100 and v100 at once"),
    ],
)
def test_what_can_be_placed_in_no_way_waits_with_a_sentence(
    asks: dict[str, object], says: str
) -> None:
    backend = FakeBackend(state(replace(RIGID, **asks)))  # type: ignore[arg-type]
    daemon = daemon_of(backend, Clock())
    daemon.cycle()
    assert backend.calls == []
    assert says in str(daemon.world.jobs["5"].blocked)
