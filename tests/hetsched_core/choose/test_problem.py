"""A problem whose parts do not fit together is refused with what is wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hetsched_core.choose import ChooseProblem, JobPieces, NodeClasses, ProblemError
from tests.hetsched_core.choose.naive import problem_of

GOOD = problem_of([(8, 2), (4, 1)], [[(1.0, [(0, 8), (0, 2)])], [(2.0, [(1, 3)])]])


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        ("job", np.array([1, 0]), "option 1 is of job 0, the one before of job 1; sort"),
        ("job", np.array([0, 2]), r"jobs 0 to 2; expected 0 to 1"),
        ("job", np.array([0.0, 1.0]), r"job has shape \(2,\) and type float64"),
        ("value", np.array([1.0, 0.0]), "value of option 1 is 0.0"),
        ("value", np.array([np.nan, 1.0]), "value of option 0 is nan"),
        ("value", np.array([1.0]), r"value has shape \(1,\)"),
        ("starts", np.array([0, 3, 3]), "option 1 has no piece"),
        ("starts", np.array([0, 2, 2]), "starts runs from 0 to 2; expected 0 to 3"),
        ("piece_class", np.array([0, 0, 2]), "classes 0 to 2; expected 0 to 1"),
        ("piece_class", np.array([0, 0, 0, 0]), "piece_gpus has shape"),
        ("piece_gpus", np.array([8, 2, 5]), "piece 2 has 5 GPUs; a node of class 'class 1' has 4"),
        ("piece_gpus", np.array([8, 0, 3]), "piece 1 has 0 GPUs"),
    ],
)
def test_options_that_do_not_fit_are_refused(part: str, value: Any, message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        ChooseProblem(GOOD.classes, replace(GOOD.options, **{part: value}), 2)


def test_an_option_on_more_nodes_of_a_class_than_there_are_is_refused() -> None:
    classes = [(8, 2), (4, 1)]
    assert problem_of(classes, [[(1.0, [(0, 1), (1, 1)])]]).jobs == 1
    with pytest.raises(ProblemError, match="takes 2 nodes of class 'class 1', which has 1"):
        problem_of(classes, [[(1.0, [(0, 1), (0, 1)])], [(1.0, [(1, 1), (1, 1)])]])


def test_pieces_of_jobs_that_end_early_are_refused() -> None:
    with pytest.raises(ProblemError, match="starts runs from 0 to 1; expected 0 to 2"):
        JobPieces(np.array([0, 1]), np.array([0, 1]), np.array([1, 1]))


@pytest.mark.parametrize(
    ("count", "more", "message"),
    [
        ([1, -1], (), "count of class 'b' is -1, below 0"),
        ([1, 1], (np.array([0, 0]), None), "kinds and pools, or neither"),
        ([1, 1], (np.array([0, 0]), np.array([1, 1])), "make them one class"),
        ([1, 1], (np.array([0, 0]), np.array([0, 1])), "others of its kind have 4"),
    ],
)
def test_classes_that_cannot_be_are_refused(
    count: list[int], more: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(ProblemError, match=message):
        NodeClasses(np.array([4, 8]), np.array(count), ("a", "b"), *more)
