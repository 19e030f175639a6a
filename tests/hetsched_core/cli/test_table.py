"""Tables in the terminal."""

import pytest

from hetsched_core.cli.table import print_table


def test_names_that_others_chose_cannot_steer_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_table(["job", "name"], [("1", "a\x1b]0;title\x07\nb")])
    assert capsys.readouterr().out == "JOB  NAME\n1    a?]0;title??b\n"
