"""A whole broker and its clients in the simulator: power cuts, kills, pauses, partitions; and planted bugs, to show
that these tests would see one."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from millpond.broker.drivers.partition import Partition
from millpond.broker.drivers.producer_ids import ProducerIds
from millpond.core.metadata.decisions import Decision
from millpond.core.metadata.image import Image
from millpond.core.metadata.internal_topics import CONSUMER_OFFSETS
from millpond.model.ids import LeaderEpoch
from millpond.model.ports import Buffer
from millpond.storage.log import Appended
from millpond.storage.producers import ProducerStates
from tests.simulation.broker_world import LIVES_PER_SEED, TOPIC, run_seed
from tests.simulation.history import Violation
from tests.simulation.wire_client import Refused

SEEDS = 30
SEEDS_FOR_A_MUTANT = 120
"""All were found within `SEEDS` when they were planted; what a seed does shifts with each change of the broker."""
QUICK_SEEDS = (1002, 1005, 1009)

Mutant = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, 5))
def test_whatever_happens_to_the_broker_clients_can_rely_on_what_they_were_told(first: int) -> None:
    counts: dict[str, int] = {}
    for seed in range(first, first + 5):
        outcome = run_seed(seed)
        assert outcome.lives == LIVES_PER_SEED
        for name, count in outcome.counts.items():
            counts[name] = counts.get(name, 0) + count
    # So that a world in which nothing happens does not pass for one in which nothing goes wrong.
    assert min(counts[name] for name in ("Acknowledged", "Read", "CommitEnded", "Assigned", "ProducerNamed")) > 10


@pytest.mark.parametrize("seed", QUICK_SEEDS)
def test_a_few_lives_end_well(seed: int) -> None:
    outcome = run_seed(seed, lives=3)
    assert outcome.lives == 3
    assert outcome.steps > 1000


def test_one_seed_gives_one_trace_in_two_processes() -> None:
    program = "from tests.simulation.broker_world import run_seed; print(run_seed(5, lives=3).trace_hash)"
    hashes = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for hash_seed in ("0", "1")
    ]
    assert hashes[0] == hashes[1]
    assert len(hashes[0]) == 64


# Planted bugs


def answer_a_produce_before_it_is_kept(patch: pytest.MonkeyPatch) -> None:
    def may_acknowledge(self: Partition, appended: Appended, *, leader_epoch: LeaderEpoch, acks_all: bool) -> bool:
        return self.at.topic == TOPIC or original(self, appended, leader_epoch=leader_epoch, acks_all=acks_all)

    original = Partition.may_acknowledge
    patch.setattr(Partition, "may_acknowledge", may_acknowledge)


def answer_a_commit_before_it_is_kept(patch: pytest.MonkeyPatch) -> None:
    async def wait_visible(self: Partition, appended: Appended, *, until: float | None = None) -> None:
        kept = asyncio.ensure_future(original(self, appended, until=until))
        if self.at.topic != CONSUMER_OFFSETS:
            await kept
        kept.add_done_callback(lambda kept: kept.cancelled() or kept.exception())

    original = Partition.wait_visible
    patch.setattr(Partition, "wait_visible", wait_visible)


def give_producer_ids_without_keeping_the_block(patch: pytest.MonkeyPatch) -> None:
    """After a restart the same block is given out again."""

    def next_block(self: ProducerIds, image: Image) -> Decision[range]:
        return Decision((), original(self, image).answers)

    original = ProducerIds._next_block
    patch.setattr(ProducerIds, "_next_block", next_block)


def show_consumers_what_is_not_synced(patch: pytest.MonkeyPatch) -> None:
    def append(self: Partition, batch: Buffer) -> Appended:
        appended = original(self, batch)
        self.high_watermark = self.log.next_offset
        self.wake()
        return appended

    original = Partition.append
    patch.setattr(Partition, "append", append)


def take_a_batch_sent_again_for_a_new_one(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ProducerStates, "find_duplicate", lambda self, header: None)


MUTANTS: tuple[tuple[Mutant, str], ...] = (
    (
        answer_a_produce_before_it_is_kept,
        "AcknowledgedMeansReadable|OffsetsDenseAndMonotonic|WhatWasSeenStays|error 45",
    ),
    (answer_a_commit_before_it_is_kept, "CommittedOffsetsNeverGoBack|OneOwnerPerPartitionAndGeneration"),
    (give_producer_ids_without_keeping_the_block, "NoProducerIdTwice"),
    (show_consumers_what_is_not_synced, "WhatWasSeenStays|OffsetsDenseAndMonotonic|AcknowledgedMeansReadable"),
    (take_a_batch_sent_again_for_a_new_one, "NothingTwiceFromAnIdempotentProducer"),
)


@pytest.mark.slow
@pytest.mark.parametrize(("mutant", "named"), MUTANTS, ids=lambda each: getattr(each, "__name__", ""))
def test_a_planted_bug_is_found(mutant: Mutant, named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    # An invariant, or an answer that no client can make sense of.
    with pytest.raises((Violation, Refused), match=named):
        run_all_seeds()


def run_all_seeds() -> None:
    for seed in range(SEEDS_FOR_A_MUTANT):
        run_seed(seed)
