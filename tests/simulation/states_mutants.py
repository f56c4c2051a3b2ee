"""Bugs planted in how states are kept, one at a time, so that the simulated machines prove that they would see them.

Each leaves out one step that works on every day on which nothing fails. Driven by test_states.py.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from millpond.broker.drivers.state_shard import StateShard
from millpond.broker.drivers.states import States
from millpond.core.delivery.kept import Keep, Kept, KeptStates, Outcome, Record, Rewritten, State, Taken, Writer
from millpond.model.ids import Offset
from tests.simulation.states_world import ANY_DAY, Day

Mutant = Callable[[pytest.MonkeyPatch], None]


def fence_in_memory_only(patch: pytest.MonkeyPatch) -> None:
    def load(self: KeptStates, writer: Writer, taken: Taken) -> tuple[list[Record], Outcome]:
        records, outcome = original(self, writer, taken)
        state = self.states.get(taken.key)
        if not records or state is None:
            return records, outcome
        self.states[taken.key] = replace(state, writer=writer, sequence=0)
        return [], outcome

    original = KeptStates._load
    patch.setattr(KeptStates, "_load", load)


def fence_nobody(patch: pytest.MonkeyPatch) -> None:
    def keep(self: KeptStates, request: Keep) -> tuple[list[Record], Outcome]:
        state = self.states.get(request.key)
        if state is not None and state.writer != request.writer:
            self.states[request.key] = replace(state, writer=request.writer, sequence=request.sequence - 1)
        return original(self, request)

    original = KeptStates._keep
    patch.setattr(KeptStates, "_keep", keep)


def apply_what_is_sent_again(patch: pytest.MonkeyPatch) -> None:
    def keep(self: KeptStates, request: Keep) -> tuple[list[Record], Outcome]:
        records, outcome = original(self, request)
        return ([Kept(*request)], outcome) if outcome is Outcome.DONE else (records, outcome)

    original = KeptStates._keep
    patch.setattr(KeptStates, "_keep", keep)


def mistake_a_writer_that_loads_again_for_itself(patch: pytest.MonkeyPatch) -> None:
    """It counts from 1 again; what it sent before it loaded may still arrive, or have been counted."""

    def load(self: KeptStates, writer: Writer, taken: Taken) -> tuple[list[Record], Outcome]:
        state = self.states.get(taken.key)
        if state is not None and state.writer.epoch == writer.epoch:
            self.states[taken.key] = replace(state, writer=writer)
        return original(self, writer, taken)

    original = KeptStates._load
    patch.setattr(KeptStates, "_load", load)


def answer_before_it_is_kept(patch: pytest.MonkeyPatch) -> None:
    async def wait_kept(self: StateShard, until: float | None) -> None:
        pass

    patch.setattr(StateShard, "_wait_kept", wait_kept)


def answer_what_is_sent_again_before_it_is_kept(patch: pytest.MonkeyPatch) -> None:
    """The first time it waits, but nobody does who finds it in memory."""

    async def wait_kept(self: StateShard, until: float | None) -> None:
        end = self._partition.log.next_offset
        if getattr(self._partition.log, "waited_for", None) != end:
            self._partition.log.waited_for = end  # type: ignore[attr-defined]
            await original(self, until)

    original = StateShard._wait_kept
    patch.setattr(StateShard, "_wait_kept", wait_kept)


def keep_a_shard_beyond_its_epoch(patch: pytest.MonkeyPatch) -> None:
    """Another broker led meanwhile, and its writers were told that all was kept."""

    def shard_of(self: States, number: int) -> StateShard | None:
        last = self.__dict__.setdefault("last_shards", {})
        shard: StateShard | None = original(self, number)
        if shard is not None:
            before = last.setdefault(number, shard)
            if before is not shard:
                shard._states = before._states
            last[number] = shard
        return shard

    original = States._shard
    patch.setattr(States, "_shard", shard_of)


def know_what_could_not_be_appended(patch: pytest.MonkeyPatch) -> None:
    def append(self: StateShard, records: list[Record]) -> None:
        known = self._states
        try:
            original(self, records)
        except BaseException:
            self._states = known
            raise

    original = StateShard._append
    patch.setattr(StateShard, "_append", append)


def prune_up_to_the_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(KeptStates, "oldest", property(lambda self: None))


def rewrite_without_the_changes(patch: pytest.MonkeyPatch) -> None:
    def rewrites(self: KeptStates, *, bytes_max: int) -> list[Rewritten]:
        return [each._replace(documents=each.documents[:1]) for each in original(self, bytes_max=bytes_max)]

    original = KeptStates.rewrites
    patch.setattr(KeptStates, "rewrites", rewrites)


def read_without_the_fences(patch: pytest.MonkeyPatch) -> None:
    """A broker that comes to lead knows who wrote last, and not who loaded since."""

    def apply(self: KeptStates, record: Record, at: Offset) -> None:
        before: State | None = self.states.get(record.key)
        original(self, record, at)
        if isinstance(record, Taken) and before is not None and not _is_deciding(self):
            self.states[record.key] = before

    def step(self: KeptStates, *args: object, **named: object) -> object:
        self.deciding = True  # type: ignore[attr-defined]
        return original_step(self, *args, **named)  # type: ignore[arg-type]

    def _is_deciding(states: KeptStates) -> bool:
        return getattr(states, "deciding", False)

    original, original_step = KeptStates.apply, KeptStates.step
    patch.setattr(KeptStates, "apply", apply)
    patch.setattr(KeptStates, "step", step)


OFTEN_FULL = Day(troubles=("full leader", "full leader", "kill"))
PARTED = Day(troubles=("isolate", "pause"), lasts=(4.0,))
HALF_CUT = Day(troubles=("one way", "one way", "isolate"), lasts=(3.0,))
SLOW_WRITERS = Day(troubles=("kill", "power", "isolate"), lasts=(0.3,), idle_seconds=4.0)
MUTANTS: tuple[tuple[Mutant, Day], ...] = (
    (fence_in_memory_only, SLOW_WRITERS),
    (fence_nobody, ANY_DAY),
    (apply_what_is_sent_again, ANY_DAY),
    (mistake_a_writer_that_loads_again_for_itself, ANY_DAY),
    (answer_before_it_is_kept, ANY_DAY),
    (answer_what_is_sent_again_before_it_is_kept, HALF_CUT),
    (keep_a_shard_beyond_its_epoch, PARTED),
    (know_what_could_not_be_appended, OFTEN_FULL),
    (prune_up_to_the_end, ANY_DAY),
    (rewrite_without_the_changes, ANY_DAY),
    (read_without_the_fences, ANY_DAY),
)
"""And a day that provokes it where others rarely do."""
