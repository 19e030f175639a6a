"""The messages of errors that name a wrong value."""

import pytest

from hetsched_core.errors import HetschedError, InputError, PlanError, unknown


@pytest.mark.parametrize(
    ("given", "valid", "says"),
    [
        ("fito", ["srtf", "las", "fifo", "las"], "did you mean 'fifo'? valid: fifo, las, srtf"),
        ("FIFO", ["fifo", "las"], "did you mean 'fifo'? valid: fifo, las"),
        ("a100", ["A100", "V100"], "did you mean 'A100'? valid: A100, V100"),
        ("quantum", ["fifo", "las"], "valid: fifo, las"),
        ("bert", [], "there is none to choose from"),
    ],
)
def test_an_unknown_name_is_answered_with_the_like_one_and_all_valid_ones(
    given: str, valid: list[str], says: str
) -> None:
    error = unknown("name", given, valid)
    assert str(error) == f"unknown name {given!r}: {says}"
    assert isinstance(error, InputError)


@pytest.mark.parametrize("kind", [InputError, PlanError])
def test_every_error_is_one_of_hetsched(kind: type[Exception]) -> None:
    assert issubclass(kind, HetschedError)
