"""Bugs planted in the metadata of a cluster, one at a time: each works on every day on which nothing goes wrong. With
each, what finds it."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from millpond.broker.drivers.controller import Controller
from millpond.broker.drivers.quorum import Outcome, Quorum
from millpond.broker.drivers.quorum_store import QuorumStore
from millpond.core.metadata.changes import Change
from millpond.core.raft.durable import HardState
from millpond.core.raft.output import Persist
from millpond.core.replication.lease import Lease

Mutant = Callable[[pytest.MonkeyPatch], None]


def say_it_is_kept_before_it_is(patch: pytest.MonkeyPatch) -> None:
    async def perform(self: QuorumStore, persists: Sequence[Persist]) -> None:
        for persist in persists:
            await self._perform(persist)

    patch.setattr(QuorumStore, "perform", perform)


def forget_the_vote(patch: pytest.MonkeyPatch) -> None:
    original = QuorumStore._write_hard_state
    patch.setattr(
        QuorumStore, "_write_hard_state", lambda self, state: original(self, HardState(min(state.term, 2), None))
    )


def take_changes_decided_on_old_images(patch: pytest.MonkeyPatch) -> None:
    def propose(self: Quorum, change: Change) -> Outcome:
        if self.is_controller and change.commands:
            self._newest = change.base
        return original(self, change)

    original = Quorum.propose
    patch.setattr(Quorum, "propose", propose)


def answer_before_a_majority_has_it(patch: pytest.MonkeyPatch) -> None:
    def is_applied(self: Quorum, change_id: bytes) -> bool:
        return original(self, change_id) or self.image.is_live(self.raft.node_id)

    original = Quorum.is_applied
    patch.setattr(Quorum, "is_applied", is_applied)


def run_the_lease_from_the_answer(patch: pytest.MonkeyPatch) -> None:
    """Longer than the session is what a wrong beginning comes to, when an answer takes its time."""
    original = Lease.renewed
    patch.setattr(Lease, "renewed", lambda self, *, sent_at: original(self, sent_at=sent_at + 2000))


def fence_without_waiting(patch: pytest.MonkeyPatch) -> None:
    def begin(self: Controller, *args: Any, session_ms: int, **options: Any) -> None:  # noqa: ANN401
        original(self, *args, session_ms=session_ms // 4, **options)

    original = Controller.__init__
    patch.setattr(Controller, "__init__", begin)


MUTANTS: tuple[tuple[Mutant, str], ...] = (
    (
        say_it_is_kept_before_it_is,
        "OneHistory|NothingDecidedIsLost|said that it has",
    ),  # or the broker finds it out itself
    (forget_the_vote, r"\(\d+, \d+\)|OneHistory|leads term"),  # an assertion of the machine's
    (take_changes_decided_on_old_images, r"\(\d+, \d+, \d+\)"),  # the driver's: the base is not the change before
    (answer_before_a_majority_has_it, "NothingDecidedIsLost"),
    (run_the_lease_from_the_answer, "FencedWithoutLease"),
    (fence_without_waiting, "FencedWithoutLease"),
)
