"""Bugs planted in a broker, one at a time: each works on every day on which nothing goes wrong. With each, the names of
the invariants that may find it."""

import asyncio
from collections.abc import Callable

import pytest

from millpond.broker.drivers.partition import Partition
from millpond.broker.drivers.producer_ids import ProducerIds
from millpond.core.metadata.decisions import Decision
from millpond.core.metadata.image import Image
from millpond.core.metadata.internal_topics import CONSUMER_OFFSETS
from millpond.model.ids import LeaderEpoch
from millpond.model.ports import Buffer
from millpond.protocol.records import BatchHeader
from millpond.storage.log import Appended
from millpond.storage.producers import ProducerStates
from tests.simulation.broker_world import TOPIC

Mutant = Callable[[pytest.MonkeyPatch], None]


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
    def append(self: Partition, batch: Buffer, header: BatchHeader | None = None) -> Appended:
        appended = original(self, batch, header)
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
