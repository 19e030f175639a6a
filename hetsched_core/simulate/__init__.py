"""The simulator: workloads run on a cluster that exists only as events."""

from hetsched_core.simulate.engine import simulate
from hetsched_core.simulate.events import Incident, JobCrashed, NodeBack, NodeDrained, NodeLost
from hetsched_core.simulate.settings import (
    Estimates,
    KnownSpeeds,
    RunMeasurement,
    SimulationSettings,
)

__all__ = [
    "Estimates",
    "Incident",
    "JobCrashed",
    "KnownSpeeds",
    "NodeBack",
    "NodeDrained",
    "NodeLost",
    "RunMeasurement",
    "SimulationSettings",
    "simulate",
]
