"""Workloads of Sia: each line a job of an application, which is a built-in model or rejected."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched_core.errors import InputError
from hetsched_core.throughput import builtin_profiles
from hetsched_core.traces.cluster_file import ClusterFile
from hetsched_core.traces.lines import first_line
from hetsched_core.traces.load import LoadOptions, load_workload
from hetsched_core.traces.sia import APPLICATIONS, is_sia, read_sia
from tests.hetsched_core.worlds import cluster_of

HEADER = "name,time,application,num_replicas,batch_size"
ROWS = ("cifar10-0,107,cifar10,6,2048", "yolov3-1,110.5,yolov3,4,64", "bert-2,12.5,bert,1,384")
V100S = ClusterFile(cluster_of(a=("v100", 8), b=("v100", 8)))


def test_a_job_does_the_epochs_of_its_application_on_its_replicas() -> None:
    found = read_sia([HEADER, *ROWS], "w", "", elastic=False)
    bert, cifar = found.submissions
    assert (cifar.job.id, cifar.job.submit_s, cifar.job.name) == ("cifar10-0", 107.0, "cifar10")
    assert (cifar.job.profile, cifar.samples) == ("resnet18-cifar10", 100 * 50_000)
    assert (cifar.job.requirements.counts, bert.job.requirements.counts) == ((6,), (1,))
    assert cifar.job.total_samples == cifar.samples


def test_applications_without_a_model_and_names_that_come_again_are_rejected() -> None:
    found = read_sia([HEADER, *ROWS, "", ROWS[0]], "w", "", elastic=False)
    assert [(r.job, r.line, r.reason) for r in found.rejected] == [
        ("yolov3-1", 3, "no built-in model is its application, yolov3"),
        ("cifar10-0", 6, "an earlier job has the same name"),
    ]


def test_every_application_that_is_taken_is_a_built_in_model() -> None:
    names = {profile.name for profile in builtin_profiles()}
    assert {profile for profile, _ in APPLICATIONS.values()} <= names


def test_workloads_run_on_a_cluster_that_is_given_and_are_elastic_on_demand(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("workload-1.csv", "workload-2.csv")]
    for path in paths:
        path.write_text("\n".join([HEADER, *ROWS]))
    with pytest.raises(InputError, match="--cluster FILE"):
        load_workload(paths[:1])
    found = load_workload(paths, V100S, LoadOptions(elastic=True)).workload
    counts = {s.job.id: s.job.requirements.counts for s in found.submissions}
    assert counts["1.cifar10-0"] == counts["2.cifar10-0"] == (3, 6, 12)
    assert counts["1.bert-2"] == (1, 2)
    assert [text for text in found.assumptions if "all epochs of the application" in text]


@pytest.mark.parametrize(
    "row",
    [
        "a,b",
        "x,soon,bert,1,384",
        "x,-1,bert,1,384",
        "x,nan,bert,1,384",
        "x,1,bert,0,384",
        "x,1,bert,,",
    ],
)
def test_a_line_of_another_form_is_an_error_that_names_it(row: str) -> None:
    with pytest.raises(InputError, match=r"^w: line 3 is no job of a workload of Sia: .* expected"):
        read_sia([HEADER, ROWS[0], row], "w", "", elastic=False)


@given(st.integers(0, 120), st.integers(0, 20), st.text(max_size=12), st.booleans())
def test_a_damaged_workload_is_read_or_refused(at: int, lost: int, put: str, elastic: bool) -> None:
    text = "\n".join([HEADER, *ROWS])
    text = text[:at] + put + text[at + lost :]
    refused = "w"
    if is_sia(first_line(text)):
        try:
            read_sia(text.split("\n"), "w", "", elastic)
        except InputError as error:
            refused = str(error)
    assert refused.startswith("w")
