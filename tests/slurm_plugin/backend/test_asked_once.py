"""What a bulk read does not tell is asked once for each new job."""

from dataclasses import dataclass, field

import pytest

from slurm_plugin.backend import RefusedError, Resources
from slurm_plugin.backend.asked_once import AskedOnce, Untold, exclusive_of

NEW = "7|gres/gpu:8|N/A|cpu=3,gres/gpu:1|gres/gpu:2|gres/gpu:1024|NODE|NO|\n"
OLD = "8|N/A|N/A|N/A|N/A|N/A||NO|\n"


@dataclass
class Squeue:
    """Prints lines, and keeps what it was asked."""

    text: str
    asked: list[str] = field(default_factory=list)

    def __call__(self, command: list[str]) -> str:
        named = next((word for word in command if word.startswith("--jobs")), "all")
        self.asked.append(" ".join([named, *[word for word in command if word == "--array"]]))
        return self.text


def test_a_job_is_asked_for_once_and_again_when_it_asks_otherwise() -> None:
    squeue = Squeue(NEW + OLD)
    once = AskedOnce(squeue)
    expected = Untold("gres/gpu:8", "", "cpu=3,gres/gpu:1", "gres/gpu:2", "gres/gpu:1024", "node")
    for _ in range(2):
        assert once.of({"7": (1.0, 2), "8": (1.0, 2)}) == {
            "7": expected,
            "8": Untold(exclusive="node"),
        }
    once.of({"7": (1.0, 3), "8": (1.0, 2)})
    # That of which only the beginning is said is as it was.
    once.of({"7": (1.0,), "8": (1.0,)})
    once.of({"7": (2.0,)})
    assert squeue.asked == ["--jobs=7,8", "--jobs=7", "--jobs=7"]


def test_all_are_asked_for_anew_once_partitions_share_nodes_otherwise() -> None:
    squeue = Squeue(OLD)
    once = AskedOnce(squeue)
    shown = "PartitionName=gpu AllowGroups=ALL Exclusive={} OverSubscribe=NO MaxTime=1:00:00\n"
    for sharing in ("NO", "NO", "NODE"):
        once.follow(shown.format(sharing))
        once.of({"8": (1.0,)})
    assert squeue.asked == ["--jobs=8", "--jobs=8"]


def test_one_that_has_gone_tells_nothing_and_is_not_asked_for_again() -> None:
    def gone(_: list[str]) -> str:
        raise RefusedError("Invalid job id specified")

    assert AskedOnce(gone).of({"7": (1.0,)}) == {"7": Untold()}
    squeue = Squeue("")
    once = AskedOnce(squeue)
    for _ in range(2):
        assert once.of({"7": (1.0,)}) == {"7": Untold()}
    assert squeue.asked == ["--jobs=7", "--jobs=7 --array"]


def test_elements_that_squeue_shows_as_one_are_asked_for_one_by_one() -> None:
    def squeue(command: list[str]) -> str:
        return NEW.replace("7|", "9|") if "--array" in command else NEW

    told = AskedOnce(squeue).of({"7": (1.0,), "9": (1.0,)})
    assert {job: untold.per_job for job, untold in told.items()} == dict.fromkeys(
        "79", "gres/gpu:8"
    )


def test_many_jobs_are_not_named_and_those_that_have_gone_are_forgotten() -> None:
    squeue = Squeue("")
    once = AskedOnce(squeue)
    once.of({f"{job}": (1.0,) for job in range(2000)})
    assert squeue.asked == ["all", "all --array"]
    squeue.asked.clear()
    once.of({"1": (1.0,)})
    once.of({"5": (1.0,)})
    assert squeue.asked == ["--jobs=5", "--jobs=5 --array"]


@pytest.mark.parametrize(
    ("word", "means"),
    [("NO", "node"), ("USER", "user"), ("MCS", "mcs"), ("OK", ""), ("YES", ""), ("", "")],
)
def test_with_whom_a_node_is_shared_is_told_by_slurm_s_older_word(word: str, means: str) -> None:
    assert exclusive_of(word) == means


OWN = Resources((1, 0), 4, "gres/gpu:4", "", "", "gres/gpu:1")


@pytest.mark.parametrize(
    ("own", "nodes", "tasks", "change"),
    [
        (OWN, 1, 1, Resources((1, 1), 1, "", "gres/gpu:4", None, "")),
        (OWN, 2, 4, Resources((2, 2), None, "", "gres/gpu:4", None, "")),
        (Resources((1, 0), 1, "", "gres/gpu:2", "", ""), 1, 1, Resources(per_node="gres/gpu:4")),
        (Resources((1, 3), 1, "", "gres/gpu:4", "", ""), 1, 1, Resources((1, 1))),
        (Resources((2, 2), 2, "", "gres/gpu:4", "", ""), 2, 2, Resources()),
    ],
)
def test_only_what_differs_is_changed(
    own: Resources, nodes: int, tasks: int, change: Resources
) -> None:
    assert own.placed(nodes, "gres/gpu:4", tasks) == change
