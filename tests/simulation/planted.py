"""All planted bugs, of all worlds, and the seeds that found them last; `make seeds` looks for others.

What a seed does shifts with each change of the broker. So a bug is looked for at the seed that is recorded in
found_at.json, and at the first ones there are if that one no longer finds it.
Driven by the tests of each world, and by seeds.py.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from millpond.model.errors import MillpondError, OffsetOutOfRange, PromisesForgotten
from tests.simulation import (
    broker_mutants,
    broker_world,
    cluster_mutants,
    cluster_world,
    delay_mutants,
    delay_world,
    mutants,
    power_cuts,
    queue_mutants,
    queue_world,
    replicated_mutants,
    replicated_world,
    states_mutants,
    states_world,
)
from tests.simulation.history import Violation
from tests.simulation.wire_client import Refused

FOUND_AT = Path(__file__).with_name("found_at.json")
"""The seeds: of each world, of each bug."""
Errors = tuple[type[BaseException], ...]


@dataclass(frozen=True)
class Planted:
    world: str
    plant: Callable[[pytest.MonkeyPatch], None]
    run_seed: Callable[[int], object]
    """In the world that provokes it."""
    caught_by: Errors
    """An invariant of the world or of the machines, an error that a broker reports, an answer that makes no sense."""
    seeds_max: int
    """So many are tried behind the recorded one."""
    named: str | None = None
    """What the error says, as a regular expression."""

    def __str__(self) -> str:
        return self.plant.__name__

    @property
    def found_at(self) -> int:
        seed = recorded().get(self.world, {}).get(str(self), 0)
        assert isinstance(seed, int)
        return seed

    def seeds(self) -> Iterator[int]:
        yield self.found_at
        yield from (seed for seed in range(self.seeds_max) if seed != self.found_at)

    def run(self) -> None:
        """Raises what has found it."""
        for seed in self.seeds():
            self.run_seed(seed)


def recorded() -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = json.loads(FOUND_AT.read_text())
    return found


def planted_in(world: str) -> list[Planted]:
    return [each for each in everywhere() if each.world == world]


def everywhere() -> Iterator[Planted]:
    broken = (Violation, AssertionError)
    for mutant in mutants.MUTANTS:
        yield Planted("disk", mutant, power_cuts.run_seed, (AssertionError, MillpondError), 300)
    for mutant, named in broker_mutants.MUTANTS:
        yield Planted("broker", mutant, broker_world.run_seed, (Violation, Refused), 120, named)
    for mutant, named in cluster_mutants.MUTANTS:
        yield Planted("metadata", mutant, cluster_world.run_seed, (*broken, PromisesForgotten), 40, named)
    for mutant, world in replicated_mutants.MUTANTS:
        caught_by = (*broken, Refused, PromisesForgotten)
        yield Planted("cluster", mutant, partial(replicated_world.run_seed, **world), caught_by, 100)
    for mutant, world in queue_mutants.MUTANTS:
        yield Planted("queue", mutant, partial(queue_world.run_seed, **world), (*broken, MillpondError, Refused), 60)
    for mutant, day in states_mutants.MUTANTS:
        yield Planted("states", mutant, partial(states_world.run_seed, seconds=40, day=day), (Violation,), 30)
    for mutant in delay_mutants.MUTANTS:
        yield Planted("delays", mutant, delay_world.run_seed, (*broken, OffsetOutOfRange), 40)
    for mutant in delay_mutants.MIXED:
        yield Planted("delays", mutant, delay_world.run_mixed_seed, (*broken, KeyError), 40)
