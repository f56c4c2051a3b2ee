"""Bugs planted in how brokers copy, elect and lease, one at a time, so that the simulated cluster proves it sees them.

Each leaves out one step that works on every day on which nothing fails. Driven by test_replicated.py.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from millpond.broker.drivers import absences, followers
from millpond.broker.drivers.controller import Controller, Pulse
from millpond.broker.drivers.followers import Asked, Followers
from millpond.broker.drivers.group_shard import GroupShard
from millpond.broker.drivers.life import BrokerLife
from millpond.broker.drivers.partition import Partition
from millpond.broker.drivers.quorum import Outcome, Quorum
from millpond.broker.drivers.quorum_store import DIRECTORY, QuorumStore
from millpond.broker.operations import fetch
from millpond.core.groups.consumer_events import Topic
from millpond.core.groups.records import Record
from millpond.core.groups.registry import GroupRegistry
from millpond.core.metadata import elections, partition_changes
from millpond.core.metadata.changes import Change
from millpond.core.metadata.internal_topics import CONSUMER_OFFSETS
from millpond.core.raft.durable import HardState
from millpond.core.raft.output import Persist
from millpond.core.replication.leading import Leading
from millpond.core.replication.lease import DRIFT_PERCENT_MAX, Lease, Sessions
from millpond.core.replication.refusals import Refusals
from millpond.model.errors import NotLeader
from millpond.model.ids import LeaderEpoch, Offset
from millpond.model.ports import Buffer
from millpond.protocol.messages.fetch import PartitionData
from millpond.protocol.records import BatchHeader
from millpond.storage.commit import Ended
from millpond.storage.log import Appended, Log
from millpond.storage.producers import ProducerStates
from millpond.storage.segment import Slice
from tests.simulation.replicated_operator import Kind
from tests.simulation.replicated_world import Skies

Mutant = Callable[[pytest.MonkeyPatch], None]
World = dict[str, Any]
"""What `run_seed` is given beside the seed."""


# What an acknowledgement waits for


def acknowledge_before_the_leader_has_synced(patch: pytest.MonkeyPatch) -> None:
    async def wait_kept(self: Log, appended: Appended) -> None:
        pass

    def append(self: Partition, batch: Buffer, header: BatchHeader | None = None) -> Appended:
        appended = original(self, batch, header)
        self._note_kept()
        return appended

    original = Partition.append
    patch.setattr(Log, "wait_kept", wait_kept)
    patch.setattr(Partition, "append", append)
    patch.setattr(Partition, "_kept_end", lambda self: self.log.next_offset)


def acknowledge_before_anybody_else_has_it(patch: pytest.MonkeyPatch) -> None:
    _wait_for_the_leader_only(patch, lambda topic: topic != CONSUMER_OFFSETS)


def answer_for_groups_before_anybody_else_has_it(patch: pytest.MonkeyPatch) -> None:
    _wait_for_the_leader_only(patch, lambda topic: topic == CONSUMER_OFFSETS)


def _wait_for_the_leader_only(patch: pytest.MonkeyPatch, is_mutated: Callable[[str], bool]) -> None:
    async def wait_visible(self: Partition, appended: Appended, *, until: float | None = None) -> None:
        if is_mutated(self.at.topic):
            await self.wait_kept(appended)
        else:
            await original(self, appended, until=until)

    def after_visible(self: Partition, appended: Appended, then: Ended, *, until: float) -> None:
        if is_mutated(self.at.topic):
            self.log.after_sync(appended, then)
        else:
            original_call(self, appended, then, until=until)

    def may_acknowledge(self: Partition, appended: Appended, *, leader_epoch: LeaderEpoch, acks_all: bool) -> bool:
        by_all = acks_all and not is_mutated(self.at.topic)
        return original_question(self, appended, leader_epoch=leader_epoch, acks_all=by_all)

    original, original_call = Partition.wait_visible, Partition.after_visible
    original_question = Partition.may_acknowledge
    patch.setattr(Partition, "wait_visible", wait_visible)
    patch.setattr(Partition, "after_visible", after_visible)
    patch.setattr(Partition, "may_acknowledge", may_acknowledge)


def count_what_was_sent_as_synced(patch: pytest.MonkeyPatch) -> None:
    def follower_fetched(self: Partition, replica: int, *, broker_epoch: int, offset: Offset, now_ms: int) -> None:
        original(self, replica, broker_epoch=broker_epoch, offset=self.log.next_offset, now_ms=now_ms)

    original = Partition.follower_fetched
    patch.setattr(Partition, "follower_fetched", follower_fetched)


# Following


def fetch_on_before_it_is_synced(patch: pytest.MonkeyPatch) -> None:
    async def sync(self: Followers, partitions: list[Partition]) -> None:
        pass

    patch.setattr(Followers, "_sync", sync)
    patch.setattr(followers, "_is_synced", lambda partition: True)


def cut_to_the_high_watermark_when_the_leader_changes(patch: pytest.MonkeyPatch) -> None:
    async def take(self: Followers, asked: Asked, answer: PartitionData) -> bool:
        partition, epoch = asked.partition, asked.leader_epoch
        if partition.leading is None and cut.get(id(partition.log)) != epoch and partition.leader_epoch == epoch:
            cut[id(partition.log)] = epoch
            if partition.high_watermark < partition.log.next_offset:
                await partition.log.truncate(max(partition.high_watermark, partition.log.start_offset))
                return True
        return await original(self, asked, answer)

    original, cut = Followers._take, dict[int, int]()
    patch.setattr(Followers, "_take", take)


def find_no_difference_between_logs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fetch, "diverging", lambda *arguments, **named: None)


def go_on_in_the_epoch_of_an_earlier_leader(patch: pytest.MonkeyPatch) -> None:
    """So that nobody can tell what one wrote from what the other did."""

    def append(self: Partition, batch: Buffer, header: BatchHeader | None = None) -> Appended:
        epoch, self.leader_epoch = self.leader_epoch, max(self.log.epochs.latest, LeaderEpoch(0))
        try:
            return original(self, batch, header)
        finally:
            self.leader_epoch = epoch

    original = Partition.append
    patch.setattr(Partition, "append", append)


def forget_the_epochs_at_restart(patch: pytest.MonkeyPatch) -> None:
    def begin_epoch(self: Log, epoch: LeaderEpoch, start: Offset) -> None:
        if self.name == DIRECTORY:
            original(self, epoch, start)
        else:
            self.epochs.adopt(self.epochs.begin(epoch, start))

    original = Log._begin_epoch
    patch.setattr(Log, "_begin_epoch", begin_epoch)


def forget_producers_of_copied_batches(patch: pytest.MonkeyPatch) -> None:
    """A new leader knows nothing of what its predecessor had taken."""

    def append_replicated(self: Log, batches: Buffer) -> Appended:
        known, self.producers = self.producers, ProducerStates()
        try:
            return original(self, batches)
        finally:
            self.producers = known

    original = Log.append_replicated
    patch.setattr(Log, "append_replicated", append_replicated)


def take_what_comes_behind_a_refused_batch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Refusals, "why_not_yet", lambda self, header: None)


# What consumers are shown


def show_consumers_all_there_is(patch: pytest.MonkeyPatch) -> None:
    def read(self: Partition, start: Offset, *, bytes_max: int) -> Slice:
        return self.log.read(start, bytes_max=bytes_max)

    patch.setattr(Partition, "read", read)


def tell_of_an_end_before_it_is_known(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Leading, "is_caught_up_with_the_past", property(lambda self: True))


def serve_without_a_lease(patch: pytest.MonkeyPatch) -> None:
    def require_leader(self: Partition) -> Leading:
        if self.leading is None:
            raise NotLeader(f"{self.at}")
        return self.leading

    patch.setattr(Partition, "require_leader", require_leader)


# Who is in sync, and who leads


def come_into_sync_too_early(patch: pytest.MonkeyPatch) -> None:
    def may_come(self: Leading, replica: int, now: int) -> bool:
        follower = self._followers[replica]
        return follower.end >= 0 and self._is_up(follower, replica)

    patch.setattr(Leading, "_may_come", may_come)


def elect_anybody_who_is_up(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(partition_changes, "may_elect_unclean", lambda image, topic: True)


def wait_only_for_those_who_keep_up(patch: pytest.MonkeyPatch) -> None:
    """The high watermark as if the ISR were already what the leader wants it to be."""
    patch.setattr(Leading, "_counted", lambda self: {self.broker, *self.isr_wanted(self._now + self._lag_ms_max // 2)})


def keep_a_lost_disk_in_sync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(elections, "_is_lost", lambda image, broker, directory_id: False)


# Groups


def keep_the_groups_as_they_were_last_led_here(patch: pytest.MonkeyPatch) -> None:
    def follow(self: GroupShard, topics: Mapping[str, Topic]) -> None:
        if id(self._partition) in seen:
            self.registry = seen[id(self._partition)]
            self._topics = topics
        else:
            original(self, topics)
        seen[id(self._partition)] = self.registry

    original, seen = GroupShard.load, dict[int, GroupRegistry]()
    patch.setattr(GroupShard, "load", follow)


def load_only_what_the_high_watermark_covers(patch: pytest.MonkeyPatch) -> None:
    """When a leader comes, it does not know yet how far others were told."""

    def kept(self: GroupShard) -> list[Record]:
        log, known = self._partition.log, self._partition.high_watermark
        end, log.next_offset = log.next_offset, min(known, log.next_offset)
        try:
            return list(original(self))
        finally:
            log.next_offset = end

    original = GroupShard._kept
    patch.setattr(GroupShard, "_kept", kept)


# Leases and the controller


def renew_the_lease_of_a_fenced_broker(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Controller, "heartbeat", lambda self, broker, *, epoch: Pulse.ALIVE)
    patch.setattr(BrokerLife, "_is_registered", lambda self: self.epoch >= 0)


def fence_without_waiting(patch: pytest.MonkeyPatch) -> None:
    def due(self: Sessions, now: int) -> list[tuple[int, int]]:
        return [(broker, session.epoch) for broker, session in self._sessions.items()]

    patch.setattr(Sessions, "due", due)


def take_silence_for_an_end(patch: pytest.MonkeyPatch) -> None:
    """A broker to which a connection is lost is gone, whatever becomes of the next dial."""

    async def has_ended(peer: tuple[str, int]) -> bool:
        return True

    patch.setattr(absences, "_has_ended", has_ended)


def trust_clocks_to_be_equal(patch: pytest.MonkeyPatch) -> None:
    """As long as a session, and begun a moment later than it was asked for."""

    def renewed(self: Lease, *, sent_at: int) -> None:
        self.valid_until = max(self.valid_until, sent_at + self._lease_ms * 100 // (100 - DRIFT_PERCENT_MAX))

    patch.setattr(Lease, "renewed", renewed)


def forget_the_vote(patch: pytest.MonkeyPatch) -> None:
    original = QuorumStore._write_hard_state
    patch.setattr(
        QuorumStore, "_write_hard_state", lambda self, state: original(self, HardState(min(state.term, 2), None))
    )


def say_that_metadata_is_kept_before_it_is(patch: pytest.MonkeyPatch) -> None:
    async def perform(self: QuorumStore, persists: Sequence[Persist]) -> None:
        for persist in persists:
            await self._perform(persist)

    patch.setattr(QuorumStore, "perform", perform)


def take_changes_decided_on_old_images(patch: pytest.MonkeyPatch) -> None:
    def propose(self: Quorum, change: Change) -> Outcome:
        if self.is_controller and change.commands:
            self._newest = change.base
        return original(self, change)

    original = Quorum.propose
    patch.setattr(Quorum, "propose", propose)


DISKS_FULL: World = {"seconds": 30, "skies": Skies(kinds=("full disk",), lasts=(0.3, 1.0), every=(0.5, 3.0))}
COORDINATORS_PARTED: World = {
    "seconds": 40,
    "given": Kind.THREE,
    "skies": Skies(kinds=("isolate",), lasts=(4.0,), every=(0.5, 2.5), places=((CONSUMER_OFFSETS, 0),)),
}
DISKS_LOST: World = {"seconds": 60, "given": Kind.GUEST_FORGETS}
MUTANTS: tuple[tuple[Mutant, World], ...] = (
    (acknowledge_before_the_leader_has_synced, {}),
    (acknowledge_before_anybody_else_has_it, {}),
    (answer_for_groups_before_anybody_else_has_it, COORDINATORS_PARTED),
    (count_what_was_sent_as_synced, {}),
    (fetch_on_before_it_is_synced, {}),
    (cut_to_the_high_watermark_when_the_leader_changes, {}),
    (find_no_difference_between_logs, {}),
    (go_on_in_the_epoch_of_an_earlier_leader, {}),
    (forget_the_epochs_at_restart, {}),
    (wait_only_for_those_who_keep_up, {}),
    (keep_a_lost_disk_in_sync, DISKS_LOST),
    (keep_the_groups_as_they_were_last_led_here, {}),
    (load_only_what_the_high_watermark_covers, {}),
    (trust_clocks_to_be_equal, {}),
    (forget_producers_of_copied_batches, {}),
    (take_what_comes_behind_a_refused_batch, DISKS_FULL),
    (show_consumers_all_there_is, {}),
    (tell_of_an_end_before_it_is_known, {}),
    (serve_without_a_lease, {}),
    (renew_the_lease_of_a_fenced_broker, {}),
    (fence_without_waiting, {}),
    (take_silence_for_an_end, {}),
    (forget_the_vote, {}),
    (say_that_metadata_is_kept_before_it_is, {}),
    (take_changes_decided_on_old_images, {}),
    (come_into_sync_too_early, {}),
    (elect_anybody_who_is_up, {}),
)
"""And a world that provokes it where others rarely do."""
