"""The messages of errors that name a wrong value."""

import pytest

from hetsched_core.errors import HetschedError, InputError, PlanError, unknown


def test_an_unknown_name_is_answered_with_the_like_one_and_all_valid_ones() -> None:
    error = unknown("policy", "fito", ["srtf", "las", "fifo", "las"])
    assert str(error) == "unknown policy 'fito': did you mean 'fifo'? valid: fifo, las, srtf"
    assert isinstance(error, InputError)


@pytest.mark.parametrize(("given", "meant"), [("a100", "A100"), ("TITANXP", "titanxp")])
def test_a_name_that_differs_only_in_case_is_found(given: str, meant: str) -> None:
    assert f"did you mean '{meant}'?" in str(unknown("GPU type", given, [meant, "V100"]))


def test_nothing_is_suggested_where_nothing_is_alike() -> None:
    error = unknown("policy", "quantum", ["fifo", "las"])
    assert str(error) == "unknown policy 'quantum': valid: fifo, las"


def test_an_empty_choice_says_so() -> None:
    error = unknown("profile", "bert", [])
    assert str(error) == "unknown profile 'bert': there is none to choose from"


@pytest.mark.parametrize("kind", [InputError, PlanError])
def test_every_error_is_one_of_hetsched(kind: type[Exception]) -> None:
    assert issubclass(kind, HetschedError)
