"""What goes wrong between us and Slurm.

HetschedError
└── BackendError
    ├── AwayError     slurmctld or munge does not answer: try again later, nothing is wrong with us
    │   └── SlowError  it has not answered for so long that it is not to be asked again at once
    └── RefusedError  Slurm has understood and said no
        └── TakenError  what was to be made is there already
"""

from __future__ import annotations

from hetsched_core.errors import HetschedError


class BackendError(HetschedError):
    """Anything that a backend reports."""


class AwayError(BackendError):
    """Slurm's controller or its authentication does not answer; whether it acted is not known."""


class SlowError(AwayError):
    """Slurm has let us wait for its answer as long as we do."""


class RefusedError(BackendError):
    """Slurm refused a change; part of it may have been made."""


class TakenError(RefusedError):
    """Slurm has made nothing, since there is one of the same name."""
