"""A Slurm that refuses whatever is placed has its nodes back for a while."""

from dataclasses import dataclass, replace

from slurm_plugin.backend import ApplyResult, Change, Drop, Enter, Hold, Leave, RefusedError
from slurm_plugin.daemon.nodes.refusals import GIVEN_BACK_S, Refusals
from tests.slurm_plugin.backend.fake import FakeBackend
from tests.slurm_plugin.daemon.fake_slurm import RIGID, Site, named, node


@dataclass(slots=True)
class Refusing(FakeBackend):
    """It takes no placement of jobs from `least` on, and, if `deaf`, no other change of them."""

    least: int = 0
    deaf: bool = True

    def apply(self, change: Change) -> None:
        self.calls.append(change)
        about = Enter | Leave if self.deaf else Enter
        if isinstance(change, about) and int(change.job) >= self.least:
            raise RefusedError("hetsched: Unspecified error")


JOBS = tuple(replace(RIGID, id=str(number)) for number in range(1, 6))


def test_nodes_are_given_back_where_every_placement_is_refused_and_held_again_later() -> None:
    backend = Refusing()
    site = Site(*JOBS, backend=backend)
    seconds = 1
    while not any(isinstance(call, Drop) for call in site.cycle(1)):
        seconds += 1
        assert site.report.warnings == ()
    # After `slack_s`, in which each was tried again.
    assert 60 <= seconds <= 130
    (warned,) = site.report.warnings
    assert "Unspecified error" in warned
    # Slurm shows no reservation of ours from then on.
    assert site.see(*JOBS, reservations=(), seconds=GIVEN_BACK_S - 10) == []
    backend.least = 99
    calls = site.see(*JOBS, reservations=(), seconds=20)
    assert isinstance(calls[0], Hold)
    assert len({call.job for call in calls if isinstance(call, Enter)}) == 4


def test_while_slurm_takes_others_or_refuses_few_or_placements_alone_nodes_stay_held() -> None:
    others = Refusing(least=2)
    site = Site(*JOBS, backend=others, nodes=(node("n0"), node("n1")))
    for at in range(300):
        # Now and then another one comes that is taken.
        more = replace(RIGID, id="1", submit_s=900.0 + at // 40)
        site.see(more, *JOBS[1:])
    few = Refusing()
    Site(*JOBS[:2], backend=few).cycle(300)
    # Jobs that Slurm would start nowhere can be taken back.
    odd = Refusing(deaf=False)
    Site(*JOBS, backend=odd).cycle(300)
    for backend in (others, few, odd):
        assert sum(kind == "Enter" for kind, _ in named(backend.calls)) > 3
        assert ("Drop", "") not in named(backend.calls)


def test_jobs_of_which_slurm_took_no_change_now_and_then_do_not_add_up() -> None:
    refusals = Refusals()
    for at in range(4):
        entry = Enter(f"{at}", "hetsched", ("n0",), Leave(f"{at}"))
        refused = ApplyResult((), ((entry, "no"),), (), stuck=frozenset({entry.job}))
        refusals.note(refused, 3600.0 * at, 60.0)
        assert not refusals.given_back(3600.0 * at)


def test_an_element_of_a_gang_that_is_stuck_beside_the_one_that_was_refused_counts() -> None:
    refusals = Refusals()
    entry = Enter("1_0", "hetsched", ("n0",), Leave("1_0"))
    stuck = frozenset({"1_1", "2_1", "3_1"})
    for now in (0.0, 70.0):
        refusals.note(ApplyResult((), ((entry, "no"),), (), stuck=stuck), now, 60.0)
    assert "it says no" in refusals.warning(71.0)
