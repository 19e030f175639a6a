"""The page of what policies see is what the docstrings say."""

from dataclasses import fields

from hetsched_core.cli.reference import PAGE, page
from hetsched_core.types import Configuration, JobView, Snapshot


def test_the_page_is_what_the_docstrings_say() -> None:
    assert PAGE.read_text() == page(), "older than the docstrings; write it anew with: make man"


def test_every_field_and_method_of_what_a_policy_is_given_is_on_it_with_its_meaning() -> None:
    for cls in (Snapshot, JobView, Configuration):
        _, _, section = page().partition(f"## {cls.__name__}\n")
        section = section.partition("\n## ")[0]
        for field in fields(cls):
            (row,) = [line for line in section.splitlines() if line.startswith(f"| `{field.name}`")]
            assert len(row.rpartition(" | ")[2]) > len("x |"), row
    assert "- `service_at(now)`: Return the GPU seconds attained, over all types." in page()
    assert "- `aggregated`: Whether all GPUs are on one node (Hops)." in page()
