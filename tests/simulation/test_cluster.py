"""Brokers and their metadata on bad days; and planted bugs, to show that these tests would see one."""

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
from tests.simulation.cluster_world import run_seed
from tests.simulation.history import Violation

SEEDS_FOR_A_MUTANT = 40

Mutant = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.parametrize("seed", [3001, 3002])
def test_a_bad_minute_ends_well(seed: int) -> None:
    outcome = run_seed(seed, seconds=45)
    assert outcome.lives > 3
    assert outcome.topics > 10


@pytest.mark.slow
@pytest.mark.parametrize(("first", "size"), [(0, 3), (5, 5)])
def test_whatever_befalls_brokers_their_metadata_has_one_history(first: int, size: int) -> None:
    outcomes = [run_seed(seed, size=size) for seed in range(first, first + 5)]
    # So that a world in which nothing happens does not pass for one in which nothing goes wrong.
    assert sum(each.power_cuts for each in outcomes) > 10
    assert sum(each.fenced for each in outcomes) > 5
    assert sum(each.snapshots_installed for each in outcomes) > 5
    assert sum(len(each.controllers) for each in outcomes) > 20


# Planted bugs


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
    (say_it_is_kept_before_it_is, "OneHistory|NothingDecidedIsLost|HealedIsAlive"),
    (forget_the_vote, r"\(\d+, \d+\)|OneHistory|leads term"),  # an assertion of the machine's
    (take_changes_decided_on_old_images, r"\(\d+, \d+, \d+\)"),  # the driver's: the base is not the change before
    (answer_before_a_majority_has_it, "NothingDecidedIsLost"),
    (run_the_lease_from_the_answer, "FencedWithoutLease"),
    (fence_without_waiting, "FencedWithoutLease"),
)


@pytest.mark.slow
@pytest.mark.parametrize(("mutant", "named"), MUTANTS, ids=lambda each: getattr(each, "__name__", ""))
def test_a_planted_bug_is_found(mutant: Mutant, named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    with pytest.raises((Violation, AssertionError), match=named):
        run_all_seeds()


def run_all_seeds() -> None:
    for seed in range(SEEDS_FOR_A_MUTANT):
        run_seed(seed)
