"""Shipped test tools: a deterministic event loop, a simulated network and a simulated disk.

from millpond.testing import simulate

async def scenario(sim):
    ...  # unmodified asyncio code, in virtual time

simulate(7, scenario)
"""

from millpond.testing.clock import ManualClock, SimClock
from millpond.testing.disk import PowerCut, SimDisk
from millpond.testing.hosts import Fate, HostDown
from millpond.testing.links import Conditions
from millpond.testing.loop import Deadlock, LimitReached, SimLoop, SimulationError
from millpond.testing.simulation import SimHost, Simulation, simulate

__all__ = [
    "Conditions",
    "Deadlock",
    "Fate",
    "HostDown",
    "LimitReached",
    "ManualClock",
    "PowerCut",
    "SimClock",
    "SimDisk",
    "SimHost",
    "SimLoop",
    "Simulation",
    "SimulationError",
    "simulate",
]
