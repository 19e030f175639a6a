"""What an errno of Slurm's library means: nobody answers, or Slurm has said no."""

import pytest

from slurm_plugin.backend import AwayError, RefusedError
from slurm_plugin.backend.with_pyslurm import meaning


class RPCError(Exception):
    """What pyslurm raises."""

    def __init__(self, errno: int | None) -> None:
        super().__init__("words")
        self.errno = errno


@pytest.mark.parametrize(
    ("errno", "kind"),
    [
        (104, AwayError),  # ECONNRESET
        (110, AwayError),  # ETIMEDOUT
        (111, AwayError),  # ECONNREFUSED
        (1007, AwayError),  # munge is away
        (1800, AwayError),  # slurmctld is away
        (2042, RefusedError),
        (None, RefusedError),
        (0, RefusedError),
        (-1, RefusedError),
    ],
)
def test_an_error_is_a_refusal_only_if_slurm_has_refused(
    errno: int | None, kind: type[Exception]
) -> None:
    said = meaning(RPCError(errno), "push")
    assert type(said) is kind
    assert str(said).startswith("push: words")
