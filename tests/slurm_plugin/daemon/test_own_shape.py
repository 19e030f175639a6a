"""What is remembered of a job's own shape, whatever Slurm shows of it later."""

from dataclasses import replace

from slurm_plugin.backend import Asked, Resources, SlurmJob
from slurm_plugin.daemon.requests import Requests
from tests.slurm_plugin.daemon.fake_slurm import WAITING, placed, running

OWN = replace(WAITING, asked=Asked(8, memory_mb_per_node=4000), cpus=8)
SHAPE = Resources((2, 2), 2, "", "gres/gpu:v100:1", "", "")


def types_and_cpus(requests: Requests, seen: SlurmJob) -> tuple[frozenset[str] | None, int]:
    """What a job accepts, and its CPUs by GPU."""
    request = requests.of(seen)
    assert request is not None
    requests.edited(seen)
    request = requests.of(seen)
    assert request is not None
    return request.gpu_types, request.own.cpus


def test_the_shape_of_a_run_is_not_taken_for_an_edit_of_its_user_s() -> None:
    requests = Requests()
    assert types_and_cpus(requests, OWN) == (None, 8)
    for seen in (placed(OWN, "n0"), running(OWN, "n0")):
        assert types_and_cpus(requests, replace(seen, resources=SHAPE, cpus=16)) == (None, 8)
    assert types_and_cpus(requests, replace(OWN, cpus=4)) == (None, 4)


def test_the_gpus_that_a_job_was_given_are_not_those_that_it_asks_for() -> None:
    # As a daemon sees it first that knows nothing of those before it.
    for seen in (placed(OWN, "n0"), running(OWN, "n0")):
        assert types_and_cpus(Requests(), replace(seen, resources=SHAPE, cpus=16))[0] is None
    # Slurm started it by itself, and its user named the type.
    own = Resources((1, 0), 1, "gres/gpu:v100:1", "", "", "")
    by_itself = replace(running(OWN, "n0"), reservation="")
    assert types_and_cpus(Requests(), by_itself)[0] is None
    assert types_and_cpus(Requests(), replace(by_itself, resources=own))[0] == frozenset({"v100"})
