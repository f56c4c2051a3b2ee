"""Who is in sync: asks the controller to take replicas out that fall behind, and to take in those that caught up; and
to take this broker out where its own log was found damaged.

One change for all partitions that want one. What is asked and what is believed meanwhile is decided by
core/replication/leading.py. Driven by app, which starts and cancels it; looks now and then, and at once when told to.
"""

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress

from millpond.broker.drivers.metadata import MetadataLog
from millpond.broker.drivers.partition import Partition
from millpond.broker.drivers.partitions import PartitionTable
from millpond.core.metadata.commands import Command
from millpond.core.metadata.decisions import Decision, Refused
from millpond.core.metadata.elections import step_aside
from millpond.core.metadata.image import Image
from millpond.core.metadata.replicas import IsrAsked, IsrChanged, change_isr
from millpond.core.replication.leading import IsrChange, IsrOutcome, Leading
from millpond.model.errors import ControllerUnavailable, StorageError
from millpond.model.ports import Clock

LOOK_SECONDS = 0.25

_Wanted = list[tuple[Partition, Leading, IsrChange]]


async def keep_in_sync(
    metadata: MetadataLog,
    partitions: PartitionTable,
    clock: Clock,
    *,
    on_error: Callable[[BaseException], None],
) -> None:
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        now = clock.monotonic_ms()
        wanted: _Wanted = []
        for partition in partitions:
            leading = partition.leading
            if leading is not None and len(leading.members.replicas) > 1:
                if leading.tick(now):
                    partition.note_progress()
                change = leading.ask_isr(now)
                if change is not None:
                    wanted.append((partition, leading, change))
        damaged = {(each.topic_id, each.at.partition) for each in partitions if each.damaged_in is not None}
        try:
            if wanted:
                await _ask(metadata, wanted)
            if damaged:
                await _step_aside(metadata, damaged)
        except Exception as error:
            on_error(error)


async def _step_aside(metadata: MetadataLog, damaged: Collection[tuple[bytes, int]]) -> None:
    """Where others are in sync they lead, and nobody counts on this broker's log until it is copied anew."""
    broker = metadata.quorum.raft.node_id
    if step_aside(metadata.image, broker, damaged):
        with suppress(ControllerUnavailable, StorageError):  # it is asked again soon
            await metadata.submit(lambda image: step_aside(image, broker, damaged))


async def _ask(metadata: MetadataLog, wanted: _Wanted) -> None:
    asked = [
        IsrAsked(
            topic_id=partition.topic_id,
            partition=partition.at.partition,
            leader=leading.broker,
            leader_epoch=leading.leader_epoch,
            partition_epoch=change.partition_epoch,
            isr=change.isr,
        )
        for partition, leading, change in wanted
    ]
    try:
        decision = await metadata.decide(lambda image: _change_all(image, asked))
        outcomes = [
            IsrOutcome.REFUSED if isinstance(answer, Refused) else IsrOutcome.DONE for answer in decision.answers
        ]
    except (ControllerUnavailable, StorageError):
        outcomes = [IsrOutcome.UNKNOWN] * len(wanted)
    for (partition, leading, change), outcome in zip(wanted, outcomes, strict=True):
        if leading.isr_answered(change, outcome) and partition.leading is leading:
            partition.note_progress()


def _change_all(image: Image, asked: list[IsrAsked]) -> Decision[IsrChanged]:
    """Partitions have nothing to do with each other, so each is decided on the same image."""
    commands: list[Command] = []
    answers: list[IsrChanged | Refused] = []
    for each in asked:
        decision = change_isr(image, each)
        commands += decision.commands
        answers += decision.answers
    return Decision(tuple(commands), tuple(answers))
