"""What is made of a job that Slurm shows."""

import ctypes
from dataclasses import replace

import pytest

from hetsched_core.types import Horizon, Reason, ReasonCode
from slurm_plugin.backend import SlurmJob
from slurm_plugin.daemon.jobs import slurm_reasons
from slurm_plugin.daemon.jobs.managed import blocked_by, described, not_started
from slurm_plugin.testbed import Installation
from tests.slurm_plugin.daemon.fake_slurm import WAITING, placed, requested

SEEN = replace(
    WAITING,
    id="12",
    mark='hetsched/2 {"nonce":"a","gpu-set":"1","submitted":1000}',
    submit_s=1000.0,
)


def submitted_s(seen: SlurmJob) -> float:
    return described(seen, requested(seen)).submit_s


def test_a_job_keeps_its_place_when_slurm_counts_it_as_submitted_anew() -> None:
    requeued = replace(SEEN, submit_s=5000.0, restarts=1)
    assert submitted_s(requeued) == submitted_s(SEEN)
    later = replace(SEEN, id="13", submit_s=2000.0, mark=SEEN.mark.replace("1000", "2000"))
    assert submitted_s(requeued) < submitted_s(later)
    # A mark without the time goes by Slurm's.
    old = replace(SEEN, mark=SEEN.mark.replace(',"submitted":1000', ""))
    assert submitted_s(replace(old, submit_s=5000.0)) == submitted_s(old) + 4000.0


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("MaxGRESPerAccount", ReasonCode.QUOTA),
        ("QOSMaxGRESPerUser", ReasonCode.QUOTA),
        ("AssocGrpGRES", ReasonCode.QUOTA),
        ("MaxGRESRunMinsPerUser", ReasonCode.QUOTA),
        ("JobArrayTaskLimit", ReasonCode.QUOTA),
        ("Licenses", ReasonCode.LICENSES),
        ("JobHoldMaxRequeue", ReasonCode.HELD),
        ("Dependency", ReasonCode.DEPENDENCY),
        ("DependencyNeverSatisfied", ReasonCode.DEPENDENCY_NEVER),
    ],
)
def test_what_keeps_a_job_back_wherever_it_is_placed_is_told_in_slurms_word(
    said: str, code: ReasonCode
) -> None:
    assert blocked_by(replace(placed(SEEN, "n0"), reason=said)) == Reason(code, detail=said)
    assert (code.horizon is Horizon.NEVER) is (said == "DependencyNeverSatisfied")


def test_a_job_that_waits_for_others_is_kept_back_before_slurm_has_said_so() -> None:
    found = blocked_by(replace(SEEN, reason="None", dependency="afterok:11"))
    assert found == Reason(ReasonCode.DEPENDENCY, detail="Dependency")


@pytest.mark.parametrize(
    ("said", "where_placed"),
    [
        *((said, False) for said in ("None", "Priority", "Resources", "BeginTime")),
        ("NonZeroExitCode", False),
        *((said, True) for said in ("ReqNodeNotAvail,_UnavailableNodes:n1", "PartitionDown")),
        ("Quux", True),
    ],
)
def test_a_word_about_a_place_or_an_unknown_one_keeps_back_only_what_was_placed(
    said: str, where_placed: bool
) -> None:
    seen = replace(SEEN, reason=said)
    assert blocked_by(seen) is None
    reason = Reason(ReasonCode.NOT_STARTED, detail=said)
    assert not_started(seen) == (reason if where_placed else None)


@pytest.mark.slurm
def test_every_word_that_slurm_has_is_in_the_table(installation: Installation) -> None:
    library = ctypes.CDLL(str(installation.plugins / "libslurmfull.so"))
    said = library.slurm_job_state_reason_string
    said.restype = ctypes.c_char_p
    words = {said(number).decode() for number in range(400)}
    assert {"None", "MaxGRESPerAccount", "MpiPortsBusy"} <= words
    assert words - slurm_reasons.CODES.keys() == {"InvalidReason"}
