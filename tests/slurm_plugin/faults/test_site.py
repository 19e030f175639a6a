"""The judge of the fault tests is not blind: each thing that ought not to be is seen."""

from dataclasses import replace
from datetime import UTC, datetime

from slurm_plugin.testbed import FakeNode
from tests.slurm_plugin.accounts import UNTOLD, Accounted
from tests.slurm_plugin.faults.site import (
    Seen,
    against_records,
    miscounted,
    of_one_job,
    over_full,
    runs_in,
    shared_gpus,
    untold,
)

FIRST = Seen("7", 0, "a1", frozenset({("n0", 0), ("n0", 1)}), 10.0, 20.0)
SECOND = replace(FIRST, number=1, begin=21.0, end=30.0)
OTHER = replace(FIRST, job="8", nonce="b2", gpus=frozenset({("n0", 1)}), begin=12.0, end=14.0)


def at(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")


ROW = Accounted("COMPLETED", frozenset({"n0"}), 2, at(10), at(20), 0)


def test_what_a_job_notes_down_is_read() -> None:
    text = (
        "start 1.5 7 0 a1 n0=0,1\nend 2.5\n"
        "start 3.5 7 1 a1 n0=3 n4=3\n"  # killed
        "start 5.5 7 2 a1 n1=0\nend 6.5\n"
    )
    assert list(runs_in(text)) == [
        Seen("7", 0, "a1", frozenset({("n0", 0), ("n0", 1)}), 1.5, 2.5),
        Seen("7", 1, "a1", frozenset({("n0", 3), ("n4", 3)}), 3.5, None),
        Seen("7", 2, "a1", frozenset({("n1", 0)}), 5.5, 6.5),
    ]


def test_runs_one_after_the_other_are_right_and_two_at_once_are_not() -> None:
    assert list(of_one_job([FIRST, SECOND])) == []
    assert "twice at once" in next(of_one_job([FIRST, replace(SECOND, begin=19.9)]))
    assert "nonce" in next(of_one_job([FIRST, replace(SECOND, nonce="b2")]))


def test_runs_that_are_not_counted_up_are_seen() -> None:
    assert list(miscounted({"j0": [FIRST, SECOND]})) == []
    (found,) = miscounted({"j0": [FIRST, replace(SECOND, number=0)]})
    assert "run 0 after run 0" in found


def test_a_record_that_has_no_end_is_seen() -> None:
    assert list(untold({"7": [ROW]})) == []
    (found,) = untold({"7": [ROW, replace(ROW, end=UNTOLD)], "8": [ROW]})
    assert "the end of job 7" in found


def test_a_gpu_that_two_jobs_have_is_seen() -> None:
    assert list(shared_gpus(iter([FIRST, SECOND]))) == []
    (found,) = shared_gpus(iter([FIRST, SECOND, OTHER]))
    assert found.startswith("('n0', 1) was used twice")
    elsewhere = replace(OTHER, gpus=frozenset({("n1", 1)}))
    assert list(shared_gpus(iter([FIRST, elsewhere]))) == []
    # Only a run's first node tells when it has ended there.
    wide = replace(FIRST, gpus=frozenset({("n0", 0), ("n1", 1)}))
    just_then = replace(elsewhere, begin=19.9, end=30.0)
    assert list(shared_gpus(iter([wide, just_then]))) == []
    assert list(shared_gpus(iter([wide, replace(just_then, begin=18.0)])))
    on_the_first = replace(just_then, gpus=frozenset({("n0", 0)}))
    assert list(shared_gpus(iter([wide, on_the_first])))


def test_a_node_that_is_over_full_in_the_records_is_seen() -> None:
    node = FakeNode("n0", "a100", 3)
    later = replace(ROW, start=at(20), end=at(25))
    assert list(over_full([node], {"7": [ROW], "8": [later]}, {})) == []
    at_once = replace(ROW, start=at(19))
    assert list(over_full([node], {"7": [ROW], "8": [at_once]}, {})) == [
        "Slurm's records have 4 GPUs of n0 in use at once"
    ]
    for words, one in (
        ("40 CPUs", replace(at_once, gpus=1, cpus=20)),
        ("70000 MiB", replace(at_once, gpus=1, memory_mb=35_000)),
    ):
        (found,) = over_full([node], {"7": [one], "8": [one]}, {})
        assert f"have {words} of n0" in found
    # A job's GPUs are spread over its nodes, evenly unless it has seen otherwise.
    wide = replace(ROW, nodes=frozenset({"n0", "n1"}), gpus=4)
    rows = {"7": [ROW], "8": [wide]}
    assert list(over_full([node], rows, {}))
    uneven = frozenset({("n0", 0), ("n1", 0), ("n1", 1), ("n1", 2)})
    assert list(over_full([node], rows, {"j1": [replace(OTHER, gpus=uneven)]})) == []


def test_a_run_that_is_not_as_it_was_recorded_is_seen() -> None:
    assert list(against_records({"j0": [FIRST]}, {"7": [ROW]})) == []
    (found,) = against_records({"j0": [FIRST]}, {"7": [replace(ROW, gpus=1)]})
    assert "other GPUs" in found
    unknown: tuple[dict[str, list[Accounted]], ...] = ({}, {"7": [replace(ROW, restarts=1)]})
    stopped_at_once = replace(FIRST, gpus=frozenset())
    assert list(against_records({"j0": [stopped_at_once]}, {"7": [ROW]})) == []
    for run, records in (
        *((run, records) for run in (FIRST, stopped_at_once) for records in unknown),
        (FIRST, {"7": [replace(ROW, nodes=frozenset())]}),
    ):
        (found,) = against_records({"j0": [run]}, records)
        assert "no record" in found
