"""Which elements of an array a record stands for."""

import pytest

from slurm_plugin.backend.arrays import MOST, elements_of, unsplit_elements


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("0-3", (0, 1, 2, 3)),
        ("1-2", (1, 2)),
        ("0,2", (0, 2)),
        ("0,2-5%1", (0, 2, 3, 4, 5)),
        ("2", (2,)),
        ("0-12:4", (0, 4, 8, 12)),
        ("", ()),
        ("1,3-5,7...", (1, 3, 4, 5)),
    ],
)
def test_the_elements_that_slurm_keeps_as_one_are_read(text: str, numbers: tuple[int, ...]) -> None:
    assert unsplit_elements(text) == numbers


def test_of_a_huge_array_the_first_are_enough() -> None:
    assert unsplit_elements("0-3999999") == tuple(range(MOST))


@pytest.mark.parametrize(
    ("record", "elements"),
    [
        (("7", "", None, ""), ("7", 0, ())),
        (("7", "7", None, "0-2%1"), ("7", 0, (0, 1, 2))),
        (("7", "7", None, "1-2"), ("7", 1, (1, 2))),
        (("9", "7", 2, ""), ("7_2", 2, ())),
        (("7", "7", None, "8"), ("7_8", 8, ())),
        (("7", "7", None, "8%1"), ("7_8", 8, ())),
        (("9", "7", None, ""), ("7_0", 0, ())),
    ],
    ids=["no array", "all", "without 0", "split", "last", "last of throttled", "0 as pyslurm says"],
)
def test_the_last_element_of_an_array_is_not_taken_for_its_first(
    record: tuple[str, str, int | None, str], elements: tuple[str, int, tuple[int, ...]]
) -> None:
    assert elements_of(*record) == elements
