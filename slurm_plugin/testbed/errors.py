"""What goes wrong with a testbed.

HetschedError
└── TestbedError            it was there and something in it failed
    └── TestbedUnavailableError  it cannot be had on this machine
"""

from __future__ import annotations

from hetsched_core.errors import HetschedError


class TestbedError(HetschedError):
    """A part of the testbed failed; the message says which, and where its log is."""

    __test__ = False  # pytest takes every class of such a name for tests


class TestbedUnavailableError(TestbedError):
    """This machine cannot have a testbed; the message says what it would need."""
