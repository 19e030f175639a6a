"""A held site, whose jobs an ordinary user submits and another, an operator, places."""

from collections.abc import Iterator

import pytest

from slurm_plugin.backend import SlurmBackend
from slurm_plugin.testbed import Testbed
from tests.slurm_plugin.backend.holding import OPERATOR, USER, As, Site
from tests.slurm_plugin.jobs import end_all
from tests.slurm_plugin.submit.asking import NOTHING, known_to_slurm, script_instead


@pytest.fixture(scope="module")
def peopled(testbed: Testbed) -> Iterator[Testbed]:
    """The shared testbed without our script, with an operator and a user whom Slurm knows."""
    with (
        script_instead(testbed, NOTHING),
        known_to_slurm(testbed, OPERATOR, operator=True),
        known_to_slurm(testbed, USER),
    ):
        yield testbed


@pytest.fixture
def site(peopled: Testbed, backend: SlurmBackend) -> Iterator[Site]:
    """Nodes that are held, and no job; whatever is left is ended with the test."""
    site = Site(peopled, As(backend, OPERATOR))
    site.hold()
    yield site
    end_all(peopled)
