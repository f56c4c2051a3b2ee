"""Bugs planted in how queues lease, keep and bury, one at a time, so that the simulated queue proves it sees them.

Each leaves out one step that works on every day on which nothing fails. Some are bugs that it found when it was new.
Driven by test_queues.py.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from millpond.broker.drivers.partition import Partition
from millpond.broker.drivers.queue_keeper import QueueKeeper, Then
from millpond.broker.drivers.queue_partition import QueuePartition
from millpond.broker.drivers.state_shard import Begun, StateShard
from millpond.broker.operations import dead_letters, share
from millpond.core.delivery import kept
from millpond.core.delivery.kept import Keep, Kept, KeptStates, Record, Taken
from millpond.core.delivery.ledger import Ledger, Remembered, Verdict
from millpond.core.delivery.runs import Run, Runs
from millpond.core.delivery.settings import DeliverySettings
from millpond.core.delivery.states import Doomed, Lane, Leased, Outcome, Ready, State
from millpond.model.instant import Instant
from millpond.model.ports import Rng
from millpond.protocol.records import encode_batch
from tests.simulation.replicated_world import Skies

Mutant = Callable[[pytest.MonkeyPatch], None]
World = dict[str, Any]
"""What `run_seed` is given beside the seed."""


# What is kept, and when


def answer_before_it_is_kept(patch: pytest.MonkeyPatch) -> None:
    def after_kept(self: QueueKeeper, then: Then, *, is_new: bool = False) -> bool:
        original(self, lambda failure: None, is_new=is_new)
        return False

    original = QueueKeeper.after_kept
    patch.setattr(QueueKeeper, "after_kept", after_kept)


def wait_for_the_document_under_way_and_not_for_the_next(patch: pytest.MonkeyPatch) -> None:
    def after_kept(self: QueueKeeper, then: Then, *, is_new: bool = False) -> bool:
        if self._sent is None:
            return original(self, then, is_new=is_new)
        self._sent.append(then)
        return True

    original = QueueKeeper.after_kept
    patch.setattr(QueueKeeper, "after_kept", after_kept)


def keep_states_before_anybody_else_has_them(patch: pytest.MonkeyPatch) -> None:
    """Nor are they synced."""

    async def wait_kept(self: StateShard, until: float | None) -> None:
        pass

    def after_sync(self: StateShard, begun: Begun, then: Callable[[None], None]) -> None:
        asyncio.get_running_loop().call_soon(then, None)

    patch.setattr(StateShard, "_wait_kept", wait_kept)
    patch.setattr(StateShard, "after_sync", after_sync)
    patch.setattr(StateShard, "finish", lambda self, begun: True)


def ignore_the_fence(patch: pytest.MonkeyPatch) -> None:
    def load(self: KeptStates, writer: kept.Writer, taken: Taken) -> tuple[list[Record], kept.Outcome]:
        return [taken], kept.Outcome.DONE

    def keep(self: KeptStates, request: Keep) -> tuple[list[Record], kept.Outcome]:
        state = self.states.get(request.key)
        writer = request.writer if state is None else state.writer
        return [Kept(request.key, writer, request.sequence, request.document, request.whole)], kept.Outcome.DONE

    patch.setattr(KeptStates, "_load", load)
    patch.setattr(KeptStates, "_keep", keep)


# What a restart remembers


def _restore_otherwise(patch: pytest.MonkeyPatch, change: Callable[[State], State]) -> None:
    def restore(
        cls: type[Ledger], settings: DeliverySettings, rng: Rng, remembered: Remembered, *, now: Instant
    ) -> Ledger:
        runs: Runs[State] = Runs()
        for first, last, state in remembered.open:
            runs.set(first, last, change(state))
        return original(settings, rng, remembered._replace(open=runs), now=now)

    original = Ledger.restore
    patch.setattr(Ledger, "restore", classmethod(restore))


def forget_attempts_at_restart(patch: pytest.MonkeyPatch) -> None:
    _restore_otherwise(patch, lambda state: replace(state, attempts=0))


def forget_leases_at_restart(patch: pytest.MonkeyPatch) -> None:
    _restore_otherwise(patch, lambda state: Ready(state.attempts) if isinstance(state, Leased) else state)


def forget_the_doomed_at_restart(patch: pytest.MonkeyPatch) -> None:
    _restore_otherwise(patch, lambda state: Ready(state.attempts) if isinstance(state, Doomed) else state)


def forget_keys_at_restart(patch: pytest.MonkeyPatch) -> None:
    """Of what was handed out before, whoever has it."""

    def admit(self: Ledger, offset: int, *, lane: Lane, key: bytes | None, written_wall_ms: int) -> None:
        key = None if offset < self.end else key
        original(self, offset, lane=lane, key=key, written_wall_ms=written_wall_ms)

    original = Ledger.admit
    patch.setattr(Ledger, "admit", admit)


# Leases


def let_a_consumer_that_goes_take_the_leases_of_others_along(patch: pytest.MonkeyPatch) -> None:
    def release_all(self: Ledger, holder: str, now: Instant) -> None:
        for each in list(self._held):
            original(self, each, now)

    original = Ledger.release_all
    patch.setattr(Ledger, "release_all", release_all)


def take_the_word_of_who_has_lost_its_lease(patch: pytest.MonkeyPatch) -> None:
    def held_runs(self: Ledger, verdict: Verdict, holder: str) -> list[Run[Leased]]:
        return [
            Run(first, last, Leased(state.attempts, Lane.NORMAL, holder, self.settings.lock_ms, 0))
            for first, last, state in self._open.overlapping(verdict.first, verdict.last)
            if not isinstance(state, Doomed)
        ]

    patch.setattr(Ledger, "_held_runs", held_runs)


def take_what_is_done_for_deleted(patch: pytest.MonkeyPatch) -> None:
    def still(queue: QueuePartition, verdicts: Sequence[Verdict]) -> Sequence[Verdict]:
        start = queue.ledger.start
        return [replace(said, first=max(said.first, start)) for said in verdicts if said.last >= start]

    patch.setattr(share, "_still", still)


def let_leases_end_early(patch: pytest.MonkeyPatch) -> None:
    """At the first look at any of them."""

    def tick(self: Ledger, now: Instant) -> None:
        original(self, Instant(now.monotonic_ms + self.settings.lock_ms // 2, now.wall_ms))

    original = Ledger.tick
    patch.setattr(Ledger, "tick", tick)


def renew_nothing(patch: pytest.MonkeyPatch) -> None:
    def acknowledge(self: Ledger, verdicts: Any, **named: Any) -> None:  # noqa: ANN401
        original(self, [each for each in verdicts if each.outcome is not Outcome.RENEW], **named)

    original = Ledger.acknowledge
    patch.setattr(Ledger, "acknowledge", acknowledge)


# Retries and order


def give_back_without_backoff(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DeliverySettings, "backoff_after", lambda self, attempts, chance: 0)


def allow_one_attempt_too_many(patch: pytest.MonkeyPatch) -> None:
    def give_back(self: Ledger, first: int, last: int, state: Leased, now: Instant, **named: Any) -> None:  # noqa: ANN401
        if state.attempts == self.settings.attempts_max:
            self._make_ready(first, last, state.attempts, state.lane)
        else:
            original(self, first, last, state, now, **named)

    original = Ledger._give_back
    patch.setattr(Ledger, "_give_back", give_back)


def let_the_next_of_a_key_through_when_one_is_given_back(patch: pytest.MonkeyPatch) -> None:
    def make_ready(self: Ledger, first: int, last: int, attempts: int, lane: Lane) -> None:
        original(self, first, last, attempts, lane)
        if self._keys is not None:
            for offset in range(first, last + 1):
                self._let_through(self._keys.finish(offset))

    original = Ledger._make_ready
    patch.setattr(Ledger, "_make_ready", make_ready)


# Dead letters


def send_letters_without_a_number(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(dead_letters, "encode_batch", lambda records, **named: encode_batch(records))


def send_letters_in_the_order_of_offsets(patch: pytest.MonkeyPatch) -> None:
    def doomed(self: Ledger) -> list[Run[Doomed]]:
        return [Run(first, last, state) for first, last, state in self._open if isinstance(state, Doomed)]

    patch.setattr(Ledger, "doomed", property(doomed))


def forget_in_whose_name_letters_go(patch: pytest.MonkeyPatch) -> None:
    async def keep(self: QueuePartition, *, is_new: bool = False) -> None:
        await original(self, is_new=is_new and self.ledger.producer_id < 0)

    original = QueuePartition.keep
    patch.setattr(QueuePartition, "keep", keep)


def bury_without_sending(patch: pytest.MonkeyPatch) -> None:
    """Where the dead-letter topic does not answer."""

    async def send(
        self: dead_letters.DeadLetterTopics, group: str, at: Partition, run: Run[Doomed], **named: int
    ) -> int:
        await original(self, group, at, run, **named)
        return run.last

    original = dead_letters.DeadLetterTopics.send
    patch.setattr(dead_letters.DeadLetterTopics, "send", send)


LEADERS_PARTED: World = {
    "seconds": 40,
    "given": {"size": 3, "attempts_max": 5, "backoff_ms": 700},
    "skies": Skies(kinds=("isolate", "pause"), lasts=(4.0, 6.0), every=(0.3, 1.5)),
}
"""For so long that others lead; what they had under way comes then. Much is given back, so that much is open."""
MUTANTS: tuple[tuple[Mutant, World], ...] = (
    (answer_before_it_is_kept, {}),
    (wait_for_the_document_under_way_and_not_for_the_next, {}),
    (keep_states_before_anybody_else_has_them, {}),
    (ignore_the_fence, LEADERS_PARTED),
    (forget_attempts_at_restart, {}),
    (forget_leases_at_restart, {}),
    (forget_the_doomed_at_restart, {}),
    (forget_keys_at_restart, {}),
    (let_a_consumer_that_goes_take_the_leases_of_others_along, {}),
    (take_the_word_of_who_has_lost_its_lease, {}),
    (take_what_is_done_for_deleted, {}),
    (let_leases_end_early, {}),
    (renew_nothing, {}),
    (give_back_without_backoff, {}),
    (allow_one_attempt_too_many, {}),
    (let_the_next_of_a_key_through_when_one_is_given_back, {}),
    (send_letters_without_a_number, {}),
    (send_letters_in_the_order_of_offsets, {}),
    (forget_in_whose_name_letters_go, {}),
    (bury_without_sending, {}),
)
"""And a world that provokes it where others rarely do."""
